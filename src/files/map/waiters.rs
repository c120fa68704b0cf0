//! Lets processes that wait for messages be woken by the writer, through a word in a small file.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::mapped_file::MappedFile;
use crate::error::{Error, Result};
use crate::files::system::storage::{Access, Storage};

const FILE_LEN: u64 = 4096;
const NOBODY: [u8; 4] = [0; 4];
const SOMEBODY: [u8; 4] = [1; 4];

/// The word's file. It is written by system calls, so that a full disk is an error and no signal.
#[derive(Debug)]
pub struct Waiters(Option<MappedFile>);

impl Waiters {
    /// Opens the writer's file, creating it if missing. If that fails nobody is woken, and waiting
    /// processes look for messages by themselves.
    #[must_use]
    pub fn create(storage: &dyn Storage, path: &Path) -> Self {
        let _ = storage.create(path, FILE_LEN);
        Self::open(storage, path).unwrap_or(Self(None))
    }

    pub fn open(storage: &dyn Storage, path: &Path) -> Result<Self> {
        let file = storage.open(path, Access::ReadWrite).map_err(Error::io("open", path))?;
        let map = MappedFile::map(path, file, Access::Read, 0)?;
        match map.word() {
            Some(_) => Ok(Self(Some(map))),
            None => Err(Error::io("map", path)(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Asks to be woken. The caller looks at the log afterwards, and then waits.
    pub fn register(&self) -> Result<()> {
        self.write(SOMEBODY)
    }

    #[inline]
    fn word(&self) -> Option<&AtomicU32> {
        self.0.as_ref().and_then(MappedFile::word)
    }

    /// Waits until the writer wakes all who asked, at most `most`.
    pub fn wait(&self, most: Duration) {
        if let Some(word) = self.word() {
            futex::wait(word, 0x0101_0101, most);
        }
    }

    pub fn close(&mut self) {
        self.wake();
        self.0 = None;
    }

    /// Wakes all who asked. It may miss one who asks at that moment.
    #[inline]
    pub fn wake(&self) {
        if let Some(word) = self.word()
            && word.load(Ordering::Relaxed) != 0
        {
            self.wake_all(word);
        }
    }

    #[cold]
    fn wake_all(&self, word: &AtomicU32) {
        // If it fails, the next append wakes them again.
        let _ = self.write(NOBODY);
        futex::wake(word);
    }

    fn write(&self, word: [u8; 4]) -> Result<()> {
        let Some(map) = &self.0 else { return Ok(()) };
        map.file().write_at(&word, 0).map_err(Error::io("write", map.path()))
    }
}

#[cfg(target_os = "linux")]
mod futex {
    use super::{AtomicU32, Duration};
    use rustix::thread::futex::{self, Flags};

    pub(super) fn wait(word: &AtomicU32, value: u32, most: Duration) {
        // Any outcome lets the caller look again.
        let _ = futex::wait(word, Flags::empty(), value, most.try_into().ok().as_ref());
    }

    pub(super) fn wake(word: &AtomicU32) {
        let _ = futex::wake(word, Flags::empty(), i32::MAX.unsigned_abs());
    }
}

#[cfg(not(target_os = "linux"))]
mod futex {
    use super::{AtomicU32, Duration};

    pub(super) fn wait(_: &AtomicU32, _: u32, most: Duration) {
        std::thread::sleep(most.min(Duration::from_millis(5)));
    }

    pub(super) fn wake(_: &AtomicU32) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;

    const EVER: Duration = Duration::from_secs(600);

    #[test]
    fn who_asked_is_woken_and_who_came_late_does_not_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("waiters");
        let writer = Waiters::create(&Os, &path);
        let reader = Waiters::open(&Os, &path).unwrap();
        writer.wake();
        reader.wait(EVER); // nobody asked
        reader.register().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| reader.wait(EVER));
            writer.wake();
        });
        assert_eq!(std::fs::read(&path).unwrap()[..4], NOBODY);
    }

    #[test]
    fn a_file_without_the_word_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("waiters");
        assert!(Waiters::open(&Os, &path).is_err());
        std::fs::write(&path, [0; 3]).unwrap();
        assert!(Waiters::open(&Os, &path).is_err());
        assert!(Waiters::create(&Os, &path).word().is_none());
    }
}

//! The durable mark: how far the log is durable, in our own file `mqstore.mark`.
//!
//! Two slots in separate pages are written in turn: if one is torn, its checksum is wrong and the
//! other holds the previous offset. RocketMQ ignores the file. It is written after the flush, so it
//! is never ahead.
//!
//! | at | type | field |
//! |---|---|---|
//! | 0 | 8 bytes | `MQMARK01` |
//! | 8 | i64 | number of the write; the slot with the higher one counts |
//! | 16 | i64 | everything before this physical offset is durable |
//! | 24 | i32 | checksum of the `abort` file of the writer's session |
//! | 28 | i32 | CRC-32 of the bytes before |
//!
//! A third slot at 2048 tells readers beside the writer how far all queue entries are in files.

use crate::locks::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

use super::lock;
use super::paths::StorePaths;
use crate::error::{CorruptionKind, Error, Result};
use crate::files::{Access, StorageFile};
use crate::format::bytes::{array_at, i32_at, i64_at, put_i32_in, put_i64_in, put_in};
use crate::format::checkpoint::CheckpointFields;
use crate::format::crc::crc32;
pub use crate::log::read::end::Flushed;

const MAGIC: [u8; 8] = *b"MQMARK01";
const SLOT_LEN: usize = 32;
/// Positions of the slots. A lost 4 KiB sector destroys only one.
const SLOTS: [u64; 2] = [0, 4096];
const QUEUES_SLOT: u64 = 2048;
const FILE_LEN: usize = 8192;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub offset: u64,
    number: i64,
    session: i32,
}

impl Flushed {
    /// Returns the known part: after a crash of the session that wrote the mark, the mark; if
    /// RocketMQ has written since, mark or checkpoint.
    #[must_use]
    pub fn of(
        paths: &StorePaths,
        mark: Option<Mark>,
        checkpoint: &CheckpointFields,
        is_clean: bool,
    ) -> Self {
        let offset = mark.map_or(0, |mark| mark.offset);
        let before_ms = match mark {
            _ if is_clean => i64::MAX,
            Some(mark) if mark.is_of_last_session(paths) => i64::MIN,
            _ => checkpoint.physic_msg_timestamp_ms,
        };
        Self { offset, before_ms }
    }
}

impl Mark {
    /// Reads a store's mark without changing it; `None` if it is missing.
    pub fn read(paths: &StorePaths) -> Result<Option<Self>> {
        let path = paths.mark();
        let Some(file) = paths.storage.open_if_there(&path, Access::Read)? else { return Ok(None) };
        let slots = SLOTS.map(|at| {
            let mut bytes = [0; SLOT_LEN];
            // An unreadable slot counts as torn.
            file.read_at(&mut bytes, at).ok().and_then(|_| Self::decode(&bytes))
        });
        match slots.into_iter().flatten().max_by_key(|mark| mark.number) {
            Some(mark) => Ok(Some(mark)),
            None => Err(Error::corrupt(
                &path,
                0,
                CorruptionKind::Magic,
                "a durable mark",
                "none with a valid checksum; the checkpoint tells instead what was flushed",
            )),
        }
    }

    /// Offset before which a serving writer has written all queue entries.
    pub fn written_queues(paths: &StorePaths) -> Result<u64> {
        let path = paths.mark();
        let file = paths.storage.open(&path, Access::Read).map_err(Error::io("open", &path))?;
        let mut bytes = [0; SLOT_LEN];
        file.read_at(&mut bytes, QUEUES_SLOT).map_err(Error::io("read", &path))?;
        Self::decode(&bytes).map(|slot| slot.offset).ok_or_else(|| {
            let expected = "how far the writer has written its queues";
            let found = "none with a valid checksum; the queues are compared with the log instead";
            Error::corrupt(&path, QUEUES_SLOT, CorruptionKind::Magic, expected, found)
        })
    }

    #[must_use]
    pub fn is_of_last_session(&self, paths: &StorePaths) -> bool {
        session(paths).is_ok_and(|last| last == self.session)
    }

    fn decode(bytes: &[u8; SLOT_LEN]) -> Option<Self> {
        let crc = i32_at(bytes, 28)?;
        let is_valid =
            array_at(bytes, 0) == Some(&MAGIC) && crc32(bytes.get(..28)?) == crc.cast_unsigned();
        let offset = u64::try_from(i64_at(bytes, 16)?).ok()?;
        let (number, session) = (i64_at(bytes, 8)?, i32_at(bytes, 24)?);
        is_valid.then_some(Self { offset, number, session })
    }

    fn encode(self) -> [u8; SLOT_LEN] {
        let mut out = [0; SLOT_LEN];
        put_in::<0, 8, SLOT_LEN>(&mut out, MAGIC);
        put_i64_in::<8, SLOT_LEN>(&mut out, self.number);
        put_i64_in::<16, SLOT_LEN>(&mut out, self.offset.cast_signed());
        put_i32_in::<24, SLOT_LEN>(&mut out, self.session);
        let crc = crc32(out.first_chunk::<28>().map_or(&[], |bytes| bytes));
        put_i32_in::<28, SLOT_LEN>(&mut out, crc.cast_signed());
        out
    }
}

/// Checksum unique to the session that wrote `abort`.
fn session(paths: &StorePaths) -> Result<i32> {
    let path = paths.abort();
    let mut bytes = lock::read_start(paths.storage(), &path, 64)?;
    if let Ok(Some(stamp)) = paths.storage.stamp(&path) {
        bytes.extend_from_slice(format!(" {}", stamp.inode).as_bytes());
    }
    Ok(crc32(&bytes).cast_signed())
}

#[derive(Debug)]
pub struct DurableMark {
    path: PathBuf,
    written: Mutex<Written>,
}

#[derive(Clone, Debug)]
struct Written {
    /// `None` once the store is closed.
    file: Option<Arc<dyn StorageFile>>,
    mark: Mark,
    durable: i64,
}

impl DurableMark {
    /// Sets the mark to `offset`, durably, for the session of the current `abort`. `found` is the
    /// previous mark.
    pub fn set(paths: &StorePaths, found: Option<Mark>, offset: u64) -> Result<Self> {
        let path = paths.mark();
        let session = session(paths)?;
        let number = found.map_or(0, |found| found.number);
        let mark = Mark { offset, number, session };
        // A file without a mark may have any length.
        if found.is_none() {
            let mut bytes = mark.encode().to_vec();
            bytes.resize(FILE_LEN, 0);
            lock::replace(paths.storage(), &path, &bytes)?;
        }
        let file =
            paths.storage.open(&path, Access::ReadWrite).map_err(Error::io("open", &path))?;
        let written = Written { file: Some(file), mark, durable: number };
        let this = Self { path, written: Mutex::new(written) };
        if let Some(found) = found {
            this.next(offset)?;
            this.sync()?;
            if offset < found.offset {
                // No slot may keep a higher offset, in case the newer one becomes unreadable.
                this.next(offset)?;
                this.sync()?;
            }
        }
        Ok(this)
    }

    #[must_use]
    pub fn mark(&self) -> Mark {
        self.written.lock().mark
    }

    /// Writes that everything before `offset` is durable, without a flush.
    pub fn write(&self, offset: u64) -> Result<()> {
        if self.mark().offset == offset { Ok(()) } else { self.next(offset) }
    }

    fn next(&self, offset: u64) -> Result<()> {
        let mut written = self.written.lock();
        let mark = Mark { offset, number: written.mark.number.saturating_add(1), ..written.mark };
        let [even, odd] = SLOTS;
        let at = if mark.number % 2 == 0 { even } else { odd };
        let file = written.file.as_ref().ok_or(Error::Closed)?;
        file.write_at(&mark.encode(), at).map_err(Error::io("write", &self.path))?;
        written.mark = mark;
        Ok(())
    }

    /// Writes that all queue entries before `offset` are in files.
    pub fn write_queues(&self, offset: u64) -> Result<()> {
        let written = self.written.lock();
        let slot = Mark { offset, ..written.mark };
        let file = written.file.as_ref().ok_or(Error::Closed)?;
        file.write_at(&slot.encode(), QUEUES_SLOT).map_err(Error::io("write", &self.path))
    }

    pub fn sync(&self) -> Result<()> {
        let Written { file, mark, durable } = self.written.lock().clone();
        if let Some(file) = file.filter(|_| mark.number != durable) {
            file.sync().map_err(Error::flush(&self.path))?;
            let mut written = self.written.lock();
            written.durable = written.durable.max(mark.number);
        }
        Ok(())
    }

    /// Closes the file; it must not be written afterwards.
    pub fn close_file(&self) {
        self.written.lock().file = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::files::Os;

    fn store() -> (tempfile::TempDir, StorePaths) {
        let dir = tempfile::tempdir().unwrap();
        let paths = StorePaths::new(Arc::new(Os), dir.path(), &StoreConfig::default());
        (dir, paths)
    }

    fn offset(paths: &StorePaths) -> Option<u64> {
        Mark::read(paths).unwrap().map(|mark| mark.offset)
    }

    #[test]
    fn the_newest_valid_slot_counts() {
        let (_dir, paths) = store();
        assert_eq!(offset(&paths), None);
        let mark = DurableMark::set(&paths, None, 100).unwrap();
        for number in 101..110 {
            mark.write(number).unwrap();
            assert_eq!(offset(&paths), Some(number));
        }
        let whole = std::fs::read(paths.mark()).unwrap();
        assert_eq!(whole.len(), FILE_LEN);
        for slot in [0, 4096] {
            for at in slot..slot + SLOT_LEN {
                let mut bytes = whole.clone();
                bytes[at] ^= 1;
                std::fs::write(paths.mark(), &bytes).unwrap();
                assert!(matches!(offset(&paths), Some(108 | 109)), "byte {at}");
            }
        }
        std::fs::write(paths.mark(), [0; FILE_LEN]).unwrap();
        assert!(matches!(Mark::read(&paths), Err(Error::Corrupt(_))));
    }

    #[test]
    fn a_mark_that_is_lowered_leaves_nothing_of_the_higher_one() {
        let (_dir, paths) = store();
        DurableMark::set(&paths, None, 1).unwrap().write(900).unwrap();
        let found = Mark::read(&paths).unwrap();
        DurableMark::set(&paths, found, 300).unwrap();
        let whole = std::fs::read(paths.mark()).unwrap();
        for slot in [0, 4096] {
            let mut bytes = whole.clone();
            bytes[slot] ^= 1;
            std::fs::write(paths.mark(), &bytes).unwrap();
            assert_eq!(offset(&paths), Some(300));
        }
        std::fs::write(paths.mark(), &whole).unwrap();
        assert_eq!(offset(&paths), Some(300));
    }
}

//! Files that are read without leaving their pages in the page cache.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a read that stay cached until the file is closed.
const MOST_KEPT: usize = 64 << 10;

static SPARES: AtomicBool = AtomicBool::new(false);

/// Makes this process leave no page of the files that it opens from now on in the page cache.
pub fn spare_page_cache() {
    SPARES.store(true, Ordering::Relaxed);
}

/// A file whose pages may leave the cache once they are read. Pages that a broker has mapped and
/// touched stay.
#[derive(Debug)]
pub struct SparingFile {
    file: File,
    spares: bool,
}

impl SparingFile {
    pub fn new(file: File) -> Self {
        let spares = SPARES.load(Ordering::Relaxed);
        #[cfg(target_os = "linux")]
        if spares {
            use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
        }
        Self { file, spares }
    }

    pub fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, position)?;
        if read >= MOST_KEPT {
            self.drop_pages(position, read);
        }
        Ok(read)
    }

    /// A length of 0 reaches to the file's end.
    fn drop_pages(&self, position: u64, len: usize) {
        #[cfg(target_os = "linux")]
        if let (true, Ok(start), Ok(len)) = (self.spares, position.try_into(), len.try_into()) {
            use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
            let _ = posix_fadvise(&self.file, start, len, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (position, len);
    }
}

impl Deref for SparingFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for SparingFile {
    fn drop(&mut self) {
        self.drop_pages(0, 0);
    }
}

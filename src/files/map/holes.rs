//! The holes of a sparse file: walks between them, and disk space for them.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use crate::error::{Error, Result};
use crate::files::system::storage::{LARGEST_PAGE, StorageFile};
use crate::format::bytes::are_zeros;
use crate::format::width::to_usize;

/// Search unit for holes: a disk's smallest block.
const BLOCK: usize = 1024;
const PAGE: usize = 4096;
const READ: usize = 64 << 10;
const WALKED: u64 = 1 << 20;

/// Passes the bytes of a range, but for holes, to `take` until it breaks, in ever larger blocks. The
/// first ends with its page, which mostly has the last data: reading holes takes memory.
pub fn each_data(
    file: &dyn StorageFile,
    path: &Path,
    Range { start: mut at, end }: Range<u64>,
    mut take: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    let (mut block, mut most) = (Vec::new(), PAGE as u64);
    while at < end
        && let Some(data) = file.next_data(at).map_err(Error::io("read", path))?
        && data < end
    {
        // Whole blocks: what `take` writes into holes of one does not count as data later.
        let len = to_usize((most - data % most).min(end - data));
        block.resize(len.max(block.len()), 0);
        let read = file.read_at(&mut block[..len], data).map_err(Error::io("read", path))?;
        if read == 0 {
            break;
        }
        if take(data, &block[..read])?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        (at, most) = (data + read as u64, (4 * most).min(WALKED));
    }
    Ok(ControlFlow::Continue(()))
}

/// Zeroes a range; holes stay holes.
pub fn zero_out(file: &dyn StorageFile, path: &Path, range: Range<u64>) -> Result<()> {
    let zeros = vec![0; WALKED as usize];
    each_data(file, path, range, |at, bytes| {
        if !are_zeros(bytes) {
            file.write_at(&zeros[..bytes.len()], at).map_err(Error::io("zero", path))?;
        }
        Ok(ControlFlow::Continue(()))
    })
    .map(drop)
}

/// Takes disk space for the parts of a range that may lack it, and for the pages at its ends. Only
/// a block of zeros can be a hole.
pub fn fill_holes(file: &dyn StorageFile, path: &Path, range: Range<usize>) -> Result<()> {
    let range = range.start / LARGEST_PAGE * LARGEST_PAGE..range.end.next_multiple_of(LARGEST_PAGE);
    each_of_zeros(file, path, range, BLOCK, |hole| {
        let reserved = file.reserve(hole.start as u64, hole.len() as u64);
        reserved.map_err(Error::io("reserve space in", path))
    })
}

/// Gives back the disk space of the pages of zeros in a range.
pub fn release_zeros(file: &dyn StorageFile, path: &Path, range: Range<usize>) -> Result<()> {
    let range = range.start.next_multiple_of(PAGE)..range.end / PAGE * PAGE;
    each_of_zeros(file, path, range, PAGE, |zeros| {
        let released = file.release(zeros.start as u64, zeros.len() as u64);
        released.map_err(Error::io("release space in", path))
    })
}

fn each_of_zeros(
    file: &dyn StorageFile,
    path: &Path,
    range: Range<usize>,
    block: usize,
    mut call: impl FnMut(Range<usize>) -> Result<()>,
) -> Result<()> {
    let len = file.stat().map_err(Error::io("stat", path))?.len;
    let end = range.end.min(to_usize(len));
    // Holes are not read, and all are found first: a read would bring in the pages behind it, which
    // are holes no more.
    let mut data: Vec<Range<usize>> = Vec::new();
    let mut at = range.start;
    while at < end {
        let next = file.next_data(at as u64).map_err(Error::io("read", path))?;
        at = next.map_or(end, |next| (to_usize(next) / block * block).clamp(at, end));
        let piece = at..end.min(at + READ);
        data.extend((!piece.is_empty()).then_some(piece.clone()));
        at = piece.end;
    }
    let mut buffer = vec![0; READ.min(end.saturating_sub(range.start))];
    let mut zeros = range.start;
    for piece in data {
        let chunk = buffer.get_mut(..piece.len()).unwrap_or_default();
        let read = file.read_at(chunk, piece.start as u64).map_err(Error::io("read", path))?;
        chunk.get_mut(read..).unwrap_or_default().fill(0);
        for (number, bytes) in chunk.chunks(block).enumerate() {
            let at = piece.start + number * block;
            if !are_zeros(bytes) {
                if zeros < at {
                    call(zeros..at)?;
                }
                zeros = at + bytes.len();
            }
        }
    }
    if zeros < end { call(zeros..end) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Os, Storage};

    #[test]
    #[cfg(target_os = "linux")]
    fn space_of_zeros_is_given_back_and_no_byte_changes() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = Os.create(&path, 3 * LARGEST_PAGE as u64).unwrap();
        file.reserve(0, 3 * LARGEST_PAGE as u64).unwrap();
        file.write_at(&[7; PAGE], LARGEST_PAGE as u64 - 5).unwrap();
        let before = std::fs::read(&path).unwrap();
        release_zeros(&*file, &path, 100..before.len()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before);
        let taken = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(taken <= 4 * PAGE as u64, "{taken}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn space_is_taken_for_all_of_the_page_that_a_file_goes_on_in() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = Os.create(&path, 3 * LARGEST_PAGE as u64).unwrap();
        let data = [7; 3 * BLOCK];
        file.write_at(&data, (LARGEST_PAGE + 40_000) as u64).unwrap();
        let goes_on = LARGEST_PAGE + 40_000 + data.len();
        fill_holes(&*file, &path, goes_on..goes_on).unwrap();
        let taken = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(taken >= LARGEST_PAGE as u64, "{taken}");
        let mut kept = [0; 3 * BLOCK];
        file.read_at(&mut kept, (LARGEST_PAGE + 40_000) as u64).unwrap();
        assert_eq!(kept, data);
    }
}

use bytes::Bytes;

use super::kept::{BLOCK, PART};
use super::*;
use crate::format::width::to_usize;
use crate::locks::Mutex;
use std::sync::atomic::Ordering;

/// Bytes that call Python when they are dropped.
struct Foreign(Vec<u8>);

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        crate::locks::assert_none_held();
    }
}

/// Objects in memory, which note each range that is read.
#[derive(Debug, Default)]
struct Stored {
    objects: Mutex<Vec<(Object, Vec<u8>)>>,
    read: Mutex<Vec<Range<u64>>>,
}

impl Stored {
    fn put(&self, key: &str, bytes: Vec<u8>, etag: &str) {
        let (key, len, etag) = (key.to_owned(), bytes.len() as u64, Some(etag.to_owned()));
        let object = Object { key, len, etag, modified_ms: 7 };
        let mut objects = self.objects.lock();
        objects.retain(|(known, _)| known.key != object.key);
        objects.push((object, bytes));
    }
}

impl Objects for Stored {
    fn list(&self) -> io::Result<Vec<Object>> {
        Ok(self.objects.lock().iter().map(|(object, _)| object.clone()).collect())
    }

    fn ranges(
        &self,
        object: &Object,
        parts: &[Range<u64>],
        _: &[(&Object, Range<u64>)],
    ) -> io::Result<Vec<Bytes>> {
        let objects = self.objects.lock();
        let there =
            |(known, _): &&(Object, Vec<u8>)| known.key == object.key && known.etag == object.etag;
        let Some((_, bytes)) = objects.iter().find(there) else {
            return Err(io::Error::other("changed"));
        };
        self.read.lock().extend(parts.iter().cloned());
        let part = |part: &Range<u64>| &bytes[part.start as usize..part.end as usize];
        Ok(parts.iter().map(|range| Bytes::from_owner(Foreign(part(range).to_vec()))).collect())
    }
}

fn forget_parts(remote: &Remote) {
    let parts: Vec<_> = {
        let kept = &mut remote.memory.kept.lock();
        std::iter::from_fn(|| kept.parts.pop_lru()).collect()
    };
    drop(parts);
}

fn remote(memory: &Arc<Stored>) -> Remote {
    Remote::new(Arc::clone(memory) as Arc<dyn Objects>, "s3://b/p".into()).unwrap()
}

#[test]
fn keys_become_folders_and_files() {
    let memory = Arc::new(Stored::default());
    for key in ["a/b/c", "a/", "d/", "e", "e/f", "x//y", "../z", "a/b/%R G"] {
        memory.put(key, vec![1; key.len()], "1");
    }
    let remote = remote(&memory);
    let names = |dir: &str| {
        let entries = remote.list(Path::new(dir)).unwrap();
        entries.into_iter().map(|e| (e.name.into_string().unwrap(), e.kind)).collect::<Vec<_>>()
    };
    let (file, folder) = (FileKind::File, FileKind::Directory);
    let expected = ["a", "d", "e"].map(|name| (name.to_owned(), folder));
    assert_eq!(names("s3://b/p"), expected);
    assert_eq!(names("s3://b/p/a/b"), [("%R G".to_owned(), file), ("c".to_owned(), file)]);
    assert_eq!(names("s3://b/p/d"), []);
    let missing = remote.list(Path::new("s3://b/p/q")).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    // A folder of that name counts.
    assert!(remote.open(Path::new("s3://b/p/e"), Access::Read).is_err());
    let written = remote.open(Path::new("s3://b/p/a/b/c"), Access::ReadWrite).unwrap_err();
    assert_eq!(written.kind(), io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn every_read_is_the_bytes_there_and_reading_on_reads_ahead() {
    let memory = Arc::new(Stored::default());
    let len = 40 * PART / 10 + 77;
    let bytes: Vec<u8> = (0..len).map(|at| ((at * 31) >> 7) as u8).collect();
    memory.put("f", bytes.clone(), "1");
    let remote = remote(&memory);
    let file = remote.open(Path::new("s3://b/p/f"), Access::Read).unwrap();
    assert!(memory.read.lock().is_empty());
    let (mut seed, mut shared) = (7_u64, 0);
    for _ in 0..300 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let position = (seed >> 20) % (len + 1000);
        let mut buffer = vec![0; (seed >> 50) as usize * 20];
        let read = file.read_at(&mut buffer, position).unwrap();
        let expected = bytes.get(position as usize..).unwrap_or_default();
        assert_eq!(read, expected.len().min(buffer.len()), "{position}");
        assert!(buffer[..read] == expected[..read], "{position}");
        let found = file.shared_at(position, buffer.len()).unwrap().unwrap();
        assert!(found.len() >= read && expected.starts_with(&found), "{position}");
        shared += usize::from(found.len() > read);
    }
    assert!(shared > 30, "{shared}");
    memory.read.lock().clear();
    let file = remote.open(Path::new("s3://b/p/f"), Access::Read).unwrap();
    forget_parts(&remote);
    let mut kept = remote.memory.kept.lock();
    kept.blocks.clear();
    drop(kept);
    let mut buffer = vec![0; 100_000];
    for position in (0..len).step_by(buffer.len()) {
        let read = file.read_at(&mut buffer, position).unwrap();
        assert!(buffer[..read] == bytes[position as usize..][..read], "{position}");
    }
    let read = memory.read.lock();
    // Each byte once, in few parts.
    assert_eq!(read.iter().map(|part| part.end - part.start).sum::<u64>(), len);
    assert!(read.len() < 10, "{read:?}");
}

#[test]
fn threads_that_read_one_announced_range_share_its_parts() {
    let memory = Arc::new(Stored::default());
    let len = 3 * PART + 9 * BLOCK + 5;
    let bytes: Vec<u8> = (0..len).map(|at| ((at * 31) >> 7) as u8).collect();
    memory.put("log/0", bytes.clone(), "1");
    memory.put("log/1", bytes.clone(), "1");
    let remote = remote(&memory);
    let paths = ["log/0", "log/1"].map(|name| Path::new("s3://b/p").join(name));
    // The last file is read up to there.
    let ends = [len, 2 * PART + 70_000];
    let ranges: Vec<_> = paths.iter().cloned().zip(ends.map(|end| 5..end)).collect();
    let reading = remote.announce(&ranges);
    let next = AtomicU64::new(0);
    let piece = 300_000;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let files = paths.each_ref().map(|path| remote.open(path, Access::Read));
                let files = files.map(Result::unwrap);
                let mut buffer = vec![0; piece as usize];
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let (file, at) = (number % 2, number / 2 * piece);
                    let Some(left) = ends[0].max(ends[1]).checked_sub(at) else { break };
                    let left = left.min(ends[file as usize].saturating_sub(at));
                    let buffer = &mut buffer[..piece.min(left) as usize];
                    let read = files[file as usize].read_at(buffer, at).unwrap();
                    assert!(buffer[..read] == bytes[at as usize..][..read], "{file} {at}");
                }
            });
        }
    });
    let read = std::mem::take(&mut *memory.read.lock());
    let count: u64 = read.iter().map(|part| part.end - part.start).sum();
    let wanted = ends[0] + ends[1].next_multiple_of(BLOCK);
    assert_eq!((read.len(), count), (4 + 3, wanted), "{read:?}");
    // Places are for themselves.
    forget_parts(&remote);
    let file = remote.open(&paths[0], Access::Read).unwrap();
    file.read_many(&[(PART + 7, 9), (2 * PART + 7, 9)]).unwrap();
    let read = std::mem::take(&mut *memory.read.lock());
    assert_eq!(read, [PART..PART + BLOCK, 2 * PART..2 * PART + BLOCK]);
    drop(reading);
    // Behind its end, and later everywhere, a read is for itself.
    let file = remote.open(&paths[1], Access::Read).unwrap();
    let at = 2 * PART + PART / 2;
    file.read_at(&mut [0], at + 1).unwrap();
    let read = memory.read.lock().clone();
    assert_eq!((read.len(), read.first()), (1, Some(&(at..at + BLOCK))));
}

#[test]
fn places_are_asked_for_at_once_and_each_block_once() {
    let memory = Arc::new(Stored::default());
    let len = 3 * PART + 5;
    let bytes: Vec<u8> = (0..len).map(|at| ((at * 31) >> 7) as u8).collect();
    memory.put("f", bytes.clone(), "1");
    let file = remote(&memory).open(Path::new("s3://b/p/f"), Access::Read).unwrap();
    let places = [(2 * PART, 9), (3, BLOCK as usize), (len - 2, 7), (2 * PART + 4, 1), (len, 1)];
    let read = file.read_many(&places).unwrap();
    for ((at, wanted), found) in places.iter().zip(&read) {
        let expected = bytes.iter().skip(*at as usize).take(*wanted);
        assert!(found.iter().eq(expected), "{at}");
    }
    let asked = std::mem::take(&mut *memory.read.lock());
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert_eq!(file.read_many(&places).unwrap(), read);
    assert!(memory.read.lock().is_empty());
}

#[test]
fn zeros_at_the_end_are_not_read() {
    let memory = Arc::new(Stored::default());
    let mut bytes = vec![0; 5 * PART as usize];
    bytes[..100].fill(1);
    memory.put("f", bytes.clone(), "1");
    bytes[3 * PART as usize..].fill(2);
    memory.put("g", bytes, "1");
    let remote = remote(&memory);
    let open = |name: &str| remote.open(&Path::new("s3://b/p").join(name), Access::Read);
    let (f, g) = (open("f").unwrap(), open("g").unwrap());
    assert_eq!(f.next_data(7).unwrap(), Some(7));
    assert_eq!(f.next_data(100).unwrap(), None);
    let read: u64 = memory.read.lock().iter().map(|part| part.end - part.start).sum();
    assert!(read < 2 * BLOCK, "{read}");
    let asked = memory.read.lock().len();
    assert_eq!(f.next_data(PART).unwrap(), None);
    assert_eq!(memory.read.lock().len(), asked);
    assert_eq!(g.next_data(100).unwrap(), Some(BLOCK));
    assert_eq!(g.next_data(3 * PART - 1).unwrap(), Some(3 * PART));
    assert_eq!(g.next_data(5 * PART).unwrap(), None);
}

#[test]
fn a_changed_object_is_another_file_once_listed_again() {
    let memory = Arc::new(Stored::default());
    memory.put("f", vec![1; 3 * BLOCK as usize], "1");
    let remote = remote(&memory);
    let path = Path::new("s3://b/p/f");
    let (before, stamp) = (remote.open(path, Access::Read).unwrap(), remote.stamp(path));
    let mut byte = [0];
    before.read_at(&mut byte, 0).unwrap();
    memory.put("f", vec![2; 3 * BLOCK as usize], "2");
    assert!(before.read_at(&mut byte, 2 * BLOCK).is_err());
    assert_eq!(remote.stamp(path).unwrap(), stamp.unwrap());
    let remote = remote.listed_again().unwrap();
    let after = remote.open(path, Access::Read).unwrap();
    after.read_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [2]);
    assert_ne!(after.stat().unwrap().inode, before.stat().unwrap().inode);
}

#[test]
fn a_reader_that_goes_on_into_the_next_file_asks_for_whole_blocks() {
    let memory = Arc::new(Stored::default());
    let bytes: Vec<u8> = (0..20 * BLOCK + 40_000).map(|at| (at % 251) as u8 + 1).collect();
    for name in ["q/0", "q/1"] {
        memory.put(name, bytes.clone(), "1");
    }
    let check = |places: &[(u64, usize)], before: u64| {
        let remote = remote(&memory);
        let open = |name: &str| remote.open(&Path::new("s3://b/p").join(name), Access::Read);
        let first = open("q/0").unwrap();
        first.read_at(&mut [0], bytes.len() as u64 - before).unwrap();
        let next = open("q/1").unwrap();
        next.read_at(&mut [0], 0).unwrap();
        for (read, (at, len)) in next.read_many(places).unwrap().iter().zip(places) {
            let expected = bytes.iter().skip(*at as usize).take(*len);
            assert!(read.iter().eq(expected), "{before} {places:?}");
        }
    };
    for before in [1, 40_001, 3 * BLOCK] {
        for block in 1..20 {
            let at = block * BLOCK;
            check(&[(at - 20_000, 40_000)], before);
            check(&[(BLOCK, 1), (at + 6 * BLOCK, 70_000)], before);
            check(&[(at + 30_000, 1), (at + 30_000, 3 * to_usize(BLOCK))], before);
        }
    }
}

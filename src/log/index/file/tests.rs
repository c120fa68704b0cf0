use std::fs;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::error::Corruption;
use crate::files::Os;
use crate::format::java::{key_hash, key_hash_of};
use crate::log::OffsetLists;

mod damage;
mod golden;

const EVER: i64 = i64::MAX;

fn layout(slots: u32, entries: u32) -> IndexLayout {
    IndexLayout::new(slots, entries).unwrap()
}

fn create(slots: u32, entries: u32) -> (TempDir, IndexFile) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("20261121073513325");
    let file = IndexFile::create(&Os, &path, layout(slots, entries), None).unwrap();
    (dir, file)
}

fn readers(file: &IndexFile) -> Vec<IndexFile> {
    [IndexOpen::Read, IndexOpen::ReadMapped]
        .map(|how| IndexFile::open(&Os, file.path(), *file.layout(), how).unwrap())
        .into()
}

fn select(file: &IndexFile, hash: i32, begin: i64, end: i64, max: usize) -> Vec<i64> {
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    file.select(hash, begin, end, max, &mut found, &mut findings).unwrap();
    assert_eq!(findings, [], "a sound file");
    let mut lists = OffsetLists::default();
    file.select_many(&[hash], begin, end, max, &mut lists, &mut findings).unwrap();
    assert_eq!((&lists.offsets, &lists.ends), (&found, &vec![found.len()]));
    found
}

fn check(file: &IndexFile) -> Vec<Corruption> {
    let mut findings = Vec::new();
    file.check(&mut |corruption| findings.push(corruption)).unwrap();
    findings
}

fn bytes_of(file: &IndexFile) -> Vec<u8> {
    fs::read(file.path()).unwrap()
}

fn overwrite(file: &IndexFile, position: u64, value: i32) {
    let raw = fs::OpenOptions::new().write(true).open(file.path()).unwrap();
    raw.write_all_at(&value.to_be_bytes(), position).unwrap();
}

#[test]
fn ix01_length_is_header_and_slots_and_entries() {
    let (_dir, file) = create(100, 400);
    assert_eq!(bytes_of(&file), [0; 8_440]);
    assert_eq!(layout(5_000_000, 20_000_000).file_len(), 420_000_040);
}

/// 399 keys `0` to `398` at the offsets that they name.
fn full_file() -> (TempDir, IndexFile) {
    let (dir, mut file) = create(100, 400);
    for offset in 0..399 {
        let hash = key_hash_of(offset.to_string().as_bytes());
        assert!(file.put_key(hash, offset, 1_000).unwrap());
    }
    (dir, file)
}

#[test]
fn ix02_one_entry_less_than_places_fits() {
    let (_dir, mut file) = full_file();
    assert!(file.is_full());
    let before = bytes_of(&file);
    assert!(!file.put_key(7, 399, 1_000).unwrap());
    assert_eq!(file.put_many(&[put(7, 399, 1_000)]).unwrap(), 0);
    assert_eq!(bytes_of(&file), before);
}

#[test]
fn ix03_a_key_among_all_is_found_once() {
    let (_dir, file) = full_file();
    assert_eq!(select(&file, key_hash_of(b"60"), 0, EVER, 10), [60]);
}

#[test]
fn ix04_first_put_fills_header_slot_and_entry() {
    let (_dir, mut file) = create(100, 400);
    let (hash, time) = (key_hash(b"T", b"K"), 1_696_161_296_000);
    file.put_key(hash, 500, time).unwrap();
    let expected = IndexHeader {
        begin_timestamp_ms: time,
        end_timestamp_ms: time,
        begin_physical_offset: 500,
        end_physical_offset: 500,
        hash_slot_count: 1,
        index_count: 2,
    };
    assert_eq!(file.header().unwrap(), expected);
    let bytes = bytes_of(&file);
    assert_eq!(bytes[..40], expected.encode());
    let slot = 40 + 4 * usize::try_from(hash % 100).unwrap();
    assert_eq!(bytes[slot..slot + 4], [0, 0, 0, 1]);
    let entry = IndexEntry { key_hash: hash, physical_offset: 500, seconds: 0, prev_entry: 0 };
    assert_eq!(bytes[460..480], entry.encode());
    assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), {
        let written = [&expected.encode()[..], &[1], &entry.encode()[..]].concat();
        written.iter().filter(|byte| **byte != 0).count()
    });
}

#[test]
fn ix05_second_key_of_a_slot_links_to_the_first() {
    let (_dir, mut file) = create(100, 400);
    file.put_key(11, 500, 10_000).unwrap();
    file.put_key(111, 600, 12_999).unwrap();
    let chain = file.chain(11, 10, &mut Vec::new()).unwrap();
    let entry = IndexEntry { key_hash: 111, physical_offset: 600, seconds: 2, prev_entry: 1 };
    assert_eq!(chain[0], (2, entry));
    assert_eq!(chain.len(), 2);
    assert_eq!(file.chain(11, 1, &mut Vec::new()).unwrap(), chain[..1]);
    let header = file.header().unwrap();
    assert_eq!((header.hash_slot_count, header.index_count), (1, 3));
    assert_eq!(file.slots().map(Result::unwrap).collect::<Vec<_>>(), [(11, 2)]);
}

#[test]
fn ix06_hash_without_a_positive_counterpart_is_stored_as_zero() {
    let hash = key_hash_of(b"polygenelubricants");
    assert_eq!(hash, 0);
    let (_dir, mut file) = create(100, 400);
    file.put_key(hash, 500, 1_000).unwrap();
    assert_eq!(select(&file, hash, 0, EVER, 10), [500]);
    assert_eq!(file.slots().map(Result::unwrap).collect::<Vec<_>>(), [(0, 1)]);
}

#[test]
fn ix07_equal_hashes_are_found_together_newest_first() {
    let (one, other) = (key_hash(b"T", b"Aa"), key_hash(b"T", b"BB"));
    assert_eq!(one, other);
    let (_dir, mut file) = create(100, 400);
    file.put_key(one, 1, 1_000).unwrap();
    file.put_key(other, 2, 1_000).unwrap();
    assert_eq!(select(&file, one, 0, EVER, 10), [2, 1]);
    assert_eq!(select(&file, one, 0, EVER, 1), [2]);
    assert!(select(&file, one, 0, EVER, 0).is_empty());
}

#[test]
fn ix08_seconds_are_clamped() {
    let (_dir, mut file) = create(100, 400);
    let begin = 1_696_161_296_000;
    for (offset, time) in [(1, begin), (2, begin - 5_000), (3, begin + 3_000_000_000_000)] {
        file.put_key(5, offset, time).unwrap();
    }
    let seconds: Vec<_> = file.entries().unwrap().map(|entry| entry.unwrap().1.seconds).collect();
    assert_eq!(seconds, [0, 0, i32::MAX]);
}

#[test]
fn ix09_whole_seconds_hide_an_entry_from_the_raw_look_up() {
    let (_dir, mut file) = create(100, 400);
    let begin = 1_696_161_296_000;
    file.put_key(5, 1, begin).unwrap();
    file.put_key(5, 2, begin + 1_999).unwrap();
    assert!(select(&file, 5, begin + 1_500, begin + 2_500, 10).is_empty());
    assert_eq!(select(&file, 5, begin + 1_000, begin + 2_500, 10), [2]);
}

#[test]
fn ix15_first_entry_of_a_later_file_counts_from_the_end_of_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let ended = 1_696_161_296_000;
    let previous =
        IndexHeader { end_timestamp_ms: ended, end_physical_offset: 900, ..IndexHeader::default() };
    let path = dir.path().join("20261121073513325");
    let mut file = IndexFile::create(&Os, &path, layout(100, 400), Some(&previous)).unwrap();
    assert_eq!(bytes_of(&file)[36..40], [0; 4], "the count");
    let begun = file.header().unwrap();
    assert_eq!((begun.begin_timestamp_ms, begun.end_timestamp_ms), (ended, ended));
    assert_eq!((begun.begin_physical_offset, begun.end_physical_offset), (900, 900));
    file.put_key(5, 1_000, ended + 10_000).unwrap();
    assert_eq!(file.header().unwrap().begin_timestamp_ms, ended + 10_000);
    assert_eq!(file.entries().unwrap().next().unwrap().unwrap().1.seconds, 10);
}

#[test]
fn a_new_file_says_its_count_with_the_first_flush() {
    let (_dir, mut file) = create(3, 8);
    assert_eq!(bytes_of(&file)[36..40], [0; 4]);
    assert_eq!(file.header().unwrap().index_count, 1);
    assert!(!file.is_full());
    file.flush().unwrap();
    assert_eq!(bytes_of(&file)[36..40], [0, 0, 0, 1]);
}

#[test]
fn creating_over_a_file_fails_and_leaves_it() {
    let (_dir, file) = full_file();
    let before = bytes_of(&file);
    let again = IndexFile::create(&Os, file.path(), *file.layout(), None);
    assert!(matches!(again, Err(Error::Io { op: crate::error::Operation::Other("create"), .. })));
    assert_eq!(bytes_of(&file), before);
}

#[test]
fn a_file_open_for_reading_takes_no_puts() {
    let (_dir, file) = create(3, 8);
    for mut reader in readers(&file) {
        assert!(matches!(reader.put_key(1, 2, 3), Err(Error::ReadOnly { .. })));
        assert!(matches!(reader.truncate(2, 0), Err(Error::ReadOnly { .. })));
        reader.flush().unwrap();
    }
}

#[test]
fn readers_see_what_is_put_after_they_opened() {
    let (_dir, mut file) = create(3, 8);
    let readers = readers(&file);
    file.put_key(1, 200, 3_000).unwrap();
    for reader in &readers {
        assert_eq!(select(reader, 1, 0, EVER, 10), [200]);
        assert_eq!(reader.header().unwrap(), file.header().unwrap());
    }
}

#[test]
fn a_sparse_file_gets_its_slots_space_when_it_is_opened_for_writing_and_gives_it_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("20261121073513325");
    let layout = layout(1 << 20, 1 << 16);
    let (_other, mut full) = create(1 << 20, 1 << 16);
    for (number, hash) in (1..).zip([0, 5, 500_000, 1_048_575]) {
        full.put_key(hash, number, 1_000).unwrap();
    }
    let raw = fs::File::create(&path).unwrap();
    raw.set_len(layout.file_len()).unwrap();
    for (position, block) in (0_u64..).step_by(4096).zip(bytes_of(&full).chunks(4096)) {
        if block.iter().any(|byte| *byte != 0) {
            raw.write_all_at(block, position).unwrap();
        }
    }
    let taken = || raw.metadata().unwrap().blocks() * 512;
    assert!(taken() < 1 << 20);
    let mut open = IndexFile::open(&Os, &path, layout, IndexOpen::Write).unwrap();
    assert!(taken() >= 4 << 20);
    for file in [&mut open, &mut full] {
        file.put_key(77, 5, 2_000).unwrap();
        file.flush().unwrap();
    }
    open.release_space().unwrap();
    assert!(taken() < 1 << 20);
    assert_eq!(bytes_of(&open), bytes_of(&full));
    assert_eq!(select(&open, 500_000, 0, EVER, 10), [3]);
}

#[test]
fn reading_beside_a_writer_finds_what_was_put_before() {
    let (_dir, mut file) = create(50, 20_001);
    let readers = readers(&file);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in &readers {
            scope.spawn(|| {
                let mut longest = 0;
                while !done.load(Ordering::Acquire) {
                    let before = i64::from(reader.header().unwrap().index_count) - 1;
                    let mut found = Vec::new();
                    reader.select(7, 0, EVER, usize::MAX, &mut found, &mut Vec::new()).unwrap();
                    assert!(found.len() as i64 >= before / 10);
                    let expected = (0..found.len() as i64).rev().map(|number| number * 1_000);
                    assert!(found.iter().copied().eq(expected));
                    longest = longest.max(found.len());
                }
                let mut found = Vec::new();
                reader.select(7, 0, EVER, usize::MAX, &mut found, &mut Vec::new()).unwrap();
                assert_eq!(found.len(), 2_000);
                assert!(longest <= 2_000);
            });
        }
        for number in 0..20_000_i32 {
            let hash = if number % 10 == 0 { 7 } else { 57 + number * 50 };
            file.put_key(hash, i64::from(number) * 100, 1_000).unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(check(&file), []);
}

#[test]
fn readers_answer_as_the_writer() {
    let (_dir, file) = full_file();
    for reader in readers(&file) {
        for offset in 0..399 {
            let hash = key_hash_of(offset.to_string().as_bytes());
            assert_eq!(select(&reader, hash, 0, EVER, 10), select(&file, hash, 0, EVER, 10));
        }
    }
}

#[test]
fn answers_in_one_list_come_apart_at_their_ends() {
    let (_dir, mut file) = create(7, 28);
    file.put_many(&[put(1, 100, 5_000), put(1, 200, 5_000), put(2, 300, 5_000)]).unwrap();
    let mut lists = OffsetLists::with_capacity(3);
    for _ in 0..2 {
        lists.offsets.clear();
        lists.ends.clear();
        file.select_many(&[1, 3, 2], 0, EVER, 10, &mut lists, &mut Vec::new()).unwrap();
        assert_eq!((&*lists.offsets, &*lists.ends), (&[200, 100, 300][..], &[2, 2, 3][..]));
    }
}

fn put(key_hash: i32, physical_offset: i64, store_timestamp_ms: i64) -> IndexPut {
    IndexPut { key_hash, physical_offset, store_timestamp_ms }
}

/// Puts in log order with few hashes, so that slots and times collide.
fn any_puts() -> impl Strategy<Value = Vec<IndexPut>> {
    prop::collection::vec((0_i32..20, 0_i64..3, -2_000_i64..4_000), 1..120).prop_map(|puts| {
        let (mut offset, mut time) = (0, 1_696_161_296_000);
        let mut log_order = Vec::new();
        for (hash, step, ms) in puts {
            offset += step * 100;
            time += ms;
            log_order.push(put(hash, offset, time));
        }
        log_order
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn batches_give_the_bytes_of_single_puts(puts in any_puts(), pieces in 1_usize..50) {
        let (_one, mut single) = create(7, 100);
        let (_two, mut batched) = create(7, 100);
        for put in &puts {
            single.put_key(put.key_hash, put.physical_offset, put.store_timestamp_ms).unwrap();
        }
        let mut fitted = 0;
        for piece in puts.chunks(pieces) {
            fitted += batched.put_many(piece).unwrap();
        }
        prop_assert_eq!(fitted, puts.len().min(99));
        prop_assert_eq!(bytes_of(&single), bytes_of(&batched));
        prop_assert_eq!(check(&single), []);
    }

    #[test]
    fn many_look_ups_answer_as_single_ones(puts in any_puts(), begin in -1_000_i64..90_000) {
        let (_dir, mut file) = create(7, 200);
        file.put_many(&puts).unwrap();
        let hashes: Vec<_> = (0..40).map(|hash| hash % 23).collect();
        let begin = 1_696_161_296_000 + begin;
        for (max, end) in [(10, EVER), (2, begin + 20_000), (0, EVER)] {
            for handle in readers(&file).iter().chain([&file]) {
                let mut lists = OffsetLists::default();
                handle.select_many(&hashes, begin, end, max, &mut lists, &mut Vec::new()).unwrap();
                let single: Vec<_> =
                    hashes.iter().map(|hash| select(&file, *hash, begin, end, max)).collect();
                let begins = std::iter::once(&0).chain(&lists.ends);
                let many = begins.zip(&lists.ends).map(|(from, to)| &lists.offsets[*from..*to]);
                prop_assert!(many.eq(single.iter().map(Vec::as_slice)));
            }
        }
    }

    #[test]
    fn truncating_undoes_puts_to_the_byte(puts in any_puts(), kept in 1_usize..120) {
        let kept = kept.min(puts.len());
        let (_one, mut cut) = create(7, 200);
        let (_two, mut short) = create(7, 200);
        cut.put_many(&puts).unwrap();
        short.put_many(&puts[..kept]).unwrap();
        let count = u32::try_from(kept).unwrap() + 1;
        prop_assert!(cut.truncate(count, puts[kept - 1].store_timestamp_ms).unwrap());
        prop_assert_eq!(bytes_of(&cut), bytes_of(&short));
        prop_assert!(!cut.truncate(1, 0).unwrap());
        prop_assert_eq!(bytes_of(&cut), bytes_of(&short));
    }

    #[test]
    fn reopening_between_puts_changes_nothing(puts in any_puts(), split in 0_usize..120) {
        let (_one, mut whole) = create(7, 200);
        let (_two, mut first) = create(7, 200);
        whole.put_many(&puts).unwrap();
        let (before, after) = puts.split_at(split.min(puts.len()));
        first.put_many(before).unwrap();
        let mut second =
            IndexFile::open(&Os, first.path(), *first.layout(), IndexOpen::Write).unwrap();
        drop(first);
        second.put_many(after).unwrap();
        prop_assert_eq!(bytes_of(&whole), bytes_of(&second));
    }

    #[test]
    fn any_bytes_can_be_walked(
        noise in prop::collection::vec(any::<u8>(), 212),
        small in prop::collection::vec((0_usize..53, -2_i32..10), 0..53),
    ) {
        let (_dir, file) = create(3, 8);
        let mut noise = noise;
        for (word, value) in small {
            noise[word * 4..word * 4 + 4].copy_from_slice(&value.to_be_bytes());
        }
        fs::write(file.path(), &noise).unwrap();
        for how in [IndexOpen::Read, IndexOpen::ReadMapped, IndexOpen::Write] {
            let Ok(mut open) = IndexFile::open(&Os, file.path(), layout(3, 8), how) else {
                continue;
            };
            let mut findings = Vec::new();
            for hash in 0..3 {
                let mut found = Vec::new();
                open.select(hash, i64::MIN, EVER, 100, &mut found, &mut findings).unwrap();
                prop_assert!(found.len() < 8);
                open.chain(hash, 100, &mut findings).unwrap();
            }
            let mut lists = OffsetLists::default();
            open.select_many(&[0, 1, 2], 0, EVER, 100, &mut lists, &mut findings).unwrap();
            open.check(&mut |finding| findings.push(finding)).unwrap();
            open.first_entry_from(5).unwrap();
            if how == IndexOpen::Write {
                open.put_key(1, 2, 3).unwrap();
                let cut = open.truncate(2, 3);
                prop_assert!(matches!(cut, Ok(_) | Err(Error::Corrupt(_))));
            }
        }
    }
}

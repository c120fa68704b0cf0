use std::fs;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::error::{CorruptionKind, Error};
use crate::files::Os;
use crate::format::file_name::index_name;
use crate::format::java::key_hash;
use crate::format::message::properties::Indexed;
use crate::format::message::sys_flag::Transaction;
use crate::log::index::rocketmq::IndexAnswer;
use crate::time::{CalendarTime, FixedClock};

mod cut;
mod damage;

const EVER: i64 = i64::MAX;
const NOW: i64 = 1_795_246_513_325;

struct Index {
    dir: TempDir,
    clock: Arc<FixedClock>,
    layout: IndexLayout,
    service: IndexService,
}

impl Index {
    fn new(slots: u32, entries: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(FixedClock::new(NOW));
        let layout = IndexLayout::new(slots, entries).unwrap();
        let service = load(&dir, layout, &clock).0;
        Self { dir, clock, layout, service }
    }

    fn reload(&mut self) -> Vec<Corruption> {
        self.service.drain().unwrap();
        let (service, findings) = load(&self.dir, self.layout, &self.clock);
        self.service = service;
        findings
    }

    fn build(&mut self, physical_offset: i64, time: i64, keys: &str) -> usize {
        self.service.build(&message(physical_offset, time, keys)).unwrap()
    }

    fn raw(&mut self, key: &str, begin: i64, end: i64, max: usize) -> Vec<i64> {
        self.service.drain().unwrap();
        let answer =
            self.service.run().query_offsets(&[], b"T", key.as_bytes(), (begin, end), max).unwrap();
        assert_eq!(answer.findings, []);
        answer.offsets
    }

    fn candidates(&mut self, key: &str, begin: i64, end: i64) -> Vec<i64> {
        self.service.drain().unwrap();
        let mut candidates = self.service.run().candidates(b"T", key.as_bytes(), begin, end);
        let (mut found, mut findings) = (Vec::new(), Vec::new());
        while candidates.next_file(&mut findings).unwrap() {
            loop {
                let before = found.len();
                let more = candidates.next_chunk(before + 2, &mut found, &mut findings).unwrap();
                assert!(found.len() <= before + 2);
                if !more {
                    break;
                }
            }
        }
        assert_eq!(findings.len(), self.service.run().unusable().len(), "{findings:?}");
        found.iter().filter(|found| found.is_wanted).map(|found| found.physical_offset).collect()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.dir.path().join("index"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn bytes(&mut self) -> Vec<Vec<u8>> {
        self.service.drain().unwrap();
        let dir = self.dir.path().join("index");
        self.names().iter().map(|name| fs::read(dir.join(name)).unwrap()).collect()
    }

    fn check(&mut self) {
        self.service.drain().unwrap();
        for file in self.service.run().files() {
            let open = self.service.run().open(&file).unwrap();
            open.check(&mut |corruption| panic!("{corruption}")).unwrap();
        }
    }
}

fn load(
    dir: &TempDir,
    layout: IndexLayout,
    clock: &Arc<FixedClock>,
) -> (IndexService, Vec<Corruption>) {
    let clock = Arc::clone(clock);
    IndexService::load(Arc::new(Os), &dir.path().join("index"), layout, clock).unwrap()
}

fn message(physical_offset: i64, store_timestamp_ms: i64, keys: &str) -> DispatchRequest<'_> {
    DispatchRequest {
        physical_offset,
        store_timestamp_ms,
        transaction: Transaction::None,
        topic: b"T",
        properties: Indexed { keys: Some(keys.as_bytes()), ..Indexed::default() },
        ..DispatchRequest::default()
    }
}

fn with_unique_key(mut message: DispatchRequest<'_>) -> DispatchRequest<'_> {
    message.properties.unique_key = Some(b"U");
    message
}

#[test]
fn ix02_the_key_after_a_full_file_goes_to_a_new_one() {
    let mut index = Index::new(100, 400);
    for offset in 0..400 {
        index.build(offset, NOW, &offset.to_string());
    }
    assert_eq!(index.names().len(), 2);
    assert_eq!(index.raw("398", 0, EVER, 10), [398]);
    assert_eq!(index.raw("399", 0, EVER, 10), [399]);
    assert_eq!(index.service.begin_flush().unwrap().run().unwrap(), Some(NOW));
    assert_eq!(index.service.begin_flush().unwrap().run().unwrap(), None);
}

#[test]
fn the_first_key_after_a_restart_goes_behind_a_full_file() {
    let mut index = Index::new(100, 4);
    for offset in 0..3 {
        index.build(offset, NOW, "k");
    }
    assert_eq!(index.reload(), []);
    assert_eq!(index.build(3, NOW, "k"), 1);
    assert_eq!(index.names().len(), 2);
    assert_eq!(index.raw("k", 0, EVER, 10), [3, 2, 1, 0]);
}

#[test]
fn ix10_unique_key_and_each_piece_of_keys_get_an_entry() {
    let mut index = Index::new(100, 400);
    let message = with_unique_key(message(500, NOW, "a b  c"));
    assert_eq!(index.service.build(&message).unwrap(), 4);
    index.service.drain().unwrap();
    let hashes: Vec<_> = index
        .service
        .current()
        .unwrap()
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().1.key_hash)
        .collect();
    let expected: Vec<_> =
        ["U", "a", "b", "c"].iter().map(|key| key_hash(b"T", key.as_bytes())).collect();
    assert_eq!(hashes, expected);
}

#[test]
fn ix11_only_rolled_back_messages_have_no_entry() {
    let mut index = Index::new(100, 400);
    for (offset, transaction) in [
        (1, Transaction::Rollback),
        (2, Transaction::Prepared),
        (3, Transaction::Commit),
        (4, Transaction::None),
        (5, Transaction::Rollback),
    ] {
        let message = DispatchRequest { transaction, ..message(offset, NOW, "k") };
        index.service.build(&message).unwrap();
    }
    assert_eq!(index.raw("k", 0, EVER, 10), [4, 3, 2]);
}

#[test]
fn ix12_messages_before_the_end_are_not_put_again() {
    let mut index = Index::new(100, 400);
    index.build(100, NOW, "k");
    index.build(200, NOW, "k");
    assert_eq!(index.build(199, NOW, "k"), 0);
    assert_eq!(index.raw("k", 0, EVER, 10), [200, 100]);
    assert_eq!(index.build(100, NOW, "k"), 0);
    assert_eq!(index.build(200, NOW, "k"), 1);
    assert_eq!(index.raw("k", 0, EVER, 10), [200, 200, 100]);
}

#[test]
fn ix13_matches_come_from_the_newest_file_down() {
    let mut index = Index::new(10, 41);
    for offset in 0..100 {
        index.build(offset, NOW + offset, "k");
    }
    assert_eq!(index.names().len(), 3);
    let newest: Vec<_> = (36..100).rev().collect();
    assert_eq!(index.raw("k", 0, EVER, 64), newest);
    let all: Vec<_> = (0..100).rev().collect();
    assert_eq!(index.raw("k", 0, EVER, usize::MAX), all);
    assert_eq!(index.candidates("k", 0, EVER), all);
    assert!(index.raw("k", 0, EVER, 0).is_empty());
}

#[test]
fn ix14_a_file_is_named_after_the_local_time() {
    let mut index = Index::new(10, 4);
    index.build(1, NOW, "k");
    assert_eq!(index.names(), [index_name(&CalendarTime::local(NOW))]);
    assert_eq!(index_name(&CalendarTime::utc(NOW)), "20261121073513325");
}

#[test]
fn ix09_candidates_include_what_whole_seconds_hide() {
    let mut index = Index::new(100, 400);
    index.build(1, NOW, "k");
    index.build(2, NOW + 1_999, "k");
    assert!(index.raw("k", NOW + 1_500, NOW + 2_500, 10).is_empty());
    assert_eq!(index.candidates("k", NOW + 1_500, NOW + 2_500), [2]);
}

#[test]
fn ix15_candidates_include_the_odd_first_entry_of_a_later_file() {
    let mut index = Index::new(10, 3);
    for (offset, time) in [(1, NOW - 1), (2, NOW), (3, NOW + 10_000), (4, NOW + 12_345)] {
        index.build(offset, time, "k");
    }
    let hidden = (NOW + 9_000, NOW + 11_000);
    assert!(!index.raw("k", hidden.0, hidden.1, 10).contains(&3));
    assert!(index.candidates("k", hidden.0, hidden.1).contains(&3));
}

#[test]
fn candidates_pass_over_what_is_surely_of_another_time() {
    let mut index = Index::new(10, 400);
    for second in 0..100 {
        index.build(second, NOW + second * 1000, "k");
    }
    let found = index.candidates("k", NOW + 50_500, NOW + 52_000);
    assert_eq!(found, [52, 51, 50]);
}

#[test]
fn candidates_of_a_store_whose_clock_went_back_are_complete() {
    let mut index = Index::new(10, 7);
    let times = [0, 9_000, 3_000, 60_000, -50_000, 61_000, -70_000, 5, 100_000, 2_000, -1, 1];
    for (offset, ms) in (0..).zip(times) {
        index.build(offset, NOW + ms, "k");
    }
    for (offset, ms) in (0..).zip(times) {
        let found = index.candidates("k", NOW + ms, NOW + ms);
        assert!(found.contains(&offset), "{offset} at {ms} in {found:?}");
    }
}

#[test]
fn a_first_message_without_keys_makes_a_file() {
    let mut index = Index::new(10, 4);
    assert_eq!(index.build(0, NOW, ""), 0);
    assert_eq!(index.names().len(), 1);
    let rolled_back =
        DispatchRequest { transaction: Transaction::Rollback, ..message(1, NOW, "k") };
    let mut other = Index::new(10, 4);
    other.service.build(&rolled_back).unwrap();
    assert_eq!(other.bytes(), index.bytes());
}

#[test]
fn a_full_file_is_followed_by_one_before_keys_are_looked_at() {
    let mut index = Index::new(10, 4);
    index.build(1, NOW, "a b c");
    assert_eq!(index.names().len(), 1);
    index.build(2, NOW, "");
    assert_eq!(index.names().len(), 2);
    let header = index.service.current().unwrap().header().unwrap();
    assert_eq!((header.begin_physical_offset, header.begin_timestamp_ms), (1, NOW));
    assert_eq!(header.index_count, 1);
}

#[test]
fn keys_of_one_message_may_lie_in_two_files() {
    let mut index = Index::new(10, 4);
    index.build(1, NOW, "a b");
    index.build(2, NOW, "c d e");
    assert_eq!(index.names().len(), 2);
    for key in ["c", "d", "e"] {
        assert_eq!(index.raw(key, 0, EVER, 10), [2]);
    }
    assert_eq!(index.service.run().keys_put(2).unwrap(), 3);
    assert_eq!(index.service.run().keys_put(1).unwrap(), 0);
}

#[test]
fn a_message_has_as_many_keys_as_its_properties_have_room_for() {
    let mut index = Index::new(10, 4_000);
    let keys: Vec<_> = (0..5_500).map(|number| number.to_string()).collect();
    let built = index.build(1, NOW, &keys.join(" "));
    assert_eq!(built, 5_500);
    for key in ["0", "1023", "1024", "5499"] {
        assert_eq!(index.raw(key, 0, EVER, 10), [1]);
    }
}

#[test]
fn answers_carry_the_end_of_the_newest_file() {
    let mut index = Index::new(10, 4);
    let answer = index.service.run().query_offsets(&[], b"T", b"k", (0, EVER), 10).unwrap();
    assert_eq!(answer, Default::default());
    for offset in 1..=4 {
        index.build(offset, NOW + offset, "k");
    }
    index.service.drain().unwrap();
    let answer = index.service.run().query_offsets(&[], b"T", b"none", (0, EVER), 10).unwrap();
    assert_eq!(answer.last_update_physical_offset, 4);
    assert_eq!(answer.last_update_timestamp_ms, NOW + 4);
}

#[test]
fn the_raw_query_stops_at_the_first_file_that_begins_before_the_time() {
    let mut index = Index::new(10, 3);
    for (offset, second) in (1..).zip([9, 9, 3, 4, 5, 6]) {
        index.build(offset, NOW + second * 1000, "k");
    }
    assert_eq!(index.raw("k", NOW + 3_500, EVER, 10), [6, 5, 4]);
    assert_eq!(index.candidates("k", NOW + 3_500, EVER), [6, 5, 4, 2, 1]);
}

#[test]
fn names_are_never_used_twice_and_always_rise() {
    let mut index = Index::new(10, 2);
    for (offset, step) in (1..).zip([0, 0, 0, 5, -3_600_000, 3_600_000, -86_400_000]) {
        index.clock.set(NOW + step);
        index.build(offset, NOW, "k");
        let newest = index.service.run().files().last().unwrap().path.clone();
        assert!(newest.ends_with(index.names().last().unwrap()));
    }
    assert_eq!(index.names().len(), 7);
    assert_eq!(index.raw("k", 0, EVER, 10), [7, 6, 5, 4, 3, 2, 1]);
    index.reload();
    assert_eq!(index.raw("k", 0, EVER, 10), [7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn a_name_that_leaves_no_room_is_an_error() {
    let mut index = Index::new(10, 2);
    index.build(1, NOW, "k");
    let dir = index.dir.path().join("index");
    fs::rename(dir.join(&index.names()[0]), dir.join("99999999999999999")).unwrap();
    index.reload();
    let built = index.service.build(&message(2, NOW, "k"));
    assert!(matches!(built, Err(Error::Corrupt(_))), "{built:?}");
}

#[test]
fn keys_already_put_are_skipped_after_a_restart() {
    let mut index = Index::new(10, 4);
    index.build(1, NOW, "a b");
    index.build(2, NOW, "c d e");
    let before = index.bytes();
    index.reload();
    index.service.skip_keys_already_put().unwrap();
    index.build(1, NOW, "a b");
    assert_eq!(index.build(2, NOW, "c d e"), 0);
    assert_eq!(index.bytes(), before);
    index.build(3, NOW, "f");
    index.reload();
    index.service.skip_keys_already_put().unwrap();
    assert_eq!(index.build(3, NOW, "f g"), 1);
    assert_eq!(index.raw("f", 0, EVER, 10), [3]);
    assert_eq!(index.raw("g", 0, EVER, 10), [3]);
}

#[test]
fn a_query_goes_on_in_files_that_are_removed_meanwhile() {
    let mut index = Index::new(10, 3);
    for offset in 1..=6 {
        index.build(offset, NOW, "k");
    }
    index.service.drain().unwrap();
    let mut candidates = index.service.run().candidates(b"T", b"k", 0, EVER);
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        assert!(candidates.next_file(&mut findings).unwrap());
        assert!(candidates.next_chunk(found.len() + 2, &mut found, &mut findings).unwrap());
    }
    index.service.remove_from_name(0).unwrap();
    assert!(!candidates.next_chunk(10, &mut found, &mut findings).unwrap());
    assert_eq!(findings, []);
    assert!(candidates.next_file(&mut findings).unwrap());
    assert!(!candidates.next_chunk(10, &mut found, &mut findings).unwrap());
    assert!(!candidates.next_file(&mut findings).unwrap());
    // The middle file was open, the oldest is gone and reported.
    let offsets: Vec<_> = found.iter().map(|found| found.physical_offset).collect();
    assert_eq!((offsets, findings.len()), (vec![6, 4, 3], 1));
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_and_the_same_message_goes_on_later() {
    let mut index = Index::new(10, 4);
    let mut never_failed = Index::new(10, 4);
    let (dir, away) = (index.dir.path().join("index"), index.dir.path().join("away"));
    let mut failures = 0;
    for (offset, keys) in [(1, "a b"), (2, "c d e"), (3, "f"), (4, "g h i j k")] {
        never_failed.build(offset, NOW + offset, keys);
        if offset > 1 {
            fs::rename(&dir, &away).unwrap();
            fs::write(&dir, b"").unwrap();
        }
        let first = index.service.build(&message(offset, NOW + offset, keys));
        if offset > 1 {
            fs::remove_file(&dir).unwrap();
            fs::rename(&away, &dir).unwrap();
        }
        if let Err(error) = first {
            assert!(
                matches!(error, Error::Io { op: crate::error::Operation::Other("create"), .. }),
                "{error}"
            );
            failures += 1;
            index.build(offset, NOW + offset, keys);
        }
    }
    assert_eq!(failures, 2);
    assert_eq!(index.bytes(), never_failed.bytes());
    assert_eq!(index.names().len(), 4);
}

#[test]
fn a_reader_of_another_process_follows_files_that_come_and_go() {
    let mut index = Index::new(10, 3);
    let dir = index.dir.path().join("index");
    let (run, findings) =
        IndexRun::load(Arc::new(Os), &dir, index.layout, IndexOpen::Read).unwrap();
    assert_eq!((run.files().len(), findings.len(), run.last_keyed_offset().unwrap()), (0, 0, None));
    for offset in 1..=5 {
        index.build(offset, NOW, "k");
    }
    index.service.drain().unwrap();
    assert_eq!(run.refresh().unwrap(), []);
    assert_eq!(run.last_keyed_offset().unwrap(), Some(5));
    let all = |run: &IndexRun| run.query_offsets(&[], b"T", b"k", (0, EVER), 10).unwrap();
    assert_eq!(all(&run).offsets, [5, 4, 3, 2, 1]);
    index.service.delete_before(3).unwrap();
    assert_eq!(run.refresh().unwrap(), []);
    assert_eq!(run.files().len(), 2);
    assert_eq!(all(&run).offsets, [5, 4, 3]);
}

#[test]
fn a_file_stays_readable_until_it_is_let_go() {
    let mut index = Index::new(10, 3);
    for offset in 1..=4 {
        index.build(offset, NOW, "k");
    }
    index.service.drain().unwrap();
    let run = index.service.run();
    let all = || run.query_offsets(&[], b"T", b"k", (0, EVER), 10).unwrap().offsets;
    assert_eq!(all(), [4, 3, 2, 1]);
    for file in run.files() {
        fs::remove_file(&file.path).unwrap();
    }
    assert_eq!(all(), [4, 3, 2, 1]);
    run.close_files();
    assert_eq!(all(), [0; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn waiting_puts_give_the_bytes_of_immediate_ones(
        messages in prop::collection::vec((0_i64..3, -500_i64..4_000, 0_usize..6, 0_u8..9), 1..80),
        entries in 6_u32..40,
    ) {
        let mut waiting = Index::new(7, entries);
        let mut immediate = Index::new(7, entries);
        let (mut offset, mut time) = (0, NOW);
        for (step, ms, keys, first) in messages {
            // A step of 0 repeats a message; a step back is refused.
            offset += step * 100;
            time += ms;
            let keys: Vec<_> =
                (0..keys).map(|key| (usize::from(first) + key).to_string()).collect();
            let keys = keys.join(" ");
            for offset in [offset, offset - 50] {
                let built = waiting.build(offset, time, &keys);
                prop_assert_eq!(immediate.build(offset, time, &keys), built);
                immediate.service.drain().unwrap();
            }
        }
        waiting.service.begin_flush().unwrap().run().unwrap();
        immediate.service.begin_flush().unwrap().run().unwrap();
        prop_assert_eq!(waiting.bytes(), immediate.bytes());
        waiting.check();
    }

    #[test]
    fn cutting_and_building_again_changes_no_byte(
        keys in prop::collection::vec(0_usize..5, 1..60),
        cut in 0_usize..60,
        entries in 6_u32..40,
    ) {
        let mut index = Index::new(7, entries);
        let build = |index: &mut Index, from: usize| {
            for (number, keys) in keys.iter().enumerate().skip(from) {
                let keys: Vec<_> = (0..*keys).map(|key| (number % 3 + key).to_string()).collect();
                let number = i64::try_from(number).unwrap();
                index.build(number * 100, NOW + number * 700, &keys.join(" "));
            }
        };
        build(&mut index, 0);
        index.service.begin_flush().unwrap().run().unwrap();
        let whole = index.bytes();
        index.reload();
        let cut = cut.min(keys.len());
        let end = i64::try_from(cut).unwrap() * 100;
        index.service.truncate(end, |offset| Ok(Some(NOW + offset * 7))).unwrap();
        prop_assert!(index.service.last_keyed_offset().unwrap().is_none_or(|last| last < end));
        index.check();
        build(&mut index, cut);
        index.service.begin_flush().unwrap().run().unwrap();
        let again = index.bytes();
        prop_assert!(whole.len() - again.len() <= 1);
        prop_assert_eq!(&whole[..again.len()], &again[..]);
    }
}

//! Scans a log's messages in order, with a filter.
//!
//! `part.rs` is a part of a scan, `slice.rs` a share of a log for a reader of its own.

pub mod part;
pub mod slice;

use std::sync::Arc;

use hashbrown::HashSet;

use crate::error::{Corruption, Error, FormatError, Result};
use crate::format::message::MessageView;
use crate::format::message::properties::names;
use crate::format::queue::consume_queue::TagFilter;
use crate::log::commit_log::Found;
use crate::log::read::range_scan::{Lost, RangeScan};
use crate::log::read::scanner::{Flow, Item, Resync, Scanner, Stop, Walk, zeros};
use crate::log::{Block, CommitLog};

use self::part::ScanParts;
use crate::store::progress::{ASK_EVERY, Halt};

#[derive(Clone, Debug)]
pub struct ScanFilter {
    /// Topic bytes; `None` means all.
    pub topics: Option<HashSet<Box<[u8]>>>,
    pub tags: TagFilter,
    pub begin_ms: i64,
    pub end_ms: i64,
}

impl ScanFilter {
    pub const ALL: Self =
        Self { topics: None, tags: TagFilter::ALL, begin_ms: i64::MIN, end_ms: i64::MAX };

    #[inline]
    #[must_use]
    pub fn takes(&self, view: &MessageView<'_>) -> bool {
        let time_ms = view.store_timestamp_ms();
        self.begin_ms <= time_ms
            && time_ms <= self.end_ms
            && self.topics.as_ref().is_none_or(|topics| topics.contains(view.topic()))
            && (self.tags.is_all() || self.tags.matches_tags(view.property(names::TAGS)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    Raise,
    /// Continue with the next whole record, and count.
    Skip,
}

/// State of a scan; the log is passed to each call.
#[derive(Clone, Debug)]
pub struct Scan {
    filter: ScanFilter,
    on_damage: OnDamage,
    verify_crc: bool,
    next: u64,
    stop: u64,
    end: u64,
    begun: bool,
    skipped_ranges: u64,
    skipped_bytes: u64,
    halt: Halt,
    asked_at: u64,
    walk: Option<Walk>,
}

impl Scan {
    /// Scans messages that begin in `start..stop` of a log readable up to `end`.
    ///
    /// A `start` inside a record moves to the next one.
    #[must_use]
    pub fn new(start: u64, stop: u64, end: u64, filter: ScanFilter, on_damage: OnDamage) -> Self {
        Self {
            filter,
            on_damage,
            verify_crc: true,
            next: start,
            stop: stop.min(end),
            end,
            begun: false,
            skipped_ranges: 0,
            skipped_bytes: 0,
            halt: Halt::default(),
            asked_at: start,
            walk: None,
        }
    }

    #[must_use]
    pub fn verifying(mut self, verify_crc: bool) -> Self {
        self.verify_crc = verify_crc;
        self
    }

    /// Ends early when `halt` says so, as if [`Scan::run`] had enough.
    #[must_use]
    pub fn halting(mut self, halt: Halt) -> Self {
        self.halt = halt;
        self
    }

    #[must_use]
    pub fn physical_offset(&self) -> u64 {
        self.next
    }

    #[must_use]
    pub fn stop_physical_offset(&self) -> u64 {
        self.stop
    }

    #[must_use]
    pub fn skipped_ranges(&self) -> u64 {
        self.skipped_ranges
    }

    #[must_use]
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// Divides the scan, from its first message on.
    pub fn parts(mut self, log: &CommitLog) -> Result<ScanParts> {
        if !self.begun {
            self.find_start(log)?;
        }
        let Self { filter, on_damage, verify_crc, next: start, stop, end, halt, .. } = self;
        let range = RangeScan::new(start, stop, end, verify_crc, Lost::Accept);
        Ok(ScanParts { filter, on_damage, range, halt })
    }

    /// Passes messages with their blocks to `take` until it has enough; returns whether there may
    /// be more. The next call continues behind the last message taken. A refusal is damage of that
    /// message; positions count from the record's first byte.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at damage unless skipped; a further call meets it again.
    /// [`Error::Io`].
    pub fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(&MessageView<'_>, &Arc<Block>) -> Result<Flow, FormatError>,
    ) -> Result<bool> {
        if !self.begun {
            self.find_start(log)?;
            self.begun = true;
        }
        let mut scanner = match self.walk.take() {
            Some(walk) => Scanner::resume(log, walk),
            None => Scanner::new(log, self.next, self.end, self.verify_crc),
        };
        let (raises, stop) = (self.on_damage == OnDamage::Raise, self.stop);
        let resync = if raises { Resync::Never } else { Resync::Anywhere };
        let mut is_refused = false;
        let Self { filter, next, halt, asked_at, skipped_ranges, skipped_bytes, .. } = self;
        let ended = scanner.each(stop, resync, |range, item| {
            let at = range.start;
            *next = at;
            if at.saturating_sub(*asked_at) >= ASK_EVERY {
                *asked_at = at;
                if halt.is_wanted() && !matches!(item, Item::Damage(_)) {
                    return Ok(Flow::Retry);
                }
            }
            match item {
                Item::Record(view, block) if filter.takes(view) => match take(view, block) {
                    Ok(flow) => return Ok(flow),
                    Err(error) if raises => {
                        is_refused = true;
                        return Err(raised(log, at, Damage::Content(error)));
                    }
                    Err(_) => {}
                },
                Item::Record(..) | Item::Blank => return Ok(Flow::Continue),
                Item::Damage(_) => {
                    log.lose(at..range.end);
                }
            }
            *skipped_ranges = skipped_ranges.saturating_add(1);
            *skipped_bytes = skipped_bytes.saturating_add(range.end.min(stop).saturating_sub(at));
            Ok(Flow::Continue)
        });
        let ended = ended.inspect_err(|error| {
            // A refused message was read.
            if !is_refused {
                log.lose_by(error);
            }
        })?;
        self.next = scanner.position();
        let corruption = match ended {
            None if self.next < stop => {
                self.walk = Some(scanner.pause());
                return Ok(true);
            }
            // The end of the range, or of a log that retention or another writer cut.
            None | Some(Stop::End) => {
                self.next = stop;
                return Ok(false);
            }
            Some(Stop::Empty) => zeros(log, self.next),
            Some(Stop::Damage(corruption)) => corruption,
        };
        log.lose(self.next..self.next + 1);
        Err(raised(log, self.next, Damage::Frame(corruption)))
    }

    /// Moves to the first record at or behind the start. A file begins with a record, so damage at
    /// its first byte is always reported.
    fn find_start(&mut self, log: &CommitLog) -> Result<()> {
        self.next = self.next.max(log.min_offset());
        let at = self.next;
        let begins_a_file = log.run().find(at).is_none_or(|file| file.base_offset == at);
        if begins_a_file || at >= self.stop {
            return Ok(());
        }
        let mut buffer = Vec::new();
        if !matches!(log.read(at, 0, &mut buffer)?, Found::Message(_) | Found::Blank(_)) {
            let mut scanner = Scanner::new(log, at, self.end, true);
            scanner.resync()?;
            self.next = scanner.position();
        }
        Ok(())
    }
}

#[cold]
pub(crate) fn raised(log: &CommitLog, at: u64, damage: Damage) -> Error {
    match damage {
        Damage::Frame(corruption) => Error::Corrupt(Box::new(corruption)),
        Damage::Content(error) => match log.run().find(at) {
            Some(file) => error.in_file(&file.path, at.saturating_sub(file.base_offset)),
            None => error.into(),
        },
    }
}

pub(crate) enum Damage {
    Frame(Corruption),
    Content(FormatError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::error::CorruptionKind;
    use crate::format::message::properties;
    use crate::store::{MessageStore, NewMessage, OpenMode};
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    const FILE: u64 = 4096;

    fn config() -> StoreConfig {
        StoreConfig { mapped_file_size_commit_log: Some(FILE), ..StoreConfig::default() }
    }

    /// Forty messages over several files: their starts, and the last one's end.
    fn written(root: &Path) -> (Vec<u64>, u64) {
        let store = MessageStore::open(root, OpenMode::Create, config()).unwrap();
        let mut starts = Vec::new();
        for number in 0..40 {
            let mut block = Vec::new();
            properties::push(&mut block, names::TAGS, format!("tag{}", number % 3).as_bytes());
            let body = vec![b'x'; 100 + number];
            let topic = if number % 2 == 0 { &b"even"[..] } else { b"odd" };
            let mut message = NewMessage::new(topic, &body);
            message.properties = &block;
            message.store_timestamp_ms = Some(1000 + number as i64);
            let result = store.append(&message).unwrap();
            starts.push(u64::try_from(result.physical_offset).unwrap());
        }
        let end = store.end_offset();
        store.close().unwrap();
        (starts, end)
    }

    fn found(root: &Path, scan: &mut Scan) -> Result<Vec<u64>> {
        let store = MessageStore::open(root, OpenMode::Read, config()).unwrap();
        let mut found = Vec::new();
        loop {
            let mut count = 0;
            let more = scan.run(store.log(), |view, _| {
                if count == 3 {
                    return Ok(Flow::Retry);
                }
                found.push(u64::try_from(view.physical_offset()).unwrap());
                count += 1;
                Ok(if count == 3 && found.len() % 2 == 0 { Flow::Stop } else { Flow::Continue })
            })?;
            if !more {
                return Ok(found);
            }
        }
    }

    fn scan(start: u64, stop: u64, end: u64) -> Scan {
        Scan::new(start, stop, end, ScanFilter::ALL, OnDamage::Raise)
    }

    fn write_at(root: &Path, offset: u64, bytes: &[u8]) {
        let path = root.join("commitlog").join(format!("{:020}", offset / FILE * FILE));
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(bytes, offset % FILE).unwrap();
    }

    #[test]
    fn ranges_that_meet_share_every_message_between_them() {
        let dir = tempfile::tempdir().unwrap();
        let (starts, end) = written(dir.path());
        for split in (0..=end + 5).step_by(61).chain(starts.clone()) {
            let mut all = found(dir.path(), &mut scan(0, split, end)).unwrap();
            assert!(all.iter().all(|&at| at < split), "{split}");
            let mut second = scan(split, u64::MAX, end);
            all.extend(found(dir.path(), &mut second).unwrap());
            assert_eq!(all, starts, "split at {split}");
            assert_eq!(second.skipped_ranges(), 0);
            assert_eq!(second.physical_offset(), end.max(split));
        }
    }

    #[test]
    fn filters_are_joined_by_and() {
        let dir = tempfile::tempdir().unwrap();
        let (starts, end) = written(dir.path());
        let filter = ScanFilter {
            topics: Some([Box::from(&b"even"[..]), Box::from(&b"none"[..])].into_iter().collect()),
            tags: TagFilter::parse("tag0 || tag2"),
            begin_ms: 1002,
            end_ms: 1030,
        };
        let mut scan = Scan::new(0, end, end, filter, OnDamage::Raise);
        let wanted: Vec<_> = (2..=30)
            .filter(|number| number % 2 == 0 && number % 3 != 1)
            .map(|number| starts[number])
            .collect();
        assert_eq!(found(dir.path(), &mut scan).unwrap(), wanted);
    }

    #[test]
    fn damage_is_raised_where_it_lies_or_passed_over_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (starts, end) = written(dir.path());
        write_at(dir.path(), starts[3] + 90, b"?");
        write_at(dir.path(), starts[20] + 4, &[0xFF; 4]);
        let length = usize::try_from(starts[31] - starts[30]).unwrap();
        write_at(dir.path(), starts[30], &vec![0; length]);

        let mut strict = scan(0, end, end);
        let error = found(dir.path(), &mut strict).unwrap_err();
        let Error::Corrupt(corruption) = error else { panic!("{error}") };
        assert_eq!((corruption.kind, corruption.offset), (CorruptionKind::BodyCrc, starts[3] + 8));
        assert_eq!(strict.physical_offset(), starts[3]);
        assert!(found(dir.path(), &mut strict).is_err());

        let mut lenient = Scan::new(0, end, end, ScanFilter::ALL, OnDamage::Skip);
        let mut wanted = starts.clone();
        wanted.retain(|at| ![starts[3], starts[20], starts[30]].contains(at));
        assert_eq!(found(dir.path(), &mut lenient).unwrap(), wanted);
        let lost = |number: usize| starts[number + 1] - starts[number];
        assert_eq!(lenient.skipped_ranges(), 3);
        assert_eq!(lenient.skipped_bytes(), lost(3) + lost(20) + lost(30));

        let error = found(dir.path(), &mut scan(starts[29], end, end)).unwrap_err();
        let Error::Corrupt(corruption) = error else { panic!("{error}") };
        assert_eq!((corruption.found.as_str(), corruption.offset), ("zeros", starts[30] % FILE));
    }

    #[test]
    fn a_file_that_does_not_begin_with_a_record_is_damage_for_whoever_begins_there() {
        let dir = tempfile::tempdir().unwrap();
        let (_, end) = written(dir.path());
        write_at(dir.path(), FILE, &[0; 8]);
        assert!(found(dir.path(), &mut scan(FILE, end, end)).is_err());
        assert!(found(dir.path(), &mut scan(FILE + 1, end, end)).is_ok());
    }

    #[test]
    fn what_is_refused_counts_as_damage_of_its_message() {
        let dir = tempfile::tempdir().unwrap();
        let (starts, end) = written(dir.path());
        let store = MessageStore::open(dir.path(), OpenMode::Read, config()).unwrap();
        let refuse = |view: &MessageView<'_>, _: &Arc<Block>| {
            if view.body().len() == 105 {
                return Err(FormatError::new(CorruptionKind::Body, 7, "a body", "none"));
            }
            Ok(Flow::Continue)
        };
        let mut lenient = Scan::new(0, end, end, ScanFilter::ALL, OnDamage::Skip);
        assert!(!lenient.run(store.log(), refuse).unwrap());
        assert_eq!(lenient.skipped_bytes(), starts[6] - starts[5]);
        let error = scan(0, end, end).run(store.log(), refuse).unwrap_err();
        let Error::Corrupt(corruption) = error else { panic!("{error}") };
        assert_eq!((corruption.kind, corruption.offset), (CorruptionKind::Body, starts[5] + 7));
    }

    type Comes = (Vec<u64>, Option<String>);

    fn comes(
        log: &CommitLog,
        mut run: impl FnMut(&CommitLog, &mut Vec<u64>) -> Result<bool>,
    ) -> Comes {
        let mut found = Vec::new();
        loop {
            match run(log, &mut found) {
                Ok(true) => {}
                Ok(false) => return (found, None),
                Err(error) => return (found, Some(error.to_string())),
            }
        }
    }

    fn take<'f>(
        found: &'f mut Vec<u64>,
    ) -> impl FnMut(&MessageView<'_>, &Arc<Block>) -> Result<Flow, FormatError> + 'f {
        |view, _| {
            if view.body().len() == 117 {
                return Err(FormatError::new(CorruptionKind::Body, 7, "a body", "none"));
            }
            found.push(u64::try_from(view.physical_offset()).unwrap());
            Ok(Flow::Stop)
        }
    }

    #[test]
    fn parts_of_a_scan_give_what_it_gives_wherever_they_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        let (starts, end) = written(dir.path());
        // A body, a magic code, zeroed records, and a file that does not begin with a record.
        write_at(dir.path(), starts[3] + 90, b"?");
        write_at(dir.path(), starts[20] + 4, &[0xFF; 4]);
        let length = usize::try_from(starts[32] - starts[30]).unwrap();
        write_at(dir.path(), starts[30], &vec![0; length]);
        write_at(dir.path(), FILE, &[0; 8]);
        let store = MessageStore::open(dir.path(), OpenMode::Read, config()).unwrap();
        let log = store.log();
        let ranges = [
            (0, end),
            (starts[3], end),
            (starts[3] + 1, starts[20]),
            (starts[2] + 5, starts[20] + 1),
            (starts[31] + 3, starts[38]),
            (FILE, FILE + 1),
            (FILE + 1, end + 9),
        ];
        for on_damage in [OnDamage::Raise, OnDamage::Skip] {
            for (start, stop) in ranges {
                let mut whole = Scan::new(start, stop, end, ScanFilter::ALL, on_damage);
                let parts = whole.clone().parts(log).unwrap();
                let wanted = comes(log, |log, found| whole.run(log, take(found)));
                for step in [1, 37, 150, 400, FILE, 3 * FILE] {
                    let mut found: Comes = (Vec::new(), None);
                    let mut begin = parts.bytes().start;
                    while begin < parts.bytes().end && found.1.is_none() {
                        let next = (begin + step).min(parts.bytes().end);
                        let mut part = parts.part(begin..next);
                        let (more, error) = comes(log, |log, found| part.run(log, take(found)));
                        found.0.extend(more);
                        found.1 = error;
                        begin = next;
                    }
                    assert_eq!(
                        found, wanted,
                        "{start} to {stop} in steps of {step}, {on_damage:?}"
                    );
                }
            }
        }
    }
}

//! The one scan of a log: messages of a byte range, or at given offsets, with a filter and a policy
//! for damage. Every reader of a log's messages is a visitor of it.
//!
//! `filter.rs` chooses messages. `places.rs` and `tag_places.rs` find the offsets that queues name.

pub mod filter;
pub mod places;
mod tag_places;

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Corruption, Error, FormatError, Result};
use crate::format::message::MessageView;
use crate::format::width::{at_least_0, at_most_i64, to_usize};
use crate::log::commit_log::Found;
use crate::log::read::range_scan::{DamagedRange, Lost, Met, RangeScan};
use crate::log::read::scanner::{Flow, zeros};
use crate::log::{Block, CommitLog};

pub use self::filter::ScanFilter;
pub use self::tag_places::{TagPlaces, tag_places};
use crate::store::progress::{ASK_EVERY, Halt};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    Fail,
    /// Continue with the next whole record, and count.
    Skip,
    /// Skip it, and pass it to the visitor.
    Report,
}

/// Bytes of a log without a message, or a message that its reader cannot use.
#[derive(Clone, Debug)]
pub struct Damage {
    pub begin: u64,
    pub end: u64,
    /// Topic, queue and queue offset, where the record still has them.
    pub message: Option<(Box<[u8]>, i32, i64)>,
    pub corruption: Corruption,
}

impl Damage {
    /// Damage of a message; `error` counts from the record's first byte.
    #[must_use]
    pub fn of_message(view: &MessageView<'_>, error: FormatError) -> Self {
        let begin = at_least_0(view.physical_offset());
        let end = begin.saturating_add(u64::from(view.store_size()));
        Self { begin, end, message: Some(name(view)), corruption: error.into_corruption() }
    }

    /// Number of bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    #[must_use]
    pub fn error(&self) -> Error {
        let mut corruption = self.corruption.clone();
        let place = format!("physical offsets {} to {}", self.begin, self.end);
        corruption.found = match &self.message {
            Some((topic, queue_id, queue_offset)) => format!(
                "{} ({place}; topic {}, queue {queue_id}, queue offset {queue_offset})",
                corruption.found,
                String::from_utf8_lossy(topic)
            ),
            None => format!("{} ({place})", corruption.found),
        };
        Error::Corrupt(Box::new(corruption))
    }
}

fn name(view: &MessageView<'_>) -> (Box<[u8]>, i32, i64) {
    (view.topic().into(), view.queue_id(), view.queue_offset())
}

/// Item of a scan.
#[derive(Debug)]
pub enum ScanItem<'a, 'v> {
    /// A message and, if it may be shared, its block.
    Message(&'a MessageView<'v>, Option<&'a Arc<Block>>),
    Damage(Damage),
}

#[derive(Clone, Debug)]
pub enum Places {
    Range(Box<RangeScan>),
    Offsets(Offsets),
}

/// State of a scan; the log is passed to each call.
#[derive(Clone, Debug)]
pub struct Scan {
    places: Places,
    filter: ScanFilter,
    tally: Tally,
    /// Whether a record at the start is believed without a look at the log before it.
    trusts_start: bool,
    ended: bool,
    halt: Halt,
    asked_at: u64,
}

impl Scan {
    /// Scans messages that begin in `start..stop` of a log readable up to `end`.
    ///
    /// A `start` inside a record moves to the next one.
    #[must_use]
    pub fn new(start: u64, stop: u64, end: u64, filter: ScanFilter, on_damage: OnDamage) -> Self {
        let range = RangeScan::new(start, stop, end, true, Lost::Accept).ending_at_once();
        let scan = Self::of(Places::Range(Box::new(range)), filter, on_damage);
        Self { trusts_start: true, ..scan }
    }

    /// Scans messages at `places`.
    #[must_use]
    pub fn of(places: Places, filter: ScanFilter, on_damage: OnDamage) -> Self {
        let (asked_at, stop) = match &places {
            Places::Range(range) => (range.bytes().start, range.bytes().end),
            Places::Offsets(_) => (0, u64::MAX),
        };
        let tally = Tally { on_damage, stop, ranges: 0, bytes: 0, met_range: false };
        let halt = Halt::default();
        Self { places, filter, tally, trusts_start: false, ended: false, halt, asked_at }
    }

    #[must_use]
    pub fn verifying(mut self, verify_crc: bool) -> Self {
        match &mut self.places {
            Places::Range(range) => range.verify(verify_crc),
            Places::Offsets(offsets) => offsets.verify_crc = verify_crc,
        }
        self
    }

    /// Ends early when `halt` says so, as if [`Scan::run`] had enough.
    #[must_use]
    pub fn halting(mut self, halt: Halt) -> Self {
        self.halt = halt;
        self
    }

    #[must_use]
    pub fn on_damage(&self) -> OnDamage {
        self.tally.on_damage
    }

    /// Bytes to walk; empty for single offsets.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        match &self.places {
            Places::Range(range) => range.bytes(),
            Places::Offsets(_) => 0..0,
        }
    }

    /// End of the last item.
    #[must_use]
    pub fn physical_offset(&self) -> u64 {
        if self.ended { self.tally.stop } else { self.bytes().start }
    }

    #[must_use]
    pub fn stop_physical_offset(&self) -> u64 {
        self.tally.stop
    }

    /// Number of damaged ranges that were passed.
    #[must_use]
    pub fn skipped_ranges(&self) -> u64 {
        self.tally.ranges
    }

    #[must_use]
    pub fn skipped_bytes(&self) -> u64 {
        self.tally.bytes
    }

    /// Whether bytes without a record were met.
    #[must_use]
    pub fn met_damage(&self) -> bool {
        self.tally.met_range
    }

    /// As [`RangeScan::places`]; empty for single offsets.
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        match &self.places {
            Places::Range(range) => range.places(),
            Places::Offsets(_) => 0..0,
        }
    }

    /// Moves to the first message, before taking parts.
    pub fn settle(&mut self, log: &CommitLog) -> Result<()> {
        let Places::Range(range) = &mut self.places else { return Ok(()) };
        if std::mem::take(&mut self.trusts_start) {
            let at = range.bytes().start;
            let mut buffer = Vec::new();
            if matches!(log.read(at, 0, &mut buffer)?, Found::Message(_) | Found::Blank(_)) {
                **range = (**range).clone().beginning_at_once();
            }
        }
        range.settle(log)
    }

    /// Messages that begin in a part of its bytes; `begins` means that its first byte starts a
    /// record. All parts together give what the scan gives.
    #[must_use]
    pub fn part(&self, bytes: Range<u64>, begins: bool) -> Self {
        let mut part = self.clone();
        part.asked_at = bytes.start;
        if let Places::Range(range) = &mut part.places {
            **range = range.part(bytes);
            if begins {
                **range = (**range).clone().beginning_at_once();
            }
        }
        part
    }

    /// Passes messages with their blocks to `take` until it has enough, as [`Scan::visit`].
    #[inline]
    pub fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(&MessageView<'_>, Option<&Arc<Block>>) -> Result<Flow, FormatError>,
    ) -> Result<bool> {
        self.visit(log, |item| match item {
            ScanItem::Message(view, block) => take(view, block),
            ScanItem::Damage(_) => Ok(Flow::Continue),
        })
    }

    /// Passes items to `take` until it has enough; returns whether there may be more. The next call
    /// continues behind the last item taken. A refused message counts as damage; positions count
    /// from the record's first byte. Damage cannot be refused or taken later.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at damage with [`OnDamage::Fail`]; a further call meets it again.
    /// [`Error::Io`]. [`Error::OffsetOutOfRange`] where files are gone, with [`Lost::Refuse`].
    pub fn visit(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(ScanItem<'_, '_>) -> Result<Flow, FormatError>,
    ) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.trusts_start {
            self.settle(log)?;
        }
        let Self { places, filter, tally, halt, asked_at, .. } = self;
        let more = match places {
            Places::Range(range) => range.run(log, |met| match met {
                Met::Message(view, block) => {
                    let at = at_least_0(view.physical_offset());
                    if at.saturating_sub(*asked_at) >= ASK_EVERY {
                        *asked_at = at;
                        if halt.is_wanted() {
                            return Ok(Flow::Retry);
                        }
                    }
                    if !filter.takes(view) {
                        return Ok(Flow::Continue);
                    }
                    tally.message(log, view, Some(block), &mut take)
                }
                Met::Damage(damaged) => {
                    tally.met_range = true;
                    tally.damage(log, damaged, &mut take)
                }
            }),
            Places::Offsets(offsets) => offsets.run(log, |found| match found {
                Ok(view) if !filter.takes(view) => Ok(Flow::Continue),
                Ok(view) => tally.message(log, view, None, &mut take),
                Err(damaged) => tally.damage(log, damaged, &mut take),
            }),
        };
        let more = more.inspect_err(|error| {
            // A damaged range is remembered where it is met, and a refused message was read.
            if !matches!(error, Error::Corrupt(_)) {
                log.lose_by(error);
            }
        })?;
        self.ended = !more;
        Ok(more)
    }
}

/// What a scan does at damage, and how much it met.
#[derive(Clone, Debug)]
struct Tally {
    on_damage: OnDamage,
    stop: u64,
    ranges: u64,
    bytes: u64,
    met_range: bool,
}

impl Tally {
    #[inline]
    fn message(
        &mut self,
        log: &CommitLog,
        view: &MessageView<'_>,
        block: Option<&Arc<Block>>,
        take: &mut impl FnMut(ScanItem<'_, '_>) -> Result<Flow, FormatError>,
    ) -> Result<Flow> {
        match take(ScanItem::Message(view, block)) {
            Ok(flow) => Ok(flow),
            Err(error) => {
                let mut damage = Damage::of_message(view, error);
                damage.corruption = in_file(log, damage.begin, damage.corruption);
                self.pass(damage, take)
            }
        }
    }

    #[cold]
    fn damage(
        &mut self,
        log: &CommitLog,
        damaged: DamagedRange,
        take: &mut impl FnMut(ScanItem<'_, '_>) -> Result<Flow, FormatError>,
    ) -> Result<Flow> {
        let DamagedRange { begin, end, corruption } = damaged;
        log.lose(begin..end);
        let mut buffer = Vec::new();
        // If only the body is wrong, the rest identifies the message.
        let message = match self.on_damage {
            OnDamage::Skip => None,
            OnDamage::Fail | OnDamage::Report => match log.read(begin, 0, &mut buffer)? {
                Found::Message(view) => Some(name(&view)),
                _ => None,
            },
        };
        self.pass(Damage { begin, end, message, corruption }, take)
    }

    #[cold]
    fn pass(
        &mut self,
        damage: Damage,
        take: &mut impl FnMut(ScanItem<'_, '_>) -> Result<Flow, FormatError>,
    ) -> Result<Flow> {
        if self.on_damage == OnDamage::Fail {
            return Err(damage.error());
        }
        let bytes = damage.end.min(self.stop).saturating_sub(damage.begin);
        self.ranges = self.ranges.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.on_damage == OnDamage::Skip {
            return Ok(Flow::Continue);
        }
        Ok(take(ScanItem::Damage(damage)).unwrap_or(Flow::Continue))
    }
}

/// Records at given offsets.
#[derive(Clone, Debug)]
pub struct Offsets {
    /// Sorted offsets with record lengths, 0 if unknown.
    records: Arc<[(u64, u32)]>,
    next: usize,
    verify_crc: bool,
    lost: Lost,
}

impl Offsets {
    /// Records at sorted offsets, each with its length, 0 if unknown.
    #[must_use]
    pub fn new(records: Arc<[(u64, u32)]>, verify_crc: bool, lost: Lost) -> Self {
        Self { records, next: 0, verify_crc, lost }
    }

    fn run(
        &mut self,
        log: &CommitLog,
        mut take: impl FnMut(Result<&MessageView<'_>, DamagedRange>) -> Result<Flow>,
    ) -> Result<bool> {
        let mut buffer = Vec::new();
        while let Some(&(at, size)) = self.records.get(self.next) {
            self.next += 1;
            // A size given by a caller may be anything.
            let hint = to_usize(size).min(1 << 20);
            let corruption = match log.read(at, hint, &mut buffer)? {
                Found::Message(view) => match view.check_body_crc() {
                    Err(error) if self.verify_crc => in_file(log, at, error.into_corruption()),
                    _ => match take(Ok(&view))? {
                        Flow::Continue => continue,
                        Flow::Stop => return Ok(true),
                        Flow::Retry => {
                            self.next -= 1;
                            return Ok(true);
                        }
                    },
                },
                Found::Bad(error) => in_file(log, at, error.into_corruption()),
                Found::Blank(_) | Found::Empty => zeros(log, at),
                Found::OutOfRange if self.lost == Lost::Refuse => return Err(gone(log, at)),
                Found::OutOfRange => continue,
            };
            let end = at.saturating_add(u64::from(size));
            if take(Err(DamagedRange { begin: at, end, corruption }))? != Flow::Continue {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Damage whose position counts from the record at `at`.
fn in_file(log: &CommitLog, at: u64, mut corruption: Corruption) -> Corruption {
    if let Some(file) = log.run().find(at) {
        corruption.path = Some(file.path.clone());
        corruption.offset = corruption.offset.saturating_add(at.saturating_sub(file.base_offset));
    }
    corruption
}

fn gone(log: &CommitLog, at: u64) -> Error {
    let number = |offset| at_most_i64(offset);
    Error::OffsetOutOfRange {
        physical_offset: number(at),
        min: number(log.min_offset()),
        max: number(log.run().end_offset().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::error::CorruptionKind;
    use crate::format::message::properties::{self, names};
    use crate::format::message::tag_filter::TagFilter;
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
        Scan::new(start, stop, end, ScanFilter::ALL, OnDamage::Fail)
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
            ..ScanFilter::ALL
        };
        let mut scan = Scan::new(0, end, end, filter, OnDamage::Fail);
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
        assert_eq!(corruption.offset, starts[30] % FILE);
        let told = format!("zeros (physical offsets {} to {})", starts[30], starts[31]);
        assert_eq!(corruption.found, told);
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
        let refuse = |view: &MessageView<'_>, _: Option<&Arc<Block>>| {
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
    ) -> impl FnMut(&MessageView<'_>, Option<&Arc<Block>>) -> Result<Flow, FormatError> + 'f {
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
        for on_damage in [OnDamage::Fail, OnDamage::Skip] {
            for (start, stop) in ranges {
                let mut whole = Scan::new(start, stop, end, ScanFilter::ALL, on_damage);
                let mut parts = whole.clone();
                parts.settle(log).unwrap();
                let wanted = comes(log, |log, found| whole.run(log, take(found)));
                for step in [1, 37, 150, 400, FILE, 3 * FILE] {
                    let mut found: Comes = (Vec::new(), None);
                    let mut begin = parts.bytes().start;
                    while begin < parts.bytes().end && found.1.is_none() {
                        let next = (begin + step).min(parts.bytes().end);
                        let mut part = parts.part(begin..next, false);
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

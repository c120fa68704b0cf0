//! Survey of a store's messages for a report: by topic, over time, latency. One walk in bounded
//! memory.

pub mod stats;

use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;

use self::stats::Totals;
use super::meter::{Skipped, each_message};
use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::Storage;
use crate::format::width::{saturating_i64, saturating_u32, to_usize};
use crate::store::MessageStore;
use crate::store::progress::Progress;
use crate::store::read::scan::OnDamage;

const MOST_TOPICS: usize = 4096;
/// Maximum time steps over all topics. With the longest steps a topic has three at most.
const MOST_CELLS: usize = 1 << 16;
const SECOND: i64 = 1000;
const DAY: i64 = 86_400 * SECOND;
/// Lengths of a time step in milliseconds, each a multiple of the previous.
const STEPS_MS: [i64; 22] = [
    SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    300 * SECOND,
    600 * SECOND,
    1800 * SECOND,
    3600 * SECOND,
    6 * 3600 * SECOND,
    DAY,
    7 * DAY,
    28 * DAY,
    364 * DAY,
    3_640 * DAY,
    36_400 * DAY,
    364_000 * DAY,
    3_640_000 * DAY,
    36_400_000 * DAY,
    364_000_000 * DAY,
    3_640_000_000 * DAY,
    36_400_000_000 * DAY,
];

/// Messages of one topic in one time step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub begin_ms: i64,
    /// Index in [`Survey::topics`], or one behind the last for all others.
    pub topic: usize,
    pub messages: u64,
    pub bytes: u64,
}

/// Result of [`survey`].
#[derive(Clone, Debug)]
pub struct Survey {
    pub topics: Vec<(Box<[u8]>, Totals)>,
    pub others: Totals,
    pub step_ms: i64,
    pub cells: Vec<Cell>,
    pub latency: Latency,
    pub skipped: Skipped,
}

/// Surveys the store at `path` and skips damage.
///
/// # Errors
/// [`Error::NotAStore`](crate::error::Error::NotAStore);
/// [`Error::Io`](crate::error::Error::Io), or of kind `Interrupted` if
/// `progress` ended it.
pub fn survey(
    storage: Arc<dyn Storage>,
    path: &Path,
    config: StoreConfig,
    progress: &mut Progress<'_>,
) -> Result<Survey> {
    let store = MessageStore::open_on(path, config, storage)?;
    let mut counts = Counts::default();
    let mut latency = Latency::default();
    let skipped = each_message(&store, OnDamage::Skip, progress, |view| {
        let (size, time_ms) = (view.store_size(), view.store_timestamp_ms());
        counts.add(view.topic(), size, time_ms);
        latency.add(view.born_timestamp_ms(), time_ms);
    })?;
    Ok(counts.finish(latency, skipped))
}

#[derive(Default)]
struct Counts {
    ids: HashMap<Box<[u8]>, usize>,
    topics: Vec<(Box<[u8]>, Totals)>,
    others: Totals,
    cells: HashMap<(i64, usize), (u64, u64)>,
    level: usize,
}

impl Counts {
    fn add(&mut self, topic: &[u8], size: u32, time_ms: i64) {
        let id = match self.ids.get(topic) {
            Some(id) => *id,
            None if self.topics.len() < MOST_TOPICS => {
                self.topics.push((topic.into(), Totals::default()));
                self.ids.insert(topic.into(), self.topics.len() - 1);
                self.topics.len() - 1
            }
            None => MOST_TOPICS,
        };
        let totals = self.topics.get_mut(id).map_or(&mut self.others, |(_, totals)| totals);
        totals.add(size, time_ms);
        self.count(time_ms, id, (1, size.into()));
        while self.cells.len() > MOST_CELLS && self.level + 1 < STEPS_MS.len() {
            self.level += 1;
            for ((begin_ms, id), counted) in std::mem::take(&mut self.cells) {
                self.count(begin_ms, id, counted);
            }
        }
    }

    fn count(&mut self, time_ms: i64, id: usize, (messages, bytes): (u64, u64)) {
        let begin_ms = begin(time_ms, STEPS_MS[self.level]);
        let cell = self.cells.entry((begin_ms, id)).or_default();
        *cell = (cell.0.saturating_add(messages), cell.1.saturating_add(bytes));
    }

    fn finish(self, latency: Latency, skipped: Skipped) -> Survey {
        let mut order: Vec<_> = self.topics.into_iter().enumerate().collect();
        order.sort_unstable_by(|(_, a), (_, b)| {
            b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0))
        });
        let mut places = vec![order.len(); MOST_TOPICS + 1];
        order.iter().enumerate().for_each(|(place, (id, _))| places[*id] = place);
        let topics = order.into_iter().map(|(_, topic)| topic).collect();
        let mut cells: Vec<_> = self
            .cells
            .into_iter()
            .map(|((begin_ms, id), (messages, bytes))| Cell {
                begin_ms,
                topic: places[id],
                messages,
                bytes,
            })
            .collect();
        cells.sort_unstable_by_key(|cell| (cell.begin_ms, cell.topic));
        let step_ms = STEPS_MS[self.level];
        Survey { topics, others: self.others, step_ms, cells, latency, skipped }
    }
}

fn begin(time_ms: i64, step_ms: i64) -> i64 {
    time_ms.div_euclid(step_ms).saturating_mul(step_ms)
}

/// Ranges of each power of two; lower milliseconds have their own.
const PARTS: u32 = 16;
const PARTS_BITS: u32 = PARTS.trailing_zeros();
const RANGES: usize = ((64 - PARTS_BITS) * PARTS) as usize;

#[derive(Clone, Debug)]
pub struct Latency {
    counts: Vec<u64>,
    pub negative: u64,
    pub unknown: u64,
    pub max_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyRange {
    pub begin_ms: i64,
    pub end_ms: i64,
    pub messages: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: vec![0; RANGES], negative: 0, unknown: 0, max_ms: 0 }
    }
}

impl Latency {
    pub(super) fn add(&mut self, born_ms: i64, stored_ms: i64) {
        if born_ms <= 0 {
            self.unknown = self.unknown.saturating_add(1);
            return;
        }
        let Ok(time_ms) = u64::try_from(stored_ms.saturating_sub(born_ms)) else {
            self.negative = self.negative.saturating_add(1);
            return;
        };
        self.max_ms = self.max_ms.max(time_ms.cast_signed());
        if let Some(count) = self.counts.get_mut(range_of(time_ms)) {
            *count = count.saturating_add(1);
        }
    }

    #[must_use]
    pub fn messages(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Quantile `part` in milliseconds; 0 without messages.
    #[must_use]
    pub fn quantile_ms(&self, part: f64) -> i64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank may be off where nobody can count any more"
        )]
        let rank = ((self.messages() as f64 * part).ceil() as u64).max(1);
        let mut seen = 0_u64;
        for range in self.ranges() {
            seen = seen.saturating_add(range.messages);
            if seen >= rank {
                return range.end_ms.saturating_sub(1).min(self.max_ms);
            }
        }
        self.max_ms
    }

    pub fn ranges(&self) -> impl Iterator<Item = LatencyRange> {
        self.counts.iter().enumerate().filter(|(_, messages)| **messages > 0).map(
            |(range, &messages)| LatencyRange {
                begin_ms: begin_ms(range),
                end_ms: begin_ms(range + 1),
                messages,
            },
        )
    }
}

fn range_of(time_ms: u64) -> usize {
    let power = time_ms.checked_ilog2().unwrap_or(0);
    let Some(shift) = power.checked_sub(PARTS_BITS) else {
        return to_usize(time_ms);
    };
    let part = (time_ms >> shift) & u64::from(PARTS - 1);
    ((shift + 1) * PARTS) as usize + to_usize(part)
}

fn begin_ms(range: usize) -> i64 {
    let range = saturating_u32(range);
    let Some(shift) = (range / PARTS).checked_sub(1) else { return i64::from(range) };
    let begin = u128::from(PARTS + range % PARTS).checked_shl(shift).unwrap_or(u128::MAX);
    saturating_i64(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_a_multiple_of_the_one_before() {
        for pair in STEPS_MS.windows(2) {
            assert!(pair[1] > pair[0] && pair[1] % pair[0] == 0, "{pair:?}");
        }
        let last = STEPS_MS[STEPS_MS.len() - 1];
        assert!(i64::MAX / last <= 3);
    }

    #[test]
    fn memory_is_bounded_whatever_the_times_and_topics() {
        let mut counts = Counts::default();
        let mut state = 1_u64;
        for number in 0..200_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let topic = (number % 5000).to_be_bytes();
            counts.add(&topic, 10, state.cast_signed());
            assert!(counts.cells.len() <= MOST_CELLS);
        }
        let survey = counts.finish(Latency::default(), Skipped::default());
        assert_eq!(survey.topics.len(), MOST_TOPICS);
        assert_eq!(survey.others.messages, 904 * 40);
        let cells: u64 = survey.cells.iter().map(|cell| cell.messages).sum();
        assert_eq!(cells, 200_000);
        let others: u64 = survey
            .cells
            .iter()
            .filter(|cell| cell.topic == MOST_TOPICS)
            .map(|cell| cell.messages)
            .sum();
        assert_eq!(others, survey.others.messages);
    }

    #[test]
    fn topics_come_by_size_and_steps_by_time() {
        let mut counts = Counts::default();
        for (topic, size, time_ms) in
            [(&b"small"[..], 1, 5_500), (b"large", 7, 4_999), (b"large", 7, 5_000), (b"same", 1, 0)]
        {
            counts.add(topic, size, time_ms);
        }
        let survey = counts.finish(Latency::default(), Skipped::default());
        let names: Vec<_> = survey.topics.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, [&b"large"[..], b"same", b"small"]);
        assert_eq!(survey.step_ms, 1000);
        let cells: Vec<_> =
            survey.cells.iter().map(|cell| (cell.begin_ms, cell.topic, cell.bytes)).collect();
        assert_eq!(cells, [(0, 1, 1), (4000, 0, 7), (5000, 0, 7), (5000, 2, 1)]);
    }

    #[test]
    fn every_time_lies_in_its_range() {
        let mut times: Vec<u64> = (0..70).collect();
        times.extend((0..63).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        times.push(i64::MAX as u64);
        for time in times {
            let range = range_of(time);
            assert!(range < RANGES, "{time}");
            let (begin, end) = (begin_ms(range), begin_ms(range + 1));
            let time = time.cast_signed();
            assert!(begin <= time && (time < end || time == i64::MAX), "{time}: {begin}..{end}");
            assert!(end - begin <= (begin / 16).max(1), "{time}: {begin}..{end}");
        }
    }

    #[test]
    fn quantiles_are_right_to_one_part_in_sixteen() {
        let mut latency = Latency::default();
        assert_eq!((latency.messages(), latency.quantile_ms(0.5)), (0, 0));
        for time_ms in 1..=1000 {
            latency.add(1_000_000, 1_000_000 + time_ms);
        }
        latency.add(0, 5);
        latency.add(10, 9);
        latency.add(i64::MAX, i64::MIN);
        assert_eq!((latency.messages(), latency.unknown, latency.negative), (1000, 1, 2));
        for (part, time_ms) in [(0.001, 1), (0.5, 500), (0.9, 900), (0.99, 990), (1.0, 1000)] {
            let found = latency.quantile_ms(part);
            assert!((time_ms..=time_ms + time_ms / 16).contains(&found), "{part}: {found}");
        }
        assert_eq!(latency.quantile_ms(1.0), 1000);
    }
}

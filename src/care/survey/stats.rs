//! Counts messages and bytes by topic, queue, time or tags.
//!
//! One walk over the log in bounded memory: beyond [`StatsOptions::most_bytes`] new groups are
//! counted together.

use std::path::Path;
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};

use crate::care::meter::{Skipped, each_message};
use crate::care::transfer::STAND_IN_PROPERTIES;
use crate::config::StoreConfig;
use crate::error::{Result, named};
use crate::files::Storage;
use crate::format::message::MessageView;
use crate::format::message::properties::names;
use crate::store::MessageStore;
use crate::store::progress::Progress;
use crate::store::read::scan::{OnDamage, ScanFilter};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Groupings by time and their spans, the longest first.
const TIMES: [(Grouping, i64); 4] = [
    (Grouping::Day, 24 * HOUR_MS),
    (Grouping::Hour, HOUR_MS),
    (Grouping::QuarterHour, 15 * MINUTE_MS),
    (Grouping::Minute, MINUTE_MS),
];
/// Approximate memory of a group beside topic and tags.
const GROUP_BYTES: usize = 192;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Grouping {
        Topic = "topic",
        QueueId = "queue_id",
        Minute = "minute",
        /// Quarter of an hour: days of any zone consist of them.
        QuarterHour = "quarter_hour",
        Hour = "hour",
        Day = "day",
        Tags = "tags",
    }
}

/// Options of [`stats`].
#[derive(Clone, Debug)]
pub struct StatsOptions {
    /// Grouping.
    pub by: Vec<Grouping>,
    /// Counted messages.
    pub filter: ScanFilter,
    /// Treatment of damage.
    pub on_damage: OnDamage,
    /// Approximate maximum memory of groups.
    pub most_bytes: usize,
}

impl StatsOptions {
    /// Counts all messages.
    #[must_use]
    pub fn by(by: &[Grouping]) -> Self {
        Self {
            by: by.to_vec(),
            filter: ScanFilter::ALL,
            on_damage: OnDamage::Fail,
            most_bytes: 32 << 20,
        }
    }
}

/// Number, size and time range of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub messages: u64,
    pub bytes: u64,
    /// Lowest store time, Unix milliseconds; 0 for none.
    pub first_store_timestamp_ms: i64,
    pub last_store_timestamp_ms: i64,
}

impl Totals {
    pub(super) fn add(&mut self, size: u32, time_ms: i64) {
        let (first, last) = if self.messages == 0 {
            (time_ms, time_ms)
        } else {
            (self.first_store_timestamp_ms.min(time_ms), self.last_store_timestamp_ms.max(time_ms))
        };
        (self.first_store_timestamp_ms, self.last_store_timestamp_ms) = (first, last);
        self.messages = self.messages.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u64::from(size));
    }
}

/// A group; unused dimensions are empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group<B = Box<[u8]>> {
    pub topic: B,
    pub queue_id: i32,
    begins_ms: [i64; TIMES.len()],
    /// Tags; `None` without any.
    pub tags: Option<B>,
}

impl<B> Group<B> {
    #[must_use]
    pub fn begin_ms(&self, grouping: Grouping) -> i64 {
        let mut begins = TIMES.iter().zip(self.begins_ms);
        begins.find(|((of, _), _)| *of == grouping).map_or(0, |(_, begin_ms)| begin_ms)
    }

    fn map<'a, C>(&'a self, with: impl Fn(&'a B) -> C) -> Group<C> {
        let Self { topic, queue_id, begins_ms, tags } = self;
        let tags = tags.as_ref().map(&with);
        Group { topic: with(topic), queue_id: *queue_id, begins_ms: *begins_ms, tags }
    }
}

// A box hashes like its slice.
impl Equivalent<Group> for Group<&[u8]> {
    fn equivalent(&self, group: &Group) -> bool {
        *self == group.map(|bytes| &**bytes)
    }
}

/// Result of [`stats`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Grouping.
    pub by: Vec<Grouping>,
    /// Sorted.
    pub groups: Vec<(Group, Totals)>,
    /// Messages of groups beyond the limit.
    pub others: Totals,
    /// Skipped parts of the log.
    pub skipped: Skipped,
    /// Messages and bytes of the whole store that the log no longer holds.
    pub deleted: (u64, u64),
    /// Counted messages that stand in for lost ones.
    pub stand_ins: u64,
}

/// Counts the messages of the store at `path`.
///
/// # Errors
/// [`Error::NotAStore`](crate::error::Error::NotAStore), and as a scan:
/// [`Error::Corrupt`](crate::error::Error::Corrupt) at damage unless skipped.
pub fn stats(
    storage: Arc<dyn Storage>,
    path: &Path,
    config: StoreConfig,
    options: &StatsOptions,
    progress: &mut Progress<'_>,
) -> Result<Stats> {
    let store = MessageStore::open_on(path, config, storage)?;
    let mut groups: HashMap<Group, Totals> = HashMap::new();
    let mut others = Totals::default();
    let (mut held, mut stand_ins) = (0_usize, 0);
    let by = |grouping| options.by.contains(&grouping);
    let (topic, queue_id, tags) = (by(Grouping::Topic), by(Grouping::QueueId), by(Grouping::Tags));
    let spans = TIMES.map(|(grouping, span_ms)| by(grouping).then_some(span_ms));
    let skipped = each_message(&store, options.on_damage, progress, |view: &MessageView<'_>| {
        if !options.filter.takes(view) {
            return;
        }
        let time_ms = view.store_timestamp_ms();
        let begin = |span_ms: i64| time_ms.div_euclid(span_ms).saturating_mul(span_ms);
        let group = Group {
            topic: if topic { view.topic() } else { &[] },
            queue_id: if queue_id { view.queue_id() } else { 0 },
            begins_ms: spans.map(|span_ms| span_ms.map_or(0, begin)),
            tags: if tags { view.property(names::TAGS) } else { None },
        };
        let totals = match groups.get_mut(&group) {
            Some(totals) => totals,
            None => {
                let size = GROUP_BYTES + group.topic.len() + group.tags.map_or(0, <[u8]>::len);
                if held.saturating_add(size) > options.most_bytes {
                    &mut others
                } else {
                    held += size;
                    groups.entry(group.map(|bytes| Box::from(*bytes))).or_default()
                }
            }
        };
        totals.add(view.store_size(), time_ms);
        stand_ins += u64::from(view.raw_properties().starts_with(STAND_IN_PROPERTIES));
    })?;
    let deleted = store.deleted()?;
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(Stats { by: options.by.clone(), groups, others, skipped, deleted, stand_ins })
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::files::Os;
    use crate::store::{NewMessage, OpenMode};

    fn count(path: &Path, options: &StatsOptions) -> Stats {
        let mut go_on = |_, _| ControlFlow::Continue(());
        stats(Arc::new(Os), path, StoreConfig::default(), options, &mut go_on).unwrap()
    }

    #[test]
    fn groups_without_room_are_counted_together() {
        let dir = tempfile::tempdir().unwrap();
        let config =
            StoreConfig { mapped_file_size_commit_log: Some(4096), ..StoreConfig::default() };
        let store = MessageStore::open(dir.path(), OpenMode::Create, config).unwrap();
        for number in 0..30 {
            let topic = format!("topic{}", number % 10);
            let mut message = NewMessage::new(topic.as_bytes(), b"body");
            message.store_timestamp_ms = Some(1000 + number);
            store.append(&message).unwrap();
        }
        store.close().unwrap();

        let all = count(dir.path(), &StatsOptions::by(&[Grouping::Topic]));
        assert_eq!((all.groups.len(), all.others), (10, Totals::default()));
        let most_bytes = 4 * (GROUP_BYTES + "topic0".len());
        let few = StatsOptions { most_bytes, ..StatsOptions::by(&[Grouping::Topic]) };
        let few = count(dir.path(), &few);
        assert_eq!(few.groups, all.groups[..4]);
        assert_eq!((few.others.messages, few.others.bytes), (18, few.groups[0].1.bytes * 6));
        let times = (few.others.first_store_timestamp_ms, few.others.last_store_timestamp_ms);
        assert_eq!(times, (1004, 1029));
    }

    #[test]
    fn hours_before_1970_begin_before_their_messages() {
        let dir = tempfile::tempdir().unwrap();
        let store =
            MessageStore::open(dir.path(), OpenMode::Create, StoreConfig::default()).unwrap();
        let places =
            [-1_i64, 0, i64::MIN].map(|time| (time, store.append(&NewMessage::new(b"t", b""))));
        store.close().unwrap();
        // Appends refuse such a time, but a log may have it at byte 56 of a record.
        let log = dir.path().join("commitlog").join("0".repeat(20));
        let log = std::fs::OpenOptions::new().write(true).open(log).unwrap();
        for (time_ms, place) in places {
            let at = u64::try_from(place.unwrap().physical_offset).unwrap() + 56;
            std::os::unix::fs::FileExt::write_all_at(&log, &time_ms.to_be_bytes(), at).unwrap();
        }
        let hours = count(dir.path(), &StatsOptions::by(&[Grouping::Hour]));
        let begins: Vec<_> =
            hours.groups.iter().map(|(group, _)| group.begin_ms(Grouping::Hour)).collect();
        assert_eq!(begins, [i64::MIN, -HOUR_MS, 0]);
    }
}

//! Chooses messages of a log.

use std::fmt;
use std::sync::Arc;

use crate::locks::Mutex;
use hashbrown::{HashMap, HashSet};

use crate::format::message::properties::{self, names};
use crate::format::message::sys_flag::Transaction;
use crate::format::message::{MessageView, tag_filter::TagFilter};

#[derive(Clone, Debug)]
pub struct ScanFilter {
    pub topics: Option<HashSet<Box<[u8]>>>,
    pub tags: TagFilter,
    pub begin_ms: i64,
    pub end_ms: i64,
    pub more: Option<Box<MoreConditions>>,
}

impl ScanFilter {
    pub const ALL: Self = Self {
        topics: None,
        tags: TagFilter::ALL,
        begin_ms: i64::MIN,
        end_ms: i64::MAX,
        more: None,
    };

    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.takes_any() && (self.begin_ms, self.end_ms) == (i64::MIN, i64::MAX)
    }

    #[inline]
    #[must_use]
    pub fn takes(&self, view: &MessageView<'_>) -> bool {
        let time_ms = view.store_timestamp_ms();
        self.begin_ms <= time_ms
            && time_ms <= self.end_ms
            && (self.takes_any() || self.takes_closely(view))
    }

    #[inline]
    fn takes_any(&self) -> bool {
        self.topics.is_none() && self.tags.is_all() && self.more.is_none()
    }

    fn takes_closely(&self, view: &MessageView<'_>) -> bool {
        self.topics.as_ref().is_none_or(|topics| topics.contains(view.topic()))
            && (self.tags.is_all() || self.tags.matches_tags(view.property(names::TAGS)))
            && self.more.as_ref().is_none_or(|more| more.takes(view))
    }
}

impl Default for ScanFilter {
    fn default() -> Self {
        Self::ALL
    }
}

pub type TopicTest = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;
type Bounds = HashMap<i32, (i64, i64)>;

#[derive(Clone, Default)]
pub struct MoreConditions {
    pub topic_test: Option<TopicTest>,
    pub queues: HashMap<Box<[u8]>, Bounds>,
    pub only_these_queues: bool,
    pub keys: Option<HashSet<Box<[u8]>>>,
    pub delivered_only: bool,
    tested: Tested,
}

impl fmt::Debug for MoreConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoreConditions").field("queues", &self.queues).finish_non_exhaustive()
    }
}

/// Answers of a topic test. Each clone has its own, so no thread waits.
#[derive(Default)]
struct Tested(Mutex<HashMap<Box<[u8]>, bool>>);

impl Clone for Tested {
    fn clone(&self) -> Self {
        Self::default()
    }
}

const MOST_TESTED: usize = 1 << 16;

impl MoreConditions {
    fn takes(&self, view: &MessageView<'_>) -> bool {
        !(self.delivered_only && is_undelivered(view))
            && self.takes_queue(view)
            && self.takes_topic(view.topic())
            && self.takes_keys(view)
    }

    fn takes_queue(&self, view: &MessageView<'_>) -> bool {
        if self.queues.is_empty() {
            return !self.only_these_queues;
        }
        match self.queues.get(view.topic()).and_then(|ids| ids.get(&view.queue_id())) {
            Some((from, to)) => *from <= view.queue_offset() && view.queue_offset() < *to,
            None => !self.only_these_queues,
        }
    }

    fn takes_topic(&self, topic: &[u8]) -> bool {
        let Some(test) = &self.topic_test else { return true };
        if let Some(known) = self.tested.0.lock().get(topic).copied() {
            return known;
        }
        let takes = test(topic);
        let mut tested = self.tested.0.lock();
        if tested.len() >= MOST_TESTED {
            tested.clear();
        }
        tested.insert(topic.into(), takes);
        takes
    }

    fn takes_keys(&self, view: &MessageView<'_>) -> bool {
        let Some(wanted) = &self.keys else { return true };
        let properties = properties::indexed(view.raw_properties());
        properties.unique_key.is_some_and(|key| wanted.contains(key))
            || properties
                .keys
                .is_some_and(|keys| properties::split_keys(keys).any(|key| wanted.contains(key)))
    }
}

const fn is_undelivered(view: &MessageView<'_>) -> bool {
    matches!(view.transaction(), Transaction::Prepared | Transaction::Rollback)
}

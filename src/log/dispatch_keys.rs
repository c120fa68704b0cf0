//! Keys of a message for the index.

use crate::format::java::TopicHash;
use crate::format::message::properties::{MAX_LEN, split_keys};
use crate::format::message::sys_flag::Transaction;

/// Maximum keys of a message: as many as its properties hold, and the unique key.
pub const MAX_KEYS: usize = MAX_LEN / 2 + 1;

/// Input of the index for one message (`DispatchRequest`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchKeys<'a> {
    pub physical_offset: i64,
    pub store_timestamp_ms: i64,
    /// Rolled back messages get no entry.
    pub transaction: Transaction,
    pub topic: &'a [u8],
    /// Property `UNIQ_KEY`.
    pub unique_key: Option<&'a [u8]>,
    /// Property `KEYS`, separated by spaces.
    pub keys: Option<&'a [u8]>,
}

impl<'a> DispatchKeys<'a> {
    /// The keys in the order of entries.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.unique_key.into_iter().chain(split_keys(self.keys.unwrap_or_default()))
    }

    /// The keys that get an entry.
    pub fn put(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.iter().take(MAX_KEYS)
    }

    /// Hashes of the keys that get an entry; none for a rolled back message.
    pub fn hashes(&self) -> impl Iterator<Item = i32> + use<'a> {
        self.hashes_of(TopicHash::of(self.topic))
    }

    /// [`DispatchKeys::hashes`] with the topic's hash given.
    #[inline]
    pub fn hashes_of(&self, topic: TopicHash) -> impl Iterator<Item = i32> + use<'a> {
        let most = if self.transaction == Transaction::Rollback { 0 } else { MAX_KEYS };
        self.iter().take(most).map(move |key| topic.with_key(key))
    }

    pub fn surplus_hashes_of(&self, topic: TopicHash) -> impl Iterator<Item = i32> + use<'a> {
        let all = if self.transaction == Transaction::Rollback { 0 } else { usize::MAX };
        self.iter().take(all).skip(MAX_KEYS).map(move |key| topic.with_key(key))
    }
}

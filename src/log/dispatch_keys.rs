//! The keys of a message, as the index takes them.

use crate::format::java::TopicHash;
use crate::format::message::properties::{MAX_LEN, split_keys};
use crate::format::message::sys_flag::Transaction;

/// How many keys of one message are put: all that its properties have room for, and the unique one.
pub const MAX_KEYS: usize = MAX_LEN / 2 + 1;

/// What the index needs of a dispatched message (`DispatchRequest`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchKeys<'a> {
    /// Where its record begins.
    pub physical_offset: i64,
    /// Its store time, Unix milliseconds.
    pub store_timestamp_ms: i64,
    /// Its part in a transaction: rolled back messages get no entry.
    pub transaction: Transaction,
    /// Its topic.
    pub topic: &'a [u8],
    /// Property `UNIQ_KEY`.
    pub unique_key: Option<&'a [u8]>,
    /// Property `KEYS`, keys with single spaces between them.
    pub keys: Option<&'a [u8]>,
}

impl<'a> DispatchKeys<'a> {
    /// The keys in the order of their entries.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.unique_key.into_iter().chain(split_keys(self.keys.unwrap_or_default()))
    }

    /// Those of them that get an entry.
    pub fn put(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.iter().take(MAX_KEYS)
    }

    /// The hashes that its entries hold, in order: those of no more keys than are put, and none of a
    /// message that was rolled back.
    pub fn hashes(&self) -> impl Iterator<Item = i32> + use<'a> {
        self.hashes_of(TopicHash::of(self.topic))
    }

    /// The same where what the hashes of its topic begin with is known.
    #[inline]
    pub fn hashes_of(&self, topic: TopicHash) -> impl Iterator<Item = i32> + use<'a> {
        let most = if self.transaction == Transaction::Rollback { 0 } else { MAX_KEYS };
        self.iter().take(most).map(move |key| topic.with_key(key))
    }

    /// The hashes of those keys that are more than are put.
    pub fn surplus_hashes_of(&self, topic: TopicHash) -> impl Iterator<Item = i32> + use<'a> {
        let all = if self.transaction == Transaction::Rollback { 0 } else { usize::MAX };
        self.iter().take(all).skip(MAX_KEYS).map(move |key| topic.with_key(key))
    }
}

//! Queries by key or tags: RocketMQ's (`DefaultMessageStore.queryMessage`), and exact ones that
//! check every message.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::java::{TAG_PREFIX, TopicHash, key_hash};
use crate::format::message::sys_flag::Transaction;
use crate::format::message::{MessageView, read_whole};
use crate::format::release::Release;
use crate::format::width::{clamp_u64, offset_or_max};
use crate::log::commit_log::Found;
use crate::log::commit_log::join;
use crate::log::index::file::IndexPut;
use crate::log::index::query::{Candidate, ExternalOffsets, ExternalQuery};
use crate::log::index::run::Between;
use crate::log::read::scanner::{Flow, Item, Resync, Scanner, Stop};
use crate::log::{CommitLog, IndexRun};

pub use super::key_answer::{KeyQuery, QueryResult};
use super::reader::Reader;
use super::unindexed::{MOST_READ, has_keys, is_within, not_indexed};
use crate::store::dispatch::dispatcher::DispatchRequest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexType {
    Key,
    UniqueKey,
    /// The tags. Only RocketMQ 5.4 and later put entries for them.
    Tags,
}

impl IndexType {
    fn text(self, text: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Key | Self::UniqueKey => text.into(),
            Self::Tags => [TAG_PREFIX, text].concat().into(),
        }
    }

    fn is_of(self, request: &DispatchRequest<'_>, query: &KeyQuery<'_>) -> bool {
        (query.topic.is_empty() || request.topic == query.topic)
            && match self {
                Self::Key => request.keys().any(|own| own == query.key),
                Self::UniqueKey => request.properties.unique_key == Some(query.key),
                Self::Tags => {
                    request.transaction != Transaction::Rollback
                        && request.properties.tags == Some(query.key)
                }
            }
    }
}

const CHUNK: usize = 256;

/// Answers a query from the index, and from the log for later messages, without a writer's lock.
pub(crate) fn query(reader: &Reader, query: &KeyQuery<'_>, by: IndexType) -> Result<QueryResult> {
    let answer = reader.read_index(|| {
        // First the offset, then the index: messages appended in between are found in the log.
        if query.exact {
            exact(reader, query, by, reader.indexed_offset()?, true)
        } else {
            as_rocketmq(reader, query, &by.text(query.key))
        }
    });
    answer.map(|result| with_losses(reader, result))
}

/// Adds what is known to be unreadable: a key of it may be in no index file.
fn with_losses(reader: &Reader, mut result: QueryResult) -> QueryResult {
    let losses = reader.log().losses();
    result.complete &= losses.is_empty() && reader.missing_end.is_none();
    for range in losses {
        join(&mut result.unread, range);
    }
    result
}

/// RocketMQ's answer: the newest by the index alone, oldest first. In the writer's process waiting
/// keys count as put.
fn as_rocketmq(reader: &Reader, query: &KeyQuery<'_>, text: &[u8]) -> Result<QueryResult> {
    let mut result = QueryResult::default();
    let log = reader.log();
    let Some(index) = &reader.files.index else {
        return Ok(QueryResult { complete: log.end_offset() == 0, ..result });
    };
    let most = query.max_messages.min(reader.files.config.max_msgs_num_batch);
    let span = (query.begin_ms, query.end_ms);
    let (waiting, is_whole) = match reader.is_writers() {
        true => waiting_keys(reader, reader.indexed_offset()?)?,
        false => (Vec::new(), true),
    };
    let answer = index.query_offsets(&waiting, query.topic, text, span, most)?;
    result.complete = is_whole && answer.findings.is_empty();
    let mut offsets = answer.offsets;
    offsets.sort_unstable();
    let oldest = offsets.first().filter(|_| offsets.len() >= most).map_or(0, |at| clamp_u64(*at));
    for part in not_indexed(reader, index, span, oldest)? {
        result.leave_out(part);
    }
    let mut buffer = Vec::new();
    for offset in offsets {
        let at = offset_or_max(offset);
        match log.read(at, 0, &mut buffer)? {
            Found::Message(view) => {
                log.check_body(&view)?;
                result.records.push(view.as_bytes().into());
            }
            // Retention deleted it, or is about to delete its entry.
            Found::OutOfRange if at < log.min_offset() => {}
            _ => result.leave_out(at..at.saturating_add(1)),
        }
    }
    Ok(result)
}

fn waiting_keys(reader: &Reader, from: u64) -> Result<(Vec<IndexPut>, bool)> {
    let end = reader.readable_end();
    let with_tags = reader.files.config.rocketmq_version.is_some_and(Release::has_tag_entries);
    let from = from.max(reader.log().min_offset());
    let mut waiting = Vec::new();
    if from >= end {
        return Ok((waiting, true));
    }
    let mut scanner = Scanner::new(reader.log(), from, end, false);
    let stop = scanner.each(reader.log(), end, Resync::Never, |_, item| {
        let Item::Record(view, _) = item else { return Ok(Flow::Continue) };
        let request = DispatchRequest::of(view);
        let DispatchRequest { physical_offset, store_timestamp_ms, .. } = request;
        let tags = with_tags.then(|| request.tag_hash_of(TopicHash::of(request.topic))).flatten();
        waiting.extend(request.key_hashes().chain(tags).map(|key_hash| IndexPut {
            key_hash,
            physical_offset,
            store_timestamp_ms,
        }));
        Ok(Flow::Continue)
    })?;
    Ok((waiting, !matches!(stop, Some(Stop::Damage(_)))))
}

/// Asks the index for each of `topics`, and the log once for what it lacks, newest first. Tags are
/// searched in the last gibibyte of the log only.
pub(crate) fn query_topics<'a>(
    reader: &Reader,
    topics: impl Iterator<Item = &'a [u8]>,
    wanted: &KeyQuery<'_>,
    by: IndexType,
) -> Result<QueryResult> {
    let any = KeyQuery { topic: &[], ..*wanted };
    let indexed = reader.read_index(|| reader.indexed_offset())?;
    let (begin, end) = (reader.log().min_offset(), reader.readable_end());
    let from = match by {
        IndexType::Key | IndexType::UniqueKey => indexed.max(begin),
        IndexType::Tags => end.saturating_sub(MOST_READ).max(begin),
    };
    let mut of_log = KeySearch::new(reader, &any, by, from);
    of_log.search_log(from, end, &(0..0))?;
    if by != IndexType::Tags
        && let Some(index) = &reader.files.index
    {
        let listing = index.listing();
        for place in (0..listing.files.len()).rev() {
            of_log.search_between(index.between(&listing.files, place))?;
        }
    }
    let mut all = of_log.result;
    if by != IndexType::Tags {
        for topic in topics {
            let query = KeyQuery { topic, ..*wanted };
            let one = reader.read_index(|| exact(reader, &query, by, from, false))?;
            all.records.extend(one.records);
            all.truncated |= one.truncated;
            all.complete &= one.complete;
            one.unread.into_iter().for_each(|part| join(&mut all.unread, part));
            all.rejected_by_hash += one.rejected_by_hash;
            all.rejected_by_time += one.rejected_by_time;
        }
    } else if from > begin {
        all.leave_out(begin..from);
    }
    all.records.sort_by_cached_key(|record| {
        Reverse(read_whole(record).map_or(-1, |view| view.physical_offset()))
    });
    // Read from the log beside an index file that has it too.
    all.records.dedup();
    all.truncated |= all.records.len() > wanted.max_messages;
    all.records.truncate(wanted.max_messages);
    Ok(with_losses(reader, all))
}

fn exact(
    reader: &Reader,
    query: &KeyQuery<'_>,
    by: IndexType,
    tail_from: u64,
    with_tail: bool,
) -> Result<QueryResult> {
    let mut asking = KeySearch::new(reader, query, by, tail_from);
    let log = tail_from.max(reader.log().min_offset())..reader.readable_end();
    let index = reader.files.index.as_ref().filter(|index| !index.listing().files.is_empty());
    let other = reader.external_index.get().filter(|_| index.is_none() && with_tail);
    let found = other.and_then(|other| {
        other.query(&ExternalQuery {
            topic: query.topic,
            text: query.key,
            is_tags: by == IndexType::Tags,
            span: (query.begin_ms, query.end_ms),
            log: (log.start, log.end),
        })
    });
    let is_answered = match found {
        Some(found) => asking.search_rocksdb(found)?,
        None => false,
    };
    if !is_answered && with_tail {
        asking.search_log(log.start, log.end, &(0..0))?;
    }
    if let Some(index) = index {
        asking.search_index(index, with_tail)?;
    }
    let mut result = asking.result;
    if result.records.len() == asking.most {
        result.records.truncate(query.max_messages);
        result.truncated = true;
    }
    Ok(result)
}

struct KeySearch<'a> {
    reader: &'a Reader,
    query: &'a KeyQuery<'a>,
    by: IndexType,
    text: Cow<'a, [u8]>,
    key_hash: i32,
    most: usize,
    /// Messages from here on were found in the log.
    tail_from: u64,
    result: QueryResult,
    /// The last message checked, and its remaining entries.
    last: Option<u64>,
    repeats: usize,
    behind: i64,
    may_read: u64,
    buffer: Vec<u8>,
}

impl<'a> KeySearch<'a> {
    fn new(reader: &'a Reader, query: &'a KeyQuery<'a>, by: IndexType, tail_from: u64) -> Self {
        let text = by.text(query.key);
        // A query of any topic has no hash.
        let key_hash = if query.topic.is_empty() { -1 } else { key_hash(query.topic, &text) };
        Self {
            reader,
            query,
            by,
            text,
            key_hash,
            // One more shows that there are more.
            most: query.max_messages.saturating_add(1),
            tail_from,
            result: QueryResult::default(),
            last: None,
            repeats: 0,
            behind: 0,
            may_read: MOST_READ,
            buffer: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.result.records.len() >= self.most
    }

    /// Adds the index's messages, file by file. For a file with a fault the log is read instead,
    /// unless too long.
    /// With `between` also those of no file.
    fn search_index(&mut self, index: &Arc<IndexRun>, between: bool) -> Result<()> {
        let KeyQuery { topic, begin_ms, end_ms, .. } = *self.query;
        let mut candidates = index.candidates(topic, &self.text, begin_ms, end_ms);
        let (mut chunk, mut findings) = (Vec::new(), Vec::new());
        // A query by tags reads the log in any case.
        let listing = Arc::clone(candidates.listing());
        let coverage = &self.reader.coverage;
        let asks = between && self.by != IndexType::Tags && !coverage.is_whole(&listing, 0);
        let mut is_whole = asks;
        while !self.is_full() && candidates.next_file(&mut findings)? {
            let (records, last, repeats) = (self.result.records.len(), self.last, self.repeats);
            let rejected = (self.result.rejected_by_hash, self.result.rejected_by_time);
            loop {
                chunk.clear();
                let more = candidates.next_chunk(CHUNK, &mut chunk, &mut findings)?;
                // Nothing in an index file proves that all of its messages' tags have entries.
                let mut is_sound = self.by != IndexType::Tags;
                for candidate in &chunk {
                    is_sound &= self.is_sound(candidate)?;
                    if self.is_full() {
                        break;
                    }
                }
                if !is_sound || !findings.is_empty() {
                    let (from, to) = candidates.span();
                    let from = clamp_u64(from).max(self.reader.log().min_offset());
                    let to = to.and_then(|to| u64::try_from(to).ok()?.checked_add(1));
                    let to = to.unwrap_or(u64::MAX).min(last.unwrap_or(u64::MAX));
                    let to = to.min(self.tail_from);
                    findings.clear();
                    let length = to.saturating_sub(from);
                    if length > self.may_read {
                        self.result.leave_out(from..to);
                    } else {
                        self.may_read -= length;
                        self.result.records.truncate(records);
                        (self.result.rejected_by_hash, self.result.rejected_by_time) = rejected;
                        (self.last, self.repeats) = (last, repeats);
                        self.search_log(from, to, &(0..0))?;
                        // The message there may have keys in the older file too.
                        if from < to {
                            (self.last, self.repeats) = (Some(from), usize::MAX);
                        }
                        break;
                    }
                }
                if !more || self.is_full() {
                    break;
                }
            }
            is_whole &= asks && !self.is_full() && self.search_between(candidates.between())?;
        }
        if is_whole && !self.is_full() {
            self.reader.coverage.set_whole(&listing, 0);
        }
        Ok(())
    }

    /// Adds messages of a part that no index file has, unless too long. Returns whether none of the
    /// part's messages has keys.
    fn search_between(&mut self, between: Option<Between>) -> Result<bool> {
        let Some(between) = between.filter(|_| !self.is_full()) else { return Ok(false) };
        let part = self.reader.part_between(&between)?;
        let (rest, is_keyed) = self.reader.coverage.rest(part.clone());
        if rest.is_empty() {
            return Ok(true);
        }
        // A missing file may have some keys of the messages at which its neighbours end and begin.
        let older = between.older.as_ref().map(|older| clamp_u64(older.end_physical_offset));
        let from = older.filter(|at| *at < part.start && rest.start == part.start);
        let from = from.unwrap_or(rest.start).max(self.reader.log().min_offset());
        // Beside a damaged file it was read already.
        let edge = self.reader.behind(between.newer.begin_physical_offset, u64::MAX)?;
        let to = edge.min(self.tail_from).min(self.last.unwrap_or(u64::MAX));
        if from >= to {
            return Ok(false);
        }
        if to - from > self.may_read {
            let rest = match is_keyed {
                true => rest,
                false => self.reader.read_unindexed(part, &mut self.may_read)?,
            };
            if !rest.is_empty() && is_within(&between, self.query.begin_ms, self.query.end_ms) {
                self.result.leave_out(rest.clone());
            }
            return Ok(rest.is_empty());
        }
        self.may_read -= to - from;
        let (is_read, keyed) = self.search_log(from, to, &rest)?;
        self.tail_from = from;
        match keyed {
            Some(at) if !is_read => self.reader.note_read(&part, at..at, keyed),
            None if !is_read => {}
            _ => self.reader.note_read(&part, rest.start..to.min(rest.end), keyed),
        }
        Ok(is_read && keyed.is_none() && to >= rest.end)
    }

    /// Adds the messages of another index and those behind it. `false` if it leads astray: then
    /// nothing is added.
    fn search_rocksdb(&mut self, mut found: ExternalOffsets) -> Result<bool> {
        let log = self.reader.log();
        self.search_log(found.until.max(log.min_offset()), self.reader.readable_end(), &(0..0))?;
        found.offsets.retain(|at| (log.min_offset()..found.until).contains(at));
        found.offsets.sort_unstable_by(|one, other| other.cmp(one));
        found.offsets.dedup();
        let mut buffer = std::mem::take(&mut self.buffer);
        for at in found.offsets {
            if self.is_full() {
                break;
            }
            match log.read(at, 0, &mut buffer)? {
                Found::Message(view) if view.topic() == self.query.topic => {
                    if !self.by.is_of(&DispatchRequest::of(&view), self.query) {
                        self.result.rejected_by_hash += 1;
                    } else if self.is_time(&view) {
                        log.check_body(&view)?;
                        self.result.records.push(view.as_bytes().into());
                    }
                }
                _ if at < log.min_offset() || at >= self.reader.readable_end() => {}
                _ => {
                    self.result = QueryResult::default();
                    return Ok(false);
                }
            }
        }
        // Nothing proves that it has all of them.
        self.result.complete = false;
        Ok(true)
    }

    /// Whether an entry leads to its message.
    fn is_sound(&mut self, candidate: &Candidate) -> Result<bool> {
        let log = self.reader.log();
        let Ok(at) = u64::try_from(candidate.physical_offset) else { return Ok(false) };
        if at >= self.reader.readable_end() {
            return Ok(true);
        }
        let is_gone = |log: &CommitLog| at < log.min_offset();
        if !candidate.is_wanted {
            let time = log.store_timestamp_ms(at, 0)?;
            return Ok(time.map_or_else(|| is_gone(log), |time| candidate.is_time(time)));
        }
        if self.last == Some(at) {
            return self.check_duplicate(candidate);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = match log.read(at, 0, &mut buffer)? {
            Found::Message(view) => self.check_message(candidate, &view),
            _ => Ok(is_gone(log)),
        };
        self.buffer = buffer;
        (self.last, self.behind) = (Some(at), candidate.behind);
        outcome
    }

    fn check_message(&mut self, candidate: &Candidate, view: &MessageView<'_>) -> Result<bool> {
        let request = DispatchRequest::of(view);
        let is_own = self.by.is_of(&request, self.query);
        let topic = TopicHash::of(request.topic);
        let keys = request.keys().map(|key| topic.with_key(key));
        let hashes = keys.chain(request.tag_hash_of(topic));
        let of_hash = hashes.filter(|hash| *hash == candidate.key_hash).count();
        let is_right = of_hash > 0 && candidate.is_time(request.store_timestamp_ms);
        // Another key of this slot, unless one bit of its hash is wrong.
        if candidate.key_hash != self.key_hash || !is_right {
            return Ok(is_right);
        }
        self.repeats = of_hash - 1;
        // Beyond the trusted part of the index the log was read.
        if u64::try_from(view.physical_offset()).is_ok_and(|at| at >= self.tail_from) {
            return Ok(true);
        }
        if !is_own {
            self.result.rejected_by_hash += 1;
        } else if self.is_time(view) {
            self.reader.log().check_body(view)?;
            self.result.records.push(view.as_bytes().into());
        }
        Ok(true)
    }

    /// Handles a repeated message: it has the key twice, or RocketMQ put its keys twice after a
    /// restart. Then no other message of the key lies between.
    fn check_duplicate(&mut self, candidate: &Candidate) -> Result<bool> {
        if let Some(left) = self.repeats.checked_sub(1) {
            self.repeats = left;
            return Ok(true);
        }
        let ends = [candidate.before, candidate.physical_offset];
        let from = clamp_u64(candidate.before).max(self.reader.log().min_offset());
        let to = clamp_u64(self.behind);
        let mut is_passed_over = false;
        let is_whole = self.walk(from, to, |asking, _, view| {
            let request = DispatchRequest::of(view);
            is_passed_over |=
                !ends.contains(&view.physical_offset()) && asking.by.is_of(&request, asking.query);
            Ok(())
        })?;
        Ok(is_whole && !is_passed_over)
    }

    /// Adds the newest matches that begin in `from..to` of the log, newest first, as far as there
    /// is room.
    /// Returns whether all was readable, and the first message with keys in `unindexed`.
    fn search_log(
        &mut self,
        from: u64,
        to: u64,
        unindexed: &Range<u64>,
    ) -> Result<(bool, Option<u64>)> {
        let room = self.most.saturating_sub(self.result.records.len());
        let mut newest: VecDeque<Box<[u8]>> = VecDeque::new();
        let mut keyed = None;
        let is_whole = self.walk(from, to, |asking, at, view| {
            let request = DispatchRequest::of(view);
            if keyed.is_none() && unindexed.contains(&at) && has_keys(&request) {
                keyed = Some(at);
            }
            if !asking.by.is_of(&request, asking.query) {
                // As the index counts it.
                let topic = TopicHash::of(request.topic);
                let mut hashes = request.keys().map(|key| topic.with_key(key));
                asking.result.rejected_by_hash +=
                    u64::from(hashes.any(|hash| hash == asking.key_hash));
            } else if asking.is_time(view) {
                asking.reader.log().check_body(view)?;
                if newest.len() == room {
                    newest.pop_front();
                }
                newest.push_back(view.as_bytes().into());
            }
            Ok(())
        })?;
        self.result.records.extend(newest.into_iter().rev().take(room));
        self.result.complete &= is_whole;
        Ok((is_whole, keyed))
    }

    /// Passes messages that begin in `from..to` to `take`; returns whether all were readable.
    fn walk(
        &mut self,
        from: u64,
        to: u64,
        mut take: impl FnMut(&mut Self, u64, &MessageView<'_>) -> Result<()>,
    ) -> Result<bool> {
        let reader = self.reader;
        if from >= to {
            return Ok(true);
        }
        let mut scanner = Scanner::new(reader.log(), from, reader.readable_end(), false);
        let mut is_whole = true;
        let ended = scanner.each(reader.log(), to, Resync::Anywhere, |range, item| {
            match item {
                Item::Record(view, _) => take(self, range.start, view)?,
                Item::Blank => {}
                Item::Damage(_) => {
                    is_whole = false;
                    join(&mut self.result.unread, range.clone());
                    // A damaged index may lead into a record.
                    let at = range.start;
                    if at > from
                        || reader.log().run().find(at).is_none_or(|it| it.base_offset == at)
                    {
                        reader.log().lose(range);
                    }
                }
            }
            Ok(Flow::Continue)
        })?;
        // Otherwise files are gone.
        let is_read = ended.is_none() || scanner.position() >= to.min(reader.readable_end());
        Ok(is_whole && is_read)
    }

    fn is_time(&mut self, view: &MessageView<'_>) -> bool {
        let is_wanted =
            (self.query.begin_ms..=self.query.end_ms).contains(&view.store_timestamp_ms());
        self.result.rejected_by_time += u64::from(!is_wanted);
        is_wanted
    }
}

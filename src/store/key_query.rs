//! Messages by key (`DefaultMessageStore.queryMessage`), and the same with every message looked at.

use std::collections::VecDeque;

use crate::error::Result;
use crate::format::message::MessageView;
use crate::format::properties;
use crate::log::commit_log::Found;
use crate::log::scanner::{Scanned, Scanner, Stop};

use super::core::Core;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct KeyQuery<'a> {
    /// The topic, as its bytes.
    pub topic: &'a [u8],
    /// The key, or the unique key.
    pub key: &'a [u8],
    /// Earliest store time.
    pub begin_ms: i64,
    /// Latest store time.
    pub end_ms: i64,
    /// Most messages.
    pub max_messages: usize,
    /// Whether topic, key and store time are held against the message itself; otherwise the answer
    /// is RocketMQ's own.
    pub exact: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct QueryResult {
    /// The messages, each as its whole record: newest first, or, where RocketMQ's answer was asked
    /// for, in its order.
    pub records: Vec<Box<[u8]>>,
    /// Whether there are more.
    pub truncated: bool,
    /// Messages of another key or topic that share the hash.
    pub rejected_by_hash: u64,
    /// Messages of the key stored at another time.
    pub rejected_by_time: u64,
}

/// How many candidates are asked of the index at a time.
const CHUNK: usize = 256;

pub(super) fn query(core: &Core, query: &KeyQuery<'_>) -> Result<QueryResult> {
    // First how far the index must reach, then that it does: what other threads append in between is
    // read from the log, and not missed by both.
    let mut tail_from = if query.exact { core.index_reach()? } else { 0 };
    if let Some(writing) = &core.writing {
        match core.drain_index(writing) {
            Err(error) if error.is_full_disk() => tail_from = core.index_files_reach(None)?,
            other => other?,
        }
    }
    if query.exact { exact(core, query, tail_from) } else { as_rocketmq(core, query) }
}

/// RocketMQ's answer: the newest by the index alone, the oldest of them first.
fn as_rocketmq(core: &Core, query: &KeyQuery<'_>) -> Result<QueryResult> {
    let mut result = QueryResult::default();
    let Some(index) = &core.index else { return Ok(result) };
    let most = query.max_messages.min(core.config.max_msgs_num_batch);
    let answer = index.query_offsets(query.topic, query.key, query.begin_ms, query.end_ms, most)?;
    let mut offsets = answer.offsets;
    offsets.sort_unstable();
    let mut buffer = Vec::new();
    for offset in offsets {
        let at = u64::try_from(offset).unwrap_or(u64::MAX);
        if let Found::Message(view) = core.log.read(at, 0, &mut buffer)? {
            core.log.check_body(&view)?;
            result.records.push(view.as_bytes().into());
        }
    }
    Ok(result)
}

/// Every message of the key, newest first, each looked at.
fn exact(core: &Core, query: &KeyQuery<'_>, tail_from: u64) -> Result<QueryResult> {
    let mut result = QueryResult::default();
    // One more than wanted tells that there are more.
    let most = query.max_messages.saturating_add(1);
    let mut newest = in_the_log(core, query, tail_from, most, &mut result)?;
    while let Some((_, record)) = newest.pop_back() {
        result.records.push(record);
    }
    if result.records.len() < most
        && let Some(index) = &core.index
    {
        let mut candidates = index.candidates(query.topic, query.key, query.begin_ms, query.end_ms);
        let (mut offsets, mut findings, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
        let mut last = None;
        'chunks: loop {
            offsets.clear();
            candidates.next_chunk(CHUNK, &mut offsets, &mut findings)?;
            if offsets.is_empty() {
                break;
            }
            for &offset in &offsets {
                let Ok(at) = u64::try_from(offset) else { continue };
                // A message twice under its key comes twice in a row; what lies behind the part
                // that the index is trusted for was found in the log.
                if last == Some(at) || at >= tail_from {
                    continue;
                }
                last = Some(at);
                if at >= core.readable_end() {
                    continue;
                }
                let Found::Message(view) = core.log.read(at, 0, &mut buffer)? else { continue };
                if matches(&view, query, &mut result) {
                    core.log.check_body(&view)?;
                    result.records.push(view.as_bytes().into());
                    if result.records.len() == most {
                        break 'chunks;
                    }
                }
            }
        }
    }
    if result.records.len() == most {
        result.records.truncate(query.max_messages);
        result.truncated = true;
    }
    Ok(result)
}

/// The newest `most` matches from `from` on to the end of the log, oldest first.
fn in_the_log(
    core: &Core,
    query: &KeyQuery<'_>,
    from: u64,
    most: usize,
    result: &mut QueryResult,
) -> Result<VecDeque<(u64, Box<[u8]>)>> {
    let mut newest = VecDeque::new();
    let mut scanner = Scanner::new(&core.log, from, core.readable_end(), false);
    let mut unrelated = QueryResult::default();
    loop {
        let at = scanner.position();
        match scanner.step()? {
            Ok(Scanned::Message(view)) => {
                if view.topic() == query.topic && matches(&view, query, &mut unrelated) {
                    core.log.check_body(&view)?;
                    if newest.len() == most {
                        newest.pop_front();
                    }
                    newest.push_back((at, view.as_bytes().into()));
                }
            }
            Ok(Scanned::Blank { .. }) => {}
            Err(Stop::End) => break,
            Err(Stop::Empty | Stop::Damage(_)) => {
                if !scanner.resync()? {
                    break;
                }
            }
        }
    }
    // In the log nothing shares a hash; what another time kept out counts.
    result.rejected_by_time += unrelated.rejected_by_time;
    Ok(newest)
}

fn matches(view: &MessageView<'_>, query: &KeyQuery<'_>, result: &mut QueryResult) -> bool {
    let properties = properties::indexed(view.raw_properties());
    let has_key = properties.unique_key == Some(query.key)
        || properties
            .keys
            .is_some_and(|keys| properties::split_keys(keys).any(|key| key == query.key));
    if !has_key || view.topic() != query.topic {
        result.rejected_by_hash += 1;
        return false;
    }
    let time = view.store_timestamp_ms();
    if time < query.begin_ms || time > query.end_ms {
        result.rejected_by_time += 1;
        return false;
    }
    true
}

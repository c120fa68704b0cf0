//! Rebuild in parts on several machines that share the store.
//!
//! `scan` reads ranges of the log and writes what queues and index need. `settle` decides which of
//! it belongs to the log. Then `queues` fills groups of queues and `index` index files. The bytes
//! equal those of [`rebuild`](super::rebuild).

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::build::Build;
use super::spill::{Share, Spill, SpillReader};
use super::stretch::{self, Chunk, ChunkEnd, STRETCH};
use super::walk::Walk;
use super::{Job, RebuildOptions, RebuiltQueue, Target, What, read};
use crate::care::handover::{decode, encode};
use crate::care::meter::{Meter, watched};
use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Os, SystemClock};
use crate::format::index::IndexHeader;
use crate::format::width::{at_most_u32, to_usize};
use crate::log::Queue;
use crate::log::index::builder::IndexBuilder;
use crate::log::read::parallel;
use crate::store::dispatch::gather::Gathered;
use crate::store::folder::paths::StorePaths;
use crate::store::open::inspect;
use crate::store::progress::Progress;
use crate::time::FixedClock;

/// Maximum chunks that a group of queues takes at once.
const MOST_CHUNKS: usize = 64;

/// Result of scanning a range, beside the spill.
#[derive(Debug, Deserialize, Serialize)]
struct Scanned {
    /// The spill file, and the end of each share in it.
    spill: Spilled,
    heads: Vec<Head>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Spilled {
    name: String,
    ends: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Head {
    stretch: u64,
    begin: Option<u64>,
    end: u64,
    how: ChunkEnd,
    records: u64,
    newest_ms: i64,
    left_out: u64,
    keys: KeyCount,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct KeyCount {
    count: u64,
    /// Number of the last message's keys; `None` without a message.
    of_last: Option<u32>,
}

impl KeyCount {
    fn of(chunk: &Chunk) -> Self {
        let of_last = chunk.gathered.keyed.last().map(|keyed| keyed.keys);
        Self { count: chunk.gathered.hashes.len() as u64, of_last }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Accepted {
    spill: u32,
    number: u32,
    keys: u64,
}

/// Chunks that belong to the log, in order.
#[derive(Debug, Deserialize, Serialize)]
struct Plan {
    spills: Vec<Spilled>,
    chunks: Vec<Accepted>,
    keys: KeyCount,
}

/// Result of [`settle`].
#[derive(Clone, Debug)]
pub struct Settled {
    /// Input of the next steps.
    pub plan: Vec<u8>,
    /// Messages in the log.
    pub messages: u64,
    /// Start of the log.
    pub log_start: u64,
    /// End of the log.
    pub log_end: u64,
    /// Ranges of the log without messages, although messages follow.
    pub damaged: Vec<(u64, u64)>,
    /// Entries of light queues, which the settings disable.
    pub left_out: u64,
    /// Index files to build.
    pub index_files: u64,
    /// Index entries to build.
    pub index_keys: u64,
}

/// Result of [`queues`].
#[derive(Clone, Debug)]
pub struct MadeQueues {
    /// By topic and number.
    pub queues: Vec<RebuiltQueue>,
    /// Queues without messages in the log.
    pub kept: Vec<(Box<[u8]>, i32)>,
    /// Entries without a possible queue.
    pub refused: u64,
}

/// A step's input.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The store.
    pub path: &'a Path,
    /// Its settings.
    pub config: &'a StoreConfig,
    /// Structures to rebuild.
    pub what: What,
}

impl Part<'_> {
    fn run<T: Send>(
        &self,
        progress: &mut Progress<'_>,
        work: impl FnOnce(&Job<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let options = RebuildOptions {
            what: self.what,
            topics: None,
            target: Target::Nothing,
            threads: None,
        };
        let paths = StorePaths::new(self.path, self.config);
        if !inspect::is_store(&Os, &paths)? {
            return Err(inspect::not_a_store(&Os, &paths));
        }
        let (storage, clock) = (Arc::new(Os), Arc::new(SystemClock));
        let job = Job::load(storage, clock, paths, self.config.clone(), &options)?;
        watched("rebuild", self.path, progress, |_: &Meter| work(&job))
    }
}

/// Scans records that begin in a range of the log into the new file `spill`, for `groups` groups of
/// queues and the index.
///
/// # Errors
/// [`crate::Error::NotAStore`], [`crate::Error::InvalidConfig`] if a setting contradicts
/// the files, [`crate::Error::Io`].
pub fn scan(
    part: &Part<'_>,
    range: Range<u64>,
    groups: u32,
    spill: &Path,
    progress: &mut Progress<'_>,
) -> Result<Vec<u8>> {
    part.run(progress, |job| {
        let reading = job.reading();
        let mut heads = Vec::new();
        let mut put_down = Spill::new(groups);
        let parts = parallel::stretches(&job.log, STRETCH);
        for stretch in parts.iter().filter(|one| range.contains(&one.places().start)) {
            let mut chunk = read(&reading, stretch)?;
            loop {
                // It gathered enough and stopped early.
                let stopped = chunk.how == ChunkEnd::Whole && chunk.end < stretch.places().end;
                let next = chunk.begin.filter(|_| stopped).map(|_| chunk.end);
                heads.push(Head {
                    stretch: stretch.places().start,
                    begin: chunk.begin,
                    end: chunk.end,
                    how: chunk.how,
                    records: chunk.gathered.records,
                    newest_ms: chunk.gathered.newest_ms,
                    left_out: chunk.gathered.left_out,
                    keys: KeyCount::of(&chunk),
                });
                put_down.add(&chunk, part.path)?;
                match next {
                    Some(at) => chunk = stretch::read_from(&reading, stretch, at)?,
                    None => break,
                }
            }
        }
        let spill = Spilled { name: name_of(spill), ends: put_down.write(spill)? };
        encode(part.path, &Scanned { spill, heads })
    })
}

/// Decides what of the scanned ranges belongs to the log before `end`. Rereads go to the new file
/// `spill`.
pub fn settle(
    part: &Part<'_>,
    scans: &[&[u8]],
    end: u64,
    groups: u32,
    spill: &Path,
    progress: &mut Progress<'_>,
) -> Result<Settled> {
    let mut spills = Vec::with_capacity(scans.len() + 1);
    let mut found: HashMap<u64, Vec<(Head, Accepted)>> = HashMap::new();
    for scanned in scans {
        let scanned: Scanned = decode(part.path, scanned)?;
        let spill = at_most_u32(spills.len());
        spills.push(scanned.spill);
        for (number, head) in (0..).zip(scanned.heads) {
            let accepted = Accepted { spill, number, keys: head.keys.count };
            found.entry(head.stretch).or_default().push((head, accepted));
        }
    }
    part.run(progress, |job| {
        let reading = job.reading();
        let log_start = job.log.min_offset().unwrap_or(0);
        let mut walk = Walk::new(log_start);
        let (mut chunks, mut keys) = (Vec::new(), KeyCount::default());
        let (mut again, mut read_again) = (Spill::new(groups), 0);
        let own = at_most_u32(spills.len());
        let parts = parallel::stretches(&job.log, STRETCH);
        for stretch in parts.iter().take_while(|one| one.places().start < end) {
            if walk.ended {
                break;
            }
            let heads = found.remove(&stretch.places().start).unwrap_or_default();
            let candidates: VecDeque<Chunk> = heads.iter().map(|(head, _)| bare(head)).collect();
            walk.accept(&reading, stretch, candidates, &mut |chunk| {
                let known = heads.iter().find(|(head, _)| head.begin == chunk.begin);
                let (accepted, more) = match known {
                    Some((head, accepted)) => (*accepted, head.keys),
                    None => {
                        again.add(&chunk, part.path)?;
                        let more = KeyCount::of(&chunk);
                        let number = read_again;
                        read_again += 1;
                        (Accepted { spill: own, number, keys: more.count }, more)
                    }
                };
                keys.count += more.count;
                keys.of_last = more.of_last.or(keys.of_last);
                chunks.push(accepted);
                Ok(())
            })?;
        }
        spills.push(Spilled { name: name_of(spill), ends: again.write(spill)? });
        let most = job.keys_of_file();
        let index_files = match keys.of_last.filter(|_| part.what.index && most > 0) {
            None => 0,
            // Even a message without keys creates the next file behind a full one.
            Some(0) => keys.count / most + 1,
            Some(_) => (keys.count - 1) / most + 1,
        };
        Ok(Settled {
            plan: encode(part.path, &Plan { spills, chunks, keys })?,
            messages: walk.records,
            log_start,
            log_end: walk.cursor,
            damaged: walk.damaged,
            left_out: walk.left_out,
            index_files,
            index_keys: keys.count,
        })
    })
}

/// Builds a group of queues below the empty folder `out`.
pub fn queues(
    part: &Part<'_>,
    plan: &[u8],
    (group, groups): (u32, u32),
    spills: &Path,
    out: &Path,
    progress: &mut Progress<'_>,
) -> Result<MadeQueues> {
    let plan: Plan = decode(part.path, plan)?;
    part.run(progress, |job| {
        let what = What { queues: true, index: false };
        let (storage, clock) = (&job.storage, &job.clock);
        let kinds = job.kinds.clone();
        let mut build = Build::below(out, storage, what, &job.layout, kinds, None, clock)?;
        let mut reader = plan.reader(spills, Share::Queues(group));
        let mut ready = Vec::with_capacity(MOST_CHUNKS);
        for accepted in &plan.chunks {
            if let Some(chunk) = reader.chunk(accepted.spill, accepted.number)? {
                ready.push(chunk);
            }
            if ready.len() >= MOST_CHUNKS {
                build.take(&ready, 1, out)?;
                ready.clear();
            }
        }
        build.take(&ready, 1, out)?;
        let is_own =
            |queue: &Queue| Share::of_queue(queue.topic(), queue.queue_id(), groups) == group;
        let kept = job.keep(&build, Some(out), is_own)?;
        build.finish(&**storage, out, 1)?;
        let refused = build.refused;
        Ok(MadeQueues {
            queues: job.queues_of(build),
            kept: kept.iter().map(|queue| (queue.topic().into(), queue.queue_id())).collect(),
            refused,
        })
    })
}

/// Builds index file `number`, from 0, in the empty folder `out`, named by `now_ms`.
pub fn index(
    part: &Part<'_>,
    plan: &[u8],
    number: u64,
    now_ms: i64,
    spills: &Path,
    out: &Path,
    progress: &mut Progress<'_>,
) -> Result<()> {
    let plan: Plan = decode(part.path, plan)?;
    part.run(progress, |job| {
        let Some(layout) = job.index else { return Ok(()) };
        let most = job.keys_of_file();
        let own = number.saturating_mul(most)..number.saturating_add(1).saturating_mul(most);
        let clock = Arc::new(FixedClock::new(now_ms));
        let mut builder = IndexBuilder::new(Arc::clone(&job.storage), out, layout, clock)?;
        let mut reader = plan.reader(spills, Share::Index);
        let mut passed = 0;
        let mut has_begun = false;
        for accepted in &plan.chunks {
            let behind = passed + accepted.keys;
            // The header begins with the key before the first own one.
            if behind < own.start || accepted.keys == 0 {
                passed = behind;
                continue;
            }
            if passed >= own.end {
                break;
            }
            let Some(chunk) = reader.chunk(accepted.spill, accepted.number)? else { continue };
            for (keyed, keys) in chunk.gathered.keyed() {
                let first = passed;
                passed += keys.len() as u64;
                if !has_begun && first < own.start && passed >= own.start {
                    builder.follow(IndexHeader {
                        end_physical_offset: keyed.physical_offset,
                        end_timestamp_ms: keyed.store_timestamp_ms,
                        ..IndexHeader::default()
                    });
                }
                let from = to_usize(own.start.saturating_sub(first));
                let to = to_usize(own.end.saturating_sub(first));
                let keys = keys.get(from.min(keys.len())..to.min(keys.len())).unwrap_or_default();
                if !keys.is_empty() {
                    builder.put(keyed.physical_offset, keyed.store_timestamp_ms, keys)?;
                    has_begun = true;
                }
            }
        }
        if !has_begun {
            // The file that a message without keys creates.
            builder.put(0, 0, &[])?;
        }
        builder.finish().map(|_| ())
    })
}

impl Plan {
    fn reader(&self, folder: &Path, share: Share) -> SpillReader {
        let ends = |spill: &Spilled| (folder.join(&spill.name), spill.ends.clone());
        SpillReader::new(self.spills.iter().map(ends).collect(), share)
    }
}

fn bare(head: &Head) -> Chunk {
    let Head { begin, end, how, records, newest_ms, left_out, .. } = *head;
    let gathered = Gathered { records, newest_ms, left_out, ..Gathered::default() };
    Chunk { begin, end, how, gathered }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

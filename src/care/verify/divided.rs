//! Check in parts on several machines that share the store: queues and index files, then log files,
//! then the whole.
//!
//! The result equals that of [`verify`](super::verify). A part's output is only for the next parts.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::context::Context;
use super::index::{self, Index, IndexSeen, IndexState};
use super::log_walk::{self, FilePart, FileWalk};
use super::queues::{Missing, Name, Queues};
use super::{Prepared, VerifyOptions, VerifyReport, conclude, prepare, read_index, read_queue};
use crate::care::finding::{Findings, PartFindings};
use crate::care::handover::{decode, encode};
use crate::care::meter::{Meter, thread_count, watched};
use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::threads::{each, in_order};
use crate::files::{Os, Storage};
use crate::log::QueueKind;
use crate::log::index::run::IndexRunFile;
use crate::store::progress::Progress;

#[derive(Debug, Deserialize, Serialize)]
struct Structures {
    queues: Vec<QueueSeen>,
    /// By the number in a file's name, without unreadable files.
    index: Vec<(u64, IndexSeen)>,
    found: PartFindings,
}

#[derive(Debug, Deserialize, Serialize)]
struct QueueSeen {
    kind: QueueKind,
    name: Name,
    first: i64,
    end: i64,
    live: u64,
    entries: u64,
}

#[derive(Debug, Deserialize, Serialize)]
struct Walks {
    files: Vec<(u64, FileWalk)>,
    /// Matched entries, by the queue's index.
    met: Vec<(u32, u64)>,
    missing: Vec<(Name, Missing)>,
    missing_elsewhere: u64,
    found: PartFindings,
}

struct Part<'a> {
    path: &'a Path,
    config: &'a StoreConfig,
    options: &'a VerifyOptions,
}

impl Part<'_> {
    fn run<T: Send>(
        &self,
        progress: &mut Progress<'_>,
        work: impl FnOnce(Context<'_>, Prepared) -> Result<T> + Send,
    ) -> Result<T> {
        let threads = thread_count(self.options.threads);
        watched("verify", self.path, progress, |meter: &Meter| {
            let storage: Arc<dyn Storage> = Arc::new(Os);
            let (cx, known) =
                prepare(storage, self.path, self.config, self.options, threads, meter)?;
            work(cx, known)
        })
    }

    /// The context without the findings of preparation, which [`join`] repeats.
    fn fresh<'b>(&self, cx: Context<'b>) -> Context<'b> {
        Context { findings: Findings::new(self.path, self.options.most_findings), ..cx }
    }
}

/// Reads each queue and index file whose number is `part` modulo `parts`.
pub fn structures(
    path: &Path,
    config: &StoreConfig,
    options: &VerifyOptions,
    (part, parts): (usize, usize),
    progress: &mut Progress<'_>,
) -> Result<Vec<u8>> {
    let parts = parts.max(1);
    let work = Part { path, config, options };
    work.run(progress, |cx, mut known| {
        let mut files = Vec::new();
        let listed = read_index(&cx, |listed, _| {
            files = listed.to_vec();
            Ok(Vec::new())
        })?;
        let cx = work.fresh(cx);
        let log_start = known.log.min_offset().unwrap_or(0);
        let is_own = |number: usize| number % parts == part;
        let queues = Mutex::new(BTreeMap::new());
        let all = known.queues.list.iter_mut().enumerate();
        each(all, cx.threads, |(number, queue)| {
            if !is_own(number) {
                return Ok(());
            }
            let entries = read_queue(&cx, queue, log_start);
            let seen = QueueSeen {
                kind: queue.kind,
                name: (queue.topic.clone(), queue.id),
                first: queue.first,
                end: queue.end,
                live: queue.live,
                entries,
            };
            queues.lock().insert(number, seen);
            Ok(())
        })?;
        let queues = queues.into_inner().into_values().collect();
        let state = |file| {
            let run = listed.run.as_ref()?;
            let state = index::read_state(&cx, run, file, !cx.full)?;
            Some((file.name, state.seen))
        };
        let own = files.iter().enumerate().filter(|(number, _)| is_own(*number));
        let index = own.filter_map(|(_, file)| state(file)).collect();
        encode(path, &Structures { queues, index, found: cx.findings.into_found() })
    })
}

/// Walks log files that begin in a range of offsets. `structures` are all results of
/// [`structures`], in order.
pub fn walk(
    path: &Path,
    config: &StoreConfig,
    options: &VerifyOptions,
    structures: &[&[u8]],
    files: Range<u64>,
    progress: &mut Progress<'_>,
) -> Result<Vec<u8>> {
    let seen: Vec<Structures> = decode_all(path, structures)?;
    let work = Part { path, config, options };
    work.run(progress, |cx, mut known| {
        let places = take_queues(&mut known.queues, &seen);
        let index = take_index(&cx, &seen)?;
        let cx = work.fresh(cx);
        let numbers: Vec<(usize, u64)> = known
            .listed
            .files
            .iter()
            .enumerate()
            .map(|(number, file)| (number, file.base_offset))
            .filter(|(_, base)| files.contains(base))
            .collect();
        let (queues, log) = (&known.queues, &known.log);
        let mut walks = Vec::with_capacity(numbers.len());
        let walk = |&(number, base): &(usize, u64)| {
            let part = FilePart::whole(number);
            Ok((base, log_walk::walk(&cx, log, &known.listed, part, queues, &index)))
        };
        in_order(&numbers, cx.threads, &log.dir(), walk, |_, walk| {
            walks.push(walk);
            Ok(ControlFlow::Continue(()))
        })?;
        let met = queues.list.iter().zip(&places).filter_map(|(queue, place)| {
            let met = queue.met.load(Ordering::Relaxed);
            place.filter(|_| met > 0).map(|place| (place, met))
        });
        encode(
            path,
            &Walks {
                files: walks,
                met: met.collect(),
                missing: queues.take_missing(),
                missing_elsewhere: queues.missing_elsewhere.load(Ordering::Relaxed),
                found: cx.findings.into_found(),
            },
        )
    })
}

/// Joins the results of all parts.
pub fn join(
    path: &Path,
    config: &StoreConfig,
    options: &VerifyOptions,
    structures: &[&[u8]],
    walks: &[&[u8]],
    progress: &mut Progress<'_>,
) -> Result<VerifyReport> {
    let mut seen: Vec<Structures> = decode_all(path, structures)?;
    let walks: Vec<Walks> = decode_all(path, walks)?;
    let work = Part { path, config, options };
    work.run(progress, |cx, mut known| {
        let places = take_queues(&mut known.queues, &seen);
        let index = take_index(&cx, &seen)?;
        let entries = seen.iter().flat_map(|part| &part.queues).map(|queue| queue.entries).sum();
        for part in &mut seen {
            cx.findings.join(std::mem::take(&mut part.found));
        }
        let queues = &known.queues;
        let at: HashMap<u32, usize> =
            places.iter().enumerate().filter_map(|(at, place)| Some(((*place)?, at))).collect();
        let mut of_file = HashMap::new();
        for part in walks {
            cx.findings.join(part.found);
            queues.add_missing(part.missing);
            queues.missing_elsewhere.fetch_add(part.missing_elsewhere, Ordering::Relaxed);
            for (place, met) in part.met {
                if let Some(queue) = at.get(&place).and_then(|at| queues.list.get(*at)) {
                    queue.met.fetch_add(met, Ordering::Relaxed);
                }
            }
            of_file.extend(part.files);
        }
        // A newer file was not walked: the log ends before it.
        let walks: Vec<FileWalk> = known
            .listed
            .files
            .iter()
            .map(|file| of_file.remove(&file.base_offset).unwrap_or_default())
            .collect();
        conclude(cx, &known, &index, entries, &walks, options.level)
    })
}

fn take_queues(queues: &mut Queues, seen: &[Structures]) -> Vec<Option<u32>> {
    let all = seen.iter().flat_map(|part| &part.queues);
    let by_name: HashMap<(QueueKind, &Name), (u32, &QueueSeen)> =
        (0..).zip(all).map(|(place, queue)| ((queue.kind, &queue.name), (place, queue))).collect();
    let take = |queue: &mut super::Queue| {
        let name = (queue.topic.clone(), queue.id);
        let (place, seen) = by_name.get(&(queue.kind, &name))?;
        (queue.first, queue.end, queue.live) = (seen.first, seen.end, seen.live);
        Some(*place)
    };
    queues.list.iter_mut().map(take).collect()
}

fn take_index(cx: &Context<'_>, seen: &[Structures]) -> Result<Index> {
    let by_name: HashMap<u64, &IndexSeen> =
        seen.iter().flat_map(|part| &part.index).map(|(name, seen)| (*name, seen)).collect();
    read_index(cx, |files, _| {
        let state = |file: &Arc<IndexRunFile>| {
            let seen = IndexSeen::clone(by_name.get(&file.name)?);
            Some(IndexState { file: Arc::clone(file), seen })
        };
        Ok(files.iter().map(state).collect())
    })
}

fn decode_all<'a, T: Deserialize<'a>>(path: &Path, parts: &[&'a [u8]]) -> Result<Vec<T>> {
    parts.iter().map(|part| decode(path, part)).collect()
}

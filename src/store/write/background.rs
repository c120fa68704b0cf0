//! The store's threads: each calls steps of the store at intervals, without logic of its own.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::prefault::Prepared;
use super::retention::{DiskUse, Occasion};
use super::writer::{COMMIT_BYTES, Writer};
use crate::config::{DeleteRules, FlushDiskType};
use crate::error::{Error, Result};
use crate::store::queue_table::QUEUE_INODES;

const PREPARE_EVERY: Duration = Duration::from_millis(20);

/// Interval of maintaining queues and index. A key waits in memory about as long; until then its
/// message is found in the log.
const DERIVED_EVERY: Duration = Duration::from_millis(20);

/// Delay of the first retention check (`DefaultMessageStore#addScheduleTask`).
const CLEAN_FROM: Duration = Duration::from_secs(60);

/// Interval of flushing the durable mark, so that it lags less than a second.
const MARK_EVERY: Duration = Duration::from_millis(500);

type StopFlag = (Mutex<bool>, Condvar);
type Loop = fn(&Writer, &StopFlag);

#[derive(Debug)]
pub(crate) struct Services {
    stopped: Arc<StopFlag>,
    threads: Vec<JoinHandle<()>>,
}

impl Services {
    pub(crate) fn start(writer: &Arc<Writer>) -> Result<Self> {
        let stopped = Arc::new((Mutex::new(false), Condvar::new()));
        let mut services = Self { stopped, threads: Vec::new() };
        let started = services
            .spawn("mqstore-flush", writer, flush_loop)
            .and_then(|()| services.spawn("mqstore-prepare", writer, prepare_loop))
            .and_then(|()| services.spawn("mqstore-files", writer, allocate_loop))
            .and_then(|()| services.spawn("mqstore-mark", writer, mark_loop))
            .and_then(|()| services.spawn("mqstore-queues", writer, queues_loop))
            .and_then(|()| services.spawn("mqstore-derived", writer, derived_loop));
        match started {
            Ok(()) => Ok(services),
            Err(error) => {
                services.stop(writer);
                Err(error)
            }
        }
    }

    fn spawn(&mut self, name: &str, writer: &Arc<Writer>, work: Loop) -> Result<()> {
        let (writer, stopped) = (Arc::clone(writer), Arc::clone(&self.stopped));
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&writer, &stopped))
            .map_err(Error::io("start a thread for", name))?;
        self.threads.push(thread);
        Ok(())
    }

    pub(crate) fn stop(self, writer: &Writer) {
        *self.stopped.0.lock() = true;
        self.stopped.1.notify_all();
        writer.gate.stop();
        writer.bell.ring();
        writer.files_bell.ring();
        writer.new_queues.stop();
        for thread in self.threads {
            // A panicked thread has nothing to wait for.
            let _ = thread.join();
        }
    }
}

fn flush_loop(writer: &Writer, _: &StopFlag) {
    let interval = Duration::from_millis(writer.files.config.flush_interval_commit_log);
    let thorough = Duration::from_millis(writer.files.config.flush_commit_log_thorough_interval);
    let mut last_thorough = Instant::now();
    while writer.gate.next_work(interval).is_some() {
        let flushed = writer.files.log.flushed_offset();
        let pages = writer.files.log.end_offset() / 4096
            - (flushed / 4096).min(writer.files.log.end_offset() / 4096);
        let due = last_thorough.elapsed() >= thorough;
        let asked = writer.files.config.flush_disk_type == FlushDiskType::Sync;
        if asked || due || pages >= writer.files.config.flush_commit_log_least_pages {
            if writer.flush_log().is_err() {
                // The gate is closed for good; waiting threads got the error.
                return;
            }
            if asked {
                // Behind the answer to those who wait.
                writer.dispatch_if_free();
            }
            if due {
                last_thorough = Instant::now();
            }
        }
    }
}

fn prepare_loop(writer: &Writer, stopped: &StopFlag) {
    let mut prepared = Prepared::default();
    loop {
        writer.bell.wait(PREPARE_EVERY);
        let mut waited = true;
        loop {
            if *stopped.0.lock() {
                return;
            }
            if !writer.prepare_step(&mut prepared, waited) {
                break;
            }
            waited = false;
        }
    }
}

fn allocate_loop(writer: &Writer, stopped: &StopFlag) {
    loop {
        writer.files_bell.wait(PREPARE_EVERY);
        loop {
            if *stopped.0.lock() {
                return;
            }
            // Retried later; the append that needs it gets the error.
            if !writer.allocate_step().unwrap_or(false) {
                break;
            }
        }
    }
}

/// Creates and flushes the files of new queues. After a failure they are left to the next flush.
fn queues_loop(writer: &Writer, _: &StopFlag) {
    while let Some(mut queues) = writer.new_queues.take() {
        let _ = writer
            .dispatch_step()
            .and_then(|()| writer.in_derived_turn(|| writer.files.queues.flush_these(&mut queues)));
        if let Some(room) = writer.files.log.room() {
            room.made_inodes(QUEUE_INODES * queues.len() as u64);
        }
        writer.new_queues.done(queues.len());
    }
}

fn mark_loop(writer: &Writer, stopped: &StopFlag) {
    let mut stop = stopped.0.lock();
    while !*stop {
        stopped.1.wait_for(&mut stop, MARK_EVERY);
        drop(stop);
        // A stale mark is safe, so a failure is left to the next round.
        if !writer.gate.has_failed() {
            let _ = writer.sync_mark();
        }
        stop = stopped.0.lock();
    }
}

fn derived_loop(writer: &Writer, stopped: &StopFlag) {
    let commit_every = Duration::from_millis(writer.files.config.flush_interval_consume_queue);
    let flush_every =
        Duration::from_millis(writer.files.config.flush_consume_queue_thorough_interval);
    let mut committed = writer.files.log.end_offset();
    let (mut last_commit, mut last_flush) = (Instant::now(), Instant::now());
    let clean_every = Duration::from_millis(writer.files.config.clean_resource_interval);
    // RocketMQ waits a minute, which a short program never reaches.
    let rules = writer.files.config.delete_rules();
    let wait = if matches!(rules, DeleteRules::Keep { .. }) { Duration::ZERO } else { CLEAN_FROM };
    let (started, mut last_clean) = (Instant::now(), None::<Instant>);
    let mut stop = stopped.0.lock();
    while !*stop {
        stopped.1.wait_for(&mut stop, DERIVED_EVERY);
        if *stop {
            return;
        }
        drop(stop);
        // The next round retries each of these.
        let end = writer.readable_end();
        if last_commit.elapsed() >= commit_every || end.saturating_sub(committed) >= COMMIT_BYTES {
            (last_commit, committed) = (Instant::now(), end);
            let _ = writer.dispatch_step().and_then(|()| writer.write_derived());
        } else if writer.files.config.flush_disk_type == FlushDiskType::Sync {
            // Durable records become visible; no flush waits for their dispatch.
            let _ = writer.dispatch_step().and_then(|()| writer.index_step());
        } else {
            let _ = writer.index_step();
        }
        if last_flush.elapsed() >= flush_every && !writer.gate.has_failed() {
            last_flush = Instant::now();
            let _ = writer.flush_derived();
        }
        let is_due = last_clean.is_none_or(|last| last.elapsed() >= clean_every);
        let deletes = rules != DeleteRules::Off && writer.files.config.deletes_by_itself;
        if deletes && started.elapsed() >= wait && is_due {
            last_clean = Some(Instant::now());
            let disk = DiskUse::now(&writer.files.paths);
            let occasion = Occasion {
                now_ms: writer.files.clock.now_ms(),
                disk,
                by_hand: false,
                backed_up_to: None,
            };
            let _ = writer.clean_step(&occasion);
        }
        stop = stopped.0.lock();
    }
}

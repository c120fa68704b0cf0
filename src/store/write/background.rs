//! The store's threads: each calls steps of the store at intervals, without logic of its own.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::core::{COMMIT_BYTES, Core};
use super::prepare::Prepared;
use super::retention::{DiskUse, Occasion};
use crate::config::{DeleteRules, FlushDiskType};
use crate::error::{Error, Result};

/// Interval of preparing files and pages.
const PREPARE_EVERY: Duration = Duration::from_millis(20);

/// Interval of maintaining queues and index.
const CARE_EVERY: Duration = Duration::from_millis(20);

/// Delay of the first retention check (`DefaultMessageStore#addScheduleTask`).
const CLEAN_FROM: Duration = Duration::from_secs(60);

/// Interval of flushing the durable mark, so that it lags less than a second.
const MARK_EVERY: Duration = Duration::from_millis(500);

/// Running threads of a writable store.
#[derive(Debug)]
pub(crate) struct Services {
    stopped: Arc<(Mutex<bool>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl Services {
    /// Starts the threads.
    ///
    /// # Errors [`Error::Io`] when the system starts no thread.
    pub(crate) fn start(core: &Arc<Core>) -> Result<Self> {
        let stopped = Arc::new((Mutex::new(false), Condvar::new()));
        let mut services = Self { stopped: Arc::clone(&stopped), threads: Vec::new() };
        let flush_core = Arc::clone(core);
        let (prepare_core, prepare_stopped) = (Arc::clone(core), Arc::clone(&stopped));
        let (allocate_core, allocate_stopped) = (Arc::clone(core), Arc::clone(&stopped));
        let care_core = Arc::clone(core);
        let (mark_core, mark_stopped) = (Arc::clone(core), Arc::clone(&stopped));
        let started = services
            .spawn("mqstore-flush", move || flush_loop(&flush_core))
            .and_then(|()| {
                services
                    .spawn("mqstore-prepare", move || prepare_loop(&prepare_core, &prepare_stopped))
            })
            .and_then(|()| {
                services.spawn("mqstore-files", move || {
                    allocate_loop(&allocate_core, &allocate_stopped)
                })
            })
            .and_then(|()| {
                services.spawn("mqstore-mark", move || mark_loop(&mark_core, &mark_stopped))
            })
            .and_then(|()| services.spawn("mqstore-care", move || care_loop(&care_core, &stopped)));
        match started {
            Ok(()) => Ok(services),
            Err(error) => {
                services.stop(core);
                Err(error)
            }
        }
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(Error::io("start a thread for", name))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends the threads and waits for them.
    pub(crate) fn stop(self, core: &Core) {
        *self.stopped.0.lock() = true;
        self.stopped.1.notify_all();
        if let Some(writing) = &core.writing {
            writing.gate.stop();
            writing.bell.ring();
            writing.files_bell.ring();
        }
        for thread in self.threads {
            // A panicked thread has nothing to wait for.
            let _ = thread.join();
        }
    }
}

/// Flushes the log on request, when enough is pending, or after an interval.
fn flush_loop(core: &Core) {
    let Some(writing) = &core.writing else { return };
    let interval = Duration::from_millis(core.config.flush_interval_commit_log);
    let thorough = Duration::from_millis(core.config.flush_commit_log_thorough_interval);
    let mut last_thorough = Instant::now();
    while writing.gate.next_work(interval).is_some() {
        let flushed = core.log.flushed_offset();
        let pages =
            core.log.end_offset() / 4096 - (flushed / 4096).min(core.log.end_offset() / 4096);
        let due = last_thorough.elapsed() >= thorough;
        let asked = core.config.flush_disk_type == FlushDiskType::Sync;
        if asked || due || pages >= core.config.flush_commit_log_least_pages {
            if core.flush_log(writing).is_err() {
                // The gate is closed for good; waiting threads got the error.
                return;
            }
            if due {
                last_thorough = Instant::now();
            }
        }
    }
}

fn prepare_loop(core: &Core, stopped: &(Mutex<bool>, Condvar)) {
    let Some(writing) = &core.writing else { return };
    let mut prepared = Prepared::default();
    loop {
        writing.bell.wait(PREPARE_EVERY);
        let mut waited = true;
        loop {
            if *stopped.0.lock() {
                return;
            }
            if !core.prepare_step(writing, &mut prepared, waited) {
                break;
            }
            waited = false;
        }
    }
}

/// Creates the next file and takes disk space ahead of the writer.
fn allocate_loop(core: &Core, stopped: &(Mutex<bool>, Condvar)) {
    let Some(writing) = &core.writing else { return };
    loop {
        writing.files_bell.wait(PREPARE_EVERY);
        loop {
            if *stopped.0.lock() {
                return;
            }
            // Retried later; the append that needs it gets the error.
            if !core.allocate_step(writing).unwrap_or(false) {
                break;
            }
        }
    }
}

fn mark_loop(core: &Core, stopped: &(Mutex<bool>, Condvar)) {
    let Some(writing) = &core.writing else { return };
    let mut stop = stopped.0.lock();
    while !*stop {
        stopped.1.wait_for(&mut stop, MARK_EVERY);
        drop(stop);
        // A stale mark is safe, so a failure is left to the next round.
        if !writing.gate.has_failed() {
            let _ = writing.sync_mark();
        }
        stop = stopped.0.lock();
    }
}

/// Commits and flushes queues and index, and runs retention.
fn care_loop(core: &Core, stopped: &(Mutex<bool>, Condvar)) {
    let Some(writing) = &core.writing else { return };
    let commit_every = Duration::from_millis(core.config.flush_interval_consume_queue);
    let flush_every = Duration::from_millis(core.config.flush_consume_queue_thorough_interval);
    let mut committed = core.log.end_offset();
    let (mut last_commit, mut last_flush) = (Instant::now(), Instant::now());
    let clean_every = Duration::from_millis(core.config.clean_resource_interval);
    // RocketMQ waits a minute, which a short program never reaches.
    let rules = core.config.delete_rules();
    let wait = if matches!(rules, DeleteRules::Keep { .. }) { Duration::ZERO } else { CLEAN_FROM };
    let (started, mut last_clean) = (Instant::now(), None::<Instant>);
    let mut stop = stopped.0.lock();
    while !*stop {
        stopped.1.wait_for(&mut stop, CARE_EVERY);
        if *stop {
            return;
        }
        drop(stop);
        // The next round retries each of these.
        let end = core.readable_end();
        if last_commit.elapsed() >= commit_every || end.saturating_sub(committed) >= COMMIT_BYTES {
            (last_commit, committed) = (Instant::now(), end);
            let _ = core.catch_up().and_then(|()| core.commit_step(writing));
        } else if core.config.flush_disk_type == FlushDiskType::Sync {
            // Durable records become visible; no flush waits for this.
            let _ = core.catch_up();
        }
        if last_flush.elapsed() >= flush_every && !writing.gate.has_failed() {
            last_flush = Instant::now();
            let _ = core.flush_derived(writing);
        }
        let is_due = last_clean.is_none_or(|last| last.elapsed() >= clean_every);
        if rules != DeleteRules::Off && started.elapsed() >= wait && is_due {
            last_clean = Some(Instant::now());
            let disk = DiskUse::now(&*core.storage, &core.paths);
            let occasion = Occasion { now_ms: core.clock.now_ms(), disk, by_hand: false };
            let _ = core.clean_step(writing, &occasion);
        }
        stop = stopped.0.lock();
    }
}

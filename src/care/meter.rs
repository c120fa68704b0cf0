//! Runs long work on other threads; the caller's thread reports progress and may end it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::store::progress::{Progress, interrupted};

const EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Meter {
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
}

impl Meter {
    pub(super) fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Runs `work` on `threads` threads; `progress` gets the bytes done and in all on the calling
/// thread. If it ends the work, the result is an error of kind `Interrupted`.
pub(super) fn watched<T: Send>(
    op: &'static str,
    path: &Path,
    threads: usize,
    progress: &mut Progress<'_>,
    work: impl FnOnce(&Meter) -> Result<T> + Send,
) -> Result<T> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| Error::io("start threads for", path)(std::io::Error::other(error)))?;
    let meter = Meter::default();
    let (done, finished) = mpsc::channel();
    pool.in_place_scope(|scope| {
        let meter = &meter;
        scope.spawn(move |_| {
            // The receiver lives until then.
            let _ = done.send(work(meter));
        });
        loop {
            match finished.recv_timeout(EVERY) {
                Ok(outcome) => {
                    let total = meter.total.load(Ordering::Relaxed);
                    let outcome = outcome?;
                    if meter.is_cancelled() || progress(total, total).is_break() {
                        return Err(interrupted(op, path));
                    }
                    return Ok(outcome);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let total = meter.total.load(Ordering::Relaxed);
                    let done = meter.done.load(Ordering::Relaxed).min(total);
                    if total > 0 && progress(done, total).is_break() {
                        meter.cancelled.store(true, Ordering::Relaxed);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(interrupted(op, path)),
            }
        }
    })
}

/// Requested threads, or one for each processor.
pub(super) fn thread_count(asked: Option<usize>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or_else(processors).clamp(1, 1024)
}

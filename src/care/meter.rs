//! Runs long work on other threads; the caller's thread reports progress and may end it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::files::threads::{beside, processors};
use crate::format::message::MessageView;
use crate::log::read::scanner::Flow;
use crate::store::MessageStore;
use crate::store::progress::{Halt, Progress, interrupted, report_progress};
use crate::store::read::scan::{OnDamage, Scan, ScanFilter};

const EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Meter {
    done: AtomicU64,
    total: AtomicU64,
    halt: Halt,
}

impl Meter {
    pub(super) fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.halt.is_wanted()
    }
}

/// Runs `work` on another thread; `progress` gets the bytes done and in all on the calling one. If
/// it ends the work, the result is an error of kind `Interrupted`.
pub(super) fn watched<T: Send>(
    op: &'static str,
    path: &Path,
    progress: &mut Progress<'_>,
    work: impl FnOnce(&Meter) -> Result<T> + Send,
) -> Result<T> {
    let meter = Meter::default();
    let (done, finished) = mpsc::channel();
    thread::scope(|scope| {
        let meter = &meter;
        let work = move || {
            // The receiver lives until then.
            let _ = done.send(work(meter));
        };
        thread::Builder::new()
            .name("mqstore-care".to_owned())
            .spawn_scoped(scope, work)
            .map_err(Error::io("start a thread for", path))?;
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
                        meter.halt.raise();
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(interrupted(op, path)),
            }
        }
    })
}

pub(super) fn thread_count(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(processors).clamp(1, 1024)
}

pub(super) fn both<A: Send, B>(
    threads: usize,
    path: &Path,
    other: impl FnOnce() -> Result<A> + Send,
    own: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    match threads {
        ..2 => Ok((other()?, own()?)),
        2.. => beside("mqstore-work", path, other, own),
    }
}

const STEP: u64 = 16 << 20;

/// Skipped damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of byte ranges.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
}

pub(super) fn each_message(
    store: &MessageStore,
    on_damage: OnDamage,
    progress: &mut Progress<'_>,
    mut take: impl FnMut(&MessageView<'_>),
) -> Result<Skipped> {
    let (begin, end) = (store.log().min_offset(), store.end_offset());
    let total = end.saturating_sub(begin);
    let mut scan = Scan::new(begin, end, end, ScanFilter::ALL, on_damage);
    loop {
        let mut read = 0_u64;
        let more = scan.run(store.log(), |view, _| {
            take(view);
            read = read.saturating_add(u64::from(view.store_size()));
            Ok(if read < STEP { Flow::Continue } else { Flow::Stop })
        })?;
        let done = if more { scan.physical_offset().saturating_sub(begin) } else { total };
        report_progress(progress, (done, total), "read", store.path())?;
        if !more {
            return Ok(Skipped { ranges: scan.skipped_ranges(), bytes: scan.skipped_bytes() });
        }
    }
}

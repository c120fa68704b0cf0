//! Long work: how far it is, and how its caller ends it early.

use std::fmt;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Gets the bytes done and in all, and can end the work.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// Progress of work that nobody watches.
pub fn unwatched(_done: u64, _total: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Reports the bytes done and in all.
///
/// # Errors
/// [`interrupted`] when `progress` ends the work.
pub fn report_progress(
    progress: &mut Progress<'_>,
    (done, total): (u64, u64),
    op: &'static str,
    path: &Path,
) -> Result<()> {
    match progress(done, total) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(interrupted(op, path)),
    }
}

/// Error of work ended by its caller: [`Error::Io`] of kind `Interrupted`.
#[must_use]
pub fn interrupted(op: &'static str, path: &Path) -> Error {
    Error::io(op, path)(ErrorKind::Interrupted.into())
}

/// Bytes of log read between checks of [`Halt`], about a millisecond.
pub const ASK_EVERY: u64 = 1 << 20;

/// The stop flag of long work, which its threads check from time to time.
#[derive(Clone, Default)]
pub struct Halt {
    raised: Arc<AtomicBool>,
    is_wanted: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Halt {
    /// Ends work once `is_wanted` says so; every working thread calls it.
    #[must_use]
    pub fn when(is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { raised: Arc::default(), is_wanted: Some(Arc::new(is_wanted)) }
    }

    pub fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
            || self.is_wanted.as_ref().is_some_and(|is_wanted| is_wanted())
    }
}

impl fmt::Debug for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Halt")
    }
}

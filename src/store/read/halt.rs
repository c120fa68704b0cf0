//! Ends long work early, for example on a signal in Python.

use std::fmt;
use std::sync::Arc;

/// Bytes of log read between checks, about a millisecond.
pub const ASK_EVERY: u64 = 1 << 20;

/// Checked by long work from time to time; by default it never ends early.
#[derive(Clone, Default)]
pub struct Halt(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Halt {
    /// Ends work once `is_wanted` says so; every working thread calls it.
    #[must_use]
    pub fn when(is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_wanted)))
    }

    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|is_wanted| is_wanted())
    }
}

impl fmt::Debug for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Halt")
    }
}

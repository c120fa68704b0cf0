//! The question whether long work is to end early, which a caller such as Python asks for its signals.

use std::fmt;
use std::sync::Arc;

/// How many bytes of a log are read between two questions: a millisecond or so.
pub const ASK_EVERY: u64 = 1 << 20;

/// Asked from time to time by long work; by default it goes on to its end.
#[derive(Clone, Default)]
pub struct Halt(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Halt {
    /// Work ends early once `is_wanted` says so. It is asked by every thread that does the work.
    #[must_use]
    pub fn when(is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_wanted)))
    }

    /// Whether the work is to end now.
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

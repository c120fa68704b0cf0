//! Telling a caller how far long work has come, and hearing whether to go on.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;

use crate::error::{Error, Result};

/// Hears how many bytes of how many are done, and can end the work.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// Tells how many bytes of how many are done.
///
/// # Errors
/// [`interrupted`] when `progress` ends the work.
pub fn tell(
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

/// The error of work that its caller ended: [`Error::Io`] of kind `Interrupted`.
#[must_use]
pub fn interrupted(op: &'static str, path: &Path) -> Error {
    Error::io(op, path)(ErrorKind::Interrupted.into())
}

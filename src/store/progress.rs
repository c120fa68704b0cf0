//! Reports progress of long work to a caller, who can end it.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;

use crate::error::{Error, Result};

/// Gets the bytes done and in all, and can end the work.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// Reports the bytes done and in all.
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

/// Error of work ended by its caller: [`Error::Io`] of kind `Interrupted`.
#[must_use]
pub fn interrupted(op: &'static str, path: &Path) -> Error {
    Error::io(op, path)(ErrorKind::Interrupted.into())
}

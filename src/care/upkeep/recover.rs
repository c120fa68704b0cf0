//! Recovery of a closed store, without opening it for writing afterwards.

use std::path::Path;
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Os, Storage};
use crate::store::MessageStore;
use crate::store::open::plan::{self, RecoveryPlan};
use crate::store::progress::Progress;
use crate::time::SystemClock;

/// Plans recovery of the store at `path` and, unless a dry run, does it, even if opening would
/// refuse because flushed messages lie behind damage; these are kept in quarantine. `progress` can
/// end it before anything changes.
///
/// # Errors
/// As [`plan::plan`], and as [`MessageStore::open_cutting`] if it is done.
pub fn recover(
    path: &Path,
    config: StoreConfig,
    dry_run: bool,
    progress: &mut Progress<'_>,
) -> Result<RecoveryPlan> {
    let storage: Arc<dyn Storage> = Arc::new(Os);
    if dry_run {
        return plan::plan(path, config, &storage, progress);
    }
    let store = MessageStore::open_cutting(path, config, storage, Arc::new(SystemClock), progress)?;
    let report = store.recovery().cloned();
    store.close()?;
    match report {
        Some(report) => Ok(RecoveryPlan { report, refusal: None }),
        // A writable store has one.
        None => Err(crate::Error::Closed),
    }
}

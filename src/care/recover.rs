//! Recovery from outside: what opening for writing would do, and doing it without going on to write.

use std::path::Path;
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Os, Storage};
use crate::store::MessageStore;
use crate::store::open::plan::{self, RecoveryPlan};
use crate::store::progress::Progress;
use crate::time::SystemClock;

/// Says what recovery would do to the store at `path`; unless it is a dry run, does it: also where
/// opening for writing would refuse, since messages that were flushed lie behind damage. These are
/// kept in the quarantine then. `progress` is called now and then with the bytes that were read and
/// those there are, and can end it before anything was changed.
///
/// # Errors
/// As [`plan::plan`], and as [`MessageStore::open_cutting`] where it is done.
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
        // A store that is open for writing has one.
        None => Err(crate::Error::Closed),
    }
}

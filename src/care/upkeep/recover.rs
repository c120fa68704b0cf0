//! Recovery of a closed store, without opening it for writing afterwards.

use std::path::Path;
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::Result;
use crate::files::{Os, Storage, SystemClock};
use crate::store::MessageStore;
use crate::store::folder::owner;
use crate::store::folder::paths::StorePaths;
use crate::store::open::plan::{self, RecoveryPlan};
use crate::store::progress::Progress;

/// Whether recovery only plans, and what it may drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recover {
    /// Changes nothing.
    Plan,
    /// Recovers, unless whole messages lie behind damage.
    Apply,
    /// Recovers; whole messages behind damage go to the quarantine.
    DropBeyond,
}

/// Plans recovery of the store at `path`, or does it. `progress` can end it before anything
/// changes.
pub fn recover(
    path: &Path,
    config: StoreConfig,
    what: Recover,
    progress: &mut Progress<'_>,
) -> Result<RecoveryPlan> {
    let storage: Arc<dyn Storage> = Arc::new(Os);
    if what == Recover::Plan {
        return plan::plan(path, config, &storage, progress);
    }
    owner::check(&*storage, &StorePaths::new(path, &config))?;
    let (clock, drop) = (Arc::new(SystemClock), what == Recover::DropBeyond);
    let store = MessageStore::open_cutting(path, config, storage, clock, drop, progress)?;
    let report = store.recovery().cloned();
    store.close()?;
    match report {
        Some(report) => Ok(RecoveryPlan { report, refusal: None }),
        // A writable store has one.
        None => Err(crate::Error::Closed),
    }
}

//! What is done to a store from outside, without opening it for writing: looking for damage,
//! naming the states that it shows, counting, making queues and index again.

pub mod clean;
pub mod copy;
mod deleted;
pub mod diff;
pub mod doctor;
pub mod finding;
mod meter;
pub mod new_store;
pub mod numbering;
mod pass;
pub mod rebuild;
pub mod recover;
pub mod redact;
pub mod salvage;
pub mod stats;
pub mod survey;
pub mod transfer;
pub mod verify;

pub use clean::{CleanReport, clean};
pub use copy::{CopyOptions, CopyReport, copy};
pub use diff::{DiffReport, DifferenceKind, diff};
pub use doctor::{Diagnosis, doctor};
pub use finding::{Code, Finding, Severity};
pub use pass::Skipped;
pub use rebuild::{
    RebuildOptions, RebuildReport, RebuiltQueue, Target as RebuildTarget, What as RebuildWhat,
    rebuild,
};
pub use recover::recover;
pub use salvage::{SalvageReport, salvage};
pub use stats::{Stats, StatsOptions, stats};
pub use verify::{Level, VerifyOptions, VerifyReport, verify};

//! Operations on a whole store without opening it for writing. `finding.rs` has every code.

pub mod clean;
pub mod copy;
pub mod diff;
pub mod doctor;
pub mod finding;
mod handover;
mod meter;
mod pass;
pub mod rebuild;
pub mod recover;
pub mod salvage;
pub mod survey;
mod topics;
pub mod transfer;
pub mod verify;

pub use self::clean::{CleanReport, clean};
pub use self::copy::{CopyOptions, CopyReport, copy};
pub use self::diff::{DiffReport, DifferenceKind, diff};
pub use self::doctor::{
    Diagnosis, DoctorReport, Fate, GroupFate, Lost, LostInQueue, NextStart, Verdict, doctor,
    next_start,
};
pub use self::finding::{Code, Finding, Severity};
pub use self::pass::Skipped;
pub use self::rebuild::{
    RebuildOptions, RebuildReport, RebuiltQueue, Target as RebuildTarget, What as RebuildWhat,
    rebuild,
};
pub use self::recover::{Recover, recover};
pub use self::salvage::{SalvageReport, salvage};
pub use self::survey::stats::{Stats, StatsOptions, stats};
pub use self::verify::{Level, VerifyOptions, VerifyReport, verify};

//! Operations on a whole store: verify, doctor, stats, rebuild, salvage and others. Only `upkeep.rs`
//! opens it for writing.
//!
//! Open the folder of your command; `finding.rs` has every code. Shared: `meter.rs` runs long work
//! with progress and walks over all messages, `topics.rs` knows a broker's own topics.

pub mod broker;
pub mod doctor;
pub mod finding;
mod meter;
pub mod rebuild;
pub mod rocksdb;
pub mod salvage;
pub mod survey;
pub mod topics;
pub mod transfer;
pub mod upkeep;
pub mod verify;

pub use self::broker::{Cut, NextStart};
pub use self::doctor::{
    Diagnosis, DoctorReport, Fate, GroupFate, Lost, LostInQueue, Verdict, doctor, next_start,
};
pub use self::finding::{Code, Finding, Severity};
pub use self::meter::Skipped;
pub use self::rebuild::{
    RebuildOptions, RebuildReport, RebuiltQueue, Target as RebuildTarget, What as RebuildWhat,
    rebuild,
};
pub use self::salvage::{SalvageReport, salvage};
pub use self::survey::stats::{Stats, StatsOptions, stats};
pub use self::transfer::copy::{CopyOptions, CopyReport, copy};
pub use self::transfer::diff::{DiffReport, DifferenceKind, diff};
pub use self::upkeep::{CleanReport, Recover, clean, recover};
pub use self::verify::{Level, VerifyOptions, VerifyReport, verify, verify_with};

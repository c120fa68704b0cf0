//! What is done to a store from outside, without opening it for writing: looking for damage,
//! naming the states that it shows, counting, making queues and index again.

pub mod doctor;
pub mod finding;
mod meter;
mod pass;
pub mod rebuild;
pub mod stats;
pub mod survey;
pub mod verify;

pub use doctor::{Diagnosis, doctor};
pub use finding::{Code, Finding, Severity};
pub use pass::Skipped;
pub use rebuild::{
    RebuildOptions, RebuildReport, RebuiltQueue, Target as RebuildTarget, What as RebuildWhat,
    rebuild,
};
pub use stats::{Stats, StatsOptions, stats};
pub use verify::{Level, VerifyOptions, VerifyReport, verify};

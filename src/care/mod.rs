//! What is done to a store from outside, without opening it for writing: looking for damage,
//! and naming the states that it shows.

pub mod doctor;
pub mod finding;
mod pass;
pub mod stats;
pub mod verify;

pub use doctor::{Diagnosis, doctor};
pub use finding::{Code, Finding, Severity};
pub use pass::Skipped;
pub use stats::{Stats, StatsOptions, stats};
pub use verify::{Level, VerifyOptions, VerifyReport, verify};

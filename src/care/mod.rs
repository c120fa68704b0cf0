//! What is done to a store from outside, without opening it for writing: looking for damage.

pub mod finding;
mod pass;
pub mod stats;
pub mod verify;

pub use finding::{Code, Finding, Severity};
pub use pass::Skipped;
pub use stats::{Stats, StatsOptions, stats};
pub use verify::{Level, VerifyOptions, VerifyReport, verify};

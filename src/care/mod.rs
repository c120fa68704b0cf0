//! What is done to a store from outside, without opening it for writing: looking for damage.

pub mod finding;
pub mod verify;

pub use finding::{Code, Finding, Severity};
pub use verify::{Level, VerifyOptions, VerifyReport, verify};

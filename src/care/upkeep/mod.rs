//! Recovery and retention, done once from outside: an open for writing does both by itself. Open
//! `recover.rs` for a store that was not closed, `clean.rs` for files to be deleted.

pub mod clean;
pub mod recover;

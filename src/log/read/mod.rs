//! Reads the commit log record by record.
//!
//! Open `scanner.rs` first: it reads records in order, file after file. `frames.rs` reads one file
//! frame by frame from copied blocks (`block.rs`); `file_walk.rs` passes its records and damage to
//! verify and rebuild. `parallel.rs` reads parts of a log on threads. `range_scan.rs` reads
//! the records that begin in a byte range, for readers that share a log. `anchor.rs` notices a log that
//! another one has replaced.

pub mod anchor;
pub mod block;
pub mod file_walk;
pub mod frames;
pub mod parallel;
pub mod range_scan;
pub mod scanner;

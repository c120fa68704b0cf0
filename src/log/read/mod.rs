//! Reads the commit log record by record.
//!
//! Open `scanner.rs` first: it reads records in order, file after file. `resync.rs` finds where the
//! log goes on behind damage, by the evidence of `evidence.rs`, and `end.rs` where it ends.
//! `frames.rs` reads one file frame by frame from copied blocks (`block.rs`); `file_walk.rs` passes
//! its records and damage to verify and rebuild. `parallel.rs` reads parts of a log on threads and
//! returns them in order. `range_scan.rs` reads the records that begin in a byte range, for readers
//! that share a log. `anchor.rs` notices a log that another one has replaced.

pub mod anchor;
pub mod block;
pub mod end;
pub mod evidence;
pub mod file_walk;
pub mod frames;
pub mod parallel;
pub mod range_scan;
pub mod resync;
pub mod scanner;

//! Reads the commit log.
//!
//! Open `scanner.rs` first: records in order, file after file. `resync.rs` finds where the log goes
//! on behind damage, by `evidence.rs`; `end.rs` where it ends. `frames.rs` reads one file's frames
//! from blocks (`block.rs`), `file_walk.rs` passes them to recovery, rebuild and verify.

pub mod anchor;
pub mod block;
pub mod damage;
pub mod end;
pub mod evidence;
pub mod file_walk;
pub mod frames;
pub mod parallel;
pub mod range_scan;
pub mod resync;
pub mod scanner;

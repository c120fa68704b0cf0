//! Reads the commit log record by record.
//!
//! Open `scanner.rs` first: it reads records in order from copied blocks (`block.rs`).
//! `range_scan.rs` reads the records that begin in a byte range, for readers that share a log.

pub mod block;
pub mod range_scan;
pub mod scanner;

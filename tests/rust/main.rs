//! The one binary of integration tests: a module for each kind of test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise, in its helpers too"
)]

mod copying;
mod coverage;
mod disk_room;
mod doctor;
mod durable_mark;
mod failing_calls;
mod file_runs;
mod flush;
mod format;
mod fuzz;
mod halting;
mod holes;
mod hostile_log;
mod hostile_names;
mod hostile_queue;
mod index_build;
mod index_calls;
mod index_cut;
mod index_damage;
mod index_flips;
mod long_recovery;
mod many_queues;
mod moved_store;
mod other_log;
mod power_cuts;
mod queue_flips;
mod ranges;
mod reader;
mod readers;
mod rebuild;
mod rebuild_calls;
mod recovery;
mod recovery_plan;
mod retention;
mod retention_clock;
mod salvaging;
mod seal;
mod slices;
mod support;
mod tidy;
mod verify;
mod verify_calls;
mod verify_kinds;
mod verify_log;
mod verify_tables;

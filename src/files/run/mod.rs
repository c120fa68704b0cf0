//! Files of one size that form one address space.
//!
//! Open `file_run.rs` first. `roots.rs` has the folders and compares files of one name;
//! `tail_run.rs` keeps a run's end in memory.

pub mod file_run;
pub mod folder;
pub mod new_files;
pub mod open_files;
pub mod roots;
pub mod tail_run;

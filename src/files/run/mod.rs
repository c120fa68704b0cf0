//! Files of one size that form one address space.
//!
//! Open `file_run.rs` first. `roots.rs` has the folders,
//! `new_files.rs` creates many files at once, `folder.rs` creates folders durably, `open_files.rs`
//! bounds the number of open files and detects their size, `twins.rs` compares files of one name.

pub mod file_run;
pub mod folder;
pub mod new_files;
pub mod open_files;
pub mod roots;

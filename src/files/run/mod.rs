//! Files of one size that form one address space.
//!
//! Open `file_run.rs` first. `roots.rs` has the folders and compares files of one name.

pub mod file_run;
pub mod folder;
pub mod new_files;
pub mod open_files;
pub mod roots;

//! Files of one size that together make one address space.
//!
//! Open `file_run.rs` first. `roots.rs` are the folders that the files lie in, `file_size.rs` finds out how
//! large they are, `new_files.rs` makes many at once, `folder.rs` makes folders that outlive a power cut,
//! `open_files.rs` bounds how many are open.

pub mod file_run;
pub mod file_size;
pub mod folder;
pub mod new_files;
pub mod open_files;
pub mod roots;

//! A store's folder: its names, lock, small files of our own, and safe replacement.
//!
//! Open `paths.rs` first: it names every file. `mark.rs` has the durable mark, `seal.rs` that of a
//! clean close.

pub mod config_file;
pub mod found;
pub mod inventory;
pub mod lock;
pub mod mark;
pub mod owner;
pub mod paths;
pub mod remembered;
pub mod seal;
pub mod swap;

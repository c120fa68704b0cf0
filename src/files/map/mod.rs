//! Files written through a map.
//!
//! Open `mapped_file.rs` first: the map. `prefault.rs` takes disk space and loads pages before the
//! writer needs them.

pub mod disk_reserve;
pub mod holes;
pub mod mapped_file;
pub mod prefault;
pub mod waiters;

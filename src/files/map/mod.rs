//! Files that are written through a map.
//!
//! Open `mapped_file.rs` first: the map, and the only `unsafe` code. `ahead.rs` takes disk space and brings
//! pages into memory before the writer needs them, `holes.rs` fills the holes of sparse files, `room.rs`
//! checks that the disk keeps the room that closing needs.

pub mod ahead;
pub mod holes;
pub mod mapped_file;
pub mod room;

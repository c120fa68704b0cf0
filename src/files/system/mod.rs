//! The operating system behind one trait.
//!
//! Open `storage.rs` first: every call that the store makes to the system. `os.rs` is the real system,
//! `anchored.rs` a wrapper that refuses once the store's folders were moved or replaced. `locks.rs` knows the
//! lock files that a forked child must let go of, `memory.rs` the size of the machine's memory.

pub mod anchored;
pub mod locks;
pub mod memory;
pub mod os;
pub mod storage;

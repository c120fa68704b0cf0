//! The operating system behind one trait.
//!
//! Open `storage.rs` first: every system call of the store. `os.rs` is the real system,
//! `anchored.rs` refuses once the store's folders were moved or replaced. `locks.rs` knows the lock
//! files for forked children, `clock.rs` the time, `memory.rs` the machine's memory, `owner.rs`
//! makes files and folders with owner, group and mode of their folder, `resting.rs` reads a log that nobody
//! writes, `sparing.rs` leaves no pages in the cache.

pub mod anchored;
pub mod clock;
pub mod locks;
pub mod memory;
pub mod os;
mod owner;
pub mod resting;
pub mod sparing;
pub mod storage;

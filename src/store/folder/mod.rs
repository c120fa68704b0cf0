//! A store's folder: its names, lock, small files of our own, and safe replacement.
//!
//! Open `paths.rs` first: it names every file. `found.rs` says whether there is a store, `ledger.rs` whether it is
//! DLedger's. `inventory.rs` lists them, `lock.rs` has `lock` and
//! `abort`, `mark.rs` the durable mark, `seal.rs` that of a clean close, `remembered.rs` the saved settings, `config_file.rs` the
//! broker's JSON files. `swap.rs` replaces folders atomically, `owner.rs` checks whom new files belong
//! to.

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

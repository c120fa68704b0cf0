//! Operations on a whole store, with reports as Python values.

pub(crate) mod doctor;
pub(crate) mod rebuild;
pub(crate) mod rocksdb;
pub(crate) mod salvage;
pub(crate) mod stats;
pub(crate) mod transfer;
pub(crate) mod upkeep;
pub(crate) mod verify;

//! Bytes that a part of divided work hands to the next parts, perhaps on other machines.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

pub(super) fn encode(path: &Path, part: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_allocvec(part)
        .map_err(|error| Error::io("hand on a part of", path)(std::io::Error::other(error)))
}

pub(super) fn decode<'a, T: Deserialize<'a>>(path: &Path, part: &'a [u8]) -> Result<T> {
    postcard::from_bytes(part)
        .map_err(|error| Error::io("take a part of", path)(std::io::Error::other(error)))
}

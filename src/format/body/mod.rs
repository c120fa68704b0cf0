//! Stored and decompressed bodies.
//!
//! The client compresses (`org.apache.rocketmq.common.compression`): the store keeps the bytes it
//! received, and checksums cover these. One layer is decompressed, by the method in SYSFLAG, up to
//! a limit.

#[cfg(feature = "codecs")]
pub(crate) mod codecs;
#[cfg(feature = "codecs")]
pub(crate) mod lz4_frame;

use std::borrow::Cow;

use super::message::MessageView;
use super::message::sys_flag::{self, Compression};
use crate::error::{CorruptionKind, FormatError};

/// Reason why a body cannot be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    #[error("sys flag {sys_flag:#x} names an unknown compression")]
    UnknownMethod { sys_flag: i32 },
    #[error("a body compressed with {method:?}, and this build has no codecs")]
    NotBuilt { method: Compression },
    /// The bytes are not what the method would have written.
    #[error("not a body compressed with {method:?}: {reason}")]
    Malformed { method: Compression, reason: String },
    /// The stream is longer than the body.
    #[error("a body compressed with {method:?} ends before its stream does")]
    Truncated { method: Compression },
    /// Bytes follow the end of the stream.
    #[error("{count} bytes follow the stream in a body compressed with {method:?}")]
    TrailingBytes { method: Compression, count: usize },
    #[error("a body of more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("no memory for a body of {bytes} bytes")]
    OutOfMemory { bytes: usize },
}

impl From<BodyError> for FormatError {
    fn from(error: BodyError) -> Self {
        Self::new(CorruptionKind::Body, 0, "a body that can be decompressed", error.to_string())
    }
}

/// Returns the body as the producer sent it: borrowed where not compressed, else at most
/// `max_bytes`.
///
/// Memory beside the output: a block of 64 KiB, and 8 MiB for a zstd window.
pub fn decompress(
    body: &[u8],
    sys_flag: i32,
    max_bytes: usize,
) -> Result<Cow<'_, [u8]>, BodyError> {
    match sys_flag::compression(sys_flag) {
        None => Err(BodyError::UnknownMethod { sys_flag }),
        Some(Compression::None) => Ok(Cow::Borrowed(body)),
        Some(method) => codecs::decompress(method, body, max_bytes).map(Cow::Owned),
    }
}

/// [`decompress`] for a message; positions in an error count from the record.
#[inline]
pub fn of_message<'a>(
    view: &MessageView<'a>,
    max_bytes: usize,
) -> Result<Cow<'a, [u8]>, FormatError> {
    decompress(view.body(), view.sys_flag(), max_bytes).map_err(|error| at_body(view, error))
}

#[cold]
pub fn at_body(view: &MessageView<'_>, error: BodyError) -> FormatError {
    let at = view.body().as_ptr().addr().saturating_sub(view.as_bytes().as_ptr().addr());
    FormatError::from(error).at(at)
}

#[cfg(not(feature = "codecs"))]
mod codecs {
    use super::{BodyError, Compression};

    pub(super) fn decompress(
        method: Compression,
        _: &[u8],
        _: usize,
    ) -> Result<Vec<u8>, BodyError> {
        Err(BodyError::NotBuilt { method })
    }
}

pub(crate) struct Output {
    bytes: Vec<u8>,
    limit: usize,
}

impl Output {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Lets `decode` append up to `wanted` bytes; it returns how many it wrote. The room is shorter
    /// only one byte past the limit, so a full buffer means too much output.
    pub(crate) fn fill(
        &mut self,
        wanted: usize,
        decode: impl FnOnce(&[u8], &mut [u8]) -> Result<usize, BodyError>,
    ) -> Result<(), BodyError> {
        let start = self.bytes.len();
        let end = start.saturating_add(wanted).min(self.limit.saturating_add(1));
        if end > self.bytes.capacity() {
            // Twice as much each time, but never more than the limit asks for.
            let capacity = end.max(start.saturating_mul(2).min(self.limit));
            let reserved = self.bytes.try_reserve_exact(capacity - start);
            reserved.map_err(|_| BodyError::OutOfMemory { bytes: capacity })?;
        }
        self.bytes.resize(end, 0);
        let (before, room) = self.bytes.split_at_mut(start);
        let length = decode(before, room)?;
        self.bytes.truncate(start.saturating_add(length));
        if self.bytes.len() > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;

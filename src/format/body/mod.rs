//! Bodies as they are stored and as the producer sent them.
//!
//! Compression is the client's business (`org.apache.rocketmq.common.compression`): the store keeps
//! the bytes that it got, and their checksum is of those. A body is undone here one layer deep, by the
//! method that the SYSFLAG names, and never past a limit, whatever it claims of itself.

#[cfg(feature = "codecs")]
pub(crate) mod codecs;
#[cfg(feature = "codecs")]
pub(crate) mod lz4_frame;

use std::borrow::Cow;

#[cfg(feature = "codecs")]
use super::message::sys_flag::{self, Compression};
use crate::error::{CorruptionKind, FormatError};

/// Why a body cannot be handed out as the producer sent it; as it is stored, it can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The bits of the SYSFLAG name no method that RocketMQ has.
    #[error("sys flag {sys_flag:#x} names an unknown compression")]
    UnknownMethod {
        /// The SYSFLAG.
        sys_flag: i32,
    },
    /// This build has no codecs.
    #[error("a body compressed with {method:?}, and this build has no codecs")]
    NotBuilt {
        /// The method that it would take.
        method: Compression,
    },
    /// The bytes are not what the method would have written.
    #[error("not a body compressed with {method:?}: {reason}")]
    Malformed {
        /// The method that the SYSFLAG names.
        method: Compression,
        /// What is wrong.
        reason: String,
    },
    /// The stream goes on behind the end of the body.
    #[error("a body compressed with {method:?} ends before its stream does")]
    Truncated {
        /// The method that the SYSFLAG names.
        method: Compression,
    },
    /// The stream has ended, and the body goes on.
    #[error("{count} bytes follow the stream in a body compressed with {method:?}")]
    TrailingBytes {
        /// The method that the SYSFLAG names.
        method: Compression,
        /// How many bytes follow.
        count: usize,
    },
    /// It would come to more than was allowed.
    #[error("a body of more than {limit} bytes")]
    TooLarge {
        /// What was allowed.
        limit: usize,
    },
    /// There is no memory for it.
    #[error("no memory for a body of {bytes} bytes")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
}

impl From<BodyError> for FormatError {
    /// The damage, at the beginning of the body.
    fn from(error: BodyError) -> Self {
        Self::new(CorruptionKind::Body, 0, "a body that can be decompressed", error.to_string())
    }
}

/// The body as the producer sent it: `body` itself where it is not compressed, else at most
/// `max_bytes` of what it stands for.
///
/// No more than `max_bytes` and one block of 64 KiB are held of it, and 8 MiB that a zstd window takes.
///
/// # Errors
/// See [`BodyError`]; each leaves `body` as good as it was.
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

/// `body` compressed as RocketMQ's client does it.
///
/// # Errors
/// [`BodyError::NotBuilt`] without the feature `codecs`; [`BodyError::OutOfMemory`].
pub fn compress(method: Compression, body: &[u8]) -> Result<Cow<'_, [u8]>, BodyError> {
    match method {
        Compression::None => Ok(Cow::Borrowed(body)),
        method => codecs::compress(method, body).map(Cow::Owned),
    }
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

    pub(super) fn compress(method: Compression, _: &[u8]) -> Result<Vec<u8>, BodyError> {
        Err(BodyError::NotBuilt { method })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_without_the_bit_is_what_it_is() {
        for sys_flag in [0, 0x700, 0xF0, !1] {
            let body = decompress(b"plain", sys_flag, 0).unwrap();
            assert!(matches!(body, Cow::Borrowed(b"plain")), "{sys_flag:#x}");
        }
        assert!(matches!(compress(Compression::None, b"plain"), Ok(Cow::Borrowed(b"plain"))));
    }

    #[test]
    fn unknown_methods_are_named() {
        for sys_flag in [0x401, 0x501, 0x601, 0x701] {
            assert_eq!(decompress(b"", sys_flag, 9), Err(BodyError::UnknownMethod { sys_flag }));
        }
        let error = FormatError::from(BodyError::TooLarge { limit: 9 });
        assert_eq!(
            (error.kind, error.found.as_str()),
            (CorruptionKind::Body, "a body of more than 9 bytes")
        );
    }

    #[cfg(not(feature = "codecs"))]
    #[test]
    fn without_codecs_a_compressed_body_is_refused_by_name() {
        let method = Compression::Lz4;
        assert_eq!(decompress(b"", 0x101, 9), Err(BodyError::NotBuilt { method }));
        assert_eq!(compress(method, b""), Err(BodyError::NotBuilt { method }));
    }
}

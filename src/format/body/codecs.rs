//! The three compression methods of bodies. Decoding stops at a limit.

use std::cell::RefCell;
use std::io;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::BodyError;
use super::Output;
use super::lz4_frame;
use crate::format::message::sys_flag::Compression;
use crate::format::width::to_usize;

const BLOCK: usize = 64 << 10;
const ZSTD_WINDOW_LOG: u32 = 23;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

pub(crate) fn decompress(
    method: Compression,
    body: &[u8],
    max_bytes: usize,
) -> Result<Vec<u8>, BodyError> {
    let mut out = Output::new(max_bytes);
    match method {
        Compression::None => {}
        Compression::Zlib => INFLATE.with_borrow_mut(|stream| inflate(stream, body, &mut out))?,
        Compression::Lz4 => lz4_frame::decode(body, &mut out)?,
        Compression::Zstd => UNZSTD.with_borrow_mut(|decoder| unzstd(decoder, body, &mut out))?,
    }
    Ok(out.into_bytes())
}

thread_local! {
    // A new decoder costs more than a small body: 3 and 13 microseconds.
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(true));
    static UNZSTD: RefCell<Option<Decoder<'static>>> = const { RefCell::new(None) };
}

fn inflate(stream: &mut Decompress, body: &[u8], out: &mut Output) -> Result<(), BodyError> {
    stream.reset(true);
    decode(Compression::Zlib, body, out, |rest, room| {
        let (read, written) = (stream.total_in(), stream.total_out());
        let status = stream.decompress(rest, room, FlushDecompress::None)?;
        let progress = |now: u64, before| to_usize(now.saturating_sub(before));
        Ok(Step {
            read: progress(stream.total_in(), read),
            written: progress(stream.total_out(), written),
            is_last: status == Status::StreamEnd,
        })
    })
}

fn unzstd(
    decoder: &mut Option<Decoder<'static>>,
    body: &[u8],
    out: &mut Output,
) -> Result<(), BodyError> {
    let method = Compression::Zstd;
    let malformed = |error: io::Error| BodyError::Malformed { method, reason: error.to_string() };
    if body.len() < ZSTD_MAGIC.len() {
        return Err(BodyError::Truncated { method });
    }
    if !body.starts_with(&ZSTD_MAGIC) {
        let reason = "no zstd frame begins here".into();
        return Err(BodyError::Malformed { method, reason });
    }
    let decoder = match decoder {
        Some(decoder) => {
            decoder.reinit().map_err(malformed)?;
            decoder
        }
        None => {
            let mut made = Decoder::new().map_err(malformed)?;
            made.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).map_err(malformed)?;
            decoder.insert(made)
        }
    };
    decode(method, body, out, |rest, room| {
        let (mut input, mut output) = (InBuffer::around(rest), OutBuffer::around(room));
        let is_last = decoder.run(&mut input, &mut output)? == 0;
        Ok(Step { read: input.pos(), written: output.pos(), is_last })
    })
}

/// Bytes that one step of a decoder took and made, and whether its stream ends there.
struct Step {
    read: usize,
    written: usize,
    is_last: bool,
}

/// Takes steps until the stream ends, which must be the end of the body.
fn decode(
    method: Compression,
    body: &[u8],
    out: &mut Output,
    mut step: impl FnMut(&[u8], &mut [u8]) -> io::Result<Step>,
) -> Result<(), BodyError> {
    let mut rest = body;
    let mut block = body.len().saturating_mul(4).clamp(1024, BLOCK);
    loop {
        let (mut is_last, mut is_full) = (false, false);
        out.fill(block, |_, room| {
            let done = step(rest, room)
                .map_err(|error| BodyError::Malformed { method, reason: error.to_string() })?;
            rest = rest.get(done.read..).unwrap_or_default();
            (is_last, is_full) = (done.is_last, done.written == room.len());
            Ok(done.written)
        })?;
        match rest.len() {
            0 if is_last => return Ok(()),
            count if is_last => return Err(BodyError::TrailingBytes { method, count }),
            0 if !is_full => return Err(BodyError::Truncated { method }),
            _ => block = BLOCK,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::format::body::decompress;
    use crate::format::body::tests::compress;

    const METHODS: [Compression; 3] = [Compression::Zlib, Compression::Lz4, Compression::Zstd];

    fn undo(method: Compression, body: &[u8], limit: usize) -> Result<Vec<u8>, BodyError> {
        decompress(body, method.bits(), limit).map(Cow::into_owned)
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * i / 7 % 61) as u8 + b'0').collect()
    }

    #[test]
    fn each_method_undoes_itself() {
        for method in METHODS {
            for length in [0, 1, 100, 65_535, 65_536, 65_537, 300_000] {
                let body = text(length);
                let stream = compress(method, &body);
                assert_eq!(undo(method, &stream, length).unwrap(), body, "{method:?} {length}");
            }
        }
    }

    /// `hello` four times and `rocketmq`, compressed by RocketMQ 5.3.3 at level 5.
    const JAVA_BODIES: [(i32, &str); 4] = [
        (0x001, "785ecb48cdc9c957c8c0208bf293b3534b720b01c6990c37"),
        (0x301, "785ecb48cdc9c957c8c0208bf293b3534b720b01c6990c37"),
        (0x101, "04224d18607073120000006e68656c6c6f20060080726f636b65746d7100000000"),
        (0x201, "28b52ffd0058a400007068656c6c6f20726f636b65746d710100f14a11010000"),
    ];

    #[test]
    fn bodies_that_java_wrote_are_read() {
        let wanted = b"hello hello hello hello rocketmq";
        for (sys_flag, hex) in JAVA_BODIES {
            let body = from_hex(hex);
            assert_eq!(&*decompress(&body, sys_flag, 1024).unwrap(), wanted, "{sys_flag:#x}");
        }
    }

    fn from_hex(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn no_more_than_the_limit_is_handed_out() {
        for method in METHODS {
            for length in [1, 1024, 65_536, 200_000] {
                let stream = compress(method, &text(length));
                for limit in [0, length / 2, length - 1] {
                    assert_eq!(
                        undo(method, &stream, limit),
                        Err(BodyError::TooLarge { limit }),
                        "{method:?} {length} {limit}"
                    );
                }
                assert_eq!(undo(method, &stream, usize::MAX).unwrap().len(), length);
            }
        }
    }

    #[test]
    fn hb01_bombs_stop_at_the_limit() {
        let zeros = vec![0; 16 << 20];
        for method in METHODS {
            let bomb = compress(method, &zeros);
            assert!(bomb.len() < zeros.len() / 200, "{method:?}");
            let limit = 1 << 20;
            assert_eq!(undo(method, &bomb, limit), Err(BodyError::TooLarge { limit }));
            assert_eq!(undo(method, &bomb, zeros.len()).unwrap().len(), zeros.len());
        }
    }

    #[test]
    fn no_more_is_held_than_the_limit_and_a_block() {
        for method in METHODS {
            for length in [1, 5000, 100_000, 1 << 20, (3 << 20) + 7] {
                let stream = compress(method, &text(length));
                for limit in [length, length + 1, 4 << 20] {
                    let held = super::decompress(method, &stream, limit).unwrap().capacity();
                    assert!(held <= limit + BLOCK, "{method:?}: {held} bytes for {limit}");
                }
            }
        }
    }

    #[test]
    fn repeated_bytes_come_back_at_any_length() {
        for method in METHODS {
            for length in (1000..1300).chain([BLOCK, BLOCK + 1024, BLOCK + 1025, 300_000]) {
                let stream = compress(method, &vec![7; length]);
                assert_eq!(undo(method, &stream, length).unwrap().len(), length, "{method:?}");
            }
        }
    }

    #[test]
    fn every_shorter_stream_is_truncated() {
        for method in METHODS {
            let stream = compress(method, &text(5000));
            for length in 0..stream.len() {
                let got = undo(method, &stream[..length], 5000);
                assert_eq!(got, Err(BodyError::Truncated { method }), "{method:?} {length}");
            }
        }
    }

    #[test]
    fn hb02_what_follows_the_stream_is_refused() {
        for method in METHODS {
            let stream = compress(method, &text(500));
            let one_more = [&stream[..], b"\0"].concat();
            let twice = stream.repeat(2);
            for (body, count) in [(one_more, 1), (twice, stream.len())] {
                let got = undo(method, &body, 5000);
                assert_eq!(got, Err(BodyError::TrailingBytes { method, count }));
            }
        }
    }

    #[test]
    fn the_wrong_method_is_refused() {
        for method in METHODS {
            let stream = compress(method, &text(500));
            for other in METHODS.into_iter().filter(|other| *other != method) {
                let got = undo(other, &stream, 5000);
                assert!(
                    matches!(got, Err(BodyError::Malformed { .. })),
                    "{method:?} {other:?} {got:?}"
                );
            }
            let plain = undo(method, &text(500), 5000);
            assert!(matches!(plain, Err(BodyError::Malformed { .. })), "{method:?} {plain:?}");
            let short = undo(method, b"text", 5000);
            assert!(matches!(short, Err(BodyError::Malformed { .. })), "{method:?} {short:?}");
        }
    }

    #[test]
    fn flipped_bytes_give_an_answer_within_the_limit() {
        for method in METHODS {
            let stream = compress(method, &text(2000));
            for position in 0..stream.len() {
                for bit in [1, 0x10, 0x80] {
                    let mut bad = stream.clone();
                    bad[position] ^= bit;
                    if let Ok(body) = undo(method, &bad, 4000) {
                        assert!(body.len() <= 4000);
                    }
                }
            }
        }
    }

    #[test]
    fn a_zstd_window_over_8_mib_is_refused() {
        // Frame head: no single segment, window descriptor 2^(10 + exponent), one empty last block.
        let frame = |exponent: u8| [0x28, 0xB5, 0x2F, 0xFD, 0x00, exponent << 3, 0x01, 0x00, 0x00];
        assert_eq!(undo(Compression::Zstd, &frame(13), 9).unwrap(), b"");
        let refused = undo(Compression::Zstd, &frame(14), 9);
        assert!(matches!(refused, Err(BodyError::Malformed { .. })), "{refused:?}");
    }

    #[test]
    fn a_declared_size_is_not_believed() {
        let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0xE0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x01, 0, 0];
        assert!(matches!(undo(Compression::Zstd, &frame, 9), Err(BodyError::Malformed { .. })));
        frame.splice(4.., [0x20, 5, 0x19, 0, 0, b'a', b'b', b'c']);
        assert!(matches!(undo(Compression::Zstd, &frame, 9), Err(BodyError::Malformed { .. })));
    }

    #[test]
    fn skippable_frames_are_no_body() {
        let skippable = [0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 9];
        let got = undo(Compression::Zstd, &skippable, 9);
        assert!(matches!(got, Err(BodyError::Malformed { .. })), "{got:?}");
    }
}

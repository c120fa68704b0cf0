//! The LZ4 frame, which RocketMQ's `Lz4Compressor` writes around LZ4 blocks.
//!
//! | part | bytes | meaning |
//! |---|---|---|
//! | magic | 4 | 0x184D2204 |
//! | FLG | 1 | version 01 in bits 7-6, then: blocks independent, block checksums, content size, content checksum, reserved, dictionary |
//! | BD | 1 | in bits 6-4 the largest block: 4 for 64 KiB, 5 for 256 KiB, 6 for 1 MiB, 7 for 4 MiB |
//! | content size | 0 or 8 | if FLG says so |
//! | dictionary | 0 or 4 | if FLG says so; none is known here |
//! | HC | 1 | second byte of the checksum of FLG to dictionary |
//! | blocks | 4+n, +4 | length, with the top bit set if not compressed; checksum if FLG says so |
//! | end | 4 | length 0 |
//! | content checksum | 0 or 4 | if FLG says so |
//!
//! Numbers are little-endian, checksums xxHash-32.

use lz4_flex::block::{DecompressError, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::BodyError;
use super::Output;
use crate::format::bytes::{u32_of, u64_of};
use crate::format::message::sys_flag::Compression;
use crate::format::width::to_usize;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
const VERSION_MASK: u8 = 0b1100_0000;
const VERSION: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 0b0010_0000;
const BLOCK_CHECKSUM: u8 = 0b0001_0000;
const CONTENT_SIZE: u8 = 0b0000_1000;
const CONTENT_CHECKSUM: u8 = 0b0000_0100;
const RESERVED: u8 = 0b0000_0010;
const DICTIONARY: u8 = 0b0000_0001;

/// Top bit of a block's length: the block is not compressed.
const STORED: u32 = 1 << 31;
const WINDOW: usize = 64 << 10;
const MAX_RATIO: usize = 255;

pub(crate) fn decode(frame: &[u8], out: &mut Output) -> Result<(), BodyError> {
    let mut input = Input { rest: frame };
    let header = Header::read(&mut input)?;
    loop {
        let length = input.u32()?;
        if length == 0 {
            break;
        }
        let block_len = (length & !STORED) as usize;
        if block_len > header.max_block {
            return Err(malformed(format!(
                "a block of {block_len} bytes, more than the frame allows"
            )));
        }
        let block = input.take(block_len)?;
        if header.flags & BLOCK_CHECKSUM != 0 && input.u32()? != XxHash32::oneshot(0, block) {
            return Err(malformed("the checksum of a block is wrong"));
        }
        if length & STORED != 0 {
            copy_stored(block, out)?;
        } else {
            decode_block(block, &header, out)?;
        }
    }
    if header.content_size.is_some_and(|size| size != out.bytes().len() as u64) {
        return Err(malformed("the content is not as long as the frame says"));
    }
    if header.flags & CONTENT_CHECKSUM != 0 && input.u32()? != XxHash32::oneshot(0, out.bytes()) {
        return Err(malformed("the checksum of the content is wrong"));
    }
    match input.rest.len() {
        0 => Ok(()),
        count => Err(BodyError::TrailingBytes { method: Compression::Lz4, count }),
    }
}

struct Header {
    flags: u8,
    max_block: usize,
    content_size: Option<u64>,
}

impl Header {
    fn read(input: &mut Input<'_>) -> Result<Self, BodyError> {
        if *input.array::<4>()? != MAGIC {
            return Err(malformed("no LZ4 frame begins here"));
        }
        let descriptor = input.rest;
        let [flags, block_descriptor] = *input.array()?;
        if flags & VERSION_MASK != VERSION || flags & RESERVED != 0 {
            return Err(malformed("a frame of an unknown version"));
        }
        if flags & DICTIONARY != 0 {
            return Err(malformed("a frame that needs a dictionary"));
        }
        let max_block = match block_descriptor {
            0x40 => 64 << 10,
            0x50 => 256 << 10,
            0x60 => 1 << 20,
            0x70 => 4 << 20,
            _ => return Err(malformed("a frame of an unknown block size")),
        };
        let content_size = match flags & CONTENT_SIZE {
            0 => None,
            _ => Some(u64_of(*input.array()?).swap_bytes()),
        };
        let described = &descriptor[..descriptor.len() - input.rest.len()];
        let [check] = *input.array()?;
        if check != header_check(described) {
            return Err(malformed("the checksum of the frame's head is wrong"));
        }
        Ok(Self { flags, max_block, content_size })
    }
}

fn header_check(descriptor: &[u8]) -> u8 {
    let [_, _, second, _] = XxHash32::oneshot(0, descriptor).to_be_bytes();
    second
}

fn copy_stored(block: &[u8], out: &mut Output) -> Result<(), BodyError> {
    out.fill(block.len(), |_, room| {
        room.copy_from_slice(&block[..room.len()]);
        Ok(room.len())
    })
}

fn decode_block(block: &[u8], header: &Header, out: &mut Output) -> Result<(), BodyError> {
    let left = header
        .content_size
        .map_or(usize::MAX, |size| to_usize(size).saturating_sub(out.bytes().len()));
    // The largest this block can be: by the frame, by the ratio, by the rest of the content.
    let most = header.max_block.min(block.len().saturating_mul(MAX_RATIO)).min(left);
    out.fill(most, |before, room| {
        let window = match header.flags & INDEPENDENT {
            0 => &before[before.len().saturating_sub(WINDOW)..],
            _ => &[],
        };
        match decompress_into_with_dict(block, room, window) {
            Ok(length) => Ok(length),
            Err(DecompressError::OutputTooSmall { .. }) if room.len() < most => Ok(room.len()),
            Err(error) => Err(malformed(error.to_string())),
        }
    })
}

#[cold]
fn malformed(reason: impl Into<String>) -> BodyError {
    BodyError::Malformed { method: Compression::Lz4, reason: reason.into() }
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], BodyError> {
        let parts = self.rest.split_at_checked(length);
        let (taken, rest) = parts.ok_or(BodyError::Truncated { method: Compression::Lz4 })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], BodyError> {
        let parts = self.rest.split_first_chunk();
        let (taken, rest) = parts.ok_or(BodyError::Truncated { method: Compression::Lz4 })?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, BodyError> {
        Ok(u32_of(*self.array()?).swap_bytes())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use lz4_flex::block::compress;

    use super::*;

    const WRITTEN_BLOCK: usize = 4 << 20;
    const WRITTEN_BD: u8 = 7 << 4;

    fn push_u32(out: &mut Vec<u8>, value: u32) {
        out.extend_from_slice(&value.swap_bytes().to_be_bytes());
    }

    /// A frame around `body`, as `Lz4Compressor` writes it, plus a content checksum.
    pub(crate) fn encode(body: &[u8]) -> Vec<u8> {
        let descriptor = [VERSION | INDEPENDENT | CONTENT_CHECKSUM, WRITTEN_BD];
        let mut out = [&MAGIC[..], &descriptor, &[header_check(&descriptor)]].concat();
        for chunk in body.chunks(WRITTEN_BLOCK) {
            let block = compress(chunk);
            // Neither is longer than a block, so both lengths fit.
            if block.len() < chunk.len() {
                push_u32(&mut out, block.len() as u32);
                out.extend_from_slice(&block);
            } else {
                push_u32(&mut out, chunk.len() as u32 | STORED);
                out.extend_from_slice(chunk);
            }
        }
        push_u32(&mut out, 0);
        push_u32(&mut out, XxHash32::oneshot(0, body));
        out
    }

    fn decoded(frame: &[u8], limit: usize) -> Result<Vec<u8>, BodyError> {
        let mut out = Output::new(limit);
        decode(frame, &mut out)?;
        Ok(out.into_bytes())
    }

    fn reason(frame: &[u8]) -> String {
        match decoded(frame, 1 << 20) {
            Err(BodyError::Malformed { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn frame(flags: u8, blocks: &[&[u8]], size: Option<u64>) -> Vec<u8> {
        let mut descriptor = vec![VERSION | flags, 0x40];
        descriptor.extend(size.iter().flat_map(|size| size.swap_bytes().to_be_bytes()));
        let mut out = [&MAGIC[..], &descriptor, &[header_check(&descriptor)]].concat();
        for block in blocks {
            push_u32(&mut out, block.len() as u32 | STORED);
            out.extend_from_slice(block);
            if flags & BLOCK_CHECKSUM != 0 {
                push_u32(&mut out, XxHash32::oneshot(0, block));
            }
        }
        push_u32(&mut out, 0);
        if flags & CONTENT_CHECKSUM != 0 {
            push_u32(&mut out, XxHash32::oneshot(0, &blocks.concat()));
        }
        out
    }

    #[test]
    fn every_part_of_a_frame_is_read() {
        let flags = INDEPENDENT | BLOCK_CHECKSUM | CONTENT_SIZE | CONTENT_CHECKSUM;
        let whole = frame(flags, &[b"hello ", b"", b"world"], Some(11));
        assert_eq!(decoded(&whole, 11).unwrap(), b"hello world");
        for length in 0..whole.len() {
            assert_eq!(
                decoded(&whole[..length], 11),
                Err(BodyError::Truncated { method: Compression::Lz4 }),
                "{length} bytes"
            );
        }
        for position in 0..whole.len() {
            let mut bad = whole.clone();
            bad[position] ^= 0x40;
            assert!(decoded(&bad, 1 << 20).is_err(), "byte {position}");
        }
    }

    #[test]
    fn the_end_mark_is_not_to_be_missed() {
        let whole = frame(INDEPENDENT, &[b"a", b""], None);
        let without_end = &whole[..whole.len() - 4];
        assert_eq!(decoded(without_end, 9), Err(BodyError::Truncated { method: Compression::Lz4 }));
        assert_eq!(decoded(&frame(INDEPENDENT, &[], None), 0).unwrap(), b"");
    }

    #[test]
    fn linked_blocks_reach_back() {
        let mut linked = frame(0, &[b"hello"], None);
        linked.truncate(linked.len() - 4);
        let block = [0x01, 5, 0, 0x10, b'!'];
        push_u32(&mut linked, block.len() as u32);
        linked.extend_from_slice(&block);
        push_u32(&mut linked, 0);
        assert_eq!(decoded(&linked, 99).unwrap(), b"hellohello!");
        // In a frame of independent blocks this match reaches out of its block.
        linked[4] |= INDEPENDENT;
        linked[6] = header_check(&linked[4..6]);
        assert!(decoded(&linked, 99).is_err());
    }

    #[test]
    fn odd_heads_are_refused() {
        let good = frame(INDEPENDENT, &[b"a"], None);
        let with = |at: usize, value: u8| {
            let mut bad = good.clone();
            bad[at] = value;
            bad[6] = header_check(&bad[4..6]);
            reason(&bad)
        };
        assert!(with(0, 0).contains("no LZ4 frame"));
        assert!(with(4, 0x20).contains("version") && with(4, 0x62).contains("version"));
        assert!(with(4, 0x61).contains("dictionary"));
        for bd in [0x00, 0x30, 0x41, 0xC0, 0xFF] {
            assert!(with(5, bd).contains("block size"), "{bd:#x}");
        }
        let mut bad = good;
        bad[6] ^= 1;
        assert!(reason(&bad).contains("head"));
    }

    #[test]
    fn a_frame_says_how_long_its_blocks_may_be() {
        for (bd, most) in [(0x40, 64 << 10), (0x50, 256 << 10), (0x60, 1 << 20), (0x70, 4 << 20)] {
            let of_blocks = |len: usize| {
                let mut whole = frame(INDEPENDENT, &[&vec![b'x'; len]], None);
                whole[5] = bd;
                whole[6] = header_check(&whole[4..6]);
                decoded(&whole, 8 << 20)
            };
            assert_eq!(of_blocks(most).unwrap().len(), most);
            assert!(of_blocks(most + 1).is_err(), "{bd:#x}");
        }
    }

    #[test]
    fn a_block_comes_to_no_more_than_its_frame_allows() {
        let around = |body: &[u8], size: Option<u64>| {
            let flags = INDEPENDENT | if size.is_some() { CONTENT_SIZE } else { 0 };
            let mut whole = frame(flags, &[], size);
            whole.truncate(whole.len() - 4);
            let block = compress(body);
            push_u32(&mut whole, block.len() as u32);
            whole.extend_from_slice(&block);
            push_u32(&mut whole, 0);
            decoded(&whole, 1 << 20).map(|body| body.len())
        };
        assert_eq!(around(&[7; 64 << 10], None), Ok(64 << 10));
        assert!(around(&[7; (64 << 10) + 1], None).is_err());
        assert_eq!(around(&[7; 99], Some(99)), Ok(99));
        assert!(around(&[7; 100], Some(99)).is_err());
    }

    #[test]
    fn blocks_and_content_keep_to_their_sizes() {
        let long = vec![b'x'; (64 << 10) + 1];
        assert!(reason(&frame(INDEPENDENT, &[&long], None)).contains("65537 bytes"));
        for size in [0, 4, 6, u64::MAX] {
            let wrong = frame(INDEPENDENT | CONTENT_SIZE, &[b"hello"], Some(size));
            assert!(reason(&wrong).contains("not as long"), "{size}");
        }
    }

    #[test]
    fn encode_stores_what_does_not_shrink() {
        let body: Vec<u8> = (0..=255).collect();
        let frame = encode(&body);
        assert_eq!(frame.len(), 7 + 4 + 256 + 4 + 4);
        assert_eq!(decoded(&frame, 256).unwrap(), body);
        let zeros = vec![0; WRITTEN_BLOCK + 1];
        assert_eq!(decoded(&encode(&zeros), zeros.len()).unwrap(), zeros);
    }
}

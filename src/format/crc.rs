//! The two checksums of a record: CRC-32 (IEEE 802.3, as in zlib) without the top bit.

use sha2::{Digest, Sha256};

/// Keeps a checksum from being a negative Java `int`.
const MASK: u32 = 0x7FFF_FFFF;

/// Length of the record's checksum property: name, 0x01, ten digits, 0x02
/// (`CommitLog.CRC32_RESERVED_LEN`).
pub const PROPERTY_CRC_LEN: usize = 20;

/// All 32 bits of the CRC-32 (as `java.util.zip.CRC32`).
#[inline]
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// [`crc32`] computed piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Crc32(crc32fast::Hasher);

impl Crc32 {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    #[must_use]
    pub fn value(&self) -> u32 {
        self.0.clone().finalize()
    }

    /// As [`record_crc`].
    #[must_use]
    pub fn masked(&self) -> u32 {
        self.value() & MASK
    }
}

/// Checksum of a body (`UtilAll#crc32`).
#[inline]
#[must_use]
pub fn body_crc(body: &[u8]) -> i32 {
    record_crc(body).cast_signed()
}

/// Checksum of a record up to its checksum property (`MessageDecoder#createCrc32`).
#[inline]
#[must_use]
pub fn record_crc(record: &[u8]) -> u32 {
    crc32fast::hash(record) & MASK
}

/// Formats the checksum property: ten decimal digits, the least significant first
/// (`MessageDecoder#createCrc32`).
#[must_use]
pub fn property_crc_text(crc: u32) -> [u8; PROPERTY_CRC_LEN] {
    let mut text = *b"__CRC32#\x010000000000\x02";
    let mut left = crc & MASK;
    for digit in &mut text[9..19] {
        *digit += (left % 10) as u8; // below ten
        left /= 10;
    }
    text
}

/// Parses the text of [`property_crc_text`].
#[must_use]
pub fn parse_property_crc(text: &[u8; PROPERTY_CRC_LEN]) -> Option<u32> {
    let digits = text.strip_prefix(b"__CRC32#\x01")?.strip_suffix(b"\x02")?;
    let mut value = 0_u64;
    for digit in digits.iter().rev() {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    u32::try_from(value).ok().filter(|value| *value <= MASK)
}

/// SHA-256 of a salt and a value, as hex. The salt's length is hashed first, so two pairs never
/// give the same input.
#[must_use]
pub fn salted_hex(salt: &[u8], value: &[u8]) -> String {
    let sum = sha256(&[&(salt.len() as u64).to_be_bytes(), salt, value]);
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[must_use]
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut sum = Sha256::new();
    for part in parts {
        sum.update(part);
    }
    sum.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_in_pieces_is_that_of_the_whole() {
        let mut sum = Crc32::default();
        for piece in [b"12345".as_slice(), b"6789"] {
            sum.update(piece);
        }
        assert_eq!(sum.masked().cast_signed(), body_crc(b"123456789"));
        assert_eq!(sum.masked(), record_crc(b"123456789"));
        assert_eq!(Crc32::default().masked(), 0);
    }

    #[test]
    fn body_crc_is_zlib_without_the_top_bit() {
        assert_eq!(body_crc(b""), 0);
        assert_eq!(body_crc(b"123456789"), 0x4BF4_3926);
        assert_eq!(crc32fast::hash(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn property_crc_has_its_digits_backwards() {
        assert_eq!(&property_crc_text(1_656_944_950), b"__CRC32#\x010594496561\x02");
        assert_eq!(&property_crc_text(7), b"__CRC32#\x017000000000\x02");
        assert_eq!(property_crc_text(0x8000_0007), property_crc_text(7));
    }

    #[test]
    fn property_crc_reads_back() {
        for crc in [0, 1, 10, 1_656_944_950, MASK] {
            assert_eq!(parse_property_crc(&property_crc_text(crc)), Some(crc));
        }
    }

    #[test]
    fn property_crc_of_another_form_is_refused() {
        let good = property_crc_text(1);
        for position in 0..PROPERTY_CRC_LEN {
            let mut bad = good;
            bad[position] = b'x';
            assert_eq!(parse_property_crc(&bad), None, "byte {position}");
        }
        assert_eq!(parse_property_crc(b"__CRC32#\x019999999999\x02"), None);
        assert_eq!(parse_property_crc(b"__CRC32#\x018463847412\x02"), None);
    }
}

#[cfg(test)]
mod digest_tests {
    use super::*;

    #[test]
    fn it_is_sha_256() {
        let hex: String = sha256(&[b"a", b"bc"]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn salt_and_value_are_told_apart() {
        assert_eq!(salted_hex(b"a", b"b"), salted_hex(b"a", b"b"));
        assert_ne!(salted_hex(b"a", b"b"), salted_hex(b"ab", b""));
        assert_ne!(salted_hex(b"", b"b"), salted_hex(b"x", b"b"));
        assert_eq!(salted_hex(b"", b"").len(), 64);
    }
}

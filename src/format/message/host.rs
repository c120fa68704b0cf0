//! Socket addresses in records, and message ids.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::format::bytes::{i32_in, i64_at, put_i32_in, put_in};

pub const V4_LEN: usize = 8;
pub const V6_LEN: usize = 20;

/// An address and its port, stored as any four-byte number (`MessageExt#socketAddress2ByteBuffer`).
///
/// | at, IPv4 | at, IPv6 | type | field |
/// |---|---|---|---|
/// | 0 | 0 | 4 or 16 bytes | address |
/// | 4 | 16 | i32 | port |
// C layout aligns the bytes to four. Rust's puts them at byte 1, and copying it back at once
// stalls the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub enum Host {
    /// IPv4.
    V4([u8; 4], i32),
    /// IPv6.
    V6([u8; 16], i32),
}

impl Host {
    /// Encoded length: 8 or 20.
    #[inline]
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        match self {
            Self::V4(..) => V4_LEN,
            Self::V6(..) => V6_LEN,
        }
    }

    /// Whether it is IPv6, which SYSFLAG must say.
    #[inline]
    #[must_use]
    pub const fn is_v6(&self) -> bool {
        matches!(self, Self::V6(..))
    }

    /// The same address with another port.
    #[must_use]
    pub const fn with_port(self, port: i32) -> Self {
        match self {
            Self::V4(address, _) => Self::V4(address, port),
            Self::V6(address, _) => Self::V6(address, port),
        }
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> i32 {
        match self {
            Self::V4(_, port) | Self::V6(_, port) => *port,
        }
    }

    /// The address without the port.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        match self {
            Self::V4(address, _) => (*address).into(),
            Self::V6(address, _) => (*address).into(),
        }
    }

    /// Writes it to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`encoded_len`](Self::encoded_len).
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        match self {
            Self::V4(address, port) => {
                let mut raw = [0; V4_LEN];
                put_in::<0, 4, V4_LEN>(&mut raw, *address);
                put_i32_in::<4, V4_LEN>(&mut raw, *port);
                out[..V4_LEN].copy_from_slice(&raw);
            }
            Self::V6(address, port) => {
                let mut raw = [0; V6_LEN];
                put_in::<0, 16, V6_LEN>(&mut raw, *address);
                put_i32_in::<16, V6_LEN>(&mut raw, *port);
                out[..V6_LEN].copy_from_slice(&raw);
            }
        }
    }

    /// Reads an IPv4 host.
    #[inline]
    #[must_use]
    pub const fn read_v4(bytes: &[u8; V4_LEN]) -> Self {
        let [a, b, c, d, ..] = *bytes;
        Self::V4([a, b, c, d], i32_in::<4, V4_LEN>(bytes))
    }

    /// Reads an IPv6 host.
    #[inline]
    #[must_use]
    pub fn read_v6(bytes: &[u8; V6_LEN]) -> Self {
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[..16]);
        Self::V6(address, i32_in::<16, V6_LEN>(bytes))
    }

    /// Reads a host of 8 or 20 bytes; `None` for another length.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if let Ok(v4) = bytes.try_into() {
            return Some(Self::read_v4(v4));
        }
        bytes.try_into().ok().map(Self::read_v6)
    }

    /// A host at `address`; an IPv4-mapped IPv6 address becomes IPv4, as in Java.
    #[must_use]
    pub fn new(address: IpAddr, port: i32) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.octets(), port),
            IpAddr::V6(v6) => Self::V6(v6.octets(), port),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address, port) => write!(f, "{}:{port}", Ipv4Addr::from(*address)),
            Self::V6(address, port) => write!(f, "[{}]:{port}", Ipv6Addr::from(*address)),
        }
    }
}

/// Returned for text that is not an address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a host: wanted `1.2.3.4:10911` or `[::1]:10911`")]
pub struct ParseHostError;

impl FromStr for Host {
    type Err = ParseHostError;

    /// Parses what `Display` writes; host names are not resolved.
    fn from_str(text: &str) -> Result<Self, ParseHostError> {
        let (address, port) = text.rsplit_once(':').ok_or(ParseHostError)?;
        let port = port.parse().map_err(|_| ParseHostError)?;
        let address = match address.strip_prefix('[') {
            Some(v6) => {
                let v6 = v6.strip_suffix(']').ok_or(ParseHostError)?;
                IpAddr::V6(v6.parse().map_err(|_| ParseHostError)?)
            }
            None => IpAddr::V4(address.parse().map_err(|_| ParseHostError)?),
        };
        Ok(Self::new(address, port))
    }
}

/// A message id: the broker's address and the record's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId {
    pub host: Host,
    pub physical_offset: i64,
}

/// Message id: STOREHOST and offset in upper-case hexadecimal, 32 characters for IPv4, 56 for IPv6
/// (`MessageDecoder#createMessageId`).
#[must_use]
pub fn message_id(store_host: &Host, physical_offset: i64) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut raw = [0; V6_LEN + 8];
    let host_len = store_host.encoded_len();
    store_host.write(&mut raw);
    raw[host_len..host_len + 8].copy_from_slice(&physical_offset.to_be_bytes());
    let mut id = String::with_capacity(2 * (host_len + 8));
    for byte in &raw[..host_len + 8] {
        id.push(char::from(HEX[usize::from(byte >> 4)]));
        id.push(char::from(HEX[usize::from(byte & 15)]));
    }
    id
}

/// Parses a message id, in upper or lower case (`MessageDecoder#decodeMessageId`).
#[must_use]
pub fn parse_message_id(text: &str) -> Option<MessageId> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let digits = text.as_bytes();
    let mut raw = [0; V6_LEN + 8];
    let raw = raw.get_mut(..digits.len() / 2)?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    for (byte, pair) in raw.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    let (host, offset) = raw.split_at_checked(raw.len().checked_sub(8)?)?;
    Some(MessageId { host: Host::read(host)?, physical_offset: i64_at(offset, 0)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn hosts_are_written_with_a_four_byte_port() {
        let mut out = [0xAA; 9];
        host("10.9.8.7:10911").write(&mut out);
        assert_eq!(out, [10, 9, 8, 7, 0, 0, 0x2A, 0x9F, 0xAA]);
        let mut out = [0; 20];
        host("[2001:db8::7]:-1").write(&mut out);
        assert_eq!(out[..4], [0x20, 0x01, 0x0D, 0xB8]);
        assert_eq!(out[15..], [7, 255, 255, 255, 255]);
    }

    #[test]
    fn hosts_read_back() {
        for text in [
            "0.0.0.0:0",
            "255.255.255.255:65535",
            "1.2.3.4:-2147483648",
            "[::1]:9",
            "[2001:db8:175::7]:99999",
        ] {
            let host = host(text);
            assert_eq!(host.to_string(), text);
            let mut raw = [0; 20];
            host.write(&mut raw);
            assert_eq!(Host::read(&raw[..host.encoded_len()]), Some(host));
        }
        assert_eq!(Host::read(&[0; 9]), None);
        assert_eq!(Host::read(&[]), None);
    }

    #[test]
    fn mapped_address_becomes_ipv4() {
        assert_eq!(host("[::ffff:1.2.3.4]:5"), Host::V4([1, 2, 3, 4], 5));
        assert!(host("[::1.2.3.4]:5").is_v6());
    }

    #[test]
    fn other_texts_are_no_host() {
        for text in [
            "",
            "1.2.3.4",
            "1.2.3:4",
            "::1:5",
            "[::1]",
            "[::1:5",
            "[1.2.3.4]:5",
            "localhost:1",
            "1.2.3.4:2147483648",
            "1.2.3.4:",
        ] {
            assert_eq!(text.parse::<Host>(), Err(ParseHostError), "{text}");
        }
    }

    #[test]
    fn message_id_is_host_and_offset() {
        let id = message_id(&host("10.9.8.7:10911"), 230);
        assert_eq!(id, "0A09080700002A9F00000000000000E6");
        let parsed = MessageId { host: host("10.9.8.7:10911"), physical_offset: 230 };
        assert_eq!(parse_message_id(&id), Some(parsed));
        assert_eq!(parse_message_id(&id.to_lowercase()), Some(parsed));
    }

    #[test]
    fn message_id_of_ipv6_has_56_digits() {
        let store_host = host("[2001:db8::1]:10911");
        let id = message_id(&store_host, i64::MAX);
        assert_eq!(id, "20010DB800000000000000000000000100002A9F7FFFFFFFFFFFFFFF");
        assert_eq!(
            parse_message_id(&id),
            Some(MessageId { host: store_host, physical_offset: i64::MAX })
        );
    }

    #[test]
    fn other_texts_are_no_message_id() {
        let id = "0A09080700002A9F00000000000000E6";
        for length in 0..id.len() {
            assert_eq!(parse_message_id(&id[..length]), None, "{length}");
        }
        assert_eq!(parse_message_id(&id.replace('A', "G")), None);
        assert_eq!(parse_message_id(&id.repeat(2)), None);
        assert_eq!(parse_message_id(&"é".repeat(16)), None);
    }
}

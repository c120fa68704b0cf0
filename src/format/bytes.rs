//! Checked big-endian integers at a position: at compile time for structures of fixed length, else
//! at run time. RocketMQ uses `java.nio.ByteBuffer`, which is big-endian by default.

/// Whether all bytes are zeros. Without an end at the first other byte the compiler takes many at a
/// time.
#[inline]
#[must_use]
pub fn are_zeros(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

/// `N` bytes at `at`, or `None` if they are not all there.
#[inline]
#[must_use]
pub fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// The `i16` at `at`, or `None` if `bytes` is too short.
#[inline]
#[must_use]
pub fn i16_at(bytes: &[u8], at: usize) -> Option<i16> {
    array_at(bytes, at).map(|raw| i16::from_be_bytes(*raw))
}

#[inline]
#[must_use]
pub fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    array_at(bytes, at).map(|raw| i32::from_be_bytes(*raw))
}

#[inline]
#[must_use]
pub fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    array_at(bytes, at).map(|raw| i64::from_be_bytes(*raw))
}

/// The `i16` at `AT` of a structure of fixed length.
#[inline]
#[must_use]
pub const fn i16_in<const AT: usize, const N: usize>(bytes: &[u8; N]) -> i16 {
    const { assert!(AT + 2 <= N) };
    i16::from_be_bytes([bytes[AT], bytes[AT + 1]])
}

#[inline]
#[must_use]
pub const fn i32_in<const AT: usize, const N: usize>(bytes: &[u8; N]) -> i32 {
    const { assert!(AT + 4 <= N) };
    i32::from_be_bytes([bytes[AT], bytes[AT + 1], bytes[AT + 2], bytes[AT + 3]])
}

#[inline]
#[must_use]
pub const fn i64_in<const AT: usize, const N: usize>(bytes: &[u8; N]) -> i64 {
    const { assert!(AT + 8 <= N) };
    i64::from_be_bytes([
        bytes[AT],
        bytes[AT + 1],
        bytes[AT + 2],
        bytes[AT + 3],
        bytes[AT + 4],
        bytes[AT + 5],
        bytes[AT + 6],
        bytes[AT + 7],
    ])
}

/// The first eight bytes as one number, the first byte in the highest place.
#[inline]
#[must_use]
pub const fn u64_of(bytes: [u8; 8]) -> u64 {
    u64::from_be_bytes(bytes)
}

/// The first four bytes as one number, the first byte in the highest place.
#[inline]
#[must_use]
pub const fn u32_of(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

/// Copies `field` to `AT` of a structure of fixed length; a field that does not fit does not
/// compile.
#[inline]
pub const fn put_in<const AT: usize, const LEN: usize, const N: usize>(
    out: &mut [u8; N],
    field: [u8; LEN],
) {
    const { assert!(AT + LEN <= N) };
    let mut i = 0;
    while i < LEN {
        out[AT + i] = field[i];
        i += 1;
    }
}

#[inline]
pub const fn put_i16_in<const AT: usize, const N: usize>(out: &mut [u8; N], value: i16) {
    put_in::<AT, 2, N>(out, value.to_be_bytes());
}

#[inline]
pub const fn put_i32_in<const AT: usize, const N: usize>(out: &mut [u8; N], value: i32) {
    put_in::<AT, 4, N>(out, value.to_be_bytes());
}

#[inline]
pub const fn put_i64_in<const AT: usize, const N: usize>(out: &mut [u8; N], value: i64) {
    put_in::<AT, 8, N>(out, value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_big_endian_and_stop_at_the_end() {
        let bytes = [0x80, 0, 0, 0, 0, 0, 0, 1, 0xFF, 0xFE];
        assert_eq!(i64_at(&bytes, 0), Some(i64::MIN + 1));
        assert_eq!(i64_at(&bytes, 3), None);
        assert_eq!(i32_at(&bytes, 4), Some(1));
        assert_eq!(i32_at(&bytes, 7), None);
        assert_eq!(i16_at(&bytes, 8), Some(-2));
        assert_eq!(i16_at(&bytes, 9), None);
        assert_eq!(i16_at(&bytes, usize::MAX), None);
    }

    #[test]
    fn fixed_positions_read_what_was_put() {
        let mut out = [0; 14];
        put_i16_in::<0, 14>(&mut out, -2);
        put_i32_in::<2, 14>(&mut out, i32::MIN);
        put_i64_in::<6, 14>(&mut out, i64::MAX - 1);
        assert_eq!(out, [0xFF, 0xFE, 0x80, 0, 0, 0, 0x7F, 255, 255, 255, 255, 255, 255, 254]);
        assert_eq!(i16_in::<0, 14>(&out), -2);
        assert_eq!(i32_in::<2, 14>(&out), i32::MIN);
        assert_eq!(i64_in::<6, 14>(&out), i64::MAX - 1);
        assert_eq!(u32_of([1, 2, 3, 4]), 0x0102_0304);
        assert_eq!(u64_of([1, 2, 3, 4, 5, 6, 7, 8]), 0x0102_0304_0506_0708);
    }
}

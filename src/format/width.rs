//! Conversions between widths of numbers, the only ones with a fallback. Each has an answer for every
//! value: all of them, or the nearest.

const _: () = assert!(usize::BITS == u64::BITS, "mqstore runs on 64-bit systems only");

pub trait Unsigned: TryInto<u64> {
    /// The number, or the largest of 64 bits.
    #[inline]
    fn widen(self) -> u64 {
        self.try_into().unwrap_or(u64::MAX)
    }
}

impl Unsigned for u32 {}
impl Unsigned for u64 {}
impl Unsigned for usize {}
impl Unsigned for u128 {}

/// The number as a length or position in memory, where each fits.
#[inline]
#[must_use]
pub fn to_usize(number: impl Unsigned) -> usize {
    number.widen() as usize
}

/// The number, or the largest of Java's `long`.
#[inline]
#[must_use]
pub fn saturating_i64(number: impl Unsigned) -> i64 {
    number.widen().min(i64::MAX.cast_unsigned()).cast_signed()
}

/// The number, or the largest of Java's `int`.
#[inline]
#[must_use]
pub fn saturating_i32(number: impl Unsigned) -> i32 {
    i32::try_from(number.widen()).unwrap_or(i32::MAX)
}

/// The number, or the largest of 32 bits.
#[inline]
#[must_use]
pub fn saturating_u32(number: impl Unsigned) -> u32 {
    u32::try_from(number.widen()).unwrap_or(u32::MAX)
}

/// The number, or 0 for a negative one.
#[inline]
#[must_use]
pub fn clamp_u64(number: impl Into<i64>) -> u64 {
    number.into().max(0).cast_unsigned()
}

/// The offset; for a negative one the largest, which no log holds.
#[inline]
#[must_use]
pub fn offset_or_max(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(u64::MAX)
}

/// [`clamp_u64`] in 32 bits.
#[inline]
#[must_use]
pub const fn clamp_u32(number: i32) -> u32 {
    if number < 0 { 0 } else { number.cast_unsigned() }
}

/// Offset of a record to be written: one that Java's `long` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalOffset(i64);

impl PhysicalOffset {
    /// `None` past the largest `long`.
    #[inline]
    #[must_use]
    pub fn new(offset: u64) -> Option<Self> {
        i64::try_from(offset).ok().map(Self)
    }

    #[inline]
    #[must_use]
    pub const fn stored(self) -> i64 {
        self.0
    }

    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_the_nearest_answer() {
        assert_eq!(to_usize(u64::MAX), usize::MAX);
        assert_eq!(to_usize(7u32), 7);
        assert_eq!([7u128.widen(), u128::MAX.widen()], [7, u64::MAX]);
        assert_eq!([saturating_i64(7u32), saturating_i64(u64::MAX)], [7, i64::MAX]);
        assert_eq!([saturating_i32(7u64), saturating_i32(1u64 << 31)], [7, i32::MAX]);
        assert_eq!([saturating_u32(7usize), saturating_u32(1u64 << 32)], [7, u32::MAX]);
        assert_eq!([clamp_u64(7i64), clamp_u64(-1i32), clamp_u64(i64::MIN)], [7, 0, 0]);
        assert_eq!([offset_or_max(7), offset_or_max(-1)], [7, u64::MAX]);
        assert_eq!([clamp_u32(7), clamp_u32(i32::MIN)], [7, 0]);
    }

    #[test]
    fn an_offset_to_be_written_fits_a_long() {
        let largest = PhysicalOffset::new(i64::MAX as u64).unwrap();
        assert_eq!((largest.stored(), largest.get()), (i64::MAX, i64::MAX as u64));
        assert_eq!(PhysicalOffset::new(1 << 63), None);
    }
}

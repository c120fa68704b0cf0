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

#[inline]
#[must_use]
pub const fn u64_of(bytes: [u8; 8]) -> u64 {
    u64::from_be_bytes(bytes)
}

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
pub(crate) const fn array_in<const AT: usize, const LEN: usize, const N: usize>(
    bytes: &[u8; N],
) -> [u8; LEN] {
    const { assert!(AT + LEN <= N) };
    match bytes.split_at(AT).1.first_chunk() {
        Some(field) => *field,
        None => unreachable!(),
    }
}

/// Makes the functions of one type.
macro_rules! integers {
    ($($int:ident: $at:ident, $in:ident, $put:ident;)*) => {$(
        /// The number at `at`, or `None` if `bytes` is too short.
        #[inline]
        #[must_use]
        pub fn $at(bytes: &[u8], at: usize) -> Option<$int> {
            array_at(bytes, at).map(|raw| $int::from_be_bytes(*raw))
        }

        /// The number at `AT` of a structure of fixed length.
        #[inline]
        #[must_use]
        pub const fn $in<const AT: usize, const N: usize>(bytes: &[u8; N]) -> $int {
            $int::from_be_bytes(array_in::<AT, _, N>(bytes))
        }

        #[inline]
        pub const fn $put<const AT: usize, const N: usize>(out: &mut [u8; N], value: $int) {
            put_in::<AT, _, N>(out, value.to_be_bytes());
        }
    )*};
}

integers! {
    i16: i16_at, i16_in, put_i16_in;
    i32: i32_at, i32_in, put_i32_in;
    i64: i64_at, i64_in, put_i64_in;
}

/// Makes a structure of numbers at fixed positions, with `encode` and `decode`; a field may name a
/// function for what is read.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        pub struct $name:ident: $len:ident {
            $($(#[$doc:meta])* $at:literal => $field:ident: $int:ident $(as $read:ident)?,)*
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $field: $int,)*
        }

        impl $name {
            #[inline]
            #[must_use]
            pub const fn encode(&self) -> [u8; $len] {
                let mut out = [0; $len];
                $($crate::format::bytes::put_in::<$at, _, $len>(
                    &mut out,
                    self.$field.to_be_bytes(),
                );)*
                out
            }

            /// Decodes any bytes.
            #[inline]
            #[must_use]
            pub const fn decode(bytes: &[u8; $len]) -> Self {
                Self {
                    $($field: $($read)?($int::from_be_bytes(
                        $crate::format::bytes::array_in::<$at, _, $len>(bytes),
                    )),)*
                }
            }
        }
    };
}
pub(crate) use layout;

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

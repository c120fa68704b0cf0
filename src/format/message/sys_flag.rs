//! The bits of a record's SYSFLAG (`org.apache.rocketmq.common.sysflag.MessageSysFlag`).
//!
//! | bits | value | meaning |
//! |---|---|---|
//! | 0 | 0x1 | the body is compressed |
//! | 1 | 0x2 | several tags; has no effect on the tags code |
//! | 2-3 | 0x0 none, 0x4 prepared, 0x8 commit, 0xC rollback | kind of transaction |
//! | 4 | 0x10 | BORNHOST is IPv6 |
//! | 5 | 0x20 | STOREHOST is IPv6 |
//! | 6 | 0x40 | the body must be unwrapped |
//! | 7 | 0x80 | inner batch |
//! | 8-10 | 0x100 LZ4, 0x200 ZSTD, 0x300 ZLIB, 0 ZLIB (old clients) | how the body is compressed |

use crate::error::named;

pub const COMPRESSED: i32 = 0x1;
/// `MULTI_TAGS_FLAG`.
pub const MULTI_TAGS: i32 = 0x2;
/// Both bits of the kind of transaction.
pub const TRANSACTION_MASK: i32 = 0xC;
pub const TRANSACTION_PREPARED: i32 = 0x4;
pub const TRANSACTION_COMMIT: i32 = 0x8;
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
pub const BORN_HOST_V6: i32 = 0x10;
pub const STORE_HOST_V6: i32 = 0x20;
pub const NEED_UNWRAP: i32 = 0x40;
/// One record with a batch as its body (`INNER_BATCH_FLAG`).
pub const INNER_BATCH: i32 = 0x80;
/// All bits of the kind of compression (`COMPRESSION_TYPE_COMPARATOR`).
pub const COMPRESSION_MASK: i32 = 0x700;
pub const COMPRESSION_LZ4: i32 = 0x100;
pub const COMPRESSION_ZSTD: i32 = 0x200;
pub const COMPRESSION_ZLIB: i32 = 0x300;

named! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Transaction {
        #[default]
        None = "none",
        Prepared = "prepared",
        Commit = "commit",
        Rollback = "rollback",
    }
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Compression {
        None = "none",
        Zlib = "zlib",
        Lz4 = "lz4",
        Zstd = "zstd",
    }
}

/// The kind of transaction (`MessageSysFlag#getTransactionValue`).
#[inline]
#[must_use]
pub const fn transaction(sys_flag: i32) -> Transaction {
    match sys_flag & TRANSACTION_MASK {
        TRANSACTION_PREPARED => Transaction::Prepared,
        TRANSACTION_COMMIT => Transaction::Commit,
        TRANSACTION_ROLLBACK => Transaction::Rollback,
        _ => Transaction::None,
    }
}

/// Compression method; `None` for unknown bits (`CompressionType#findByValue`).
#[must_use]
pub const fn compression(sys_flag: i32) -> Option<Compression> {
    if sys_flag & COMPRESSED == 0 {
        return Some(Compression::None);
    }
    match sys_flag & COMPRESSION_MASK {
        0 | COMPRESSION_ZLIB => Some(Compression::Zlib),
        COMPRESSION_LZ4 => Some(Compression::Lz4),
        COMPRESSION_ZSTD => Some(Compression::Zstd),
        _ => None,
    }
}

#[inline]
#[must_use]
pub const fn born_host_is_v6(sys_flag: i32) -> bool {
    sys_flag & BORN_HOST_V6 != 0
}

#[inline]
#[must_use]
pub const fn store_host_is_v6(sys_flag: i32) -> bool {
    sys_flag & STORE_HOST_V6 != 0
}

/// Whether the record holds a batch (`MessageSysFlag#check` with `INNER_BATCH_FLAG`).
#[inline]
#[must_use]
pub const fn is_inner_batch(sys_flag: i32) -> bool {
    sys_flag & INNER_BATCH != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Compression {
        pub(crate) const fn bits(self) -> i32 {
            match self {
                Self::None => 0,
                Self::Zlib => COMPRESSED | COMPRESSION_ZLIB,
                Self::Lz4 => COMPRESSED | COMPRESSION_LZ4,
                Self::Zstd => COMPRESSED | COMPRESSION_ZSTD,
            }
        }
    }

    #[test]
    fn transaction_is_bits_two_and_three() {
        for (bits, kind) in [
            (0, Transaction::None),
            (TRANSACTION_PREPARED, Transaction::Prepared),
            (TRANSACTION_COMMIT, Transaction::Commit),
            (TRANSACTION_ROLLBACK, Transaction::Rollback),
        ] {
            assert_eq!(transaction(bits), kind);
            assert_eq!(transaction(bits | !TRANSACTION_MASK), kind);
        }
    }

    #[test]
    fn compression_counts_only_with_its_bit() {
        assert_eq!(compression(0x700), Some(Compression::None));
        assert_eq!(compression(0x001), Some(Compression::Zlib));
        assert_eq!(compression(0x101), Some(Compression::Lz4));
        assert_eq!(compression(0x201), Some(Compression::Zstd));
        assert_eq!(compression(0x301), Some(Compression::Zlib));
        for unknown in [0x401, 0x501, 0x601, 0x701] {
            assert_eq!(compression(unknown), None);
        }
        for kind in [Compression::None, Compression::Zlib, Compression::Lz4, Compression::Zstd] {
            assert_eq!(compression(kind.bits()), Some(kind));
        }
    }

    #[test]
    fn single_bits() {
        assert!(born_host_is_v6(0x10) && !born_host_is_v6(!0x10));
        assert!(store_host_is_v6(0x20) && !store_host_is_v6(!0x20));
        assert!(is_inner_batch(0x80) && !is_inner_batch(!0x80));
    }
}

//! File names: an offset in 20 digits for logs and queues, a time in 17 for index files.

use crate::time::CalendarTime;

const OFFSET_DIGITS: usize = 20;
const INDEX_DIGITS: usize = 17;

/// Name of the file at `base` (`UtilAll#offset2FileName`).
#[must_use]
pub fn offset_name(base: u64) -> String {
    format!("{base:020}")
}

/// Parses an offset name: 20 digits, at most `i64::MAX`. RocketMQ reads any number there, but
/// writes only this form.
#[must_use]
pub fn parse_offset_name(name: &str) -> Option<u64> {
    digits(name, OFFSET_DIGITS).filter(|base| i64::try_from(*base).is_ok())
}

/// Name of an index file created at a local time (`UtilAll#timeMillisToHumanString`).
#[must_use]
pub fn index_name(at: &CalendarTime) -> String {
    let CalendarTime { year, month, day, hour, minute, second, millisecond } = at;
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}{millisecond:03}")
}

/// Parses an index file's name: 17 digits, whose order is that of the files.
#[must_use]
pub fn parse_index_name(name: &str) -> Option<u64> {
    digits(name, INDEX_DIGITS)
}

/// First name (year 9999) too late to be followed by another.
pub const INDEX_NAMES_END: u64 = 99_990_000_000_000_000;

/// Name of the next index file if the clock gives no later one.
#[must_use]
pub fn next_index_name(number: u64) -> String {
    format!("{:0INDEX_DIGITS$}", number.saturating_add(1))
}

fn digits(name: &str, count: usize) -> Option<u64> {
    // `parse` alone would accept a sign.
    let wanted = name.len() == count && name.bytes().all(|byte| byte.is_ascii_digit());
    wanted.then(|| name.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_twenty_digits() {
        assert_eq!(offset_name(0), "00000000000000000000");
        assert_eq!(offset_name(1_073_741_824), "00000000001073741824");
        for base in [0, 1, 6_000_000, i64::MAX.unsigned_abs()] {
            assert_eq!(parse_offset_name(&offset_name(base)), Some(base));
        }
    }

    #[test]
    fn other_names_are_no_offset() {
        for name in [
            "",
            "0",
            "0000000000000000000",
            "000000000000000000000",
            "+0000000000000000001",
            "-0000000000000000001",
            "0000000000000000000a",
            "0000000000000000000\u{661}",
            "09223372036854775808",
            "18446744073709551616",
            "99999999999999999999",
        ] {
            assert_eq!(parse_offset_name(name), None, "{name:?}");
        }
    }

    #[test]
    fn index_names_are_times() {
        let at = CalendarTime::utc(1_795_246_513_025);
        assert_eq!(index_name(&at), "20261121073513025");
        assert_eq!(parse_index_name("20261121073513025"), Some(20_261_121_073_513_025));
        for name in ["", "2026112107351302", "202611210735130250", "2026112107351302x"] {
            assert_eq!(parse_index_name(name), None, "{name:?}");
        }
    }
}

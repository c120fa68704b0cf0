//! Where epochs begin: count, checksum (not in old releases), a line `epoch-offset` each
//! (`EpochFileCache`).

use crate::format::crc::crc32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    pub number: i32,
    pub begin: u64,
}

#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Vec<Epoch>> {
    let mut lines: Vec<_> = std::str::from_utf8(bytes).ok()?.lines().collect();
    let is_epoch = |line: &&str| line.contains('-');
    let entries = lines.split_off(lines.iter().position(is_epoch).unwrap_or(lines.len()));
    let (count, sum) = match *lines {
        [count] => (count, "0"),
        [count, sum] => (count, sum),
        _ => return None,
    };
    let sum: u32 = sum.parse().ok()?;
    let text: String = entries.iter().flat_map(|line| [*line, "\n"]).collect();
    if count.parse() != Ok(entries.len())
        || ![0, crc32(text.as_bytes()) & 0x7FFF_FFFF].contains(&sum)
    {
        return None;
    }
    let entry = |line: &str| {
        let (number, begin) = line.split_once('-')?;
        Some(Epoch { number: number.parse().ok()?, begin: begin.parse().ok()? })
    };
    entries.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_read_with_their_checksum_or_without() {
        let both = Some(vec![Epoch { number: 7, begin: 7000 }, Epoch { number: 8, begin: 8000 }]);
        for head in ["2\n773307083\n", "2\n0\n", "2\n"] {
            assert_eq!(parse(format!("{head}7-7000\n8-8000\n").as_bytes()), both, "{head}");
        }
    }

    #[test]
    fn epochs_that_are_damaged_are_none() {
        for text in [
            "",
            "2\n",
            "1\n0\n7-7000\n8-8000\n",
            "2\n773307084\n7-7000\n8-8000\n",
            "2\n773307083\n7-7000\n8-8001\n",
            "2\n0\n1\n7-7000\n8-8000\n",
            "1\n0\n7--7000\n",
            "1\n0\nx-1\n",
            "1\n0\n1-99999999999999999999\n",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"1\n\xff-1\n"), None);
    }
}

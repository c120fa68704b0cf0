//! Entries of the three kinds of queue files.
//!
//! `consume_queue.rs`: entries of 20 bytes and tags codes. `consume_queue_ext.rs`: units of the
//! extension. `batch.rs`: a client's batch and batch queue entries of 46 bytes.

pub mod batch;
pub mod consume_queue;
pub mod consume_queue_ext;

/// Maximum number of a new queue; no broker exceeds it. Existing ones are read regardless.
#[must_use]
pub fn most_queue_id(validated: bool) -> i32 {
    if validated { 1 << 30 } else { i32::MAX }
}

/// Parses a folder's number: digits without sign or leading zero.
#[must_use]
pub fn parse_queue_id(name: &str) -> Option<i32> {
    let id: i32 = name.parse().ok()?;
    (id >= 0 && id.to_string() == name).then_some(id)
}

/// Whether a topic may name a folder: it must neither leave its parent nor trouble a file system. A
/// broker's rule is narrower.
#[must_use]
pub fn names_a_folder(topic: &[u8]) -> bool {
    let dots_only = topic.iter().all(|&byte| byte == b'.');
    let safe = |&byte: &u8| byte > b' ' && byte != b'/' && byte != b'\\' && byte != 0x7f;
    !topic.is_empty()
        && topic.len() <= 255
        && !dots_only
        && !topic.ends_with(b".")
        && topic.iter().all(safe)
        && std::str::from_utf8(topic).is_ok()
}

const LEGAL: [bool; 256] = {
    let mut legal = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        legal[byte as usize] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'_' | b'-');
        byte += 1;
    }
    legal
};

/// Whether a broker accepts this topic (`TopicValidator.validateTopic`, in bytes).
#[must_use]
pub fn is_broker_topic(topic: &[u8]) -> bool {
    let is_short_enough = match topic.len() {
        1..=127 => true,
        // From 5.4 on, dead-letter topics too.
        128..=255 => topic.starts_with(b"%RETRY%") || topic.starts_with(b"%DLQ%"),
        _ => false,
    };
    is_short_enough && topic.iter().fold(true, |all, byte| all & LEGAL[usize::from(*byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hn01_no_topic_leaves_its_folder() {
        for bad in ["../../x", "/etc/x", "a/b", ".", "..", "", "a\0b", "a ", "a.", "a\nb"] {
            assert!(!names_a_folder(bad.as_bytes()), "{bad:?}");
            assert!(!is_broker_topic(bad.as_bytes()), "{bad:?}");
        }
        assert!(!names_a_folder(&[b'a'; 256]));
        assert!(!names_a_folder(b"\xff"));
        for good in ["orders", "%RETRY%g", "a|b_c-d", "SCHEDULE_TOPIC_XXXX"] {
            assert!(names_a_folder(good.as_bytes()) && is_broker_topic(good.as_bytes()));
        }
        for (prefix, is_longer) in [("%RETRY%", true), ("%DLQ%", true), ("", false)] {
            let long = format!("{prefix:a<255}");
            assert_eq!(is_broker_topic(long.as_bytes()), is_longer, "{prefix}");
            assert!(!is_broker_topic(format!("{long}a").as_bytes()));
        }
    }

    #[test]
    fn queue_folders_are_plain_numbers() {
        assert_eq!(parse_queue_id("7"), Some(7));
        for bad in ["-1", "07", "+7", "x", "", "2147483648"] {
            assert_eq!(parse_queue_id(bad), None, "{bad}");
        }
    }
}

//! Java's functions compared with their definitions, and texts of values.

use super::{config, host};
use mqstore::format::file_name::{offset_name, parse_index_name, parse_offset_name};
use mqstore::format::java::{hash_code, key_hash, key_hash_of};
use mqstore::format::message::host::{Host, MessageId, message_id, parse_message_id};
use mqstore::format::queue::consume_queue::{TagFilter, tags_code};
use proptest::prelude::*;

/// `String.hashCode` as its documentation defines it.
fn by_definition(text: &str) -> i32 {
    let add = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    text.encode_utf16().fold(0, add)
}

/// Mostly ASCII, as keys are, and some that are not.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[ -~]{0,70}", 1 => "\\PC{0,20}", 1 => "[ -~]{0,20}\\PC[ -~]{0,20}"]
}

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn hashes_are_those_of_java(topic in text(), key in text()) {
        prop_assert_eq!(hash_code(key.as_bytes()), by_definition(&key));
        let whole = format!("{topic}#{key}");
        let wanted = by_definition(&whole).checked_abs().unwrap_or(0);
        prop_assert_eq!(key_hash(topic.as_bytes(), key.as_bytes()), wanted);
        prop_assert_eq!(key_hash_of(whole.as_bytes()), wanted);
    }

    #[test]
    fn any_bytes_have_a_hash(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        prop_assert!(key_hash_of(&bytes) >= 0);
        // A surrogate in three bytes is one character to Java and three to Rust.
        if !bytes.contains(&0xED) {
            let text = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(hash_code(&bytes), by_definition(&text));
        }
    }

    #[test]
    fn hosts_and_ids_read_back(host in host(), physical_offset in any::<i64>()) {
        let mut raw = [0xA5; 21];
        host.write(&mut raw);
        prop_assert_eq!(Host::read(&raw[..host.encoded_len()]), Some(host));
        prop_assert_eq!(raw[host.encoded_len()], 0xA5);
        let id = message_id(&host, physical_offset);
        prop_assert_eq!(id.len(), 2 * (host.encoded_len() + 8));
        prop_assert_eq!(parse_message_id(&id), Some(MessageId { host, physical_offset }));
        let read: Host = host.to_string().parse().unwrap();
        if !matches!(host, Host::V6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, ..], _)) {
            prop_assert_eq!(read, host);
        }
    }

    #[test]
    fn any_text_is_a_name_or_none(text in "\\PC{0,24}|[0-9]{16,21}|[0-9A-F]{30,60}") {
        if let Some(base) = parse_offset_name(&text) {
            prop_assert_eq!(offset_name(base), text.clone());
        }
        if let Some(number) = parse_index_name(&text) {
            prop_assert_eq!(format!("{number:017}"), text.clone());
        }
        if let Some(id) = parse_message_id(&text) {
            prop_assert_eq!(message_id(&id.host, id.physical_offset), text.clone());
        }
        if let Ok(host) = text.parse::<Host>() {
            prop_assert_eq!(host.to_string().parse(), Ok(host));
        }
    }

    #[test]
    fn a_tag_that_matches_has_a_code_that_matches(
        tags in prop::collection::vec("[a-c]{1,3}", 1..4),
        tag in "[a-c]{1,3}",
    ) {
        let filter = TagFilter::parse(&tags.join(" || "));
        let named = tags.contains(&tag);
        prop_assert_eq!(filter.matches_tags(Some(tag.as_bytes())), named);
        if named {
            prop_assert!(filter.matches_code(tags_code(Some(tag.as_bytes()))));
        }
    }
}

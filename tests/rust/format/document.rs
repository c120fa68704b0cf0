//! The examples of `docs/format.md` are true.

use mqstore::format::config::json;
use mqstore::format::crc::property_crc_text;
use mqstore::format::index::{IndexLayout, seconds_since};
use mqstore::format::java::{key_hash, key_hash_of};
use mqstore::format::message::{Frame, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, read_frame};
use mqstore::format::queue::consume_queue::QueueEntry;
use mqstore::format::queue::{consume_queue, consume_queue_ext};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/format.md");
    std::fs::read_to_string(path).unwrap()
}

/// The blocks of text on the page.
fn blocks() -> Vec<String> {
    let page = page();
    let blocks = page.split("```text\n").skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_record_byte_by_byte_is_one() {
    let mut record = Vec::new();
    for line in blocks()[0].lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [position, field, hex] = columns[..] else { panic!("not three columns: {line}") };
        assert_eq!(position.parse(), Ok(record.len()), "{field}");
        let digits = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
        record.extend(digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
    }
    let Ok(Frame::Message(view)) = read_frame(&record) else { panic!("no record") };
    assert_eq!(view.as_bytes(), record);
    view.check_body_crc().unwrap();
    assert_eq!((view.topic(), view.body()), (&b"orders"[..], &b"hello"[..]));
    assert_eq!(view.raw_properties(), b"TAGS\x01paid\x02KEYS\x01k1 k2\x02");
    assert_eq!((view.queue_id(), view.queue_offset(), view.physical_offset()), (3, 7, 4096));
    assert_eq!(view.born_host().to_string(), "10.0.0.5:52616");
    assert!(page().contains(&format!("`{}`", view.message_id())));
}

#[test]
fn the_configuration_is_written_as_it_is_shown() {
    let shown = &blocks()[1];
    assert_eq!(json::to_text(&json::parse(shown.as_bytes()).unwrap()), *shown);
}

#[test]
fn numbers_on_the_page_are_those_of_the_source() {
    let page = page();
    let says = |text: String| assert!(page.contains(&text), "the page does not say {text}");
    for magic in [MAGIC_V1, MAGIC_V2, MAGIC_BLANK] {
        says(format!("`0x{magic:X}`"));
    }
    let crc = property_crc_text(1_656_944_950);
    says(format!("`1656944950` reads `{}`", str::from_utf8(&crc[9..19]).unwrap()));
    let hash = key_hash(b"Ea", b"20231001123456");
    assert_eq!(hash, key_hash_of(b"FB#20231001123456"));
    says(format!("the hash {hash}"));
    assert_eq!(IndexLayout::new(5_000_000, 20_000_000).unwrap().file_len(), 420_000_040);
    says("420,000,040 bytes by default".into());
    says(format!("0 to {}", seconds_since(1, i64::MAX)));
    let blank = QueueEntry::PRE_BLANK;
    says(format!("({}, {}, {})", blank.physical_offset, blank.store_size, blank.tags_code));
    says(format!("Any code up to {}", consume_queue_ext::MAX_ADDRESS));
    let levels = consume_queue::DelayLevels::default().to_string();
    assert_eq!((levels.as_str(), levels.split(' ').count()), (consume_queue::DELAY_LEVELS, 18));
    says("Levels 1 to 18".into());
    says(format!("Files up to {} MiB, {} levels and", json::MAX_LEN >> 20, json::MAX_DEPTH));
    says("4,194,304 values".into());
    assert_eq!(json::MAX_VALUES, 4_194_304);
}

//! Structures of a fixed length: entries of queues and of the index, the index header, the checkpoint.

use super::{config, each_flip};
use mqstore::format::checkpoint::CheckpointFields;
use mqstore::format::index::{IndexEntry, IndexHeader, IndexLayout, seconds_since};
use mqstore::format::queue::batch::BatchQueueEntry;
use mqstore::format::queue::consume_queue::QueueEntry;
use proptest::prelude::*;

/// For each byte of `bytes`, changed in every way: exactly the field it lies in reads differently.
/// `lengths` are those of the fields, `fields` reads them; a field that is not read is `None`.
fn each_byte_is_its_own_field<const N: usize, const F: usize>(
    bytes: [u8; N],
    lengths: [usize; F],
    fields: impl Fn(&[u8; N]) -> [Option<i64>; F],
) {
    assert_eq!(lengths.iter().sum::<usize>(), N);
    let before = fields(&bytes);
    each_flip(&bytes, |position, changed| {
        let after = fields(changed.try_into().unwrap());
        let mut begin = 0;
        for (i, length) in lengths.iter().enumerate() {
            let holds_it = (begin..begin + length).contains(&position) && before[i].is_some();
            assert_eq!(before[i] != after[i], holds_it, "byte {position}, field {i}");
            begin += length;
        }
    });
}

#[test]
fn every_byte_of_a_queue_entry_counts_in_its_field() {
    let entry = QueueEntry { physical_offset: 0x1234_5678_9ABC, store_size: 300, tags_code: -5 };
    each_byte_is_its_own_field(entry.encode(), [8, 4, 8], |bytes| {
        let QueueEntry { physical_offset, store_size, tags_code } = QueueEntry::decode(bytes);
        [Some(physical_offset), Some(store_size.into()), Some(tags_code)]
    });
}

#[test]
fn every_byte_of_an_index_header_counts_in_its_field() {
    let header = IndexHeader {
        begin_timestamp_ms: 1_795_246_513_325,
        end_timestamp_ms: 1_795_246_599_999,
        begin_physical_offset: 17,
        end_physical_offset: 1 << 40,
        hash_slot_count: 41,
        // With a byte changed it still is more than 0, unless it is negative.
        index_count: 0x0102_0304,
    };
    each_byte_is_its_own_field(header.encode(), [8, 8, 8, 8, 4, 4], |bytes| {
        let header = IndexHeader::decode(bytes);
        [
            Some(header.begin_timestamp_ms),
            Some(header.end_timestamp_ms),
            Some(header.begin_physical_offset),
            Some(header.end_physical_offset),
            Some(header.hash_slot_count.into()),
            Some(header.index_count.into()),
        ]
    });
}

#[test]
fn every_byte_of_an_index_entry_counts_in_its_field() {
    let entry = IndexEntry { key_hash: 99, physical_offset: 1 << 33, seconds: 7, prev_entry: 3 };
    each_byte_is_its_own_field(entry.encode(), [4, 8, 4, 4], |bytes| {
        let IndexEntry { key_hash, physical_offset, seconds, prev_entry } =
            IndexEntry::decode(bytes);
        [
            Some(key_hash.into()),
            Some(physical_offset),
            Some(seconds.into()),
            Some(prev_entry.into()),
        ]
    });
}

#[test]
fn every_byte_of_a_batch_entry_counts_in_its_field() {
    let entry = BatchQueueEntry {
        physical_offset: 1,
        store_size: 2,
        tags_code: 3,
        store_timestamp_ms: 4,
        base_queue_offset: 5,
        message_count: 6,
        compacted_offset: -1,
    };
    each_byte_is_its_own_field(entry.encode(), [8, 4, 8, 8, 8, 2, 4, 4], |bytes| {
        let entry = BatchQueueEntry::decode(bytes);
        [
            Some(entry.physical_offset),
            Some(entry.store_size.into()),
            Some(entry.tags_code),
            Some(entry.store_timestamp_ms),
            Some(entry.base_queue_offset),
            Some(entry.message_count.into()),
            Some(entry.compacted_offset.into()),
            None,
        ]
    });
}

#[test]
fn every_byte_of_a_checkpoint_counts_in_its_field() {
    let bytes =
        CheckpointFields { physic_msg_timestamp_ms: 1, ..CheckpointFields::default() }.encode();
    each_byte_is_its_own_field(bytes, [8; 6], |bytes| {
        let fields = CheckpointFields::decode(bytes);
        [
            Some(fields.physic_msg_timestamp_ms),
            Some(fields.logics_msg_timestamp_ms),
            Some(fields.index_msg_timestamp_ms),
            Some(fields.master_flushed_offset),
            Some(fields.confirm_physical_offset),
            Some(fields.logics_physical_offset),
        ]
    });
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn any_bytes_are_entries_that_write_the_same(bytes in any::<[u8; 20]>()) {
        prop_assert_eq!(QueueEntry::decode(&bytes).encode(), bytes);
        prop_assert_eq!(IndexEntry::decode(&bytes).encode(), bytes);
    }

    #[test]
    fn any_header_reads_back_with_a_count_of_one_at_least(
        (begin_timestamp_ms, end_timestamp_ms) in any::<(i64, i64)>(),
        (begin_physical_offset, end_physical_offset) in any::<(i64, i64)>(),
        (hash_slot_count, index_count) in any::<(i32, i32)>(),
    ) {
        let header = IndexHeader {
            begin_timestamp_ms, end_timestamp_ms, begin_physical_offset, end_physical_offset,
            hash_slot_count, index_count,
        };
        let wanted = IndexHeader { index_count: index_count.max(1), ..header };
        prop_assert_eq!(IndexHeader::decode(&header.encode()), wanted);
    }

    #[test]
    fn a_checkpoint_of_any_length_gives_the_fields_it_has(
        bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let fields = CheckpointFields::decode_start(&bytes);
        let written = fields.encode();
        let whole = bytes.len().min(48) / 8 * 8;
        prop_assert_eq!(&written[..whole], &bytes[..whole]);
        prop_assert!(written[whole..].iter().all(|byte| *byte == 0));
        prop_assert!(fields.min_timestamp_ms() >= 0);
        prop_assert!(fields.min_timestamp_index_ms() <= fields.min_timestamp_ms());
    }

    #[test]
    fn the_parts_of_an_index_file_lie_side_by_side(
        (slots, entries) in (1..100_000_u32, 1..100_000_u32),
        hash in any::<i32>(),
    ) {
        let layout = IndexLayout::new(slots, entries).unwrap();
        prop_assert!(layout.slot_of(hash) < slots);
        prop_assert_eq!(layout.slot_position(0), 40);
        prop_assert_eq!(layout.slot_position(slots - 1) + 4, layout.entry_position(0));
        prop_assert_eq!(layout.entry_position(entries - 1) + 20, layout.file_len());
    }

    #[test]
    fn seconds_are_never_negative(begin_ms in any::<i64>(), time_ms in any::<i64>()) {
        let seconds = seconds_since(begin_ms, time_ms);
        prop_assert!(seconds >= 0);
        if begin_ms > 0 && time_ms >= begin_ms {
            prop_assert_eq!(i64::from(seconds), ((time_ms - begin_ms) / 1000).min(i64::from(i32::MAX)));
        }
    }
}

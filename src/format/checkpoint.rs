//! The checkpoint: up to which store times everything is known to be on disk
//! (`org.apache.rocketmq.store.StoreCheckpoint`).
//!
//! The file has 4096 bytes; the rest is zero. The times are those of messages, not of flushes.

use super::bytes::layout;

/// Length of the file (`DefaultMappedFile.OS_PAGE_SIZE`).
pub const CHECKPOINT_LEN: usize = 4096;

pub const FIELDS_LEN: usize = 48;
/// Length of the fields up to RocketMQ 5.4.
pub const FIRST_FIELDS_LEN: usize = 40;

/// Margin by which RocketMQ distrusts the log's and the queues' times.
const SLACK_MS: i64 = 3000;

layout! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CheckpointFields: FIELDS_LEN {
        /// Store time of the newest record that was flushed, Unix milliseconds.
        0 => physic_msg_timestamp_ms: i64,
        /// Store time of the last queue entry that was written.
        8 => logics_msg_timestamp_ms: i64,
        /// End of the last full index file that was flushed.
        16 => index_msg_timestamp_ms: i64,
        /// Used by replication.
        24 => master_flushed_offset: i64,
        /// Start of the last valid record that recovery found.
        32 => confirm_physical_offset: i64,
        /// Physical offset of the last record whose queue entries are known to be flushed; 0 if
        /// unknown. RocketMQ 5.3 and 5.4 leave it unchanged.
        40 => logics_physical_offset: i64,
    }
}

impl CheckpointFields {
    /// Decodes the start of a file; missing fields count as zero.
    #[must_use]
    pub fn decode_start(bytes: &[u8]) -> Self {
        let mut whole = [0; FIELDS_LEN];
        for (field, found) in whole.as_chunks_mut::<8>().0.iter_mut().zip(bytes.as_chunks().0) {
            *field = *found;
        }
        Self::decode(&whole)
    }

    /// Time up to which log and queues are trusted (`StoreCheckpoint#getMinTimestamp`).
    #[must_use]
    pub fn min_timestamp_ms(&self) -> i64 {
        let older = self.physic_msg_timestamp_ms.min(self.logics_msg_timestamp_ms);
        older.saturating_sub(SLACK_MS).max(0)
    }

    /// Time up to which log, queues and index are trusted (`StoreCheckpoint#getMinTimestampIndex`).
    #[must_use]
    pub fn min_timestamp_index_ms(&self) -> i64 {
        self.min_timestamp_ms().min(self.index_msg_timestamp_ms)
    }
}

/// Length of `config/timercheck`.
pub const TIMER_CHECKPOINT_LEN: usize = 24;

layout! {
    /// How far a broker delivered timers (`config/timercheck`, `TimerCheckpoint`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TimerCheckpoint: TIMER_CHECKPOINT_LEN {
        /// Timers that were due before this time were delivered.
        0 => last_read_ms: i64,
        8 => timer_log_position: i64,
        /// Next message of `rmq_sys_wheel_timer` that goes into the wheel.
        16 => queue_offset: i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: CheckpointFields = CheckpointFields {
        physic_msg_timestamp_ms: 1,
        logics_msg_timestamp_ms: 2,
        index_msg_timestamp_ms: -3,
        master_flushed_offset: 4,
        confirm_physical_offset: i64::MAX,
        logics_physical_offset: 6,
    };

    #[test]
    fn fields_lie_eight_bytes_apart() {
        let out = FIELDS.encode();
        let last_bytes = [7, 15, 23, 31, 39, 47].map(|at: usize| out[at]);
        assert_eq!(last_bytes, [1, 2, 0xFD, 4, 0xFF, 6]);
        assert_eq!(CheckpointFields::decode(&out), FIELDS);
    }

    #[test]
    fn missing_fields_count_as_zero() {
        let out = FIELDS.encode();
        assert_eq!(CheckpointFields::decode_start(&[]), CheckpointFields::default());
        for length in 0..FIELDS_LEN {
            let got = CheckpointFields::decode_start(&out[..length]);
            let whole = |at: usize, value| if length >= at + 8 { value } else { 0 };
            let wanted = CheckpointFields {
                physic_msg_timestamp_ms: whole(0, 1),
                logics_msg_timestamp_ms: whole(8, 2),
                index_msg_timestamp_ms: whole(16, -3),
                master_flushed_offset: whole(24, 4),
                confirm_physical_offset: whole(32, i64::MAX),
                logics_physical_offset: whole(40, 6),
            };
            assert_eq!(got, wanted, "{length} bytes");
        }
    }

    #[test]
    fn trusted_times_are_never_negative_without_an_index() {
        let at = |physic, logics, index| CheckpointFields {
            physic_msg_timestamp_ms: physic,
            logics_msg_timestamp_ms: logics,
            index_msg_timestamp_ms: index,
            ..CheckpointFields::default()
        };
        assert_eq!(at(10_000, 9_000, 5_000).min_timestamp_ms(), 6_000);
        assert_eq!(at(10_000, 9_000, 5_000).min_timestamp_index_ms(), 5_000);
        assert_eq!(at(10_000, 9_000, 7_000).min_timestamp_index_ms(), 6_000);
        assert_eq!(at(2_999, i64::MAX, 0).min_timestamp_ms(), 0);
        assert_eq!(at(i64::MIN, 0, 0).min_timestamp_ms(), 0);
        assert_eq!(at(0, 0, -1).min_timestamp_index_ms(), -1);
    }
}

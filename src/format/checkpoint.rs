//! The checkpoint: up to which store times everything is known to be on disk
//! (`org.apache.rocketmq.store.StoreCheckpoint`).
//!
//! | at | type | field | set to |
//! |---|---|---|---|
//! | 0 | i64 | physicMsgTimestamp | store time of the newest record that was flushed |
//! | 8 | i64 | logicsMsgTimestamp | store time of the last queue entry that was written |
//! | 16 | i64 | indexMsgTimestamp | end of the last full index file that was flushed |
//! | 24 | i64 | masterFlushedOffset | of replication |
//! | 32 | i64 | confirmPhyOffset | start of the last valid record that recovery found |
//! | 40 | i64 | logicsPhysicalOffset | start of the last record whose queue entries are flushed; from 5.5 on |
//!
//! The file has 4096 bytes; the rest is zero. The times are those of messages, not of flushes.

use super::bytes::{i64_at, put_i64_in};

/// Length of the file (`DefaultMappedFile.OS_PAGE_SIZE`).
pub const CHECKPOINT_LEN: usize = 4096;

const PHYSIC_AT: usize = 0;
const LOGICS_AT: usize = PHYSIC_AT + 8;
const INDEX_AT: usize = LOGICS_AT + 8;
const MASTER_FLUSHED_AT: usize = INDEX_AT + 8;
const CONFIRM_AT: usize = MASTER_FLUSHED_AT + 8;
const LOGICS_OFFSET_AT: usize = CONFIRM_AT + 8;
pub const FIELDS_LEN: usize = LOGICS_OFFSET_AT + 8;
/// Length of the fields up to RocketMQ 5.4.
pub const FIRST_FIELDS_LEN: usize = LOGICS_OFFSET_AT;
const _: () = assert!(FIELDS_LEN == 48);

/// Margin by which RocketMQ distrusts the log's and the queues' times.
const SLACK_MS: i64 = 3000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckpointFields {
    /// Store time of the newest record that was flushed, Unix milliseconds.
    pub physic_msg_timestamp_ms: i64,
    pub logics_msg_timestamp_ms: i64,
    pub index_msg_timestamp_ms: i64,
    pub master_flushed_offset: i64,
    pub confirm_physical_offset: i64,
    /// Physical offset of the last record whose queue entries are known to be flushed; 0 if
    /// unknown. RocketMQ 5.3 and 5.4 leave it unchanged.
    pub logics_physical_offset: i64,
}

impl CheckpointFields {
    /// Decodes the fields; missing bytes count as zero.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let field = |at| i64_at(bytes, at).unwrap_or(0);
        Self {
            physic_msg_timestamp_ms: field(PHYSIC_AT),
            logics_msg_timestamp_ms: field(LOGICS_AT),
            index_msg_timestamp_ms: field(INDEX_AT),
            master_flushed_offset: field(MASTER_FLUSHED_AT),
            confirm_physical_offset: field(CONFIRM_AT),
            logics_physical_offset: field(LOGICS_OFFSET_AT),
        }
    }

    pub const fn encode_into(&self, out: &mut [u8; FIELDS_LEN]) {
        put_i64_in::<PHYSIC_AT, FIELDS_LEN>(out, self.physic_msg_timestamp_ms);
        put_i64_in::<LOGICS_AT, FIELDS_LEN>(out, self.logics_msg_timestamp_ms);
        put_i64_in::<INDEX_AT, FIELDS_LEN>(out, self.index_msg_timestamp_ms);
        put_i64_in::<MASTER_FLUSHED_AT, FIELDS_LEN>(out, self.master_flushed_offset);
        put_i64_in::<CONFIRM_AT, FIELDS_LEN>(out, self.confirm_physical_offset);
        put_i64_in::<LOGICS_OFFSET_AT, FIELDS_LEN>(out, self.logics_physical_offset);
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

/// How far a broker delivered timers (`config/timercheck`, `TimerCheckpoint`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerCheckpoint {
    /// Timers that were due before this time were delivered.
    pub last_read_ms: i64,
    pub timer_log_position: i64,
    /// Next message of `rmq_sys_wheel_timer` that goes into the wheel.
    pub queue_offset: i64,
}

impl TimerCheckpoint {
    pub const LEN: usize = 24;

    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (last_read_ms, timer_log_position) = (i64_at(bytes, 0)?, i64_at(bytes, 8)?);
        Some(Self { last_read_ms, timer_log_position, queue_offset: i64_at(bytes, 16)? })
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
        let mut out = [0xAA; FIELDS_LEN];
        FIELDS.encode_into(&mut out);
        let last_bytes = [7, 15, 23, 31, 39, 47].map(|at: usize| out[at]);
        assert_eq!(last_bytes, [1, 2, 0xFD, 4, 0xFF, 6]);
        assert_eq!(CheckpointFields::decode(&out), FIELDS);
    }

    #[test]
    fn missing_fields_count_as_zero() {
        let mut out = [0; FIELDS_LEN];
        FIELDS.encode_into(&mut out);
        assert_eq!(CheckpointFields::decode(&[]), CheckpointFields::default());
        for length in 0..FIELDS_LEN {
            let got = CheckpointFields::decode(&out[..length]);
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

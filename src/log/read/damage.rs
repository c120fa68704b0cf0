//! Bytes of a log without a usable message.

use std::ops::Range;

use crate::error::{Corruption, CorruptionKind, Error, FormatError};
use crate::format::message::MessageView;
use crate::format::width::clamp_u64;
use crate::log::CommitLog;

#[derive(Clone, Debug)]
pub struct Damage {
    pub begin: u64,
    pub end: u64,
    /// Topic, queue and queue offset, if known.
    pub message: Option<(Box<[u8]>, i32, i64)>,
    pub corruption: Corruption,
}

impl Damage {
    #[must_use]
    pub fn of_bytes(bytes: Range<u64>, corruption: Corruption) -> Self {
        Self { begin: bytes.start, end: bytes.end, message: None, corruption }
    }

    #[must_use]
    pub fn of_message(view: &MessageView<'_>, corruption: Corruption) -> Self {
        let begin = clamp_u64(view.physical_offset());
        let bytes = begin..begin.saturating_add(u64::from(view.store_size()));
        let mut damage = Self::of_bytes(bytes, corruption);
        damage.identify(view);
        damage
    }

    pub fn identify(&mut self, view: &MessageView<'_>) {
        self.message = Some((view.topic().into(), view.queue_id(), view.queue_offset()));
    }

    #[must_use]
    pub fn length(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    #[must_use]
    pub fn error(&self) -> Error {
        let mut corruption = self.corruption.clone();
        let place = format!("physical offsets {} to {}", self.begin, self.end);
        corruption.found = match &self.message {
            Some((topic, queue_id, queue_offset)) => format!(
                "{} ({place}; topic {}, queue {queue_id}, queue offset {queue_offset})",
                corruption.found,
                String::from_utf8_lossy(topic)
            ),
            None => format!("{} ({place})", corruption.found),
        };
        Error::Corrupt(Box::new(corruption))
    }
}

#[must_use]
pub fn in_file(log: &CommitLog, at: u64, error: FormatError) -> Corruption {
    let file = log.run().find(at);
    let place = at.saturating_sub(file.as_ref().map_or(0, |file| file.base_offset));
    error.damage_in(file.as_ref().map(|file| &*file.path), place)
}

#[must_use]
pub fn not_expected(log: &CommitLog, at: u64, expected: String, found: String) -> Corruption {
    let error = FormatError::new(CorruptionKind::Magic, 0, expected, found);
    let corruption = in_file(log, at, error);
    Corruption { path: Some(corruption.path.unwrap_or_else(|| log.run().dir())), ..corruption }
}

#[must_use]
pub fn zeros(log: &CommitLog, at: u64) -> Corruption {
    in_file(log, at, FormatError::new(CorruptionKind::Size, 0, "a record", "zeros"))
}

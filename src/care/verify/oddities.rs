//! Records that are whole and that RocketMQ or a consumer cannot use: counted over the whole log.

use super::context::Context;
use crate::care::finding::{Code, Severity};
use crate::error::{Result, start_of};
use crate::files::FileRun;
use crate::format::body;
use crate::format::message::{Frame, MessageView, read_frame};
use crate::format::width::clamp_u64;
use crate::log::read::frames::FramedRecord;
use crate::store::dispatch::dispatcher::DispatchRequest;
use crate::store::dispatch::lmq;
use crate::time::{FAR_MS, is_far_outside, utc_text};

pub(super) const MOST_BODY: usize = 64 << 20;

/// Passes a record to `take` with its body, which the walk leaves out of a large one.
pub(super) fn with_body<T>(
    log: &FileRun,
    record: &FramedRecord<'_>,
    take: impl FnOnce(MessageView<'_>) -> T,
) -> Result<T> {
    let mut whole = vec![0; if record.is_elided { record.size as usize } else { 0 }];
    let read = log.read_at(&mut whole, clamp_u64(record.view.physical_offset()))?;
    Ok(take(match read_frame(whole.get(..read).unwrap_or_default()) {
        Ok(Frame::Message(view)) => view,
        _ => record.view,
    }))
}

#[derive(Debug, Default)]
pub(super) struct Oddities {
    /// Where RocketMQ's dispatch ends: place, text, and messages up to there.
    end: Option<(u64, String, u64)>,
    /// Bodies that cannot be decompressed: their number, and place and reason of the first.
    bodies: Option<(u64, u64, String)>,
    /// Messages without the checksum that `forceVerifyPropCRC` demands: their number, and the first.
    checksums: Option<(u64, u64)>,
}

impl Oddities {
    #[cold]
    pub(super) fn check_lists(&mut self, request: &DispatchRequest<'_>, messages: u64, on: bool) {
        if let (None, true, true) = (&self.end, on, request.is_queued())
            && let Some(text) = lmq::end_of_dispatch(request)
        {
            let text = start_of(&String::from_utf8_lossy(text));
            self.end = Some((clamp_u64(request.physical_offset), text, messages));
        }
    }

    #[cold]
    pub(super) fn check_body(&mut self, log: &FileRun, record: &FramedRecord<'_>) -> Result<()> {
        let offset = clamp_u64(record.view.physical_offset());
        let is_wrong = record.faults.is_some_and(|faults| faults.body.is_some());
        if is_wrong || record.size as usize > MOST_BODY {
            return Ok(());
        }
        let error = with_body(log, record, |view| {
            // Another body than the stored one has a finding of its own.
            view.check_body_crc().ok()?;
            body::of_message(&view, MOST_BODY).err()
        })?;
        if let Some(error) = error {
            self.bodies.get_or_insert((0, offset, error.found)).0 += 1;
        }
        Ok(())
    }

    #[cold]
    pub(super) fn count_checksum(&mut self, offset: u64) {
        self.checksums.get_or_insert((0, offset)).0 += 1;
    }

    pub(super) fn join(&mut self, messages: u64, next: &Self) {
        if let (None, Some((offset, text, own))) = (&self.end, &next.end) {
            self.end = Some((*offset, text.clone(), messages + own));
        }
        if let Some((count, offset, reason)) = &next.bodies {
            self.bodies.get_or_insert_with(|| (0, *offset, reason.clone())).0 += count;
        }
        if let Some((count, offset)) = next.checksums {
            self.checksums.get_or_insert((0, offset)).0 += count;
        }
    }

    pub(super) fn report(&self, cx: &Context<'_>, log: &FileRun, messages: u64) {
        if let Some((offset, text, before)) = &self.end {
            let behind = messages.saturating_sub(*before);
            let found = format!("{text:?}; {behind} messages behind it");
            let expected = "a number in INNER_MULTI_QUEUE_OFFSET";
            cx.report(log, Code::LogDispatch, *offset, expected, found);
        }
        if let Some((count, offset, reason)) = &self.bodies {
            let found = format!("{count} that cannot, the first here: {reason}");
            let expected = "bodies that can be decompressed";
            cx.report(log, Code::LogPacked, *offset, expected, found);
        }
        if let Some((count, offset)) = self.checksums {
            let found = format!("{count} messages without one, the first here");
            let expected = "a checksum in each message, as forceVerifyPropCRC=true demands";
            cx.report(log, Code::ConfigChecksum, offset, expected, found);
        }
    }
}

type Stored = (u64, i64);

/// 1971-01-01: a clock that was never set gave earlier times.
const EARLIEST_MS: i64 = 31_536_000_000;

#[derive(Clone, Copy, Debug)]
struct Impossible {
    first: Stored,
    last: u64,
    count: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    first: [Option<Stored>; 2],
    last: [Option<Stored>; 2],
    impossible: [Option<Impossible>; 2],
}

impl Times {
    /// Takes the next message; returns whether its time is plausible.
    #[inline]
    pub(crate) fn add(&mut self, cx: &Context<'_>, log: &FileRun, stored: Stored) -> bool {
        if !(EARLIEST_MS..=cx.latest_ms).contains(&stored.1) {
            let [early, late] = &mut self.impossible;
            let of_kind = if stored.1 < EARLIEST_MS { early } else { late };
            note(of_kind, Impossible { first: stored, last: stored.0, count: 1 });
            return false;
        }
        if let [Some(before), Some(middle)] = self.last
            && is_far_outside(before.1, middle.1, stored.1)
        {
            let expected =
                format!("a store time near {} and {}", utc_text(before.1), utc_text(stored.1));
            cx.report(log, Code::LogTime, middle.0, expected, utc_text(middle.1));
        }
        let [first, second] = &mut self.first;
        if second.is_none() {
            let free = if first.is_none() { first } else { second };
            *free = Some(stored);
        }
        self.last = [self.last[1], Some(stored)];
        true
    }

    pub(crate) fn then(mut self, next: &Self, cx: &Context<'_>, log: &FileRun) -> Self {
        for stored in next.first.into_iter().flatten() {
            self.add(cx, log, stored);
        }
        if next.first[1].is_some() {
            self.last = next.last;
        }
        for (kind, next) in self.impossible.iter_mut().zip(next.impossible) {
            next.into_iter().for_each(|next| note(kind, next));
        }
        self
    }

    /// Older one of the last two times: one message alone may be wrong.
    pub(crate) fn reliable_ms(&self) -> i64 {
        let [before, last] = self.last.map(|stored| stored.map_or(0, |stored| stored.1));
        before.min(last)
    }

    /// Reports a file's impossible times, and one that is older than those before it.
    pub(crate) fn report(&self, before_ms: i64, newest_ms: i64, cx: &Context<'_>, log: &FileRun) {
        for Impossible { first, last, count } in self.impossible.into_iter().flatten() {
            let mut found = utc_text(first.1);
            if count > 1 {
                found += &format!("; {count} messages, up to physical offset {last}");
            }
            let expected = "a store time from 1971 on, at most an hour ahead of the clock";
            cx.report(log, Code::LogTime, first.0, expected, found);
        }
        if let Some((offset, _)) = self.first[0]
            && newest_ms < before_ms.saturating_sub(FAR_MS)
        {
            let expected =
                format!("a store time near {}, as before this file", utc_text(before_ms));
            let found = format!("{} at the latest in this file", utc_text(newest_ms));
            cx.report(log, Code::LogTime.at(Severity::Info), offset, expected, found);
        }
    }
}

fn note(kind: &mut Option<Impossible>, next: Impossible) {
    match kind {
        Some(known) => (known.last, known.count) = (next.last, known.count + next.count),
        None => *kind = Some(next),
    }
}

//! Checks the timer's files against its queue and each other.

use std::sync::Arc;

use super::context::{Context, State, Walked};
use super::queues::Queues;
use crate::care::broker::{NO_START, TIMER_LOG};
use crate::care::finding::{Code, Severity};
use crate::error::{Error, Result};
use crate::files::run::open_files::file_size_of;
use crate::files::{Access, FileKind, FileRun, SystemClock};
use crate::format::bytes::{i32_at, i64_at};
use crate::format::checkpoint::{TIMER_CHECKPOINT_LEN, TimerCheckpoint};
use crate::format::file_name;
use crate::format::message::purpose::TIMER_TOPIC;
use crate::format::width::{clamp_u64, saturating_i64};
use crate::store::folder::inventory::{self, SLOT_LEN, TIMER_UNIT_LEN};
use crate::store::folder::lock;
use crate::time::Clock;

const WHEEL_LEN: u64 = 14 * 86_400 * SLOT_LEN as u64;

pub(super) fn check(cx: &Context<'_>, queues: &Queues, walked: &Walked) {
    if cx.state == State::InUse {
        return;
    }
    if cx.config.timer_wheel_enable {
        check_files(cx);
    }
    let path = cx.paths.config().join("timercheck");
    let add = |severity, path, expected: String, found| {
        cx.findings.add(Code::Timer.at(severity), path, None, expected, found);
    };
    let (first, end) = queues.end_of(TIMER_TOPIC, 0).unwrap_or((0, 0));
    let (log_end, last_unit) = match log_end(cx) {
        Ok((end, unit)) => (saturating_i64(end), unit),
        Err(error) => return cx.error(&cx.paths.root().join(TIMER_LOG), error),
    };
    // `TimerMessageStore#recover` goes on behind the last unit's message, else at `timercheck`'s
    // offset.
    let resumes = last_unit.is_some_and(|(at, end)| {
        at >= walked.log_start && end <= walked.log_end && !walked.is_damaged(at)
    });
    let start = match lock::read_start(cx.paths.storage(), &path, TIMER_CHECKPOINT_LEN) {
        Ok(start) => start,
        Err(error) => return cx.error(&path, error),
    };
    let known = match start.first_chunk().map(TimerCheckpoint::decode) {
        Some(known) => known,
        // No broker has delivered timers here.
        None if log_end == 0 && matches!(cx.paths.storage.kind(&path), Ok(None)) => {
            TimerCheckpoint::default()
        }
        None => {
            if end > first {
                let (read, again) = (start.len(), end - first);
                let found =
                    format!("{read}; {again} timer messages from {first} on are read again");
                let expected = format!("{} bytes or more", TIMER_CHECKPOINT_LEN);
                add(Severity::Warning, &path, expected, found);
            }
            // Without the time up to which timers were delivered, old slots look like new ones.
            return;
        }
    };
    if known.queue_offset > end && !cx.in_database && !resumes {
        let (next, skipped) = (known.queue_offset, known.queue_offset - end);
        let expected = format!("a queue offset up to {end}, the end of the timer's queue");
        let found = format!(
            "{next}; a broker before 5.3.2 never delivers the next {skipped} timer messages"
        );
        add(Severity::Warning, &path, expected, found);
    }
    let resumes = resumes || known.queue_offset <= first;
    // A message that is read again when it is due goes into no slot.
    let after_ms = if resumes { SystemClock.now_ms() } else { known.last_read_ms };
    let (slots, waiting) = slots_beyond(cx, after_ms, log_end).unwrap_or_else(|error| {
        cx.error(&cx.paths.root().join("timerwheel"), error);
        (0, 0)
    });
    let gone =
        clamp_u64(known.timer_log_position.saturating_sub(log_end)).div_ceil(TIMER_UNIT_LEN as u64);
    if gone > 0 && (resumes || slots == 0) {
        let at = known.timer_log_position;
        let expected = format!("a position up to {log_end}, the end of timerlog");
        let (severity, happens) = if resumes {
            (Severity::Warning, "are read again, and come once more if they were delivered")
        } else {
            (Severity::Error, "that waited are never delivered")
        };
        let found = format!("{at}; up to {gone} timer messages {happens}");
        add(severity, &path, expected, found);
    }
    if slots > 0 {
        let expected = format!("slots up to {log_end}, the end of timerlog");
        let happens = if resumes {
            format!(
                "a broker that starts before their {waiting} timer messages are due may run out of memory"
            )
        } else {
            format!("their {waiting} timer messages are never delivered")
        };
        let found = format!("{slots} slots beyond; {happens}");
        add(Severity::Error, &cx.paths.root().join("timerwheel"), expected, found);
    }
}

/// Adds what no broker starts on (`TimerWheel`, `TimerLog#load`).
fn check_files(cx: &Context<'_>) {
    let (storage, root) = (&cx.paths.storage, cx.paths.root());
    let add = |path, size, found| {
        let expected = format!("a file of {size} bytes{NO_START}");
        cx.findings.add(Code::Timer, path, None, expected, found);
    };
    let wheel = root.join("timerwheel");
    let length = || storage.open(&wheel, Access::Read).and_then(|file| file.length());
    match storage.kind(&wheel) {
        Ok(Some(FileKind::Directory)) => add(&wheel, WHEEL_LEN, "a folder".to_owned()),
        Ok(Some(FileKind::File)) => {
            if let Some(length) = length().ok().filter(|length| ![0, WHEEL_LEN].contains(length)) {
                add(&wheel, WHEEL_LEN, format!("{length} bytes"));
            }
        }
        _ => {}
    }
    let dirs = vec![root.join(TIMER_LOG)];
    let loaded = FileRun::load(Arc::clone(storage), Arc::default(), dirs, 1, Access::Read);
    let Ok((run, strays)) = loaded else { return };
    strays.iter().for_each(|stray| cx.stray(stray));
    let files = run.files();
    let Some(size) = file_size_of(&files) else { return };
    for (at, file) in files.iter().enumerate() {
        let is_deleted = file.len == 0 && at + 1 == files.len();
        if file.len != size && !is_deleted {
            add(&file.path, size, format!("{} bytes", file.len));
        }
    }
}

/// Slots after a time, and their messages, whose units are all gone.
fn slots_beyond(cx: &Context<'_>, after_ms: i64, log_end: i64) -> Result<(u64, u64)> {
    let path = cx.paths.root().join("timerwheel");
    let Some(file) = cx.paths.storage.open_if_there(&path, Access::Read)? else {
        return Ok((0, 0));
    };
    let (mut slots, mut messages) = (0, 0);
    let read = inventory::each_slot(&*file, |slot| {
        let (time, first) = (i64_at(slot, 0).unwrap_or(0), i64_at(slot, 8).unwrap_or(0));
        // A start sets the last position of a slot that has a unit.
        if time.saturating_mul(1000) > after_ms && first >= log_end {
            slots += 1;
            messages += clamp_u64(i32_at(slot, 24).unwrap_or(0));
        }
    });
    read.map_err(Error::io("read", &path))?;
    Ok((slots, messages))
}

/// End of the units in `timerlog`, and where the last one's message lies.
fn log_end(cx: &Context<'_>) -> Result<(u64, Option<(u64, u64)>)> {
    let dir = cx.paths.root().join(TIMER_LOG);
    let mut files = inventory::list(cx.paths.storage(), &dir)?;
    files.sort_unstable_by(|a, b| b.name.cmp(&a.name));
    for file in files {
        let Some(base) = file.name.to_str().and_then(file_name::parse_offset_name) else {
            continue;
        };
        let path = dir.join(&file.name);
        let measured = cx.paths.storage.open(&path, Access::Read).and_then(|file| {
            let end = inventory::timer_units(&*file)? * TIMER_UNIT_LEN as u64;
            let mut unit = [0; TIMER_UNIT_LEN];
            file.read_at(&mut unit, end.saturating_sub(TIMER_UNIT_LEN as u64))?;
            Ok((end, file.length()?, unit))
        });
        let (end, len, unit) = measured.map_err(Error::io("read", &path))?;
        if end > 0 {
            let at = clamp_u64(i64_at(&unit, 28).unwrap_or(0));
            let size = clamp_u64(i32_at(&unit, 36).unwrap_or(0));
            // A blank fills a file that has no room for a unit.
            let is_full = len.saturating_sub(end) < 2 * TIMER_UNIT_LEN as u64;
            let end = base.saturating_add(if is_full { len } else { end });
            return Ok((end, Some((at, at.saturating_add(size)))));
        }
    }
    Ok((0, None))
}

//! Checks the timer's files against its queue and each other: `config/timercheck`, `timerwheel`
//! and `timerlog`.

use super::context::{Context, State};
use super::queues::Queues;
use crate::care::finding::{Code, Severity};
use crate::error::{Error, Result};
use crate::files::Access;
use crate::format::bytes::{i32_at, i64_at};
use crate::format::checkpoint::TimerCheckpoint;
use crate::format::file_name;
use crate::format::message::purpose::TIMER_TOPIC;
use crate::format::width::{at_least_0, at_most_i64};
use crate::store::folder::inventory::{self, TIMER_UNIT_LEN};

pub(super) fn check(cx: &Context<'_>, queues: &Queues) {
    if cx.state == State::InUse {
        return;
    }
    let path = cx.paths.config().join("timercheck");
    let add = |severity, path, expected: String, found| {
        cx.findings.add(Code::Timer, severity, path, None, expected, found);
    };
    let (first, end) = queues.end_of(TIMER_TOPIC, 0).unwrap_or((0, 0));
    let log_end = match log_end(cx) {
        Ok(end) => at_most_i64(end),
        Err(error) => return cx.error(&cx.paths.root().join("timerlog"), error),
    };
    let mut known = TimerCheckpoint::default();
    match cx.storage.open(&path, Access::Read) {
        // No broker has delivered timers here.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && log_end == 0 => {}
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return cx.error(&path, Error::io("open", &path)(error));
        }
        opened => {
            let mut bytes = [0; TimerCheckpoint::LEN];
            let read = opened.map_or(Ok(0), |file| file.read_at(&mut bytes, 0));
            let read = match read {
                Ok(read) => read,
                Err(error) => return cx.error(&path, Error::io("read", &path)(error)),
            };
            let whole = TimerCheckpoint::decode(bytes.get(..read).unwrap_or_default());
            if whole.is_none() && end > first {
                let again = end - first;
                let found =
                    format!("{read}; {again} timer messages from {first} on are read again");
                let expected = format!("{} bytes or more", TimerCheckpoint::LEN);
                add(Severity::Warning, &path, expected, found);
            }
            // Without the time up to which timers were delivered, old slots look like new ones.
            let Some(whole) = whole else { return };
            known = whole;
        }
    }
    if known.queue_offset > end && !cx.in_database {
        let (next, lost) = (known.queue_offset, known.queue_offset - end);
        let expected = format!("a queue offset up to {end}, the end of the timer's queue");
        let found = format!("{next}; the next {lost} timer messages are never delivered");
        add(Severity::Error, &path, expected, found);
    }
    if known.timer_log_position > log_end {
        let lost =
            (known.timer_log_position - log_end).unsigned_abs().div_ceil(TIMER_UNIT_LEN as u64);
        let expected = format!("a position up to {log_end}, the end of timerlog");
        let at = known.timer_log_position;
        let found = format!("{at}; up to {lost} timer messages that waited are never delivered");
        add(Severity::Error, &path, expected, found);
    }
    let path = cx.paths.root().join("timerwheel");
    let file = match cx.storage.open_if_there(&path, Access::Read) {
        Ok(Some(file)) => file,
        Ok(None) => return,
        Err(error) => return cx.error(&path, error),
    };
    let (mut slots, mut lost) = (0_u64, 0);
    let read = inventory::each_slot(&*file, |slot| {
        let (time, last) = (i64_at(slot, 0).unwrap_or(0), i64_at(slot, 16).unwrap_or(0));
        if time.saturating_mul(1000) > known.last_read_ms && last > 0 && last >= log_end {
            slots += 1;
            lost += at_least_0(i32_at(slot, 24).unwrap_or(0));
        }
    });
    if let Err(error) = read {
        cx.error(&path, Error::io("read", &path)(error));
    }
    if slots > 0 {
        let expected = format!("slots up to {log_end}, the end of timerlog");
        let found =
            format!("{slots} slots beyond; their {lost} timer messages are never delivered");
        add(Severity::Error, &path, expected, found);
    }
}

/// End of the units in `timerlog`: zeros follow in its last file.
fn log_end(cx: &Context<'_>) -> Result<u64> {
    let dir = cx.paths.root().join("timerlog");
    let mut files = inventory::list(&*cx.storage, &dir)?;
    files.sort_unstable_by(|a, b| b.name.cmp(&a.name));
    for file in files {
        let Some(base) = file.name.to_str().and_then(file_name::parse_offset_name) else {
            continue;
        };
        let path = dir.join(&file.name);
        let measured = cx.storage.open(&path, Access::Read).and_then(|file| {
            Ok((inventory::timer_units(&*file)? * TIMER_UNIT_LEN as u64, file.length()?))
        });
        let (end, len) = measured.map_err(Error::io("read", &path))?;
        if end > 0 {
            // A blank fills a file that has no room for a unit.
            let is_full = len.saturating_sub(end) < 2 * TIMER_UNIT_LEN as u64;
            return Ok(base.saturating_add(if is_full { len } else { end }));
        }
    }
    Ok(0)
}

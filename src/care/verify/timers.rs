//! Checks the timer's files against its queue and each other: `config/timercheck`, `timerwheel`
//! and `timerlog`.

use super::context::{Context, State};
use super::queues::Queues;
use crate::care::finding::{Code, Severity};
use crate::error::Error;
use crate::files::{Access, StorageFile};
use crate::format::bytes::{i32_at, i64_at};
use crate::format::checkpoint::TimerCheckpoint;
use crate::format::file_name;
use crate::format::message::purpose::TIMER_TOPIC;
use crate::format::width::{at_least_0, at_most_i64, to_usize};

/// Length of a unit in `timerlog`, and its first number.
const UNIT: u64 = 52;
const SLOT: usize = 32;
/// Slots of `timerwheel` read at a time.
const SLOTS: usize = 4096;

pub(super) fn check(cx: &Context<'_>, queues: &Queues, in_database: bool) {
    if cx.state == State::InUse {
        return;
    }
    let path = cx.paths.config().join("timercheck");
    let add = |severity, path, expected: String, found| {
        cx.findings.add(Code::Timer, severity, path, None, expected, found);
    };
    let (first, end) = queues.end_of(TIMER_TOPIC, 0).unwrap_or((0, 0));
    let mut known = TimerCheckpoint::default();
    match cx.storage.open(&path, Access::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => cx.error(&path, Error::io("open", &path)(error)),
        Ok(file) => {
            let mut bytes = [0; TimerCheckpoint::LEN];
            let read = file.read_at(&mut bytes, 0).unwrap_or(0);
            let whole = TimerCheckpoint::decode(bytes.get(..read).unwrap_or_default());
            if whole.is_none() && end > first {
                let again = end - first;
                let found =
                    format!("{read}; {again} timer messages from {first} on are read again");
                let expected = format!("{} bytes or more", TimerCheckpoint::LEN);
                add(Severity::Warning, &path, expected, found);
            }
            known = whole.unwrap_or_default();
        }
    }
    if known.queue_offset > end && !in_database {
        let (next, lost) = (known.queue_offset, known.queue_offset - end);
        let expected = format!("a queue offset up to {end}, the end of the timer's queue");
        let found = format!("{next}; the next {lost} timer messages are never delivered");
        add(Severity::Error, &path, expected, found);
    }
    let log_end = at_most_i64(log_end(cx));
    if known.timer_log_position > log_end {
        let lost = (known.timer_log_position - log_end).unsigned_abs().div_ceil(UNIT);
        let expected = format!("a position up to {log_end}, the end of timerlog");
        let at = known.timer_log_position;
        let found = format!("{at}; up to {lost} timer messages that waited are never delivered");
        add(Severity::Error, &path, expected, found);
    }
    let path = cx.paths.root().join("timerwheel");
    let Ok(wheel) = cx.storage.open(&path, Access::Read) else { return };
    let (slots, lost) = slots_beyond(&*wheel, log_end, known.last_read_ms);
    if slots > 0 {
        let expected = format!("slots up to {log_end}, the end of timerlog");
        let found = format!("{slots} beyond; their {lost} timer messages are never delivered");
        add(Severity::Error, &path, expected, found);
    }
}

/// End of the units in `timerlog`: zeros follow in its last file.
fn log_end(cx: &Context<'_>) -> u64 {
    let dir = cx.paths.root().join("timerlog");
    let Ok(listed) = cx.storage.list(&dir) else { return 0 };
    let mut files: Vec<_> = listed
        .into_iter()
        .filter_map(|entry| Some((file_name::parse_offset_name(entry.name.to_str()?)?, entry.name)))
        .collect();
    files.sort_unstable();
    for (base, name) in files.iter().rev() {
        let Ok(file) = cx.storage.open(&dir.join(name), Access::Read) else { continue };
        let is_unit = |number: u64| {
            let mut size = [0; 4];
            let read = file.read_at(&mut size, number * UNIT);
            read.is_ok_and(|read| read == 4) && u64::from(u32::from_be_bytes(size)) == UNIT
        };
        let (mut low, mut high) = (0, file.stat().map_or(0, |stat| stat.len) / UNIT);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_unit(middle) { low = middle + 1 } else { high = middle }
        }
        if low > 0 {
            return base.saturating_add(low * UNIT);
        }
    }
    0
}

/// Slots not yet delivered that lead beyond `log_end`, and their messages.
fn slots_beyond(wheel: &dyn StorageFile, log_end: i64, read_ms: i64) -> (u64, u64) {
    let mut block = vec![0; SLOTS * SLOT];
    let (mut at, mut slots, mut lost) = (0, 0, 0);
    while let Ok(Some(data)) = wheel.next_data(at) {
        at = data / SLOT as u64 * SLOT as u64;
        let read = wheel.read_at(&mut block, at).unwrap_or(0);
        if read < SLOT {
            break;
        }
        for slot in block.get(..read).unwrap_or_default().chunks_exact(SLOT) {
            let (time, last) = (i64_at(slot, 0).unwrap_or(0), i64_at(slot, 16).unwrap_or(0));
            if time.saturating_mul(1000) > read_ms && last >= log_end && last > 0 {
                slots += 1;
                lost += at_least_0(i32_at(slot, 24).unwrap_or(0));
            }
        }
        at += (to_usize(read as u64) / SLOT * SLOT) as u64;
    }
    (slots, lost)
}

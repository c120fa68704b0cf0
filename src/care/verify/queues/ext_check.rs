//! Checks queue extensions: consecutive units, and addresses that lead to the unit of the entry's
//! message.

use std::path::PathBuf;

use super::Queue;
use super::report::tags_code;
use crate::care::finding::{Code, Severity};
use crate::care::verify::context::Context;
use crate::error::{Error, Result};
use crate::files::FileRun;
use crate::format::queue::consume_queue::SCHEDULE_TOPIC;
use crate::format::queue::consume_queue_ext::{self, ExtFrame, MAX_UNIT_LEN, MIN_UNIT_LEN};
use crate::format::width::to_usize;
use crate::store::dispatch::dispatcher::DispatchRequest;

/// Bytes read at a time: the longest unit, and more usual ones.
const BLOCK: usize = 2 * MAX_UNIT_LEN;

pub(in crate::care::verify) fn read_structure(cx: &Context<'_>, run: &FileRun) -> Result<()> {
    let mut block = vec![0; BLOCK];
    for file in run.files().iter() {
        let open = match run.open(file) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                continue;
            }
            other => other?,
        };
        let len = file.len.min(run.file_size());
        let (mut position, mut begins, mut filled) = (0_u64, 0_u64, 0_usize);
        while position < len && !cx.is_cancelled() {
            let mut at = to_usize(position - begins);
            if at.saturating_add(MAX_UNIT_LEN) > filled {
                let room = to_usize(len - position).min(BLOCK);
                let bytes = block.get_mut(..room).unwrap_or_default();
                filled = open.read_at(bytes, position).map_err(Error::io("read", &file.path))?;
                (begins, at) = (position, 0);
            }
            let bytes = block.get(at..filled).unwrap_or_default();
            let wrong = match consume_queue_ext::read_unit(bytes) {
                Ok(ExtFrame::Unit(unit, size)) if unit.encoded_size() == size => {
                    position += size as u64;
                    continue;
                }
                Ok(ExtFrame::Unit(unit, size)) => (
                    position + 18,
                    format!("a bit map of {} bytes", size - MIN_UNIT_LEN),
                    format!("{}", unit.bitmap.len()),
                ),
                Ok(ExtFrame::End | ExtFrame::Empty) => break,
                Err(error) => (position + error.position as u64, error.expected, error.found),
            };
            let (offset, expected, found) = wrong;
            let severity = Severity::Error;
            cx.findings.add(Code::ExtUnit, severity, &file.path, Some(offset), expected, found);
            break;
        }
    }
    Ok(())
}

pub(in crate::care::verify) struct ExtCheck<'a> {
    cx: &'a Context<'a>,
    /// Queue and start of the bytes kept.
    queue: Option<u32>,
    from: u64,
    block: Vec<u8>,
}

pub(in crate::care::verify) struct EntryPlace {
    pub(in crate::care::verify) number: i64,
    pub(in crate::care::verify) path: PathBuf,
    pub(in crate::care::verify) offset: u64,
}

impl<'a> ExtCheck<'a> {
    pub(in crate::care::verify) const fn new(cx: &'a Context<'a>) -> Self {
        Self { cx, queue: None, from: 0, block: Vec::new() }
    }

    /// Compares an entry's unit with its message.
    pub(in crate::care::verify) fn hold(
        &mut self,
        queue: &Queue,
        queue_number: u32,
        entry: &EntryPlace,
        address: i64,
        request: &DispatchRequest<'_>,
    ) -> Result<()> {
        let (cx, number) = (self.cx, entry.number);
        let offset =
            consume_queue_ext::offset_of(address).and_then(|offset| u64::try_from(offset).ok());
        let offset = offset.unwrap_or(u64::MAX);
        let expected = match &queue.ext {
            None => Some("no address, as there is no extension".to_owned()),
            Some(run) => {
                let bytes = self.bytes(queue_number, run, offset)?;
                match bytes.map(consume_queue_ext::read_unit) {
                    None => Some(format!("an address in {}", span(run))),
                    Some(Ok(ExtFrame::Unit(unit, _))) => {
                        // The broker sets the delays.
                        let code = match request.topic == SCHEDULE_TOPIC {
                            true => unit.tags_code,
                            false => tags_code(cx, request),
                        };
                        let time = request.store_timestamp_ms;
                        if (unit.tags_code, unit.store_timestamp_ms) != (code, time) {
                            let found = format!(
                                "tags code {}, time {}, where entry {number} leads",
                                unit.tags_code, unit.store_timestamp_ms
                            );
                            let file = run.find(offset);
                            let place = file.as_ref().map_or(0, |file| offset - file.base_offset);
                            let path = file.map(|file| file.path.clone()).unwrap_or_default();
                            let expected = format!("tags code {code}, time {time}");
                            let code = Code::ExtTags;
                            let severity = Severity::Error;
                            cx.findings.add(code, severity, &path, Some(place), expected, found);
                        }
                        None
                    }
                    Some(_) => Some("the address of a unit".to_owned()),
                }
            }
        };
        if let Some(expected) = expected {
            let found = format!("entry {number} with address {offset}");
            let (code, severity) = (Code::ExtAddress, Severity::Error);
            cx.findings.add(code, severity, &entry.path, Some(entry.offset), expected, found);
        }
        Ok(())
    }

    fn bytes(&mut self, queue: u32, run: &FileRun, offset: u64) -> Result<Option<&[u8]>> {
        let Some(file) = run.find(offset) else { return Ok(None) };
        let end = file.base_offset.saturating_add(file.len.min(run.file_size()));
        let needed = to_usize(end.saturating_sub(offset));
        let needed = needed.min(MAX_UNIT_LEN);
        let skip = offset.checked_sub(self.from).and_then(|skip| usize::try_from(skip).ok());
        let there = skip.and_then(|skip| self.block.get(skip..)).map_or(0, <[u8]>::len);
        if self.queue != Some(queue) || there < needed {
            let room = to_usize(end.saturating_sub(offset));
            self.block.resize(room.min(BLOCK), 0);
            let read = run.read_at(&mut self.block, offset)?;
            self.block.truncate(read);
            (self.queue, self.from) = (Some(queue), offset);
        }
        let skip = to_usize(offset - self.from);
        Ok(self.block.get(skip..))
    }
}

fn span(run: &FileRun) -> String {
    let (from, to) = (run.min_offset().unwrap_or(0), run.end_offset().unwrap_or(0));
    format!("the extension, {from} to {to}")
}

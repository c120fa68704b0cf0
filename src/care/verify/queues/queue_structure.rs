//! Checks a queue by itself: its end, number of valid entries, and faults.

use std::path::PathBuf;

use super::entry_check::spot;
use super::{Entry, Met, Queue, each_block};
use crate::care::finding::{Code, Severity};
use crate::care::verify::context::{Context, State};
use crate::error::Result;
use crate::format::queue::consume_queue::{ENTRY_LEN, QueueEntry};
use crate::format::width::at_most_i64;

pub(in crate::care::verify) fn read(
    cx: &Context<'_>,
    queue: &mut Queue,
    log_start: u64,
) -> Result<u64> {
    let log_start = at_most_i64(log_start);
    let mut structure = Structure::new(cx, queue, log_start);
    each_block(cx, &queue.run, |first, entries: &[[u8; ENTRY_LEN]]| {
        structure.take_block(first, entries);
        Ok(())
    })?;
    structure.finish();
    let Structure { count, live, first, end, .. } = structure;
    queue.first = first.unwrap_or(0);
    queue.end = end.or(first).unwrap_or(0);
    queue.live = live;
    Ok(count)
}

struct Structure<'a> {
    cx: &'a Context<'a>,
    queue: &'a Queue,
    log_start: i64,
    count: u64,
    live: u64,
    first: Option<i64>,
    end: Option<i64>,
    last: Option<i64>,
    /// Start of zeros or fillers not followed by anything yet.
    empty: Option<i64>,
    blanks: Option<i64>,
}

impl<'a> Structure<'a> {
    const fn new(cx: &'a Context<'a>, queue: &'a Queue, log_start: i64) -> Self {
        Self {
            cx,
            queue,
            log_start,
            count: 0,
            live: 0,
            first: None,
            end: None,
            last: None,
            empty: None,
            blanks: None,
        }
    }

    fn take_block(&mut self, first: i64, entries: &[[u8; ENTRY_LEN]]) {
        if entries.is_empty() {
            self.take(first, &Met::Empty);
        }
        let (mut number, mut left) = (first, entries);
        loop {
            let passed = self.pass_usual(number, left);
            left = left.get(passed..).unwrap_or_default();
            let Some((entry, more)) = left.split_first() else { return };
            number += passed as i64; // of a block
            self.take(number, &QueueEntry::met(entry));
            number += 1;
            left = more;
        }
    }

    /// Fast path: takes entries while each leads behind its predecessor; returns their number.
    #[inline]
    fn pass_usual(&mut self, number: i64, entries: &[[u8; ENTRY_LEN]]) -> usize {
        let (Some(mut last), None, None) = (self.last, self.empty, self.blanks) else { return 0 };
        let (mut passed, mut live) = (0, 0);
        for entry in entries.iter().map(QueueEntry::decode) {
            if entry.store_size <= 0 || entry.physical_offset <= last {
                break;
            }
            last = entry.physical_offset;
            live += u64::from(last >= self.log_start);
            passed += 1;
        }
        if passed > 0 {
            self.count += passed as u64;
            self.live += live;
            self.end = Some(number + passed as i64); // of a block
            self.last = Some(last);
        }
        passed
    }

    fn take(&mut self, number: i64, met: &Met<QueueEntry>) {
        self.first = self.first.or(Some(number));
        let entry = match met {
            Met::Empty => {
                self.empty = self.empty.or(Some(number));
                return;
            }
            Met::Blank if self.last.is_none() => return,
            Met::Blank => {
                self.blanks = self.blanks.or(Some(number));
                self.end = Some(number.saturating_add(1));
                return;
            }
            Met::Entry(entry) | Met::Impossible(entry) => entry,
        };
        if let Some(from) = self.empty.take() {
            let found = format!("zeros up to entry {number}, which is there");
            self.add(Code::QueueHole, Severity::Error, from, format!("entry {from}"), found);
        }
        if let Some(from) = self.blanks.take() {
            let found = format!("fillers up to entry {number}");
            self.add(Code::QueueBlank, Severity::Warning, from, format!("entry {from}"), found);
        }
        self.end = Some(number.saturating_add(1));
        let QueueEntry { physical_offset, store_size, .. } = *entry;
        if let Met::Impossible(_) = met {
            let found = format!("entry {number} with offset {physical_offset}, size {store_size}");
            let expected = "an offset of 0 or more, a size above 0".to_owned();
            self.add(Code::QueueNowhere, Severity::Error, number, expected, found);
            return;
        }
        self.count += 1;
        self.live += u64::from(physical_offset >= self.log_start);
        if let Some(before) = self.last.filter(|&before| physical_offset <= before) {
            let expected = format!("an offset behind {before}");
            let found = format!("entry {number} with offset {physical_offset}");
            self.add(Code::QueueOrder, Severity::Error, number, expected, found);
        }
        self.last = Some(physical_offset);
    }

    fn finish(&self) {
        if let Some(from) = self.blanks {
            let found = "fillers up to the end".to_owned();
            self.add(Code::QueueBlank, Severity::Warning, from, format!("entry {from}"), found);
        }
        let files = self.queue.run.files();
        let entry_len = ENTRY_LEN as u64;
        // If its first file is empty, RocketMQ takes the queue for a new one.
        if let Some(file) = files.last().filter(|file| file.base_offset > 0 && file.len > 0)
            && self.cx.state != State::InUse
            && self
                .empty
                .is_some_and(|from| i64::try_from(file.base_offset / entry_len) == Ok(from))
        {
            let (code, severity) = (Code::QueueFileEmpty, Severity::Error);
            let found = "zeros, behind a full file or as the only one";
            self.cx.findings.add(code, severity, &file.path, Some(0), "an entry", found);
        }
    }

    fn add(&self, code: Code, severity: Severity, number: i64, expected: String, found: String) {
        let (path, offset): (PathBuf, u64) = spot::<ENTRY_LEN>(self.queue, number);
        self.cx.findings.add(code, severity, &path, Some(offset), expected, found);
    }
}

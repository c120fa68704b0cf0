//! Joins the stretches of a log: which records belong to it, and where it ends.

use super::stretch::{Chunk, ChunkEnd, Reading, is_gone, read_from, stored_at};
use crate::error::Result;
use crate::log::read::frames::FrameReader;
use crate::log::read::parallel::{Stretch, put_together};

const MOST_DAMAGED: usize = 10_000;

#[derive(Debug)]
pub(super) struct Walk {
    pub(super) cursor: u64,
    /// Whether the log ends at the cursor.
    pub(super) ended: bool,
    pub(super) records: u64,
    pub(super) newest_ms: i64,
    /// Ranges of the log without messages, although messages follow.
    pub(super) damaged: Vec<(u64, u64)>,
    pub(super) left_out: u64,
}

impl Walk {
    pub(super) fn new(start: u64) -> Self {
        Self {
            cursor: start,
            ended: false,
            records: 0,
            newest_ms: 0,
            damaged: Vec::new(),
            left_out: 0,
        }
    }

    /// Takes the next stretch and its chunk, and passes what belongs to the log to `take`. If the
    /// chunk does not begin at the cursor, it reads from there.
    pub(super) fn accept(
        &mut self,
        reading: &Reading<'_>,
        stretch: &Stretch,
        found: Chunk,
        take: &mut dyn FnMut(Chunk) -> Result<()>,
    ) -> Result<()> {
        let base = stretch.file.base_offset;
        if !self.ended && stretch.bytes.start == 0 && self.cursor < base {
            self.pass(reading, stretch, 0)?;
        }
        if self.ended {
            return Ok(());
        }
        let places = stretch.places();
        let again = |at| match at < places.start {
            true => Ok(None),
            false => match read_from(reading, stretch, at) {
                // Deleted by a running broker's retention; the next stretch shows it.
                Err(error) if is_gone(&error) => Ok(None),
                chunk => chunk.map(Some),
            },
        };
        put_together(self.cursor, places.clone(), Some(found), again, |chunk| {
            self.cursor = chunk.end;
            self.records += chunk.gathered.records;
            self.newest_ms = self.newest_ms.max(chunk.gathered.newest_ms);
            self.left_out += chunk.gathered.left_out;
            let (how, end) = (chunk.how, chunk.end);
            take(chunk)?;
            match how {
                ChunkEnd::Whole => {}
                ChunkEnd::Blank => self.cursor = base.saturating_add(reading.log.file_size()),
                ChunkEnd::Nothing | ChunkEnd::Bad => {
                    let at = end.saturating_sub(base);
                    self.pass(reading, stretch, at.saturating_add(u64::from(end >= base)))?;
                }
            }
            Ok((!self.ended).then_some(self.cursor))
        })
        .map(|_| ())
    }

    /// Skips damage up to the next message of the log: flushed, and not older than earlier ones.
    /// Anything else remains of an unclean stop or a recycled file, and ends the log.
    fn pass(&mut self, reading: &Reading<'_>, stretch: &Stretch, from: u64) -> Result<()> {
        let files = reading.log.files();
        let later = files.iter().filter(|file| file.base_offset > stretch.file.base_offset);
        let own = (std::sync::Arc::clone(&stretch.file), from);
        let places = std::iter::once(own).chain(later.map(|file| (std::sync::Arc::clone(file), 0)));
        for (file, from) in places {
            let mut reader = match FrameReader::open(reading.log, &file) {
                Err(error) if is_gone(&error) => continue,
                opened => opened?,
            };
            let next = match from {
                // The damaged frame may claim its end.
                1.. => reader.claimed_end(from - 1)?,
                0 => None,
            };
            let next = match next {
                Some(next) if stored_at(&mut reader, next)?.is_some() => Some(next),
                _ => reader.resync(from)?,
            };
            let Some(next) = next else { continue };
            let place = file.base_offset.saturating_add(next);
            match stored_at(&mut reader, next)? {
                Some(time)
                    if place >= reading.flushed.place
                        && (time < self.newest_ms || time > reading.flushed.before_ms) =>
                {
                    break;
                }
                // Damage or a record: the walk decides.
                _ => {}
            }
            if self.damaged.len() < MOST_DAMAGED {
                self.damaged.push((self.cursor, place));
            }
            self.cursor = place;
            return Ok(());
        }
        self.ended = true;
        Ok(())
    }
}

//! The extension of a consume queue: units that entries name in their tags code
//! (`org.apache.rocketmq.store.ConsumeQueueExt`).
//!
//! It is weakly reliable: an unreadable unit passes every filter, and an entry holds the plain code
//! if its unit cannot be written.

use crate::error::Result;
use crate::files::FileRun;
use crate::files::run::tail_run::TailRun;
use crate::format::queue::consume_queue_ext::{
    self, END, END_LEN, ExtFrame, ExtUnit, MAX_UNIT_LEN,
};
use crate::format::width::{offset_or_max, to_usize};

use super::unit::CqUnit;

#[derive(Debug)]
pub struct ConsumeQueueExt {
    pub(crate) units: TailRun,
    writes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagsCode {
    Known(i64),
    Unreadable,
}

impl ConsumeQueueExt {
    /// An extension over `run`; `writes` creates units for new entries.
    pub fn load(run: FileRun, writes: bool) -> Result<Self> {
        let ext = Self { units: TailRun::new(run), writes };
        ext.find_end()?;
        Ok(ext)
    }

    #[must_use]
    pub fn run(&self) -> &FileRun {
        self.units.run()
    }

    /// Finds the end on disk, from the third last file on (`ConsumeQueueExt.recover`).
    pub(crate) fn find_end(&self) -> Result<()> {
        let files = self.run().files();
        let mut end = files.first().map_or(0, |file| file.base_offset);
        'files: for file in files.iter().skip(files.len().saturating_sub(3)) {
            end = file.base_offset;
            let file_end = file.base_offset.saturating_add(self.run().file_size());
            let mut block = vec![0; 2 * MAX_UNIT_LEN];
            // Each block begins with a unit and holds at least one.
            while end < file_end {
                let read = self.units.read_disk(&mut block, end)?;
                let mut at = 0;
                loop {
                    match consume_queue_ext::read_unit(&block[at..read]) {
                        Ok(ExtFrame::Unit(_, len)) => at += len,
                        Ok(ExtFrame::End) => {
                            end = file_end;
                            continue 'files;
                        }
                        Ok(ExtFrame::Empty) => {
                            end += at as u64;
                            break 'files;
                        }
                        // The block may end inside a unit.
                        Err(_) if at > 0 && read == block.len() => break,
                        Err(_) => {
                            end += at as u64;
                            break 'files;
                        }
                    }
                }
                end += at as u64;
            }
        }
        self.units.tail().set_end(end);
        Ok(())
    }

    /// Adds a unit; returns the entry's tags code: its address, or `tags_code` without a unit
    /// (`ConsumeQueueExt.put`).
    pub(crate) fn put(&self, tags_code: i64, store_timestamp_ms: i64) -> i64 {
        if !self.writes {
            return tags_code;
        }
        self.try_put(tags_code, store_timestamp_ms).ok().flatten().unwrap_or(tags_code)
    }

    fn try_put(&self, tags_code: i64, store_timestamp_ms: i64) -> Result<Option<i64>> {
        let unit = ExtUnit { tags_code, store_timestamp_ms, bitmap: &[] };
        let Ok(unit) = unit.encode() else { return Ok(None) };
        let size = self.run().file_size();
        let mut tail = self.units.tail();
        let room = size - tail.end() % size;
        if unit.len() as u64 > room.saturating_sub(END_LEN as u64) {
            if unit.len() as u64 > size.saturating_sub(END_LEN as u64) {
                return Ok(None);
            }
            let mut rest = vec![0; to_usize(room)];
            if let Some(end) = rest.first_chunk_mut() {
                *end = END;
            }
            self.units.push(&mut tail, &rest)?;
        }
        let Some(address) = i64::try_from(tail.end()).ok().and_then(consume_queue_ext::address_of)
        else {
            return Ok(None);
        };
        self.units.push(&mut tail, &unit)?;
        Ok(Some(address))
    }

    /// Resolves a tags code (`ConsumeQueue.getExt`); an address without a unit is unreadable.
    pub fn resolve(&self, tags_code: i64) -> Result<TagsCode> {
        let Some(offset) = consume_queue_ext::offset_of(tags_code) else {
            return Ok(TagsCode::Known(tags_code));
        };
        let offset = offset_or_max(offset);
        if offset < self.units.start() || offset >= self.units.tail().end() {
            return Ok(TagsCode::Unreadable);
        }
        let unit = self.unit_at(offset)?;
        Ok(unit.map_or(TagsCode::Unreadable, |(tags_code, _)| TagsCode::Known(tags_code)))
    }

    /// Tags code and length of the unit at an offset; `None` if unreadable.
    fn unit_at(&self, offset: u64) -> Result<Option<(i64, u64)>> {
        // A unit does not cross files.
        let size = self.run().file_size();
        let room = to_usize(size - offset % size).min(MAX_UNIT_LEN);
        let mut block = vec![0; room.min(512)];
        loop {
            let read = self.units.read_at(&mut block, offset)?;
            match consume_queue_ext::read_unit(&block[..read]) {
                Ok(ExtFrame::Unit(unit, len)) => return Ok(Some((unit.tags_code, len as u64))),
                // Longer than most.
                Err(_) if read == block.len() && read < room => block.resize(room, 0),
                _ => return Ok(None),
            }
        }
    }

    fn unit_of(&self, entry: Option<CqUnit>) -> Result<Option<(u64, u64)>> {
        let offset = entry.and_then(|entry| consume_queue_ext::offset_of(entry.tags_code));
        let Some(offset) = offset.and_then(|offset| u64::try_from(offset).ok()) else {
            return Ok(None);
        };
        Ok(self.unit_at(offset)?.map(|(_, len)| (offset, offset + len)))
    }

    /// Truncates behind the unit of the queue's last entry
    /// (`ConsumeQueueExt.truncateByMaxAddress`).
    pub(crate) fn cut_behind(&self, last: Option<CqUnit>) -> Result<()> {
        if !self.writes {
            return Ok(());
        }
        match (last, self.unit_of(last)?) {
            (None, _) => self.units.cut(0),
            (Some(_), Some((_, end))) => self.units.cut(end),
            (Some(_), None) => Ok(()),
        }
    }

    /// Deletes files before the unit of the queue's first entry
    /// (`ConsumeQueueExt.truncateByMinAddress`).
    pub(crate) fn delete_before(&self, first: Option<CqUnit>) -> Result<()> {
        let Some((begin, _)) = self.unit_of(first)? else { return Ok(()) };
        while self
            .run()
            .files()
            .first()
            .is_some_and(|file| file.base_offset.saturating_add(self.run().file_size()) <= begin)
            && self.run().remove_first()?.is_some()
        {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Access, Os};
    use crate::format::queue::consume_queue::QueueEntry;
    use std::path::Path;
    use std::sync::Arc;

    fn sized(dir: &Path, size: u64, writes: bool) -> ConsumeQueueExt {
        let dirs = vec![dir.to_owned()];
        let (run, _) =
            FileRun::load(Arc::new(Os), Arc::default(), dirs, size, Access::ReadWrite).unwrap();
        ConsumeQueueExt::load(run, writes).unwrap()
    }

    fn ext(dir: &Path, writes: bool) -> ConsumeQueueExt {
        sized(dir, 130, writes)
    }

    fn entry(tags_code: i64) -> Option<CqUnit> {
        Some(CqUnit::plain(0, QueueEntry { physical_offset: 0, store_size: 1, tags_code }))
    }

    #[test]
    fn a_unit_does_not_cross_files_and_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = ext(dir.path(), true);
        let mut addresses: Vec<_> = (0..10).map(|code| first.put(code, 1000 + code)).collect();
        assert_eq!(addresses[6], i64::MIN + 130);
        assert_eq!(first.resolve(addresses[9]).unwrap(), TagsCode::Known(9));
        first.units.flush().unwrap();
        let bytes = std::fs::read(dir.path().join("00000000000000000000")).unwrap();
        assert_eq!(bytes[120..], [0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0]);
        let again = ext(dir.path(), true);
        addresses.push(again.put(10, 1010));
        assert_eq!(addresses[10], i64::MIN + 130 + 80);
        for (code, &address) in (0..).zip(&addresses) {
            assert_eq!(again.resolve(address).unwrap(), TagsCode::Known(code));
        }
    }

    #[test]
    fn hq07_an_address_outside_of_the_extension_is_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        let ext = ext(dir.path(), true);
        assert_eq!(ext.resolve(i64::MIN).unwrap(), TagsCode::Unreadable);
        let address = ext.put(7, 1);
        for wrong in [1, 19, 20, 130, 1 << 40, consume_queue_ext::MAX_OFFSET] {
            assert_eq!(ext.resolve(i64::MIN + wrong).unwrap(), TagsCode::Unreadable, "{wrong}");
        }
        assert_eq!(ext.resolve(address).unwrap(), TagsCode::Known(7));
        for plain in [0, -1, i64::from(i32::MIN), i64::MAX] {
            assert_eq!(ext.resolve(plain).unwrap(), TagsCode::Known(plain));
        }
    }

    #[test]
    fn a_unit_that_is_not_written_keeps_its_code() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ext(dir.path(), false).put(7, 1), 7);
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }

    #[test]
    fn cut_units_do_not_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let first = ext(dir.path(), true);
        let addresses: Vec<_> = (0..10).map(|code| first.put(code, 1)).collect();
        first.units.flush().unwrap();
        first.cut_behind(entry(addresses[2])).unwrap();
        assert_eq!(first.resolve(addresses[3]).unwrap(), TagsCode::Unreadable);
        assert_eq!(first.resolve(addresses[2]).unwrap(), TagsCode::Known(2));
        first.units.flush().unwrap();
        assert_eq!(ext(dir.path(), true).put(3, 1), addresses[3]);
    }

    #[test]
    fn a_unit_without_an_entry_is_cut_and_one_that_may_be_needed_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let first = ext(dir.path(), true);
        let addresses: Vec<_> = (0..10).map(|code| first.put(code, 1)).collect();
        // The last entry has no unit, so the end is unknown.
        first.cut_behind(entry(77)).unwrap();
        assert_eq!(first.resolve(addresses[9]).unwrap(), TagsCode::Known(9));
        first.units.flush().unwrap();
        let reader = ext(dir.path(), false);
        reader.cut_behind(None).unwrap();
        assert_eq!(reader.resolve(addresses[9]).unwrap(), TagsCode::Known(9));
        first.cut_behind(None).unwrap();
        assert_eq!(first.resolve(addresses[0]).unwrap(), TagsCode::Unreadable);
        assert_eq!(first.put(8, 1), addresses[0]);
    }

    #[test]
    fn files_before_the_first_entry_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let first = ext(dir.path(), true);
        let addresses: Vec<_> = (0..20).map(|code| first.put(code, 1)).collect();
        first.units.flush().unwrap();
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(files(), 4);
        for stays in [None, entry(77), entry(addresses[5])] {
            first.delete_before(stays).unwrap();
            assert_eq!(files(), 4);
        }
        first.delete_before(entry(addresses[12])).unwrap();
        assert_eq!(files(), 2);
        assert_eq!(first.resolve(addresses[11]).unwrap(), TagsCode::Unreadable);
        assert_eq!(first.resolve(addresses[12]).unwrap(), TagsCode::Known(12));
        let next = ext(dir.path(), true).put(20, 1);
        assert_eq!(next, addresses[19] + 20);
    }

    #[test]
    fn units_end_where_one_is_damaged() {
        for (damage, end) in [(vec![0, 7], 40), (vec![0x7F, 0xFF], 40), (vec![0xFF, 0xFE], 40)] {
            let dir = tempfile::tempdir().unwrap();
            let mut bytes = vec![0; 260];
            let unit = ExtUnit { tags_code: 5, store_timestamp_ms: 1, bitmap: &[] };
            for at in [0, 20] {
                bytes[at..at + 20].copy_from_slice(&unit.encode().unwrap());
            }
            bytes[40..42].copy_from_slice(&damage);
            std::fs::write(dir.path().join(format!("{:020}", 0)), &bytes[..130]).unwrap();
            let found = ext(dir.path(), true);
            assert_eq!(found.resolve(i64::MIN + 20).unwrap(), TagsCode::Known(5));
            assert_eq!(found.resolve(i64::MIN + 40).unwrap(), TagsCode::Unreadable);
            assert_eq!(found.put(6, 1), i64::MIN + end, "{damage:?}");

            // Behind a whole file the end is the next file's beginning.
            bytes[40..42].copy_from_slice(&END);
            std::fs::write(dir.path().join(format!("{:020}", 0)), &bytes[..130]).unwrap();
            let mut second = vec![0; 130];
            second[..2].copy_from_slice(&damage);
            std::fs::write(dir.path().join(format!("{:020}", 130)), second).unwrap();
            assert_eq!(ext(dir.path(), true).put(6, 1), i64::MIN + 130, "{damage:?}");
        }
    }

    #[test]
    fn long_units_and_long_files_are_read_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let bitmap = vec![3; 700];
        let unit = ExtUnit { tags_code: 5, store_timestamp_ms: 1, bitmap: &bitmap };
        let mut bytes = unit.encode().unwrap();
        bytes.resize(100_000, 0);
        std::fs::write(dir.path().join(format!("{:020}", 0)), &bytes).unwrap();
        let first = sized(dir.path(), 100_000, true);
        assert_eq!(first.resolve(i64::MIN).unwrap(), TagsCode::Known(5));
        let last = (0..4000).map(|code| first.put(code, 1)).last();
        assert_eq!(last, Some(i64::MIN + 720 + 3999 * 20));
        first.units.flush().unwrap();
        let again = sized(dir.path(), 100_000, true).put(1, 1);
        assert_eq!(again, i64::MIN + 720 + 4000 * 20);
    }

    #[test]
    fn an_entry_keeps_its_code_where_no_unit_fits_into_a_file() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(sized(dir.path(), 23, true).put(7, 1), 7);
        assert_eq!(sized(dir.path(), 24, true).put(7, 1), i64::MIN);
    }
}

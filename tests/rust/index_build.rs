//! An index that is made while the disk fails: durable once it was made, or an error says why not.

use std::path::Path;
use std::sync::Arc;

use mqstore::format::index::IndexLayout;
use mqstore::log::IndexBuilder;
use mqstore::log::index::file::{IndexFile, RESERVE_STEP};
use mqstore::time::FixedClock;

use crate::support::START_MS;
use crate::support::disk::Disk;
use crate::support::power_cut::contents;
use crate::support::scratch;
use crate::support::storage::{Call, Staged};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Makes an index of several files, each of several pages and flushed early too where that is asked for.
fn make(disk: &Arc<Disk>, flush_every: Option<usize>) -> mqstore::Result<u64> {
    let layout = IndexLayout::new(7, 1_000).unwrap();
    let clock = Arc::new(FixedClock::new(START_MS));
    let builder = IndexBuilder::new(disk.storage(), Path::new("/index"), layout, clock)?;
    let mut builder = match flush_every {
        Some(bytes) => builder.flush_every(bytes),
        None => builder,
    };
    for number in 0..2_500 {
        builder.put(number * 100, START_MS + number * 1000, &[number as i32 % 31])?;
    }
    builder.finish().map(|made| made.files)
}

#[test]
fn an_index_is_durable_once_it_was_made_or_an_error_is_told() {
    for flush_every in [None, Some(1)] {
        for call in 1.. {
            let disk = Disk::new();
            disk.fail(call, EIO);
            let made = make(&disk, flush_every);
            if let Ok(files) = &made {
                assert_eq!(*files, 3);
                disk.cut("made");
                let (least, now) = (disk.take_cuts().pop().unwrap().least(), disk.image());
                assert!(contents(&least) == contents(&now), "call {call}: {:?}", disk.failed());
            }
            if disk.failed().is_none() {
                assert!(made.is_ok() && call > 10, "{made:?}");
                break;
            }
        }
    }
}

#[test]
fn a_key_without_room_on_the_disk_is_an_error_and_goes_in_once_there_is() {
    let (staged, dir) = (Staged::new(), scratch());
    let layout = IndexLayout::new(7, 200_000).unwrap();
    let path = dir.path().join("20231001000000000");
    let mut file = IndexFile::create(&*staged.storage(), &path, layout, None).unwrap();
    staged.fail(Call::Reserve, "", 0, ENOSPC);
    let fitting = (RESERVE_STEP as i64 - 40 - 4 * 7) / 20 - 1;
    for number in 0..fitting {
        assert!(file.put_key(7, number, START_MS).unwrap());
    }
    assert!(file.put_key(7, fitting, START_MS).is_err());
    staged.heal();
    assert!(file.put_key(7, fitting, START_MS).unwrap());
    assert_eq!(i64::from(file.header().unwrap().index_count), fitting + 2);
}

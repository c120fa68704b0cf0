//! A file of the simulated disk: what it holds, when it was changed, and what of that is safe.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Unit that a disk writes atomically.
pub(crate) const SECTOR: usize = 512;
/// Unit of writeback.
pub(crate) const PAGE: usize = 4096;

static ZEROS: [u8; PAGE] = [0; PAGE];

pub(crate) type Cells = Arc<[AtomicU8]>;

/// A file as it is found on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kept {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) inode: u64,
    pub(crate) changed_ns: i64,
}

/// The clock that files are stamped with: what changes within one of its ticks has the same time.
#[derive(Debug)]
pub(crate) struct FileClock {
    now_ns: AtomicI64,
    calls: AtomicU64,
    calls_a_tick: AtomicU64,
}

impl FileClock {
    const TICK_NS: i64 = 4_000_000;

    /// One that goes on after `newest_ns`.
    pub(crate) fn after(newest_ns: i64) -> Arc<Self> {
        let now_ns = AtomicI64::new(newest_ns + Self::TICK_NS);
        Arc::new(Self { now_ns, calls: AtomicU64::new(0), calls_a_tick: AtomicU64::new(2) })
    }

    /// After how many calls that change something the next tick comes.
    pub(crate) fn tick_every(&self, calls: u64) {
        self.calls_a_tick.store(calls, Ordering::SeqCst);
    }

    /// One call that changes something.
    pub(crate) fn count(&self) {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if calls.is_multiple_of(self.calls_a_tick.load(Ordering::SeqCst)) {
            self.now_ns.fetch_add(Self::TICK_NS, Ordering::SeqCst);
        }
    }

    fn now_ns(&self) -> i64 {
        self.now_ns.load(Ordering::SeqCst)
    }
}

/// A file, whatever it is called.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) id: u64,
    cells: Mutex<Cells>,
    pub(crate) links: AtomicU64,
    pub(crate) locked: AtomicBool,
    clock: Arc<FileClock>,
    written: Mutex<Written>,
}

/// Possible states of a file after a power cut.
#[derive(Debug, Default)]
struct Written {
    /// The durable state, then each state since the last flush, as whole files.
    versions: Vec<Arc<[u8]>>,
    /// When it was changed: the time that is safe, then each since. A flush of the file alone need not
    /// make a time durable.
    times: Vec<i64>,
    /// Pages that were written since the last flush: what a map writes there moves no time any more.
    dirty: BTreeSet<usize>,
    /// Pages when their flush failed: while they are unchanged and nobody writes them
    /// again, they never reach the disk.
    forgotten: BTreeMap<usize, Vec<u8>>,
}

impl Inode {
    pub(crate) fn new(id: u64, len: usize, clock: &Arc<FileClock>) -> Arc<Self> {
        let times = vec![clock.now_ns()];
        Arc::new(Self {
            id,
            clock: Arc::clone(clock),
            cells: Mutex::new(cells(&vec![0; len])),
            links: AtomicU64::new(1),
            locked: AtomicBool::new(false),
            written: Mutex::new(Written {
                versions: vec![Arc::from([])],
                times,
                ..Written::default()
            }),
        })
    }

    /// One whose bytes and time are safe.
    pub(crate) fn of(kept: &Kept, clock: &Arc<FileClock>) -> Arc<Self> {
        let inode = Self::new(kept.inode, 0, clock);
        inode.replace(&kept.bytes);
        {
            let mut written = inode.written.lock().unwrap();
            written.versions = vec![Arc::clone(&kept.bytes)];
            written.times = vec![kept.changed_ns];
        }
        inode
    }

    /// The state that a process finds.
    pub(crate) fn kept(&self) -> Kept {
        Kept { bytes: self.bytes().into(), inode: self.id, changed_ns: self.changed_ns() }
    }

    /// When it was changed last.
    pub(crate) fn changed_ns(&self) -> i64 {
        self.observe();
        *self.written.lock().unwrap().times.last().unwrap()
    }

    /// Says that it was changed, in whatever way.
    pub(crate) fn touch(&self) {
        self.written.lock().unwrap().touch(self.clock.now_ns());
    }

    pub(crate) fn cells(&self) -> Cells {
        Arc::clone(&self.cells.lock().unwrap())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.cells().iter().map(|cell| cell.load(Ordering::Relaxed)).collect()
    }

    /// Notes what the file is now, where that is new.
    pub(crate) fn observe(&self) {
        let now = self.bytes();
        let mut written = self.written.lock().unwrap();
        let last = Arc::clone(written.versions.last().unwrap());
        if *last == *now {
            return;
        }
        let mut is_verified = false;
        for (number, page) in now.chunks(PAGE).enumerate() {
            let before = last.get(number * PAGE..).unwrap_or_default().iter().chain(&ZEROS);
            if page.iter().zip(before).any(|(new, old)| new != old) {
                is_verified |= written.dirty.insert(number);
            }
        }
        if is_verified {
            written.touch(self.clock.now_ns());
        }
        written.versions.push(now.into());
    }

    /// Everything is safe, the time too.
    pub(crate) fn settled(&self) {
        self.observe();
        self.flushed(0..usize::MAX);
        let times = &mut self.written.lock().unwrap().times;
        times.drain(..times.len() - 1);
    }

    /// The pages of a range are safe, and the length; those beside it may still be found as they were
    /// at any time since they were flushed.
    pub(crate) fn flushed(&self, range: Range<usize>) {
        let mut now = self.bytes();
        let from = (range.start / PAGE * PAGE).min(now.len());
        let to = range.end.div_ceil(PAGE).saturating_mul(PAGE).min(now.len());
        let mut written = self.written.lock().unwrap();
        let safe = Arc::clone(&written.versions[0]);
        written.forgotten.retain(|at, page| {
            if !(from..to).contains(at) {
                return true;
            }
            let end = (*at + page.len()).min(now.len());
            let same = now[*at..end] == **page;
            if same {
                for (position, byte) in now[*at..end].iter_mut().enumerate() {
                    *byte = safe.get(at + position).copied().unwrap_or(0);
                }
            }
            same
        });
        for version in &mut written.versions {
            let mut bytes = version.to_vec();
            bytes.resize(now.len(), 0);
            bytes[from..to].copy_from_slice(&now[from..to]);
            *version = bytes.into();
        }
        written.versions.dedup();
        written.dirty.retain(|page| !(from..to).contains(&(page * PAGE)));
    }

    /// Says that bytes were written by a call: their pages are the disk's business again.
    pub(crate) fn wrote(&self, from: usize, len: usize) {
        self.touch();
        let mut written = self.written.lock().unwrap();
        written.forgotten.retain(|at, page| *at >= from + len || at + page.len() <= from);
        drop(written);
        self.observe();
    }

    /// Other bytes, of any length.
    pub(crate) fn replace(&self, bytes: &[u8]) {
        *self.cells.lock().unwrap() = cells(bytes);
    }

    /// The durable state, then each state since; and the times likewise.
    pub(crate) fn states(&self) -> (Vec<Arc<[u8]>>, Vec<i64>) {
        let written = self.written.lock().unwrap();
        (written.versions.clone(), written.times.clone())
    }

    pub(crate) fn flush_failed(&self) {
        let now = self.bytes();
        let mut written = self.written.lock().unwrap();
        let safe = Arc::clone(&written.versions[0]);
        for (number, page) in now.chunks(PAGE).enumerate() {
            let at = number * PAGE;
            if safe.get(at..at + page.len()) != Some(page) {
                written.forgotten.insert(at, page.to_vec());
            }
        }
        written.dirty.clear();
    }
}

impl Written {
    fn touch(&mut self, now_ns: i64) {
        if self.times.last() != Some(&now_ns) {
            self.times.push(now_ns);
        }
    }
}

pub(crate) fn cells(bytes: &[u8]) -> Cells {
    bytes.iter().map(|byte| AtomicU8::new(*byte)).collect()
}

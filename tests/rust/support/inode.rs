//! A file of the simulated disk: what it holds, and what of it is safe.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What a disk writes at once, whatever happens.
pub(crate) const SECTOR: usize = 512;
/// What the system writes back at once.
pub(crate) const PAGE: usize = 4096;

pub(crate) type Cells = Arc<[AtomicU8]>;

/// A file, whatever it is called.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) id: u64,
    cells: Mutex<Cells>,
    pub(crate) links: AtomicU64,
    pub(crate) locked: AtomicBool,
    written: Mutex<Written>,
}

/// What may be found of a file after a power cut.
#[derive(Debug, Default)]
struct Written {
    /// What is safe, then each state since the last flush, all of them whole files.
    versions: Vec<Arc<[u8]>>,
    /// What pages were when a flush of them failed: while they are the same and nobody writes them
    /// again, they never reach the disk.
    forgotten: BTreeMap<usize, Vec<u8>>,
}

impl Inode {
    pub(crate) fn new(id: u64, len: usize) -> Arc<Self> {
        Arc::new(Self {
            id,
            cells: Mutex::new(cells(&vec![0; len])),
            links: AtomicU64::new(1),
            locked: AtomicBool::new(false),
            written: Mutex::new(Written { versions: vec![Arc::from([])], ..Written::default() }),
        })
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
        if written.versions.last().is_none_or(|last| **last != *now) {
            written.versions.push(now.into());
        }
    }

    pub(crate) fn flushed(&self) {
        let mut now = self.bytes();
        let mut written = self.written.lock().unwrap();
        let safe = Arc::clone(&written.versions[0]);
        written.forgotten.retain(|at, page| {
            let end = (*at + page.len()).min(now.len());
            let same = now[*at..end] == **page;
            if same {
                for (position, byte) in now[*at..end].iter_mut().enumerate() {
                    *byte = safe.get(at + position).copied().unwrap_or(0);
                }
            }
            same
        });
        written.versions = vec![now.into()];
    }

    /// Says that bytes were written: their pages are the disk's business again.
    pub(crate) fn wrote(&self, from: usize, len: usize) {
        let mut written = self.written.lock().unwrap();
        written.forgotten.retain(|at, page| *at >= from + len || at + page.len() <= from);
        drop(written);
        self.observe();
    }

    /// Other bytes, of any length.
    pub(crate) fn replace(&self, bytes: &[u8]) {
        *self.cells.lock().unwrap() = cells(bytes);
    }

    /// Lets the file hold `bytes`, safely.
    pub(crate) fn set_safe(&self, bytes: &Arc<[u8]>) {
        self.replace(bytes);
        self.written.lock().unwrap().versions = vec![Arc::clone(bytes)];
    }

    /// What is safe, then each state since.
    pub(crate) fn versions(&self) -> Vec<Arc<[u8]>> {
        self.written.lock().unwrap().versions.clone()
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
    }
}

pub(crate) fn cells(bytes: &[u8]) -> Cells {
    bytes.iter().map(|byte| AtomicU8::new(*byte)).collect()
}

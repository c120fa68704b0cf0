//! Files of one name in two folders of a log.

use std::path::PathBuf;
use std::sync::Arc;

use super::open_files::RunFile;
use crate::error::{CorruptionKind, Error, Result};
use crate::files::system::storage::{Access, Storage};

const BLOCK: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Twin {
    pub(super) read: Arc<RunFile>,
    pub other: PathBuf,
    pub(super) other_inode: u64,
    /// Where both have bytes that differ; otherwise the file that is read has all bytes of the other.
    pub differs_at: Option<u64>,
}

impl Twin {
    /// Compares two files; one lacks what stands behind its last byte that is not zero.
    pub(super) fn compare(
        storage: &dyn Storage,
        first: &Arc<RunFile>,
        second: &Arc<RunFile>,
    ) -> Result<Self> {
        let files = [first, second];
        let mut open = Vec::new();
        for file in files {
            let opened = storage.open(&file.path, Access::Read);
            open.push(opened.map_err(Error::io("open", &file.path))?);
        }
        // Where the bytes differ first, and of which file only zeros may follow.
        let mut differs: Option<(u64, usize)> = None;
        let (mut other_bytes, mut goes_on) = (0_u64, false);
        let mut blocks = [vec![0; BLOCK], vec![0; BLOCK]];
        let mut at = 0;
        while !goes_on {
            let mut next = None;
            for (open, file) in open.iter().zip(files) {
                let data = open.next_data(at).map_err(Error::io("read", &file.path))?;
                next = [next, data].into_iter().flatten().min();
            }
            let Some(begin) = next else { break };
            for ((open, file), block) in open.iter().zip(files).zip(&mut blocks) {
                let read = open.read_at(block, begin).map_err(Error::io("read", &file.path))?;
                block.get_mut(read..).unwrap_or_default().fill(0);
            }
            at = begin.saturating_add(BLOCK as u64);
            let [one, two] = &blocks;
            if one == two && differs.is_none() {
                continue;
            }
            for (position, (one, two)) in (begin..).zip(one.iter().zip(two)) {
                if one != two {
                    differs.get_or_insert((position, usize::from(*one != 0)));
                    other_bytes += 1;
                }
                goes_on |=
                    differs.is_some_and(|(_, shorter)| if shorter == 0 { *one } else { *two } != 0);
            }
        }
        // One byte is no message: it was damaged in one of them.
        let is_conflict = goes_on || other_bytes == 1;
        let differs_at = differs.map(|(at, _)| at).filter(|_| is_conflict);
        let first_is_shorter = matches!(differs, Some((_, 0))) && !is_conflict;
        let (read, other) = if first_is_shorter { (second, first) } else { (first, second) };
        let (other, other_inode) = (other.path.clone(), other.inode);
        Ok(Self { read: Arc::clone(read), other, other_inode, differs_at })
    }

    pub(super) fn is_of(&self, one: &RunFile, two: &RunFile) -> bool {
        let is_so = |read: &RunFile, other: &RunFile| {
            self.read.id == read.id && self.other == other.path && self.other_inode == other.inode
        };
        is_so(one, two) || is_so(two, one)
    }

    #[must_use]
    pub fn expected(&self) -> String {
        format!(
            "one file of this name in the folders of the log; {} is another",
            self.read.path.display()
        )
    }

    #[must_use]
    pub fn found(&self) -> String {
        match self.differs_at {
            None => "no byte that the other lacks, and the other is read".to_owned(),
            Some(at) => format!(
                "other bytes from byte {at} on; nothing was changed: move the file that is not this log's \
                 out of the folder; `mqstore salvage` copies the messages of both"
            ),
        }
    }
}

impl From<&Twin> for Error {
    fn from(twin: &Twin) -> Self {
        let at = twin.differs_at.unwrap_or(0);
        Self::corrupt(&twin.other, at, CorruptionKind::FileName, twin.expected(), twin.found())
    }
}

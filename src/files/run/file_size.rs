//! File size of a run, detected from the files.

use std::sync::Arc;

use super::open_files::RunFile;

/// Detects the size; `None` without files or if all are empty.
#[must_use]
pub fn file_size_of(files: &[Arc<RunFile>]) -> Option<u64> {
    let mut votes = Votes::default();
    for file in files.iter().filter(|file| file.len > 0) {
        votes.add(file.len);
    }
    // Names of neighbours tell the size, even if one was truncated.
    for pair in files.windows(2) {
        if let [a, b] = pair {
            votes.add(b.base_offset.saturating_sub(a.base_offset));
        }
    }
    votes.winner()
}

/// Votes for sizes; the first of equals wins.
#[derive(Default)]
pub(crate) struct Votes(Vec<(u64, usize)>);

impl Votes {
    /// Maximum number of distinct sizes; a valid store has one.
    const MOST: usize = 64;

    pub(crate) fn add(&mut self, size: u64) {
        let room = size > 0 && self.0.len() < Self::MOST;
        match self.0.iter_mut().find(|(known, _)| *known == size) {
            Some((_, count)) => *count += 1,
            None if room => self.0.push((size, 1)),
            None => {}
        }
    }

    pub(crate) fn winner(&self) -> Option<u64> {
        let most = self.0.iter().map(|(_, count)| *count).max()?;
        self.0.iter().find(|(_, count)| *count == most).map(|(size, _)| *size)
    }
}

//! An iterator over messages of a log.

use std::sync::{Mutex, PoisonError};
use std::thread;

use pyo3::prelude::*;

use crate::error::Result;
use crate::store::scan::Scan;

use super::records_ahead::{Piece, RecordsAhead, Source};
use super::stored::StoredMessage;

/// A scan is worth a thread when so many pieces were taken, and so many bytes are left.
const TAKEN: usize = 2;
const LONG: u64 = 8 << 20;

/// An iterator over messages.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct MessageScan {
    source: Source,
    stop: u64,
    state: Mutex<State>,
}

struct State {
    reader: Reader,
    /// How many pieces were read, and the last of them.
    pieces: usize,
    piece: Piece,
    /// Where the one given last ends.
    given_to: u64,
}

/// Who reads.
enum Reader {
    Here(Box<Scan>),
    Ahead(RecordsAhead),
}

impl MessageScan {
    pub(super) fn new(source: Source, scan: Scan) -> Self {
        let stop = scan.stop_physical_offset();
        let piece = Piece::before(&scan);
        let given_to = piece.progress.physical_offset;
        let state = State { reader: Reader::Here(Box::new(scan)), pieces: 0, piece, given_to };
        Self { source, stop, state: Mutex::new(state) }
    }

    fn look<T>(&self, py: Python<'_>, look: impl FnOnce(&State) -> T + Send) -> T
    where
        T: Send,
    {
        // Another thread may read ahead with the lock taken and want the interpreter next.
        py.detach(|| look(&self.state.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl State {
    /// The next record, which must have been read ahead.
    fn take(&mut self) -> Option<Box<[u8]>> {
        let (end, record) = self.piece.take()?;
        self.given_to = end;
        Some(record)
    }

    fn next(&mut self, source: &Source) -> Result<Option<Box<[u8]>>> {
        if self.piece.is_empty()
            && self.piece.take_more()?
            && let Some(piece) = self.read(source)?
        {
            self.piece = piece;
            if self.piece.is_empty() {
                self.piece.take_more()?;
            }
        }
        Ok(self.take())
    }

    fn read(&mut self, source: &Source) -> Result<Option<Piece>> {
        self.pieces += 1;
        if self.pieces == TAKEN
            && let Reader::Here(scan) = &self.reader
            && scan.stop_physical_offset().saturating_sub(scan.physical_offset()) >= LONG
            && thread::available_parallelism().is_ok_and(|threads| threads.get() > 1)
            // Without a thread it goes on here.
            && let Ok(ahead) = RecordsAhead::start(Scan::clone(scan), source.clone())
        {
            self.reader = Reader::Ahead(ahead);
        }
        match &mut self.reader {
            Reader::Here(scan) => Ok(Some(Piece::read(scan, source))),
            Reader::Ahead(ahead) => ahead.next(source),
        }
    }
}

#[pymethods]
impl MessageScan {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<StoredMessage>> {
        if let Ok(mut state) = self.state.try_lock()
            && let Some(record) = state.take()
        {
            return Ok(Some(record.into()));
        }
        let next = py.detach(|| {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).next(&self.source)
        })?;
        Ok(next.map(StoredMessage::from))
    }

    #[getter]
    fn physical_offset(&self, py: Python<'_>) -> u64 {
        self.look(py, |state| {
            if state.piece.is_empty() {
                state.piece.progress.physical_offset
            } else {
                state.given_to
            }
        })
    }

    #[getter]
    fn stop_physical_offset(&self) -> u64 {
        self.stop
    }

    #[getter]
    fn skipped_ranges(&self, py: Python<'_>) -> u64 {
        self.look(py, |state| state.piece.progress.skipped_ranges)
    }

    #[getter]
    fn skipped_bytes(&self, py: Python<'_>) -> u64 {
        self.look(py, |state| state.piece.progress.skipped_bytes)
    }
}

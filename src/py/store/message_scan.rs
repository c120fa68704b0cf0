//! Iterates over messages of a log.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::error::Result;
use crate::format::width::at_least_0;
use crate::log::CommitLog;
use crate::log::read::scanner::Flow;
use crate::store::MessageStore;
use crate::store::read::scan::Scan;

use super::stored::{Record, StoredMessage};
use crate::py::signals::Signals;

pub(crate) enum Source {
    Store(Arc<MessageStore>),
    Log(Arc<CommitLog>),
}

impl Source {
    fn log(&self) -> Result<&CommitLog> {
        match self {
            Self::Store(store) => store.check_open().map(|()| store.log()),
            Self::Log(log) => Ok(log),
        }
    }
}

/// Bytes and messages taken from a read at a time, small enough for the cache.
const AHEAD: (usize, usize) = (32 << 10, 64);

/// An iterator over messages; made by ``Store.scan`` and ``CommitLog.scan``.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct MessageScan {
    source: Source,
    stop: u64,
    signals: Arc<Signals>,
    state: Mutex<State>,
}

struct State {
    scan: Scan,
    /// Records read ahead, with their ends.
    ready: VecDeque<(u64, Record)>,
    /// End of the last record returned.
    given_to: u64,
    more: bool,
}

impl MessageScan {
    pub(crate) fn new(source: Source, scan: Scan) -> Self {
        let stop = scan.stop_physical_offset();
        let signals = Signals::new();
        let scan = scan.halting(signals.halt());
        let given_to = scan.physical_offset();
        let state = State { scan, ready: VecDeque::new(), given_to, more: true };
        Self { source, stop, signals, state: Mutex::new(state) }
    }

    fn look<T>(&self, py: Python<'_>, look: impl FnOnce(&State) -> T + Send) -> T
    where
        T: Send,
    {
        // Another thread may hold this lock and want the interpreter.
        py.detach(|| look(&self.state.lock()))
    }
}

impl State {
    /// Takes a record that was read ahead.
    fn take(&mut self) -> Option<Record> {
        let (end, record) = self.ready.pop_front()?;
        self.given_to = end;
        Some(record)
    }

    fn next(&mut self, source: &Source) -> Result<Option<Record>> {
        if self.ready.is_empty() && self.more {
            let log = source.log()?;
            let Self { scan, ready, .. } = self;
            let mut bytes = 0;
            let outcome = scan.run(log, |view, _| {
                bytes += view.as_bytes().len();
                // The scan checked that the record stores its own offset.
                let at = at_least_0(view.physical_offset());
                ready.push_back((
                    at + u64::from(view.store_size()),
                    Record::copied(view.as_bytes()),
                ));
                let full = bytes >= AHEAD.0 || ready.len() >= AHEAD.1;
                Ok(if full { Flow::Stop } else { Flow::Continue })
            });
            match outcome {
                Ok(more) => self.more = more,
                // Records before the damage come first; then it is met again.
                Err(_) if !self.ready.is_empty() => {}
                Err(error) => {
                    self.more = false;
                    return Err(error);
                }
            }
        }
        Ok(self.take())
    }
}

#[pymethods]
impl MessageScan {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<StoredMessage>> {
        if let Some(mut state) = self.state.try_lock()
            && let Some(record) = state.take()
        {
            return Ok(Some(record.into()));
        }
        self.signals.is_called();
        let next = py.detach(|| self.state.lock().next(&self.source))?;
        match next {
            Some(record) => Ok(Some(record.into())),
            None => self.signals.check().map(|()| None),
        }
    }

    /// How far the scan has come: behind what it gave or skipped last.
    #[getter]
    fn physical_offset(&self, py: Python<'_>) -> u64 {
        self.look(py, |state| {
            if state.ready.is_empty() { state.scan.physical_offset() } else { state.given_to }
        })
    }

    /// Where the scan ends.
    #[getter]
    fn stop_physical_offset(&self) -> u64 {
        self.stop
    }

    /// How many damaged ranges were skipped so far (``on_error="skip"``).
    #[getter]
    fn skipped_ranges(&self, py: Python<'_>) -> u64 {
        self.look(py, |state| state.scan.skipped_ranges())
    }

    /// How many bytes these had.
    #[getter]
    fn skipped_bytes(&self, py: Python<'_>) -> u64 {
        self.look(py, |state| state.scan.skipped_bytes())
    }
}

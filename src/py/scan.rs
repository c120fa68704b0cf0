//! Rows as Arrow streams by the PyCapsule protocol.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_schema::{ArrowError, Field, SchemaRef};
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyCapsule, PyDict, PyString};
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};
use pyo3_arrow::{PyRecordBatch, PySchema};

use crate::columns::{
    BatchBuilder, BatchError, BatchLimits, BatchesAhead, Column, MessageBatches, makers,
    schema_like, schema_of,
};
use crate::error::Error;
use crate::py::arguments::{shown, value_error};
use crate::store::LogSource;
use crate::store::progress::Halt;
use crate::store::read::scan::{OnDamage, Scan};

use crate::py::fields;
use crate::py::process::{Signals, drop_aside};
use crate::py::store::Store;
use crate::py::store::exporting::lines;
use crate::py::store::reading::{bound, name_missing, on_damage, scan_filter};

/// An Arrow schema, for anything that takes ``__arrow_c_schema__``.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct ArrowSchema(SchemaRef);

impl ArrowSchema {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self(schema)
    }
}

#[pymethods]
impl ArrowSchema {
    /// Names of the columns, in order.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.0.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// The schema as a capsule of the Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.0.as_ref())?)
    }

    fn __len__(&self) -> usize {
        self.0.fields().len()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        let fields: Vec<_> = self
            .0
            .fields()
            .iter()
            .map(|field| format!("{}: {}", field.name(), field.data_type()))
            .collect();
        format!("ArrowSchema({})", fields.join(", "))
    }
}

pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, BatchError>> + Send>;

type Open = dyn Fn(SchemaRef, &Halt) -> Result<Batches, BatchError> + Send + Sync;

/// Rows of a store as an Arrow stream, read anew by each consumer.
///
/// polars, DuckDB, pandas and pyarrow take it as it is. No file is open between two consumers.
#[pyclass(module = "mqstore", frozen)]
pub(crate) struct ArrowScan {
    schema: SchemaRef,
    /// Messages, whose columns can have view types.
    messages: Option<Arc<Messages>>,
    open: Box<Open>,
}

impl ArrowScan {
    /// `open` starts at the first row; long work ends early when the halt says so.
    pub(crate) fn new(
        schema: SchemaRef,
        open: impl Fn(SchemaRef, &Halt) -> Result<Batches, BatchError> + Send + Sync + 'static,
    ) -> Self {
        Self { schema, messages: None, open: Box::new(open) }
    }

    fn batches(&self, py: Python<'_>, give: Give) -> PyResult<BatchIterator> {
        let signals = Signals::new();
        let (schema, halt) = (Arc::clone(&self.schema), signals.halt());
        let batches = py.detach(|| (self.open)(schema, &halt)).map_err(exception)?;
        Ok(BatchIterator { batches: Mutex::new(Some(batches)), signals, give })
    }

    pub(crate) fn of_rows(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self::new(schema, move |_, _| Ok(Box::new(batches.clone().into_iter().map(Ok))))
    }

    pub(crate) fn of_messages(messages: Messages) -> Self {
        let (schema, messages) = (schema_of(&messages.columns), Arc::new(messages));
        let kept = Some(Arc::clone(&messages));
        let open = move |schema, halt: &_| messages.open(&schema, halt);
        Self { messages: kept, ..Self::new(schema, open) }
    }
}

#[pymethods]
impl ArrowScan {
    /// The columns that the stream has.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema(Arc::clone(&self.schema))
    }

    /// The schema as a capsule of the Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.schema.as_ref())?)
    }

    /// A new stream over all rows, as a capsule.
    ///
    /// Args:
    ///     requested_schema: A schema capsule; where it asks for view types (``string_view``,
    ///         ``binary_view``) the stream has them.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = match (requested_schema, &self.messages) {
            (Some(capsule), Some(messages)) => {
                let wanted = PySchema::from_arrow_pycapsule(capsule)?.into_inner();
                schema_like(&messages.columns, &wanted)
            }
            _ => Arc::clone(&self.schema),
        };
        let field = Field::new_struct("", schema.fields().clone(), false);
        // The consumer may have released the interpreter without our knowledge, so it must not
        // be asked for signals.
        let batches = py.detach(|| (self.open)(schema, &Halt::default())).map_err(exception)?;
        let stream = Stream { batches: Some(batches) };
        Ok(to_stream_pycapsule(py, Box::new(ArrayIterator::new(stream, Arc::new(field))), None)?)
    }

    /// All rows at once: a ``pyarrow.Table``.
    ///
    /// Raises:
    ///     ModuleNotFoundError: pyarrow is not installed.
    fn read_all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let reader = package(py, "pyarrow", "parquet")?.getattr("RecordBatchReader")?;
        let signals = Signals::new();
        let (schema, halt) = (Arc::clone(&self.schema), signals.halt());
        let read = py.detach(|| {
            let mut batches = (self.open)(Arc::clone(&schema), &halt)?;
            let mut read = Vec::new();
            while !signals.has_raised()
                && let Some(batch) = batches.next()
            {
                read.push(batch?);
            }
            Ok(read)
        });
        if let Some(raised) = signals.take() {
            drop_aside(read);
            return Err(raised);
        }
        let read = Self::of_rows(schema, read.map_err(exception)?);
        reader.call_method1("from_stream", (read,))?.call_method0("read_all")
    }

    /// All rows at once: a ``pyarrow.Table``, as ``read_all``.
    ///
    /// Raises:
    ///     ModuleNotFoundError: pyarrow is not installed.
    fn to_table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.read_all(py)
    }

    /// All rows at once: a ``pandas.DataFrame``.
    ///
    /// Raises:
    ///     ModuleNotFoundError: pyarrow or pandas is not installed.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        package(py, "pyarrow", "pandas")?;
        package(py, "pandas", "pandas")?;
        self.read_all(py)?.call_method0("to_pandas")
    }

    /// All rows at once: a ``polars.DataFrame``.
    ///
    /// Raises:
    ///     ModuleNotFoundError: polars is not installed.
    fn to_polars<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        package(slf.py(), "polars", "polars")?.call_method1("DataFrame", (&slf,))
    }

    /// Batches of rows, one at a time: each a ``pyarrow.RecordBatch``.
    ///
    /// Raises:
    ///     ModuleNotFoundError: pyarrow is not installed.
    fn __iter__(&self, py: Python<'_>) -> PyResult<BatchIterator> {
        package(py, "pyarrow", "parquet")?;
        self.batches(py, |py, batch| PyRecordBatch::new(batch).into_pyarrow(py))
    }

    /// Batches of the column ``record`` as lines of JSON.
    ///
    /// Each is a tuple of the lines, the number of messages, their bytes, and begin, length and
    /// reason of each damaged range.
    fn _json_lines(&self, py: Python<'_>) -> PyResult<BatchIterator> {
        self.batches(py, |py, batch| lines(py, &batch)?.into_bound_py_any(py))
    }

    /// The same scan, of messages with one of the keys, and at sorted physical offsets only.
    #[pyo3(signature = (keys, physical_offsets, verify_crc, /))]
    fn _narrowed(
        &self,
        keys: Option<Vec<String>>,
        physical_offsets: Option<Vec<u64>>,
        verify_crc: bool,
    ) -> Option<Self> {
        let mut messages = Messages::clone(self.messages.as_ref()?);
        if let Some(keys) = keys {
            messages.scan.take_keys(keys.into_iter().map(|key| key.into_bytes().into()).collect());
        }
        if let Some(offsets) = physical_offsets {
            let records = offsets.into_iter().map(|at| (at, 0)).collect();
            messages.scan = messages.scan.at(records).verifying(verify_crc);
        }
        Some(Self::of_messages(messages))
    }

    fn __repr__(&self) -> String {
        format!("<ArrowScan of {} columns>", self.schema.fields().len())
    }
}

/// Batches for a loop in Python. It raises the store's own errors, which a C stream cannot carry.
#[pyclass(module = "mqstore", frozen)]
struct BatchIterator {
    batches: Mutex<Option<Batches>>,
    signals: Arc<Signals>,
    give: Give,
}

type Give = for<'py> fn(Python<'py>, RecordBatch) -> PyResult<Bound<'py, PyAny>>;

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.signals.is_called();
        let next = py.detach(|| next_of(&mut self.batches.lock()));
        self.signals.check()?;
        next.map(|batch| (self.give)(py, batch.map_err(exception)?)).transpose()
    }
}

/// An optional package; the error names the extra of mqstore that has it.
fn package<'py>(py: Python<'py>, name: &str, extra: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import("mqstore.errors")?
        .call_method1("package", (name, extra))?
        .cast_into()
        .map_err(Into::into)
}

fn exception(error: BatchError) -> PyErr {
    match error {
        BatchError::Store(error) => error.into(),
        BatchError::Arrow(error) => PyValueError::new_err(error.to_string()),
    }
}

/// The next batch; drops what made them behind the last.
fn next_of(batches: &mut Option<Batches>) -> Option<Result<RecordBatch, BatchError>> {
    let next = batches.as_mut()?.next();
    if !matches!(next, Some(Ok(_))) {
        *batches = None;
    }
    next
}

struct Stream {
    batches: Option<Batches>,
}

impl Iterator for Stream {
    type Item = Result<ArrayRef, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(
            next_of(&mut self.batches)?
                .map(|batch| Arc::new(StructArray::from(batch)) as ArrayRef)
                .map_err(failed),
        )
    }
}

fn failed(error: BatchError) -> ArrowError {
    let error = match error {
        BatchError::Arrow(error) => return error,
        BatchError::Store(error) => error,
    };
    // A zero byte would end the C string.
    let text = error.to_string().replace('\0', "\\0");
    match &error {
        Error::Io { source, .. } => ArrowError::IoError(text, std::io::Error::from(source.kind())),
        _ => ArrowError::ExternalError(text.into()),
    }
}

#[derive(Clone)]
pub(crate) struct Messages {
    pub(crate) source: LogSource,
    pub(crate) scan: Scan,
    pub(crate) columns: Vec<Column>,
    pub(crate) limits: BatchLimits,
    pub(crate) decompress: bool,
    pub(crate) broker: Option<String>,
    /// Whether a row of damage names its message.
    pub(crate) names_damaged: bool,
    /// Maximum threads; `None` means one for each processor.
    pub(crate) threads: Option<usize>,
}

impl Messages {
    fn batches(&self, schema: &SchemaRef, scan: &Scan) -> Result<MessageBatches, BatchError> {
        let mut builder = BatchBuilder::new(&self.columns, Arc::clone(schema), self.limits)?;
        if let Some(broker) = &self.broker {
            builder = builder.of_broker(broker);
        }
        builder.undoes_body &= self.decompress;
        builder.damage.names_messages = self.names_damaged;
        Ok(MessageBatches::new(self.source.clone(), scan.clone(), builder))
    }

    fn open(&self, schema: &SchemaRef, halt: &Halt) -> Result<Batches, BatchError> {
        let log = self.source.log()?;
        let mut scan = self.scan.clone().halting(halt.clone());
        let bytes = scan.bytes();
        let threads = makers(bytes.end - bytes.start, self.threads);
        if threads == 0 {
            return Ok(Box::new(self.batches(schema, &scan)?));
        }
        scan.find_start(log)?;
        // One more than threads, for rebuilding parts.
        let batches = (0..=threads).map(|_| self.batches(schema, &scan));
        let batches = batches.collect::<Result<_, _>>()?;
        let part_bytes = self.limits.part_bytes(&self.columns);
        let reading = log.run().announce(scan.bytes());
        let ahead = BatchesAhead::start(batches, scan.bytes(), part_bytes, halt.clone())
            .map_err(Error::io("start a thread that reads", log.run().dir()))?;
        let calls_python = log.run().storage().is_remote();
        let mut ahead = Making { ahead: Some(ahead), calls_python };
        let source = self.source.clone();
        Ok(Box::new(std::iter::from_fn(move || {
            let _ = &reading;
            match source.log() {
                Ok(_) => ahead.ahead.as_mut()?.next(),
                Err(error) => Some(Err(error.into())),
            }
        })))
    }
}

/// Batches whose threads end with it.
struct Making {
    ahead: Option<BatchesAhead>,
    calls_python: bool,
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.calls_python {
            // Threads that wait for the interpreter would not end as long as this one holds it.
            let ahead = self.ahead.take();
            let _ = Python::try_attach(|py| py.detach(move || drop(ahead)));
        }
    }
}

pub(crate) fn named_columns(names: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Column>> {
    let Some(names) = names else { return Ok(Column::usual().collect()) };
    if names.is_instance_of::<PyString>() {
        return Err(value_error("columns", "a list of names", "str; write [\"body\"]"));
    }
    let (by_name, mut columns) = (Column::by_name, Vec::new());
    fields::each_text("columns", names, |name| {
        let Some(column) = by_name(name) else {
            let all = Column::names();
            let near = name.strip_suffix("_ms").filter(|name| by_name(name).is_some());
            let near = near.map_or_else(String::new, |name| format!("; its name is {name}"));
            let got = format!("{}{near}", shown(name));
            return Err(value_error("columns", format!("names of {all}"), got));
        };
        if columns.contains(&column) {
            return Err(value_error("columns", "each name once", format!("{name} twice")));
        }
        columns.push(column);
        Ok(())
    })?;
    Ok(columns)
}

pub(crate) fn limits(batch_rows: usize, batch_bytes: usize) -> PyResult<BatchLimits> {
    for (argument, value) in [("batch_rows", batch_rows), ("batch_bytes", batch_bytes)] {
        if value == 0 {
            return Err(value_error(argument, "1 or more", value));
        }
    }
    Ok(BatchLimits { rows: batch_rows, body_bytes: batch_bytes })
}

#[pymethods]
impl Store {
    /// Returns the messages of ``scan`` as Arrow record batches.
    ///
    /// A requested schema may ask for view types: bodies then stay where they were read, and are
    /// copied only where a batch would hold many times their size.
    ///
    /// A log of 16 MiB or more is read by up to four threads. They end when the stream is released.
    /// Rows keep the order of the log.
    ///
    /// Args:
    ///     columns: Names out of ``ARROW_SCHEMA``, in the order wanted, and ``record``, the stored
    ///         bytes, and ``tags_code``; ``None`` is all but ``raw_body``, ``error`` and these two.
    ///     batch_rows: At most this many rows in a batch.
    ///     batch_bytes: At most this many bytes of bodies in a batch, unless one alone has more. Of
    ///         a long log those with bodies are of about 2 MiB, made by several threads.
    ///     start_physical_offset: As in ``scan``.
    ///     stop_physical_offset: As in ``scan``.
    ///     topics: As in ``scan``.
    ///     tags: As in ``scan``.
    ///     begin_ms: As in ``scan``.
    ///     end_ms: As in ``scan``.
    ///     on_error: As in ``scan``. With ``"report"`` each damaged range is a row: ``error`` has
    ///         the reason, ``physical_offset`` and ``store_size`` the range (its length is null
    ///         past 2 GiB), all else is null. A column ``error`` comes last unless asked for.
    ///     verify_crc: Whether each body is compared with its checksum, also where no column shows
    ///         it. Places and lengths are checked in any case.
    ///     decompress: Whether ``body`` is what the producer sent, and not what is stored. One that
    ///         cannot be decompressed is damage where ``body`` is among the columns.
    ///
    /// Raises:
    ///     ValueError: No such column.
    #[pyo3(
        signature = (
            *, columns=None, batch_rows=8192, batch_bytes=8388608, start_physical_offset=None,
            stop_physical_offset=None, topics=None, tags=None, begin_ms=None, end_ms=None,
            on_error="raise", verify_crc=true, decompress=true, **others
        ),
        text_signature = "($self, *, columns=None, batch_rows=8192, batch_bytes=8388608, \
            start_physical_offset=None, stop_physical_offset=None, topics=None, tags=None, \
            begin_ms=None, end_ms=None, on_error=\"raise\", verify_crc=True, decompress=True)"
    )]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of Python's")]
    fn scan_arrow(
        &self,
        columns: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = fields::batch_rows)] batch_rows: usize,
        #[pyo3(from_py_with = fields::batch_bytes)] batch_bytes: usize,
        #[pyo3(from_py_with = fields::start_physical_offset)] start_physical_offset: Option<i64>,
        #[pyo3(from_py_with = fields::stop_physical_offset)] stop_physical_offset: Option<i64>,
        topics: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = fields::tags)] tags: Option<PyBackedStr>,
        #[pyo3(from_py_with = fields::begin_ms)] begin_ms: Option<i64>,
        #[pyo3(from_py_with = fields::end_ms)] end_ms: Option<i64>,
        #[pyo3(from_py_with = fields::on_error)] on_error: &str,
        #[pyo3(from_py_with = fields::verify_crc)] verify_crc: bool,
        #[pyo3(from_py_with = fields::decompress)] decompress: bool,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<ArrowScan> {
        fields::no_others("Store.scan_arrow", others)?;
        let mut columns = named_columns(columns)?;
        let limits = limits(batch_rows, batch_bytes)?;
        let filter = scan_filter(topics, tags.as_deref(), begin_ms, end_ms)?;
        let on_damage = on_damage(on_error)?;
        if on_damage == OnDamage::Report && !columns.contains(&Column::Error) {
            // A row of damage must not pass for a message.
            columns.push(Column::Error);
        }
        let store = self.open_store()?;
        name_missing(&store, &filter, on_damage)?;
        let end = store.end_offset();
        let stop = bound(stop_physical_offset, end);
        let start = bound(start_physical_offset, 0);
        let scan = Scan::new(start, stop, end, filter, on_damage).verifying(verify_crc);
        Ok(ArrowScan::of_messages(Messages {
            source: LogSource::Store(store),
            scan,
            columns,
            limits,
            decompress,
            broker: None,
            names_damaged: false,
            threads: None,
        }))
    }
}

//! Record batches out of records: one builder for each column that was asked for, filled row by row
//! from a [`MessageView`].

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, DataType, SchemaRef};

use super::derived::{Hosts, Keys, MessageIds, Properties, Times};
use super::schema::Column;
use super::variable::VariableColumn;
use crate::error::FormatError;
use crate::format::body::{self, BodyError};
use crate::format::consume_queue::{self, DelayLevels};
use crate::format::host::Host;
use crate::format::message::MessageView;
use crate::format::properties::{self, names};

/// Most bytes that a body may come to when it is decompressed.
const MOST_BODY: usize = 64 << 20;
/// A batch ends once its columns hold so many bytes, whatever was asked for: places in a column are
/// signed 32-bit numbers, and a text may become three times as long when it is made readable.
const MOST_BYTES: usize = 512 << 20;
/// No address or id is longer.
const SHORT_TEXT: usize = 64;
/// What fits into a column beside that.
const LARGEST_BODY: usize = i32::MAX as usize - MOST_BYTES;

/// When a batch is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Rows of a batch, at least 1.
    pub rows: usize,
    /// A batch ends with the row that brings its bodies to so many bytes.
    pub body_bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { rows: 8192, body_bytes: 8 << 20 }
    }
}

/// A batch that is being filled.
#[derive(Debug)]
pub struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<Builder>,
    limits: BatchLimits,
    rows: usize,
    /// Bytes of bodies in the batch, and of everything else whose length is its own.
    body_bytes: usize,
    other_bytes: usize,
    /// Whether a column shows a property of its own, the body as it was sent, any body.
    reads_properties: bool,
    undoes_body: bool,
    reads_bodies: bool,
}

/// What fills one column.
#[derive(Debug)]
enum Builder {
    Int(fn(&MessageView<'_>) -> i32, Vec<i32>),
    Long(fn(&MessageView<'_>) -> i64, Vec<i64>),
    Time(fn(&MessageView<'_>) -> i64, Times),
    Topic(VariableColumn),
    Tags(VariableColumn),
    UniqueKey(VariableColumn),
    Keys(Keys),
    Properties(Properties),
    Body(VariableColumn),
    RawBody(VariableColumn),
    Host(fn(&MessageView<'_>) -> Host, Hosts),
    MessageId(MessageIds),
    Record(VariableColumn),
    TagsCode(Vec<i64>),
    Same(Same),
    Nothing(DataType),
}

/// One text in every row.
#[derive(Debug)]
struct Same {
    text: String,
    data_type: DataType,
    /// As many rows as there were at the most, to be shared by all batches.
    rows: ArrayRef,
}

impl Same {
    fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        if self.rows.len() < rows {
            let mut column = VariableColumn::new(&self.data_type)?;
            for _ in 0..rows {
                column.push(self.text.as_bytes());
            }
            self.rows = column.finish()?;
        }
        Ok(self.rows.slice(0, rows))
    }
}

/// The properties of a row that columns want.
#[derive(Clone, Copy, Default)]
struct Named<'a> {
    tags: Option<&'a [u8]>,
    keys: Option<&'a [u8]>,
    unique_key: Option<&'a [u8]>,
}

impl BatchBuilder {
    /// A builder of batches with these columns; `schema` is theirs.
    ///
    /// # Errors
    /// When a field of the schema is not of a type that its column can have.
    pub fn new(
        columns: &[Column],
        schema: SchemaRef,
        limits: BatchLimits,
    ) -> Result<Self, ArrowError> {
        let columns = columns
            .iter()
            .zip(schema.fields())
            .map(|(column, field)| Builder::new(*column, field.data_type()))
            .collect::<Result<Vec<_>, _>>()?;
        let reads_properties = columns.iter().any(|column| {
            matches!(column, Builder::Tags(_) | Builder::UniqueKey(_) | Builder::Keys(_))
        });
        let undoes_body = columns.iter().any(|column| matches!(column, Builder::Body(_)));
        let reads_bodies = undoes_body
            || columns
                .iter()
                .any(|column| matches!(column, Builder::RawBody(_) | Builder::Record(_)));
        Ok(Self {
            schema,
            columns,
            limits,
            rows: 0,
            body_bytes: 0,
            other_bytes: 0,
            reads_properties,
            undoes_body,
            reads_bodies,
        })
    }

    /// The same with a broker's name in the column that has it.
    ///
    /// # Errors
    /// As [`BatchBuilder::new`].
    pub fn of_broker(mut self, broker: &str) -> Result<Self, ArrowError> {
        for (column, field) in self.columns.iter_mut().zip(self.schema.fields()) {
            if field.name() == Column::Broker.name() {
                let data_type = field.data_type().clone();
                let rows = new_null_array(&data_type, 0);
                *column = Builder::Same(Same { text: broker.to_owned(), data_type, rows });
            }
        }
        Ok(self)
    }

    /// The same with bodies as they are stored, also where they were compressed.
    #[must_use]
    pub fn keeping_bodies(mut self) -> Self {
        self.undoes_body = false;
        self
    }

    /// The schema of the batches.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether there is no row yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds the row of a message; breaks when the batch is full.
    ///
    /// # Errors
    /// When the body is wanted and cannot be decompressed or is too large for a column; the row is
    /// not added then.
    #[inline]
    pub fn push(&mut self, view: &MessageView<'_>) -> Result<ControlFlow<()>, FormatError> {
        if self.reads_bodies && view.body().len() > LARGEST_BODY {
            return Err(at_body(view, BodyError::TooLarge { limit: LARGEST_BODY }));
        }
        let body = if self.undoes_body { readable_body(view)? } else { Cow::Borrowed(view.body()) };
        let named = if self.reads_properties { named(view) } else { Named::default() };
        let mut bodies = 0;
        for column in &mut self.columns {
            match column {
                Builder::Int(get, values) => values.push(get(view)),
                Builder::Long(get, values) => values.push(get(view)),
                Builder::Time(get, times) => times.push(get(view)),
                Builder::Topic(column) => column.push(view.topic()),
                Builder::Tags(column) => column.push_option(named.tags),
                Builder::UniqueKey(column) => column.push_option(named.unique_key),
                Builder::Keys(column) => column.push(named.keys.unwrap_or_default()),
                Builder::Properties(column) => column.push(view.raw_properties()),
                Builder::Body(column) => {
                    bodies += body.len();
                    column.push(&body);
                }
                Builder::RawBody(column) => {
                    bodies += view.body().len();
                    column.push(view.body());
                }
                Builder::Host(get, column) => column.push(get(view)),
                Builder::MessageId(column) => column.push(view),
                Builder::Record(column) => {
                    bodies += view.as_bytes().len();
                    column.push(view.as_bytes());
                }
                Builder::TagsCode(codes) => codes.push(tags_code(view)),
                Builder::Same(_) | Builder::Nothing(_) => {}
            }
        }
        self.rows += 1;
        self.body_bytes += bodies;
        self.other_bytes += view.topic().len() + view.raw_properties().len() + SHORT_TEXT;
        let full = self.rows >= self.limits.rows
            || self.body_bytes >= self.limits.body_bytes
            || self.body_bytes.saturating_add(self.other_bytes) >= MOST_BYTES;
        Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// The rows as a batch; the builder is empty then.
    ///
    /// # Errors
    /// None but for a fault in here.
    pub fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        (self.body_bytes, self.other_bytes) = (0, 0);
        let columns = self
            .columns
            .iter_mut()
            .map(|column| column.finish(rows))
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

/// The body as the producer sent it.
#[inline]
fn readable_body<'a>(view: &MessageView<'a>) -> Result<Cow<'a, [u8]>, FormatError> {
    body::decompress(view.body(), view.sys_flag(), MOST_BODY).map_err(|error| at_body(view, error))
}

#[cold]
fn at_body(view: &MessageView<'_>, error: BodyError) -> FormatError {
    let at = view.body().as_ptr().addr().saturating_sub(view.as_bytes().as_ptr().addr());
    FormatError::from(error).at(at)
}

/// The code of a record's tags in the entry of its queue, with RocketMQ's own delay levels.
fn tags_code(view: &MessageView<'_>) -> i64 {
    static LEVELS: LazyLock<DelayLevels> = LazyLock::new(DelayLevels::default);
    consume_queue::dispatch_tags_code(
        view.topic(),
        &properties::indexed(view.raw_properties()),
        view.store_timestamp_ms(),
        &LEVELS,
    )
}

/// One pass over the properties for the columns that show single ones; later duplicates win.
#[inline]
fn named<'a>(view: &MessageView<'a>) -> Named<'a> {
    let mut named = Named::default();
    for (name, value) in properties::iter(view.raw_properties()) {
        let field = match name {
            names::TAGS => &mut named.tags,
            names::KEYS => &mut named.keys,
            names::UNIQ_KEY => &mut named.unique_key,
            _ => continue,
        };
        *field = Some(value);
    }
    named
}

impl Builder {
    fn new(column: Column, data_type: &DataType) -> Result<Self, ArrowError> {
        let text = || VariableColumn::new(data_type);
        Ok(match column {
            Column::Broker | Column::Error => Self::Nothing(data_type.clone()),
            Column::Topic => Self::Topic(text()?),
            Column::QueueId => Self::Int(|view| view.queue_id(), Vec::new()),
            Column::QueueOffset => Self::Long(|view| view.queue_offset(), Vec::new()),
            Column::PhysicalOffset => Self::Long(|view| view.physical_offset(), Vec::new()),
            // A record's size is a signed 32-bit number on disk.
            Column::StoreSize => Self::Int(|view| view.store_size().cast_signed(), Vec::new()),
            Column::StoreTimestamp => {
                Self::Time(|view| view.store_timestamp_ms(), Times::new(data_type))
            }
            Column::BornTimestamp => {
                Self::Time(|view| view.born_timestamp_ms(), Times::new(data_type))
            }
            Column::Tags => Self::Tags(text()?),
            Column::Keys => Self::Keys(Keys::new(data_type)?),
            Column::UniqueKey => Self::UniqueKey(text()?),
            Column::MessageId => Self::MessageId(MessageIds::new(text()?)),
            Column::Properties => Self::Properties(Properties::new(data_type)?),
            Column::Body => Self::Body(text()?),
            Column::RawBody => Self::RawBody(text()?),
            Column::BodyCrc => Self::Int(|view| view.body_crc(), Vec::new()),
            Column::SysFlag => Self::Int(|view| view.sys_flag(), Vec::new()),
            Column::Flag => Self::Int(|view| view.flag(), Vec::new()),
            Column::BornHost => Self::Host(|view| view.born_host(), Hosts::new(text()?)),
            Column::StoreHost => Self::Host(|view| view.store_host(), Hosts::new(text()?)),
            Column::ReconsumeTimes => Self::Int(|view| view.reconsume_times(), Vec::new()),
            Column::PreparedTransactionOffset => {
                Self::Long(|view| view.prepared_transaction_offset(), Vec::new())
            }
            Column::Record => Self::Record(text()?),
            Column::TagsCode => Self::TagsCode(Vec::new()),
        })
    }

    fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Int(_, values) => Ok(numbers::<Int32Type>(values)),
            Self::Long(_, values) | Self::TagsCode(values) => Ok(numbers::<Int64Type>(values)),
            Self::Time(_, times) => times.finish(),
            Self::Topic(column)
            | Self::Tags(column)
            | Self::UniqueKey(column)
            | Self::Body(column)
            | Self::RawBody(column)
            | Self::Record(column) => column.finish(),
            Self::Same(same) => same.finish(rows),
            Self::Host(_, hosts) => hosts.finish(),
            Self::MessageId(ids) => ids.finish(),
            Self::Keys(keys) => keys.finish(),
            Self::Properties(properties) => properties.finish(),
            Self::Nothing(data_type) => Ok(new_null_array(data_type, rows)),
        }
    }
}

/// Numbers without nulls; the memory for the next batch is taken at once.
fn numbers<T: ArrowPrimitiveType>(values: &mut Vec<T::Native>) -> ArrayRef {
    let next = Vec::with_capacity(values.len());
    let values = ScalarBuffer::from(std::mem::replace(values, next));
    Arc::new(PrimitiveArray::<T>::new(values, None))
}

//! Builds record batches: one builder for each requested column.
//!
//! Rows of one block are collected, then filled in column by column, several times as fast as row
//! by row.

use std::borrow::Cow;
use std::slice;
use std::sync::{Arc, LazyLock};

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow_schema::{ArrowError, DataType, SchemaRef};

use super::damage::DamageRows;
use super::derived::{Hosts, KeyLists, MessageIds, Pairs, Properties, Times};
use super::schema::Column;
use super::variable::{Bodies, Pinned, Pins, PooledBuffer, VariableColumn};
use crate::error::FormatError;
use crate::format::body::{self, BodyError};
use crate::format::message::host::Host;
use crate::format::message::properties::{self, Indexed, names};
use crate::format::message::{self, MessageView};
use crate::format::queue::consume_queue::{self, DelayLevels};
use crate::log::Block;
use crate::log::read::scanner::Flow;
use crate::store::read::scan::Damage;

const WAITING: usize = 64;
/// Up to this number columns are filled row by row.
const FEW_COLUMNS: usize = 6;
/// Most bytes of a part.
pub(super) const MOST_PART: u64 = 64 << 20;
/// Bytes of log for a batch with bodies, on several threads.
const PART_OF_BODIES: u64 = 2 << 20;
const SMALL_BODY: usize = 64 << 10;
const MOST_BODY: usize = 64 << 20;
/// Bytes that end a batch: offsets in a column are signed 32-bit, and invalid UTF-8 may triple in
/// length.
const MOST_BYTES: usize = 512 << 20;
/// Maximum length of an address or id.
const SHORT_TEXT: usize = 64;
const LARGEST_BODY: usize = i32::MAX as usize - MOST_BYTES;

/// Limits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// At least 1.
    pub rows: usize,
    /// Bytes of bodies, exceeded only by a single body.
    pub body_bytes: usize,
}

impl BatchLimits {
    /// Bytes of log that a thread reads for a batch. Parts with bodies are small enough for the
    /// processor's cache.
    #[must_use]
    pub fn part_bytes(self, columns: &[Column]) -> u64 {
        let most = self.body_bytes as u64;
        let bodies = [Column::Body, Column::RawBody, Column::Record];
        let with_bodies = columns.iter().any(|column| bodies.contains(column));
        let most = if with_bodies { most.min(PART_OF_BODIES) } else { most };
        most.clamp(1 << 20, MOST_PART)
    }
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { rows: 8192, body_bytes: 8 << 20 }
    }
}

#[derive(Debug)]
pub struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<Builder>,
    limits: BatchLimits,
    rows: usize,
    body_bytes: usize,
    other_bytes: usize,
    needs: Needs,
    pub(crate) undoes_body: bool,
    waiting: Vec<Waiting>,
    block: Option<Arc<Block>>,
    pins: Pins,
    pub(crate) damage: DamageRows,
    fault: Option<ArrowError>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    named: bool,
    map: bool,
    bodies: usize,
    raw_bodies: usize,
    records: usize,
    shares: bool,
    /// Whether rows wait: with few simple columns it costs more than it saves.
    waits: bool,
}

#[derive(Debug)]
struct Waiting {
    place: usize,
    size: usize,
    body: Option<Vec<u8>>,
}

struct Row<'a> {
    view: MessageView<'a>,
    body: &'a [u8],
}

type Fill<T> = for<'a> fn(&[Row<'a>], &mut Vec<T>);

#[derive(Debug)]
enum Builder {
    Int(Fill<i32>, PooledBuffer<i32>),
    Long(Fill<i64>, PooledBuffer<i64>),
    Time(fn(&MessageView<'_>) -> i64, Times),
    Topic(VariableColumn),
    Tags(VariableColumn),
    UniqueKey(VariableColumn),
    Keys(KeyLists),
    Properties(Properties),
    Body(Bodies),
    RawBody(Bodies),
    Host(fn(&MessageView<'_>) -> Host, Hosts),
    MessageId(MessageIds),
    Record(Bodies),
    Same(Same),
}

/// The same text in each row, or nulls.
#[derive(Debug)]
struct Same {
    text: Option<String>,
    rows: ArrayRef,
}

impl Same {
    fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        if self.rows.len() < rows {
            let mut column = VariableColumn::new(self.rows.data_type())?;
            let text = self.text.as_deref().map(str::as_bytes);
            (0..rows).for_each(|_| column.push_option(text));
            self.rows = column.finish()?;
        }
        Ok(self.rows.slice(0, rows))
    }
}

impl BatchBuilder {
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
        let mut needs = Needs::default();
        for column in &columns {
            match column {
                Builder::Tags(_) | Builder::UniqueKey(_) | Builder::Keys(_) => needs.named = true,
                Builder::Properties(_) => needs.map = true,
                Builder::Body(_) => needs.bodies += 1,
                Builder::RawBody(_) => needs.raw_bodies += 1,
                Builder::Record(_) => needs.records += 1,
                _ => {}
            }
            if let Builder::Body(bytes) | Builder::RawBody(bytes) | Builder::Record(bytes) = column
            {
                needs.shares |= bytes.shares();
            }
        }
        needs.waits = needs.shares || needs.named || needs.map || columns.len() > FEW_COLUMNS;
        Ok(Self {
            schema,
            columns,
            limits,
            rows: 0,
            body_bytes: 0,
            other_bytes: 0,
            needs,
            undoes_body: needs.bodies > 0,
            waiting: Vec::new(),
            block: None,
            pins: Pins::new(limits.body_bytes),
            damage: DamageRows::default(),
            fault: None,
        })
    }

    #[must_use]
    pub fn of_broker(mut self, broker: &str) -> Self {
        for (column, field) in self.columns.iter_mut().zip(self.schema.fields()) {
            if let Builder::Same(same) = column
                && field.name() == Column::Broker.name()
            {
                same.text = Some(broker.to_owned());
            }
        }
        self
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows + self.damage.len() == 0
    }

    /// Adds a row; `block` holds the message if it may be shared. A message answered with
    /// [`Flow::Retry`] is not added.
    ///
    /// # Errors
    /// When the body is needed and cannot be decompressed or is too large for a column;
    /// the row is not added.
    #[inline]
    pub fn push(
        &mut self,
        view: &MessageView<'_>,
        block: Option<&Arc<Block>>,
    ) -> Result<Flow, FormatError> {
        let Needs { bodies, raw_bodies, records, .. } = self.needs;
        if bodies + raw_bodies + records > 0 && view.body().len() > LARGEST_BODY {
            return Err(body::at_body(view, BodyError::TooLarge { limit: LARGEST_BODY }));
        }
        let body = if self.undoes_body {
            body::of_message(view, MOST_BODY)?
        } else {
            Cow::Borrowed(view.body())
        };
        let added =
            bodies * body.len() + raw_bodies * view.body().len() + records * view.as_bytes().len();
        let body_bytes = self.body_bytes.saturating_add(added);
        if body_bytes > self.limits.body_bytes && self.rows > 0 {
            return Ok(Flow::Retry);
        }
        self.rows += 1;
        self.body_bytes = body_bytes;
        self.other_bytes += view.topic().len() + view.raw_properties().len() + SHORT_TEXT;
        self.wait(view, body, block);
        let full = self.rows + self.damage.len() >= self.limits.rows
            || self.body_bytes >= self.limits.body_bytes
            || self.body_bytes.saturating_add(self.other_bytes) >= MOST_BYTES;
        Ok(if full { Flow::Stop } else { Flow::Continue })
    }

    #[cold]
    pub fn push_damage(&mut self, damage: Box<Damage>) -> Flow {
        self.damage.push(self.rows, damage);
        let full = self.rows + self.damage.len() >= self.limits.rows || self.damage.is_full();
        if full { Flow::Stop } else { Flow::Continue }
    }

    /// Lets a row wait for others of its block, or fills it in alone.
    #[inline]
    fn wait(&mut self, view: &MessageView<'_>, body: Cow<'_, [u8]>, block: Option<&Arc<Block>>) {
        if !self.needs.waits {
            let row = Row { view: *view, body: &body };
            let filled = self.columns.iter_mut().try_for_each(|column| column.fill_one(&row));
            filled.unwrap_or_else(|fault| self.fault = Some(fault));
            return;
        }
        let same = match (&self.block, block) {
            (Some(known), Some(block)) => Arc::ptr_eq(known, block),
            _ => false,
        };
        if !same || self.waiting.len() >= WAITING {
            self.fill_in();
            self.block = block.cloned();
        }
        match block.and_then(|block| block.place_of(view.as_bytes())) {
            Some(place) => {
                let body = match body {
                    Cow::Owned(body) => Some(body),
                    Cow::Borrowed(_) => None,
                };
                let large = body.as_ref().is_some_and(|body| body.len() > SMALL_BODY);
                self.waiting.push(Waiting { place, size: view.as_bytes().len(), body });
                if large {
                    self.fill_in();
                }
            }
            None => {
                self.fill_in();
                fill(&mut self.columns, self.needs, &[Row { view: *view, body: &body }], None)
                    .unwrap_or_else(|fault| self.fault = Some(fault));
            }
        }
    }

    fn fill_in(&mut self) {
        let Some(block) = self.block.as_ref().filter(|_| !self.waiting.is_empty()) else { return };
        let mut rows = Vec::with_capacity(self.waiting.len());
        rows.extend(self.waiting.iter().filter_map(|row| {
            // It was a record when it was added.
            let view = message::read_whole(block.as_bytes().get(row.place..row.place + row.size)?)?;
            Some(Row { view, body: row.body.as_deref().unwrap_or(view.body()) })
        }));
        let pinned = if self.needs.shares { self.pins.pin(block) } else { None };
        fill(&mut self.columns, self.needs, &rows, pinned)
            .unwrap_or_else(|fault| self.fault = Some(fault));
        self.waiting.clear();
    }

    pub fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        self.fill_in();
        self.block = None;
        self.pins.clear();
        let rows = std::mem::take(&mut self.rows);
        (self.body_bytes, self.other_bytes) = (0, 0);
        let columns = self
            .columns
            .iter_mut()
            .map(|column| column.finish(rows))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        let messages = RecordBatch::try_new_with_options(schema, columns, &options)?;
        if self.damage.len() == 0 {
            return Ok(messages);
        }
        let broker = self.columns.iter().find_map(|column| match column {
            Builder::Same(same) => same.text.as_deref(),
            _ => None,
        });
        self.damage.insert(messages, broker)
    }
}

/// Tags code of a record, with RocketMQ's default delay levels.
fn tags_code(view: &MessageView<'_>) -> i64 {
    static LEVELS: LazyLock<DelayLevels> = LazyLock::new(DelayLevels::default);
    consume_queue::dispatch_tags_code(
        view.topic(),
        &properties::indexed(view.raw_properties()),
        view.store_timestamp_ms(),
        &LEVELS,
    )
}

/// The properties with a column of their own; the last duplicate wins.
#[inline]
fn named<'a>(pairs: &[(&'a [u8], &'a [u8])]) -> Indexed<'a> {
    let mut named = Indexed::default();
    for (name, value) in pairs {
        let field = match *name {
            names::TAGS => &mut named.tags,
            names::KEYS => &mut named.keys,
            names::UNIQ_KEY => &mut named.unique_key,
            _ => continue,
        };
        *field = Some(value);
    }
    named
}

fn fill<'a>(
    columns: &mut [Builder],
    needs: Needs,
    rows: &[Row<'a>],
    pinned: Option<&Pinned>,
) -> Result<(), ArrowError> {
    let mut pairs = Pairs::default();
    if needs.map {
        pairs.reserve(rows.len());
        rows.iter().for_each(|row| pairs.push(row.view.raw_properties()));
    }
    let all: Vec<Indexed<'a>> = match needs {
        Needs { named: false, .. } => Vec::new(),
        Needs { map: false, .. } => {
            rows.iter().map(|row| properties::indexed(row.view.raw_properties())).collect()
        }
        _ => pairs.of_each().map(named).collect(),
    };
    for column in columns {
        match column {
            Builder::Int(fill, values) => fill(rows, values),
            Builder::Long(fill, values) => fill(rows, values),
            Builder::Time(get, times) => rows.iter().for_each(|row| times.push(get(&row.view))),
            Builder::Topic(column) => column.extend(rows.iter().map(|row| row.view.topic())),
            Builder::Tags(column) => all.iter().for_each(|named| column.push_option(named.tags)),
            Builder::UniqueKey(column) => {
                all.iter().for_each(|named| column.push_option(named.unique_key));
            }
            Builder::Keys(column) => {
                all.iter().for_each(|named| column.push(named.keys.unwrap_or_default()));
            }
            Builder::Properties(column) => column.extend(&pairs),
            Builder::Body(column) => column.extend(rows.iter().map(|row| row.body), pinned)?,
            Builder::RawBody(column) => {
                column.extend(rows.iter().map(|row| row.view.body()), pinned)?;
            }
            Builder::Host(get, column) => rows.iter().for_each(|row| column.push(get(&row.view))),
            Builder::MessageId(column) => rows.iter().for_each(|row| column.push(&row.view)),
            Builder::Record(column) => {
                column.extend(rows.iter().map(|row| row.view.as_bytes()), pinned)?;
            }
            Builder::Same(_) => {}
        }
    }
    Ok(())
}

macro_rules! each {
    ($field:ident) => {
        |rows, values| values.extend(rows.iter().map(|row| row.view.$field()))
    };
}

impl Builder {
    fn new(column: Column, data_type: &DataType) -> Result<Self, ArrowError> {
        let text = || VariableColumn::new(data_type);
        let int = |fill: Fill<i32>| Self::Int(fill, PooledBuffer::new());
        let long = |fill: Fill<i64>| Self::Long(fill, PooledBuffer::new());
        Ok(match column {
            Column::Broker | Column::Error => {
                Self::Same(Same { text: None, rows: new_null_array(data_type, 0) })
            }
            Column::Topic => Self::Topic(text()?),
            Column::QueueId => int(each!(queue_id)),
            Column::QueueOffset => long(each!(queue_offset)),
            Column::PhysicalOffset => long(each!(physical_offset)),
            // A record's size is a signed 32-bit number on disk.
            Column::StoreSize => int(|rows, values| {
                values.extend(rows.iter().map(|row| row.view.store_size().cast_signed()));
            }),
            Column::StoreTimestamp => {
                Self::Time(|view| view.store_timestamp_ms(), Times::new(data_type))
            }
            Column::BornTimestamp => {
                Self::Time(|view| view.born_timestamp_ms(), Times::new(data_type))
            }
            Column::Tags => Self::Tags(text()?),
            Column::Keys => Self::Keys(KeyLists::new(data_type)?),
            Column::UniqueKey => Self::UniqueKey(text()?),
            Column::MessageId => Self::MessageId(MessageIds::new(text()?)),
            Column::Properties => Self::Properties(Properties::new(data_type)?),
            Column::Body => Self::Body(Bodies::new(data_type)?),
            Column::RawBody => Self::RawBody(Bodies::new(data_type)?),
            Column::BodyCrc => int(each!(body_crc)),
            Column::SysFlag => int(each!(sys_flag)),
            Column::Flag => int(each!(flag)),
            Column::BornHost => Self::Host(|view| view.born_host(), Hosts::new(text()?)),
            Column::StoreHost => Self::Host(|view| view.store_host(), Hosts::new(text()?)),
            Column::ReconsumeTimes => int(each!(reconsume_times)),
            Column::PreparedTransactionOffset => long(each!(prepared_transaction_offset)),
            Column::Record => Self::Record(Bodies::new(data_type)?),
            Column::TagsCode => {
                long(|rows, values| values.extend(rows.iter().map(|row| tags_code(&row.view))))
            }
        })
    }

    #[inline]
    fn fill_one(&mut self, row: &Row<'_>) -> Result<(), ArrowError> {
        match self {
            Self::Int(fill, values) => fill(slice::from_ref(row), values),
            Self::Long(fill, values) => fill(slice::from_ref(row), values),
            Self::Time(get, times) => times.push(get(&row.view)),
            Self::Topic(column) => column.push(row.view.topic()),
            other => {
                let rows = slice::from_ref(row);
                return fill(slice::from_mut(other), Needs::default(), rows, None);
            }
        }
        Ok(())
    }

    fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Int(_, values) => Ok(numbers::<Int32Type>(values)),
            Self::Long(_, values) => Ok(numbers::<Int64Type>(values)),
            Self::Time(_, times) => times.finish(),
            Self::Topic(column) | Self::Tags(column) | Self::UniqueKey(column) => column.finish(),
            Self::Body(column) | Self::RawBody(column) | Self::Record(column) => column.finish(),
            Self::Same(same) => same.finish(rows),
            Self::Host(_, hosts) => hosts.finish(),
            Self::MessageId(ids) => ids.finish(),
            Self::Keys(keys) => keys.finish(),
            Self::Properties(properties) => properties.finish(None),
        }
    }
}

fn numbers<T: ArrowPrimitiveType>(values: &mut PooledBuffer<T::Native>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.finish_numbers(), None))
}

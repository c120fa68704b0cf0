//! Reads record batches as messages to write, columns by name in any order.
//!
//! Accepts related types too: wide offsets, views, dictionaries, integers of other widths, times in
//! other units, a list of pairs for a map.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ByteArrayType, Int64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, GenericByteArray, GenericStringArray, Int32Array,
    Int64Array, LargeBinaryArray, LargeStringArray, OffsetSizeTrait, PrimitiveArray, RecordBatch,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};

use super::schema::Column;
use crate::error::{Error, start_of};
use crate::format::message::host::{Host, ParseHostError};
use crate::format::message::properties::{names, split_keys};
use crate::format::message::sys_flag::{COMPRESSED, COMPRESSION_MASK};
use crate::format::width::{clamp_u64, to_usize};
use crate::store::NewMessage;
use crate::store::write::property_block::PropertyBlock;

/// Columns of a batch for new messages. Columns that only stored messages have, such as offsets,
/// are ignored.
#[derive(Debug)]
pub struct MessageRows {
    rows: usize,
    topic: LargeStringArray,
    body: Option<LargeBinaryArray>,
    raw_body: Option<LargeBinaryArray>,
    queue_id: Option<Int32Array>,
    flag: Option<Int32Array>,
    sys_flag: Option<Int32Array>,
    reconsume_times: Option<Int32Array>,
    prepared_transaction_offset: Option<Int64Array>,
    born_timestamp: Option<Int64Array>,
    store_timestamp: Option<Int64Array>,
    born_host: Option<LargeStringArray>,
    store_host: Option<LargeStringArray>,
    tags: Option<LargeStringArray>,
    unique_key: Option<LargeStringArray>,
    keys: Option<Lists>,
    properties: Option<Maps>,
}

impl MessageRows {
    /// Reads a batch.
    ///
    /// # Errors
    /// For an unknown column, a missing `topic` or body, a wrong type or a value too
    /// large.
    pub fn new(batch: &RecordBatch) -> Result<Self, RowsError> {
        let mut columns: [Option<ArrayRef>; Column::COUNT] = Default::default();
        for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let of_ms =
                ["born_timestamp_ms", "store_timestamp_ms"].contains(&field.name().as_str());
            let name = field.name().strip_suffix("_ms").filter(|_| of_ms);
            let Some(column) = Column::of_message(name.unwrap_or(field.name())) else {
                return Err(RowsError::Unknown { name: start_of(field.name()) });
            };
            let is_time = matches!(column, Column::BornTimestamp | Column::StoreTimestamp);
            if is_time && !of_ms && array.data_type().is_integer() {
                return Err(wrong_type(column, array.data_type()));
            }
            if columns[column as usize].replace(Arc::clone(array)).is_some() {
                return Err(RowsError::Twice { name: column.name() });
            }
        }
        let mut given = |column: Column| {
            let array = columns[column as usize].take()?;
            // A column of nulls counts as missing.
            let nulls = array.logical_null_count();
            (nulls < array.len() || array.is_empty()).then_some((column, array))
        };
        let topic = given(Column::Topic).map(texts).transpose()?;
        let body = given(Column::Body).map(bytes).transpose()?;
        let raw_body = given(Column::RawBody).map(bytes).transpose()?;
        if body.is_none() && raw_body.is_none() && batch.num_rows() > 0 {
            return Err(RowsError::Missing { name: Column::Body.name() });
        }
        Ok(Self {
            rows: batch.num_rows(),
            topic: match topic {
                Some(topic) => topic,
                None if batch.num_rows() == 0 => LargeStringArray::new_null(0),
                None => return Err(RowsError::Missing { name: Column::Topic.name() }),
            },
            body,
            raw_body,
            queue_id: given(Column::QueueId).map(integers).transpose()?,
            flag: given(Column::Flag).map(integers).transpose()?,
            sys_flag: given(Column::SysFlag).map(integers).transpose()?,
            reconsume_times: given(Column::ReconsumeTimes).map(integers).transpose()?,
            prepared_transaction_offset: given(Column::PreparedTransactionOffset)
                .map(integers)
                .transpose()?,
            born_timestamp: given(Column::BornTimestamp).map(times).transpose()?,
            store_timestamp: given(Column::StoreTimestamp).map(times).transpose()?,
            born_host: given(Column::BornHost).map(texts).transpose()?,
            store_host: given(Column::StoreHost).map(texts).transpose()?,
            tags: given(Column::Tags).map(texts).transpose()?,
            unique_key: given(Column::UniqueKey).map(texts).transpose()?,
            keys: given(Column::Keys).map(lists).transpose()?,
            properties: given(Column::Properties).map(maps).transpose()?,
        })
    }

    /// Number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns messages `rows`. Their properties are written to `blocks`, which is cleared first.
    ///
    /// # Errors
    /// [`Error::InvalidMessage`] with the row.
    pub fn messages<'a>(
        &'a self,
        rows: Range<usize>,
        blocks: &'a mut Vec<u8>,
    ) -> Result<Vec<NewMessage<'a>>, (usize, Error)> {
        blocks.clear();
        let mut hosts = [KnownHost::default(), KnownHost::default()];
        let mut ends = Vec::with_capacity(rows.len());
        let mut messages = Vec::with_capacity(rows.len());
        for row in rows.start..rows.end.min(self.rows) {
            let message = self
                .write_properties(row, blocks)
                .and_then(|()| self.message(row, &mut hosts))
                .map_err(|error| (row, error))?;
            messages.push(message);
            ends.push(blocks.len());
        }
        let mut start = 0;
        for (message, end) in messages.iter_mut().zip(ends) {
            message.properties = blocks.get(start..end).unwrap_or_default();
            start = end;
        }
        Ok(messages)
    }

    /// Whether a row has this property.
    #[must_use]
    pub fn has_property(&self, row: usize, name: &[u8]) -> bool {
        self.pairs(row).any(|(known, _)| known == name)
    }

    fn message(&self, row: usize, hosts: &mut [KnownHost; 2]) -> Result<NewMessage<'_>, Error> {
        let topic = value(Some(&self.topic), row)
            .ok_or_else(|| Error::argument("topic", "a name", "null"))?;
        let (raw, body) = (value(self.raw_body.as_ref(), row), value(self.body.as_ref(), row));
        let mut sys_flag = number(self.sys_flag.as_ref(), row).unwrap_or(0);
        if raw.is_none() {
            // A producer's body is not compressed, whatever the source row was.
            sys_flag &= !(COMPRESSED | COMPRESSION_MASK);
        }
        let [born, store] = hosts;
        Ok(NewMessage {
            queue_id: number(self.queue_id.as_ref(), row).unwrap_or(0),
            flag: number(self.flag.as_ref(), row).unwrap_or(0),
            sys_flag,
            born_timestamp_ms: number(self.born_timestamp.as_ref(), row),
            born_host: value(self.born_host.as_ref(), row)
                .map_or(Ok(None), |text| born.parse("born_host", text))?,
            store_timestamp_ms: number(self.store_timestamp.as_ref(), row),
            store_host: value(self.store_host.as_ref(), row)
                .map_or(Ok(None), |text| store.parse("store_host", text))?,
            reconsume_times: number(self.reconsume_times.as_ref(), row).unwrap_or(0),
            prepared_transaction_offset: number(self.prepared_transaction_offset.as_ref(), row)
                .unwrap_or(0),
            ..NewMessage::new(topic, raw.or(body).ok_or_else(no_body)?)
        })
    }

    /// Appends a message's properties to `out`. A name in `properties` keeps its position; a column
    /// of that name must agree.
    fn write_properties(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut tags = value(self.tags.as_ref(), row);
        let mut unique_key = value(self.unique_key.as_ref(), row);
        let mut keys = self.keys.as_ref().and_then(|keys| keys.rows.range(row));
        for (name, value) in self.pairs(row) {
            let (column, same) = match name {
                names::TAGS => ("tags", tags.take().is_none_or(|tags| tags == value)),
                names::UNIQ_KEY => ("unique_key", unique_key.take().is_none_or(|key| key == value)),
                names::KEYS => {
                    let same = keys.take().is_none_or(|keys| {
                        keys.map(|key| self.key(key)).eq(split_keys(value).map(Some))
                    });
                    ("keys", same)
                }
                _ => continue,
            };
            if !same {
                let expected = "the value that properties has of that name";
                return Err(Error::argument(column, expected, "another"));
            }
        }
        let mut block = PropertyBlock::new(out);
        if let Some(tags) = tags {
            block.tags(tags)?;
        }
        for key in keys.into_iter().flatten() {
            block.key(self.key(key).ok_or_else(|| Error::argument("keys", "texts", "null"))?)?;
        }
        block.end_keys();
        if let Some(unique_key) = unique_key {
            block.unique_key(unique_key)?;
        }
        for (name, value) in self.pairs(row) {
            // The checksum belongs to another record.
            if name != names::CRC32 {
                block.pair(name, value)?;
            }
        }
        Ok(())
    }

    fn key(&self, number: usize) -> Option<&[u8]> {
        value(self.keys.as_ref().map(|keys| &keys.texts), number)
    }

    fn pairs(&self, row: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.properties.iter().flat_map(move |maps| {
            let numbers = maps.rows.range(row).unwrap_or(0..0);
            numbers.filter_map(|number| {
                Some((value(Some(&maps.names), number)?, value(Some(&maps.values), number)?))
            })
        })
    }
}

#[cold]
fn no_body() -> Error {
    Error::argument("body", "bytes", "null")
}

fn shown(text: &[u8]) -> String {
    format!("{:?}", start_of(&String::from_utf8_lossy(text)))
}

#[derive(Default)]
struct KnownHost {
    text: Vec<u8>,
    host: Option<Host>,
}

impl KnownHost {
    fn parse(&mut self, field: &'static str, text: &[u8]) -> Result<Option<Host>, Error> {
        if self.host.is_none() || self.text != text {
            let host = String::from_utf8_lossy(text).parse().map_err(|ParseHostError| {
                Error::argument(field, "1.2.3.4:10911 or [::1]:10911", shown(text))
            })?;
            text.clone_into(&mut self.text);
            self.host = Some(host);
        }
        Ok(self.host)
    }
}

/// Reason why a batch cannot be read as messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// An unknown column.
    #[error("a message has no column {name:?}; its columns are {}", Column::names())]
    Unknown {
        /// Its name.
        name: String,
    },
    /// A duplicate column.
    #[error("column {name} is given twice")]
    Twice {
        /// Its name.
        name: &'static str,
    },
    /// A missing column.
    #[error("column {name} is missing, or all nulls")]
    Missing {
        /// Its name.
        name: &'static str,
    },
    /// A column of the wrong type.
    #[error(
        "column {name}: expected {}, got {}{}",
        arrow_name(wanted),
        arrow_name(found),
        cure(wanted)
    )]
    Type {
        /// Its name.
        name: &'static str,
        /// Expected.
        wanted: DataType,
        /// Type found.
        found: DataType,
    },
    /// A value out of range.
    #[error("column {name}: {reason}")]
    Range {
        /// Its name.
        name: &'static str,
        /// Description of the value.
        reason: String,
    },
}

fn arrow_name(of: &DataType) -> String {
    match of {
        DataType::Utf8 => "string".to_owned(),
        DataType::LargeUtf8 => "large_string".to_owned(),
        DataType::Timestamp(..) => "timestamp".to_owned(),
        DataType::Boolean => "bool".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::List(item) => format!("list<{}>", arrow_name(item.data_type())),
        DataType::Map(..) => "map<string, string>".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

fn cure(wanted: &DataType) -> &'static str {
    match wanted {
        DataType::Binary => "; cast it, for example .cast(pa.binary())",
        DataType::Utf8 => "; cast it, for example .cast(pa.string())",
        DataType::Int32 => "; cast it, for example .cast(pa.int32())",
        DataType::Int64 => "; cast it, for example .cast(pa.int64())",
        DataType::Timestamp(..) => "; cast it, or add _ms to the name of a column of milliseconds",
        DataType::List(_) => "; for example .cast(pa.list_(pa.string()))",
        DataType::Map(..) => "; for example .cast(pa.map_(pa.string(), pa.string()))",
        _ => "",
    }
}

#[derive(Debug)]
struct Lists {
    rows: Rows,
    texts: LargeStringArray,
}

#[derive(Debug)]
struct Maps {
    rows: Rows,
    names: LargeStringArray,
    values: LargeStringArray,
}

/// Ends of the rows' values among all values, behind the first one's begin.
#[derive(Debug)]
struct Rows {
    ends: Vec<usize>,
    nulls: Option<NullBuffer>,
}

impl Rows {
    fn of(array: &ArrayRef) -> Self {
        let place = |end: i64| to_usize(clamp_u64(end));
        if array.is_empty() {
            // Its only end may be behind all values.
            return Self { ends: Vec::new(), nulls: None };
        }
        let ends = match array.data_type() {
            DataType::Map(..) => {
                array.as_map().offsets().iter().map(|end| place((*end).into())).collect()
            }
            DataType::LargeList(_) => {
                array.as_list::<i64>().offsets().iter().map(|end| place(*end)).collect()
            }
            _ => array.as_list::<i32>().offsets().iter().map(|end| place((*end).into())).collect(),
        };
        Self { ends, nulls: array.nulls().cloned() }
    }

    fn first(&self) -> usize {
        self.ends.first().copied().unwrap_or(0)
    }

    fn count(&self) -> usize {
        self.ends.last().map_or(0, |end| end.saturating_sub(self.first()))
    }

    fn range(&self, row: usize) -> Option<Range<usize>> {
        let ends = self.ends.get(row..row.checked_add(2)?)?;
        let is_null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let place = |end: usize| end.saturating_sub(self.first());
        (!is_null).then(|| place(ends[0])..place(ends[1]))
    }
}

fn value<T: ByteArrayType>(array: Option<&GenericByteArray<T>>, row: usize) -> Option<&[u8]> {
    let array = array.filter(|array| row < array.len() && array.is_valid(row))?;
    Some(array.value(row).as_ref())
}

fn number<T: ArrowPrimitiveType>(
    array: Option<&PrimitiveArray<T>>,
    row: usize,
) -> Option<T::Native> {
    array.filter(|array| array.is_valid(row)).map(|array| array.value(row))
}

type GivenColumn = (Column, ArrayRef);

/// A dictionary counts as its values' type.
pub(crate) fn kind(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(kind(data_type), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

pub(crate) fn is_bytes(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
    matches!(kind(data_type), Binary | LargeBinary | BinaryView | FixedSizeBinary(_))
}

fn may_be_texts(array: &ArrayRef) -> bool {
    is_text(array.data_type()) || array.data_type().is_null()
}

fn wrong_type(column: Column, found: &DataType) -> RowsError {
    RowsError::Type { name: column.name(), wanted: column.data_type(), found: found.clone() }
}

fn out_of_range(column: Column, reason: impl std::fmt::Display) -> RowsError {
    RowsError::Range { name: column.name(), reason: reason.to_string() }
}

fn cast(column: Column, array: &ArrayRef, to: &DataType) -> Result<ArrayRef, RowsError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, to, &strict).map_err(|error| out_of_range(column, error))
}

/// Copies an array's texts: another thread may write to the given memory, and they are read more
/// than once.
fn all_texts(column: Column, array: &ArrayRef) -> Result<LargeStringArray, RowsError> {
    match array.data_type() {
        DataType::Utf8 => copied(column, array.as_string::<i32>()),
        DataType::LargeUtf8 => copied(column, array.as_string::<i64>()),
        _ => copied(column, cast(column, array, &DataType::LargeUtf8)?.as_string::<i64>()),
    }
}

fn copied<O: OffsetSizeTrait + Into<i64>>(
    column: Column,
    texts: &GenericStringArray<O>,
) -> Result<LargeStringArray, RowsError> {
    // Read once.
    let mut ends: Vec<i64> = texts.value_offsets().iter().map(|end| (*end).into()).collect();
    let place = |end: i64| to_usize(clamp_u64(end));
    let first = ends.first().copied().unwrap_or(0);
    let whole = place(first)..place(ends.last().copied().unwrap_or(0));
    ends.iter_mut().for_each(|end| *end -= first);
    let values = Buffer::from(texts.value_data().get(whole).unwrap_or_default());
    LargeStringArray::try_new(OffsetBuffer::new(ends.into()), values, texts.nulls().cloned())
        .map_err(|error| out_of_range(column, error))
}

fn texts((column, array): GivenColumn) -> Result<LargeStringArray, RowsError> {
    if may_be_texts(&array) {
        return all_texts(column, &array);
    }
    Err(wrong_type(column, array.data_type()))
}

fn bytes((column, array): GivenColumn) -> Result<LargeBinaryArray, RowsError> {
    if is_bytes(array.data_type()) || kind(array.data_type()).is_null() {
        return Ok(cast(column, &array, &DataType::LargeBinary)?.as_binary::<i64>().clone());
    }
    Ok(texts((column, array))?.into())
}

fn integers<T: ArrowPrimitiveType>(
    (column, array): GivenColumn,
) -> Result<PrimitiveArray<T>, RowsError> {
    let found = kind(array.data_type());
    if found.is_integer() || found.is_null() {
        return Ok(cast(column, &array, &T::DATA_TYPE)?.as_primitive::<T>().clone());
    }
    Err(wrong_type(column, array.data_type()))
}

fn times((column, array): GivenColumn) -> Result<Int64Array, RowsError> {
    let unit = match array.data_type() {
        DataType::Timestamp(unit, _) => *unit,
        DataType::Null | DataType::Int64 => TimeUnit::Millisecond,
        other => return Err(wrong_type(column, other)),
    };
    let numbers = cast(column, &array, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let per_ms = match unit {
        TimeUnit::Second => {
            let far = || out_of_range(column, "a time out of reach");
            return numbers.try_unary(|time| time.checked_mul(1000).ok_or_else(far));
        }
        TimeUnit::Millisecond => return Ok(numbers.clone()),
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1_000_000,
    };
    Ok(numbers.unary(|time| time.div_euclid(per_ms)))
}

fn list_values(array: &ArrayRef) -> Option<(Rows, ArrayRef)> {
    let values = match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().values(),
        DataType::LargeList(_) => array.as_list::<i64>().values(),
        _ => return None,
    };
    let rows = Rows::of(array);
    let reached = values.slice(rows.first(), rows.count());
    Some((rows, reached))
}

fn lists((column, array): GivenColumn) -> Result<Lists, RowsError> {
    match list_values(&array) {
        Some((rows, values)) if may_be_texts(&values) => {
            Ok(Lists { rows, texts: all_texts(column, &values)? })
        }
        _ => Err(wrong_type(column, array.data_type())),
    }
}

fn maps((column, array): GivenColumn) -> Result<Maps, RowsError> {
    let pairs = match array.data_type() {
        DataType::Map(..) => {
            let rows = Rows::of(&array);
            let entries = array.as_map().entries().slice(rows.first(), rows.count());
            Some((rows, entries))
        }
        _ => list_values(&array)
            .and_then(|(rows, values)| Some((rows, values.as_struct_opt()?.clone()))),
    };
    if let Some((rows, pairs)) = pairs
        && let [names, values] = pairs.columns()
        && may_be_texts(names)
        && may_be_texts(values)
    {
        let (names, values) = (all_texts(column, names)?, all_texts(column, values)?);
        return Ok(Maps { rows, names, values });
    }
    Err(wrong_type(column, array.data_type()))
}

mod given;
#[cfg(test)]
mod tests;

//! Functions over columns, behind Spark's SQL functions `mq_*`.
//!
//! A null gives null. So do malformed bytes and texts. Encoding drops nothing:
//! [`Function::Encode`] refuses an invalid message.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray,
    RecordBatch, StringArray, StructArray, UInt32Array,
};
use arrow_buffer::{NullBuffer, NullBufferBuilder};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use arrow_select::take::take;

use super::builder::{BatchBuilder, BatchLimits};
use super::derived::Properties;
use super::rows::{MessageRows, RowsError, is_bytes, is_text, kind};
use super::schema::{Column, schema_of};
use crate::error::{Error, named};
use crate::format::body;
use crate::format::crc;
use crate::format::java;
use crate::format::message::properties::{MAX_LEN, names};
use crate::format::message::sys_flag;
use crate::format::message::{MessageView, read_whole};
use crate::format::queue::consume_queue;
use crate::format::width::saturating_u32;
use crate::log::read::scanner::Flow;
use crate::store::write::append;

const MOST_BODY: usize = 64 << 20;
/// Maximum bytes of a column: offsets are signed 32-bit.
const MOST_BYTES: usize = 1 << 30;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Function {
        Decode = "mq_decode",
        Encode = "mq_encode",
        Properties = "mq_properties",
        Body = "mq_body",
        /// Bytes to a record's checksum of its body.
        Crc32 = "mq_crc32",
        /// Texts to `String.hashCode`.
        JavaHash = "mq_java_hash",
        TagsCode = "mq_tags_code",
        /// Topics and keys to the index's hashes.
        KeyHash = "mq_key_hash",
        /// Message ids to host, port and physical offset.
        ParseMessageId = "mq_parse_message_id",
        /// SYSFLAGs to the meaning of their bits.
        SysFlag = "mq_sys_flag",
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// Arguments of the wrong type or number.
    #[error("{name} takes {wanted}, not {found}")]
    Arguments { name: &'static str, wanted: &'static str, found: String },
    #[error("mq_encode: {0}")]
    Rows(#[from] RowsError),
    #[error("row {row}: {error}")]
    Message { row: usize, error: Error },
    #[error(
        "{name} makes more than 1 GiB of one batch; \
         lower spark.sql.execution.arrow.maxRecordsPerBatch"
    )]
    TooLarge { name: &'static str },
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

type Result<T> = std::result::Result<T, FunctionError>;

impl Function {
    const fn takes(self) -> &'static str {
        match self {
            Self::Decode | Self::Crc32 | Self::Properties => "one column of bytes",
            Self::Encode => "one column of structs",
            Self::Body => "a column of bytes and one of integers",
            Self::JavaHash | Self::TagsCode | Self::ParseMessageId => "one column of texts",
            Self::KeyHash => "two columns of texts",
            Self::SysFlag => "one column of integers",
        }
    }

    pub fn call(self, arguments: &[ArrayRef]) -> Result<ArrayRef> {
        match (self, arguments) {
            (Self::Decode, [raw]) => decode(&self.bytes(raw)?),
            (Self::Encode, [messages]) => self.encode(messages),
            (Self::Properties, [raw]) => properties(&self.bytes(raw)?),
            (Self::Body, [raw, flags]) => self.body(&self.bytes(raw)?, &self.ints(flags)?),
            (Self::Crc32, [bytes]) => {
                let bytes = self.bytes(bytes)?;
                Ok(Arc::new(
                    bytes.iter().map(|bytes| bytes.map(crc::body_crc)).collect::<Int32Array>(),
                ))
            }
            (Self::JavaHash, [texts]) => {
                let hash = |text: &str| java::hash_code(text.as_bytes());
                let texts = self.texts(texts)?;
                Ok(Arc::new(texts.iter().map(|text| text.map(hash)).collect::<Int32Array>()))
            }
            (Self::TagsCode, [texts]) => {
                let code = |text: &str| consume_queue::tags_code(Some(text.as_bytes()));
                let texts = self.texts(texts)?;
                Ok(Arc::new(texts.iter().map(|text| text.map(code)).collect::<Int64Array>()))
            }
            (Self::KeyHash, [topics, keys]) => {
                let (topics, keys) = (self.texts(topics)?, self.texts(keys)?);
                if topics.len() != keys.len() {
                    return Err(self.wrong(arguments));
                }
                let pairs = topics.iter().zip(keys.iter());
                let hash = |(topic, key): (Option<&str>, Option<&str>)| {
                    Some(java::key_hash(topic?.as_bytes(), key?.as_bytes()))
                };
                Ok(Arc::new(pairs.map(hash).collect::<Int32Array>()))
            }
            (Self::ParseMessageId, [texts]) => parse_message_ids(&self.texts(texts)?),
            (Self::SysFlag, [flags]) => sys_flags(&self.ints(flags)?),
            _ => Err(self.wrong(arguments)),
        }
    }

    #[cold]
    fn wrong(self, arguments: &[ArrayRef]) -> FunctionError {
        let kinds: Vec<_> = arguments
            .iter()
            .map(|array| format!("{} of {}", array.len(), array.data_type()))
            .collect();
        let found = if kinds.is_empty() { "none".to_owned() } else { kinds.join(" and ") };
        FunctionError::Arguments { name: self.name(), wanted: self.takes(), found }
    }

    fn cast(self, array: &ArrayRef, fits: bool, to: &DataType) -> Result<ArrayRef> {
        if !fits && !array.data_type().is_null() {
            return Err(self.wrong(std::slice::from_ref(array)));
        }
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        Ok(cast_with_options(array, to, &strict)?)
    }

    fn texts(self, array: &ArrayRef) -> Result<LargeStringArray> {
        let array = self.cast(array, is_text(array.data_type()), &DataType::LargeUtf8)?;
        Ok(array.as_string::<i64>().clone())
    }

    fn bytes(self, array: &ArrayRef) -> Result<LargeBinaryArray> {
        let array = self.cast(array, is_bytes(array.data_type()), &DataType::LargeBinary)?;
        Ok(array.as_binary::<i64>().clone())
    }

    fn ints(self, array: &ArrayRef) -> Result<Int32Array> {
        let array = self.cast(array, kind(array.data_type()).is_integer(), &DataType::Int32)?;
        Ok(array.as_primitive::<Int32Type>().clone())
    }

    fn body(self, raw: &LargeBinaryArray, flags: &Int32Array) -> Result<ArrayRef> {
        let mut bodies = BinaryBuilder::new();
        let mut bytes = 0;
        for (raw, flag) in raw.iter().zip(flags.iter()) {
            let given = raw.zip(flag);
            let body = given.and_then(|(raw, flag)| body::decompress(raw, flag, MOST_BODY).ok());
            bytes += body.as_ref().map_or(0, |body| body.len());
            if bytes > MOST_BYTES {
                return Err(FunctionError::TooLarge { name: self.name() });
            }
            bodies.append_option(body);
        }
        Ok(Arc::new(bodies.finish()))
    }

    fn encode(self, messages: &ArrayRef) -> Result<ArrayRef> {
        let Some(messages) = messages.as_struct_opt() else {
            return Err(self.wrong(std::slice::from_ref(messages)));
        };
        // A null struct may have anything in its fields, so only the others are read.
        let rows = (0..messages.len()).filter(|row| messages.is_valid(*row));
        let valid = UInt32Array::from_iter_values(rows.map(saturating_u32));
        let given = take(messages, &valid, None)?;
        let given = RecordBatch::from(given.as_struct());
        let rows = MessageRows::new(&given)?;
        let physical_offsets = longs(&given, Column::PhysicalOffset)?;
        let queue_offsets = longs(&given, Column::QueueOffset)?;
        let row_of = |number: usize| valid.values().get(number).map_or(0, |row| *row as usize);
        let mut blocks = Vec::new();
        let mut records = BinaryBuilder::new();
        let (mut next, mut bytes) = (0, 0);
        for number in 0..rows.len() {
            let row = row_of(number);
            let failed = |error| FunctionError::Message { row, error };
            let message = rows
                .messages(number..number + 1, &mut blocks)
                .map_err(|(_, error)| failed(error))?;
            let Some(message) = message.first() else { continue };
            let physical_offset =
                at(&physical_offsets, number, Column::PhysicalOffset).map_err(failed)?;
            let queue_offset = at(&queue_offsets, number, Column::QueueOffset).map_err(failed)?;
            let property_crc = rows.has_property(number, names::CRC32);
            let record = append::encode(message, physical_offset, queue_offset, property_crc)
                .map_err(failed)?;
            bytes += record.len();
            if bytes > MOST_BYTES {
                return Err(FunctionError::TooLarge { name: self.name() });
            }
            (next..row).for_each(|_| records.append_null());
            records.append_value(record);
            next = row + 1;
        }
        (next..messages.len()).for_each(|_| records.append_null());
        Ok(Arc::new(records.finish()))
    }
}

/// A column that `MessageRows` does not read.
fn longs(given: &RecordBatch, column: Column) -> Result<Int64Array> {
    let missing = || RowsError::Missing { name: column.name() };
    let array = given.column_by_name(column.name()).ok_or_else(missing)?;
    if !array.data_type().is_integer() {
        let (wanted, found) = (DataType::Int64, array.data_type().clone());
        return Err(RowsError::Type { name: column.name(), wanted, found }.into());
    }
    let array = cast_with_options(array, &DataType::Int64, &CastOptions::default())?;
    Ok(array.as_primitive::<Int64Type>().clone())
}

fn at(numbers: &Int64Array, row: usize, column: Column) -> std::result::Result<i64, Error> {
    if row < numbers.len() && numbers.is_valid(row) {
        return Ok(numbers.value(row));
    }
    Err(Error::argument(column.name(), "a number", "null"))
}

fn decoded() -> Vec<Column> {
    let own = |column: &Column| !matches!(column, Column::Broker | Column::Error);
    Column::ALL.iter().copied().filter(own).collect()
}

fn record(bytes: &[u8]) -> Option<MessageView<'_>> {
    let view = read_whole(bytes).filter(|view| view.as_bytes().len() == bytes.len())?;
    view.check_body_crc().ok().map(|()| view)
}

fn decode(raw: &LargeBinaryArray) -> Result<ArrayRef> {
    let columns = decoded();
    let limits = BatchLimits { rows: usize::MAX, body_bytes: MOST_BYTES };
    let mut builder = BatchBuilder::new(&columns, schema_of(&columns), limits)?;
    let mut rows = 0_u32;
    let mut places = Vec::with_capacity(raw.len());
    for bytes in raw {
        // A body that cannot be decompressed adds no row.
        let pushed = bytes.and_then(record).and_then(|view| builder.push(&view, None).ok());
        places.push(pushed.map(|_| rows));
        if let Some(full) = pushed {
            if full != Flow::Continue {
                return Err(FunctionError::TooLarge { name: Function::Decode.name() });
            }
            rows += 1;
        }
    }
    let messages = StructArray::from(builder.finish()?);
    if messages.len() == raw.len() {
        return Ok(Arc::new(messages));
    }
    Ok(take(&messages, &UInt32Array::from(places), None)?)
}

fn properties(raw: &LargeBinaryArray) -> Result<ArrayRef> {
    let mut maps = Properties::new(&Column::Properties.data_type())?;
    let (mut nulls, mut bytes) = (NullBufferBuilder::new(raw.len()), 0);
    for raw in raw {
        // No record holds a longer block.
        let raw = raw.filter(|raw| raw.len() <= MAX_LEN);
        bytes += raw.map_or(0, <[u8]>::len);
        if bytes > MOST_BYTES {
            return Err(FunctionError::TooLarge { name: Function::Properties.name() });
        }
        maps.push(raw.unwrap_or_default());
        nulls.append(raw.is_some());
    }
    Ok(maps.finish(nulls.finish())?)
}

fn structs(columns: Vec<(&str, ArrayRef)>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let fields: Fields = columns.iter().map(field).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    Ok(Arc::new(StructArray::try_new(fields, arrays, nulls)?))
}

fn parse_message_ids(texts: &LargeStringArray) -> Result<ArrayRef> {
    let ids: Vec<_> = texts.iter().map(|text| java::parse_message_id(text?)).collect();
    let hosts = ids.iter().map(|id| Some(id.as_ref()?.host.address().to_string()));
    let addresses: StringArray = hosts.collect();
    let ports: Int32Array = ids.iter().map(|id| Some(id.as_ref()?.host.port())).collect();
    let offsets: Int64Array = ids.iter().map(|id| Some(id.as_ref()?.physical_offset)).collect();
    let nulls: NullBuffer = ids.iter().map(Option::is_some).collect::<Vec<_>>().into();
    let columns: Vec<(_, ArrayRef)> = vec![
        ("host", Arc::new(addresses)),
        ("port", Arc::new(ports)),
        ("physical_offset", Arc::new(offsets)),
    ];
    structs(columns, Some(nulls))
}

const BITS: [(&str, i32); 6] = [
    ("compressed", sys_flag::COMPRESSED),
    ("multi_tags", sys_flag::MULTI_TAGS),
    ("born_host_v6", sys_flag::BORN_HOST_V6),
    ("store_host_v6", sys_flag::STORE_HOST_V6),
    ("need_unwrap", sys_flag::NEED_UNWRAP),
    ("inner_batch", sys_flag::INNER_BATCH),
];

fn sys_flags(flags: &Int32Array) -> Result<ArrayRef> {
    let transaction = |flag| sys_flag::transaction(flag).name();
    let compression = |flag| Some(sys_flag::compression(flag)?.name());
    let transactions: StringArray = flags.iter().map(|flag| flag.map(transaction)).collect();
    let compressions: StringArray = flags.iter().map(|flag| flag.and_then(compression)).collect();
    let mut columns: Vec<(_, ArrayRef)> =
        vec![("transaction", Arc::new(transactions)), ("compression", Arc::new(compressions))];
    for (name, bit) in BITS {
        let is_set = |flag: Option<i32>| flag.map(|flag| flag & bit != 0);
        columns.push((name, Arc::new(flags.iter().map(is_set).collect::<BooleanArray>())));
    }
    structs(columns, flags.nulls().cloned())
}

#[cfg(test)]
mod tests;

//! Reads record batches as messages to write, columns by name in any order.

pub(crate) mod given;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch,
};

pub use self::given::RowsError;
use self::given::{
    Lists, Maps, bytes, int, ints, lists, long, longs, maps, text, texts, times, value,
};
use super::schema::Column;
use crate::error::{Error, PutStatus, Result};
use crate::format::message::host::Host;
use crate::format::message::properties::{names, split_keys};
use crate::format::message::sys_flag::{COMPRESSED, COMPRESSION_MASK};
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
        let mut columns: [Option<ArrayRef>; Column::ALL.len()] = Default::default();
        for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let of_ms =
                ["born_timestamp_ms", "store_timestamp_ms"].contains(&field.name().as_str());
            let name = field.name().strip_suffix("_ms").filter(|_| of_ms);
            let Some(column) = Column::by_name(name.unwrap_or(field.name())) else {
                return Err(RowsError::Unknown { name: field.name().chars().take(64).collect() });
            };
            let is_time = matches!(column, Column::BornTimestamp | Column::StoreTimestamp);
            if is_time && !of_ms && array.data_type().is_integer() {
                return Err(given::wrong_type(column, array.data_type()));
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
            queue_id: given(Column::QueueId).map(ints).transpose()?,
            flag: given(Column::Flag).map(ints).transpose()?,
            sys_flag: given(Column::SysFlag).map(ints).transpose()?,
            reconsume_times: given(Column::ReconsumeTimes).map(ints).transpose()?,
            prepared_transaction_offset: given(Column::PreparedTransactionOffset)
                .map(longs)
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

    fn message(&self, row: usize, hosts: &mut [KnownHost; 2]) -> Result<NewMessage<'_>> {
        let topic = text(Some(&self.topic), row).ok_or_else(|| refused("topic", "is null"))?;
        let (raw, body) = (value(self.raw_body.as_ref(), row), value(self.body.as_ref(), row));
        let mut sys_flag = int(self.sys_flag.as_ref(), row);
        if raw.is_none() {
            // A producer's body is not compressed, whatever the source row was.
            sys_flag &= !(COMPRESSED | COMPRESSION_MASK);
        }
        let [born, store] = hosts;
        Ok(NewMessage {
            queue_id: int(self.queue_id.as_ref(), row),
            flag: int(self.flag.as_ref(), row),
            sys_flag,
            born_timestamp_ms: long(self.born_timestamp.as_ref(), row),
            born_host: text(self.born_host.as_ref(), row)
                .map_or(Ok(None), |text| born.parse("born_host", text))?,
            store_timestamp_ms: long(self.store_timestamp.as_ref(), row),
            store_host: text(self.store_host.as_ref(), row)
                .map_or(Ok(None), |text| store.parse("store_host", text))?,
            reconsume_times: int(self.reconsume_times.as_ref(), row),
            prepared_transaction_offset: long(self.prepared_transaction_offset.as_ref(), row)
                .unwrap_or(0),
            ..NewMessage::new(topic, raw.or(body).ok_or_else(|| refused("body", "is null"))?)
        })
    }

    /// Appends a message's properties to `out`. A name in `properties` keeps its position; a column
    /// of that name must agree.
    fn write_properties(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut tags = text(self.tags.as_ref(), row);
        let mut unique_key = text(self.unique_key.as_ref(), row);
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
                return Err(refused(column, "is not what properties has of that name"));
            }
        }
        let mut block = PropertyBlock::new(out);
        if let Some(tags) = tags {
            block.tags(tags)?;
        }
        for key in keys.into_iter().flatten() {
            block.key(self.key(key).ok_or_else(|| refused("keys", "a key is null"))?)?;
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
        text(self.keys.as_ref().map(|keys| &keys.texts), number)
    }

    /// Pairs of a row's map; those without a value are skipped.
    fn pairs(&self, row: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.properties.iter().flat_map(move |maps| {
            let numbers = maps.rows.range(row).unwrap_or(0..0);
            numbers.filter_map(|number| {
                Some((text(Some(&maps.names), number)?, text(Some(&maps.values), number)?))
            })
        })
    }
}

#[cold]
fn refused(field: &'static str, reason: &str) -> Error {
    let status = PutStatus::MessageIllegal;
    Error::InvalidMessage { field, reason: reason.to_owned(), status, limit: None }
}

#[derive(Default)]
struct KnownHost {
    text: Vec<u8>,
    host: Option<Host>,
}

impl KnownHost {
    fn parse(&mut self, field: &'static str, text: &[u8]) -> Result<Option<Host>> {
        if self.host.is_none() || self.text != text {
            let host = String::from_utf8_lossy(text).parse().map_err(
                |error: crate::format::message::host::ParseHostError| {
                    refused(field, &format!("is {error}"))
                },
            )?;
            text.clone_into(&mut self.text);
            self.host = Some(host);
        }
        Ok(self.host)
    }
}

#[cfg(test)]
mod tests;

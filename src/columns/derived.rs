//! Columns of what a record does not hold as it is shown: times, addresses, ids, keys, properties.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, ListArray, MapArray, PrimitiveArray, StructArray};
use arrow_buffer::{NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields};
use hashbrown::HashMap;

use super::variable::VariableColumn;
use crate::format::host::{Host, message_id};
use crate::format::message::MessageView;
use crate::format::properties::{self, split_keys};

/// How many properties of one message are read.
const MOST_PROPERTIES: usize = 1024;
/// Among so many, names given twice are looked for without a table.
const FEW_PROPERTIES: usize = 24;
/// The years 1 to 9999, Unix milliseconds.
const CALENDAR_MS: std::ops::Range<i64> = -62_135_596_800_000..253_402_300_800_000;

/// Times in microseconds; null outside of the calendar.
#[derive(Debug)]
pub(super) struct Times {
    values: Vec<i64>,
    nulls: NullBufferBuilder,
    data_type: DataType,
}

impl Times {
    pub(super) fn new(data_type: &DataType) -> Self {
        let nulls = NullBufferBuilder::new(0);
        Self { values: Vec::new(), nulls, data_type: data_type.clone() }
    }

    #[inline]
    pub(super) fn push(&mut self, time_ms: i64) {
        // Within the calendar the product fits.
        self.values.push(time_ms.wrapping_mul(1000));
        self.nulls.append(CALENDAR_MS.contains(&time_ms));
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let next = Vec::with_capacity(self.values.len());
        let values = ScalarBuffer::from(std::mem::replace(&mut self.values, next));
        let times =
            PrimitiveArray::<TimestampMicrosecondType>::try_new(values, self.nulls.finish())?;
        Ok(Arc::new(times.with_data_type(self.data_type.clone())))
    }
}

/// Addresses as `"ip:port"`. Most messages come from the same few, so the last text is kept.
#[derive(Debug)]
pub(super) struct Hosts {
    texts: VariableColumn,
    known: Option<Host>,
    text: String,
}

impl Hosts {
    pub(super) fn new(texts: VariableColumn) -> Self {
        Self { texts, known: None, text: String::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, host: Host) {
        if self.known != Some(host) {
            self.known = Some(host);
            self.text.clear();
            // A string takes whatever is written.
            let _ = write!(self.text, "{host}");
        }
        self.texts.push(self.text.as_bytes());
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.texts.finish()
    }
}

/// Message ids: the store's address, the same for nearly all, and 16 digits of physical offset.
#[derive(Debug)]
pub(super) struct MessageIds {
    texts: VariableColumn,
    known: Option<Host>,
    id: Vec<u8>,
}

/// Digits of the physical offset at the end of an id.
const OFFSET_DIGITS: usize = 16;

impl MessageIds {
    pub(super) fn new(texts: VariableColumn) -> Self {
        Self { texts, known: None, id: Vec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, view: &MessageView<'_>) {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let host = view.store_host();
        if self.known != Some(host) {
            self.known = Some(host);
            self.id = message_id(&host, 0).into_bytes();
        }
        if let Some(digits) = self.id.last_chunk_mut::<OFFSET_DIGITS>() {
            let mut left = view.physical_offset().cast_unsigned();
            for digit in digits.iter_mut().rev() {
                // Four bits are an index into sixteen digits.
                *digit = HEX[(left & 15) as usize];
                left >>= 4;
            }
        }
        self.texts.push(&self.id);
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.texts.finish()
    }
}

/// Where the rows of a list end among its values.
#[derive(Debug)]
struct Ends(Vec<i32>);

impl Ends {
    fn new() -> Self {
        Self(vec![0])
    }

    #[inline]
    fn push(&mut self, values: usize) {
        self.0.push(i32::try_from(values).unwrap_or(i32::MAX));
    }

    fn finish(&mut self) -> OffsetBuffer<i32> {
        let mut next = Vec::with_capacity(self.0.len());
        next.push(0);
        OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(&mut self.0, next)))
    }
}

/// The keys of each message; an empty list where it has none.
#[derive(Debug)]
pub(super) struct Keys {
    texts: VariableColumn,
    ends: Ends,
    element: FieldRef,
}

impl Keys {
    pub(super) fn new(data_type: &DataType) -> Result<Self, ArrowError> {
        let DataType::List(element) = data_type else { return Err(not_of_type(data_type, "list")) };
        let texts = VariableColumn::new(element.data_type())?;
        Ok(Self { texts, ends: Ends::new(), element: Arc::clone(element) })
    }

    #[inline]
    pub(super) fn push(&mut self, keys: &[u8]) {
        split_keys(keys).for_each(|key| self.texts.push(key));
        self.ends.push(self.texts.len());
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let (element, texts) = (Arc::clone(&self.element), self.texts.finish()?);
        Ok(Arc::new(ListArray::try_new(element, self.ends.finish(), texts, None)?))
    }
}

/// The properties of each message, in the order stored; of a name given twice the later value at
/// the place of the first.
#[derive(Debug)]
pub(super) struct Properties {
    names: VariableColumn,
    values: VariableColumn,
    ends: Ends,
    entries: FieldRef,
    fields: Fields,
}

impl Properties {
    pub(super) fn new(data_type: &DataType) -> Result<Self, ArrowError> {
        if let DataType::Map(entries, false) = data_type
            && let DataType::Struct(fields) = entries.data_type()
            && let [name, value] = &fields[..]
        {
            return Ok(Self {
                names: VariableColumn::new(name.data_type())?,
                values: VariableColumn::new(value.data_type())?,
                ends: Ends::new(),
                entries: Arc::clone(entries),
                fields: fields.clone(),
            });
        }
        Err(not_of_type(data_type, "map"))
    }

    #[inline]
    pub(super) fn push(&mut self, raw: &[u8]) {
        let mut few: [(&[u8], &[u8]); FEW_PROPERTIES] = [(&[], &[]); FEW_PROPERTIES];
        let mut count = 0;
        for pair in properties::iter(raw) {
            let (known, free) = few.split_at_mut(count);
            if let Some(same) = known.iter_mut().find(|known| known.0 == pair.0) {
                same.1 = pair.1;
            } else if let Some(place) = free.first_mut() {
                *place = pair;
                count += 1;
            } else {
                return self.push_many(raw);
            }
        }
        for (name, value) in &few[..count] {
            self.names.push(name);
            self.values.push(value);
        }
        self.ends.push(self.names.len());
    }

    #[cold]
    fn push_many(&mut self, raw: &[u8]) {
        let mut places = HashMap::new();
        let mut map: Vec<(&[u8], &[u8])> = Vec::new();
        for pair in properties::iter(raw).take(MOST_PROPERTIES) {
            let place = *places.entry(pair.0).or_insert(map.len());
            match map.get_mut(place) {
                Some(same) => same.1 = pair.1,
                None => map.push(pair),
            }
        }
        for (name, value) in map {
            self.names.push(name);
            self.values.push(value);
        }
        self.ends.push(self.names.len());
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.finish_with(None)
    }

    /// The same, null where `nulls` says so.
    pub(super) fn finish_with(
        &mut self,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let columns = vec![self.names.finish()?, self.values.finish()?];
        let entries = StructArray::try_new(self.fields.clone(), columns, None)?;
        let ends = self.ends.finish();
        Ok(Arc::new(MapArray::try_new(Arc::clone(&self.entries), ends, entries, nulls, false)?))
    }
}

fn not_of_type(data_type: &DataType, wanted: &str) -> ArrowError {
    ArrowError::SchemaError(format!("{data_type} is no {wanted} of texts"))
}

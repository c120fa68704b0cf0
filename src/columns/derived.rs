//! Columns of derived values: times, addresses, ids, keys, properties.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, ListArray, MapArray, PrimitiveArray, StructArray};
use arrow_buffer::{NullBuffer, NullBufferBuilder, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields};

use super::variable::{PooledBuffer, VariableColumn};
use crate::format::message::MessageView;
use crate::format::message::host::{Host, message_id};
use crate::format::message::properties::{self, split_keys};
use crate::format::width::saturating_i32;

const USUAL_PROPERTIES: usize = 6;
/// Up to this number duplicates are found without a table.
const FEW_PROPERTIES: usize = 24;
/// The years 1 to 9999, Unix milliseconds.
const CALENDAR_MS: std::ops::Range<i64> = -62_135_596_800_000..253_402_300_800_000;

/// Times in microseconds; null outside the calendar.
#[derive(Debug)]
pub(crate) struct Times {
    values: PooledBuffer<i64>,
    nulls: NullBufferBuilder,
    data_type: DataType,
}

impl Times {
    pub(crate) fn new(data_type: &DataType) -> Self {
        let nulls = NullBufferBuilder::new(0);
        Self { values: PooledBuffer::new(), nulls, data_type: data_type.clone() }
    }

    #[inline]
    pub(crate) fn push(&mut self, time_ms: i64) {
        self.values.push(time_ms.wrapping_mul(1000));
        self.nulls.append(CALENDAR_MS.contains(&time_ms));
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let (values, nulls) = (self.values.finish_numbers(), self.nulls.finish());
        let times = PrimitiveArray::<TimestampMicrosecondType>::try_new(values, nulls)?;
        Ok(Arc::new(times.with_data_type(self.data_type.clone())))
    }
}

/// Addresses as `"ip:port"`. The last text is kept, since few distinct ones occur.
#[derive(Debug)]
pub(crate) struct Hosts {
    texts: VariableColumn,
    known: Option<Host>,
    text: String,
}

impl Hosts {
    pub(crate) fn new(texts: VariableColumn) -> Self {
        Self { texts, known: None, text: String::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, host: Host) {
        if self.known != Some(host) {
            self.known = Some(host);
            self.text.clear();
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{host}");
            self.texts.push(self.text.as_bytes());
        } else {
            self.texts.repeat(self.text.as_bytes());
        }
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.known = None;
        self.texts.finish()
    }
}

#[derive(Debug)]
pub(crate) struct MessageIds {
    texts: VariableColumn,
    known: Option<Host>,
    id: Vec<u8>,
}

const OFFSET_DIGITS: usize = 16;

impl MessageIds {
    pub(crate) fn new(texts: VariableColumn) -> Self {
        Self { texts, known: None, id: Vec::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, view: &MessageView<'_>) {
        let host = view.store_host();
        if self.known != Some(host) {
            self.known = Some(host);
            self.id = message_id(&host, 0).into_bytes();
        }
        if let Some(digits) = self.id.last_chunk_mut::<OFFSET_DIGITS>() {
            *digits = hex(view.physical_offset().cast_unsigned());
        }
        self.texts.push(&self.id);
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.texts.finish()
    }
}

#[inline]
fn hex(number: u64) -> [u8; OFFSET_DIGITS] {
    let eight = |number: u64| {
        // Four bits to a byte.
        let bits = (number | number << 16) & 0x0000_FFFF_0000_FFFF;
        let bits = (bits | bits << 8) & 0x00FF_00FF_00FF_00FF;
        let bits = (bits | bits << 4) & 0x0F0F_0F0F_0F0F_0F0F;
        // Letters begin seven places behind the digits.
        let letters = (bits + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
        u128::from(bits + 0x3030_3030_3030_3030 + letters * 7)
    };
    (eight(number >> 32) << 64 | eight(number & 0xFFFF_FFFF)).to_be_bytes()
}

/// End of each row in a list's values.
#[derive(Debug)]
struct Ends(PooledBuffer<i32>);

impl Ends {
    fn new() -> Self {
        let mut ends = PooledBuffer::new();
        ends.push(0);
        Self(ends)
    }

    #[inline]
    fn push(&mut self, values: usize) {
        self.0.push(saturating_i32(values));
    }

    fn finish(&mut self) -> OffsetBuffer<i32> {
        let ends = OffsetBuffer::new(self.0.finish_numbers());
        self.0.push(0);
        ends
    }
}

#[derive(Debug)]
pub(crate) struct KeyLists {
    texts: VariableColumn,
    ends: Ends,
    element: FieldRef,
}

impl KeyLists {
    pub(crate) fn new(data_type: &DataType) -> Result<Self, ArrowError> {
        let DataType::List(element) = data_type else { return Err(not_of_type(data_type, "list")) };
        let texts = VariableColumn::new(element.data_type())?;
        Ok(Self { texts, ends: Ends::new(), element: Arc::clone(element) })
    }

    #[inline]
    pub(crate) fn push(&mut self, keys: &[u8]) {
        split_keys(keys).for_each(|key| self.texts.push(key));
        self.ends.push(self.texts.len());
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let (element, texts) = (Arc::clone(&self.element), self.texts.finish()?);
        Ok(Arc::new(ListArray::try_new(element, self.ends.finish(), texts, None)?))
    }
}

/// Properties in stored order; a duplicate's last value at its first position.
#[derive(Debug, Default)]
pub(crate) struct Pairs<'a> {
    all: Vec<(&'a [u8], &'a [u8])>,
    ends: Vec<usize>,
}

impl<'a> Pairs<'a> {
    pub(crate) fn reserve(&mut self, messages: usize) {
        self.all.reserve(messages * USUAL_PROPERTIES);
        self.ends.reserve(messages);
    }

    #[inline]
    pub(crate) fn push(&mut self, raw: &'a [u8]) {
        let start = self.all.len();
        for (name, value) in properties::iter(raw) {
            let known = self.all.get_mut(start..).unwrap_or_default();
            let count = known.len();
            if let Some(same) = known.iter_mut().find(|known| known.0 == name) {
                same.1 = value;
            } else if count < FEW_PROPERTIES {
                self.all.push((name, value));
            } else {
                self.all.truncate(start);
                self.all.extend(properties::to_map(raw));
                break;
            }
        }
        self.ends.push(self.all.len());
    }

    pub(crate) fn of_each(&self) -> impl Iterator<Item = &[(&'a [u8], &'a [u8])]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| self.all.get(begin..*end).unwrap_or_default())
    }
}

#[derive(Debug)]
pub(crate) struct Properties {
    names: VariableColumn,
    values: VariableColumn,
    ends: Ends,
    entries: FieldRef,
    fields: Fields,
}

impl Properties {
    pub(crate) fn new(data_type: &DataType) -> Result<Self, ArrowError> {
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

    pub(crate) fn push(&mut self, raw: &[u8]) {
        let mut pairs = Pairs::default();
        pairs.push(raw);
        self.extend(&pairs);
    }

    #[inline]
    pub(crate) fn extend(&mut self, pairs: &Pairs<'_>) {
        let before = self.names.len();
        self.names.extend(pairs.all.iter().map(|pair| pair.0));
        self.values.extend(pairs.all.iter().map(|pair| pair.1));
        pairs.ends.iter().for_each(|end| self.ends.push(before + end));
    }

    pub(crate) fn finish(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let columns = vec![self.names.finish()?, self.values.finish()?];
        let entries = StructArray::try_new(self.fields.clone(), columns, None)?;
        let ends = self.ends.finish();
        Ok(Arc::new(MapArray::try_new(Arc::clone(&self.entries), ends, entries, nulls, false)?))
    }
}

fn not_of_type(data_type: &DataType, wanted: &str) -> ArrowError {
    ArrowError::SchemaError(format!("{data_type} is no {wanted} of texts"))
}

#[cfg(test)]
mod tests {
    use arrow_schema::Field;

    use super::*;

    #[test]
    fn digits_are_those_that_the_language_writes() {
        for shift in 0..64 {
            for number in [u64::MAX >> shift, 0x0123_4567_89AB_CDEF_u64.rotate_left(shift), 9, 10] {
                assert_eq!(hex(number), format!("{number:016X}").as_bytes());
            }
        }
    }

    #[test]
    fn lists_and_maps_are_of_texts() {
        let wrong = DataType::Int32;
        let error = KeyLists::new(&wrong).unwrap_err().to_string();
        assert_eq!(error, "Schema error: Int32 is no list of texts");
        let pair = |fields: Vec<Field>| {
            let entries = Field::new("entries", DataType::Struct(fields.into()), false);
            DataType::Map(Arc::new(entries), false)
        };
        let name = || Field::new("key", DataType::Utf8, false);
        let entries = Field::new("entries", DataType::Utf8, false);
        for wrong in [wrong, DataType::Map(Arc::new(entries), false), pair(vec![name()])] {
            let error = Properties::new(&wrong).unwrap_err().to_string();
            assert!(error.ends_with(" is no map of texts"), "{error}");
        }
        let value = Field::new("value", DataType::Utf8, true);
        assert!(Properties::new(&pair(vec![name(), value])).is_ok());
    }
}

//! Columns of text and bytes, also bodies as views into the blocks that were read.
//!
//! UTF-8 is checked once for the whole column, far cheaper than once for each value. Memory of finished
//! batches is used again: touched pages are several times as fast as new ones.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use crate::locks::Mutex;
use arrow_array::builder::{BinaryViewBuilder, make_view};
use arrow_array::{ArrayRef, BinaryArray, BinaryViewArray, StringArray, StringViewArray};
use arrow_buffer::{
    ArrowNativeType, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer, ToByteSlice,
};
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;

use crate::format::width::{saturating_i32, saturating_u32};
use crate::log::Block;

#[derive(Debug)]
pub(crate) struct VariableColumn {
    kind: Kind,
    values: PooledBuffer<u8>,
    layout: Layout,
    nulls: NullBufferBuilder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Binary,
}

#[derive(Debug)]
enum Layout {
    /// End of each value, after an initial 0.
    Offsets(PooledBuffer<i32>),
    Views(PooledBuffer<u128>),
}

impl VariableColumn {
    pub(crate) fn new(data_type: &DataType) -> Result<Self, ArrowError> {
        let (kind, views) = match data_type {
            DataType::Utf8 => (Kind::Text, false),
            DataType::Utf8View => (Kind::Text, true),
            DataType::Binary => (Kind::Binary, false),
            DataType::BinaryView => (Kind::Binary, true),
            other => {
                return Err(ArrowError::SchemaError(format!("{other} is neither text nor bytes")));
            }
        };
        let layout = if views {
            Layout::Views(PooledBuffer::new())
        } else {
            let mut ends = PooledBuffer::new();
            ends.push(0);
            Layout::Offsets(ends)
        };
        Ok(Self { kind, values: PooledBuffer::new(), layout, nulls: NullBufferBuilder::new(0) })
    }

    pub(crate) fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Adds a value. The caller ends the batch before 2 GiB.
    #[inline]
    pub(crate) fn push(&mut self, value: &[u8]) {
        match &mut self.layout {
            Layout::Offsets(ends) => {
                self.values.extend_from_slice(value);
                ends.push(saturating_i32(self.values.len()));
            }
            Layout::Views(views) => {
                let place = saturating_u32(self.values.len());
                views.push(make_view(value, 0, place));
                if value.len() > INLINE {
                    self.values.extend_from_slice(value);
                }
            }
        }
        self.nulls.append_non_null();
    }

    #[inline]
    pub(crate) fn extend<'a>(&mut self, values: impl Iterator<Item = &'a [u8]>) {
        let before = self.nulls.len();
        let count = match &mut self.layout {
            Layout::Offsets(ends) => {
                let (all, ends): (&mut Vec<u8>, &mut Vec<i32>) = (&mut self.values, ends);
                for value in values {
                    all.extend_from_slice(value);
                    ends.push(saturating_i32(all.len()));
                }
                ends.len() - 1 - before
            }
            Layout::Views(views) => {
                let (all, views): (&mut Vec<u8>, &mut Vec<u128>) = (&mut self.values, views);
                for value in values {
                    let place = saturating_u32(all.len());
                    views.push(make_view(value, 0, place));
                    if value.len() > INLINE {
                        all.extend_from_slice(value);
                    }
                }
                views.len() - before
            }
        };
        self.nulls.append_n_non_nulls(count);
    }

    #[inline]
    pub(crate) fn repeat(&mut self, value: &[u8]) {
        match &mut self.layout {
            Layout::Views(views) if !views.is_empty() => {
                let last = views.last().copied().unwrap_or_default();
                views.push(last);
                self.nulls.append_non_null();
            }
            _ => self.push(value),
        }
    }

    #[inline]
    pub(crate) fn push_null(&mut self) {
        match &mut self.layout {
            Layout::Offsets(ends) => ends.push(saturating_i32(self.values.len())),
            Layout::Views(views) => views.push(0),
        }
        self.nulls.append_null();
    }

    #[inline]
    pub(crate) fn push_option(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.push(value),
            None => self.push_null(),
        }
    }

    /// Returns the column as an array and empties it. Memory comes back when the last holder drops
    /// the array. Invalid UTF-8 becomes U+FFFD.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        let values = self.values.finish();
        match &mut self.layout {
            Layout::Offsets(ends) => {
                let finished = OffsetBuffer::new(ends.finish_numbers());
                ends.push(0);
                match self.kind {
                    Kind::Text => text(finished, values, nulls),
                    Kind::Binary => Ok(Arc::new(BinaryArray::try_new(finished, values, nulls)?)),
                }
            }
            Layout::Views(views) => {
                let (views, values) = (views.finish_numbers(), vec![values]);
                match self.kind {
                    Kind::Text => text_views(views, values, nulls),
                    Kind::Binary => Ok(Arc::new(BinaryViewArray::try_new(views, values, nulls)?)),
                }
            }
        }
    }
}

const INLINE: usize = 12;

fn text(
    ends: OffsetBuffer<i32>,
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    if let Ok(array) = StringArray::try_new(ends.clone(), values.clone(), nulls.clone()) {
        return Ok(Arc::new(array));
    }
    // Some value is invalid UTF-8; find it value by value.
    let raw = BinaryArray::try_new(ends, values, nulls)?;
    let readable = raw.iter().map(|value| value.map(String::from_utf8_lossy));
    Ok(Arc::new(readable.collect::<StringArray>()))
}

fn text_views(
    views: ScalarBuffer<u128>,
    values: Vec<Buffer>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    if let Ok(array) = StringViewArray::try_new(views.clone(), values.clone(), nulls.clone()) {
        return Ok(Arc::new(array));
    }
    let raw = BinaryViewArray::try_new(views, values, nulls)?;
    let readable = raw.iter().map(|value| value.map(String::from_utf8_lossy));
    Ok(Arc::new(readable.collect::<StringViewArray>()))
}

/// Maximum unused bytes of blocks that a batch may hold; beyond it bodies are copied.
const MOST_PINNED: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Pinned {
    block: Arc<Block>,
    buffer: Buffer,
    number: usize,
}

struct HeldBlock(Arc<Block>);

impl AsRef<[u8]> for HeldBlock {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[derive(Debug)]
pub(crate) struct Pins {
    most_bytes: usize,
    bytes: usize,
    count: usize,
    last: Option<Pinned>,
}

impl Pins {
    pub(crate) fn new(body_bytes: usize) -> Self {
        let most_bytes = body_bytes.saturating_mul(2).saturating_add(MOST_PINNED);
        Self { most_bytes, bytes: 0, count: 0, last: None }
    }

    /// Pins `block` for the batch; `None` if the batch holds enough already.
    pub(crate) fn pin(&mut self, block: &Arc<Block>) -> Option<&Pinned> {
        if !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(&last.block, block)) {
            self.last = None;
            let bytes = self.bytes.saturating_add(block.as_bytes().len());
            if bytes <= self.most_bytes {
                self.bytes = bytes;
                self.count += 1;
                let buffer = Buffer::from(Bytes::from_owner(HeldBlock(Arc::clone(block))));
                let block = Arc::clone(block);
                self.last = Some(Pinned { block, buffer, number: self.count });
            }
        }
        self.last.as_ref()
    }

    pub(crate) fn clear(&mut self) {
        (self.bytes, self.count, self.last) = (0, 0, None);
    }
}

#[derive(Debug)]
pub(crate) enum Bodies {
    Copied(VariableColumn),
    Shared { views: BinaryViewBuilder, block: Option<(usize, u32)> },
}

impl Bodies {
    pub(crate) fn new(data_type: &DataType) -> Result<Self, ArrowError> {
        Ok(match data_type {
            DataType::BinaryView => Self::Shared { views: BinaryViewBuilder::new(), block: None },
            other => Self::Copied(VariableColumn::new(other)?),
        })
    }

    pub(crate) fn shares(&self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    pub(crate) fn extend<'a>(
        &mut self,
        bodies: impl Iterator<Item = &'a [u8]>,
        pinned: Option<&Pinned>,
    ) -> Result<(), ArrowError> {
        let (views, block) = match self {
            Self::Copied(column) => {
                column.extend(bodies);
                return Ok(());
            }
            Self::Shared { views, block } => (views, block),
        };
        let number = match (pinned, &block) {
            (Some(pinned), Some((known, number))) if pinned.number == *known => *number,
            (Some(pinned), _) => {
                let number = views.append_block(pinned.buffer.clone());
                *block = Some((pinned.number, number));
                number
            }
            (None, _) => 0,
        };
        for body in bodies {
            let place = pinned
                .and_then(|pinned| pinned.block.place_of(body))
                .and_then(|place| u32::try_from(place).ok().zip(u32::try_from(body.len()).ok()));
            match place {
                Some((place, len)) => views.try_append_view(number, place, len)?,
                None => views.try_append_value(body)?,
            }
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Copied(column) => column.finish(),
            Self::Shared { views, block } => {
                *block = None;
                Ok(Arc::new(views.finish()))
            }
        }
    }
}

const MOST_KEPT: usize = 64 << 20;
const SPARE: usize = 4;

#[derive(Debug)]
pub(crate) struct PooledBuffer<T> {
    values: Vec<T>,
    pool: Arc<Pool<T>>,
}

impl<T: ArrowNativeType> PooledBuffer<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), pool: Arc::new(Pool { spare: Mutex::default() }) }
    }

    /// Returns the values as a buffer; its memory comes back when the last holder drops it.
    pub(crate) fn finish(&mut self) -> Buffer {
        let values = std::mem::replace(&mut self.values, self.pool.take());
        Buffer::from(Bytes::from_owner(Lent { values, pool: Arc::downgrade(&self.pool) }))
    }

    pub(crate) fn finish_numbers(&mut self) -> ScalarBuffer<T> {
        ScalarBuffer::from(self.finish())
    }

    #[cfg(test)]
    pub(crate) fn spare(&self) -> usize {
        let spare = self.pool.spare.lock();
        assert!(spare.iter().all(Vec::is_empty) && spare.len() <= SPARE);
        spare.len()
    }
}

impl<T> Deref for PooledBuffer<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.values
    }
}

impl<T> DerefMut for PooledBuffer<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.values
    }
}

#[derive(Debug)]
struct Pool<T> {
    spare: Mutex<Vec<Vec<T>>>,
}

impl<T> Pool<T> {
    fn take(&self) -> Vec<T> {
        self.spare.lock().pop().unwrap_or_default()
    }

    fn put(&self, mut values: Vec<T>) {
        values.clear();
        let mut spare = self.spare.lock();
        if values.capacity().saturating_mul(size_of::<T>()) <= MOST_KEPT && spare.len() < SPARE {
            spare.push(values);
        }
    }
}

struct Lent<T> {
    values: Vec<T>,
    pool: Weak<Pool<T>>,
}

impl<T: ArrowNativeType> AsRef<[u8]> for Lent<T> {
    fn as_ref(&self) -> &[u8] {
        self.values.as_slice().to_byte_slice()
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.put(std::mem::take(&mut self.values));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;

    const TYPES: [DataType; 4] =
        [DataType::Utf8, DataType::Utf8View, DataType::Binary, DataType::BinaryView];

    fn values(array: &ArrayRef) -> Vec<Option<Vec<u8>>> {
        let own = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        match array.data_type() {
            DataType::Utf8 => {
                array.as_string::<i32>().iter().map(|v| own(v.map(str::as_bytes))).collect()
            }
            DataType::Utf8View => {
                array.as_string_view().iter().map(|v| own(v.map(str::as_bytes))).collect()
            }
            DataType::Binary => array.as_binary::<i32>().iter().map(own).collect(),
            DataType::BinaryView => array.as_binary_view().iter().map(own).collect(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn pushed_values_are_in_the_array_batch_after_batch() {
        let long = "a text that no view holds itself".as_bytes();
        let pushed =
            [Some(&b"short"[..]), None, Some(b""), Some(long), Some(b"twelve bytes"), None];
        for data_type in TYPES {
            let mut column = VariableColumn::new(&data_type).unwrap();
            for count in [6, 0, 3, 6] {
                for value in &pushed[..count] {
                    column.push_option(*value);
                }
                assert_eq!(column.len(), count);
                let array = column.finish().unwrap();
                assert_eq!(array.data_type(), &data_type);
                let wanted: Vec<_> =
                    pushed[..count].iter().map(|v| v.map(<[u8]>::to_vec)).collect();
                assert_eq!(values(&array), wanted, "{data_type}");
                array.to_data().validate_full().unwrap();
            }
        }
    }

    #[test]
    fn texts_that_are_no_utf8_are_shown_as_far_as_they_can_be() {
        let umlaut = "ü".as_bytes();
        // Halves of a character in two values are invalid in both.
        let pushed = [&b"fine"[..], &umlaut[..1], &umlaut[1..], b"a\xFFb, and some more of it"];
        for data_type in &TYPES[..2] {
            let mut column = VariableColumn::new(data_type).unwrap();
            pushed.iter().for_each(|value| column.push(value));
            column.push_null();
            let array = column.finish().unwrap();
            let mut wanted: Vec<_> = pushed
                .iter()
                .map(|value| Some(String::from_utf8_lossy(value).into_owned().into_bytes()))
                .collect();
            wanted.push(None);
            assert_eq!(values(&array), wanted);
            assert_eq!(array.data_type(), data_type);
        }
        for data_type in &TYPES[2..] {
            let mut column = VariableColumn::new(data_type).unwrap();
            pushed.iter().for_each(|value| column.push(value));
            let array = column.finish().unwrap();
            assert_eq!(values(&array)[3].as_deref(), Some(pushed[3]));
        }
    }

    #[test]
    fn memory_comes_back_once_nobody_holds_the_array() {
        let mut column = VariableColumn::new(&DataType::Binary).unwrap();
        column.push(&[7; 5000]);
        let first = column.finish().unwrap();
        let memory = first.as_binary::<i32>().values().as_ptr();
        column.push(&[8; 5000]);
        let second = column.finish().unwrap();
        assert_ne!(second.as_binary::<i32>().values().as_ptr(), memory);
        assert_eq!(first.as_binary::<i32>().value(0), [7; 5000]);
        drop((first, second));
        column.push(&[9; 10]);
        drop(column.finish().unwrap());
        assert!(column.values.spare() >= 1);
    }

    #[test]
    fn arrays_outlive_their_column() {
        let mut column = VariableColumn::new(&DataType::Utf8).unwrap();
        column.push(b"kept");
        let array = column.finish().unwrap();
        drop(column);
        assert_eq!(array.as_string::<i32>().value(0), "kept");
    }

    #[test]
    fn other_types_are_refused() {
        assert!(VariableColumn::new(&DataType::Int32).is_err());
    }
}

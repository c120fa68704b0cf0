//! Counts of messages, and entries of a queue, as record batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::ahead::BatchError;
use super::derived::Times;
use super::schema::Column;
use crate::care::survey::stats::{Group, Grouping, Stats, Totals};
use crate::format::width::{saturating_i64, to_usize};
use crate::log::{CqUnit, Queue, QueueKind};

/// One row for each group: the grouping columns, then `messages`, `bytes`, `first_store_timestamp`,
/// `last_store_timestamp`. Times outside the years 1 to 9999 are null.
pub fn stats_batch(stats: &Stats) -> Result<RecordBatch, ArrowError> {
    let mut columns = Vec::new();
    for grouping in &stats.by {
        let keys = stats.groups.iter().map(|(group, _)| group);
        columns.push((grouping.name(), group_column(*grouping, keys)?));
    }
    let totals = || stats.groups.iter().map(|(_, totals)| totals);
    let count = |value: fn(&Totals) -> u64| -> ArrayRef {
        let values = totals().map(|totals| saturating_i64(value(totals)));
        Arc::new(Int64Array::from_iter_values(values))
    };
    columns.push(("messages", count(|totals| totals.messages)));
    columns.push(("bytes", count(|totals| totals.bytes)));
    let first = totals().map(|totals| totals.first_store_timestamp_ms);
    columns.push(("first_store_timestamp", times(first)?));
    let last = totals().map(|totals| totals.last_store_timestamp_ms);
    columns.push(("last_store_timestamp", times(last)?));
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, of)| (name, of, true)))
}

fn group_column<'a>(
    grouping: Grouping,
    groups: impl Iterator<Item = &'a Group>,
) -> Result<ArrayRef, ArrowError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match grouping {
        Grouping::Topic => {
            Arc::new(StringArray::from_iter_values(groups.map(|group| text(&group.topic))))
        }
        Grouping::QueueId => {
            Arc::new(Int32Array::from_iter_values(groups.map(|group| group.queue_id)))
        }
        Grouping::Minute | Grouping::QuarterHour | Grouping::Hour | Grouping::Day => {
            times(groups.map(|group| group.begin_ms(grouping)))?
        }
        Grouping::Tags => {
            Arc::new(groups.map(|group| group.tags.as_deref().map(text)).collect::<StringArray>())
        }
    })
}

fn times(times_ms: impl Iterator<Item = i64>) -> Result<ArrayRef, ArrowError> {
    let mut times = Times::new(&Column::StoreTimestamp.data_type());
    times_ms.for_each(|time_ms| times.push(time_ms));
    times.finish()
}

#[must_use]
pub fn queue_schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("queue_offset", DataType::Int64),
        field("physical_offset", DataType::Int64),
        field("store_size", DataType::Int32),
        field("tags_code", DataType::Int64),
        field("message_count", DataType::Int16),
        field("store_timestamp_ms", DataType::Int64),
    ]))
}

/// The entries of a queue at the positions `next..end`, by [`queue_schema`].
pub fn queue_batches(
    queue: Arc<Queue>,
    mut next: u64,
    end: u64,
    schema: SchemaRef,
) -> impl Iterator<Item = Result<RecordBatch, BatchError>> {
    std::iter::from_fn(move || {
        let units = match queue.units_at(next, to_usize(end.saturating_sub(next))) {
            Ok(units) => units,
            Err(error) => return Some(Err(error.into())),
        };
        next = next.saturating_add(units.len() as u64);
        let batch = || queue_batch(queue.kind(), &units, &schema);
        (!units.is_empty()).then(|| batch().map_err(BatchError::from))
    })
}

fn queue_batch(
    kind: QueueKind,
    units: &[CqUnit],
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let long = |get: fn(&CqUnit) -> i64| units.iter().map(get).collect::<Int64Array>();
    let time = |unit: &CqUnit| (kind == QueueKind::Batch).then_some(unit.store_timestamp_ms);
    RecordBatch::try_new(
        Arc::clone(schema),
        vec![
            Arc::new(long(|unit| unit.number)),
            Arc::new(long(|unit| unit.physical_offset)),
            Arc::new(units.iter().map(|unit| unit.store_size).collect::<Int32Array>()),
            Arc::new(long(|unit| unit.tags_code)),
            Arc::new(units.iter().map(|unit| unit.count).collect::<Int16Array>()),
            Arc::new(units.iter().map(time).collect::<Int64Array>()),
        ],
    )
}

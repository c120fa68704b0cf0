//! Consume queue entries as record batches.

use std::sync::Arc;

use arrow_array::{Int16Array, Int32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::scan::BatchError;
use crate::format::width::to_usize;
use crate::log::queue::queue_folder::QueueFolder;
use crate::log::{CqUnit, QueueKind};

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

#[derive(Debug)]
pub struct QueueBatches {
    queue: Arc<QueueFolder>,
    schema: SchemaRef,
    next: u64,
    end: u64,
}

impl QueueBatches {
    /// The entries `begin..end`, counted from the queue's first.
    #[must_use]
    pub fn new(queue: Arc<QueueFolder>, begin: u64, end: u64) -> Self {
        Self { queue, schema: queue_schema(), next: begin, end }
    }

    fn build(&mut self) -> Result<Option<RecordBatch>, BatchError> {
        let count = to_usize(self.end.saturating_sub(self.next));
        if count == 0 {
            return Ok(None);
        }
        let units = self.queue.units(self.next, count)?;
        if units.is_empty() {
            return Ok(None);
        }
        self.next = self.next.saturating_add(units.len() as u64);
        let long = |get: fn(&CqUnit) -> i64| units.iter().map(get).collect::<Int64Array>();
        let is_batch = self.queue.kind() == QueueKind::Batch;
        let time = |unit: &CqUnit| is_batch.then_some(unit.store_timestamp_ms);
        Ok(Some(RecordBatch::try_new(
            Arc::clone(&self.schema),
            vec![
                Arc::new(long(|unit| unit.number)),
                Arc::new(long(|unit| unit.physical_offset)),
                Arc::new(units.iter().map(|unit| unit.store_size).collect::<Int32Array>()),
                Arc::new(long(|unit| unit.tags_code)),
                Arc::new(units.iter().map(|unit| unit.count).collect::<Int16Array>()),
                Arc::new(units.iter().map(time).collect::<Int64Array>()),
            ],
        )?))
    }
}

impl Iterator for QueueBatches {
    type Item = Result<RecordBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.build().transpose()
    }
}

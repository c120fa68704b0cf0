//! A slice of a log as record batches, optionally with rows for damage.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray, new_null_array,
};
use arrow_cast::cast;
use arrow_schema::ArrowError;

use super::ahead::BatchError;
use super::build::builder::BatchBuilder;
use super::schema::Column;
use crate::error::{Error, FormatError};
use crate::format::message::MessageView;
use crate::format::width::at_most_i64;
use crate::log::read::scanner::Flow;
use crate::log::{Block, CommitLog};
use crate::store::read::scan::slice::{Damage, Sink, Slice};

const MOST_DAMAGE: usize = 1024;

#[derive(Debug)]
pub struct SliceBatches {
    slice: Slice,
    rows: Rows,
    columns: Vec<Column>,
    broker: Option<String>,
    ended: bool,
    /// Error to return after the rows before it.
    held: Option<Error>,
}

#[derive(Debug)]
struct Rows {
    builder: BatchBuilder,
    damage: Vec<Damage>,
}

impl Sink for Rows {
    #[inline]
    fn message(
        &mut self,
        view: &MessageView<'_>,
        block: Option<&Arc<Block>>,
    ) -> Result<Flow, FormatError> {
        self.builder.push(view, block)
    }

    fn damage(&mut self, damage: Damage) -> Flow {
        self.damage.push(damage);
        if self.damage.len() < MOST_DAMAGE { Flow::Continue } else { Flow::Stop }
    }
}

impl SliceBatches {
    /// Batches of `slice`, built by `builder` with these columns.
    #[must_use]
    pub fn new(
        slice: Slice,
        builder: BatchBuilder,
        columns: Vec<Column>,
        broker: Option<String>,
    ) -> Self {
        let rows = Rows { builder, damage: Vec::new() };
        Self { slice, rows, columns, broker, ended: false, held: None }
    }

    pub fn begin(&mut self, slice: Slice) {
        (self.slice, self.ended, self.held) = (slice, false, None);
    }

    #[must_use]
    pub fn slice(&self) -> &Slice {
        &self.slice
    }

    /// Whether it is known that no batches follow.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended && self.held.is_none() && self.rows.damage.is_empty()
    }

    /// Next batch, `None` after the last. Rows before an error come first; nothing follows it.
    pub fn next(&mut self, log: &CommitLog) -> Result<Option<RecordBatch>, BatchError> {
        if !self.ended && self.rows.damage.is_empty() {
            match self.slice.run(log, &mut self.rows) {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    self.ended = true;
                    self.held = Some(error);
                }
            }
        }
        if !self.rows.builder.is_empty() {
            return Ok(Some(self.rows.builder.finish()?));
        }
        if !self.rows.damage.is_empty() {
            let damage = std::mem::take(&mut self.rows.damage);
            return Ok(Some(self.damage_rows(&damage)?));
        }
        match self.held.take() {
            Some(error) => Err(error.into()),
            None => Ok(None),
        }
    }

    fn damage_rows(&self, damage: &[Damage]) -> Result<RecordBatch, ArrowError> {
        let schema = self.rows.builder.schema();
        let number = |offset| at_most_i64(offset);
        let message = |one: &Damage| one.message.clone();
        let columns = self.columns.iter().zip(schema.fields()).map(|(column, field)| {
            let array: ArrayRef = match column {
                Column::Broker => {
                    Arc::new(damage.iter().map(|_| self.broker.as_deref()).collect::<StringArray>())
                }
                Column::Topic => Arc::new(
                    damage
                        .iter()
                        .map(|one| message(one).map(|m| String::from_utf8_lossy(&m.0).into_owned()))
                        .collect::<StringArray>(),
                ),
                Column::QueueId => Arc::new(
                    damage.iter().map(|one| message(one).map(|m| m.1)).collect::<Int32Array>(),
                ),
                Column::QueueOffset => Arc::new(
                    damage.iter().map(|one| message(one).map(|m| m.2)).collect::<Int64Array>(),
                ),
                Column::PhysicalOffset => Arc::new(
                    damage.iter().map(|one| Some(number(one.begin))).collect::<Int64Array>(),
                ),
                Column::StoreSize => Arc::new(
                    damage
                        .iter()
                        .map(|one| i32::try_from(one.end.saturating_sub(one.begin)).ok())
                        .collect::<Int32Array>(),
                ),
                Column::Error => Arc::new(
                    damage.iter().map(|one| Some(one.error().to_string())).collect::<StringArray>(),
                ),
                _ => new_null_array(field.data_type(), damage.len()),
            };
            if array.data_type() == field.data_type() {
                Ok(array)
            } else {
                cast(&array, field.data_type())
            }
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(damage.len()));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
    }
}

//! Rows for damage among the rows of messages.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray, new_null_array,
};
use arrow_cast::cast;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::interleave::interleave_record_batch;

use super::schema::Column;
use crate::format::width::saturating_i64;
use crate::store::read::scan::Damage;

/// Maximum in a batch: each has a text.
const MOST_DAMAGE: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct DamageRows {
    rows: Vec<(usize, Box<Damage>)>,
    /// Whether a row names its message, if known.
    pub(crate) names_messages: bool,
}

impl DamageRows {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= MOST_DAMAGE
    }

    pub(crate) fn push(&mut self, messages: usize, damage: Box<Damage>) {
        self.rows.push((messages, damage));
    }

    #[cold]
    pub(crate) fn insert(
        &mut self,
        messages: RecordBatch,
        broker: Option<&str>,
    ) -> Result<RecordBatch, ArrowError> {
        let damage = self.batch(&messages.schema(), broker)?;
        let mut order = Vec::with_capacity(messages.num_rows() + self.rows.len());
        let mut next = 0;
        for (number, (before, _)) in self.rows.drain(..).enumerate() {
            order.extend((next..before).map(|row| (0, row)));
            order.push((1, number));
            next = before;
        }
        order.extend((next..messages.num_rows()).map(|row| (0, row)));
        interleave_record_batch(&[&messages, &damage], &order)
    }

    fn batch(&self, schema: &SchemaRef, broker: Option<&str>) -> Result<RecordBatch, ArrowError> {
        let damage = || self.rows.iter().map(|(_, damage)| damage);
        let named = || damage().map(|one| one.message.as_ref().filter(|_| self.names_messages));
        let columns = schema.fields().iter().map(|field| {
            let array: ArrayRef = match Column::by_name(field.name()) {
                Some(Column::Broker) => Arc::new(damage().map(|_| broker).collect::<StringArray>()),
                Some(Column::Topic) => {
                    let topic = |topic: &[u8]| String::from_utf8_lossy(topic).into_owned();
                    Arc::new(named().map(|m| m.map(|m| topic(&m.0))).collect::<StringArray>())
                }
                Some(Column::QueueId) => {
                    Arc::new(named().map(|m| m.map(|m| m.1)).collect::<Int32Array>())
                }
                Some(Column::QueueOffset) => {
                    Arc::new(named().map(|m| m.map(|m| m.2)).collect::<Int64Array>())
                }
                Some(Column::PhysicalOffset) => Arc::new(
                    damage().map(|one| Some(saturating_i64(one.begin))).collect::<Int64Array>(),
                ),
                Some(Column::StoreSize) => Arc::new(
                    damage().map(|one| i32::try_from(one.length()).ok()).collect::<Int32Array>(),
                ),
                Some(Column::Error) => Arc::new(
                    damage().map(|one| Some(one.error().to_string())).collect::<StringArray>(),
                ),
                _ => new_null_array(field.data_type(), self.rows.len()),
            };
            if array.data_type() == field.data_type() {
                Ok(array)
            } else {
                cast(&array, field.data_type())
            }
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
    }
}

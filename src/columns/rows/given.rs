//! Times in the rows of a caller, who may have meant another zone or unit.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Schema};

use super::{MessageRows, RowsError, cast, out_of_range};
use crate::columns::schema::Column;
use crate::time::other_unit;

impl MessageRows {
    /// Reads a batch of a caller: its times have a zone, or `zone` counts, and its numbers are
    /// milliseconds.
    ///
    /// # Errors
    /// As [`MessageRows::new`], and for another time.
    pub fn given(batch: &RecordBatch, zone: Option<&str>) -> Result<Self, RowsError> {
        let times = [Column::BornTimestamp, Column::StoreTimestamp];
        let mut arrays = batch.columns().to_vec();
        let mut fields = batch.schema_ref().fields().to_vec();
        for (array, field) in arrays.iter_mut().zip(&mut fields) {
            let column = times.into_iter().find(|column| field.name().starts_with(column.name()));
            let (Some(column), DataType::Timestamp(unit, None)) = (column, array.data_type())
            else {
                continue;
            };
            let no_zone = "expected times with a zone, got timestamps without one; give \
                           assume_timezone, such as \"UTC\" or \"Europe/Berlin\"";
            let zone = zone.ok_or_else(|| out_of_range(column, no_zone))?;
            let in_zone = DataType::Timestamp(*unit, Some(zone.into()));
            *array = cast(column, array, &in_zone)?;
            *field = Arc::new(field.as_ref().clone().with_data_type(in_zone));
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &rows)
            .map_err(|error| out_of_range(Column::BornTimestamp, error))?;
        let rows = Self::new(&batch)?;
        for (column, given) in times.into_iter().zip([&rows.born_timestamp, &rows.store_timestamp])
        {
            for ms in given.iter().flat_map(|given| given.iter()).flatten() {
                if let Some((unit, cure)) = other_unit(ms) {
                    let reason = format!("expected milliseconds, got {ms}, as if {unit}; {cure}");
                    return Err(out_of_range(column, reason));
                }
            }
        }
        Ok(rows)
    }
}

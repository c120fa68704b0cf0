//! Reads user-supplied Arrow columns as one expected type.
//!
//! Accepts related types too: wide offsets, views, dictionaries, integers of other widths, times in
//! other units, a list of pairs for a map.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, GenericStringArray, Int32Array, Int64Array, LargeBinaryArray,
    LargeStringArray, OffsetSizeTrait,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};

use crate::columns::schema::Column;
use crate::format::width::{at_least_0, to_usize};

/// Reason why a batch cannot be read as messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// An unknown column.
    #[error("a message has no column {name:?}; its columns are {}", all_names())]
    Unknown {
        /// Its name.
        name: String,
    },
    /// A duplicate column.
    #[error("column {name} is given twice")]
    Twice {
        /// Its name.
        name: &'static str,
    },
    /// A missing column.
    #[error("column {name} is missing, or all nulls")]
    Missing {
        /// Its name.
        name: &'static str,
    },
    /// A column of the wrong type.
    #[error(
        "column {name}: expected {}, got {}{}",
        arrow_name(wanted),
        arrow_name(found),
        cure(wanted)
    )]
    Type {
        /// Its name.
        name: &'static str,
        /// Expected.
        wanted: DataType,
        /// Type found.
        found: DataType,
    },
    /// A value out of range.
    #[error("column {name}: {reason}")]
    Range {
        /// Its name.
        name: &'static str,
        /// Description of the value.
        reason: String,
    },
}

fn arrow_name(of: &DataType) -> String {
    match of {
        DataType::Utf8 => "string".to_owned(),
        DataType::LargeUtf8 => "large_string".to_owned(),
        DataType::Timestamp(..) => "timestamp".to_owned(),
        DataType::Boolean => "bool".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::List(item) => format!("list<{}>", arrow_name(item.data_type())),
        DataType::Map(..) => "map<string, string>".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

fn cure(wanted: &DataType) -> &'static str {
    match wanted {
        DataType::Binary => "; cast it, for example .cast(pa.binary())",
        DataType::Utf8 => "; cast it, for example .cast(pa.string())",
        DataType::Int32 => "; cast it, for example .cast(pa.int32())",
        DataType::Int64 => "; cast it, for example .cast(pa.int64())",
        DataType::Timestamp(..) => "; cast it, or add _ms to the name of a column of milliseconds",
        DataType::List(_) => "; for example .cast(pa.list_(pa.string()))",
        DataType::Map(..) => "; for example .cast(pa.map_(pa.string(), pa.string()))",
        _ => "",
    }
}

fn all_names() -> String {
    Column::ALL.map(Column::name).join(", ")
}

/// A list of texts for each row.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) rows: Rows,
    pub(crate) texts: LargeStringArray,
}

#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) rows: Rows,
    pub(crate) names: LargeStringArray,
    pub(crate) values: LargeStringArray,
}

/// Ends of the rows' values among all values, behind the first one's begin.
#[derive(Debug)]
pub(crate) struct Rows {
    ends: Vec<usize>,
    nulls: Option<NullBuffer>,
}

impl Rows {
    /// Rows of an array of lists or maps.
    fn of(array: &ArrayRef) -> Self {
        let place = |end: i64| to_usize(at_least_0(end));
        if array.is_empty() {
            // Its only end may be behind all values.
            return Self { ends: Vec::new(), nulls: None };
        }
        let ends = match array.data_type() {
            DataType::Map(..) => {
                array.as_map().offsets().iter().map(|end| place((*end).into())).collect()
            }
            DataType::LargeList(_) => {
                array.as_list::<i64>().offsets().iter().map(|end| place(*end)).collect()
            }
            _ => array.as_list::<i32>().offsets().iter().map(|end| place((*end).into())).collect(),
        };
        Self { ends, nulls: array.nulls().cloned() }
    }

    fn first(&self) -> usize {
        self.ends.first().copied().unwrap_or(0)
    }

    fn count(&self) -> usize {
        self.ends.last().map_or(0, |end| end.saturating_sub(self.first()))
    }

    /// Indexes of a row's values, counted from the first one.
    pub(crate) fn range(&self, row: usize) -> Option<Range<usize>> {
        let ends = self.ends.get(row..row.checked_add(2)?)?;
        let is_null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let place = |end: usize| end.saturating_sub(self.first());
        (!is_null).then(|| place(ends[0])..place(ends[1]))
    }
}

pub(crate) fn text(array: Option<&LargeStringArray>, row: usize) -> Option<&[u8]> {
    let array = array.filter(|array| row < array.len() && array.is_valid(row))?;
    Some(array.value(row).as_bytes())
}

pub(crate) fn value(array: Option<&LargeBinaryArray>, row: usize) -> Option<&[u8]> {
    let array = array.filter(|array| row < array.len() && array.is_valid(row))?;
    Some(array.value(row))
}

pub(crate) fn int(array: Option<&Int32Array>, row: usize) -> i32 {
    array.filter(|array| array.is_valid(row)).map_or(0, |array| array.value(row))
}

pub(crate) fn long(array: Option<&Int64Array>, row: usize) -> Option<i64> {
    array.filter(|array| array.is_valid(row)).map(|array| array.value(row))
}

pub(crate) type Given = (Column, ArrayRef);

/// A dictionary counts as its values' type.
pub(crate) fn kind(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(kind(data_type), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

pub(super) fn wrong_type(column: Column, found: &DataType) -> RowsError {
    RowsError::Type { name: column.name(), wanted: column.data_type(), found: found.clone() }
}

fn cast(column: Column, array: &ArrayRef, to: &DataType) -> Result<ArrayRef, RowsError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, to, &strict)
        .map_err(|error| RowsError::Range { name: column.name(), reason: error.to_string() })
}

/// Copies an array's texts: another thread may write to the given memory, and they are read more
/// than once.
fn all_texts(column: Column, array: &ArrayRef) -> Result<LargeStringArray, RowsError> {
    match array.data_type() {
        DataType::Utf8 => copied(column, array.as_string::<i32>()),
        DataType::LargeUtf8 => copied(column, array.as_string::<i64>()),
        _ => copied(column, cast(column, array, &DataType::LargeUtf8)?.as_string::<i64>()),
    }
}

fn copied<O: OffsetSizeTrait + Into<i64>>(
    column: Column,
    texts: &GenericStringArray<O>,
) -> Result<LargeStringArray, RowsError> {
    // Read once.
    let mut ends: Vec<i64> = texts.value_offsets().iter().map(|end| (*end).into()).collect();
    let place = |end: i64| to_usize(at_least_0(end));
    let first = ends.first().copied().unwrap_or(0);
    let whole = place(first)..place(ends.last().copied().unwrap_or(0));
    ends.iter_mut().for_each(|end| *end -= first);
    let values = Buffer::from(texts.value_data().get(whole).unwrap_or_default());
    LargeStringArray::try_new(OffsetBuffer::new(ends.into()), values, texts.nulls().cloned())
        .map_err(|error| RowsError::Range { name: column.name(), reason: error.to_string() })
}

pub(crate) fn texts((column, array): Given) -> Result<LargeStringArray, RowsError> {
    if is_text(array.data_type()) || array.data_type().is_null() {
        return all_texts(column, &array);
    }
    Err(wrong_type(column, array.data_type()))
}

pub(crate) fn bytes((column, array): Given) -> Result<LargeBinaryArray, RowsError> {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary, Null};
    match kind(array.data_type()) {
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) | Null => {
            Ok(cast(column, &array, &LargeBinary)?.as_binary::<i64>().clone())
        }
        _ if is_text(array.data_type()) => Ok(all_texts(column, &array)?.into()),
        _ => Err(wrong_type(column, array.data_type())),
    }
}

fn integers((column, array): Given, to: &DataType) -> Result<ArrayRef, RowsError> {
    let found = kind(array.data_type());
    if found.is_integer() || found.is_null() {
        return cast(column, &array, to);
    }
    Err(wrong_type(column, array.data_type()))
}

pub(crate) fn ints(given: Given) -> Result<Int32Array, RowsError> {
    Ok(integers(given, &DataType::Int32)?.as_primitive::<Int32Type>().clone())
}

pub(crate) fn longs(given: Given) -> Result<Int64Array, RowsError> {
    Ok(integers(given, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

pub(crate) fn times((column, array): Given) -> Result<Int64Array, RowsError> {
    let unit = match array.data_type() {
        DataType::Timestamp(unit, _) => *unit,
        DataType::Null | DataType::Int64 => TimeUnit::Millisecond,
        other => return Err(wrong_type(column, other)),
    };
    let numbers = cast(column, &array, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let per_ms = match unit {
        TimeUnit::Second => {
            return numbers.try_unary(|time| time.checked_mul(1000).ok_or(())).map_err(|()| {
                RowsError::Range { name: column.name(), reason: "a time out of reach".to_owned() }
            });
        }
        TimeUnit::Millisecond => return Ok(numbers.clone()),
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1_000_000,
    };
    Ok(numbers.unary(|time| time.div_euclid(per_ms)))
}

/// A list's rows, and their values.
fn list_values(array: &ArrayRef) -> Option<(Rows, ArrayRef)> {
    let values = match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().values(),
        DataType::LargeList(_) => array.as_list::<i64>().values(),
        _ => return None,
    };
    let rows = Rows::of(array);
    let reached = values.slice(rows.first(), rows.count());
    Some((rows, reached))
}

pub(crate) fn lists((column, array): Given) -> Result<Lists, RowsError> {
    match list_values(&array) {
        Some((rows, values)) if is_text(values.data_type()) || values.data_type().is_null() => {
            Ok(Lists { rows, texts: all_texts(column, &values)? })
        }
        _ => Err(wrong_type(column, array.data_type())),
    }
}

pub(crate) fn maps((column, array): Given) -> Result<Maps, RowsError> {
    let pairs = match array.data_type() {
        DataType::Map(..) => {
            let rows = Rows::of(&array);
            let entries = array.as_map().entries().slice(rows.first(), rows.count());
            Some((rows, entries))
        }
        _ => list_values(&array)
            .and_then(|(rows, values)| Some((rows, values.as_struct_opt()?.clone()))),
    };
    let Some((rows, pairs)) = pairs else { return Err(wrong_type(column, array.data_type())) };
    let [names, values] = pairs.columns() else {
        return Err(wrong_type(column, array.data_type()));
    };
    for side in [names, values] {
        if !is_text(side.data_type()) && !side.data_type().is_null() {
            return Err(wrong_type(column, array.data_type()));
        }
    }
    let (names, values) = (all_texts(column, names)?, all_texts(column, values)?);
    Ok(Maps { rows, names, values })
}

#[cfg(test)]
mod tests {
    use arrow_array::{BinaryArray, ListArray, StringArray};

    use super::*;

    #[test]
    fn a_row_that_is_not_there_has_nothing() {
        let texts = LargeStringArray::from(vec![Some("a"), None]);
        let found: Vec<_> = (0..3).map(|row| text(Some(&texts), row)).collect();
        assert_eq!(found, [Some(&b"a"[..]), None, None]);
        let values = LargeBinaryArray::from(vec![Some(&b"v"[..]), None]);
        let found: Vec<_> = (0..3).map(|row| value(Some(&values), row)).collect();
        assert_eq!(found, [Some(&b"v"[..]), None, None]);
        assert_eq!((text(None, 0), value(None, 0)), (None, None));
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)]), None]);
        let list: ArrayRef = std::sync::Arc::new(list);
        let found: Vec<_> = (0..3).map(|row| Rows::of(&list).range(row)).collect();
        assert_eq!(found, [Some(0..1), None, None]);
        let text: ArrayRef = std::sync::Arc::new(StringArray::from(vec!["x"]));
        assert_eq!(bytes((Column::Body, text)).unwrap().value(0), b"x");
        let wrong: ArrayRef = std::sync::Arc::new(Int32Array::from(vec![1]));
        assert!(bytes((Column::Body, wrong)).is_err());
        let right: ArrayRef = std::sync::Arc::new(BinaryArray::from(vec![&b"x"[..]]));
        assert_eq!(bytes((Column::Body, right)).unwrap().value(0), b"x");
    }
}

//! Reads user-supplied Arrow columns as one expected type.
//!
//! Accepts related types too: wide offsets, views, dictionaries, integers of other widths, times in
//! other units, a list of pairs for a map.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray};
use arrow_buffer::{Buffer, OffsetBuffer};
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
    pub(crate) array: ArrayRef,
    /// Index of the first of `texts` among all values.
    pub(crate) first: usize,
    pub(crate) texts: LargeStringArray,
}

#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) array: ArrayRef,
    pub(crate) first: usize,
    pub(crate) names: LargeStringArray,
    pub(crate) values: LargeStringArray,
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

/// Indexes of a row's values, counted from `first`.
pub(crate) fn range(array: &ArrayRef, first: usize, row: usize) -> Option<Range<usize>> {
    if row >= array.len() || array.is_null(row) {
        return None;
    }
    let ends = ends(array, row, row + 1);
    Some(ends.start.saturating_sub(first)..ends.end.saturating_sub(first))
}

fn reach(array: &ArrayRef) -> Range<usize> {
    if array.is_empty() { 0..0 } else { ends(array, 0, array.len()) }
}

/// Indexes of the values of rows `from..to`.
fn ends(array: &ArrayRef, from: usize, to: usize) -> Range<usize> {
    let place = |end: i64| to_usize(at_least_0(end));
    match array.data_type() {
        DataType::Map(..) => {
            let ends = array.as_map().offsets();
            place(ends[from].into())..place(ends[to].into())
        }
        DataType::LargeList(_) => {
            let ends = array.as_list::<i64>().offsets();
            place(ends[from])..place(ends[to])
        }
        _ => {
            let ends = array.as_list::<i32>().offsets();
            place(ends[from].into())..place(ends[to].into())
        }
    }
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
    let cast = cast(column, array, &DataType::LargeUtf8)?;
    let texts = cast.as_string::<i64>();
    let ends: Vec<i64> = texts.value_offsets().to_vec();
    let place = |end: i64| to_usize(at_least_0(end));
    let first = ends.first().copied().unwrap_or(0);
    let whole = place(first)..place(ends.last().copied().unwrap_or(0));
    let values = Buffer::from(texts.value_data().get(whole).unwrap_or_default());
    let ends: Vec<i64> = ends.into_iter().map(|end| end - first).collect();
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

/// Milliseconds since 1970, rounded down.
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

/// A list's values reached by its rows, and the index of the first.
fn list_values(array: &ArrayRef) -> Option<(ArrayRef, usize)> {
    let (values, ends): (&ArrayRef, Range<usize>) = match array.data_type() {
        DataType::List(_) => (array.as_list::<i32>().values(), reach(array)),
        DataType::LargeList(_) => (array.as_list::<i64>().values(), reach(array)),
        _ => return None,
    };
    Some((values.slice(ends.start, ends.len()), ends.start))
}

pub(crate) fn lists((column, array): Given) -> Result<Lists, RowsError> {
    match list_values(&array) {
        Some((values, first)) if is_text(values.data_type()) || values.data_type().is_null() => {
            let texts = all_texts(column, &values)?;
            Ok(Lists { array, first, texts })
        }
        _ => Err(wrong_type(column, array.data_type())),
    }
}

pub(crate) fn maps((column, array): Given) -> Result<Maps, RowsError> {
    let pairs = match array.data_type() {
        DataType::Map(..) => {
            let ends = reach(&array);
            Some((array.as_map().entries().slice(ends.start, ends.len()), ends.start))
        }
        _ => list_values(&array)
            .and_then(|(values, first)| Some((values.as_struct_opt()?.clone(), first))),
    };
    let columns = pairs.as_ref().map(|(pairs, first)| (pairs.columns(), *first));
    let Some(([names, values], first)) = columns else {
        return Err(wrong_type(column, array.data_type()));
    };
    for side in [names, values] {
        if !is_text(side.data_type()) && !side.data_type().is_null() {
            return Err(wrong_type(column, array.data_type()));
        }
    }
    let (names, values) = (all_texts(column, names)?, all_texts(column, values)?);
    Ok(Maps { array, first, names, values })
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
        let found: Vec<_> = (0..3).map(|row| range(&list, 0, row)).collect();
        assert_eq!(found, [Some(0..1), None, None]);
        let text: ArrayRef = std::sync::Arc::new(StringArray::from(vec!["x"]));
        assert_eq!(bytes((Column::Body, text)).unwrap().value(0), b"x");
        let wrong: ArrayRef = std::sync::Arc::new(Int32Array::from(vec![1]));
        assert!(bytes((Column::Body, wrong)).is_err());
        let right: ArrayRef = std::sync::Arc::new(BinaryArray::from(vec![&b"x"[..]]));
        assert_eq!(bytes((Column::Body, right)).unwrap().value(0), b"x");
    }
}

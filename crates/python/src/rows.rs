//! The rows of a result, which are values of JSON (docs/json.md), as a table.

use crate::table::Table;
use arrow_array::builder::{FixedSizeListBuilder, Float64Builder};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, StringArray, UInt64Array};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use std::sync::Arc;

/// The table of columns: the name of each, and its values as an array of JSON. A column of other values than texts,
/// numbers, flags and intervals is left out.
#[pyfunction]
pub fn table_of(columns: Vec<(String, String)>) -> PyResult<Table> {
    let understood = columns.into_iter().map(|(name, values)| {
        let values: Vec<Value> = serde_json::from_str(&values)
            .map_err(|error| PyValueError::new_err(format!("{name}: {error}")))?;
        Ok(array(&name, &values).map(|array| (name, array)))
    });
    let arrays = understood.collect::<PyResult<Vec<_>>>()?;
    Table::of_arrays(arrays.into_iter().flatten())
}

/// An array of the type of the values. Without any it is an interval's where its name says so, else a number's: the
/// texts that can be null are `better` and `missing`.
fn array(name: &str, values: &[Value]) -> Option<ArrayRef> {
    let is_interval =
        || name == "interval" || name.ends_with(".interval") || name.split('_').any(|part| part == "ci");
    let there = || values.iter().filter(|value| !value.is_null());
    let all = |is: fn(&Value) -> bool| there().next().is_some() && there().all(is);
    Some(if all(Value::is_string) || there().next().is_none() && ["better", "missing"].contains(&name) {
        Arc::new(StringArray::from_iter(values.iter().map(|value| value.as_str())))
    } else if all(Value::is_boolean) {
        Arc::new(BooleanArray::from_iter(values.iter().map(|value| value.as_bool())))
    } else if all(Value::is_u64) {
        Arc::new(UInt64Array::from_iter(values.iter().map(|value| value.as_u64())))
    } else if is_interval() {
        intervals(values.iter().map(ends))
    } else if there().all(Value::is_number) {
        Arc::new(Float64Array::from_iter(values.iter().map(|value| value.as_f64())))
    } else {
        return None;
    })
}

/// Intervals, by their ends.
fn intervals(values: impl Iterator<Item = Option<[f64; 2]>>) -> ArrayRef {
    let mut array = FixedSizeListBuilder::new(Float64Builder::new(), 2);
    for value in values {
        let [low, high] = value.map_or([None; 2], |ends| ends.map(Some));
        array.values().append_option(low);
        array.values().append_option(high);
        array.append(value.is_some());
    }
    Arc::new(array.finish())
}

fn ends(value: &Value) -> Option<[f64; 2]> {
    let [low, high] = value.as_array()?.as_slice() else { return None };
    Some([low.as_f64()?, high.as_f64()?])
}

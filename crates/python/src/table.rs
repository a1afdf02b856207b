//! Tables in memory, in Arrow's layout: pyarrow, polars and pandas use them where they are.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{Field, Schema};
use lab::columns::{Column, Columns};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::Arc;

/// A table, which `pyarrow.table`, `polars.DataFrame` and `pandas.DataFrame.from_arrow` take.
#[pyclass(frozen, module = "pagefold")]
pub struct Table {
    batch: RecordBatch,
}

impl Table {
    /// The table of runs.
    pub fn of(runs: Columns) -> PyResult<Table> {
        Table::of_arrays(runs.columns.into_iter().map(|(name, column)| (name, array(column))))
    }

    /// The table of arrays, all of the same length, each with its name.
    pub fn of_arrays(arrays: impl Iterator<Item = (String, ArrayRef)>) -> PyResult<Table> {
        let fields = arrays.map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array));
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = fields.unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        batch.map(|batch| Table { batch }).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<pagefold.Table of {} rows and {} columns>", self.batch.num_rows(), self.batch.num_columns())
    }

    /// The table by Arrow's PyCapsule interface. A schema that is asked for is the consumer's to cast to.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    /// Its schema by the same interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema_ref().as_ref());
        let schema = schema.map_err(|error| PyValueError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

/// The array of a column.
fn array(column: Column) -> ArrayRef {
    match column {
        Column::Text(values) => Arc::new(StringArray::from(values)),
        Column::Count(values) => Arc::new(UInt64Array::from(values)),
        Column::Number(values) => Arc::new(Float64Array::from(values)),
    }
}

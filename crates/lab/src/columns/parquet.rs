//! Tables as Parquet: one row group, without compression.

use super::{Column, Columns};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as Written};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use std::sync::Arc;

/// The bytes of a file with this table.
pub fn file_of(columns: &Columns) -> Written<Vec<u8>> {
    let fields = columns.columns.iter().map(|(name, column)| field(name, column).map(Arc::new));
    let fields = fields.collect::<Written<Vec<_>>>()?;
    let schema = Type::group_type_builder("runs").with_fields(fields).build()?;
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::default())?;
    let mut rows = file.next_row_group()?;
    for (name, column) in &columns.columns {
        let missing = || ParquetError::General(format!("the schema lacks {name}"));
        let mut writer = rows.next_column()?.ok_or_else(missing)?;
        match column {
            Column::Text(values) => {
                put::<ByteArrayType, _>(&mut writer, values, |text| text.clone().into_bytes().into())
            }
            // As a number without a sign, of which these are the bits.
            Column::Count(values) => put::<Int64Type, _>(&mut writer, values, |&count| count.cast_signed()),
            Column::Number(values) => put::<DoubleType, _>(&mut writer, values, |&number| number),
        }?;
        writer.close()?;
    }
    rows.close()?;
    file.into_inner()
}

fn field(name: &str, column: &Column) -> Written<Type> {
    let (physical, logical) = match column {
        Column::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Column::Count(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Column::Number(_) => (Physical::DOUBLE, None),
    };
    let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    field.with_logical_type(logical).build()
}

/// Write the values of a column, and where there are none.
fn put<D: DataType, T>(
    writer: &mut SerializedColumnWriter<'_>,
    values: &[Option<T>],
    value: impl Fn(&T) -> D::T,
) -> Written<()> {
    let there: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<D::T> = values.iter().flatten().map(value).collect();
    writer.typed::<D>().write_batch(&values, Some(&there), None).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use std::io::Write;

    #[test]
    fn file_has_the_table_with_its_gaps() {
        let mut columns = Columns::default();
        columns.add("why", Column::Text(vec![Some("no \u{fc}".to_owned()), None]));
        columns.add("seed", Column::Count(vec![Some(u64::MAX), None]));
        columns.add("run_time", Column::Number(vec![None, Some(0.1)]));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&file_of(&columns).unwrap()).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<Vec<(String, Field)>> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().into_columns()).collect();
        let row = |why, seed, time| {
            [("why", why), ("seed", seed), ("run_time", time)].map(|(name, value)| (name.to_owned(), value))
        };
        let expected = [
            row(Field::Str("no \u{fc}".to_owned()), Field::ULong(u64::MAX), Field::Null),
            row(Field::Null, Field::Null, Field::Double(0.1)),
        ];
        assert_eq!(rows, expected);
    }
}

//! The entries of a record batch.

use super::column::{ArrowColumn, ArrowValues};
use crate::{
    encode::{Mismatch, RowEncoder, put_plain},
    schema::{Form, Schema},
    value::Value,
};
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use std::collections::HashMap;

/// The columns of a batch that a schema names.
#[derive(Debug)]
pub struct BatchColumns<'a> {
    schema: &'a Schema,
    key: ArrowColumn,
    /// The columns in the order of the schema; `None` if the batch has none of the name.
    values: Vec<Option<ArrowColumn>>,
}

/// The entries of a batch: a key and a value for each row.
pub struct BatchRows<'a> {
    schema: &'a Schema,
    key: ArrowValues<'a>,
    values: Vec<Option<ArrowValues<'a>>>,
}

impl<'a> BatchColumns<'a> {
    /// Finds the columns of a schema in a batch. Columns that the batch lacks are null.
    ///
    /// # Errors
    /// The batch has no column for the key, or a column cannot be converted.
    pub fn new(schema: &'a Schema, batch: &RecordBatch) -> Result<BatchColumns<'a>, ArrowError> {
        let arrow = batch.schema_ref();
        let places: HashMap<&str, usize> =
            arrow.fields().iter().enumerate().map(|(i, field)| (&field.name()[..], i)).collect();
        let find = |name: &str| {
            let found = *places.get(name)?;
            Some(ArrowColumn::new(batch.column(found), &arrow.fields()[found]))
        };
        let key = find(&schema.key).ok_or_else(|| {
            ArrowError::SchemaError(format!("column \"{}\" is missing in a batch", schema.key))
        })?;
        let values = schema.columns.iter().map(|column| find(&column.name).transpose());
        Ok(BatchColumns { schema, key: key?, values: values.collect::<Result<_, _>>()? })
    }

    /// Opens the columns for reading.
    pub fn rows(&self) -> Result<BatchRows<'_>, ArrowError> {
        let values = self.values.iter().map(|column| column.as_ref().map(ArrowColumn::values));
        let values = values.map(Option::transpose).collect::<Result<_, _>>()?;
        Ok(BatchRows { schema: self.schema, key: self.key.values()?, values })
    }
}

impl BatchRows<'_> {
    /// Appends the key of a row: text and bytes as they are, other types as their text. Returns
    /// `false` if it is null.
    pub fn put_key(&mut self, i: usize, out: &mut Vec<u8>) -> bool {
        if self.key.is_null(i) {
            return false;
        }
        self.key.value(i).write_text(out);
        true
    }

    /// Returns the value of a column, by its number in the schema. Columns that the batch lacks are null.
    ///
    /// # Panics
    /// If the batch has no such row, or the schema no such column.
    pub fn value(&mut self, i: usize, column: usize) -> Value<'_> {
        self.values[column].as_mut().map_or(Value::Null, |values| values.value(i))
    }

    /// Appends the value of a row. Columns are converted to the kinds of the schema where nothing
    /// is lost.
    ///
    /// # Errors
    /// A column cannot be converted without loss; the error has its number in the schema.
    pub fn put_value(&mut self, i: usize, out: &mut Vec<u8>) -> Result<(), (usize, Mismatch)> {
        let columns = self.schema.columns.iter().zip(&mut self.values).enumerate();
        let mut row = match self.schema.form {
            Form::Row => RowEncoder::new(out, self.schema.columns.len()),
            Form::Plain | Form::Object => {
                for (place, (column, values)) in columns {
                    let value = values.as_mut().map_or(Value::Null, |values| values.value(i));
                    put_plain(column.kind, value, out).map_err(|error| (place, error))?;
                }
                return Ok(());
            }
        };
        for (place, (column, values)) in columns {
            match values {
                Some(values) => {
                    values.put(i, column.kind, &mut row).map_err(|error| (place, error))?;
                }
                None => row.null(),
            }
        }
        Ok(())
    }
}

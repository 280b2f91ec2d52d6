//! Record batches from entries.

use super::types::{data_type, field};
use crate::{
    encode::put,
    key::KeyType,
    kind::Kind,
    list::List,
    schema::{Form, Schema},
    value::Value,
};
use arrow_array::{RecordBatch, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use hashfold::{Error, Result};
use std::sync::Arc;

/// Collects entries, and makes record batches of them: a column for the key, and one for each
/// column of the schema. A value of the form `object` is one column of JSON text, `value`.
#[derive(Debug)]
pub struct BatchBuilder {
    schema: Schema,
    arrow: SchemaRef,
    columns: Vec<ColumnBuilder>,
    len: usize,
}

/// Maximum size of the bytes of a column in a batch: offsets of Arrow have 32 bits.
const COLUMN_BYTES_MAX: usize = i32::MAX as usize;

impl BatchBuilder {
    /// Makes an empty builder.
    pub fn new(schema: &Schema) -> BatchBuilder {
        let key = match schema.key_type {
            KeyType::Text => Kind::Text,
            KeyType::Int64 => Kind::Int64,
            KeyType::Uint64 => Kind::Uint64,
        };
        let object = (schema.form == Form::Object).then_some(("value", Kind::Json));
        let columns = schema.columns.iter().map(|column| (&column.name[..], column.kind));
        let all = || [(&schema.key[..], key)].into_iter().chain(columns.clone()).chain(object);
        let fields: Vec<_> = all().map(|(name, kind)| field(name, kind)).collect();
        let arrow = Arc::new(arrow_schema::Schema::new(fields));
        let columns = all().map(|(_, kind)| ColumnBuilder::new(kind)).collect();
        BatchBuilder { schema: schema.clone(), arrow, columns, len: 0 }
    }

    /// The schema of the batches.
    pub fn arrow_schema(&self) -> &SchemaRef {
        &self.arrow
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry of a table.
    ///
    /// # Errors
    /// The value is no row of the schema, or a column has more than 2 GiB in one batch.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let row = self.schema.row(value)?;
        let object = (self.schema.form == Form::Object).then_some(Value::Json(value));
        let fields = row.iter().map(|(_, value)| value).filter(|_| object.is_none()).chain(object);
        let values = [self.schema.key_type.value(key)].into_iter().chain(fields);
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value)?;
        }
        self.len += 1;
        Ok(())
    }

    /// Returns the entries so far as a batch, and starts the next one.
    ///
    /// # Errors
    /// A text is not UTF-8.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let kinds: Vec<_> = self.columns.iter().map(|column| column.kind).collect();
        let new = kinds.into_iter().map(ColumnBuilder::new).collect();
        let columns = std::mem::replace(&mut self.columns, new);
        let len = std::mem::take(&mut self.len);
        let arrays = columns.into_iter().map(|column| column.finish(len).map(make_array));
        let batch = arrays.collect::<std::result::Result<_, _>>();
        let batch = batch.and_then(|arrays| RecordBatch::try_new(self.arrow.clone(), arrays));
        batch.map_err(|error| Error::field("row", "text in UTF-8", error))
    }
}

/// The values of a column, as Arrow has them.
#[derive(Debug)]
struct ColumnBuilder {
    kind: Kind,
    bytes: Vec<u8>,
    /// Ends of values in `bytes`, or in numbers for lists; for values of any size.
    offsets: Vec<i32>,
    valid: Vec<bool>,
    /// Whether each number of the lists is there.
    valid_items: Vec<bool>,
}

impl ColumnBuilder {
    fn new(kind: Kind) -> ColumnBuilder {
        let (bytes, valid, valid_items) = (Vec::new(), Vec::new(), Vec::new());
        ColumnBuilder { kind, bytes, offsets: vec![0], valid, valid_items }
    }

    fn push(&mut self, value: Value<'_>) -> Result<()> {
        let is_null = matches!(value, Value::Null);
        self.valid.push(!is_null);
        match (self.kind.width(), value) {
            (Some(width), Value::Null) => self.bytes.resize(self.bytes.len() + width, 0),
            (_, Value::Null) => {}
            (_, Value::List(list)) => self.push_list(list),
            _ => put(self.kind, value, &mut self.bytes).ok_or_else(|| {
                Error::field("row", format!("a value of the kind {}", self.kind), value)
            })?,
        }
        let end = match self.kind {
            Kind::List { .. } => self.valid_items.len(),
            _ => self.bytes.len(),
        };
        if self.bytes.len() > COLUMN_BYTES_MAX {
            let expected = format!("at most {COLUMN_BYTES_MAX} bytes a column");
            return Err(Error::argument("batch", expected, self.bytes.len()));
        }
        self.offsets.push(end as i32);
        Ok(())
    }

    fn push_list(&mut self, list: List<'_>) {
        self.bytes.extend_from_slice(list.bytes());
        self.valid_items.extend(list.iter().map(|number| number != Value::Null));
    }

    fn finish(self, len: usize) -> std::result::Result<ArrayData, ArrowError> {
        let nulls =
            |valid: Vec<bool>| Some(NullBuffer::from(valid)).filter(|it| it.null_count() > 0);
        let builder = |data_type: DataType, len| ArrayDataBuilder::new(data_type).len(len);
        let array = builder(data_type(self.kind), len).nulls(nulls(self.valid));
        let array = match self.kind {
            Kind::Bool => {
                let bits: BooleanBuffer = self.bytes.iter().map(|byte| *byte == 1).collect();
                array.add_buffer(bits.into_inner())
            }
            Kind::List { item } => {
                let items = builder(data_type(item.kind()), self.valid_items.len())
                    .add_buffer(Buffer::from_vec(self.bytes))
                    .nulls(nulls(self.valid_items))
                    .align_buffers(true)
                    .build()?;
                array.add_buffer(Buffer::from_vec(self.offsets)).add_child_data(items)
            }
            kind if kind.width().is_some() => array.add_buffer(Buffer::from_vec(self.bytes)),
            _ => array
                .add_buffer(Buffer::from_vec(self.offsets))
                .add_buffer(Buffer::from_vec(self.bytes)),
        };
        array.align_buffers(true).build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        arrow::{BatchColumns, kind},
        kind::{Item, Unit},
        schema::Column,
    };

    const KINDS: [Kind; 10] = [
        Kind::Bool,
        Kind::Int16,
        Kind::Uint64,
        Kind::Float32,
        Kind::Timestamp { unit: Unit::Microsecond, utc: true },
        Kind::Text,
        Kind::Json,
        Kind::Binary,
        Kind::List { item: Item::Int64 },
        Kind::List { item: Item::Float32 },
    ];

    fn schema() -> Schema {
        let column = |(i, kind)| Column { name: format!("c{i}"), kind };
        let columns = KINDS.into_iter().enumerate().map(column).collect();
        Schema { key_type: KeyType::Int64, ..Schema::new("id", columns) }
    }

    #[test]
    fn rows_come_back_from_a_batch() {
        let schema = schema();
        let time = "2026-01-31T12:00:00.000001Z";
        let texts = ["true", "-3", "7", "0.5", time, "a", "{\"a\":[1]}", "b", "[1,null]", "[]"];
        let rows: Vec<Vec<u8>> = (0..20usize)
            .map(|i| {
                let is_there = |j: &usize| !(i + j).is_multiple_of(3);
                let value = |j: usize| match (is_there(&j), KINDS[j]) {
                    (false, _) => Value::Null,
                    (true, Kind::Json) => Value::Json(texts[j].as_bytes()),
                    (true, _) => Value::Bytes(texts[j].as_bytes()),
                };
                let mut out = Vec::new();
                schema.encode((0..texts.len()).map(value), &mut out).unwrap();
                out
            })
            .collect();
        let mut builder = BatchBuilder::new(&schema);
        for _ in 0..2 {
            for (i, row) in rows.iter().enumerate() {
                builder.push(i.to_string().as_bytes(), row).unwrap();
            }
            let batch = builder.finish().unwrap();
            assert_eq!((batch.num_rows(), builder.len()), (rows.len(), 0));
            assert_eq!(*batch.column(0).data_type(), DataType::Int64);
            for (field, expected) in batch.schema().fields().iter().skip(1).zip(KINDS) {
                assert_eq!(kind(field), expected);
            }
            // A part of a batch has offsets.
            for (start, len) in [(0, rows.len()), (7, 5)] {
                let part = batch.slice(start, len);
                let columns = BatchColumns::new(&schema, &part).unwrap();
                let mut back = columns.rows().unwrap();
                for i in 0..len {
                    let (mut key, mut value) = (Vec::new(), Vec::new());
                    assert!(back.put_key(i, &mut key));
                    back.put_value(i, &mut value).unwrap();
                    assert_eq!(key, (start + i).to_string().as_bytes());
                    assert_eq!(value, rows[start + i], "row {i} from {start}");
                }
            }
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_refused() {
        let schema = Schema::new("k", vec![Column { name: "v".into(), kind: Kind::Text }]);
        let mut builder = BatchBuilder::new(&schema);
        builder.push(b"1", b"\xff").unwrap();
        assert!(builder.finish().is_err());
    }
}

//! Rows with arbitrary bytes, read by schemas of arbitrary kinds.

use hashfold_rows::{Column, Item, Kind, Mismatch, Schema, Unit, Value};

const KINDS: [Kind; 12] = [
    Kind::Bool,
    Kind::Int8,
    Kind::Uint16,
    Kind::Int64,
    Kind::Float32,
    Kind::Date,
    Kind::Timestamp { unit: Unit::Nanosecond, utc: true },
    Kind::Text,
    Kind::Binary,
    Kind::Json,
    Kind::List { item: Item::Int32 },
    Kind::List { item: Item::Float64 },
];

/// The kinds of up to 15 columns, then the bytes of a row, or of a schema.
///
/// A row that is decoded is written as JSON, and encoded again where its JSON is valid.
pub fn rows(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first() else { return };
    if let Ok(schema) = Schema::of_attribute(Some(rest)) {
        assert_eq!(
            Schema::of_attribute(Some(&schema.to_json())).expect("it was just written"),
            schema
        );
    }
    let Some((kinds, row)) = rest.split_at_checked(usize::from(head & 15)) else { return };
    let column =
        |byte: &u8| Column { name: "c".into(), kind: KINDS[usize::from(*byte) % KINDS.len()] };
    let mut schema = Schema::new("k", kinds.iter().map(column).collect());
    read(&schema, row);
    schema = Schema::objects("k");
    read(&schema, row);
}

fn read(schema: &Schema, bytes: &[u8]) {
    let Ok(row) = schema.row(bytes) else { return };
    let mut json = Vec::new();
    schema.write_json(b"key", bytes, &mut json).expect("the row was decoded");
    assert!(json.starts_with(b"{\"k\":\"key\""));
    let values: Vec<Value<'_>> = row.iter().map(|(_, value)| value).collect();
    if schema.columns.is_empty() {
        return;
    }
    let mut again = Vec::new();
    let encoded: Result<(), (usize, Mismatch)> = schema.encode(values, &mut again);
    if encoded.is_ok() {
        // Floats that are not numbers differ from themselves, but not as text.
        let back = schema.row(&again).expect("it was just written");
        assert_eq!(back.to_string(), row.to_string());
    }
}

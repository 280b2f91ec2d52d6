//! The columns of a data set, kept as JSON in the attribute `schema`; and its rows.

use crate::{
    encode::{Mismatch, RowEncoder, put_plain},
    json::{JsonObject, write_json_bytes},
    key::KeyType,
    kind::Kind,
    row::decode,
    value::Value,
};
use hashfold::{Error, Result, store::VersionInfo, table::Table};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt};

/// The columns of a data set, and the encoding of its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Name of the column with the keys.
    pub key: String,
    /// Type of the keys.
    #[serde(default, skip_serializing_if = "KeyType::is_text")]
    pub key_type: KeyType,
    /// The encoding of values.
    pub form: Form,
    /// Columns of a value, in storage order.
    pub columns: Vec<Column>,
}

/// The encoding of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Form {
    /// The bytes of the only column.
    Plain,
    /// All columns, encoded as in `docs/formats/row.md`.
    Row,
    /// A JSON object that has the columns; each value may have further fields.
    Object,
}

/// A column of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// Kind of its values.
    #[serde(flatten)]
    pub kind: Kind,
}

impl Schema {
    /// Name of the attribute of a table or version that has the schema, as JSON.
    pub const ATTRIBUTE: &str = "schema";

    /// Returns the schema of values with these columns and of keys that are text. A single column
    /// of text, bytes or JSON is stored as it is.
    pub fn new(key: &str, columns: Vec<Column>) -> Schema {
        let form = match &columns[..] {
            [column] if column.kind.is_bytes() => Form::Plain,
            _ => Form::Row,
        };
        Schema { key: key.into(), key_type: KeyType::Text, form, columns }
    }

    /// Returns the schema of data without column names: a key and a value.
    pub fn unnamed() -> Schema {
        Schema::new("key", vec![Column { name: "value".into(), kind: Kind::Binary }])
    }

    /// Returns the schema of values that are JSON objects.
    pub fn objects(key: &str) -> Schema {
        Schema { form: Form::Object, ..Schema::new(key, Vec::new()) }
    }

    /// Returns the schema that a table was built with.
    ///
    /// # Errors
    /// `Field` if the attribute is damaged, or written by a newer version of this library.
    pub fn of_table(table: &Table) -> Result<Schema> {
        Schema::of_attribute(table.attribute(Schema::ATTRIBUTE))
    }

    /// Returns the schema of a version of a store.
    ///
    /// # Errors
    /// `Field` if the attribute is damaged, or written by a newer version of this library.
    pub fn of_version(info: &VersionInfo) -> Result<Schema> {
        let found = info.attributes.iter().find(|(name, _)| name == Schema::ATTRIBUTE);
        Schema::of_attribute(found.map(|(_, json)| json.as_slice()))
    }

    /// Returns the schema in an attribute; that of plain keys and values if there is none.
    ///
    /// # Errors
    /// `Field` if the attribute is damaged, or written by a newer version of this library.
    pub fn of_attribute(attribute: Option<&[u8]>) -> Result<Schema> {
        let Some(json) = attribute else {
            return Ok(Schema::unnamed());
        };
        let schema: Schema = serde_json::from_slice(json).map_err(|_| {
            Error::field("schema", "one that this version knows", "damaged, or of a later version")
        })?;
        match (schema.form, &schema.columns[..]) {
            (Form::Plain, [column]) if column.kind.is_bytes() => Ok(schema),
            (Form::Plain, _) => {
                Err(Error::field("schema", "one column of bytes, as its form is plain", "others"))
            }
            (Form::Row | Form::Object, _) => Ok(schema),
        }
    }

    /// Returns the attribute's value.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and numbers can be written as JSON")
    }

    /// Decodes a value.
    ///
    /// # Errors
    /// The bytes are no row of this schema.
    pub fn row<'a>(&'a self, value: &'a [u8]) -> Result<Row<'a>> {
        let names = self.columns.iter().map(|column| Cow::Borrowed(&column.name[..]));
        let fields = match self.form {
            Form::Plain => names.zip([plain(self.columns[0].kind, value)]).collect(),
            Form::Row => {
                let kinds = self.columns.iter().map(|column| column.kind);
                names.zip(decode(kinds, value)?).collect()
            }
            Form::Object => {
                let object = JsonObject::parse(value)
                    .map_err(|_| Error::field("row", "a JSON object", "another text"))?;
                object.fields.into_iter().map(|(name, json)| (name, json.into())).collect()
            }
        };
        Ok(Row { fields })
    }

    /// Appends the bytes of a value with these columns, in the order of the schema. Values are
    /// converted to the kinds of their columns where nothing is lost. After an error, `out` has
    /// bytes that are of no use behind its old ones.
    ///
    /// # Errors
    /// A value cannot be converted without loss; the error names its column.
    ///
    /// # Panics
    /// If there is not one value for each column, or if the form is `object`.
    pub fn encode<'a>(
        &self,
        values: impl IntoIterator<Item = Value<'a>>,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), (usize, Mismatch)> {
        let mut values = values.into_iter();
        let mut value = || values.next().expect("a value for each column");
        match self.form {
            Form::Plain => put_plain(self.columns[0].kind, value(), out).map_err(|e| (0, e))?,
            Form::Row => {
                let mut row = RowEncoder::new(out, self.columns.len());
                for (i, column) in self.columns.iter().enumerate() {
                    row.value(column.kind, value()).map_err(|error| (i, error))?;
                }
            }
            Form::Object => panic!("values of the form object have no columns"),
        }
        Ok(())
    }

    /// Appends an entry as `hashfold get` prints it, without a line end: a JSON object whose first
    /// field is the key.
    ///
    /// # Errors
    /// The bytes are no row of this schema.
    pub fn write_json(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let row = self.row(value)?;
        out.push(b'{');
        self.write_key(key, out);
        for (name, value) in row.iter() {
            out.push(b',');
            write_field(name, value, out);
        }
        out.push(b'}');
        Ok(())
    }

    /// Appends the key as the field of a JSON object: `"id":4711`.
    pub fn write_key(&self, key: &[u8], out: &mut Vec<u8>) {
        write_field(&self.key, self.key_type.value(key), out);
    }
}

fn plain(kind: Kind, value: &[u8]) -> Value<'_> {
    if kind == Kind::Json { Value::Json(value) } else { Value::Bytes(value) }
}

fn write_field(name: &str, value: Value<'_>, out: &mut Vec<u8>) {
    write_json_bytes(name.as_bytes(), out);
    out.push(b':');
    value.write_json(out);
}

/// The columns of one value. `Display` writes them as a JSON object, as `hashfold get` does.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<'a> {
    fields: Vec<(Cow<'a, str>, Value<'a>)>,
}

impl<'a> Row<'a> {
    /// Returns the value of a column, or of the field of a JSON object; `None` if there is none of
    /// this name. A column without a value is [`Value::Null`].
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        let mut found = self.fields.iter().rev().filter(|(field, _)| field == name);
        found.next().map(|(_, value)| *value)
    }

    /// Appends the row as a JSON object.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (i, (name, value)) in self.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_field(name, value, out);
        }
        out.push(b'}');
    }

    /// Returns names and values in the order of the schema, or of the JSON object.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Value<'a>)> {
        self.fields.iter().map(|(name, value)| (&name[..], *value))
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut json = Vec::new();
        self.write_json(&mut json);
        f.write_str(&String::from_utf8_lossy(&json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Item, Unit};

    fn schema(kinds: &[Kind]) -> Schema {
        let column = |(i, kind): (usize, &Kind)| Column { name: format!("c{i}"), kind: *kind };
        Schema::new("id", kinds.iter().enumerate().map(column).collect())
    }

    /// Encodes a text as a value of this kind, and shows the row; `None` if it is refused.
    #[track_caller]
    fn check(kind: Kind, value: Value<'_>, expected: Option<&str>) {
        let schema = schema(&[kind, Kind::Bool]);
        let mut out = Vec::new();
        match (schema.encode([value, Value::Null], &mut out), expected) {
            (Ok(()), Some(expected)) => {
                let row = schema.row(&out).unwrap();
                assert_eq!(row.to_string(), format!(r#"{{"c0":{expected},"c1":null}}"#));
            }
            (Err((0, _)), None) => {}
            (got, _) => panic!("{kind} from {value:?}: {got:?}"),
        }
    }

    #[test]
    fn values_become_the_kind_of_their_column_where_nothing_is_lost() {
        let text =
            |kind, text: &str, expected| check(kind, Value::Bytes(text.as_bytes()), expected);
        let json = |kind, text: &str, expected| check(kind, Value::Json(text.as_bytes()), expected);
        let timestamp = Kind::Timestamp { unit: Unit::Millisecond, utc: true };
        let list = Kind::List { item: Item::Float32 };
        text(Kind::Float64, "791.42", Some("791.42"));
        text(Kind::Float64, "1e999", None);
        text(Kind::Float64, "0.1234567890123456789", None);
        text(Kind::Float32, "0.1", Some("0.1"));
        text(Kind::Float32, "0.1234567890123", None);
        text(Kind::Int8, "127", Some("127"));
        text(Kind::Int8, "128", None);
        text(Kind::Int64, "4.0", Some("4"));
        text(Kind::Int64, "4.5", None);
        text(Kind::Int64, "", Some("null"));
        text(Kind::Text, "", Some("\"\""));
        text(Kind::Bool, "true", Some("true"));
        text(Kind::Bool, "1", None);
        text(Kind::Date, "2026-01-31", Some("\"2026-01-31\""));
        text(timestamp, "2026-01-31T12:00:00Z", Some("\"2026-01-31T12:00:00.000Z\""));
        text(timestamp, "2026-01-31T12:00:00", None);
        text(list, "[0.5, null, 2]", Some("[0.5,null,2]"));
        text(Kind::Json, "a", Some("\"a\""));
        json(Kind::Text, "7", Some("\"7\""));
        json(Kind::Text, r#""a\n""#, Some(r#""a\n""#));
        json(Kind::Text, "[7]", None);
        json(Kind::Uint8, "-1", None);
        json(Kind::Int32, r#""5""#, Some("5"));
        json(Kind::Binary, r#"{"base64":"/wA="}"#, Some(r#"{"base64":"/wA="}"#));
        json(list, "[1,2.5]", Some("[1,2.5]"));
        json(list, r#"["1"]"#, None);
        json(list, "[]", Some("[]"));
        check(Kind::Int16, Value::Uint(40_000), None);
        check(Kind::Float64, Value::Int((1 << 53) + 1), None);
        check(Kind::Text, Value::Float64(0.5), Some("\"0.5\""));
    }

    #[test]
    fn a_refused_value_is_named_with_its_column() {
        let schema = schema(&[Kind::Text, Kind::Int8]);
        let values = [Value::Bytes(b"a"), Value::Bytes(b"x")];
        let (column, error) = schema.encode(values, &mut Vec::new()).unwrap_err();
        assert_eq!(
            (column, &error.to_string()[..]),
            (1, "expected int8 (a whole number from -128 to 127), got \"x\"")
        );
    }

    #[test]
    fn entries_of_every_form_are_json_objects() {
        let check = |schema: &Schema, value: &[u8], expected: &str| {
            let mut out = Vec::new();
            schema.write_json(b"7", value, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(&Schema::unnamed(), b"v", r#"{"key":"7","value":"v"}"#);
        let integers = Schema { key_type: KeyType::Int64, ..Schema::objects("id") };
        check(&integers, br#"{"a":[1, 2],"a":3}"#, r#"{"id":7,"a":[1, 2],"a":3}"#);
        check(&integers, b"{}", r#"{"id":7}"#);
        assert_eq!(integers.row(br#"{"a":1,"a":2}"#).unwrap().get("a"), Some(Value::Json(b"2")));
        for value in [&b"[]"[..], b"{", b""] {
            assert!(integers.write_json(b"7", value, &mut Vec::new()).is_err());
        }
    }

    #[test]
    fn an_older_schema_has_keys_of_text() {
        let json =
            br#"{"key":"id","form":"row","columns":[{"name":"v","type":"list","item":"float32"}]}"#;
        let old = Schema::of_attribute(Some(json)).unwrap();
        assert_eq!(
            (old.key_type, old.columns[0].kind),
            (KeyType::Text, Kind::List { item: Item::Float32 })
        );
        assert_eq!(old.to_json(), json);
        for json in [&b"{}"[..], br#"{"key":"k","form":"plain","columns":[]}"#] {
            assert!(Schema::of_attribute(Some(json)).is_err());
        }
    }
}

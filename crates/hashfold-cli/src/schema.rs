//! The columns of a table: names, kinds and storage, kept as JSON in the attribute `schema`.

use crate::{
    failure::{Exit, Failure, Result},
    preview,
};
use hashfold::{store::VersionInfo, table::Table};
use serde::{Deserialize, Serialize};

/// Name of the attribute.
pub(crate) const ATTRIBUTE: &str = "schema";

/// The columns of a data set, and the encoding of its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Schema {
    /// Name of the column with the keys.
    pub(crate) key: String,
    pub(crate) form: Form,
    /// Columns of a value, in storage order.
    pub(crate) columns: Vec<Column>,
}

/// The encoding of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// The bytes of the only column.
    Plain,
    /// All columns, encoded as in `docs/formats/row.md`.
    Row,
    /// A JSON object that has the columns; each value may have further fields.
    Object,
}

/// A column of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) kind: Kind,
}

/// The kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float32,
    Float64,
    /// Days since 1970-01-01.
    Date,
    /// Units since 1970-01-01 00:00:00, in UTC if `utc`, otherwise in an unnamed time zone.
    Timestamp {
        unit: Unit,
        utc: bool,
    },
    /// Text, in the encoding of the input.
    Text,
    Binary,
    /// Any JSON value, as its text.
    Json,
}

/// The unit of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    #[serde(rename = "s")]
    Second,
    #[serde(rename = "ms")]
    Millisecond,
    #[serde(rename = "us")]
    Microsecond,
    #[serde(rename = "ns")]
    Nanosecond,
}

impl Kind {
    /// Size of a value in bytes; `None` if sizes differ.
    pub(crate) fn width(self) -> Option<usize> {
        match self {
            Kind::Bool | Kind::Int8 | Kind::Uint8 => Some(1),
            Kind::Int16 | Kind::Uint16 => Some(2),
            Kind::Int32 | Kind::Uint32 | Kind::Float32 | Kind::Date => Some(4),
            Kind::Int64 | Kind::Uint64 | Kind::Float64 | Kind::Timestamp { .. } => Some(8),
            Kind::Text | Kind::Binary | Kind::Json => None,
        }
    }
}

impl Schema {
    /// Returns the schema of values with these columns; a single column of bytes is stored as it is.
    pub(crate) fn new(key: &str, columns: Vec<Column>) -> Schema {
        let form = match &columns[..] {
            [column] if column.kind.width().is_none() => Form::Plain,
            _ => Form::Row,
        };
        Schema { key: key.into(), form, columns }
    }

    /// Returns the schema of data without column names: a key and a value.
    pub(crate) fn unnamed() -> Schema {
        Schema::new("key", vec![Column { name: "value".into(), kind: Kind::Binary }])
    }

    /// Returns the schema of values that are JSON objects.
    pub(crate) fn objects(key: &str) -> Schema {
        Schema { key: key.into(), form: Form::Object, columns: Vec::new() }
    }

    /// Returns the schema that a table was built with.
    pub(crate) fn of(table: &Table) -> Result<Schema> {
        Schema::read(table.attribute(ATTRIBUTE))
    }

    /// Returns the schema that a store was made with.
    pub(crate) fn of_version(info: &VersionInfo) -> Result<Schema> {
        let found = info.attributes.iter().find(|(name, _)| name == ATTRIBUTE);
        Schema::read(found.map(|(_, json)| json.as_slice()))
    }

    fn read(attribute: Option<&[u8]>) -> Result<Schema> {
        let Some(json) = attribute else {
            return Ok(Schema::unnamed());
        };
        serde_json::from_slice(json).map_err(|error| Failure {
            exit: Exit::Damage,
            message: format!("the schema cannot be read: {error}; use a newer hashfold"),
        })
    }

    /// Returns the attribute's value.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and numbers can be written as JSON")
    }

    /// Describes all columns for people: `path, package text, size int64`.
    pub(crate) fn describe(&self) -> String {
        self.items().join(", ")
    }

    /// Describes the first columns, for messages.
    pub(crate) fn preview(&self) -> String {
        preview::list(self.items().iter())
    }

    /// Describes the first difference, for messages whose lists of columns are cut; otherwise empty.
    pub(crate) fn late_difference(&self, expected: &Schema) -> String {
        let (got, expected) = (self.items(), expected.items());
        let items = got.len().max(expected.len());
        match (0..items).find(|&i| got.get(i) != expected.get(i)) {
            Some(i) if !preview::is_whole(items) => {
                let show = |item: Option<&String>| match item {
                    Some(item) => preview::name(item).into_owned(),
                    None => "no column".into(),
                };
                let (got, expected) = (show(got.get(i)), show(expected.get(i)));
                format!("; the first difference is {got} in place of {expected}")
            }
            _ => String::new(),
        }
    }

    /// Returns the key, each column with its kind, and a note on further fields.
    fn items(&self) -> Vec<String> {
        let kind = |kind: &Kind| format!("{kind:?}").to_lowercase();
        let columns = self.columns.iter().map(|it| format!("{} {}", it.name, kind(&it.kind)));
        let others =
            (self.form == Form::Object).then(|| "and the other fields of each line".into());
        [self.key.clone()].into_iter().chain(columns).chain(others).collect()
    }
}

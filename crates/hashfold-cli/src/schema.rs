//! What the columns of a table are: the table's attribute `schema`, as JSON.

use crate::{
    failure::{Exit, Failure, Result},
    preview,
};
use hashfold::{store::VersionInfo, table::Table};
use serde::{Deserialize, Serialize};

/// The attribute's name.
pub(crate) const ATTRIBUTE: &str = "schema";

/// The names of the columns and what the bytes of a value mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Schema {
    /// The name of the key's column.
    pub(crate) key: String,
    pub(crate) form: Form,
    /// The columns of a value, in the order in which they are stored.
    pub(crate) columns: Vec<Column>,
}

/// What a value is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// The bytes of the only column, as they are.
    Plain,
    /// All columns, coded as `docs/formats/row.md` says.
    Row,
    /// A JSON object with the columns in it; each value may have others.
    Object,
}

/// A column of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) kind: Kind,
}

/// What a column holds.
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
    /// Units since 1970-01-01 00:00:00, in UTC if `utc`, else on an unnamed clock.
    Timestamp {
        unit: Unit,
        utc: bool,
    },
    /// Characters, in the encoding of the input.
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
    /// The bytes that a value takes; `None` if they differ from value to value.
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
    /// The schema of values with these columns: a single column of bytes stands for itself.
    pub(crate) fn new(key: &str, columns: Vec<Column>) -> Schema {
        let form = match &columns[..] {
            [column] if column.kind.width().is_none() => Form::Plain,
            _ => Form::Row,
        };
        Schema { key: key.into(), form, columns }
    }

    /// The schema of keys and values of which nothing is known.
    pub(crate) fn unnamed() -> Schema {
        Schema::new("key", vec![Column { name: "value".into(), kind: Kind::Binary }])
    }

    /// The schema of values that are JSON objects.
    pub(crate) fn objects(key: &str) -> Schema {
        Schema { key: key.into(), form: Form::Object, columns: Vec::new() }
    }

    /// The schema that a table was built with.
    pub(crate) fn of(table: &Table) -> Result<Schema> {
        Schema::read(table.attribute(ATTRIBUTE))
    }

    /// The schema that a store was made with.
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

    /// The attribute's value.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and numbers can be written as JSON")
    }

    /// All columns, for people: `path, package text, size int64`.
    pub(crate) fn describe(&self) -> String {
        self.items().join(", ")
    }

    /// The first columns, for messages.
    pub(crate) fn preview(&self) -> String {
        preview::list(self.items().iter())
    }

    /// The first difference, for messages in which the lists of columns are cut; else nothing.
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

    /// The key, each column with its kind, and a note on further fields.
    fn items(&self) -> Vec<String> {
        let kind = |kind: &Kind| format!("{kind:?}").to_lowercase();
        let columns = self.columns.iter().map(|it| format!("{} {}", it.name, kind(&it.kind)));
        let others =
            (self.form == Form::Object).then(|| "and the other fields of each line".into());
        [self.key.clone()].into_iter().chain(columns).chain(others).collect()
    }
}

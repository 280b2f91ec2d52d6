//! The columns of a data set in messages.

use crate::preview;
use hashfold_rows::{Form, KeyType, Mismatch, Schema};

/// Describes all columns for people: `path, package text, size int64`.
pub(crate) fn describe(schema: &Schema) -> String {
    items(schema).join(", ")
}

/// Describes the first columns, for messages.
pub(crate) fn preview(schema: &Schema) -> String {
    preview::list(items(schema).iter())
}

/// Describes columns that were added to a schema: `w text, x int64`; `None` if there are none.
pub(crate) fn added(old: &Schema, new: &Schema) -> Option<String> {
    let added = new.columns.get(old.columns.len()..).filter(|added| !added.is_empty())?;
    Some(preview::list(added.iter().map(|column| format!("{} {}", column.name, column.kind))))
}

/// Describes a value that a column cannot store.
pub(crate) fn mismatch(schema: &Schema, column: usize, mismatch: &Mismatch) -> String {
    format!("the column \"{}\": {mismatch}", preview::name(&schema.columns[column].name))
}

/// Returns the key, each column with its kind, and a note on further fields.
fn items(schema: &Schema) -> Vec<String> {
    let key = match schema.key_type {
        KeyType::Int64 => format!("{} int64", schema.key),
        KeyType::Uint64 => format!("{} uint64", schema.key),
        _ => schema.key.clone(),
    };
    let columns = schema.columns.iter().map(|column| format!("{} {}", column.name, column.kind));
    let others = (schema.form == Form::Object).then(|| "and the other fields of each line".into());
    [key].into_iter().chain(columns).chain(others).collect()
}

//! Writing the keys that differ between two versions: JSON Lines or CSV.
//!
//! A JSON line is `{"id":"4711","change":"changed","old":{...},"new":{...}}`: the key, then `added`,
//! `changed` or `removed`, then the row of each version, or null. A line of CSV has the columns of
//! both rows; those of a version without the key are empty.

use crate::{
    failure::{Failure, Result},
    output::{csv_failure, damaged, put_cells, value_names},
};
use hashfold::store::KeyChange;
use hashfold_rows::Schema;
use std::io::{self, BufWriter, StdoutLock, Write as _};

/// Writes changes to standard output.
pub(crate) struct ChangeWriter {
    old: Schema,
    new: Schema,
    out: Out,
    /// The line or the field that is being written.
    text: Vec<u8>,
}

enum Out {
    Json(BufWriter<StdoutLock<'static>>),
    Csv(Box<csv::Writer<StdoutLock<'static>>>),
}

impl ChangeWriter {
    /// Starts JSON Lines; the schemas are those of the old and the new version.
    pub(crate) fn json_lines(old: Schema, new: Schema) -> ChangeWriter {
        let out = Out::Json(BufWriter::new(io::stdout().lock()));
        ChangeWriter { old, new, out, text: Vec::new() }
    }

    /// Starts CSV, and writes its header.
    pub(crate) fn csv(old: Schema, new: Schema) -> Result<ChangeWriter> {
        let mut out = csv::Writer::from_writer(io::stdout().lock());
        let names = |which: &str, schema: &Schema| -> Vec<String> {
            value_names(schema).map(|name| format!("{which}.{name}")).collect()
        };
        let first = vec![new.key.clone(), "change".into()];
        let header = [first, names("old", &old), names("new", &new)].concat();
        out.write_record(header).map_err(csv_failure)?;
        Ok(ChangeWriter { old, new, out: Out::Csv(Box::new(out)), text: Vec::new() })
    }

    /// Writes a change.
    pub(crate) fn write(&mut self, change: &KeyChange<'_>) -> Result<()> {
        let word = match (change.old, change.new) {
            (None, _) => "added",
            (Some(_), None) => "removed",
            (Some(_), Some(_)) => "changed",
        };
        let rows = [("old", &self.old, change.old), ("new", &self.new, change.new)];
        let text = &mut self.text;
        match &mut self.out {
            Out::Json(out) => {
                text.clear();
                text.push(b'{');
                self.new.write_key(change.key, text);
                text.extend_from_slice(format!(",\"change\":\"{word}\"").as_bytes());
                for (which, schema, value) in rows {
                    text.extend_from_slice(format!(",\"{which}\":").as_bytes());
                    put_row(schema, change.key, value, text)?;
                }
                text.extend_from_slice(b"}\n");
                out.write_all(text).map_err(|error| Failure::output(&error))
            }
            Out::Csv(out) => {
                out.write_field(change.key).map_err(csv_failure)?;
                out.write_field(word).map_err(csv_failure)?;
                for (_, schema, value) in rows {
                    match value {
                        Some(value) => put_cells(schema, change.key, value, text, out)?,
                        None => value_names(schema)
                            .try_for_each(|_| out.write_field(b"").map_err(csv_failure))?,
                    }
                }
                out.write_record(None::<&[u8]>).map_err(csv_failure)
            }
        }
    }

    /// Writes buffered output.
    pub(crate) fn finish(mut self) -> Result<()> {
        match &mut self.out {
            Out::Json(out) => out.flush(),
            Out::Csv(out) => out.flush(),
        }
        .map_err(|error| Failure::output(&error))
    }
}

/// Appends a row as a JSON object, or `null` if there is none.
fn put_row(schema: &Schema, key: &[u8], value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<()> {
    let Some(value) = value else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    schema.row(value).map_err(|error| damaged(key, &error))?.write_json(out);
    Ok(())
}

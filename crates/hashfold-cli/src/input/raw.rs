//! Raw input, which `scan --format raw` writes: records of a key and a value, after the schema of
//! the values if they have columns.

use super::{
    COLUMNS_MAX, Format, Reader,
    bad_rows::Head,
    selection::{Plan, Selection},
    sink::{Flaw, Sink},
    source::Meter,
    window::Window,
};
use crate::{
    failure::{Failure, Result},
    preview, raw, units,
};
use hashfold::{
    codec::Decoder,
    run::{KEY_BYTES_MAX, VALUE_BYTES_MAX},
};
use hashfold_rows::{Column, Form, JsonObject, KeyType, Kind, Schema, Value};
use serde_json::value::RawValue;
use std::iter;

/// Reads one raw input.
pub(crate) struct RawReader {
    window: Window,
    /// The schema of the entries.
    schema: Schema,
    values: Values,
    /// The record with the schema; empty if there is none.
    header: Vec<u8>,
    /// The number of the next record, from 1 on.
    record: u64,
}

/// How the values of records become values of entries.
enum Values {
    /// As they are.
    Bytes,
    /// As they are, if they are JSON objects.
    Objects(KeyType),
    /// Column by column. The schema is that of the records; the plan takes its columns, after the
    /// key.
    Columns(Schema, Plan),
}

impl RawReader {
    pub(crate) fn open(path: &str, selection: &Selection, meter: &Meter) -> Result<RawReader> {
        let mut window = Window::open(path, meter)?;
        let header = take_header(&mut window)?;
        let (schema, values) = match header.is_empty() {
            true => (unnamed(path, selection)?, Values::Bytes),
            false => named(path, selection, raw::read_schema(path, &header)?)?,
        };
        let record = if header.is_empty() { 1 } else { 2 };
        Ok(RawReader { window, schema, values, header, record })
    }

    /// Reads the complete records in the window; returns their length.
    fn read_window(&mut self, sink: &mut Sink) -> Result<usize> {
        let mut decoder = Decoder::new(self.window.bytes());
        let mut used = 0;
        while let Some((key, value)) = raw::take_record(&mut decoder) {
            let outcome = self.values.take(key, value, sink);
            let end = self.window.bytes().len() - decoder.rest().len();
            sink.end_row(&self.window.file, self.record, outcome, &self.window.bytes()[used..end])?;
            self.record += 1;
            used = end;
        }
        Ok(used)
    }

    /// Refuses a record that is incomplete or too long. The rest of the input can't be read, because
    /// its lengths can't be trusted.
    fn check_rest(&mut self, sink: &mut Sink) -> Result<()> {
        let rest = self.window.bytes();
        let too_long = |what: &str, len: u32, limit: usize| {
            format!("the {what} is {len} bytes long, the longest accepted is {limit}")
        };
        let reason = match Decoder::new(rest).array().map(raw::lengths) {
            Ok((key, _)) if key as usize > KEY_BYTES_MAX => too_long("key", key, KEY_BYTES_MAX),
            Ok((_, value)) if value as usize > VALUE_BYTES_MAX => {
                too_long("value", value, VALUE_BYTES_MAX)
            }
            _ if rest.is_empty() || !self.window.at_end => return Ok(()),
            _ => "the record is cut short".to_string(),
        };
        sink.end_row(&self.window.file, self.record, Err(Flaw::new(reason)), b"")?;
        self.window.close();
        Ok(())
    }
}

impl Reader for RawReader {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn head(&self) -> Head {
        Head { format: Format::Raw, header: self.header.clone() }
    }

    fn read(mut self: Box<Self>, sink: &mut Sink) -> Result<()> {
        self.values.begin(sink);
        loop {
            let used = self.read_window(sink)?;
            self.window.consume(used);
            self.check_rest(sink)?;
            if !self.window.fill(self.record)? {
                return Ok(());
            }
        }
    }
}

impl Values {
    /// Says which columns all rows have.
    fn begin(&self, sink: &mut Sink) {
        match self {
            Values::Bytes => {
                sink.keys.add(KeyType::Text);
                sink.fill(0);
            }
            Values::Objects(_) => {}
            Values::Columns(_, plan) => {
                for (column, source) in plan.sources.iter().enumerate() {
                    source.iter().for_each(|_| sink.fill(column));
                }
            }
        }
    }

    fn take(&self, key: &[u8], value: &[u8], sink: &mut Sink) -> Result<(), Flaw> {
        let copy = |out: &mut Vec<u8>| {
            out.extend_from_slice(value);
            Ok(())
        };
        match self {
            Values::Bytes => sink.push(key, copy),
            Values::Objects(key_type) => {
                JsonObject::parse(value).map_err(|_| Flaw::new("the value is no JSON object"))?;
                add_key(*key_type, key, sink);
                sink.push(key, copy)
            }
            Values::Columns(schema, plan) => take_row(schema, plan, key, value, sink),
        }
    }
}

/// Takes a row column by column.
fn take_row(
    schema: &Schema,
    plan: &Plan,
    key: &[u8],
    value: &[u8],
    sink: &mut Sink,
) -> Result<(), Flaw> {
    let row = schema.row(value).map_err(|error| {
        Flaw::new(format!("the value has not the columns of the first record: {}", error.kind()))
    })?;
    let columns = row.iter().map(|(_, value)| value);
    let row: Vec<Value<'_>> = iter::once(Value::Bytes(key)).chain(columns).collect();
    let is_json = |json: &[u8]| serde_json::from_slice::<&RawValue>(json).is_ok();
    let broken = |value: &Value<'_>| matches!(value, Value::Json(json) if !is_json(json));
    if let Some(i) = row.iter().position(broken) {
        let name = preview::name(&schema.columns[i - 1].name);
        return Err(Flaw::new(format!("the column \"{name}\" is no JSON text")));
    }
    if !plan.markers.is_empty() {
        let texts: Vec<String> = row.iter().map(ToString::to_string).collect();
        if plan.deletes(|i| texts[i].as_bytes())? {
            return sink.delete(key);
        }
    }
    add_key(schema.key_type, key, sink);
    sink.push_row(plan, key, |i| row[i])
}

fn add_key(key_type: KeyType, key: &[u8], sink: &mut Sink) {
    match key_type {
        KeyType::Text => sink.keys.add(KeyType::Text),
        _ => sink.keys.add_key(key),
    }
}

/// Takes the record with the schema off the window; returns nothing if there is none.
fn take_header(window: &mut Window) -> Result<Vec<u8>> {
    let Some(size) = raw::schema_size(&window.file, window.bytes())? else { return Ok(Vec::new()) };
    while window.bytes().len() < size && !window.at_end {
        window.fill(1)?;
    }
    let Some(header) = window.bytes().get(..size).map(<[u8]>::to_vec) else {
        return Err(Failure::input(format_args!("{}:1", window.file), "the schema is cut short"));
    };
    window.consume(size);
    Ok(header)
}

/// Returns the schema of entries from an input without a schema.
fn unnamed(path: &str, selection: &Selection) -> Result<Schema> {
    selection.check_unnamed(path)?;
    let schema = Schema::unnamed();
    let is_other = |key: &String| *key != schema.key;
    let what = match () {
        () if selection.key.as_ref().is_some_and(is_other) || !selection.values.is_empty() => {
            "leave --key and --value out"
        }
        () if !selection.markers.is_empty() => "none can say which keys are to be deleted",
        () => return Ok(schema),
    };
    Err(Failure::usage(format!("{path}: raw input has no columns; {what}")))
}

/// Returns the schema of entries from an input with a schema, and the way to their values.
fn named(path: &str, selection: &Selection, found: Schema) -> Result<(Schema, Values)> {
    if found.columns.len() > COLUMNS_MAX {
        let (columns, most) = (found.columns.len() as u64, units::count(COLUMNS_MAX as u64));
        let what = format!("has {} columns, the most accepted is {most}", units::count(columns));
        return Err(Failure::input(path, what));
    }
    let mut selection = selection.clone();
    let key = selection.key.get_or_insert_with(|| found.key.clone());
    if *key != found.key {
        let (key, has) = (preview::name(key), preview::name(&found.key));
        let what = format!("the key is the column \"{has}\" and not \"{key}\"");
        return Err(Failure::input(path, what));
    }
    if selection.is_of_keys {
        return Ok((Schema::unnamed(), Values::Bytes));
    }
    if found.form == Form::Object {
        let schema = selection.target_objects(path)?;
        return Ok((schema, Values::Objects(found.key_type)));
    }
    let key = Column { name: found.key.clone(), kind: Kind::Text };
    let columns: Vec<Column> = iter::once(key).chain(found.columns.iter().cloned()).collect();
    let plan = selection.plan(path, &columns)?;
    Ok((plan.schema.clone(), Values::Columns(found, plan)))
}

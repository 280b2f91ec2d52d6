//! Groups and their results as typed rows.

use hashfold::{
    Error, Result,
    pipeline::{Aggregate, Field, FieldKind, Output, Summary, TopItem, Value},
};
use hashfold_rows::{Column, Item, Kind, List, Schema, Value as Cell, write_json_bytes};

/// The key of a summary without groups.
const ALL: &[u8] = b"all";

/// The rows of a summary.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) schema: Schema,
    /// Whether the fields of a group are columns too: the key is one text of several, or of an integer that may be null.
    has_group_columns: bool,
    groups: usize,
    /// The number of columns of each result.
    widths: Vec<usize>,
}

/// A value with its bytes.
enum Owned {
    Null,
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(Vec<u8>),
    Json(Vec<u8>),
    Counts(Vec<u8>),
}

impl Layout {
    /// Returns the rows of a summary of events with these fields.
    pub(crate) fn new(summary: &Summary, fields: &[Field]) -> Layout {
        let groups: Vec<&Field> = summary.group_by.iter().map(|field| &fields[*field]).collect();
        let is_int = matches!(groups[..], [Field { kind: FieldKind::Int, .. }]);
        let has_group_columns = groups.len() > 1 || is_int;
        let mut columns = Vec::new();
        if has_group_columns {
            columns.extend(
                groups
                    .iter()
                    .map(|field| Column { name: field.name.clone(), kind: kind(field.kind) }),
            );
        }
        let mut widths = Vec::new();
        for column in &summary.columns {
            let added = columns_of(&column.name, &column.aggregate, fields);
            widths.push(added.len());
            columns.extend(added);
        }
        let names: Vec<&str> = groups.iter().map(|field| &field.name[..]).collect();
        let key = if names.is_empty() || is_int { "group".into() } else { names.join(",") };
        let schema = Schema::new(&key, columns);
        Layout { schema, has_group_columns, groups: groups.len(), widths }
    }

    /// Encodes a group as key and value.
    pub(crate) fn encode(
        &self,
        group: &[Value<'_>],
        outputs: &[Output],
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        self.put_key(group, key);
        let mut cells = Vec::new();
        if self.has_group_columns {
            cells.extend(group.iter().map(owned));
        }
        for (output, width) in outputs.iter().zip(&self.widths) {
            put_output(output, *width, &mut cells);
        }
        let encoded = self.schema.encode(cells.iter().map(Owned::cell), value);
        encoded.map_err(|(column, _)| {
            let name = self.schema.columns[column].name.clone();
            Error::argument(
                "result of a summary",
                format!("one of the kind of \"{name}\""),
                "another",
            )
        })
    }

    /// Appends the key: the text of the only field, or a JSON list of several.
    fn put_key(&self, group: &[Value<'_>], key: &mut Vec<u8>) {
        match group {
            [] => key.extend_from_slice(ALL),
            [value] => owned(value).cell().write_text(key),
            _ => {
                key.push(b'[');
                for (i, value) in group.iter().enumerate() {
                    if i > 0 {
                        key.push(b',');
                    }
                    owned(value).cell().write_json(key);
                }
                key.push(b']');
            }
        }
        debug_assert!(group.len() == self.groups);
    }
}

fn kind(kind: FieldKind) -> Kind {
    match kind {
        FieldKind::Int => Kind::Int64,
        FieldKind::Float => Kind::Float64,
        FieldKind::Text => Kind::Text,
    }
}

fn columns_of(name: &str, aggregate: &Aggregate, fields: &[Field]) -> Vec<Column> {
    let one = |kind| vec![Column { name: name.into(), kind }];
    match aggregate {
        Aggregate::Count | Aggregate::Distinct { .. } => one(Kind::Uint64),
        Aggregate::Sum(field) | Aggregate::Min(field) | Aggregate::Max(field) => {
            one(kind(fields[*field].kind))
        }
        Aggregate::Top { .. } => one(Kind::Json),
        Aggregate::Histogram { .. } => one(Kind::List { item: Item::Int64 }),
        Aggregate::Quantiles { at, .. } => {
            // Rounded, since 0.29 · 100 is 28.999999999999996.
            let percent = |at: &f64| (at * 1e8).round() / 1e6;
            let column =
                |at| Column { name: format!("{name}_p{}", percent(at)), kind: Kind::Float64 };
            at.iter().map(column).collect()
        }
    }
}

fn owned(value: &Value<'_>) -> Owned {
    match value {
        Value::Null => Owned::Null,
        Value::Int(value) => Owned::Int(*value),
        Value::Float(value) => Owned::Float(*value),
        Value::Text(text) => Owned::Text(text.to_vec()),
    }
}

fn put_output(output: &Output, width: usize, cells: &mut Vec<Owned>) {
    match output {
        Output::Null => cells.extend((0..width).map(|_| Owned::Null)),
        Output::Uint(value) => cells.push(Owned::Uint(*value)),
        Output::Int(value) => cells.push(Owned::Int(*value)),
        Output::Float(value) => cells.push(Owned::Float(*value)),
        Output::Floats(values) => cells.extend(values.iter().map(|value| Owned::Float(*value))),
        Output::Counts(counts) => {
            let bytes = counts.iter().flat_map(|count| (*count as i64).to_le_bytes());
            cells.push(Owned::Counts(bytes.collect()));
        }
        Output::Top(items) => cells.push(Owned::Json(top_json(items))),
    }
}

/// Writes frequent values: `[{"value":"a","count":7,"error":0}]`.
fn top_json(items: &[TopItem]) -> Vec<u8> {
    let mut out = b"[".to_vec();
    for (i, TopItem { value, count, error }) in items.iter().enumerate() {
        out.extend_from_slice(if i > 0 { b",{\"value\":" } else { b"{\"value\":" });
        write_json_bytes(value, &mut out);
        out.extend_from_slice(format!(",\"count\":{count},\"error\":{error}}}").as_bytes());
    }
    out.push(b']');
    out
}

impl Owned {
    fn cell(&self) -> Cell<'_> {
        match self {
            Owned::Null => Cell::Null,
            Owned::Int(value) => Cell::Int(*value),
            Owned::Uint(value) => Cell::Uint(*value),
            Owned::Float(value) => Cell::Float64(*value),
            Owned::Text(text) => Cell::Bytes(text),
            Owned::Json(json) => Cell::Json(json),
            Owned::Counts(bytes) => Cell::List(List::new(Item::Int64, &[], bytes)),
        }
    }
}

//! Turns Arrow batches of Parquet and Arrow files into rows.
//!
//! Numbers, dates and timestamps keep their types; text and bytes keep their bytes. Decimals, times
//! and durations become text. Lists, structs and maps become JSON.

use crate::{
    failure::{Failure, Result},
    input::{
        COLUMNS_MAX,
        selection::{Picked, Selection},
        sink::{Flaw, Sink},
    },
    preview,
    row::{RowEncoder, fixed_cell},
    schema::{Column, Form, Kind, Schema, Unit},
    units,
};
use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_cast::{can_cast_types, cast};
use arrow_json::writer::{EncoderOptions, NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType, FieldRef, SchemaRef, TimeUnit};
use std::collections::HashMap;

const _: () = assert!(cfg!(target_endian = "little"), "rows take the bytes of Arrow's numbers");

/// Positions of the columns of a batch, by name.
type Places<'a> = HashMap<&'a str, usize>;

type Arrow<T> = Result<T, ArrowError>;

/// Turns the batches of one file into rows.
pub(super) struct Columnar {
    /// Name of the file, for messages.
    file: String,
    pub(super) schema: Schema,
    /// Positions of the columns in the file's schema.
    pub(super) picked: Picked,
    names: Vec<String>,
    options: EncoderOptions,
    /// Number of the next row, from 1.
    row: u64,
}

impl Columnar {
    pub(super) fn new(path: &str, arrow: &SchemaRef, selection: &Selection) -> Result<Columnar> {
        if arrow.fields().len() > COLUMNS_MAX {
            let columns = units::count(arrow.fields().len() as u64);
            let most = units::count(COLUMNS_MAX as u64);
            let what = format!("has {columns} columns, the most accepted is {most}");
            return Err(Failure::input(path, what));
        }
        let names: Vec<String> = arrow.fields().iter().map(|field| field.name().clone()).collect();
        let picked = selection.pick(path, &names)?;
        let kind = |i: usize| kind(arrow.field(i).data_type());
        let column = |&i: &usize| Column { name: names[i].clone(), kind: kind(i) };
        let schema = Schema::new(&names[picked.key], picked.values.iter().map(column).collect());
        if kind(picked.key) == Kind::Json {
            let key = arrow.field(picked.key);
            return Err(Failure::input(
                path,
                format_args!(
                    "column \"{}\" is a {}, and a key must be text, bytes or a number",
                    preview::name(key.name()),
                    preview::reason(key.data_type())
                ),
            ));
        }
        let options = EncoderOptions::default().with_explicit_nulls(true);
        Ok(Columnar { file: path.into(), schema, picked, names, options, row: 1 })
    }

    /// Takes all rows of a batch.
    pub(super) fn take(&mut self, batch: &RecordBatch, sink: &mut Sink) -> Result<()> {
        self.take_rows(batch, sink)?;
        self.row += batch.num_rows() as u64;
        Ok(())
    }

    fn take_rows(&self, batch: &RecordBatch, sink: &mut Sink) -> Result<()> {
        let fields = batch.schema_ref().fields().iter();
        let places: Places = fields.enumerate().map(|(i, field)| (&field.name()[..], i)).collect();
        let prepare = |i: usize| {
            let prepared = Prepared::new(batch, &places, &self.names[i]);
            prepared.map_err(|error| self.unreadable(&error))
        };
        let key = prepare(self.picked.key)?;
        let values = self.picked.values.iter().map(|&i| prepare(i));
        let values: Vec<_> = values.collect::<Result<_>>()?;
        let markers = self.picked.markers.iter().map(|(i, _)| prepare(*i));
        let markers: Vec<_> = markers.collect::<Result<_>>()?;
        let open = |column| self.open(column);
        let mut columns = Columns {
            key: open(&key)?,
            values: values.iter().map(open).collect::<Result<_>>()?,
            markers: markers.iter().map(open).collect::<Result<_>>()?,
            text: Vec::new(),
        };
        for i in 0..batch.num_rows() {
            let outcome = self.take_row(i, &mut columns, sink);
            sink.end_row(&self.file, self.row + i as u64, outcome, b"")?;
        }
        Ok(())
    }

    fn open<'a>(&'a self, column: &'a Prepared) -> Result<Values<'a>> {
        column.values(&self.options).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &ArrowError) -> Failure {
        Failure::input(&self.file, preview::reason(error))
    }

    fn take_row(&self, i: usize, columns: &mut Columns<'_>, sink: &mut Sink) -> Result<(), Flaw> {
        let Columns { key, values, markers, text } = columns;
        if key.is_null(i) {
            let reason = format!("the key \"{}\" is null", preview::name(&self.schema.key));
            return Err(Flaw::new(reason).at(self.picked.key + 1));
        }
        for ((_, mark), column) in self.picked.markers.iter().zip(markers) {
            text.clear();
            column.put_text(i, text);
            if mark.is_in(text) {
                text.clear();
                key.put_text(i, text);
                return sink.delete(text);
            }
        }
        let key = match key.kind.width() {
            None => key.stored(i),
            Some(_) => {
                text.clear();
                key.put_text(i, text);
                text
            }
        };
        sink.push(key, |out| match self.schema.form {
            Form::Plain => values[0].put_plain(i, out),
            Form::Row | Form::Object => {
                let mut row = RowEncoder::new(out, values.len());
                values.iter_mut().for_each(|column| column.put(i, &mut row));
            }
        })
    }
}

/// The columns of a batch that are needed.
struct Columns<'a> {
    key: Values<'a>,
    values: Vec<Values<'a>>,
    markers: Vec<Values<'a>>,
    /// Buffer for a value as text.
    text: Vec<u8>,
}

/// A column of a batch, in one of the few types that are stored.
struct Prepared {
    array: ArrayRef,
    field: FieldRef,
    kind: Kind,
}

/// The values of a column.
struct Values<'a> {
    kind: Kind,
    nulls: Option<NullBuffer>,
    storage: Storage<'a>,
}

enum Storage<'a> {
    /// Values of fixed size, little-endian, one after the other.
    Fixed { bytes: Buffer, width: usize },
    /// Values of any size; value i is between offsets i and i + 1.
    Variable { bytes: Buffer, offsets: OffsetBuffer<i64> },
    /// Values that are written one by one.
    Json(NullableEncoder<'a>),
}

impl Prepared {
    fn new(batch: &RecordBatch, places: &Places<'_>, name: &str) -> Arrow<Prepared> {
        let i = *places.get(name).ok_or_else(|| {
            ArrowError::SchemaError(format!("column \"{name}\" is missing in a batch"))
        })?;
        let field = &batch.schema_ref().fields()[i];
        let kind = kind(field.data_type());
        let array = cast(batch.column(i), &stored_type(field.data_type(), kind))?;
        Ok(Prepared { array, field: field.clone(), kind })
    }

    fn values<'a>(&'a self, options: &'a EncoderOptions) -> Arrow<Values<'a>> {
        let storage = match (self.kind, self.kind.width()) {
            (Kind::Json, _) => Storage::Json(make_encoder(&self.field, &self.array, options)?),
            (Kind::Text, _) => {
                let array = self.array.as_string::<i64>();
                Storage::Variable {
                    bytes: array.values().clone(),
                    offsets: array.offsets().clone(),
                }
            }
            (_, None) => {
                let array = self.array.as_binary::<i64>();
                Storage::Variable {
                    bytes: array.values().clone(),
                    offsets: array.offsets().clone(),
                }
            }
            (_, Some(width)) => {
                let data = self.array.to_data();
                let bytes = data.buffers()[0].slice(data.offset() * width);
                Storage::Fixed { bytes, width }
            }
        };
        Ok(Values { kind: self.kind, nulls: self.array.logical_nulls(), storage })
    }
}

impl Values<'_> {
    #[inline]
    fn is_null(&self, i: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(i))
    }

    /// Returns the bytes of a value that is not JSON.
    #[inline]
    fn stored(&self, i: usize) -> &[u8] {
        match &self.storage {
            Storage::Fixed { bytes, width } => &bytes[i * width..][..*width],
            Storage::Variable { bytes, offsets } => {
                &bytes[offsets[i] as usize..offsets[i + 1] as usize]
            }
            Storage::Json(_) => unreachable!("JSON is not stored before it is written"),
        }
    }

    #[inline]
    fn put(&mut self, i: usize, row: &mut RowEncoder<'_>) {
        if self.is_null(i) {
            return row.null();
        }
        match &mut self.storage {
            Storage::Fixed { .. } => row.fixed(self.stored(i)),
            Storage::Variable { .. } => row.bytes(self.stored(i)),
            Storage::Json(encoder) => {
                let mut json = Vec::new();
                encoder.encode(i, &mut json);
                row.bytes(&json);
            }
        }
    }

    /// Appends the value as text; nothing for null.
    fn put_text(&mut self, i: usize, out: &mut Vec<u8>) {
        if self.is_null(i) {
            return;
        }
        match &mut self.storage {
            Storage::Json(encoder) => encoder.encode(i, out),
            Storage::Variable { .. } => out.extend_from_slice(self.stored(i)),
            Storage::Fixed { .. } => fixed_cell(self.kind, self.stored(i)).write_text(out),
        }
    }

    /// Appends the value without its length; a null of text or bytes is empty.
    #[inline]
    fn put_plain(&mut self, i: usize, out: &mut Vec<u8>) {
        let is_null = self.is_null(i);
        match &mut self.storage {
            Storage::Json(_) if is_null => out.extend_from_slice(b"null"),
            Storage::Json(encoder) => encoder.encode(i, out),
            _ if is_null => {}
            _ => out.extend_from_slice(self.stored(i)),
        }
    }
}

/// Returns the stored kind of a column of an Arrow type.
fn kind(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Boolean => Kind::Bool,
        DataType::Int8 => Kind::Int8,
        DataType::Int16 => Kind::Int16,
        DataType::Int32 => Kind::Int32,
        DataType::Int64 => Kind::Int64,
        DataType::UInt8 => Kind::Uint8,
        DataType::UInt16 => Kind::Uint16,
        DataType::UInt32 => Kind::Uint32,
        DataType::UInt64 => Kind::Uint64,
        DataType::Float16 | DataType::Float32 => Kind::Float32,
        DataType::Float64 => Kind::Float64,
        DataType::Date32 => Kind::Date,
        DataType::Date64 => Kind::Timestamp { unit: Unit::Millisecond, utc: false },
        DataType::Timestamp(unit, zone) => {
            Kind::Timestamp { unit: (*unit).into(), utc: zone.is_some() }
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Kind::Binary,
        DataType::Dictionary(_, values) => kind(values),
        DataType::RunEndEncoded(_, values) => kind(values.data_type()),
        other if !other.is_nested() && can_cast_types(other, &DataType::LargeUtf8) => Kind::Text,
        _ => Kind::Json,
    }
}

/// Returns the Arrow type whose bytes are stored for a column of this kind.
fn stored_type(data_type: &DataType, kind: Kind) -> DataType {
    match (kind, data_type) {
        (_, DataType::Dictionary(_, values)) => stored_type(values, kind),
        (_, DataType::RunEndEncoded(_, values)) => stored_type(values.data_type(), kind),
        (Kind::Bool, _) => DataType::UInt8,
        (Kind::Float32, _) => DataType::Float32,
        (Kind::Timestamp { .. }, DataType::Date64) => {
            DataType::Timestamp(TimeUnit::Millisecond, None)
        }
        (Kind::Text, _) => DataType::LargeUtf8,
        (Kind::Binary, _) => DataType::LargeBinary,
        (_, same) => same.clone(),
    }
}

impl From<TimeUnit> for Unit {
    fn from(unit: TimeUnit) -> Unit {
        match unit {
            TimeUnit::Second => Unit::Second,
            TimeUnit::Millisecond => Unit::Millisecond,
            TimeUnit::Microsecond => Unit::Microsecond,
            TimeUnit::Nanosecond => Unit::Nanosecond,
        }
    }
}

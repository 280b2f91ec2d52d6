//! A column of an Arrow batch, read value by value.

use super::types::{kind, stored_type};
use crate::{
    encode::{Mismatch, RowEncoder},
    kind::{Item, Kind},
    list::List,
    row::fixed_value,
    value::Value,
};
use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_json::writer::{EncoderOptions, NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType, FieldRef};
use serde_json::value::RawValue;

const _: () = assert!(cfg!(target_endian = "little"), "rows take the bytes of Arrow's numbers");

type Arrow<T> = Result<T, ArrowError>;

/// A column of a batch, in one of the few types that are stored.
#[derive(Debug)]
pub struct ArrowColumn {
    array: ArrayRef,
    field: FieldRef,
    kind: Kind,
    options: EncoderOptions,
}

/// The values of a column.
pub struct ArrowValues<'a> {
    kind: Kind,
    nulls: Option<NullBuffer>,
    storage: Storage<'a>,
    /// A list whose nulls are not where a row has them, or the text of a JSON value.
    scratch: Vec<u8>,
    list_nulls: Vec<u8>,
}

enum Storage<'a> {
    /// Values of fixed size, little-endian, one after the other.
    Fixed { bytes: Buffer, width: usize },
    /// Values of any size; value i is between offsets i and i + 1.
    Variable { bytes: Buffer, offsets: OffsetBuffer<i64> },
    /// Text that is JSON; value i is between offsets i and i + 1.
    JsonText { bytes: Buffer, offsets: OffsetBuffer<i64> },
    /// Lists of numbers; list i is between offsets i and i + 1.
    Lists { item: Item, bytes: Buffer, nulls: Option<NullBuffer>, offsets: OffsetBuffer<i64> },
    /// Values that are written one by one.
    Json(NullableEncoder<'a>),
}

impl ArrowColumn {
    /// Converts a column to the type that is stored.
    pub fn new(array: &ArrayRef, field: &FieldRef) -> Arrow<ArrowColumn> {
        let kind = kind(field);
        let array = cast(array, &stored_type(field.data_type(), kind))?;
        let options = EncoderOptions::default().with_explicit_nulls(true);
        Ok(ArrowColumn { array, field: field.clone(), kind, options })
    }

    /// Opens the column for reading.
    pub fn values(&self) -> Arrow<ArrowValues<'_>> {
        let storage = match (self.kind, self.kind.width()) {
            (Kind::Json, _) if *self.array.data_type() == DataType::LargeUtf8 => {
                let array = self.array.as_string::<i64>();
                Storage::JsonText {
                    bytes: array.values().clone(),
                    offsets: array.offsets().clone(),
                }
            }
            (Kind::Json, _) => {
                Storage::Json(make_encoder(&self.field, &self.array, &self.options)?)
            }
            (Kind::Text, _) => {
                let array = self.array.as_string::<i64>();
                Storage::Variable {
                    bytes: array.values().clone(),
                    offsets: array.offsets().clone(),
                }
            }
            (Kind::List { item }, _) => {
                let lists = self.array.as_list::<i64>();
                let bytes = numbers(lists.values(), item.width());
                let nulls = lists.values().logical_nulls().filter(|nulls| nulls.null_count() > 0);
                Storage::Lists { item, bytes, nulls, offsets: lists.offsets().clone() }
            }
            (_, None) => {
                let array = self.array.as_binary::<i64>();
                Storage::Variable {
                    bytes: array.values().clone(),
                    offsets: array.offsets().clone(),
                }
            }
            (_, Some(width)) => Storage::Fixed { bytes: numbers(&self.array, width), width },
        };
        let nulls = self.array.logical_nulls();
        let (scratch, list_nulls) = (Vec::new(), Vec::new());
        Ok(ArrowValues { kind: self.kind, nulls, storage, scratch, list_nulls })
    }
}

/// The bytes of an array of numbers.
fn numbers(array: &ArrayRef, width: usize) -> Buffer {
    let data = array.to_data();
    data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width)
}

impl ArrowValues<'_> {
    /// Returns whether a value is null.
    #[inline]
    pub fn is_null(&self, i: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(i))
    }

    /// Returns a value.
    ///
    /// # Panics
    /// If the batch has no such row.
    pub fn value(&mut self, i: usize) -> Value<'_> {
        if self.is_null(i) {
            return Value::Null;
        }
        match &mut self.storage {
            Storage::Fixed { bytes, width } => {
                fixed_value(self.kind, &bytes[i * *width..][..*width])
            }
            Storage::Variable { bytes, offsets } => {
                Value::Bytes(&bytes[offsets[i] as usize..offsets[i + 1] as usize])
            }
            Storage::JsonText { bytes, offsets } => {
                let text = &bytes[offsets[i] as usize..offsets[i + 1] as usize];
                // Other text becomes a JSON string.
                match serde_json::from_slice::<&RawValue>(text) {
                    Ok(json) => Value::Json(json.get().as_bytes()),
                    Err(_) => Value::Bytes(text),
                }
            }
            Storage::Json(encoder) => {
                self.scratch.clear();
                encoder.encode(i, &mut self.scratch);
                Value::Json(&self.scratch)
            }
            Storage::Lists { item, bytes, nulls, offsets } => {
                let (start, end) = (offsets[i] as usize, offsets[i + 1] as usize);
                let width = item.width();
                let bytes = &bytes[start * width..end * width];
                let is_null =
                    |i: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(start + i));
                if !(0..end - start).any(is_null) {
                    return Value::List(List::new(*item, &[], bytes));
                }
                self.scratch.clear();
                self.scratch.extend_from_slice(bytes);
                self.list_nulls.clear();
                self.list_nulls.resize((end - start).div_ceil(8), 0);
                for i in (0..end - start).filter(|i| is_null(*i)) {
                    self.scratch[i * width..][..width].fill(0);
                    self.list_nulls[i / 8] |= 1 << (i % 8);
                }
                Value::List(List::new(*item, &self.list_nulls, &self.scratch))
            }
        }
    }

    /// Appends a value to a row, as this kind.
    ///
    /// # Errors
    /// The value cannot be converted without loss.
    #[inline]
    pub fn put(&mut self, i: usize, kind: Kind, row: &mut RowEncoder<'_>) -> Result<(), Mismatch> {
        if kind != self.kind {
            return row.value(kind, self.value(i));
        }
        match &self.storage {
            _ if self.is_null(i) => row.null(),
            Storage::Fixed { bytes, width } => row.fixed(&bytes[i * width..][..*width]),
            Storage::Variable { bytes, offsets } => {
                row.bytes(&bytes[offsets[i] as usize..offsets[i + 1] as usize]);
            }
            _ => row.value(kind, self.value(i))?,
        }
        Ok(())
    }
}

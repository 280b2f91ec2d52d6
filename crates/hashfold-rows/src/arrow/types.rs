//! The kinds of Arrow's types, and the Arrow types of kinds.

use crate::{
    key::KeyType,
    kind::{Item, Kind, Unit},
};
use arrow_cast::can_cast_types;
use arrow_schema::{
    DataType, Field, TimeUnit,
    extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY},
};
use std::sync::Arc;

/// The name of Arrow's canonical extension type for text that is JSON.
const JSON_EXTENSION: &str = "arrow.json";

/// Returns the kind of column that an Arrow column is stored as. Text of the extension type
/// `arrow.json` is JSON.
pub fn kind(field: &Field) -> Kind {
    match kind_of(field.data_type()) {
        Kind::Text if field.extension_type_name() == Some(JSON_EXTENSION) => Kind::Json,
        kind => kind,
    }
}

/// Returns the Arrow column of a name and a kind. JSON is text of the extension type `arrow.json`.
pub fn field(name: &str, kind: Kind) -> Field {
    let field = Field::new(name, data_type(kind), true);
    if kind != Kind::Json {
        return field;
    }
    let facts = [(EXTENSION_TYPE_NAME_KEY, JSON_EXTENSION), (EXTENSION_TYPE_METADATA_KEY, "")];
    field.with_metadata(facts.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

fn kind_of(data_type: &DataType) -> Kind {
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
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            item(field.data_type()).map_or(Kind::Json, |item| Kind::List { item })
        }
        DataType::Dictionary(_, values) => kind_of(values),
        DataType::RunEndEncoded(_, values) => kind_of(values.data_type()),
        other if !other.is_nested() && can_cast_types(other, &DataType::LargeUtf8) => Kind::Text,
        _ => Kind::Json,
    }
}

/// Returns the smallest kind of list items for the numbers of an Arrow type.
fn item(data_type: &DataType) -> Option<Item> {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => {
            Some(Item::Int32)
        }
        DataType::Int64 | DataType::UInt32 => Some(Item::Int64),
        DataType::Float16 | DataType::Float32 => Some(Item::Float32),
        DataType::Float64 => Some(Item::Float64),
        _ => None,
    }
}

/// Returns the type of keys in a column of an Arrow type.
pub fn key_type(data_type: &DataType) -> KeyType {
    match kind_of(data_type) {
        Kind::Uint64 => KeyType::Uint64,
        Kind::Int8
        | Kind::Int16
        | Kind::Int32
        | Kind::Int64
        | Kind::Uint8
        | Kind::Uint16
        | Kind::Uint32 => KeyType::Int64,
        _ => KeyType::Text,
    }
}

/// Returns the Arrow type of a column of this kind.
pub(super) fn data_type(kind: Kind) -> DataType {
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::Int8 => DataType::Int8,
        Kind::Int16 => DataType::Int16,
        Kind::Int32 => DataType::Int32,
        Kind::Int64 => DataType::Int64,
        Kind::Uint8 => DataType::UInt8,
        Kind::Uint16 => DataType::UInt16,
        Kind::Uint32 => DataType::UInt32,
        Kind::Uint64 => DataType::UInt64,
        Kind::Float32 => DataType::Float32,
        Kind::Float64 => DataType::Float64,
        Kind::Date => DataType::Date32,
        Kind::Timestamp { unit, utc } => {
            DataType::Timestamp(unit.into(), utc.then(|| "UTC".into()))
        }
        Kind::Text | Kind::Json => DataType::Utf8,
        Kind::Binary => DataType::Binary,
        Kind::List { item } => {
            DataType::List(Arc::new(Field::new("item", data_type(item.kind()), true)))
        }
    }
}

/// Returns the Arrow type whose bytes are stored for a column of this kind.
pub(super) fn stored_type(from: &DataType, kind: Kind) -> DataType {
    match (kind, from) {
        (_, DataType::Dictionary(_, values)) => stored_type(values, kind),
        (_, DataType::RunEndEncoded(_, values)) => stored_type(values.data_type(), kind),
        (Kind::Bool, _) => DataType::UInt8,
        (Kind::Float32, _) => DataType::Float32,
        (Kind::Timestamp { .. }, DataType::Date64) => {
            DataType::Timestamp(TimeUnit::Millisecond, None)
        }
        (Kind::Text, _) => DataType::LargeUtf8,
        (Kind::Json, text) if kind_of(text) == Kind::Text => DataType::LargeUtf8,
        (Kind::Binary, _) => DataType::LargeBinary,
        (Kind::List { item }, _) => {
            DataType::LargeList(Arc::new(Field::new("item", data_type(item.kind()), true)))
        }
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

impl From<Unit> for TimeUnit {
    fn from(unit: Unit) -> TimeUnit {
        match unit {
            Unit::Second => TimeUnit::Second,
            Unit::Millisecond => TimeUnit::Millisecond,
            Unit::Microsecond => TimeUnit::Microsecond,
            Unit::Nanosecond => TimeUnit::Nanosecond,
        }
    }
}

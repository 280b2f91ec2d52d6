//! The kinds of columns.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// True or false.
    Bool,
    /// A signed integer of 8 bits.
    Int8,
    /// A signed integer of 16 bits.
    Int16,
    /// A signed integer of 32 bits.
    Int32,
    /// A signed integer of 64 bits.
    Int64,
    /// An unsigned integer of 8 bits.
    Uint8,
    /// An unsigned integer of 16 bits.
    Uint16,
    /// An unsigned integer of 32 bits.
    Uint32,
    /// An unsigned integer of 64 bits.
    Uint64,
    /// A number of IEEE 754, of 32 bits.
    Float32,
    /// A number of IEEE 754, of 64 bits.
    Float64,
    /// Days since 1970-01-01.
    Date,
    /// Units since 1970-01-01 00:00:00.
    Timestamp {
        /// The unit.
        unit: Unit,
        /// Whether the time is in UTC; otherwise its time zone has no name.
        utc: bool,
    },
    /// Text, in the encoding of the input.
    Text,
    /// Bytes.
    Binary,
    /// Any JSON value, as its text.
    Json,
    /// A list of numbers, such as an embedding. Single numbers may be null.
    List {
        /// The kind of the numbers.
        item: Item,
    },
}

/// The unit of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// A second.
    #[serde(rename = "s")]
    Second,
    /// 1/1000 of a second.
    #[serde(rename = "ms")]
    Millisecond,
    /// 1/1,000,000 of a second.
    #[serde(rename = "us")]
    Microsecond,
    /// 1/1,000,000,000 of a second.
    #[serde(rename = "ns")]
    Nanosecond,
}

/// The kind of the numbers in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Item {
    /// Signed integers of 32 bits.
    Int32,
    /// Signed integers of 64 bits.
    Int64,
    /// Numbers of IEEE 754, of 32 bits.
    Float32,
    /// Numbers of IEEE 754, of 64 bits.
    Float64,
}

impl Kind {
    /// Returns the size of a value in bytes; `None` if sizes differ.
    pub fn width(self) -> Option<usize> {
        match self {
            Kind::Bool | Kind::Int8 | Kind::Uint8 => Some(1),
            Kind::Int16 | Kind::Uint16 => Some(2),
            Kind::Int32 | Kind::Uint32 | Kind::Float32 | Kind::Date => Some(4),
            Kind::Int64 | Kind::Uint64 | Kind::Float64 | Kind::Timestamp { .. } => Some(8),
            Kind::Text | Kind::Binary | Kind::Json | Kind::List { .. } => None,
        }
    }

    /// Returns whether a value is bytes with a size: text, binary or JSON.
    pub fn is_bytes(self) -> bool {
        matches!(self, Kind::Text | Kind::Binary | Kind::Json)
    }
}

impl Item {
    /// Returns the kind of a column of such numbers.
    pub fn kind(self) -> Kind {
        match self {
            Item::Int32 => Kind::Int32,
            Item::Int64 => Kind::Int64,
            Item::Float32 => Kind::Float32,
            Item::Float64 => Kind::Float64,
        }
    }

    /// Returns the size of a number in bytes.
    pub fn width(self) -> usize {
        match self {
            Item::Int32 | Item::Float32 => 4,
            Item::Int64 | Item::Float64 => 8,
        }
    }
}

impl Unit {
    /// Returns the number of units in a second.
    pub fn per_second(self) -> i64 {
        match self {
            Unit::Second => 1,
            Unit::Millisecond => 1_000,
            Unit::Microsecond => 1_000_000,
            Unit::Nanosecond => 1_000_000_000,
        }
    }

    /// Returns the number of digits after the second's decimal point.
    pub fn digits(self) -> usize {
        match self {
            Unit::Second => 0,
            Unit::Millisecond => 3,
            Unit::Microsecond => 6,
            Unit::Nanosecond => 9,
        }
    }
}

/// `int64`, `timestamp[ms, UTC]`, `list[float32]`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Kind::Bool => "bool",
            Kind::Int8 => "int8",
            Kind::Int16 => "int16",
            Kind::Int32 => "int32",
            Kind::Int64 => "int64",
            Kind::Uint8 => "uint8",
            Kind::Uint16 => "uint16",
            Kind::Uint32 => "uint32",
            Kind::Uint64 => "uint64",
            Kind::Float32 => "float32",
            Kind::Float64 => "float64",
            Kind::Date => "date",
            Kind::Text => "text",
            Kind::Binary => "binary",
            Kind::Json => "json",
            Kind::Timestamp { unit, utc } => {
                return write!(f, "timestamp[{unit}{}]", if *utc { ", UTC" } else { "" });
            }
            Kind::List { item } => return write!(f, "list[{}]", item.kind()),
        };
        f.write_str(name)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Second => "s",
            Unit::Millisecond => "ms",
            Unit::Microsecond => "us",
            Unit::Nanosecond => "ns",
        })
    }
}

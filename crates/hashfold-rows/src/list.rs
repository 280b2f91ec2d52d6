//! Lists of numbers, as they lie in a row.

use crate::{kind::Item, value::Value};

/// The numbers of a list, borrowed from a row. Single numbers may be null.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct List<'a> {
    item: Item,
    /// Bit i (low bits first): number i is null. Empty if none is.
    nulls: &'a [u8],
    /// The numbers, little-endian; those that are null are 0.
    bytes: &'a [u8],
}

impl<'a> List<'a> {
    /// Makes a list of little-endian numbers. `nulls` is empty, or has a bit for each number.
    ///
    /// # Panics
    /// If `bytes` are not whole numbers, or `nulls` has another size.
    pub fn new(item: Item, nulls: &'a [u8], bytes: &'a [u8]) -> List<'a> {
        assert!(bytes.len().is_multiple_of(item.width()), "the bytes are whole numbers");
        let list = List { item, nulls, bytes };
        assert!(nulls.is_empty() || nulls.len() == list.len().div_ceil(8), "a bit for each number");
        list
    }

    /// The kind of the numbers.
    pub fn item(&self) -> Item {
        self.item
    }

    /// Number of numbers.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.item.width()
    }

    /// Returns whether the list has no numbers.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The nulls: bit i (low bits first) is set if number i is null. Empty if none is.
    pub fn nulls(&self) -> &'a [u8] {
        self.nulls
    }

    /// The numbers, little-endian; those that are null are 0.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns a number, or null.
    ///
    /// # Panics
    /// If the list has no such number.
    pub fn at(&self, i: usize) -> Value<'static> {
        if self.nulls.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1) {
            return Value::Null;
        }
        let width = self.item.width();
        let bytes = &self.bytes[i * width..][..width];
        match self.item {
            Item::Int32 => Value::Int(i32::from_le_bytes(array(bytes)).into()),
            Item::Int64 => Value::Int(i64::from_le_bytes(array(bytes))),
            Item::Float32 => Value::Float32(f32::from_le_bytes(array(bytes))),
            Item::Float64 => Value::Float64(f64::from_le_bytes(array(bytes))),
        }
    }

    /// Returns the numbers in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'static>> + use<'a> {
        let list = *self;
        (0..list.len()).map(move |i| list.at(i))
    }

    /// Returns the numbers as a vector; `None` if they are not float32, or one is null.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        let number = |value| if let Value::Float32(number) = value { Some(number) } else { None };
        self.iter().map(number).collect()
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the bytes are one number")
}

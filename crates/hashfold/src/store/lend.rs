//! Values that the reader of a store lends.

use super::read::Version;
use crate::error::Result;
use std::{
    borrow::Cow,
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

/// A value of [`StoreReader::get_ref`](super::StoreReader::get_ref): bytes of a mapped file, or a copy.
/// It keeps its version open.
#[derive(Clone)]
pub struct ValueRef {
    version: Arc<Version>,
    bytes: Bytes,
}

/// The place of the bytes.
#[derive(Clone)]
enum Bytes {
    /// A range of the mapped data of the table with this number.
    In(u32, Range<usize>),
    Copied(Vec<u8>),
}

impl ValueRef {
    /// Returns the value of a key in a version.
    pub(super) fn of(version: Arc<Version>, key: &[u8]) -> Result<Option<ValueRef>> {
        let bytes = match version.find(key)? {
            None => return Ok(None),
            Some((_, Cow::Owned(bytes))) => Bytes::Copied(bytes),
            Some((table, Cow::Borrowed(bytes))) => {
                match version.table(table)?.mapped_range(bytes) {
                    Some(range) => Bytes::In(table, range),
                    None => Bytes::Copied(bytes.to_vec()),
                }
            }
        };
        Ok(Some(ValueRef { version, bytes }))
    }
}

impl Deref for ValueRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Copied(bytes) => bytes,
            Bytes::In(table, range) => {
                let table = self.version.table(*table).expect("the table is open");
                &table.mapped().expect("the table is mapped")[range.clone()]
            }
        }
    }
}

impl AsRef<[u8]> for ValueRef {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for ValueRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueRef({})", self.escape_ascii())
    }
}

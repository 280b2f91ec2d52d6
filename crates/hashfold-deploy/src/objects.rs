//! What a remote must be able to do: a flat set of named objects, with conditional writes.

use crate::error::Result;
use std::{fmt::Debug, ops::Range};

/// The mark of one content of an object, which the object store gives: an ETag, a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The ETag, where the object store has one.
    pub e_tag: Option<String>,
    /// The generation or version id, where the object store has one.
    pub version: Option<String>,
}

/// An object that was read as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The content.
    pub bytes: Vec<u8>,
    /// The mark of this content.
    pub tag: Tag,
}

/// The answer to reading a whole object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no such object.
    Absent,
    /// The object still has the content with the caller's tag.
    Unchanged,
    /// The object.
    Object(Object),
}

impl Found {
    /// Returns the object, if there is one.
    pub fn object(self) -> Option<Object> {
        match self {
            Found::Object(object) => Some(object),
            Found::Absent | Found::Unchanged => None,
        }
    }
}

/// The condition of a write.
#[derive(Clone, Copy, Debug)]
pub enum When<'a> {
    /// The object is created or replaced.
    Always,
    /// The object is created if there is none of its name.
    Absent,
    /// The object is replaced if it has the content with this tag.
    Is(&'a Tag),
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Full name of the object.
    pub name: String,
    /// Size of the object, in bytes.
    pub size: u64,
}

/// A source of the bytes of a large object, part after part; `None` after the last one. An error ends
/// the upload, and no object is made.
pub type Parts<'a> = dyn FnMut() -> Result<Option<Vec<u8>>> + 'a;

/// A set of named objects: object storage, a folder, or a simulation of one.
///
/// Names have components of letters, digits, `-`, `_` and `.`, separated by `/`. An object is seen
/// whole or not at all. Threads share a set.
///
/// # Errors
/// All methods return the errors of the object store, with the object's name.
pub trait Objects: Debug + Send + Sync {
    /// Returns the full name of an object for messages: a URL, or a path.
    fn place(&self, name: &str) -> String;

    /// Checks that the set is there at all, if that can be known: in a folder that is not mounted, no object is
    /// absent.
    fn check_there(&self) -> Result<()> {
        Ok(())
    }

    /// Whether [`Objects::list`] works: a web server has no listings.
    fn has_listings(&self) -> bool {
        true
    }

    /// Reads a whole object of at most `size_max` bytes, unless it still has the content with the tag
    /// `known`. A set without tags of that kind may return the unchanged object.
    fn get(&self, name: &str, size_max: u64, known: Option<&Tag>) -> Result<Found>;

    /// Reads a range of bytes of an object, which must exist. May return fewer bytes or other bytes
    /// than there should be; the caller checks them.
    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>>;

    /// Writes a small object; durable when this returns. Returns the tag of the new content, or
    /// `None` if the condition does not hold. After an error, the object may have been written.
    fn put(&self, name: &str, bytes: &[u8], when: When<'_>) -> Result<Option<Tag>>;

    /// Writes a large object of `size` bytes, in parts. An existing object is replaced.
    fn upload(&self, name: &str, size: u64, parts: &mut Parts<'_>) -> Result<()>;

    /// Returns all objects whose names begin with `folder` and a `/`, in any order.
    fn list(&self, folder: &str) -> Result<Vec<Listed>>;

    /// Removes an object. Succeeds if there is none.
    fn remove(&self, name: &str) -> Result<()>;
}

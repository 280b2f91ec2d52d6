//! The parts of a map that a salvage could not read, and their entries.

use crate::{error::Error, key::KeyHash};
use std::{
    fmt,
    ops::{Range, RangeInclusive},
};

/// A part of a map that cannot be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The damage: place, what was expected, what was found.
    pub error: Error,
    /// The entries that are lost or may be wrong.
    pub lost: Lost,
}

/// The entries that a damaged part of a map concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// No entry: the part is not needed, or is found elsewhere.
    Nothing,
    /// The attributes of the map, and no entry.
    Attributes,
    /// The places and the order of blocks. Entries were searched in all blocks of the data file;
    /// deleted ones may have come back.
    Catalog,
    /// Entries with hashes in this range that are not returned from elsewhere.
    Entries(RangeInclusive<KeyHash>),
    /// Changes of entries with hashes in this range, which may be older, or deleted, or missing.
    Changes(RangeInclusive<KeyHash>),
    /// Changes with these sequence numbers. Any entry may be older, or deleted, or missing.
    Records(Range<u64>),
    /// The place of changes with these sequence numbers among the writes of the data file. An entry that they have
    /// changed may be an older one from there; none of them is lost for this reason alone.
    Order(Range<u64>),
    /// The value of this key, which is above 1 KiB.
    Value(Vec<u8>),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.error, self.lost)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Nothing => f.write_str("no entry is lost"),
            Lost::Attributes => f.write_str("the names of columns are lost, and no entry"),
            Lost::Catalog => f.write_str(
                "all blocks of the data file were searched: deleted entries may have come back",
            ),
            Lost::Entries(hashes) => {
                write!(
                    f,
                    "entries with hashes from {} to {} are lost, but for those that are found elsewhere",
                    hashes.start(),
                    hashes.end()
                )
            }
            Lost::Changes(hashes) => write!(
                f,
                "changes are lost: entries with hashes from {} to {} may be older",
                hashes.start(),
                hashes.end()
            ),
            Lost::Records(seqs) => {
                let Range { start, end } = seqs;
                write!(f, "changes {start} to {} are lost: entries may be older", end.max(&1) - 1)
            }
            Lost::Order(Range { start, end }) => write!(
                f,
                "entries that changes {start} to {} have changed may be older",
                end.max(&1) - 1
            ),
            Lost::Value(key) => write!(f, "the value of key \"{}\" is lost", key.escape_ascii()),
        }
    }
}

//! Bounds on the entries of a run, known before the run is read.

/// The range of sizes, in bytes. `min > max` if there are no sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// The smallest size, in bytes.
    pub min: u64,
    /// The largest size, in bytes.
    pub max: u64,
}

impl SizeRange {
    /// The range of no sizes.
    pub const EMPTY: SizeRange = SizeRange { min: u64::MAX, max: 0 };

    /// Extends the range by one size, in bytes.
    #[inline]
    pub fn add(&mut self, size: usize) {
        self.min = self.min.min(size as u64);
        self.max = self.max.max(size as u64);
    }

    /// Returns the smallest range that includes both ranges.
    #[must_use]
    pub fn union(self, other: SizeRange) -> SizeRange {
        SizeRange { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Upper bounds on a run, which a builder knows before the first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Maximum number of entries; tombstones and duplicates may still be dropped.
    pub entries_max: u64,
    /// Sizes of the keys, in bytes.
    pub keys: SizeRange,
    /// Sizes of the values, in bytes; tombstones have none.
    pub values: SizeRange,
    /// Maximum size of all keys and values together, in bytes.
    pub bytes_max: u64,
}

impl Summary {
    /// The summary of an empty run.
    pub const EMPTY: Summary =
        Summary { entries_max: 0, keys: SizeRange::EMPTY, values: SizeRange::EMPTY, bytes_max: 0 };

    /// Extends the summary by one entry.
    #[inline]
    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.entries_max += 1;
        self.keys.add(key.len());
        self.bytes_max += key.len() as u64;
        if let Some(value) = value {
            self.values.add(value.len());
            self.bytes_max += value.len() as u64;
        }
    }

    /// Returns the summary of a run with the entries of both runs.
    #[must_use]
    pub fn union(self, other: Summary) -> Summary {
        Summary {
            entries_max: self.entries_max + other.entries_max,
            keys: self.keys.union(other.keys),
            values: self.values.union(other.values),
            bytes_max: self.bytes_max + other.bytes_max,
        }
    }
}

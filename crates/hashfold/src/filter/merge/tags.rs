//! Tagged fingerprints: a fingerprint and its source in one number.

/// The layout of a tagged number: a fingerprint, the index of its batch (0 is the newest), and a bit
/// that is set if its count is not 1.
///
/// ```text
/// fingerprint - base | index of the batch | 1 if an exception
/// ```
#[derive(Clone, Copy)]
pub(super) struct Tags {
    /// The smallest fingerprint.
    pub(super) base: u64,
    /// Number of bits behind the fingerprint, at least 1.
    pub(super) bits: u32,
}

impl Tags {
    /// Returns the largest fingerprint that fits beside a tag.
    pub(super) fn last(self) -> u64 {
        self.base.saturating_add(u64::MAX >> self.bits)
    }

    #[inline]
    pub(super) fn fingerprint(self, number: u64) -> u64 {
        (number >> self.bits) + self.base
    }

    /// Whether two numbers have the same fingerprint.
    #[inline]
    pub(super) fn are_equal(self, a: u64, b: u64) -> bool {
        a >> self.bits == b >> self.bits
    }

    /// Returns the index of the batch.
    pub(super) fn part(self, number: u64) -> usize {
        ((number & ((1 << self.bits) - 1)) >> 1) as usize
    }
}

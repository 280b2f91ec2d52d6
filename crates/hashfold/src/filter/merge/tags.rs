//! Fingerprints and where they come from, as one number each.

/// How to make one number of a fingerprint, the index of the batch that it comes from (0 is the
/// newest), and a bit that says whether its count is another one than 1:
///
/// ```text
/// fingerprint - base | index of the batch | 1 if an exception
/// ```
#[derive(Clone, Copy)]
pub(super) struct Tags {
    /// The smallest fingerprint.
    pub(super) base: u64,
    /// Bits behind the fingerprint, at least 1.
    pub(super) bits: u32,
}

impl Tags {
    /// The largest fingerprint that there is room for beside a tag.
    pub(super) fn last(self) -> u64 {
        self.base.saturating_add(u64::MAX >> self.bits)
    }

    #[inline]
    pub(super) fn fingerprint(self, number: u64) -> u64 {
        (number >> self.bits) + self.base
    }

    /// Whether two numbers are of one fingerprint.
    #[inline]
    pub(super) fn are_equal(self, a: u64, b: u64) -> bool {
        a >> self.bits == b >> self.bits
    }

    /// The place of the part.
    pub(super) fn part(self, number: u64) -> usize {
        ((number & ((1 << self.bits) - 1)) >> 1) as usize
    }
}

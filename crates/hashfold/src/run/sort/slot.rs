//! Slots: the sorting keys of a bucket's entries.

use crate::key::KeyHash;

/// Memory for sorting an entry, besides its encoded bytes.
pub(super) const SLOT_BYTES: usize = size_of::<SortSlot>();

/// The high half of an entry's hash, and the entry's offset. Slots order by hash; entries with
/// equal hashes stay in the order of their arrival. A plain integer compares without a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SortSlot(u128);

impl SortSlot {
    #[inline]
    pub(super) fn new(hash: KeyHash, offset: usize) -> SortSlot {
        SortSlot(u128::from(hash.high()) << 64 | offset as u128)
    }

    #[inline]
    pub(super) fn high(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    pub(super) fn offset(self) -> usize {
        self.0 as usize
    }
}

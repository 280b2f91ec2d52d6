//! The memory of groups, counted in a budget that several summaries and pipelines share.
//!
//! Counted are the pieces of memory of each group: its fields, the states of its columns with all that they hold, its
//! slot in a hash table, and what an allocator adds to a piece. Tables of the standard library have no exact size that
//! can be asked for, so each of their entries counts as if the table were as large as it ever is: see [`slot_bytes`].

use crate::{
    error::Result,
    work::{MemoryBudget, Reserved},
};

/// Memory that an allocator takes beside each piece of memory, in bytes.
pub(super) const ALLOCATION_BYTES: u64 = 16;

/// Memory is reserved in steps of this many bytes while there is enough, so that events seldom touch what threads share.
const STEP_BYTES: u64 = 64 << 10;

/// Returns the memory of an entry of type `T` in a hash table, in bytes, at most.
///
/// A table has one byte of its own for each slot, doubles when it is 7/8 full, and has the old half, too, meanwhile:
/// then there are 16/7 + 8/7 slots for each entry.
pub(super) const fn slot_bytes<T>() -> u64 {
    ((size_of::<T>() as u64 + 1) * 24).div_ceil(7)
}

/// The memory of one summary in a budget.
#[derive(Debug)]
pub(super) struct Account {
    reserved: Reserved,
    /// The bytes of `reserved`: at least `used`, and less than two steps more.
    held: u64,
    used: u64,
}

impl Account {
    pub(super) fn new(budget: &MemoryBudget) -> Account {
        let reserved = budget.reserve(0).expect("0 bytes are in every limit");
        Account { reserved, held: 0, used: 0 }
    }

    /// Returns the number of bytes in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Makes sure that this many more bytes can be added.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted.
    #[inline]
    pub(super) fn ensure(&mut self, bytes: u64) -> Result<()> {
        let needed = self.used + bytes;
        if needed <= self.held { Ok(()) } else { self.reserve(needed) }
    }

    #[cold]
    fn reserve(&mut self, needed: u64) -> Result<()> {
        let rounded = needed.next_multiple_of(STEP_BYTES);
        self.held = match self.reserved.resize(rounded) {
            Ok(()) => rounded,
            Err(_) => self.reserved.resize(needed).map(|()| needed)?,
        };
        Ok(())
    }

    /// Keeps no more of the budget than the bytes in use.
    pub(super) fn fit(&mut self) {
        self.reserved.resize(self.used).expect("fewer bytes are in every limit");
        self.held = self.used;
    }

    /// Adds bytes that were made sure of.
    #[inline]
    pub(super) fn add(&mut self, bytes: u64) {
        self.used += bytes;
        assert!(self.used <= self.held, "the bytes were made sure of");
    }

    /// Gives bytes back.
    #[inline]
    pub(super) fn free(&mut self, bytes: u64) {
        self.used -= bytes;
        let kept = self.used.next_multiple_of(STEP_BYTES);
        if self.held > kept + STEP_BYTES {
            self.reserved.resize(kept).expect("fewer bytes are in every limit");
            self.held = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_holds_what_it_uses_and_little_more() {
        let budget = MemoryBudget::new(200_000);
        let mut account = Account::new(&budget);
        for bytes in [1, 70_000, 5000] {
            account.ensure(bytes).unwrap();
            account.add(bytes);
            assert!((account.used()..account.used() + STEP_BYTES).contains(&budget.reserved()));
        }
        // Steps do not fit any more, but single bytes do, up to the last.
        account.ensure(200_000 - account.used()).unwrap();
        account.add(200_000 - account.used());
        assert_eq!((account.used(), budget.reserved()), (200_000, 200_000));
        assert!(account.ensure(1).is_err());
        account.free(150_000);
        assert_eq!((account.used(), budget.reserved()), (50_000, STEP_BYTES));
        account.free(50_000);
        assert!(budget.reserved() <= STEP_BYTES);
        drop(account);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn a_slot_counts_as_in_a_table_that_doubles() {
        assert_eq!(slot_bytes::<[u8; 32]>(), 114);
        let mut table = std::collections::HashMap::<u64, u64>::new();
        let mut before = 0;
        for i in 0..10_000 {
            table.insert(i, i);
            // Capacity is 7/8 of the slots.
            let slots = table.capacity() as u64 * 8 / 7;
            let bytes = (slots + if slots > before { before } else { 0 }) * 17;
            assert!(i < 20 || bytes <= slot_bytes::<(u64, u64)>() * (i + 1), "{i} entries");
            before = slots;
        }
    }
}

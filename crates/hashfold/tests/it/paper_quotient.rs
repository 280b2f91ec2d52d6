//! The quotient filter as the paper describes it (Bender et al., *Don't Thrash*, 2011, section 2):
//! the naive twin of `hashfold::filter::quotient::QuotientFilter`.
//!
//! The filter has `2^q` slots of three bits and a remainder of `r` bits, and linear probing wraps
//! around. It is slow on purpose: every operation decodes a cluster, changes a sorted list and
//! encodes the cluster again.

// Each program that includes this file uses only a part of it.
#![allow(dead_code)]

/// A slot: the paper's three bits, and a remainder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// Whether a fingerprint has this slot's index as its quotient.
    is_occupied: bool,
    /// Whether the remainder is not the first of its run.
    is_continuation: bool,
    /// Whether the remainder is not in the slot of its quotient.
    is_shifted: bool,
    remainder: u64,
}

impl Slot {
    /// An occupied slot may be empty only while the filter is being changed.
    fn is_empty(self) -> bool {
        !self.is_occupied && !self.is_continuation && !self.is_shifted
    }
}

/// A multiset of fingerprints of `q + r` bits.
#[derive(Clone, Debug)]
pub(crate) struct PaperQuotient {
    quotient_bits: u32,
    remainder_bits: u32,
    slots: Vec<Slot>,
    len: usize,
}

impl PaperQuotient {
    /// Returns an empty filter of `2^quotient_bits` slots.
    pub(crate) fn new(quotient_bits: u32, remainder_bits: u32) -> PaperQuotient {
        assert!(quotient_bits + remainder_bits <= 64);
        let slots = vec![Slot::default(); 1 << quotient_bits];
        PaperQuotient { quotient_bits, remainder_bits, slots, len: 0 }
    }

    /// Returns the number of fingerprints, copies included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no fingerprints.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of slots. One slot always stays empty, so that every cluster has an end.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    fn split(&self, fingerprint: u64) -> (usize, u64) {
        let remainder = fingerprint & ((1 << self.remainder_bits) - 1);
        ((fingerprint >> self.remainder_bits) as usize, remainder)
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) % self.slots.len()
    }

    fn before(&self, slot: usize) -> usize {
        (slot + self.slots.len() - 1) % self.slots.len()
    }

    /// Returns the first slot of this slot's cluster, which is not empty: the nearest slot to the
    /// left whose remainder is in its own slot.
    fn cluster_start(&self, mut slot: usize) -> usize {
        while self.slots[slot].is_shifted {
            slot = self.before(slot);
        }
        slot
    }

    /// Returns the quotients and remainders of the cluster that starts at `start`, in order.
    ///
    /// The runs of a cluster belong to its occupied slots, one to each, in order.
    fn decode_cluster(&self, start: usize) -> Vec<(usize, u64)> {
        let (mut slot, mut quotient) = (start, start);
        let mut out = Vec::new();
        loop {
            out.push((quotient, self.slots[slot].remainder));
            slot = self.after(slot);
            // A cluster ends before an empty slot, and before a slot that starts another cluster.
            if !self.slots[slot].is_shifted {
                return out;
            }
            if !self.slots[slot].is_continuation {
                quotient = self.after(quotient);
                while !self.slots[quotient].is_occupied {
                    quotient = self.after(quotient);
                }
            }
        }
    }

    /// Returns the run of a quotient: goes left to the start of the cluster, then right by one run
    /// for each occupied slot in between.
    fn run(&self, quotient: usize) -> Vec<u64> {
        if !self.slots[quotient].is_occupied {
            return Vec::new();
        }
        let mut owner = quotient;
        while self.slots[owner].is_shifted {
            owner = self.before(owner);
        }
        let mut slot = owner;
        while owner != quotient {
            slot = self.after(slot);
            while self.slots[slot].is_continuation {
                slot = self.after(slot);
            }
            owner = self.after(owner);
            while !self.slots[owner].is_occupied {
                owner = self.after(owner);
            }
        }
        let mut run = vec![self.slots[slot].remainder];
        slot = self.after(slot);
        while self.slots[slot].is_continuation {
            run.push(self.slots[slot].remainder);
            slot = self.after(slot);
        }
        run
    }

    /// Whether the fingerprint is in the filter.
    pub(crate) fn contains(&self, fingerprint: u64) -> bool {
        self.count(fingerprint) > 0
    }

    /// Returns the number of copies of a fingerprint.
    pub(crate) fn count(&self, fingerprint: u64) -> usize {
        let (quotient, remainder) = self.split(fingerprint);
        self.run(quotient).iter().filter(|&&other| other == remainder).count()
    }

    /// Adds a copy. Returns `false`, and changes nothing, if only one slot is empty.
    pub(crate) fn insert(&mut self, fingerprint: u64) -> bool {
        if self.len + 1 == self.slots.len() {
            return false;
        }
        let (quotient, remainder) = self.split(fingerprint);
        // All slots that may be shifted: a contiguous stretch from the cluster's start on.
        let mut stretch = Vec::new();
        let start = if self.slots[quotient].is_empty() {
            quotient
        } else {
            let start = self.cluster_start(quotient);
            stretch = self.take_stretch(start);
            start
        };
        let distance = |quotient: usize| (quotient + self.slots.len() - start) % self.slots.len();
        let key = (distance(quotient), remainder);
        let at = stretch.partition_point(|&(q, other)| (distance(q), other) < key);
        stretch.insert(at, (quotient, remainder));
        self.put_stretch(start, &stretch);
        self.len += 1;
        true
    }

    /// Removes a copy. Returns `false` if there is none.
    pub(crate) fn remove(&mut self, fingerprint: u64) -> bool {
        if !self.contains(fingerprint) {
            return false;
        }
        let start = self.cluster_start(self.split(fingerprint).0);
        let mut stretch = self.take_stretch(start);
        let found = stretch.iter().position(|&pair| pair == self.split(fingerprint));
        stretch.remove(found.expect("it is in the cluster of its slot"));
        self.put_stretch(start, &stretch);
        self.len -= 1;
        true
    }

    /// Empties all slots from `start` to the next empty one. Returns their content.
    fn take_stretch(&mut self, start: usize) -> Vec<(usize, u64)> {
        let mut out = Vec::new();
        let mut slot = start;
        while !self.slots[slot].is_empty() {
            let cluster = self.decode_cluster(slot);
            slot = (slot + cluster.len()) % self.slots.len();
            out.extend(cluster);
        }
        for i in 0..out.len() {
            let slot = (start + i) % self.slots.len();
            self.slots[slot] = Slot::default();
        }
        out
    }

    /// Puts ordered pairs into empty slots, from `start` on.
    fn put_stretch(&mut self, start: usize, pairs: &[(usize, u64)]) {
        let count = self.slots.len();
        let mut next = 0;
        let mut last = None;
        for &(quotient, remainder) in pairs {
            let own = (quotient + count - start) % count;
            let place = next.max(own);
            let slot = &mut self.slots[(start + place) % count];
            slot.remainder = remainder;
            slot.is_shifted = place != own;
            slot.is_continuation = last == Some(quotient);
            self.slots[quotient].is_occupied = true;
            last = Some(quotient);
            next = place + 1;
        }
    }

    /// Returns all fingerprints, copies included, in ascending order.
    pub(crate) fn iterate(&self) -> Vec<u64> {
        let mut out = Vec::with_capacity(self.len);
        for slot in 0..self.slots.len() {
            if !self.slots[slot].is_empty() && !self.slots[slot].is_shifted {
                for (quotient, remainder) in self.decode_cluster(slot) {
                    out.push((quotient as u64) << self.remainder_bits | remainder);
                }
            }
        }
        // A cluster that wraps around comes last, with the smallest fingerprints in it.
        out.sort_unstable();
        out
    }

    /// Returns a filter of the same size with the fingerprints of both; `None` if they do not fit.
    pub(crate) fn merge(&self, other: &PaperQuotient) -> Option<PaperQuotient> {
        assert_eq!(self.quotient_bits, other.quotient_bits);
        assert_eq!(self.remainder_bits, other.remainder_bits);
        let mut merged = PaperQuotient::new(self.quotient_bits, self.remainder_bits);
        let mut all = self.iterate().into_iter().chain(other.iterate());
        all.all(|fingerprint| merged.insert(fingerprint)).then_some(merged)
    }

    /// Returns a filter of these fingerprints in `2^quotient_bits` slots, whose remainders have the
    /// other bits.
    pub(crate) fn resize(&self, quotient_bits: u32) -> Option<PaperQuotient> {
        let bits = self.quotient_bits + self.remainder_bits;
        let mut resized = PaperQuotient::new(quotient_bits, bits.checked_sub(quotient_bits)?);
        let mut all = self.iterate().into_iter();
        all.all(|fingerprint| resized.insert(fingerprint)).then_some(resized)
    }
}

#[cfg(test)]
mod tests {
    use super::PaperQuotient;

    /// Figure 1 of the paper has eight slots; this test has eight slots and every list of up to
    /// four fingerprints of four bits.
    #[test]
    fn every_small_filter_agrees_with_a_sorted_list() {
        for code in 0..16_u64.pow(4) {
            let mut filter = PaperQuotient::new(3, 1);
            let mut list: Vec<u64> = (0..4).map(|i| code >> (4 * i) & 15).collect();
            for &fingerprint in &list {
                assert!(filter.insert(fingerprint));
            }
            let removed = list.remove(code as usize % 4);
            assert!(filter.remove(removed));
            list.sort_unstable();
            assert_eq!(filter.iterate(), list, "{code:x}");
            for fingerprint in 0..16 {
                let count = list.iter().filter(|&&other| other == fingerprint).count();
                assert_eq!(filter.count(fingerprint), count, "{code:x} {fingerprint}");
            }
        }
    }
}

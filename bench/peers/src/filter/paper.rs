//! The quotient filter with the paper's layout (Bender et al., *Don't Thrash*, 2011, section 2),
//! optimized for speed: three bits and a remainder share a 16-bit word per slot, so that it does
//! not spend the paper's time on packing bits.
//!
//! The tests compare it with the naive twin of the library's own tests. `figures` includes this
//! file, too.

// Each program that includes this file uses only a part of it.
#![allow(dead_code)]

/// A fingerprint has this slot's index as its quotient.
const OCCUPIED: u16 = 1;
/// The remainder is not the first of its run.
const CONTINUATION: u16 = 2;
/// The remainder is not in the slot of its quotient.
const SHIFTED: u16 = 4;
const FLAGS: u32 = 3;

/// Number of slots after the last quotient, into which clusters extend instead of wrapping around.
/// At load 3/4, clusters never fill them.
const SLOTS_AFTER: usize = 4096;

/// A set of fingerprints of `quotient_bits + remainder_bits` bits.
#[derive(Clone, Debug)]
pub struct PaperFilter {
    quotient_bits: u32,
    remainder_bits: u32,
    slots: Vec<u16>,
    len: u64,
}

/// Whether a slot is empty.
fn is_empty(slot: u16) -> bool {
    slot & (OCCUPIED | CONTINUATION | SHIFTED) == 0
}

fn is_run_start(slot: u16) -> bool {
    slot & CONTINUATION == 0 && slot & (OCCUPIED | SHIFTED) != 0
}

fn is_cluster_start(slot: u16) -> bool {
    slot & (OCCUPIED | CONTINUATION | SHIFTED) == OCCUPIED
}

impl PaperFilter {
    /// Returns an empty filter of `2^quotient_bits` slots.
    pub fn new(quotient_bits: u32, remainder_bits: u32) -> PaperFilter {
        assert!(remainder_bits + FLAGS <= u16::BITS);
        let slots = vec![0; (1 << quotient_bits) + SLOTS_AFTER];
        PaperFilter { quotient_bits, remainder_bits, slots, len: 0 }
    }

    /// Returns the number of different fingerprints.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the bits of all slots, packed as in the paper.
    pub fn packed_bits(&self) -> u64 {
        u64::from(self.remainder_bits + FLAGS) << self.quotient_bits
    }

    /// Returns the fingerprint of a hash.
    #[inline]
    pub fn fingerprint(&self, hash: u64) -> u64 {
        hash >> (64 - self.quotient_bits - self.remainder_bits)
    }

    #[inline]
    fn split(&self, fingerprint: u64) -> (usize, u16) {
        let remainder = fingerprint as u16 & ((1 << self.remainder_bits) - 1);
        ((fingerprint >> self.remainder_bits) as usize, remainder)
    }

    /// Returns the slot at which the run of an occupied quotient starts, or would start.
    #[inline]
    fn run_start(&self, quotient: usize) -> usize {
        let mut owner = quotient;
        while self.slots[owner] & SHIFTED != 0 {
            owner -= 1;
        }
        let mut slot = owner;
        while owner != quotient {
            slot += 1;
            while self.slots[slot] & CONTINUATION != 0 {
                slot += 1;
            }
            owner += 1;
            while self.slots[owner] & OCCUPIED == 0 {
                owner += 1;
            }
        }
        slot
    }

    /// Returns the first slot of the run, from `slot` on, whose remainder is not less, or the slot
    /// after the run.
    #[inline]
    fn seek(&self, mut slot: usize, remainder: u16) -> usize {
        while self.slots[slot] >> FLAGS < remainder {
            slot += 1;
            if self.slots[slot] & CONTINUATION == 0 {
                break;
            }
        }
        slot
    }

    /// Returns the slot of a remainder in the run that starts at `start`.
    #[inline]
    fn find(&self, start: usize, remainder: u16) -> Option<usize> {
        let slot = self.seek(start, remainder);
        let in_run = slot == start || self.slots[slot] & CONTINUATION != 0;
        (in_run && self.slots[slot] >> FLAGS == remainder).then_some(slot)
    }

    /// Whether the fingerprint is present.
    #[inline]
    pub fn contains(&self, fingerprint: u64) -> bool {
        let (quotient, remainder) = self.split(fingerprint);
        self.slots[quotient] & OCCUPIED != 0
            && self.find(self.run_start(quotient), remainder).is_some()
    }

    /// Inserts a fingerprint. Returns whether it is new.
    pub fn insert(&mut self, fingerprint: u64) -> bool {
        let (quotient, remainder) = self.split(fingerprint);
        let own = self.slots[quotient];
        let mut entry = remainder << FLAGS;
        if is_empty(own) {
            self.slots[quotient] = entry | OCCUPIED;
            self.len += 1;
            return true;
        }
        self.slots[quotient] |= OCCUPIED;
        let start = self.run_start(quotient);
        let mut place = start;
        if own & OCCUPIED != 0 {
            if self.find(start, remainder).is_some() {
                return false;
            }
            place = self.seek(start, remainder);
            match place == start {
                true => self.slots[start] |= CONTINUATION,
                false => entry |= CONTINUATION,
            }
        }
        if place != quotient {
            entry |= SHIFTED;
        }
        self.shift_in(place, entry);
        self.len += 1;
        true
    }

    /// Inserts an entry into a slot. The following entries move up; the occupied bits of slots
    /// stay.
    fn shift_in(&mut self, mut place: usize, mut entry: u16) {
        loop {
            let mut before = self.slots[place];
            let ends = is_empty(before);
            if !ends {
                before |= SHIFTED;
                entry |= before & OCCUPIED;
                before &= !OCCUPIED;
            }
            self.slots[place] = entry;
            if ends {
                return;
            }
            entry = before;
            place += 1;
        }
    }

    /// Removes a fingerprint. Returns whether it was present.
    pub fn remove(&mut self, fingerprint: u64) -> bool {
        let (quotient, remainder) = self.split(fingerprint);
        if self.slots[quotient] & OCCUPIED == 0 {
            return false;
        }
        let Some(place) = self.find(self.run_start(quotient), remainder) else { return false };
        let starts_run = is_run_start(self.slots[place]);
        if starts_run && self.slots[place + 1] & CONTINUATION == 0 {
            self.slots[quotient] &= !OCCUPIED;
        }
        self.shift_out(place, quotient);
        if starts_run {
            let next = &mut self.slots[place];
            *next &= !CONTINUATION;
            if place == quotient && is_run_start(*next) {
                *next &= !SHIFTED;
            }
        }
        self.len -= 1;
        true
    }

    /// Closes the gap that a removed entry leaves.
    fn shift_out(&mut self, mut place: usize, mut quotient: usize) {
        loop {
            let next = self.slots[place + 1];
            let occupied = self.slots[place] & OCCUPIED;
            if is_empty(next) || is_cluster_start(next) {
                self.slots[place] = 0;
                return;
            }
            let mut moved = next & !OCCUPIED;
            if is_run_start(next) {
                quotient += 1;
                while self.slots[quotient] & OCCUPIED == 0 {
                    quotient += 1;
                }
                if occupied != 0 && quotient == place {
                    moved &= !SHIFTED;
                }
            }
            self.slots[place] = moved | occupied;
            place += 1;
        }
    }

    /// Returns all fingerprints in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut quotient = 0;
        self.slots.iter().enumerate().filter_map(move |(i, &slot)| {
            if is_empty(slot) {
                return None;
            }
            if is_cluster_start(slot) {
                quotient = i;
            } else if slot & CONTINUATION == 0 {
                quotient += 1;
                while self.slots[quotient] & OCCUPIED == 0 {
                    quotient += 1;
                }
            }
            Some((quotient as u64) << self.remainder_bits | u64::from(slot >> FLAGS))
        })
    }

    /// Returns a filter of this size with these fingerprints, which must ascend.
    pub fn build(&self, fingerprints: impl Iterator<Item = u64>) -> PaperFilter {
        let mut built = PaperFilter::new(self.quotient_bits, self.remainder_bits);
        let (mut free, mut last) = (0, None);
        for fingerprint in fingerprints {
            let (quotient, remainder) = built.split(fingerprint);
            let place = free.max(quotient);
            let mut entry = remainder << FLAGS;
            if place != quotient {
                entry |= SHIFTED;
            }
            if last == Some(quotient) {
                entry |= CONTINUATION;
            }
            built.slots[place] |= entry;
            built.slots[quotient] |= OCCUPIED;
            (free, last) = (place + 1, Some(quotient));
            built.len += 1;
        }
        built
    }

    /// Returns the union of both filters, merged like two sorted arrays, as in the paper.
    pub fn merge(&self, other: &PaperFilter) -> PaperFilter {
        let (mut left, mut right) = (self.iter().peekable(), other.iter().peekable());
        self.build(std::iter::from_fn(|| match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a == b => {
                right.next();
                left.next()
            }
            (Some(a), Some(b)) if a > b => right.next(),
            (Some(_), _) => left.next(),
            (None, _) => right.next(),
        }))
    }
}

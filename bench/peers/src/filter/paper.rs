//! The quotient filter as the paper lays it out (Bender et al., *Don't Thrash*, 2011, section 2),
//! written to be fast: three bits and a remainder in one 16-bit word for each slot, so that none
//! of the paper's time for packing bits is spent.
//!
//! The tests compare it with the obviously right one of the library's own tests. `figures`
//! includes this file, too.

// Each program that includes this file uses a part of it.
#![allow(dead_code)]

/// Some fingerprint has this slot's index as its quotient.
const OCCUPIED: u16 = 1;
/// The remainder is not the first of its run.
const CONTINUATION: u16 = 2;
/// The remainder is not in the slot of its quotient.
const SHIFTED: u16 = 4;
const FLAGS: u32 = 3;

/// Clusters do not go round the end but into slots after it: so many bits of load 3/4 never fill
/// them.
const SLOTS_AFTER: usize = 4096;

/// A set of fingerprints of `quotient_bits + remainder_bits` bits.
#[derive(Clone, Debug)]
pub struct PaperFilter {
    quotient_bits: u32,
    remainder_bits: u32,
    slots: Vec<u16>,
    len: u64,
}

/// Nothing is in the slot.
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
    /// An empty filter of `2^quotient_bits` slots.
    pub fn new(quotient_bits: u32, remainder_bits: u32) -> PaperFilter {
        assert!(remainder_bits + FLAGS <= u16::BITS);
        let slots = vec![0; (1 << quotient_bits) + SLOTS_AFTER];
        PaperFilter { quotient_bits, remainder_bits, slots, len: 0 }
    }

    /// Different fingerprints in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The bits of all slots, packed as the paper packs them.
    pub fn packed_bits(&self) -> u64 {
        u64::from(self.remainder_bits + FLAGS) << self.quotient_bits
    }

    /// The fingerprint of a hash.
    #[inline]
    pub fn fingerprint(&self, hash: u64) -> u64 {
        hash >> (64 - self.quotient_bits - self.remainder_bits)
    }

    #[inline]
    fn split(&self, fingerprint: u64) -> (usize, u16) {
        let remainder = fingerprint as u16 & ((1 << self.remainder_bits) - 1);
        ((fingerprint >> self.remainder_bits) as usize, remainder)
    }

    /// Where the run of a quotient whose slot is occupied starts, or is to start.
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

    /// The first place in the run from `slot` on whose remainder is not less, or the one after it.
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

    /// Where the remainder is in the run that starts at `start`.
    #[inline]
    fn find(&self, start: usize, remainder: u16) -> Option<usize> {
        let slot = self.seek(start, remainder);
        let in_run = slot == start || self.slots[slot] & CONTINUATION != 0;
        (in_run && self.slots[slot] >> FLAGS == remainder).then_some(slot)
    }

    /// Whether the fingerprint is in.
    #[inline]
    pub fn contains(&self, fingerprint: u64) -> bool {
        let (quotient, remainder) = self.split(fingerprint);
        self.slots[quotient] & OCCUPIED != 0
            && self.find(self.run_start(quotient), remainder).is_some()
    }

    /// Whether the fingerprint is new.
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

    /// Puts an entry in a place; those that are there move on, and what their places are own
    /// slots of stays.
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

    /// Takes a fingerprint out; whether it was in.
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

    /// Closes the gap that the entry of a quotient leaves in a place.
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

    /// All fingerprints, in ascending order.
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

    /// A filter of these fingerprints, which must ascend, of the shape of this one.
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

    /// The union of both: two sorted arrays are merged, as the paper says.
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

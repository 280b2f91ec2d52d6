//! How large a quotient filter is, and what it does when it is full.

use super::layout::{BLOCK_SLOTS, Layout, REMAINDER_BITS_MAX};
use crate::{
    error::{Error, Result},
    filter::Mode,
    fingerprints::Universe,
    key::Seed,
};

/// What happens when a filter is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// The insertion is refused, and nothing changes.
    #[default]
    Refuse,
    /// The slots are doubled. The fingerprints stay the same ones, so the rate of errors grows
    /// with the number of keys: twice the keys, twice the errors.
    Double,
}

/// What a filter is to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuotientOptions {
    /// How many keys it must take; in a multiset, how many copies, of which those of one
    /// fingerprint after the fourth do not count. At least 1.
    pub capacity: u64,
    /// How often a key that is not in the filter may seem to be, with `capacity` keys in it:
    /// between 0 and 1, both excluded.
    pub error_rate: f64,
    /// A set or a multiset.
    pub mode: Mode,
    /// What happens when more keys come than it has slots for.
    pub growth: Growth,
    /// The part of its slots that may be full: 0.1 to 0.95. More takes less memory, and more time
    /// to insert and to remove.
    pub load_max: f64,
    /// Of the keys' hashes.
    pub seed: Seed,
}

/// Bounds of [`QuotientOptions::load_max`].
const LOAD_MAX_RANGE: std::ops::RangeInclusive<f64> = 0.1..=0.95;

/// What full slots are at most of all, if nothing else is asked for. With 0.95 a key takes 0.65
/// bits less; each of the last insertions then moves four times as many slots.
pub(super) const LOAD_MAX: f64 = 0.9;

impl QuotientOptions {
    /// A set for so many keys that refuses more than fill 0.9 of its slots.
    pub fn new(capacity: u64, error_rate: f64, seed: Seed) -> QuotientOptions {
        let (mode, growth) = (Mode::Set, Growth::Refuse);
        QuotientOptions { capacity, error_rate, mode, growth, load_max: LOAD_MAX, seed }
    }

    fn check(&self) -> Result<()> {
        check_load(self.load_max)?;
        Universe::for_capacity(self.capacity, self.error_rate).map(|_| ())
    }

    /// The least memory that meets the wishes: shorter remainders take more slots.
    pub(super) fn shape(&self) -> Result<Shape> {
        self.check()?;
        let by_load = self.capacity as f64 / self.load_max;
        let shapes = (1..=REMAINDER_BITS_MAX).filter_map(|remainder_bits| {
            let by_error =
                self.capacity as f64 / self.error_rate / 2_f64.powi(remainder_bits as i32);
            let layout = Layout::new(by_load.max(by_error).ceil() as u128, remainder_bits)?;
            Some((layout.bytes(), layout))
        });
        let Some((_, layout)) = shapes.min_by_key(|&(bytes, _)| bytes) else {
            return Err(Error::argument("capacity", "what memory can hold", self.capacity));
        };
        let size = u128::from(layout.slots()) << layout.remainder_bits;
        let universe = Universe::with_size(size.min(1 << 64))?;
        Ok(Shape {
            layout,
            universe,
            slots_max: slots_max(layout, self.load_max).max(self.capacity),
        })
    }
}

/// Checks [`QuotientOptions::load_max`].
pub(super) fn check_load(load_max: f64) -> Result<()> {
    if LOAD_MAX_RANGE.contains(&load_max) {
        return Ok(());
    }
    Err(Error::argument("largest load", "0.1 to 0.95", load_max))
}

fn slots_max(layout: Layout, load_max: f64) -> u64 {
    (layout.slots() as f64 * load_max) as u64
}

/// What a filter takes from its options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) layout: Layout,
    pub(super) universe: Universe,
    /// Slots that may be full.
    pub(super) slots_max: u64,
}

impl Shape {
    /// The smallest one for a universe that takes so many fingerprints.
    pub(super) fn of(universe: Universe, capacity: u64, load_max: f64) -> Result<Shape> {
        check_load(load_max)?;
        let too_many = || Error::argument("capacity", "what memory can hold", capacity);
        // The slots at least double from one number of bits to the next lower one.
        for remainder_bits in (1..=REMAINDER_BITS_MAX.min(universe.bits())).rev() {
            let slots = universe.size().div_ceil(1 << remainder_bits);
            let layout = Layout::new(slots, remainder_bits).ok_or_else(too_many)?;
            let slots_max = slots_max(layout, load_max);
            // A block of few quotients with long chains is for universes that have no more.
            let spread = slots >= BLOCK_SLOTS as u128 || remainder_bits == 1;
            if slots_max >= capacity && spread {
                return Ok(Shape { layout, universe, slots_max });
            }
        }
        Err(Error::argument("capacity", "what the universe of fingerprints can hold", capacity))
    }
}

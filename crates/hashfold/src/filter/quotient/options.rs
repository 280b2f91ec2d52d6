//! Options of a quotient filter, and its size.

use super::layout::{BLOCK_SLOTS, REMAINDER_BITS_MAX, SlotLayout};
use crate::{
    error::{Error, Result},
    filter::Mode,
    fingerprints::Universe,
    key::Seed,
};

/// The behaviour of a full filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// An insertion into a full filter is an error, and nothing changes.
    #[default]
    Refuse,
    /// The slots are doubled. The fingerprints stay the same, so the false-positive rate grows with
    /// the number of keys.
    Double,
}

/// Options of a new filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuotientOptions {
    /// Minimum number of keys that the filter can hold: 1 or more. In a multiset, the number of
    /// copies, at most four per fingerprint.
    pub capacity: u64,
    /// False-positive rate with `capacity` keys: between 0 and 1, both excluded.
    pub false_positive_rate: f64,
    /// Set or multiset.
    pub mode: Mode,
    /// The behaviour when more keys are inserted than there are slots for.
    pub growth: Growth,
    /// Maximum fraction of full slots: 0.1 to 0.95. A larger fraction takes less memory, but more
    /// time to insert and to remove.
    pub load_max: f64,
    /// The seed that keys are hashed with.
    pub seed: Seed,
}

/// Bounds of [`QuotientOptions::load_max`].
const LOAD_MAX_RANGE: std::ops::RangeInclusive<f64> = 0.1..=0.95;

/// The default of [`QuotientOptions::load_max`]. With 0.95, a key takes 0.65 bits less, but the
/// last insertions move four times as many slots.
pub(super) const LOAD_MAX: f64 = 0.9;

impl QuotientOptions {
    /// Returns the options of a set of `capacity` keys that refuses keys when 0.9 of its slots are
    /// full.
    pub fn new(capacity: u64, false_positive_rate: f64, seed: Seed) -> QuotientOptions {
        let (mode, growth) = (Mode::Set, Growth::Refuse);
        QuotientOptions { capacity, false_positive_rate, mode, growth, load_max: LOAD_MAX, seed }
    }

    fn check(&self) -> Result<()> {
        check_load(self.load_max)?;
        Universe::for_capacity(self.capacity, self.false_positive_rate).map(|_| ())
    }

    /// Returns the size that takes the least memory: shorter remainders need more slots.
    pub(super) fn shape(&self) -> Result<Sizing> {
        self.check()?;
        let by_load = self.capacity as f64 / self.load_max;
        let shapes = (1..=REMAINDER_BITS_MAX).filter_map(|remainder_bits| {
            let by_error =
                self.capacity as f64 / self.false_positive_rate / 2_f64.powi(remainder_bits as i32);
            let layout = SlotLayout::new(by_load.max(by_error).ceil() as u128, remainder_bits)?;
            Some((layout.bytes(), layout))
        });
        let Some((_, layout)) = shapes.min_by_key(|&(bytes, _)| bytes) else {
            return Err(Error::argument("capacity", "a number that fits in memory", self.capacity));
        };
        let size = u128::from(layout.slots()) << layout.remainder_bits;
        let universe = Universe::with_size(size.min(1 << 64))?;
        Ok(Sizing {
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

fn slots_max(layout: SlotLayout, load_max: f64) -> u64 {
    (layout.slots() as f64 * load_max) as u64
}

/// The size of a filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizing {
    pub(super) layout: SlotLayout,
    pub(super) universe: Universe,
    /// Maximum number of full slots.
    pub(super) slots_max: u64,
}

impl Sizing {
    /// Returns the smallest size for `capacity` fingerprints of a universe.
    pub(super) fn of(universe: Universe, capacity: u64, load_max: f64) -> Result<Sizing> {
        check_load(load_max)?;
        let too_many = || Error::argument("capacity", "a number that fits in memory", capacity);
        // With each bit less in a remainder, the number of slots at least doubles.
        for remainder_bits in (1..=REMAINDER_BITS_MAX.min(universe.bits())).rev() {
            let slots = universe.size().div_ceil(1 << remainder_bits);
            let layout = SlotLayout::new(slots, remainder_bits).ok_or_else(too_many)?;
            let slots_max = slots_max(layout, load_max);
            // Blocks with few quotients and long chains are only for universes that have no more
            // quotients.
            let spread = slots >= BLOCK_SLOTS as u128 || remainder_bits == 1;
            if slots_max >= capacity && spread {
                return Ok(Sizing { layout, universe, slots_max });
            }
        }
        Err(Error::argument("capacity", "what the universe of fingerprints can hold", capacity))
    }
}

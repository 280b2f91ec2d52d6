//! Random choices that follow from a seed.

use hashfold::work::{Random as _, SeededRandom};
use std::rc::Rc;

/// Random choices; a copy draws from the same sequence.
#[derive(Clone, Debug)]
pub struct Dice(Rc<SeededRandom>);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(Rc::new(SeededRandom::new(seed)))
    }

    pub fn bits(&self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `count`.
    pub fn below(&self, count: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64
    }

    /// Returns a number of 0 to 1.
    pub fn unit(&self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn chance(&self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns how many of `count` records have the next bit of their hash set.
    pub fn half(&self, count: u32) -> u32 {
        let whole: u32 = (0..count / 64).map(|_| self.bits().count_ones()).sum();
        whole + (self.bits() & ((1 << (count % 64)) - 1)).count_ones()
    }
}

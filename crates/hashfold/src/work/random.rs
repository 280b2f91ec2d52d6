//! Random numbers for seeds and identifiers.

use rustix::rand::{GetRandomFlags, getrandom};
use std::{
    fmt::Debug,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// A source of random numbers.
pub trait Random: Debug + Send + Sync {
    /// Returns the next number. All values are equally likely.
    fn next_u64(&self) -> u64;
}

/// The random numbers of the operating system, which nobody can predict.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// The kernel has no random numbers (Linux before 3.17).
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        let mut filled = 0;
        while filled < bytes.len() {
            match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no random numbers: {error}"),
            }
        }
        u64::from_le_bytes(bytes)
    }
}

/// Random numbers that follow from a seed, for tests: SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// Returns the numbers of this seed.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_numbers_and_another_seed_others() {
        let take = |seed| {
            let random = SeededRandom::new(seed);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(take(0), [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    #[test]
    fn the_numbers_of_the_system_differ() {
        assert_ne!(SystemRandom.next_u64(), SystemRandom.next_u64());
    }
}

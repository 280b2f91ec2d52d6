//! A set of small numbers, with its first and its last one.

/// A set of numbers: a bit for each.
#[derive(Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    /// All words before this one are 0.
    low: usize,
}

impl Bits {
    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Adds a number.
    #[inline]
    pub(super) fn set(&mut self, number: usize) {
        let word = number / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (number % 64);
        self.low = self.low.min(word);
    }

    /// Removes a number; returns whether it was there.
    #[inline]
    pub(super) fn clear(&mut self, number: usize) -> bool {
        let was_there = self.has(number);
        if was_there {
            self.words[number / 64] &= !(1 << (number % 64));
        }
        was_there
    }

    /// Whether a number is there.
    #[inline]
    pub(super) fn has(&self, number: usize) -> bool {
        self.words.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Returns the smallest number.
    #[inline]
    pub(super) fn first(&mut self) -> Option<usize> {
        while self.words.get(self.low) == Some(&0) {
            self.low += 1;
        }
        let word = self.words.get(self.low)?;
        Some(self.low * 64 + word.trailing_zeros() as usize)
    }

    /// Returns the largest number.
    pub(super) fn last(&self) -> Option<usize> {
        let at = self.words.iter().rposition(|word| *word != 0)?;
        Some(at * 64 + self.words[at].ilog2() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::mix::mix, *};
    use crate::key::Seed;
    use std::collections::BTreeSet;

    #[test]
    fn bits_agree_with_a_set() {
        let (mut bits, mut expected) = (Bits::default(), BTreeSet::new());
        for i in 0..5000 {
            let random = mix(i, Seed(2));
            let number = (random >> 8) as usize % (1 + 300 * (i as usize / 1000));
            if random % 8 < 3 + i / 1000 % 2 * 2 {
                bits.set(number);
                expected.insert(number);
            } else {
                assert_eq!(bits.clear(number), expected.remove(&number));
            }
            assert_eq!(bits.has(number), expected.contains(&number));
            assert_eq!(bits.first(), expected.first().copied());
            assert_eq!(bits.last(), expected.last().copied());
        }
    }
}

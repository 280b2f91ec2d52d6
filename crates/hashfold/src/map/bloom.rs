//! The Bloom filter of a packet, in RAM.

use crate::key::KeyHash;

/// Bits per key.
const BITS_PER_KEY: usize = 11;
/// Number of bits that each key sets: close to the optimum ln 2 · [`BITS_PER_KEY`].
const PROBES: u32 = 7;
/// The false-positive rate, (1 − e^(−k/b))^k with k probes and b bits per key, and a little more
/// because the filters are small.
pub(super) const FALSE_POSITIVE_RATE: f64 = 0.008;

/// A set of hashes, with false positives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bloom(Box<[u8]>);

impl Bloom {
    /// Makes the filter of these hashes.
    pub(super) fn of(hashes: impl ExactSizeIterator<Item = KeyHash>) -> Bloom {
        let mut bytes =
            vec![0; (hashes.len() * BITS_PER_KEY).div_ceil(8).max(1)].into_boxed_slice();
        let bits = bytes.len() as u64 * 8;
        for hash in hashes {
            for bit in probes(hash, bits) {
                bytes[bit / 8] |= 1 << (bit % 8);
            }
        }
        Bloom(bytes)
    }

    /// Makes a filter from its bytes; without bytes, it contains every key.
    pub(super) fn from_bytes(bytes: &[u8]) -> Bloom {
        Bloom(bytes.into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the set may contain the hash.
    pub(super) fn contains(&self, hash: KeyHash) -> bool {
        let bits = self.0.len() as u64 * 8;
        bits == 0 || probes(hash, bits).all(|bit| self.0[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

/// Returns the bits of a hash: double hashing with the low 64 bits, which groups do not share.
fn probes(hash: KeyHash, bits: u64) -> impl Iterator<Item = usize> {
    let (first, step) = (hash.low() as u32, (hash.low() >> 32) as u32 | 1);
    (0..PROBES).map(move |i| {
        let position = first.wrapping_add(step.wrapping_mul(i));
        ((u64::from(position) * bits) >> 32) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Seed;

    fn hash(i: u32) -> KeyHash {
        KeyHash::of(&i.to_le_bytes(), Seed(1))
    }

    #[test]
    fn keys_are_found_and_few_others_are() {
        for count in [1, 5, 40, 200] {
            let (mut false_positives, queries) = (0, 20_000);
            for i in 0..10 {
                let keys = i << 24..(i << 24) + count;
                let bloom = Bloom::of(keys.clone().map(hash).collect::<Vec<_>>().into_iter());
                assert!(keys.clone().all(|key| bloom.contains(hash(key))));
                assert_eq!(Bloom::from_bytes(bloom.bytes()), bloom);
                let others = (i << 24) + 1000..(i << 24) + 1000 + queries / 10;
                false_positives += others.filter(|key| bloom.contains(hash(*key))).count();
            }
            let rate = false_positives as f64 / f64::from(queries);
            // Tiny filters differ more from the formula.
            let limit = if count < 10 { 0.05 } else { 2.0 * FALSE_POSITIVE_RATE };
            assert!(rate < limit, "{count} keys: {rate}");
        }
    }

    #[test]
    fn a_filter_without_bytes_contains_every_key() {
        assert!(Bloom::from_bytes(&[]).contains(hash(1)));
    }
}

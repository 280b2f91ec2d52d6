//! The Bloom filter of a packet, in RAM.

use crate::key::KeyHash;

/// Bits per key. With fewer, lookups would read more than 1.01 blocks in a group with 20 packets.
const BITS_PER_KEY: usize = 16;
/// Size of the bits of the smallest filter, in bytes. A smaller one would have many false positives.
const BYTES_MIN: usize = 8;
/// Number of bits that each key sets: close to the optimum ln 2 · [`BITS_PER_KEY`].
const PROBES: u8 = 11;
/// The false-positive rate, (1 − e^(−k/b))^k with k probes and b bits per key, and a little more
/// because the filters are small.
pub(super) const FALSE_POSITIVE_RATE: f64 = 0.0006;
/// Number of probes of all filters in catalogs of version 1.
pub(super) const PROBES_V1: u8 = 7;

/// A set of hashes, with false positives: the number of probes, then the bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bloom(Box<[u8]>);

impl Bloom {
    /// Makes the filter of these hashes.
    pub(super) fn of(hashes: impl ExactSizeIterator<Item = KeyHash>) -> Bloom {
        let mut bytes = vec![0; 1 + (hashes.len() * BITS_PER_KEY).div_ceil(8).max(BYTES_MIN)];
        let (probes_of_key, bits) = bytes.split_first_mut().expect("there are bytes");
        *probes_of_key = PROBES;
        let count = bits.len() as u64 * 8;
        for hash in hashes {
            for bit in probes(PROBES, hash, count) {
                bits[bit / 8] |= 1 << (bit % 8);
            }
        }
        Bloom(bytes.into())
    }

    /// Makes a filter from its bytes. Without bytes or without probes, it contains every key.
    pub(super) fn from_bytes(bytes: &[u8]) -> Bloom {
        Bloom(bytes.into())
    }

    /// Makes a filter from its number of probes and its bits. Without bits, it contains every key.
    pub(super) fn from_bits(probes: u8, bits: &[u8]) -> Bloom {
        Bloom([&[probes][..], bits].concat().into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the set may contain the hash.
    pub(super) fn contains(&self, hash: KeyHash) -> bool {
        let Some((count, bits)) = self.0.split_first().filter(|(_, bits)| !bits.is_empty()) else {
            return true;
        };
        probes(*count, hash, bits.len() as u64 * 8).all(|bit| bits[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

/// Returns the bits of a hash: double hashing with the low 64 bits, which groups do not share.
fn probes(count: u8, hash: KeyHash, bits: u64) -> impl Iterator<Item = usize> {
    let (first, step) = (hash.low() as u32, (hash.low() >> 32) as u32 | 1);
    (0..u32::from(count)).map(move |i| {
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
            let limit = if count < 10 { 0.02 } else { 2.0 * FALSE_POSITIVE_RATE };
            assert!(rate < limit, "{count} keys: {rate}");
        }
    }

    #[test]
    fn a_filter_without_bytes_contains_every_key() {
        let filters = [Bloom::from_bytes(&[]), Bloom::from_bytes(&[7]), Bloom::from_bits(7, &[])];
        assert!(filters.iter().all(|filter| filter.contains(hash(1))));
        assert!(!Bloom::from_bits(7, &[0]).contains(hash(1)));
    }
}

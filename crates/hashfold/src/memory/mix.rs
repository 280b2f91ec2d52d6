//! A bijection of 64-bit numbers: from keys to hashes, and back.

use crate::key::Seed;

const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;
/// The number with `FACTOR * INVERSE = 1` modulo 2^64.
const INVERSE: u64 = inverse(FACTOR);
const _: () = assert!(FACTOR.wrapping_mul(INVERSE) == 1);

/// Returns the inverse of an odd number modulo 2^64, by Newton's method.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// Returns the hash of a key. Distinct keys have distinct hashes.
#[inline]
pub(super) fn mix(key: u64, seed: Seed) -> u64 {
    let mut hash = key ^ seed.0;
    hash = (hash ^ hash >> 32).wrapping_mul(FACTOR);
    hash = (hash ^ hash >> 32).wrapping_mul(FACTOR);
    hash ^ hash >> 32
}

/// Returns the key of a hash.
#[inline]
pub(super) fn unmix(hash: u64, seed: Seed) -> u64 {
    let mut key = (hash ^ hash >> 32).wrapping_mul(INVERSE);
    key = (key ^ key >> 32).wrapping_mul(INVERSE);
    (key ^ key >> 32) ^ seed.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_comes_back() {
        for i in 0..10_000_u64 {
            for key in [i, u64::MAX - i, i << 40, i.wrapping_mul(FACTOR)] {
                assert_eq!(unmix(mix(key, Seed(i)), Seed(i)), key);
            }
        }
    }

    /// Each bit of a key changes each bit of the hash for about half of the keys.
    #[test]
    fn each_bit_changes_half_of_the_hash() {
        for bit in 0..64 {
            let mut changed = [0_u32; 64];
            for key in 0..1000_u64 {
                let difference = mix(key, Seed(1)) ^ mix(key ^ 1 << bit, Seed(1));
                (0..64).for_each(|i| changed[i] += (difference >> i & 1) as u32);
            }
            assert!(changed.iter().all(|count| (350..650).contains(count)), "{bit} {changed:?}");
        }
    }
}

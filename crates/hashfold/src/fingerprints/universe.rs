//! From hashes to fingerprints.

use crate::{
    error::{Error, Result},
    key::KeyHash,
};

/// The set of fingerprints that a filter may hold: the numbers below its size, in the order of the
/// hashes.
///
/// The fingerprint of a hash whose high 64 bits are `h` is `floor(h * size / 2^64)`. The
/// probability that a key shares its fingerprint with at least one of `n` other keys is `1 - (1 -
/// 1/size)^n`, about `n / size` (a *hard collision* in [Bender et al., 2012]). The size need not be
/// a power of two.
///
/// [Bender et al., 2012]: https://arxiv.org/abs/1208.0290
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Universe {
    /// The largest fingerprint. The size itself may not fit in 64 bits.
    last: u64,
}

impl Universe {
    /// All 64-bit numbers. Among a billion keys, 0.03 pairs are expected to share a fingerprint.
    pub const EXACT: Universe = Universe { last: u64::MAX };

    /// Returns the smallest universe in which a set of `capacity` keys has at most this
    /// false-positive rate: between 0 and 1, both excluded.
    pub fn for_capacity(capacity: u64, false_positive_rate: f64) -> Result<Universe> {
        if capacity == 0 {
            return Err(Error::argument("capacity", "at least 1 key", capacity));
        }
        if !(false_positive_rate > 0.0 && false_positive_rate < 1.0) {
            return Err(Error::argument(
                "false-positive rate",
                "between 0 and 1, excluded",
                false_positive_rate,
            ));
        }
        let size = (capacity as f64 / false_positive_rate).ceil();
        if size >= 2_f64.powi(64) {
            let expected =
                format!("at least {:.2e}, or exact fingerprints", capacity as f64 / 2_f64.powi(64));
            return Err(Error::argument(
                "false-positive rate",
                expected,
                format!("{false_positive_rate:e}"),
            ));
        }
        Universe::with_size(size as u128)
    }

    /// Returns a universe of this many fingerprints: 2 to 2^64.
    pub fn with_size(size: u128) -> Result<Universe> {
        if !(2..=1 << 64).contains(&size) {
            return Err(Error::argument("fingerprints", "2 to 2^64", size));
        }
        Ok(Universe { last: (size - 1) as u64 })
    }

    /// Refuses all universes but [`Universe::EXACT`].
    ///
    /// # Errors
    /// `Argument`: the fingerprints are those of a filter with a false-positive rate.
    pub(crate) fn require_exact(self) -> Result<()> {
        if self == Universe::EXACT {
            return Ok(());
        }
        let expected = "2^64, those of an exact filter; others match by chance";
        Err(Error::argument("number of fingerprints", expected, self.size()))
    }

    /// Returns the number of fingerprints in the universe: 2 to 2^64.
    pub fn size(self) -> u128 {
        u128::from(self.last) + 1
    }

    /// Returns the largest fingerprint.
    #[inline]
    pub fn last(self) -> u64 {
        self.last
    }

    /// Returns the length of the largest fingerprint, in bits: 1 to 64.
    pub fn bits(self) -> u32 {
        64 - self.last.leading_zeros()
    }

    /// Returns the fingerprint of a hash.
    #[inline]
    pub fn fingerprint(self, hash: KeyHash) -> u64 {
        self.scale(hash.high())
    }

    /// Returns the fingerprint of a hash with these high 64 bits.
    #[inline]
    pub(crate) fn scale(self, high: u64) -> u64 {
        // high * (last + 1) is below 2^128.
        let product = u128::from(high) * u128::from(self.last) + u128::from(high);
        (product >> 64) as u64
    }

    /// Returns the false-positive rate of a set of `items` keys: 0 to 1.
    pub fn false_positive_rate(self, items: u64) -> f64 {
        -(items as f64 * (-1.0 / self.size() as f64).ln_1p()).exp_m1()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_keep_the_order_and_fill_the_universe() {
        for size in [2, 3, 1000, (1 << 40) + 7, 1 << 64] {
            let universe = Universe::with_size(size).unwrap();
            assert_eq!(universe.scale(0), 0);
            assert_eq!(universe.scale(u64::MAX), universe.last());
            let mut before = 0;
            for i in 0..1000 {
                let now = universe.scale(i * (u64::MAX / 1000));
                assert!(before <= now);
                before = now;
            }
        }
        assert_eq!(Universe::EXACT.scale(12345), 12345);
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for (capacity, false_positive_rate) in [
            (0, 0.1),
            (1, 0.0),
            (1, 1.0),
            (1, f64::NAN),
            (1, -0.1),
            (u64::MAX, 0.5),
            (1 << 40, 1e-9),
        ] {
            assert!(
                Universe::for_capacity(capacity, false_positive_rate).is_err(),
                "{capacity} {false_positive_rate}"
            );
        }
        assert!(Universe::with_size(1).is_err());
        assert!(Universe::with_size((1 << 64) + 1).is_err());
    }

    #[test]
    fn the_false_positive_rate_at_capacity_is_the_requested_one() {
        let universe = Universe::for_capacity(1_000_000, 0.01).unwrap();
        assert!((universe.false_positive_rate(1_000_000) - 0.00995).abs() < 1e-5);
        assert!(universe.false_positive_rate(0) == 0.0);
        assert!(Universe::EXACT.false_positive_rate(1_000_000_000) < 1e-9);
    }
}

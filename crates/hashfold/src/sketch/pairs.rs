//! How often two sketches have each pair of values in one register: all that their comparison needs.

use super::{
    estimate::{self, Histogram, TABLES, VALUES},
    likelihood::{Kind, Likelihood},
};

/// The numbers of registers with each pair of values.
pub(super) struct Pairs {
    /// At `i` · [`VALUES`] + `j`, the number of registers with `i` in the first sketch and `j` in the second.
    counts: [u32; VALUES * VALUES],
    /// Values from here on are in neither sketch.
    end: usize,
}

impl Pairs {
    /// Counts the pairs of two sketches of one precision, 4 or more.
    pub(super) fn of(a: &[u8], b: &[u8]) -> Pairs {
        assert_eq!(a.len(), b.len());
        // A count waits for the one before only in its own table.
        let mut tables = [[0_u32; VALUES * VALUES]; TABLES];
        for (a, b) in a.as_chunks::<TABLES>().0.iter().zip(b.as_chunks::<TABLES>().0) {
            for ((table, a), b) in tables.iter_mut().zip(a).zip(b) {
                table[usize::from(*a) % VALUES * VALUES + usize::from(*b) % VALUES] += 1;
            }
        }
        let largest = a.iter().chain(b).copied().fold(0, u8::max);
        let end = usize::from(largest) % VALUES + 1;
        let [mut counts, others @ ..] = tables;
        for other in others {
            for i in 0..end {
                let (counts, others) =
                    (&mut counts[i * VALUES..][..end], &other[i * VALUES..][..end]);
                counts.iter_mut().zip(others).for_each(|(count, other)| *count += other);
            }
        }
        Pairs { counts, end }
    }

    /// Returns each pair of values that some register has, and the number of these.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize, u32)> + '_ {
        let row = |i: usize| {
            let row = &self.counts[i * VALUES..][..self.end];
            row.iter().enumerate().map(move |(j, count)| (i, j, *count))
        };
        (0..self.end).flat_map(row).filter(|(_, _, count)| *count > 0)
    }

    /// Returns what the pairs say of the sizes, for sketches of `registers` registers. `q` + 1 is the largest value of a
    /// register, which stands for all above, so that q and q + 1 have one rate.
    pub(super) fn likelihood(&self, registers: usize, q: usize) -> Likelihood {
        let rate = |k: usize| 0.5_f64.powi(k.min(q) as i32) / registers as f64;
        let above = |k: usize| if k > q { 0.0 } else { rate(k) };
        Likelihood::of(self.iter(), &Kind { value_max: q + 1, rate, above })
    }

    /// Estimates |A|, |B| and |A ∪ B|. `q` + 1 is the largest value of a register.
    pub(super) fn estimates(&self, q: usize) -> [f64; 3] {
        let mut histograms: [Histogram; 3] = [[0; VALUES]; 3];
        for (i, j, count) in self.iter() {
            for (histogram, value) in histograms.iter_mut().zip([i, j, i.max(j)]) {
                histogram[value] += count;
            }
        }
        let m: u32 = histograms[0].iter().sum();
        histograms.map(|histogram| {
            estimate::without_bias(estimate::estimate(&histogram, q), f64::from(m))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Hll, *};
    use crate::key::{KeyHash, Seed};
    use std::collections::BTreeMap;

    fn sketch(precision: u8, keys: std::ops::Range<u64>) -> Hll {
        let mut sketch = Hll::new(precision).unwrap();
        for key in keys {
            sketch.insert_hash(KeyHash::of(&key.to_le_bytes(), Seed(9)));
        }
        sketch
    }

    #[test]
    fn pairs_are_counted_and_estimate_what_the_sketches_do() {
        for (precision, keys) in [(4, 0), (4, 3), (4, 5000), (6, 100), (10, 50), (10, 9000)] {
            let (a, b) = (sketch(precision, 0..keys), sketch(precision, keys / 2..2 * keys));
            let pairs = Pairs::of(&a.values(), &b.values());
            let mut expected = BTreeMap::new();
            for (i, j) in a.values().iter().zip(&*b.values()) {
                *expected.entry((usize::from(*i), usize::from(*j))).or_insert(0) += 1;
            }
            let got: BTreeMap<_, u32> = pairs.iter().map(|(i, j, count)| ((i, j), count)).collect();
            assert_eq!(got, expected, "precision {precision}, {keys} keys");
            let mut both = a.clone();
            both.union(&b).unwrap();
            let estimates = pairs.estimates(a.q());
            // Without keys, all registers are 0, and the sum is infinite.
            assert_eq!(estimates, [&a, &b, &both].map(Hll::estimate), "{precision}, {keys}");
        }
    }
}

//! When to merge a group that is read more than it is written: ski rental.
//!
//! Each lookup in a group with packets risks a read in vain (the rent), which a merge ends (the
//! purchase). The break-even point is p lookups. Merging at lookup i with the probability
//! π(i) = (1 + 1/p)^(i−1) / (p·((1 + 1/p)^p − 1)), for i from 1 to p, costs at most e/(e−1) times
//! the best choice in hindsight on average, whatever lookups follow. One number u is drawn when a
//! group gets its first packet. The group is merged at the first i with F(i) ≥ u, where F is the
//! distribution function of π. F(i) falls when p grows, so another packet only delays the merge.

use super::{bloom::FALSE_POSITIVE_RATE, group::Wear, span::Stored};
use crate::work::Random;

/// Cost of reading 16 adjacent blocks, relative to one block.
const COARSE_READ: f64 = 1.1;
/// Cost of writing 16 adjacent blocks, relative to reading one.
const COARSE_WRITE: f64 = 1.2;
const COARSE_BLOCKS: f64 = 16.0;

/// Draws the number of a group that has got its first packets.
pub(super) fn begin(random: &dyn Random, stored: &Stored) -> Wear {
    let draw = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    go_on(Wear { draw, ..Wear::NONE }, stored)
}

/// Returns the wear of a group that has got more packets.
pub(super) fn go_on(wear: Wear, stored: &Stored) -> Wear {
    let lookups_max = break_even(stored).map_or(u32::MAX, |p| lookups_max(p, wear.draw));
    Wear { lookups_max, ..wear }
}

/// Returns the lookups after which a merge would have paid for itself; `None` without packets.
fn break_even(stored: &Stored) -> Option<f64> {
    let packets = stored.packets.len() as f64;
    let read = stored.span_blocks() as f64 / COARSE_BLOCKS;
    let write = read + stored.packet_blocks() as f64 / COARSE_BLOCKS;
    let merge = 1.0 + packets + COARSE_READ * read + COARSE_WRITE * write;
    (packets > 0.0).then(|| (merge / (packets * FALSE_POSITIVE_RATE)).ceil())
}

/// Returns the first lookup i from 1 on with F(i) ≥ u.
fn lookups_max(break_even: f64, u: f64) -> u32 {
    let base = 1.0 + 1.0 / break_even;
    let total = base.powf(break_even) - 1.0;
    // (base^i − 1) / total ≥ u
    let first = (1.0 + u * total).ln() / base.ln();
    // The rounding errors of the logarithms are far below the tolerance.
    (first - 1e-9).ceil().clamp(1.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probability(p: f64, i: u32) -> f64 {
        let base = 1.0 + 1.0 / p;
        base.powi(i as i32 - 1) / (p * (base.powf(p) - 1.0))
    }

    #[test]
    fn the_first_lookup_is_that_of_the_distribution_function() {
        for p in [1, 2, 5, 17, 255, 2000] {
            let mut sum = 0.0;
            for i in 1..=p {
                let next = sum + probability(f64::from(p), i);
                let middle = f64::midpoint(sum, next);
                assert_eq!(lookups_max(f64::from(p), middle), i, "of {p}");
                sum = next;
            }
            assert!((sum - 1.0).abs() < 1e-9, "{p}: {sum}");
        }
    }

    #[test]
    fn another_packet_only_delays_the_merge() {
        for u in [0.0, 0.1, 0.5, 0.9, 0.999] {
            let days: Vec<u32> = (1..500).map(|p| lookups_max(f64::from(p), u)).collect();
            assert!(days.is_sorted(), "{u}");
        }
    }

    /// The expected cost of the rule against the best choice, for every number of lookups.
    #[test]
    fn the_cost_is_at_most_e_over_e_minus_1_times_the_best() {
        for p in [5, 17, 100] {
            let mut worst: f64 = 0.0;
            for lookups in 1..=2 * p {
                // The lookup that merges pays its own rent, too.
                let bought: f64 = (1..=lookups.min(p))
                    .map(|i| probability(f64::from(p), i) * f64::from(p + i))
                    .sum();
                let kept: f64 = (lookups + 1..=p).map(|i| probability(f64::from(p), i)).sum();
                let cost = bought + kept * f64::from(lookups);
                worst = worst.max(cost / f64::from(lookups.min(p)));
            }
            assert!(worst < 1.7, "{p}: {worst}");
        }
    }
}

//! The older entries that spans replace, if there is no catalog that says so.
//!
//! A span has all entries of its group at the moment of its write. So between the first and the last
//! hash of blocks that one write has put side by side, all entries of earlier writes are old.

use crate::key::KeyHash;
use std::collections::BTreeMap;

/// For each hash, the newest write of a span that covers it.
#[derive(Debug, Default)]
pub(super) struct Cover {
    /// First hashes of ranges, ascending, each with the newest write that covers the range, or 0.
    ranges: Vec<(u128, u64)>,
}

/// Consecutive blocks of a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) first: KeyHash,
    pub(super) last: KeyHash,
    pub(super) write: u64,
}

impl Cover {
    pub(super) fn of(stretches: &[Stretch]) -> Cover {
        let mut ends = Vec::with_capacity(2 * stretches.len());
        for Stretch { first, last, write } in stretches {
            ends.push((first.bits(), *write, Change::Begin));
            ends.extend(last.bits().checked_add(1).map(|after| (after, *write, Change::End)));
        }
        ends.sort_unstable_by_key(|(at, ..)| *at);
        // The writes of the stretches at the current hash, each with their number.
        let mut open: BTreeMap<u64, u64> = BTreeMap::new();
        let mut ranges: Vec<(u128, u64)> = Vec::new();
        for (at, write, change) in ends {
            let count = open.entry(write).or_default();
            match change {
                Change::Begin => *count = count.wrapping_add(1),
                Change::End => *count = count.wrapping_sub(1),
            }
            if *count == 0 {
                open.remove(&write);
            }
            let newest = open.last_key_value().map_or(0, |(write, _)| *write);
            match ranges.last_mut() {
                Some(last) if last.0 == at => last.1 = newest,
                _ => ranges.push((at, newest)),
            }
        }
        Cover { ranges }
    }

    /// Whether an entry of this write is replaced by a newer span.
    pub(super) fn is_old(&self, hash: KeyHash, write: u64) -> bool {
        let at = self.ranges.partition_point(|(first, _)| *first <= hash.bits());
        at > 0 && self.ranges[at - 1].1 > write
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Begin,
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All sets of up to three stretches over few hashes, against a search through all of them.
    #[test]
    fn the_newest_write_covers() {
        let hash = |i: u32| KeyHash::from_bits(if i == 5 { u128::MAX } else { i.into() });
        let mut all = Vec::new();
        for first in 0..6 {
            let stretches = (first..6).flat_map(|last| (1..3).map(move |write| (last, write)));
            all.extend(stretches.map(|(last, write)| Stretch {
                first: hash(first),
                last: hash(last),
                write,
            }));
        }
        for (i, a) in all.iter().enumerate() {
            for b in &all[i..] {
                for count in 0..3 {
                    let stretches = &[*a, *b][..count];
                    let cover = Cover::of(stretches);
                    for (i, write) in (0..6).flat_map(|i| (0..4).map(move |write| (i, write))) {
                        let is_newer = |stretch: &Stretch| {
                            let range = stretch.first..=stretch.last;
                            range.contains(&hash(i)) && stretch.write > write
                        };
                        let expected = stretches.iter().any(is_newer);
                        assert_eq!(cover.is_old(hash(i), write), expected, "{stretches:?}");
                    }
                }
            }
        }
    }
}

//! Sorting the pairs of a group by hash: first by a byte of the hash that spreads them evenly, then by insertion.

use super::{division::REGION_BITS, line::Pair};

/// Number of parts that pairs are distributed to.
const PARTS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 10;

/// Sorts the pairs of a group of this depth by their hashes; `buffer` is memory for it.
pub(super) fn by_hash(pairs: &mut Vec<Pair>, buffer: &mut Vec<Pair>, depth: u32) {
    // All hashes agree in the bits before these.
    let part =
        |pair: &Pair| (pair.hash << (REGION_BITS + depth) >> (u64::BITS - PART_BITS)) as usize;
    let mut starts = [0_u16; PARTS + 1];
    pairs.iter().for_each(|pair| starts[part(pair) + 1] += 1);
    for i in 1..PARTS {
        starts[i] += starts[i - 1];
    }
    buffer.clear();
    buffer.resize(pairs.len(), Pair { hash: 0, value: 0 });
    for pair in pairs.iter() {
        let place = &mut starts[part(pair)];
        buffer[usize::from(*place)] = *pair;
        *place += 1;
    }
    std::mem::swap(pairs, buffer);
    sort_nearly_sorted(pairs);
}

/// Sorts by insertion. Pairs that crowd one part, which no good hash lets happen, are sorted in another way.
fn sort_nearly_sorted(pairs: &mut [Pair]) {
    let mut moves = 0;
    for i in 1..pairs.len() {
        let pair = pairs[i];
        let mut at = i;
        while at > 0 && pairs[at - 1].hash > pair.hash {
            pairs[at] = pairs[at - 1];
            at -= 1;
        }
        pairs[at] = pair;
        moves += i - at;
        if moves > 8 * pairs.len() {
            pairs.sort_unstable_by_key(|pair| pair.hash);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::mix::mix, *};
    use crate::key::Seed;

    #[test]
    fn pairs_are_sorted_however_they_crowd() {
        for depth in [0, 3, 20] {
            for crowd in [0, 30, 50, 60] {
                for count in [0, 1, 2, 700, 1280] {
                    let base = 0xABCD_EF01_2345_6789 >> (56 - depth) << (56 - depth);
                    let hash = |i| base | mix(i, Seed(1)) >> (8 + depth) >> crowd;
                    let pair = |i| Pair { hash: hash(i), value: i };
                    let mut pairs: Vec<_> = (0..count).map(pair).collect();
                    let mut expected = pairs.clone();
                    by_hash(&mut pairs, &mut Vec::new(), depth);
                    pairs.sort_by_key(|pair| (pair.hash, pair.value));
                    expected.sort_unstable();
                    assert_eq!(pairs, expected);
                }
            }
        }
    }
}

//! Placing all pairs of a chunk into empty lines: each into the emptier of its two lines, and if that is full, after the
//! others: into the other line, or after pairs have moved.

use super::{
    displace,
    kernel::{self, Choice, Slots},
    line::{CHUNK_LINES, Chunk, Format, Pair},
    scratch::CHUNK_PAIRS_MAX,
};
use crate::cpu::Instructions;
use std::hint::select_unpredictable;

/// Number of parts of the pairs that are placed in turns. The lines of one pair from each part are chosen before any of
/// them is placed: else a processor waits, for each pair, until it knows that no pair before it is in the same lines.
const PARTS: usize = 8;

/// Places all pairs into the lines of a chunk, whose contents are replaced; returns `false` if one finds no slot. `left` is
/// memory for pairs whose chosen line is full.
pub(super) fn fill(
    instructions: Instructions,
    format: Format,
    pairs: &[Pair],
    chunk: &mut Chunk,
    left: &mut Vec<Pair>,
) -> bool {
    if pairs.len() > CHUNK_LINES * format.slots() {
        return false;
    }
    let mut choices = [[0; 2]; CHUNK_PAIRS_MAX];
    let choices = &mut choices[..pairs.len()];
    kernel::choose(instructions, pairs, choices);
    left.clear();
    let mut slots = Slots::default();
    assign(format, choices, &mut slots, |pair| left.push(pairs[pair]));
    kernel::pack(instructions, format, pairs, &slots, chunk);
    left.iter().all(|pair| displace::insert(chunk, format, *pair))
}

/// Assigns each pair a slot of the emptier of its lines, or calls `leave` with its number if that is full.
fn assign(format: Format, choices: &[Choice], slots: &mut Slots, mut leave: impl FnMut(usize)) {
    let part = choices.len() / PARTS;
    for i in 0..part {
        let chosen: [usize; PARTS] =
            std::array::from_fn(|number| emptier(slots, choices[number * part + i]));
        for (number, line) in chosen.into_iter().enumerate() {
            let pair = number * part + i;
            if !slots.add(format, line, pair) {
                leave(pair);
            }
        }
    }
    for (pair, choice) in choices.iter().enumerate().skip(part * PARTS) {
        if !slots.add(format, emptier(slots, *choice), pair) {
            leave(pair);
        }
    }
}

/// Returns the line with fewer pairs. Not as a number of 8 bits, of which processors have no conditional move: that would be a
/// branch, which is mispredicted every other time.
#[inline(always)]
fn emptier(slots: &Slots, choice: Choice) -> usize {
    let [first, second] = choice.map(usize::from);
    select_unpredictable(slots.count(first) <= slots.count(second), first, second)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            choice,
            line::{self, SLOTS_MAX},
        },
        *,
    };
    use crate::key::{KeyHash, Seed};

    /// Every pair is in one of its two lines, once, and no line has others.
    #[test]
    fn all_instructions_fill_lines_with_all_pairs() {
        for (format, base) in [(Format::Narrow, 0x7FF << 53), (Format::Wide, 0xFF << 56)] {
            for part in [0, 1, 5, 60, 70, 87, 92] {
                let pair = |i: usize| {
                    let hash = KeyHash::of(&i.to_le_bytes(), Seed(3)).high();
                    Pair { hash: base | hash & ((1 << format.hash_bits()) - 1), value: i as u64 }
                };
                let count = CHUNK_LINES * format.slots() * part / 100;
                let mut pairs: Vec<_> = (0..count).map(pair).collect();
                let mut left = Vec::new();
                for instructions in [Instructions::Portable, Instructions::V3, Instructions::V4] {
                    let instructions = instructions.min(Instructions::in_use());
                    let mut chunk = [[0xFF; 64]; CHUNK_LINES];
                    assert!(fill(instructions, format, &pairs, &mut chunk, &mut left));
                    let mut found = Vec::new();
                    for (number, line) in chunk.iter().enumerate() {
                        let used =
                            (0..SLOTS_MAX).filter(|slot| line::in_use(line) >> slot & 1 == 1);
                        let here: Vec<_> = used.map(|slot| format.pair(line, slot, base)).collect();
                        let is_at_home = |pair: &Pair| choice::lines(pair.hash).contains(&number);
                        assert!(here.iter().all(is_at_home), "{instructions:?} {number}");
                        found.extend(here);
                    }
                    found.sort();
                    pairs.sort();
                    assert!(found == pairs, "{instructions:?} {format:?} {part}");
                }
            }
        }
    }

    #[test]
    fn more_pairs_than_slots_are_refused() {
        for format in [Format::Narrow, Format::Wide] {
            let pairs = vec![Pair { hash: 0, value: 0 }; CHUNK_LINES * format.slots() + 1];
            let mut chunk = [[0; 64]; CHUNK_LINES];
            let instructions = Instructions::in_use();
            assert!(!fill(instructions, format, &pairs, &mut chunk, &mut Vec::new()));
        }
    }
}

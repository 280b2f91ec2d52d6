//! Placing all pairs of a group into empty lines: each into the emptier of its two lines, and if both are full, after
//! other pairs have moved.

use super::{
    displace, group,
    kernel::{self, Choice, Slots},
    line::{self, Format, Line, Pair},
    scratch::PAIRS_MAX,
};
use crate::cpu::Instructions;
use std::hint::select_unpredictable;

/// Number of parts of the pairs that are placed in turns. The lines of one pair from each part are chosen before any of
/// them is placed: else a processor waits, for each pair, until it knows that no pair before it is in the same lines. In a
/// part, pairs that follow each other were in one line, and the lines that they may be in are near each other.
const PARTS: usize = 16;

/// Places all pairs into lines, whose contents are replaced; returns `false` if one finds no slot. `left` is memory for
/// pairs both of whose lines are full.
pub(super) fn fill(
    instructions: Instructions,
    format: Format,
    pairs: &[Pair],
    lines: &mut [Line],
    left: &mut Vec<Pair>,
) -> bool {
    let mut choices = [[0; 2]; PAIRS_MAX];
    let choices = &mut choices[..pairs.len()];
    kernel::choose(instructions, pairs, lines.len(), choices);
    left.clear();
    match (format, instructions) {
        (Format::Narrow, Instructions::V4) => {
            let mut slots = Slots::default();
            let put = |line, slot, pair| slots.set(line, slot, pair);
            let counts = assign(format, choices, put, |pair| left.push(pairs[pair]));
            kernel::pack(instructions, pairs, &slots, &counts, lines);
        }
        // Two calls, which are compiled for a constant format each.
        (Format::Narrow, _) => write(Format::Narrow, pairs, choices, lines, left),
        (Format::Wide, _) => write(Format::Wide, pairs, choices, lines, left),
    }
    left.iter().all(|pair| displace::insert(lines, format, *pair))
}

/// Writes each pair to a slot of the emptier of its lines; adds those both of whose lines are full to `left`.
#[inline(always)]
fn write(
    format: Format,
    pairs: &[Pair],
    choices: &[Choice],
    lines: &mut [Line],
    left: &mut Vec<Pair>,
) {
    let mut metas = [0_u32; 256];
    let put = |line: u8, slot, pair: usize| {
        let line = usize::from(line);
        metas[line] |= format.write(&mut lines[line], slot, pairs[pair]);
    };
    assign(format, choices, put, |pair| left.push(pairs[pair]));
    lines.iter_mut().zip(metas).for_each(|(line, meta)| line::set_meta(line, meta));
}

/// Calls `put` with a line, a slot and the number of a pair for each pair, or `leave` with its number if both of its lines
/// are full. The slots of a line are used from the first one on. Returns the number of pairs in each line.
#[inline(always)]
fn assign(
    format: Format,
    choices: &[Choice],
    mut put: impl FnMut(u8, usize, usize),
    mut leave: impl FnMut(usize),
) -> [u8; 256] {
    let mut counts = [0_u8; 256];
    let mut place = |counts: &mut [u8; 256], line: u8, pair: usize| {
        let count = &mut counts[usize::from(line)];
        let slot = usize::from(*count);
        if slot < format.slots() {
            *count += 1;
            put(line, slot, pair);
        } else {
            leave(pair);
        }
    };
    let part = choices.len() / PARTS;
    for i in 0..part {
        let chosen: [u8; PARTS] =
            std::array::from_fn(|number| emptier(&counts, choices[number * part + i]));
        for (number, line) in chosen.into_iter().enumerate() {
            place(&mut counts, line, number * part + i);
        }
    }
    for (pair, choice) in choices.iter().enumerate().skip(part * PARTS) {
        let line = emptier(&counts, *choice);
        place(&mut counts, line, pair);
    }
    counts
}

/// Returns the line with fewer pairs.
#[inline(always)]
fn emptier(counts: &[u8; 256], [first, second]: Choice) -> u8 {
    let is_first = counts[usize::from(first)] <= counts[usize::from(second)];
    select_unpredictable(is_first, first, second)
}

const _: () = assert!(group::LINES_MAX <= 256);

#[cfg(test)]
mod tests {
    use super::{super::line::SLOTS_MAX, *};
    use crate::key::{KeyHash, Seed};

    /// Every pair is in one of its two lines, once, and no line has others.
    #[test]
    fn all_instructions_fill_lines_with_all_pairs() {
        for (format, base) in [(Format::Narrow, 0x7FF << 53), (Format::Wide, 0xFF << 56)] {
            for (chunks, part) in [(0, 0), (1, 1), (1, 60), (3, 70), (8, 87), (14, 92)] {
                let slots = chunks * group::CHUNK_LINES * format.slots();
                let pair = |i: usize| {
                    let hash = KeyHash::of(&i.to_le_bytes(), Seed(3)).high();
                    Pair { hash: base | hash & ((1 << format.hash_bits()) - 1), value: i as u64 }
                };
                let mut pairs: Vec<_> = (0..slots * part / 100).map(pair).collect();
                let mut left = Vec::new();
                for instructions in [Instructions::Portable, Instructions::V3, Instructions::V4] {
                    let instructions = instructions.min(Instructions::in_use());
                    let mut lines = vec![[0xFF; 64]; chunks * group::CHUNK_LINES];
                    assert!(fill(instructions, format, &pairs, &mut lines, &mut left));
                    let mut found = Vec::new();
                    for (number, line) in lines.iter().enumerate() {
                        let used =
                            (0..SLOTS_MAX).filter(|slot| line::in_use(line) >> slot & 1 == 1);
                        let here: Vec<_> = used.map(|slot| format.pair(line, slot, base)).collect();
                        let is_at_home =
                            |pair: &Pair| group::places(pair.hash, lines.len()).contains(&number);
                        assert!(here.iter().all(is_at_home), "{instructions:?} {number}");
                        found.extend(here);
                    }
                    found.sort();
                    pairs.sort();
                    assert!(found == pairs, "{instructions:?} {format:?} {chunks} {part}");
                }
            }
        }
    }
}

//! Placing all pairs of a group into empty lines: each into the emptier of its two lines, and if both are full, after
//! other pairs have moved.

use super::{
    displace, group,
    kernel::{self, Slots},
    line::{self, Format, Line, Pair},
    scratch::PAIRS_MAX,
};
use crate::cpu::Instructions;
use std::hint::select_unpredictable;

/// Number of parts of the pairs that are placed in turns. The lines of one pair from each part are chosen before any of
/// them is placed: else a processor waits, for each pair, until it knows that no pair before it is in the same lines. In a
/// part, pairs that follow each other were in one line, and the lines that they may be in are near each other.
const PARTS: usize = 16;

/// The lines that a pair may be in: a byte each, since a group has at most 224.
pub(super) type Choice = [u8; 2];

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
            kernel::pack(pairs, &slots, &counts, lines);
        }
        // Two calls, which are compiled for a constant format each.
        (Format::Narrow, _) => write(Format::Narrow, pairs, choices, lines, left),
        (Format::Wide, _) => write(Format::Wide, pairs, choices, lines, left),
    }
    left.iter().all(|pair| displace::insert(lines, format, *pair))
}

/// Returns the two lines, of `lines`, that each pair may be in.
#[inline(always)]
pub(super) fn choose(pairs: &[Pair], lines: usize, choices: &mut [Choice]) {
    for (choice, pair) in choices.iter_mut().zip(pairs) {
        *choice = group::places(pair.hash, lines).map(|line| line as u8);
    }
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
    for pair in part * PARTS..choices.len() {
        let line = emptier(&counts, choices[pair]);
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

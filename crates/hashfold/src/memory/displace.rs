//! Inserting a pair into the lines of a chunk: into the emptier of its two lines, or after other pairs have moved to
//! theirs, found by a breadth-first search.

use super::{
    choice,
    line::{self, CHUNK_LINES, Chunk, Format, Pair, SLOTS_MAX},
};
use crate::run::prefetch::prefetch;
use std::hint::select_unpredictable;

/// A full line whose pairs may move.
#[derive(Clone, Copy, Default)]
struct Node {
    line: u8,
    /// The node whose line has a pair that may move here; a root is its own.
    parent: u8,
    /// The slot of that pair.
    slot: u8,
}

const _: () = assert!(CHUNK_LINES <= 256);

/// Inserts a pair; returns `false`, and changes nothing, if no free slot is found for it.
#[inline]
pub(super) fn insert(chunk: &mut Chunk, format: Format, pair: Pair) -> bool {
    insert_at(chunk, choice::lines(pair.hash), format, pair)
}

/// Does what [`insert`] does for a pair whose lines are known.
#[inline]
pub(super) fn insert_at(
    chunk: &mut Chunk,
    [first, second]: [usize; 2],
    format: Format,
    pair: Pair,
) -> bool {
    let metas = [line::meta(&chunk[first]), line::meta(&chunk[second])];
    if !format.are_full(metas) {
        let is_first = line::count_in(metas[0]) <= line::count_in(metas[1]);
        let meta = select_unpredictable(is_first, metas[0], metas[1]);
        let target = &mut chunk[select_unpredictable(is_first, first, second)];
        format.set_in(target, meta, meta.trailing_ones() as usize, pair);
        return true;
    }
    let Some(line) = displace(chunk, format, [first, second]) else { return false };
    let target = &mut chunk[line];
    let slot = format.free_slot(target).expect("a pair has moved out of this line");
    format.set(target, slot, pair);
    true
}

/// Returns the line that the pair in a slot of a line may move to.
#[inline]
pub(super) fn other_line(chunk: &Chunk, line: usize, slot: usize) -> usize {
    let [first, second] = choice::lines(line::low(&chunk[line], slot));
    // Not a subtraction: what is in a free slot may lead anywhere.
    first ^ second ^ line
}

/// Moves pairs until one of two full lines has a free slot; returns that line.
#[cold]
fn displace(chunk: &mut Chunk, format: Format, roots: [usize; 2]) -> Option<usize> {
    // One pair that moves is enough nearly always.
    for root in roots {
        let (others, free) = others(chunk, format, root);
        if free != 0 {
            let slot = free.trailing_zeros() as usize;
            move_pair(chunk, format, (root, slot), others[slot]);
            return Some(root);
        }
    }
    search(chunk, format, roots)
}

/// Returns the line that the pair in each slot of a full line may move to, and the slots for which that line has a free slot, a
/// bit each. All are looked at, since a branch on each would be mispredicted for one of them.
#[inline]
fn others(chunk: &Chunk, format: Format, line: usize) -> ([usize; SLOTS_MAX], u32) {
    let others = std::array::from_fn(|slot| other_line(chunk, line, slot));
    let has_free = |slot: usize| u32::from(!format.is_full(line::meta(&chunk[others[slot]])));
    (others, (0..format.slots()).fold(0, |free, slot| free | has_free(slot) << slot))
}

/// Finds pairs that can move one after the other, so that one of two full lines has a free slot; returns that line.
#[cold]
fn search(chunk: &mut Chunk, format: Format, roots: [usize; 2]) -> Option<usize> {
    // Most of them are read, and where each leads to is known only then.
    (0..CHUNK_LINES).for_each(|line| prefetch(&*chunk, line));
    // One more than there are lines: an entry is written behind the last one, too, when all lines were seen.
    let mut nodes = [Node::default(); CHUNK_LINES + 1];
    let mut seen = [false; CHUNK_LINES];
    for (node, root) in roots.into_iter().enumerate() {
        nodes[node] = Node { line: root as u8, parent: node as u8, slot: 0 };
        seen[root] = true;
    }
    let (mut next, mut end) = (0, roots.len());
    while next < end {
        let (others, free) = others(chunk, format, usize::from(nodes[next].line));
        if free != 0 {
            let slot = free.trailing_zeros() as usize;
            return Some(move_along(chunk, format, &nodes, (next, slot, others[slot])));
        }
        for (slot, other) in others.into_iter().enumerate().take(format.slots()) {
            // If the line was seen before, the next entry overwrites this one.
            nodes[end] = Node { line: other as u8, parent: next as u8, slot: slot as u8 };
            end += usize::from(!seen[other]);
            seen[other] = true;
        }
        next += 1;
    }
    None
}

/// Moves the pair in a slot of a line to another line, which has a free slot.
#[inline]
fn move_pair(chunk: &mut Chunk, format: Format, (from, slot): (usize, usize), to: usize) {
    let pair = format.pair(&chunk[from], slot, 0);
    let free = format.free_slot(&chunk[to]).expect("the line has a free slot");
    format.set(&mut chunk[to], free, pair);
    line::remove(&mut chunk[from], slot);
}

/// Moves a pair of a node's line to a line with a free slot, a pair of the line before into its slot, and so on;
/// returns the root's line, which has a free slot then.
fn move_along(
    chunk: &mut Chunk,
    format: Format,
    nodes: &[Node],
    (mut node, mut slot, mut to): (usize, usize, usize),
) -> usize {
    loop {
        let from = usize::from(nodes[node].line);
        move_pair(chunk, format, (from, slot), to);
        to = from;
        let parent = usize::from(nodes[node].parent);
        if parent == node {
            return to;
        }
        slot = usize::from(nodes[node].slot);
        node = parent;
    }
}

#[cfg(test)]
mod tests {
    use super::{super::line::Line, *};
    use std::collections::BTreeSet;

    const CHUNKS: usize = 50;

    /// Fills chunks until a pair does not fit; no pair is lost, and few slots are left.
    #[test]
    fn pairs_move_and_none_is_lost() {
        let mut hash = 1_u64;
        for format in [Format::Narrow, Format::Wide] {
            let mut all = 0;
            for _ in 0..CHUNKS {
                let (mut chunk, mut expected) = ([[0; 64]; CHUNK_LINES], BTreeSet::new());
                loop {
                    hash = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(23) + 1;
                    let pair = Pair { hash: hash & 0x1F_FFFF_FFFF_FFFF, value: hash >> 16 };
                    if !insert(&mut chunk, format, pair) {
                        break;
                    }
                    expected.insert(pair);
                }
                let slots = |line: &Line| {
                    (0..5).filter(|slot| line::in_use(line) >> slot & 1 == 1).collect::<Vec<_>>()
                };
                let mut found = BTreeSet::new();
                for (i, line) in chunk.iter().enumerate() {
                    for slot in slots(line) {
                        let pair = format.pair(line, slot, 0);
                        assert!(choice::lines(pair.hash).contains(&i));
                        assert!(found.insert(pair));
                    }
                }
                assert_eq!(found, expected);
                all += found.len();
            }
            let load = all as f64 / (CHUNKS * CHUNK_LINES * format.slots()) as f64;
            assert!(load > 0.92, "{format:?}: {load}");
        }
    }
}

//! Inserting a pair into the lines of a group: into the emptier of its two lines, or after other pairs have moved to
//! theirs, found by a breadth-first search of bounded length.

use super::{
    group::{LINES_MAX, places},
    line::{self, Format, Line, Pair},
};

use std::hint::select_unpredictable;

/// Maximum number of full lines that a search looks at.
const NODES_MAX: usize = 128;

/// The lines of a group.
pub(super) trait Lines {
    /// Returns the number of lines.
    fn count(&self) -> usize;

    /// Returns a line.
    fn get(&self, line: usize) -> &Line;

    /// Returns a line, to be changed.
    fn get_mut(&mut self, line: usize) -> &mut Line;

    /// Prefetches a line.
    fn prefetch(&self, line: usize);
}

impl Lines for [Line] {
    fn count(&self) -> usize {
        self.len()
    }

    fn get(&self, line: usize) -> &Line {
        &self[line]
    }

    fn get_mut(&mut self, line: usize) -> &mut Line {
        &mut self[line]
    }

    fn prefetch(&self, _line: usize) {}
}

/// A full line whose pairs may move.
#[derive(Clone, Copy, Default)]
struct Node {
    line: u8,
    /// The node whose line has a pair that may move here; a root is its own.
    parent: u8,
    /// The slot of that pair.
    slot: u8,
}

const _: () = assert!(LINES_MAX <= 256 && NODES_MAX <= 256);

/// Inserts a pair; returns `false`, and changes nothing, if no free slot is found for it.
#[inline]
pub(super) fn insert<L: Lines + ?Sized>(lines: &mut L, format: Format, pair: Pair) -> bool {
    let [first, second] = places(pair.hash, lines.count());
    let is_first = line::count(lines.get(first)) <= line::count(lines.get(second));
    let emptier = select_unpredictable(is_first, first, second);
    let target = lines.get_mut(emptier);
    if let Some(slot) = format.free_slot(target) {
        format.set(target, slot, pair);
        return true;
    }
    let Some(line) = displace(lines, format, [first, second]) else { return false };
    let target = lines.get_mut(line);
    let slot = format.free_slot(target).expect("a pair has moved out of this line");
    format.set(target, slot, pair);
    true
}

/// Returns the line that the pair in a slot of a line may move to.
#[inline]
fn other_line<L: Lines + ?Sized>(lines: &L, line: usize, slot: usize) -> usize {
    let [first, second] = places(line::low(lines.get(line), slot), lines.count());
    first + second - line
}

/// Moves pairs until one of two full lines has a free slot; returns that line.
#[cold]
fn displace<L: Lines + ?Sized>(lines: &mut L, format: Format, roots: [usize; 2]) -> Option<usize> {
    let slots = format.slots();
    // One pair that moves is enough nearly always.
    for root in roots {
        (0..slots).for_each(|slot| lines.prefetch(other_line(lines, root, slot)));
        for slot in 0..slots {
            let other = other_line(lines, root, slot);
            if line::count(lines.get(other)) < slots {
                move_pair(lines, format, (root, slot), other);
                return Some(root);
            }
        }
    }
    search(lines, format, roots)
}

/// Finds pairs that can move one after the other, so that one of two full lines has a free slot; returns that line.
#[cold]
fn search<L: Lines + ?Sized>(lines: &mut L, format: Format, roots: [usize; 2]) -> Option<usize> {
    let mut nodes = [Node::default(); NODES_MAX];
    let mut seen = [false; 256];
    for (node, root) in roots.into_iter().enumerate() {
        nodes[node] = Node { line: root as u8, parent: node as u8, slot: 0 };
        seen[root] = true;
    }
    let (mut next, mut end) = (0, roots.len());
    while next < end {
        let from = usize::from(nodes[next].line);
        for slot in 0..format.slots() {
            let other = other_line(lines, from, slot);
            if seen[other] {
                continue;
            }
            if line::count(lines.get(other)) < format.slots() {
                return Some(move_along(lines, format, &nodes, (next, slot, other)));
            }
            seen[other] = true;
            if end < NODES_MAX {
                nodes[end] = Node { line: other as u8, parent: next as u8, slot: slot as u8 };
                end += 1;
            }
        }
        next += 1;
    }
    None
}

/// Moves the pair in a slot of a line to another line, which has a free slot.
#[inline]
fn move_pair<L: Lines + ?Sized>(
    lines: &mut L,
    format: Format,
    (from, slot): (usize, usize),
    to: usize,
) {
    let pair = format.pair(lines.get(from), slot, 0);
    let free = format.free_slot(lines.get(to)).expect("the line has a free slot");
    format.set(lines.get_mut(to), free, pair);
    line::remove(lines.get_mut(from), slot);
}

/// Moves a pair of a node's line to a line with a free slot, a pair of the line before into its slot, and so on;
/// returns the root's line, which has a free slot then.
fn move_along<L: Lines + ?Sized>(
    lines: &mut L,
    format: Format,
    nodes: &[Node],
    (mut node, mut slot, mut to): (usize, usize, usize),
) -> usize {
    loop {
        let from = usize::from(nodes[node].line);
        move_pair(lines, format, (from, slot), to);
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
    use super::*;
    use std::collections::BTreeSet;

    /// Fills groups of all sizes until a pair does not fit; no pair is lost, and few slots are left.
    #[test]
    fn pairs_move_and_none_is_lost() {
        for format in [Format::Narrow, Format::Wide] {
            for chunks in [1, 2, 5, 14] {
                let mut lines = vec![[0; 64]; chunks * 16];
                let mut expected = BTreeSet::new();
                let mut hash = 1_u64;
                loop {
                    hash = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(23) + 1;
                    let pair = Pair { hash: hash & 0x1F_FFFF_FFFF_FFFF, value: hash >> 16 };
                    if !insert(&mut lines[..], format, pair) {
                        break;
                    }
                    expected.insert(pair);
                }
                let slots = |line: &Line| {
                    (0..5).filter(|slot| line::in_use(line) >> slot & 1 == 1).collect::<Vec<_>>()
                };
                let mut found = BTreeSet::new();
                for (i, line) in lines.iter().enumerate() {
                    for slot in slots(line) {
                        let pair = format.pair(line, slot, 0);
                        assert!(places(pair.hash, lines.len()).contains(&i));
                        assert!(found.insert(pair));
                    }
                }
                assert_eq!(found, expected);
                let load = found.len() as f64 / (lines.len() * format.slots()) as f64;
                assert!(load > 0.9, "{format:?} {chunks}: {load}");
            }
        }
    }
}

//! Whether enough nodes have versions ready, in each range of slots.

use crate::{pointer::Targets, ready::Readiness};
use hashfold::store::SLOTS;
use std::ops::RangeInclusive;

/// Slots of a store in which too few nodes have the versions ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) store: String,
    pub(crate) slots: RangeInclusive<u32>,
    /// Number of nodes that must be ready, and of those that are.
    pub(crate) expected: usize,
    pub(crate) ready: usize,
}

impl Shortage {
    /// Whether the same nodes are missing in all slots.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.slots == (0..=SLOTS - 1)
    }
}

/// Number of the nodes that have a slot, and of those that are ready.
#[derive(Clone, Copy, Debug, Default)]
struct Owners {
    all: usize,
    ready: usize,
    /// Whether the slot before has other nodes.
    begins: bool,
}

/// Returns the first slots in which too few of the live nodes have the versions ready, and have seen the
/// pointer that announces them: fewer than `min_ready`, or than all that have the slot, and at least one.
pub(crate) fn shortage(
    live: &[&Readiness],
    targets: &Targets,
    min_ready: Option<usize>,
    announced: u64,
) -> Option<Shortage> {
    targets.keys().find_map(|store| {
        let nodes: Vec<&&Readiness> = live.iter().filter(|node| node.serves(store)).collect();
        // Without a live node, nobody is waited for, unless a number says so.
        let least = usize::from(!nodes.is_empty());
        let mut owners = vec![Owners::default(); SLOTS as usize];
        for node in nodes {
            let is_ready = usize::from(node.has_ready(targets, announced));
            let mut before = false;
            for (owners, has) in owners.iter_mut().zip(slots_of(node)) {
                owners.all += usize::from(has);
                owners.ready += is_ready * usize::from(has);
                owners.begins |= has != before;
                before = has;
            }
        }
        let expected = |owners: &Owners| min_ready.unwrap_or(owners.all.max(least));
        let first = owners.iter().position(|owners| owners.ready < expected(owners))?;
        let more = owners[first + 1..].iter().take_while(|other| !other.begins).count();
        Some(Shortage {
            store: store.clone(),
            slots: first as u32..=(first + more) as u32,
            expected: expected(&owners[first]),
            ready: owners[first].ready,
        })
    })
}

/// Says for each slot whether a node has it.
fn slots_of(node: &Readiness) -> Vec<bool> {
    if node.slots.is_empty() {
        return vec![true; SLOTS as usize];
    }
    // At each slot, the number of ranges that begin there, less those that have ended before it.
    let mut changes = vec![0_i64; SLOTS as usize + 1];
    for (first, last) in node.slots.iter().filter(|(first, last)| first <= last && *last < SLOTS) {
        changes[*first as usize] += 1;
        changes[*last as usize + 1] -= 1;
    }
    let mut ranges = 0;
    let has = |change: &i64| {
        ranges += change;
        ranges > 0
    };
    changes[..SLOTS as usize].iter().map(has).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pointer::{Digest, Id, Target},
        ready::{NodeVersion, VersionState},
    };

    fn targets() -> Targets {
        let target = Target { version: 2, id: Id(7), root: Digest::default() };
        [("people".to_owned(), target)].into()
    }

    fn node(slots: &[(u32, u32)], state: VersionState) -> Readiness {
        let version =
            NodeVersion { state, bytes: 0, of: 0, error: None, failed_reads: 0, sample: None };
        Readiness {
            slots: slots.to_vec(),
            versions: [("people".to_owned(), [(2, version)].into())].into(),
            ..Readiness::default()
        }
    }

    /// Checks the slots with a shortage, and its numbers.
    #[track_caller]
    fn check(
        nodes: &[Readiness],
        min_ready: Option<usize>,
        expected: Option<((u32, u32), usize, usize)>,
    ) {
        let live: Vec<&Readiness> = nodes.iter().collect();
        let found = shortage(&live, &targets(), min_ready, 0);
        assert_eq!(
            found.map(|it| ((*it.slots.start(), *it.slots.end()), it.expected, it.ready)),
            expected
        );
    }

    #[test]
    fn each_range_of_slots_needs_its_nodes() {
        use VersionState::{Current, Fetching, Ready};
        let (low, high): (&[_], &[_]) = (&[(0, 99), (200, 299)], &[(100, 199), (300, SLOTS - 1)]);
        let all = (0, SLOTS - 1);
        check(&[], None, None);
        check(&[], Some(0), None);
        check(&[], Some(1), Some((all, 1, 0)));
        check(&[node(&[], Ready)], None, None);
        check(&[node(&[], Fetching)], None, Some((all, 1, 0)));
        check(&[node(&[], Ready), node(&[], Fetching)], None, Some((all, 2, 1)));
        check(&[node(&[], Ready), node(&[], Fetching)], Some(1), None);
        check(&[node(low, Ready), node(high, Current)], None, None);
        check(&[node(low, Ready), node(high, Current)], Some(1), None);
        check(&[node(low, Ready), node(high, Current)], Some(2), Some(((0, 99), 2, 1)));
        check(&[node(low, Ready), node(high, Fetching)], Some(1), Some(((100, 199), 1, 0)));
        // A range that nobody reports is not ready, also if nobody said how many there must be.
        check(&[node(low, Ready)], None, Some(((100, 199), 1, 0)));
        check(&[node(low, Ready)], Some(1), Some(((100, 199), 1, 0)));
        check(&[node(low, Ready)], Some(0), None);
        // A node with all slots stands in for one with some.
        check(&[node(low, Ready), node(&[], Ready)], Some(1), None);
        check(&[node(low, Ready), node(&[], Ready)], Some(2), Some(((100, 199), 2, 1)));
    }

    #[test]
    fn ranges_of_strangers_are_taken_as_far_as_they_have_a_meaning() {
        let odd = [(5, 3), (0, u32::MAX), (SLOTS, SLOTS), (7, 9), (8, 10), (SLOTS - 1, SLOTS - 1)];
        let has = slots_of(&node(&odd, VersionState::Ready));
        let slots: Vec<usize> = (0..has.len()).filter(|slot| has[*slot]).collect();
        assert_eq!(slots, [7, 8, 9, 10, SLOTS as usize - 1]);
    }
}

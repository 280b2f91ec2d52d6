//! The changes of a night, and the expected state of every entry before and after it.

use crate::{
    Result,
    data::{Data, mix},
};

/// The last change of an entry: the number of the night that gave it its value, 0 for the initial
/// state, or [`DELETED`].
pub type State = u8;

pub const DELETED: State = u8::MAX;
/// Maximum number of nights: it must fit in a [`State`].
pub const NIGHTS_MAX: usize = DELETED as usize - 1;

/// Fraction of deletions in the changes of a night.
const DELETIONS: f64 = 0.1;
/// Values of a night are those of keys with larger numbers: this bit and the higher bits are the
/// night.
const NIGHT_SHIFT: u32 = 40;
pub const COUNT_MAX: u64 = 1 << NIGHT_SHIFT;

#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The entry's number.
    pub i: u64,
    pub state: State,
}

/// A callback that takes a key and its value, or no value if the key is deleted.
pub type Visit<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<()> + 'a;

/// The changes of one night.
#[derive(Clone, Debug)]
pub struct Night {
    pub number: State,
    /// The changes, in random order, the same for all peers.
    pub changes: Vec<Change>,
}

impl Night {
    pub fn new(data: &Data, number: State, fraction: f64) -> Night {
        assert!(number > 0 && number != DELETED);
        let seed = mix((data.seed ^ 0x6e69_6768).wrapping_add(u64::from(number)));
        let change = |i| {
            let hash = mix(seed ^ i);
            let state = if part(mix(hash)) < DELETIONS { DELETED } else { number };
            (part(hash) < fraction).then_some(Change { i, state })
        };
        Night { number, changes: (0..data.count).filter_map(change).collect() }
    }

    /// Returns the states after this night.
    pub fn after(&self, before: &[State]) -> Vec<State> {
        let mut after = before.to_vec();
        for change in &self.changes {
            after[change.i as usize] = change.state;
        }
        after
    }

    /// Returns the size of the keys, and of the values of those not deleted, in bytes.
    pub fn bytes(&self, data: &Data) -> u64 {
        self.changes.iter().map(|change| entry_bytes(data, change.state)).sum()
    }

    /// Passes all changes to `visit`, in key order if `order` requires it. Deletions have no value.
    pub fn for_each(&self, data: &Data, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        let mut changes: Vec<_> = self.changes.iter().map(|c| (data.key(c.i), *c)).collect();
        if order == Order::Keys {
            changes.sort_unstable_by_key(|(key, _)| *key);
        }
        let mut value = Vec::new();
        changes.iter().try_for_each(|(key, Change { i, state })| {
            fill_value(data, *i, *state, &mut value);
            visit(key, (*state != DELETED).then_some(value.as_slice()))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Any,
    Keys,
}

/// Writes the value of an entry in a state with a value to `value`.
#[inline]
pub fn fill_value(data: &Data, i: u64, state: State, value: &mut Vec<u8>) {
    data.fill_value(i | u64::from(state) << NIGHT_SHIFT, value);
}

/// Whether this is the value of an entry in that state.
#[inline]
pub fn is_value(
    data: &Data,
    i: u64,
    state: State,
    value: Option<&[u8]>,
    buffer: &mut Vec<u8>,
) -> bool {
    match value {
        None => state == DELETED,
        Some(_) if state == DELETED => false,
        Some(value) => {
            fill_value(data, i, state, buffer);
            value == buffer
        }
    }
}

pub fn entry_bytes(data: &Data, state: State) -> u64 {
    crate::data::KEY_SIZE as u64 + if state == DELETED { 0 } else { data.value_size as u64 }
}

/// Returns a checksum that is equal for programs with the same data:
/// `bench/voldemort/src/Data.java`.
pub fn check(data: &Data) -> String {
    const ENTRIES_MAX: u64 = 1000;
    let sample = Data::new(data.seed, data.count.min(ENTRIES_MAX), data.value_size);
    let states = Night::new(&sample, 1, 0.5).after(&vec![0; sample.count as usize]);
    let mut sum = 0;
    let mut value = Vec::new();
    for (i, state) in (0..).zip(states) {
        fill_value(data, i, state, &mut value);
        if state == DELETED {
            value.fill(0);
        }
        sum = data.key(i).iter().chain(&value).fold(sum, |sum, byte| mix(sum ^ u64::from(*byte)));
    }
    format!("{sum:016x}")
}

/// Maps a hash to a number from 0 to 1.
fn part(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

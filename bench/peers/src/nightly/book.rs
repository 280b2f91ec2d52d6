//! What changes in a night, and what every entry is before and after it.

use crate::{
    Result,
    data::{Data, mix},
};

/// What became of an entry last: the number of the night that gave it its value, 0 for the first
/// state of all, or [`DELETED`].
pub type State = u8;

pub const DELETED: State = u8::MAX;
/// Numbers of nights fit a [`State`].
pub const NIGHTS_MAX: usize = DELETED as usize - 1;

/// Share of deletions in the changes of a night.
const DELETIONS: f64 = 0.1;
/// Values of a night are those of keys with larger numbers: this bit and those above it.
const NIGHT_SHIFT: u32 = 40;
pub const COUNT_MAX: u64 = 1 << NIGHT_SHIFT;

#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The entry's number.
    pub i: u64,
    pub state: State,
}

/// Takes a key and its value, or no value if the key is deleted.
pub type Visit<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<()> + 'a;

/// The changes of one night.
#[derive(Clone, Debug)]
pub struct Night {
    pub number: State,
    /// In an order that is random for everybody.
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

    /// The states after this night.
    pub fn after(&self, before: &[State]) -> Vec<State> {
        let mut after = before.to_vec();
        for change in &self.changes {
            after[change.i as usize] = change.state;
        }
        after
    }

    /// Keys, and values of those that are not deleted, in bytes.
    pub fn bytes(&self, data: &Data) -> u64 {
        self.changes.iter().map(|change| entry_bytes(data, change.state)).sum()
    }

    /// Shows all changes to `visit`, in the order of their keys if `order` says so; deletions have
    /// no value.
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

/// Puts the value of an entry in a state that has one into `value`.
#[inline]
pub fn fill_value(data: &Data, i: u64, state: State, value: &mut Vec<u8>) {
    data.fill_value(i | u64::from(state) << NIGHT_SHIFT, value);
}

/// Whether this is what an entry in that state has.
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

/// A number that is the same for programs with the same data: `bench/voldemort/src/Data.java`.
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

/// A hash as a number from 0 to 1.
fn part(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

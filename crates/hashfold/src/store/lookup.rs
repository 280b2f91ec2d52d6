//! Looking up many keys in the tables of a version, with the device reads of all tables in flight
//! together.

use super::delta::untag;
use crate::{
    error::Result,
    table::{LookupPart, Table, VisitValue, get_many_in},
};
use std::{cell::Cell, sync::Arc};

/// A key that is not found yet: the tables that may have it, those of the newest layer first, and the
/// index of the key.
pub(super) type Wanted<'v> = (&'v [u32], usize);

/// A callback that returns the table with a number.
type TableOf<'v> = dyn Fn(u32) -> Result<&'v Arc<Table>> + 'v;

/// Number of tables per key up to which an array with a number for each table is small.
const TABLES_PER_KEY_MAX: usize = 8;

/// Sorts keys by the first tables of their stacks. Keys of one table stay in order.
fn by_table(mut wanted: Vec<Wanted<'_>>) -> Vec<Wanted<'_>> {
    let table = |(stack, _): &Wanted<'_>| stack[0] as usize;
    let tables = wanted.iter().map(table).max().map_or(0, |last| last + 1);
    if tables > TABLES_PER_KEY_MAX * wanted.len() {
        wanted.sort_by_key(table);
        return wanted;
    }
    // The place of the next key of each table.
    let mut next = vec![0; tables + 1];
    wanted.iter().for_each(|one| next[table(one) + 1] += 1);
    for i in 1..tables {
        next[i] += next[i - 1];
    }
    let mut sorted = wanted.clone();
    for one in &wanted {
        let place = &mut next[table(one)];
        sorted[*place] = *one;
        *place += 1;
    }
    sorted
}

/// The keys of one call of [`Version::get_many`](super::Version::get_many).
pub(super) struct Lookups<'v, K> {
    keys: &'v [K],
    table: &'v TableOf<'v>,
    /// Number of bases; tables with higher numbers are deltas.
    bases: usize,
    /// Whether the caller's `visit` has failed.
    is_refused: Cell<bool>,
}

impl<'v, K: AsRef<[u8]>> Lookups<'v, K> {
    pub(super) fn new(keys: &'v [K], table: &'v TableOf<'v>, bases: usize) -> Lookups<'v, K> {
        Lookups { keys, table, bases, is_refused: Cell::new(false) }
    }

    /// Looks up keys: all of them in the newest layers of their chunks, then those that were not found
    /// there in the second newest, and so on.
    pub(super) fn run(
        &self,
        mut wanted: Vec<Wanted<'v>>,
        visit: &mut VisitValue<'_>,
    ) -> Result<()> {
        let mut failed = Ok(());
        while !wanted.is_empty() {
            wanted = by_table(wanted);
            let mut older = Vec::new();
            match self.run_layer(&wanted, visit, &mut older) {
                Err(error) if self.is_refused.get() => return Err(error),
                searched => failed = failed.and(searched),
            }
            wanted = older;
        }
        failed
    }

    /// Looks up keys, which are sorted by the first tables of their stacks, in these tables. Adds the
    /// keys that a delta does not have to `older`, with the rest of their stacks.
    fn run_layer(
        &self,
        wanted: &[Wanted<'v>],
        visit: &mut VisitValue<'_>,
        older: &mut Vec<Wanted<'v>>,
    ) -> Result<()> {
        let keys: Vec<&[u8]> = wanted.iter().map(|(_, i)| self.keys[*i].as_ref()).collect();
        let mut is_done = vec![false; keys.len()];
        let mut take = |at: usize, value: Option<&[u8]>| {
            let (stack, index) = wanted[at];
            let is_base = (stack[0] as usize) < self.bases;
            match value {
                _ if is_done[at] => {}
                None if !is_base => older.push((&stack[1..], index)),
                _ => {
                    let value = if is_base { value } else { untag(value.unwrap_or_default())? };
                    visit(index, value).inspect_err(|_| self.is_refused.set(true))?;
                }
            }
            is_done[at] = true;
            Ok(())
        };
        let (parts, mut failed) = self.parts(wanted);
        match get_many_in(&parts, &keys, &mut take) {
            Ok(()) => return failed,
            Err(error) if self.is_refused.get() => return Err(error),
            Err(_) => {}
        }
        // A table is damaged. One by one, all others answer.
        for part in parts.chunks(1) {
            match get_many_in(part, &keys, &mut take) {
                Err(error) if self.is_refused.get() => return Err(error),
                searched => failed = failed.and(searched),
            }
        }
        failed
    }

    /// Returns the first tables of the stacks, each with the range of its keys, and the error of a
    /// table that cannot be opened.
    fn parts(&self, wanted: &[Wanted<'v>]) -> (Vec<LookupPart<'v>>, Result<()>) {
        let (mut parts, mut failed, mut start) = (Vec::new(), Ok(()), 0);
        for same in wanted.chunk_by(|a, b| a.0[0] == b.0[0]) {
            let range = start..start + same.len();
            start = range.end;
            match (self.table)(same[0].0[0]) {
                Ok(table) => parts.push((&**table, range)),
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        (parts, failed)
    }
}

//! Hashfold's tables, mapped.

use super::{
    Peer, Reader,
    entries::{Entries, Lookups, head_of},
};
use crate::Result;
use hashfold::{
    Env, ReadOptions, Seed,
    io::Access,
    run::SortOptions,
    table::{IndexChoice, IndexOptions, Table, TableBuilder, TableOptions},
    work::{Threads, Watch},
};
use std::{path::Path, sync::Arc};

/// Memory for sorting, in bytes.
const MEMORY: usize = 2 << 30;

/// Threads of a build.
const THREADS: usize = 2;

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    vec![Box::new(Hashfold(IndexChoice::Auto)), Box::new(Hashfold(IndexChoice::Dense))]
}

struct Hashfold(IndexChoice);

impl Peer for Hashfold {
    fn name(&self) -> String {
        format!("Hashfold {}", self.0)
    }

    fn note(&self) -> String {
        "mapped; every block is checked (CRC-32C) when it is read for the first time".to_owned()
    }

    fn build(&self, entries: &Entries, folder: &Path) -> Result<()> {
        let index = IndexOptions { choice: self.0, ..IndexOptions::default() };
        let options = TableOptions::new().seed(Seed(1)).id(1).index(index);
        let threads = Arc::new(Threads::new(THREADS));
        let builder =
            TableBuilder::with(folder, options.env(Env { executor: threads, ..Env::system() }))?;
        let mut sorter = builder.sorter(SortOptions::within(MEMORY))?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for i in 0..entries.size.count {
            entries.fill_key(i, &mut key);
            entries.fill_value(i, &mut value);
            sorter.push(&key, Some(&value))?;
        }
        builder.build(&mut sorter.finish()?, &Watch::default())?;
        Ok(())
    }

    fn open(&self, folder: &Path, _: u64) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Table::open_with(folder, &ReadOptions::new().data(Access::Mapped))?))
    }
}

impl Reader for Table {
    fn one_by_one(&self, lookups: &Lookups<'_>) -> Result<u64> {
        let mut wrong = 0;
        for (key, head) in lookups.keys.iter().zip(&lookups.heads) {
            wrong += u64::from(head_of(self.get_ref(key)?.as_deref()) != Some(head));
        }
        Ok(wrong)
    }

    fn in_batches(&self, lookups: &Lookups<'_>, batch: usize) -> Result<u64> {
        let (mut wrong, mut answers) = (0, 0);
        for (keys, heads) in lookups.keys.chunks(batch).zip(lookups.heads.chunks(batch)) {
            self.get_many(keys, &mut |i, value| {
                answers += 1;
                wrong += u64::from(head_of(value) != Some(&heads[i]));
                Ok(())
            })?;
        }
        Ok(wrong + (lookups.keys.len() as u64).abs_diff(answers))
    }
}

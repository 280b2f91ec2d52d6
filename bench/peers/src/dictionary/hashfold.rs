//! Hashfold's tables.

use super::{Budget, Dictionary, Getter, Reader, Visit};
use crate::{
    Result,
    data::{Data, Key},
};
use hashfold::{
    Env, Error, ReadOptions, Seed,
    io::{Access, Disk, OsDisk},
    run::SortOptions,
    table::{IndexChoice, IndexOptions, Table, TableBuilder, TableOptions},
    work::{Threads, Watch},
};
use std::{io, path::Path, sync::Arc};

pub(super) fn dictionaries() -> Vec<Box<dyn Dictionary>> {
    vec![Box::new(Hashfold(IndexChoice::Auto)), Box::new(Hashfold(IndexChoice::Dense))]
}

struct Hashfold(IndexChoice);

impl Dictionary for Hashfold {
    fn name(&self) -> String {
        format!("Hashfold {}", self.0)
    }

    fn note(&self) -> String {
        "4 KiB blocks; direct I/O; every block read is checked (CRC-32C)".to_owned()
    }

    fn build(&self, data: &Data, budget: Budget, folder: &Path) -> Result<u64> {
        let index = IndexOptions { choice: self.0, ..IndexOptions::default() };
        let seed = Seed(data.seed);
        let options = TableOptions::new().seed(seed).id(1).index(index);
        let threads = Arc::new(Threads::new(budget.threads));
        let builder =
            TableBuilder::with(folder, options.env(Env { executor: threads, ..Env::system() }))?;
        let sort = SortOptions::within(budget.memory_bytes);
        let mut sorter = builder.sorter(sort)?;
        let mut value = Vec::new();
        for i in 0..data.count {
            data.fill_value(i, &mut value);
            sorter.push(&data.key(i), Some(&value))?;
        }
        let mut run = sorter.finish()?;
        let stats = builder.build(&mut run, &Watch::default())?;
        if stats.entries != data.count {
            return Err(format!("{} entries of {}", stats.entries, data.count).into());
        }
        Ok(run.spilled_bytes().min(sort.cached_bytes as u64))
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Reader>> {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let options = ReadOptions::new().data(Access::Direct);
        Ok(Box::new(Table::open_with(folder, &options.env(Env::on(disk.clone())))?))
    }
}

impl Reader for Table {
    fn index_bytes(&self) -> Result<Option<u64>> {
        Ok(Some(self.stats().index_bytes))
    }

    fn has_batches(&self) -> bool {
        true
    }

    fn getter(&self) -> Result<Box<dyn Getter + '_>> {
        Ok(Box::new(self))
    }
}

impl Getter for &Table {
    fn get(&mut self, key: &Key, visit: &mut Visit<'_>) -> Result<()> {
        let mut result = Ok(());
        self.get_with(key, &mut |value| result = visit(0, value))?;
        result
    }

    fn get_many(&mut self, keys: &[Key], visit: &mut Visit<'_>) -> Result<()> {
        Table::get_many(self, keys, &mut |i, value| {
            visit(i, value).map_err(|error| Error::io("check", io::Error::other(error)))
        })?;
        Ok(())
    }
}

//! LMDB: a B+ tree in a memory map, filled in key order.

use super::{Budget, Dictionary, Getter, Reader, Visit, sort};
use crate::{
    Result,
    data::{Data, Key},
};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithoutTls, types::Bytes};
use std::path::Path;

pub(super) struct Lmdb;

/// Maximum ratio of an entry's size to its payload; a page holds three entries of 1 KiB.
const GROWTH_MAX: u64 = 2;
/// Minimum size of the map, more than an empty tree needs.
const MAP_SIZE_MIN: u64 = 1 << 28;
/// Size of a page of the tree and of the map, in bytes.
const PAGE_SIZE: u64 = 4096;
/// Number of entries per transaction: a longer transaction keeps too many pages in its list.
const ENTRIES_PER_TRANSACTION: u64 = 1 << 18;

fn open_env(folder: &Path, flags: EnvFlags, map_size: Option<u64>) -> Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.max_readers(1024);
    if let Some(size) = map_size {
        options.map_size(size.next_multiple_of(PAGE_SIZE) as usize);
    }
    // SAFETY: no other process opens or changes the files of this folder. `NO_SYNC` could lose them
    // in a crash of the system, after which they are not used.
    Ok(unsafe { options.flags(flags).open(folder)? })
}

fn fill(env: &Env<WithoutTls>, buckets: sort::SortedBuckets) -> Result<()> {
    let mut first = env.write_txn()?;
    let database: Database<Bytes, Bytes> = env.create_database(&mut first, None)?;
    let mut open = Some(first);
    let mut count = 0;
    buckets.for_each(|key, value| {
        let transaction = open.as_mut().expect("one is always open");
        database.put_with_flags(transaction, PutFlags::APPEND, key, value)?;
        count += 1;
        if count % ENTRIES_PER_TRANSACTION == 0 {
            // LMDB allows one writer at a time, so this transaction ends before the next begins.
            open.take().expect("one is always open").commit()?;
            open = Some(env.write_txn()?);
        }
        Ok(())
    })?;
    Ok(open.expect("one is always open").commit()?)
}

impl Dictionary for Lmdb {
    fn name(&self) -> String {
        "LMDB append".to_owned()
    }

    fn note(&self) -> String {
        "sorted, MDB_APPEND, MDB_WRITEMAP, one sync at the end; read through a map without \
         read-ahead; its index is the inner pages, in the page cache; nothing is checksummed"
            .to_owned()
    }

    fn build(&self, data: &Data, budget: Budget, folder: &Path) -> Result<u64> {
        let buckets = sort::sort(data, budget, folder)?;
        let spilled_bytes = buckets.spilled_bytes();
        let flags = EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC;
        let map_size = MAP_SIZE_MIN + data.payload() * GROWTH_MAX;
        let env = open_env(folder, flags, Some(map_size))?;
        fill(&env, buckets)?;
        env.force_sync()?;
        env.prepare_for_closing().wait();
        Ok(spilled_bytes)
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Reader>> {
        let env = open_env(folder, EnvFlags::READ_ONLY | EnvFlags::NO_READ_AHEAD, None)?;
        let transaction = env.read_txn()?;
        let database = env.open_database(&transaction, None)?.ok_or("the tree is missing")?;
        drop(transaction);
        Ok(Box::new(Tree { env: Some(env), database }))
    }
}

struct Tree {
    /// `None` only during the drop.
    env: Option<Env<WithoutTls>>,
    database: Database<Bytes, Bytes>,
}

impl Tree {
    fn read(&self) -> Result<RoTxn<'_, WithoutTls>> {
        Ok(self.env.as_ref().expect("it is open").read_txn()?)
    }
}

impl Reader for Tree {
    fn index_bytes(&self) -> Result<Option<u64>> {
        let stat = self.database.stat(&*self.read()?)?;
        Ok(Some(stat.branch_pages as u64 * u64::from(stat.page_size)))
    }

    fn getter(&self) -> Result<Box<dyn Getter + '_>> {
        Ok(Box::new(TreeGetter { database: self.database, transaction: self.read()? }))
    }
}

impl Drop for Tree {
    /// An environment can be opened again only after it is closed.
    fn drop(&mut self) {
        if let Some(env) = self.env.take() {
            env.prepare_for_closing().wait();
        }
    }
}

struct TreeGetter<'a> {
    database: Database<Bytes, Bytes>,
    transaction: RoTxn<'a, WithoutTls>,
}

impl Getter for TreeGetter<'_> {
    fn get(&mut self, key: &Key, visit: &mut Visit<'_>) -> Result<()> {
        visit(0, self.database.get(&self.transaction, key)?)
    }
}

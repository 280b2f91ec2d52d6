//! LMDB: a B+ tree in a memory map.

use super::{
    Peer, Reader,
    entries::{Entries, Lookups, head_of},
};
use crate::Result;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, WithoutTls, types::Bytes};
use std::path::Path;

pub(super) struct Lmdb;

/// Maximum ratio of an entry's size to its payload; a page holds three entries of 1 KiB.
const GROWTH_MAX: u64 = 2;
/// Minimum size of the map, more than an empty tree needs.
const MAP_SIZE_MIN: u64 = 1 << 28;
/// Size of a page of the map, in bytes.
const PAGE_SIZE: u64 = 4096;
/// Number of entries per transaction: a longer transaction keeps too many pages in its list.
const ENTRIES_PER_TRANSACTION: usize = 1 << 18;

fn open_env(folder: &Path, flags: EnvFlags, map_size: u64) -> Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(map_size.next_multiple_of(PAGE_SIZE) as usize);
    // SAFETY: no other process opens or changes the files of this folder. `NO_SYNC` could lose them
    // in a crash of the system, after which they are not used.
    Ok(unsafe { options.flags(flags).open(folder)? })
}

impl Peer for Lmdb {
    fn name(&self) -> String {
        "LMDB".to_owned()
    }

    fn note(&self) -> String {
        "filled in key order (MDB_APPEND), one read transaction a thread; a batch is looked up in key \
         order; nothing is checksummed"
            .to_owned()
    }

    fn build(&self, entries: &Entries, folder: &Path) -> Result<()> {
        let flags = EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC;
        let env = open_env(folder, flags, MAP_SIZE_MIN + entries.payload() * GROWTH_MAX)?;
        let mut first = env.write_txn()?;
        let database: Database<Bytes, Bytes> = env.create_database(&mut first, None)?;
        first.commit()?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for numbers in entries.by_key().chunks(ENTRIES_PER_TRANSACTION) {
            let mut transaction = env.write_txn()?;
            for &i in numbers {
                entries.fill_key(i.into(), &mut key);
                entries.fill_value(i.into(), &mut value);
                database.put_with_flags(&mut transaction, PutFlags::APPEND, &key, &value)?;
            }
            transaction.commit()?;
        }
        env.force_sync()?;
        env.prepare_for_closing().wait();
        Ok(())
    }

    fn open(&self, folder: &Path, bytes: u64) -> Result<Box<dyn Reader>> {
        let env = open_env(folder, EnvFlags::READ_ONLY, MAP_SIZE_MIN + bytes)?;
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

impl Drop for Tree {
    /// An environment can be opened again only after it is closed.
    fn drop(&mut self) {
        if let Some(env) = self.env.take() {
            env.prepare_for_closing().wait();
        }
    }
}

impl Reader for Tree {
    fn one_by_one(&self, lookups: &Lookups<'_>) -> Result<u64> {
        let transaction = self.env.as_ref().expect("it is open").read_txn()?;
        let mut wrong = 0;
        for (key, head) in lookups.keys.iter().zip(&lookups.heads) {
            wrong += u64::from(head_of(self.database.get(&transaction, key)?) != Some(head));
        }
        Ok(wrong)
    }

    fn in_batches(&self, lookups: &Lookups<'_>, batch: usize) -> Result<u64> {
        let transaction = self.env.as_ref().expect("it is open").read_txn()?;
        let mut wrong = 0;
        let mut order = Vec::with_capacity(batch);
        for (keys, heads) in lookups.keys.chunks(batch).zip(lookups.heads.chunks(batch)) {
            order.clear();
            order.extend(keys.iter().zip(heads));
            order.sort_unstable();
            for (key, head) in &order {
                let value = self.database.get(&transaction, key)?;
                wrong += u64::from(head_of(value) != Some(head));
            }
        }
        Ok(wrong)
    }
}

//! LMDB: a copy-on-write B+ tree in a memory map.

use super::{
    Options,
    engine::{
        Changes, Changing, Engine, Key, Looking, Lookups, Peer, Value, get_in_order, value_of,
    },
};
use crate::Result;
use heed::{
    CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithoutTls,
    types::Bytes,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

pub(super) struct Lmdb;

type Tree = Database<Bytes, Bytes>;

/// Maximum size of the file by that of keys and values: updates that copy pages need room.
const GROWTH_MAX: u64 = 32;
/// Minimum size of the map, more than an empty tree needs.
const MAP_SIZE_MIN: u64 = 1 << 30;
/// Number of read transactions: of the threads that look up, and of some that end.
const READERS_MAX: u32 = 256;

/// The flags of a load, after which nothing is synced but by [`Engine::sync`].
fn unsynced() -> EnvFlags {
    EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC
}

impl Peer for Lmdb {
    fn name(&self) -> String {
        "LMDB".to_owned()
    }

    fn note(&self) -> String {
        "the page cache is its cache; no read-ahead; transactions of 1000 changes, 100 if mixed with \
         lookups, MDB_NOSYNC but for durable commits; compacted by copying; nothing is checksummed"
            .to_owned()
    }

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Engine>> {
        let size = MAP_SIZE_MIN + options.keys * 16 * GROWTH_MAX;
        Ok(Box::new(Open::at(folder, size, unsynced())?))
    }
}

struct Open {
    /// `None` only while it is closed.
    env: Option<Env<WithoutTls>>,
    tree: Tree,
    folder: PathBuf,
    map_size: u64,
    flags: EnvFlags,
}

impl Open {
    fn at(folder: &Path, map_size: u64, flags: EnvFlags) -> Result<Open> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_size.next_multiple_of(1 << 20) as usize).max_readers(READERS_MAX);
        // SAFETY: no other process opens or changes the files of this folder. `NO_SYNC` could lose them
        // in a crash of the system, after which they are not used.
        let env = unsafe { options.flags(flags | EnvFlags::NO_READ_AHEAD).open(folder)? };
        let mut transaction = env.write_txn()?;
        let tree = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Open { env: Some(env), tree, folder: folder.to_owned(), map_size, flags })
    }

    fn env(&self) -> &Env<WithoutTls> {
        self.env.as_ref().expect("it is open")
    }

    /// Closes the files. An environment can be opened again only after that.
    fn close(&mut self) {
        if let Some(env) = self.env.take() {
            env.prepare_for_closing().wait();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.close();
    }
}

impl Engine for Open {
    fn change(&self, work: &mut Changing<'_>) -> Result<()> {
        let mut writing = Writing { transaction: self.env().write_txn()?, tree: self.tree };
        work(&mut writing)?;
        Ok(writing.transaction.commit()?)
    }

    fn look_up(&self, work: &mut Looking<'_>) -> Result<()> {
        work(&mut Reading { transaction: self.env().read_txn()?, tree: self.tree })
    }

    fn sync(&self) -> Result<()> {
        Ok(self.env().force_sync()?)
    }

    /// An environment keeps the memory of its largest transaction until it is closed.
    fn settle(&mut self) -> Result<()> {
        self.close();
        *self = Open::at(&self.folder, self.map_size, self.flags)?;
        Ok(())
    }

    fn start_commits(&mut self) -> Result<()> {
        self.flags = EnvFlags::empty();
        self.settle()
    }

    fn commit(&self, key: &Key, value: &Value) -> Result<()> {
        let mut transaction = self.env().write_txn()?;
        self.tree.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    /// LMDB gives space back by a copy, which replaces its file.
    fn compact(&mut self) -> Result<()> {
        let copy = self.folder.join("data.copy");
        self.env().copy_to_path(&copy, CompactionOption::Enabled)?.sync_all()?;
        self.close();
        fs::rename(copy, self.folder.join("data.mdb"))?;
        self.settle()
    }
}

struct Writing<'a> {
    transaction: RwTxn<'a>,
    tree: Tree,
}

impl Lookups for Writing<'_> {
    fn get(&mut self, key: &Key) -> Result<Option<Value>> {
        self.tree.get(&self.transaction, key)?.map(value_of).transpose()
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        get_in_order(self, keys)
    }
}

impl Changes for Writing<'_> {
    fn put(&mut self, key: &Key, value: &Value) -> Result<()> {
        Ok(self.tree.put(&mut self.transaction, key, value)?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.tree.delete(&mut self.transaction, key)?;
        Ok(())
    }
}

struct Reading<'a> {
    transaction: RoTxn<'a, WithoutTls>,
    tree: Tree,
}

impl Lookups for Reading<'_> {
    fn get(&mut self, key: &Key) -> Result<Option<Value>> {
        self.tree.get(&self.transaction, key)?.map(value_of).transpose()
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        get_in_order(self, keys)
    }
}

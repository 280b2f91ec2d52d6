//! fjall: a log-structured merge tree in Rust.

use super::{
    Options,
    engine::{
        Changes, Changing, Engine, Key, Looking, Lookups, Peer, Value, get_in_order, value_of,
    },
};
use crate::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, config::PinningPolicy};
use std::{path::Path, thread, time::Duration};

pub(super) struct Fjall;

impl Peer for Fjall {
    fn name(&self) -> String {
        "fjall".to_owned()
    }

    fn note(&self) -> String {
        "fjall 3: a quarter of the memory for blocks, an eighth for a memtable, filters and indexes \
         pinned, no compression"
            .to_owned()
    }

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Engine>> {
        let memory = options.memory_bytes() as u64;
        let database = Database::builder(folder).cache_size(memory / 4).open()?;
        let keyspace = database.keyspace("map", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memory / 8)
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true))
        })?;
        Ok(Box::new(Open { database, keyspace }))
    }
}

struct Open {
    database: Database,
    keyspace: Keyspace,
}

impl Engine for Open {
    fn change(&self, work: &mut Changing<'_>) -> Result<()> {
        work(&mut &self.keyspace)
    }

    fn look_up(&self, work: &mut Looking<'_>) -> Result<()> {
        work(&mut &self.keyspace)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    /// Between a flush and the compaction that follows it, the library says for a moment that it has
    /// nothing to do.
    fn settle(&mut self) -> Result<()> {
        const PAUSE: Duration = Duration::from_millis(10);
        const QUIET_MIN: u32 = 5;
        let mut quiet = 0;
        while quiet < QUIET_MIN {
            let flushes =
                self.database.outstanding_flushes() + self.keyspace.sealed_memtable_count();
            let is_busy = flushes + self.database.active_compactions() > 0;
            quiet = if is_busy { 0 } else { quiet + 1 };
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn commit(&self, key: &Key, value: &Value) -> Result<()> {
        self.keyspace.insert(key.as_slice(), value.as_slice())?;
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn compact(&mut self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        self.settle()?;
        self.keyspace.major_compact()?;
        self.settle()
    }
}

impl Lookups for &Keyspace {
    fn get(&mut self, key: &Key) -> Result<Option<Value>> {
        Keyspace::get(self, key)?.map(|value| value_of(&value)).transpose()
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        get_in_order(self, keys)
    }
}

impl Changes for &Keyspace {
    fn put(&mut self, key: &Key, value: &Value) -> Result<()> {
        Ok(self.insert(key.as_slice(), value.as_slice())?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        Ok(self.remove(key.as_slice())?)
    }
}

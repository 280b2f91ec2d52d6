//! redb: a copy-on-write B-tree in Rust.

use super::{
    Options,
    engine::{Changes, Changing, Engine, Key, Looking, Lookups, Peer, SIZE, Value, get_in_order},
};
use crate::Result;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase as _, ReadableTable, Table,
    TableDefinition,
};
use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

pub(super) struct Redb;

type Bytes = &'static [u8; SIZE];
const TABLE: TableDefinition<'_, Bytes, Bytes> = TableDefinition::new("map");
/// One transaction out of this number is durable, because the pages that others free are used again
/// only after it.
const DURABLE: u64 = 64;

impl Peer for Redb {
    fn name(&self) -> String {
        "redb".to_owned()
    }

    fn note(&self) -> String {
        format!(
            "redb 4: a third of the memory as its cache; keys and values of fixed size; transactions of \
             1000 changes, 100 if mixed with lookups, one in {DURABLE} durable"
        )
    }

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Engine>> {
        let cache = options.memory_bytes() / 3;
        let path = folder.join("map.redb");
        let database = Database::builder().set_cache_size(cache).create(path)?;
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        Ok(Box::new(Open { database, transactions: AtomicU64::new(0) }))
    }
}

struct Open {
    database: Database,
    /// Number of transactions that changed the map.
    transactions: AtomicU64,
}

impl Engine for Open {
    fn change(&self, work: &mut Changing<'_>) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        let number = self.transactions.fetch_add(1, Relaxed);
        if !number.is_multiple_of(DURABLE) {
            transaction.set_durability(Durability::None)?;
        }
        work(&mut Writing(transaction.open_table(TABLE)?))?;
        Ok(transaction.commit()?)
    }

    fn look_up(&self, work: &mut Looking<'_>) -> Result<()> {
        work(&mut Reading(self.database.begin_read()?.open_table(TABLE)?))
    }

    /// A durable transaction makes those before it durable.
    fn sync(&self) -> Result<()> {
        Ok(self.database.begin_write()?.commit()?)
    }

    fn commit(&self, key: &Key, value: &Value) -> Result<()> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn compact(&mut self) -> Result<()> {
        while self.database.compact()? {}
        Ok(())
    }
}

fn get(table: &impl ReadableTable<Bytes, Bytes>, key: &Key) -> Result<Option<Value>> {
    Ok(table.get(key)?.map(|value| *value.value()))
}

struct Writing<'a>(Table<'a, Bytes, Bytes>);

impl Lookups for Writing<'_> {
    fn get(&mut self, key: &Key) -> Result<Option<Value>> {
        get(&self.0, key)
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        get_in_order(self, keys)
    }
}

impl Changes for Writing<'_> {
    fn put(&mut self, key: &Key, value: &Value) -> Result<()> {
        self.0.insert(key, value)?;
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.0.remove(key)?;
        Ok(())
    }
}

struct Reading(ReadOnlyTable<Bytes, Bytes>);

impl Lookups for Reading {
    fn get(&mut self, key: &Key) -> Result<Option<Value>> {
        get(&self.0, key)
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        get_in_order(self, keys)
    }
}

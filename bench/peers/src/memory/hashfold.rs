//! Hashfold's tables, in batches and one by one, with one thread and two.

use super::{
    Options,
    peer::{Chains, Map, NewChains, NewMap, Peer, Record},
    puts::value_of,
};
use crate::Result;
use hashfold::{
    Seed,
    memory::{AppendTable, GroupTable, MemoryOptions},
    work::{Executor, Threads},
};
use std::sync::Arc;

/// Number of threads where there are several: the shards of a table are as many, and each thread has its own.
const THREADS: usize = 2;
/// Part of its slots that a group fills by default.
const LOAD: f64 = 0.87;
const POPULATES: &str = "one more thread populates memory ahead";

/// Returns options for tables with as many shards as threads. A thread populates memory ahead.
fn options(options: &Options, shards: usize, load: f64) -> MemoryOptions {
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(1));
    let (seed, executor) = (Seed(options.common.seed), Some(executor));
    MemoryOptions { seed, shards, load, executor, ..MemoryOptions::default() }
}

/// A way to call the table.
#[derive(Clone, Copy, Debug)]
enum Way {
    Batches,
    OneByOne,
}

/// Returns a function that makes a table, with a handle for each shard.
fn new_map(all: &Options, shards: usize, load: f64, way: Way) -> NewMap {
    let all = all.clone();
    Box::new(move || {
        let table = GroupTable::new(options(&all, shards, load))?;
        let handle = |_| -> Box<dyn Map> {
            Box::new(Groups { table: table.clone(), way, pairs: Vec::new() })
        };
        Ok((0..shards).map(handle).collect())
    })
}

fn new_chains(all: &Options, shards: usize) -> NewChains {
    let all = all.clone();
    Box::new(move |_| {
        let table = AppendTable::new(options(&all, shards, LOAD))?;
        let handle = |_| -> Box<dyn Chains> { Box::new(table.clone()) };
        Ok((0..shards).map(handle).collect())
    })
}

/// Returns options that give a key the shard that it has with [`options`].
fn sharing(all: &Options) -> MemoryOptions {
    MemoryOptions { executor: None, ..options(all, THREADS, LOAD) }
}

pub(super) fn of_puts(all: &Options) -> Vec<Peer> {
    let batches = |load| new_map(all, 1, load, Way::Batches);
    let note =
        |load: f64| format!("put_many and get_many, batches of 1000, load {load}; {POPULATES}");
    let mut peers = vec![Peer::of_puts("Hashfold", &note(LOAD), batches(LOAD))];
    for load in [0.80, 0.92] {
        let name = format!("Hashfold, load {load:.2}");
        peers.push(Peer::of_puts(&name, &note(load), batches(load)).without_curve());
    }
    let single = format!("put and get, load {LOAD}; {POPULATES}");
    let new = new_map(all, 1, LOAD, Way::OneByOne);
    peers.push(Peer::of_puts("Hashfold, one by one", &single, new).without_curve());
    let two = format!("{}; two shards, each with a thread", note(LOAD));
    let new = new_map(all, THREADS, LOAD, Way::Batches);
    let mut peer = Peer::of_puts("Hashfold, two threads", &two, new).without_curve();
    if let Ok(table) = GroupTable::new(sharing(all)) {
        peer = peer.on_threads(THREADS, Box::new(move |key| table.shard(key)));
    }
    peers.push(peer);
    peers
}

pub(super) fn of_appends(all: &Options) -> Vec<Peer> {
    let note = format!("append_many, batches of 1000, load {LOAD}; {POPULATES}");
    let one = Peer::of_appends("Hashfold", &note, new_chains(all, 1));
    let two = format!("{note}; two shards, each with a thread");
    let mut two =
        Peer::of_appends("Hashfold, two threads", &two, new_chains(all, THREADS)).without_curve();
    if let Ok(table) = AppendTable::new(sharing(all)) {
        two = two.on_threads(THREADS, Box::new(move |key| table.shard(key.to_le_bytes())));
    }
    vec![one, two]
}

struct Groups {
    table: GroupTable,
    way: Way,
    /// The pairs of a batch.
    pairs: Vec<(u64, u64)>,
}

impl Map for Groups {
    fn put_many(&mut self, keys: &[u64]) -> Result<()> {
        match self.way {
            Way::Batches => {
                self.pairs.clear();
                self.pairs.extend(keys.iter().map(|key| (*key, value_of(*key))));
                Ok(self.table.put_many(&self.pairs)?)
            }
            Way::OneByOne => {
                let put = |key: &u64| self.table.put(*key, value_of(*key)).map(drop);
                Ok(keys.iter().try_for_each(put)?)
            }
        }
    }

    fn get_many(&mut self, keys: &[u64], values: &mut [Option<u64>]) {
        match self.way {
            Way::Batches => self.table.get_many(keys, values),
            Way::OneByOne => {
                keys.iter().zip(values).for_each(|(key, value)| *value = self.table.get(*key));
            }
        }
    }

    fn len(&self) -> u64 {
        self.table.len()
    }

    fn counted_bytes(&self) -> Option<u64> {
        Some(self.table.stat().bytes)
    }
}

impl Chains for AppendTable {
    fn append_many(&mut self, records: &[Record]) -> Result<()> {
        Ok(AppendTable::append_many(self, records)?)
    }

    fn get(&mut self, key: &[u8; 8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.get_into(key, value))
    }

    fn len(&mut self) -> Result<u64> {
        Ok(AppendTable::len(self))
    }

    fn counted_bytes(&mut self) -> Result<Option<u64>> {
        Ok(Some(self.stat().bytes))
    }
}

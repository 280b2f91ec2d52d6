//! hashbrown, which is the map of the standard library, and dashmap.

use super::{
    peer::{Chains, Map, Peer, Record},
    puts::value_of,
};
use crate::Result;
use dashmap::DashMap;
use hashbrown::{DefaultHashBuilder, HashMap};
use std::{path::Path, sync::Arc};

/// Number of threads of dashmap where there are several.
const THREADS: usize = 2;

pub(super) fn of_puts() -> Vec<Peer> {
    let hashbrown =
        || -> Result<Vec<Box<dyn Map>>> { Ok(vec![Box::new(HashMap::<u64, u64>::new())]) };
    let dashmap = |threads: usize| {
        move || -> Result<Vec<Box<dyn Map>>> {
            let map = Shared(Arc::new(DashMap::default()));
            let handle = |_| -> Box<dyn Map> { Box::new(map.clone()) };
            Ok((0..threads).map(handle).collect())
        }
    };
    let note = "shards as by default, the hash of hashbrown";
    let two_note =
        "as dashmap; keys are divided by their last bit, so that the threads meet in all shards";
    let two = Peer::of_puts("dashmap, two threads", two_note, Box::new(dashmap(THREADS)));
    let two = two.on_threads(THREADS, Box::new(|key| (key % THREADS as u64) as usize));
    vec![
        Peer::of_puts(
            "hashbrown",
            "the table of the standard library, with the hash of hashbrown",
            Box::new(hashbrown),
        ),
        Peer::of_puts("dashmap", note, Box::new(dashmap(1))),
        two.without_curve(),
    ]
}

pub(super) fn of_appends() -> Peer {
    let new = |_: &Path| -> Result<Vec<Box<dyn Chains>>> {
        Ok(vec![Box::new(HashMap::<u64, Vec<u8>>::new())])
    };
    Peer::of_appends("hashbrown of Vec", "a vector of bytes for each key", Box::new(new))
}

impl Map for HashMap<u64, u64> {
    fn put_many(&mut self, keys: &[u64]) -> Result<()> {
        keys.iter().for_each(|key| _ = self.insert(*key, value_of(*key)));
        Ok(())
    }

    fn get_many(&mut self, keys: &[u64], values: &mut [Option<u64>]) {
        keys.iter().zip(values).for_each(|(key, value)| *value = self.get(key).copied());
    }

    fn len(&self) -> u64 {
        HashMap::len(self) as u64
    }

    fn counted_bytes(&self) -> Option<u64> {
        Some(self.allocation_size() as u64)
    }
}

/// A map that threads share.
#[derive(Clone)]
struct Shared(Arc<DashMap<u64, u64, DefaultHashBuilder>>);

impl Map for Shared {
    fn put_many(&mut self, keys: &[u64]) -> Result<()> {
        keys.iter().for_each(|key| _ = self.0.insert(*key, value_of(*key)));
        Ok(())
    }

    fn get_many(&mut self, keys: &[u64], values: &mut [Option<u64>]) {
        let get = |key| self.0.get(key).map(|value| *value);
        keys.iter().zip(values).for_each(|(key, value)| *value = get(key));
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl Chains for HashMap<u64, Vec<u8>> {
    fn append_many(&mut self, records: &[Record]) -> Result<()> {
        for (key, record) in records {
            self.entry(u64::from_le_bytes(*key)).or_default().extend_from_slice(record);
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8; 8], value: &mut Vec<u8>) -> Result<bool> {
        let found = HashMap::get(self, &u64::from_le_bytes(*key));
        value.clear();
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    fn len(&mut self) -> Result<u64> {
        Ok(HashMap::len(self) as u64)
    }
}

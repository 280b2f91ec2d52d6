//! Hashfold's map.

use super::{
    Options,
    engine::{Changes, Changing, Engine, Key, Looking, Lookups, Peer, Value, value_of},
};
use crate::Result;
use hashfold::{
    Seed,
    io::Access,
    map::{Durability, Map, MapOptions},
};
use std::path::{Path, PathBuf};

pub(super) struct Hashfold;

impl Peer for Hashfold {
    fn name(&self) -> String {
        "Hashfold".to_owned()
    }

    fn note(&self) -> String {
        "a budget of half of the memory; direct I/O; checksums; opened anew after each phase"
            .to_owned()
    }

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Engine>> {
        let options = MapOptions::new()
            .seed(Seed(options.common.seed))
            .memory(options.memory_bytes() / 2)
            .access(Access::Direct)
            .durability(Durability::Buffered);
        let map = Map::create(folder, options.clone())?;
        Ok(Box::new(Open { map: Some(map), folder: folder.to_owned(), options }))
    }
}

struct Open {
    /// `None` only while it is closed to be opened again.
    map: Option<Map>,
    folder: PathBuf,
    options: MapOptions,
}

impl Open {
    fn map(&self) -> &Map {
        self.map.as_ref().expect("it is open")
    }
}

impl Engine for Open {
    fn change(&self, work: &mut Changing<'_>) -> Result<()> {
        work(&mut self.map())
    }

    fn look_up(&self, work: &mut Looking<'_>) -> Result<()> {
        work(&mut self.map())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.map().sync()?)
    }

    /// Closing waits for all work in the background.
    fn settle(&mut self) -> Result<()> {
        let map = self.map.take().expect("it is open");
        let error = map.background_error();
        map.close()?;
        self.map = Some(Map::open_with(&self.folder, self.options.clone())?);
        error.map_or(Ok(()), |error| Err(error.into()))
    }

    fn commit(&self, key: &Key, value: &Value) -> Result<()> {
        Ok(self.map().wait_durable(self.map().put(key, value)?)?)
    }

    fn compact(&mut self) -> Result<()> {
        self.map().compact()?;
        self.settle()
    }
}

impl Lookups for &Map {
    fn get(&mut self, key: &Key) -> Result<Option<Value>> {
        Map::get(self, key)?.map(|value| value_of(&value)).transpose()
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        let values = Map::get_many(self, keys)?.into_iter();
        values.map(|value| value.map(|value| value_of(&value)).transpose()).collect()
    }
}

impl Changes for &Map {
    fn put(&mut self, key: &Key, value: &Value) -> Result<()> {
        Map::put(self, key, value)?;
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        Map::delete(self, key)?;
        Ok(())
    }
}

//! Maps on a disk that is full: they open, they can be read, and what the log takes serves writes again.

use super::{
    tests::{Model, check, folder, tiny},
    *,
};
use crate::{
    env::Env,
    error::{Error, Result},
    io::{Access, BlockFile, Disk, DiskLayer, FileLayer, MemoryDisk},
    work::Inline,
};
use rustix::io::Errno;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// A disk with space for a number of bytes in the files of the map whose names begin with `prefix`. Holes give nothing back.
#[derive(Clone, Debug)]
struct Small {
    disk: MemoryDisk,
    prefix: &'static str,
    space: Arc<AtomicU64>,
}

impl Small {
    fn new(prefix: &'static str) -> Small {
        let space = Arc::new(AtomicU64::new(u64::MAX));
        Small { disk: MemoryDisk::default(), prefix, space }
    }

    fn options(&self) -> MapOptions {
        let env =
            Env { disk: Arc::new(self.clone()), executor: Arc::new(Inline), ..Env::simulated(1) };
        // No checkpoint is due because of the log.
        tiny(env).wal_bytes(1 << 30)
    }

    /// Returns the size of these files, in bytes.
    fn used(&self) -> u64 {
        let size = |name: &String| {
            self.disk
                .open(&folder().join(name), Access::Cached)
                .map_or(0, |file| file.size().unwrap())
        };
        let names = self.disk.list(folder()).unwrap();
        names.iter().filter(|name| name.starts_with(self.prefix)).map(size).sum()
    }

    /// Leaves space for so many bytes more.
    fn leave(&self, bytes: u64) {
        self.space.store(self.used() + bytes, SeqCst);
    }

    fn heal(&self) {
        self.space.store(u64::MAX, SeqCst);
    }
}

impl DiskLayer for Small {
    fn below(&self) -> &dyn Disk {
        &self.disk
    }

    fn over_opened(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        let name = file.place().file.file_name().unwrap_or_default();
        match name.as_encoded_bytes().starts_with(self.prefix.as_bytes()) {
            true => Arc::new(SmallFile { file, disk: self.clone() }),
            false => file,
        }
    }
}

#[derive(Debug)]
struct SmallFile {
    file: Arc<dyn BlockFile>,
    disk: Small,
}

impl SmallFile {
    /// Refuses to let the file grow beyond what the disk has.
    fn check(&self, size: u64) -> Result<()> {
        let more = size.saturating_sub(self.file.size()?);
        if more == 0 || self.disk.used() + more <= self.disk.space.load(SeqCst) {
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error());
        Err(Error::io("write", source).at(self.place()))
    }
}

impl FileLayer for SmallFile {
    fn below(&self) -> &dyn BlockFile {
        &*self.file
    }

    fn before_write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset + bytes.len() as u64)
    }

    fn before_allocate(&self, size: u64) -> Result<()> {
        self.check(size)
    }
}

fn key(i: u32) -> Vec<u8> {
    i.to_be_bytes().to_vec()
}

/// The log has more changes than fit in the buffer, and the disk has no space to flush them.
#[test]
fn a_map_opens_on_a_full_disk_and_goes_on_when_there_is_space() {
    let disk = Small::new("");
    let map = Map::create(folder(), disk.options()).unwrap();
    let mut model = Model::new();
    for i in 0..2000 {
        map.put(key(i), [i as u8; 30]).unwrap();
        model.insert(key(i), vec![i as u8; 30]);
    }
    drop(map);
    disk.leave(0);
    let map = Map::open_with(folder(), disk.options()).unwrap();
    assert!(map.core().buffered_bytes() > map.core().buffer_bytes_max());
    check(&map, &model, 10, "full");
    for _ in 0..2 {
        assert!(map.put("key", "value").unwrap_err().is_full());
        assert!(map.transact(|it| it.put("key", "value")).unwrap_err().is_full());
        assert!(map.checkpoint().unwrap_err().is_full());
    }
    check(&map, &model, 10, "after changes that were refused");
    disk.heal();
    map.put("key", "value").unwrap();
    model.insert(b"key".to_vec(), b"value".to_vec());
    check(&map, &model, 10, "with space");
    map.close().unwrap();
    let map = Map::open_with(folder(), disk.options()).unwrap();
    check(&map, &model, 10, "opened again");
}

/// Changes of the same keys go on for ever, though the log has no space for all of them.
#[test]
fn a_write_that_finds_no_space_takes_that_of_the_log() {
    let disk = Small::new("wal-");
    let map = Map::create(folder(), disk.options()).unwrap();
    let mut model = Model::new();
    let mut put = |map: &Map, i: u32| {
        let (key, value) = (key(i % 300), vec![i as u8; 40]);
        let put = match i.is_multiple_of(3) {
            true => map.transact(|transaction| transaction.put(&key, &value)),
            false => map.put(&key, &value).map(drop),
        };
        put.unwrap_or_else(|error| panic!("change {i}: {error}, {:?}", map.background_error()));
        model.insert(key, value);
    };
    (0..1000).for_each(|i| put(&map, i));
    let checkpoints = map.stat().checkpoints;
    disk.leave(100 << 10);
    (1000..20_000).for_each(|i| put(&map, i));
    assert!(map.stat().checkpoints > checkpoints + 10, "{:?}", map.stat());
    drop(map);
    let map = Map::open_with(folder(), disk.options()).unwrap();
    check(&map, &model, 10, "opened again");
    map.delete(key(1)).unwrap();
    map.compact().unwrap();
}

//! Maps on a device that fails in part: unreadable blocks, a failure that one sync reports, a file
//! that grows at a bad moment or not beyond a size, a disk that is full until a hole is punched.

use super::{
    checkpoint::{Goal, checkpoint},
    tests::{Model, Numbers, check, folder, tiny},
    *,
};
use crate::{
    env::Env,
    error::{ErrorClass, ErrorKind, Result},
    io::{
        Access, BlockFile, Disk, DiskLayer, Extent, FaultPlan, FaultyDisk, FileLayer, MemoryDisk,
    },
};
use rustix::io::Errno;
use std::{
    collections::BTreeSet,
    io,
    os::unix::ffi::OsStrExt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

/// A disk whose data file, and files that say which device a folder is, fail as told.
#[derive(Clone, Debug)]
pub(super) struct Failing {
    disk: Arc<dyn Disk>,
    pub(super) faults: Arc<Faults>,
}

#[derive(Debug)]
pub(super) struct Faults {
    /// Places of blocks that cannot be read.
    pub(super) unreadable: Mutex<BTreeSet<String>>,
    /// Whether writes fail for lack of space. A hole ends that.
    pub(super) is_full: AtomicBool,
    /// Whether the next sync fails. Later ones do not, as on Linux.
    fails_sync: AtomicBool,
    /// Number of bytes by which the file grows after each sync, as if by another thread.
    growth: AtomicU64,
    /// The size in bytes beyond which the file cannot be allocated.
    pub(super) size_max: AtomicU64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            unreadable: Mutex::default(),
            is_full: AtomicBool::new(false),
            fails_sync: AtomicBool::new(false),
            growth: AtomicU64::new(0),
            size_max: AtomicU64::new(u64::MAX),
        }
    }
}

impl Failing {
    pub(super) fn on(disk: impl Disk + 'static) -> Failing {
        Failing { disk: Arc::new(disk), faults: Arc::default() }
    }

    fn options(&self) -> MapOptions {
        tiny(Env { disk: Arc::new(self.clone()), ..Env::simulated(1) })
    }
}

impl DiskLayer for Failing {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn over_opened(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        let name = file.place().file.file_name().unwrap_or_default();
        let is_device = name.as_bytes().starts_with(devices::DEVICE_NAME.as_bytes());
        match is_device || name == devices::DATA_NAME {
            true => Arc::new(FailingFile { file, faults: self.faults.clone() }),
            false => file,
        }
    }
}

#[derive(Debug)]
struct FailingFile {
    file: Arc<dyn BlockFile>,
    faults: Arc<Faults>,
}

impl FailingFile {
    fn refused(&self, action: &'static str, errno: Errno) -> Result<()> {
        let source = io::Error::from_raw_os_error(errno.raw_os_error());
        Err(crate::error::Error::io(action, source).at(self.place()))
    }
}

impl FileLayer for FailingFile {
    fn below(&self) -> &dyn BlockFile {
        &*self.file
    }

    fn before_read(&self, Extent { offset, len }: Extent) -> Result<()> {
        let blocks = offset / 4096..(offset + len as u64).div_ceil(4096);
        let unreadable = self.faults.unreadable.lock().unwrap();
        let place = |block: u64| self.file.place_at(block * 4096).to_string();
        let is_read =
            !unreadable.is_empty() && blocks.map(place).any(|it| unreadable.contains(&it));
        if is_read { self.refused("read", Errno::IO) } else { Ok(()) }
    }

    fn before_write(&self, _: u64, _: &[u8]) -> Result<()> {
        match self.faults.is_full.load(SeqCst) {
            true => self.refused("write", Errno::NOSPC),
            false => Ok(()),
        }
    }

    fn before_allocate(&self, size: u64) -> Result<()> {
        match size > self.faults.size_max.load(SeqCst) {
            true => self.refused("write", Errno::NOSPC),
            false => Ok(()),
        }
    }

    fn before_hole(&self, _: Extent) -> Result<()> {
        self.faults.is_full.store(false, SeqCst);
        Ok(())
    }

    fn before_sync(&self) -> Result<()> {
        match self.faults.fails_sync.swap(false, SeqCst) {
            true => self.refused("sync", Errno::IO),
            false => Ok(()),
        }
    }

    fn after_sync(&self) -> Result<()> {
        match self.faults.growth.load(SeqCst) {
            0 => Ok(()),
            more => self.file.allocate(self.file.size()? + more),
        }
    }
}

/// A large value whose sync fails takes the report from the checkpoint that runs meanwhile.
#[test]
fn a_checkpoint_fails_if_another_sync_has_reported_the_lost_write() {
    let disk = Failing::on(MemoryDisk::default());
    let map = Map::create(folder(), disk.options()).unwrap();
    map.put("key", "value").unwrap();
    let published = map.core().published().generation;
    let is_failed_before =
        |error: crate::error::Error| matches!(error.kind(), ErrorKind::FailedBefore { .. });
    let error = checkpoint(map.core(), Goal::All, || {
        disk.faults.fails_sync.store(true, SeqCst);
        assert_eq!(map.put("large", [1; 5000]).unwrap_err().class(), ErrorClass::Io);
        Ok(())
    });
    assert!(is_failed_before(error.unwrap_err()));
    assert_eq!(map.core().published().generation, published);
    assert!(is_failed_before(map.put("large", [1; 5000]).unwrap_err()));
    assert!(is_failed_before(map.checkpoint().unwrap_err()));
    drop(map);
    let map = Map::open_with(folder(), disk.options()).unwrap();
    check(&map, &Model::from([(b"key".to_vec(), b"value".to_vec())]), 10, "opened again");
}

/// The file grows between the sync of a checkpoint and its manifest, and the power fails.
#[test]
fn the_manifest_names_no_larger_file_than_a_power_cut_leaves() {
    let faulty = FaultyDisk::new(FaultPlan::default());
    let disk = Failing::on(faulty.clone());
    let map = Map::create(folder(), disk.options()).unwrap();
    map.put("key", "value").unwrap();
    disk.faults.growth.store(1 << 20, SeqCst);
    map.checkpoint().unwrap();
    let model = Model::from([(b"key".to_vec(), b"value".to_vec())]);
    for seed in 0..20 {
        let left = Failing::on(faulty.after_power_cut(seed));
        let map = Map::open_with(folder(), left.options()).unwrap();
        check(&map, &model, 10, &format!("seed {seed}"));
    }
}

/// Makes a map in which each group has a block that `spoil` is called with. Then changes it until
/// each group has to be merged many times over.
fn check_goes_on(spoil: impl Fn(&Failing, u64)) {
    let disk = Failing::on(MemoryDisk::default());
    let options = disk.options();
    let map = Map::create(folder(), options.clone()).unwrap();
    let key = |i: u32| i.to_le_bytes();
    map.put_many((0..3000).map(|i| (key(i), [1; 20]))).unwrap();
    map.compact().unwrap();
    for group in map.core().directory.all() {
        if let Some(span) = &group.state().stored.span {
            spoil(&disk, span.blocks.first);
        }
    }
    let mut random = Numbers::new(3);
    let mut model = Model::new();
    for i in 0..6000 {
        let (key, value) = (key(random.below(3000)), vec![i as u8; 60]);
        map.put(key, &value).unwrap();
        model.insert(key.to_vec(), value);
        assert_eq!(map.get(key).unwrap().as_ref(), model.get(&key[..]), "change {i}");
    }
    assert!(map.background_error().is_some());
    map.checkpoint().unwrap();
    assert_eq!(map.core().counters.log_bytes.load(SeqCst), 0);
    // The log has changes that do not fit in the buffer.
    let options = options.durability(Durability::Buffered).wal_bytes(1 << 30);
    drop(map);
    let map = Map::open_with(folder(), options.clone()).unwrap();
    for i in 0..1000 {
        map.put(key(i), [7; 60]).unwrap();
        model.insert(key(i).to_vec(), vec![7; 60]);
    }
    drop(map);
    let map = Map::open_with(folder(), options).unwrap();
    assert!(model.iter().all(|(key, value)| map.get(key).unwrap().as_ref() == Some(value)));
}

#[test]
fn blocks_that_cannot_be_read_stop_no_writes_no_checkpoints_and_no_opening() {
    check_goes_on(|disk, block| {
        let path = folder().join(devices::DATA_NAME);
        let place = crate::error::Place::file(&path).offset(block * 4096);
        disk.faults.unreadable.lock().unwrap().insert(place.to_string());
    });
}

#[test]
fn damaged_blocks_stop_no_writes_no_checkpoints_and_no_opening() {
    check_goes_on(|disk, block| {
        let path = folder().join(devices::DATA_NAME);
        let file = disk.below().open_to_write(&path, Access::Cached).unwrap();
        file.write_at(block * 4096, &[0; 4096]).unwrap();
    });
}

#[test]
fn checkpoints_go_on_after_a_panic_in_one() {
    let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
    map.put("key", "value").unwrap();
    let panics = || _ = checkpoint(map.core(), Goal::All, || panic!("planned"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    map.checkpoint().unwrap();
    map.compact().unwrap();
    map.close().unwrap();
}

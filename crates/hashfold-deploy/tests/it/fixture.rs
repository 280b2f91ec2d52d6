//! Helpers: stores with a few versions, a naive remote, and comparisons.

use crate::naive::Naive;
use hashfold::{
    Env, ReadOptions, Seed, Store, StoreOptions,
    io::{Access, Disk, FaultPlan, FaultyDisk, MemoryDisk, read_all},
    run::{Run, SortOptions},
    store::{Pointer, Version, verify},
    work::Watch,
};
use hashfold_deploy::{FetchOptions, Fetched, Remote, SigningKey, fetch, push, push_signed};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The content of a version.
pub(crate) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A builder's store, a remote, and the environment of both and of the nodes.
pub(crate) struct Scene {
    pub(crate) env: Env,
    pub(crate) naive: Arc<Naive>,
    pub(crate) remote: Remote,
    /// The content of each version of the builder's store, by number.
    pub(crate) versions: BTreeMap<u64, Pairs>,
}

/// The folder of the builder's store.
pub(crate) fn builder() -> &'static Path {
    Path::new("builder")
}

/// The folder of a node's store.
pub(crate) fn node() -> &'static Path {
    Path::new("node")
}

impl Scene {
    /// A store with two versions of values of this size: the second changes a tenth of the keys.
    pub(crate) fn new(seed: u64, value_size: usize) -> Scene {
        let mut scene = Scene::empty(seed);
        scene.add_version(builder(), 30, value_size);
        scene.add_version(builder(), 3, value_size);
        scene
    }

    pub(crate) fn empty(seed: u64) -> Scene {
        let env = Env::simulated(seed);
        let naive = Arc::new(Naive::new(seed, &env.clock));
        let remote = Remote::new(naive.clone());
        Scene { env, naive, remote, versions: BTreeMap::new() }
    }

    /// Publishes a version of a store in which this number of keys are changed.
    pub(crate) fn add_version(&mut self, folder: &Path, keys: u64, value_size: usize) -> u64 {
        let options = StoreOptions::new().env(self.env.clone()).seed(Seed(1)).chunks(2);
        let store = Store::open_or_create_with(folder, options).unwrap();
        let number = Pointer::read(self.env.disk.as_ref(), folder).unwrap().newest + 1;
        let mut pairs = self.versions.get(&(number - 1)).cloned().unwrap_or_default();
        let mut update = store.update_within(SortOptions::within(1 << 20)).unwrap();
        for key in 0..keys {
            let key = format!("key {key}").into_bytes();
            let value = format!("{number} ").into_bytes().repeat(value_size / 2 + 1);
            update.put(&key, &value).unwrap();
            pairs.insert(key, value);
        }
        update.publish().unwrap();
        self.versions.insert(number, pairs);
        number
    }

    #[track_caller]
    pub(crate) fn push(&self, number: u64) {
        let watch = Watch::default();
        push(&self.env, builder(), Some(number), &self.remote, "people", &watch).unwrap();
    }

    #[track_caller]
    pub(crate) fn push_signed(&self, number: u64, key: &SigningKey) {
        let (env, watch) = (&self.env, Watch::default());
        push_signed(env, builder(), Some(number), &self.remote, "people", key, &watch).unwrap();
    }

    /// Fetches a version into the node's store.
    pub(crate) fn fetch(&self, number: u64) -> hashfold_deploy::Result<Fetched> {
        let (options, watch) = (one_lane(), Watch::default());
        fetch(&self.env, &self.remote, "people", number, node(), &options, &watch)
    }

    /// Checks that a version of a node's store is complete, and has the right entries.
    #[track_caller]
    pub(crate) fn check(&self, folder: &Path, number: u64) {
        check(&self.env, folder, number, &self.versions[&number]);
    }
}

/// Options that fetch the pieces in order.
pub(crate) fn one_lane() -> FetchOptions {
    FetchOptions { lanes: 1, ..FetchOptions::default() }
}

#[track_caller]
pub(crate) fn check(env: &Env, folder: &Path, number: u64, expected: &Pairs) {
    let version = Version::open(folder, number, &ReadOptions::new().env(env.clone()));
    let version = version.and_then(Version::whole).unwrap();
    assert!(scanned(&version) == *expected, "version {number}");
    let report = verify(env, folder, number, &Watch::default()).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

pub(crate) fn scanned(version: &Version) -> Pairs {
    let mut pairs = Pairs::new();
    for chunks in version.parts() {
        let mut run = version.scan_chunks(chunks);
        while run.advance().unwrap() {
            let value = run.entry().value.unwrap().to_vec();
            pairs.insert(run.entry().key.to_vec(), value);
        }
    }
    pairs
}

/// Returns all files below a folder, by their paths from there.
pub(crate) fn files(disk: &dyn Disk, folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in disk.list(folder).unwrap() {
        let path = folder.join(&name);
        match disk.list(&path) {
            Ok(_) => {
                let inside = files(disk, &path);
                all.extend(
                    inside.into_iter().map(|(file, bytes)| (Path::new(&name).join(file), bytes)),
                );
            }
            Err(_) => {
                let file = disk.open(&path, Access::Cached).unwrap();
                all.insert(name.into(), read_all(file.as_ref(), 1 << 30).unwrap().to_vec());
            }
        }
    }
    all
}

/// Returns a disk with the same files, and a fault.
pub(crate) fn faulty(disk: &MemoryDisk, plan: impl Into<FaultPlan>) -> FaultyDisk {
    FaultyDisk::over(disk, plan.into())
}

pub(crate) fn current(env: &Env, folder: &Path) -> Option<u64> {
    Pointer::read(env.disk.as_ref(), folder).unwrap().current
}

/// Returns a disk with the same files.
pub(crate) fn memory_of(disk: &dyn Disk) -> MemoryDisk {
    let copy = MemoryDisk::default();
    for (path, bytes) in files(disk, Path::new("")) {
        copy.create_folder(path.parent().unwrap()).unwrap();
        copy.create(&path, Access::Cached).unwrap().write_at(0, &bytes).unwrap();
    }
    copy
}

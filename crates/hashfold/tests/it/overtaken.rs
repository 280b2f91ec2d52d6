//! Readers whose data set is changed by its writer while they open it.

use crate::{
    crash::{disk_with, replacing},
    fixture::{SEED, check_holds, fixed, folder, on, open, try_build},
};
use hashfold::{
    Env, ErrorKind, KeyHash,
    filter::cascade::{self, CascadeFilter, CascadeOptions, CascadeSettings, Snapshot},
    io::{Access, Disk, DiskLayer, MemoryDisk},
    run::SortOptions,
    table::IndexChoice,
};
use std::{
    path::Path,
    sync::{Arc, Mutex},
};

/// A disk that runs a closure just before each opening of a file whose name starts with `name`.
struct Meanwhile {
    disk: MemoryDisk,
    name: &'static str,
    act: Mutex<Box<dyn FnMut() + Send>>,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meanwhile").field("name", &self.name).finish_non_exhaustive()
    }
}

impl DiskLayer for Meanwhile {
    fn below(&self) -> &dyn Disk {
        &self.disk
    }

    fn before_open(&self, path: &Path) {
        if path.file_name().unwrap().to_str().unwrap().starts_with(self.name) {
            (self.act.lock().unwrap())();
        }
    }
}

/// Another manifest may be published between reading the manifest and opening its files.
#[test]
fn a_table_that_is_replaced_while_it_is_opened_opens() {
    for name in ["data", "index"] {
        let (old, new) = (fixed(40, 1), fixed(60, 2));
        let disk = disk_with(&old);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut pairs = Some(new.clone());
        let act = move || {
            let Some(pairs) = pairs.take() else { return };
            let options = replacing(IndexChoice::Dense, 2);
            try_build(&shared, folder(), &pairs, options, SortOptions::default()).unwrap();
        };
        let disk: Arc<dyn Disk> =
            Arc::new(Meanwhile { disk, name, act: Mutex::new(Box::new(act)) });
        check_holds(&open(&disk, folder()).unwrap(), &new);
    }
}

/// A merge removes the runs that a reader is about to open.
#[test]
fn a_filter_that_is_merged_while_it_is_opened_opens_unless_merges_never_end() {
    for (merges, is_open) in [(1, true), (40, true), (usize::MAX, false)] {
        let disk = MemoryDisk::default();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let settings = CascadeSettings {
            memory_bytes: cascade::MEMORY_MIN,
            ..CascadeSettings::new(Env::simulated(1))
        };
        let options = CascadeOptions::exact(SEED, 2);
        let mut filter = CascadeFilter::create(folder(), &options, on(shared, settings)).unwrap();
        let mut key = 0_u64;
        let mut merge = move || {
            key += 1;
            filter.insert(KeyHash::of(&key.to_le_bytes(), SEED)).unwrap();
            filter.merge().unwrap();
        };
        merge();
        let mut left = merges;
        let act = move || {
            if left > 0 {
                left -= 1;
                merge();
            }
        };
        let name = "run-";
        let disk = Meanwhile { disk, name, act: Mutex::new(Box::new(act)) };
        match Snapshot::open(&Env::on(Arc::new(disk)), folder(), Access::Cached) {
            Ok(snapshot) => {
                assert!(is_open, "it was opened beside endless merges");
                let last = KeyHash::of(&(merges as u64 + 1).to_le_bytes(), SEED);
                assert!(snapshot.contains(last).unwrap());
            }
            Err(error) => {
                assert!(!is_open, "{error}");
                assert!(matches!(error.kind(), ErrorKind::Busy), "{error}");
            }
        }
    }
}

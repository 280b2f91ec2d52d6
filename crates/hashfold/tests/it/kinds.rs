//! Every way to open or create a data set, in a folder of every kind: an error that names both
//! kinds, and no change. Issue 10, point 10; issue 11, point 1.

use crate::{
    fixture::{SEED, on, options, pairs, try_build},
    store_fixture::{
        changes, copy_folder, copy_of, files_below, publish, store_options, try_create,
    },
};
use hashfold::{
    Env, Error, ErrorKind, ReadOptions, Result,
    filter::cascade::{self, CascadeFilter, CascadeOptions, CascadeSettings, Snapshot},
    folder::Contents,
    io::{Access, Disk, MemoryDisk},
    manifest::Kind,
    map::{self, Map, MapOptions},
    run::SortOptions,
    store::{Pointer, StoreReader, StoreWriter, UpdateMode},
    table::{IndexChoice, IndexOptions, Table, TableBuilder, TableOptions, reindex},
    work::{Inline, Watch},
};
use std::{path::Path, sync::Arc};

const FOLDERS: [(&str, Kind); 4] =
    [("table", Kind::Table), ("store", Kind::Store), ("filter", Kind::Filter), ("map", Kind::Map)];

fn settings() -> CascadeSettings {
    CascadeSettings {
        memory_bytes: cascade::MEMORY_MIN,
        env: Env { executor: Arc::new(Inline), ..Env::simulated(1) },
        ..CascadeSettings::new(Env::simulated(1))
    }
}

/// Returns a disk with a table, a store, a filter and a map, each in a folder with the name of its kind.
fn all_kinds() -> MemoryDisk {
    let disk = MemoryDisk::default();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let entries = pairs(20, 1, |_| 8, |_| 8);
    let table = Path::new("table");
    try_build(&shared, table, &entries, options(IndexChoice::Dense, 1), SortOptions::default())
        .unwrap();
    publish(&mut try_create(&shared, 1).unwrap(), &changes(1, 10), UpdateMode::Merge, 1);
    let options = CascadeOptions::exact(SEED, 1);
    let mut filter =
        CascadeFilter::create(Path::new("filter"), &options, on(shared.clone(), settings()))
            .unwrap();
    for key in 0..100_u64 {
        let hash = filter.hash(&key.to_le_bytes());
        filter.insert(hash).unwrap();
    }
    filter.close().unwrap();
    let map = Map::create("map", map_options(&shared)).unwrap();
    map.put("key", "value").unwrap();
    map.close().unwrap();
    disk
}

fn map_options(disk: &Arc<dyn Disk>) -> MapOptions {
    MapOptions::new().env(Env::on(disk.clone()))
}

type Verb = fn(&Arc<dyn Disk>, &Path) -> Result<()>;

fn build(disk: &Arc<dyn Disk>, folder: &Path, replace: bool) -> Result<()> {
    let options = TableOptions::new().seed(SEED).id(2).replace(replace);
    TableBuilder::with(folder, options.env(Env::on(disk.clone()))).map(|_| ())
}

/// A verb, the kind of data set that it is for, and its function.
const VERBS: [(&str, Kind, Verb); 14] = [
    ("build", Kind::Table, |disk, folder| build(disk, folder, false)),
    ("build --replace", Kind::Table, |disk, folder| build(disk, folder, true)),
    ("open a table", Kind::Table, |disk, folder| {
        Table::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone()))).map(|_| ())
    }),
    ("reindex", Kind::Table, |disk, folder| {
        reindex(&Env::on(disk.clone()), folder, &IndexOptions::default(), &Watch::default())
            .map(|_| ())
    }),
    ("create a store", Kind::Store, |disk, folder| {
        StoreWriter::create(folder, store_options(1).env(Env::on(disk.clone()))).map(|_| ())
    }),
    ("open a store", Kind::Store, |disk, folder| {
        StoreWriter::open(&Env::on(disk.clone()), folder).map(|_| ())
    }),
    ("follow a store", Kind::Store, |disk, folder| {
        StoreReader::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone()))).map(|_| ())
    }),
    ("create a filter", Kind::Filter, |disk, folder| {
        let options = CascadeOptions::exact(SEED, 2);
        CascadeFilter::create(folder, &options, on(disk.clone(), settings())).map(|_| ())
    }),
    ("open a filter", Kind::Filter, |disk, folder| {
        CascadeFilter::open(folder, on(disk.clone(), settings())).map(|_| ())
    }),
    ("read a filter", Kind::Filter, |disk, folder| {
        Snapshot::open(&Env::on(disk.clone()), folder, Access::Cached).map(|_| ())
    }),
    ("create a map", Kind::Map, |disk, folder| Map::create(folder, map_options(disk)).map(|_| ())),
    ("open a map", Kind::Map, |disk, folder| Map::open_with(folder, map_options(disk)).map(|_| ())),
    ("verify a map", Kind::Map, |disk, folder| {
        map::verify(&Env::on(disk.clone()), folder, &Watch::default()).map(|_| ())
    }),
    ("verify a filter", Kind::Filter, |disk, folder| {
        cascade::verify(&Env::on(disk.clone()), folder, &Watch::default()).map(|_| ())
    }),
];

/// Runs the verb and returns its error. Checks that it changed nothing.
#[track_caller]
fn refused(disk: &MemoryDisk, folder: &Path, verb: Verb, context: &str) -> Error {
    let before = files_below(disk, Path::new(""));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let error = verb(&shared, folder).err().unwrap_or_else(|| panic!("{context}: it was done"));
    assert!(files_below(disk, Path::new("")) == before, "{context}: files changed");
    error
}

#[test]
fn a_data_set_of_another_kind_is_refused_by_both_names() {
    for (name, kind) in FOLDERS {
        for (verb_name, wanted, verb) in VERBS {
            if wanted == kind {
                continue;
            }
            let context = format!("{verb_name} on a {name}");
            let error = refused(&all_kinds(), Path::new(name), verb, &context);
            let ErrorKind::WrongKind { expected, got } = *error.kind() else {
                panic!("{context}: {error}")
            };
            assert_eq!((expected, got), (wanted.name(), kind.name()), "{context}");
            assert_eq!(&*error.place().unwrap().file, Path::new(name), "{context}");
        }
    }
}

/// A filter without its manifest and a store without `CURRENT` do not count as free folders.
#[test]
fn nothing_is_made_over_a_data_set_that_lost_its_first_file() {
    for (name, kind) in FOLDERS {
        for (verb_name, wanted, verb) in VERBS {
            let context = format!("{verb_name} on a {name} without its first file");
            let disk = all_kinds();
            let first = if kind == Kind::Store { "CURRENT" } else { "MANIFEST" };
            disk.remove(&Path::new(name).join(first)).unwrap();
            assert_eq!(Contents::of(&disk, Path::new(name)).unwrap(), Contents::Headless(kind));
            if kind == Kind::Table && verb_name.starts_with("build") {
                // The remains of a killed build look alike, and are replaced.
                continue;
            }
            let error = refused(&disk, Path::new(name), verb, &context);
            match error.kind() {
                ErrorKind::Missing { .. } => assert_eq!(wanted, kind, "{context}"),
                ErrorKind::WrongKind { .. } => assert_ne!(wanted, kind, "{context}"),
                _ => panic!("{context}: {error}"),
            }
        }
    }
    assert!(Pointer::read(&all_kinds(), Path::new("nothing")).unwrap_err().is_absent());
}

#[test]
fn nothing_is_made_inside_of_a_data_set() {
    for (name, _) in FOLDERS {
        for below in ["x", "tables/x", "versions/x", "a/b/c"] {
            for (verb_name, _, verb) in VERBS {
                if !verb_name.starts_with("build") && !verb_name.starts_with("create") {
                    continue;
                }
                let folder = Path::new(name).join(below);
                let context = format!("{verb_name} in {}", folder.display());
                let error = refused(&all_kinds(), &folder, verb, &context);
                assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{context}: {error}");
                assert!(error.to_string().contains(&format!("outside of the {name} {name}")));
            }
        }
    }
    // Building is allowed beside a data set, and in a folder with another program's files of these
    // names.
    let disk = all_kinds();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    for name in ["CURRENT", "MANIFEST"] {
        let folder = Path::new("other");
        disk.create_folder(folder).unwrap();
        let file = disk.create(&folder.join(name), Access::Cached).unwrap();
        file.write_at(0, b"include README.md\n").unwrap();
    }
    for folder in ["beside", "other/table"] {
        build(&shared, Path::new(folder), false).unwrap();
    }
}

#[test]
fn a_copy_of_a_data_set_is_of_its_kind() {
    let disk = all_kinds();
    for (name, kind) in FOLDERS {
        let copy = copy_of(&disk);
        copy_folder(&disk, Path::new(name), &copy, Path::new("moved"));
        assert_eq!(Contents::of(&copy, Path::new("moved")).unwrap(), Contents::DataSet(kind));
        assert_eq!(Contents::of(&copy, Path::new("nowhere")).unwrap(), Contents::Nothing);
    }
}

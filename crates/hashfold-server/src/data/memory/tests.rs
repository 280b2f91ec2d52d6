//! The memory of data sets in memory: their limits, and what loading takes.

use super::{MemorySettings, ServedMemory, saved::Source};
use hashfold::{
    Env, Result, Store, StoreOptions, TableBuilder, table::TableOptions, work::MemoryBudget,
};
use std::path::PathBuf;

const LIMIT: usize = 8 << 20;

/// Number of entries of a table or a store.
const ENTRIES: usize = 2000;

/// Returns the settings of a data set that begins with what is in a folder.
fn settings(load: Option<&str>) -> MemorySettings {
    MemorySettings {
        path: None,
        load: load.map(PathBuf::from),
        memory_bytes: LIMIT,
        is_writable: true,
        threads: 1,
    }
}

fn open(env: &Env, load: Option<&str>) -> Result<ServedMemory> {
    ServedMemory::open("clicks", settings(load), (env, &MemoryBudget::unlimited()))
}

/// Makes a table with values of a size.
fn make_table(env: &Env, folder: &str, size: usize) {
    let mut table = TableBuilder::with(folder, TableOptions::new().env(env.clone())).unwrap();
    for i in 0..ENTRIES {
        table.push(format!("key-{i}"), vec![b'v'; size]).unwrap();
    }
    table.finish().unwrap();
}

/// Puts values of a size until some are refused, and calls `check` after every few. Returns the keys.
fn fill(memory: &ServedMemory, size: usize, check: impl Fn()) -> Vec<String> {
    const AT_ONCE: usize = 64;
    let (value, mut all) = (vec![b'v'; size], Vec::new());
    loop {
        let first = all.len();
        let keys: Vec<String> = (first..first + AT_ONCE).map(|i| format!("{size}-{i}")).collect();
        let mut refused = 0;
        let put = memory.change_many(&memory.begin_together(), &keys, |_, slot| {
            let is_put = slot.put(&value).is_ok();
            refused += usize::from(!is_put);
            is_put
        });
        put.unwrap();
        all.extend(keys);
        check();
        if refused > AT_ONCE / 8 {
            return all;
        }
    }
}

#[test]
fn a_data_set_takes_no_more_memory_than_its_limit() {
    let memory = open(&Env::simulated(1), None).unwrap();
    for size in [0, 10, 100, 3_000, 20_000, 200_000] {
        let check = || {
            let bytes = memory.stat().bytes;
            assert!(bytes <= LIMIT as u64, "values of {size} bytes: {bytes}");
        };
        let keys = fill(&memory, size, check);
        memory
            .change_many(&memory.begin_together(), &keys, |_, slot| slot.append("more").is_ok())
            .unwrap();
        check();
        memory
            .change_many(&memory.begin_together(), &keys, |_, slot| {
                slot.remove().is_ok_and(|was_there| was_there)
            })
            .unwrap();
        check();
        assert_eq!(memory.count(), 0);
    }
}

#[test]
fn loading_takes_no_memory_for_an_index() {
    let env = Env::simulated(1);
    make_table(&env, "table", 10);
    let store = Store::open_or_create_with("store", StoreOptions::new().env(env.clone())).unwrap();
    let mut update = store.update().unwrap();
    (0..ENTRIES).for_each(|i| update.put(format!("key-{i}"), "1").unwrap());
    update.publish().unwrap();
    for folder in ["table", "store"] {
        let index_bytes = match Source::open(&env, &settings(Some(folder))).unwrap().unwrap() {
            Source::Table(table) => table.stats().index_bytes,
            Source::Version(version) => version.index_bytes(),
        };
        assert_eq!(index_bytes, 0, "{folder}");
        assert_eq!(open(&env, Some(folder)).unwrap().count(), ENTRIES as u64, "{folder}");
    }
}

#[test]
fn data_that_do_not_fit_say_what_to_raise() {
    let env = Env::simulated(1);
    make_table(&env, "table", LIMIT / ENTRIES);
    let error = open(&env, Some("table")).unwrap_err().to_string();
    assert!(error.contains("data set \"clicks\" is loaded with; raise `memory`"), "{error}");
}

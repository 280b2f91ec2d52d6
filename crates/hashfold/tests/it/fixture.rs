//! Helpers of all tests: small tables, and maps of their content.

use hashfold::{
    Env, Error, KeyHash, ReadOptions, Result, Seed,
    filter::cascade::CascadeSettings,
    io::{Access, Disk, MemoryDisk},
    run::{Run, SortOptions},
    table::{IndexChoice, IndexOptions, Table, TableBuilder, TableOptions, TableStats},
    work::{Executor, Inline, Watch},
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// The content of a table.
pub(crate) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// The folder of a test's table.
pub(crate) const FOLDER: &str = "table";

pub(crate) const SEED: Seed = Seed(7);

pub(crate) const CHOICES: [IndexChoice; 3] =
    [IndexChoice::Dense, IndexChoice::Sparse, IndexChoice::Fences];

pub(crate) fn folder() -> &'static Path {
    Path::new(FOLDER)
}

pub(crate) fn memory() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::default())
}

pub(crate) fn index(choice: IndexChoice) -> IndexOptions {
    IndexOptions { choice, ..IndexOptions::default() }
}

pub(crate) fn options(choice: IndexChoice, id: u64) -> TableOptions {
    TableOptions::new().seed(SEED).id(id).index(index(choice))
}

/// Pseudorandom numbers, the same in every test run.
pub(crate) fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut i = 0_u64;
    move || {
        i += 1;
        KeyHash::of(&i.to_le_bytes(), Seed(seed)).low()
    }
}

/// Returns `count` pairs whose sizes are functions of their number, and whose bytes depend on
/// `seed`.
pub(crate) fn pairs(
    count: u64,
    seed: u64,
    key_size: impl Fn(u64) -> usize,
    value_size: impl Fn(u64) -> usize,
) -> Pairs {
    let mut random = random(seed);
    let mut bytes = move |size: usize| -> Vec<u8> { (0..size).map(|_| random() as u8).collect() };
    (0..count)
        .map(|i| {
            let mut key = i.to_le_bytes().to_vec();
            key.resize(key_size(i).max(8), 0);
            key[8..].copy_from_slice(&bytes(key_size(i).max(8) - 8));
            (key, bytes(value_size(i)))
        })
        .collect()
}

/// Returns pairs of equal sizes.
pub(crate) fn fixed(count: u64, seed: u64) -> Pairs {
    pairs(count, seed, |_| 8, |_| 24)
}

/// Returns pairs of many sizes, one of them larger than a block.
pub(crate) fn variable(count: u64, seed: u64) -> Pairs {
    let value_size = |i| if i == count / 2 { 5000 } else { (i * 7 % 61) as usize };
    pairs(count, seed, |i| 8 + (i % 5) as usize, value_size)
}

/// Returns pairs of equal sizes, whose blocks have tags.
pub(crate) fn tagged(count: u64, seed: u64) -> Pairs {
    pairs(count, seed, |_| 8, |_| 40)
}

/// Returns pairs of many sizes, one of them larger than a block, whose blocks have tags.
pub(crate) fn slotted(count: u64, seed: u64) -> Pairs {
    let value_size = |i| if i == count / 2 { 5000 } else { (i * 7 % 191) as usize };
    pairs(count, seed, |i| 8 + (i % 5) as usize, value_size)
}

/// Returns pairs of each arrangement of blocks: packed by rank and one after the other, tagged,
/// slotted.
pub(crate) fn arrangements(count: u64, seed: u64) -> [Pairs; 4] {
    let all: [fn(u64, u64) -> Pairs; 4] = [fixed, variable, tagged, slotted];
    all.map(|make| make(count, seed))
}

/// Returns keys that are in no table of this module.
pub(crate) fn absent(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|i| format!("an absent key, {i}").into_bytes())
}

/// Builds a table, sorting with `sort`.
pub(crate) fn try_build(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    pairs: &Pairs,
    options: TableOptions,
    sort: SortOptions,
) -> Result<TableStats> {
    try_build_on(Arc::new(Inline), disk, folder, pairs, options, sort)
}

/// Builds a table, with background jobs on `executor`.
pub(crate) fn try_build_on(
    executor: Arc<dyn Executor>,
    disk: &Arc<dyn Disk>,
    folder: &Path,
    pairs: &Pairs,
    options: TableOptions,
    sort: SortOptions,
) -> Result<TableStats> {
    let builder =
        TableBuilder::with(folder, options.env(Env { executor, ..Env::on(disk.clone()) }))?;
    let mut sorter = builder.sorter(sort)?;
    for (key, value) in pairs {
        sorter.push(key, Some(value))?;
    }
    let mut run = sorter.finish()?;
    builder.build(&mut run, &Watch::default())
}

#[track_caller]
pub(crate) fn build(disk: &Arc<dyn Disk>, folder: &Path, pairs: &Pairs, options: TableOptions) {
    try_build(disk, folder, pairs, options, SortOptions::default()).unwrap();
}

pub(crate) fn open(disk: &Arc<dyn Disk>, folder: &Path) -> Result<Table> {
    Table::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone())))
}

/// Returns all entries of a table, by a scan.
pub(crate) fn scanned(table: &Table) -> Result<Pairs> {
    let mut pairs = Pairs::new();
    let mut scan = table.scan();
    while scan.advance()? {
        let entry = scan.entry();
        let value = entry.value.expect("a table holds no tombstones");
        let old = pairs.insert(entry.key.to_vec(), value.to_vec());
        assert!(old.is_none(), "a key comes once");
    }
    Ok(pairs)
}

/// Checks that every way of reading the table agrees with the pairs, and that `verify` finds no
/// damage.
#[track_caller]
pub(crate) fn check_holds(table: &Table, pairs: &Pairs) {
    assert_eq!(table.stats().entries, pairs.len() as u64);
    let keys: Vec<Vec<u8>> = pairs.keys().cloned().chain(absent(50)).collect();
    for key in &keys {
        assert_eq!(table.get(key).unwrap().as_ref(), pairs.get(key), "{}", key.escape_ascii());
        assert_eq!(table.contains(key).unwrap(), pairs.contains_key(key));
    }
    let mut found = vec![None; keys.len()];
    let mut visit = |i: usize, value: Option<&[u8]>| {
        assert!(found[i].is_none(), "each key is shown once");
        found[i] = Some(value.map(<[u8]>::to_vec));
        Ok(())
    };
    table.get_many(&keys, &mut visit).unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.expect("each key is shown").as_ref(), pairs.get(key));
    }
    assert!(scanned(table).unwrap() == *pairs, "a scan shows all pairs");
    let report = table.verify(&Watch::default()).unwrap();
    assert!(report.is_sound(), "{}", report.damage[0]);
    assert_eq!(report.figures.entries, pairs.len() as u64);
}

/// The files of a folder, with their bytes.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Reads all files of a folder.
pub(crate) fn read_files(disk: &dyn Disk, folder: &Path) -> Files {
    let read = |name: String| {
        let file = disk.open(&folder.join(&name), Access::Cached).unwrap();
        let bytes = hashfold::io::read_all(file.as_ref(), 1 << 30).unwrap().to_vec();
        (name, bytes)
    };
    disk.list(folder).unwrap().into_iter().map(read).collect()
}

/// Writes files to a folder, which is created.
pub(crate) fn write_files(disk: &dyn Disk, folder: &Path, files: &Files) {
    disk.create_folder(folder).unwrap();
    for (name, bytes) in files {
        let file = disk.create(&folder.join(name), Access::Cached).unwrap();
        file.write_at(0, bytes).unwrap();
    }
}

/// Returns the name of the file with this role.
pub(crate) fn name_of(files: &Files, role: &str) -> String {
    let found = files.keys().find(|name| name.starts_with(role));
    found.expect("the table has a file for each role").clone()
}

/// Returns the file that an error names.
pub(crate) fn file_of(error: &Error) -> &str {
    let place = error.place().unwrap_or_else(|| panic!("no place: {error}"));
    place.file.file_name().and_then(|name| name.to_str()).expect("names of ours are UTF-8")
}

/// Returns the settings with another disk.
pub(crate) fn on(disk: Arc<dyn Disk>, settings: CascadeSettings) -> CascadeSettings {
    CascadeSettings { env: Env { disk, ..settings.env }, ..settings }
}

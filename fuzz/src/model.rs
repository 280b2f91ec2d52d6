//! Operations compared with a map in memory.

use hashfold::{
    Env, ReadOptions, Seed,
    io::{Disk, MemoryDisk},
    run::{MEMORY_BYTES_MIN, Merge, Run, SortOptions, Tombstones, VecRun},
    table::{IndexChoice, IndexOptions, Table, TableBuilder, TableOptions},
    work::Watch,
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;
type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Builds a table from one half of the operations and merges the other half into it; both tables
/// must hold what a map holds.
pub fn model(bytes: &[u8]) {
    let Some((options, rest)) = bytes.split_first_chunk::<4>() else { return };
    let options = decode_options(*options);
    let batch: Batch = rest.chunks_exact(4).map(decode_change).collect();
    let (first, second) = batch.split_at(batch.len() / 2);
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut pairs = Pairs::new();
    apply(&mut pairs, first);
    build_first(&disk, &options, first);
    check(&disk, &pairs);
    apply(&mut pairs, second);
    merge_second(&disk, &options, second);
    check(&disk, &pairs);
}

fn decode_options([choice, bucket_size, limit, other]: [u8; 4]) -> TableOptions {
    let choices = [IndexChoice::Auto, IndexChoice::Dense, IndexChoice::Sparse, IndexChoice::Fences];
    let choice = choices[usize::from(choice) % choices.len()];
    let takes = matches!(choice, IndexChoice::Auto | IndexChoice::Dense);
    TableOptions::new()
        .seed(Seed(u64::from(other)))
        .id(1)
        .index(IndexOptions {
            choice,
            bucket_size: 8 + u32::from(bucket_size),
            coding_limit: u32::from(limit),
            absent_bits: if takes { u32::from(other) % 33 } else { 0 },
        })
        .block_size(4096 << (other % 5))
        .replace(true)
}

/// A put or a deletion of one of 128 keys, with sizes from 0 on.
fn decode_change(bytes: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let [key, shape, size, fill] = bytes else { unreachable!("chunks are of four bytes") };
    let key_size = if *key == 0 { 0 } else { 1 + usize::from(key % 4) * usize::from(key % 3) };
    let key = vec![key % 128; key_size];
    let value_size = match shape % 8 {
        0 => return (key, None),
        1 => 20,
        2..=5 => usize::from(*size),
        6 => usize::from(*size) * 64,
        _ => usize::from(*size) * 512,
    };
    (key, Some(vec![*fill; value_size]))
}

fn apply(pairs: &mut Pairs, batch: &[(Vec<u8>, Option<Vec<u8>>)]) {
    for (key, value) in batch {
        match value {
            Some(value) => pairs.insert(key.clone(), value.clone()),
            None => pairs.remove(key),
        };
    }
}

fn builder(disk: &Arc<dyn Disk>, options: &TableOptions) -> TableBuilder {
    TableBuilder::with("table", options.clone().env(Env::on(disk.clone())))
        .expect("the options are legal")
}

fn build_first(disk: &Arc<dyn Disk>, options: &TableOptions, batch: &[(Vec<u8>, Option<Vec<u8>>)]) {
    let builder = builder(disk, options);
    let sort = SortOptions { memory_bytes: MEMORY_BYTES_MIN, ..SortOptions::default() };
    let mut sorter = builder.sorter(sort).expect("the memory is enough");
    for (key, value) in batch {
        sorter.push(key, value.as_deref()).expect("sizes are legal");
    }
    let mut run = sorter.finish().expect("RAM does not fail");
    builder.build(&mut run, &Watch::default()).expect("RAM does not fail");
}

fn merge_second(
    disk: &Arc<dyn Disk>,
    options: &TableOptions,
    batch: &[(Vec<u8>, Option<Vec<u8>>)],
) {
    let builder = builder(disk, options);
    let old = open(disk);
    let batch = VecRun::new(batch.to_vec(), builder.seed());
    let runs: Vec<Box<dyn Run>> = vec![Box::new(batch), Box::new(old.scan())];
    let mut merge = Merge::new(runs, Tombstones::Drop).expect("the seeds are one");
    builder.build(&mut merge, &Watch::default()).expect("RAM does not fail");
}

fn open(disk: &Arc<dyn Disk>) -> Table {
    Table::open_with(Path::new("table"), &ReadOptions::new().env(Env::on(disk.clone())))
        .expect("it was just built")
}

fn check(disk: &Arc<dyn Disk>, pairs: &Pairs) {
    let table = open(disk);
    for byte in 0..128 {
        for size in 0..8 {
            let key = vec![byte; size];
            let found = table.get(&key).expect("the table is sound");
            assert_eq!(found.as_ref(), pairs.get(&key));
        }
    }
    let report = table.verify(&Watch::default()).expect("RAM does not fail");
    assert!(report.is_sound(), "{}", report.damage[0]);
    assert_eq!(report.figures.entries, pairs.len() as u64);
}

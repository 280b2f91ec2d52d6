//! The speed of the library's parts, each separately, in RAM: `cargo bench -p hashfold`.
//!
//! Answers are checked before a time is printed. `cargo test` runs this with few entries.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use hashfold::{
    Env, KeyHash, ReadOptions, Seed,
    checksum::crc32c,
    filter::{FingerprintMerge, Mode, PackedRun},
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    io::{Disk, MemoryDisk},
    run::{Merge, Run, SortOptions, Sorter, Tombstones, VecRun},
    sketch::{Expression, Precision, PrefixSample, PrefixSet},
    table::{HashIndex, IndexOptions, Table, TableBuilder, TableOptions},
    work::{Inline, Watch},
};
use std::{hint::black_box, path::Path, sync::Arc, time::Instant};

const SEED: Seed = Seed(1);
const ROUNDS: usize = 5;
const VALUE: &[u8] = &[7; 48];

/// Prints the time per item in the fastest of several rounds.
fn measure(name: &str, items: u64, mut work: impl FnMut()) {
    let round = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    let best = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    println!("{name:<28} {:>8.1} ns", best * 1e9 / items as f64);
}

fn key(i: u64) -> [u8; 16] {
    KeyHash::of(&i.to_le_bytes(), Seed(2)).bits().to_le_bytes()
}

fn count(run: &mut dyn Run) -> u64 {
    let mut count = 0;
    while run.advance().unwrap() {
        count += 1;
    }
    count
}

fn sorter(entries: u64) -> Sorter {
    let (disk, executor) = (Arc::new(MemoryDisk::default()), Arc::new(Inline));
    let mut sorter =
        Sorter::new(disk, "spill".into(), SEED, SortOptions::default(), executor).unwrap();
    for i in 0..entries {
        sorter.push(&key(i), Some(VALUE)).unwrap();
    }
    sorter
}

fn runs(entries: u64) {
    measure("sort, 64-byte entry", entries, || {
        assert_eq!(count(&mut sorter(entries).finish().unwrap()), entries);
    });
    let part = |first: u64| {
        let keys = (first..entries).step_by(2);
        VecRun::new(keys.map(|i| (key(i).to_vec(), Some(VALUE.to_vec()))).collect(), SEED)
    };
    let parts = [part(0), part(1)];
    measure("merge of two runs, entry", entries, || {
        let runs = parts.iter().map(|run| Box::new(run.clone()) as Box<dyn Run>).collect();
        assert_eq!(count(&mut Merge::new(runs, Tombstones::Drop).unwrap()), entries);
    });
}

fn indexes(entries: u64) {
    let mut hashes: Vec<KeyHash> = (0..entries).map(|i| KeyHash::of(&key(i), SEED)).collect();
    let asked = hashes.clone();
    hashes.sort_unstable();
    let options = IndexOptions::default();
    let dense = || HashIndex::dense(hashes.iter().copied(), entries, &options).unwrap();
    measure("dense index, build a key", entries, || drop(black_box(dense())));
    let index = dense();
    assert!(hashes.iter().zip(0..).all(|(hash, rank)| index.ranks(*hash) == (rank..rank + 1)));
    measure("dense index, rank", entries, || {
        black_box(asked.iter().fold(0, |sum, hash| sum ^ index.ranks(*hash).start));
    });
    measure("dense index, rank in batch", entries, || {
        let mut ranks = Vec::with_capacity(asked.len());
        index.ranks_many(&asked, &mut ranks);
        assert_eq!(ranks.len(), asked.len());
    });
    let fences = HashIndex::fences(hashes.iter().copied(), entries, 16).unwrap();
    measure("fences, block", entries, || {
        black_box(asked.iter().fold(0, |sum, hash| sum ^ fences.ranks(*hash).start));
    });
}

fn tables(entries: u64) {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let folder = Path::new("table");
    let options = TableOptions::new().seed(SEED).id(1);
    let builder = TableBuilder::with(folder, options.env(Env::on(disk.clone()))).unwrap();
    let mut run = sorter(entries).finish().unwrap();
    builder.build(&mut run, &Watch::default()).unwrap();
    let table = Table::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone()))).unwrap();
    measure("table in RAM, get", entries, || {
        let found = |i: &u64| table.get(key(*i)).unwrap().is_some_and(|value| value == VALUE);
        assert_eq!((0..entries).filter(found).count() as u64, entries);
    });
    measure("table in RAM, scan an entry", entries, || {
        assert_eq!(count(&mut table.scan()), entries);
    });
}

/// Prints the items per second in the fastest of several rounds.
fn measure_rate(name: &str, items: u64, mut work: impl FnMut()) {
    let round = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    let best = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    println!("{name:<28} {:>8.1} M/s", items as f64 / best / 1e6);
}

/// Returns a run of about `count` keys. The keys differ between parts.
fn packed(universe: Universe, part: u64, count: u64) -> PackedRun {
    let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(part));
    let mut ones: Vec<u64> = (0..count).map(|i| universe.fingerprint(hash(i))).collect();
    ones.sort_unstable();
    ones.dedup();
    let batch = FingerprintBatch::from_sorted(ones).unwrap();
    PackedRun::build(&mut batch.into_run(Seed(0), universe)).unwrap()
}

fn scan(run: &PackedRun) -> u64 {
    let (mut scan, mut batch, mut count) = (run.scan(), FingerprintBatch::new(), 0);
    while scan.append_to(&mut batch).unwrap() {
        count += black_box(&batch).len() as u64;
        batch.clear();
    }
    count
}

fn filters(entries: u64) {
    let items = 16 * entries;
    let universe = Universe::for_capacity(items, 1.0 / 2048.0).unwrap();
    let run = packed(universe, 0, items);
    let mut out = packed(universe, 0, 1);
    measure_rate("packed run, scan", run.len(), || assert_eq!(scan(&run), run.len()));
    measure_rate("packed run, scan and pack", run.len(), || {
        out.rebuild(&mut run.scan()).unwrap();
        assert_eq!(out.len(), run.len());
    });
    measure("packed run, contains", entries, || {
        let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(0));
        assert!((0..entries).all(|i| run.contains(hash(i))));
    });
    drop(run);
    let even = |count: u64| vec![items / count; count as usize];
    // A base with four fifths of all entries, and seven small runs over it.
    let mut lopsided = vec![items / 35; 7];
    lopsided.push(items / 5 * 4);
    for (name, sizes) in [
        ("packed runs, merge 2:1", even(2)),
        ("packed runs, merge 4:1", even(4)),
        ("packed runs, merge 8:1", even(8)),
        ("packed runs, 1 big + 7 small", lopsided),
    ] {
        let runs = (1..).zip(&sizes).map(|(part, &size)| packed(universe, part, size));
        let runs: Vec<PackedRun> = runs.collect();
        let len = runs.iter().map(PackedRun::len).sum();
        measure_rate(name, len, || {
            let scans = runs.iter().map(PackedRun::scan).collect();
            out.rebuild(&mut FingerprintMerge::last(scans, Mode::Set).unwrap()).unwrap();
            // About 1 key in 4096 occurs twice.
            assert!((len - len / 1024..=len).contains(&out.len()));
        });
    }
}

/// Samples that are read to their ends: two sets in RAM, of which the second is ten times as large.
fn samples(entries: u64) {
    let hashes = |range: std::ops::Range<u64>| {
        let mut hashes: Vec<u64> = range.map(|i| KeyHash::of(&key(i), SEED).high()).collect();
        hashes.sort_unstable();
        hashes
    };
    let sets = [hashes(0..2 * entries), hashes(entries..21 * entries)];
    let precision = Precision::new(1e-6, 0.95).unwrap();
    measure("prefix sample of two, hash", 22 * entries, || {
        let set = |hashes: &Vec<u64>| {
            let batch = FingerprintBatch::from_sorted(hashes.clone()).unwrap();
            PrefixSet::of_fingerprints(batch.into_run(SEED, Universe::EXACT)).unwrap()
        };
        let both = Expression::all(2);
        let sample = PrefixSample::read(sets.iter().map(set).collect(), &both, &precision).unwrap();
        assert_eq!(sample.estimate(&both).value, entries as f64);
    });
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let entries = if is_bench { 1 << 20 } else { 1 << 10 };
    measure("hash of a 16-byte key", entries, || {
        black_box((0..entries).fold(0, |sum, i| sum ^ KeyHash::of(&key(i), SEED).low()));
    });
    let block = [7; 4096];
    measure("checksum of a block", entries / 8, || {
        black_box((0..entries / 8).fold(0, |sum, _| sum ^ crc32c(black_box(&block))));
    });
    runs(entries);
    indexes(entries);
    tables(entries);
    filters(entries);
    samples(entries);
}

//! How many keys are in both of two data sets? From the first kilobytes of each, without reading the rest.
//!
//! `cargo run --release --example shared_keys -- 20000000` makes larger data sets: this many keys in the
//! second one, a hundredth of that in the first, and a twentieth of those in both.

use hashfold::{
    Env, Filter, FilterOptions, FilterReader, ReadOptions, Result, Seed, Table, TableBuilder,
    TableOptions,
    io::{Access, CountingDisk, OsDisk},
    sketch::{Expression, Precision, PrefixSample, PrefixSet},
};
use std::{ops::Range, path::Path, sync::Arc};

const FOLDER: &str = "target/shared-keys";
const SEED: Seed = Seed(7);

fn main() -> Result<()> {
    let _ = std::fs::remove_dir_all(FOLDER);
    let keys: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000);
    let few = keys / 100;
    let shared = few / 20;
    let sets = [("a", 0..few), ("b", few - shared..few - shared + keys)];
    for (name, range) in &sets {
        fill_filter(&format!("{FOLDER}/filter-{name}"), range.clone())?;
        fill_table(&format!("{FOLDER}/table-{name}"), range.clone())?;
    }
    for error in [0.5, 0.2, 0.1, 0.05] {
        for confidence in [0.68, 0.95] {
            // Opening and reading go through this disk, which counts.
            let disk = CountingDisk::on(Arc::new(OsDisk));
            let options = ReadOptions::new().env(Env::on(Arc::new(disk.clone())));
            let options = options.data(Access::Cached).without_index();
            let precision = Precision::new(error, confidence)?.counting(disk.clone());

            let open =
                |name: &str| FilterReader::open_with(format!("{FOLDER}/filter-{name}"), &options);
            let filters = [open("a")?, open("b")?];
            let opening = disk.take().read_bytes;
            let [a, b] = [filters[0].fingerprints_prefix()?, filters[1].fingerprints_prefix()?];
            let sets = vec![PrefixSet::of_fingerprints(a)?, PrefixSet::of_fingerprints(b)?];
            estimate("filters", opening, sets, &precision, shared)?;

            let open = |name: &str| Table::open_with(format!("{FOLDER}/table-{name}"), &options);
            let tables = [open("a")?, open("b")?];
            let opening = disk.take().read_bytes;
            let sets = tables.iter().map(|table| PrefixSet::of_run(table.scan())).collect();
            estimate("tables", opening, sets, &precision, shared)?;
        }
    }
    std::fs::remove_dir_all(FOLDER).unwrap_or_default();
    Ok(())
}

fn estimate(
    what: &str,
    opening: u64,
    sets: Vec<PrefixSet<'_>>,
    precision: &Precision,
    truth: u64,
) -> Result<()> {
    let both = Expression::set(0) & Expression::set(1);
    let sample = PrefixSample::read(sets, &both, precision)?;
    let estimate = sample.estimate(&both);
    println!(
        "{what}: {:.0} ({}: {:.0} to {:.0}), truth {truth}; {} matches, {} hashes, {} bytes read and {opening} to open",
        estimate.value,
        estimate.confidence,
        estimate.low,
        estimate.high,
        estimate.matches,
        sample.keys_read(),
        sample.bytes_read().unwrap_or_default(),
    );
    assert!((estimate.value / truth as f64 - 1.0).abs() < 1.0);
    Ok(())
}

fn fill_filter(folder: &str, range: Range<u64>) -> Result<()> {
    let mut filter = Filter::create(folder, FilterOptions::exact().seed(SEED))?;
    let keys: Vec<u64> = range.collect();
    for batch in keys.chunks(1 << 16) {
        filter.insert_many(&batch.iter().map(|key| key.to_le_bytes()).collect::<Vec<_>>())?;
    }
    filter.merge()?;
    filter.close()
}

fn fill_table(folder: &str, range: Range<u64>) -> Result<()> {
    let mut builder = TableBuilder::with(Path::new(folder), TableOptions::new().seed(SEED))?;
    for key in range {
        builder.push(key.to_le_bytes(), [0; 16])?;
    }
    builder.finish()?;
    Ok(())
}

//! Measures a cascade filter on the device: insertions, stalls, size, lookups.

use super::{FilterBench, Report, wants};
use crate::{
    bench::{
        ensure,
        measure::{peak_rss_mib, process_seconds, reset_peak_rss, thread_seconds, wall_seconds},
        random::pick,
    },
    failure::Result,
};
use hashfold::{
    Env, KeyHash, Seed,
    filter::cascade::{CascadeFilter, CascadeOptions, CascadeSettings, Snapshot},
    io::{Access, BlockFile, CountingDisk, Disk, Extent, OsDisk},
    work::Threads,
};
use std::{path::Path, sync::Arc, time::Instant};

/// Number of keys per batch of insertions.
const BATCH: u64 = 4096;
/// Number of keys per batch of lookups.
const LOOKUP_BATCH: u64 = 16_384;
/// False-positive rate of the paper's section 3.
pub(super) const ERROR_RATE: f64 = 0.0004;
const LOOKUPS_MAX: u64 = 1_000_000;

pub(super) fn run(bench: &FilterBench, report: &Report, folder: &Path) -> Result<()> {
    let folder = folder.join("cascade");
    reset_peak_rss();
    let options = CascadeOptions::new(Seed(bench.seed), bench.seed, bench.keys, ERROR_RATE)?;
    let settings = settings(bench);
    let mut filter = CascadeFilter::create(&folder, &options, settings.clone())?;
    insert(bench, report, &mut filter)?;
    let peak = peak_rss_mib();
    report.add("filter.cascade.peak_rss_mib", peak, "MiB", bench.keys, bench.memory as u64);
    filter.close()?;
    if wants(bench, &["lookup"]) {
        lookups(bench, report, &folder, "fresh")?;
    }
    let mut filter = CascadeFilter::open(&folder, settings)?;
    compact(bench, report, &mut filter)?;
    filter.close()?;
    if wants(bench, &["lookup"]) {
        lookups(bench, report, &folder, "")?;
        unique(bench, report, &folder)?;
    }
    Ok(())
}

/// Tests batches of keys, half of which are present, and inserts the others.
fn unique(bench: &FilterBench, report: &Report, folder: &Path) -> Result<()> {
    let count = (bench.keys / 100).max(1);
    let seed = bench.seed;
    let first = bench.keys - count / 2;
    let hashes: Vec<KeyHash> = (first..first + count).map(|i| hash(i, seed)).collect();
    let mut is_new = vec![false; hashes.len()];
    let mut filter = CascadeFilter::open(folder, settings(bench))?;
    let (seconds, done) = wall_seconds(|| {
        filter.insert_unique_batch(&hashes, &mut is_new)?;
        filter.wait_for_merges()
    });
    done?;
    filter.close()?;
    let (present, absent) = is_new.split_at((count / 2) as usize);
    ensure(!present.contains(&true), || "a key that was in is new".to_owned())?;
    let errors = absent.iter().filter(|is_new| !**is_new).count();
    let rate = errors as f64 / absent.len() as f64;
    ensure(rate < 2.0 * ERROR_RATE + 1e-3, || {
        format!("{errors} of {} keys are not new", absent.len())
    })?;
    report.add("filter.cascade.unique_s", count as f64 / seconds, "keys/s", count, 0);
    Ok(())
}

pub(super) fn settings(bench: &FilterBench) -> CascadeSettings {
    CascadeSettings {
        memory_bytes: bench.memory,
        env: Env { executor: Arc::new(Threads::new(4 + bench.threads)), ..Env::system() },
        ..CascadeSettings::default()
    }
}

/// Returns the hash of a numbered key; keys from `keys` on are never inserted.
fn hash(i: u64, seed: u64) -> KeyHash {
    KeyHash::of(&i.to_le_bytes(), Seed(seed))
}

/// Inserts all keys. Clocks stop when all keys are durable in runs and no merge is due.
fn insert(bench: &FilterBench, report: &Report, filter: &mut CascadeFilter) -> Result<()> {
    let mut hashes = Vec::with_capacity(BATCH as usize);
    let mut longest = 0.0_f64;
    let (start, cpu, own) = (Instant::now(), process_seconds(), thread_seconds());
    let mut next = 0;
    while next < bench.keys {
        let end = (next + BATCH).min(bench.keys);
        hashes.clear();
        hashes.extend((next..end).map(|i| hash(i, bench.seed)));
        let (seconds, inserted) = wall_seconds(|| filter.insert_batch(&hashes));
        inserted?;
        longest = longest.max(seconds);
        next = end;
    }
    let own = thread_seconds() - own;
    filter.wait_for_merges()?;
    let wall = start.elapsed().as_secs_f64();
    let cpu = process_seconds() - cpu;
    check_present(bench, filter)?;
    let stats = filter.stats();
    let keys = bench.keys as f64;
    let say = |what: &str, value, unit| {
        let name = format!("filter.cascade.{what}");
        report.add(&name, value, unit, bench.keys, stats.file_bytes);
    };
    say("insert_per_core_s", keys / cpu, "keys/s");
    say("insert_wall_s", keys / wall, "keys/s");
    say("insert_own_thread_s", keys / own, "keys/s");
    say("stall_ms", longest * 1e3, "ms");
    say("upper_runs", stats.upper_runs as f64, "runs");
    say("bits_per_item_fresh", stats.bits_per_fingerprint(), "bits");
    Ok(())
}

/// Looks up some of the keys, which must all be present.
fn check_present(bench: &FilterBench, filter: &CascadeFilter) -> Result<()> {
    const LOOKUPS: u64 = 100_000;
    let numbers = (0..LOOKUPS).map(|i| pick(i, bench.seed, bench.keys));
    let hashes: Vec<KeyHash> = numbers.map(|i| hash(i, bench.seed)).collect();
    let mut found = vec![false; hashes.len()];
    filter.contains_batch(&hashes, &mut found)?;
    let missing = found.iter().filter(|found| !**found).count();
    ensure(missing == 0, || format!("{missing} of {LOOKUPS} keys are missing"))
}

/// Returns the least number of fingerprints that different keys may have. A key finds the fingerprint
/// of an earlier one with half the false-positive rate on average; twice as many may.
fn fingerprints_min(keys: u64) -> f64 {
    let equal = keys as f64 * ERROR_RATE / 2.0;
    keys as f64 - 2.0 * equal - 6.0 * equal.sqrt() - 1.0
}

fn compact(bench: &FilterBench, report: &Report, filter: &mut CascadeFilter) -> Result<()> {
    let (seconds, done) = wall_seconds(|| filter.merge());
    done?;
    let stats = filter.stats();
    let is_right = stats.fingerprints <= bench.keys
        && stats.fingerprints as f64 >= fingerprints_min(bench.keys);
    ensure(is_right, || format!("{} fingerprints of {} keys", stats.fingerprints, bench.keys))?;
    let say = |what: &str, value, unit| {
        let name = format!("filter.cascade.{what}");
        report.add(&name, value, unit, stats.fingerprints, stats.file_bytes);
    };
    say("compact_s", seconds, "s");
    say("bits_per_item", stats.bits_per_fingerprint(), "bits");
    say("shards", stats.shards as f64, "runs");
    Ok(())
}

/// Looks up present and absent keys with only the indexes in RAM.
fn lookups(bench: &FilterBench, report: &Report, folder: &Path, state: &str) -> Result<()> {
    let disk = CountingDisk::on(Arc::new(OsDisk));
    let snapshot = Snapshot::open(&Env::on(Arc::new(disk.clone())), folder, Access::Direct)?;
    let count = LOOKUPS_MAX.min(bench.keys);
    let name = |what: &str| match state {
        "" => format!("filter.cascade.lookup.{what}"),
        state => format!("filter.cascade.lookup.{state}.{what}"),
    };
    let mut found = vec![false; LOOKUP_BATCH as usize];
    let mut run = |first: u64, of: u64, batch: u64, count: u64| -> Result<(f64, u64)> {
        let mut yes = 0;
        let (seconds, done) = wall_seconds(|| -> Result<()> {
            for start in (0..count).step_by(batch as usize) {
                let end = (start + batch).min(count);
                let hashes: Vec<KeyHash> = (start..end)
                    .map(|i| hash(first + pick(i, bench.seed ^ first, of), bench.seed))
                    .collect();
                let found = &mut found[..hashes.len()];
                snapshot.contains_batch(&hashes, found)?;
                yes += found.iter().filter(|found| **found).count() as u64;
            }
            Ok(())
        });
        done?;
        Ok((count as f64 / seconds, yes))
    };
    disk.take();
    let cpu = process_seconds();
    let (absent_per_s, errors) = run(bench.keys, bench.keys, LOOKUP_BATCH, count)?;
    let cpu = (process_seconds() - cpu) / count as f64;
    let moved = disk.take();
    let (present_per_s, yes) = run(0, bench.keys, LOOKUP_BATCH, count)?;
    ensure(yes == count, || format!("{yes} of {count} keys were found"))?;
    let rate = errors as f64 / count as f64;
    ensure(rate < 2.0 * ERROR_RATE + 1e-3, || format!("error rate {rate}"))?;
    report.add(&name("per_s"), absent_per_s, "lookups/s", count, 0);
    report.add(&name("present_per_s"), present_per_s, "lookups/s", count, 0);
    report.add(&name("cpu_us"), cpu * 1e6, "us", count, 0);
    let reads = moved.reads as f64 / count as f64;
    report.add(&name("reads"), reads, "reads", count, 0);
    let blocks = moved.read_bytes as f64 / 4096.0 / count as f64;
    report.add(&name("blocks"), blocks, "blocks of 4 KiB", count, 0);
    report.add(&name("error_rate"), rate, "", count, 0);
    let (singles, _) = run(bench.keys, bench.keys, 1, count.min(20_000))?;
    report.add(&name("single_us"), 1e6 / singles, "us", count.min(20_000), 0);
    let device = device_reads(folder, count, bench.seed)?;
    report.add(&name("device_reads_s"), device, "reads/s", count, 0);
    report.add(&name("iops_fraction"), absent_per_s / device, "", count, 0);
    Ok(())
}

/// Measures random 4 KiB reads per second of the filter's files, with as many reads in flight all the
/// time as lookups have.
fn device_reads(folder: &Path, count: u64, seed: u64) -> Result<f64> {
    let names = OsDisk.list(folder)?.into_iter().filter(|name| name.starts_with("run-"));
    let open = |name: String| OsDisk.open(&folder.join(name), Access::Direct);
    let files = names.map(open).collect::<hashfold::Result<Vec<Arc<dyn BlockFile>>>>()?;
    let sizes = files.iter().map(|file| file.size()).collect::<hashfold::Result<Vec<u64>>>()?;
    let files: Vec<&dyn BlockFile> = files.iter().map(|file| &**file).collect();
    let Some(&first) = files.first() else { return Ok(f64::NAN) };
    let blocks: u64 = sizes.iter().map(|size| size / 4096).sum();
    let place = |i: u64| {
        let mut block = pick(i, !seed, blocks);
        for (file, size) in sizes.iter().enumerate() {
            if block < size / 4096 {
                return (file, Extent { offset: block * 4096, len: 4096 });
            }
            block -= size / 4096;
        }
        unreachable!("the block is one of them")
    };
    let extents = &mut (0..count).map(place);
    let (seconds, done) = wall_seconds(|| first.read_across(&files, extents, &mut |_, _| Ok(())));
    done?;
    Ok(count as f64 / seconds)
}

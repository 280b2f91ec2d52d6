//! Measures `GroupTable`: puts, lookups, the pairs in the order of hashes, the growth of groups, removals.

use super::{Intervals, MemoryBench, SHARDS, key, options, read, write_shards};
use crate::{
    bench::{
        ensure,
        measure::{Report, rss_bytes, thread_seconds, thread_waits},
        random::pick,
        times::Times,
    },
    failure::Result,
};
use hashfold::memory::GroupTable;
use std::{ops::Range, time::Instant};

/// Number of keys of a call.
const BATCH: u64 = 256;

/// Puts of which those are timed that let a group grow, at most; and the number of keys by that of these puts, at least.
const GROWING: u64 = 1_000_000;
const GROWING_PART: u64 = 50;

/// Number of keys from which on the memory for each is compared with its largest: with fewer, the memory that is populated ahead counts.
const MANY: u64 = 10_000_000;

/// Lookups in each measurement, at most.
const LOOKUPS: u64 = 10_000_000;

pub(super) fn run(bench: &MemoryBench, report: &Report) -> Result<()> {
    let before = rss_bytes();
    let table = GroupTable::new(options(bench, 1))?;
    put(bench, report, &table)?;
    let (stats, keys) = (table.stat(), bench.keys);
    ensure(table.len() == keys, || format!("{} of {keys} keys are there", table.len()))?;
    let grown = rss_bytes() - before;
    report.add("memory.group.bytes_per_key", stats.bytes as f64 / keys as f64, "bytes", keys, 0);
    report.add("memory.group.rss_ratio", stats.bytes as f64 / grown, "ratio", keys, 0);
    report.add("memory.group.moves", stats.moved_keys as f64 / keys as f64, "per put", keys, 0);
    get(bench, report, &table)?;
    read::run(bench, report, stats.bytes)?;
    dump(bench, report, &table)?;
    grow(bench, report, &table)?;
    remove(bench, report, &table)?;
    drop(table);
    put_sharded(bench, report)
}

fn put(bench: &MemoryBench, report: &Report, table: &GroupTable) -> Result<()> {
    let (keys, mut times, mut intervals) = (bench.keys, Times::new(), Intervals::default());
    let (mut pairs, mut cpu_max, mut bytes_max) = (Vec::new(), 0.0_f64, 0.0_f64);
    let waits = thread_waits();
    for start in (0..keys).step_by(BATCH as usize) {
        let end = keys.min(start + BATCH);
        pairs.clear();
        pairs.extend((start..end).map(|i| (key(i, bench.seed), i)));
        let (begun, cpu_begun) = (Instant::now(), thread_seconds());
        table.put_many(&pairs)?;
        let (time, cpu) = (begun.elapsed(), thread_seconds() - cpu_begun);
        times.add(time);
        cpu_max = cpu_max.max(cpu);
        intervals.add(time, end, keys);
        if end >= MANY {
            bytes_max = bytes_max.max(table.stat().bytes as f64 / end as f64);
        }
    }
    let waits = (thread_waits() - waits) as f64;
    let (seconds, ratio) = intervals.finish();
    report.add("memory.group.put_s", keys as f64 / seconds, "puts/s", keys, 0);
    report.add("memory.group.put.p99_us", times.quantile_us(0.99), "us", keys, 0);
    report.add("memory.group.put.p9999_us", times.quantile_us(0.9999), "us", keys, 0);
    report.add("memory.group.put.max_ms", times.max_ms(), "ms", keys, 0);
    report.add("memory.group.put.max_cpu_ms", cpu_max * 1e3, "ms", keys, 0);
    report.add("memory.group.put.waits", waits, "waits", keys, 0);
    report.add("memory.group.put.interval_ratio", ratio, "ratio", keys, 0);
    if bytes_max > 0.0 {
        report.add("memory.group.bytes_per_key_max", bytes_max, "bytes", keys, 0);
    }
    Ok(())
}

/// Puts further keys one by one, times the puts that let a group grow, and removes the keys again.
fn grow(bench: &MemoryBench, report: &Report, table: &GroupTable) -> Result<()> {
    // Past the keys that are there, and those that lookups do not find.
    let more = 2 * bench.keys..2 * bench.keys + GROWING.min(bench.keys / GROWING_PART);
    let (mut times, mut rebuilds) = (Times::new(), table.stat().rebuilds);
    for i in more.clone() {
        let key = key(i, bench.seed);
        let begun = Instant::now();
        table.put(key, i)?;
        let time = begun.elapsed();
        let now = table.stat().rebuilds;
        if now > rebuilds {
            times.add(time);
        }
        rebuilds = now;
    }
    for i in more {
        ensure(table.remove(key(i, bench.seed))? == Some(i), || format!("key {i} is lost"))?;
    }
    let count = times.total();
    report.add("memory.group.grow.p50_us", times.quantile_us(0.5), "us", count, 0);
    report.add("memory.group.grow.p99_us", times.quantile_us(0.99), "us", count, 0);
    report.add("memory.group.grow.max_ms", times.max_ms(), "ms", count, 0);
    Ok(())
}

/// Puts the keys into a table with a writer for each shard.
fn put_sharded(bench: &MemoryBench, report: &Report) -> Result<()> {
    let (table, keys) = (GroupTable::new(options(bench, SHARDS))?, bench.keys);
    let pairs = (0..keys).map(|i| (key(i, bench.seed), i));
    let pairs = pairs.map(|pair| (table.shard(pair.0), pair));
    let seconds = write_shards(pairs, BATCH as usize, |pairs| table.put_many(pairs))?;
    let right = (0..keys).step_by(1000).all(|i| table.get(key(i, bench.seed)) == Some(i));
    ensure(table.len() == keys && right, || format!("{} of {keys} keys are there", table.len()))?;
    report.add("memory.group.sharded.put_s", keys as f64 / seconds, "puts/s", keys, 0);
    Ok(())
}

/// Looks up keys that are there, and others, many at once and one by one.
fn get(bench: &MemoryBench, report: &Report, table: &GroupTable) -> Result<()> {
    let half = LOOKUPS.min(bench.keys) / 2;
    for (name, first) in [("hit", 0), ("miss", bench.keys)] {
        // One kind after the other, and not in turns: after lookups one by one, those of many at once take longer. Each has keys of
        // its own, so that no lookup finds what another has read.
        for (kind, is_single, start) in [("", false, 0), (".single", true, half)] {
            let lookups = start..start + half;
            let seconds = get_some(bench, table, first, lookups, is_single)?;
            let name = format!("memory.group.get{kind}.{name}_ns");
            report.add(&name, seconds * 1e9 / half.max(1) as f64, "ns", half, 0);
        }
    }
    Ok(())
}

/// Looks up random keys, whose numbers begin with `first`: many at once, or one by one. Returns the CPU time in seconds.
fn get_some(
    bench: &MemoryBench,
    table: &GroupTable,
    first: u64,
    lookups: Range<u64>,
    is_single: bool,
) -> Result<f64> {
    let number = |i: u64| first + pick(i, bench.seed, bench.keys);
    let expected = |i: u64| (first == 0).then(|| number(i));
    let mut seconds = 0.0;
    for start in lookups.clone().step_by(BATCH as usize) {
        let batch = start..lookups.end.min(start + BATCH);
        let keys: Vec<_> = batch.clone().map(|i| key(number(i), bench.seed)).collect();
        let mut found = vec![None; keys.len()];
        let begun = thread_seconds();
        if is_single {
            keys.iter().zip(&mut found).for_each(|(key, found)| *found = table.get(*key));
        } else {
            table.get_many(&keys, &mut found);
        }
        seconds += thread_seconds() - begun;
        let right = batch.zip(&found).all(|(i, found)| *found == expected(i));
        ensure(right, || format!("a lookup of the keys from {start} on is wrong"))?;
    }
    Ok(seconds)
}

/// Reads all pairs in the order of hashes.
fn dump(bench: &MemoryBench, report: &Report, table: &GroupTable) -> Result<()> {
    let mut snapshot = table.snapshot()?;
    let (mut pairs, mut count, mut sum) = (Vec::new(), 0, 0_u64);
    let begun = thread_seconds();
    while snapshot.next_group(&mut pairs) {
        count += pairs.len() as u64;
        sum = pairs.iter().fold(sum, |sum, (_, value)| sum.wrapping_add(*value));
    }
    let seconds = thread_seconds() - begun;
    let keys = bench.keys;
    let expected = (0..keys).fold(0_u64, u64::wrapping_add);
    ensure((count, sum) == (keys, expected), || format!("a snapshot has {count} of {keys} keys"))?;
    report.add("memory.group.dump_s", keys as f64 / seconds, "keys/s", keys, 0);
    Ok(())
}

/// Removes half of the keys.
fn remove(bench: &MemoryBench, report: &Report, table: &GroupTable) -> Result<()> {
    let half = bench.keys.div_ceil(2);
    let (mut seconds, mut removed) = (0.0, 0);
    for start in (0..half).step_by(BATCH as usize) {
        let keys: Vec<_> = (start..half.min(start + BATCH)).map(|i| key(i, bench.seed)).collect();
        let begun = thread_seconds();
        removed += table.remove_many(&keys)?;
        seconds += thread_seconds() - begun;
    }
    let left = table.len();
    ensure(removed == half && left == bench.keys - half, || format!("{left} keys are left"))?;
    report.add("memory.group.remove_s", half as f64 / seconds, "removals/s", half, 0);
    Ok(())
}

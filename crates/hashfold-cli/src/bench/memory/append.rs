//! Measures `AppendTable`: records of 16 bytes appended to chains whose lengths have a Zipf distribution, in random
//! order; the scan; removals and a compaction.

use super::{Intervals, MemoryBench, SHARDS, key, options, write_shards};
use crate::{
    bench::{
        ensure,
        measure::{Report, rss_bytes, thread_seconds},
        random::pick,
    },
    failure::Result,
};
use hashfold::{memory::AppendTable, run::Run as _, work::Watch};
use std::time::Instant;

/// Number of records of a call.
pub(super) const BATCH: usize = 1000;
/// Size of a record in bytes.
pub(in crate::bench) const RECORD: usize = 16;
/// Exponent of the distribution of lengths, and the longest chain, as in the posts on tables in RAM.
const EXPONENT: f64 = 2.24;
const RECORDS_MAX: usize = 1024;

pub(super) fn run(bench: &MemoryBench, report: &Report) -> Result<()> {
    let records = records(bench.chains, bench.seed);
    let before = rss_bytes();
    let table = AppendTable::new(options(bench, 1))?;
    append(bench, report, &table, &records)?;
    let (stats, count) = (table.stat(), records.len() as u64);
    let (grown, data) = (rss_bytes() - before, stats.data_bytes);
    let expected = bench.chains * size_of::<u64>() as u64 + count * RECORD as u64;
    ensure((stats.keys, data) == (bench.chains, expected), || format!("wrong figures: {stats:?}"))?;
    let fill = stats.data_bytes as f64 / stats.page_bytes as f64;
    report.add(
        "memory.append.overhead_per_key",
        stats.overhead_per_key(),
        "bytes",
        stats.keys,
        data,
    );
    report.add("memory.append.rss_ratio", stats.bytes as f64 / grown, "ratio", stats.keys, data);
    report.add("memory.append.fill", fill, "ratio", stats.keys, data);
    scan(report, &table)?;
    compact(bench, report, &table)?;
    drop(table);
    append_sharded(bench, report, &records)
}

/// Returns the chain of each record of a number of chains, in random order.
pub(in crate::bench) fn records(chains: u64, seed: u64) -> Vec<u32> {
    let mut limits: Vec<f64> = (1..=RECORDS_MAX).map(|len| (len as f64).powf(-EXPONENT)).collect();
    for i in 1..RECORDS_MAX {
        limits[i] += limits[i - 1];
    }
    let all = limits[RECORDS_MAX - 1];
    let mut records = Vec::new();
    for chain in 0..chains {
        let place = pick(chain, seed, 1 << 53) as f64 / (1_u64 << 53) as f64 * all;
        let len = limits.partition_point(|limit| *limit <= place) + 1;
        records.extend(std::iter::repeat_n(chain as u32, len));
    }
    for i in (1..records.len()).rev() {
        records.swap(i, pick(i as u64, !seed, i as u64 + 1) as usize);
    }
    records
}

/// Returns the record that is appended to a chain.
pub(in crate::bench) fn record(chain: u32) -> [u8; RECORD] {
    u128::from(chain).to_le_bytes()
}

fn append(
    bench: &MemoryBench,
    report: &Report,
    table: &AppendTable,
    records: &[u32],
) -> Result<()> {
    let (mut intervals, mut done, mut batch) = (Intervals::default(), 0, Vec::new());
    for chains in records.chunks(BATCH) {
        let pair = |chain: &u32| (key(u64::from(*chain), bench.seed).to_le_bytes(), record(*chain));
        batch.clear();
        batch.extend(chains.iter().map(pair));
        let begun = Instant::now();
        table.append_many(&batch)?;
        done += chains.len() as u64;
        intervals.add(begun.elapsed(), done, records.len() as u64);
    }
    let ((seconds, ratio), bytes) = (intervals.finish(), done * RECORD as u64);
    report.add("memory.append.records_s", done as f64 / seconds, "records/s", done, bytes);
    report.add("memory.append.interval_ratio", ratio, "ratio", done, bytes);
    Ok(())
}

/// Appends the records to a table with a writer for each shard.
fn append_sharded(bench: &MemoryBench, report: &Report, records: &[u32]) -> Result<()> {
    let table = AppendTable::new(options(bench, SHARDS))?;
    let pair = |chain: &u32| (key(u64::from(*chain), bench.seed).to_le_bytes(), record(*chain));
    let pairs = records.iter().map(pair).map(|pair| (table.shard(pair.0), pair));
    let seconds = write_shards(pairs, BATCH, |pairs| table.append_many(pairs))?;
    let (stats, count) = (table.stat(), records.len() as u64);
    let expected = bench.chains * size_of::<u64>() as u64 + count * RECORD as u64;
    let counted = (stats.keys, stats.data_bytes);
    ensure(counted == (bench.chains, expected), || format!("wrong figures: {stats:?}"))?;
    let bytes = count * RECORD as u64;
    report.add(
        "memory.append.sharded.records_s",
        count as f64 / seconds,
        "records/s",
        count,
        bytes,
    );
    Ok(())
}

/// Reads all chains in the order of hashes; each must have the records of one chain.
fn scan(report: &Report, table: &AppendTable) -> Result<()> {
    let stats = table.stat();
    let (mut count, mut data) = (0, 0);
    let begun = thread_seconds();
    let mut run = table.snapshot()?.scan();
    while run.advance()? {
        let entry = run.entry();
        let value = entry.value.unwrap_or_default();
        let records = value.as_chunks::<RECORD>().0;
        let same = records.windows(2).all(|two| two[0] == two[1]);
        ensure(same, || format!("the chain of {} has records of others", entry.hash))?;
        count += 1;
        data += (entry.key.len() + value.len()) as u64;
    }
    let seconds = thread_seconds() - begun;
    ensure((count, data) == (stats.keys, stats.data_bytes), || format!("a scan has {count} keys"))?;
    report.add("memory.append.scan_s", count as f64 / seconds, "keys/s", count, data);
    Ok(())
}

/// Removes half of the chains, and compacts.
fn compact(bench: &MemoryBench, report: &Report, table: &AppendTable) -> Result<()> {
    for chain in (0..bench.chains).step_by(2) {
        let removed = table.remove(key(chain, bench.seed).to_le_bytes())?;
        ensure(removed, || format!("chain {chain} was not there"))?;
    }
    let fill = || {
        let stats = table.stat();
        stats.block_bytes as f64 / stats.page_bytes.max(1) as f64
    };
    let before = fill();
    let begun = thread_seconds();
    table.compact(&Watch::default())?;
    let seconds = thread_seconds() - begun;
    let (stats, keys) = (table.stat(), table.len());
    report.add("memory.append.removed_fill", before, "ratio", keys, stats.data_bytes);
    report.add("memory.append.compacted_fill", fill(), "ratio", keys, stats.data_bytes);
    report.add("memory.append.compact_s", keys as f64 / seconds, "keys/s", keys, stats.data_bytes);
    Ok(())
}

//! Measures a day of the posts on tables in RAM, at full speed: their test of appends 48 times in a row, so most chains
//! must be trimmed all day. At full size, with 78.2 million chains, these are 10.1 billion records.

use super::{
    HANDED_OVER, MemoryBench, SHARDS,
    append::{BATCH, RECORD, records},
    key, options, write_shards,
};
use crate::{
    bench::{
        ensure,
        measure::{Report, median_of, rss_bytes},
    },
    failure::Result,
};
use hashfold::memory::AppendTable;

/// How many times the records of the test of appends come in a day: 10.1 billion by 212 million.
const TESTS: u64 = 48;
/// Number of records above which a chain is trimmed, and that then stay: the newest.
const RECORDS_MAX: usize = 8;
const RECORDS_KEPT: usize = 4;

/// A record: its chain, and its time, which is the number of records before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    chain: u64,
    time: u64,
}

impl Record {
    fn encode(self) -> [u8; RECORD] {
        (u128::from(self.time) << 64 | u128::from(self.chain)).to_le_bytes()
    }

    fn decode(bytes: [u8; RECORD]) -> Record {
        let number = u128::from_le_bytes(bytes);
        Record { chain: number as u64, time: (number >> 64) as u64 }
    }
}

pub(super) fn run(bench: &MemoryBench, report: &Report) -> Result<()> {
    let chains = records(bench.chains, bench.seed);
    let before = rss_bytes();
    let table = AppendTable::new(options(bench, SHARDS))?;
    // The time of each part of about a million records, for one of them.
    let (mut seconds, mut times) = (0.0, Vec::new());
    for test in 0..TESTS {
        for (part, of_part) in chains.chunks(HANDED_OVER).enumerate() {
            let first = test * chains.len() as u64 + (part * HANDED_OVER) as u64;
            let time = append(bench, &table, of_part, first)?;
            seconds += time;
            times.push(time / of_part.len() as f64);
        }
    }
    let (stats, grown) = (table.stat(), rss_bytes() - before);
    check(bench, &table, &chains)?;
    let count = chains.len() as u64 * TESTS;
    let add = |name: &str, value, unit| {
        let name = format!("memory.day.{name}");
        report.add(&name, value, unit, count, count * RECORD as u64);
    };
    let slowest = times.iter().copied().fold(0.0, f64::max);
    add("records_s", count as f64 / seconds, "records/s");
    add("interval_ratio", slowest / median_of(times), "ratio");
    add("bytes_per_key", stats.bytes as f64 / stats.keys as f64, "bytes");
    add("rss_ratio", stats.bytes as f64 / grown, "ratio");
    add("fill", stats.data_bytes as f64 / stats.page_bytes as f64, "ratio");
    Ok(())
}

/// Appends a record to each of these chains, and trims those that become too long; returns the seconds. The first record has
/// the time `first`.
fn append(bench: &MemoryBench, table: &AppendTable, chains: &[u32], first: u64) -> Result<f64> {
    let records = chains.iter().zip(first..).map(|(chain, time)| {
        let record = Record { chain: u64::from(*chain), time };
        let key = chain_key(bench, record.chain);
        (table.shard(key), (key, record))
    });
    write_shards(records, BATCH, |records| {
        let keys: Vec<_> = records.iter().map(|(key, _)| *key).collect();
        table.change_many(&keys, |i, slot| {
            if slot.append(records[i].1.encode())? > RECORDS_MAX * RECORD {
                slot.trim(RECORDS_KEPT * RECORD)?;
            }
            Ok(())
        })
    })
}

fn chain_key(bench: &MemoryBench, chain: u64) -> [u8; 8] {
    key(chain, bench.seed).to_le_bytes()
}

/// Checks that each chain ends with its last record, and has the right number of its records, in order.
fn check(bench: &MemoryBench, table: &AppendTable, chains: &[u32]) -> Result<()> {
    // Of a test: the number of records of each chain, and that of those before its last one.
    let mut counts = vec![0_u32; bench.chains as usize];
    let mut last = vec![0_u32; bench.chains as usize];
    for (i, chain) in (0..).zip(chains) {
        counts[*chain as usize] += 1;
        last[*chain as usize] = i;
    }
    let before = (TESTS - 1) * chains.len() as u64;
    for chain in 0..bench.chains {
        let value = table.get(chain_key(bench, chain)).unwrap_or_default();
        let (bytes, rest) = value.as_chunks::<RECORD>();
        let records: Vec<_> = bytes.iter().map(|bytes| Record::decode(*bytes)).collect();
        let count = kept(u64::from(counts[chain as usize]) * TESTS);
        let newest = Record { chain, time: before + u64::from(last[chain as usize]) };
        let is_right = rest.is_empty()
            && records.len() as u64 == count
            && records.iter().all(|record| record.chain == chain)
            && records.is_sorted_by(|a, b| a.time < b.time)
            && records.last() == Some(&newest);
        ensure(is_right, || {
            format!("chain {chain}: expected {count} records up to {newest:?}, got {records:?}")
        })?;
    }
    Ok(())
}

/// Returns how many of a chain's records are there after so many were appended.
fn kept(appended: u64) -> u64 {
    let (max, kept) = (RECORDS_MAX as u64, RECORDS_KEPT as u64);
    match appended.checked_sub(max + 1) {
        None => appended,
        Some(more) => kept + more % (max + 1 - kept),
    }
}

//! Appends of records to chains, whose lengths have a Zipf distribution, in random order: the posts' test.

use super::{
    Options, Place,
    load::{Done, Step, divide, load},
    peer::{Appends, Chains, Record, Shares},
    puts::{key, say_load},
};
use crate::{
    Result,
    data::mix,
    measure::{memory, peak_memory, reset_peak_memory},
};

/// Size of a record in bytes.
const RECORD: usize = 16;
/// Exponent of the distribution of lengths, and the longest chain.
const EXPONENT: f64 = 2.24;
const RECORDS_MAX: usize = 1024;
/// Approximate number of chains that are checked record by record.
const CHECKED: u32 = 10_000;

pub(super) fn run(appends: &Appends, shares: Option<&Shares>, place: &mut Place<'_>) -> Result<()> {
    let (options, seed) = (place.options, place.options.common.seed);
    // The records are the driver's memory.
    let records = records(options.chains(), seed);
    let lists = divide(records, shares, |chain| key(u64::from(chain), seed));
    reset_peak_memory()?;
    let own = memory()?;
    let mut chains = (appends.new)(place.folder)?;
    let server = chains[0].server();
    let memory = || server.as_ref().map_or_else(memory, |server| bytes(server.memory_mib()?));
    let peak =
        || server.as_ref().map_or_else(peak_memory, |server| bytes(server.peak_memory_mib()?));
    let before = if server.is_some() { memory()? } else { own };
    let steps = chains.iter_mut().map(|chains| step(chains.as_mut(), seed));
    let done = load(steps.collect(), &lists, appends.block, options, server.as_ref())?;
    let (after, peak) = (memory()?, peak()?);
    let keys = check(chains[0].as_mut(), &lists, &done, options)?;
    let count = done.count();
    (place.say)("append_per_s", count as f64 / done.seconds);
    let grown = [after, peak].map(|bytes| bytes.saturating_sub(before) as f64);
    say_load(place, &done, keys, grown);
    let payload = (keys * size_of::<u64>() as u64 + count * RECORD as u64) as f64;
    (place.say)("overhead_bytes_per_key", (grown[0] - payload) / keys as f64);
    if let Some(bytes) = chains[0].counted_bytes()? {
        (place.say)("counted_bytes_per_key", bytes as f64 / keys as f64);
    }
    Ok(())
}

/// Returns a number of mebibytes as bytes.
fn bytes(mebibytes: f64) -> Result<u64> {
    Ok((mebibytes * f64::from(1 << 20)) as u64)
}

/// Returns the chain of each record, in random order.
fn records(chains: u32, seed: u64) -> Vec<u32> {
    let mut limits: Vec<f64> = (1..=RECORDS_MAX).map(|len| (len as f64).powf(-EXPONENT)).collect();
    for i in 1..RECORDS_MAX {
        limits[i] += limits[i - 1];
    }
    let all = limits[RECORDS_MAX - 1];
    let length = |chain: u32| {
        let unit = (mix(u64::from(chain) ^ mix(seed)) >> 11) as f64 / (1_u64 << 53) as f64;
        (limits.partition_point(|limit| *limit <= unit * all) + 1).min(RECORDS_MAX)
    };
    // Counted first, so that the list takes no more memory than it needs.
    let mut records = Vec::with_capacity((0..chains).map(length).sum());
    for chain in 0..chains {
        records.extend(std::iter::repeat_n(chain, length(chain)));
    }
    for i in (1..records.len()).rev() {
        records.swap(i, (mix(i as u64 ^ mix(!seed)) % (i as u64 + 1)) as usize);
    }
    records
}

fn key_of(chain: u32, seed: u64) -> [u8; 8] {
    key(u64::from(chain), seed).to_le_bytes()
}

/// Returns a record: its chain, and its place in the list of its thread.
fn record(chain: u32, place: u64) -> [u8; RECORD] {
    (u128::from(chain) << 64 | u128::from(place)).to_le_bytes()
}

fn step(chains: &mut dyn Chains, seed: u64) -> Step<'_> {
    let (mut next, mut block): (u64, Vec<Record>) = (0, Vec::new());
    Box::new(move |numbers| {
        block.clear();
        let places = next..;
        block.extend(
            numbers
                .iter()
                .zip(places)
                .map(|(chain, place)| (key_of(*chain, seed), record(*chain, place))),
        );
        next += numbers.len() as u64;
        chains.append_many(&block)
    })
}

/// Checks the number of keys, and the records of some chains. Returns the number of keys.
fn check(
    table: &mut dyn Chains,
    lists: &[Vec<u32>],
    done: &Done,
    options: &Options,
) -> Result<u64> {
    let chains = options.chains();
    let step = chains.div_ceil(CHECKED);
    let mut is_there = vec![false; chains as usize];
    // Number of records, and the thread that appended them.
    let mut sampled = vec![(0_usize, 0_usize); chains.div_ceil(step) as usize];
    for (thread, (list, count)) in lists.iter().zip(&done.counts).enumerate() {
        for chain in &list[..*count] {
            is_there[*chain as usize] = true;
            if chain % step == 0 {
                let (count, by) = &mut sampled[(chain / step) as usize];
                (*count, *by) = (*count + 1, thread);
            }
        }
    }
    let keys = is_there.iter().filter(|is_there| **is_there).count() as u64;
    let got = table.len()?;
    if got != keys {
        return Err(format!("expected {keys} keys, got {got}").into());
    }
    let mut value = Vec::new();
    for ((count, thread), i) in sampled.into_iter().zip(0..) {
        let chain = i * step;
        let is_there = table.get(&key_of(chain, options.common.seed), &mut value)?;
        if is_there != (count > 0) {
            return Err(format!("chain {chain} of {count} records: is there: {is_there}").into());
        }
        if is_there {
            check_chain(chain, &value, count, &lists[thread])?;
        }
    }
    Ok(keys)
}

/// Checks that a value has the records of a chain, in the order in which they were appended.
fn check_chain(chain: u32, value: &[u8], count: usize, list: &[u32]) -> Result<()> {
    let (records, rest) = value.as_chunks::<RECORD>();
    let mut before = None;
    let mut is_right = records.len() == count && rest.is_empty();
    for record in records {
        let number = u128::from_le_bytes(*record);
        let (of, place) = ((number >> 64) as u32, number as u64);
        is_right &= of == chain && list.get(place as usize) == Some(&chain);
        is_right &= before < Some(place);
        before = Some(place);
    }
    if is_right {
        return Ok(());
    }
    Err(format!("chain {chain} has a wrong value of {} bytes", value.len()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_posts_proportions_and_are_all_there_in_random_order() {
        let records = records(100_000, 1);
        let mut counts = vec![0_usize; 100_000];
        records.iter().for_each(|chain| counts[*chain as usize] += 1);
        assert!(counts.iter().all(|count| (1..=RECORDS_MAX).contains(count)));
        // 212 million records to 78.2 million keys.
        let mean = records.len() as f64 / 1e5;
        assert!((2.4..3.1).contains(&mean), "{mean}");
        assert!(!records.is_sorted());
    }

    #[test]
    fn a_chain_with_a_missing_or_foreign_record_or_in_another_order_is_wrong() {
        let list = [5, 6, 5, 5];
        let value = |places: &[u64]| -> Vec<u8> {
            places.iter().flat_map(|place| record(5, *place)).collect()
        };
        check_chain(5, &value(&[0, 2, 3]), 3, &list).unwrap();
        for places in [&[0, 2][..], &[0, 3, 2], &[0, 1, 3], &[0, 0, 2], &[0, 2, 9]] {
            assert!(check_chain(5, &value(places), 3, &list).is_err(), "{places:?}");
        }
        let foreign = [value(&[0, 2]), record(6, 3).to_vec()].concat();
        assert!(check_chain(5, &foreign, 3, &list).is_err());
        assert!(check_chain(5, &value(&[0, 2, 3])[..47], 3, &list).is_err());
    }
}

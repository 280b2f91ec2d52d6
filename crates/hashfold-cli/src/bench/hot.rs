//! `hashfold bench table`: lookups of data that are in memory, and lookups without an index.

use super::{
    device::random_reads,
    ensure,
    measure::{Report, best_of, wall_seconds},
    pairs::{KEY_SIZE, Pairs},
    random::pick,
};
use crate::failure::{Failure, Result};
use hashfold::{
    Env, ReadOptions,
    io::{Access, BlockFile, CountingDisk, Disk, OsDisk},
    table::Table,
};
use std::{path::Path, sync::Arc, thread};

/// Number of lookups of data in memory.
const LOOKUPS: u64 = 1_000_000;

/// Number of keys in a batch of lookups of data in memory.
const HOT_BATCH: usize = 64;

/// Number of passes; the best one counts.
const PASSES: usize = 3;

/// Number of lookups without an index.
const COLD_LOOKUPS: u64 = 20_000;

/// Keys in random order, with their numbers.
struct Lookups {
    numbers: Vec<u64>,
    keys: Vec<[u8; KEY_SIZE]>,
}

impl Lookups {
    fn new(pairs: &Pairs, count: u64, seed: u64) -> Lookups {
        let numbers: Vec<u64> = (0..count).map(|i| pick(i, seed, pairs.count)).collect();
        let keys = numbers.iter().map(|&i| pairs.key(i)).collect();
        Lookups { numbers, keys }
    }

    /// Looks up all keys, one at a time. Returns the number of wrong answers.
    fn one_by_one(&self, table: &Table) -> Result<u64> {
        let mut wrong = 0;
        for (key, number) in self.keys.iter().zip(&self.numbers) {
            wrong += u64::from(!is_value(table.get_ref(key)?.as_deref(), *number));
        }
        Ok(wrong)
    }

    /// Looks up all keys in batches. Returns the number of wrong answers.
    fn in_batches(&self, table: &Table, batch: usize) -> Result<u64> {
        let mut wrong = 0;
        for (keys, numbers) in self.keys.chunks(batch).zip(self.numbers.chunks(batch)) {
            table.get_many(keys, &mut |i, value| {
                wrong += u64::from(!is_value(value, numbers[i]));
                Ok(())
            })?;
        }
        Ok(wrong)
    }
}

/// Whether a value begins with its number.
fn is_value(value: Option<&[u8]>, number: u64) -> bool {
    value.and_then(|value| value.first_chunk()) == Some(&number.to_le_bytes())
}

/// Prints a measurement: its name in the group, its value, its unit.
type Say<'a> = dyn Fn(&str, f64, &str) + 'a;

/// Measures lookups of a mapped table whose data are in the page cache.
pub(super) fn hot(pairs: &Pairs, table: &Path, report: &Report) -> Result<()> {
    let table = Table::open_with(table, &ReadOptions::new().data(Access::Mapped))?;
    let lookups = [1, 2].map(|seed| Lookups::new(pairs, LOOKUPS, pairs.seed + seed));
    // After a scan of all blocks, no lookup reads the device or checks a block.
    for i in (0..pairs.count).step_by(HOT_BATCH) {
        let keys: Vec<_> =
            (i..pairs.count.min(i + HOT_BATCH as u64)).map(|i| pairs.key(i)).collect();
        table.get_many(&keys, &mut |_, _| Ok(()))?;
    }
    let say: &Say<'_> = &|what, value, unit| {
        let size = if pairs.name == "64b" { "" } else { ".1kib" };
        report.add(&format!("table.hot{size}.{what}"), value, unit, LOOKUPS, pairs.bytes());
    };
    let single = |lookups: &Lookups| lookups.one_by_one(&table);
    let batch = |lookups: &Lookups| lookups.in_batches(&table, HOT_BATCH);
    say("gets_per_s", rate(&lookups[..1], &single)?, "1/s");
    say("gets_per_s.2_threads", rate(&lookups, &single)?, "1/s");
    say("batched_gets_per_s", rate(&lookups[..1], &batch)?, "1/s");
    say("batched_gets_per_s.2_threads", rate(&lookups, &batch)?, "1/s");
    Ok(())
}

/// Returns the lookups per second of as many threads as there are sets of lookups.
fn rate(lookups: &[Lookups], look_up: &(dyn Fn(&Lookups) -> Result<u64> + Sync)) -> Result<f64> {
    let mut outcome = Ok(0);
    let seconds = best_of(PASSES, || {
        let (seconds, wrong) = wall_seconds(|| {
            thread::scope(|scope| {
                let threads: Vec<_> =
                    lookups.iter().map(|lookups| scope.spawn(|| look_up(lookups))).collect();
                let join =
                    |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
                threads.into_iter().map(join).sum::<Result<u64>>()
            })
        });
        match (&outcome, wrong) {
            (Ok(before), Ok(wrong)) => outcome = Ok(before + wrong),
            (Ok(_), error) => outcome = error,
            (Err(_), _) => {}
        }
        seconds
    });
    let wrong = outcome?;
    ensure(wrong == 0, || format!("{wrong} lookups gave a wrong value"))?;
    Ok(lookups.len() as f64 * LOOKUPS as f64 / seconds)
}

/// Measures lookups without an index, which search the data file on the device.
pub(super) fn without_index(
    pairs: &Pairs,
    table: &Path,
    file: &dyn BlockFile,
    report: &Report,
) -> Result<()> {
    let counts = CountingDisk::on(Arc::new(OsDisk));
    let disk: Arc<dyn Disk> = Arc::new(counts.clone());
    let options = ReadOptions::new().data(Access::Direct).without_index().env(Env::on(disk));
    let table = Table::open_with(table, &options)?;
    let lookups = Lookups::new(pairs, COLD_LOOKUPS.min(pairs.count), pairs.seed);
    let count = lookups.keys.len() as u64;
    let mut reads = Vec::with_capacity(lookups.keys.len());
    counts.take();
    let (seconds, done) = wall_seconds(|| {
        lookups.keys.iter().zip(&lookups.numbers).try_for_each(|(key, number)| {
            let value = table.get_ref(key)?;
            ensure(is_value(value.as_deref(), *number), || "a lookup gave a wrong value".into())?;
            reads.push(counts.take().reads);
            Ok::<(), Failure>(())
        })
    });
    done?;
    let mut block = vec![0; 4096];
    let (plain, done) = wall_seconds(|| {
        (0..count).try_for_each(|i| {
            let blocks = file.size()? / 4096 - 1;
            file.read_at(pick(i, pairs.seed + 1, blocks) * 4096, &mut block)
        })
    });
    done?;
    let (batched, wrong) = wall_seconds(|| lookups.in_batches(&table, super::device::BATCH));
    ensure(wrong? == 0, || "lookups in batches gave wrong values".to_owned())?;
    let plain_batched = random_reads(file, count, pairs.seed + 2, 0.0)?;
    reads.sort_unstable();
    let say: &Say<'_> = &|what, value, unit| {
        let size = if pairs.name == "64b" { "" } else { ".1kib" };
        report.add(&format!("table.without_index{size}.{what}"), value, unit, count, pairs.bytes());
    };
    let mean = reads.iter().sum::<u64>() as f64 / count as f64;
    say("reads_per_get", mean, "reads");
    say("reads_per_get.p99", reads[reads.len() * 99 / 100] as f64, "reads");
    say("gets_per_s", count as f64 / seconds, "1/s");
    say("plain_fraction", plain / seconds, "of plain reads, one at a time");
    say("batched_gets_per_s", count as f64 / batched, "1/s");
    say("batched_plain_fraction", count as f64 / batched / plain_batched, "of plain reads");
    Ok(())
}

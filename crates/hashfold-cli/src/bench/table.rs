//! `hashfold bench table`.

use super::{
    TableBench,
    device::{BATCH, device_rates, random_reads},
    ensure, hot,
    measure::{
        Report, best_of, cpu_seconds, peak_rss_mib, process_seconds, reset_peak_rss, wall_seconds,
    },
    pairs::{KEY_SIZE, PAIR_SIZES, Pairs, Row, RowFile},
    random::pick,
};
use crate::failure::{Exit, Failure, Result};
use hashfold::{
    Env, KeyHash, ReadOptions, Seed,
    io::{Access, CountingDisk, Disk, MemoryDisk, Moved, OsDisk},
    run::SortOptions,
    table::{HashIndex, IndexChoice, IndexOptions, Table, TableBuilder, TableOptions},
    work::{Executor, Threads, Watch},
};
use std::{path::Path, sync::Arc};

const ROUNDS: usize = 5;
const LOOKUPS_MAX: u64 = 2_000_000;

pub(super) fn run(bench: &TableBench, report: &Report) -> Result<()> {
    // Builds come first, so that peak RSS includes nothing else.
    if ["build", "cold", "hot", "without-index", "input"]
        .into_iter()
        .any(|group| wants(bench, group))
    {
        OsDisk.create_folder(&bench.dir)?;
        let done = in_folder(bench, report);
        // The folder stays if it existed before and is not empty.
        let _ = OsDisk.remove_folder(&bench.dir);
        done?;
    }
    in_memory(bench, report)
}

fn wants(bench: &TableBench, group: &str) -> bool {
    bench.only.is_empty() || bench.only.iter().any(|only| only == group)
}

fn in_folder(bench: &TableBench, report: &Report) -> Result<()> {
    if ["build", "cold", "hot", "without-index"].into_iter().any(|group| wants(bench, group)) {
        on_disk(bench, report)?;
    }
    if wants(bench, "input") {
        super::input::run(bench, report)?;
    }
    Ok(())
}

fn in_memory(bench: &TableBench, report: &Report) -> Result<()> {
    if wants(bench, "locations") {
        locations(bench, report)?;
    }
    if ["trie", "fence", "sparse"].into_iter().any(|group| wants(bench, group)) {
        let hashes = Hashes::new(bench.keys, bench.seed);
        if wants(bench, "trie") {
            tries(bench, report, &hashes)?;
        }
        if wants(bench, "fence") {
            [16, 64].into_iter().try_for_each(|k| fences(report, &hashes, k))?;
        }
        if wants(bench, "sparse") {
            [8, 16].into_iter().try_for_each(|k| sparse(report, &hashes, k))?;
        }
    }
    Ok(())
}

/// Sorted hashes, and a sample of them in random order.
struct Hashes {
    sorted: Vec<KeyHash>,
    lookups: Vec<KeyHash>,
    ranks: Vec<u64>,
}

impl Hashes {
    fn new(count: u64, seed: u64) -> Hashes {
        let mut sorted: Vec<KeyHash> =
            (0..count).map(|i| KeyHash::of(&i.to_le_bytes(), Seed(seed))).collect();
        sorted.sort_unstable();
        let lookups = LOOKUPS_MAX.min(10 * count);
        let ranks: Vec<u64> = (0..lookups).map(|i| pick(i, seed, count)).collect();
        let lookups = ranks.iter().map(|&rank| sorted[rank as usize]).collect();
        Hashes { sorted, lookups, ranks }
    }

    fn count(&self) -> u64 {
        self.sorted.len() as u64
    }
}

fn bits(index: &HashIndex, hashes: &Hashes) -> f64 {
    index.bytes() as f64 * 8.0 / hashes.count() as f64
}

fn tries(bench: &TableBench, report: &Report, hashes: &Hashes) -> Result<()> {
    let default = IndexOptions::default();
    let sizes = if bench.sweep { &[16, 24, 32, 48, 64, 96, 128, 256, 512][..] } else { &[64, 256] };
    for &bucket_size in sizes {
        let options = IndexOptions { bucket_size, ..default };
        trie(report, hashes, &format!("table.trie.g{bucket_size}"), &options)?;
    }
    let limits = if bench.sweep { &[0, 2, 4, 8, 16, 32, 64, 128, 256][..] } else { &[] };
    for &coding_limit in limits {
        let options = IndexOptions { coding_limit, bucket_size: 256, ..default };
        trie(report, hashes, &format!("table.trie.g256_limit{coding_limit}"), &options)?;
    }
    Ok(())
}

fn trie(report: &Report, hashes: &Hashes, name: &str, options: &IndexOptions) -> Result<()> {
    let count = hashes.count();
    let mut built = None;
    let build = best_of(2, || {
        let input = hashes.sorted.iter().copied();
        cpu_seconds(|| built = Some(HashIndex::dense(input, count, options)))
    });
    let index = built.expect("`best_of` runs at least once")?;
    let stats = index.stats();
    let part = |bytes: u64| bytes as f64 * 8.0 / count as f64;
    let say = |what: &str, value, unit| {
        report.add(&format!("{name}.{what}"), value, unit, count, index.bytes());
    };
    say("bits_per_key", bits(&index, hashes), "bits");
    say("tries_bits_per_key", part(stats.coded_bytes), "bits");
    say("directory_bits_per_key", part(stats.directory_bytes), "bits");
    say("get_ns", single_ns(&index, hashes)?, "ns");
    say("batch_ns", batch_ns(&index, hashes)?, "ns");
    if name == "table.trie.g64" {
        report.add(
            "table.trie.build_ns_per_key",
            build / count as f64 * 1e9,
            "ns",
            count,
            index.bytes(),
        );
    }
    Ok(())
}

/// Returns the CPU time per lookup, with checked answers.
fn single_ns(index: &HashIndex, hashes: &Hashes) -> Result<f64> {
    let mut wrong = 0;
    let seconds = best_of(ROUNDS, || {
        cpu_seconds(|| {
            for (hash, rank) in hashes.lookups.iter().zip(&hashes.ranks) {
                wrong += u64::from(!index.ranks(*hash).contains(rank));
            }
        })
    });
    ensure(wrong == 0, || format!("{wrong} lookups gave a wrong rank"))?;
    Ok(seconds / hashes.lookups.len() as f64 * 1e9)
}

fn batch_ns(index: &HashIndex, hashes: &Hashes) -> Result<f64> {
    let mut wrong = 0;
    let mut out = Vec::with_capacity(BATCH);
    let seconds = best_of(ROUNDS, || {
        cpu_seconds(|| {
            for (batch, ranks) in hashes.lookups.chunks(BATCH).zip(hashes.ranks.chunks(BATCH)) {
                out.clear();
                index.ranks_many(batch, &mut out);
                let found = out.iter().zip(ranks);
                wrong += found.filter(|(found, rank)| !found.contains(rank)).count();
            }
        })
    });
    ensure(wrong == 0, || format!("{wrong} lookups in batches gave a wrong rank"))?;
    Ok(seconds / hashes.lookups.len() as f64 * 1e9)
}

fn fences(report: &Report, hashes: &Hashes, per_block: u64) -> Result<()> {
    let count = hashes.count();
    let index = HashIndex::fences(hashes.sorted.iter().copied(), count, per_block)?;
    let mut second = 0;
    let mut wrong = 0;
    for (rank, hash) in hashes.sorted.iter().enumerate() {
        let block = index.ranks(*hash).start / per_block;
        let own = rank as u64 / per_block;
        second += u64::from(block == own + 1);
        wrong += u64::from(block != own && block != own + 1);
    }
    ensure(wrong == 0, || {
        format!("{wrong} keys are neither in the block that fences say nor before it")
    })?;
    let mut checksum = 0_u64;
    let seconds = best_of(ROUNDS, || {
        cpu_seconds(|| {
            for hash in &hashes.lookups {
                checksum = checksum.wrapping_add(index.ranks(*hash).start);
            }
        })
    });
    ensure(checksum != 0, || "lookups gave nothing".to_owned())?;
    let say = |what: &str, value, unit| {
        let name = format!("table.fence.k{per_block}.{what}");
        report.add(&name, value, unit, count, index.bytes());
    };
    say("bits_per_key", bits(&index, hashes), "bits");
    say("get_ns", seconds / hashes.lookups.len() as f64 * 1e9, "ns");
    say("second_read_fraction", second as f64 / count as f64, "of lookups");
    Ok(())
}

fn sparse(report: &Report, hashes: &Hashes, per_block: u64) -> Result<()> {
    let count = hashes.count();
    let options = IndexOptions { bucket_size: 256, ..IndexOptions::default() };
    let input = hashes.sorted.iter().copied();
    let index = HashIndex::sparse(input, count, per_block, &options)?;
    let say = |what: &str, value, unit| {
        let name = format!("table.sparse.k{per_block}.{what}");
        report.add(&name, value, unit, count, index.bytes());
    };
    say("get_ns", single_ns(&index, hashes)?, "ns");
    say("bits_per_key", bits(&index, hashes), "bits");
    Ok(())
}

/// Measures the index of blocks for entries that differ in size: values of 0 to twice the mean.
fn locations(bench: &TableBench, report: &Report) -> Result<()> {
    const COUNT_MAX: u64 = 200_000;
    let seed = bench.seed;
    for (name, mean) in [("100b", 84), ("1kib", 1008), ("16kib", 16_368)] {
        let count = COUNT_MAX.min(bench.keys).min((256 << 20) / mean);
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let index = IndexOptions { choice: IndexChoice::Dense, ..IndexOptions::default() };
        let options = TableOptions::new().seed(Seed(seed)).id(1).index(index);
        let folder = Path::new("table");
        let builder = TableBuilder::with(folder, options.env(Env::on(disk)))?;
        let mut sorter = builder.sorter(SortOptions::default())?;
        let value = vec![0; 2 * mean as usize + 1];
        for i in 0..count {
            let size = pick(i, seed, 2 * mean + 1) as usize;
            sorter.push(
                &KeyHash::of(&i.to_le_bytes(), Seed(seed)).bits().to_le_bytes(),
                Some(&value[..size]),
            )?;
        }
        let mut run = sorter.finish()?;
        let stats = builder.build(&mut run, &Watch::default())?;
        let bits = stats.index.unwrap_or_default().location_bytes as f64 * 8.0 / count as f64;
        let name = format!("table.locations.{name}.bits_per_key");
        report.add(&name, bits, "bits", count, stats.data_bytes);
    }
    Ok(())
}

fn on_disk(bench: &TableBench, report: &Report) -> Result<()> {
    let build = wants(bench, "build");
    // Builds in little memory come first, so that peak RSS includes nothing else.
    let memories = [Memory::Small, Memory::Ample];
    for memory in memories.into_iter().take(if build { 2 } else { 1 }) {
        for (name, size) in PAIR_SIZES {
            let pairs = Pairs::new(name, size, bench.data as u64, bench.seed);
            let table = bench.dir.join(name);
            let scene = Scene { bench, report, pairs, table: &table };
            let input = scene.write_input()?;
            let built = scene.build(&input, memory, build);
            OsDisk.remove(&input.path)?;
            built?;
            if memory == Memory::Small {
                scene.look_up()?;
            }
            scene.remove()?;
        }
    }
    Ok(())
}

/// Memory budgets of builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Less memory than data: each byte moves four times.
    Small,
    /// More memory than data: each byte moves twice.
    Ample,
}

/// One set of pairs on the device.
struct Scene<'a> {
    bench: &'a TableBench,
    report: &'a Report,
    pairs: Pairs,
    table: &'a Path,
}

impl Scene<'_> {
    /// Input of the builds: a file of pairs in random order.
    fn write_input(&self) -> Result<RowFile> {
        let rows = (0..self.pairs.count).map(Row::first);
        self.pairs.write(self.bench.dir.join("input"), rows, self.bench.threads)
    }

    fn build(&self, input: &RowFile, memory: Memory, printed: bool) -> Result<()> {
        let Pairs { name, count, .. } = self.pairs;
        let bytes = self.pairs.bytes();
        let (suffix, memory, moves) = match memory {
            Memory::Small => ("", self.bench.memory as u64, 4.0),
            Memory::Ample => (".fits", bytes * 3, 2.0),
        };
        let before = if printed {
            Some(device_rates(&self.bench.dir, self.bench.data as u64, self.bench.threads)?)
        } else {
            None
        };
        reset_peak_rss();
        let cpu = process_seconds();
        let (seconds, built) = wall_seconds(|| self.build_once(input, memory));
        let cached = built?;
        let cpu = process_seconds() - cpu;
        let peak = peak_rss_mib();
        let Some(before) = before else { return Ok(()) };
        let rate = before
            .and(device_rates(&self.bench.dir, self.bench.data as u64, self.bench.threads)?)
            .mixed();
        let say = |what: &str, value, unit| {
            let name = format!("table.build.{name}{suffix}.{what}");
            self.report.add(&name, value, unit, count, bytes);
        };
        let share = rate / moves;
        say("device_mb_per_s", rate / 1e6, "MB/s");
        say("items_per_s", count as f64 / seconds, "1/s");
        say("cpu_ns_per_item", cpu / count as f64 * 1e9, "ns");
        say("disk_fraction", bytes as f64 / seconds / share, "of the device's rate");
        say("peak_rss_mib", peak, "MiB");
        let cached_mib = cached as f64 / f64::from(1 << 20);
        say("spill_in_page_cache_mib", cached_mib, "MiB at most");
        say("memory_mib", peak + cached_mib, "MiB, with the page cache");
        Ok(())
    }

    /// Builds the table. Returns the number of spilled bytes that the page cache holds if memory is
    /// free. When it returns, the table is durable, and the file system has freed the spill.
    fn build_once(&self, input: &RowFile, memory: u64) -> Result<u64> {
        let options = TableOptions::new().seed(Seed(self.pairs.seed)).id(1).replace(true);
        let executor: Arc<dyn Executor> = Arc::new(Threads::new(self.bench.threads));
        let env = Env { executor: executor.clone(), ..Env::system() };
        let builder = TableBuilder::with(self.table, options.env(env))?;
        let sort = SortOptions::within(memory as usize);
        let mut sorter = builder.sorter(sort)?;
        self.pairs.read(&OsDisk, input, executor.as_ref(), &mut |key, value| {
            Ok(sorter.push(key, value)?)
        })?;
        let mut run = sorter.finish()?;
        let stats = builder.build(&mut run, &Watch::default())?;
        ensure(stats.entries == self.pairs.count, || {
            format!("{} entries were built", stats.entries)
        })?;
        Ok(run.spilled_bytes().min(sort.cached_bytes as u64))
    }

    fn look_up(&self) -> Result<()> {
        if wants(self.bench, "without-index") {
            let file = self.data_file()?;
            hot::without_index(&self.pairs, self.table, file.as_ref(), self.report)?;
        }
        if wants(self.bench, "hot") {
            hot::hot(&self.pairs, self.table, self.report)?;
        }
        if wants(self.bench, "cold") {
            self.cold()?;
        }
        Ok(())
    }

    fn cold(&self) -> Result<()> {
        let counting = CountingDisk::on(Arc::new(OsDisk));
        let disk: Arc<dyn Disk> = Arc::new(counting.clone());
        for (suffix, choice) in [("", IndexChoice::Auto), (".dense", IndexChoice::Dense)] {
            if choice != IndexChoice::Auto {
                let options = IndexOptions { choice, ..IndexOptions::default() };
                hashfold::table::reindex(
                    &Env::on(disk.clone()),
                    self.table,
                    &options,
                    &Watch::default(),
                )?;
            }
            let options = ReadOptions::new().data(Access::Direct);
            let table = Table::open_with(self.table, &options.env(Env::on(disk.clone())))?;
            self.cold_gets(&table, suffix, &|| counting.take())?;
        }
        Ok(())
    }

    fn cold_gets(&self, table: &Table, suffix: &str, moved: &dyn Fn() -> Moved) -> Result<()> {
        /// Number of alternating rounds of lookups and plain reads.
        const TURNS: u64 = 5;
        let count = (20 * BATCH as u64).min(self.pairs.count);
        let file = self.data_file()?;
        let (mut seconds, mut plain, mut same_sizes) = (0.0, 0.0, 0.0);
        let (mut all_reads, mut all_bytes) = (0, 0);
        for turn in 0..TURNS {
            let seed = self.pairs.seed + turn;
            let numbers: Vec<u64> = (0..count).map(|i| pick(i, seed, self.pairs.count)).collect();
            let keys: Vec<[u8; KEY_SIZE]> = numbers.iter().map(|&i| self.pairs.key(i)).collect();
            moved();
            let (time, wrong) = wall_seconds(|| self.get_all(table, &keys, &numbers));
            let wrong = wrong?;
            ensure(wrong == 0, || format!("{wrong} lookups gave a wrong value"))?;
            seconds += time;
            let Moved { reads, read_bytes, .. } = moved();
            (all_reads, all_bytes) = (all_reads + reads, all_bytes + read_bytes);
            plain += random_reads(file.as_ref(), count, seed, 0.0)?;
            let long_part = read_bytes as f64 / (reads * 4096) as f64 - 1.0;
            same_sizes += random_reads(file.as_ref(), count, seed + TURNS, long_part)?;
        }
        let gets = TURNS * count;
        let say = |what: &str, value, unit| {
            let size = if self.pairs.name == "64b" { "" } else { ".1kib" };
            let name = format!("table.cold{size}{suffix}.{what}");
            self.report.add(&name, value, unit, gets, self.pairs.bytes());
        };
        say("reads_per_get", all_reads as f64 / gets as f64, "reads");
        say("blocks_per_get", all_bytes as f64 / 4096.0 / gets as f64, "blocks of 4 KiB");
        say("gets_per_s", gets as f64 / seconds, "1/s");
        let rate = gets as f64 / seconds;
        say("iops_fraction", rate / (plain / TURNS as f64), "of plain reads");
        say(
            "same_sizes_fraction",
            rate / (same_sizes / TURNS as f64),
            "of plain reads of its sizes",
        );
        Ok(())
    }

    fn get_all(&self, table: &Table, keys: &[[u8; KEY_SIZE]], numbers: &[u64]) -> Result<u64> {
        let mut wrong = 0;
        for (keys, numbers) in keys.chunks(BATCH).zip(numbers.chunks(BATCH)) {
            table.get_many(keys, &mut |i, value| {
                let number = value.and_then(|value| value.first_chunk::<8>());
                wrong += u64::from(number != Some(&numbers[i].to_le_bytes()));
                Ok(())
            })?;
        }
        Ok(wrong)
    }

    fn data_file(&self) -> Result<Arc<dyn hashfold::io::BlockFile>> {
        let names = OsDisk.list(self.table)?;
        let name = names.iter().find(|name| name.starts_with("data-"));
        let missing = || Failure { exit: Exit::Damage, message: "no data file".into() };
        let name = name.ok_or_else(missing)?;
        Ok(OsDisk.open(&self.table.join(name), Access::Direct)?)
    }

    fn remove(&self) -> Result<()> {
        for name in OsDisk.list(self.table)? {
            OsDisk.remove(&self.table.join(name))?;
        }
        Ok(OsDisk.remove_folder(self.table)?)
    }
}

//! `hashfold bench table`.

use super::{
    TableBench,
    device::{CountingDisk, Rates, random_reads, sequential},
    ensure,
    measure::{
        Report, best_of, cpu_seconds, peak_rss_mib, process_seconds, reset_peak_rss, wall_seconds,
    },
};
use crate::failure::{Exit, Failure, Result};
use hashfold::{
    KeyHash, Seed,
    io::{Access, Buffer, Disk, MemoryDisk, OsDisk, Writer},
    run::SortOptions,
    table::{HashIndex, IndexChoice, IndexOptions, OpenOptions, Table, TableBuilder, TableOptions},
    work::{Executor, Inline, Pending, Threads},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

/// Lookups that are handed over together.
pub(crate) const BATCH: usize = 16384;

const ROUNDS: usize = 5;
const LOOKUPS_MAX: u64 = 2_000_000;

pub(crate) fn run(bench: &TableBench) -> Result<()> {
    let report = Report::new(bench.json, bench.seed, bench.threads);
    // Builds come first: the peak of their memory is not to be that of anything before.
    if ["build", "cold", "input"].into_iter().any(|group| wants(bench, group)) {
        OsDisk.create_folder(&bench.dir)?;
        let done = in_folder(bench, &report);
        // Leaves the folder if it was there before with something in it.
        let _ = OsDisk.remove_folder(&bench.dir);
        done?;
    }
    in_memory(bench, &report)
}

fn wants(bench: &TableBench, group: &str) -> bool {
    bench.only.is_empty() || bench.only.iter().any(|only| only == group)
}

fn in_folder(bench: &TableBench, report: &Report) -> Result<()> {
    let (build, cold) = (wants(bench, "build"), wants(bench, "cold"));
    if build || cold {
        on_disk(bench, report, build, cold)?;
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

/// Sorted hashes, and some of them in random order.
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

/// A number below `count` that looks random.
pub(crate) fn pick(i: u64, seed: u64, count: u64) -> u64 {
    let hash = KeyHash::of(&i.to_be_bytes(), Seed(!seed)).high();
    ((u128::from(hash) * u128::from(count)) >> 64) as u64
}

/// Bytes that do not compress; `len` is a multiple of 16.
pub(crate) fn noise(len: u64, seed: u64) -> impl Iterator<Item = u8> {
    (0..len / 16).flat_map(move |i| KeyHash::of(&i.to_le_bytes(), Seed(seed)).bits().to_le_bytes())
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

/// The CPU time of a lookup, checked.
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

/// What it costs to know the blocks of entries that differ in size: values of 0 to twice the mean.
fn locations(bench: &TableBench, report: &Report) -> Result<()> {
    const COUNT_MAX: u64 = 200_000;
    let seed = bench.seed;
    for (name, mean) in [("100b", 84), ("1kib", 1008), ("16kib", 16_368)] {
        let count = COUNT_MAX.min(bench.keys).min((256 << 20) / mean);
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let index = IndexOptions { choice: IndexChoice::Dense, ..IndexOptions::default() };
        let options = TableOptions { index, ..TableOptions::new(Seed(seed), 1) };
        let folder = Path::new("table");
        let builder = TableBuilder::create(disk, folder, options, Arc::new(Inline))?;
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
        let summary = *run.summary();
        let stats = builder.build(&mut run, &summary)?;
        let bits = stats.index.location_bytes as f64 * 8.0 / count as f64;
        let name = format!("table.locations.{name}.bits_per_key");
        report.add(&name, bits, "bits", count, stats.data_bytes);
    }
    Ok(())
}

/// Pairs of a key of 16 bytes and a value.
#[derive(Clone, Copy, Debug)]
struct Pairs {
    name: &'static str,
    count: u64,
    value_size: usize,
    seed: u64,
}

const KEY_SIZE: usize = 16;

/// The input is read in units of about this size, in bytes.
const UNIT_SIZE: usize = 1 << 20;

/// Takes a key and its value.
type PushPair<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

impl Pairs {
    fn new(name: &'static str, pair_size: u64, bench: &TableBench) -> Pairs {
        let value_size = pair_size as usize - KEY_SIZE;
        Pairs { name, count: bench.data as u64 / pair_size, value_size, seed: bench.seed }
    }

    fn size(&self) -> usize {
        KEY_SIZE + self.value_size
    }

    fn bytes(&self) -> u64 {
        self.count * self.size() as u64
    }

    fn key(&self, i: u64) -> [u8; KEY_SIZE] {
        KeyHash::of(&i.to_le_bytes(), Seed(self.seed)).bits().to_le_bytes()
    }

    /// Writes the pair with this number; its value starts with the number.
    fn fill(&self, i: u64, noise: &[u8], pair: &mut [u8]) {
        pair[..KEY_SIZE].copy_from_slice(&self.key(i));
        let at = (i as usize * 16) % (noise.len() - pair.len());
        pair[KEY_SIZE..].copy_from_slice(&noise[at..][..self.value_size]);
        pair[KEY_SIZE..KEY_SIZE + 8].copy_from_slice(&i.to_le_bytes());
    }
}

/// Pairs are small or large: a name, and their size in bytes.
const PAIR_SIZES: [(&str, u64); 2] = [("64b", 64), ("1kib", 1024)];

fn on_disk(bench: &TableBench, report: &Report, build: bool, cold: bool) -> Result<()> {
    // The builds in little memory come first: their peak is not to be that of the others.
    let memories = [Memory::Small, Memory::Ample];
    for memory in memories.into_iter().take(if build { 2 } else { 1 }) {
        for (name, size) in PAIR_SIZES {
            let pairs = Pairs::new(name, size, bench);
            let table = bench.dir.join(name);
            let scene = Scene { bench, report, pairs, table: &table };
            let input = scene.write_input()?;
            let built = scene.build(&input, memory, build);
            OsDisk.remove(&input)?;
            built?;
            if cold && memory == Memory::Small {
                scene.cold()?;
            }
            scene.remove()?;
        }
    }
    Ok(())
}

/// How much memory a build has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Less than the data: each byte moves four times.
    Small,
    /// More than the data: each byte moves twice.
    Ample,
}

/// One set of pairs on disk.
struct Scene<'a> {
    bench: &'a TableBench,
    report: &'a Report,
    pairs: Pairs,
    table: &'a Path,
}

impl Scene<'_> {
    /// A file of pairs in random order: the input of the builds.
    fn write_input(&self) -> Result<PathBuf> {
        let path = self.bench.dir.join("input");
        let file = OsDisk.create(&path, Access::Direct)?;
        let executor = Arc::new(Threads::new(self.bench.threads));
        let mut writer = Writer::new(file.clone(), executor);
        let noise: Vec<u8> = noise(1 << 20, self.pairs.seed).collect();
        let mut pair = vec![0; self.pairs.size()];
        for i in 0..self.pairs.count {
            self.pairs.fill(i, &noise, &mut pair);
            writer.append(&pair)?;
        }
        let padding = self.pairs.bytes().next_multiple_of(4096) - self.pairs.bytes();
        writer.append(&vec![0; padding as usize])?;
        writer.finish()?;
        file.sync()?;
        Ok(path)
    }

    fn build(&self, input: &Path, memory: Memory, told: bool) -> Result<()> {
        let Pairs { name, count, .. } = self.pairs;
        let bytes = self.pairs.bytes();
        let (suffix, memory, moves) = match memory {
            Memory::Small => ("", self.bench.memory as u64, 4.0),
            Memory::Ample => (".fits", bytes * 3, 2.0),
        };
        let before = if told { Some(self.device_rates()?) } else { None };
        reset_peak_rss();
        let executor: Arc<dyn Executor> = Arc::new(Threads::new(self.bench.threads));
        let cpu = process_seconds();
        let (seconds, built) = wall_seconds(|| self.build_once(input, memory, &executor));
        built?;
        let cpu = process_seconds() - cpu;
        let peak = peak_rss_mib();
        // Freeing the spill file's blocks goes on after the table is published.
        let (cleanup, ()) = wall_seconds(|| drop(executor));
        let Some(before) = before else { return Ok(()) };
        let rate = before.and(self.device_rates()?).mixed();
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
        say("cleanup_s", cleanup, "s");
        Ok(())
    }

    /// The device's rates now: on a shared one they change.
    fn device_rates(&self) -> Result<Rates> {
        let executor: Arc<dyn Executor> = Arc::new(Threads::new(self.bench.threads));
        let size = (self.bench.data as u64 / 4).next_multiple_of(1 << 20);
        Ok(sequential(&self.bench.dir.join("device"), size, &executor)?)
    }

    fn build_once(&self, input: &Path, memory: u64, executor: &Arc<dyn Executor>) -> Result<()> {
        let options = TableOptions {
            access: Access::Direct,
            replace: true,
            ..TableOptions::new(Seed(self.pairs.seed), 1)
        };
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let builder = TableBuilder::create(disk, self.table, options, executor.clone())?;
        let mut sorter = builder.sorter(SortOptions::within(memory as usize))?;
        self.read_input(input, executor, &mut |key, value| Ok(sorter.push(key, Some(value))?))?;
        let mut run = sorter.finish()?;
        let summary = *run.summary();
        let stats = builder.build(&mut run, &summary)?;
        ensure(stats.entries == self.pairs.count, || {
            format!("{} entries were built", stats.entries)
        })
    }

    /// Reads the input in large units, one ahead.
    fn read_input(
        &self,
        path: &Path,
        executor: &Arc<dyn Executor>,
        push: &mut PushPair<'_>,
    ) -> Result<()> {
        let size = self.pairs.size();
        let unit = (UNIT_SIZE / size * size).next_multiple_of(4096 * size);
        let file = OsDisk.open(path, Access::Direct)?;
        let file_size = file.size()?;
        let start = |offset: u64, mut bytes: Buffer| {
            let file = file.clone();
            Pending::start(executor.as_ref(), move || {
                let len = bytes.len().min((file_size - offset) as usize);
                file.read_at(offset, &mut bytes[..len]).map(|()| bytes)
            })
        };
        let mut ahead = Some(start(0, Buffer::zeroed(unit)));
        let mut spare = Buffer::zeroed(unit);
        let mut left = self.pairs.count as usize;
        let mut offset = 0;
        while let Some(pending) = ahead.take() {
            let bytes = pending.wait()?;
            offset += unit as u64;
            if offset < file_size {
                ahead = Some(start(offset, spare));
            }
            for pair in bytes.chunks_exact(size).take(left) {
                let (key, value) = pair.split_at(KEY_SIZE);
                push(key, value)?;
            }
            left -= left.min(unit / size);
            spare = bytes;
        }
        ensure(left == 0, || format!("the input is short by {left} pairs"))
    }

    fn cold(&self) -> Result<()> {
        let disk = CountingDisk::default();
        let reads = disk.reads.clone();
        let disk: Arc<dyn Disk> = Arc::new(disk);
        for (suffix, choice) in [("", IndexChoice::Auto), (".dense", IndexChoice::Dense)] {
            if choice != IndexChoice::Auto {
                let options = IndexOptions { choice, ..IndexOptions::default() };
                hashfold::table::reindex(&disk, self.table, &options)?;
            }
            let options = OpenOptions { data: Access::Direct, ..OpenOptions::default() };
            let table = Table::open(&disk, self.table, options)?;
            self.cold_gets(&table, suffix, &|| reads.swap(0, Ordering::Relaxed))?;
        }
        Ok(())
    }

    fn cold_gets(&self, table: &Table, suffix: &str, reads: &dyn Fn() -> u64) -> Result<()> {
        /// Rounds of lookups and of plain reads, in turns.
        const TURNS: u64 = 5;
        let count = (20 * BATCH as u64).min(self.pairs.count);
        let file = self.data_file()?;
        let (mut seconds, mut device_reads, mut plain) = (0.0, 0, 0.0);
        for turn in 0..TURNS {
            let seed = self.pairs.seed + turn;
            let numbers: Vec<u64> = (0..count).map(|i| pick(i, seed, self.pairs.count)).collect();
            let keys: Vec<[u8; KEY_SIZE]> = numbers.iter().map(|&i| self.pairs.key(i)).collect();
            reads();
            let (time, wrong) = wall_seconds(|| self.get_all(table, &keys, &numbers));
            let wrong = wrong?;
            ensure(wrong == 0, || format!("{wrong} lookups gave a wrong value"))?;
            seconds += time;
            device_reads += reads();
            plain += random_reads(file.as_ref(), count, seed)?;
        }
        let gets = TURNS * count;
        let say = |what: &str, value, unit| {
            let size = if self.pairs.name == "64b" { "" } else { ".1kib" };
            let name = format!("table.cold{size}{suffix}.{what}");
            self.report.add(&name, value, unit, gets, self.pairs.bytes());
        };
        say("reads_per_get", device_reads as f64 / gets as f64, "reads");
        say("gets_per_s", gets as f64 / seconds, "1/s");
        say("iops_fraction", gets as f64 / seconds / (plain / TURNS as f64), "of plain reads");
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

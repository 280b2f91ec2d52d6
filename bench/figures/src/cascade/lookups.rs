//! Section 3, lookups: device reads per lookup, and the use of the device's rate.

use super::{BATCH, FOLDER, MEMORY_MIB, TINY_MEMORY_MIB, hash, settings};
use crate::{
    CascadeKeys, Options, Result,
    builds::device_rates,
    hashes::pick,
    measure::{TemporaryFolder, ensure},
    paper,
    sheet::{OURS, PAPER, Row, Sheet},
};
use hashfold::{
    Env, KeyHash,
    filter::cascade::{CascadeFilter, CascadeSettings, Snapshot},
    io::{Access, BlockFile, CountingDisk, Disk, Extent, OsDisk},
};
use record::{Panel, Samples, draw as draw_bars};
use std::{path::Path, sync::Arc, time::Instant};

/// Number of keys in a batch of lookups.
const LOOKUP_BATCH: u64 = 16_384;
const READ: usize = 4096;

/// The state of the filter that is queried.
enum Reader<'a> {
    /// Only indexes are in memory.
    Cold(&'a Snapshot),
    /// The newest runs are in memory, as many as fit.
    Open(&'a CascadeFilter),
}

impl Reader<'_> {
    fn ask(&self, hashes: &[KeyHash], found: &mut [bool]) -> Result<()> {
        match self {
            Reader::Cold(snapshot) => snapshot.contains_batch(hashes, found)?,
            Reader::Open(filter) => filter.contains_batch(hashes, found)?,
        }
        Ok(())
    }
}

/// The keys to look up, and their number.
struct Questions<'a> {
    options: &'a Options,
    keys: u64,
    lookups: u64,
    folder: &'a Path,
}

/// All rounds of one way to look up in one state.
struct Asked {
    state: &'static str,
    batch: u64,
    upper_runs: u64,
    reads: Samples,
    /// Blocks of 4 KiB per lookup.
    blocks: Samples,
    absent: Samples,
    device: Samples,
    /// Percentage of the device's rate in the same round.
    percent: Samples,
    present: Samples,
    error_rate: f64,
}

pub fn lookups(options: &Options, sizes: &CascadeKeys) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let folder = TemporaryFolder::create(&options.dir, "cascade-lookups")?;
    let device = device_rates(&folder.path, if options.quick { 1 << 22 } else { 1 << 30 })?;
    let keys = options.size(sizes.keys, 1_000_000_000, 500_000);
    let memory_mib = options.size(sizes.memory, MEMORY_MIB, TINY_MEMORY_MIB);
    let path = folder.path.join("cascade");
    let questions = Questions {
        options,
        keys,
        lookups: options.size(sizes.lookups, 1_000_000, 4000),
        folder: &path,
    };
    let asked = questions.ask_all(memory_mib)?;
    let mut sheet = Sheet::new(TITLE, options);
    super::note_means(&mut sheet, memory_mib, device);
    sheet.note("data", format!("{keys} numbered keys of 8 bytes; error rate 0.04 %"));
    sheet.note(
        "time",
        "lookups of absent keys by one thread, as in the paper; reads: requests to the device; device: \
         random reads of 4 KiB of the same files, as many in flight, all the time; cold: nothing of \
         the runs in memory but their indexes",
    );
    for stated in &paper::FLASH_LOOKUPS {
        sheet.add(paper_row(stated));
    }
    asked.iter().for_each(|asked| sheet.add(row(asked)));
    sheet.save(options, "cascade-lookups", draw)
}

const TITLE: &str = "Lookups on the device (section 3)";

impl Questions<'_> {
    /// Fills a filter, and looks up keys in all states.
    fn ask_all(&self, memory_mib: usize) -> Result<Vec<Asked>> {
        let new = super::options_for(self.keys, self.options)?;
        let disk = CountingDisk::on(Arc::new(OsDisk));
        let settings = settings(memory_mib, false);
        let settings = CascadeSettings {
            env: Env { disk: Arc::new(disk.clone()), ..settings.env },
            ..settings
        };
        let mut filter = CascadeFilter::create(self.folder, &new, settings.clone())?;
        let mut hashes = Vec::with_capacity(BATCH as usize);
        for start in (0..self.keys).step_by(BATCH as usize) {
            let end = (start + BATCH).min(self.keys);
            hashes.clear();
            hashes.extend((start..end).map(|i| hash(i, self.options.seed)));
            filter.insert_batch(&hashes)?;
        }
        // Merges would disturb the first lookups.
        filter.wait_for_merges()?;
        let mut all = Vec::new();
        let env = Env::on(Arc::new(disk.clone()));
        let open = || Snapshot::open(&env, self.folder, Access::Direct);
        {
            let upper_runs = filter.stats().upper_runs;
            let reader = Reader::Open(&filter);
            all.push(self.ask("before compaction", upper_runs, (&reader, &disk), LOOKUP_BATCH)?);
        }
        filter.close()?;
        let snapshot = open()?;
        let upper_runs = snapshot.stats().upper_runs;
        let reader = Reader::Cold(&snapshot);
        all.push(self.ask(
            "before compaction, cold",
            upper_runs,
            (&reader, &disk),
            LOOKUP_BATCH,
        )?);
        all.push(self.ask("before compaction, cold", upper_runs, (&reader, &disk), 1)?);
        drop(snapshot);
        let mut filter = CascadeFilter::open(self.folder, settings)?;
        filter.merge()?;
        filter.close()?;
        let snapshot = open()?;
        let upper_runs = snapshot.stats().upper_runs;
        let reader = Reader::Cold(&snapshot);
        all.push(self.ask("after compaction, cold", upper_runs, (&reader, &disk), LOOKUP_BATCH)?);
        all.push(self.ask("after compaction, cold", upper_runs, (&reader, &disk), 1)?);
        Ok(all)
    }

    fn ask(
        &self,
        state: &'static str,
        upper_runs: u64,
        (reader, disk): (&Reader<'_>, &CountingDisk),
        batch: u64,
    ) -> Result<Asked> {
        // Lookups of single keys are slow.
        let lookups = if batch == 1 { self.lookups.div_ceil(50) } else { self.lookups };
        let files = run_files(self.folder)?;
        let [mut reads, mut blocks, mut absent, mut present, mut device, mut percent] =
            [const { Vec::new() }; 6];
        let mut errors = 0;
        for round in 0..u64::from(self.options.rounds) {
            let first = self.keys + round * lookups;
            disk.take();
            let (absent_per_s, yes) = self.time(reader, first, self.keys, lookups, batch)?;
            let moved = disk.take();
            reads.push(moved.reads as f64 / lookups as f64);
            blocks.push(moved.read_bytes as f64 / READ as f64 / lookups as f64);
            absent.push(absent_per_s);
            errors += yes;
            let (per_s, yes) = self.time(reader, 0, self.keys, lookups, batch)?;
            ensure(yes == lookups, || format!("{yes} of {lookups} keys were found"))?;
            present.push(per_s);
            let device_per_s = device_reads(&files, lookups, batch, first)?;
            device.push(device_per_s);
            percent.push(absent_per_s / device_per_s * 100.0);
        }
        let error_rate = errors as f64 / (lookups * u64::from(self.options.rounds)) as f64;
        ensure(error_rate < 2.0 * super::ERROR_RATE + 1e-3, || format!("error rate {error_rate}"))?;
        let [reads, blocks, absent, present, device, percent] =
            [reads, blocks, absent, present, device, percent].map(Samples::from);
        Ok(Asked {
            state,
            batch,
            upper_runs,
            reads,
            blocks,
            absent,
            device,
            percent,
            present,
            error_rate,
        })
    }

    /// Returns the number of lookups per second of random keys among the `of` keys from `first` on,
    /// and the number of keys found.
    fn time(
        &self,
        reader: &Reader<'_>,
        first: u64,
        of: u64,
        lookups: u64,
        batch: u64,
    ) -> Result<(f64, u64)> {
        let seed = self.options.seed;
        let mut found = vec![false; batch as usize];
        let mut yes = 0;
        let begin = Instant::now();
        for start in (0..lookups).step_by(batch as usize) {
            let numbers = start..(start + batch).min(lookups);
            let asked = numbers.map(|i| hash(first + pick(i, seed ^ first, of), seed));
            let hashes: Vec<KeyHash> = asked.collect();
            let found = &mut found[..hashes.len()];
            reader.ask(&hashes, found)?;
            yes += found.iter().filter(|found| **found).count() as u64;
        }
        Ok((lookups as f64 / begin.elapsed().as_secs_f64(), yes))
    }
}

/// Returns the files of all runs, with their sizes in blocks.
fn run_files(folder: &Path) -> Result<Vec<(Arc<dyn BlockFile>, u64)>> {
    let mut files = Vec::new();
    for name in OsDisk.list(folder)? {
        if name.starts_with("run-") {
            let file = OsDisk.open(&folder.join(name), Access::Direct)?;
            let blocks = file.size()? / READ as u64;
            files.push((file, blocks));
        }
    }
    ensure(!files.is_empty(), || "there are no runs".to_owned())?;
    Ok(files)
}

/// Returns random reads per second of these files, one at a time for lookups one at a time.
fn device_reads(
    files: &[(Arc<dyn BlockFile>, u64)],
    reads: u64,
    batch: u64,
    seed: u64,
) -> Result<f64> {
    let blocks: u64 = files.iter().map(|(_, blocks)| blocks).sum();
    let place = |i: u64| {
        let mut block = pick(i, !seed, blocks);
        let mut file = 0;
        while block >= files[file].1 {
            block -= files[file].1;
            file += 1;
        }
        (file, Extent { offset: block * READ as u64, len: READ })
    };
    let all: Vec<&dyn BlockFile> = files.iter().map(|(file, _)| &**file).collect();
    // Several reads are in flight all the time, or one.
    let at_once = if batch == 1 { 1 } else { reads.max(1) };
    let begin = Instant::now();
    for start in (0..reads).step_by(at_once as usize) {
        let mut extents = (start..(start + at_once).min(reads)).map(place);
        all[0].read_across(&all, &mut extents, &mut |_, _| Ok(()))?;
    }
    Ok(reads as f64 / begin.elapsed().as_secs_f64())
}

fn paper_row(stated: &paper::FlashLookups) -> Row {
    let percent = stated.lookups_per_s / paper::DEVICE_READS_PER_S * 100.0;
    Row::new("state", stated.filter, PAPER)
        .number("keys_at_a_time", 1.0)
        .number("reads_per_lookup", stated.reads)
        .number("lookups_per_s", stated.lookups_per_s)
        .number("device_reads_per_s", paper::DEVICE_READS_PER_S)
        .rounded("device_percent", percent, 1)
}

fn row(asked: &Asked) -> Row {
    Row::new("state", asked.state, OURS)
        .number("keys_at_a_time", asked.batch as f64)
        .number("runs_above_the_last_level", asked.upper_runs as f64)
        .spread("reads_per_lookup", &asked.reads, 3)
        .spread("blocks_per_lookup", &asked.blocks, 3)
        .spread("lookups_per_s", &asked.absent, 0)
        .spread("device_reads_per_s", &asked.device, 0)
        .spread("device_percent", &asked.percent, 1)
        .spread("present_lookups_per_s", &asked.present, 0)
        .rounded("error_percent", asked.error_rate * 100.0, 4)
}

pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let name = |row: &Row| match (row.is_of(PAPER), row.get("keys_at_a_time")) {
        (true, _) => format!("paper: {}", row.string("state")),
        (_, Some(1.0)) => format!("ours: {}, single", row.string("state")),
        _ => format!("ours: {}, batch", row.string("state")),
    };
    let panels = [
        ("reads_per_lookup", "Device reads per lookup; less is better"),
        ("device_percent", "Lookups, % of the device's random reads; more is better"),
        ("lookups_per_s", "Lookups, per second; more is better"),
    ]
    .map(|(column, title)| Panel {
        title: title.to_owned(),
        bars: rows.iter().filter_map(|row| row.bar(&name(row), column)).collect(),
        limit: None,
    });
    draw_bars(path, TITLE, &panels)
}

//! Section 3, lookups: device reads per lookup, and the use of the device's rate.

use super::{BATCH, FOLDER, MEMORY_MIB, TINY_MEMORY_MIB, hash, settings};
use crate::{
    CascadeKeys, Options, Result,
    builds::device_rates,
    hashes::pick,
    measure::{TemporaryFolder, ensure},
    paper,
    sheet::{OURS, PAPER, Sheet},
};
use hashfold::{
    Env, KeyHash,
    filter::cascade::{CascadeFilter, CascadeSettings, Snapshot},
    io::{Access, BlockFile, CountingDisk, Disk, Extent, OsDisk},
};
use record::{Bar, Panel, Samples, draw as draw_bars};
use std::{path::Path, sync::Arc, time::Instant};

const COLUMNS: &[&str] = &[
    "state",
    "source",
    "keys_at_a_time",
    "runs_above_the_last_level",
    "reads_per_lookup",
    "blocks_per_lookup",
    "lookups_per_s",
    "lookups_per_s_min",
    "lookups_per_s_max",
    "device_reads_per_s",
    "device_percent",
    "present_lookups_per_s",
    "error_percent",
];

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
    blocks: f64,
    absent: Samples,
    device: Samples,
    present: f64,
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
    let title = "Lookups on the device (section 3)";
    let mut sheet = Sheet::new(title, options, COLUMNS);
    super::note_means(&mut sheet, memory_mib, device);
    sheet.note("data", format!("{keys} numbered keys of 8 bytes; error rate 0.04 %"));
    sheet.note(
        "time",
        "lookups of absent keys by one thread, as in the paper; reads: requests to the device; device: \
         random reads of 4 KiB of the same files, as many in flight, all the time; cold: nothing of \
         the runs in memory but their indexes",
    );
    let mut panels = [
        "Reads for each lookup; less is better",
        "Lookups, % of the device's random reads; more is better",
        "Lookups, per second; more is better",
    ]
    .map(|title| Panel { title: title.to_owned(), bars: Vec::new(), limit: None });
    for stated in &paper::FLASH_LOOKUPS {
        paper_row(&mut sheet, &mut panels, stated);
    }
    for asked in &asked {
        row(&mut sheet, &mut panels, asked);
    }
    let path = sheet.save(options, "cascade-lookups")?;
    draw_bars(&path, title, &panels)
}

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
        let (mut reads, mut absent, mut device) = (Vec::new(), Vec::new(), Vec::new());
        let (mut errors, mut present, mut blocks) = (0, 0.0_f64, 0.0);
        for round in 0..u64::from(self.options.rounds) {
            let first = self.keys + round * lookups;
            disk.take();
            let (per_s, yes) = self.time(reader, first, self.keys, lookups, batch)?;
            let moved = disk.take();
            reads.push(moved.reads as f64 / lookups as f64);
            blocks += moved.read_bytes as f64 / READ as f64 / lookups as f64;
            absent.push(per_s);
            errors += yes;
            let (per_s, yes) = self.time(reader, 0, self.keys, lookups, batch)?;
            ensure(yes == lookups, || format!("{yes} of {lookups} keys were found"))?;
            present = present.max(per_s);
            device.push(device_reads(&files, lookups, batch, first)?);
        }
        let error_rate = errors as f64 / (lookups * u64::from(self.options.rounds)) as f64;
        ensure(error_rate < 2.0 * super::ERROR_RATE + 1e-3, || format!("error rate {error_rate}"))?;
        let [reads, absent, device] = [reads, absent, device].map(Samples::from);
        let blocks = blocks / f64::from(self.options.rounds);
        Ok(Asked { state, batch, upper_runs, reads, blocks, absent, device, present, error_rate })
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

fn paper_row(sheet: &mut Sheet, panels: &mut [Panel; 3], stated: &paper::FlashLookups) {
    let percent = stated.lookups_per_s / paper::DEVICE_READS_PER_S * 100.0;
    let mut row = vec![stated.filter.to_owned(), PAPER.to_owned(), "1".to_owned(), String::new()];
    row.extend([stated.reads.to_string(), String::new(), stated.lookups_per_s.to_string()]);
    row.extend([String::new(), String::new(), paper::DEVICE_READS_PER_S.to_string()]);
    row.extend([format!("{percent:.1}"), String::new(), String::new()]);
    sheet.row(row);
    let values = [stated.reads, percent, stated.lookups_per_s];
    for (panel, value) in panels.iter_mut().zip(values) {
        let name = format!("paper: {}", stated.filter);
        panel.bars.push(Bar { name, value, range: None });
    }
}

fn row(sheet: &mut Sheet, panels: &mut [Panel; 3], asked: &Asked) {
    let Asked { reads, absent, device, .. } = asked;
    let percent = absent.median() / device.median() * 100.0;
    let mut row = vec![asked.state.to_owned(), OURS.to_owned(), asked.batch.to_string()];
    row.extend([asked.upper_runs.to_string(), format!("{:.3}", reads.median())]);
    row.push(format!("{:.3}", asked.blocks));
    let rates = [absent.median(), absent.min(), absent.max(), device.median()];
    row.extend(rates.map(|rate| format!("{rate:.0}")));
    row.extend([format!("{percent:.1}"), format!("{:.0}", asked.present)]);
    row.push(format!("{:.4}", asked.error_rate * 100.0));
    sheet.row(row);
    let how = if asked.batch == 1 { "single" } else { "batch" };
    let numbers = [
        (reads.median(), Some((reads.min(), reads.max()))),
        (percent, None),
        (absent.median(), Some((absent.min(), absent.max()))),
    ];
    for (panel, (value, range)) in panels.iter_mut().zip(numbers) {
        let name = format!("ours: {}, {how}", asked.state);
        panel.bars.push(Bar { name, value, range });
    }
}

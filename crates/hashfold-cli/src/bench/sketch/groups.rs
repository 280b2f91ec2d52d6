//! Measures group-bys: rows become a table with a sketch for each group, and two tables are united.
//!
//! ```text
//! generated rows ─→ GroupBuilder ─→ table ─ every estimate is checked against the number of keys
//!                                     └─ union with itself ─→ the same entries
//! ```

use super::{super::pairs::remove_all, SketchBench};
use crate::{
    bench::{
        ensure,
        measure::{
            Report, peak_rss_mib, process_seconds, reset_peak_rss, thread_seconds, wall_seconds,
        },
        random::pick,
    },
    failure::Result,
};
use hashfold::{
    Env, KeyHash, Seed, Table,
    run::Run,
    sketch::{Family, GroupBuilder, GroupOptions, GroupRun, GroupStats, GroupUnion, Hll},
    table::{TableBuilder, TableOptions},
    work::{Threads, Watch},
};
use std::{path::Path, sync::Arc};

/// One key of this number of keys comes a second time.
const REPEATED: u64 = 4;
/// Rows of the source alone that are measured.
const SOURCE_ROWS: u64 = 4_000_000;
/// Maximum distance of an estimate from the number of keys, in standard errors. The distances of a million
/// groups are below 5.
const ERRORS_MAX: f64 = 5.5;
/// Number of keys by which an estimate may differ in addition: a few keys share a register by chance.
const KEYS_MAX: f64 = 4.0;
/// Maximum of the mean relative error, for each 1/√N of a standard error.
const MEAN_ERRORS_MAX: f64 = 6.0;

/// Generated rows, in no order: a group of 8 bytes, and the hash of a key.
#[derive(Clone, Copy)]
struct Rows<'a>(&'a SketchBench);

impl Rows<'_> {
    /// Returns the number of the key of a row: each key belongs to one group.
    fn key(self, row: u64) -> u64 {
        if row % REPEATED == REPEATED - 1 { row - 1 } else { row }
    }

    fn group(self, key: u64) -> u64 {
        pick(key, self.0.seed, self.0.groups)
    }

    #[inline]
    fn get(self, row: u64) -> ([u8; 8], u64) {
        let key = self.key(row);
        let hash = KeyHash::of(&key.to_le_bytes(), Seed(0)).high();
        (self.group(key).to_le_bytes(), hash)
    }

    /// Returns the number of distinct keys of each group.
    fn counts(self) -> Vec<u32> {
        let mut counts = vec![0; self.0.groups as usize];
        for row in (0..self.0.rows).filter(|row| self.key(*row) == *row) {
            counts[self.group(row) as usize] += 1;
        }
        counts
    }
}

pub(super) fn run(bench: &SketchBench, report: &Report, folder: &Path) -> Result<()> {
    let scene = Scene {
        bench,
        report,
        folder,
        env: Env { executor: Arc::new(Threads::new(bench.threads)), ..Env::system() },
        options: GroupOptions::new()
            .family(Family::Hashfold(Seed(0)))
            .precision(bench.precision)
            .memory(bench.memory),
    };
    scene.source();
    let table = scene.group()?;
    scene.check(&table)?;
    scene.union(&table)
}

/// The options and folders of one measurement.
struct Scene<'a> {
    bench: &'a SketchBench,
    report: &'a Report,
    folder: &'a Path,
    env: Env,
    options: GroupOptions,
}

impl Scene<'_> {
    /// Measures the time that the rows take by themselves.
    fn source(&self) {
        let (rows, count) = (Rows(self.bench), self.bench.rows.min(SOURCE_ROWS));
        let start = thread_seconds();
        let sum = (0..count)
            .map(|row| rows.get(row))
            .fold(0_u64, |sum, (group, hash)| sum.wrapping_add(hash ^ u64::from_le_bytes(group)));
        std::hint::black_box(sum);
        let ns = (thread_seconds() - start) * 1e9 / count as f64;
        self.say("source_ns", ns, "ns/row");
    }

    /// Measures the group-by: all rows, until the table is durable.
    fn group(&self) -> Result<Table> {
        reset_peak_rss();
        let (rss_before, cpu) = (peak_rss_mib(), process_seconds());
        let (builder, path) = self.builder("groups")?;
        let (insert_s, groups) = wall_seconds(|| self.insert(&builder));
        let mut groups = groups?;
        let (write_s, written) = wall_seconds(|| builder.build(&mut groups, &Watch::default()));
        let stats = written?;
        let rows = self.bench.rows as f64;
        let cpu = process_seconds() - cpu;
        let GroupStats { memory_bytes, spilled_bytes, .. } = groups.stats();
        ensure(memory_bytes <= self.bench.memory, || {
            format!("groups took {memory_bytes} bytes, the budget is {}", self.bench.memory)
        })?;
        self.say("rows_s", rows / (insert_s + write_s), "rows/s");
        self.say("cpu_ns", cpu * 1e9 / rows, "ns/row");
        self.say("insert_s", insert_s, "s");
        self.say("write_s", write_s, "s");
        self.say("memory_mib", memory_bytes as f64 / f64::from(1 << 20), "MiB");
        self.say("peak_rss_mib", peak_rss_mib() - rss_before, "MiB");
        self.say("spilled_bytes_per_row", spilled_bytes as f64 / rows, "bytes");
        let count = stats.entries.max(1) as f64;
        self.say("bytes_per_group", stats.data_bytes as f64 / count, "bytes");
        self.say("sketch_bytes", stats.value_bytes as f64 / count, "bytes");
        Ok(Table::open(path)?)
    }

    fn insert(&self, table: &TableBuilder) -> Result<GroupRun> {
        let mut groups = GroupBuilder::new(&self.env, table.spill_path(), &self.options)?;
        let rows = Rows(self.bench);
        groups.add_hashes((0..self.bench.rows).map(|row| rows.get(row)))?;
        Ok(groups.finish()?)
    }

    fn builder(&self, name: &str) -> Result<(TableBuilder, std::path::PathBuf)> {
        let path = self.folder.join(name);
        let options = TableOptions::new()
            .env(self.env.clone())
            .seed(self.options.group_seed())
            .id(self.bench.seed)
            .attributes(vec![self.options.attribute()?]);
        Ok((TableBuilder::with(&path, options)?, path))
    }

    /// Compares every estimate with the number of distinct keys of its group.
    fn check(&self, table: &Table) -> Result<()> {
        let counts = Rows(self.bench).counts();
        let (mut scan, mut groups, mut sum, mut keys) = (table.scan(), 0, 0.0, 0.0);
        let mut error_max = 0.0_f64;
        while scan.advance()? {
            let entry = scan.entry();
            let group = entry.key.first_chunk().map_or(u64::MAX, |it| u64::from_le_bytes(*it));
            let truth = f64::from(counts.get(group as usize).copied().unwrap_or(0));
            let sketch = Hll::from_bytes(entry.value.unwrap_or_default())?;
            let estimate = sketch.estimate();
            let limit = ERRORS_MAX * sketch.standard_error() * truth + KEYS_MAX;
            ensure(truth > 0.0 && (estimate - truth).abs() <= limit, || {
                format!("group {group}: the estimate is {estimate}, and it has {truth} keys")
            })?;
            (groups, sum, keys) = (groups + 1, sum + estimate, keys + truth);
            error_max = error_max.max((estimate - truth).abs() / truth);
        }
        let expected = counts.iter().filter(|count| **count > 0).count();
        ensure(groups == expected, || format!("{groups} groups, expected {expected}"))?;
        let all: f64 = counts.iter().map(|count| f64::from(*count)).sum();
        ensure(keys == all, || format!("{keys} keys in all groups, expected {all}"))?;
        let (mean, standard) =
            (sum / all - 1.0, 1.04 / f64::from(1_u32 << self.bench.precision).sqrt());
        let limit = MEAN_ERRORS_MAX * standard / (groups as f64).sqrt() + 1e-3;
        ensure(mean.abs() <= limit, || {
            format!("the mean error is {mean}, expected {limit} at most")
        })?;
        self.say("mean_error", mean.abs(), "");
        self.say("max_error", error_max, "");
        Ok(())
    }

    /// Measures the union of a table with itself, which has the same entries.
    fn union(&self, table: &Table) -> Result<()> {
        let (builder, path) = self.builder("union")?;
        let cpu = process_seconds();
        let scan =
            || -> Box<dyn Run> { Box::new(table.scan().reading_ahead(self.env.executor.clone())) };
        let mut union = GroupUnion::new(vec![scan(), scan()], &self.options)?;
        let (seconds, written) = wall_seconds(|| builder.build(&mut union, &Watch::default()));
        let stats = written?;
        let cpu = process_seconds() - cpu;
        let (mut a, mut b) = (table.scan(), Table::open(&path)?.scan());
        while a.advance()? {
            let is_same = b.advance()? && a.entry() == b.entry();
            ensure(is_same, || "the union of a table with itself differs from it".into())?;
        }
        ensure(!b.advance()?, || "the union of a table with itself has more groups".into())?;
        let groups = stats.entries as f64;
        self.say("union.groups_s", groups / seconds, "groups/s");
        self.say("union.cpu_ns", cpu * 1e9 / groups.max(1.0), "ns/group");
        remove_all(&path)
    }

    fn say(&self, name: &str, value: f64, unit: &str) {
        let (rows, groups) = (self.bench.rows, self.bench.groups);
        self.report.add(&format!("sketch.groups.{name}"), value, unit, rows, groups);
    }
}

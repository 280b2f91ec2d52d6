//! Figure 3: insertions over time, and their stalls.

use super::{BATCH, FOLDER, MEMORY_MIB, TINY_MEMORY_MIB, check_present, hash, settings};
use crate::{
    CascadeRuns, Options, Result,
    builds::device_rates,
    chart::{self, Axis, Chart, Look, Point, Series},
    measure::{TemporaryFolder, cost},
    paper,
    sheet::{self, OURS, PAPER, Row, Sheet, of},
};
use hashfold::filter::cascade::CascadeFilter;
use plotters::style::RGBColor;
use record::{Samples, count, short};
use std::{fs, path::Path, time::Instant};

/// A batch is a stall if it takes this many times its share of the time.
const STALL_FACTOR: f64 = 10.0;
/// Approximate number of points that are drawn of a curve.
const PLACES: u64 = 400;

/// Returns the round with the median time, of rounds that ascend by their times.
fn middle(rounds: &[Insertions]) -> &Insertions {
    &rounds[rounds.len() / 2]
}

/// The insertions of one run.
struct Insertions {
    keys: u64,
    is_inline: bool,
    /// Times in seconds, and the number of inserted keys at each.
    curve: Vec<(f64, u64)>,
    wall: f64,
    cpu: f64,
    /// The longest stall in seconds.
    longest: f64,
    /// Sum of all stalls, in seconds.
    stalled: f64,
    upper_runs: u64,
    bits_per_item: f64,
}

impl Insertions {
    fn name(&self) -> String {
        let how = if self.is_inline { "all work inline" } else { "ours" };
        format!("{how}, {} keys", count(self.keys))
    }
}

pub fn figure_3(options: &Options, runs: &CascadeRuns) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let folder = TemporaryFolder::create(&options.dir, "cascade-fig3")?;
    let device = device_rates(&folder.path, if options.quick { 1 << 22 } else { 1 << 30 })?;
    let scales =
        options.size(runs.keys.clone(), vec![100_000_000, 1_000_000_000], vec![400_000, 1_000_000]);
    let memory_mib = options.size(runs.memory, MEMORY_MIB, TINY_MEMORY_MIB);
    let cases: Vec<(u64, bool)> =
        scales.iter().flat_map(|&keys| [(keys, false), (keys, true)]).collect();
    let mut all: Vec<Vec<Insertions>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (rounds, &(keys, is_inline)) in all.iter_mut().zip(&cases) {
            let path = folder.path.join("cascade");
            rounds.push(insert(options, keys, memory_mib, is_inline, &path)?);
            fs::remove_dir_all(&path)?;
        }
    }
    for rounds in &mut all {
        rounds.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    }
    let mut sheet = Sheet::new("Insertions by time (Figure 3)", options);
    let mut curves = Sheet::new("Insertions by time: curves", options);
    for sheet in [&mut sheet, &mut curves] {
        super::note_means(sheet, memory_mib, device.clone());
        sheet.note("data", "numbered keys of 8 bytes, hashed; error rate 0.04 %");
        let time = "until all is in runs on the device and no work in the background is left; medians \
            of the rounds; curves are of the round with the median time; CPU time: all threads; \
            stall: a batch of 4096 keys, those together that took more than ten times the mean; \
            inline: no thread but that of the insertions";
        sheet.note("time", time);
    }
    sheet.add(paper_row());
    for rounds in &all {
        sheet.add(row(rounds));
        let insertions = middle(rounds);
        for &(seconds, inserted) in &insertions.curve {
            let row = Row::new("series", insertions.name(), OURS)
                .number("keys", insertions.keys as f64)
                .rounded("seconds", seconds, 4);
            curves.add(row.number("inserted", inserted as f64));
        }
    }
    curves.write(options, CURVES)?;
    sheet.save(options, "cascade-fig3", draw)
}

/// File of the curves, beside that of the rows.
const CURVES: &str = "cascade-fig3-curves";

fn insert(
    options: &Options,
    keys: u64,
    memory_mib: usize,
    is_inline: bool,
    folder: &Path,
) -> Result<Insertions> {
    let new = super::options_for(keys, options)?;
    let mut filter = CascadeFilter::create(folder, &new, settings(memory_mib, is_inline))?;
    let mut times = Vec::new();
    let begin = Instant::now();
    let (cost, ()) = cost(|| {
        let mut hashes = Vec::with_capacity(BATCH as usize);
        for start in (0..keys).step_by(BATCH as usize) {
            let end = (start + BATCH).min(keys);
            hashes.clear();
            hashes.extend((start..end).map(|i| hash(i, options.seed)));
            let before = begin.elapsed().as_secs_f64();
            filter.insert_batch(&hashes)?;
            times.push((before, begin.elapsed().as_secs_f64()));
        }
        Ok(filter.wait_for_merges()?)
    })?;
    let stats = filter.stats();
    check_present(&filter, 0, keys, options.seed)?;
    drop(filter);
    let mean = cost.wall / times.len() as f64;
    let took = |&(before, after): &(f64, f64)| after - before;
    let stalls = times.iter().map(took).filter(|time| *time > STALL_FACTOR * mean);
    Ok(Insertions {
        keys,
        is_inline,
        curve: curve(&times, keys, cost.wall),
        wall: cost.wall,
        cpu: cost.cpu,
        longest: times.iter().map(took).fold(0.0, f64::max),
        stalled: stalls.sum(),
        upper_runs: stats.upper_runs,
        bits_per_item: stats.bits_per_fingerprint(),
    })
}

/// Returns the points of a curve: evenly spread ones, and both ends of all long batches.
fn curve(times: &[(f64, f64)], keys: u64, wall: f64) -> Vec<(f64, u64)> {
    let mut places = vec![(0.0, 0)];
    let mut inserted = 0;
    for &(before, after) in times {
        let is_long = after - before > wall / PLACES as f64;
        if is_long {
            places.push((before, inserted));
        }
        inserted = (inserted + BATCH).min(keys);
        let last = places.last().map_or(0, |place| place.1);
        if is_long || inserted - last >= keys / PLACES || inserted == keys {
            places.push((after, inserted));
        }
    }
    places.push((wall, keys));
    places
}

/// Returns a time as people write it.
fn seconds(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{} ms", short(seconds * 1e3))
    } else {
        format!("{} s", short(seconds))
    }
}

fn paper_row() -> Row {
    let keys = paper::CASCADE_KEYS;
    Row::new("series", "paper", PAPER)
        .number("keys", keys)
        .rounded("seconds", keys / paper::CASCADE_INSERTIONS_PER_S, 0)
        .rounded("million_per_s", paper::CASCADE_INSERTIONS_PER_S / 1e6, 2)
}

fn row(rounds: &[Insertions]) -> Row {
    let run = middle(rounds);
    let of = |of: &dyn Fn(&Insertions) -> f64| {
        Samples::from(rounds.iter().map(of).collect::<Vec<f64>>())
    };
    let million = |seconds: f64| run.keys as f64 / seconds / 1e6;
    Row::new("series", run.name(), OURS)
        .number("keys", run.keys as f64)
        .spread("seconds", &of(&|run| run.wall), 3)
        .spread("million_per_s", &of(&|run| million(run.wall)), 2)
        .spread("million_per_cpu_s", &of(&|run| million(run.cpu)), 2)
        .spread("longest_stall_ms", &of(&|run| run.longest * 1e3), 1)
        .spread("stalled_percent", &of(&|run| run.stalled / run.wall * 100.0), 1)
        .spread("upper_runs", &of(&|run| run.upper_runs as f64), 0)
        .spread("bits_per_item", &of(&|run| run.bits_per_item), 2)
}

/// Draws the curves, which are in a file beside that of the rows.
pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    const COLOURS: [RGBColor; 6] =
        [chart::BLUE, chart::ORANGE, chart::SKY, chart::AMBER, chart::TEAL, chart::PURPLE];
    let curves = sheet::read(&path.with_file_name(format!("{CURVES}.jsonl")))?;
    let mut series: Vec<Series> = of(rows, OURS)
        .zip(COLOURS.into_iter().cycle())
        .map(|(row, colour)| curve_of(row, &curves, colour))
        .collect();
    let points = series.iter().flat_map(|series| &series.points);
    let end = points.map(|point| point.x).fold(1.0, f64::max);
    let axis = Axis::from_zero("elapsed time, ns per key of the run; less is better", end);
    let right = axis.ticks[axis.ticks.len() - 1];
    let papers = right * paper::CASCADE_INSERTIONS_PER_S / 1e9 * 100.0;
    series.push(Series {
        name: "paper: 0.67 M/s on average".to_owned(),
        look: Look::Dashed,
        colour: chart::GREY,
        points: vec![Point::new(0.0, 0.0), Point::new(right, papers)],
    });
    Chart {
        title: "Insertions by time: with work in the background, and inline; stalls are level"
            .to_owned(),
        x: axis,
        y: Axis::linear("keys inserted, %", 0.0, 100.0, 10.0),
        series,
    }
    .draw(path)
}

/// Returns a curve in nanoseconds per key of its run, and percent of the inserted keys. The legend has
/// the rate and the longest stall, medians of the rounds.
fn curve_of(row: &Row, curves: &[Row], colour: RGBColor) -> Series {
    let keys = row.get("keys").unwrap_or(1.0);
    let name = row.string("series");
    let mine = curves.iter().filter(|point| point.string("series") == name);
    let points = mine.filter_map(|point| {
        let (seconds, inserted) = point.get("seconds").zip(point.get("inserted"))?;
        Some(Point::new(seconds * 1e9 / keys, inserted / keys * 100.0))
    });
    let how = name.split_once(',').map_or(name, |(how, _)| how);
    let rate = row.get("million_per_s").unwrap_or_default();
    let stall = seconds(row.get("longest_stall_ms").unwrap_or_default() / 1e3);
    let name =
        format!("{how}, {} keys:\n{} M/s, longest stall {stall}", count(keys as u64), short(rate));
    Series { name, look: Look::Line, colour, points: points.collect() }
}

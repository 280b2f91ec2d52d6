//! Figure 3: insertions over time, and their stalls.

use super::{BATCH, FOLDER, MEMORY_MIB, TINY_MEMORY_MIB, check_present, hash, settings};
use crate::{
    CascadeRuns, Options, Result,
    builds::device_rates,
    chart::{self, Axis, Chart, Look, Point, Series},
    measure::{TemporaryFolder, cost},
    paper,
    sheet::{OURS, PAPER, Sheet},
};
use hashfold::filter::cascade::CascadeFilter;
use plotters::style::RGBColor;
use record::{Samples, short};
use std::{fs, path::Path, time::Instant};

const COLUMNS: &[&str] = &[
    "series",
    "source",
    "keys",
    "seconds",
    "million_per_s",
    "million_per_s_min",
    "million_per_s_max",
    "million_per_cpu_s",
    "longest_stall_ms",
    "longest_stall_ms_min",
    "longest_stall_ms_max",
    "stalled_percent",
    "upper_runs",
    "bits_per_item",
];

const CURVE_COLUMNS: &[&str] = &["series", "source", "keys", "seconds", "inserted"];

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
    /// The longest stall in seconds, and the point of the curve at which it ends.
    longest: (f64, (f64, u64)),
    /// Sum of all stalls, in seconds.
    stalled: f64,
    upper_runs: u64,
    bits_per_item: f64,
}

impl Insertions {
    fn name(&self) -> String {
        let how = if self.is_inline { "all work inline" } else { "ours" };
        format!("{how}, {} M keys", self.keys as f64 / 1e6)
    }

    /// Returns nanoseconds per key of the run, and the percentage of inserted keys.
    fn place(&self, (seconds, inserted): (f64, u64)) -> (f64, f64) {
        (seconds * 1e9 / self.keys as f64, inserted as f64 / self.keys as f64 * 100.0)
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
    let mut sheet = Sheet::new("Insertions by time (Figure 3)", options, COLUMNS);
    let mut curves = Sheet::new("Insertions by time: curves", options, CURVE_COLUMNS);
    for sheet in [&mut sheet, &mut curves] {
        super::note_means(sheet, memory_mib, device.clone());
        sheet.note("data", "numbered keys of 8 bytes, hashed; error rate 0.04 %");
        let time = "until all is in runs on the device and no work in the background is left; medians \
            of the rounds; curves are of the round with the median time; CPU time: all threads; \
            stall: a batch of 4096 keys, those together that took more than ten times the mean; \
            inline: no thread but that of the insertions";
        sheet.note("time", time);
    }
    paper_row(&mut sheet);
    for rounds in &all {
        row(&mut sheet, rounds);
        let insertions = middle(rounds);
        for &(seconds, inserted) in &insertions.curve {
            let mut row = vec![insertions.name(), OURS.to_owned(), insertions.keys.to_string()];
            row.extend([format!("{seconds:.4}"), inserted.to_string()]);
            curves.row(row);
        }
    }
    curves.write(options, "cascade-fig3-curves")?;
    let path = sheet.save(options, "cascade-fig3")?;
    draw(&all, &path)
}

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
    let inserted = |batch: usize| ((batch as u64 + 1) * BATCH).min(keys);
    let longest = (0..times.len()).max_by(|&a, &b| took(&times[a]).total_cmp(&took(&times[b])));
    let longest = longest.ok_or("no keys")?;
    let stalls = times.iter().map(took).filter(|time| *time > STALL_FACTOR * mean);
    Ok(Insertions {
        keys,
        is_inline,
        curve: curve(&times, keys, cost.wall),
        wall: cost.wall,
        cpu: cost.cpu,
        longest: (took(&times[longest]), (times[longest].1, inserted(longest))),
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

fn paper_row(sheet: &mut Sheet) {
    let keys = paper::CASCADE_KEYS;
    let mut row = vec!["paper".to_owned(), PAPER.to_owned(), keys.to_string()];
    row.push(format!("{:.0}", keys / paper::CASCADE_INSERTIONS_PER_S));
    row.push(format!("{:.2}", paper::CASCADE_INSERTIONS_PER_S / 1e6));
    row.extend(vec![String::new(); 9]);
    sheet.row(row);
}

fn row(sheet: &mut Sheet, rounds: &[Insertions]) {
    let run = middle(rounds);
    let of = |of: &dyn Fn(&Insertions) -> f64| {
        Samples::from(rounds.iter().map(of).collect::<Vec<f64>>())
    };
    let three = |samples: &Samples, decimals: usize| {
        [samples.median(), samples.min(), samples.max()]
            .map(|number| format!("{number:.decimals$}"))
    };
    let million = |seconds: f64| run.keys as f64 / seconds / 1e6;
    let mut row = vec![run.name(), OURS.to_owned(), run.keys.to_string()];
    row.push(format!("{:.3}", of(&|run| run.wall).median()));
    row.extend(three(&of(&|run| million(run.wall)), 2));
    row.push(format!("{:.2}", of(&|run| million(run.cpu)).median()));
    row.extend(three(&of(&|run| run.longest.0 * 1e3), 1));
    row.push(format!("{:.1}", of(&|run| run.stalled / run.wall * 100.0).median()));
    row.push(run.upper_runs.to_string());
    row.push(format!("{:.2}", of(&|run| run.bits_per_item).median()));
    sheet.row(row);
}

fn draw(all: &[Vec<Insertions>], path: &Path) -> Result<()> {
    const COLOURS: [RGBColor; 6] =
        [chart::BLUE, chart::ORANGE, chart::SKY, chart::AMBER, chart::TEAL, chart::PURPLE];
    let all: Vec<&Insertions> = all.iter().map(|rounds| middle(rounds)).collect();
    let mut series = Vec::new();
    for (run, colour) in all.iter().zip(COLOURS.into_iter().cycle()) {
        let rate = run.keys as f64 / run.wall / 1e6;
        let points = run.curve.iter().map(|&place| {
            let (x, y) = run.place(place);
            Point::new(x, y)
        });
        series.push(Series {
            name: format!("{}: {rate:.1} M/s", run.name()),
            look: Look::Line,
            colour,
            points: points.collect(),
        });
    }
    let end = all.iter().map(|run| run.wall * 1e9 / run.keys as f64).fold(0.0, f64::max);
    let axis = Axis::from_zero("elapsed time by the keys of the run, ns for each", end);
    let right = axis.ticks[axis.ticks.len() - 1];
    let papers = right * paper::CASCADE_INSERTIONS_PER_S / 1e9 * 100.0;
    series.push(Series {
        name: "paper: 0.67 M/s on average".to_owned(),
        look: Look::Dashed,
        colour: chart::GREY,
        points: vec![Point::new(0.0, 0.0), Point::new(right, papers)],
    });
    let stalls = all.iter().map(|run| {
        let (x, y) = run.place(run.longest.1);
        Point::new(x, y).labelled_below(seconds(run.longest.0))
    });
    series.push(Series {
        name: "end of the longest stall".to_owned(),
        look: Look::Dots,
        colour: chart::INK,
        points: stalls.collect(),
    });
    Chart {
        title: "Insertions by time: with work in the background, and inline".to_owned(),
        x: axis,
        y: Axis::linear("keys inserted, %", 0.0, 100.0, 10.0),
        series,
    }
    .draw(path)
}

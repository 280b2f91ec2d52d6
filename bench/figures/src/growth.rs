//! Figure 9: a set that grows batch by batch, updated or rebuilt.

use crate::{
    Options, Result, Updates,
    builds::{THREADS, describe, device_rates},
    chart::{self, Axis, Chart, Look, Point, Series},
    items::{Items, Kind, URL_VALUE_SIZE},
    measure::TemporaryFolder,
    paper,
    sheet::{OURS, PAPER, Sheet},
    stores::{Part, Store},
};
use hashfold::{store::UpdateMode, work::Threads};
use record::Samples;
use std::{fs, path::Path, sync::Arc};

const COLUMNS: &[&str] = &[
    "series",
    "source",
    "updates",
    "items",
    "update_s",
    "rebuild_s",
    "gain_percent",
    "gain_percent_min",
    "gain_percent_max",
    "gain_percent_with_first_build",
];

/// The times of one round, in seconds: the first build, then each update and each rebuild.
struct Round {
    first: f64,
    updates: Vec<f64>,
    rebuilds: Vec<f64>,
}

impl Round {
    /// Returns the percentage by which the first updates are faster than the same number of
    /// rebuilds, with `before` added to both.
    fn gain(&self, updates: usize, before: f64) -> f64 {
        let sum = |times: &[f64]| before + times[..updates].iter().sum::<f64>();
        (1.0 - sum(&self.updates) / sum(&self.rebuilds)) * 100.0
    }
}

pub fn figure_9(options: &Options, sizes: &Updates) -> Result<()> {
    let batches = paper::FIGURE_9_UPDATES + 1;
    let batch = options.size(sizes.items, 1_500_000, 6000) / batches;
    // The paper has 26 times as much data as memory.
    let memory_mib = options.size(sizes.memory, 64, 1);
    let folder = TemporaryFolder::create(&options.dir, "fig9")?;
    let device = device_rates(&folder.path, if options.quick { 1 << 22 } else { 1 << 30 })?;
    let items =
        Items::new(Kind::Urls { value_size: URL_VALUE_SIZE }, batch * batches, options.seed);
    let parts = write_parts(&items, batch, &folder.path)?;
    let rounds: Result<Vec<Round>> =
        (0..options.rounds).map(|_| one_round(&items, &parts, memory_mib, &folder.path)).collect();
    let rounds = rounds?;
    let mut sheet = new_sheet(options, &items, memory_mib, device);
    let mut stated = vec!["paper: more than this".to_owned(), PAPER.to_owned()];
    stated.push(paper::FIGURE_9_UPDATES.to_string());
    stated.push((paper::FIGURE_9_BATCH * batches).to_string());
    stated.extend([String::new(), String::new()]);
    stated.push(format!("{:.0}", paper::FIGURE_9_GAIN * 100.0));
    stated.extend([String::new(), String::new(), String::new()]);
    sheet.row(stated);
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for updates in 1..=paper::FIGURE_9_UPDATES as usize {
        let over =
            |of: &dyn Fn(&Round) -> f64| Samples::from(rounds.iter().map(of).collect::<Vec<_>>());
        let gain = over(&|round| round.gain(updates, 0.0));
        let with_first = over(&|round| round.gain(updates, round.first));
        let mut row = vec!["ours".to_owned(), OURS.to_owned(), updates.to_string()];
        row.push((batch * (updates as u64 + 1)).to_string());
        row.push(format!("{:.3}", over(&|round| round.updates[updates - 1]).median()));
        row.push(format!("{:.3}", over(&|round| round.rebuilds[updates - 1]).median()));
        let gains = [gain.median(), gain.min(), gain.max(), with_first.median()];
        row.extend(gains.map(|gain| format!("{gain:.1}")));
        sheet.row(row);
        alone.push(Point::of(updates as f64, gain.median(), &gain));
        together.push(Point::of(updates as f64, with_first.median(), &with_first));
    }
    let path = sheet.save(options, "fig9")?;
    draw(alone, together, &path)
}

fn write_parts(items: &Items, batch: u64, folder: &Path) -> Result<Vec<Part>> {
    let part = |i: u64| {
        let path = folder.join(format!("batch-{i}"));
        items.write_some(i * batch..(i + 1) * batch, &path, Arc::new(Threads::new(THREADS)))?;
        Ok(Part { path, count: batch })
    };
    (0..items.count / batch).map(part).collect()
}

/// Updates and rebuilds alternate.
fn one_round(items: &Items, parts: &[Part], memory_mib: u64, folder: &Path) -> Result<Round> {
    let updated = Store { folder: folder.join("updated"), items, memory_mib };
    let rebuilt = Store { folder: folder.join("rebuilt"), items, memory_mib };
    let (first, info) = updated.build(&parts[..1])?;
    updated.check(&info, parts[0].count)?;
    let mut round = Round { first: first.wall, updates: Vec::new(), rebuilds: Vec::new() };
    for i in 1..parts.len() {
        let count = parts[..=i].iter().map(|part| part.count).sum();
        let (cost, info) = updated.update(&parts[i..=i], UpdateMode::Merge, i as u64 + 1)?;
        updated.check(&info, count)?;
        updated.collect()?;
        round.updates.push(cost.wall);
        let (cost, info) = rebuilt.build(&parts[..=i])?;
        rebuilt.check(&info, count)?;
        fs::remove_dir_all(&rebuilt.folder)?;
        round.rebuilds.push(cost.wall);
    }
    fs::remove_dir_all(&updated.folder)?;
    Ok(round)
}

fn new_sheet(options: &Options, items: &Items, memory_mib: u64, device: String) -> Sheet {
    let title = "Figure 9: updates against rebuilding, by the number of updates";
    let mut sheet = Sheet::new(title, options, COLUMNS);
    sheet.note("data", format!("{}, a sixth of them in each batch", describe(items)));
    sheet.note("memory", format!("{memory_mib} MiB, in which items are sorted"));
    sheet.note("device", device);
    sheet.note("threads", format!("one that sorts and {THREADS} for the device"));
    sheet.note(
        "time",
        "from the first byte of the input read until the version is published and the spill is freed, \
         of which only the first part goes through the page cache; \
         gain: of all updates so far against as many rebuilds, median, least and most of the \
         rounds; the same with the time of the first build added to both; an update and a rebuild \
         take turns",
    );
    sheet.note("paper", "batches of 4 M items, 24 M in the end, 1 GiB of memory: more than 20 %");
    sheet.note("paper machine", paper::MACHINE);
    sheet
}

fn draw(alone: Vec<Point>, together: Vec<Point>, path: &Path) -> Result<()> {
    let ours = |name: &str, colour, points| Series {
        name: name.to_owned(),
        look: Look::DottedLine,
        colour,
        points,
    };
    let stated = Point::new(paper::FIGURE_9_UPDATES as f64, paper::FIGURE_9_GAIN * 100.0);
    let series = vec![
        Series {
            name: "paper: more than this".to_owned(),
            look: Look::Squares,
            colour: chart::ORANGE,
            points: vec![stated],
        },
        ours("ours", chart::BLUE, alone),
        ours("ours, first build in both", chart::SKY, together),
    ];
    // In quick runs, updates may be slower.
    let points = series.iter().flat_map(|series| &series.points);
    let least = points.map(|point| point.range.map_or(point.y, |(low, _)| low)).fold(0.0, f64::min);
    Chart {
        title: "Figure 9: time saved by updating instead of rebuilding".to_owned(),
        x: Axis::linear("updates, of as many items as the first build", 0.0, 6.0, 1.0),
        y: Axis::linear("time saved, %", (least / 20.0).floor() * 20.0, 100.0, 20.0),
        series,
    }
    .draw(path)
}

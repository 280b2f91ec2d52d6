//! Figure 9: a set that grows batch by batch, updated or rebuilt.

use crate::{
    Options, Result, Updates,
    builds::{THREADS, describe, device_rates},
    chart::{self, Axis, Chart, Look, Series},
    items::{Items, Kind, URL_VALUE_SIZE},
    measure::TemporaryFolder,
    paper,
    sheet::{OURS, PAPER, Row, Sheet, of},
    stores::{Part, Store},
};
use hashfold::{store::UpdateMode, work::Threads};
use record::Samples;
use std::{fs, path::Path, sync::Arc};

const GAIN: &str = "gain_percent";
const GAIN_WITH_FIRST: &str = "gain_percent_with_first_build";

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
    let stated = Row::new("series", "paper: more than this", PAPER)
        .number("updates", paper::FIGURE_9_UPDATES as f64)
        .number("items", (paper::FIGURE_9_BATCH * batches) as f64);
    sheet.add(stated.number(GAIN, paper::FIGURE_9_GAIN * 100.0));
    for updates in 1..=paper::FIGURE_9_UPDATES as usize {
        let over =
            |of: &dyn Fn(&Round) -> f64| Samples::from(rounds.iter().map(of).collect::<Vec<_>>());
        let row = Row::new("series", "ours", OURS)
            .number("updates", updates as f64)
            .number("items", (batch * (updates as u64 + 1)) as f64)
            .spread("update_s", &over(&|round| round.updates[updates - 1]), 3)
            .spread("rebuild_s", &over(&|round| round.rebuilds[updates - 1]), 3)
            .spread(GAIN, &over(&|round| round.gain(updates, 0.0)), 1)
            .spread(GAIN_WITH_FIRST, &over(&|round| round.gain(updates, round.first)), 1);
        sheet.add(row);
    }
    sheet.save(options, "fig9", draw)
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
    let mut sheet = Sheet::new(title, options);
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

pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let ours = |name: &str, colour, column| Series {
        name: name.to_owned(),
        look: Look::DottedLine,
        colour,
        points: of(rows, OURS).filter_map(|row| row.point("updates", column)).collect(),
    };
    let series = vec![
        Series {
            name: "paper: more than this".to_owned(),
            look: Look::Squares,
            colour: chart::ORANGE,
            points: of(rows, PAPER).filter_map(|row| row.point("updates", GAIN)).collect(),
        },
        ours("ours", chart::BLUE, GAIN),
        ours("ours, first build in both", chart::SKY, GAIN_WITH_FIRST),
    ];
    // In quick runs, updates may be slower.
    let points = series.iter().flat_map(|series| &series.points);
    let least = points.map(|point| point.range.map_or(point.y, |(low, _)| low)).fold(0.0, f64::min);
    Chart {
        title: "Figure 9: time saved by updating instead of rebuilding".to_owned(),
        x: Axis::linear("updates, of as many items as the first build", 0.0, 6.0, 1.0),
        y: Axis::linear(
            "time saved, %; more is better",
            (least / 20.0).floor() * 20.0,
            100.0,
            20.0,
        ),
        series,
    }
    .draw(path)
}

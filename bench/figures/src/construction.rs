//! Figures 7, 8 and 12, Tables 3 and 5: the throughput of builds.

use crate::{
    Growth, Options, Result, Sweep,
    builds::{Means, Site, THREADS, describe, device_rates},
    chart::{self, Axis, Chart, Look, Point, Series},
    items::{Items, Kind, URL_VALUE_SIZE},
    machine::default_cores,
    measure::{Cost, TemporaryFolder},
    paper::{self, Best},
    sheet::{OURS, PAPER, Sheet},
};
use plotters::style::RGBColor;
use record::{Bar, Panel, Samples, draw as draw_bars, exact};
use std::path::Path;

const COLUMNS: &[&str] = &[
    "series",
    "source",
    "cores",
    "items",
    "memory_mib",
    "data_per_memory",
    "items_per_s",
    "items_per_s_min",
    "items_per_s_max",
    "cpu_us_per_item",
];

const THROUGHPUT: &str = "built items a second, in thousands";

/// One build, in all rounds.
struct Built {
    count: u64,
    means: Means,
    /// Size of the table's keys and values, divided by the memory.
    data_per_memory: f64,
    rates: Samples,
    /// CPU time per item, in microseconds.
    cpu_us: Samples,
}

impl Built {
    fn row(&self, name: &str) -> Vec<String> {
        let mut row = vec![name.to_owned(), OURS.to_owned(), self.means.cores.to_string()];
        row.extend([self.count, self.means.memory_mib].map(|number| number.to_string()));
        row.push(format!("{:.1}", self.data_per_memory));
        let rates = [self.rates.median(), self.rates.min(), self.rates.max()];
        row.extend(rates.map(|rate| format!("{rate:.0}")));
        row.push(format!("{:.3}", self.cpu_us.min()));
        row
    }
}

fn data_per_memory(kind: Kind, items: f64, memory_mib: f64) -> f64 {
    items * kind.mean_size() as f64 / (memory_mib * 1_048_576.0)
}

/// Samples are interleaved, so that other programs disturb all cases alike.
fn build_all(site: &Site, cases: &[(u64, Means)], rounds: u32) -> Result<Vec<Built>> {
    let mut costs = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for (costs, &(count, means)) in costs.iter_mut().zip(cases) {
            costs.push(site.build(count, means)?);
        }
    }
    let built = |(&(count, means), costs): (&(u64, Means), Vec<Cost>)| {
        let items = count as f64;
        let rates: Vec<f64> = costs.iter().map(|cost| items / cost.wall).collect();
        let cpu_us: Vec<f64> = costs.iter().map(|cost| cost.cpu / items * 1e6).collect();
        Built {
            count,
            means,
            data_per_memory: data_per_memory(site.items.kind, items, means.memory_mib as f64),
            rates: rates.into(),
            cpu_us: cpu_us.into(),
        }
    };
    Ok(cases.iter().zip(costs).map(built).collect())
}

fn new_sheet(title: &str, options: &Options, items: &Items, device: String) -> Sheet {
    let mut sheet = Sheet::new(title, options, COLUMNS);
    sheet.note("data", describe(items));
    sheet.note("device", device);
    sheet.note("threads", format!("one that sorts and {THREADS} for the device, on these cores"));
    sheet.note(
        "time",
        "from the first byte of the input read until the table is synced and the spill is freed, of \
         which only the first part goes through the page cache; median, \
         least and most of the rounds; CPU time is that of all threads, the least of the rounds; the \
         machine was shared with other work, which takes from throughput, less so from CPU time",
    );
    sheet.note("paper machine", paper::MACHINE);
    sheet
}

/// The differences between Figures 7 and 12.
struct Workload {
    figure: &'static str,
    table: &'static str,
    title: &'static str,
    table_title: &'static str,
    paper: &'static [Best],
    paper_items: f64,
    kind: Kind,
    items: u64,
    memory: &'static [u64],
}

pub fn figure_7(options: &Options, sweep: &Sweep) -> Result<()> {
    let workload = Workload {
        figure: "fig7",
        table: "table3",
        title: "Figure 7: build throughput, keys of 111 bytes with values of 1000",
        table_title: "Table 3: best build throughput, keys of 111 bytes with values of 1000",
        paper: &paper::TABLE_3,
        paper_items: paper::TABLE_3_ITEMS,
        kind: Kind::Urls { value_size: URL_VALUE_SIZE },
        items: options.size(sweep.items, 1_000_000, 3000),
        memory: if options.quick { &[1, 2] } else { &[32, 64, 128, 256, 512, 1024] },
    };
    memory_sweep(options, sweep, &workload)
}

pub fn figure_12(options: &Options, sweep: &Sweep) -> Result<()> {
    let workload = Workload {
        figure: "fig12",
        table: "table5",
        title: "Figure 12: build throughput, keys of 12 bytes with values of 4",
        table_title: "Table 5: best build throughput, keys of 12 bytes with values of 4",
        paper: &paper::TABLE_5,
        paper_items: paper::TABLE_5_ITEMS,
        kind: Kind::Small,
        items: options.size(sweep.items, 10_000_000, 50_000),
        memory: if options.quick { &[1, 2] } else { &[8, 16, 32, 64, 128, 256] },
    };
    memory_sweep(options, sweep, &workload)
}

fn memory_sweep(options: &Options, sweep: &Sweep, workload: &Workload) -> Result<()> {
    let folder = TemporaryFolder::create(&options.dir, workload.figure)?;
    let device = device_rates(&folder.path, if options.quick { 1 << 22 } else { 1 << 30 })?;
    let items = Items::new(workload.kind, workload.items, options.seed);
    let mut sheet = new_sheet(workload.title, options, &items, device);
    let site = Site::new(&folder.path, items)?;
    let cores = sweep.cores.clone().unwrap_or_else(default_cores);
    let memory = sweep.memory.clone().unwrap_or_else(|| workload.memory.to_vec());
    let each = |&cores: &usize| {
        memory.clone().into_iter().map(move |memory_mib| Means { memory_mib, cores })
    };
    let cases: Vec<(u64, Means)> =
        cores.iter().flat_map(each).map(|means| (workload.items, means)).collect();
    let built = build_all(&site, &cases, options.rounds)?;
    let mut series = paper_points(workload.paper, |best| best.memory_mib);
    for best in workload.paper {
        sheet.row(paper_row(best, workload.kind, workload.paper_items));
    }
    built.iter().for_each(|one| sheet.row(one.row("ours")));
    series.extend(our_curves(&cores, &built, |one| one.means.memory_mib as f64));
    let path = sheet.save(options, workload.figure)?;
    let x = power_axis("memory of the build, MiB", &series);
    draw(workload.title, x, series, &path)?;
    best_builds(options, workload, &cores, &built, &sheet)
}

fn paper_row(best: &Best, kind: Kind, items: f64) -> Vec<String> {
    let mut row = vec![format!("paper: {}", best.scheme), PAPER.to_owned(), best.cores.to_string()];
    let data_per_memory = format!("{:.1}", data_per_memory(kind, items, best.memory_mib));
    row.extend([items.to_string(), best.memory_mib.to_string(), data_per_memory]);
    row.extend([best.items_per_s.to_string(), String::new(), String::new(), String::new()]);
    row
}

/// The paper states the best build of each scheme.
fn paper_points(bests: &[Best], x: impl Fn(&Best) -> f64) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for best in bests {
        let colour = match best.scheme {
            "ECT Sort" => chart::ORANGE,
            "EPH Sort" => chart::AMBER,
            _ => chart::GREY,
        };
        let name = format!("paper: {}, best", best.scheme);
        let cores = counted_cores(best.cores);
        let point = Point::new(x(best), best.items_per_s / 1e3).labelled(cores);
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => {
                series.push(Series { name, look: Look::Squares, colour, points: vec![point] });
            }
        }
    }
    // The points are close, so only those of ECT are labelled.
    for other in series.iter_mut().filter(|series| !series.name.contains("ECT")) {
        other.points.iter_mut().for_each(|point| point.label = None);
    }
    series
}

fn our_curves(cores: &[usize], built: &[Built], x: impl Fn(&Built) -> f64) -> Vec<Series> {
    const COLOURS: [RGBColor; 3] = [chart::SKY, chart::BLUE, chart::PURPLE];
    let curve = |(i, &cores): (usize, &usize)| {
        let mine = built.iter().filter(|one| one.means.cores == cores);
        let points = mine.map(|one| {
            let rates = [one.rates.min(), one.rates.median(), one.rates.max()].map(|r| r / 1e3);
            Point::of(x(one), rates[1], &Samples::from(rates.to_vec()))
        });
        Series {
            name: format!("ours, {}", counted_cores(cores)),
            look: Look::DottedLine,
            colour: COLOURS[i % COLOURS.len()],
            points: points.collect(),
        }
    };
    cores.iter().enumerate().map(curve).collect()
}

fn counted_cores(cores: usize) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

fn power_axis(label: &'static str, series: &[Series]) -> Axis {
    let x = || series.iter().flat_map(|series| &series.points).map(|point| point.x);
    let mut axis =
        Axis::powers_of_two(label, x().fold(f64::MAX, f64::min), x().fold(0.0, f64::max));
    // Space for the label of the last point.
    axis.ticks.push(axis.ticks[axis.ticks.len() - 1] * 2.0);
    axis
}

fn draw(title: &str, x: Axis, series: Vec<Series>, path: &Path) -> Result<()> {
    let points = series.iter().flat_map(|series| &series.points);
    let max = points.map(|point| point.range.map_or(point.y, |(_, high)| high)).fold(1.0, f64::max);
    let y = Axis::from_zero(THROUGHPUT, max);
    Chart { title: title.to_owned(), x, y, series }.draw(path)
}

/// Minimum ratio of data to memory at which data are far from fitting, as in the paper: 7 to 88.
const LARGE: f64 = 8.0;

/// Reports the best build for each number of cores, beside the paper's.
fn best_builds(
    options: &Options,
    workload: &Workload,
    cores: &[usize],
    built: &[Built],
    sweep: &Sheet,
) -> Result<()> {
    let mut sheet = sweep.emptied(workload.table_title);
    let mut bars = Vec::new();
    for best in workload.paper {
        sheet.row(paper_row(best, workload.kind, workload.paper_items));
        let memory = exact(best.memory_mib, 0);
        let name = format!("paper: {}, {}, {memory} MiB", best.scheme, counted_cores(best.cores));
        bars.push(Bar { name, value: best.items_per_s, range: None });
    }
    for (what, least) in [("ours, data >= 8 x memory", LARGE), ("ours, any memory", 0.0)] {
        for &cores in cores {
            let mine = built.iter().filter(|one| one.means.cores == cores);
            let mine = mine.filter(|one| one.data_per_memory >= least);
            let best = mine.max_by(|a, b| a.rates.median().total_cmp(&b.rates.median()));
            let Some(best) = best else { continue };
            sheet.row(best.row(what));
            let memory = exact(best.means.memory_mib as f64, 0);
            bars.push(Bar {
                name: format!("{what}: {}, {memory} MiB", counted_cores(cores)),
                value: best.rates.median(),
                range: Some((best.rates.min(), best.rates.max())),
            });
        }
    }
    let path = sheet.save(options, workload.table)?;
    let panels = [Panel { title: "Builds, items/s; more is better".to_owned(), bars, limit: None }];
    draw_bars(&path, workload.table_title, &panels)
}

pub fn figure_8(options: &Options, growth: &Growth) -> Result<()> {
    let folder = TemporaryFolder::create(&options.dir, "fig8")?;
    let device = device_rates(&folder.path, if options.quick { 1 << 22 } else { 1 << 30 })?;
    let default = vec![62_500, 125_000, 250_000, 500_000, 1_000_000, 2_000_000];
    let counts = options.size(growth.items.clone(), default, vec![1000, 3000]);
    let memory_mib = options.size(growth.memory, 256, 1);
    let largest = counts.iter().copied().max().unwrap_or(0);
    let items = Items::new(Kind::Urls { value_size: URL_VALUE_SIZE }, largest, options.seed);
    let title = "Figure 8: build throughput by the number of items";
    let mut sheet = new_sheet(title, options, &items, device);
    sheet.note("items", format!("the first of these; memory of each build: {memory_mib} MiB"));
    sheet.note("paper", "16 M items with the best memory of each scheme, as Table 3 states");
    let site = Site::new(&folder.path, items)?;
    let cores = growth.cores.clone().unwrap_or_else(default_cores);
    let each =
        |&cores: &usize| counts.iter().map(move |&count| (count, Means { memory_mib, cores }));
    let cases: Vec<(u64, Means)> = cores.iter().flat_map(each).collect();
    let built = build_all(&site, &cases, options.rounds)?;
    for best in paper::TABLE_3 {
        sheet.row(paper_row(&best, site.items.kind, paper::TABLE_3_ITEMS));
    }
    built.iter().for_each(|one| sheet.row(one.row("ours")));
    let mut series = paper_points(&paper::TABLE_3, |_| paper::TABLE_3_ITEMS / 1e3);
    series.extend(our_curves(&cores, &built, |one| one.count as f64 / 1e3));
    let path = sheet.save(options, "fig8")?;
    let smallest = counts.iter().copied().min().unwrap_or(1) as f64 / 1e3;
    let x = Axis::logarithmic("items, in thousands", smallest, paper::TABLE_3_ITEMS * 1.5 / 1e3);
    let title = format!("{title}, {memory_mib} MiB of memory");
    draw(&title, x, series, &path)
}

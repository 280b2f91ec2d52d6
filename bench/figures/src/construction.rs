//! Figures 7, 8 and 12, Tables 3 and 5: the throughput of builds.

use crate::{
    Growth, Options, Result, Sweep,
    builds::{Means, Site, THREADS, describe, device_rates},
    chart::{self, Axis, Chart, Look, Point, Series},
    items::{Items, Kind, URL_VALUE_SIZE},
    machine::default_cores,
    measure::{Cost, TemporaryFolder},
    paper::{self, Best},
    sheet::{Draw, OURS, PAPER, Row, Sheet, of},
};
use plotters::style::RGBColor;
use record::{Panel, Samples, draw as draw_bars, exact};
use std::path::Path;

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
    fn row(&self, name: &str) -> Row {
        Row::new("series", name, OURS)
            .number("cores", self.means.cores as f64)
            .number("items", self.count as f64)
            .number("memory_mib", self.means.memory_mib as f64)
            .rounded("data_per_memory", self.data_per_memory, 1)
            .spread("items_per_s", &self.rates, 0)
            .spread("cpu_us_per_item", &self.cpu_us, 3)
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
    let mut sheet = Sheet::new(title, options);
    sheet.note("data", describe(items));
    sheet.note("device", device);
    sheet.note("threads", format!("one that sorts and {THREADS} for the device, on these cores"));
    sheet.note(
        "time",
        "from the first byte of the input read until the table is synced and the spill is freed, of \
         which only the first part goes through the page cache; median, \
         least and most of the rounds; CPU time is that of all threads; the machine was shared with \
         other work, which takes from throughput, less so from CPU time",
    );
    sheet.note("paper machine", paper::MACHINE);
    sheet
}

/// Titles of pictures.
const TITLE_7: &str = "Figure 7: build throughput, keys of 111 bytes with values of 1000 bytes";
const TITLE_12: &str = "Figure 12: build throughput, keys of 12 bytes with values of 4 bytes";
const TITLE_TABLE_3: &str =
    "Table 3: best build throughput, keys of 111 bytes with values of 1000 bytes";
const TITLE_TABLE_5: &str =
    "Table 5: best build throughput, keys of 12 bytes with values of 4 bytes";

/// The differences between Figures 7 and 12.
struct Workload {
    figure: &'static str,
    table: &'static str,
    title: &'static str,
    table_title: &'static str,
    draw: Draw,
    draw_table: Draw,
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
        title: TITLE_7,
        table_title: TITLE_TABLE_3,
        draw: draw_7,
        draw_table: draw_table_3,
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
        title: TITLE_12,
        table_title: TITLE_TABLE_5,
        draw: draw_12,
        draw_table: draw_table_5,
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
    for best in workload.paper {
        sheet.add(paper_row(best, workload.kind, workload.paper_items));
    }
    built.iter().for_each(|one| sheet.add(one.row("ours")));
    sheet.save(options, workload.figure, workload.draw)?;
    best_builds(options, workload, &cores, &built, &sheet)
}

fn paper_row(best: &Best, kind: Kind, items: f64) -> Row {
    Row::new("series", format!("paper: {}", best.scheme), PAPER)
        .number("cores", best.cores as f64)
        .number("items", items)
        .number("memory_mib", best.memory_mib)
        .rounded("data_per_memory", data_per_memory(kind, items, best.memory_mib), 1)
        .number("items_per_s", best.items_per_s)
}

pub fn draw_7(rows: &[Row], path: &Path) -> Result<()> {
    draw_by_memory(rows, path, TITLE_7)
}

pub fn draw_12(rows: &[Row], path: &Path) -> Result<()> {
    draw_by_memory(rows, path, TITLE_12)
}

fn draw_by_memory(rows: &[Row], path: &Path, title: &str) -> Result<()> {
    let throughput = Throughput::of(rows);
    let series = all_series(rows, "memory_mib", 1.0, throughput);
    draw(title, power_axis("memory of the build, MiB", &series), series, throughput, path)
}

/// The unit of throughput in a chart.
#[derive(Clone, Copy, Debug)]
struct Throughput {
    label: &'static str,
    unit: f64,
}

impl Throughput {
    fn of(rows: &[Row]) -> Throughput {
        let most = rows.iter().filter_map(|row| row.get("items_per_s")).fold(0.0, f64::max);
        if most < 1e6 {
            Throughput { label: "builds, thousand items/s; more is better", unit: 1e3 }
        } else {
            Throughput { label: "builds, million items/s; more is better", unit: 1e6 }
        }
    }
}

/// Returns the paper's points and our curves: throughput by a column, which is divided by a unit.
fn all_series(rows: &[Row], x: &str, x_unit: f64, throughput: Throughput) -> Vec<Series> {
    let point = |row: &Row| {
        let point = row.point(x, "items_per_s")?;
        let unit = throughput.unit;
        let range = point.range.map(|(low, high)| (low / unit, high / unit));
        Some(Point { range, ..Point::new(point.x / x_unit, point.y / unit) })
    };
    let mut series = paper_series(rows, &point);
    series.extend(our_curves(rows, &point));
    series
}

type PointOf<'a> = dyn Fn(&Row) -> Option<Point> + 'a;

/// The paper states the best build of each scheme.
fn paper_series(rows: &[Row], point: &PointOf<'_>) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in of(rows, PAPER) {
        let name = format!("{}, best", row.string("series"));
        // The points are close, so only those of one scheme are labelled.
        let (colour, is_labelled) = match row.string("series") {
            "paper: ECT Sort" => (chart::ORANGE, true),
            "paper: EPH Sort" => (chart::AMBER, false),
            _ => (chart::GREY, false),
        };
        let label = is_labelled.then(|| counted_cores(row));
        let point = point(row).map(|point| Point { label, ..point });
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.extend(point),
            None => {
                let points = point.into_iter().collect();
                series.push(Series { name, look: Look::Squares, colour, points });
            }
        }
    }
    series
}

fn our_curves(rows: &[Row], point: &PointOf<'_>) -> Vec<Series> {
    const COLOURS: [RGBColor; 3] = [chart::SKY, chart::BLUE, chart::PURPLE];
    let mut series: Vec<Series> = Vec::new();
    for row in of(rows, OURS) {
        let name = format!("ours, {}", counted_cores(row));
        if series.iter().all(|series| series.name != name) {
            let colour = COLOURS[series.len() % COLOURS.len()];
            let name = name.clone();
            series.push(Series { name, look: Look::DottedLine, colour, points: Vec::new() });
        }
        let mine = series.iter_mut().find(|series| series.name == name);
        mine.expect("it was just added").points.extend(point(row));
    }
    series
}

fn counted_cores(row: &Row) -> String {
    match row.get("cores").unwrap_or_default() {
        1.0 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    }
}

fn power_axis(label: &'static str, series: &[Series]) -> Axis {
    let x = || series.iter().flat_map(|series| &series.points).map(|point| point.x);
    let mut axis =
        Axis::powers_of_two(label, x().fold(f64::MAX, f64::min), x().fold(0.0, f64::max));
    // Space for the label of the last point.
    axis.ticks.push(axis.ticks[axis.ticks.len() - 1] * 2.0);
    axis
}

fn draw(
    title: &str,
    x: Axis,
    series: Vec<Series>,
    throughput: Throughput,
    path: &Path,
) -> Result<()> {
    let points = series.iter().flat_map(|series| &series.points);
    let max = points.map(|point| point.range.map_or(point.y, |(_, high)| high)).fold(1.0, f64::max);
    let y = Axis::from_zero(throughput.label, max);
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
    for best in workload.paper {
        sheet.add(paper_row(best, workload.kind, workload.paper_items));
    }
    for (what, least) in [(FAR_FROM_FITTING, LARGE), ("ours, any memory", 0.0)] {
        for &cores in cores {
            let mine = built.iter().filter(|one| one.means.cores == cores);
            let mine = mine.filter(|one| one.data_per_memory >= least);
            let best = mine.max_by(|a, b| a.rates.median().total_cmp(&b.rates.median()));
            best.into_iter().for_each(|best| sheet.add(best.row(what)));
        }
    }
    sheet.save(options, workload.table, workload.draw_table)
}

/// Name of the rows whose data are far from fitting.
const FAR_FROM_FITTING: &str = "ours, data >= 8 x memory";

pub fn draw_table_3(rows: &[Row], path: &Path) -> Result<()> {
    draw_best(rows, path, TITLE_TABLE_3)
}

pub fn draw_table_5(rows: &[Row], path: &Path) -> Result<()> {
    draw_best(rows, path, TITLE_TABLE_5)
}

fn draw_best(rows: &[Row], path: &Path, title: &str) -> Result<()> {
    let bar = |row: &Row| {
        let what = match row.string("series") {
            FAR_FROM_FITTING => "ours, data ≥ 8 x memory",
            what => what,
        };
        let memory = exact(row.get("memory_mib").unwrap_or_default(), 0);
        row.bar(&format!("{what}, {}, {memory} MiB", counted_cores(row)), "items_per_s")
    };
    let bars = rows.iter().filter_map(bar).collect();
    let panels = [Panel { title: "Builds, items/s; more is better".to_owned(), bars, limit: None }];
    draw_bars(path, title, &panels)
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
        sheet.add(paper_row(&best, site.items.kind, paper::TABLE_3_ITEMS));
    }
    built.iter().for_each(|one| sheet.add(one.row("ours")));
    sheet.save(options, "fig8", draw_8)
}

pub fn draw_8(rows: &[Row], path: &Path) -> Result<()> {
    let ours = || of(rows, OURS);
    let memory = ours().find_map(|row| row.get("memory_mib")).unwrap_or_default();
    let smallest = ours().filter_map(|row| row.get("items")).fold(f64::MAX, f64::min) / 1e3;
    let x = Axis::logarithmic("items, in thousands", smallest, paper::TABLE_3_ITEMS * 1.5 / 1e3);
    let title = "Figure 8: build throughput by the number of items";
    let title = format!("{title}, ours with {memory} MiB of memory");
    let throughput = Throughput::of(rows);
    draw(&title, x, all_series(rows, "items", 1e3, throughput), throughput, path)
}

//! The tables of the post on Voldemort's read-only stores: requests to one node, build times.

use crate::{
    Options, Requests, Result, StoreBuilds,
    builds::{THREADS, describe, device_rates},
    chart::{self, Axis, Chart, Look, Point, Series},
    hashes::pick,
    items::{Items, Kind},
    measure::{TemporaryFolder, ensure},
    paper,
    sheet::{OURS, PAPER, Row, Sheet, of},
    stores::{Part, Store},
};
use hashfold::{store::Version, work::Threads};
use record::{Panel, Samples, draw as draw_bars, exact};
use std::{fs, path::Path, sync::Arc, thread, time::Instant};

/// Default folder of the results.
const FOLDER: &str = "results/voldemort";

const REQUESTS_TITLE: &str = "Requests to one node, past the page cache";

/// Columns of the results that are drawn, and the titles of their panels.
const REQUEST_PANELS: [(&str, &str); 4] = [
    ("requests_per_s", "Requests, per second; more is better"),
    ("median_ms", "Median time of a request, ms; less is better"),
    ("mean_ms", "Mean time of a request, ms; less is better"),
    ("p99_ms", "99th percentile of the time of a request, ms; less is better"),
];

/// The times of the requests of one round.
struct Round {
    per_s: f64,
    /// Time of each request in milliseconds, ascending.
    times_ms: Vec<f64>,
}

impl Round {
    fn mean_ms(&self) -> f64 {
        self.times_ms.iter().sum::<f64>() / self.times_ms.len() as f64
    }

    /// Returns the time below which this fraction of all requests lies.
    fn quantile_ms(&self, part: f64) -> f64 {
        self.times_ms[((self.times_ms.len() - 1) as f64 * part) as usize]
    }
}

pub fn lookups(options: &Options, sizes: &Requests) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let folder = TemporaryFolder::create(&options.dir, "voldemort-lookups")?;
    let count = options.size(sizes.items, 4_000_000, 3000);
    let requests = options.size(sizes.requests, 200_000, 1000);
    let items = Items::new(Kind::Numbers, count, options.seed);
    let parts = [write_part(&items, &folder.path)?];
    let store = Store { folder: folder.path.join("store"), items: &items, memory_mib: 256 };
    let (_, info) = store.build(&parts)?;
    store.check(&info, count)?;
    let version = store.open(&info)?;
    let readers = sizes.readers.clone().unwrap_or_else(|| vec![1, 8, 32]);
    let mut sheet = request_sheet(options, &items, requests);
    for stated in &paper::REQUESTS {
        let row = Row::new("system", stated.system, PAPER)
            .number("requests_per_s", stated.per_s)
            .number("median_ms", stated.median_ms)
            .number("mean_ms", stated.mean_ms)
            .number("p99_ms", stated.p99_ms);
        sheet.add(row);
    }
    for readers in readers {
        let round = |i| one_round(&version, &items, requests, readers, options.seed + u64::from(i));
        let rounds: Result<Vec<Round>> = (1..=options.rounds).map(round).collect();
        sheet.add(request_row(readers, &rounds?));
    }
    sheet.save(options, "voldemort-lookups", draw_lookups)
}

fn request_row(readers: usize, rounds: &[Round]) -> Row {
    let of = |of: &dyn Fn(&Round) -> f64| Samples::from(rounds.iter().map(of).collect::<Vec<_>>());
    Row::new("system", "Hashfold", OURS)
        .number("readers", readers as f64)
        .spread("requests_per_s", &of(&|round| round.per_s), 0)
        .spread("median_ms", &of(&|round| round.quantile_ms(0.5)), 4)
        .spread("mean_ms", &of(&Round::mean_ms), 4)
        .spread("p99_ms", &of(&|round| round.quantile_ms(0.99)), 4)
        .spread("max_ms", &of(&|round| round.quantile_ms(1.0)), 4)
}

pub fn draw_lookups(rows: &[Row], path: &Path) -> Result<()> {
    let name = |row: &Row| match row.get("readers") {
        None => format!("paper: {}", row.string("system")),
        Some(1.0) => "ours: 1 reader".to_owned(),
        Some(readers) => format!("ours: {readers} readers"),
    };
    let panel = |(column, title): (&str, &str)| Panel {
        title: title.to_owned(),
        bars: rows.iter().filter_map(|row| row.bar(&name(row), column)).collect(),
        limit: None,
    };
    let panels = REQUEST_PANELS.map(panel);
    draw_bars(path, REQUESTS_TITLE, &panels)
}

fn request_sheet(options: &Options, items: &Items, requests: u64) -> Sheet {
    let mut sheet = Sheet::new(REQUESTS_TITLE, options);
    sheet.note("data", describe(items));
    sheet.note("threads", "one per reader");
    sheet.note(
        "time",
        format!(
            "{requests} requests a round, of uniformly random keys, one after the other in each \
             reader, past the page cache: none is answered from memory, as if the data were much \
             larger; all values checked; medians of the rounds"
        ),
    );
    sheet.note(
        "paper",
        "1 M requests recorded in production, which come back to some keys: half of them were \
         answered from the page cache; 100 GB of data, 15 GB of memory; readers are not stated",
    );
    sheet.note("paper machine", paper::POST_MACHINE);
    sheet
}

fn one_round(
    version: &Version,
    items: &Items,
    requests: u64,
    readers: usize,
    seed: u64,
) -> Result<Round> {
    let share = requests / readers as u64;
    let begin = Instant::now();
    let all: Result<Vec<Vec<f64>>> = thread::scope(|scope| {
        let start = |reader: u64| {
            scope.spawn(move || request(version, items, reader * share..(reader + 1) * share, seed))
        };
        let readers: Vec<_> = (0..readers as u64).map(start).collect();
        readers.into_iter().map(|reader| reader.join().expect("no reader panics")).collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    let mut times_ms = all?.concat();
    times_ms.sort_by(f64::total_cmp);
    Ok(Round { per_s: times_ms.len() as f64 / seconds, times_ms })
}

/// Sends some of the requests. Returns the duration of each.
fn request(
    version: &Version,
    items: &Items,
    requests: std::ops::Range<u64>,
    seed: u64,
) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    let mut key = Vec::new();
    for i in requests.map(|i| pick(i, seed, items.count)) {
        items.key(i, &mut key);
        let expected = items.number(i);
        let mut right = false;
        let begin = Instant::now();
        version.get_with(&key, &mut |value| {
            right = value.is_some_and(|value| value.starts_with(&expected));
        })?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        ensure(right, || format!("item {i} has a wrong value in the store"))?;
    }
    Ok(times)
}

pub fn builds(options: &Options, sizes: &StoreBuilds) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let folder = TemporaryFolder::create(&options.dir, "voldemort-builds")?;
    let device = device_rates(&folder.path, if options.quick { 1 << 22 } else { 1 << 30 })?;
    // The sizes of the post, divided by 200.
    let sizes_mb = options.size(sizes.sizes.clone(), vec![500, 2560, 5120], vec![1, 3]);
    let memory_mib = options.size(sizes.memory, 256, 1);
    let mut sheet = build_sheet(options, memory_mib, device);
    for stated in &paper::STORE_BUILDS {
        let row = Row::new("system", stated.system, PAPER)
            .number("input_gb", stated.input_gb)
            .number("minutes", stated.minutes)
            .rounded("mb_per_s", stated.input_gb * 1e3 / stated.minutes / 60.0, 0);
        sheet.add(row.text("how", stated.how));
    }
    for size_mb in sizes_mb {
        let count = size_mb * 1_000_000 / Kind::Numbers.mean_size() as u64;
        let items = Items::new(Kind::Numbers, count, options.seed);
        let minutes = build_times(&items, memory_mib, &folder.path, options.rounds)?;
        let rates: Vec<f64> = minutes.iter().map(|time| size_mb as f64 / time / 60.0).collect();
        let row = Row::new("system", "Hashfold", OURS)
            .number("input_gb", size_mb as f64 / 1e3)
            .spread("minutes", &minutes.into(), 5)
            .spread("mb_per_s", &rates.into(), 0);
        sheet.add(row.text("how", "1 machine"));
    }
    sheet.save(options, "voldemort-builds", draw_builds)
}

fn write_part(items: &Items, folder: &Path) -> Result<Part> {
    let path = folder.join("input");
    items.write(&path, Arc::new(Threads::new(THREADS)))?;
    Ok(Part { path, count: items.count })
}

/// Returns the minutes of each round.
fn build_times(items: &Items, memory_mib: u64, folder: &Path, rounds: u32) -> Result<Vec<f64>> {
    let parts = [write_part(items, folder)?];
    let store = Store { folder: folder.join("store"), items, memory_mib };
    let mut times = Vec::new();
    for _ in 0..rounds {
        let (cost, info) = store.build(&parts)?;
        store.check(&info, items.count)?;
        fs::remove_dir_all(&store.folder)?;
        times.push(cost.wall / 60.0);
    }
    fs::remove_file(&parts[0].path)?;
    Ok(times)
}

fn build_sheet(options: &Options, memory_mib: u64, device: String) -> Sheet {
    let mut sheet = Sheet::new("Build time by the size of the input", options);
    sheet.note(
        "data",
        "keys that are numbers in decimal, with values of 1024 bytes, as in the post",
    );
    sheet.note("memory", format!("{memory_mib} MiB, in which items are sorted"));
    sheet.note("device", device);
    sheet.note("threads", format!("one that sorts and {THREADS} for the device"));
    sheet.note(
        "time",
        "from the first byte of the input read until the version is published and the spill is freed, \
         of which only the first part goes through the page cache; \
         median, least and most of the rounds",
    );
    sheet.note(
        "paper",
        "Hadoop: map, shuffle and reduce for 10 nodes, on a cluster whose size is not stated; \
         MySQL: load data infile of 100 M keys on one machine",
    );
    sheet.note("paper machine", paper::POST_MACHINE);
    sheet
}

pub fn draw_builds(rows: &[Row], path: &Path) -> Result<()> {
    let point = |row: &Row| {
        let rate = row.get("mb_per_s").unwrap_or_default();
        let point = row.point("input_gb", "minutes")?;
        Some(point.labelled(format!("{} MB/s", exact(rate, 0))))
    };
    let stated = |system: &str, colour| {
        let mine = of(rows, PAPER).filter(|row| row.string("system") == system);
        Series {
            name: format!("paper: {system}"),
            look: Look::Squares,
            colour,
            points: mine.filter_map(point).collect(),
        }
    };
    let mut ours: Vec<Point> = of(rows, OURS).filter_map(point).collect();
    // The points are close, so only the last one is labelled.
    ours.iter_mut().rev().skip(1).for_each(|point| point.label = None);
    let series = vec![
        stated("Voldemort on Hadoop", chart::ORANGE),
        stated("MySQL", chart::GREY),
        Series {
            name: "ours, 1 machine".to_owned(),
            look: Look::DottedLine,
            colour: chart::BLUE,
            points: ours,
        },
    ];
    let all = || series.iter().flat_map(|series| &series.points);
    let ends = |of: &dyn Fn(&Point) -> f64| {
        (all().map(of).fold(f64::MAX, f64::min), all().map(of).fold(0.0, f64::max))
    };
    let ((left, right), (low, high)) = (ends(&|point| point.x), ends(&|point| point.y));
    Chart {
        title: "Build time by the size of the input".to_owned(),
        // Space for the label of the last point.
        x: Axis::decades("input, GB", left, right * 2.0),
        y: Axis::decades("time of the build, minutes; less is better", low, high),
        series,
    }
    .draw(path)
}

//! The command `figures sal-replication`: the loads of several devices, without copies of hot groups, with the
//! paper's page replication, and with mirrors as the map makes them. In no figure of the paper.

use super::{
    array::IN_FLIGHT,
    buffer::{Buffer, Policy},
    copies::{Access, EPOCH_READS, Strategy, Striped},
    device::Request,
    engine::{Layout, Sal, Sizes},
    figures::{FOLDER, TINY_SCALE, new_sheet},
    traces::{GROUP, Locality, Requests, World},
};
use crate::{
    Options, Result, SalTraces,
    chart::{self, Axis, Chart, Look, RGBColor, Series, draw_grid},
    sheet::{OURS, Row},
};
use std::path::Path;

/// Name of the file of results, without its extension.
const NAME: &str = "sal-replication";
/// Default scale: with fewer groups, hot ones would be spread less evenly over the devices than in the paper's sizes.
const SCALE: u64 = 8;
const DEVICES: [usize; 4] = [1, 2, 4, 8];
const RECORDS: u64 = 80_000_000;

const TRACES: [(&str, Locality); 4] = [
    ("uniform", Locality::Uniform),
    ("80-20 over buckets", Locality::HotBuckets(80)),
    ("80-20 over sets", Locality::HotGroups(80)),
    ("Zipf's law over keys", Locality::Zipf),
];

/// Operations of a trace.
#[derive(Clone, Copy, Debug)]
struct Setting {
    name: &'static str,
    search_part: f64,
    has_page_buffer: bool,
}

const SETTINGS: [Setting; 2] = [
    Setting { name: "half searches, page buffer", search_part: 0.5, has_page_buffer: true },
    Setting { name: "searches, no page buffer", search_part: 1.0, has_page_buffer: false },
];

/// The numbers of one strategy on one trace.
struct Outcome {
    trace: &'static str,
    setting: &'static str,
    strategy: Strategy,
    devices: usize,
    columns: Vec<(&'static str, f64)>,
}

pub fn replication(options: &Options, traces: &SalTraces) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let scale = options.size(traces.scale, SCALE, TINY_SCALE);
    let mut sheet = new_sheet("Copies of hot groups on several devices, simulated", options, scale);
    sheet.note(
        "operations",
        format!(
            "of 80 million records, a buffer of 64 MB or none but the log buffer, {IN_FLIGHT} in flight; NVMe costs"
        ),
    );
    let rounds: Vec<Vec<Outcome>> = (0..u64::from(options.rounds))
        .map(|i| round(&World { scale, seed: options.seed + i }))
        .collect();
    for (i, outcome) in rounds[0].iter().enumerate() {
        let Outcome { trace, setting, strategy, devices, columns } = outcome;
        let row = Row::new("copies", strategy.name(), OURS)
            .text("trace", *trace)
            .text("operations", *setting)
            .number("devices", *devices as f64);
        let row = columns.iter().enumerate().fold(row, |row, (j, (name, _))| {
            let all: Vec<f64> = rounds.iter().map(|round| round[i].columns[j].1).collect();
            row.spread(name, &all.into(), 4)
        });
        sheet.add(row);
    }
    sheet.save(options, NAME, draw)
}

/// Runs all traces once, on the paper's layout.
fn round(world: &World) -> Vec<Outcome> {
    let keys = world.scaled(RECORDS);
    let sizes = Sizes { group: GROUP, memory: world.memory() };
    let buffer = Buffer::new(Policy::Lru, sizes.memory);
    let mut sal = Sal::new(Layout::Paper, sizes, buffer, world.dice(500));
    world.insert(&mut sal, 0, keys);
    let mut outcomes = Vec::new();
    for setting in SETTINGS {
        for (trace, locality) in TRACES {
            let mut index = sal.clone();
            if !setting.has_page_buffer {
                index.drop_page_buffer();
            }
            let all = run(world, &mut index, &world.requests(keys, locality), setting.search_part);
            // Striping comes first.
            let plain = requests(&all[0]).max(1) as f64;
            for (i, striped) in all.iter().enumerate() {
                let (strategy, devices) =
                    (Strategy::ALL[i / DEVICES.len()], DEVICES[i % DEVICES.len()]);
                let columns = columns(striped, plain / devices as f64, world.operations());
                outcomes.push(Outcome { trace, setting: setting.name, strategy, devices, columns });
            }
        }
    }
    outcomes
}

/// Sends the requests of one trace to all numbers of devices, with each strategy.
fn run(world: &World, index: &mut Sal, trace: &Requests, search_part: f64) -> Vec<Striped> {
    let groups = index.group_count();
    let striped = |strategy| {
        DEVICES.map(|devices| {
            let epoch_reads = world.scaled(EPOCH_READS);
            Striped::new(strategy, devices, groups, epoch_reads, world.dice(501))
        })
    };
    let mut all: Vec<Striped> = Strategy::ALL.into_iter().flat_map(striped).collect();
    index.record();
    for _ in 0..world.operations() {
        trace.step(index, search_part);
        let requests = index.take_requests().into_iter();
        let requests: Vec<(u64, Access)> = requests.map(|request| access(index, request)).collect();
        all.iter_mut().for_each(|striped| striped.serve(requests.iter().copied()));
    }
    all.iter_mut().for_each(Striped::finish);
    all
}

fn access(index: &Sal, request: Request) -> (u64, Access) {
    match request {
        Request::ReadGroup(group) => (group, Access::ReadGroup),
        Request::WriteGroup(group) => (group, Access::WriteGroup),
        Request::WritePage(page) => (index.owner(page).0, Access::WritePage),
        Request::ReadPage(page) => (index.owner(page).0, Access::ReadPage),
        Request::SearchPage(page) => {
            let (group, is_log) = index.owner(page);
            (group, if is_log { Access::SearchLog } else { Access::SearchBucket })
        }
    }
}

fn requests(striped: &Striped) -> u64 {
    (0..striped.array.devices()).map(|device| striped.array.requests(device)).sum()
}

/// Returns the columns of results; `even` is the even share of the requests without copies.
fn columns(striped: &Striped, even: f64, operations: u64) -> Vec<(&'static str, f64)> {
    let array = &striped.array;
    let busiest = (0..array.devices()).map(|device| array.requests(device)).max().unwrap_or(0);
    let [search_us, write_us] = striped.mean_waits();
    vec![
        ("busiest", busiest as f64 / even),
        ("us", array.end() / operations as f64),
        ("search_read_us", search_us),
        ("write_us", write_us),
        ("requests", requests(striped) as f64 / operations as f64),
        ("extra_pages_per_1000", 1e3 * striped.extra.pages_written as f64 / operations as f64),
        ("stored_percent", 100.0 * striped.extra.copies_max as f64 / striped.groups() as f64),
    ]
}

/// Draws the load of the most loaded device by the number of devices, for the traces with hot sets or keys.
pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let highest = rows.iter().filter_map(|row| row.range("busiest")).map(|(_, high)| high);
    // Loads begin at the even share.
    let highest = (highest.fold(1.1, f64::max) * 10.0).ceil() / 10.0;
    let chart = |(trace, _): (&str, Locality), setting: Setting| {
        let series = |(strategy, (look, colour)): (Strategy, (Look, RGBColor))| {
            let mine = rows.iter().filter(|row| {
                row.string("copies") == strategy.name()
                    && row.string("trace") == trace
                    && row.string("operations") == setting.name
            });
            let points = mine.filter_map(|row| row.point("devices", "busiest")).collect();
            Series { name: strategy.name().to_owned(), look, colour, points }
        };
        let looks = [
            (Look::DottedLine, chart::GREY),
            (Look::DottedLine, chart::ORANGE),
            (Look::DottedLine, chart::BLUE),
        ];
        Chart {
            title: format!("{trace}; {}", setting.name),
            x: Axis::powers_of_two("devices", 1.0, 8.0),
            y: Axis::linear(
                "requests of the busiest device, even share = 1; less is better",
                1.0,
                highest,
                0.1,
            ),
            series: Strategy::ALL.into_iter().zip(looks).map(series).collect(),
        }
    };
    let [.., sets, keys] = TRACES;
    let charts =
        SETTINGS.into_iter().flat_map(|setting| [chart(sets, setting), chart(keys, setting)]);
    draw_grid(&charts.collect::<Vec<_>>(), path)
}

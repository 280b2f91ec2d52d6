//! Events from frames to windows through the library's pipeline, by the numbers of parsers and workers.

use super::{FOLDER, THREADS_MAX};
use crate::{
    Options, QueueRuns, Result,
    chart::{self, Axis, Chart, Look, Point, RGBColor, Series, draw_grid},
    dice::Dice,
    measure::{Cost, cost, ensure},
    paper,
    sheet::{OURS, PAPER, Row, Sheet, of},
};
use hashfold::pipeline::{
    Aggregate, Column, Field, FieldKind, Parser, Pipeline, PipelineOptions, Rule, Sink, Stats,
    Summary, Test, Value, Window,
};
use record::Samples;
use std::path::Path;

const USERS: u64 = 20_000;
const PAGES: u64 = 500;
/// Length of a window in milliseconds, and the number of events in it.
const WINDOW_MS: i64 = 60_000;
const EVENTS_A_WINDOW: u64 = 500_000;
/// Number of different frames, which come again and again with other times.
const FRAMES: usize = 1 << 14;
/// Number of events in a batch.
const BATCH: usize = 256;
/// One event out of this number is for the fourth summary.
const RARE: u64 = 64;

/// The frames of a measurement: CSV of about 100 bytes, without their times.
pub(super) struct Events {
    count: u64,
    frames: Vec<String>,
}

impl Events {
    pub(super) fn of(options: &Options, runs: &QueueRuns) -> Events {
        let dice = Dice::new(options.seed);
        let frame = |i: usize| {
            // Small numbers of users and pages are more frequent.
            let skewed = |end: u64| dice.below(end) * dice.below(end) / end;
            let (user, page, ms) = (skewed(USERS), skewed(PAGES), skewed(1000));
            let kind = if (i as u64).is_multiple_of(RARE) { "order" } else { "view" };
            format!(
                ",user{user},/page/{page},{ms},{kind},Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20"
            )
        };
        let count = options.size(runs.events, 4_000_000, 20_000);
        Events { count, frames: (0..FRAMES).map(frame).collect() }
    }

    /// Returns the number of events that are for the fourth summary.
    fn rare(&self) -> u64 {
        let (whole, rest) = (self.count / FRAMES as u64, self.count % FRAMES as u64);
        whole * (FRAMES as u64 / RARE) + rest.div_ceil(RARE)
    }

    /// Returns the time of an event.
    fn time(i: u64) -> i64 {
        const START: i64 = 1_700_000_040_000;
        START + (i as i64 * WINDOW_MS) / EVENTS_A_WINDOW as i64
    }
}

/// The cost of a run, and what was in the queues meanwhile.
struct Round {
    cost: Cost,
    /// Mean number of batches in the queue of each worker, as a part of all batches.
    worker_queues: Vec<f64>,
}

pub(super) fn measure(options: &Options, events: &Events) -> Result<()> {
    let cases: Vec<(usize, usize)> = (1..=THREADS_MAX)
        .flat_map(|parsers| (1..=THREADS_MAX).map(move |workers| (parsers, workers)))
        .collect();
    let mut rounds: Vec<Vec<Round>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (rounds, &(parsers, workers)) in rounds.iter_mut().zip(&cases) {
            rounds.push(pass(events, parsers, workers)?);
        }
    }
    let options = &options.by_default_in(FOLDER);
    let mut sheet = Sheet::new("Events from frames to windows", options);
    note(&mut sheet, events);
    for stated in &paper::SUMMARIZER {
        let row = Row::new("system", stated.system, PAPER);
        sheet.add(row.rounded("million_per_s", stated.per_s / 1e6, 3));
    }
    for ((parsers, workers), rounds) in cases.into_iter().zip(&rounds) {
        sheet.add(row((parsers, workers), rounds, events.count));
    }
    sheet.save(options, "queues-events", draw)
}

fn note(sheet: &mut Sheet, events: &Events) {
    sheet.note(
        "data",
        format!(
            "{} events of about 100 bytes of CSV, to four summaries: pages with distinct users, users, a histogram of \
             times, and one event out of {RARE}; windows of a minute",
            events.count
        ),
    );
    sheet.note("threads", "one that makes frames, and one for each parser and each worker");
    sheet.note(
        "time",
        "until all windows have ended; the events of each summary are counted and checked; medians of the rounds",
    );
    sheet.note("paper", paper::SUMMARIZER_NOTE);
    sheet.note("paper machine", paper::SUMMARIZER_MACHINE);
}

fn row((parsers, workers): (usize, usize), rounds: &[Round], events: u64) -> Row {
    let of = |of: &dyn Fn(&Round) -> f64| Samples::from(rounds.iter().map(of).collect::<Vec<_>>());
    let percent = |all: &[f64], choose: fn(f64, f64) -> f64| {
        all.iter().copied().reduce(choose).unwrap_or_default() * 100.0
    };
    let parser = if parsers == 1 { "parser" } else { "parsers" };
    let worker = if workers == 1 { "worker" } else { "workers" };
    Row::new("system", format!("{parsers} {parser}, {workers} {worker}"), OURS)
        .number("parsers", parsers as f64)
        .number("workers", workers as f64)
        .spread("million_per_s", &of(&|round| events as f64 / round.cost.wall / 1e6), 3)
        .spread("cpu_us", &of(&|round| round.cost.cpu * 1e6 / events as f64), 3)
        .spread("fullest_queue_percent", &of(&|round| percent(&round.worker_queues, f64::max)), 1)
        .spread("emptiest_queue_percent", &of(&|round| percent(&round.worker_queues, f64::min)), 1)
}

/// A parser of `time,user,page,ms,kind,agent`.
struct Csv;

impl Parser for Csv {
    fn parse(
        &mut self,
        frame: &[u8],
        events: &mut hashfold::pipeline::Events,
    ) -> std::result::Result<(), &'static str> {
        let mut parts = frame.split(|byte| *byte == b',');
        let mut next = || parts.next().ok_or("expected 6 fields");
        let time = number(next()?)?;
        events.begin();
        events.set(0, Value::Text(next()?));
        events.set(1, Value::Text(next()?));
        events.set(2, Value::Int(number(next()?)?));
        events.set(3, Value::Text(next()?));
        next()?;
        events.end(time);
        Ok(())
    }
}

fn number(digits: &[u8]) -> std::result::Result<i64, &'static str> {
    let text = std::str::from_utf8(digits).map_err(|_| "expected a number")?;
    text.parse().map_err(|_| "expected a number")
}

/// Takes windows, and keeps nothing.
struct Forget;

impl Sink for Forget {
    fn window(&mut self, window: &Window<'_>) -> hashfold::Result<()> {
        std::hint::black_box(window.groups());
        Ok(())
    }
}

/// Returns the summaries: two large ones, a middle one and a small one, each for another worker if there are four.
fn summaries() -> Vec<(Summary, Box<dyn Sink>)> {
    let count = || Column::new("n", Aggregate::Count);
    let users = Column::new("users", Aggregate::Distinct { field: 0, precision: 11 });
    let bounds = vec![10.0, 100.0, 500.0];
    let times = Column::new("ms", Aggregate::Histogram { field: 2, bounds });
    let sum = Column::new("ms", Aggregate::Sum(2));
    let is_order = Rule { field: 3, test: Test::In(vec![b"order".to_vec()]) };
    let all = [
        Summary::new("pages", vec![count(), users]).group_by(vec![1]),
        Summary::new("users", vec![count(), sum]).group_by(vec![0]),
        Summary::new("times", vec![times]),
        Summary::new("orders", vec![count()]).rules(vec![is_order]),
    ];
    let with_sink = |summary: Summary| -> (Summary, Box<dyn Sink>) {
        (summary.windows(WINDOW_MS, 0), Box::new(Forget))
    };
    all.into_iter().map(with_sink).collect()
}

fn pass(events: &Events, parsers: usize, workers: usize) -> Result<Round> {
    let fields = [
        Field::new("user", FieldKind::Text),
        Field::new("page", FieldKind::Text),
        Field::new("ms", FieldKind::Int),
        Field::new("kind", FieldKind::Text),
    ];
    let all = (0..parsers).map(|_| Box::new(Csv) as _).collect();
    let options = PipelineOptions { workers, ..PipelineOptions::default() };
    let pipeline = Pipeline::start(&fields, all, summaries(), options)?;
    let (mut sums, mut samples) = (vec![0.0; workers], 0_u32);
    let (cost, stats) = cost(|| {
        let input = pipeline.input();
        let mut frame = String::new();
        for start in (0..events.count).step_by(BATCH) {
            let mut batch = input.batch()?;
            for i in start..events.count.min(start + BATCH as u64) {
                frame.clear();
                frame.push_str(&Events::time(i).to_string());
                frame.push_str(&events.frames[(i % FRAMES as u64) as usize]);
                batch.push(frame.as_bytes());
            }
            input.push(batch, None)?;
            let stats = pipeline.stats();
            for (sum, queue) in sums.iter_mut().zip(&stats.worker_queues) {
                *sum += *queue as f64 / stats.batches as f64;
            }
            samples += 1;
        }
        Ok(pipeline.finish()?)
    })?;
    check(&stats, events)?;
    let worker_queues = sums.into_iter().map(|sum| sum / f64::from(samples.max(1))).collect();
    Ok(Round { cost, worker_queues })
}

/// Each event is in the first three summaries, and those of one kind are in the fourth.
fn check(stats: &Stats, events: &Events) -> Result<()> {
    let expected = [events.count, events.count, events.count, events.rare()];
    let got: Vec<u64> = stats.summaries.iter().map(|summary| summary.events).collect();
    let is_right = got == expected && stats.totals.events == events.count;
    ensure(is_right, || format!("expected {expected:?} events in the summaries, got {stats:?}"))
}

/// Draws the rates, and what is in the queues of workers.
pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let rates = || rows.iter().filter_map(|row| row.get("million_per_s"));
    let (low, high) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let workers = || Axis::linear("workers", 1.0, THREADS_MAX as f64, 1.0);
    let mut series = by_parsers(rows, "million_per_s", Look::DottedLine);
    let colours = [chart::ORANGE, chart::AMBER, chart::GREY, chart::INK];
    for (row, colour) in of(rows, PAPER).zip(colours.into_iter().cycle()) {
        let rate = row.get("million_per_s").unwrap_or_default();
        series.push(Series {
            name: format!("paper: {}", row.string("system")),
            look: Look::Dashed,
            colour,
            points: [1.0, THREADS_MAX as f64].map(|x| Point::new(x, rate)).to_vec(),
        });
    }
    let mut queues = by_parsers(rows, "fullest_queue_percent", Look::DottedLine);
    queues.iter_mut().for_each(|series| series.name += ": fullest");
    let mut emptiest = by_parsers(rows, "emptiest_queue_percent", Look::Dashed);
    emptiest.iter_mut().for_each(|series| series.name += ": emptiest");
    queues.append(&mut emptiest);
    let charts = [
        Chart {
            title: "Events of 100 bytes to four summaries".to_owned(),
            x: workers(),
            y: Axis::logarithmic("million events per second; more is better", low, high),
            series,
        },
        Chart {
            title: "The queues of workers: full or empty".to_owned(),
            x: workers(),
            y: Axis::linear("mean part of all batches, %", 0.0, 100.0, 20.0),
            series: queues,
        },
    ];
    draw_grid(&charts, path)
}

/// Returns a curve for each number of parsers.
fn by_parsers(rows: &[Row], column: &str, look: Look) -> Vec<Series> {
    const COLOURS: [RGBColor; THREADS_MAX] = [chart::SKY, chart::BLUE, chart::TEAL, chart::PURPLE];
    let curve = |(parsers, colour): (usize, RGBColor)| {
        let mine = of(rows, OURS).filter(|row| row.get("parsers") == Some(parsers as f64));
        let name = match parsers {
            1 => "ours: 1 parser".to_owned(),
            _ => format!("ours: {parsers} parsers"),
        };
        let points = mine.filter_map(|row| row.point("workers", column)).collect();
        Series { name, look, colour, points }
    };
    (1..=THREADS_MAX).zip(COLOURS).map(curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_events_are_counted() {
        for count in [0, 1, 63, 64, 65, FRAMES as u64, FRAMES as u64 + 65, 40_000] {
            let events = Events { count, frames: Vec::new() };
            let naive = (0..count).filter(|i| (i % FRAMES as u64).is_multiple_of(RARE)).count();
            assert_eq!(events.rare(), naive as u64, "{count}");
        }
    }

    #[test]
    fn a_wrong_count_is_noticed() {
        let events = Events { count: 128, frames: Vec::new() };
        let summary = |events| hashfold::pipeline::SummaryStats { events, ..Default::default() };
        let mut stats =
            Stats { summaries: [128, 128, 128, 2].map(summary).to_vec(), ..Stats::default() };
        stats.totals.events = 128;
        check(&stats, &events).unwrap();
        stats.summaries[2].events = 127;
        assert!(check(&stats, &events).is_err());
    }
}

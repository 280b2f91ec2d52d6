//! Items through queues, by the numbers of producers and consumers.

use super::{BATCH, CAPACITY, Ends, FOLDER, KINDS, Kind, THREADS_MAX, events, events::Events};
use crate::{
    Options, QueueRuns, Result,
    chart::{self, Axis, Chart, Look, Point, RGBColor, Series, draw_grid},
    measure::{Cost, cost, ensure},
    paper,
    sheet::{MEASURED, OURS, PAPER, Row, Sheet, of},
};
use record::{Panel, Samples, draw as draw_bars};
use std::{path::Path, thread};

const THIRD_TITLE: &str = "Change of the rate by a third consumer, four producers";

pub fn queues(options: &Options, runs: &QueueRuns) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let items = options.size(runs.items, 4_000_000, 20_000);
    let cases: Vec<(usize, usize)> = (1..=THREADS_MAX)
        .flat_map(|producers| (1..=THREADS_MAX).map(move |consumers| (producers, consumers)))
        .collect();
    let mut rounds: Vec<Vec<Cost>> = vec![Vec::new(); cases.len() * KINDS.len()];
    for _ in 0..options.rounds {
        let all = cases.iter().flat_map(|case| KINDS.iter().map(move |kind| (case, kind)));
        for (rounds, (&(producers, consumers), kind)) in rounds.iter_mut().zip(all) {
            rounds.push(pass(kind, producers, consumers, items)?);
        }
    }
    let mut sheet = Sheet::new("Queues between threads", options);
    note(&mut sheet, items);
    stated_rates().into_iter().for_each(|row| sheet.add(row));
    for (i, rounds) in rounds.iter().enumerate() {
        let ((producers, consumers), kind) = (cases[i / KINDS.len()], &KINDS[i % KINDS.len()]);
        sheet.add(row(kind, (producers, consumers), rounds, items));
    }
    sheet.save(options, "queues", draw)?;
    third(&sheet, options)?;
    events::measure(options, &Events::of(options, runs))
}

fn note(sheet: &mut Sheet, items: u64) {
    sheet.note(
        "data",
        format!("{items} items of 32 bytes, each in a box of its own, made by producers and freed by consumers"),
    );
    sheet.note("threads", "one for each producer and each consumer");
    sheet.note("capacity", format!("{CAPACITY} items, or {} batches of {BATCH}", CAPACITY / BATCH));
    sheet.note(
        "time",
        "until all items are taken; their number and their sum are checked; medians of the rounds",
    );
    sheet.note("paper", paper::SUMMARIZER_NOTE);
    sheet.note("paper machine", paper::SUMMARIZER_MACHINE);
}

/// Passes items through a queue, and checks that each was taken once.
fn pass(kind: &Kind, producers: usize, consumers: usize, items: u64) -> Result<Cost> {
    let Ends { producers: puts, consumers: takes } = (kind.new)(producers, consumers);
    let (cost, (count, sum)) = cost(|| {
        Ok(thread::scope(|scope| {
            let takers: Vec<_> = takes
                .into_iter()
                .map(|mut take| {
                    scope.spawn(move || {
                        let (mut count, mut sum) = (0_u64, 0_u64);
                        while let Some(item) = take.take() {
                            count += 1;
                            sum = sum.wrapping_add(item[0]);
                        }
                        (count, sum)
                    })
                })
                .collect();
            for (number, mut put) in puts.into_iter().enumerate() {
                let (first, step) = (number as u64, producers);
                scope.spawn(move || {
                    (first..items).step_by(step).for_each(|i| put.put(Box::new([i, first, 0, 0])));
                });
            }
            takers.into_iter().fold((0_u64, 0_u64), |(count, sum), taker| {
                let (more, other) = taker.join().expect("no consumer panics");
                (count + more, sum.wrapping_add(other))
            })
        }))
    })?;
    let expected = (items, (0..items).fold(0, u64::wrapping_add));
    ensure((count, sum) == expected, || {
        format!("{}: {count} of {items} items were taken, with the sum {sum}", kind.name)
    })?;
    Ok(cost)
}

fn row(kind: &Kind, (producers, consumers): (usize, usize), rounds: &[Cost], items: u64) -> Row {
    let of = |of: &dyn Fn(&Cost) -> f64| Samples::from(rounds.iter().map(of).collect::<Vec<_>>());
    let source = if kind.is_ours { OURS } else { MEASURED };
    Row::new("queue", kind.name, source)
        .number("producers", producers as f64)
        .number("consumers", consumers as f64)
        .spread("million_per_s", &of(&|cost| items as f64 / cost.wall / 1e6), 3)
        .spread("cpu_ns", &of(&|cost| cost.cpu * 1e9 / items as f64), 1)
}

/// Returns the rates that the post states: of messages, which are parsed, and not of items alone.
fn stated_rates() -> Vec<Row> {
    let row = |stated: &paper::Parsing| {
        Row::new("queue", stated.queue, PAPER).number("producers", stated.producers).rounded(
            "million_per_s",
            stated.per_s / 1e6,
            3,
        )
    };
    paper::PARSING.iter().map(row).collect()
}

/// Writes what a third consumer changes, which the post states of one queue.
fn third(sheet: &Sheet, options: &Options) -> Result<()> {
    let mut third = sheet.emptied(THIRD_TITLE);
    let stated = Row::new("queue", "ArrayBlockingQueue", PAPER);
    third.add(stated.number("change_percent", paper::THIRD_CONSUMER_PERCENT));
    for kind in &KINDS {
        let rate = |consumers: usize| {
            let found = sheet.rows().iter().find(|row| {
                row.string("queue") == kind.name
                    && row.get("producers") == Some(THREADS_MAX as f64)
                    && row.get("consumers") == Some(consumers as f64)
            });
            found.and_then(|row| row.get("million_per_s"))
        };
        let (two, three) = rate(2).zip(rate(3)).ok_or("a queue has no rate")?;
        let source = if kind.is_ours { OURS } else { MEASURED };
        let row = Row::new("queue", kind.name, source);
        third.add(row.rounded("change_percent", (three / two - 1.0) * 100.0, 1));
    }
    third.save(options, "queues-third", draw_third)
}

/// Draws a chart for each number of producers.
pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let rates: Vec<f64> = rows.iter().filter_map(|row| row.get("million_per_s")).collect();
    let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let high = rates.iter().copied().fold(0.0, f64::max);
    let chart = |producers: usize| Chart {
        title: match producers {
            1 => "One producer".to_owned(),
            _ => format!("{producers} producers"),
        },
        x: Axis::linear("consumers", 1.0, THREADS_MAX as f64, 1.0),
        y: Axis::logarithmic("million items per second; more is better", low, high),
        series: series(rows, producers as f64),
    };
    let charts: Vec<Chart> = (1..=THREADS_MAX).map(chart).collect();
    draw_grid(&charts, path)
}

fn series(rows: &[Row], producers: f64) -> Vec<Series> {
    const COLOURS: [RGBColor; 5] =
        [chart::GREY, chart::PURPLE, chart::TEAL, chart::SKY, chart::BLUE];
    let mine = || rows.iter().filter(move |row| row.get("producers") == Some(producers));
    let of_kind = |(kind, colour): (&Kind, RGBColor)| {
        let is_ours = if kind.is_ours { "ours: " } else { "" };
        let points = mine().filter(|row| row.string("queue") == kind.name);
        Series {
            name: format!("{is_ours}{}", kind.name),
            look: Look::DottedLine,
            colour,
            points: points.filter_map(|row| row.point("consumers", "million_per_s")).collect(),
        }
    };
    let mut series: Vec<Series> = KINDS.iter().zip(COLOURS).map(of_kind).collect();
    for (row, colour) in mine().filter(|row| row.is_of(PAPER)).zip([chart::ORANGE, chart::AMBER]) {
        let rate = row.get("million_per_s").unwrap_or_default();
        series.push(Series {
            name: format!("paper: {},\nwith parsing", row.string("queue")),
            look: Look::Dashed,
            colour,
            points: [1.0, THREADS_MAX as f64].map(|x| Point::new(x, rate)).to_vec(),
        });
    }
    series
}

/// Draws what a third consumer leaves of the rate, in percent.
pub fn draw_third(rows: &[Row], path: &Path) -> Result<()> {
    let bar = |row: &Row| {
        let name = match row.string("source") {
            PAPER => format!("paper: {}", row.string("queue")),
            OURS => format!("ours: {}", row.string("queue")),
            _ => row.string("queue").to_owned(),
        };
        let value = row.get("change_percent")? + 100.0;
        Some(record::Bar { name, value, range: None })
    };
    let order = [PAPER, MEASURED, OURS];
    let panel = Panel {
        title: "Rate with three consumers by that with two, %; more is better".to_owned(),
        bars: order.iter().flat_map(|source| of(rows, source)).filter_map(bar).collect(),
        limit: None,
    };
    draw_bars(path, "A third consumer of a queue with four producers", &[panel])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_taken_once_by_any_number_of_threads() {
        for kind in &KINDS {
            for (producers, consumers) in [(1, 1), (1, 4), (4, 1), (3, 2)] {
                // Less than a batch, more than a queue holds, and what is no multiple of anything.
                for items in [0, 1, 5, 10_007] {
                    pass(kind, producers, consumers, items).unwrap();
                }
            }
        }
    }
}

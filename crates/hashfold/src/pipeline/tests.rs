//! Pipelines against a naive single-threaded twin, and their bounds.

use super::{
    Aggregate, Checkpoint, Column, Events, Field, FieldKind, Input, Output, Parser, Pipeline,
    PipelineOptions, Position, RELATIVE_ERROR, RejectedSink, Rule, Sink, Stats, Summary, Test,
    Value, Window,
};
use crate::{
    error::{Error, ErrorKind, Result},
    key::Seed,
    run::Run as _,
    sketch::Hll,
    work::{MemoryBudget, Random as _, SeededRandom},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// The events of tests: time, user, kind, amount as int, weight as float.
#[derive(Clone, Debug, PartialEq)]
struct Click {
    time: i64,
    user: Option<String>,
    kind: String,
    amount: Option<i64>,
    weight: f64,
}

fn fields() -> Vec<Field> {
    let field = |(name, kind)| Field::new(name, kind);
    [
        ("user", FieldKind::Text),
        ("kind", FieldKind::Text),
        ("amount", FieldKind::Int),
        ("weight", FieldKind::Float),
    ]
    .map(field)
    .to_vec()
}

impl Click {
    fn frame(&self) -> Vec<u8> {
        let Click { time, user, kind, amount, weight } = self;
        let user = user.as_deref().unwrap_or("-");
        let amount = amount.map_or("-".into(), |amount| amount.to_string());
        format!("{time};{user};{kind};{amount};{weight}").into_bytes()
    }

    fn parse(frame: &[u8]) -> Option<Click> {
        let text = std::str::from_utf8(frame).ok()?;
        let mut parts = text.split(';');
        let mut next = || parts.next();
        let optional = |text: &str| (text != "-").then(|| text.to_owned());
        Some(Click {
            time: next()?.parse().ok()?,
            user: optional(next()?),
            kind: next()?.into(),
            amount: optional(next()?).map(|text| text.parse().unwrap()),
            weight: next()?.parse().ok()?,
        })
    }
}

struct Clicks;

impl Parser for Clicks {
    fn parse(
        &mut self,
        frame: &[u8],
        events: &mut Events,
    ) -> std::result::Result<(), &'static str> {
        events.begin();
        // Some fields are set already when an event turns out to be bad.
        events.set(1, Value::Text(b"half"));
        let click = Click::parse(frame).ok_or("no click")?;
        events.set(0, click.user.as_ref().map_or(Value::Null, |user| Value::Text(user.as_bytes())));
        events.set(1, Value::Text(click.kind.as_bytes()));
        events.set(2, click.amount.map_or(Value::Null, Value::Int));
        events.set(3, Value::Float(click.weight));
        events.end(click.time);
        Ok(())
    }
}

/// Returns a pseudorandom number below `end`.
fn below(random: &SeededRandom, end: u64) -> u64 {
    random.next_u64() % end
}

/// A stream with skewed users, events out of order, late ones, and clocks that jump.
fn stream(seed: u64, count: usize) -> Vec<Click> {
    let random = SeededRandom::new(seed);
    let mut now = -5000;
    let mut clicks = Vec::new();
    for _ in 0..count {
        now += below(&random, 12) as i64;
        let jump = match below(&random, 200) {
            0 => 1_000_000_000,
            1 => -50_000,
            _ => -(below(&random, 300) as i64),
        };
        let user = (below(&random, 40) * below(&random, 40)) / 40;
        clicks.push(Click {
            time: now + jump,
            user: (user > 0).then(|| format!("user{user}")),
            kind: ["view", "click", "buy"][below(&random, 3) as usize].into(),
            amount: (below(&random, 5) > 0).then(|| random.next_u64() as i64 >> below(&random, 40)),
            weight: below(&random, 10_000) as f64 / 7.0 - 100.0,
        });
    }
    clicks
}

const AHEAD_MS: i64 = 100_000;

fn summaries() -> Vec<Summary> {
    let columns = || {
        vec![
            Column::new("events", Aggregate::Count),
            Column::new("sum", Aggregate::Sum(2)),
            Column::new("weights", Aggregate::Sum(3)),
            Column::new("least", Aggregate::Min(2)),
            Column::new("most", Aggregate::Max(3)),
            Column::new("users", Aggregate::Distinct { field: 0, precision: 6 }),
            Column::new("top", Aggregate::Top { field: 0, count: 3 }),
            Column::new("middle", Aggregate::Quantiles { field: 3, at: vec![0.0, 0.5, 0.99] }),
            Column::new("bars", Aggregate::Histogram { field: 3, bounds: vec![-50.0, 0.0, 500.0] }),
        ]
    };
    let is = |test| vec![Rule { field: 1, test }];
    let buys = Test::In(vec![b"buy".to_vec(), b"nothing".to_vec()]);
    vec![
        Summary::new("all", columns()),
        Summary::new("by user", columns()).group_by(vec![0]).windows(1000, 150),
        Summary::new("buys", columns()).rules(is(buys)).group_by(vec![1, 2]).windows(700, 0),
        Summary::new("few", columns()).group_by(vec![0]).windows(900, 5000).groups_max(40),
        Summary::new("rest", columns())
            .rules(is(Test::NotIn(vec![b"buy".to_vec()])))
            .windows(77, 7),
    ]
}

/// Windows by summary and start: the results of each group as text, by its fields as text.
type Results = BTreeMap<(usize, Option<i64>), BTreeMap<Vec<String>, String>>;

#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Results>>);

struct Collector {
    number: usize,
    to: Collected,
}

fn text(value: Value<'_>) -> String {
    match value {
        Value::Null => String::new(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
    }
}

impl Sink for Collector {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let mut groups = BTreeMap::new();
        let mut run = window.run(Seed(3), &mut |fields, outputs, key, value| {
            let fields: Vec<String> = fields.iter().map(|value| text(*value)).collect();
            key.extend(fields.join("/").into_bytes());
            value.extend(b"value");
            groups.insert(fields, format!("{outputs:?}"));
            Ok(())
        })?;
        let mut entries = 0;
        while run.advance()? {
            entries += 1;
        }
        assert_eq!(entries, window.groups());
        let start = window.span().map(|(start, _)| start);
        let mut all = self.to.0.lock().unwrap();
        assert_eq!(all.insert((self.number, start), groups), None, "each window ends once");
        Ok(())
    }
}

fn sinks(to: &Collected) -> Vec<(Summary, Box<dyn Sink>)> {
    let sink = |(number, summary)| -> (Summary, Box<dyn Sink>) {
        (summary, Box::new(Collector { number, to: to.clone() }))
    };
    summaries().into_iter().enumerate().map(sink).collect()
}

fn start(to: &Collected, parsers: usize, options: PipelineOptions) -> Result<Pipeline> {
    let parsers = (0..parsers).map(|_| -> Box<dyn Parser> { Box::new(Clicks) }).collect();
    let options = PipelineOptions { ahead_ms_max: AHEAD_MS, ..options };
    Pipeline::start(&fields(), parsers, sinks(to), options)
}

/// Pushes frames in batches whose sizes follow from `seed`; positions count frames.
fn push(input: &Input, frames: &[Vec<u8>], from: u64, seed: u64) -> Result<()> {
    let random = SeededRandom::new(seed);
    let mut rest = frames;
    let mut position = from;
    while !rest.is_empty() {
        let (some, others) = rest.split_at((below(&random, 20) as usize).min(rest.len()));
        let mut batch = input.batch()?;
        some.iter().for_each(|frame| batch.push(frame));
        position += some.len() as u64;
        input.push(batch, Some((0, position.into())))?;
        rest = others;
    }
    Ok(())
}

mod naive {
    //! One loop over all events, with every event of a group in a list.

    use super::*;

    /// Events of all groups, by summary and start of the window.
    type Grouped<'a> = BTreeMap<(usize, Option<i64>), BTreeMap<Vec<String>, Vec<&'a Click>>>;

    /// Returns the events that are taken, in their order, each with the clock behind it, and the number of those that are
    /// refused.
    fn taken(clicks: &[Click]) -> (Vec<(&Click, i64)>, u64) {
        let (mut taken, mut refused) = (Vec::new(), 0);
        let mut now: Option<i64> = None;
        let mut held: Vec<&Click> = Vec::new();
        let mut rest: VecDeque<&Click> = clicks.iter().collect();
        while let Some(click) = rest.pop_front() {
            if now.is_none_or(|now| click.time - now <= AHEAD_MS) {
                refused += held.drain(..).count() as u64;
                now = now.max(Some(click.time));
                taken.push((click, now.unwrap()));
                continue;
            }
            held.push(click);
            if held.len() == 100 {
                now = held.iter().map(|click| click.time).min();
                held.drain(..).rev().for_each(|click| rest.push_front(click));
            }
        }
        taken.extend(held.into_iter().map(|click| (click, now.unwrap())));
        (taken, refused)
    }

    pub(super) fn results(clicks: &[Click]) -> (Results, Vec<[u64; 3]>, u64) {
        let (taken, ahead) = taken(clicks);
        let mut groups = Grouped::new();
        let mut counts = vec![[0; 3]; summaries().len()];
        for (click, now) in taken {
            for (i, summary) in summaries().iter().enumerate() {
                let is_taken = match i {
                    2 => click.kind == "buy",
                    4 => click.kind != "buy",
                    _ => true,
                };
                if is_taken {
                    let count = add(i, summary, click, now, &mut groups);
                    counts[i][count] += 1;
                }
            }
        }
        let outputs = |(place, groups): ((usize, _), BTreeMap<_, Vec<&Click>>)| {
            (place, groups.into_iter().map(|(group, clicks)| (group, output(&clicks))).collect())
        };
        (groups.into_iter().map(outputs).collect(), counts, ahead)
    }

    /// Returns 0 if the event was added, 1 if it is late, 2 if there are too many groups.
    fn add<'a>(
        i: usize,
        summary: &Summary,
        click: &'a Click,
        now: i64,
        groups: &mut Grouped<'a>,
    ) -> usize {
        let start = summary.window_ms.map(|length| click.time.div_euclid(length) * length);
        let is_over = |start: Option<i64>| {
            let end = start.zip(summary.window_ms).map(|(start, length)| start + length);
            end.is_some_and(|end| end <= now - summary.lateness_ms)
        };
        if is_over(start) {
            return 1;
        }
        let user = click.user.clone().unwrap_or_default();
        let amount = click.amount.map_or(String::new(), |amount| amount.to_string());
        let group = summary.group_by.iter().map(|field| match field {
            0 => user.clone(),
            1 => click.kind.clone(),
            _ => amount.clone(),
        });
        let group: Vec<String> = group.collect();
        let open = groups.iter().filter(|((number, start), _)| *number == i && !is_over(*start));
        let open: usize = open.map(|(_, groups)| groups.len()).sum();
        let window = groups.entry((i, start)).or_default();
        if !window.contains_key(&group) && open >= summary.groups_max {
            if window.is_empty() {
                groups.remove(&(i, start));
            }
            return 2;
        }
        window.entry(group).or_default().push(click);
        0
    }

    fn output(clicks: &[&Click]) -> String {
        let amounts: Vec<i64> = clicks.iter().filter_map(|click| click.amount).collect();
        let weights: Vec<f64> = clicks.iter().map(|click| click.weight).collect();
        let sum: i128 = amounts.iter().map(|amount| i128::from(*amount)).sum();
        let mut users = Hll::new(6).unwrap();
        let mut top: BTreeMap<&str, u64> = BTreeMap::new();
        for user in clicks.iter().filter_map(|click| click.user.as_deref()) {
            users.insert(user.as_bytes());
            *top.entry(user).or_default() += 1;
        }
        let mut top: Vec<_> = top.into_iter().collect();
        top.sort_by_key(|(user, count)| (u64::MAX - count, *user));
        let item = |(value, count): &(&str, u64)| super::super::TopItem {
            value: value.as_bytes().to_vec(),
            count: *count,
            error: 0,
        };
        let between = |from: f64, to: f64| {
            weights.iter().filter(|weight| (from..to).contains(*weight)).count() as u64
        };
        let mut sorted = weights.clone();
        sorted.sort_by(f64::total_cmp);
        let outputs = vec![
            Output::Uint(clicks.len() as u64),
            i64::try_from(sum).map_or(Output::Null, Output::Int),
            Output::Float(weights.iter().sum()),
            amounts.iter().min().map_or(Output::Null, |least| Output::Int(*least)),
            Output::Float(weights.iter().copied().fold(f64::MIN, f64::max)),
            Output::Uint(users.estimate().round() as u64),
            Output::Top(top.iter().take(3).map(item).collect()),
            Output::Floats([0.0, 0.5, 0.99].map(|at| quantile(&sorted, at)).to_vec()),
            Output::Counts(vec![
                between(f64::MIN, -50.0),
                between(-50.0, 0.0),
                between(0.0, 500.0),
                between(500.0, f64::INFINITY),
            ]),
        ];
        format!("{outputs:?}")
    }

    /// Returns the value that stands for the bucket of the exact quantile.
    fn quantile(sorted: &[f64], at: f64) -> f64 {
        let exact = sorted[(at * (sorted.len() - 1) as f64).floor() as usize];
        if exact.abs() < 1e-9 {
            return 0.0;
        }
        let gamma = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR);
        let bucket = (exact.abs().ln() / gamma.ln()).ceil();
        ((bucket * gamma.ln()).exp() * (1.0 - RELATIVE_ERROR)).copysign(exact)
    }
}

fn counts(stats: &Stats) -> Vec<[u64; 3]> {
    stats.summaries.iter().map(|stats| [stats.events, stats.late, stats.no_group]).collect()
}

#[track_caller]
fn check(clicks: &[Click], parsers: usize, workers: usize) {
    let (expected, expected_counts, ahead) = naive::results(clicks);
    let collected = Collected::default();
    let options = PipelineOptions { workers, batches: 5, sources: 1, ..PipelineOptions::default() };
    let pipeline = start(&collected, parsers, options).unwrap();
    let frames: Vec<_> = clicks.iter().map(Click::frame).collect();
    push(&pipeline.input(), &frames, 0, 7).unwrap();
    let stats = pipeline.finish().unwrap();
    assert_eq!(counts(&stats), expected_counts);
    assert_eq!((stats.totals.events, stats.totals.ahead), (clicks.len() as u64, ahead));
    let got = collected.0.lock().unwrap();
    assert_eq!(got.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (place, groups) in &expected {
        assert_eq!(got[place], *groups, "{place:?}");
    }
    let windows: u64 = stats.summaries.iter().map(|stats| stats.windows).sum();
    assert_eq!(windows, expected.len() as u64);
}

#[test]
fn results_are_those_of_a_single_thread_with_any_number_of_threads() {
    for (seed, parsers, workers) in [(1, 1, 1), (2, 3, 1), (3, 1, 5), (4, 4, 3), (5, 2, 9)] {
        check(&stream(seed, 2000), parsers, workers);
    }
    check(&[], 2, 2);
}

/// Time really passes: no event after the gap is lost, however many there are.
#[test]
fn a_stream_that_jumps_goes_on_without_a_loss() {
    for (count, after) in [(300, 150), (200, 150), (151, 150), (300, 201)] {
        let mut clicks = stream(6, count);
        clicks.retain(|click| click.time < 1_000_000);
        let after = after.min(clicks.len() - 1);
        clicks.iter_mut().skip(after).for_each(|click| click.time += 10 * AHEAD_MS);
        assert_eq!(naive::results(&clicks).2, 0);
        check(&clicks, 2, 2);
    }
    let mut clicks = stream(6, 300);
    clicks.iter_mut().skip(150).for_each(|click| click.time += 10 * AHEAD_MS);
    check(&clicks, 2, 2);
}

/// Stops at all kinds of moments, starts again with the checkpoint, and compares with a run without a stop.
#[test]
fn a_pipeline_continues_exactly_where_its_checkpoint_was() {
    for (seed, at) in [(11, 0), (12, 1), (13, 700), (14, 1500), (15, 760)] {
        let mut clicks = stream(seed, 1500);
        // In the last case, events are held at the checkpoint.
        let jump = if seed == 15 { 10 * AHEAD_MS } else { 0 };
        clicks.iter_mut().skip(700).for_each(|click| click.time += jump);
        let (expected, expected_counts, _) = naive::results(&clicks);
        let frames: Vec<_> = clicks.iter().map(Click::frame).collect();
        let collected = Collected::default();
        let options = |checkpoint, workers| PipelineOptions {
            workers,
            sources: 1,
            checkpoint,
            ..PipelineOptions::default()
        };
        let first = start(&collected, 2, options(None, 3)).unwrap();
        push(&first.input(), &frames[..at], 0, seed).unwrap();
        let bytes = first.checkpoint().unwrap().to_bytes();
        assert!(seed != 15 || first.stats().totals.held == 60);
        let before = collected.0.lock().unwrap().clone();
        // These are lost, and come again.
        push(&first.input(), &frames[at..(at + 50).min(frames.len())], at as u64, seed).unwrap();
        first.stop().unwrap();
        *collected.0.lock().unwrap() = before;

        let checkpoint = Checkpoint::from_bytes(&bytes).unwrap();
        assert_eq!(checkpoint.positions(), [Position::from(at as u64)]);
        let second = start(&collected, 3, options(Some(checkpoint), 2)).unwrap();
        push(&second.input(), &frames[at..], at as u64, seed).unwrap();
        let stats = second.finish().unwrap();
        assert_eq!(counts(&stats), expected_counts);
        assert_eq!(stats.totals.frames, clicks.len() as u64);
        assert_eq!(*collected.0.lock().unwrap(), expected);
    }
}

/// Windows that wait come to their sinks when a checkpoint has them as ended, so that nothing can be added to them any more: also if
/// the pipeline that starts with it gets other events for them.
#[test]
fn windows_that_wait_do_not_change_after_they_were_published() {
    for seed in 20..40 {
        let collected = Collected::default();
        let clicks = stream(seed, 1500);
        let frames: Vec<_> = clicks.iter().map(Click::frame).collect();
        let options = |checkpoint| PipelineOptions {
            workers: 2,
            sources: 1,
            checkpoint,
            windows_wait: true,
            ..PipelineOptions::default()
        };
        // Not of the summary that may have few groups: those of its windows do not wait.
        let waited = || -> Results {
            let all = std::mem::take(&mut *collected.0.lock().unwrap());
            all.into_iter().filter(|((number, _), _)| *number != 3).collect()
        };
        let ended = |stats: &Stats| -> u64 {
            let summaries = stats.summaries.iter().enumerate().filter(|(number, _)| *number != 3);
            summaries.map(|(_, counts)| counts.windows).sum()
        };
        let first = start(&collected, 2, options(None)).unwrap();
        push(&first.input(), &frames[..700], 0, seed).unwrap();
        let checkpoint = first.checkpoint().unwrap();
        // These are lost with the crash, and end windows that are not in the checkpoint.
        push(&first.input(), &frames[700..900], 700, seed).unwrap();
        assert!(waited().is_empty(), "nobody has said that it is durable");
        first.publish().unwrap();
        let counts_before = first.stop().unwrap();
        let published = waited();
        assert!(!published.is_empty());
        assert!((published.len() as u64) < ended(&counts_before));

        let checkpoint = Checkpoint::from_bytes(&checkpoint.to_bytes()).unwrap();
        let second = start(&collected, 2, options(Some(checkpoint))).unwrap();
        second.publish().unwrap();
        // A file has grown by events of the windows that were published.
        push(&second.input(), &frames[..300], 700, seed).unwrap();
        push(&second.input(), &frames[700..], 1000, seed).unwrap();
        let kept = second.checkpoint().unwrap();
        second.publish().unwrap();
        let stats = second.finish().unwrap();
        let all = waited();
        assert!(published.iter().all(|(window, groups)| all.get(window) == Some(groups)));
        assert_eq!(all.len() as u64, ended(&stats));

        // The next checkpoint has none of them any more.
        let third = start(&collected, 2, options(Some(kept))).unwrap();
        third.publish().unwrap();
        third.checkpoint().unwrap();
        let again = waited();
        assert!(again.keys().all(|window| !published.contains_key(window)));
        third.publish().unwrap();
        third.stop().unwrap();
        assert!(waited().is_empty(), "each is published once");
    }
}

/// Windows that wait for a checkpoint which never comes take no memory that events need, and not more groups than a summary may
/// have.
#[test]
fn windows_that_wait_cost_no_event() {
    for (limit, groups_max) in [(400_000, 1_000_000), (u64::MAX, 1000)] {
        let (memory, collected) = (MemoryBudget::new(limit), Collected::default());
        let columns = vec![Column::new("events", Aggregate::Count)];
        let summary = Summary::new("users", columns).group_by(vec![0]).windows(1000, 0);
        let sink: Box<dyn Sink> = Box::new(Collector { number: 0, to: collected.clone() });
        let options = PipelineOptions {
            memory: memory.clone(),
            windows_wait: true,
            ..PipelineOptions::default()
        };
        let sinks = vec![(summary.groups_max(groups_max), sink)];
        let pipeline = Pipeline::start(&fields(), vec![Box::new(Clicks)], sinks, options).unwrap();
        let input = pipeline.input();
        for window in 0..200 {
            let mut batch = input.batch().unwrap();
            (0..100).for_each(|user| {
                batch.push(format!("{};user{user};view;-;1", window * 1000).as_bytes());
            });
            input.push(batch, None).unwrap();
        }
        let waiting = loop {
            let counts = pipeline.stats().summaries[0];
            if counts.events == 200 * 100 {
                break counts.waiting_windows;
            }
            std::thread::yield_now();
        };
        // Of 20 KB each.
        assert!((1..=21).contains(&waiting), "{waiting}");
        let stats = pipeline.finish().unwrap().summaries[0];
        assert_eq!((stats.no_group, stats.windows, stats.waiting_windows), (0, 200, 0));
        assert_eq!(collected.0.lock().unwrap().len(), 200);
    }
}

#[test]
fn damaged_checkpoints_and_those_of_others_are_refused() {
    let collected = Collected::default();
    let pipeline = start(&collected, 1, PipelineOptions::default()).unwrap();
    let frames: Vec<_> = stream(3, 60).iter().map(Click::frame).collect();
    let input = pipeline.input();
    for frame in &frames {
        let mut batch = input.batch().unwrap();
        batch.push(frame);
        input.push(batch, None).unwrap();
    }
    let checkpoint = pipeline.checkpoint().unwrap();
    let good = checkpoint.to_bytes();
    assert_eq!(Checkpoint::from_bytes(&good).unwrap(), checkpoint);
    for place in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[place] ^= 1 << (place % 8);
        assert!(Checkpoint::from_bytes(&bad).is_err(), "byte {place}");
        assert!(Checkpoint::from_bytes(&good[..place]).is_err(), "cut at {place}");
    }
    let other = vec![Column::new("count", Aggregate::Count)];
    let sink: Box<dyn Sink> = Box::new(Collector { number: 0, to: collected.clone() });
    let options =
        PipelineOptions { checkpoint: Some(checkpoint.clone()), ..PipelineOptions::default() };
    let other = vec![(Summary::new("other", other), sink)];
    let refused = Pipeline::start(&fields(), vec![Box::new(Clicks)], other, options);
    assert!(refused.unwrap_err().to_string().contains("other fields, summaries or chains"));
    // Forged states are errors, never panics.
    for (i, state) in checkpoint.summaries.iter().enumerate() {
        for place in (0..state.len()).step_by(5) {
            let mut forged = checkpoint.clone();
            forged.summaries[i][place] ^= 0x81;
            let options =
                PipelineOptions { checkpoint: Some(forged), ..PipelineOptions::default() };
            drop(start(&collected, 1, options));
        }
    }
}

#[test]
fn frames_that_are_no_events_are_counted_and_kept() {
    type Frames = Vec<(Vec<u8>, &'static str)>;
    /// The frames, and the number of those that are durable.
    struct Kept(Arc<Mutex<Frames>>, Arc<AtomicUsize>);
    impl RejectedSink for Kept {
        fn rejected(&mut self, frame: &[u8], reason: &'static str) -> Result<()> {
            self.0.lock().unwrap().push((frame.to_vec(), reason));
            Ok(())
        }

        fn sync(&mut self) -> Result<()> {
            self.1.store(self.0.lock().unwrap().len(), Ordering::SeqCst);
            Ok(())
        }
    }
    let (kept, durable) = (Arc::new(Mutex::new(Vec::new())), Arc::<AtomicUsize>::default());
    let collected = Collected::default();
    let rejected: Option<Box<dyn RejectedSink>> =
        Some(Box::new(Kept(kept.clone(), durable.clone())));
    let options =
        PipelineOptions { workers: 2, rejected, sources: 1, ..PipelineOptions::default() };
    let pipeline = start(&collected, 2, options).unwrap();
    let good = stream(1, 10);
    let mut frames: Vec<_> = good.iter().map(Click::frame).collect();
    frames.insert(3, b"bad".to_vec());
    frames.push(b"worse;\xff".to_vec());
    frames.push(Vec::new());
    push(&pipeline.input(), &frames, 0, 1).unwrap();
    pipeline.checkpoint().unwrap();
    assert_eq!(durable.load(Ordering::SeqCst), 3);
    let mut batch = pipeline.input().batch().unwrap();
    // Would be an event if it were whole.
    batch.reject(&good[0].frame(), "too long");
    batch.skip(1000);
    frames.push(good[0].frame());
    let bytes = frames.iter().map(Vec::len).sum::<usize>() + 1000;
    pipeline.input().push(batch, None).unwrap();
    let stats = pipeline.finish().unwrap();
    assert_eq!(stats.totals.bytes, bytes as u64);
    assert_eq!((stats.totals.frames, stats.totals.events, stats.totals.rejected), (14, 10, 4));
    let kept = kept.lock().unwrap();
    let frames: Vec<_> = kept.iter().map(|(frame, _)| &frame[..]).collect();
    assert_eq!(frames, [&b"bad"[..], b"worse;\xff", b"", &good[0].frame()]);
    let reasons: Vec<_> = kept.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, ["no click", "no click", "no click", "too long"]);
    assert_eq!(*collected.0.lock().unwrap(), naive::results(&good).0);
}

/// A sum beyond the largest number is null, as JSON, SQL and other programs expect, and is counted.
#[test]
fn sums_that_overflow_are_null_and_counted() {
    let collected = Collected::default();
    let pipeline = start(&collected, 1, PipelineOptions::default()).unwrap();
    let mut frames = Vec::new();
    for (user, amount, weight) in [
        ("int", i64::MAX, 1.0),
        ("float", 1, f64::MAX),
        ("both", i64::MIN, f64::MIN),
        ("none", 1, 1.0),
    ] {
        let line = format!("1;{user};view;{amount};{weight}").into_bytes();
        frames.extend([line.clone(), line]);
    }
    let mut batch = pipeline.input().batch().unwrap();
    frames.iter().for_each(|frame| batch.push(frame));
    pipeline.input().push(batch, None).unwrap();
    let checkpoint = pipeline.checkpoint().unwrap();
    let restored = PipelineOptions { checkpoint: Some(checkpoint), ..PipelineOptions::default() };
    pipeline.stop().unwrap();
    let pipeline = start(&collected, 1, restored).unwrap();
    let stats = pipeline.finish().unwrap();
    // The sums of all events overflow, too, and half of those of users do.
    assert_eq!((stats.summaries[0].overflows, stats.summaries[1].overflows), (1, 4));
    let collected = collected.0.lock().unwrap();
    let outputs = |user: &str| collected[&(1, Some(0))][&vec![user.to_owned()]].clone();
    assert!(outputs("int").starts_with("[Uint(2), Null, Float(2.0), Int("), "{}", outputs("int"));
    assert!(outputs("float").starts_with("[Uint(2), Int(2), Null, "), "{}", outputs("float"));
    assert!(outputs("both").starts_with("[Uint(2), Null, Null, "), "{}", outputs("both"));
    assert!(outputs("none").starts_with("[Uint(2), Int(2), Float(2.0), "), "{}", outputs("none"));
}

/// A sink that waits at its first window until a test lets it go, and fails then if it is to.
struct Gate {
    is_open: Arc<(Mutex<bool>, Condvar)>,
    fails: bool,
}

impl Sink for Gate {
    fn window(&mut self, _: &Window<'_>) -> Result<()> {
        let (is_open, opened) = &*self.is_open;
        let guard = opened.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap();
        drop(guard);
        match self.fails {
            true => Err(Error::io("write", std::io::ErrorKind::StorageFull.into())),
            false => Ok(()),
        }
    }
}

fn gated(fails: bool) -> (Pipeline, Arc<(Mutex<bool>, Condvar)>) {
    let is_open = Arc::<(Mutex<bool>, Condvar)>::default();
    let sink: Box<dyn Sink> = Box::new(Gate { is_open: is_open.clone(), fails });
    let columns = vec![Column::new("count", Aggregate::Count)];
    let summary = Summary::new("gated", columns).windows(1, 0);
    let options = PipelineOptions { batches: 6, ..PipelineOptions::default() };
    let pipeline =
        Pipeline::start(&fields(), vec![Box::new(Clicks)], vec![(summary, sink)], options);
    (pipeline.unwrap(), is_open)
}

fn open(gate: &(Mutex<bool>, Condvar)) {
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

/// A source is held up when all batches are in use, so that memory is bounded by their number.
#[test]
fn a_consumer_that_stalls_holds_up_the_source() {
    let (pipeline, gate) = gated(false);
    let pushed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let input = pipeline.input();
            for time in 0..100 {
                let mut batch = input.batch().unwrap();
                batch.push(format!("{time};-;view;-;1").as_bytes());
                pushed.fetch_add(1, Ordering::SeqCst);
                input.push(batch, None).unwrap();
            }
        });
        // All batches are taken, and none comes back before the gate opens.
        while pushed.load(Ordering::SeqCst) < 6 {
            std::thread::yield_now();
        }
        for _ in 0..1000 {
            std::thread::yield_now();
            let stats = pipeline.stats();
            assert!(stats.parser_queue + stats.worker_queues[0] <= stats.batches);
            // The first batch has only moved the clock: its window ends with the second.
            assert!(pushed.load(Ordering::SeqCst) <= 7);
        }
        open(&gate);
    });
    let stats = pipeline.finish().unwrap();
    assert_eq!((stats.totals.events, stats.summaries[0].windows), (100, 100));
}

/// The worker with the summary of all events has more to do than the one with the summary of a third of them.
#[test]
fn the_figures_of_workers_show_their_imbalance() {
    let collected = Collected::default();
    let options = PipelineOptions { workers: 2, sources: 1, ..PipelineOptions::default() };
    let columns = || vec![Column::new("count", Aggregate::Count)];
    let buys = vec![Rule { field: 1, test: Test::In(vec![b"buy".to_vec()]) }];
    let summaries = [Summary::new("all", columns()), Summary::new("buys", columns()).rules(buys)];
    let sink = |(number, summary)| -> (Summary, Box<dyn Sink>) {
        (summary, Box::new(Collector { number, to: collected.clone() }))
    };
    let sinks = summaries.into_iter().enumerate().map(sink).collect();
    let pipeline = Pipeline::start(&fields(), vec![Box::new(Clicks)], sinks, options).unwrap();
    assert_eq!(pipeline.stats().event_imbalance(), 1.0);
    let clicks = stream(8, 3000);
    let frames: Vec<_> = clicks.iter().map(Click::frame).collect();
    push(&pipeline.input(), &frames, 0, 1).unwrap();
    let stats = pipeline.finish().unwrap();
    let buys = clicks.iter().filter(|click| click.kind == "buy").count() as u64;
    assert_eq!([3000, buys], [stats.workers[0].events, stats.workers[1].events]);
    let expected = 3000.0 * 2.0 / (3000 + buys) as f64;
    assert!((stats.event_imbalance() - expected).abs() < 1e-9 && expected > 1.4);
    assert!((1.0..=2.0).contains(&stats.busy_imbalance()), "{stats:?}");
    let batches = stats.parser_fill.taken;
    assert!(batches > 100 && stats.workers.iter().all(|worker| worker.fill.taken == batches));
    let mut fills = stats.workers.iter().map(|worker| worker.fill).chain([stats.parser_fill]);
    assert!(fills.all(|fill| fill.mean() < stats.batches as f64), "{stats:?}");
    assert_eq!((stats.parser_queue, &stats.worker_queues[..]), (0, &[0, 0][..]));
}

/// Pushes a view of each user in a batch of their own, and waits until they are handled.
fn push_views(pipeline: &Pipeline, time: i64, users: &str) {
    let input = pipeline.input();
    let mut batch = input.batch().unwrap();
    users.chars().for_each(|user| batch.push(format!("{time};{user};view;-;1").as_bytes()));
    input.push(batch, None).unwrap();
    pipeline.checkpoint().unwrap();
}

/// With memory for three groups, events of a fourth one are counted, until a window has been handed over.
#[test]
fn groups_beyond_the_memory_budget_are_counted() {
    let start = |memory: &MemoryBudget, checkpoint| {
        let columns = vec![Column::new("count", Aggregate::Count)];
        let summary = Summary::new("users", columns).group_by(vec![0]).windows(1000, 0);
        let to = Collected::default();
        let sink: Box<dyn Sink> = Box::new(Collector { number: 0, to: to.clone() });
        let options =
            PipelineOptions { memory: memory.clone(), checkpoint, ..PipelineOptions::default() };
        let sinks = vec![(summary, sink)];
        Pipeline::start(&fields(), vec![Box::new(Clicks)], sinks, options).map(|it| (it, to))
    };
    let (pipeline, _) = start(&MemoryBudget::unlimited(), None).unwrap();
    push_views(&pipeline, 0, "abca");
    let three = pipeline.stats().summaries[0].open_bytes;
    let checkpoint = pipeline.checkpoint().unwrap();

    let memory = MemoryBudget::new(three);
    let (pipeline, collected) = start(&memory, None).unwrap();
    push_views(&pipeline, 0, "abcdad");
    let stats = pipeline.stats().summaries[0];
    assert_eq!((stats.events, stats.no_group, stats.open_bytes), (4, 2, three));
    assert_eq!(memory.reserved(), three);
    // The first window ends with this event, and has its memory until it is handed over.
    push_views(&pipeline, 1000, "d");
    push_views(&pipeline, 1000, "dd");
    let stats = pipeline.finish().unwrap().summaries[0];
    assert_eq!((stats.events, stats.no_group, stats.open_bytes), (6, 3, 0));
    assert_eq!(memory.reserved(), 0);
    let collected = collected.0.lock().unwrap();
    let users = |start| collected[&(0, Some(start))].keys().map(|key| key[0].clone());
    assert_eq!(users(0).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(users(1000).collect::<Vec<_>>(), ["d"]);

    // The groups of a checkpoint need their memory, too.
    let refused = start(&MemoryBudget::new(three - 1), Some(checkpoint.clone())).err().unwrap();
    assert!(matches!(refused.kind(), ErrorKind::Memory { .. }), "{refused}");
    let (pipeline, _) = start(&memory, Some(checkpoint)).unwrap();
    assert_eq!(pipeline.stats().summaries[0].open_bytes, three);
}

/// Two summaries have used up a budget that is no multiple of the steps in which they reserve it: their checkpoint fits into it
/// again.
#[test]
fn the_checkpoint_of_a_full_budget_fits_into_it() {
    let start = |checkpoint| {
        let columns = || vec![Column::new("events", Aggregate::Count)];
        let summary = |name, fields| {
            let sink: Box<dyn Sink> = Box::new(Collector { number: 0, to: Collected::default() });
            (Summary::new(name, columns()).group_by(fields), sink)
        };
        let sinks = vec![summary("users", vec![0]), summary("both", vec![0, 1])];
        let memory = MemoryBudget::new(150_000);
        let options = PipelineOptions { memory, checkpoint, ..PipelineOptions::default() };
        Pipeline::start(&fields(), vec![Box::new(Clicks)], sinks, options)
    };
    let pipeline = start(None).unwrap();
    let input = pipeline.input();
    for user in 0..1000 {
        let mut batch = input.batch().unwrap();
        batch.push(format!("1;user{user};view;-;1").as_bytes());
        input.push(batch, None).unwrap();
    }
    let checkpoint = pipeline.checkpoint().unwrap();
    let before = pipeline.stats().summaries;
    assert!(before.iter().all(|counts| counts.events > 100 && counts.no_group > 100), "{before:?}");
    let again = start(Some(checkpoint)).unwrap();
    assert_eq!(again.stats().summaries, before);
}

/// A pipeline that gets no batch any more gives way to another user of its memory.
#[test]
fn windows_that_wait_give_way_to_others_who_need_their_memory() {
    let (memory, collected) = (MemoryBudget::new(10 << 20), Collected::default());
    let options = PipelineOptions {
        memory: memory.clone(),
        windows_wait: true,
        ..PipelineOptions::default()
    };
    let pipeline = start(&collected, 1, options).unwrap();
    let frames: Vec<_> = stream(50, 500).iter().map(Click::frame).collect();
    let mut batch = pipeline.input().batch().unwrap();
    frames.iter().for_each(|frame| batch.push(frame));
    pipeline.input().push(batch, None).unwrap();
    pipeline.relieve().unwrap();
    pipeline.checkpoint().unwrap();
    let is_published = || collected.0.lock().unwrap().keys().any(|(number, _)| *number == 1);
    assert!(!is_published(), "there is memory");
    let _others = memory.reserve(memory.left() - 1).unwrap();
    pipeline.relieve().unwrap();
    pipeline.checkpoint().unwrap();
    assert!(is_published());
    assert_eq!(pipeline.finish().unwrap().summaries[1].waiting_windows, 0);
}

#[test]
fn a_failure_of_a_sink_ends_the_pipeline_with_its_error() {
    let (pipeline, gate) = gated(true);
    open(&gate);
    let input = pipeline.input();
    let mut failed = None;
    for time in 0..1000 {
        let pushed = input.batch().and_then(|mut batch| {
            batch.push(format!("{time};-;view;-;1").as_bytes());
            input.push(batch, None)
        });
        failed = pushed.err();
        if failed.is_some() {
            break;
        }
    }
    let is_full = |error: &Error| matches!(error.kind(), ErrorKind::Io { action: "write", .. });
    assert!(failed.as_ref().is_some_and(is_full), "{failed:?}");
    assert!(pipeline.checkpoint().is_err() && pipeline.check().is_err());
    assert!(is_full(&pipeline.finish().unwrap_err()));
    let after = input.batch().and_then(|batch| input.push(batch, None));
    assert!(after.is_err());
}

#[test]
fn a_parser_that_panics_ends_the_pipeline() {
    struct Panics;
    impl Parser for Panics {
        fn parse(&mut self, _: &[u8], _: &mut Events) -> std::result::Result<(), &'static str> {
            panic!("a mistake of a parser");
        }
    }
    let collected = Collected::default();
    let options = PipelineOptions { batches: 2, ..PipelineOptions::default() };
    let pipeline =
        Pipeline::start(&fields(), vec![Box::new(Panics)], sinks(&collected), options).unwrap();
    let input = pipeline.input();
    let pushed: Result<()> = (0..100).try_for_each(|_| {
        let mut batch = input.batch()?;
        batch.push(b"x");
        input.push(batch, None)
    });
    assert!(matches!(pushed.unwrap_err().kind(), ErrorKind::Panicked { job: "parser" }));
    assert!(pipeline.finish().is_err());
}

#[test]
fn definitions_without_meaning_are_refused() {
    let refused = |summary: Summary, word: &str| {
        let error = summary.check(&fields()).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("the summary \"s\""), "{error}");
    };
    let one = |aggregate| Summary::new("s", vec![Column::new("c", aggregate)]);
    refused(one(Aggregate::Sum(0)), "numbers");
    refused(one(Aggregate::Sum(9)), "number of a field");
    refused(one(Aggregate::Top { field: 3, count: 1 }), "text or integers");
    refused(one(Aggregate::Top { field: 0, count: 0 }), "1 to 1000");
    refused(one(Aggregate::Distinct { field: 0, precision: 3 }), "precision");
    refused(one(Aggregate::Quantiles { field: 3, at: vec![1.5] }), "from 0 to 1");
    refused(one(Aggregate::Histogram { field: 3, bounds: vec![1.0, 1.0] }), "ascend");
    refused(one(Aggregate::Count).group_by(vec![3]), "floats");
    refused(one(Aggregate::Count).windows(0, 0), "length of a window");
    refused(one(Aggregate::Count).windows(1, -1), "lateness");
    refused(Summary::new("s", Vec::new()), "number of columns");
}

/// With more values than counters, each count is within its own bound, and frequent values are found.
#[test]
fn counts_of_frequent_values_have_a_true_bound() {
    use super::top::Top;
    let random = SeededRandom::new(9);
    let (mut top, mut exact) = (Top::new(), BTreeMap::<String, u64>::new());
    for i in 0..20_000_u64 {
        let value = if below(&random, 3) == 0 { below(&random, 5) } else { 100 + i };
        let value = format!("value {value}");
        top.insert(value.as_bytes(), 5);
        *exact.entry(value).or_default() += 1;
    }
    let items = top.items(5);
    let frequent: BTreeSet<_> = items.iter().map(|item| item.value.clone()).collect();
    assert_eq!(frequent, (0..5).map(|i| format!("value {i}").into_bytes()).collect());
    for item in items {
        let truth = exact[std::str::from_utf8(&item.value).unwrap()];
        assert!(item.count - item.error <= truth && truth <= item.count, "{item:?}: {truth}");
        assert!(item.error <= 20_000 / (Top::counters_max(5) as u64 / 2), "{item:?}");
    }
}

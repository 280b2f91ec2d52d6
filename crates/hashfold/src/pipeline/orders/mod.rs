//! Pipelines in many orders of their threads: tests of the code of the handle, the queues, the parsers and the workers
//! on the channels, locks and threads of a scheduler that tries different orders. It also reports threads that
//! wait for ever.

use super::{
    Aggregate, Checkpoint, Column, Events, Field, FieldKind, Output, Position, Sink, Summary,
    Value, Window, attribution, batch, chain_dump, chains, checkpoint, clock, definition, events,
    held, identity, owned, stats, window, windows,
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Result},
    key::Seed,
};
use shuttle::{Config, Runner, scheduler::RandomScheduler, thread as threads};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

mod channel;

mod sync {
    pub(super) use super::channel::{Receiver, Sender, bounded};
    pub(super) use shuttle::{
        sync::{Mutex, MutexGuard, atomic::AtomicBool},
        thread,
    };
}

#[path = "../handle.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is used and public where it belongs")]
mod handle;
#[path = "../parse.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is used and public where it belongs")]
mod parse;
#[path = "../queue.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is used and public where it belongs")]
mod queue;
#[path = "../worker.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is used and public where it belongs")]
mod worker;

use self::{
    handle::{Pipeline, PipelineOptions},
    parse::Parser,
    queue::Input,
};

/// Number of random orders of each case, in a run of all tests and in one of this test alone.
const ORDERS: usize = 400;
const ORDERS_SLOW: usize = 40_000;
/// Memory for the stack of each thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// Runs a case in many orders.
fn check(orders: usize, case: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(orders), config).run(case);
}

/// A frame is two bytes: the time of an event in milliseconds, and its user.
type Frame = [u8; 2];

struct Pairs;

impl Parser for Pairs {
    fn parse(
        &mut self,
        frame: &[u8],
        events: &mut Events,
    ) -> std::result::Result<(), &'static str> {
        let [time, user @ ..] = frame else { return Err("no pair") };
        events.begin();
        events.set(0, Value::Text(user));
        events.end(i64::from(*time));
        Ok(())
    }
}

/// Counts of users by summary and start of the window.
type Results = BTreeMap<(usize, Option<i64>), BTreeMap<Vec<u8>, String>>;

/// A sink that keeps windows, or fails at the first.
#[derive(Clone)]
struct Kept {
    number: usize,
    fails: bool,
    /// Locked for moments without a switch to another thread.
    results: Arc<Mutex<Results>>,
}

impl Sink for Kept {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        if self.fails {
            return Err(Error::io("write", std::io::ErrorKind::StorageFull.into()));
        }
        let mut groups = BTreeMap::new();
        window.run(Seed(1), &mut |fields, outputs, key, _| {
            let Value::Text(user) = fields[0] else { panic!("the group is a text") };
            key.extend_from_slice(user);
            groups.insert(user.to_vec(), format!("{outputs:?}"));
            Ok(())
        })?;
        let place = (self.number, window.span().map(|(start, _)| start));
        let before = self.results.lock().unwrap().insert(place, groups.clone());
        // After a checkpoint, windows come again.
        assert!(before.is_none_or(|before| before == groups), "{place:?} has the same groups");
        Ok(())
    }
}

/// The shape of a case.
#[derive(Clone, Copy, Debug)]
struct Shape {
    parsers: usize,
    workers: usize,
    batches: usize,
}

const SHAPES: [Shape; 4] = [
    Shape { parsers: 1, workers: 1, batches: 1 },
    Shape { parsers: 1, workers: 2, batches: 2 },
    Shape { parsers: 2, workers: 1, batches: 2 },
    Shape { parsers: 2, workers: 2, batches: 3 },
];

/// Three summaries: of all events, of windows that end in time, and of windows that end with the input.
fn summaries() -> Vec<Summary> {
    let columns = || vec![Column::new("count", Aggregate::Count)];
    vec![
        Summary::new("all", columns()).group_by(vec![0]),
        Summary::new("short", columns()).group_by(vec![0]).windows(4, 0),
        Summary::new("long", columns()).group_by(vec![0]).windows(4, 1000),
    ]
}

fn start(
    shape: Shape,
    kept: &Kept,
    checkpoint: Option<Checkpoint>,
    names: &[&str],
) -> Result<Pipeline> {
    let parsers = (0..shape.parsers).map(|_| -> Box<dyn Parser> { Box::new(Pairs) }).collect();
    let all = summaries().into_iter().enumerate();
    let sinks = all.filter(|(_, summary)| names.contains(&&*summary.name)).map(
        |(number, summary)| -> (Summary, Box<dyn Sink>) {
            (summary, Box::new(Kept { number, ..kept.clone() }))
        },
    );
    let options = PipelineOptions {
        workers: shape.workers,
        batches: shape.batches,
        ahead_ms_max: i64::MAX,
        sources: 3,
        checkpoint,
        env: Env::simulated(1),
        ..PipelineOptions::default()
    };
    Pipeline::start(&[Field::new("user", FieldKind::Text)], parsers, sinks.collect(), options)
}

fn kept(fails: bool) -> Kept {
    Kept { number: 0, fails, results: Arc::default() }
}

/// Frames of a source, in the order of time.
fn frames(source: u8, count: u8) -> Vec<Frame> {
    (0..count).map(|i| [2 * i + source, b'a' + i % 3]).collect()
}

/// Counts events by one loop. None is late.
fn naive(frames: &[Frame], names: &[&str]) -> Results {
    let mut counts = BTreeMap::<_, BTreeMap<Vec<u8>, u64>>::new();
    for [time, user] in frames {
        for (number, summary) in summaries().iter().enumerate() {
            if names.contains(&&*summary.name) {
                let length = summary.window_ms;
                let start = length.map(|length| i64::from(*time).div_euclid(length) * length);
                let groups = counts.entry((number, start)).or_default();
                *groups.entry(vec![*user]).or_default() += 1;
            }
        }
    }
    let text = |count| format!("{:?}", [Output::Uint(count)]);
    let shown = |groups: BTreeMap<Vec<u8>, u64>| {
        groups.into_iter().map(|(user, count)| (user, text(count))).collect()
    };
    counts.into_iter().map(|(place, groups)| (place, shown(groups))).collect()
}

/// Pushes frames, at most two in a batch, with their position behind each.
fn push(input: &Input, source: usize, frames: &[Frame], from: usize) -> Result<()> {
    let mut position = from;
    for some in frames[from..].chunks(2) {
        let mut batch = input.batch()?;
        some.iter().for_each(|frame| batch.push(frame));
        position += some.len();
        input.push(batch, Some((source, (position as u64).into())))?;
    }
    Ok(())
}

/// Starts a thread that pushes the frames of a source.
fn spawn(input: &Input, source: u8, frames: &[Frame]) -> threads::JoinHandle<Result<()>> {
    let (input, frames) = (input.clone(), frames.to_vec());
    threads::spawn(move || push(&input, usize::from(source), &frames, 0))
}

/// Sources push at once; no event is lost or counted twice, and all batches come back.
fn sources_at_once(shape: Shape) {
    let names = ["all", "long"];
    let kept = kept(false);
    let pipeline = start(shape, &kept, None, &names).unwrap();
    let input = pipeline.input();
    let all: Vec<Vec<Frame>> = (0..3).map(|source| frames(source, 5)).collect();
    let sources: Vec<_> = (0..3).map(|i| spawn(&input, i, &all[usize::from(i)])).collect();
    let _ = pipeline.stats();
    sources.into_iter().for_each(|source| source.join().unwrap().unwrap());
    assert_eq!(pipeline.checkpoint().unwrap().positions(), [5, 5, 5].map(Position::from));
    // Behind a checkpoint, no batch is in use.
    let batches: Vec<_> = (0..shape.batches).map(|_| input.batch().unwrap()).collect();
    batches.into_iter().for_each(|batch| input.push(batch, None).unwrap());
    let stats = pipeline.finish().unwrap();
    assert_eq!((stats.totals.events, stats.parser_queue), (15, 0));
    assert_eq!(*kept.results.lock().unwrap(), naive(&all.concat(), &names));
}

/// A checkpoint at any moment has the state behind its positions: a pipeline that continues with it hands over the
/// windows that one without a stop does.
fn continued(shape: Shape) {
    let names = ["all", "short", "long"];
    let (kept, frames) = (kept(false), frames(0, 9));
    let first = start(shape, &kept, None, &names).unwrap();
    let source = spawn(&first.input(), 0, &frames);
    let checkpoint = first.checkpoint().unwrap();
    source.join().unwrap().unwrap();
    first.stop().unwrap();
    let from = checkpoint.positions()[0].offset as usize;
    let second = start(shape, &kept, Some(checkpoint), &names).unwrap();
    push(&second.input(), 0, &frames, from).unwrap();
    assert_eq!(second.finish().unwrap().totals.events, 9);
    assert_eq!(*kept.results.lock().unwrap(), naive(&frames, &names));
}

/// A sink fails while sources push and a checkpoint is made: all threads end, and each sees the error.
fn failing(shape: Shape) {
    let kept = kept(true);
    let pipeline = start(shape, &kept, None, &["all", "short"]).unwrap();
    let input = pipeline.input();
    let sources: Vec<_> = (0..2).map(|i| spawn(&input, i, &frames(i, 9))).collect();
    let is_full = |error: &Error| matches!(error.kind(), ErrorKind::Io { action: "write", .. });
    if let Err(error) = pipeline.checkpoint() {
        assert!(is_full(&error), "{error}");
    }
    let ends: Vec<_> = sources.into_iter().map(|source| source.join().unwrap()).collect();
    assert!(ends.iter().flat_map(|end| end.as_ref().err()).all(is_full), "{ends:?}");
    assert!(is_full(&pipeline.finish().unwrap_err()));
    assert!(input.batch().is_err());
}

/// A pipeline stops while a source waits for a batch or pushes one: the source ends.
fn stopped(shape: Shape) {
    let kept = kept(false);
    let pipeline = start(shape, &kept, None, &["all"]).unwrap();
    let source = spawn(&pipeline.input(), 0, &frames(0, 9));
    let stats = pipeline.stop().unwrap();
    let end = source.join().unwrap();
    assert!(end.is_err() || stats.totals.events == 9);
    assert!(stats.totals.events <= 9 && kept.results.lock().unwrap().is_empty());
}

/// Sources are opened and closed while time passes: no event is lost or counted twice, and all threads end.
fn opened_and_closed(shape: Shape) {
    let names = ["all", "long"];
    let kept = kept(false);
    let pipeline = start(shape, &kept, None, &names).unwrap();
    let all: Vec<Vec<Frame>> = (0..2).map(|source| frames(source, 4)).collect();
    let spawn = |frames: &Vec<Frame>| {
        let (input, frames) = (pipeline.input(), frames.clone());
        threads::spawn(move || -> Result<()> {
            let source = input.open()?;
            for some in frames.chunks(2) {
                let mut batch = input.batch()?;
                some.iter().for_each(|frame| batch.push(frame));
                input.push_from(source, batch)?;
            }
            input.close(source)
        })
    };
    let sources: Vec<_> = all.iter().map(spawn).collect();
    (0..3).for_each(|_| pipeline.pass_time().unwrap());
    sources.into_iter().for_each(|source| source.join().unwrap().unwrap());
    assert_eq!(pipeline.finish().unwrap().totals.events, 8);
    assert_eq!(*kept.results.lock().unwrap(), naive(&all.concat(), &names));
}

fn check_all(orders: usize) {
    for shape in SHAPES {
        for case in [sources_at_once, opened_and_closed, continued, failing, stopped] {
            check(orders, move || case(shape));
        }
    }
}

#[test]
fn pipelines_are_right_in_every_order_of_their_threads() {
    check_all(ORDERS);
}

#[test]
#[ignore = "takes minutes"]
fn pipelines_are_right_in_many_more_orders_of_their_threads() {
    check_all(ORDERS_SLOW);
}

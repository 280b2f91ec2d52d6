//! Checkpoints of pipelines in `tests/golden/checkpoint/`, a file for each format version. Every released version must stay
//! readable as long as promised, and the same events must produce the same bytes.

use crate::store_fixture::{read_file, write_file};
use hashfold::{
    Env, Result, Seed,
    io::OsDisk,
    pipeline::{
        Aggregate, Attribution, Beginning, Chains, Checkpoint, Column, Events, Field, FieldKind,
        Parser, Pipeline, PipelineOptions, Position, Rule, Sink, Summary, Test, Value, Window,
    },
    run::Run as _,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Format versions, and whether their pipeline has chains. The last one is written.
const VERSIONS: [(u8, bool); 5] = [(1, false), (2, true), (3, true), (4, true), (5, true)];

/// The events behind which the checkpoints are: one group in each window, so that their order does not depend on a hash
/// table. None of these windows has ended.
const BEFORE: [&str; 8] = [
    "10;ann;click;7;1.5",
    "20;ann;buy;-3;-2",
    "1010;ben;click;;0.25",
    "1020;ben;view;9000000000;1e300",
    "30;ann;click;7;1.5",
    "2500;ben;buy;40;-7",
    "2600;ben;click;5;0",
    "no event",
];

/// An event that ends the first two windows, which the checkpoint has. Older versions have no windows that have ended.
const END: &str = "7000;ben;view;1;1";
const VERSION_ENDED: u8 = 5;

/// An event that is held at the checkpoint. Older versions have none.
const AHEAD: &str = "9000000000;zoe;click;1;1";
const VERSION_HELD: u8 = 3;

/// The id of the pipeline. Older versions have none.
const ID: u64 = 0x0123_4567_89ab_cdef;
const VERSION_ID: u8 = 4;

/// Events that follow. Windows end, conversions have touches of before, and one event is late.
const AFTER: [&str; 5] = [
    "2700;ben;buy;100;3",
    "40;ann;buy;11;8",
    "9000;cat;click;1;1",
    "50;ann;click;1;1",
    "9100;ben;buy;2;2",
];

struct Parse;

impl Parser for Parse {
    fn parse(
        &mut self,
        frame: &[u8],
        events: &mut Events,
    ) -> std::result::Result<(), &'static str> {
        let text = std::str::from_utf8(frame).map_err(|_| "no text")?;
        let parts: Vec<&str> = text.split(';').collect();
        let [time, user, kind, amount, weight] = parts[..] else { return Err("no event") };
        events.begin();
        events.set(0, Value::Text(user.as_bytes()));
        events.set(1, Value::Text(kind.as_bytes()));
        events.set(2, amount.parse().map_or(Value::Null, Value::Int));
        events.set(3, weight.parse().map_or(Value::Null, Value::Float));
        events.end(time.parse().map_err(|_| "no time")?);
        Ok(())
    }
}

/// Results of groups as text, by summary, start of the window, and fields of the group.
type Results = Arc<Mutex<BTreeMap<(String, Option<i64>, String), String>>>;

struct Collector(Results);

impl Sink for Collector {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let place = (window.summary().name.clone(), window.span().map(|(start, _)| start));
        let mut run = window.run(Seed(1), &mut |fields, outputs, key, _| {
            key.extend(format!("{fields:?}").into_bytes());
            let group = (place.0.clone(), place.1, format!("{fields:?}"));
            let before = self.0.lock().unwrap().insert(group, format!("{outputs:?}"));
            assert_eq!(before, None, "each group of a window comes once");
            Ok(())
        })?;
        while run.advance()? {}
        Ok(())
    }
}

fn fields() -> Vec<Field> {
    [
        ("user", FieldKind::Text),
        ("kind", FieldKind::Text),
        ("amount", FieldKind::Int),
        ("weight", FieldKind::Float),
    ]
    .map(|(name, kind)| Field::new(name, kind))
    .to_vec()
}

/// Columns of each kind.
fn columns() -> Vec<Column> {
    vec![
        Column::new("events", Aggregate::Count),
        Column::new("amount", Aggregate::Sum(2)),
        Column::new("weight", Aggregate::Sum(3)),
        Column::new("least", Aggregate::Min(2)),
        Column::new("most", Aggregate::Max(3)),
        Column::new("kinds", Aggregate::Distinct { field: 1, precision: 5 }),
        Column::new("often", Aggregate::Top { field: 1, count: 2 }),
        Column::new("middle", Aggregate::Quantiles { field: 3, at: vec![0.5, 0.9] }),
        Column::new("bars", Aggregate::Histogram { field: 3, bounds: vec![0.0, 1.0] }),
    ]
}

fn chains(to: &Results) -> Attribution {
    let is = |kind: &str| Rule { field: 1, test: Test::In(vec![kind.into()]) };
    let chains = Chains {
        touch: vec![is("click")],
        conversion: vec![is("buy")],
        value: Some(2),
        age_ms_max: 5000,
        lateness_ms: 4000,
        dump_ms: Some(1000),
        ..Chains::new("visits", 0, vec![1, 2])
    };
    // Credits have the model and the credit behind the four fields of events.
    let columns = vec![
        Column::new("credits", Aggregate::Sum(5)),
        Column::new("value", Aggregate::Sum(6)),
        Column::new("touches", Aggregate::Max(9)),
    ];
    let sink: Box<dyn Sink> = Box::new(Collector(to.clone()));
    Attribution { chains, summaries: vec![(Summary::new("credits", columns), sink)], dump: None }
}

fn start(has_chains: bool, checkpoint: Option<Checkpoint>) -> (Pipeline, Results) {
    let to = Results::default();
    let sink = || -> Box<dyn Sink> { Box::new(Collector(to.clone())) };
    let summaries = vec![
        (Summary::new("users", columns()).group_by(vec![0]).windows(1000, 5000), sink()),
        (Summary::new("all", columns()), sink()),
    ];
    let options = PipelineOptions {
        chains: if has_chains { vec![chains(&to)] } else { Vec::new() },
        sources: 2,
        ahead_ms_max: 1_000_000,
        id: ID,
        checkpoint,
        windows_wait: true,
        env: Env::simulated(1),
        ..PipelineOptions::default()
    };
    (Pipeline::start(&fields(), vec![Box::new(Parse)], summaries, options).unwrap(), to)
}

/// Pushes frames in one batch, with its position.
fn push(pipeline: &Pipeline, frames: &[&str], position: Position) {
    let input = pipeline.input();
    let mut batch = input.batch().unwrap();
    frames.iter().for_each(|frame| batch.push(frame.as_bytes()));
    input.push(batch, Some((1, position))).unwrap();
}

/// Returns the frames behind which the checkpoint of a version is.
fn before(version: u8) -> Vec<&'static str> {
    let end = if version >= VERSION_ENDED { &[END][..] } else { &[] };
    let ahead = if version >= VERSION_HELD { &[AHEAD][..] } else { &[] };
    [&BEFORE[..], end, ahead].concat()
}

/// Returns the position in the checkpoint of a version.
fn position(version: u8) -> Position {
    match version {
        VERSION_HELD.. => {
            Position { offset: 1000, beginning: Beginning { bytes: 100, checksum: 7 } }
        }
        _ => Position::from(1000),
    }
}

fn built(version: u8, has_chains: bool) -> Vec<u8> {
    let (pipeline, _) = start(has_chains, None);
    push(&pipeline, &before(version), position(version));
    pipeline.checkpoint().unwrap().to_bytes()
}

fn place(version: u8) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/checkpoint");
    golden.join(format!("v{version}.checkpoint"))
}

/// A pipeline that starts with a checkpoint of any version has the results and counts of one without a stop.
#[test]
fn checkpoints_of_all_versions_are_continued() {
    for (version, has_chains) in VERSIONS {
        let bytes = read_file(&OsDisk, &place(version));
        assert_eq!(bytes[4], version);
        let checkpoint = Checkpoint::from_bytes(&bytes).unwrap();
        assert_eq!(checkpoint.positions(), [Position::default(), position(version)]);
        assert_eq!(checkpoint.id(), (version >= VERSION_ID).then_some(ID));
        let (pipeline, results) = start(has_chains, Some(checkpoint));
        push(&pipeline, &AFTER, 2000.into());
        let stats = pipeline.finish().unwrap();
        let (whole, expected) = start(has_chains, None);
        push(&whole, &before(version), position(version));
        push(&whole, &AFTER, 2000.into());
        let whole = whole.finish().unwrap();
        assert_eq!(stats.totals, whole.totals, "version {version}");
        assert_eq!(stats.summaries, whole.summaries, "version {version}");
        let has_ended = version >= VERSION_ENDED;
        assert_eq!(stats.summaries[0].late, if has_ended { 2 } else { 1 });
        assert_eq!(stats.totals.ahead, u64::from(version >= VERSION_HELD));
        if let [chains] = &stats.chains[..] {
            let of_whole = &whole.chains[0];
            assert_eq!(
                (chains.touches, chains.conversions, chains.direct, chains.late, chains.users),
                (
                    of_whole.touches,
                    of_whole.conversions,
                    of_whole.direct,
                    of_whole.late,
                    of_whole.users
                )
            );
            assert_eq!(chains.summaries, of_whole.summaries);
        }
        assert_eq!(*results.lock().unwrap(), *expected.lock().unwrap(), "version {version}");
        let groups = 6 + usize::from(has_chains) + usize::from(has_ended);
        assert_eq!(results.lock().unwrap().len(), groups);
    }
}

#[test]
fn the_same_events_give_the_same_checkpoint() {
    let (version, has_chains) = VERSIONS[VERSIONS.len() - 1];
    let kept = read_file(&OsDisk, &place(version));
    assert!(kept == built(version, has_chains), "v{version}.checkpoint has other bytes now");
}

/// Writes the newest golden file: `cargo test --test it checkpoint_golden -- --ignored`. Only for a new format version:
/// files of a released version never change.
#[test]
#[ignore = "writes to the source tree"]
fn write_golden_files() {
    let (version, has_chains) = VERSIONS[VERSIONS.len() - 1];
    write_file(&OsDisk, &place(version), &built(version, has_chains));
}

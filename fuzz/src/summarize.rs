//! Event streams with arbitrary bytes: frames, CSV, JSON, checkpoints, and requests for figures.

use hashfold::{
    Error, ErrorClass, Result,
    checksum::crc32c,
    codec::{Decoder, put_bytes, put_varint},
    pipeline::{
        Aggregate, Attribution, ChainDump, Chains, Checkpoint, Column, DumpSink, Events, Field,
        FieldKind, FirstTouch, LastTouch, Linear, Parser, Pipeline, PipelineOptions, Rule, Sink,
        Summary, TIME_MS_MAX, Test, TimeDecay, Value, Window, chain_touches,
    },
    run::Run,
    work::MemoryBudget,
};
use hashfold_summarize::{
    Config, FrameParser,
    config::{Framing, Stream},
    framing::{Framer, Piece},
    scrape::answer,
};
use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

/// Size of the longest event of the framing target, in bytes.
const EVENT_BYTES_MAX: usize = 20;

const CONFIG: &str = r#"
out = "out"
[stream.csv]
format = "csv"
columns = ["t", "a", "b", "c"]
files = ["f"]
time = { from = "t", format = "s" }
[stream.csv.fields]
a = { type = "int" }
b = { type = "float" }
c = { type = "text" }
[stream.json]
format = "json"
envelope = "syslog"
files = ["f"]
time = { from = "t", format = "rfc3339" }
[stream.json.fields]
a = { type = "int" }
b = { from = "b.b", type = "float" }
c = { from = "b.c", type = "text" }
[summary.x]
stream = "csv"
columns = [{ name = "n", count = true }]
[summary.y]
stream = "json"
columns = [{ name = "n", count = true }]
"#;

static STREAMS: LazyLock<Vec<Stream>> = LazyLock::new(|| {
    Config::parse(CONFIG, "config", Path::new("")).expect("the configuration is right").streams
});

/// The framing, the size of parts, then bytes. The pieces do not depend on the parts in which bytes come, all bytes
/// are consumed, and no more than an event and its length are kept.
pub fn framing(bytes: &[u8]) {
    let [head, rest @ ..] = bytes else { return };
    let framing = if head & 1 == 0 { Framing::Lines } else { Framing::Octets };
    let whole = pieces(framing, rest, rest.len().max(1));
    assert_eq!(pieces(framing, rest, 1 + usize::from(head >> 1)), whole);
    let frames = whole.iter().filter(|(_, reason)| reason.is_empty());
    assert!(frames.into_iter().all(|(len, _)| (0..=EVENT_BYTES_MAX).contains(len)));
}

/// Returns the sizes of frames, and the reasons of those that are bad. Of bad ones the sizes do not count.
fn pieces(framing: Framing, bytes: &[u8], step: usize) -> Vec<(usize, &'static str)> {
    let mut framer = Framer::new(framing, EVENT_BYTES_MAX);
    let (mut found, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        let is_end = end == bytes.len();
        while let Some((consumed, piece)) = framer.next(&bytes[start..end], is_end) {
            match piece {
                Piece::Frame(frame) => found.push((frame.len(), "")),
                Piece::Bad(_, reason) => found.push((0, reason)),
                Piece::Skipped | Piece::Nothing => assert!(consumed > 0, "there is progress"),
            }
            start += consumed;
        }
        if is_end {
            assert!(start == bytes.len() && !framer.is_skipping());
            assert!(framer.searched_bytes() <= bytes.len() as u64);
            return found;
        }
        assert!(end - start < EVENT_BYTES_MAX + 13, "{} bytes are kept", end - start);
        end = (end + step).min(bytes.len());
    }
}

/// A frame of comma-separated values.
pub fn event_csv(bytes: &[u8]) {
    parse(&STREAMS[0], bytes);
}

/// A frame of a syslog message with a JSON object; and the object alone behind the right header.
pub fn event_json(bytes: &[u8]) {
    parse(&STREAMS[1], bytes);
    parse(&STREAMS[1], &[b"<1>1 - - - - - - ", bytes].concat());
}

fn parse(stream: &Stream, frame: &[u8]) {
    let mut events = Events::new(stream.fields.len());
    let mut parser = FrameParser::new(stream);
    let parsed = parser.parse(frame, &mut events);
    assert_eq!(events.len(), usize::from(parsed.is_ok()));
    if parsed.is_err() {
        return;
    }
    assert!(events.times()[0].abs() <= TIME_MS_MAX);
    assert!(matches!(events.get(0, 0), Value::Null | Value::Int(_)));
    match events.get(0, 1) {
        Value::Float(value) => assert!(value.is_finite()),
        other => assert_eq!(other, Value::Null),
    }
    assert!(matches!(events.get(0, 2), Value::Null | Value::Text(_)));
}

/// A checkpoint, and a chain of touches, as they are.
pub fn checkpoint(bytes: &[u8]) {
    if let Ok(checkpoint) = Checkpoint::from_bytes(bytes) {
        let again = Checkpoint::from_bytes(&checkpoint.to_bytes()).expect("it was just written");
        assert_eq!(again, checkpoint);
    }
    for fields in 0..3 {
        // Each touch needs 9 bytes or more.
        let touches = chain_touches(bytes, fields).map_or(0, |touches| touches.len());
        assert!(touches <= bytes.len() / 9);
    }
}

/// Number of input bytes of one change of a state.
const EDIT_SIZE: usize = 4;
/// Memory of the groups and of the chains of a pipeline that takes a forged state, in bytes.
const MEMORY_MAX: u64 = 1 << 20;
/// Time by which an event of such a pipeline can be ahead, in milliseconds.
const AHEAD_MS: i64 = 500;

/// Frames of two bytes: the time of an event in 10 ms, and its text.
struct Pairs;

impl Parser for Pairs {
    fn parse(
        &mut self,
        frame: &[u8],
        events: &mut Events,
    ) -> std::result::Result<(), &'static str> {
        let [time, text @ ..] = frame else { return Err("no pair") };
        events.begin();
        events.set(0, Value::Text(text));
        events.set(1, Value::Int(i64::from(*time)));
        events.set(2, Value::Float(f64::from(*time) - 9.5));
        events.end(i64::from(*time) * 10);
        Ok(())
    }
}

struct Nothing;

impl Sink for Nothing {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        window.run(hashfold::Seed(1), &mut |_, _, key, _| {
            key.push(0);
            Ok(())
        })?;
        Ok(())
    }
}

impl DumpSink for Nothing {
    fn dump(&mut self, dump: ChainDump) -> Result<()> {
        read(dump)
    }
}

/// Reads all chains of a dump.
fn read(mut dump: ChainDump) -> Result<()> {
    while dump.advance()? {
        chain_touches(dump.entry().value.unwrap_or_default(), dump.channels())?;
    }
    Ok(())
}

/// Chains of users, with a model of each kind, and a summary of their credits.
fn chains() -> Result<Attribution> {
    let chains = Chains {
        conversion: vec![Rule { field: 1, test: Test::AtLeast(2) }],
        value: Some(1),
        age_ms_max: 1000,
        touches_max: 3,
        lateness_ms: 50,
        models: vec![
            Arc::new(FirstTouch),
            Arc::new(LastTouch),
            Arc::new(Linear),
            Arc::new(TimeDecay::new(100)?),
        ],
        memory_bytes: MEMORY_MAX,
        dump_ms: Some(1000),
        ..Chains::new("c", 0, vec![0, 1])
    };
    // The credit is the second field behind those of events.
    let columns = vec![Column::new("credit", Aggregate::Sum(4))];
    let summary = Summary::new("credits", columns).group_by(vec![1]).windows(100, 100);
    Ok(Attribution {
        chains,
        summaries: vec![(summary, Box::new(Nothing))],
        dump: Some(Box::new(Nothing)),
    })
}

/// Starts a pipeline with a column of each kind, and chains.
fn start(checkpoint: Option<Checkpoint>, memory: &MemoryBudget) -> Result<Pipeline> {
    let fields = [("a", FieldKind::Text), ("b", FieldKind::Int), ("c", FieldKind::Float)];
    let fields = fields.map(|(name, kind)| Field::new(name, kind));
    let columns = [
        Aggregate::Count,
        Aggregate::Sum(1),
        Aggregate::Sum(2),
        Aggregate::Min(1),
        Aggregate::Max(2),
        Aggregate::Distinct { field: 0, precision: 5 },
        Aggregate::Top { field: 0, count: 1 },
        Aggregate::Quantiles { field: 2, at: vec![0.5] },
        Aggregate::Histogram { field: 1, bounds: vec![3.0] },
    ];
    let columns = columns.map(|aggregate| Column::new("x", aggregate)).to_vec();
    let summary = Summary::new("s", columns).group_by(vec![0]).windows(100, 0);
    let sinks: Vec<(Summary, Box<dyn Sink>)> = vec![(summary, Box::new(Nothing))];
    let options = PipelineOptions {
        checkpoint,
        ahead_ms_max: AHEAD_MS,
        chains: vec![chains()?],
        memory: memory.clone(),
        ..PipelineOptions::default()
    };
    Pipeline::start(&fields, vec![Box::new(Pairs)], sinks, options)
}

fn push(pipeline: &Pipeline, frames: &[&[u8]]) -> Result<()> {
    let input = pipeline.input();
    let mut batch = input.batch()?;
    frames.iter().for_each(|frame| batch.push(frame));
    input.push(batch, None)
}

/// Size of what is before the positions of a checkpoint: the magic number, the version, the definition, and the id.
const POSITIONS_AT: usize = 4 + 1 + 8 + 8;

/// A checkpoint of such a pipeline in parts.
struct Parts {
    /// All before the positions.
    before: Vec<u8>,
    /// The head, the state of the summary, and that of the chains.
    states: [Vec<u8>; 3],
}

/// A checkpoint with open windows, chains, and an event that is held.
static PARTS: LazyLock<Parts> = LazyLock::new(|| {
    let pipeline = start(None, &MemoryBudget::unlimited()).expect("it starts");
    push(&pipeline, &[b"\x01a", b"\x02b", b"\x0ba", b"\x0ccd", b"\xffe"]).expect("it runs");
    let bytes = pipeline.checkpoint().expect("it runs").to_bytes();
    let (before, rest) = bytes.split_at(POSITIONS_AT);
    let mut fields = Decoder::new(rest);
    let mut states = || -> Result<[Vec<u8>; 3]> {
        let mut next = || -> Result<Vec<u8>> {
            // The number of positions, of summaries, or of chains.
            fields.varint()?;
            Ok(fields.sized_bytes()?.to_vec())
        };
        Ok([next()?, next()?, next()?])
    };
    Parts { before: before.to_vec(), states: states().expect("it is whole") }
});

/// Changes of the head, of the state of a summary, and of the state of chains in a checkpoint with the right checksum: a byte
/// for the part, two for a place, and one for it. A pipeline refuses the state, or it takes further events, ends all windows,
/// and keeps to its memory.
pub fn restored(bytes: &[u8]) {
    let Parts { before, states } = &*PARTS;
    let mut states = states.clone();
    for edit in bytes.chunks_exact(EDIT_SIZE) {
        let state = &mut states[usize::from(edit[0]) % 3];
        let place = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % state.len();
        state[place] = edit[3];
    }
    let mut all = before.clone();
    put_varint(&mut all, 0);
    put_bytes(&mut all, &states[0]);
    for state in &states[1..] {
        put_varint(&mut all, 1);
        put_bytes(&mut all, state);
    }
    all.extend(crc32c(&all).to_le_bytes());
    let checkpoint = Checkpoint::from_bytes(&all).expect("only states are wrong");
    let memory = MemoryBudget::new(MEMORY_MAX);
    let run = || {
        let pipeline = start(Some(checkpoint), &memory)?;
        push(&pipeline, &[b"\xffe", b"\x0ca", b"\x0db", b"x", b"\x0ee"])?;
        pipeline.checkpoint()?;
        pipeline.chains()?.into_iter().try_for_each(read)?;
        assert!(memory.reserved() <= MEMORY_MAX);
        push(&pipeline, &[b"\xffa"])?;
        pipeline.finish()
    };
    let is_bug = |error: &Error| error.class() == ErrorClass::Bug;
    assert!(!run().as_ref().err().is_some_and(is_bug), "{bytes:?}");
    assert_eq!(memory.reserved(), 0);
}

/// The head of a request for figures: there is an answer when it has ended, or is too long.
pub fn scrape(bytes: &[u8]) {
    let has_end = bytes.windows(4).any(|four| four == b"\r\n\r\n");
    assert_eq!(answer(bytes).is_some(), has_end || bytes.len() >= 8 << 10);
}

//! Event streams with arbitrary bytes: frames, CSV, JSON, checkpoints, and requests for figures.

use hashfold::{
    Error, ErrorClass, Result,
    checksum::crc32c,
    codec::{Decoder, put_bytes, put_varint},
    pipeline::{
        Aggregate, Checkpoint, Column, Events, Field, FieldKind, Parser, Pipeline, PipelineOptions,
        Sink, Summary, TIME_MS_MAX, Value, Window, chain_touches,
    },
    work::MemoryBudget,
};
use hashfold_summarize::{
    Config, FrameParser,
    config::{Framing, Stream},
    framing::{Framer, Piece},
    scrape::answer,
};
use std::{path::Path, sync::LazyLock};

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
const EDIT_SIZE: usize = 3;
/// Memory of the groups of a pipeline that takes a forged state, in bytes.
const MEMORY_MAX: u64 = 1 << 20;

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

/// Starts a pipeline with a column of each kind.
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
    let options =
        PipelineOptions { checkpoint, memory: memory.clone(), ..PipelineOptions::default() };
    Pipeline::start(&fields, vec![Box::new(Pairs)], sinks, options)
}

fn push(pipeline: &Pipeline, frames: &[&[u8]]) -> Result<()> {
    let input = pipeline.input();
    let mut batch = input.batch()?;
    frames.iter().for_each(|frame| batch.push(frame));
    input.push(batch, None)
}

/// A checkpoint of such a pipeline in parts: all before the positions, the head, and the state of the summary.
static PARTS: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    let pipeline = start(None, &MemoryBudget::unlimited()).expect("it starts");
    push(&pipeline, &[b"\x01a", b"\x02b", b"\x0ba", b"\x0ccd"]).expect("it runs");
    let bytes = pipeline.checkpoint().expect("it runs").to_bytes();
    let (before, rest) = bytes.split_at(13);
    let mut fields = Decoder::new(rest);
    let mut parts = || -> Result<[Vec<u8>; 3]> {
        fields.varint()?;
        let head = fields.sized_bytes()?.to_vec();
        fields.varint()?;
        Ok([before.to_vec(), head, fields.sized_bytes()?.to_vec()])
    };
    parts().expect("it is whole")
});

/// Changes of the state of a summary in a checkpoint with the right checksum: two bytes for a place, and one for it. A
/// pipeline refuses the state, or it takes further events, ends all windows, and keeps to its memory.
pub fn restored(bytes: &[u8]) {
    let [before, head, state] = &*PARTS;
    let mut state = state.clone();
    for edit in bytes.chunks_exact(EDIT_SIZE) {
        let place = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % state.len();
        state[place] = edit[2];
    }
    let mut all = before.clone();
    put_varint(&mut all, 0);
    put_bytes(&mut all, head);
    put_varint(&mut all, 1);
    put_bytes(&mut all, &state);
    put_varint(&mut all, 0);
    all.extend(crc32c(&all).to_le_bytes());
    let checkpoint = Checkpoint::from_bytes(&all).expect("only the state is wrong");
    let memory = MemoryBudget::new(MEMORY_MAX);
    let run = || {
        let pipeline = start(Some(checkpoint), &memory)?;
        push(&pipeline, &[b"\x0ca", b"\x0db", b"x", b"\x0ee"])?;
        pipeline.checkpoint()?;
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

//! Event streams with arbitrary bytes: frames, CSV, JSON, and checkpoints.

use hashfold::pipeline::{Checkpoint, Events, Parser as _, TIME_MS_MAX, Value, chain_touches};
use hashfold_summarize::{
    Config, FrameParser,
    config::{Framing, Stream},
    framing::{Framer, Piece},
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
                Piece::Nothing => assert!(consumed > 0, "there is progress"),
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

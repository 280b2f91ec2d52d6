//! Framing, formats and whole runs, with good and with hostile bytes.

use crate::{
    Config, FrameParser, Report, Run, StreamStats, SummarizeError,
    config::{Framing, Stream},
    framing::{CUT_SHORT, Ending, Framer, Piece, TOO_LONG},
    syslog, tcp,
};
use hashfold::{
    Env, ErrorClass, ReadOptions, Store, Table,
    io::{BlockFile, Disk, DiskLayer, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    pipeline::{Events, Parser as _, Value},
};
use hashfold_rows::Schema;
use socket2::SockRef;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tempfile::TempDir;

/// Returns all pieces of a text that comes in parts of `step` bytes, and the number of bytes that are left.
fn all_pieces(
    mut framer: Framer,
    text: &[u8],
    step: usize,
) -> (Vec<(String, &'static str)>, usize) {
    let (mut found, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        let is_end = end == text.len();
        while let Some((consumed, piece)) = framer.next(&text[start..end], is_end) {
            let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match piece {
                Piece::Frame(frame) => found.push((shown(frame), "")),
                Piece::Bad(frame, reason) => found.push((shown(frame), reason)),
                Piece::Skipped | Piece::Nothing => {}
            }
            start += consumed;
        }
        if is_end {
            return (found, text.len() - start);
        }
        assert!(end - start < framer.bytes_max() + 13, "{} bytes are kept", end - start);
        end = (end + step).min(text.len());
    }
}

/// Returns all pieces of a text of which nothing is left.
fn pieces(
    framing: Framing,
    bytes_max: usize,
    text: &[u8],
    step: usize,
) -> Vec<(String, &'static str)> {
    let (found, left) = all_pieces(Framer::new(framing, bytes_max), text, step);
    assert_eq!(left, 0, "all bytes are consumed at the end");
    found
}

#[track_caller]
fn check(framing: Framing, text: &[u8], expected: &[(&str, &'static str)]) {
    for step in 1..=text.len().max(1) {
        let got = pieces(framing, 10, text, step);
        let got: Vec<_> = got.iter().map(|(frame, reason)| (&frame[..], *reason)).collect();
        assert_eq!(got, expected, "step {step}");
    }
}

#[test]
fn lines_are_frames_however_they_are_cut() {
    check(Framing::Lines, b"", &[]);
    check(Framing::Lines, b"a\nbc\r\n\n\r\nd", &[("a", ""), ("bc", ""), ("d", "")]);
    check(Framing::Lines, b"0123456789\r\nb\n", &[("0123456789", ""), ("b", "")]);
    let got = pieces(Framing::Lines, 10, b"0123456789abcdefgh\nb\n", 3);
    assert_eq!(
        got,
        [("0123456789abc".chars().take(got[0].0.len()).collect(), TOO_LONG), ("b".into(), "")]
    );
}

#[test]
fn counted_octets_and_lines_come_on_one_connection() {
    let octets = Framing::Octets;
    check(octets, b"3 a\nb5 12345<x>\n", &[("a\nb", ""), ("12345", ""), ("<x>", "")]);
    check(octets, b"2 a\n2 b\n0 1 c", &[("a", ""), ("b", ""), ("c", "")]);
    check(octets, b"1,2,3\nx\n", &[("1,2,3", ""), ("x", "")]);
    check(octets, b"9 abc", &[("abc", CUT_SHORT)]);
    check(octets, b"99", &[("99", "")]);
}

/// An event without its end is rejected if its sender broke off, and left if its file may grow.
#[test]
fn events_without_an_end_are_rejected_or_left() {
    let check = |framing, text: &[u8], cut: &str, left: usize| {
        for step in 1..=text.len() {
            let of = |ending| all_pieces(Framer::new(framing, 10).ending(ending), text, step);
            let first = ("a".to_owned(), "");
            let cut = (cut.to_owned(), CUT_SHORT);
            assert_eq!(of(Ending::CutShort), (vec![first.clone(), cut], 0), "step {step}");
            assert_eq!(of(Ending::Left), (vec![first], left), "step {step}");
        }
    };
    check(Framing::Lines, b"a\nbc", "bc", 2);
    check(Framing::Lines, b"a\n\nbc\r", "bc", 3);
    check(Framing::Octets, b"1 a9 bc", "bc", 4);
    check(Framing::Octets, b"1 a99", "99", 2);
    check(Framing::Octets, b"1 a<b", "<b", 2);
    let long = all_pieces(Framer::new(Framing::Lines, 10).ending(Ending::CutShort), &[b'x'; 50], 7);
    assert_eq!((long.0.len(), long.0[0].1, long.1), (1, TOO_LONG, 0));
}

/// A length that lies is known at once, however long its event takes to come.
#[test]
fn events_that_are_too_long_are_rejected_when_they_begin() {
    for (framing, text) in
        [(Framing::Octets, &b"9999999999 x"[..]), (Framing::Lines, &[b'x'; 12][..])]
    {
        let mut framer = Framer::new(framing, 10);
        assert_eq!(framer.next(text, false), Some((12, Piece::Bad(text, TOO_LONG))));
        assert!(framer.is_skipping());
        assert_eq!(framer.next(b"y", false), Some((1, Piece::Skipped)));
        assert_eq!(framer.next(b"", false), None);
    }
}

/// Lengths that lie cost the events that they cover, and nothing else.
#[test]
fn lengths_that_lie_are_survived() {
    let got = |text: &[u8], step| pieces(Framing::Octets, 10, text, step);
    for step in [1, 2, 5, 100] {
        let after = got(b"25 0123456789012345678901234<a>\n", step);
        assert_eq!(after.len(), 2, "{after:?}");
        assert_eq!((after[0].1, &after[1].0[..]), (TOO_LONG, "<a>"));
        let huge = got(b"9999999999 abc\ndef\n", step);
        assert_eq!(huge.iter().map(|piece| piece.1).collect::<Vec<_>>(), [TOO_LONG]);
        let longer = got(b"99999999999 abc\ndef\n", step);
        assert_eq!(longer.last().unwrap().0, "def");
    }
}

/// An event of 100 MB passes in bounded memory.
#[test]
fn an_event_of_a_hundred_megabytes_is_rejected_as_it_passes() {
    for (framing, head) in [(Framing::Lines, &b""[..]), (Framing::Octets, b"104857600 ")] {
        let mut framer = Framer::new(framing, 1000);
        let part = vec![b'x'; 64 << 10];
        let mut first = [head, &part[..]].concat();
        let mut rejected = 0;
        for _ in 0..1600 {
            let mut bytes = &first[..];
            while let Some((consumed, piece)) = framer.next(bytes, false) {
                rejected += usize::from(matches!(piece, Piece::Bad(..)));
                bytes = &bytes[consumed..];
            }
            assert!(bytes.is_empty());
            first.clone_from(&part);
        }
        let last = framer.next(b"\n", true);
        rejected += usize::from(matches!(last, Some((_, Piece::Bad(..)))));
        assert_eq!(rejected, 1);
    }
}

/// However small the pieces are in which a long line comes, no byte is searched twice for its end.
#[test]
fn a_long_line_in_small_pieces_is_read_in_linear_time() {
    let long = |len: usize| [&vec![b'x'; len][..], b"\n"].concat();
    let cases = [
        // An event, one that is rejected as it passes, and several.
        (1 << 20, long(1 << 20)),
        (1 << 16, long(1 << 20)),
        (1 << 19, [long(1 << 19), long(7), long(1 << 18), long(1 << 20)].concat()),
    ];
    for (bytes_max, text) in cases {
        for ending in [Ending::Event, Ending::Left] {
            for framing in [Framing::Lines, Framing::Octets] {
                let mut framer = Framer::new(framing, bytes_max).ending(ending);
                let (mut start, mut frames) = (0, 0);
                for end in (0..text.len()).step_by(509).chain([text.len()]) {
                    while let Some((consumed, piece)) =
                        framer.next(&text[start..end], end == text.len())
                    {
                        frames += usize::from(matches!(piece, Piece::Frame(_) | Piece::Bad(..)));
                        start += consumed;
                    }
                }
                assert_eq!(start, text.len());
                assert_eq!(frames, text.iter().filter(|byte| **byte == b'\n').count());
                assert_eq!(framer.searched_bytes(), text.len() as u64);
            }
        }
    }
}

#[test]
fn headers_of_syslog_messages_are_removed() {
    let good = |text: &str, message: &str| {
        assert_eq!(syslog::message(text.as_bytes()), Ok(message.as_bytes()), "{text}");
    };
    good("<34>1 2026-11-27T01:00:00Z host app 4711 id - a,b c", "a,b c");
    good("<34>1 - - - - - -", "");
    good("<34>1 - - - - - [a b=\"] \\\" \"][c] x", "x");
    good("<34>1 - - - - - - \u{feff}x", "x");
    for bad in
        ["", "x", "<34>1 - - -", "<34>1 - - - - - [a", "<34>1 - - - - - x y", "<34>1 - - - - - -x"]
    {
        assert!(syslog::message(bad.as_bytes()).is_err(), "{bad}");
    }
}

pub(crate) const CSV: &str = r#"
out = "out"
[stream.v1]
format = "csv"
columns = ["ts", "user", "kind", "amount", "weight"]
files = ["a.csv"]
time = { from = "ts", format = "ms" }
[stream.v1.fields]
user = { type = "text" }
amount = { type = "int" }
weight = { type = "float" }
[summary.users]
stream = "v1"
group-by = ["user"]
window = "1s"
lateness = "500ms"
columns = [
  { name = "events", count = true },
  { name = "amount", sum = "amount" },
  { name = "least", min = "weight" },
  { name = "weight", quantiles = "weight", at = [0.5, 0.999] },
  { name = "bars", histogram = "amount", bounds = [10, 100] },
]
[summary.all]
stream = "v1"
output = "store"
columns = [
  { name = "users", distinct = "user" },
  { name = "often", top = "user", count = 2 },
]
"#;

pub(crate) const JSON: &str = r#"
out = "out"
rejected = "bad"
[stream.v2]
format = "json"
files = ["a.jsonl"]
time = { from = "meta.time", format = "rfc3339" }
[stream.v2.fields]
user = { from = "user.id", type = "text" }
city = { from = "user.home.city", type = "text" }
amount = { from = "amount", type = "float" }
count = { type = "int" }
[summary.cities]
stream = "v2"
group-by = ["city", "count"]
columns = [{ name = "amount", sum = "amount" }]
"#;

pub(crate) fn config(text: &str, folder: &Path) -> Config {
    Config::parse(text, "test.toml", folder).unwrap()
}

pub(crate) fn stream(text: &str) -> Stream {
    config(text, Path::new("")).streams.remove(0)
}

/// Returns the fields of a frame's event, and its time.
fn parse(stream: &Stream, frame: &[u8]) -> Result<(Vec<String>, i64), &'static str> {
    let mut events = Events::new(stream.fields.len());
    FrameParser::new(stream).parse(frame, &mut events)?;
    let shown = |field| match events.get(0, field) {
        Value::Null => "-".into(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Text(text) => format!("'{}'", String::from_utf8_lossy(text)),
    };
    Ok(((0..stream.fields.len()).map(shown).collect(), events.times()[0]))
}

#[test]
fn csv_events_are_parsed_or_rejected_with_a_reason() {
    let stream = stream(CSV);
    let good = |frame: &str, fields: [&str; 3]| {
        let fields = fields.map(str::to_owned).to_vec();
        assert_eq!(parse(&stream, frame.as_bytes()), Ok((fields, 1500)), "{frame}");
    };
    // Fields are in the order of their names: amount, user, weight.
    good("1500,ann,x,7,0.5", ["7", "'ann'", "0.5"]);
    good("1500,,,,", ["-", "-", "-"]);
    good(r#""1500","a ""b"", c","x","-7","1e3""#, ["-7", "'a \"b\", c'", "1000.0"]);
    let bad = |frame: &[u8], reason: &str| {
        assert!(parse(&stream, frame).unwrap_err().contains(reason), "{frame:?}");
    };
    bad(b"", "time");
    bad(b"1500,ann,x,7", "number of columns");
    bad(b"1500,ann,x,7,1,", "number of columns");
    bad(b"1500,ann,x,7.5,1", "integer");
    bad(b"1500,ann,x,7,nan", "finite");
    bad(b"1500,ann,x,7,1e999", "finite");
    bad(b"99999999999999999999,ann,x,7,1", "time");
    bad(b"1500,\"ann,x,7,1", "quoted");
    bad(b"1500,\"ann\"x,x,7,1", "quoted");
    bad(b"1500,ann,x,\xff,1", "integer");
    assert!(parse(&stream, b"1500,\xff\xfe,x,7,1").is_ok(), "text can be any bytes");
}

#[test]
fn json_events_are_parsed_or_rejected_with_a_reason() {
    let stream = stream(JSON);
    let time = r#""meta":{"time":"1970-01-01T00:00:01.5Z"}"#;
    let good = |fields: &str, expected: [&str; 4]| {
        let frame = format!("{{{time},{fields}}}");
        let expected = expected.map(str::to_owned).to_vec();
        assert_eq!(parse(&stream, frame.as_bytes()), Ok((expected, 1500)), "{frame}");
    };
    // Fields are in the order of their names: amount, city, count, user.
    good(
        r#""user":{"id":"ann","home":{"city":"Oslo","x":[1]}},"amount":2"#,
        ["2.0", "'Oslo'", "-", "'ann'"],
    );
    good(r#""user":{"id":7,"home":null},"count":-3,"other":{"a":[{}]}"#, ["-", "-", "-3", "'7'"]);
    good(r#""user":{"id":"a\u00e9\n"},"user":{"id":true}"#, ["-", "-", "-", "'true'"]);
    good(r#""amount":1,"amount":null"#, ["-", "-", "-", "-"]);
    good(r#""user":5"#, ["-", "-", "-", "-"]);
    // A number in a field of text is the text that it has.
    for number in ["18446744073709551615", "18446744073709551614", "-9223372036854775808", "1.5"] {
        let user = format!("'{number}'");
        good(&format!("\"user\":{{\"id\":{number}}}"), ["-", "-", "-", &user[..]]);
    }
    good(r#""amount":18446744073709551615"#, ["1.8446744073709552e19", "-", "-", "-"]);
    // JSON has one kind of numbers, and empty text is null.
    good(r#""count":-0,"amount":"""#, ["-", "-", "0", "-"]);
    good(r#""count":7.0,"user":{"id":""}"#, ["-", "-", "7", "-"]);
    good(r#""count":"","other":1e400"#, ["-", "-", "-", "-"]);
    let bad = |frame: &[u8], reason: &str| {
        let got = parse(&stream, frame).unwrap_err();
        assert!(got.contains(reason), "{}: {got}", String::from_utf8_lossy(frame));
    };
    bad(b"", "object");
    bad(b"[]", "object");
    bad(b"7", "object");
    bad(b"{}", "time");
    bad(br#"{"meta":{"time":7}}"#, "time");
    bad(format!("{{{time}}} x").as_bytes(), "object");
    bad(format!("{{{time},\"count\":1.5}}").as_bytes(), "integer");
    bad(format!("{{{time},\"count\":18446744073709551615}}").as_bytes(), "integer");
    bad(format!("{{{time},\"amount\":\"7\"}}").as_bytes(), "finite number");
    bad(format!("{{{time},\"amount\":[7]}}").as_bytes(), "list or an object");
    bad(format!("{{{time},\"user\":{{\"id\":{{}}}}}}").as_bytes(), "list or an object");
    bad(format!("{{{time},\"amount\":1e400}}").as_bytes(), "finite number");
    bad(format!("{{{time},\"count\":1e300}}").as_bytes(), "integer");
    bad(b"{\"user\":{\"id\":\"\xff\"}}", "object");
}

#[test]
fn times_as_text_have_a_zone_or_are_said_to_be_in_utc() {
    let time = |format: &str, time: &str| {
        let stream = stream(&JSON.replace("\"rfc3339\"", &format!("\"{format}\"")));
        let frame = format!("{{\"meta\":{{\"time\":\"{time}\"}}}}");
        parse(&stream, frame.as_bytes()).map(|(_, time_ms)| time_ms)
    };
    for format in ["rfc3339", "utc"] {
        assert_eq!(time(format, "1970-01-01T01:00:00+01:00"), Ok(0));
        assert_eq!(time(format, "2016-12-31T23:59:60Z"), Ok(1_483_228_799_000));
        assert_eq!(time(format, "9999-12-31T23:59:59Z"), Ok(253_402_300_799_000));
        assert!(time(format, "yesterday").unwrap_err().contains("missing or wrong"));
    }
    assert!(time("rfc3339", "1970-01-01T00:00:01").unwrap_err().contains("has no zone"));
    assert_eq!(time("utc", "1970-01-01 00:00:01"), Ok(1000));
}

/// JSON that is 10,000 deep is skipped where it is no field, and costs no stack where it is one.
#[test]
fn json_can_be_ten_thousand_deep() {
    let stream = stream(JSON);
    let deep =
        |open: &str, close: &str| format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
    let time = r#""meta":{"time":"1970-01-01T00:00:01.5Z"}"#;
    for deep in [deep("[", "]"), deep("{\"a\":", "}")] {
        assert!(parse(&stream, format!("{{{time},\"x\":{deep}}}").as_bytes()).is_ok());
        assert!(parse(&stream, format!("{{{time},\"user\":{deep}}}").as_bytes()).is_ok());
        assert!(parse(&stream, format!("{{{time},\"amount\":{deep}}}").as_bytes()).is_err());
        assert!(parse(&stream, deep.as_bytes()).is_err());
    }
}

pub(crate) fn run_all(config: &Config) -> Result<Vec<StreamStats>, SummarizeError> {
    Run::start(config, &Env::system(), Arc::default())?.wait(&mut |_| {})
}

/// Returns the entries of a table as JSON lines, sorted.
fn rows(path: &Path) -> Vec<String> {
    rows_of(&Table::open(path).unwrap())
}

fn rows_of(table: &Table) -> Vec<String> {
    let schema = Schema::of_table(table).unwrap();
    let mut lines = Vec::new();
    let mut scan = table.scan();
    while hashfold::run::Run::advance(&mut scan).unwrap() {
        let entry = hashfold::run::Run::entry(&scan);
        let mut line = Vec::new();
        schema.write_json(entry.key, entry.value.unwrap(), &mut line).unwrap();
        lines.push(String::from_utf8(line).unwrap());
    }
    lines.sort();
    lines
}

#[test]
fn windows_of_a_file_become_tables_and_versions() {
    let work = TempDir::new().unwrap();
    let file = "1000,ann,x,7,1\n1900,ben,x,200,2\n1950,ann,x,,3\n2000,ann,x,1,4\nbad\n\
                1999,ann,x,2,-1\n2500,ann,x,3,9\n1000,late,x,1,1\n";
    fs::write(work.path().join("a.csv"), file).unwrap();
    let stats = run_all(&config(CSV, work.path())).unwrap();
    let totals = stats[0].stats.totals;
    assert_eq!((totals.frames, totals.events, totals.rejected), (8, 7, 1));
    assert_eq!(stats[0].summaries, ["all", "users"]);
    let users = stats[0].stats.summaries[1];
    assert_eq!((users.events, users.late, users.windows, users.groups), (6, 1, 2, 3));
    let first = rows(&work.path().join("out/users/1970-01-01T00-00-01Z"));
    let near = |line: &str| {
        line.starts_with(r#"{"user":"ann","events":3,"amount":9,"least":-1,"weight_p50":1.0"#)
    };
    assert!(near(&first[0].replace("0.99", "1.0")), "{first:?}");
    assert!(first[1].ends_with(r#""bars":[0,0,1]}"#) && first.len() == 2, "{first:?}");
    assert_eq!(rows(&work.path().join("out/users/1970-01-01T00-00-02Z")).len(), 1);
    let store = Store::open(work.path().join("out/all")).unwrap().reader().unwrap();
    let value = store.get("all").unwrap().unwrap();
    let version = store.version();
    let info = version.info();
    assert_eq!(info.provenance, [("summary".to_owned(), b"all".to_vec())]);
    let schema = Schema::of_version(info).unwrap();
    let expected = r#"{"users":3,"often":[{"value":"ann","count":5,"error":0},{"value":"ben","count":1,"error":0}]}"#;
    assert_eq!(schema.row(&value).unwrap().to_string(), expected);
}

#[test]
fn groups_of_several_fields_have_a_list_as_key() {
    let work = TempDir::new().unwrap();
    let event = |city: &str, amount: u32| {
        format!(
            "{{\"meta\":{{\"time\":\"1970-01-01T00:00:01Z\"}},\"user\":{{\"home\":{{\"city\":{city}}}}},\"amount\":{amount},\"count\":7}}\n"
        )
    };
    let text = [event("\"Oslo\"", 1), "no json\n".into(), event("\"Oslo\"", 2), event("null", 3)];
    fs::write(work.path().join("a.jsonl"), text.concat()).unwrap();
    run_all(&config(JSON, work.path())).unwrap();
    assert_eq!(
        rows(&work.path().join("out/cities/all")),
        [
            r#"{"city,count":"[\"Oslo\",7]","city":"Oslo","count":7,"amount":3}"#,
            r#"{"city,count":"[\"\",7]","city":"","count":7,"amount":3}"#,
        ]
    );
    let rejected = fs::read_to_string(work.path().join("bad/v2.jsonl")).unwrap();
    assert_eq!(rejected, "{\"reason\":\"no JSON object\",\"frame\":\"no json\"}\n");
}

const BY_AMOUNT: &str = r#"
[summary.amounts]
stream = "v1"
group-by = ["amount"]
columns = [{ name = "events", count = true }]
"#;

/// Null is a group of integers, which no integer is.
#[test]
fn groups_of_an_integer_have_a_column_that_can_be_null() {
    let work = TempDir::new().unwrap();
    fs::write(work.path().join("a.csv"), "1000,ann,x,7,1\n1000,ann,x,,1\n1001,ben,x,7,1\n")
        .unwrap();
    run_all(&config(&format!("{CSV}{BY_AMOUNT}"), work.path())).unwrap();
    assert_eq!(
        rows(&work.path().join("out/amounts/all")),
        [r#"{"group":"","amount":null,"events":1}"#, r#"{"group":"7","amount":7,"events":2}"#,]
    );
}

#[test]
fn a_table_of_another_run_is_not_replaced() {
    let work = TempDir::new().unwrap();
    let out = work.path().join("out");
    fs::write(work.path().join("a.csv"), "1000,ann,x,7,1\n").unwrap();
    run_all(&config(CSV, work.path())).unwrap();
    let before = tables(&out.join("users"));
    fs::write(work.path().join("a.csv"), "1000,ben,x,7,1\n").unwrap();
    run_all(&config(CSV, work.path())).unwrap();
    let mut after = tables(&out.join("users"));
    let second = after.remove("1970-01-01T00-00-01Z-2").unwrap();
    assert!(second.len() == 1 && second[0].contains("ben"), "{second:?}");
    assert_eq!(after, before);
    // Without windows, the only table is known before the first event.
    let text = format!("{}{BY_AMOUNT}", &CSV[..CSV.find("[summary.users]").unwrap()]);
    let config = config(&text, work.path());
    run_all(&config).unwrap();
    let refused = Run::start(&config, &Env::system(), Arc::default()).unwrap_err().to_string();
    let words = ["out/amounts/all, which another run has written", "`out`", "`checkpoints`"];
    assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
}

pub(crate) fn numbered(count: u64) -> String {
    let mut text = String::new();
    for i in 0..count {
        writeln!(text, "{},user{},x,{i},{}", i * 10, i * i % 23, i % 7).unwrap();
    }
    text
}

/// All tables of a summary.
pub(crate) fn tables(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().to_string_lossy().into_owned(), rows(&e.path()))).collect()
}

/// A run is stopped again and again while it reads a file that grows. All together equal one run.
#[test]
fn files_are_summarised_exactly_once_over_restarts() {
    let (work, whole) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let text = numbered(3000);
    fs::write(whole.path().join("a.csv"), &text).unwrap();
    run_all(&config(CSV, whole.path())).unwrap();
    let with = CSV.replace(
        "out = \"out\"\n",
        "out = \"out\"\ncheckpoints = \"cp\"\ncheckpoint-interval = \"1ms\"\n",
    );
    let config = config(&with, work.path());
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for end in [0, 700, 1500, 2999] {
        fs::write(work.path().join("a.csv"), lines[..end].concat()).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let mut run = Run::start(&config, &Env::system(), stop.clone()).unwrap();
        // Stopped at any moment, but after all is read once: then windows are open, and stay so.
        run.set_follows(true);
        let wait = run.wait(&mut |stats| {
            let is_read = stats[0].stats.totals.frames == end as u64;
            stop.store(is_read || end == 700, Ordering::Relaxed);
        });
        wait.unwrap();
    }
    fs::write(work.path().join("a.csv"), &text).unwrap();
    let stats = run_all(&config).unwrap();
    assert_eq!(stats[0].stats.totals.frames, 3000);
    assert_eq!(tables(&work.path().join("out/users")), tables(&whole.path().join("out/users")));
    let value = |folder: &Path| {
        let reader = Store::open(folder.join("out/all")).unwrap().reader().unwrap();
        reader.get("all").unwrap()
    };
    assert_eq!(value(work.path()), value(whole.path()));
}

/// Texts of what happened to the sources of the first stream.
pub(crate) fn reports(stats: &[StreamStats]) -> Vec<String> {
    stats[0].reports.iter().map(|report| format!("{report}")).collect()
}

/// A file is rotated between two runs: the new one is read from its beginning, whether it is shorter or longer than what
/// was read of the old one. One that has only grown goes on.
#[test]
fn a_rotated_file_is_read_from_its_beginning() {
    let (with_header, without) = ("header = true\n", "");
    for (header, has_header) in [(without, false), (with_header, true)] {
        let work = TempDir::new().unwrap();
        let text = CSV
            .replace("out = \"out\"\n", "out = \"out\"\ncheckpoints = \"cp\"\n")
            .replace("files = [\"a.csv\"]\n", &format!("files = [\"a.csv\"]\n{header}"));
        let config = config(&text, work.path());
        let head = if has_header { "ts,user,kind,amount,weight\n" } else { "" };
        let event = |i: u64| format!("{},user{i},x,{i},1\n", 1000 + i * 10);
        let events = |from: u64, to: u64| (from..to).map(event).collect::<String>();
        let mut frames = 0;
        let mut check = |file: String, new: u64, is_replaced: bool| {
            fs::write(work.path().join("a.csv"), head.to_owned() + &file).unwrap();
            let stats = run_all(&config).unwrap();
            frames += new;
            assert_eq!(stats[0].stats.totals.frames, frames);
            let reports = reports(&stats);
            assert_eq!(reports.len(), usize::from(is_replaced), "{reports:?}");
            let words = "a.csv is another file than that of the checkpoint";
            assert!(reports.iter().all(|report| report.contains(words)), "{reports:?}");
        };
        check(events(0, 100), 100, false);
        check(events(0, 150), 50, false);
        // Shorter, longer, and of the same length.
        check(events(200, 220), 20, true);
        check(events(300, 500), 200, true);
        check(events(600, 800), 200, true);
        check(events(600, 801), 1, false);
        check(String::new(), 0, true);
        check(events(900, 910), 10, false);
    }
}

/// A file that cannot be read is reported; the other files, streams without windows and chains go on to their ends.
#[test]
fn a_source_that_fails_ends_no_other() {
    let work = TempDir::new().unwrap();
    let (csv, other) = (CSV.replace("[\"a.csv\"]", "[\"none.csv\", \"a.csv\"]"), JSON);
    let other = other.replace("out = \"out\"\nrejected = \"bad\"\n", "");
    let text = format!("{csv}{other}");
    fs::write(work.path().join("a.csv"), numbered(500)).unwrap();
    let event = "{\"meta\":{\"time\":\"1970-01-01T00:00:01Z\"},\"amount\":1}\n";
    fs::write(work.path().join("a.jsonl"), event.repeat(300)).unwrap();
    let stats = run_all(&config(&text, work.path())).unwrap();
    let of_first = reports(&stats);
    assert!(
        of_first[0].contains("none.csv: cannot open")
            && of_first[0].contains("other sources go on"),
        "{of_first:?}"
    );
    assert!(matches!(*stats[0].reports[0], Report::Failed(SummarizeError::Io { .. })));
    assert_eq!((of_first.len(), stats[1].reports.len()), (1, 0));
    assert_eq!((stats[0].stats.totals.events, stats[1].stats.totals.events), (500, 300));
    assert!(stats[0].stats.summaries.iter().all(|summary| summary.open_windows == 0));
    assert_eq!(rows(&work.path().join("out/cities/all")).len(), 1);
    // Unless a failure is to end the run.
    let strict =
        format!("on-source-failure = \"stop\"\n{}", text.replace("out = \"out\"", "out = \"2\""));
    let error = run_all(&config(&strict, work.path())).unwrap_err().to_string();
    assert!(error.contains("none.csv: cannot open"), "{error}");
}

/// With checkpoints, windows wait for the file that failed, and the next run has all events once.
#[test]
fn with_checkpoints_the_next_run_reads_the_file_that_failed() {
    let work = TempDir::new().unwrap();
    let text = CSV
        .replace("[\"a.csv\"]", "[\"a.csv\", \"b.csv\"]")
        .replace("out = \"out\"\n", "out = \"out\"\ncheckpoints = \"cp\"\n");
    let config = config(&text, work.path());
    let lines = numbered(300);
    let (first, second) = lines.split_at(lines.find("1490,").unwrap());
    fs::write(work.path().join("a.csv"), first).unwrap();
    let stats = run_all(&config).unwrap();
    assert!(reports(&stats)[0].contains("b.csv"));
    assert_eq!(stats[0].stats.summaries[0].open_windows, 1);
    fs::write(work.path().join("b.csv"), second).unwrap();
    let stats = run_all(&config).unwrap();
    assert_eq!((stats[0].reports.len(), stats[0].stats.totals.events), (0, 300));
    let summaries = &stats[0].stats.summaries;
    assert!(summaries.iter().all(|it| (it.events, it.late, it.open_windows) == (300, 0, 0)));
}

/// A sender whose clock is wrong sends thousands of events between those of others: they are refused and kept, and no event
/// of the others is late.
#[test]
fn a_sender_with_a_wrong_clock_does_not_end_the_windows_of_others() {
    let work = TempDir::new().unwrap();
    let text = CSV
        .replace("files = [\"a.csv\"]", "listen = [\"127.0.0.1:0\"]")
        .replace("out = \"out\"\n", "out = \"out\"\nrejected = \"bad\"\n");
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config(&text, work.path()), &Env::system(), stop.clone()).unwrap();
    let (_, address) = run.addresses()[0].clone();
    let mut good = TcpStream::connect(address).unwrap();
    let (mut wrong, mut is_sent) = (None, false);
    good.write_all(numbered(500).as_bytes()).unwrap();
    let stats = run.wait(&mut |stats| {
        let frames = stats[0].stats.totals.frames;
        if frames == 500 && wrong.is_none() {
            let mut sender = TcpStream::connect(address).unwrap();
            sender.write_all("4102444800000,far,x,1,1\n".repeat(3000).as_bytes()).unwrap();
            wrong = Some(sender);
        }
        if frames == 3500 && !is_sent {
            is_sent = true;
            let all = numbered(1000);
            good.write_all(&all.as_bytes()[all.find("\n5000,").unwrap() + 1..]).unwrap();
        }
        stop.store(frames == 4000, Ordering::Relaxed);
    });
    let stats = stats.unwrap().remove(0).stats;
    assert_eq!((stats.totals.ahead, stats.totals.rejected), (3000, 0));
    assert!(stats.summaries.iter().all(|it| (it.events, it.late) == (1000, 0)), "{stats:?}");
    let kept = fs::read_to_string(work.path().join("bad/v1.jsonl")).unwrap();
    let line = "{\"reason\":\"the time is too far ahead\",\"frame\":\"4102444800000,far,x,1,1\"}";
    assert!(kept.lines().count() == 3000 && kept.lines().all(|it| it == line));
}

/// A file with a gap of a month loses nothing, and its windows end in time.
#[test]
fn a_file_with_a_gap_of_a_month_loses_nothing() {
    let work = TempDir::new().unwrap();
    let month = 30 * 86_400_000;
    let later: String = (0..500_u64).map(|i| format!("{},late,x,1,1\n", month + i * 10)).collect();
    fs::write(work.path().join("a.csv"), numbered(500) + &later).unwrap();
    let stats = run_all(&config(CSV, work.path())).unwrap().remove(0).stats;
    assert!(stats.summaries.iter().all(|it| (it.events, it.late) == (1000, 0)), "{stats:?}");
    assert_eq!((stats.totals.ahead, stats.totals.held), (0, 0));
    assert_eq!(tables(&work.path().join("out/users")).len(), 10);
}

/// A sum of floats that overflows is null in every format, and counted.
#[test]
fn a_sum_that_overflows_is_null_and_counted() {
    let work = TempDir::new().unwrap();
    let text = CSV.replace("sum = \"amount\"", "sum = \"weight\"");
    fs::write(work.path().join("a.csv"), "1000,ann,x,1,1e308\n".repeat(2)).unwrap();
    let stats = run_all(&config(&text, work.path())).unwrap();
    assert_eq!(stats[0].stats.summaries[1].overflows, 1);
    let rows = rows(&work.path().join("out/users/1970-01-01T00-00-01Z"));
    assert!(rows[0].starts_with(r#"{"user":"ann","events":2,"amount":null,"#), "{rows:?}");
}

/// A last line that is still being written is summarised when it is whole, once.
#[test]
fn a_line_that_is_being_written_is_left_for_the_next_run() {
    let work = TempDir::new().unwrap();
    let text =
        CSV.replace("out = \"out\"\n", "out = \"out\"\ncheckpoints = \"cp\"\nrejected = \"bad\"\n");
    let long = "x".repeat(3 << 20);
    let parts =
        ["1000,ann,x,7,1\n5000,ben,x,1", "2,1\n", &long[..], &long[..], "\n9000,cat,x,1,1\n"];
    let mut got = Vec::new();
    for i in 0..parts.len() {
        fs::write(work.path().join("a.csv"), parts[..=i].concat()).unwrap();
        let stats = run_all(&config(&text, work.path())).unwrap().remove(0);
        let totals = stats.stats.totals;
        got.push((totals.frames, totals.events, totals.bytes, stats.unread_bytes));
    }
    let long = long.len() as u64;
    assert_eq!(
        got,
        [
            (1, 1, 14, 12),
            (2, 2, 29, 0),
            (2, 2, 29, long),
            (2, 2, 29, 2 * long),
            (4, 3, 29 + 2 * long + 1 + 14, 0)
        ]
    );
    let second = rows(&work.path().join("out/users/1970-01-01T00-00-05Z"));
    assert!(second[0].contains(r#""user":"ben","events":1,"amount":12"#), "{second:?}");
    let rejected = fs::read_to_string(work.path().join("bad/v1.jsonl")).unwrap();
    assert_eq!(rejected.matches(TOO_LONG).count(), 1);
}

/// Results of the configuration `CSV` on a disk: rows of all tables, and the value in the store.
fn results(disk: &Arc<dyn Disk>) -> (BTreeMap<String, Vec<String>>, Option<Vec<u8>>) {
    let env = Env { disk: disk.clone(), ..Env::simulated(1) };
    let mut tables = BTreeMap::new();
    for name in disk.list(Path::new("out/users")).unwrap() {
        let path = Path::new("out/users").join(&name);
        let table = Table::open_with(path, &ReadOptions::new().env(env.clone())).unwrap();
        tables.insert(name, rows_of(&table));
    }
    let reader = Store::open_in(env, "out/all").unwrap().reader().unwrap();
    (tables, reader.get("all").unwrap())
}

/// The power fails at every operation of the disk that holds results and the checkpoint, and the disk gets full at
/// every write. The next run ends with the results of a run without a fault.
#[test]
fn after_a_power_cut_or_a_full_disk_the_next_run_has_all_events_once() {
    let work = TempDir::new().unwrap();
    fs::write(work.path().join("a.csv"), numbered(250)).unwrap();
    let file = format!("files = [\"{}\"]", work.path().join("a.csv").display());
    let text = CSV.replace("files = [\"a.csv\"]", &file).replace(
        "out = \"out\"\n",
        "out = \"out\"\ncheckpoints = \"cp\"\ncheckpoint-interval = \"1h\"\n",
    );
    let config = config(&text, Path::new(""));
    // Each run has other random numbers.
    let runs = AtomicU64::new(0);
    let run = |disk: Arc<dyn Disk>| {
        let env = Env { disk, ..Env::simulated(runs.fetch_add(1, Ordering::Relaxed)) };
        Run::start(&config, &env, Arc::default())?.wait(&mut |_| {})
    };
    let good: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    run(good.clone()).unwrap();
    let expected = results(&good);
    assert_eq!(expected.0.len(), 3);
    let faults: [fn(u64) -> Fault; 2] =
        [|operation| Fault::PowerCut { operation }, |write| Fault::Full { write }];
    for fault in faults {
        for at in 0.. {
            let faulty = FaultyDisk::new(FaultPlan::from(fault(at)));
            let result = run(Arc::new(faulty.clone()));
            let is_over = result.as_ref().is_ok_and(|stats| !stats[0].is_unsaved);
            if let Err(error) = result {
                let is_io = matches!(&error, SummarizeError::Data(error) if error.class() == ErrorClass::Io);
                assert!(is_io, "{error}");
            }
            let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(at));
            run(disk.clone()).unwrap_or_else(|error| panic!("fault {at}: {error}"));
            assert_eq!(results(&disk), expected, "fault {at}");
            if is_over {
                assert!(at > 20, "a run does more than that");
                break;
            }
        }
    }
}

/// The power fails at every operation of the disk, every operation fails, and the disk gets full at every write; meanwhile, the
/// file grows by events of all windows. Each event is in one table, or counted as late.
#[test]
fn after_a_crash_an_event_of_a_file_that_has_grown_is_in_one_table_or_late() {
    const BEFORE: u64 = 150;
    const ALL: u64 = 250;
    let work = TempDir::new().unwrap();
    let path = work.path().join("a.csv");
    let text = CSV
        .replace("files = [\"a.csv\"]", &format!("files = [\"{}\"]", path.display()))
        .replace("[summary.all]", "[summary.whole]\nstream = \"v1\"\ncolumns = [{ name = \"events\", count = true }]\n[summary.all]")
        .replace("out = \"out\"\n", "out = \"out\"\ncheckpoints = \"cp\"\ncheckpoint-interval = \"1ms\"\n");
    let config = config(&text, Path::new(""));
    let runs = AtomicU64::new(0);
    let run = |disk: Arc<dyn Disk>| {
        let env = Env { disk, ..Env::simulated(runs.fetch_add(1, Ordering::Relaxed)) };
        Run::start(&config, &env, Arc::default())?.wait(&mut |_| {})
    };
    let faults: [fn(u64) -> Fault; 3] = [
        |operation| Fault::PowerCut { operation },
        |operation| Fault::Failure { operation },
        |write| Fault::Full { write },
    ];
    let first: String = numbered(BEFORE);
    // The last ones have the times of the first.
    let again = numbered(ALL - BEFORE);
    for fault in faults {
        for at in 0.. {
            fs::write(&path, &first).unwrap();
            let faulty = FaultyDisk::new(FaultPlan::from(fault(at)));
            let _ = run(Arc::new(faulty.clone()));
            let is_over = at >= faulty.operations();
            let disk: Arc<dyn Disk> = match fault(at) {
                Fault::PowerCut { .. } => Arc::new(faulty.after_power_cut(at)),
                _ => Arc::new(faulty.snapshot()),
            };
            fs::write(&path, [&first[..], &again].concat()).unwrap();
            let stats = run(disk.clone()).unwrap_or_else(|error| panic!("fault {at}: {error}"));
            let summaries = stats[0].summaries.iter().zip(&stats[0].stats.summaries);
            for (name, counts) in summaries.filter(|(name, _)| *name != "all") {
                assert_eq!(counts.events + counts.late, ALL, "{name}, {:?}", fault(at));
                assert_eq!(events_in_tables(&disk, name), counts.events, "{name}, {:?}", fault(at));
            }
            if is_over {
                break;
            }
        }
    }
}

/// Adds up the column `events` of all tables of a summary on a disk.
fn events_in_tables(disk: &Arc<dyn Disk>, summary: &str) -> u64 {
    let (env, folder) =
        (Env { disk: disk.clone(), ..Env::simulated(1) }, Path::new("out").join(summary));
    let options = ReadOptions::new().env(env);
    let names = disk.list(&folder).unwrap_or_default().into_iter();
    // A folder in which a crash came before the table has no manifest.
    let tables = names.filter_map(|name| Table::open_with(folder.join(name), &options).ok());
    let events = |row: String| {
        let row: serde_json::Value = serde_json::from_str(&row).unwrap();
        row["events"].as_u64().unwrap()
    };
    tables.flat_map(|table| rows_of(&table)).map(events).sum()
}

#[test]
fn events_come_over_tcp_until_the_run_stops() {
    let work = TempDir::new().unwrap();
    let text = CSV.replace(
        "files = [\"a.csv\"]",
        "listen = [\"127.0.0.1:0\"]\nframing = \"octets\"\nenvelope = \"syslog\"",
    );
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config(&text, work.path()), &Env::system(), stop.clone()).unwrap();
    let (_, address) = run.addresses()[0].clone();
    let mut senders: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    for i in 0..300 {
        let message = format!("<34>1 - h app - - - {},user{},x,{i},1", 10_000 + i, i % 5);
        let frame = match i % 2 {
            0 => format!("{} {message}", message.len()),
            _ => format!("{message}\n"),
        };
        senders[i % 3].write_all(frame.as_bytes()).unwrap();
    }
    // One vanishes in the middle of an event.
    senders[0].write_all(b"500 <34>1 - h").unwrap();
    drop(senders);
    let stats = run.wait(&mut |stats| {
        stop.store(stats[0].stats.totals.frames == 301, Ordering::Relaxed);
    });
    let stats = stats.unwrap();
    let totals = stats[0].stats.totals;
    assert_eq!((totals.events, totals.rejected), (300, 1));
    assert_eq!(rows(&work.path().join("out/users/1970-01-01T00-00-10Z")).len(), 5);
}

/// When the run is to stop, what has come is counted, also of connections that wait for a place, and an event without its
/// end is rejected.
#[test]
fn what_has_come_over_tcp_when_the_run_stops_is_counted() {
    for (framing, half) in [("lines", "12,user"), ("octets", "500 12,user")] {
        let work = TempDir::new().unwrap();
        let text = CSV.replace(
            "files = [\"a.csv\"]",
            &format!("listen = [\"127.0.0.1:0\"]\nclients = 1\nframing = \"{framing}\""),
        );
        let stop = Arc::<AtomicBool>::default();
        let run = Run::start(&config(&text, work.path()), &Env::system(), stop.clone()).unwrap();
        let (_, address) = run.addresses()[0].clone();
        let mut first = TcpStream::connect(address).unwrap();
        first.write_all(numbered(10).as_bytes()).unwrap();
        let mut waiting = Vec::new();
        let stats = run.wait(&mut |stats| {
            if stats[0].stats.totals.frames == 10 && waiting.is_empty() {
                for _ in 0..3 {
                    let mut sender = TcpStream::connect(address).unwrap();
                    sender.write_all((numbered(100) + half).as_bytes()).unwrap();
                    waiting.push(sender);
                }
                first.write_all(numbered(5).as_bytes()).unwrap();
                stop.store(true, Ordering::Relaxed);
            }
        });
        let stats = stats.unwrap().remove(0);
        let totals = stats.stats.totals;
        assert_eq!((totals.events, totals.rejected), (315, 3), "{framing}");
        assert_eq!((stats.connections, stats.failed_connections), (0, 0));
    }
}

/// The rest of an event that is too long is counted while it comes.
#[test]
fn a_length_that_lies_is_counted_while_its_event_comes() {
    let work = TempDir::new().unwrap();
    let text =
        CSV.replace("files = [\"a.csv\"]", "listen = [\"127.0.0.1:0\"]\nframing = \"octets\"");
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config(&text, work.path()), &Env::system(), stop.clone()).unwrap();
    let mut sender = TcpStream::connect(run.addresses()[0].1).unwrap();
    let sent = format!("9999999999 {}", "x".repeat(10_000));
    sender.write_all(sent.as_bytes()).unwrap();
    let stats = run.wait(&mut |stats| {
        let totals = stats[0].stats.totals;
        // Before the event ends, which it never does.
        let is_all = (totals.rejected, totals.bytes) == (1, sent.len() as u64);
        stop.store(is_all, Ordering::Relaxed);
    });
    assert_eq!(stats.unwrap()[0].stats.totals.frames, 1);
}

#[test]
fn the_system_looks_whether_a_silent_sender_is_still_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(!SockRef::from(&connection).keepalive().unwrap());
    tcp::prepare(&connection).unwrap();
    assert!(SockRef::from(&connection).keepalive().unwrap());
}

/// Reads the text format of Prometheus, strictly: the lines of a metric are together, behind its help and its type; names
/// of counters end with `_total`, those of gauges do not.
fn metrics(text: &str) -> BTreeMap<String, f64> {
    let (mut values, mut families, mut current) = (BTreeMap::new(), Vec::new(), "");
    let is_name = |name: &str| {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        name.starts_with("hashfold_summarize_") && name.bytes().all(is_part)
    };
    let mut lines = text.strip_suffix('\n').expect("the last line ends").split('\n').peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(is_name(name) && help.ends_with('.') && !families.contains(&name), "{line}");
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            assert_eq!(lines.next(), Some(&*format!("# TYPE {name} {kind}")));
            families.push(name);
            current = name;
            continue;
        }
        let (place, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = place.split_once('{').unwrap_or((place, "}"));
        assert_eq!(name, current, "{line}");
        for label in labels.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty())
        {
            let (name, value) = label.split_once('=').unwrap();
            let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase()), "{line}");
            assert!(!value.is_empty() && !value.contains(['"', '\\']), "{line}");
        }
        let before = values.insert(place.to_owned(), value.parse().unwrap());
        assert_eq!(before, None, "{line}");
    }
    values
}

/// Sends a request, and returns the status and the body of the answer.
fn request(address: SocketAddr, head: &str) -> (String, String) {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap().strip_prefix("HTTP/1.1 ").unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    assert!(body.is_empty() || length.parse() == Ok(body.len()), "{head}");
    (status.to_owned(), body.to_owned())
}

/// The figures on the port while events come, and those in the file at the end.
#[test]
fn figures_are_text_that_prometheus_reads() {
    let work = TempDir::new().unwrap();
    let text = CSV
        .replace("files = [\"a.csv\"]", "listen = [\"127.0.0.1:0\"]\nworkers = 2\nbatches = 7")
        .replace(
            "out = \"out\"\n",
            "out = \"out\"\nmemory = \"1MiB\"\nmetrics-file = \"m/run.prom\"\n\
             metrics-listen = \"127.0.0.1:0\"\n",
        );
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config(&text, work.path()), &Env::system(), stop.clone()).unwrap();
    let (_, events) = run.addresses()[0].clone();
    let address = run.metrics_address().unwrap();
    let file = || metrics(&fs::read_to_string(work.path().join("m/run.prom")).unwrap());
    assert_eq!(file()["hashfold_summarize_events_total{stream=\"v1\"}"], 0.0);
    let mut sender = TcpStream::connect(events).unwrap();
    sender.write_all((numbered(250) + "no event\n").as_bytes()).unwrap();
    let mut seen = None;
    let stats = run.wait(&mut |stats| {
        let figures = &stats[0].stats;
        let is_done = figures.summaries.iter().all(|summary| summary.events == 250);
        if is_done && figures.totals.frames == 251 {
            let (status, body) = request(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(status, "200 OK");
            seen = Some((metrics(&body), figures.clone()));
            stop.store(true, Ordering::Relaxed);
        }
    });
    let (seen, then) = seen.unwrap();
    let value = |name: &str, labels: &str| {
        seen[&format!("hashfold_summarize_{name}{{stream=\"v1\"{labels}}}")]
    };
    assert_eq!((value("events_total", ""), value("rejected_total", "")), (250.0, 1.0));
    assert_eq!((value("connections", ""), value("batches", "")), (1.0, 7.0));
    for (i, summary) in ["all", "users"].iter().enumerate() {
        let of = format!(",summary=\"{summary}\"");
        assert_eq!(value("summary_events_total", &of), 250.0);
        assert_eq!(value("open_groups", &of), then.summaries[i].open_groups as f64);
        assert_eq!(value("open_bytes", &of), then.summaries[i].open_bytes as f64);
        assert_eq!(value("worker_events_total", &format!(",worker=\"{i}\"")), 250.0);
        assert!(value("worker_busy_seconds_total", &format!(",worker=\"{i}\"")) > 0.0);
        let queue = format!(",queue=\"worker-{i}\"");
        assert!(value("queue_batches", &queue) <= 7.0 && value("queue_batches_mean", &queue) < 7.0);
    }
    assert_eq!(value("worker_imbalance", ",of=\"events\""), 1.0);
    assert!((1.0..=2.0).contains(&value("worker_imbalance", ",of=\"busy\"")));
    let whole = |name: &str| seen[&format!("hashfold_summarize_{name}")];
    assert_eq!(whole("memory_limit_bytes"), f64::from(1 << 20));
    let open: u64 = then.summaries.iter().map(|summary| summary.open_bytes).sum();
    assert!((open as f64..=f64::from(1 << 20)).contains(&whole("memory_reserved_bytes")));
    // At the end, all windows have been written.
    let stats = stats.unwrap();
    let end = file();
    let windows = end["hashfold_summarize_windows_total{stream=\"v1\",summary=\"users\"}"];
    assert_eq!(windows, stats[0].stats.summaries[1].windows as f64);
    assert_eq!(end["hashfold_summarize_open_bytes{stream=\"v1\",summary=\"users\"}"], 0.0);
    assert_eq!(end["hashfold_summarize_memory_reserved_bytes"], 0.0);
    assert!(!work.path().join("m/run.prom.new").exists());
}

#[test]
fn other_requests_for_figures_are_refused_and_hold_nothing_up() {
    let work = TempDir::new().unwrap();
    let text = CSV
        .replace("files = [\"a.csv\"]", "listen = [\"127.0.0.1:0\"]")
        .replace("out = \"out\"\n", "out = \"out\"\nmetrics-listen = \"127.0.0.1:0\"\n");
    let run = Run::start(&config(&text, work.path()), &Env::system(), Arc::default()).unwrap();
    let address = run.metrics_address().unwrap();
    let status = |head: &str| request(address, head).0;
    // One breaks off in the middle.
    let mut broken = TcpStream::connect(address).unwrap();
    broken.write_all(b"GET /met").unwrap();
    broken.shutdown(Shutdown::Both).unwrap();
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "404 Not Found");
    assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
    assert_eq!(status("nonsense\r\n\r\n"), "400 Bad Request");
    let (status, body) = request(address, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert_eq!((&*status, &*body), ("200 OK", ""));
    let taken =
        CSV.replace("out = \"out\"\n", &format!("out = \"out\"\nmetrics-listen = \"{address}\"\n"));
    fs::write(work.path().join("a.csv"), "").unwrap();
    let refused = run_all(&config(&taken, work.path())).unwrap_err().to_string();
    assert!(
        refused.contains(&address.to_string()) && refused.contains("cannot listen"),
        "{refused}"
    );
}

/// A disk on which no file can be created until it is opened.
#[derive(Debug, Default)]
struct Shut {
    disk: MemoryDisk,
    is_open: Mutex<bool>,
    opened: Condvar,
}

#[derive(Debug)]
struct Stalling(Arc<Shut>);

impl DiskLayer for Stalling {
    fn below(&self) -> &dyn Disk {
        &self.0.disk
    }

    fn over_created(&self, _: &Path, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        let is_open = self.0.is_open.lock().unwrap();
        drop(self.0.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        file
    }
}

/// A window cannot be written for a while: the sender is held up, behind the batches and what the system buffers, and
/// all events are counted in the end.
#[test]
fn a_sender_is_held_up_while_a_window_cannot_be_written() {
    const EVENTS: u64 = 60_000;
    const EVENT_BYTES: usize = 1000;
    // More than the batches, a buffer of the source, and those of the system for a connection.
    const HELD_BYTES_MAX: u64 = 32 << 20;
    let text = CSV.replace("files = [\"a.csv\"]", "listen = [\"127.0.0.1:0\"]\nbatches = 6");
    let stop = Arc::<AtomicBool>::default();
    let disk = Arc::<Shut>::default();
    let env = Env { disk: Arc::new(Stalling(disk.clone())), ..Env::system() };
    let run = Run::start(&config(&text, Path::new("")), &env, stop.clone()).unwrap();
    let (_, address) = run.addresses()[0].clone();
    let sent = Arc::<AtomicU64>::default();
    let counter = sent.clone();
    let sender = std::thread::spawn(move || {
        let mut connection = TcpStream::connect(address).unwrap();
        for i in 0..EVENTS {
            // The first windows end soon, the others with the run.
            let (time, user, rest) = (600 + i.min(2000), i % 5, "x".repeat(EVENT_BYTES));
            let event = format!("{time},user{user},{rest},{i},1\n");
            connection.write_all(event.as_bytes()).unwrap();
            counter.fetch_add(event.len() as u64, Ordering::Relaxed);
        }
    });
    let mut was_full = false;
    let stats = run.wait(&mut |stats| {
        let figures = &stats[0].stats;
        let held = sent.load(Ordering::Relaxed).saturating_sub(figures.totals.bytes);
        assert!(held < HELD_BYTES_MAX, "{held} bytes are between the sender and the windows");
        let queued = figures.parser_queue + figures.worker_queues[0];
        // One batch is with the worker that waits, and one may be with the source or the parser.
        if !was_full && queued + 2 >= 6 {
            was_full = true;
            assert!(!sender.is_finished());
            *disk.is_open.lock().unwrap() = true;
            disk.opened.notify_all();
        }
        stop.store(figures.totals.frames == EVENTS, Ordering::Relaxed);
    });
    sender.join().unwrap();
    let stats = &stats.unwrap()[0].stats;
    assert!(was_full);
    assert_eq!((stats.totals.events, stats.totals.rejected), (EVENTS, 0));
    assert!(stats.summaries.iter().all(|summary| summary.events == EVENTS), "{stats:?}");
}

/// With little memory, groups are refused and counted, and those that are there have all of their events.
#[test]
fn a_run_keeps_to_its_memory() {
    let work = TempDir::new().unwrap();
    let mut text = String::new();
    for i in 0..2000_u64 {
        writeln!(text, "1000,user{},x,{i},1", i % 100).unwrap();
    }
    fs::write(work.path().join("a.csv"), text).unwrap();
    let users = &CSV[..CSV.find("[summary.all]").unwrap()];
    let limited = users.replace("out = \"out\"\n", "out = \"out\"\nmemory = \"16KiB\"\n");
    let stats = run_all(&config(&limited, work.path())).unwrap();
    let users = stats[0].stats.summaries[0];
    assert_eq!(users.events + users.no_group, 2000);
    assert!((1..100).contains(&users.groups) && users.events == users.groups * 20, "{users:?}");
    let rows = rows(&work.path().join("out/users/1970-01-01T00-00-01Z"));
    assert_eq!(rows.len() as u64, users.groups);
    assert!(rows.iter().all(|row| row.contains("\"events\":20,")), "{rows:?}");
}

#[test]
fn mistakes_in_a_configuration_are_named() {
    let check = |from: &str, to: &str, word: &str| {
        let text = CSV.replacen(from, to, 1);
        assert!(text != CSV, "{from}");
        let error = Config::parse(&text, "c.toml", Path::new("")).unwrap_err().to_string();
        assert!(error.starts_with("c.toml: ") && error.contains(word), "{to}: {error}");
    };
    check("format = \"csv\"", "format = \"xml\"", "line 4");
    check("window = \"1s\"", "window = \"1 week\"", "line 15");
    check("window = \"1s\"", "window = \"0s\"", "length of a window");
    check("window = \"1s\"\n", "", "`lateness` needs `window`");
    check("group-by = [\"user\"]", "group-by = [\"usr\"]", "there is no field \"usr\"");
    check("group-by = [\"user\"]", "group-by = [\"weight\"]", "floats");
    check("stream = \"v1\"", "stream = \"v3\"", "there is no stream \"v3\"");
    check("[\"ts\", \"user\",", "[\"time\", \"user\",", "there is no column \"ts\"");
    check("sum = \"amount\"", "sum = \"user\"", "numbers");
    check("count = true }", "count = true, sum = \"amount\" }", "expected one of");
    check("distinct = \"user\"", "count = true, precision = 7", "`precision` is for `distinct`");
    check("files = [\"a.csv\"]\n", "", "expected `files` or `listen`");
    check("[summary.all]", "[summary.\"../all\"]", "expected a name");
    check("columns = [\"ts\"", "colums = [\"ts\"", "line 5");
    check("out = \"out\"", "out = \"out\"\nmemory = \"lots\"", "line 3");
    check("out = \"out\"", "out = \"out\"\nmetrics-listen = \"9100\"", "line 3");
    check("out = \"out\"", "out = \"out\"\nmemory = \"0B\"", "memory: expected 1B or more, got 0B");
    check(
        "out = \"out\"",
        "out = \"out\"\ncheckpoints = \"c\"\ncheckpoint-interval = \"0s\"",
        "checkpoint-interval: expected 1ms or more, got 0ms",
    );
    let stream = |line: &str, word: &str| {
        let files = "files = [\"a.csv\"]";
        check(files, &format!("{files}\n{line}"), &format!("stream \"v1\": {word}"));
    };
    stream("workers = 0", "workers: expected 1 to 1024, got 0");
    stream("workers = 2000", "workers: expected 1 to 1024, got 2000");
    stream("parsers = 0", "parsers: expected 1 to 1024, got 0");
    stream("batches = 0", "batches: expected 1 to 65536, got 0");
    stream("clients = 0", "clients: expected 1 or more, got 0");
    stream("event-max = \"65MiB\"", "event-max: expected 1B to 64MiB, got 68157440B");
    check(
        "[\"a.csv\"]",
        "[\"a.csv\", \"./a.csv\"]",
        "files: expected each once, got \"a.csv\" twice",
    );
    check(
        "[\"a.csv\"]",
        "[\"a.csv\", \"\"]",
        "stream \"v1\": files: expected names of files, got an empty one, number 2 of 2",
    );
    check("out = \"out\"", "out = \"\"", "out: expected a path, got an empty one");
    for setting in ["checkpoints", "rejected", "metrics-file"] {
        let line = format!("out = \"out\"\n{setting} = \"\"");
        check("out = \"out\"", &line, &format!("{setting}: expected a path, got an empty one"));
    }
    let summary = |from: &str, to: &str, word: &str| {
        check(from, to, &format!("summary \"users\": {word}"));
    };
    let by = "group-by = [\"user\"]";
    summary(
        by,
        "group-by = [\"user\", \"user\"]",
        "group-by: expected each once, got \"user\" twice",
    );
    summary(by, &format!("{by}\ngroups-max = 0"), "groups-max: expected 1 or more, got 0");
    let at_least = format!("{by}\nwhere = [{{ field = \"user\", at-least = 1 }}]");
    summary(
        by,
        &at_least,
        "where, field \"user\": `at-least` expected a field of numbers, got one of",
    );
    let twice = |name: &str| {
        let word = "names of the key and of columns: expected each once, got";
        format!("{word} \"{name}\" twice")
    };
    summary("name = \"least\"", "name = \"amount\"", &twice("amount"));
    summary("name = \"least\"", "name = \"user\"", &twice("user"));
    summary("[0.5, 0.999]", "[0.5, 0.5]", &twice("weight_p50"));
    summary("group-by = [\"user\"]", "group-by = [\"amount\"]", &twice("amount"));
    let text = CSV.replace("\"a.csv\"", "\"-\"").replace("out = ", "checkpoints = \"c\"\nout = ");
    let refused = Config::parse(&text, "c.toml", Path::new("")).unwrap_err().to_string();
    assert!(refused.contains("files and TCP, got one of standard input"), "{refused}");
}

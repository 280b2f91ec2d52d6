//! `hashfold summarize`: files, standard input and TCP to tables and stores.

use crate::support::Work;
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
};

const CONFIG: &str = r#"
out = "out"
rejected = "rejected"
[stream.clicks]
format = "csv"
columns = ["time", "user", "page", "ms"]
SOURCE
time = { from = "time", format = "rfc3339" }
[stream.clicks.fields]
user = { type = "text" }
page = { type = "text" }
ms = { type = "int" }
[summary.pages]
stream = "clicks"
group-by = ["page"]
window = "1h"
output = "store"
columns = [
  { name = "views", count = true },
  { name = "users", distinct = "user" },
  { name = "ms", sum = "ms" },
]
[summary.slow]
stream = "clicks"
where = [{ field = "ms", at-least = 100 }]
window = "1h"
columns = [{ name = "count", count = true }, { name = "pages", top = "page" }]
"#;

const EVENTS: &str = "\
2026-11-26T10:00:00Z,ann,/a,10
2026-11-26T10:30:00Z,ben,/a,120
2026-11-26T10:59:59Z,ann,\"/b,c\",130
no event
2026-11-26T11:00:00Z,ann,/a,7
2026-11-26T10:59:00Z,ann,/a,7
";

fn configured(source: &str) -> Work {
    let work = Work::new();
    work.write("summary.toml", CONFIG.replace("SOURCE", source));
    work
}

#[track_caller]
fn check_results(work: &Work) {
    let first = work.ok("get out/pages --version 1 /a /b,c").text().to_owned();
    assert_eq!(
        first,
        "{\"page\":\"/a\",\"views\":2,\"users\":2,\"ms\":130}\n\
         {\"page\":\"/b,c\",\"views\":1,\"users\":1,\"ms\":130}\n"
    );
    let current = work.ok("get out/pages /a");
    assert_eq!(current.text(), "{\"page\":\"/a\",\"views\":1,\"users\":1,\"ms\":7}\n");
    let slow = work.ok("scan out/slow/2026-11-26T10-00-00Z --format csv");
    assert!(slow.text().starts_with("group,count,pages\nall,2,"), "{slow:?}");
    let rejected = std::fs::read_to_string(work.path("rejected/clicks.jsonl")).unwrap();
    assert!(rejected.ends_with(",\"frame\":\"no event\"}\n"), "{rejected}");
}

#[test]
fn files_become_windows_that_get_and_scan_read() {
    let work = configured("files = [\"events.csv\"]");
    work.write("events.csv", EVENTS);
    assert_eq!(
        work.ok("summarize summary.toml --check").text(),
        "checked: 1 stream and 2 summaries, no problem\n"
    );
    let outcome = work.ok("summarize summary.toml");
    assert_eq!(
        outcome.text(),
        "clicks: 5 events, 1 rejected\n  \
           pages: 4 events in 3 groups of 2 windows, 1 late\n  \
           slow: 2 events in 1 group of 1 window\n"
    );
    check_results(&work);
}

#[test]
fn standard_input_is_a_source() {
    let work = configured("files = [\"-\"]");
    let outcome = work.feed("summarize summary.toml --json", EVENTS.as_bytes());
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let json: Value = serde_json::from_str(outcome.text()).unwrap();
    assert_eq!((&json["events"], &json["rejected"]), (&5.into(), &1.into()));
    assert_eq!(json["summaries"][0]["late"], 1);
    check_results(&work);
}

#[test]
fn a_configuration_that_is_wrong_is_refused_with_its_line() {
    let work = configured("file = \"events.csv\"");
    let outcome = work.run("summarize summary.toml");
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(
        outcome.stderr.contains("summary.toml: ") && outcome.stderr.contains("line 7"),
        "{outcome:?}"
    );
    assert_eq!(work.run("summarize none.toml").code, 5);
    let work = configured("files = [\"none.csv\"]");
    let outcome = work.run("summarize summary.toml");
    assert_eq!(outcome.code, 5, "{outcome:?}");
    assert!(outcome.stderr.contains("none.csv: cannot open"), "{outcome:?}");
}

/// The command is killed and stopped while events come over TCP; a checkpoint keeps what it had.
#[test]
fn a_stream_over_tcp_ends_with_a_signal_and_continues_from_its_checkpoint() {
    let work = configured("listen = [\"127.0.0.1:0\"]");
    let text = std::fs::read_to_string(work.path("summary.toml")).unwrap();
    work.write(
        "summary.toml",
        format!("checkpoints = \"state\"\ncheckpoint-interval = \"1ms\"\n{text}"),
    );
    let (first, second) = EVENTS.split_at(EVENTS.find("no event").unwrap());
    for (part, frames, end) in [(first, 3, "KILL"), (second, 6, "TERM")] {
        let mut command = work.command("summarize summary.toml --json --progress");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next =
            || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
        let mut line = next();
        if end == "TERM" {
            assert_eq!((&line["event"], &line["frames"]), (&"continues".into(), &3.into()));
            assert_eq!(line["open_since"], "2026-11-26T10:00:00Z");
            line = next();
        }
        assert_eq!(line["event"], "listening");
        let mut sender = TcpStream::connect(line["address"].as_str().unwrap()).unwrap();
        sender.write_all(part.as_bytes()).unwrap();
        // The first line of progress that has all frames comes before a checkpoint that has them is overdue.
        while next()["frames"] != frames {}
        if end == "KILL" {
            next();
        }
        let signal = format!("-{end}");
        assert!(
            Command::new("kill")
                .args([&signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        let status = child.wait().unwrap();
        assert_eq!(status.success(), end == "TERM");
    }
    // The windows that are still open end when the sources do.
    let text = std::fs::read_to_string(work.path("summary.toml")).unwrap();
    work.write(
        "summary.toml",
        text.replace("listen = [\"127.0.0.1:0\"]", "files = [\"empty.csv\"]"),
    );
    work.write("empty.csv", "");
    let outcome = work.ok("summarize summary.toml");
    assert!(
        outcome.text().contains("pages: 4 events in 3 groups of 2 windows, 1 late\n"),
        "{outcome:?}"
    );
    check_results(&work);
}

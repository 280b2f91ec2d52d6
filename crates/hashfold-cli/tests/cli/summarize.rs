//! `hashfold summarize`: files, standard input and TCP to tables and stores.

use crate::support::Work;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
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

/// The chains of users, whose credits are tables and whose dumps are versions of a store.
const CHAINS: &str = r#"
[chains.visits]
stream = "clicks"
user = "user"
channel = ["page"]
touch = [{ field = "ms", at-least = 20 }]
conversion = [{ field = "page", in = ["/3"] }]
value = "ms"
age = "2h"
touches-max = 20
models = ["last-touch", "linear"]
dump = "4h"
[summary.credits]
chains = "visits"
group-by = ["model", "page"]
window = "1h"
columns = [{ name = "conversions", sum = "credit" }, { name = "ms", sum = "credit_value" }]
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
    let rejected = fs::read_to_string(work.path("rejected/clicks.jsonl")).unwrap();
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

/// A group of integers can be null, which no format of `scan` takes for damage, and `build` reads.
#[test]
fn groups_of_an_integer_are_scanned_in_every_format() {
    let work = Work::new();
    let text = CONFIG.replace("SOURCE", "files = [\"events.csv\"]");
    let text = text.replace("group-by = [\"page\"]", "group-by = [\"ms\"]");
    let text = text.replace("{ name = \"ms\", sum = \"ms\" }", "{ name = \"sum\", sum = \"ms\" }");
    work.write("summary.toml", text);
    work.write("events.csv", "2026-11-26T10:00:00Z,ann,/a,10\n2026-11-26T10:00:00Z,ann,/a,\n");
    work.ok("summarize summary.toml");
    for format in ["json", "csv"] {
        assert!(work.ok(&format!("scan out/pages --format {format}")).text().lines().count() >= 2);
    }
    for (format, key) in [("raw", ""), ("arrow", "--key group"), ("parquet", "--key group")] {
        let scanned = work.ok(&format!("scan out/pages --format {format}"));
        work.write(&format!("a.{format}"), &scanned.stdout);
        work.ok(&format!("build a.{format} {key} --out {format}"));
        let row = work.ok(&format!("get {format} 10"));
        assert!(row.text().starts_with("{\"group\":\"10\",\"ms\":10,"), "{format}: {row:?}");
    }
    let versions = work.ok("versions out/pages --json");
    let json: Value = serde_json::from_str(versions.text()).unwrap();
    let notes = &json["provenance"];
    assert_eq!(notes["summary"][0], "pages");
    assert_eq!(
        (&notes["start"][0], &notes["end"][0]),
        (&"2026-11-26T10:00:00Z".into(), &"2026-11-26T11:00:00Z".into(),)
    );
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

/// `--check` finds a file where a folder is to be, and writes nothing.
#[test]
fn a_check_looks_at_files_and_folders() {
    let work = configured("files = [\"events.csv\"]");
    work.write("out", "mine");
    let outcome = work.run("summarize summary.toml --check");
    assert_eq!((outcome.code, outcome.text()), (2, ""), "{outcome:?}");
    assert!(
        outcome.stderr.contains("out: ") && outcome.stderr.contains("got a file"),
        "{outcome:?}"
    );
    assert_eq!(fs::read_to_string(work.path("out")).unwrap(), "mine");
}

/// A file that is not there is reported at once, the other one is read to its end, and the exit code says it then.
#[test]
fn a_file_that_cannot_be_read_fails_the_command_at_its_end() {
    let work = configured("files = [\"none.csv\", \"events.csv\"]");
    work.write("events.csv", EVENTS);
    let outcome = work.run("summarize summary.toml");
    assert_eq!(outcome.code, 5, "{outcome:?}");
    assert!(outcome.text().starts_with("clicks: 5 events, 1 rejected\n"), "{outcome:?}");
    let (report, failure) = outcome.stderr.trim_end().split_once('\n').unwrap();
    assert!(report.starts_with("clicks: none.csv: cannot open: "), "{outcome:?}");
    assert!(report.ends_with("; other sources go on"), "{outcome:?}");
    assert!(failure.contains("none.csv: cannot open: "), "{outcome:?}");
    check_results(&work);
    let outcome = work.run("summarize summary.toml --json");
    let lines = outcome.text().lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!((outcome.code, &events[..]), (5, &["source_failed", "summarized"][..]));
}

/// A file that was rotated between two runs is read from its beginning, and the command says so.
#[test]
fn a_rotated_file_is_named() {
    let work = configured("files = [\"events.csv\"]");
    let text = fs::read_to_string(work.path("summary.toml")).unwrap();
    work.write("summary.toml", format!("checkpoints = \"state\"\n{text}"));
    work.write("events.csv", EVENTS);
    assert_eq!(work.ok("summarize summary.toml").stderr, "");
    let later = "2026-11-27T10:00:00Z,dan,/a,1\n".repeat(20);
    work.write("events.csv", &later);
    let outcome = work.ok("summarize summary.toml");
    assert!(
        outcome
            .stderr
            .starts_with("clicks: events.csv is another file than that of the checkpoint"),
        "{outcome:?}"
    );
    assert!(outcome.text().contains("clicks: 25 events, 1 rejected\n"), "{outcome:?}");
    work.write("events.csv", "");
    let outcome = work.ok("summarize summary.toml --json");
    assert!(outcome.text().contains("\"event\":\"replaced\""), "{outcome:?}");
}

/// Checks a line of progress of one worker, which took some events into its two summaries since it started.
#[track_caller]
fn check_progress(line: &Value, events: u64) {
    assert_eq!(line["worker_events"], Value::from(vec![events]), "{line}");
    assert_eq!((&line["event_imbalance"], &line["busy_imbalance"]), (&1.0.into(), &1.0.into()));
    assert_eq!((&line["parser_queue"], &line["worker_queues"][0]), (&0.into(), &0.into()));
    for number in [
        &line["parser_queue_mean"],
        &line["worker_queue_means"][0],
        &line["worker_busy_s"][0],
        &line["queue_max"],
        &line["open_bytes"],
    ] {
        assert!(number.is_number(), "{line}");
    }
    assert!(line["open_bytes"].as_u64() > Some(100) && line["open_groups"].as_u64() > Some(0));
}

/// Nobody reads what a run says, and it has something to say at its start: it reads its files all the same.
#[test]
fn a_closed_pipe_does_not_end_a_run() {
    let work = configured("files = [\"events.csv\"]");
    let text = fs::read_to_string(work.path("summary.toml")).unwrap();
    work.write("summary.toml", format!("checkpoints = \"state\"\n{text}"));
    work.write("events.csv", "");
    work.ok("summarize summary.toml");
    work.write("events.csv", EVENTS);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = work.command("summarize summary.toml").stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
    check_results(&work);
}

/// The command is killed and stopped while events come over TCP; a checkpoint keeps what it had.
#[test]
fn a_stream_over_tcp_ends_with_a_signal_and_continues_from_its_checkpoint() {
    let work = configured("listen = [\"127.0.0.1:0\"]");
    let text = fs::read_to_string(work.path("summary.toml")).unwrap();
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
        let progress = loop {
            let line = next();
            if line["frames"] == frames {
                break line;
            }
        };
        check_progress(&progress, if end == "KILL" { 5 } else { 2 });
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
    let text = fs::read_to_string(work.path("summary.toml")).unwrap();
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

/// A place that cannot be used is an error of the configuration, which is found before an event is read.
#[test]
fn a_file_in_the_way_of_results_is_named_with_its_setting() {
    let work = configured("files = [\"events.csv\"]");
    work.write("events.csv", EVENTS);
    fs::create_dir(work.path("out")).unwrap();
    work.write("out/pages", "mine");
    let outcome = work.run("summarize summary.toml");
    assert_eq!((outcome.code, outcome.text()), (2, ""), "{outcome:?}");
    let message = "summary.toml: out, summary \"pages\": out/pages: expected a folder, got a file: move it away, or choose \
                   another path";
    assert!(outcome.stderr.contains(message), "{outcome:?}");
    assert!(!work.path("rejected").exists());
}

/// A run that continues says that a pipe, unlike a file, is not read again.
#[test]
fn a_run_that_continues_says_what_is_missing() {
    let work = configured("files = [\"events.csv\"]");
    let text = fs::read_to_string(work.path("summary.toml")).unwrap();
    let text = format!("checkpoints = \"state\"\n{text}");
    work.write("summary.toml", &text);
    work.write("events.csv", EVENTS);
    work.ok("summarize summary.toml");
    let expected = "clicks: continues from its checkpoint behind 6 frames; no window is open";
    let first_line = |outcome: &str| outcome.lines().next().unwrap().to_owned();
    assert_eq!(first_line(work.ok("summarize summary.toml").text()), expected);
    work.write("summary.toml", text.replace("[\"events.csv\"]", "[\"events.csv\", \"pipe\"]"));
    let pipe = work.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = work.command("summarize summary.toml").stdout(Stdio::piped()).spawn().unwrap();
    drop(fs::File::options().write(true).open(&pipe).unwrap());
    let outcome = child.wait_with_output().unwrap();
    let expected = format!(
        "{expected}; if the last run was killed, what it read through a pipe after that checkpoint is lost"
    );
    assert_eq!(first_line(&String::from_utf8(outcome.stdout).unwrap()), expected);
}

/// Starts the command, and kills it when its checkpoint has changed so many times. Returns whether it was killed before
/// it ended.
fn is_killed(work: &Work, checkpoints: u32) -> bool {
    let mut child = work.command("summarize summary.toml").stdout(Stdio::null()).spawn().unwrap();
    let file = |path: &Path| fs::metadata(path).ok().map(|file| file.ino());
    let path = work.path("state/clicks.checkpoint");
    let (mut before, mut seen) = (file(&path), 0);
    while seen < checkpoints {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return false;
        }
        let now = file(&path);
        seen += u32::from(now.is_some() && now != before);
        before = now.or(before);
        thread::yield_now();
    }
    kill(&mut child)
}

/// Kills a process with a signal that it cannot catch. Returns whether it had not ended before.
fn kill(child: &mut Child) -> bool {
    child.kill().unwrap();
    !child.wait().unwrap().success()
}

/// Returns the rows of all tables of `slow` and `credits`, and those of the current versions of `pages` and `visits`.
fn all_results(work: &Work) -> BTreeMap<String, Vec<String>> {
    let rows = |name: &str| {
        let outcome = work.ok(&format!("scan out/{name} --format csv"));
        let mut rows: Vec<String> = outcome.text().lines().map(str::to_owned).collect();
        rows.sort_unstable();
        (name.to_owned(), rows)
    };
    let mut results = BTreeMap::from(["pages", "visits"].map(rows));
    for folder in ["slow", "credits"] {
        for entry in fs::read_dir(work.path("out").join(folder)).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            results.extend([rows(&format!("{folder}/{name}"))]);
        }
    }
    results
}

/// A run over a file that is killed again and again, at moments that differ from run to run, has all events once.
/// `HASHFOLD_KILL_ROUNDS` is the number of kills, at most.
#[test]
fn a_run_over_files_that_is_killed_has_all_events_once() {
    let rounds = env::var("HASHFOLD_KILL_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap());
    let mut events = String::new();
    for i in 0..40_000_u64 {
        let (hour, rest) = (i / 4000, i % 4000 * 9 / 10);
        let (minute, second) = (rest / 60, rest % 60);
        let (user, page, ms) = (i * i % 97, i * 7 % 31, i * 13 % 150);
        writeln!(events, "2026-11-26T{hour:02}:{minute:02}:{second:02}Z,u{user},/{page},{ms}")
            .unwrap();
    }
    let configured = |settings: &str| {
        let work = configured("files = [\"events.csv\"]");
        let text = fs::read_to_string(work.path("summary.toml")).unwrap();
        work.write("summary.toml", format!("{settings}{text}{CHAINS}"));
        work.write("events.csv", &events);
        work
    };
    let whole = configured("");
    whole.ok("summarize summary.toml");
    let work = configured("checkpoints = \"state\"\ncheckpoint-interval = \"1ms\"\n");
    let kills = (0..rounds).take_while(|round| is_killed(&work, round % 4)).count();
    let outcome = work.ok("summarize summary.toml");
    assert!(outcome.text().contains("clicks: 40,000 events\n"), "{kills} kills: {outcome:?}");
    assert!(outcome.text().contains("pages: 40,000 events in 310 groups of 10 windows\n"));
    let results = all_results(&whole);
    assert!(results.len() > 20 && results["visits"].len() > 40, "{:?}", results.keys());
    assert_eq!(all_results(&work), results, "{kills} kills");
}

//! `hashfold bench pipeline`: events from a file and over TCP, as CSV of about 100 bytes and as JSON of 927, to windows.

use super::{
    PipelineBench, ensure,
    measure::{Report, process_seconds, wall_seconds},
    pairs::remove_all,
    random::pick,
};
use crate::{
    failure::{Failure, Result},
    summarize::failure,
};
use hashfold::{
    Env,
    io::{Disk, OsDisk},
};
use hashfold_summarize::{Config, Run, StreamStats};
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    net::TcpStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Events in a window, which is a minute.
const EVENTS_A_WINDOW: u64 = 500_000;
/// Milliseconds of a window.
const WINDOW_MS: u64 = 60_000;
const USERS: u64 = 20_000;
const PAGES: u64 = 500;
/// Size of a JSON event with its line end, in bytes: that of the nested events in the literature.
const JSON_BYTES: usize = 927;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Pseudorandom numbers.
struct Random {
    seed: u64,
    next: u64,
}

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.next += 1;
        pick(self.next, self.seed, end)
    }
}

/// A format that is measured.
struct Kind {
    name: &'static str,
    config: &'static str,
    event: fn(u64, &mut Random, &mut String),
}

const V1: Kind = Kind {
    name: "v1",
    config: "format = \"csv\"\ncolumns = [\"time\", \"user\", \"page\", \"ms\", \"agent\"]\n\
             [stream.s.fields]\nuser = { type = \"text\" }\npage = { type = \"text\" }\nms = { type = \"int\" }\n",
    event: csv_event,
};

const V2: Kind = Kind {
    name: "v2",
    config: "format = \"json\"\n[stream.s.fields]\nuser = { from = \"user.id\", type = \"text\" }\n\
             page = { from = \"request.page\", type = \"text\" }\nms = { from = \"request.ms\", type = \"int\" }\n",
    event: json_event,
};

const SUMMARIES: &str = r#"
[summary.pages]
stream = "s"
group-by = ["page"]
window = "1m"
columns = [{ name = "n", count = true }, { name = "ms", sum = "ms" }, { name = "users", distinct = "user", precision = 11 }]
[summary.users]
stream = "s"
group-by = ["user"]
window = "1m"
columns = [{ name = "n", count = true }, { name = "ms", sum = "ms" }]
"#;

fn csv_event(time_ms: u64, random: &mut Random, out: &mut String) {
    let (user, page, ms) = values(random);
    writeln!(
        out,
        "{time_ms},user{user},/page/{page},{ms},Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firef"
    )
    .expect("a text takes all");
}

fn json_event(time_ms: u64, random: &mut Random, out: &mut String) {
    let (user, page, ms) = values(random);
    let start = out.len();
    write!(
        out,
        "{{\"time\":{time_ms},\"user\":{{\"id\":\"user{user}\",\"segments\":[1,5,9],\"home\":{{\"city\":\"Oslo\"}}}},\
         \"request\":{{\"page\":\"/page/{page}\",\"ms\":{ms},\"headers\":{{\"agent\":\"Mozilla\"}}}},\"parts\":["
    )
    .expect("a text takes all");
    const TAIL: &str = "\"\"]}\n";
    while out.len() - start < JSON_BYTES - 60 {
        out.push_str("{\"id\":4711,\"price\":19.5,\"name\":\"a thing\"},");
    }
    out.push('"');
    let padding = JSON_BYTES - (out.len() - start) - (TAIL.len() - 1);
    out.extend(std::iter::repeat_n('x', padding));
    out.push_str(&TAIL[1..]);
}

/// Returns user, page and milliseconds; small numbers of users and pages are more frequent.
fn values(random: &mut Random) -> (u64, u64, u64) {
    let mut skewed = |end: u64| random.below(end) * random.below(end) / end;
    let (user, page) = (skewed(USERS), skewed(PAGES));
    (user, page, random.below(1000))
}

pub(super) fn run(bench: &PipelineBench, report: &Report) -> Result<()> {
    let folder = bench.dir.join("pipeline");
    OsDisk.create_folder(&folder)?;
    let done = [V1, V2].iter().try_for_each(|kind| measure(bench, report, kind, &folder));
    let removed = remove_all(&folder);
    // The folder stays if it existed before and is not empty.
    let _ = OsDisk.remove_folder(&bench.dir);
    done.and(removed)
}

fn measure(bench: &PipelineBench, report: &Report, kind: &Kind, folder: &Path) -> Result<()> {
    let mut random = Random { seed: bench.seed, next: 0 };
    let path = folder.join(format!("{}.events", kind.name));
    let failed = |error| Failure::io(path.display(), "write", &error);
    let mut file = fs::File::create(&path).map_err(failed)?;
    let (mut bytes, mut text) = (0, String::new());
    for i in 0..bench.events {
        (kind.event)(1_700_000_000_000 + i * WINDOW_MS / EVENTS_A_WINDOW, &mut random, &mut text);
        if text.len() > WRITE_BYTES || i + 1 == bench.events {
            file.write_all(text.as_bytes()).map_err(failed)?;
            bytes += text.len() as u64;
            text.clear();
        }
    }
    drop(file);
    let source = format!("files = [\"{}.events\"]", kind.name);
    let config = config(bench, kind, folder, &source)?;
    let run = Run::start(&config, &Env::system(), Arc::default()).map_err(failure)?;
    let cpu = process_seconds();
    let (seconds, stats) = wall_seconds(|| run.wait(&mut |_| {}));
    add(bench, report, &format!("{}.file", kind.name), (seconds, process_seconds() - cpu), bytes);
    check(bench, &stats.map_err(failure)?)?;

    let config = config_of_tcp(bench, kind, folder)?;
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config, &Env::system(), stop.clone()).map_err(failure)?;
    let (_, address) = run.addresses()[0];
    let mut file = fs::File::open(&path).map_err(failed)?;
    let cpu = process_seconds();
    let (seconds, stats) = wall_seconds(|| {
        let sender = thread::spawn(move || {
            let mut connection = TcpStream::connect(address)?;
            std::io::copy(&mut file, &mut connection)
        });
        let events = bench.events;
        let stats = run.wait(&mut |stats| {
            stop.store(stats[0].stats.totals.frames >= events, Ordering::Relaxed);
        });
        sender.join().expect("the sender does not panic").map(|_| stats)
    });
    add(bench, report, &format!("{}.tcp", kind.name), (seconds, process_seconds() - cpu), bytes);
    let stats = stats.map_err(|error| Failure::io("a connection", "write", &error))?;
    check(bench, &stats.map_err(failure)?)
}

fn config_of_tcp(bench: &PipelineBench, kind: &Kind, folder: &Path) -> Result<Config> {
    config(bench, kind, folder, "listen = [\"127.0.0.1:0\"]")
}

fn config(bench: &PipelineBench, kind: &Kind, folder: &Path, source: &str) -> Result<Config> {
    let text = format!(
        "out = \"out\"\n[stream.s]\nparsers = {}\nworkers = {}\n{source}\n\
         time = {{ from = \"time\", format = \"ms\" }}\n{}{SUMMARIES}",
        bench.parsers, bench.workers, kind.config
    );
    Config::parse(&text, "bench", folder).map_err(failure)
}

fn add(bench: &PipelineBench, report: &Report, name: &str, (wall, cpu): (f64, f64), bytes: u64) {
    let events = bench.events as f64;
    report.add(
        &format!("pipeline.{name}.events_per_s"),
        events / wall,
        "events/s",
        bench.events,
        bytes,
    );
    report.add(
        &format!("pipeline.{name}.cpu"),
        cpu * 1e9 / events,
        "ns/event",
        bench.events,
        bytes,
    );
}

/// Each event is in both summaries, and each window has ended.
fn check(bench: &PipelineBench, stats: &[StreamStats]) -> Result<()> {
    let windows = bench.events.div_ceil(EVENTS_A_WINDOW);
    let is_right = |stats: &StreamStats| {
        let mut summaries = stats.stats.summaries.iter();
        let all = summaries.all(|summary| {
            summary.events == bench.events && summary.windows.abs_diff(windows) <= 1
        });
        all && stats.stats.totals.events == bench.events
    };
    ensure(stats.iter().all(is_right), || {
        format!("the summaries of {} events are wrong: {stats:?}", bench.events)
    })
}

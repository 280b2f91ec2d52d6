//! `hashfold bench pipeline`: events of about 100 bytes as CSV (v1) and of 927 bytes as JSON (v2), to windows.
//!
//! A sender on the same machine sends as fast as it can, for a time that is chosen: first to a reader that throws all
//! away, which is the rate that the sender itself can reach, then to summaries with each number of workers. The counts
//! of all groups in all windows are compared with those of the sender before a rate is printed. Last, rsyslogd is the
//! sender, if it is installed.

mod check;
mod events;
mod rsyslog;
mod stalled;

use self::events::{Block, Kind, Sent, V1, V2};
use super::{
    PipelineBench, in_folder,
    measure::{Report, process_seconds, thread_seconds, wall_seconds},
    pairs::remove_all,
};
use crate::{
    failure::{Failure, Result},
    summarize::failure,
};
use hashfold::Env;
use hashfold_summarize::{Config, Run};
use std::{
    fs,
    io::{self, Read as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

/// Events in a block, and blocks in a window, which is a minute: half a million events.
const BLOCK_EVENTS: u64 = 50_000;
const BLOCKS_A_WINDOW: u64 = 10;
/// Bytes that the reader that throws all away reads at once, as many as a summary does.
const READ_BYTES: usize = 64 << 10;

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

pub(super) fn run(bench: &PipelineBench, report: &Report) -> Result<()> {
    in_folder(&bench.dir, "pipeline", |folder| {
        [V1, V2].iter().try_for_each(|kind| measure(bench, report, kind, folder))
    })
}

fn measure(bench: &PipelineBench, report: &Report, kind: &Kind, folder: &Path) -> Result<()> {
    let mut block = Block::new(kind, BLOCK_EVENTS.min(bench.events), bench.seed);
    from_file(bench, report, kind, &mut block, folder)?;
    let (seconds, sent, returned) = to_reader(bench, block)?;
    block = returned;
    let rate = sent.events as f64 / seconds;
    let name = format!("pipeline.{}.sender.events_per_s", kind.name);
    report.add(&name, rate, "events/s", sent.events, sent.bytes);
    for workers in &bench.workers {
        block = over_tcp(bench, report, kind, block, (*workers, folder))?;
    }
    if !rsyslog::measure(bench, report, kind, &mut block, folder)? {
        eprintln!("skipped: {} events that rsyslogd sends, which is not installed", kind.name);
    }
    stalled::measure(bench, report, kind, block, folder)
}

/// Measures events in a file, with the first number of workers.
fn from_file(
    bench: &PipelineBench,
    report: &Report,
    kind: &Kind,
    block: &mut Block,
    folder: &Path,
) -> Result<()> {
    let path = folder.join(format!("{}.events", kind.name));
    let failed = |error| Failure::io(path.display(), "write", &error);
    let mut file = fs::File::create(&path).map_err(failed)?;
    let sent = block
        .send(&mut file, BLOCKS_A_WINDOW, &mut |sent| sent.events < bench.events)
        .map_err(failed)?;
    drop(file);
    let source = format!("files = [\"{}.events\"]", kind.name);
    let config = config(bench, kind, folder, (bench.workers[0], &source))?;
    let run =
        Run::start(&config, &Env::system(), Arc::default()).map_err(|error| failure(&error))?;
    let cpu = process_seconds();
    let (seconds, stats) = wall_seconds(|| run.wait(&mut |_| {}));
    let cpu = process_seconds() - cpu;
    check::check(folder, &stats.map_err(|error| failure(&error))?, block, &sent)?;
    add(report, &format!("{}.file", kind.name), (seconds, cpu), &sent);
    remove_all(&folder.join("out"))?;
    fs::remove_file(&path).map_err(|error| Failure::io(path.display(), "remove", &error))
}

/// A thread that sends blocks, and returns what it sent, its CPU time in seconds, and the block.
type Sender = thread::JoinHandle<io::Result<(Sent, f64, Block)>>;

/// Starts a thread that sends blocks to an address. When it ends, `all` is the number of events that it sent, or 0
/// after an error.
fn spawn_sender(
    bench: &PipelineBench,
    mut block: Block,
    to: SocketAddr,
    all: &Arc<AtomicU64>,
) -> Sender {
    let (time, all) = (bench.time, all.clone());
    thread::spawn(move || {
        let start = Instant::now();
        let sent = TcpStream::connect(to).and_then(|mut connection| {
            block.send(&mut connection, BLOCKS_A_WINDOW, &mut |_| start.elapsed() < time)
        });
        all.store(sent.as_ref().map_or(0, |sent| sent.events), Ordering::Relaxed);
        Ok((sent?, thread_seconds(), block))
    })
}

fn join(sender: Sender) -> Result<(Sent, f64, Block)> {
    let sent = sender.join().expect("the sender does not panic");
    sent.map_err(|error| Failure::io("a connection", "write", &error))
}

/// Sends events to a reader that throws them away. Returns the seconds until it has read all.
fn to_reader(bench: &PipelineBench, block: Block) -> Result<(f64, Sent, Block)> {
    let failed = |error| Failure::io("a connection", "read", &error);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let read_all = || {
        let (mut connection, _) = listener.accept()?;
        let mut buffer = vec![0; READ_BYTES];
        while connection.read(&mut buffer)? > 0 {}
        io::Result::Ok(())
    };
    let (seconds, (read, sent)) = wall_seconds(|| {
        let sender = spawn_sender(bench, block, address, &Arc::default());
        (read_all(), join(sender))
    });
    read.map_err(failed)?;
    let (sent, _, block) = sent?;
    Ok((seconds, sent, block))
}

/// Measures events over TCP; the CPU time of the sender does not count.
fn over_tcp(
    bench: &PipelineBench,
    report: &Report,
    kind: &Kind,
    block: Block,
    (workers, folder): (usize, &Path),
) -> Result<Block> {
    let config = config(bench, kind, folder, (workers, LISTEN))?;
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config, &Env::system(), stop.clone()).map_err(|error| failure(&error))?;
    let (_, address) = run.addresses()[0];
    let all = Arc::new(AtomicU64::new(u64::MAX));
    let cpu = process_seconds();
    let (seconds, (stats, sent)) = wall_seconds(|| {
        let sender = spawn_sender(bench, block, address, &all);
        let stats = run.wait(&mut |stats| {
            let is_done = stats[0].stats.totals.frames >= all.load(Ordering::Relaxed);
            stop.store(is_done, Ordering::Relaxed);
        });
        (stats, join(sender))
    });
    let cpu = process_seconds() - cpu;
    let (sent, cpu_of_sender, block) = sent?;
    check::check(folder, &stats.map_err(|error| failure(&error))?, &block, &sent)?;
    let name = match workers {
        1 => kind.name.to_owned(),
        _ => format!("{}.workers{workers}", kind.name),
    };
    add(report, &name, (seconds, cpu - cpu_of_sender), &sent);
    remove_all(&folder.join("out"))?;
    Ok(block)
}

const LISTEN: &str = "listen = [\"127.0.0.1:0\"]";

fn config(
    bench: &PipelineBench,
    kind: &Kind,
    folder: &Path,
    (workers, source): (usize, &str),
) -> Result<Config> {
    let text = format!(
        "out = \"out\"\n[stream.s]\nparsers = {}\nworkers = {workers}\n{source}\n\
         time = {{ from = \"time\", format = \"ms\" }}\n{}{SUMMARIES}",
        bench.parsers, kind.config
    );
    Config::parse(&text, "bench", folder).map_err(|error| failure(&error))
}

fn add(report: &Report, name: &str, (wall, cpu): (f64, f64), sent: &Sent) {
    let (events, bytes) = (sent.events, sent.bytes);
    let rate = events as f64 / wall;
    report.add(&format!("pipeline.{name}.events_per_s"), rate, "events/s", events, bytes);
    let cpu = cpu * 1e9 / events as f64;
    report.add(&format!("pipeline.{name}.cpu"), cpu, "ns/event", events, bytes);
}

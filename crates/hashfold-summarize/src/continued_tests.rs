//! Runs that continue one another, and what happens between them: crashes, other runs, full disks, and locks.

use crate::{
    Config, Report, Run, StreamStats,
    source::Source,
    tests::{CSV, JSON, config, numbered, reports, run_all, stream, tables},
};
use hashfold::{
    Env, Error, ErrorClass, Result, Store,
    pipeline::{Events, Parser, Pipeline, PipelineOptions},
    store::StoreWriter,
    work::{Clock, Signal, SystemClock},
};
use std::{
    fmt,
    fs::{self, File},
    io::Write as _,
    net::TcpStream,
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

/// The configuration with other lines before its first table.
fn with(lines: &str) -> String {
    CSV.replace("out = \"out\"\n", &format!("out = \"out\"\n{lines}\n"))
}

/// The configuration with checkpoints and TCP in place of files.
fn over_tcp() -> String {
    with("checkpoints = \"cp\"").replace("files = [\"a.csv\"]", "listen = [\"127.0.0.1:0\"]")
}

/// Runs until this many frames were read, and then stops, with open windows.
fn run_until(config: &Config, env: &Env, frames: u64) -> Vec<StreamStats> {
    let stop = Arc::<AtomicBool>::default();
    let mut run = Run::start(config, env, stop.clone()).unwrap();
    run.set_follows(true);
    let is_read = |stats: &[StreamStats]| stats[0].stats.totals.frames == frames;
    run.wait(&mut |stats| stop.store(is_read(stats), Ordering::Relaxed)).unwrap()
}

/// The numbers of versions of a store, and the value of a key in the current one, as text.
fn versions(store: &Path) -> (usize, String) {
    let store = Store::open(store).unwrap();
    let value = store.reader().unwrap().get("all").unwrap().unwrap();
    let versions = store.writer().unwrap().pointer().versions.len();
    (versions, String::from_utf8_lossy(&value).into_owned())
}

/// A run continues after another one, with its own checkpoints or none, has published the same windows: the results of both
/// are there.
#[test]
fn a_continued_run_replaces_no_results_of_others_and_skips_none_of_its_own() {
    let work = TempDir::new().unwrap();
    let (file, out) = (work.path().join("a.csv"), work.path().join("out"));
    let continued = config(&with("checkpoints = \"cp\""), work.path());
    fs::write(&file, "1000,ann,x,7,1\n").unwrap();
    run_until(&continued, &Env::system(), 1);
    fs::write(&file, "1000,ben,x,7,1\n").unwrap();
    run_all(&config(CSV, work.path())).unwrap();
    let of_ben = tables(&out.join("users"));
    assert!(versions(&out.join("all")).1.contains("ben"));
    fs::write(&file, "1000,ann,x,7,1\n9000,ann,x,7,1\n").unwrap();
    run_all(&continued).unwrap();
    let mut all = tables(&out.join("users"));
    let of_ann = all.remove("1970-01-01T00-00-01Z-2").unwrap();
    assert!(of_ann.len() == 1 && of_ann[0].contains("ann"), "{of_ann:?}");
    assert!(all.remove("1970-01-01T00-00-09Z").is_some());
    assert_eq!(all, of_ben);
    let (count, value) = versions(&out.join("all"));
    assert!(count == 2 && value.contains("ann"), "{count}: {value}");
}

/// Runs without an event. Returns what sets the checkpoint back to that run, as after a crash.
fn run_to_go_back_to(config: &Config, work: &Path) -> impl Fn() {
    let (state, kept) = (work.join("cp/v1.checkpoint"), work.join("kept"));
    fs::write(work.join("a.csv"), "").unwrap();
    run_until(config, &Env::system(), 0);
    fs::copy(&state, &kept).unwrap();
    move || {
        fs::copy(&kept, &state).unwrap();
    }
}

/// A window that was published after the last checkpoint stays as it is, also if the next run gets fewer events, since a
/// sender does not send them again.
#[test]
fn a_window_that_was_published_before_a_crash_stays() {
    let work = TempDir::new().unwrap();
    let (file, out) = (work.path().join("a.csv"), work.path().join("out"));
    let config = config(&with("checkpoints = \"cp\""), work.path());
    let go_back = run_to_go_back_to(&config, work.path());
    fs::write(&file, "1000,ann,x,7,1\n1001,ann,x,7,1\n9000,ann,x,7,1\n").unwrap();
    run_all(&config).unwrap();
    let (before, store) = (tables(&out.join("users")), versions(&out.join("all")));
    go_back();
    fs::write(&file, "1000,ann,x,7,1\n9000,ann,x,7,1\n").unwrap();
    run_all(&config).unwrap();
    assert_eq!(tables(&out.join("users")), before);
    assert_eq!(versions(&out.join("all")), store);
}

/// A window whose table has a number, since another run had one of the same window, is not published again if that one is
/// removed between a crash and the next run.
#[test]
fn a_table_with_a_number_stays_the_only_one_of_its_window() {
    let work = TempDir::new().unwrap();
    let (file, out) = (work.path().join("a.csv"), work.path().join("out"));
    let continued = config(&with("checkpoints = \"cp\""), work.path());
    let go_back = run_to_go_back_to(&continued, work.path());
    fs::write(&file, "1000,ben,x,7,1\n").unwrap();
    run_all(&config(CSV, work.path())).unwrap();
    fs::write(&file, "1000,ann,x,7,1\n9000,ann,x,7,1\n").unwrap();
    run_all(&continued).unwrap();
    fs::remove_dir_all(out.join("users/1970-01-01T00-00-01Z")).unwrap();
    let before = tables(&out.join("users"));
    assert!(before.contains_key("1970-01-01T00-00-01Z-2"));
    // A crash came while tables were built, and a file is in the way.
    let [empty, other] = [2, 3].map(|i| out.join(format!("users/1970-01-01T00-00-09Z-{i}")));
    fs::create_dir(&empty).unwrap();
    fs::write(&other, "").unwrap();
    fs::remove_dir_all(out.join("users/1970-01-01T00-00-09Z")).unwrap();
    go_back();
    run_all(&continued).unwrap();
    fs::remove_dir(&empty).unwrap();
    fs::remove_file(&other).unwrap();
    assert_eq!(tables(&out.join("users")), before);
}

/// A run that cannot start for its second stream leaves no checkpoint of the first one; nor does one whose place for results
/// cannot be used, which it notices before the first event.
#[test]
fn a_run_that_does_not_start_leaves_no_checkpoint() {
    let work = TempDir::new().unwrap();
    fs::write(work.path().join("a.csv"), "").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("listen = [\"{}\"]", taken.local_addr().unwrap());
    let other = JSON.replace("out = \"out\"\nrejected = \"bad\"\n", "");
    let other = other.replace("files = [\"a.jsonl\"]", &listen);
    let text = format!("{}{other}", with("checkpoints = \"cp\""));
    let start = |text: &str| {
        let run = Run::start(&config(text, work.path()), &Env::system(), Arc::default());
        run.map(|_| ()).unwrap_err().to_string()
    };
    let refused = start(&text);
    assert!(refused.contains("cannot listen"), "{refused}");
    let states = || fs::read_dir(work.path().join("cp")).unwrap().count();
    assert_eq!(states(), 0);
    for out in ["\"a.csv\"", "\"a.csv/below\""] {
        let refused = start(&with("checkpoints = \"cp\"").replace("\"out\"", out));
        assert!(refused.contains("a.csv") && refused.contains("expected a folder"), "{refused}");
    }
    assert_eq!(states(), 0);
}

#[test]
fn two_runs_do_not_share_checkpoints() {
    let work = TempDir::new().unwrap();
    let config = config(&over_tcp(), work.path());
    let first = Run::start(&config, &Env::system(), Arc::default()).unwrap();
    let second = Run::start(&config, &Env::system(), Arc::default()).unwrap_err();
    assert!(second.to_string().contains("cp"), "{second}");
    drop(first);
    Run::start(&config, &Env::system(), Arc::default()).unwrap();
}

/// A clock whose waits for a lock end the writer that holds it.
struct Releasing {
    writer: Mutex<Option<StoreWriter>>,
    /// The longest sleep that the run has of its own.
    tick: Duration,
}

impl fmt::Debug for Releasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Releasing")
    }
}

impl Clock for Releasing {
    fn now(&self) -> Duration {
        SystemClock.now()
    }

    fn unix_time(&self) -> Duration {
        SystemClock.unix_time()
    }

    fn wait(&self, signal: &Signal, seen: u64, deadline: Duration) {
        let length = deadline.saturating_sub(self.now());
        SystemClock.wait(signal, seen, deadline);
        if length > self.tick {
            self.writer.lock().unwrap().take();
        }
    }
}

/// Another process writes to the store when a window ends: the run waits for it, for a minute at most.
#[test]
fn a_store_that_another_process_writes_to_is_waited_for() {
    let work = TempDir::new().unwrap();
    fs::write(work.path().join("a.csv"), "1000,ann,x,7,1\n").unwrap();
    run_all(&config(CSV, work.path())).unwrap();
    let store = Store::open(work.path().join("out/all")).unwrap();
    let writer = store.writer().unwrap();
    let refused = {
        let env = Env { clock: Env::simulated(1).clock, ..Env::system() };
        let run = Run::start(&config(CSV, work.path()), &env, Arc::default()).unwrap();
        run.wait(&mut |_| {}).unwrap_err()
    };
    let is_busy = |error: &Error| error.class() == ErrorClass::Busy;
    assert!(matches!(&refused, crate::SummarizeError::Data(error) if is_busy(error)), "{refused}");
    let tick = Duration::from_millis(50);
    let clock = Arc::new(Releasing { writer: Mutex::new(Some(writer)), tick });
    let env = Env { clock: clock.clone(), ..Env::system() };
    Run::start(&config(CSV, work.path()), &env, Arc::default()).unwrap().wait(&mut |_| {}).unwrap();
    assert!(clock.writer.lock().unwrap().is_none());
    assert_eq!(versions(&work.path().join("out/all")).0, 2);
}

/// Checkpoints that cannot be written, such as on a full disk, are counted and reported once; the run goes on, publishes windows
/// whose events do not come again, and writes checkpoints again when there is room.
#[test]
fn a_checkpoint_that_cannot_be_written_does_not_end_the_run() {
    let work = TempDir::new().unwrap();
    let text = over_tcp().replace("\"cp\"", "\"cp\"\ncheckpoint-interval = \"1ms\"");
    let config = config(&text, work.path());
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config, &Env::system(), stop.clone()).unwrap();
    let mut sender = TcpStream::connect(run.addresses()[0].1).unwrap();
    // Here, the next checkpoint would be written.
    let obstacle = work.path().join("cp/v1.checkpoint.new");
    let (mut is_there, mut read_at) = (false, None);
    let stats = run.wait(&mut |stats| {
        let failed = stats[0].failed_checkpoints;
        if !is_there && failed == 0 {
            fs::create_dir(&obstacle).unwrap();
            sender.write_all(numbered(300).as_bytes()).unwrap();
            is_there = true;
        }
        if is_there && stats[0].stats.totals.frames == 300 {
            read_at.get_or_insert(failed);
        }
        if is_there && read_at.is_some_and(|read_at| failed >= read_at + 3) {
            assert!(work.path().join("out/users/1970-01-01T00-00-01Z").exists());
            fs::remove_dir(&obstacle).unwrap();
            is_there = false;
            stop.store(true, Ordering::Relaxed);
        }
    });
    let stats = stats.unwrap();
    assert!(stats[0].failed_checkpoints >= 3);
    let reports = reports(&stats);
    assert!(reports.len() == 1 && reports[0].contains("no checkpoint"), "{reports:?}");
    assert!(matches!(*stats[0].reports[0], Report::Unsaved(_)));
    assert!(!stats[0].is_unsaved);
    let run = Run::start(&config, &Env::system(), Arc::default()).unwrap();
    assert_eq!(run.continued()[0].stats.totals.frames, 300);
}

/// The last checkpoint cannot be written: the counts are there all the same, and the windows wait for the next run, which has all
/// events once, also those that the file got for them meanwhile.
#[test]
fn a_last_checkpoint_that_cannot_be_written_is_said_with_the_counts() {
    let work = TempDir::new().unwrap();
    let (file, out) = (work.path().join("a.csv"), work.path().join("out"));
    let config = config(&with("checkpoints = \"cp\""), work.path());
    fs::write(&file, "").unwrap();
    run_until(&config, &Env::system(), 0);
    fs::write(&file, numbered(500)).unwrap();
    let obstacle = work.path().join("cp/v1.checkpoint.new");
    fs::create_dir(&obstacle).unwrap();
    let stats = run_all(&config).unwrap();
    assert!(stats[0].is_unsaved && stats[0].stats.totals.events == 500);
    assert!(reports(&stats)[0].contains("v1.checkpoint"), "{:?}", reports(&stats));
    assert!(tables(&out.join("users")).is_empty());
    fs::remove_dir(&obstacle).unwrap();
    let grown = numbered(500) + &numbered(100);
    fs::write(&file, &grown).unwrap();
    let stats = run_all(&config).unwrap();
    assert!(!stats[0].is_unsaved && stats[0].stats.totals.events == 600);
    let whole = TempDir::new().unwrap();
    fs::write(whole.path().join("a.csv"), &grown).unwrap();
    run_all(&self::config(CSV, whole.path())).unwrap();
    assert_eq!(tables(&out.join("users")), tables(&whole.path().join("out/users")));
    assert_eq!(versions(&out.join("all")), versions(&whole.path().join("out/all")));
}

/// The sink of one stream fails: the run ends with that error, and the others have what came by TCP in their checkpoints. So has
/// the one that failed, with the windows for which there was no sink.
#[test]
fn when_a_stream_fails_the_others_save_what_they_have() {
    let work = TempDir::new().unwrap();
    let second = CSV.replace("out = \"out\"\n", "").replace("v1", "v2");
    let second = second.replace("[summary.users]", "[summary.others]");
    let second = second.replace("[summary.all]", "[summary.whole]");
    let second = second.replace("files = [\"a.csv\"]", "listen = [\"127.0.0.1:0\"]");
    let first = over_tcp().replace("\"cp\"", "\"cp\"\ncheckpoint-interval = \"10ms\"");
    let config = config(&(first + &second), work.path());
    let run = Run::start(&config, &Env::system(), Arc::default()).unwrap();
    let connect = |name: &str| {
        let addresses = run.addresses();
        TcpStream::connect(addresses.iter().find(|(of, _)| of == name).unwrap().1).unwrap()
    };
    let (mut first, mut second) = (connect("v1"), connect("v2"));
    first.write_all(numbered(50).as_bytes()).unwrap();
    let mut is_sent = false;
    let error = run.wait(&mut |stats| {
        if stats[0].stats.totals.frames == 50 && !is_sent {
            is_sent = true;
            // No table can be made any more.
            fs::remove_dir(work.path().join("out/others")).unwrap();
            fs::write(work.path().join("out/others"), "").unwrap();
            second.write_all(numbered(300).as_bytes()).unwrap();
        }
    });
    assert!(error.unwrap_err().to_string().contains("others"));
    fs::remove_file(work.path().join("out/others")).unwrap();
    let run = Run::start(&config, &Env::system(), Arc::default()).unwrap();
    let frames = run.continued().iter().map(|it| it.stats.totals.frames).collect::<Vec<_>>();
    assert_eq!(frames, [50, 300]);
}

/// Makes a named pipe.
fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A run says which of its sources cannot be read again when it continues from a checkpoint.
#[test]
fn sources_that_cannot_be_read_again_are_known() {
    let work = TempDir::new().unwrap();
    fs::write(work.path().join("a.csv"), "").unwrap();
    make_pipe(&work.path().join("pipe"));
    let (file, pipe) = ("files = [\"a.csv\"]", "files = [\"a.csv\", \"pipe\"]");
    let listen = "listen = [\"127.0.0.1:0\"]";
    for (sources, expected) in [
        (file.to_owned(), None),
        (pipe.to_owned(), Some("through a pipe")),
        (format!("{file}\n{listen}"), Some("by TCP")),
        (format!("{pipe}\n{listen}"), Some("by TCP or through a pipe")),
    ] {
        let config = config(&with("").replace(file, &sources), work.path());
        let run = Run::start(&config, &Env::system(), Arc::default()).unwrap();
        assert_eq!(run.passing("v1"), expected, "{sources}");
    }
}

/// A pipe is not opened before the pipe in front of it has ended: what stands in it when the run stops is not lost.
#[test]
fn what_stands_in_a_pipe_whose_turn_has_not_come_is_left_for_the_next_run() {
    let work = TempDir::new().unwrap();
    let [first, second] = ["first", "second"].map(|name| work.path().join(name));
    [&first, &second].into_iter().for_each(|pipe| make_pipe(pipe));
    // A writer that reads, too, does not wait for a reader.
    let mut writer = File::options().read(true).write(true).open(&second).unwrap();
    writer.write_all(numbered(100).as_bytes()).unwrap();
    let config = config(&CSV.replace("\"a.csv\"", "\"first\", \"second\""), work.path());
    let stop = Arc::new(AtomicBool::new(true));
    let run = Run::start(&config, &Env::system(), stop.clone()).unwrap();
    assert_eq!(run.wait(&mut |_| {}).unwrap()[0].stats.totals.frames, 0);
    stop.store(false, Ordering::Relaxed);
    let run = Run::start(&config, &Env::system(), stop.clone()).unwrap();
    drop(File::options().write(true).open(&first).unwrap());
    let is_read = |stats: &[StreamStats]| stats[0].stats.totals.frames == 100;
    let stats = run.wait(&mut |stats| stop.store(is_read(stats), Ordering::Relaxed)).unwrap();
    assert_eq!(stats[0].stats.totals.events, 100);
}

/// A run that waits for the writer of a pipe ends when it is to stop, and reads what has come by TCP before.
#[test]
fn a_pipe_without_a_writer_holds_no_run_up() {
    let work = TempDir::new().unwrap();
    let pipe = work.path().join("pipe");
    make_pipe(&pipe);
    let sources = "files = [\"pipe\"]\nlisten = [\"127.0.0.1:0\"]";
    let text = CSV.replace("files = [\"a.csv\"]", sources);
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config(&text, work.path()), &Env::system(), stop.clone()).unwrap();
    let address = run.addresses()[0].1;
    let stats = run.wait(&mut |_| {
        if !stop.swap(true, Ordering::Relaxed) {
            TcpStream::connect(address).unwrap().write_all(numbered(200).as_bytes()).unwrap();
        }
    });
    assert_eq!(stats.unwrap()[0].stats.totals.events, 200);
}

/// What another process has written to a pipe before the run is to stop is read, and an event that has no end is rejected.
/// If the process closes the pipe, the last line needs no end.
#[test]
fn what_is_in_a_pipe_when_the_run_stops_is_read() {
    for is_closed in [false, true] {
        let work = TempDir::new().unwrap();
        let pipe = work.path().join("pipe");
        make_pipe(&pipe);
        let config = config(&CSV.replace("a.csv", "pipe"), work.path());
        let stop = Arc::<AtomicBool>::default();
        let run = Run::start(&config, &Env::system(), stop.clone()).unwrap();
        let mut writer = None;
        let stats = run.wait(&mut |_| {
            if !stop.swap(true, Ordering::Relaxed) {
                let mut file = File::options().write(true).open(&pipe).unwrap();
                file.write_all((numbered(100) + "1000,ann,x,7,1").as_bytes()).unwrap();
                writer = Some(file).filter(|_| !is_closed);
            }
        });
        let totals = &stats.unwrap()[0].stats.totals;
        let rejected = u64::from(!is_closed);
        assert_eq!((totals.frames, totals.events), (101, 101 - rejected), "{is_closed}");
        drop(writer);
    }
}

/// The last line of rejected frames was cut short by a crash: the next one begins a line of its own.
#[test]
fn rejected_frames_begin_a_line_after_a_crash() {
    let work = TempDir::new().unwrap();
    let bad = work.path().join("bad");
    fs::create_dir(&bad).unwrap();
    fs::write(bad.join("v1.jsonl"), "{\"reason\":\"x\",\"fra").unwrap();
    fs::write(work.path().join("a.csv"), "no event\n".repeat(2)).unwrap();
    let config = config(&with("rejected = \"bad\""), work.path());
    run_all(&config).unwrap();
    run_all(&config).unwrap();
    let kept = fs::read_to_string(bad.join("v1.jsonl")).unwrap();
    let lines: Vec<&str> = kept.lines().collect();
    assert_eq!(lines.len(), 5, "{kept}");
    assert!(lines[1..].iter().all(|line| line.starts_with('{') && line.ends_with('}')), "{kept}");
}

/// A time before 1970 has its own date, in the name of its table.
#[test]
fn windows_before_1970_have_their_own_names() {
    let work = TempDir::new().unwrap();
    fs::write(work.path().join("a.csv"), "-1500,ann,x,7,1\n-86400000,ben,x,7,1\n").unwrap();
    run_all(&config(&CSV.replace("500ms", "2d"), work.path())).unwrap();
    let names: Vec<String> = tables(&work.path().join("out/users")).into_keys().collect();
    assert_eq!(names, ["1969-12-31T00-00-00Z", "1969-12-31T23-59-58Z"]);
}

/// A parser without events.
struct Nothing;

impl Parser for Nothing {
    fn parse(&mut self, _: &[u8], _: &mut Events) -> std::result::Result<(), &'static str> {
        Err("no event")
    }
}

/// After an event of many megabytes, the buffer of its source is small again.
#[test]
fn the_buffer_of_a_source_is_given_back_after_a_long_event() -> Result<()> {
    let text = CSV.replace("files", "event-max = \"32MiB\"\nfiles");
    let (stream, stop) = (stream(&text), AtomicBool::new(false));
    let pipeline =
        Pipeline::start(&[], vec![Box::new(Nothing)], Vec::new(), PipelineOptions::default())?;
    let input = pipeline.input();
    let mut source = Source::new(&stream, &input, &stop);
    let long = [&vec![b'x'; 20 << 20][..], b"\n"].concat();
    source.read(&mut &long[..], "a test").unwrap();
    assert!(source.buffer_bytes() <= 128 << 10, "{} bytes", source.buffer_bytes());
    source.finish().unwrap();
    drop(pipeline);
    Ok(())
}

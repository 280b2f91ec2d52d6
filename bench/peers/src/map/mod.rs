//! Maps on the device, larger than their memory, that change key by key: load, updates, lookups,
//! durable commits, space.
//!
//! ```text
//! peer ─ create → engine ─ round (the same operations for all) → figures
//!          └ in a process of its own, in a control group that limits its memory
//! ```
//!
//! One driver runs all engines, with keys and values of 8 bytes, and checks every answer. Figures are
//! passed on one by one, so that those before the end of an engine that the system kills are kept.

mod columns;
mod commits;
mod device;
mod engine;
mod entries;
mod fjall;
mod hashfold;
#[cfg(feature = "lmdb")]
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod round;
mod times;
#[cfg(feature = "tkrzw")]
mod tkrzw;

use self::columns::{COLUMNS, position};
use crate::{
    Common, Result,
    limit::{Group, Limit},
    measure::{TemporaryFolder, settle},
    report::Report,
    row::Row,
};
use std::{
    env, fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Number of entries of 8 + 8 bytes.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100..))]
    pub keys: u64,
    /// Memory of each peer, heap and page cache together, in megabytes. Needs root, who can make control
    /// groups.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u64).range(32..))]
    pub memory: u64,
    /// Maximum number of operations of each phase after the load.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: u64,
    /// Maximum time of the load, in seconds; the rest is loaded without a clock and without the limit.
    #[arg(long, default_value_t = 20.0)]
    pub load_seconds: f64,
    /// Maximum time of each other phase, in seconds.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Measure one round of this peer, and print its figures.
    #[arg(long, hide = true, requires = "within")]
    pub alone: Option<String>,
    /// Empty folder for the files of the peer that is measured alone.
    #[arg(long, hide = true)]
    pub within: Option<PathBuf>,
    /// Control group of the peer that is measured alone.
    #[arg(long, hide = true)]
    pub group: Option<PathBuf>,
    #[command(flatten)]
    pub common: Common,
}

impl Options {
    /// Returns the memory of an engine.
    fn memory_bytes(&self) -> usize {
        self.memory as usize * 1_000_000
    }

    /// Returns the limit of a process: the driver needs a byte for each key.
    fn limit_bytes(&self) -> u64 {
        self.memory_bytes() as u64 + self.keys
    }
}

/// What is measured as a row: an engine, or the bare device.
trait Program {
    fn name(&self) -> String;

    fn note(&self) -> String;

    /// Measures one round.
    fn round(&self, place: &mut Place<'_>) -> Result<()>;
}

/// The circumstances of a round.
struct Place<'a> {
    options: &'a Options,
    /// Empty folder.
    folder: &'a Path,
    limit: Option<&'a Limit>,
    /// Takes a figure: the name of its column, and the value.
    say: &'a mut dyn FnMut(&str, f64),
}

fn programs() -> Vec<Box<dyn Program>> {
    let mut programs: Vec<Box<dyn Program>> =
        vec![Box::new(device::Device), Box::new(hashfold::Hashfold)];
    #[cfg(feature = "rocksdb")]
    programs.push(Box::new(rocksdb::Rocks));
    programs.push(Box::new(fjall::Fjall));
    #[cfg(feature = "lmdb")]
    programs.push(Box::new(lmdb::Lmdb));
    programs.push(Box::new(redb::Redb));
    #[cfg(feature = "tkrzw")]
    programs.push(Box::new(tkrzw::Tkrzw));
    programs
}

/// Returns a report without rows.
pub fn report(options: &Options) -> Report {
    Report::new(COLUMNS, &["map"], facts(options))
}

fn facts(options: &Options) -> Vec<(&'static str, String)> {
    let Options { keys, memory, operations, load_seconds, seconds, .. } = options;
    let memory = match is_limited() {
        true => format!("{memory} MB of heap and page cache, by a control group"),
        false => format!("{memory} MB for caches; the page cache has no limit"),
    };
    vec![
        ("entries", format!("{keys} of 8 + 8 bytes")),
        ("memory_of_a_map", memory),
        ("loading", format!("one thread, random order, at most {load_seconds} s")),
        ("phases", format!("at most {operations} operations or {seconds} s each")),
        ("clocks", "stop when all is durable and no work in the background is left".to_owned()),
        ("answers", "every value is compared while the clock runs".to_owned()),
        (
            "allocator of a map",
            "the system's, with one arena that gives memory back, without huge pages, which are resident whole"
                .to_owned(),
        ),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
    ]
}

/// Whether memory can be limited. Tests measure in their own process, which must not be limited.
fn is_limited() -> bool {
    !cfg!(test) && Group::create().is_ok()
}

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-map")?;
    let mut programs = programs();
    programs.retain(|program| options.common.wants(&program.name()));
    let mut rounds = vec![Vec::new(); programs.len()];
    for round in 1..=options.common.rounds {
        for (program, rounds) in programs.iter().zip(&mut rounds) {
            eprintln!("round {round}: {}", program.name());
            let folder = folder.path.join("map");
            fs::create_dir_all(&folder)?;
            settle(&folder)?;
            rounds.push(measure_alone(program.as_ref(), options, &folder)?);
            fs::remove_dir_all(&folder)?;
        }
    }
    let data = format!(
        "{} entries of 8 + 8 bytes, {} MB of memory",
        record::count(options.keys),
        options.memory
    );
    for (program, rounds) in programs.iter().zip(rounds) {
        let note = program.note() + &killed(&rounds);
        let figures: Vec<Vec<Option<f64>>> =
            rounds.into_iter().map(|round| round.figures).collect();
        report.rows.push(Row::new(&data, &program.name(), &note, &figures));
    }
    Ok(report)
}

/// The figures of a round, in the order of [`COLUMNS`].
#[derive(Clone, Debug)]
struct Figures {
    figures: Vec<Option<f64>>,
    /// The last figure before the process was killed, if it was.
    killed_after: Option<String>,
}

/// Says in how many rounds a process was killed.
fn killed(rounds: &[Figures]) -> String {
    let killed: Vec<&str> =
        rounds.iter().filter_map(|round| round.killed_after.as_deref()).collect();
    match killed.last() {
        None => String::new(),
        Some(last) => format!(
            "; killed at the memory limit in {} of {} rounds, after {last}",
            killed.len(),
            rounds.len()
        ),
    }
}

/// Settings of glibc's allocator, for all peers.
const TUNABLES: &str = "glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=65536:glibc.malloc.trim_threshold=1048576";

/// Measures one round in a new process, with its memory limit. Tests measure in their own process.
fn measure_alone(program: &dyn Program, options: &Options, folder: &Path) -> Result<Figures> {
    let mut figures = vec![None; COLUMNS.len()];
    if cfg!(test) {
        let say = &mut |name: &str, value| figures[position(name)] = Some(value);
        program.round(&mut Place { options, folder, limit: None, say })?;
        return Ok(Figures { figures, killed_after: None });
    }
    let group = Group::create();
    let mut command = Command::new("/proc/self/exe");
    command.args(env::args_os().skip(1)).args(["--alone", &program.name()]);
    command.arg("--within").arg(folder);
    match &group {
        Ok(group) => _ = command.arg("--group").arg(&group.folder),
        Err(error) => eprintln!("the page cache has no limit: {error}"),
    }
    // Each arena keeps what was freed in it, and the heap large buffers, so that maps need twice the memory; see `facts`.
    command.env("GLIBC_TUNABLES", TUNABLES).stderr(Stdio::inherit());
    let output = command.output()?;
    let mut last = "nothing".to_owned();
    for line in String::from_utf8(output.stdout)?.lines() {
        let (name, value) = line.split_once(' ').ok_or("expected a name and a figure")?;
        figures[position(name)] = Some(value.parse()?);
        last = name.to_owned();
    }
    match (output.status.success(), output.status.signal()) {
        (true, _) => Ok(Figures { figures, killed_after: None }),
        (false, Some(libc::SIGKILL)) if group.is_ok() => {
            eprintln!("{} was killed at the memory limit, after {last}", program.name());
            Ok(Figures { figures, killed_after: Some(last) })
        }
        _ => Err(format!("{}: {}", program.name(), output.status).into()),
    }
}

/// Measures one round of the peer that `alone` names, for [`measure_alone`].
pub fn run_alone(options: &Options) -> Result<()> {
    let (Some(name), Some(folder)) = (&options.alone, &options.within) else {
        return Err("expected --alone NAME --within FOLDER".into());
    };
    let programs = programs();
    let program = programs.iter().find(|program| program.name() == *name);
    let program = program.ok_or_else(|| format!("there is no peer {name:?}"))?;
    let limit = options.group.as_deref().map(|group| Limit::join(group, options.limit_bytes()));
    let limit = limit.transpose()?;
    // Standard output is written line by line.
    let say = &mut |name: &str, value: f64| println!("{name} {value}");
    program.round(&mut Place { options, folder, limit: limit.as_ref(), say })
}

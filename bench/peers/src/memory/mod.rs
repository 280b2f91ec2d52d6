//! Tables in memory: puts of random keys of 64 bits, and appends to values, as in the posts on big tables in memory.
//!
//! ```text
//! peer ─ new → table, a handle for each thread ─┬ puts (a number of 48 bits for each key) ──┬→ figures, curve
//!          └ in a process of its own,           └ appends (chains of records of 16 bytes) ──┘
//!            in a control group that limits its memory
//! ```
//!
//! The slowest of all parts of a million operations shows what the mean hides: a table that is built anew as a whole
//! stops meanwhile. Answers are checked before a figure is said.

mod alone;
mod appends;
#[cfg(feature = "berkeley")]
mod berkeley;
mod hashfold;
mod java;
#[cfg(feature = "kyotocabinet")]
mod kyoto;
mod load;
#[cfg(any(feature = "absl", feature = "boost", feature = "sparsehash"))]
mod native;
mod peer;
mod puts;
mod redis;
mod rust;
#[cfg(feature = "tkrzw")]
mod tkrzw;

use self::{
    alone::{Round, measure_alone},
    peer::{Peer, Work},
};
use crate::{
    Common, Result,
    curves::Curve,
    limit::Group,
    measure::{TemporaryFolder, settle},
    report::Report,
    row::{Column, Row},
};
use record::count;
use std::path::{Path, PathBuf};

pub use self::alone::run_alone;

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Number of keys that are put. Tables that double are as full with 25 million as with 100 million.
    #[arg(long, default_value_t = 25_000_000, value_parser = clap::value_parser!(u32).range(1000..))]
    pub keys: u32,
    /// Number of lookups of present keys, and of absent ones.
    #[arg(long, default_value_t = 2_500_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub gets: u64,
    /// Divides the number of keys of the posts' appends, 78.2 million, by this number.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=78_200))]
    pub scale: u32,
    /// Number of puts, or of appended records, in a part whose time is measured.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub part: u64,
    /// Maximum time of all puts or appends of a peer, in seconds; the rest is left out.
    #[arg(long, default_value_t = 20.0)]
    pub seconds: f64,
    /// Memory of a process, in megabytes. Needs root, who can make control groups.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(32..))]
    pub memory: u64,
    /// Results of bench/java_maps/run.sh, which are added.
    #[arg(long, value_name = "FILE")]
    pub java: Option<PathBuf>,
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

/// Number of keys of the posts' appends.
const POSTS_KEYS: u32 = 78_200_000;

impl Options {
    /// Returns the number of keys that records are appended to.
    fn chains(&self) -> u32 {
        POSTS_KEYS / self.scale
    }

    fn limit_bytes(&self) -> u64 {
        self.memory * 1_000_000
    }

    /// Returns the name of the data of some work.
    fn data(&self, work: &Work) -> String {
        match work {
            Work::Puts(_) => puts_data(self),
            Work::Appends(_) => {
                format!("appends to {} keys", count(u64::from(self.chains())))
            }
        }
    }
}

fn puts_data(options: &Options) -> String {
    format!("puts of {} keys", count(u64::from(options.keys)))
}

const COLUMNS: &[Column] = &[
    Column::drawn("put_per_s", 0, "Puts of random keys, per second; more is better"),
    Column::drawn("append_per_s", 0, "Appended records, per second; more is better"),
    Column::new("million_done", 3),
    Column::new("cpu_ns", 1),
    Column::drawn("slowest_part_s", 4, "The slowest million, s; less is better"),
    Column::new("slowest_by_median", 2),
    Column::drawn("bytes_per_key", 2, "Memory at the end, bytes per key; less is better"),
    Column::drawn("peak_bytes_per_key", 2, "Largest memory, bytes per key; less is better"),
    Column::new("counted_bytes_per_key", 2),
    Column::drawn(
        "overhead_bytes_per_key",
        2,
        "Memory beside keys and values, bytes per key; less is better",
    ),
    Column::drawn("get_ns", 1, "Lookups of present keys, CPU time in ns; less is better"),
    Column::drawn("absent_get_ns", 1, "Lookups of absent keys, CPU time in ns; less is better"),
];

/// Returns the place of a column.
///
/// # Panics
/// There is no such column.
fn position(name: &str) -> usize {
    let found = COLUMNS.iter().position(|column| column.name == name);
    found.unwrap_or_else(|| panic!("there is no column {name}"))
}

/// Returns all peers: those that are put into, then those that are appended to.
fn peers(options: &Options) -> Vec<Peer> {
    let mut peers = hashfold::of_puts(options);
    peers.extend(rust::of_puts());
    #[cfg(any(feature = "absl", feature = "boost", feature = "sparsehash"))]
    peers.extend(native::of_puts());
    peers.extend(hashfold::of_appends(options));
    peers.push(rust::of_appends());
    #[cfg(feature = "absl")]
    peers.push(native::of_appends());
    #[cfg(feature = "tkrzw")]
    peers.push(tkrzw::of_appends(options));
    #[cfg(feature = "kyotocabinet")]
    peers.extend(kyoto::of_appends(options));
    #[cfg(feature = "berkeley")]
    peers.push(berkeley::of_appends(options));
    peers.extend(redis::of_appends());
    peers.retain(|peer| options.common.wants(&peer.id()));
    peers
}

/// Returns a report without rows.
pub fn report(options: &Options) -> Report {
    let limit = match is_limited() {
        true => format!("{} MB for a process, by a control group", options.memory),
        false => "no limit".to_owned(),
    };
    let facts = vec![
        ("keys", format!("{} random keys of 64 bits with numbers of 48 bits", options.keys)),
        ("gets", format!("{} of each kind, in random order", options.gets)),
        (
            "appends",
            format!(
                "records of 16 bytes to {} keys of 8 bytes, 1 to 1024 to each by Zipf's law (exponent 2.24), \
                 in random order: the posts' test divided by {}",
                options.chains(),
                options.scale
            ),
        ),
        ("part", format!("{} operations", options.part)),
        ("time", format!("at most {} s for all puts or appends of a peer", options.seconds)),
        ("memory_of_a_peer", limit),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
    ];
    Report::new(COLUMNS, &["memory-puts", "memory-appends"], facts)
}

/// Whether memory can be limited. Tests measure in their own process, which must not be limited.
fn is_limited() -> bool {
    !cfg!(test) && Group::create().is_ok()
}

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-memory")?;
    let java = java_rows(options)?;
    let mut peers = peers(options);
    peers.retain(|peer| {
        let is_there = (peer.is_installed)();
        if !is_there {
            eprintln!("{}: not found, skipped", peer.id());
        }
        is_there
    });
    let mut rounds = vec![Vec::new(); peers.len()];
    for round in 1..=options.common.rounds {
        for (peer, rounds) in peers.iter().zip(&mut rounds) {
            eprintln!("round {round}: {}", peer.id());
            settle(&folder.path)?;
            rounds.push(measure_alone(peer, options, &folder.path)?);
        }
    }
    for (peer, rounds) in peers.iter().zip(rounds) {
        add(&mut report, peer, options, &rounds);
    }
    report.rows.extend(java);
    // The data sets of charts are in the order of rows.
    report.rows.sort_by_key(|row| row.data != puts_data(options));
    Ok(report)
}

/// Adds the row of a peer, and its curve of the round with the median time.
fn add(report: &mut Report, peer: &Peer, options: &Options, rounds: &[Round]) {
    let data = options.data(&peer.work);
    let note = peer.note.clone() + &alone::killed(rounds);
    let figures: Vec<Vec<Option<f64>>> = rounds.iter().map(|round| round.figures.clone()).collect();
    report.rows.push(Row::new(&data, &peer.name, &note, &figures));
    let all = |round: &&Round| round.parts.iter().sum::<f64>();
    // A round that was killed before its first part has no curve.
    let mut drawn: Vec<&Round> = rounds.iter().filter(|round| !round.parts.is_empty()).collect();
    drawn.sort_by(|a, b| all(a).total_cmp(&all(b)));
    if let Some(middle) = drawn.get(drawn.len() / 2).filter(|_| peer.is_drawn) {
        report.curves.push(Curve {
            data,
            peer: peer.name.clone(),
            operations: options.part.max(peer.work.block() as u64),
            seconds: middle.parts.clone(),
            rounds: rounds.len(),
        });
    }
}

/// Returns the rows of Java programs.
fn java_rows(options: &Options) -> Result<Vec<Row>> {
    let Some(path) = &options.java else { return Ok(Vec::new()) };
    let rows = java::rows(path, options)?;
    if rows.is_empty() {
        let path = path.display();
        return Err(format!("{path}: nothing is about {}", puts_data(options)).into());
    }
    Ok(rows
        .into_iter()
        .filter(|row| options.common.wants(&format!("puts: {}", row.peer)))
        .collect())
}

/// The circumstances of a round.
struct Place<'a> {
    options: &'a Options,
    /// Folder for the sockets of servers.
    folder: &'a Path,
    /// Takes a figure: the name of its column, and the value; or [`alone::PART`] and the time of a part.
    say: &'a mut dyn FnMut(&str, f64),
}

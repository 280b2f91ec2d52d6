//! A server of a cluster dies, or stops to answer: for how long a client that reads from all
//! servers of a group misses the keys of that server.
//!
//! Three groups of two servers, one client (redis-rs in cluster mode). The outage is the longest time
//! between two right answers for keys in the slots of the lost server, from its loss on.

mod clusters;
mod reads;

use self::{
    clusters::{Cluster, hashfold, redis},
    reads::{Loss, Times, read},
};
use crate::{
    Common, Result,
    data::Data,
    measure::TemporaryFolder,
    report::Report,
    row::{Column, Row},
};
use std::{fs, path::Path, time::Duration};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Number of keys.
    #[arg(long, default_value_t = 100_000)]
    pub keys: u64,
    /// Bytes per value.
    #[arg(long, default_value_t = 100)]
    pub value: usize,
    /// Time that the client waits for a reply, in milliseconds.
    #[arg(long, default_value_t = 500)]
    pub timeout_ms: u64,
    /// Time for which the client reads after a loss, in seconds. Redis Cluster elects after about 20.
    #[arg(long, default_value_t = 40)]
    pub seconds: u64,
    /// Time for which the client reads before the loss, in milliseconds.
    #[arg(long, default_value_t = 5000)]
    pub before_ms: u64,
    #[command(flatten)]
    pub common: Common,
}

const COLUMNS: &[Column] = &[
    Column::drawn(
        "outage_ms_killed",
        0,
        "A server is killed: keys without an answer, ms; less is better",
    ),
    Column::drawn(
        "outage_ms_stopped",
        0,
        "A server stops to answer: keys without an answer, ms; less is better",
    ),
    Column::new("failed_calls_killed", 0),
    Column::new("failed_calls_stopped", 0),
    Column::new("wrong_values", 0),
];

/// The two ways to lose a server.
const LOSSES: [Loss; 2] = [Loss::Killed, Loss::Stopped];

pub fn report(options: &Options) -> Report {
    let facts = vec![
        ("keys", format!("{} of 16 bytes with values of {} bytes", options.keys, options.value)),
        ("cluster", "3 groups of 2 servers".to_owned()),
        (
            "client",
            "redis-rs in cluster mode, reading from all servers of a group in turn, one call after the other"
                .to_owned(),
        ),
        ("time-out of the client", format!("{} ms", options.timeout_ms)),
        ("watched after the loss", format!("{} s", options.seconds)),
        ("answers", "every value is compared".to_owned()),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
    ];
    Report::new(COLUMNS, &["failover"], facts)
}

/// Starts a cluster with these data in a folder; `None` if the program is not installed.
type Start = fn(&Data, &Path) -> Result<Option<Cluster>>;

const PEERS: [(&str, Start); 2] = [("hashfold serve", hashfold), ("Redis Cluster", redis)];

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    let data = Data::new(options.common.seed, options.keys, options.value);
    let name = format!("{} keys with values of {} bytes", options.keys, options.value);
    for (peer, start) in PEERS.into_iter().filter(|(peer, _)| options.common.wants(peer)) {
        let (mut rounds, mut note) = (Vec::new(), String::new());
        for number in 1..=options.common.rounds {
            eprintln!("round {number}: {peer}");
            match round(start, &data, options)? {
                Some((figures, said)) => {
                    rounds.push(figures);
                    note = said;
                }
                None => break,
            }
        }
        match rounds.is_empty() {
            true => eprintln!("{peer}: its programs are not found, skipped"),
            false => report.rows.push(Row::new(&name, peer, &note, &rounds)),
        }
    }
    Ok(report)
}

/// Loses a server in both ways, each in a new cluster. Returns the figures in the order of [`COLUMNS`], and
/// the note; `None` if the program is not installed.
fn round(
    start: Start,
    data: &Data,
    options: &Options,
) -> Result<Option<(Vec<Option<f64>>, String)>> {
    let times = Times {
        timeout: Duration::from_millis(options.timeout_ms),
        before: Duration::from_millis(options.before_ms),
        after: Duration::from_secs(options.seconds),
    };
    let (mut outages, mut failed, mut wrong, mut note) = (Vec::new(), Vec::new(), 0, String::new());
    for loss in LOSSES {
        let folder = TemporaryFolder::create(&options.common.dir, "peers-failover")?;
        let Some(cluster) = start(data, &fs::canonicalize(&folder.path)?)? else { return Ok(None) };
        note.clone_from(&cluster.note);
        let seen = read(&cluster, data, loss, times)?;
        outages.push(Some(seen.outage.as_secs_f64() * 1e3));
        failed.push(Some(seen.failed as f64));
        wrong += seen.wrong;
    }
    let figures = outages.into_iter().chain(failed).chain([Some(wrong as f64)]).collect();
    Ok(Some((figures, note)))
}

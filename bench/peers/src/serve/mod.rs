//! Servers that answer lookups from memory: requests per second of the server's CPU time, which is what
//! a core of it can do, and latencies.

mod load;
mod servers;

use self::{
    load::{Connections, Way},
    servers::{hashfold, redis},
};
use crate::{
    Common, Result,
    data::Data,
    measure::{TemporaryFolder, settle},
    report::Report,
    row::{Column, Row},
};
use std::fs;

#[cfg(test)]
pub use self::servers::ALONE;
pub use self::servers::{Server, serve_alone, start_redis, start_redis_with, wait_until_open};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Number of keys.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes per value.
    #[arg(long, default_value_t = 100)]
    pub value: usize,
    /// Requests of each way in a round; an MGET asks for 64 keys, so there are fewer of them.
    #[arg(long, default_value_t = 400_000)]
    pub requests: u64,
    /// Connections, all used at the same time.
    #[arg(long, default_value_t = 50)]
    pub connections: usize,
    /// Serve this folder on a free port instead of measuring, and print the port.
    #[arg(long, hide = true)]
    pub alone: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub common: Common,
}

const COLUMNS: &[Column] = &[
    Column::drawn(
        "gets_per_cpu_s",
        0,
        "GET, one at a time per connection, requests per CPU second; more is better",
    ),
    Column::drawn(
        "gets_per_cpu_s_pipelines_of_16",
        0,
        "GET, pipelines of 16, requests per CPU second; more is better",
    ),
    Column::drawn(
        "keys_per_cpu_s_mget_64",
        0,
        "MGET of 64 keys, keys per CPU second; more is better",
    ),
    Column::new("gets_per_s", 0),
    Column::new("gets_per_s_pipelines_of_16", 0),
    Column::new("keys_per_s_mget_64", 0),
    Column::new("p50_us", 0),
    Column::new("p99_us", 0),
    Column::new("memory_mib", 0),
    Column::new("p50_us_paced", 0),
    Column::new("p99_us_paced", 0),
];

/// The ways in which keys are asked for, in the order of [`COLUMNS`].
const WAYS: [Way; 3] = [Way::Gets(1), Way::Gets(16), Way::MultiGet(64)];

pub fn report(options: &Options) -> Report {
    let facts = vec![
        ("keys", format!("{} of 16 bytes with values of {} bytes", options.keys, options.value)),
        ("connections", format!("{}, from one thread", options.connections)),
        ("requests", options.requests.to_string()),
        ("answers", "every value is compared while the clock runs".to_owned()),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
    ];
    Report::new(COLUMNS, &["serve"], facts)
}

/// Serves a folder for [`run`], in a process of its own.
pub fn run_alone(folder: &std::path::Path) -> Result<()> {
    servers::serve(folder)
}

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    let data = Data::new(options.common.seed, options.keys, options.value);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-serve")?;
    let mut servers: Vec<Box<dyn Server>> =
        vec![Box::new(hashfold(&data, &folder.path.join("table"))?)];
    for program in ["redis-server".to_owned(), std::env::var("VALKEY_SERVER").unwrap_or_default()] {
        match redis(&program, &data)? {
            Some(server) => servers.push(Box::new(server)),
            None if program.is_empty() => {}
            None => eprintln!("{program}: not found, skipped"),
        }
    }
    servers.retain(|server| options.common.wants(server.name()));
    settle(&folder.path)?;
    // The first round brings the data into the caches, and finds a rate that all servers keep up with.
    let mut slowest = f64::INFINITY;
    for server in &servers {
        eprintln!("round 0: {}", server.name());
        let mut connections = Connections::open(server.address(), options.connections)?;
        WAYS.iter()
            .try_for_each(|way| connections.load(*way, &data, options.requests).map(drop))?;
        let load = connections.load(Way::Gets(1), &data, options.requests)?;
        slowest = slowest.min(load.keys as f64 / load.seconds);
    }
    let mut rounds = vec![Vec::new(); servers.len()];
    for round in 1..=options.common.rounds {
        for (server, rounds) in servers.iter().zip(&mut rounds) {
            eprintln!("round {round}: {}", server.name());
            rounds.push(self::round(server.as_ref(), &data, options, slowest / 2.0)?);
        }
    }
    let name = format!("{} keys with values of {} bytes", options.keys, options.value);
    for (server, rounds) in servers.iter().zip(&rounds) {
        report.rows.push(Row::new(&name, server.name(), server.note(), rounds));
    }
    drop(servers);
    fs::remove_dir_all(&folder.path)?;
    Ok(report)
}

/// Measures one round of one server, in the order of [`COLUMNS`].
fn round(
    server: &dyn Server,
    data: &Data,
    options: &Options,
    paced: f64,
) -> Result<Vec<Option<f64>>> {
    let mut connections = Connections::open(server.address(), options.connections)?;
    let (mut by_cpu, mut by_time, mut latencies) = (Vec::new(), Vec::new(), None);
    for way in WAYS {
        let before = server.cpu_seconds()?;
        let load = connections.load(way, data, options.requests)?;
        let cpu = server.cpu_seconds()? - before;
        by_cpu.push(Some(load.keys as f64 / cpu));
        by_time.push(Some(load.keys as f64 / load.seconds));
        latencies.get_or_insert(load.latencies_us);
    }
    let at = |latencies: &[f64], fraction: f64| {
        latencies.get((latencies.len() as f64 * fraction) as usize).copied()
    };
    let latencies = latencies.unwrap_or_default();
    let memory = server.memory_mib()?;
    let paced = connections.paced(data, paced, options.requests / 4)?;
    let rest = [
        at(&latencies, 0.5),
        at(&latencies, 0.99),
        Some(memory),
        at(&paced, 0.5),
        at(&paced, 0.99),
    ];
    Ok(by_cpu.into_iter().chain(by_time).chain(rest).collect())
}

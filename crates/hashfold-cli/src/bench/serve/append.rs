//! Records appended to chains in memory, through one connection, beside `redis-server` if that is installed: the test of
//! the posts on tables in RAM.

use super::{
    Scene,
    client::{Client, Reply, write_request},
    process::{Peer, Process, memory_of},
};
use crate::{
    bench::{
        ensure,
        measure::median_of,
        memory::{RECORD, key, record, records},
        random::pick,
    },
    failure::Result,
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Number of records that are sent before a reply is read.
const PIPELINE: usize = 10_000;
/// Number of pipelines of an interval; the slowest interval is compared with the median.
const INTERVAL: usize = 10;
/// Number of chains that are read at the end.
const SAMPLE: u64 = 1000;
/// Memory of a record and of a key, in bytes, at most, and what there is besides.
const RECORD_MEMORY: u64 = 32;
const KEY_MEMORY: u64 = 64;
const MEMORY_MIN: u64 = 64 << 20;

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    let bench = scene.bench;
    let chains = records(bench.chains, bench.seed);
    let memory = MEMORY_MIN + chains.len() as u64 * RECORD_MEMORY + bench.chains * KEY_MEMORY;
    let config = format!("threads = 1\n[data.append]\nkind = \"memory\"\nmemory = {memory}\n");
    let server = Process::start(scene.folder, "append", &config)?;
    let own = Load::of(scene, server.address, &chains)?;
    own.say(scene, "", server.memory()?);
    drop(server);
    if let Some(peer) = Peer::start_in_memory(scene.folder)? {
        let redis = Load::of(scene, peer.address, &chains)?;
        redis.say(scene, "redis_", memory_of(peer.pid())?);
        let ratio = own.per_second() / redis.per_second();
        scene.report.add("serve.append.redis_ratio", ratio, "of redis-server", own.records, 0);
    }
    Ok(())
}

/// The cost of appending all records.
struct Load {
    records: u64,
    seconds: f64,
    /// Time of the slowest interval divided by the median.
    interval_ratio: f64,
}

impl Load {
    /// Appends the records, a pipeline after the other, and checks all replies, and then the chains.
    fn of(scene: &Scene<'_>, address: SocketAddr, chains: &[u32]) -> Result<Load> {
        let mut client = Client::connect(address)?;
        let mut sizes = vec![0_u32; scene.bench.chains as usize];
        let (mut requests, mut replies, mut got) = (Vec::new(), Vec::new(), Vec::new());
        let mut times = Vec::new();
        for chains in chains.chunks(PIPELINE) {
            requests.clear();
            replies.clear();
            for chain in chains {
                let key = key(u64::from(*chain), scene.bench.seed).to_le_bytes();
                write_request(&[b"APPEND", &key, &record(*chain)], &mut requests);
                let size = &mut sizes[*chain as usize];
                *size += RECORD as u32;
                replies.extend(format!(":{size}\r\n").into_bytes());
            }
            let begun = Instant::now();
            client.send(&requests)?;
            client.expect(&replies, &mut got)?;
            times.push(begun.elapsed());
        }
        check(scene, &mut client, &sizes)?;
        Ok(Load::of_times(chains.len() as u64, &times))
    }

    fn of_times(records: u64, times: &[Duration]) -> Load {
        let seconds = |times: &[Duration]| times.iter().sum::<Duration>().as_secs_f64();
        let whole = times.chunks_exact(INTERVAL).map(seconds);
        let intervals: Vec<f64> =
            if times.len() < INTERVAL { vec![seconds(times)] } else { whole.collect() };
        let slowest = intervals.iter().copied().fold(0.0, f64::max);
        Load { records, seconds: seconds(times), interval_ratio: slowest / median_of(intervals) }
    }

    fn per_second(&self) -> f64 {
        self.records as f64 / self.seconds
    }

    fn say(&self, scene: &Scene<'_>, whose: &str, memory: f64) {
        let say = |what: &str, value, unit| {
            let (name, bytes) =
                (format!("serve.append.{whose}{what}"), self.records * RECORD as u64);
            scene.report.add(&name, value, unit, self.records, bytes);
        };
        say("records_s", self.per_second(), "records/s");
        say("interval_ratio", self.interval_ratio, "slowest to median");
        say("rss_mib", memory / f64::from(1 << 20), "MiB");
    }
}

/// Checks the number of chains, and the sizes and the records of some.
fn check(scene: &Scene<'_>, client: &mut Client, sizes: &[u32]) -> Result<()> {
    let (count, seed) = (sizes.len() as u64, scene.bench.seed);
    let wrong = |reply: &Reply| format!("a chain is wrong: {reply:?}");
    let reply = client.call(&[b"DBSIZE"])?;
    ensure(reply == Reply::Number(count as i64), || wrong(&reply))?;
    for chain in (0..SAMPLE).map(|i| pick(i, seed, count)) {
        let (key, size) = (key(chain, seed).to_le_bytes(), sizes[chain as usize] as usize);
        let reply = client.call(&[b"STRLEN", &key])?;
        ensure(reply == Reply::Number(size as i64), || wrong(&reply))?;
        let expected = record(chain as u32).repeat(size / RECORD);
        let reply = client.call(&[b"GETRANGE", &key, b"0", b"-1"])?;
        ensure(reply == Reply::Text(Some(expected)), || wrong(&reply))?;
    }
    Ok(())
}

//! Lookups: from memory with one network thread and with two, and from the device.

use super::{Scene, pool::Pool, process::Process};
use crate::{
    bench::{device::random_reads, ensure, pairs::Pairs, random::pick, times::Times},
    failure::Result,
};
use hashfold::io::{Access, BlockFile, Buffer, Disk, OsDisk};
use std::{path::Path, sync::Arc, time::Instant};

/// Connections in the measurements from memory.
pub(super) const CONNECTIONS: usize = 50;
/// Connections, and requests in flight on each, at which lookups are compared with the device.
const DEVICE_CONNECTIONS: usize = 64;
const DEVICE_PIPELINE: u64 = 8;
/// Size of a block, in bytes.
const BLOCK: u64 = 4096;

/// Builds a table, starts a server of it with further lines of configuration, and brings all of the table
/// into memory.
pub(super) fn in_memory(scene: &Scene<'_>, config: &str) -> Result<(Process, Pairs)> {
    let pairs = scene.pairs(scene.bench.keys);
    let table = scene.folder.join("memory");
    if !OsDisk.exists(&table)? {
        scene.build(&table, &pairs)?;
    }
    let config = format!("{config}\n[data.memory]\npath = {table:?}\naccess = \"mapped\"\n");
    let server = Process::start(scene.folder, "memory", &config)?;
    // The server checks each block when it is first read.
    Pool::connect(server.address, CONNECTIONS, &pairs)?.run(64, 2 * pairs.count)?;
    Ok((server, pairs))
}

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    let one = from_memory(scene, 1)?;
    let two = from_memory(scene, 2)?;
    scene.say("threads2.speedup", two.per_second / one.per_second, "", scene.bench.requests);
    scene.say("threads2.cpu_ratio", two.cpu_seconds / one.cpu_seconds, "", scene.bench.requests);
    from_device(scene)
}

/// The cost of `GET`s one at a time.
struct Cost {
    per_second: f64,
    /// CPU time of the server for one.
    cpu_seconds: f64,
}

fn from_memory(scene: &Scene<'_>, threads: usize) -> Result<Cost> {
    let (server, pairs) = in_memory(scene, &format!("threads = {threads}"))?;
    let mut pool = Pool::connect(server.address, CONNECTIONS, &pairs)?;
    let mut costs = Vec::new();
    for pipeline in [1, 16] {
        let before = server.cpu_seconds()?;
        let load = pool.run(pipeline, scene.bench.requests)?;
        let cpu_seconds = (server.cpu_seconds()? - before) / load.gets as f64;
        costs.push(Cost { per_second: load.per_second(), cpu_seconds });
        if threads > 1 {
            continue;
        }
        let say = |what: &str, value, unit| {
            scene.say(&format!("get.ram.p{pipeline}.{what}"), value, unit, load.gets);
        };
        say("per_core_s", 1.0 / cpu_seconds, "requests/CPU s");
        say("per_s", load.per_second(), "requests/s");
        say("p50_us", load.times.quantile_us(0.5), "us");
        say("p99_us", load.times.quantile_us(0.99), "us");
    }
    Ok(costs.swap_remove(0))
}

fn from_device(scene: &Scene<'_>) -> Result<()> {
    let pairs = scene.pairs(scene.bench.flash_keys);
    let table = scene.folder.join("device");
    if !OsDisk.exists(&table)? {
        scene.build(&table, &pairs)?;
    }
    let config = format!("threads = 1\n[data.device]\npath = {table:?}\naccess = \"direct\"\n");
    let server = Process::start(scene.folder, "device", &config)?;
    let file = direct_file(&table, "data-")?;
    let count = scene.bench.requests / 4;
    for pipeline in [1, 16] {
        let load = Pool::connect(server.address, CONNECTIONS, &pairs)?.run(pipeline, count)?;
        let say = |what: &str, value, unit| {
            scene.say(&format!("get.flash.p{pipeline}.{what}"), value, unit, load.gets);
        };
        say("per_s", load.per_second(), "requests/s");
        say("p50_us", load.times.quantile_us(0.5), "us");
        say("p99_us", load.times.quantile_us(0.99), "us");
    }
    beside_device(scene, "get.flash", &server, &pairs, file.as_ref())?;
    one_at_a_time(scene, &server, &pairs, file.as_ref(), count / 20)
}

/// Compares lookups with reads of the device, with as many in flight; alternately, because the rate of a
/// shared device changes.
pub(super) fn beside_device(
    scene: &Scene<'_>,
    name: &str,
    server: &Process,
    pairs: &Pairs,
    file: &dyn BlockFile,
) -> Result<()> {
    /// Number of alternations.
    const TURNS: u64 = 5;
    let count = scene.bench.requests / 4;
    let mut pool = Pool::connect(server.address, DEVICE_CONNECTIONS, pairs)?;
    let (mut served, mut plain) = (0.0, 0.0);
    for turn in 0..TURNS {
        served += pool.run(DEVICE_PIPELINE, count / TURNS)?.per_second() / TURNS as f64;
        plain += random_reads(file, count / TURNS, pairs.seed + turn, 0.0)? / TURNS as f64;
    }
    scene.say(&format!("{name}.p8.per_s"), served, "requests/s", count);
    scene.say(&format!("{name}.device_reads_per_s"), plain, "reads of 4 KiB/s", count);
    scene.say(&format!("{name}.iops_fraction"), served / plain, "of plain reads", count);
    Ok(())
}

/// Compares one lookup after the other with one read after the other.
fn one_at_a_time(
    scene: &Scene<'_>,
    server: &Process,
    pairs: &Pairs,
    file: &dyn BlockFile,
    count: u64,
) -> Result<()> {
    let mut pool = Pool::connect(server.address, 1, pairs)?;
    let load = pool.run(1, count)?;
    let (mut times, mut block) = (Times::new(), Buffer::zeroed(BLOCK as usize));
    let blocks = file.size()? / BLOCK;
    for i in 0..count {
        let start = Instant::now();
        file.read_at(pick(i, !pairs.seed, blocks) * BLOCK, &mut block)?;
        times.add(start.elapsed());
    }
    let (served, plain) = (load.times.quantile_us(0.5), times.quantile_us(0.5));
    scene.say("get.flash.alone.p50_us", served, "us", count);
    scene.say("get.flash.alone.device_p50_us", plain, "us", count);
    scene.say("get.flash.alone.above_device_us", served - plain, "us", count);
    Ok(())
}

/// Opens the first file of a folder whose name begins so, past the page cache.
fn direct_file(folder: &Path, prefix: &str) -> Result<Arc<dyn BlockFile>> {
    let names = OsDisk.list(folder)?;
    let name = names.iter().find(|name| name.starts_with(prefix));
    ensure(name.is_some(), || format!("{}: there is no file {prefix}", folder.display()))?;
    Ok(OsDisk.open(&folder.join(name.expect("it is there")), Access::Direct)?)
}

//! Transfers: beside plain requests for the same bytes, beside readers, and after an interruption.

use super::{
    Scene,
    group::{Group, STORE},
    reader::{Readings, read},
};
use crate::{
    bench::{ensure, measure::wall_seconds, times::Times},
    failure::{Failure, Result},
};
use hashfold::{
    io::{ALIGNMENT, Access, Buffer, Disk, OsDisk},
    store::{UpdateMode, VersionInfo},
    work::{Clock as _, SystemClock},
};
use serde_json::Value;
use std::{
    collections::HashSet,
    env,
    io::{BufRead as _, BufReader},
    ops::Range,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Size of a request, in bytes, and number of requests in flight: those of a transfer.
const PIECE: u64 = 1 << 20;
const LANES: usize = 4;
/// Time for which a server is read before anything counts: it reads each block for the first time.
const WARM_UP: Duration = Duration::from_secs(3);
/// Time for which a server is read without a transfer.
const IDLE: Duration = Duration::from_secs(5);

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    let pairs = scene.pairs(scene.bench.data as u64 / super::PAIR_SIZE);
    let group = Group::create(scene, pairs)?;
    let base = group.push(0..pairs.count, 1, UpdateMode::Replace)?;
    beside_plain(scene, &group, &base)?;
    let delta = group.push((0..pairs.count).step_by(100), 2, UpdateMode::Delta)?;
    let fetched = group.fetch(delta.name.number, &group.place("copy"))?;
    let ratio = fetched as f64 / new_bytes(&base, &delta) as f64;
    scene.say("fetch.delta_ratio", ratio, "bytes fetched per byte of the delta", pairs.count / 100);
    group.push(0..pairs.count, 3, UpdateMode::Replace)?;
    beside_readers(scene, &group)?;
    super::remove_all(&group.place(""))
}

/// Returns the bytes of the tables that a version has, and another has not.
fn new_bytes(old: &VersionInfo, new: &VersionInfo) -> u64 {
    let mut seen: HashSet<u64> = old.layers().map(|layer| layer.table).collect();
    new.layers().filter(|layer| seen.insert(layer.table)).map(|layer| layer.bytes).sum()
}

/// Compares a transfer with plain requests for the same objects, whose bytes are written and synced, too.
fn beside_plain(scene: &Scene<'_>, group: &Group, base: &VersionInfo) -> Result<()> {
    let (seconds, bytes) = wall_seconds(|| group.fetch(base.name.number, &group.place("copy")));
    let bytes = bytes?;
    let plain = group.place("plain");
    OsDisk.create_folder(&plain)?;
    let (plain_seconds, plain_bytes) = wall_seconds(|| copy_all(group, &plain));
    let plain_bytes = plain_bytes?;
    super::remove_all(&plain)?;
    let (rate, plain_rate) = (bytes as f64 / seconds, plain_bytes as f64 / plain_seconds);
    scene.say("fetch.bytes_s", rate, "bytes/s", group.pairs.count);
    scene.say("fetch.plain_bytes_s", plain_rate, "bytes/s", group.pairs.count);
    scene.say("fetch.link_fraction", rate / plain_rate, "", group.pairs.count);
    Ok(())
}

/// Copies all tables of the remote into a folder; returns their bytes.
fn copy_all(group: &Group, folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for (i, object) in
        group.remote.objects().list(&format!("stores/{STORE}/tables"))?.iter().enumerate()
    {
        copy(group, &object.name, object.size, &folder.join(i.to_string()))?;
        sum += object.size;
    }
    Ok(sum)
}

fn copy(group: &Group, name: &str, size: u64, path: &Path) -> Result<()> {
    let file = OsDisk.create(path, Access::Direct)?;
    let next = AtomicU64::new(0);
    let lane = || -> Result<()> {
        loop {
            let start = next.fetch_add(PIECE, Relaxed);
            if start >= size {
                return Ok(());
            }
            let got = group.remote.objects().get_range(name, start..size.min(start + PIECE))?;
            let mut bytes = Buffer::zeroed(got.len().next_multiple_of(ALIGNMENT));
            bytes[..got.len()].copy_from_slice(&got);
            file.write_at(start, &bytes)?;
        }
    };
    thread::scope(|scope| {
        let lanes = [(); LANES].map(|()| scope.spawn(lane));
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })?;
    Ok(file.sync()?)
}

/// Reads from a server that follows the group, first alone, then while it fetches a version.
fn beside_readers(scene: &Scene<'_>, group: &Group) -> Result<()> {
    let node = group.server("a")?;
    group.publish(1, 1)?;
    group.wait_for(&node, 1)?;
    let is_over = AtomicBool::new(false);
    let (marks, readings) = thread::scope(|scope| {
        let reader = scope.spawn(|| read(node.address, &group.pairs, &is_over));
        let during = || -> Result<[Instant; 3]> {
            SystemClock.sleep(WARM_UP);
            let idle = Instant::now();
            SystemClock.sleep(IDLE);
            let start = Instant::now();
            group.publish(3, 1)?;
            Ok([idle, start, Instant::now()])
        };
        let marks = during();
        is_over.store(true, Relaxed);
        (marks, reader.join().expect("the reader does not panic"))
    });
    let ([before, start, end], readings) = (marks?, readings?);
    ensure(readings.errors == 0, || format!("{} replies were errors", readings.errors))?;
    let (idle, busy) = (p99_us(&readings, before..start), p99_us(&readings, start..end));
    let seconds = (end - start).as_secs_f64();
    scene.say("fetch.beside_readers_seconds", seconds, "s", group.pairs.count);
    scene.say("fetch.idle_p99_us", idle, "us", group.pairs.count);
    scene.say("fetch.p99_us", busy, "us", group.pairs.count);
    scene.say("fetch.p99_ratio", busy / idle, "", group.pairs.count);
    Ok(())
}

/// Returns the p99 of the replies in a time.
fn p99_us(readings: &Readings, time: Range<Instant>) -> f64 {
    let mut times = Times::new();
    let wanted = readings.replies.iter().filter(|reading| time.contains(&reading.at));
    wanted.for_each(|reading| times.add(reading.took));
    times.quantile_us(0.99)
}

/// Kills a transfer halfway, and counts the bytes that the next one fetches again.
pub(super) fn resume(scene: &Scene<'_>) -> Result<()> {
    let pairs = scene.pairs(scene.bench.data as u64 / super::PAIR_SIZE);
    let group = Group::create(scene, pairs)?;
    let version = group.push(0..pairs.count, 1, UpdateMode::Replace)?;
    // As much in a second as makes the transfer take four.
    let rate = (version.bytes() / 4).max(PIECE);
    let done = fetch_until(&group, rate, version.bytes() / 2)?;
    let fetched = group.fetch(1, &group.place("copy"))?;
    let again = (done + fetched).saturating_sub(version.bytes());
    scene.say("fetch.resume_bytes", again as f64, "bytes fetched again after a kill", pairs.count);
    super::remove_all(&group.place(""))
}

/// Fetches in a process until it says that it has some bytes, and kills it; returns the bytes.
fn fetch_until(group: &Group, rate: u64, bytes: u64) -> Result<u64> {
    let failed = |action: &'static str| move |error| Failure::io("a transfer", action, &error);
    let mut child = Command::new(env::current_exe().map_err(failed("find"))?)
        .args(["deploy", "fetch", "--json", "--version", "1", "--rate", &rate.to_string()])
        .args([group.url(), group.place("copy")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed("start"))?;
    let mut lines = BufReader::new(child.stdout.take().expect("the output is piped")).lines();
    let reached = lines.find_map(|line| {
        let said: Value = serde_json::from_str(&line.ok()?).ok()?;
        said["done"].as_u64().filter(|done| *done >= bytes)
    });
    // It may have ended.
    let _ = (child.kill(), child.wait());
    ensure(reached.is_some(), || "the transfer ended before it was killed".into())?;
    Ok(reached.expect("it is there"))
}

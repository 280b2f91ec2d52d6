//! The time from the start of a process until it has answered from a large table.

use super::{Scene, client::Client, client::Reply, process::Process};
use crate::{
    bench::{
        ensure,
        pairs::{KEY_SIZE, Pairs, Row},
        random::pick,
    },
    failure::{Failure, Result},
};
use hashfold::io::{Disk, OsDisk};
use rustix::fs::{Advice, fadvise};
use std::{fs, path::Path, time::Instant};

/// Size of a key and its value, in bytes.
const SIZE: u64 = 32;
/// Number of keys that are read.
const READS: u64 = 100;

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    let count = scene.bench.start_keys;
    let pairs = Pairs::new("start", SIZE, count * SIZE, scene.bench.seed);
    let table = scene.folder.join("large");
    if !OsDisk.exists(&table)? {
        scene.build(&table, &pairs)?;
    }
    let config = format!("[data.large]\npath = {table:?}\naccess = \"direct\"\n");
    forget(&table)?;
    let start = Instant::now();
    let server = Process::start(scene.folder, "large", &config)?;
    let mut client = Client::connect(server.address)?;
    let (noise, mut pair) = (pairs.noise(), vec![0; pairs.size()]);
    let mut ready = None;
    for number in (0..READS).map(|i| pick(i, pairs.seed, count)) {
        pairs.fill(Row::first(number), &noise, &mut pair);
        let (key, value) = pair.split_at(KEY_SIZE);
        let reply = client.call(&[b"GET", key])?;
        ready.get_or_insert_with(|| start.elapsed());
        ensure(reply == Reply::Text(Some(value.to_vec())), || format!("{reply:?} is wrong"))?;
    }
    let ready = ready.expect("there were reads");
    scene.report.add("serve.start.ready_ms", ready.as_secs_f64() * 1e3, "ms", count, count * SIZE);
    Ok(())
}

/// Removes the files of a table from the page cache.
fn forget(table: &Path) -> Result<()> {
    for name in OsDisk.list(table)? {
        let path = table.join(name);
        let failed = |error| Failure::io(path.display(), "open", &error);
        let file = fs::File::open(&path).map_err(failed)?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

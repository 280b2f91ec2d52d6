//! `BF.MADD` beside the same insertions through the library.

use super::{
    Scene,
    client::{Client, Reply, write_request},
    get::in_memory,
};
use crate::{bench::ensure, failure::Result};
use hashfold::{
    Seed,
    filter::{Filter, FilterOptions},
};
use std::time::Instant;

/// Number of items of one `BF.MADD`.
const ITEMS: u64 = 100;
/// Number of requests in flight.
const PIPELINE: u64 = 16;
/// The false-positive rate of the filters.
const RATE: f64 = 0.001;
/// Memory of a filter, in bytes.
const MEMORY: usize = 16 << 20;
/// Items beyond the capacity that a filter has room for, as `BF.RESERVE` makes it.
const ROOM: u64 = 1024;

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    let requests = (scene.bench.requests / ITEMS).next_multiple_of(PIPELINE);
    let count = requests * ITEMS;
    let served = count as f64 / served(scene, requests)?;
    let alone = count as f64 / alone(scene, requests)?;
    scene.say("filter.madd.items_s", served, "items/s", count);
    scene.say("filter.madd.in_process_items_s", alone, "items/s", count);
    scene.say("filter.madd.in_process_fraction", served / alone, "", count);
    Ok(())
}

/// Returns the items of a request.
fn items(scene: &Scene<'_>, request: u64) -> Vec<[u8; 16]> {
    let pairs = scene.pairs(1);
    (request * ITEMS..(request + 1) * ITEMS).map(|item| pairs.key(item)).collect()
}

/// Fails unless most items were new; a few may be taken for others.
fn check(new: u64, requests: u64) -> Result<()> {
    let expected = requests * ITEMS;
    ensure(new <= expected && new as f64 >= expected as f64 * (1.0 - 2.0 * RATE), || {
        format!("{new} of {expected} items were new")
    })
}

/// Returns the seconds from the first request until the filter is durable, and the server has ended.
fn served(scene: &Scene<'_>, requests: u64) -> Result<f64> {
    let filters = scene.folder.join("filters");
    let config = format!("threads = 1\nfilters = {{ path = {filters:?}, memory = {MEMORY} }}");
    let (server, _) = in_memory(scene, &config)?;
    let mut client = Client::connect(server.address)?;
    let capacity = (requests * ITEMS).to_string();
    client.call(&[b"BF.RESERVE", b"seen", RATE.to_string().as_bytes(), capacity.as_bytes()])?;
    let prepared: Vec<Vec<u8>> =
        (0..requests).map(|request| madd(&items(scene, request))).collect();
    let (start, mut new) = (Instant::now(), 0);
    for pipeline in prepared.chunks(PIPELINE as usize) {
        client.send(&pipeline.concat())?;
        for _ in pipeline {
            new += added(client.reply()?)?;
        }
    }
    server.stop()?;
    let seconds = start.elapsed().as_secs_f64();
    check(new, requests)?;
    super::remove_all(&filters)?;
    Ok(seconds)
}

fn madd(items: &[[u8; 16]]) -> Vec<u8> {
    let mut request = Vec::new();
    let arguments = [b"BF.MADD".as_slice(), b"seen"].into_iter();
    let arguments: Vec<&[u8]> = arguments.chain(items.iter().map(<[u8; 16]>::as_slice)).collect();
    write_request(&arguments, &mut request);
    request
}

/// Returns the number of items that were new.
fn added(reply: Reply) -> Result<u64> {
    let Reply::List(list) = reply else {
        return ensure(false, || format!("{reply:?}")).map(|()| 0);
    };
    Ok(list.iter().filter(|reply| **reply == Reply::Number(1)).count() as u64)
}

/// Returns the seconds from the first insertion until the filter is durable, and closed.
fn alone(scene: &Scene<'_>, requests: u64) -> Result<f64> {
    let folder = scene.folder.join("filter");
    let options = FilterOptions::with_capacity(requests * ITEMS * ROOM, RATE)
        .memory_bytes(MEMORY)
        .wal(true)
        .seed(Seed(scene.bench.seed))
        .env(scene.env());
    let mut filter = Filter::create(&folder, options)?;
    let prepared: Vec<_> = (0..requests).map(|request| items(scene, request)).collect();
    let (start, mut new) = (Instant::now(), 0);
    for items in &prepared {
        let is_new = filter.insert_unique_many(items)?;
        new += is_new.iter().filter(|is_new| **is_new).count() as u64;
    }
    filter.close()?;
    let seconds = start.elapsed().as_secs_f64();
    check(new, requests)?;
    super::remove_all(&folder)?;
    Ok(seconds)
}

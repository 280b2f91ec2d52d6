//! Changes of a map, beside those of `redis-server` if that is installed.

use super::{
    Scene,
    get::CONNECTIONS,
    pool::{Load, Pool},
    process::{Peer, Process},
};
use crate::failure::Result;
use hashfold::{
    io::{Disk, OsDisk},
    map::{Map, MapOptions},
};

/// Number of alternations between both servers.
const TURNS: u64 = 3;

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    let pairs = scene.pairs(scene.bench.keys);
    // A sync for each turn of all connections takes longer.
    for (durability, of_redis, part) in [("everysec", "everysec", 2), ("group", "always", 4)] {
        let folder = scene.folder.join(format!("set-{durability}"));
        if !OsDisk.exists(&folder)? {
            Map::create(&folder, MapOptions::new().env(scene.env()))?.close()?;
        }
        let config =
            format!("threads = 1\n[data.set]\npath = {folder:?}\ndurability = \"{durability}\"\n");
        let server = Process::start(scene.folder, "set", &config)?;
        let peer = Peer::start(scene.folder, of_redis)?;
        let count = scene.bench.requests / part / TURNS;
        let mut own = Pool::connect(server.address, CONNECTIONS, &pairs)?;
        let other = peer.as_ref().map(|peer| Pool::connect(peer.address, CONNECTIONS, &pairs));
        let mut other = other.transpose()?;
        let (mut loads, mut redis) = (Vec::new(), 0.0);
        for _ in 0..TURNS {
            loads.push(own.set(count)?);
            if let Some(other) = &mut other {
                redis += other.set(count)?.per_second() / TURNS as f64;
            }
        }
        say(scene, durability, &loads, other.is_some().then_some(redis));
        // They read the first keys that were set.
        own.restart();
        own.run(1, loads[0].gets.min(1000))?;
    }
    Ok(())
}

fn say(scene: &Scene<'_>, durability: &str, loads: &[Load], redis: Option<f64>) {
    let count = loads.iter().map(|load| load.gets).sum();
    let say = |what: &str, value, unit| {
        scene.say(&format!("set.{durability}.{what}"), value, unit, count);
    };
    let per_second = loads.iter().map(Load::per_second).sum::<f64>() / loads.len() as f64;
    say("per_s", per_second, "requests/s");
    if let Some(last) = loads.last() {
        say("p50_us", last.times.quantile_us(0.5), "us");
        say("p99_us", last.times.quantile_us(0.99), "us");
    }
    if let Some(redis) = redis {
        say("redis_per_s", redis, "requests/s");
        say("redis_ratio", per_second / redis, "of redis-server");
    }
}

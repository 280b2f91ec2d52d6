//! `hashfold bench serve`: `hashfold serve` in processes of their own, as clients see them.
//!
//! ```text
//! process (a server) ←─ pool (many connections, every value is compared) ─→ times
//!     → get: values in memory, and on the device; overload: more requests than the server can answer
//!     → set: changes of a map, beside redis-server if that is installed; map: values in a map ten times its memory
//!     → append: records appended to chains in memory, beside redis-server
//!     → filter: BF.MADD beside the library; memory: connections, buffers; start: until the first reply
//!     → publish: two servers that follow a group, read meanwhile; fetch: transfers, read meanwhile
//! ```

mod append;
mod client;
mod fetch;
mod filter;
mod get;
mod group;
mod map;
mod memory;
mod overload;
mod pool;
mod process;
mod publish;
mod reader;
mod set;
mod start;

use super::{
    ServeBench, in_folder,
    measure::Report,
    pairs::{Pairs, Row, remove_all},
};
use crate::failure::Result;
use hashfold::{Env, Seed, TableBuilder, TableOptions, work::Threads};
use std::{path::Path, sync::Arc};

/// Size of a key and its value, in bytes.
const PAIR_SIZE: u64 = 116;

pub(super) fn run(bench: &ServeBench, report: &Report) -> Result<()> {
    let dir = std::path::absolute(&bench.dir)
        .map_err(|error| crate::failure::Failure::io(bench.dir.display(), "find", &error))?;
    in_folder(&dir, "serve", |folder| groups(bench, report, folder))
}

/// A group of measurements.
type Group = fn(&Scene<'_>) -> Result<()>;

const GROUPS: [(&str, Group); 11] = [
    ("get", get::run),
    ("set", set::run),
    ("map", map::run),
    ("append", append::run),
    ("overload", overload::run),
    ("filter", filter::run),
    ("memory", memory::run),
    ("start", start::run),
    ("publish", publish::run),
    ("fetch", fetch::run),
    ("resume", fetch::resume),
];

fn groups(bench: &ServeBench, report: &Report, folder: &Path) -> Result<()> {
    let scene = Scene { bench, report, folder };
    for (name, run) in GROUPS {
        if bench.only.is_empty() || bench.only.iter().any(|only| only == name) {
            run(&scene)?;
        }
    }
    Ok(())
}

/// Where and what to measure.
struct Scene<'a> {
    bench: &'a ServeBench,
    report: &'a Report,
    folder: &'a Path,
}

impl Scene<'_> {
    /// Returns pairs of 16-byte keys and 100-byte values.
    fn pairs(&self, count: u64) -> Pairs {
        Pairs::new("serve", PAIR_SIZE, count * PAIR_SIZE, self.bench.seed)
    }

    fn env(&self) -> Env {
        Env { executor: Arc::new(Threads::new(self.bench.threads)), ..Env::system() }
    }

    /// Builds a table of pairs.
    fn build(&self, folder: &Path, pairs: &Pairs) -> Result<()> {
        let options = TableOptions::new().env(self.env()).seed(Seed(self.bench.seed)).id(1);
        let mut builder = TableBuilder::with(folder, options)?;
        let (noise, mut pair) = (pairs.noise(), vec![0; pairs.size()]);
        for number in 0..pairs.count {
            pairs.fill(Row::first(number), &noise, &mut pair);
            let (key, value) = pair.split_at(super::pairs::KEY_SIZE);
            builder.push(key, value)?;
        }
        builder.finish()?;
        Ok(())
    }

    /// Prints a figure over a number of pairs.
    fn say(&self, name: &str, value: f64, unit: &str, count: u64) {
        self.report.add(&format!("serve.{name}"), value, unit, count, count * PAIR_SIZE);
    }
}

//! Dictionaries on the device: builds from unsorted entries, then cold gets.

#[cfg(feature = "cdb")]
mod cdb;
mod device;
mod gets;
mod hashfold;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sort;
#[cfg(feature = "sparkey")]
mod sparkey;

use crate::{
    Common, Result,
    data::{Data, Key},
    measure::{TemporaryFolder, disk_bytes, measure, peak_memory, reset_peak_memory, settle},
    report::Report,
    row::{Column, Row},
};
use record::count;
use std::{fs, path::Path, thread::available_parallelism, time::Duration};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Data sets: entries x bytes per value.
    #[arg(long, value_delimiter = ',', default_values_t = [Size { count: 10_000_000, value: 84 }, Size { count: 2_000_000, value: 1008 }])]
    pub sizes: Vec<Size>,
    /// Memory for sorting, in mebibytes.
    #[arg(long, default_value_t = 4096)]
    pub memory: usize,
    /// Threads of a build.
    #[arg(long, default_value_t = available_parallelism().map_or(1, |cores| cores.get()))]
    pub threads: usize,
    /// Threads that get, for gets with many in flight.
    #[arg(long, default_value_t = 32)]
    pub get_threads: usize,
    /// Keys in a batch, for gets with many in flight.
    #[arg(long, default_value_t = 4096)]
    pub batch: usize,
    /// Maximum number of timed gets, for each way of getting.
    #[arg(long, default_value_t = 50_000)]
    pub gets: u64,
    /// Maximum time for each way of getting, in seconds.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    #[command(flatten)]
    pub common: Common,
}

/// A data set, written `10000000x84`.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub count: u64,
    /// Size of a value, in bytes.
    pub value: usize,
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Size, String> {
        let (count, value) = text.split_once('x').ok_or("expected such as 10000000x84")?;
        let count = count.parse().map_err(|error| format!("{count}: {error}"))?;
        let value = value.parse().map_err(|error| format!("{value}: {error}"))?;
        Ok(Size { count, value })
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.count, self.value)
    }
}

const COLUMNS: &[Column] = &[
    Column::drawn("build_items_per_s", 0, "Builds from unsorted data, entries/s; more is better"),
    Column::new("build_items_per_cpu_s", 0),
    Column::new("build_peak_memory_mib", 0),
    Column::drawn(
        "disk_per_payload",
        3,
        "Size on disk, divided by that of keys and values; less is better",
    ),
    Column::drawn("index_bits_per_key", 2, "Memory of the index, bits per key; less is better"),
    Column::drawn(
        "gets_per_s_one_at_a_time",
        0,
        "Cold lookups one at a time, per second; more is better",
    ),
    Column::drawn(
        "gets_per_s_many_threads",
        0,
        "Cold lookups by many threads, per second; more is better",
    ),
    Column::drawn(
        "gets_per_s_batched",
        0,
        "Cold lookups by one thread in batches, per second; more is better",
    ),
    Column::new("gets_per_s_best", 0),
    Column::new("gets_per_cpu_s_best", 0),
    Column::new("read_kib_per_get", 2),
    Column::new("device_reads_per_get", 3),
];

/// The resources of a build.
#[derive(Clone, Copy, Debug)]
struct Budget {
    memory_bytes: usize,
    threads: usize,
}

/// A dictionary to measure.
trait Dictionary: Sync {
    fn name(&self) -> String;

    fn note(&self) -> String;

    /// Returns the reason why the dictionary cannot hold such data, if there is one.
    fn refuses(&self, _: &Data) -> Option<String> {
        None
    }

    /// Whether gets return the values of keys. The bare device returns arbitrary bytes.
    fn has_values(&self) -> bool {
        true
    }

    /// Builds the dictionary in an empty folder. It is durable when this returns. Returns the size
    /// of the spill in the page cache, in bytes, if memory is free; it is memory of the build.
    fn build(&self, data: &Data, budget: Budget, folder: &Path) -> Result<u64>;

    fn open(&self, folder: &Path) -> Result<Box<dyn Reader>>;
}

/// An open dictionary.
trait Reader: Sync {
    /// Returns the memory of the index, in bytes.
    fn index_bytes(&self) -> Result<Option<u64>>;

    /// Whether the dictionary has batches that are more than single gets.
    fn has_batches(&self) -> bool {
        false
    }

    /// Returns a getter for one thread.
    fn getter(&self) -> Result<Box<dyn Getter + '_>>;
}

/// A callback that takes the number of a key in its batch, and its value, if the key is present.
type Visit<'a> = dyn FnMut(usize, Option<&[u8]>) -> Result<()> + 'a;

trait Getter {
    /// Passes the value of `key` to `visit`, with the number 0.
    fn get(&mut self, key: &Key, visit: &mut Visit<'_>) -> Result<()>;

    /// Looks up many keys, in any order.
    fn get_many(&mut self, keys: &[Key], visit: &mut Visit<'_>) -> Result<()> {
        for (i, key) in keys.iter().enumerate() {
            self.get(key, &mut |_, value| visit(i, value))?;
        }
        Ok(())
    }
}

fn dictionaries() -> Vec<Box<dyn Dictionary>> {
    let mut all: Vec<Box<dyn Dictionary>> = vec![Box::new(device::Device)];
    all.extend(hashfold::dictionaries());
    #[cfg(feature = "rocksdb")]
    all.extend(rocksdb::dictionaries());
    #[cfg(feature = "lmdb")]
    all.push(Box::new(lmdb::Lmdb));
    #[cfg(feature = "cdb")]
    all.push(Box::new(cdb::Cdb));
    #[cfg(feature = "sparkey")]
    all.push(Box::new(sparkey::Sparkey));
    all
}

/// Returns a report without rows.
pub fn report(options: &Options) -> Report {
    Report::new(COLUMNS, &["dictionary-small", "dictionary-large"], facts(options))
}

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-dictionary")?;
    for size in &options.sizes {
        let data = Data::new(options.common.seed, size.count, size.value);
        let mut peers = dictionaries();
        peers.retain(|peer| {
            let refused = peer.refuses(&data);
            if let Some(reason) = &refused {
                eprintln!("{size}: without {}: {reason}", peer.name());
            }
            refused.is_none() && options.common.wants(&peer.name())
        });
        let mut rounds = vec![Vec::new(); peers.len()];
        for round in 1..=options.common.rounds {
            for (peer, rounds) in peers.iter().zip(&mut rounds) {
                eprintln!("{size}, round {round}: {}", peer.name());
                let folder = folder.path.join("data");
                fs::create_dir_all(&folder)?;
                settle(&folder)?;
                rounds.push(self::round(peer.as_ref(), &data, options, &folder)?);
                fs::remove_dir_all(&folder)?;
            }
        }
        let name = format!("{} entries of 16 + {} bytes", count(size.count), size.value);
        for (peer, rounds) in peers.iter().zip(&rounds) {
            report.rows.push(Row::new(&name, &peer.name(), &peer.note(), rounds));
        }
    }
    Ok(report)
}

fn facts(options: &Options) -> Vec<(&'static str, String)> {
    let gets = format!(
        "at most {} or {} s, after {} to warm up; one at a time, {} threads, batches of {}",
        options.gets,
        options.seconds,
        gets::WARM_UP,
        options.get_threads,
        options.batch,
    );
    vec![
        ("build", format!("{} threads, {} MiB to sort in", options.threads, options.memory)),
        ("gets", gets),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
    ]
}

/// Measures one round of one peer, in the order of [`COLUMNS`].
fn round(
    peer: &dyn Dictionary,
    data: &Data,
    options: &Options,
    folder: &Path,
) -> Result<Vec<Option<f64>>> {
    let budget = Budget { memory_bytes: options.memory << 20, threads: options.threads };
    reset_peak_memory()?;
    let (spilled_bytes, cost) = measure(|| peer.build(data, budget, folder))?;
    let peak = peak_memory()? + spilled_bytes;
    let gets = gets::measure_gets(peer, data, options, folder)?;
    let per_s = |time: Duration| Some(data.count as f64 / time.as_secs_f64());
    let rate = |gets: Option<gets::Gets>| gets.map(|gets| gets.per_second);
    let ways = [Some(gets.single), Some(gets.threads), gets.batched];
    let best = ways.into_iter().flatten().max_by(|a, b| a.per_second.total_cmp(&b.per_second));
    let index_bits = gets.index_bytes.map(|bytes| bytes as f64 * 8.0 / data.count as f64);
    Ok(vec![
        per_s(cost.wall),
        per_s(cost.cpu),
        Some(peak as f64 / f64::from(1 << 20)),
        Some(disk_bytes(folder)? as f64 / data.payload() as f64),
        index_bits,
        rate(Some(gets.single)),
        rate(Some(gets.threads)),
        rate(gets.batched),
        rate(best),
        best.map(|gets| gets.per_cpu_second),
        best.map(|gets| gets.read_bytes / 1024.0),
        best.and_then(|gets| gets.device_reads),
    ])
}

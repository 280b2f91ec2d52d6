//! Readers of damaged files: a store of 16 chunks, one of which is missing, with flipped bytes in
//! another. `bench/voldemort/run.sh damage` does the same to Voldemort's engine.

use crate::{
    Common, Result,
    data::{Data, mix},
    measure::TemporaryFolder,
    report::Report,
    row::{Column, Row},
};
use hashfold::{
    Env, ReadOptions, Seed,
    io::{Disk, OsDisk},
    run::SortOptions,
    store::{
        StoreOptions, StoreReader, StoreWriter, TableSizes, UpdateMode, VersionFacts, VersionInfo,
        verify,
    },
    work::Watch,
};
use serde_json::Value;
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Entries, with values of 100 bytes.
    #[arg(long, default_value_t = 40_000)]
    pub entries: u64,
    /// Numbers of flipped bytes, each a kind of damage; the last one also with a deleted chunk.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100])]
    pub flips: Vec<u64>,
    /// File with the output of `voldemort/run.sh damage`.
    #[arg(long)]
    pub voldemort: Option<PathBuf>,
    #[command(flatten)]
    pub common: Common,
}

const CHUNKS: u32 = 16;
const VALUE_SIZE: usize = 100;
/// Numbers of the damaged chunks.
const DELETED: usize = 4;
const FLIPPED: usize = 9;

const COLUMNS: &[Column] = &[
    Column::new("opens", 0),
    Column::new("lookups", 0),
    Column::new("right_values", 0),
    Column::new("silent_misses", 0),
    Column::new("wrong_values", 0),
    Column::new("errors", 0),
    Column::new("damaged_places", 0),
    Column::new("damaged_places_named", 0),
];

#[derive(Clone, Copy, Debug)]
struct Damage {
    deletes: bool,
    /// Number of flipped bytes.
    flips: u64,
}

impl Damage {
    fn name(self) -> String {
        let flips = format!("flipped bytes: {}", self.flips);
        match self {
            Damage { deletes: false, .. } => flips,
            Damage { flips: 0, .. } => "a chunk deleted".to_owned(),
            _ => format!("a chunk deleted and {flips}"),
        }
    }

    fn all(flips: &[u64]) -> Vec<Damage> {
        let mut all = vec![Damage { deletes: true, flips: 0 }];
        all.extend(flips.iter().map(|&flips| Damage { deletes: false, flips }));
        all.extend(flips.last().map(|&flips| Damage { deletes: true, flips }));
        all
    }
}

/// Returns a report without rows.
pub fn report(options: &Options) -> Report {
    let facts = vec![
        ("store", format!("{} entries of 16 + {VALUE_SIZE} bytes, 16 chunks", options.entries)),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
    ];
    Report::new(COLUMNS, &[], facts)
}

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-damage")?;
    let lines = options.voldemort.as_deref().map(crate::nightly::read_lines).transpose()?;
    for damage in Damage::all(&options.flips) {
        let name = damage.name();
        let mut rounds = Vec::new();
        for round in 0..options.common.rounds as u64 {
            let seed = options.common.seed + round;
            let data = Data::new(seed, options.entries, VALUE_SIZE);
            let folder = folder.path.join("store");
            rounds.push(self::round(&data, damage, &folder)?);
            fs::remove_dir_all(&folder)?;
        }
        let note =
            "every block read is checked; keys of sound files are answered, the others are errors";
        report.rows.push(Row::new(&name, "Hashfold", note, &rounds));
        let lines = lines.iter().flatten();
        let theirs: Vec<&Value> = lines.filter(|line| line["damage"] == name.as_str()).collect();
        if let Some(first) = theirs.first() {
            let numbers = |line: &&Value| COLUMNS.iter().map(|c| line[c.name].as_f64()).collect();
            let rounds: Vec<_> = theirs.iter().map(numbers).collect();
            let text = |name: &str| first[name].as_str().unwrap_or_default();
            report.rows.push(Row::new(&name, text("peer"), text("note"), &rounds));
        }
    }
    Ok(report)
}

fn round(data: &Data, damage: Damage, folder: &Path) -> Result<Vec<Option<f64>>> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let info = build(&disk, data, folder)?;
    let mut places = HashSet::new();
    let chunk = |chunk: usize| {
        let table = info.bases[chunk].table;
        folder.join("tables").join(format!("{table:016x}"))
    };
    if damage.deletes {
        fs::remove_dir_all(chunk(DELETED))?;
        places.insert(chunk(DELETED));
    }
    if damage.flips > 0 {
        places.extend(flip(&chunk(FLIPPED), data.seed, damage.flips)?);
    }
    let mut named = HashSet::new();
    let mut name = |error: &hashfold::Error| {
        let text = error.to_string();
        let is_named = |place: &&PathBuf| place.to_str().is_some_and(|place| text.contains(place));
        named.extend(places.iter().filter(is_named).cloned());
    };
    let (opens, tally) =
        match StoreReader::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone()))) {
            Ok(follower) => (1.0, look_up(&follower, data, &mut name)),
            Err(error) => {
                name(&error);
                (0.0, Tally { errors: data.count, ..Tally::default() })
            }
        };
    let found = verify(&Env::on(disk.clone()), folder, info.name.number, &Watch::default())?;
    found.damage.iter().for_each(&mut name);
    if tally.silent_misses + tally.wrong_values > 0 || named.len() < places.len() {
        return Err(format!("damage was not noticed: {tally:?}, {places:?}").into());
    }
    let counts = [tally.right_values, tally.silent_misses, tally.wrong_values, tally.errors];
    let sum = counts.iter().sum::<u64>();
    let tail = [places.len() as f64, named.len() as f64];
    let counts = counts.map(|count| count as f64);
    Ok([&[opens, sum as f64], &counts[..], &tail].concat().into_iter().map(Some).collect())
}

fn build(disk: &Arc<dyn Disk>, data: &Data, folder: &Path) -> Result<VersionInfo> {
    let (seed, id) = (Seed(data.seed), mix(data.seed));
    let options = StoreOptions::new().seed(seed).id(id).chunks(CHUNKS);
    let mut writer = StoreWriter::create(folder, options.env(Env::on(disk.clone())))?;
    // Every chunk has a table of its own, however small it is.
    writer.set_table_sizes(TableSizes { base_bytes_min: 0, delta_bytes_min: 0 });
    let mut batch = writer.batch(SortOptions::within(64 << 20))?;
    let mut value = Vec::new();
    for i in 0..data.count {
        data.fill_value(i, &mut value);
        batch.push(&data.key(i), Some(&value))?;
    }
    let info = writer.write(
        batch,
        UpdateMode::Replace,
        VersionFacts { id, ..VersionFacts::default() },
        &Watch::default(),
    )?;
    writer.publish(info.name.number)?;
    Ok(info)
}

/// Flips a bit in `count` bytes, each in another place, of a table's data and index files as if
/// they were one file. Returns the files.
fn flip(folder: &Path, seed: u64, count: u64) -> Result<HashSet<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("data-") || name.starts_with("index-") {
            files.push((fs::read(&path)?, path));
        }
    }
    files.sort_by(|(_, a), (_, b)| a.cmp(b));
    let total: u64 = files.iter().map(|(bytes, _)| bytes.len() as u64).sum();
    let mut places = HashSet::new();
    for n in 0.. {
        if places.len() as u64 == count.min(total) {
            break;
        }
        places.insert(mix(mix(seed) ^ n) % total);
    }
    let mut damaged = HashSet::new();
    for mut place in places {
        for (bytes, path) in &mut files {
            if let Some(byte) = bytes.get_mut(place as usize) {
                *byte ^= 1 << (mix(place) % 8);
                damaged.insert(path.clone());
                break;
            }
            place -= bytes.len() as u64;
        }
    }
    for (bytes, path) in files {
        fs::write(path, bytes)?;
    }
    Ok(damaged)
}

/// The results of lookups of all keys.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    right_values: u64,
    silent_misses: u64,
    wrong_values: u64,
    errors: u64,
}

fn look_up(follower: &StoreReader, data: &Data, name: &mut dyn FnMut(&hashfold::Error)) -> Tally {
    let mut tally = Tally::default();
    let mut value = Vec::new();
    for i in 0..data.count {
        data.fill_value(i, &mut value);
        match follower.version().get(data.key(i)) {
            Ok(Some(found)) if found == value => tally.right_values += 1,
            Ok(Some(_)) => tally.wrong_values += 1,
            Ok(None) => tally.silent_misses += 1,
            Err(error) => {
                tally.errors += 1;
                name(&error);
            }
        }
    }
    tally
}

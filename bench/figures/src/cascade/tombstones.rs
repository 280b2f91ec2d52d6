//! Section 3, the cascade filter with a tombstone bit: the cost of removals.

use super::{
    BATCH, FOLDER, MEMORY_MIB, TINY_MEMORY_MIB, check_present, count_found, hash, settings,
};
use crate::{
    CascadeKeys, Options, Result,
    builds::device_rates,
    measure::{TemporaryFolder, cost, ensure},
    paper,
    sheet::{OURS, PAPER, Row, Sheet},
};
use hashfold::{
    KeyHash,
    filter::{
        Mode,
        cascade::{CascadeFilter, CascadeOptions},
    },
};
use record::{Bar, Panel, Samples, draw as draw_bars};
use std::{fs, path::Path};

/// In runs with removals, one change in N is a removal.
const REMOVAL: u64 = 8;

/// Ways to change a filter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Removals,
    Multiset,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Plain, "insertions only"),
    (Way::Removals, "an eighth removals"),
    (Way::Multiset, "multiset, insertions only"),
];

/// One way in one round.
struct Told {
    per_cpu_s: f64,
    per_s: f64,
    bits_per_item: f64,
}

pub fn tombstones(options: &Options, sizes: &CascadeKeys) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let folder = TemporaryFolder::create(&options.dir, "cascade-tombstones")?;
    let device = device_rates(&folder.path, if options.quick { 1 << 22 } else { 1 << 30 })?;
    let keys = options.size(sizes.keys, 200_000_000, 500_000);
    let memory_mib = options.size(sizes.memory, MEMORY_MIB, TINY_MEMORY_MIB);
    let mut rounds: [Vec<Told>; WAYS.len()] = Default::default();
    for _ in 0..options.rounds {
        for ((way, _), rounds) in WAYS.into_iter().zip(&mut rounds) {
            let path = folder.path.join("cascade");
            rounds.push(tell(options, way, keys, memory_mib, &path)?);
            fs::remove_dir_all(&path)?;
        }
    }
    let mut sheet = Sheet::new(TITLE, options);
    super::note_means(&mut sheet, memory_mib, device);
    sheet.note("data", format!("{keys} changes of numbered keys of 8 bytes; error rate 0.04 %"));
    sheet.note(
        "time",
        "until all is in runs and no work in the background is left; CPU time is that of all threads; \
         median of the rounds. Every filter of ours can remove: where nothing is \
         removed, that takes no bit and no time. The paper's rates are a second of the clock",
    );
    paper_rows().into_iter().for_each(|row| sheet.add(row));
    for ((_, name), told) in WAYS.into_iter().zip(&rounds) {
        sheet.add(row(name, told, &rounds[0]));
    }
    sheet.save(options, "cascade-tombstones", draw)
}

const TITLE: &str = "Insertions with and without removals (section 3)";

/// Returns the row of one way; each round is compared with plain insertions in the same round.
fn row(name: &str, rounds: &[Told], plain: &[Told]) -> Row {
    let of = |of: &dyn Fn(&Told) -> f64| Samples::from(rounds.iter().map(of).collect::<Vec<f64>>());
    let both = rounds.iter().zip(plain);
    let percent = both.map(|(told, plain)| told.per_cpu_s / plain.per_cpu_s * 100.0);
    Row::new("series", name, OURS)
        .spread("million_changes_per_cpu_s", &of(&|told| told.per_cpu_s), 2)
        .spread("million_changes_per_s", &of(&|told| told.per_s), 2)
        .spread("percent_of_plain", &percent.collect::<Vec<f64>>().into(), 1)
        .spread("bits_per_item", &of(&|told| told.bits_per_item), 2)
}

fn paper_rows() -> [Row; 2] {
    let stated = [
        ("insertions only", paper::CASCADE_INSERTIONS_PER_S),
        ("with a tombstone bit", paper::CASCADE_TOMBSTONES_PER_S),
    ];
    stated.map(|(name, per_s)| {
        let percent = per_s / paper::CASCADE_INSERTIONS_PER_S * 100.0;
        Row::new("series", name, PAPER).rounded("million_changes_per_s", per_s / 1e6, 2).rounded(
            "percent_of_plain",
            percent,
            1,
        )
    })
}

pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let bars = |columns: [&str; 2]| -> Vec<Bar> {
        let bar = |row: &Row| {
            let is_paper = row.is_of(PAPER);
            let (whose, column) =
                if is_paper { ("paper", columns[0]) } else { ("ours", columns[1]) };
            row.bar(&format!("{whose}: {}", row.string("series")), column)
        };
        rows.iter().filter_map(bar).collect()
    };
    let panel = |title: &str, bars| Panel { title: title.to_owned(), bars, limit: None };
    let panels = [
        panel(
            "Changes, % of plain insertions; more is better",
            bars(["percent_of_plain", "percent_of_plain"]),
        ),
        panel(
            "Changes, million per CPU second (paper: per second); more is better",
            bars(["million_changes_per_s", "million_changes_per_cpu_s"]),
        ),
    ];
    draw_bars(path, TITLE, &panels)
}

/// Applies changes to a new filter, and checks its content.
fn tell(
    options: &Options,
    way: Way,
    changes: u64,
    memory_mib: usize,
    folder: &Path,
) -> Result<Told> {
    let mode = if way == Way::Multiset { Mode::Multiset } else { Mode::Set };
    let new = CascadeOptions { mode, ..super::options_for(changes, options)? };
    let mut filter = CascadeFilter::create(folder, &new, settings(memory_mib, false))?;
    let removed_of = |count: u64| if way == Way::Removals { count / REMOVAL } else { 0 };
    let (mut inserted, mut removed) = (0, 0);
    let (told, ()) = cost(|| {
        for start in (0..changes).step_by(BATCH as usize) {
            let count = BATCH.min(changes - start);
            let removals = removed_of(count);
            let some = |first: u64, count: u64| -> Vec<KeyHash> {
                (first..first + count).map(|i| hash(i, options.seed)).collect()
            };
            filter.insert_batch(&some(inserted, count - removals))?;
            inserted += count - removals;
            if removals > 0 {
                filter.remove_batch(&some(removed, removals))?;
                removed += removals;
            }
        }
        Ok(filter.wait_for_merges()?)
    })?;
    check(options, &mut filter, removed, inserted)?;
    let bits_per_item = filter.stats().bits_per_fingerprint();
    let million = |seconds: f64| changes as f64 / seconds / 1e6;
    Ok(Told { per_cpu_s: million(told.cpu), per_s: million(told.wall), bits_per_item })
}

/// Checks that the first keys, in order, were removed again, and that all others are present.
fn check(options: &Options, filter: &mut CascadeFilter, removed: u64, inserted: u64) -> Result<()> {
    filter.merge()?;
    if removed == 0 {
        return check_present(filter, 0, inserted, options.seed);
    }
    let gone: Vec<KeyHash> = (0..removed.min(20_000)).map(|i| hash(i, options.seed)).collect();
    let still = count_found(filter, &gone)? as f64 / gone.len() as f64;
    ensure(still < 2.0 * super::ERROR_RATE + 1e-3, || format!("{still} of the removed are in"))?;
    // Few of the remaining keys have the fingerprint of a removed key.
    let there: Vec<KeyHash> =
        (inserted - removed.min(20_000)..inserted).map(|i| hash(i, options.seed)).collect();
    let lost = 1.0 - count_found(filter, &there)? as f64 / there.len() as f64;
    ensure(lost < 2.0 * super::ERROR_RATE + 1e-3, || format!("{lost} of the keys were lost"))
}

//! Section 3, the cascade filter with a tombstone bit: the cost of removals.

use super::{
    BATCH, FOLDER, MEMORY_MIB, TINY_MEMORY_MIB, check_present, count_found, hash, settings,
};
use crate::{
    CascadeKeys, Options, Result,
    builds::device_rates,
    measure::{TemporaryFolder, cost, ensure},
    paper,
    sheet::{OURS, PAPER, Sheet},
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

const COLUMNS: &[&str] = &[
    "series",
    "source",
    "million_changes_per_cpu_s",
    "min",
    "max",
    "million_changes_per_s",
    "percent_of_plain",
    "bits_per_item",
];

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
    let title = "Insertions with and without removals (section 3)";
    let mut sheet = Sheet::new(title, options, COLUMNS);
    super::note_means(&mut sheet, memory_mib, device);
    sheet.note("data", format!("{keys} changes of numbered keys of 8 bytes; error rate 0.04 %"));
    sheet.note(
        "time",
        "until all is in runs and no work in the background is left; CPU time is that of all threads; \
         median of the rounds. Every filter of ours can remove: where nothing is \
         removed, that takes no bit and no time. The paper's rates are a second of the clock",
    );
    let mut panels = [
        "Changes, % of plain insertions; more is better",
        "Changes, million for each CPU second (paper: of the clock); more is better",
    ]
    .map(|title| Panel { title: title.to_owned(), bars: Vec::new(), limit: None });
    paper_rows(&mut sheet, &mut panels);
    let of = |i: usize, of: &dyn Fn(&Told) -> f64| {
        Samples::from(rounds[i].iter().map(of).collect::<Vec<f64>>())
    };
    let plain = of(0, &|told| told.per_cpu_s).median();
    for (i, (_, name)) in WAYS.into_iter().enumerate() {
        let cpu = of(i, &|told| told.per_cpu_s);
        let percent = cpu.median() / plain * 100.0;
        let mut row = vec![name.to_owned(), OURS.to_owned()];
        row.extend([cpu.median(), cpu.min(), cpu.max()].map(|rate| format!("{rate:.2}")));
        row.push(format!("{:.2}", of(i, &|told| told.per_s).median()));
        row.push(format!("{percent:.1}"));
        row.push(format!("{:.2}", of(i, &|told| told.bits_per_item).median()));
        sheet.row(row);
        let name = format!("ours: {name}");
        let (value, range) = (cpu.median(), Some((cpu.min(), cpu.max())));
        panels[0].bars.push(Bar { name: name.clone(), value: percent, range: None });
        panels[1].bars.push(Bar { name, value, range });
    }
    let path = sheet.save(options, "cascade-tombstones")?;
    draw_bars(&path, title, &panels)
}

fn paper_rows(sheet: &mut Sheet, panels: &mut [Panel; 2]) {
    let stated = [
        ("insertions only", paper::CASCADE_INSERTIONS_PER_S),
        ("with a tombstone bit", paper::CASCADE_TOMBSTONES_PER_S),
    ];
    for (name, per_s) in stated {
        let percent = per_s / paper::CASCADE_INSERTIONS_PER_S * 100.0;
        let mut row = vec![name.to_owned(), PAPER.to_owned()];
        row.extend([String::new(), String::new(), String::new()]);
        row.extend([format!("{:.2}", per_s / 1e6), format!("{percent:.1}"), String::new()]);
        sheet.row(row);
        for (panel, value) in panels.iter_mut().zip([percent, per_s / 1e6]) {
            let name = format!("paper: {name}");
            panel.bars.push(Bar { name, value, range: None });
        }
    }
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

//! Batches of all sizes, merged or applied as deltas, compared with rebuilding.

use crate::{
    Options, Result, Updates,
    builds::{THREADS, describe, device_rates},
    chart::{self, Axis, Chart, Look, Point, Series},
    items::{Items, Kind},
    measure::{TemporaryFolder, ensure},
    sheet::{OURS, Row, Sheet},
    stores::{Part, Store},
};
use hashfold::{
    store::{UpdateMode, VersionInfo},
    work::Threads,
};
use plotters::style::RGBColor;
use record::{Samples, short};
use std::{fs, ops::Range, path::Path, sync::Arc};

/// Sizes of batches, as fractions of the items.
const PARTS: [f64; 4] = [0.001, 0.01, 0.1, 1.0];

const MODES: [(&str, UpdateMode, RGBColor); 2] = [
    ("ours, a delta if that is cheap", UpdateMode::Auto, chart::BLUE),
    ("ours, always merged", UpdateMode::Merge, chart::SKY),
];

/// One batch in one mode, in all rounds.
struct Updated {
    seconds: Samples,
    rebuild_seconds: Samples,
    over_rebuild: Samples,
    written_per_changed_byte: f64,
}

/// The items, and the changed items.
struct Site<'a> {
    store: Store<'a>,
    rebuilt: Store<'a>,
    changed: Items,
    folder: &'a Path,
    rounds: u32,
}

pub fn updates(options: &Options, sizes: &Updates) -> Result<()> {
    let options = &options.by_default_in("results/store");
    let folder = TemporaryFolder::create(&options.dir, "updates")?;
    let device = device_rates(&folder.path, if options.quick { 1 << 22 } else { 1 << 30 })?;
    let count = options.size(sizes.items, 1_000_000, 5000);
    let memory_mib = options.size(sizes.memory, 256, 1);
    let items = Items::new(Kind::Numbers, count, options.seed);
    let store = |name| Store { folder: folder.path.join(name), items: &items, memory_mib };
    let site = Site {
        store: store("store"),
        rebuilt: store("rebuilt"),
        // The same keys with other values.
        changed: Items::new(Kind::Numbers, count, !options.seed),
        folder: &folder.path,
        rounds: options.rounds,
    };
    let input = site.write(&items, 0..count, "input")?;
    let (_, base) = site.store.build(&[input])?;
    site.store.check(&base, count)?;
    let measured: Result<Vec<[Updated; 2]>> =
        PARTS.iter().map(|part| site.measure(&base, (count as f64 * part) as u64)).collect();
    let measured = measured?;
    let mut sheet = new_sheet(options, &items, memory_mib, device);
    for (i, (name, _, _)) in MODES.into_iter().enumerate() {
        for (part, updated) in PARTS.iter().zip(&measured) {
            let updated = &updated[i];
            let row = Row::new("series", name, OURS)
                .number("batch_percent", part * 100.0)
                .spread("update_s", &updated.seconds, 3)
                .spread("rebuild_s", &updated.rebuild_seconds, 3)
                .spread("over_rebuild", &updated.over_rebuild, 4)
                .rounded("written_per_changed_byte", updated.written_per_changed_byte, 2);
            sheet.add(row);
        }
    }
    sheet.save(options, "updates", draw)
}

impl Site<'_> {
    fn write(&self, items: &Items, numbers: Range<u64>, name: &str) -> Result<Part> {
        let (path, count) = (self.folder.join(name), numbers.end - numbers.start);
        items.write_some(numbers, &path, Arc::new(Threads::new(THREADS)))?;
        Ok(Part { path, count })
    }

    /// Changes the first `size` items in all modes, alternating with a rebuild.
    fn measure(&self, base: &VersionInfo, size: u64) -> Result<[Updated; 2]> {
        let items = self.store.items;
        let batch = [self.write(&self.changed, 0..size, "batch")?];
        let [one] = &batch;
        let rest = self.write(items, size..items.count, "rest")?;
        let whole = [rest, Part { path: one.path.clone(), count: one.count }];
        let (mut seconds, mut over) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let (mut rebuilds, mut written) = (Vec::new(), [0.0; 2]);
        for _ in 0..self.rounds {
            let (rebuild, info) = self.rebuilt.build(&whole)?;
            self.rebuilt.check(&info, items.count)?;
            fs::remove_dir_all(&self.rebuilt.folder)?;
            rebuilds.push(rebuild.wall);
            for (i, (_, mode, _)) in MODES.into_iter().enumerate() {
                let (cost, info) = self.store.update(&batch, mode, 2)?;
                let changed = info.changes.map(|changes| changes.changed);
                ensure(changed.is_none_or(|changed| changed == size), || {
                    format!("{changed:?} items were changed, not {size}")
                })?;
                self.check(&info)?;
                let new = info.layers().filter(|layer| base.layers().all(|old| old != *layer));
                let bytes: u64 = new.map(|layer| layer.bytes).sum();
                written[i] = bytes as f64 / (size * items.kind.mean_size() as u64) as f64;
                self.store.take_back()?;
                seconds[i].push(cost.wall);
                over[i].push(cost.wall / rebuild.wall);
            }
        }
        let updated = |i: usize| Updated {
            seconds: seconds[i].clone().into(),
            rebuild_seconds: rebuilds.clone().into(),
            over_rebuild: over[i].clone().into(),
            written_per_changed_byte: written[i],
        };
        Ok([updated(0), updated(1)])
    }

    /// The keys of a delta may be new or not, so only merged versions have an exact count.
    fn check(&self, info: &VersionInfo) -> Result<()> {
        let count = self.store.items.count;
        ensure(info.entries().contains(&count), || format!("entries: {:?}", info.entries()))?;
        self.store.check_some(info, count)
    }
}

fn new_sheet(options: &Options, items: &Items, memory_mib: u64, device: String) -> Sheet {
    let mut sheet = Sheet::new("Update time by the size of the batch", options);
    sheet.note("data", format!("{}; a batch gives some of them other values", describe(items)));
    sheet.note("memory", format!("{memory_mib} MiB, in which items are sorted"));
    sheet.note("device", device);
    sheet.note("threads", format!("one that sorts and {THREADS} for the device"));
    sheet.note(
        "time",
        "from the first byte of the input read until the version is published and the spill is freed, \
         of which only the first part goes through the page cache; \
         against a rebuild of the same contents in the same round; median, least and most of the \
         rounds; written: the new files, by the bytes of the batch",
    );
    sheet
}

pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let mut series = vec![Series {
        name: "a rebuild".to_owned(),
        look: Look::Dashed,
        colour: chart::GREY,
        points: [PARTS[0], PARTS[PARTS.len() - 1]].map(|x| Point::new(x * 100.0, 1.0)).into(),
    }];
    for (name, mode, colour) in MODES {
        let point = |row: &Row| {
            let point = row.point("batch_percent", "over_rebuild")?;
            // A delta has only the changed bytes.
            let written = row.get("written_per_changed_byte").filter(|_| mode == UpdateMode::Merge);
            Some(Point { label: written.map(short), ..point })
        };
        let mine = rows.iter().filter(|row| row.string("series") == name);
        let points = mine.filter_map(point).collect();
        series.push(Series { name: name.to_owned(), look: Look::DottedLine, colour, points });
    }
    let points = series.iter().flat_map(|series| &series.points);
    let least = points.map(|p| p.range.map_or(p.y, |(low, _)| low)).fold(f64::MAX, f64::min);
    Chart {
        title: "Update time by the size of the batch; labels: bytes written per changed byte"
            .to_owned(),
        // Space for the label of the last point.
        x: Axis::decades("batch, % of the items", 0.1, 1000.0),
        y: Axis::logarithmic(
            "time of an update, divided by that of a rebuild; less is better",
            least,
            2.0,
        ),
        series,
    }
    .draw(path)
}

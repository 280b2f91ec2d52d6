//! Figures 10 and 11 and Table 1: lookup times in memory, by the size of the index.

use crate::{
    Keys, Options, Result,
    chart::{self, Axis, Chart, Look, Point, Series},
    hashes::{Hashes, Indexed, LOOKUPS_MAX, LookupTimes, PASSES},
    paper,
    sheet::{Draw, OURS, PAPER, Row, Sheet, of},
    sizes::index_options,
};
use hashfold::table::{HashIndex, IndexOptions};
use record::{Bar, Panel, Samples, draw as draw_bars};
use std::path::Path;

/// One index, measured.
struct Measured {
    knobs: Knobs,
    bits: f64,
    trie_bits: f64,
    explicit: u64,
    times: LookupTimes,
}

/// The parameters g and hmax of the paper.
#[derive(Clone, Copy, Debug)]
struct Knobs {
    bucket_size: u32,
    coding_limit: u32,
}

impl Measured {
    fn all(hashes: &Hashes, knobs: &[Knobs], rounds: u32) -> Result<Vec<Measured>> {
        let build =
            |knobs: &Knobs| dense(hashes, index_options(knobs.bucket_size, knobs.coding_limit));
        let indexes = knobs.iter().map(build).collect::<Result<Vec<Indexed>>>()?;
        let times = hashes.time(&indexes, rounds)?;
        let measured =
            knobs.iter().zip(indexes).zip(times).map(|((&knobs, one), times)| Measured {
                knobs,
                bits: hashes.bits(one.index.bytes()),
                trie_bits: hashes.bits(one.index.stats().coded_bytes),
                explicit: one.index.stats().explicit_superblocks,
                times,
            });
        Ok(measured.collect())
    }

    fn row(&self, name: &str) -> Row {
        let row = Row::new("series", name, OURS)
            .number("bucket_size", f64::from(self.knobs.bucket_size))
            .number("coding_limit", f64::from(self.knobs.coding_limit))
            .rounded("bits_per_key", self.bits, 4)
            .rounded("trie_bits_per_key", self.trie_bits, 4)
            .number("explicit_superblocks", self.explicit as f64);
        add_times(row, ["lookup_ns", "batched_ns"], &self.times, 1.0, 1)
    }
}

/// Adds the times of lookups by themselves and in batches: the least of all passes, the median, and
/// the range of the passes.
fn add_times(row: Row, columns: [&str; 2], times: &LookupTimes, scale: f64, decimals: i32) -> Row {
    let both = columns.into_iter().zip([&times.single, &times.batch]);
    both.fold(row, |row, (column, passes)| {
        let scaled = [passes.min(), passes.median(), passes.max()].map(|ns| ns * scale);
        row.rounded(column, scaled[0], decimals).spread(
            &format!("{column}_median"),
            &Samples::from(scaled.to_vec()),
            decimals,
        )
    })
}

/// Returns the row of the one point that the paper has in both figures.
fn paper_row() -> Row {
    Row::new("series", "paper: ECT", PAPER)
        .number("bucket_size", 256.0)
        .number("coding_limit", 64.0)
        .number("bits_per_key", paper::ECT.bits_per_key)
        .number("lookup_ns", paper::ECT.lookup_us * 1e3)
}

fn new_sheet(title: &str, options: &Options, count: u64) -> Sheet {
    let mut sheet = Sheet::new(title, options);
    sheet.note(
        "data",
        format!("{count} uniform hashes, up to {LOOKUPS_MAX} random lookups, all checked"),
    );
    sheet.note("threads", "1");
    let passes = PASSES * options.rounds;
    sheet.note(
        "time",
        format!(
            "CPU time of the thread: least and median of {passes} passes, in which the indexes \
             take turns; the machine was shared with other work"
        ),
    );
    sheet.note("paper machine", paper::MACHINE);
    sheet
}

pub fn figure_10(options: &Options, sizes: &Keys) -> Result<()> {
    let count = options.size(sizes.keys, 16_000_000, 60_000);
    let title = "Figure 10: index size and lookup time, by bucket size";
    let mut sheet = new_sheet(title, options, count);
    sheet.note(
        "paper",
        "states one point, 2.5 bits and 7 us at g = 256, and 67 K queries a second a core, which \
         would be 15 us",
    );
    let hashes = Hashes::new(count, options.seed);
    let knobs = [16, 24, 32, 48, 64, 96, 128, 256, 512]
        .map(|bucket_size| Knobs { bucket_size, coding_limit: 32 });
    let measured = Measured::all(&hashes, &knobs, options.rounds)?;
    save(options, sheet, "fig10", draw_10, &measured)
}

pub fn draw_10(rows: &[Row], path: &Path) -> Result<()> {
    let label = |row: &Row| format!("g = {}", row.get("bucket_size").unwrap_or_default());
    let x = |max: f64| Axis::linear(BITS, 2.2, (max * 5.0).ceil() / 5.0, 0.2);
    let title = "Figure 10: index size and in-memory lookup time, by bucket size g";
    draw(rows, path, title, &label, &x)
}

pub fn figure_11(options: &Options, sizes: &Keys) -> Result<()> {
    let count = options.size(sizes.keys, 16_000_000, 60_000);
    let title = "Figure 11: index size and lookup time, by the limit on Huffman coding";
    let mut sheet = new_sheet(title, options, count);
    sheet.note("paper", "states one point, 2.5 bits and 7 us at hmax = 64");
    let hashes = Hashes::new(count, options.seed);
    let knobs = [0, 2, 4, 8, 16, 32, 64, 128, 256]
        .map(|coding_limit| Knobs { bucket_size: 256, coding_limit });
    let measured = Measured::all(&hashes, &knobs, options.rounds)?;
    save(options, sheet, "fig11", draw_11, &measured)
}

pub fn draw_11(rows: &[Row], path: &Path) -> Result<()> {
    let label = |row: &Row| match row.get("coding_limit") {
        Some(limit) if limit > 0.0 => limit.to_string(),
        _ => "no Huffman".to_owned(),
    };
    let x = |max: f64| Axis::linear(BITS, 2.4, (max * 10.0).ceil() / 10.0, 0.1);
    let title = "Figure 11: index size and in-memory lookup time, by coding limit hmax, g = 256";
    draw(rows, path, title, &label, &x)
}

const BITS: &str = "bits per key, whole index; less is better";

/// Maximum bits per key that are drawn: larger indexes would squeeze all others.
const BITS_DRAWN: f64 = 4.0;

/// Makes an x axis up to about this value.
type MakeAxis<'a> = dyn Fn(f64) -> Axis + 'a;

fn save(
    options: &Options,
    mut sheet: Sheet,
    name: &str,
    draw: Draw,
    measured: &[Measured],
) -> Result<()> {
    sheet.note(
        "explicit superblocks",
        format!("do not fit their form and list hashes in full; above {BITS_DRAWN} bits not drawn"),
    );
    sheet.add(paper_row());
    measured.iter().for_each(|one| sheet.add(one.row("ours")));
    sheet.save(options, name, draw)
}

fn draw(
    rows: &[Row],
    path: &Path,
    title: &str,
    label: &dyn Fn(&Row) -> String,
    x: &MakeAxis<'_>,
) -> Result<()> {
    let bits = |row: &Row| row.get("bits_per_key").unwrap_or_default();
    let ours = || of(rows, OURS).filter(|row| bits(row) < BITS_DRAWN);
    // A point is at the least of all passes; its range reaches to their median.
    let point = |row: &Row, column: &str| {
        let median = row.get(&format!("{column}_median"));
        let range = row.get(column).zip(median);
        row.point("bits_per_key", column).map(|point| Point { range, ..point })
    };
    let single = ours().filter_map(|row| Some(point(row, "lookup_ns")?.labelled(label(row))));
    let batch = ours().filter_map(|row| point(row, "batched_ns"));
    let stated = of(rows, PAPER).filter_map(|row| row.point("bits_per_key", "lookup_ns"));
    let stated = stated.map(|point| point.labelled(paper::ECT.note));
    let series =
        |name: &str, look, colour, points| Series { name: name.to_owned(), look, colour, points };
    let series = vec![
        series("paper: ECT, as stated", Look::Squares, chart::ORANGE, stated.collect()),
        series("ours, one by one", Look::DottedLine, chart::BLUE, single.collect()),
        series("ours, in batches", Look::DottedLine, chart::TEAL, batch.collect()),
    ];
    let bits_max = ours().map(bits).fold(0.0, f64::max);
    let fastest = ours().filter_map(|row| row.get("batched_ns")).fold(f64::MAX, f64::min);
    let y = Axis::logarithmic("CPU time of a lookup, ns; less is better", fastest, 10_000.0);
    Chart { title: title.to_owned(), x: x(bits_max), y, series }.draw(path)
}

/// Writes the summary: bits and lookup time.
pub fn table_1(options: &Options, sizes: &Keys) -> Result<()> {
    let count = options.size(sizes.keys, 16_000_000, 60_000);
    let hashes = Hashes::new(count, options.seed);
    let title = "Table 1: bits a key and time of a lookup in memory";
    let mut sheet = new_sheet(title, options, count);
    for one in paper::TABLE_1 {
        let row = Row::new("scheme", one.scheme, PAPER).number("bits_per_key", one.bits_per_key);
        sheet.add(row.number("lookup_us", one.lookup_us).text("note", one.note));
    }
    let (names, indexes): (Vec<_>, Vec<_>) = indexes(&hashes)?.into_iter().unzip();
    let measured = hashes.time(&indexes, options.rounds)?;
    for (((name, note), one), times) in names.into_iter().zip(indexes).zip(measured) {
        let bits = hashes.bits(one.index.bytes());
        let row = Row::new("scheme", name, OURS).rounded("bits_per_key", bits, 3);
        let row = add_times(row, ["lookup_us", "batched_us"], &times, 1e-3, 4);
        sheet.add(row.text("note", note));
    }
    sheet.save(options, "table1", draw_table_1)
}

pub fn draw_table_1(rows: &[Row], path: &Path) -> Result<()> {
    let bars = |column: &str| -> Vec<Bar> {
        let bar = |row: &Row| {
            let whose = if row.is_of(PAPER) { "paper" } else { "ours" };
            let bar = row.bar(&format!("{whose}: {}", row.string("scheme")), column)?;
            let median = row.get(&format!("{column}_median"));
            Some(Bar { range: median.map(|median| (bar.value, median)), ..bar })
        };
        rows.iter().filter_map(bar).collect()
    };
    let panel = |title: &str, bars| Panel { title: title.to_owned(), bars, limit: None };
    let panels = [
        panel("Memory, bits per key; less is better", bars("bits_per_key")),
        panel("CPU time of a lookup in memory, µs; less is better", bars("lookup_us")),
    ];
    draw_bars(path, "Table 1: summary, the paper's values (orange) and ours (blue)", &panels)
}

fn dense(hashes: &Hashes, options: IndexOptions) -> Result<Indexed> {
    let input = hashes.sorted.iter().copied();
    Ok(Indexed { index: HashIndex::dense(input, hashes.count(), &options)?, slack: 0 })
}

/// The name of an index, and the result of its lookups.
type Named = (&'static str, &'static str);

/// The indexes of Table 1.
fn indexes(hashes: &Hashes) -> Result<Vec<(Named, Indexed)>> {
    const BLOCK: u64 = 16;
    let (input, count) = (|| hashes.sorted.iter().copied(), hashes.count());
    let rank = "the rank of every key";
    let sparse = HashIndex::sparse(input(), count, BLOCK, &index_options(256, 32))?;
    let fences = HashIndex::fences(input(), count, BLOCK)?;
    Ok(vec![
        (("dense trie, g = 256", rank), dense(hashes, index_options(256, 32))?),
        (("dense trie, g = 64", rank), dense(hashes, index_options(64, 32))?),
        (
            ("sparse trie, 16 in a block", "the block of every key"),
            Indexed { index: sparse, slack: 0 },
        ),
        (
            ("fences, 16 in a block", "the block of every key or the one after it"),
            Indexed { index: fences, slack: BLOCK },
        ),
    ])
}

//! Figures 10 and 11 and Table 1: lookup times in memory, by the size of the index.

use crate::{
    Keys, Options, Result,
    chart::{self, Axis, Chart, Look, Point, Series},
    hashes::{Hashes, Indexed, LOOKUPS_MAX, LookupTimes, PASSES},
    paper,
    sheet::{OURS, PAPER, Sheet},
    sizes::index_options,
};
use hashfold::table::{HashIndex, IndexOptions};
use record::{Bar, Panel, Samples, draw as draw_bars};

const COLUMNS: &[&str] = &[
    "series",
    "source",
    "bucket_size",
    "coding_limit",
    "bits_per_key",
    "trie_bits_per_key",
    "explicit_superblocks",
    "lookup_ns",
    "lookup_ns_median",
    "batched_ns",
    "batched_ns_median",
];

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

    fn row(&self, name: &str) -> Vec<String> {
        let mut row = vec![name.to_owned(), OURS.to_owned()];
        row.extend([self.knobs.bucket_size, self.knobs.coding_limit].map(|knob| knob.to_string()));
        row.extend([self.bits, self.trie_bits].map(|bits| format!("{bits:.4}")));
        row.push(self.explicit.to_string());
        let times = [&self.times.single, &self.times.batch];
        let times = times.map(|rounds| [rounds.min(), rounds.median()]);
        row.extend(times.as_flattened().iter().map(|ns| format!("{ns:.1}")));
        row
    }
}

/// Returns the row of the one point that the paper has in both figures.
fn paper_row() -> Vec<String> {
    let texts = ["paper: ECT", PAPER, "256", "64", "2.5", "", "", "7000", "", "", ""];
    texts.map(str::to_owned).to_vec()
}

fn new_sheet(
    title: &str,
    options: &Options,
    count: u64,
    columns: &'static [&'static str],
) -> Sheet {
    let mut sheet = Sheet::new(title, options, columns);
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
    let mut sheet = new_sheet(title, options, count, COLUMNS);
    sheet.note(
        "paper",
        "states one point, 2.5 bits and 7 us at g = 256, and 67 K queries a second a core, which \
         would be 15 us",
    );
    let hashes = Hashes::new(count, options.seed);
    let knobs = [16, 24, 32, 48, 64, 96, 128, 256, 512]
        .map(|bucket_size| Knobs { bucket_size, coding_limit: 32 });
    let measured = Measured::all(&hashes, &knobs, options.rounds)?;
    let label = |one: &Measured| format!("g = {}", one.knobs.bucket_size);
    let x = |max: f64| Axis::linear("bits a key, whole index", 2.2, (max * 5.0).ceil() / 5.0, 0.2);
    let title = "Figure 10: index size and in-memory lookup time, by bucket size g";
    save(options, sheet, "fig10", title, &measured, &label, &x)
}

pub fn figure_11(options: &Options, sizes: &Keys) -> Result<()> {
    let count = options.size(sizes.keys, 16_000_000, 60_000);
    let title = "Figure 11: index size and lookup time, by the limit on Huffman coding";
    let mut sheet = new_sheet(title, options, count, COLUMNS);
    sheet.note("paper", "states one point, 2.5 bits and 7 us at hmax = 64");
    let hashes = Hashes::new(count, options.seed);
    let knobs = [0, 2, 4, 8, 16, 32, 64, 128, 256]
        .map(|coding_limit| Knobs { bucket_size: 256, coding_limit });
    let measured = Measured::all(&hashes, &knobs, options.rounds)?;
    let label = |one: &Measured| match one.knobs.coding_limit {
        0 => "no Huffman".to_owned(),
        limit => limit.to_string(),
    };
    let x =
        |max: f64| Axis::linear("bits a key, whole index", 2.4, (max * 10.0).ceil() / 10.0, 0.1);
    let title = "Figure 11: index size and in-memory lookup time, by coding limit hmax, g = 256";
    save(options, sheet, "fig11", title, &measured, &label, &x)
}

/// Maximum bits per key that are drawn: larger indexes would squeeze all others.
const BITS_DRAWN: f64 = 4.0;

/// Makes an x axis, whose end is known only after the measurements.
type MakeAxis<'a> = dyn Fn(f64) -> Axis + 'a;

fn save(
    options: &Options,
    mut sheet: Sheet,
    name: &str,
    title: &str,
    measured: &[Measured],
    label: &dyn Fn(&Measured) -> String,
    x: &MakeAxis<'_>,
) -> Result<()> {
    sheet.note(
        "explicit superblocks",
        format!("do not fit their form and list hashes in full; above {BITS_DRAWN} bits not drawn"),
    );
    sheet.row(paper_row());
    measured.iter().for_each(|one| sheet.row(one.row("ours")));
    let path = sheet.save(options, name)?;
    let measured = || measured.iter().filter(|one| one.bits < BITS_DRAWN);
    let point = |one: &Measured, rounds: &Samples| Point {
        range: Some((rounds.min(), rounds.median())),
        ..Point::new(one.bits, rounds.min())
    };
    let single = measured().map(|one| point(one, &one.times.single).labelled(label(one))).collect();
    let batch = measured().map(|one| point(one, &one.times.batch)).collect();
    let stated = Point::new(paper::ECT.bits_per_key, paper::ECT.lookup_us * 1e3);
    let stated = stated.labelled(paper::ECT.note);
    let of =
        |name: &str, look, colour, points| Series { name: name.to_owned(), look, colour, points };
    let series = vec![
        of("paper: ECT, as stated", Look::Squares, chart::ORANGE, vec![stated]),
        of("ours, one by one", Look::DottedLine, chart::BLUE, single),
        of("ours, in batches", Look::DottedLine, chart::TEAL, batch),
    ];
    let bits_max = measured().map(|one| one.bits).fold(0.0, f64::max);
    let fastest = measured().map(|one| one.times.batch.min()).fold(f64::MAX, f64::min);
    let y = Axis::logarithmic("CPU time of a lookup, ns", fastest, 10_000.0);
    Chart { title: title.to_owned(), x: x(bits_max), y, series }.draw(&path)
}

const TABLE_1_COLUMNS: &[&str] =
    &["scheme", "source", "bits_per_key", "lookup_us", "lookup_us_median", "batched_us", "note"];

/// Writes the summary: bits and lookup time.
pub fn table_1(options: &Options, sizes: &Keys) -> Result<()> {
    let count = options.size(sizes.keys, 16_000_000, 60_000);
    let hashes = Hashes::new(count, options.seed);
    let title = "Table 1: bits a key and time of a lookup in memory";
    let mut sheet = new_sheet(title, options, count, TABLE_1_COLUMNS);
    let (mut bits, mut times) = (Vec::new(), Vec::new());
    let mut add = |name: &str, bits_per_key, us| {
        let bar = |value| Bar { name: name.to_owned(), value, range: None };
        bits.push(bar(bits_per_key));
        times.push(bar(us));
    };
    for one in paper::TABLE_1 {
        let (size, time) = (one.bits_per_key.to_string(), one.lookup_us.to_string());
        let scheme = one.scheme.to_owned();
        let blank = String::new;
        sheet.row(vec![scheme, PAPER.into(), size, time, blank(), blank(), one.note.into()]);
        add(&format!("paper: {}", one.scheme), one.bits_per_key, one.lookup_us);
    }
    let (names, indexes): (Vec<_>, Vec<_>) = indexes(&hashes)?.into_iter().unzip();
    let measured = hashes.time(&indexes, options.rounds)?;
    for (((name, note), one), times) in names.into_iter().zip(indexes).zip(measured) {
        let size = hashes.bits(one.index.bytes());
        let [us, us_median, batch_us] =
            [times.single.min(), times.single.median(), times.batch.min()]
                .map(|ns| format!("{:.4}", ns / 1e3));
        let bits = format!("{size:.3}");
        sheet.row(vec![name.into(), OURS.into(), bits, us, us_median, batch_us, note.into()]);
        add(&format!("ours: {name}"), size, times.single.min() / 1e3);
    }
    let path = sheet.save(options, "table1")?;
    let panels = [
        Panel { title: "Memory, bits a key; less is better".to_owned(), bars: bits, limit: None },
        Panel {
            title: "CPU time of a lookup in memory, µs; less is better".to_owned(),
            bars: times,
            limit: None,
        },
    ];
    draw_bars(&path, "Table 1: summary, the paper's values (orange) and ours (blue)", &panels)
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

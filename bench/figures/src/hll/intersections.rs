//! Intersections of two sketches, and where they can be trusted.
//!
//! ```text
//! keys of A and of B ─→ sketches of 65,536 registers ─→ the lower precisions, by downsizing
//!         │                └─ inclusion–exclusion, maximum likelihood
//!         └→ samples of the smallest hashes, of the same bytes
//! ```

use super::{
    FOLDER,
    envelopes::{draw_envelopes, draw_ratios},
    histograms,
};
use crate::{
    HllRuns, Options, Result,
    chart::{self, Axis, Chart, Look, Point, Series},
    measure::ensure,
    sheet::{self, Draw, OURS, PAPER, Row, Sheet, of},
};
use hashfold::{
    KeyHash, Seed,
    sketch::{self, BottomK, Expression, Hll, Joint, Precision, PrefixSample},
};
use record::{Bar, Panel, draw as draw_bars};
use std::path::Path;

/// The binary logarithms of the numbers of registers in the posts.
pub(super) const PRECISIONS: [u8; 4] = [13, 14, 15, 16];
/// The largest of them: all others are sketches of it that are downsized.
const PRECISION_MAX: u8 = PRECISIONS[PRECISIONS.len() - 1];
/// How many times as many keys B has as A.
pub(super) const RATIOS: [u64; 10] = [1, 2, 5, 10, 20, 30, 50, 100, 200, 500];
/// The parts of A that are in B, too.
pub(super) const OVERLAPS: [f64; 3] = [0.01, 0.05, 0.1];
/// The overlap of the posts' cut-offs.
const CUT_OFF: f64 = 0.05;
/// The posts' cut-offs: number of registers, and the largest ratio that they advise.
pub(super) const CUT_OFFS: [(u64, u64); 4] = [(8192, 10), (16384, 20), (32768, 30), (65536, 100)];
/// Number of pairs at a cut-off for each pair of another kind: histograms need more.
const CUT_OFF_RUNS: u64 = 4;
/// Bits of a register as bytes.
const REGISTER_BITS: usize = 6;
/// Bits of a hash of a sample as bytes, and the binary logarithm of the number of keys.
const HASH_BITS: f64 = 42.0;
/// An answer is directionally correct if its relative error is no more than this.
pub(super) const DIRECTION: f64 = 0.5;

pub(super) const NAMES: [(&str, &str); 3] = [
    ("exclusion", "ours: inclusion–exclusion"),
    ("joint", "ours: maximum likelihood"),
    ("sample", "ours: sample of the same bytes"),
];

/// The relative errors of one estimator in one cell.
#[derive(Clone, Default)]
struct Errors {
    all: Vec<f64>,
    /// Number of intervals of 95 % that have the truth.
    covered: u64,
}

impl Errors {
    fn add(&mut self, truth: f64, value: f64, (low, high): (f64, f64)) {
        self.all.push(value / truth - 1.0);
        self.covered += u64::from(low <= truth && truth <= high);
    }

    /// Returns the part of the errors for which this is true.
    fn part(&self, is: impl Fn(f64) -> bool) -> f64 {
        self.all.iter().filter(|error| is(**error)).count() as f64 / self.all.len() as f64
    }

    fn root_mean_square(&self) -> f64 {
        let sum: f64 = self.all.iter().map(|error| error * error).sum();
        (sum / self.all.len() as f64).sqrt()
    }

    fn covered(&self) -> f64 {
        self.covered as f64 / self.all.len() as f64
    }
}

/// The estimators in the order of [`NAMES`].
type Cell = [Errors; NAMES.len()];

pub fn intersections(options: &Options, runs: &HllRuns) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let keys = options.size(runs.keys, 1_000_000, 20_000);
    let count = options.size(runs.runs, 100, 3);
    let titles = [TITLE, BUBBLE, HISTOGRAMS];
    let [mut all, mut bubble, mut shapes] = titles.map(|title| Sheet::new(title, options));
    for sheet in [&mut all, &mut bubble, &mut shapes] {
        note(sheet, count, keys);
    }
    add_cut_offs(&mut all);
    for overlap in OVERLAPS {
        for ratio in RATIOS {
            let of_a = keys / ratio;
            let shared = (of_a as f64 * overlap).round() as u64;
            if shared == 0 {
                continue;
            }
            let is_cut_off =
                |registers: u64| overlap == CUT_OFF && CUT_OFFS.contains(&(registers, ratio));
            let more =
                if PRECISIONS.iter().any(|it| is_cut_off(1 << it)) { CUT_OFF_RUNS } else { 1 };
            let mut cells: [Cell; PRECISIONS.len()] = Default::default();
            for run in 0..count * more {
                let seed = Seed(options.seed.wrapping_mul(1 << 20) + run);
                measure(&mut cells, seed, [of_a, keys, shared])?;
            }
            for (cell, precision) in cells.iter().zip(PRECISIONS) {
                let (registers, kind) = (1 << precision, (ratio, overlap));
                all.add(row(cell, registers, kind));
                if is_cut_off(registers) {
                    bubble.add(row(cell, registers, kind));
                    for row in histograms::rows(&name(registers, kind), &columns(cell)) {
                        shapes.add(row);
                    }
                }
            }
        }
    }
    all.save(options, "hll-intersections", draw)?;
    let draws: [(&str, Draw); 2] = [("hll-envelopes", draw_envelopes), ("hll-ratios", draw_ratios)];
    for (name, draw) in draws {
        draw(all.rows(), &options.folder().join(format!("{name}.svg")))?;
    }
    bubble.save(options, "hll-cut-offs", draw_cut_offs)?;
    let path = shapes.write(options, "hll-histograms")?;
    histograms::draw(&sheet::read(&path)?, &path.with_extension("svg"))
}

/// Returns the errors of each estimator with its column.
fn columns(cell: &Cell) -> Vec<(&'static str, &[f64])> {
    NAMES.iter().zip(cell).map(|((column, _), errors)| (*column, &*errors.all)).collect()
}

fn note(sheet: &mut Sheet, runs: u64, keys: u64) {
    sheet.note("threads", "1");
    let more = runs * CUT_OFF_RUNS;
    sheet.note(
        "data",
        format!(
            "{runs} pairs of sets of each kind, {more} at the cut-offs; B has {keys} keys, hashed"
        ),
    );
    sheet.note(
        "time",
        "none; root of the mean square of relative errors. Estimates below 0 count as 0, which makes \
         the errors of inclusion–exclusion smaller",
    );
}

fn add_cut_offs(sheet: &mut Sheet) {
    for (registers, ratio) in CUT_OFFS {
        let row = Row::new("cell", "the posts' cut-off", PAPER).number("overlap", CUT_OFF);
        sheet.add(row.number("registers", registers as f64).number("ratio", ratio as f64));
    }
}

const TITLE: &str = "Intersections of two sketches";
const BUBBLE: &str = "Intersections at the posts' cut-offs";
const HISTOGRAMS: &str = "Errors of intersections at the posts' cut-offs";

/// Makes two sets with some keys in both, and adds the errors of all estimators.
fn measure(cells: &mut [Cell], seed: Seed, [of_a, of_b, shared]: [u64; 3]) -> Result<()> {
    let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), seed);
    let sets = [0..of_a, of_a - shared..of_a - shared + of_b];
    let hashes = sets.map(|keys| keys.map(hash).collect::<Vec<KeyHash>>());
    let mut sketches = Vec::new();
    for hashes in &hashes {
        let mut sketch = Hll::of_family(sketch::Family::Hashfold(seed), PRECISION_MAX)?;
        sketch.insert_hashes(&hashes.iter().map(|hash| hash.high()).collect::<Vec<u64>>());
        sketches.push(sketch);
    }
    let truth = shared as f64;
    for (cell, precision) in cells.iter_mut().zip(PRECISIONS) {
        let [a, b] = [sketches[0].downsize(precision)?, sketches[1].downsize(precision)?];
        let of = |joint: Joint| (joint.intersection.value, joint.intersection.interval(0.95));
        let (value, interval) = of(sketch::inclusion_exclusion(&a, &b)?);
        cell[0].add(truth, value, interval);
        let (value, interval) = of(sketch::joint(&a, &b)?);
        cell[1].add(truth, value, interval);
        let (value, interval) = sample(&hashes, seed, precision)?;
        cell[2].add(truth, value, interval);
    }
    Ok(())
}

/// Returns the estimate of samples that have the bytes of sketches of this precision, and its interval.
fn sample(hashes: &[Vec<KeyHash>; 2], seed: Seed, precision: u8) -> Result<(f64, (f64, f64))> {
    let mut sets = Vec::new();
    for hashes in hashes {
        let bits = HASH_BITS - (hashes.len() as f64).log2();
        let capacity = ((REGISTER_BITS << precision) as f64 / bits) as usize;
        let mut sketch = BottomK::new(capacity, seed)?;
        hashes.iter().for_each(|hash| sketch.insert_hash(*hash));
        sets.push(sketch.to_set());
    }
    let both = Expression::all(2);
    let precision = Precision::new(f64::MIN_POSITIVE, 0.95)?;
    let estimate = PrefixSample::read(sets, &both, &precision)?.estimate(&both);
    ensure(estimate.low <= estimate.high, || "an interval has no values".into())?;
    Ok((estimate.value, (estimate.low, estimate.high)))
}

fn name(registers: u64, (ratio, overlap): (u64, f64)) -> String {
    format!("{registers} registers, ratio {ratio}, overlap {overlap}")
}

fn row(cell: &Cell, registers: u64, (ratio, overlap): (u64, f64)) -> Row {
    let mut row = Row::new("cell", name(registers, (ratio, overlap)), OURS)
        .number("registers", registers as f64)
        .number("ratio", ratio as f64)
        .number("overlap", overlap);
    for (errors, (column, _)) in cell.iter().zip(NAMES) {
        let percent = |part: f64| part * 100.0;
        row = row
            .rounded(column, errors.root_mean_square(), 4)
            .rounded(
                &format!("{column}_within"),
                percent(errors.part(|it| it.abs() <= DIRECTION)),
                1,
            )
            .rounded(&format!("{column}_covered"), percent(errors.covered()), 1);
    }
    row.rounded("joint_by_exclusion", cell[1].root_mean_square() / cell[0].root_mean_square(), 3)
}

/// Draws the errors of 16,384 registers at the posts' overlap, by the ratio of the sets.
pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let is_drawn =
        |row: &&Row| row.get("registers") == Some(16384.0) && row.get("overlap") == Some(CUT_OFF);
    let colours = [chart::ORANGE, chart::BLUE, chart::TEAL];
    let mut series: Vec<Series> = Vec::new();
    for ((column, name), colour) in NAMES.into_iter().zip(colours) {
        let points = of(rows, OURS).filter(is_drawn).filter_map(|row| row.point("ratio", column));
        series.push(Series {
            name: name.to_owned(),
            look: Look::DottedLine,
            colour,
            points: points.collect(),
        });
    }
    let cut_off = of(rows, PAPER).filter(is_drawn).filter_map(|row| row.get("ratio"));
    series.push(Series {
        name: "paper: the posts' cut-off".to_owned(),
        look: Look::Squares,
        colour: chart::INK,
        points: cut_off.map(|ratio| Point::new(ratio, DIRECTION)).collect(),
    });
    let all = series.iter().flat_map(|series| &series.points).map(|point| point.y);
    let (min, max) = all.fold((f64::MAX, DIRECTION), |(min, max), y| (min.min(y), max.max(y)));
    Chart {
        title: format!("{TITLE}: 16,384 registers, overlap {CUT_OFF}"),
        x: Axis::logarithmic("size of B by size of A", 1.0, 500.0),
        y: Axis::logarithmic("relative error; less is better", min, max),
        series,
    }
    .draw(path)
}

/// Draws the errors at the posts' cut-offs.
pub fn draw_cut_offs(rows: &[Row], path: &Path) -> Result<()> {
    let panel = |row: &Row| {
        let bars: Vec<Bar> =
            NAMES.iter().filter_map(|(column, name)| row.bar(name, column)).collect();
        let title = format!("{}: relative error; less is better", row.string("cell"));
        Panel { title, bars, limit: None }
    };
    let panels: Vec<Panel> = rows.iter().map(panel).collect();
    draw_bars(path, BUBBLE, &panels)
}

//! The bias and the error of estimates, by the number of keys.

use super::{FOLDER, growth::Growth};
use crate::{
    HllSizes, Options, Result,
    chart::{self, Axis, Chart, Look, Series, draw_grid},
    dice::Dice,
    measure::ensure,
    sheet::{OURS, PAPER, Row, Sheet, of},
};
use record::{Bar, Panel, draw as draw_bars};
use std::path::Path;

/// The precisions, and the standard error of a mean, relative, that is asked for.
const PRECISIONS: [(u8, f64); 6] =
    [(4, 1e-3), (8, 1e-3), (10, 2e-4), (12, 2e-4), (14, 2e-4), (18, 2e-4)];
/// From this precision on, the bias is at most [`BIAS_MAX`].
const PROMISED: u8 = 10;
const BIAS_MAX: f64 = 1e-3;
/// Number of steps for which the number of keys is doubled.
const STEPS: f64 = 2.0;
/// Standard errors on either side of a mean in charts.
const WHISKER: f64 = 2.0;

const TITLE: &str = "Errors of counts by the number of keys";
const BIAS: &str = "The largest bias at any number of keys";

/// The sums of the relative errors of many sketches with one number of keys.
#[derive(Clone, Default)]
struct Errors {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Errors {
    fn add(&mut self, error: f64) {
        self.count += 1.0;
        self.sum += error;
        self.squares += error * error;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    fn root_mean_square(&self) -> f64 {
        (self.squares / self.count).sqrt()
    }

    /// Returns the standard error of the mean.
    fn standard_error(&self) -> f64 {
        let variance = (self.squares / self.count - self.mean().powi(2)).max(0.0);
        (variance / (self.count - 1.0).max(1.0)).sqrt()
    }
}

/// The errors of the library's estimator, and of the posts'.
type Cell = [Errors; 2];

pub fn sizes(options: &Options, asked: &HllSizes) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let keys_max = options.size(asked.keys, 1 << 27, 1 << 16);
    let sizes = numbers_of_keys(keys_max);
    let [mut all, mut bias] = [TITLE, BIAS].map(|title| Sheet::new(title, options));
    for sheet in [&mut all, &mut bias] {
        note(sheet, keys_max);
    }
    for (number, (precision, standard_error)) in PRECISIONS.into_iter().enumerate() {
        let theory = 1.04 / f64::from(1_u32 << precision).sqrt();
        let enough = (theory / standard_error).powi(2).ceil() as u64;
        let runs = options.size(asked.runs, enough, 20);
        let dice = Dice::new(options.seed.wrapping_mul(1 << 8) + number as u64);
        let cells = measure(precision, runs, &sizes, &dice)?;
        for (cell, keys) in cells.iter().zip(&sizes) {
            all.add(row(cell, precision, *keys, theory));
        }
        for (i, source) in [OURS, PAPER].into_iter().enumerate() {
            let of: Vec<Errors> = cells.iter().map(|cell| cell[i].clone()).collect();
            bias.add(summary(&of, &sizes, (precision, source), theory)?);
        }
    }
    all.save(options, "hll-sizes", draw)?;
    bias.save(options, "hll-bias", draw_bias)
}

/// Returns 1 and the numbers that follow in [`STEPS`] to a factor of 2, without repetitions.
fn numbers_of_keys(keys_max: u64) -> Vec<u64> {
    let steps = ((keys_max as f64).log2() * STEPS).round() as i32;
    let mut sizes: Vec<u64> =
        (0..=steps).map(|i| 2_f64.powf(f64::from(i) / STEPS).round() as u64).collect();
    sizes.dedup();
    sizes
}

fn note(sheet: &mut Sheet, keys_max: u64) {
    sheet.note("threads", "1");
    sheet.note(
        "data",
        format!(
            "sketches of 1 to {keys_max} random hashes, of which only those are made that change a sketch: \
             their number up to the next one is drawn from its distribution, which is exact"
        ),
    );
    sheet.note("time", "none; errors are relative to the truth");
}

/// Lets many sketches grow.
fn measure(precision: u8, runs: u64, sizes: &[u64], dice: &Dice) -> Result<Vec<Cell>> {
    let mut cells: Vec<Cell> = vec![Cell::default(); sizes.len()];
    for _ in 0..runs {
        let mut growth = Growth::new(precision, dice.clone())?;
        for (cell, keys) in cells.iter_mut().zip(sizes) {
            growth.grow(*keys)?;
            let truth = *keys as f64;
            cell[0].add(growth.sketch.estimate() / truth - 1.0);
            cell[1].add(growth.classic_estimate() / truth - 1.0);
        }
    }
    Ok(cells)
}

fn row([ours, posts]: &Cell, precision: u8, keys: u64, theory: f64) -> Row {
    let percent = |part: f64| part * 100.0;
    let mut row = Row::new("size", format!("precision {precision}, {keys} keys"), OURS)
        .number("precision", precision.into())
        .number("keys", keys as f64)
        .number("sketches", ours.count);
    for (errors, column) in [(ours, "bias_percent"), (posts, "posts_bias_percent")] {
        let (mean, whisker) = (errors.mean(), WHISKER * errors.standard_error());
        row = row
            .rounded(column, percent(mean), 4)
            .rounded(&format!("{column}_min"), percent(mean - whisker), 4)
            .rounded(&format!("{column}_max"), percent(mean + whisker), 4);
    }
    row.rounded("error_percent", percent(ours.root_mean_square()), 4)
        .rounded("error_by_theory", ours.root_mean_square() / theory, 4)
        .rounded("posts_error_by_theory", posts.root_mean_square() / theory, 4)
}

/// Returns the row of the number of keys with the largest bias of one precision.
///
/// # Errors
/// The bias of the library's estimator is larger than is promised, and not by chance.
fn summary(
    cells: &[Errors],
    sizes: &[u64],
    (precision, source): (u8, &'static str),
    theory: f64,
) -> Result<Row> {
    let bias = |cell: &Errors| cell.mean().abs();
    let largest = cells.iter().zip(sizes).max_by(|(a, _), (b, _)| bias(a).total_cmp(&bias(b)));
    let (cell, keys) = largest.ok_or("there are no sizes")?;
    let is_kept = bias(cell) <= BIAS_MAX + 4.0 * cell.standard_error();
    ensure(is_kept || source == PAPER || precision < PROMISED, || {
        format!("precision {precision}, {keys} keys: the bias is {}", cell.mean())
    })?;
    let error = cells.iter().map(Errors::root_mean_square).fold(0.0, f64::max);
    let estimator = if source == OURS { "ours" } else { "paper: the posts'" };
    Ok(Row::new("estimator", format!("{estimator}, precision {precision}"), source)
        .number("precision", precision.into())
        .number("sketches", cell.count)
        .rounded("bias_percent", cell.mean() * 100.0, 4)
        .rounded("standard_error_percent", cell.standard_error() * 100.0, 4)
        .number("keys", *keys as f64)
        .rounded("largest_error_percent", error * 100.0, 3)
        .rounded("theory_percent", theory * 100.0, 3))
}

/// Draws four charts: the bias of precisions for which it is promised, that of the others, both
/// estimators with precision 14, and the errors.
pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let largest = rows.iter().filter_map(|row| row.get("keys")).fold(1.0, f64::max);
    let keys = || Axis::thousands("number of keys", largest);
    let ours = |precisions: &[u8], column: &str| -> Vec<Series> {
        let colours =
            [chart::BLUE, chart::TEAL, chart::PURPLE, chart::AMBER, chart::GREY, chart::INK];
        let curve = |(precision, colour): (&u8, _)| {
            let name = format!("ours: precision {precision}");
            curve(rows, *precision, column, (&name, colour))
        };
        precisions.iter().zip(colours).map(curve).collect()
    };
    let posts =
        |column: &str| curve(rows, 14, column, ("paper: the posts', precision 14", chart::ORANGE));
    let mut both = ours(&[14], "bias_percent");
    both.push(posts("posts_bias_percent"));
    let mut errors = ours(&[4, 8, 10, 12, 14, 18], "error_by_theory");
    errors.push(posts("posts_error_by_theory"));
    let bias = |title: &str, (low, high, step), series| Chart {
        title: title.to_owned(),
        x: keys(),
        y: Axis::linear("mean relative error, %", low, high, step),
        series: within(series, (low, high)),
    };
    let charts = [
        bias(
            "Bias; whiskers are 2 standard errors",
            (-0.2, 0.2, 0.05),
            ours(&[10, 12, 14, 18], "bias_percent"),
        ),
        bias("Bias of low precisions", (-1.0, 1.0, 0.25), ours(&[4, 8], "bias_percent")),
        bias("Bias with precision 14", (-1.0, 3.0, 0.5), both),
        Chart {
            title: "Error by 1.04 / √m".to_owned(),
            x: keys(),
            y: Axis::linear("root of the mean square, by theory", 0.0, 3.0, 0.5),
            series: within(errors, (0.0, 3.0)),
        },
    ];
    draw_grid(&charts, path)
}

fn curve(
    rows: &[Row],
    precision: u8,
    column: &str,
    (name, colour): (&str, plotters::style::RGBColor),
) -> Series {
    let is_drawn = |row: &&Row| row.get("precision") == Some(precision.into());
    let points = of(rows, OURS).filter(is_drawn).filter_map(|row| row.point("keys", column));
    Series { name: name.to_owned(), look: Look::DottedLine, colour, points: points.collect() }
}

/// Keeps points and whiskers inside of an axis.
fn within(mut series: Vec<Series>, (low, high): (f64, f64)) -> Vec<Series> {
    let clamp = |y: f64| y.clamp(low, high);
    for point in series.iter_mut().flat_map(|series| &mut series.points) {
        point.y = clamp(point.y);
        point.range = point.range.map(|(a, b)| (clamp(a), clamp(b)));
    }
    series
}

/// Draws the largest biases.
pub fn draw_bias(rows: &[Row], path: &Path) -> Result<()> {
    let bar = |row: &Row| -> Option<Bar> {
        let value = row.get("bias_percent")?.abs();
        let error = WHISKER * row.get("standard_error_percent")?;
        let range = Some(((value - error).max(0.0), value + error));
        Some(Bar { name: row.string("estimator").to_owned(), value, range })
    };
    let panel = |source, title: &str| Panel {
        title: title.to_owned(),
        bars: of(rows, source).filter_map(bar).collect(),
        limit: None,
    };
    let title = "Largest bias, %; less is better";
    draw_bars(path, BIAS, &[panel(OURS, title), panel(PAPER, title)])
}

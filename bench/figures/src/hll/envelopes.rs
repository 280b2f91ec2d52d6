//! Where intersections can be trusted: the errors by the ratio of the sets and by what they share, from the results of
//! [`intersections`](super::intersections()).

use super::intersections::{CUT_OFFS, DIRECTION, NAMES, OVERLAPS, PRECISIONS, RATIOS};
use crate::{
    Result,
    chart::{self, Axis, Chart, Look, Point, RGBColor, Series, draw_grid},
    sheet::{OURS, PAPER, Row, of},
};
use std::path::Path;

/// The errors that are drawn; smaller and larger ones are drawn at the ends.
const ERRORS: (f64, f64) = (0.01, 1000.0);
const RATIO_MAX: f64 = RATIOS[RATIOS.len() - 1] as f64;
/// Colours of the estimators, in the order of [`NAMES`].
const COLOURS: [RGBColor; NAMES.len()] = [chart::ORANGE, chart::BLUE, chart::TEAL];

/// Sets that are compared: the number of registers, and the part of the smaller set that is in both.
#[derive(Clone, Copy)]
struct Kind {
    registers: u64,
    overlap: f64,
}

impl Kind {
    fn has(self, row: &Row) -> bool {
        row.get("registers") == Some(self.registers as f64)
            && row.get("overlap") == Some(self.overlap)
    }

    /// Returns the errors of an estimator by the ratio of the sets, ascending.
    fn errors(self, rows: &[Row], column: &str) -> Vec<Point> {
        let rows = of(rows, OURS).filter(|row| self.has(row));
        let mut points: Vec<Point> = rows.filter_map(|row| row.point("ratio", column)).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points
    }

    /// Returns the largest ratio up to which the errors of an estimator are no more than [`DIRECTION`].
    fn largest_ratio(self, rows: &[Row], column: &str) -> Option<f64> {
        let errors = self.errors(rows, column);
        let small = errors.iter().take_while(|point| point.y <= DIRECTION);
        small.map(|point| point.x).last()
    }

    /// Returns the relative error of the posts' envelope, as if the three estimates were independent:
    /// σ·√(|A|² + |B|² + |A ∪ B|²), with σ = 1.04/√m.
    fn envelope(self, ratio: f64) -> f64 {
        let union = 1.0 + ratio - self.overlap;
        let sizes = (1.0 + ratio * ratio + union * union).sqrt();
        1.04 / (self.registers as f64).sqrt() * sizes / self.overlap
    }

    /// Returns the ratio that the posts advise, if the overlap is theirs.
    fn cut_off(self, rows: &[Row]) -> Option<f64> {
        of(rows, PAPER).filter(|row| self.has(row)).find_map(|row| row.get("ratio"))
    }

    fn title(self) -> String {
        format!("{} registers, overlap {}", self.registers, self.overlap)
    }
}

fn series(name: &str, look: Look, colour: RGBColor, points: Vec<Point>) -> Series {
    Series { name: name.to_owned(), look, colour, points }
}

/// Draws the errors by the ratio of the sets, a chart for each overlap and number of registers, with the posts' envelope.
pub fn draw_envelopes(rows: &[Row], path: &Path) -> Result<()> {
    let kinds = OVERLAPS.into_iter().flat_map(|overlap| {
        PRECISIONS.map(|precision| Kind { registers: 1 << precision, overlap })
    });
    let charts: Vec<Chart> = kinds.map(|kind| envelopes(rows, kind)).collect();
    draw_grid(&charts, path)
}

fn envelopes(rows: &[Row], kind: Kind) -> Chart {
    let curve = |ratio: u64| Point::new(ratio as f64, kind.envelope(ratio as f64));
    let mut all = vec![series(
        "paper: the posts' envelope,\nby their formula",
        Look::Line,
        chart::INK,
        RATIOS.map(curve).to_vec(),
    )];
    for ((column, name), colour) in NAMES.into_iter().zip(COLOURS) {
        all.push(series(name, Look::DottedLine, colour, kind.errors(rows, column)));
    }
    let limit = [1.0, RATIO_MAX].map(|ratio| Point::new(ratio, DIRECTION));
    all.push(series("an error of 50 %", Look::Dashed, chart::GREY, limit.to_vec()));
    let cut_off = kind.cut_off(rows).map(|ratio| Point::new(ratio, DIRECTION));
    let cut_off: Vec<Point> = cut_off.into_iter().collect();
    if !cut_off.is_empty() {
        all.push(series("paper: the posts' cut-off", Look::Squares, chart::INK, cut_off));
    }
    for point in all.iter_mut().flat_map(|series| &mut series.points) {
        point.y = point.y.clamp(ERRORS.0, ERRORS.1);
    }
    Chart {
        title: format!("Intersections: {}", kind.title()),
        x: Axis::logarithmic("size of B by size of A", 1.0, RATIO_MAX),
        y: Axis::decades("relative error; less is better", ERRORS.0, ERRORS.1),
        series: all,
    }
}

/// Draws the largest ratio of the sets at which the error is at most 50 %, by the overlap, a chart for each number of registers.
pub fn draw_ratios(rows: &[Row], path: &Path) -> Result<()> {
    let charts = CUT_OFFS.map(|(registers, _)| ratios(rows, registers));
    draw_grid(&charts, path)
}

fn ratios(rows: &[Row], registers: u64) -> Chart {
    let kinds = OVERLAPS.map(|overlap| Kind { registers, overlap });
    let point =
        |kind: &Kind, ratio: f64| Point::new(kind.overlap, ratio).labelled(format!("{ratio:.0}"));
    let mut all = Vec::new();
    for ((column, name), colour) in NAMES.into_iter().zip(COLOURS) {
        let largest =
            |kind: &Kind| kind.largest_ratio(rows, column).map(|ratio| point(kind, ratio));
        let points = kinds.iter().filter_map(largest).collect();
        all.push(series(name, Look::DottedLine, colour, points));
    }
    let cut_off = |kind: &Kind| kind.cut_off(rows).map(|ratio| point(kind, ratio));
    let points = kinds.iter().filter_map(cut_off).collect();
    all.push(series("paper: the posts' cut-off", Look::Squares, chart::INK, points));
    let (least, most) = (OVERLAPS[0], OVERLAPS[OVERLAPS.len() - 1]);
    Chart {
        title: format!("{registers} registers: ratios with an error of at most 50 %"),
        x: Axis::logarithmic("part of A that is in both", least, most),
        y: Axis::logarithmic("largest ratio; more is better", 1.0, RATIO_MAX),
        series: all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet;

    fn row(ratio: f64, error: f64) -> Row {
        Row::new("cell", "a cell", OURS)
            .number("registers", 8192.0)
            .number("overlap", 0.05)
            .number("ratio", ratio)
            .number("joint", error)
    }

    const KIND: Kind = Kind { registers: 8192, overlap: 0.05 };

    #[test]
    fn the_largest_ratio_is_the_last_one_before_errors_are_too_large() {
        let rows = [row(5.0, 0.4), row(1.0, 0.1), row(10.0, 0.6), row(20.0, 0.3)];
        assert_eq!(KIND.largest_ratio(&rows, "joint"), Some(5.0));
        assert_eq!(KIND.largest_ratio(&rows[2..3], "joint"), None);
        assert_eq!(KIND.largest_ratio(&rows, "sample"), None);
        assert_eq!(Kind { overlap: 0.1, ..KIND }.largest_ratio(&rows, "joint"), None);
    }

    /// The factors before 1/√m are 50, 309 and 2953 for the ratios 1, 10 and 100.
    #[test]
    fn the_posts_envelope_grows_with_the_ratio() {
        for (ratio, factor) in [(1.0, 50.0), (10.0, 309.0), (100.0, 2953.0)] {
            let got = KIND.envelope(ratio) * 8192_f64.sqrt();
            assert!((got / factor - 1.0).abs() < 0.01, "{ratio}: {got}");
        }
    }

    /// The charts are drawn from the results that are there.
    #[test]
    fn results_are_drawn() {
        let rows = sheet::read(Path::new("../results/hll/hll-intersections.jsonl")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chart.svg");
        for draw in [draw_envelopes, draw_ratios] {
            draw(&rows, &path).unwrap();
            let svg = std::fs::read_to_string(&path).unwrap();
            for name in NAMES.map(|(_, name)| name).into_iter().chain(["cut-off"]) {
                assert!(svg.contains(name), "{name}");
            }
            assert!(!svg.contains("NaN"));
        }
    }
}

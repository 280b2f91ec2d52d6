//! The distributions of the errors of intersections.

use crate::{
    Result,
    chart::{self, Axis, Chart, Look, Point, Series, draw_grid},
    sheet::{OURS, Row},
};
use std::path::Path;

/// The first error that is drawn: an intersection that is estimated as nothing.
const FIRST: f64 = -1.0;
/// The end of the errors that are drawn; larger ones count as those just below.
const LAST: f64 = 2.0;
const WIDTH: f64 = 0.1;
const BINS: usize = 30;

/// Returns the rows of one cell: for each range of errors, the percentage of the answers of each estimator.
pub(super) fn rows(cell: &str, estimators: &[(&str, &[f64])]) -> Vec<Row> {
    let of = |errors: &[f64]| {
        let mut counts = [0_u32; BINS];
        for error in errors {
            // The end of a range is not in it, but for rounding.
            let bin = ((error - FIRST) / WIDTH + 1e-9).floor().clamp(0.0, (BINS - 1) as f64);
            counts[bin as usize] += 1;
        }
        counts.map(|count| f64::from(count) * 100.0 / errors.len().max(1) as f64)
    };
    let percents: Vec<[f64; BINS]> = estimators.iter().map(|(_, errors)| of(errors)).collect();
    let row = |bin: usize| {
        let from = FIRST + bin as f64 * WIDTH;
        let row = Row::new("cell", cell, OURS).rounded("error_from", from, 1);
        let columns = estimators.iter().zip(&percents);
        columns.fold(row, |row, ((name, _), percents)| row.rounded(name, percents[bin], 2))
    };
    (0..BINS).map(row).collect()
}

/// Draws a chart for each cell.
pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let mut cells: Vec<&str> = rows.iter().map(|row| row.string("cell")).collect();
    cells.dedup();
    let chart = |cell: &&str| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.string("cell") == *cell).collect();
        let colours = [chart::ORANGE, chart::BLUE, chart::TEAL];
        let names = super::intersections::NAMES.into_iter().zip(colours);
        let series: Vec<Series> = names
            .map(|((column, name), colour)| Series {
                name: name.to_owned(),
                look: Look::Line,
                colour,
                points: rows.iter().flat_map(|row| top(row, column)).collect(),
            })
            .collect();
        let all = series.iter().flat_map(|series| &series.points).map(|point| point.y);
        Chart {
            title: (*cell).to_owned(),
            x: Axis::linear("relative error; at the right end, all larger ones", FIRST, LAST, 0.5),
            y: Axis::from_zero("answers, %", all.fold(1.0, f64::max)),
            series,
        }
    };
    draw_grid(&cells.iter().map(chart).collect::<Vec<Chart>>(), path)
}

/// Returns the upper line of a bar.
fn top(row: &Row, column: &str) -> Vec<Point> {
    let ends = row.get("error_from").zip(row.get(column));
    let points = |(from, y): (f64, f64)| [Point::new(from, y), Point::new(from + WIDTH, y)];
    ends.map_or(Vec::new(), |ends| points(ends).to_vec())
}

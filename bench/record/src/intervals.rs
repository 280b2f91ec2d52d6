//! Charts of estimates beside the truth: a row for each quantity, and in it, for each method, a dot in the interval
//! of its estimate. Positions are differences from the truth in percent, on a square-root scale.

use crate::{Result, exact};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::path::Path;

/// Colours of methods, which people with any kind of sight can tell apart.
const COLOURS: [RGBColor; 3] = [RGBColor(0, 90, 181), RGBColor(217, 95, 2), RGBColor(0, 140, 120)];
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);

/// Differences from the truth that have a line, in percent; the first and the last one end the axis.
const TICKS: [f64; 11] = [-100.0, -50.0, -20.0, -5.0, -1.0, 0.0, 1.0, 5.0, 20.0, 50.0, 100.0];

const MARGIN: i32 = 14;
const HEAD_HEIGHT: i32 = 112;
const FOOT_HEIGHT: i32 = 58;
const ROW_HEIGHT: i32 = 34;
/// Distance of the intervals of a row.
const METHOD_STEP: i32 = 9;
const NAMES_WIDTH: i32 = 190;
/// Space for the truth in numbers, before the axis.
const TRUTH_WIDTH: i32 = 86;
const AXIS_WIDTH: i32 = 300;
const TEXT_SIZE: u32 = 13;

/// An estimate with the ends of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// A quantity in all panels: what is counted, and for each panel the truth and the estimates.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub cells: Vec<Cell>,
}

/// The estimates of one quantity.
#[derive(Clone, Debug)]
pub struct Cell {
    pub truth: f64,
    /// One place for each method; `None` if the method has no estimate.
    pub intervals: Vec<Option<Interval>>,
}

/// A chart of intervals: panels side by side.
#[derive(Clone, Debug)]
pub struct Intervals<'a> {
    pub title: &'a str,
    /// Names of the methods, three at most.
    pub methods: &'a [&'a str],
    pub panels: &'a [&'a str],
    pub rows: &'a [Row],
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Intervals<'_> {
    /// Draws the chart as SVG.
    ///
    /// # Errors
    /// Errors of writing the file.
    pub fn draw(&self, path: &Path) -> Result<()> {
        let width = NAMES_WIDTH + panel_start(self.panels.len()) + MARGIN;
        let height = HEAD_HEIGHT + ROW_HEIGHT * self.rows.len() as i32 + FOOT_HEIGHT;
        let root = SVGBackend::new(path, (width as u32, height as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        text(&root, self.title, (MARGIN, 22), HPos::Left, 19)?;
        let mut x = MARGIN;
        for (method, colour) in self.methods.iter().zip(COLOURS) {
            mark(&root, (x, x + 12, x + 24), 50, colour)?;
            text(&root, method, (x + 32, 50), HPos::Left, TEXT_SIZE)?;
            x += 60 + 7 * method.chars().count() as i32;
        }
        for (number, name) in self.panels.iter().enumerate() {
            self.draw_axis(&root, number, name)?;
        }
        for (number, row) in self.rows.iter().enumerate() {
            let y = HEAD_HEIGHT + ROW_HEIGHT * number as i32 + ROW_HEIGHT / 2;
            text(&root, &row.name, (NAMES_WIDTH - 6, y), HPos::Right, TEXT_SIZE)?;
            for (panel, cell) in row.cells.iter().enumerate() {
                cell.draw(&root, NAMES_WIDTH + panel_start(panel), y)?;
            }
        }
        Ok(root.present()?)
    }

    /// Draws the lines of a panel and the numbers under them.
    fn draw_axis(&self, root: &Area<'_>, number: usize, name: &str) -> Result<()> {
        let start = NAMES_WIDTH + panel_start(number) + TRUTH_WIDTH;
        let (top, bottom) = (HEAD_HEIGHT, HEAD_HEIGHT + ROW_HEIGHT * self.rows.len() as i32);
        text(root, name, (start + AXIS_WIDTH / 2, top - 16), HPos::Center, 15)?;
        text(root, "truth", (start - 10, top - 16), HPos::Right, TEXT_SIZE)?;
        for tick in TICKS {
            let x = start + place(tick);
            let colour = if tick == 0.0 { INK } else { GRID };
            root.draw(&PathElement::new([(x, top), (x, bottom)], colour.stroke_width(1)))?;
            text(
                root,
                &format!("{tick:+}").replace("+0", "0"),
                (x, bottom + 12),
                HPos::Center,
                11,
            )?;
        }
        let label = "difference from the truth, %";
        text(root, label, (start + AXIS_WIDTH / 2, bottom + 34), HPos::Center, TEXT_SIZE)
    }
}

impl Cell {
    fn draw(&self, root: &Area<'_>, left: i32, y: i32) -> Result<()> {
        let start = left + TRUTH_WIDTH;
        text(root, &exact(self.truth, 0), (start - 10, y), HPos::Right, TEXT_SIZE)?;
        let intervals: Vec<(usize, &Interval)> = self
            .intervals
            .iter()
            .enumerate()
            .filter_map(|(i, interval)| Some((i, interval.as_ref()?)))
            .collect();
        let first = y - METHOD_STEP * (intervals.len() as i32 - 1) / 2;
        for (line, (i, interval)) in intervals.into_iter().enumerate() {
            let y = first + METHOD_STEP * line as i32;
            if self.truth == 0.0 {
                // There is no difference in percent from nothing.
                let [low, high] = [interval.low, interval.high].map(|end| exact(end, 0));
                let words = if low == high { low } else { format!("{low} to {high}") };
                styled(root, &words, (start + AXIS_WIDTH / 2 + 8, y), HPos::Left, 10, COLOURS[i])?;
                continue;
            }
            let x = |value: f64| start + place((value / self.truth - 1.0) * 100.0);
            let ends = (x(interval.low), x(interval.value), x(interval.high));
            mark(root, ends, y, COLOURS[i])?;
            // Arrows say that an interval goes on beyond the axis.
            if interval.high / self.truth > 2.0 {
                let tip = start + AXIS_WIDTH + 7;
                let corners = vec![(tip, y), (tip - 6, y - 4), (tip - 6, y + 4)];
                root.draw(&Polygon::new(corners, COLOURS[i].filled()))?;
            }
        }
        Ok(())
    }
}

/// Returns the left end of a panel, after the names.
fn panel_start(number: usize) -> i32 {
    number as i32 * (TRUTH_WIDTH + AXIS_WIDTH + MARGIN)
}

/// Returns the position of a difference in percent on an axis.
fn place(percent: f64) -> i32 {
    let end = TICKS[TICKS.len() - 1];
    let within = percent.clamp(-end, end);
    let part = within.signum() * (within.abs() / end).sqrt();
    ((part + 1.0) / 2.0 * f64::from(AXIS_WIDTH)).round() as i32
}

/// Draws an interval and the estimate in it.
fn mark(root: &Area<'_>, (low, at, high): (i32, i32, i32), y: i32, colour: RGBColor) -> Result<()> {
    root.draw(&PathElement::new([(low, y), (high, y)], colour.stroke_width(2)))?;
    for end in [low, high] {
        root.draw(&PathElement::new([(end, y - 3), (end, y + 3)], colour.stroke_width(1)))?;
    }
    Ok(root.draw(&Circle::new((at, y), 3, colour.filled()))?)
}

fn text(root: &Area<'_>, words: &str, at: (i32, i32), side: HPos, size: u32) -> Result<()> {
    styled(root, words, at, side, size, INK)
}

fn styled(
    root: &Area<'_>,
    words: &str,
    at: (i32, i32),
    side: HPos,
    size: u32,
    colour: RGBColor,
) -> Result<()> {
    let style = TextStyle::from(("sans-serif", size).into_font()).color(&colour);
    Ok(root.draw(&Text::new(words.to_owned(), at, style.pos(Pos::new(side, VPos::Center))))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_in_order_and_stay_on_the_axis() {
        let places: Vec<i32> = TICKS.iter().map(|tick| place(*tick)).collect();
        assert!(places.is_sorted() && places[5] == AXIS_WIDTH / 2, "{places:?}");
        assert_eq!((place(-1e9), place(1e9)), (0, AXIS_WIDTH));
        assert_eq!((places[0], places[10]), (0, AXIS_WIDTH));
    }

    #[test]
    fn a_chart_has_the_truth_and_what_is_known_of_nothing() {
        let interval = Interval { value: 98.0, low: 90.0, high: 1e6 };
        let cell = |truth| Cell { truth, intervals: vec![Some(interval), None] };
        let rows = [Row { name: "a and b".into(), cells: vec![cell(1234.0), cell(0.0)] }];
        let path = std::env::temp_dir().join(format!("intervals-{}.svg", std::process::id()));
        let chart = Intervals {
            title: "title",
            methods: &["one", "another"],
            panels: &["paths", "names"],
            rows: &rows,
        };
        chart.draw(&path).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for words in ["a and b", "1,234", "90 to 1,000,000", "another", "<polygon"] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
    }
}

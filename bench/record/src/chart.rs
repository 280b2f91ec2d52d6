//! Bar charts: panels side by side, a bar for each program, a whisker for the range of its rounds.

use crate::{Result, short};
use plotters::{
    coord::Shift,
    element::DashedPathElement,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::path::Path;

/// Blue for Hashfold and orange for the papers, which people with any kind of sight can tell apart;
/// grey for other programs.
const OURS: RGBColor = RGBColor(0, 90, 181);
const PAPER: RGBColor = RGBColor(217, 95, 2);
const OTHER: RGBColor = RGBColor(150, 150, 150);
const INK: RGBColor = RGBColor(40, 40, 40);

const PANEL_WIDTH: u32 = 560;
const TITLE_HEIGHT: u32 = 44;
const PANEL_TITLE_HEIGHT: u32 = 36;
const BAR_LINE: u32 = 26;
const BAR_START: i32 = 230;
const BAR_WIDTH_MAX: f64 = 230.0;
/// Width of a letter, to know how far a number reaches.
const LETTER: i32 = 7;

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name of the program. "Hashfold" or "ours" at the start, and "paper", give it its colour.
    pub name: String,
    pub value: f64,
    /// Smallest and largest value of the rounds.
    pub range: Option<(f64, f64)>,
}

/// A bound that no bar can exceed, such as the rate of the device.
#[derive(Clone, Debug)]
pub struct Limit {
    pub name: String,
    pub value: f64,
}

/// Bars with one unit.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What is measured, the unit, and which direction is better.
    pub title: String,
    pub bars: Vec<Bar>,
    /// Drawn as a line.
    pub limit: Option<Limit>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws panels of bars, two side by side.
///
/// # Errors
/// Errors of writing the file.
pub fn draw(path: &Path, title: &str, panels: &[Panel]) -> Result<()> {
    let columns = panels.len().clamp(1, 2);
    let heights: Vec<u32> = panels
        .chunks(columns)
        .map(|line| line.iter().map(Panel::height).max().unwrap_or(0))
        .collect();
    let size =
        (PANEL_WIDTH * columns as u32, TITLE_HEIGHT + heights.iter().sum::<u32>() + BAR_LINE / 2);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, mut rest) = root.split_vertically(TITLE_HEIGHT);
    head.draw(&Text::new(title.to_owned(), (14, 14), ("sans-serif", 20).into_font().color(&INK)))?;
    for (line, height) in panels.chunks(columns).zip(heights) {
        let (body, below) = rest.split_vertically(height);
        for (area, panel) in body.split_evenly((1, columns)).iter().zip(line) {
            panel.draw(area)?;
        }
        rest = below;
    }
    Ok(root.present()?)
}

impl Panel {
    fn height(&self) -> u32 {
        let limit = if self.limit.is_some() { BAR_LINE } else { 0 };
        PANEL_TITLE_HEIGHT + BAR_LINE * self.bars.len() as u32 + limit + BAR_LINE / 2
    }

    /// Returns the value of the longest bar. A limit far beyond it would leave only stumps of bars.
    fn longest(&self) -> f64 {
        let top = |bar: &Bar| bar.range.map_or(bar.value, |(_, high)| high.max(bar.value));
        let longest = self.bars.iter().map(top).fold(f64::MIN_POSITIVE, f64::max);
        let limit = self.limit.as_ref().map_or(0.0, |limit| limit.value);
        if limit <= longest * 1.6 { longest.max(limit) } else { longest }
    }

    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let style = ("sans-serif", 15).into_font().color(&INK);
        area.draw(&Text::new(self.title.clone(), (14, 10), style))?;
        let longest = self.longest();
        let x = |value: f64| BAR_START + (value / longest * BAR_WIDTH_MAX) as i32;
        if let Some(limit) = &self.limit {
            self.draw_limit(area, limit, x(limit.value.min(longest * 1.02)))?;
        }
        let text = TextStyle::from(("sans-serif", 14).into_font()).color(&INK);
        let left = text.pos(Pos::new(HPos::Right, VPos::Center));
        let right = text.pos(Pos::new(HPos::Left, VPos::Center));
        for (i, bar) in self.bars.iter().enumerate() {
            let y = (PANEL_TITLE_HEIGHT + BAR_LINE * i as u32 + BAR_LINE / 2) as i32;
            area.draw(&Text::new(bar.name.clone(), (BAR_START - 10, y), left.clone()))?;
            let corners = [(BAR_START, y - 8), (x(bar.value).max(BAR_START + 1), y + 8)];
            area.draw(&Rectangle::new(corners, bar.colour().filled()))?;
            let mut end = x(bar.value);
            if let Some((low, high)) = bar.range.filter(|(low, high)| low < high) {
                area.draw(&PathElement::new([(x(low), y), (x(high), y)], INK.stroke_width(2)))?;
                end = end.max(x(high));
            }
            let number = short(bar.value);
            // The line of the limit may be under the number.
            let back = [(end + 5, y - 8), (end + 9 + LETTER * number.len() as i32, y + 8)];
            area.draw(&Rectangle::new(back, WHITE.filled()))?;
            area.draw(&Text::new(number, (end + 7, y), right.clone()))?;
        }
        Ok(())
    }

    fn draw_limit(&self, area: &Area<'_>, limit: &Limit, x: i32) -> Result<()> {
        let top = PANEL_TITLE_HEIGHT as i32 - 2;
        let bottom = top + (BAR_LINE * self.bars.len() as u32) as i32 + 6;
        let line = DashedPathElement::new([(x, top), (x, bottom)], 5, 4, INK.stroke_width(1));
        area.draw(&line)?;
        let middle = Pos::new(HPos::Center, VPos::Center);
        let style = TextStyle::from(("sans-serif", 13).into_font()).color(&INK).pos(middle);
        let beyond = if limit.value > self.longest() * 1.02 { " (beyond)" } else { "" };
        let text = format!("{}: {}{beyond}", limit.name, short(limit.value));
        let at = x.min(PANEL_WIDTH as i32 - 4 * text.len() as i32);
        Ok(area.draw(&Text::new(text, (at, bottom + 10), style))?)
    }
}

impl Bar {
    fn colour(&self) -> RGBColor {
        match self.name.as_str() {
            name if name.starts_with("Hashfold") || name.starts_with("ours") => OURS,
            name if name.starts_with("paper") => PAPER,
            _ => OTHER,
        }
    }
}

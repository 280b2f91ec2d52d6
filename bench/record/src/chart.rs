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

/// Least width of a panel.
const PANEL_WIDTH_MIN: u32 = 560;
const TITLE_HEIGHT: u32 = 44;
const PANEL_TITLE_HEIGHT: u32 = 36;
const BAR_LINE: u32 = 26;
const BAR_WIDTH_MAX: u32 = 230;
/// Space after the longest bar, for its number.
const NUMBER_WIDTH: u32 = 90;
/// Least space before the bars, for their names.
const NAMES_WIDTH_MIN: u32 = 206;
const MARGIN: u32 = 14;
const TITLE_SIZE: u32 = 20;
const PANEL_TITLE_SIZE: u32 = 15;
const TEXT_SIZE: u32 = 14;
/// A limit beyond this many times the longest bar would leave only stumps of bars.
const LIMIT_MAX: f64 = 1.6;

/// Returns about the width of a text in a wide font without serifs. The reader's font is not known.
fn width(text: &str, size: u32) -> u32 {
    const LETTER: f64 = 0.46;
    (text.chars().count() as f64 * f64::from(size) * LETTER).ceil() as u32
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name of the program. "Hashfold", "hashfold" or "ours" at the start, and "paper", give it its colour.
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
    /// Drawn as a line, or only named if it is far beyond all bars.
    pub limit: Option<Limit>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws panels of bars, two side by side. The picture is as wide as its texts need.
///
/// # Errors
/// Errors of writing the file.
pub fn draw(path: &Path, title: &str, panels: &[Panel]) -> Result<()> {
    let columns = panels.len().clamp(1, 2);
    let heights: Vec<u32> = panels
        .chunks(columns)
        .map(|line| line.iter().map(Panel::height).max().unwrap_or(0))
        .collect();
    let layout = Layout::of(panels);
    let whole = (layout.panel_width * columns as u32).max(width(title, TITLE_SIZE) + 2 * MARGIN);
    let size = (whole, TITLE_HEIGHT + heights.iter().sum::<u32>() + BAR_LINE / 2);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, mut rest) = root.split_vertically(TITLE_HEIGHT);
    let style = ("sans-serif", TITLE_SIZE).into_font().color(&INK);
    head.draw(&Text::new(title.to_owned(), (MARGIN as i32, 14), style))?;
    for (line, height) in panels.chunks(columns).zip(heights) {
        let (body, below) = rest.split_vertically(height);
        for (area, panel) in body.split_evenly((1, columns)).iter().zip(line) {
            panel.draw(area, &layout)?;
        }
        rest = below;
    }
    Ok(root.present()?)
}

/// The widths of all panels of a picture.
struct Layout {
    /// Position at which bars start, after the longest name.
    bar_start: i32,
    panel_width: u32,
}

impl Layout {
    fn of(panels: &[Panel]) -> Layout {
        let names = panels.iter().flat_map(|panel| &panel.bars).map(|bar| &bar.name);
        let names = names.map(|name| width(name, TEXT_SIZE)).max().unwrap_or(0);
        let bar_start = MARGIN + names.max(NAMES_WIDTH_MIN) + 10;
        let titles = panels.iter().map(|panel| width(&panel.title, PANEL_TITLE_SIZE));
        let titles = titles.max().unwrap_or(0) + 2 * MARGIN;
        let bars = bar_start + BAR_WIDTH_MAX + NUMBER_WIDTH;
        let panel_width = bars.max(titles).max(PANEL_WIDTH_MIN);
        Layout { bar_start: bar_start as i32, panel_width }
    }
}

impl Panel {
    fn height(&self) -> u32 {
        let limit = if self.limit.is_some() { BAR_LINE } else { 0 };
        PANEL_TITLE_HEIGHT + BAR_LINE * self.bars.len() as u32 + limit + BAR_LINE / 2
    }

    /// Returns the value of the longest bar.
    fn longest_bar(&self) -> f64 {
        let top = |bar: &Bar| bar.range.map_or(bar.value, |(_, high)| high.max(bar.value));
        self.bars.iter().map(top).fold(f64::MIN_POSITIVE, f64::max)
    }

    fn draw(&self, area: &Area<'_>, layout: &Layout) -> Result<()> {
        let style = ("sans-serif", PANEL_TITLE_SIZE).into_font().color(&INK);
        area.draw(&Text::new(self.title.clone(), (MARGIN as i32, 10), style))?;
        let bar_start = layout.bar_start;
        let longest = self.longest_bar();
        let line = self.limit.as_ref().filter(|limit| limit.value <= longest * LIMIT_MAX);
        let end = line.map_or(longest, |limit| longest.max(limit.value));
        let x = |value: f64| bar_start + (value / end * f64::from(BAR_WIDTH_MAX)) as i32;
        if let Some(limit) = &self.limit {
            self.draw_limit(area, layout, limit, line.map(|limit| x(limit.value)))?;
        }
        let text = TextStyle::from(("sans-serif", TEXT_SIZE).into_font()).color(&INK);
        let left = text.pos(Pos::new(HPos::Right, VPos::Center));
        let right = text.pos(Pos::new(HPos::Left, VPos::Center));
        for (i, bar) in self.bars.iter().enumerate() {
            let y = (PANEL_TITLE_HEIGHT + BAR_LINE * i as u32 + BAR_LINE / 2) as i32;
            area.draw(&Text::new(bar.name.clone(), (bar_start - 10, y), left.clone()))?;
            let corners = [(bar_start, y - 8), (x(bar.value).max(bar_start + 1), y + 8)];
            area.draw(&Rectangle::new(corners, bar.colour().filled()))?;
            let mut end = x(bar.value);
            if let Some((low, high)) = bar.range.filter(|(low, high)| low < high) {
                area.draw(&PathElement::new([(x(low), y), (x(high), y)], INK.stroke_width(2)))?;
                end = end.max(x(high));
            }
            let number = short(bar.value);
            // The line of the limit may be under the number.
            let back = [(end + 5, y - 8), (end + 9 + width(&number, TEXT_SIZE) as i32, y + 8)];
            area.draw(&Rectangle::new(back, WHITE.filled()))?;
            area.draw(&Text::new(number, (end + 7, y), right.clone()))?;
        }
        Ok(())
    }

    /// Draws the line of a limit and its name under it; without a line, an arrow points beyond the
    /// bars.
    fn draw_limit(
        &self,
        area: &Area<'_>,
        layout: &Layout,
        limit: &Limit,
        line: Option<i32>,
    ) -> Result<()> {
        let top = PANEL_TITLE_HEIGHT as i32 - 2;
        let bottom = top + (BAR_LINE * self.bars.len() as u32) as i32 + 6;
        let style = TextStyle::from(("sans-serif", TEXT_SIZE - 1).into_font()).color(&INK);
        let text = format!("{}: {}", limit.name, short(limit.value));
        let Some(x) = line else {
            let style = style.pos(Pos::new(HPos::Right, VPos::Center));
            let end = layout.bar_start + BAR_WIDTH_MAX as i32;
            return Ok(area.draw(&Text::new(format!("{text} →"), (end, bottom + 10), style))?);
        };
        let line = DashedPathElement::new([(x, top), (x, bottom)], 5, 4, INK.stroke_width(1));
        area.draw(&line)?;
        let style = style.pos(Pos::new(HPos::Center, VPos::Center));
        let half = (width(&text, TEXT_SIZE - 1) / 2 + MARGIN) as i32;
        let at = x.min(layout.panel_width as i32 - half);
        Ok(area.draw(&Text::new(text, (at, bottom + 10), style))?)
    }
}

impl Bar {
    fn colour(&self) -> RGBColor {
        match self.name.as_str() {
            name if name.to_lowercase().starts_with("hashfold") || name.starts_with("ours") => OURS,
            name if name.starts_with("paper") => PAPER,
            _ => OTHER,
        }
    }
}

//! Charts of curves, as SVG.

pub use plotters::style::RGBColor;

use crate::{Result, exact};
use plotters::{
    coord::{
        Shift,
        ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
    },
    element::DashedPathElement,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::{ops::Range, path::Path};

/// Colours that people with red-green colour blindness can distinguish.
pub const BLUE: RGBColor = RGBColor(0, 90, 181);
pub const SKY: RGBColor = RGBColor(60, 160, 230);
pub const TEAL: RGBColor = RGBColor(0, 140, 120);
pub const PURPLE: RGBColor = RGBColor(125, 75, 170);
pub const ORANGE: RGBColor = RGBColor(217, 95, 2);
pub const AMBER: RGBColor = RGBColor(230, 159, 0);
pub const GREY: RGBColor = RGBColor(120, 120, 120);
pub const INK: RGBColor = RGBColor(40, 40, 40);

const SIZE: (u32, u32) = (1060, 580);
const TITLE_HEIGHT: u32 = 46;
const LEGEND_WIDTH: u32 = 300;
const LEGEND_LINE: i32 = 26;
/// Distance of the lines of one name.
const SECOND_LINE: i32 = 19;

/// The mapping of numbers to positions on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Logarithmic,
}

/// An axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Label with the unit.
    pub label: &'static str,
    pub scale: Scale,
    /// Positions of lines and numbers, ascending; the first and the last one are the ends of the
    /// axis.
    pub ticks: Vec<f64>,
}

impl Axis {
    pub fn linear(label: &'static str, start: f64, end: f64, step: f64) -> Axis {
        let count = ((end - start) / step).round() as u32;
        let ticks = (0..=count).map(|i| start + f64::from(i) * step).collect();
        Axis { label, scale: Scale::Linear, ticks }
    }

    /// Returns an axis from 0 to a round number above `max`.
    pub fn from_zero(label: &'static str, max: f64) -> Axis {
        let magnitude = 10_f64.powf(max.log10().floor());
        let steps = [0.1, 0.2, 0.25, 0.5, 1.0, 2.0].map(|step| step * magnitude);
        let step = steps.into_iter().find(|step| max / step <= 8.0).unwrap_or(max);
        Axis::linear(label, 0.0, (max * 1.04 / step).ceil() * step, step)
    }

    /// Returns an axis of powers of two around these numbers.
    pub fn powers_of_two(label: &'static str, min: f64, max: f64) -> Axis {
        let powers = min.log2().floor() as i32..=max.log2().ceil() as i32;
        let ticks = powers.map(|power| 2_f64.powi(power)).collect();
        Axis { label, scale: Scale::Logarithmic, ticks }
    }

    /// Returns an axis of 1, 2, 5, 10 and so on around these numbers.
    pub fn logarithmic(label: &'static str, min: f64, max: f64) -> Axis {
        let decades = min.log10().floor() as i32..=max.log10().ceil() as i32;
        let all: Vec<f64> =
            decades.flat_map(|d| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(d))).collect();
        let first = all.iter().rposition(|&tick| tick <= min).unwrap_or(0);
        let last = all.iter().position(|&tick| tick >= max).unwrap_or(all.len() - 1);
        Axis { label, scale: Scale::Logarithmic, ticks: all[first..=last].to_vec() }
    }

    /// Returns an axis of powers of ten around these numbers.
    pub fn decades(label: &'static str, min: f64, max: f64) -> Axis {
        let decades = min.log10().floor() as i32..=max.log10().ceil() as i32;
        let ticks = decades.map(|decade| 10_f64.powi(decade)).collect();
        Axis { label, scale: Scale::Logarithmic, ticks }
    }

    /// Returns an axis of powers of a thousand from 1 to a number above `max`.
    pub fn thousands(label: &'static str, max: f64) -> Axis {
        let powers = 0..=(max.log10() / 3.0).ceil() as i32;
        let ticks = powers.map(|power| 1000_f64.powi(power)).collect();
        Axis { label, scale: Scale::Logarithmic, ticks }
    }

    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.log2(),
        }
    }

    fn ends(&self) -> (f64, f64) {
        (self.ticks[0], self.ticks[self.ticks.len() - 1])
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        let (start, end) = self.ends();
        let share =
            (self.place(*value) - self.place(start)) / (self.place(end) - self.place(start));
        pixels.0 + (share * f64::from(pixels.1 - pixels.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends().0..self.ends().1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let fits = |decimals: u32| {
            let unit = 10_f64.powi(decimals as i32);
            let fits = |tick: &f64| (tick * unit - (tick * unit).round()).abs() < 1e-6;
            match self.scale {
                Scale::Linear => self.ticks.iter().all(fits),
                Scale::Logarithmic => fits(value),
            }
        };
        match (0..3).find(|&decimals| fits(decimals)) {
            Some(0) => exact(*value, 0),
            decimals => format!("{value:.0$}", decimals.unwrap_or(3) as usize),
        }
    }
}

/// A point of a series.
#[derive(Clone, Debug)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Smallest and largest y of the rounds.
    pub range: Option<(f64, f64)>,
    pub label: Option<String>,
}

impl Point {
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, range: None, label: None }
    }

    pub fn labelled(self, label: impl Into<String>) -> Point {
        Point { label: Some(label.into()), ..self }
    }
}

/// The appearance of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A computed curve.
    Line,
    Dashed,
    /// Measured points.
    Dots,
    DottedLine,
    /// Values that the paper states.
    Squares,
}

#[derive(Clone, Debug)]
pub struct Series {
    /// Text of the legend, of one line or several; a series without a name is not in the legend.
    pub name: String,
    pub look: Look,
    pub colour: RGBColor,
    pub points: Vec<Point>,
}

/// A chart of curves.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws charts in lines of two.
pub fn draw_grid(charts: &[Chart], path: &Path) -> Result<()> {
    const COLUMNS: usize = 2;
    let lines = charts.len().div_ceil(COLUMNS);
    let size = (SIZE.0 * COLUMNS as u32, SIZE.1 * lines as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, chart) in root.split_evenly((lines, COLUMNS)).iter().zip(charts) {
        chart.draw_in(area)?;
    }
    Ok(root.present()?)
}

impl Chart {
    pub fn draw(&self, path: &Path) -> Result<()> {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        self.draw_in(&root)?;
        Ok(root.present()?)
    }

    /// Draws the chart in an area of [`SIZE`].
    fn draw_in(&self, root: &Area<'_>) -> Result<()> {
        let (head, body) = root.split_vertically(TITLE_HEIGHT);
        head.draw(&Text::new(
            self.title.clone(),
            (16, 14),
            ("sans-serif", 21).into_font().color(&INK),
        ))?;
        let (plot, legend) = body.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        let mut context = ChartBuilder::on(&plot)
            .margin(14)
            .margin_right(24)
            .x_label_area_size(56)
            .y_label_area_size(84)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        context
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(222, 222, 222))
            .axis_style(INK)
            .label_style(("sans-serif", 15).into_font().color(&INK))
            .axis_desc_style(("sans-serif", 17).into_font().color(&INK))
            .x_desc(self.x.label)
            .y_desc(self.y.label)
            .x_labels(self.x.ticks.len())
            .y_labels(self.y.ticks.len())
            .draw()?;
        let area = context.plotting_area().strip_coord_spec();
        let place = |x: f64, y: f64| {
            let (x, y) = context.backend_coord(&(x, y));
            let (left, top) = area.get_base_pixel();
            (x - left, y - top)
        };
        for series in &self.series {
            series.draw(&area, &place)?;
        }
        let mut y = 24;
        for series in self.series.iter().filter(|series| !series.name.is_empty()) {
            series.draw_legend(&legend, y)?;
            y += LEGEND_LINE + SECOND_LINE * (series.name.lines().count() as i32 - 1);
        }
        Ok(())
    }
}

impl Series {
    fn draw(&self, area: &Area<'_>, place: &dyn Fn(f64, f64) -> (i32, i32)) -> Result<()> {
        let places: Vec<(i32, i32)> =
            self.points.iter().map(|point| place(point.x, point.y)).collect();
        self.draw_line(area, &places)?;
        for (point, &(x, y)) in self.points.iter().zip(&places) {
            if let Some((low, high)) = point.range {
                let ends = [place(point.x, low), place(point.x, high)];
                area.draw(&PathElement::new(ends, self.colour.stroke_width(1)))?;
                for (x, y) in ends {
                    area.draw(&PathElement::new([(x - 4, y), (x + 4, y)], self.colour))?;
                }
            }
            self.draw_mark(area, (x, y))?;
        }
        self.draw_labels(area, place)
    }

    /// Draws labels above their points and ranges, as far above as there is space.
    fn draw_labels(&self, area: &Area<'_>, place: &dyn Fn(f64, f64) -> (i32, i32)) -> Result<()> {
        const SIZE: (i32, i32) = (60, 16);
        let mut labelled: Vec<&Point> = self.points.iter().filter(|p| p.label.is_some()).collect();
        labelled.sort_by(|a, b| a.y.total_cmp(&b.y));
        let mut taken: Vec<(i32, i32)> = Vec::new();
        for point in labelled {
            let (x, mut y) = place(point.x, point.range.map_or(point.y, |(_, high)| high));
            let hits = |y: i32, other: &(i32, i32)| {
                (other.0 - x).abs() < SIZE.0 && (other.1 - y).abs() < SIZE.1
            };
            while taken.iter().any(|other| hits(y, other)) {
                y -= 1;
            }
            taken.push((x, y));
            let style = ("sans-serif", 14).into_font().color(&self.colour);
            let label = point.label.clone().unwrap_or_default();
            area.draw(&Text::new(label, (x + 8, y - 17), style))?;
        }
        Ok(())
    }

    fn draw_line(&self, area: &Area<'_>, places: &[(i32, i32)]) -> Result<()> {
        let style = self.colour.stroke_width(2);
        match self.look {
            Look::Line | Look::DottedLine => {
                area.draw(&PathElement::new(places.to_vec(), style))?;
            }
            Look::Dashed => {
                area.draw(&DashedPathElement::new(places.iter().copied(), 7, 5, style))?;
            }
            Look::Dots | Look::Squares => {}
        }
        Ok(())
    }

    fn draw_mark(&self, area: &Area<'_>, (x, y): (i32, i32)) -> Result<()> {
        match self.look {
            Look::Dots | Look::DottedLine => {
                area.draw(&Circle::new((x, y), 4, self.colour.filled()))?;
            }
            Look::Squares => {
                let corners = [(x - 5, y - 5), (x + 5, y + 5)];
                area.draw(&Rectangle::new(corners, WHITE.filled()))?;
                area.draw(&Rectangle::new(corners, self.colour.stroke_width(2)))?;
            }
            Look::Line | Look::Dashed => {}
        }
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>, y: i32) -> Result<()> {
        self.draw_line(area, &[(4, y), (36, y)])?;
        self.draw_mark(area, (20, y))?;
        let style = TextStyle::from(("sans-serif", 15).into_font()).color(&INK);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        for (line, name) in self.name.lines().enumerate() {
            let at = (46, y + SECOND_LINE * line as i32);
            area.draw(&Text::new(name.to_owned(), at, style.clone()))?;
        }
        Ok(())
    }
}

//! Bar charts: a panel for each column, a bar for each peer, a whisker for the range of the rounds.

use crate::{
    Result,
    row::{Column, Row},
};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::path::Path;

const PANEL: (u32, u32) = (460, 26);
const LABEL_WIDTH: i32 = 180;
const BAR_WIDTH_MAX: f64 = 190.0;
const TITLE_HEIGHT: u32 = 34;
const OURS: RGBColor = RGBColor(31, 119, 180);
const THEIRS: RGBColor = RGBColor(160, 160, 160);

/// Draws one data set, with two panels per row.
pub fn draw(path: &Path, title: &str, columns: &[Column], rows: &[&Row]) -> Result<()> {
    let filled: Vec<usize> =
        (0..columns.len()).filter(|&i| rows.iter().any(|row| row.figures[i].is_some())).collect();
    let lines = filled.len().div_ceil(2).max(1);
    let panel_height = TITLE_HEIGHT + PANEL.1 * rows.len() as u32;
    let size = (PANEL.0 * 2, TITLE_HEIGHT + panel_height * lines as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(TITLE_HEIGHT);
    head.draw(&Text::new(title.to_owned(), (10, 10), ("sans-serif", 18)))?;
    for (panel, &column) in body.split_evenly((lines, 2)).iter().zip(&filled) {
        draw_panel(panel, &columns[column], column, rows)?;
    }
    Ok(root.present()?)
}

fn draw_panel(
    panel: &DrawingArea<SVGBackend<'_>, Shift>,
    column: &Column,
    index: usize,
    rows: &[&Row],
) -> Result<()> {
    let maxima = rows.iter().filter_map(|row| Some(row.figures[index].as_ref()?.max()));
    let scale = BAR_WIDTH_MAX / maxima.fold(f64::MIN_POSITIVE, f64::max);
    panel.draw(&Text::new(column.name.replace('_', " "), (10, 10), ("sans-serif", 14)))?;
    let right = Pos::new(HPos::Right, VPos::Center);
    let label = TextStyle::from(("sans-serif", 12)).pos(right);
    let number = TextStyle::from(("sans-serif", 11)).pos(Pos::new(HPos::Left, VPos::Center));
    for (i, row) in rows.iter().enumerate() {
        let middle = (TITLE_HEIGHT + PANEL.1 * i as u32 + PANEL.1 / 2) as i32;
        panel.draw(&Text::new(row.peer.clone(), (LABEL_WIDTH - 8, middle), label.clone()))?;
        let Some(samples) = &row.figures[index] else { continue };
        let x = |value: f64| LABEL_WIDTH + (value * scale) as i32;
        let ours = row.peer.starts_with("Hashfold");
        let colour = if ours { OURS } else { THEIRS };
        let corners = [(LABEL_WIDTH, middle - 8), (x(samples.median()), middle + 8)];
        panel.draw(&Rectangle::new(corners, colour.filled()))?;
        let whisker = vec![(x(samples.min()), middle), (x(samples.max()), middle)];
        panel.draw(&PathElement::new(whisker, BLACK))?;
        let text = format!("{:.*}", column.decimals, samples.median());
        panel.draw(&Text::new(text, (x(samples.max()) + 6, middle), number.clone()))?;
    }
    Ok(())
}

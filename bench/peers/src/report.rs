//! The measurements of a command as JSON Lines, as a table for people, and as bar charts.

use crate::{
    Result,
    curves::{self, Curve},
    row::{Column, Row},
};
use record::{Bar, Limit, Panel, Run, Samples, draw, short};
use serde_json::{Map, Value, json};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// Name of the row of plain writes and reads, which bounds all others.
pub const DEVICE: &str = "the bare device";

/// All rows of one run.
#[derive(Clone, Debug)]
pub struct Report {
    run: Run,
    columns: &'static [Column],
    /// Names of the charts, one for each data set; none if there is nothing to draw.
    charts: &'static [&'static str],
    pub rows: Vec<Row>,
    /// The speed of some peers in the course of their work.
    pub curves: Vec<Curve>,
}

impl Report {
    pub fn new(
        columns: &'static [Column],
        charts: &'static [&'static str],
        options: Vec<(&'static str, String)>,
    ) -> Report {
        let mut run = Run::now();
        for (name, value) in options {
            run.note(name, value);
        }
        Report { run, columns, charts, rows: Vec::new(), curves: Vec::new() }
    }

    /// Prints JSON Lines to standard output, and a table to standard error.
    pub fn print(&self) {
        for row in &self.rows {
            println!("{}", self.run.line(&self.json(row)));
        }
        eprint!("{}", self.table());
    }

    /// Writes `name.jsonl`, and a chart for each data set. Curves are in `name-curves.jsonl`.
    pub fn save(&self, folder: &Path, name: &str) -> Result<()> {
        let rows: Vec<Map<String, Value>> = self.rows.iter().map(|row| self.json(row)).collect();
        self.run.write(&folder.join(format!("{name}.jsonl")), &rows)?;
        if !self.curves.is_empty() {
            let curves: Vec<Map<String, Value>> = self.curves.iter().map(Curve::to_json).collect();
            self.run.write(&curves_path(folder, name), &curves)?;
        }
        self.draw(folder, name)
    }

    /// Replaces the rows by those of `name.jsonl`, and curves by their file, to draw them.
    pub fn load(&mut self, folder: &Path, name: &str) -> Result<()> {
        let path = folder.join(format!("{name}.jsonl"));
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}; measure it first", path.display()))?;
        let row = |line| -> Result<Row> {
            Ok(Row::from_json(self.columns, &serde_json::from_str(line)?))
        };
        self.rows = text.lines().map(row).collect::<Result<_>>()?;
        let path = curves_path(folder, name);
        if path.exists() {
            let text = fs::read_to_string(&path)?;
            let curve = |line| -> Result<Curve> { Curve::from_json(&serde_json::from_str(line)?) };
            self.curves = text.lines().map(curve).collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// Draws a chart for each data set, and one of the curves.
    pub fn draw(&self, folder: &Path, name: &str) -> Result<()> {
        if !self.curves.is_empty() {
            curves::draw(&curves_path(folder, name).with_extension("svg"), &self.curves)?;
        }
        for (data, chart) in self.data_sets().into_iter().zip(self.charts) {
            let panels: Vec<Panel> =
                (0..self.columns.len()).filter_map(|i| self.panel(data, i)).collect();
            draw(&folder.join(format!("{chart}.svg")), &title(name, data), &panels)?;
        }
        Ok(())
    }

    /// Returns the number of a column.
    #[cfg(test)]
    pub fn column(&self, name: &str) -> usize {
        self.columns.iter().position(|column| column.name == name).expect("a column")
    }

    fn data_sets(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.data.as_str()) {
                names.push(&row.data);
            }
        }
        names
    }

    /// Returns the panel of a column, if it has a title and some peer has such a number.
    fn panel(&self, data: &str, number: usize) -> Option<Panel> {
        let column = &self.columns[number];
        let mut panel = Panel { title: column.title?.to_owned(), bars: Vec::new(), limit: None };
        for row in self.rows.iter().filter(|row| row.data == data) {
            let Some(samples) = &row.figures[number] else { continue };
            let [value, min, max] =
                [samples.median(), samples.min(), samples.max()].map(|it| it * column.scale);
            let name = row.peer.clone();
            if name != DEVICE {
                panel.bars.push(Bar { name, value, range: Some((min, max)) });
            } else if column.is_rate() {
                panel.limit = Some(Limit { name, value });
            }
        }
        (!panel.bars.is_empty()).then_some(panel)
    }

    fn json(&self, row: &Row) -> Map<String, Value> {
        let mut fields = Map::new();
        for (name, text) in [("data", &row.data), ("peer", &row.peer)] {
            fields.insert(name.to_owned(), json!(text));
        }
        for (column, samples) in self.columns.iter().zip(&row.figures) {
            let Some(samples) = samples else { continue };
            let round = |number: f64| {
                let scale = 10_f64.powi(column.decimals as i32);
                (number * scale).round() / scale
            };
            let [median, min, max] = [samples.median(), samples.min(), samples.max()].map(round);
            let value = json!({ "median": median, "min": min, "max": max });
            fields.insert(column.name.to_owned(), value);
        }
        fields.insert("rounds".to_owned(), json!(row.rounds));
        fields.insert("note".to_owned(), json!(row.note));
        fields
    }

    /// Returns medians, with the range of all rounds in brackets.
    fn table(&self) -> String {
        let mut out = String::new();
        for data in self.data_sets() {
            let mut lines = vec![vec![data.to_owned()]];
            lines[0].extend(self.columns.iter().map(|column| column.name.to_owned()));
            for row in self.rows.iter().filter(|row| row.data == data) {
                let mut line = vec![row.peer.clone()];
                let cells = self.columns.iter().zip(&row.figures);
                line.extend(cells.map(|(column, samples)| cell(samples.as_ref(), column.decimals)));
                lines.push(line);
            }
            out.push_str(&align(&lines));
            out.push('\n');
        }
        out
    }
}

fn curves_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}-curves.jsonl"))
}

/// Returns the title of a chart: what a command compares, and the data set.
fn title(command: &str, data: &str) -> String {
    let what = match command {
        "index" => "Indexes in memory",
        "dictionary" => "Dictionaries on the device",
        "hot" => "Lookups of data in memory",
        "serve" => "Servers that answer from memory",
        "nightly" => "Nightly updates under a reader",
        "filter" => "Filters in memory",
        "seen" => "Sets larger than memory",
        "map" => "Maps larger than memory",
        "memory" => "Tables in memory",
        "sketch" => "Sketches with 16,384 registers",
        _ => command,
    };
    // The number of slots is that of the quotient filters alone.
    let keys = data.split_once(" keys: 2^").and_then(|(keys, _)| {
        let keys: f64 = keys.replace(',', "").parse().ok()?;
        Some(format!("{} million keys", short(keys / 1e6)))
    });
    let values = data.split_once(" keys with values").and_then(|(keys, values)| {
        let keys: f64 = keys.parse().ok()?;
        Some(format!("{} million keys with values{values}", short(keys / 1e6)))
    });
    let data = keys.or(values).unwrap_or_else(|| data.to_owned());
    format!("{what}: {data}")
}

fn cell(samples: Option<&Samples>, decimals: usize) -> String {
    let Some(samples) = samples else { return "-".to_owned() };
    let (median, min, max) = (samples.median(), samples.min(), samples.max());
    if min == max {
        return format!("{median:.decimals$}");
    }
    format!("{median:.decimals$} [{min:.decimals$} {max:.decimals$}]")
}

fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i| lines.iter().filter_map(|line| line.get(i)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(i, (cell, width))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ")).expect("a string takes all");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn a_title_says_of_what_the_data_are() {
        let cases = [
            ("index", "16 million keys", "Indexes in memory: 16 million keys"),
            ("filter", "59,055,800 keys: 2^26 slots", "Filters in memory: 59.1 million keys"),
            (
                "nightly",
                "5 entries, 1 % changed",
                "Nightly updates under a reader: 5 entries, 1 % changed",
            ),
        ];
        for (command, data, expected) in cases {
            assert_eq!(title(command, data), expected);
        }
    }
}

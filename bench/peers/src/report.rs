//! The measurements as JSON Lines, as a table, as CSV and as bar charts.

use crate::{
    Result, chart, machine,
    row::{Column, Row, Samples},
};
use serde_json::{Map, Value, json};
use std::{fmt::Write as _, fs, path::Path};

/// All rows of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Machine, date, commit and options.
    pub circumstances: Vec<(&'static str, String)>,
    pub columns: &'static [Column],
    pub rows: Vec<Row>,
}

impl Report {
    pub fn new(columns: &'static [Column], options: Vec<(&'static str, String)>) -> Report {
        let mut circumstances = machine::describe();
        circumstances.extend(options);
        Report { circumstances, columns, rows: Vec::new() }
    }

    /// Prints JSON Lines to standard output, and a table to standard error.
    pub fn print(&self) {
        let circumstances = self.circumstances.iter();
        let facts: Map<String, Value> =
            circumstances.map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        println!("{}", Value::Object(facts));
        for row in &self.rows {
            println!("{}", self.json(row));
        }
        eprint!("{}", self.table());
    }

    /// Writes `name.csv`, and `name-1.svg` and so on for each data set.
    pub fn save(&self, folder: &Path, name: &str) -> Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(format!("{name}.csv")), self.csv())?;
        for (i, data) in self.data_sets().into_iter().enumerate() {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.data == data).collect();
            let path = folder.join(format!("{name}-{}.svg", i + 1));
            chart::draw(&path, data, self.columns, &rows)?;
        }
        Ok(())
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

    fn json(&self, row: &Row) -> Value {
        let mut fields = Map::new();
        for (name, text) in [("data", &row.data), ("peer", &row.peer), ("note", &row.note)] {
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
        Value::Object(fields)
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

    fn csv(&self) -> String {
        let mut out = String::new();
        for (name, value) in &self.circumstances {
            writeln!(out, "# {name}: {value}").expect("a string takes all");
        }
        out.push_str("data,peer");
        for column in self.columns {
            write!(out, ",{0},{0}_min,{0}_max", column.name).expect("a string takes all");
        }
        out.push_str(",note\n");
        for row in &self.rows {
            write!(out, "{},{}", quote(&row.data), quote(&row.peer)).expect("a string takes all");
            for (column, samples) in self.columns.iter().zip(&row.figures) {
                let numbers = samples.as_ref().map(|s| [s.median(), s.min(), s.max()]);
                let texts = numbers.map(|n| n.map(|n| format!("{n:.0$}", column.decimals)));
                write!(out, ",{}", texts.unwrap_or_default().join(",")).expect("takes all");
            }
            writeln!(out, ",{}", quote(&row.note)).expect("a string takes all");
        }
        out
    }
}

fn cell(samples: Option<&Samples>, decimals: usize) -> String {
    let Some(samples) = samples else { return "-".to_owned() };
    let (median, min, max) = (samples.median(), samples.min(), samples.max());
    if min == max {
        return format!("{median:.decimals$}");
    }
    format!("{median:.decimals$} [{min:.decimals$} {max:.decimals$}]")
}

fn quote(text: &str) -> String {
    if text.contains([',', '"']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
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

//! The numbers of one figure or table: rows, as JSON Lines and as a table for people. Charts are drawn
//! from rows alone, so that they can be drawn again from a file.

use crate::{Options, Result, chart::Point};
use record::{Bar, Run, Samples};
use serde_json::{Map, Value};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// Origins of rows.
pub const OURS: &str = "hashfold";
pub const PAPER: &str = "paper";
pub const THEORY: &str = "theory";
/// Another program, measured here.
pub const MEASURED: &str = "measured";

/// Draws the rows of a file of results to a file.
pub type Draw = fn(&[Row], &Path) -> Result<()>;

/// A row: columns and their values, in order.
#[derive(Clone, Debug)]
pub struct Row(Map<String, Value>);

impl Row {
    /// Returns a row with its name, in this column, and its origin.
    pub fn new(column: &str, name: impl Into<String>, source: &str) -> Row {
        Row(Map::new()).text(column, name).text("source", source)
    }

    pub fn text(mut self, column: &str, text: impl Into<String>) -> Row {
        self.0.insert(column.to_owned(), Value::from(text.into()));
        self
    }

    pub fn number(mut self, column: &str, number: f64) -> Row {
        assert!(number.is_finite(), "{column} is {number}");
        self.0.insert(column.to_owned(), Value::from(number));
        self
    }

    /// Adds a number with so many decimals.
    pub fn rounded(self, column: &str, number: f64, decimals: i32) -> Row {
        let unit = 10_f64.powi(decimals);
        self.number(column, (number * unit).round() / unit)
    }

    /// Adds the median of all rounds, and the columns `_min` and `_max`.
    pub fn spread(self, column: &str, rounds: &Samples, decimals: i32) -> Row {
        self.rounded(column, rounds.median(), decimals)
            .rounded(&format!("{column}_min"), rounds.min(), decimals)
            .rounded(&format!("{column}_max"), rounds.max(), decimals)
    }

    pub fn string(&self, column: &str) -> &str {
        self.0.get(column).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn get(&self, column: &str) -> Option<f64> {
        self.0.get(column).and_then(Value::as_f64)
    }

    /// Returns the smallest and the largest value of the rounds.
    pub fn range(&self, column: &str) -> Option<(f64, f64)> {
        let end = |end: &str| self.get(&format!("{column}_{end}"));
        end("min").zip(end("max"))
    }

    pub fn is_of(&self, source: &str) -> bool {
        self.string("source") == source
    }

    /// Returns the bar of a column, if the row has it.
    pub fn bar(&self, name: &str, column: &str) -> Option<Bar> {
        let value = self.get(column)?;
        Some(Bar { name: name.to_owned(), value, range: self.range(column) })
    }

    /// Returns the point of two columns, if the row has them.
    pub fn point(&self, x: &str, y: &str) -> Option<Point> {
        let (x, value) = self.get(x).zip(self.get(y))?;
        Some(Point { range: self.range(y), ..Point::new(x, value) })
    }

    /// Formats a cell for people.
    fn cell(&self, column: &str) -> String {
        match self.0.get(column) {
            None => String::new(),
            Some(value) => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        }
    }
}

/// Returns the rows of one origin.
pub fn of<'a>(rows: &'a [Row], source: &'a str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.is_of(source))
}

/// Reads the rows of a file of results.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("{}: {error}; measure it first", path.display()))?;
    text.lines().map(|line| Ok(Row(serde_json::from_str(line)?))).collect()
}

/// The numbers of one figure or table.
#[derive(Clone, Debug)]
pub struct Sheet {
    title: String,
    run: Run,
    rows: Vec<Row>,
}

impl Sheet {
    /// Returns a sheet whose circumstances include the machine, the seed and the rounds.
    pub fn new(title: &str, options: &Options) -> Sheet {
        let mut run = Run::now();
        run.note("seed", options.seed.to_string());
        run.note("rounds", options.rounds.to_string());
        Sheet { title: title.to_owned(), run, rows: Vec::new() }
    }

    /// Returns a sheet with the same circumstances, and no rows.
    pub fn emptied(&self, title: &str) -> Sheet {
        Sheet { title: title.to_owned(), rows: Vec::new(), ..self.clone() }
    }

    pub fn note(&mut self, name: &'static str, value: impl Into<String>) {
        self.run.note(name, value);
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Writes `name.jsonl` and `name.svg`, and prints the table.
    pub fn save(&self, options: &Options, name: &str, draw: Draw) -> Result<()> {
        let path = self.write(options, name)?;
        println!("{}", self.table());
        draw(&self.rows, &path.with_extension("svg"))
    }

    /// Writes `name.jsonl`, and prints nothing. Returns the path of the file.
    pub fn write(&self, options: &Options, name: &str) -> Result<PathBuf> {
        let rows: Vec<Map<String, Value>> = self.rows.iter().map(|row| row.0.clone()).collect();
        let mut run = self.run.clone();
        run.note("title", &self.title);
        let path = options.folder().join(format!("{name}.jsonl"));
        run.write(&path, &rows)?;
        Ok(path)
    }

    fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = Vec::new();
        for column in self.rows.iter().flat_map(|row| row.0.keys()) {
            if !columns.contains(&column.as_str()) {
                columns.push(column);
            }
        }
        columns
    }

    fn table(&self) -> String {
        let columns = self.columns();
        let names: Vec<String> = columns.iter().map(|name| name.replace('_', " ")).collect();
        let cells = |row: &Row| columns.iter().map(|column| row.cell(column)).collect();
        let lines: Vec<Vec<String>> =
            [names].into_iter().chain(self.rows.iter().map(cells)).collect();
        let width = |i: usize| lines.iter().map(|line| line[i].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns.len()).map(width).collect();
        // Text is aligned to the left.
        let is_text = |column: &&str| self.rows.iter().any(|row| !row.string(column).is_empty());
        let left: Vec<bool> = columns.iter().map(is_text).collect();
        let mut out = format!("{}\n", self.title);
        for line in lines {
            let mut text = String::new();
            for ((cell, width), left) in line.iter().zip(&widths).zip(&left) {
                let padding = " ".repeat(width - cell.len());
                let (before, after) = if *left { ("", &*padding) } else { (&*padding, "") };
                write!(text, "{before}{cell}{after}  ").expect("a string takes all");
            }
            writeln!(out, "{}", text.trim_end()).expect("a string takes all");
        }
        out
    }
}

//! The numbers of one figure or table: rows of texts, as JSON Lines and as a table for people.

use crate::{Options, Result};
use record::Run;
use serde_json::{Map, Value};
use std::{fmt::Write as _, path::PathBuf};

/// Origins of rows.
pub const OURS: &str = "hashfold";
pub const PAPER: &str = "paper";
pub const THEORY: &str = "theory";
/// Another program, measured here.
pub const MEASURED: &str = "measured";

/// The numbers of one figure or table.
#[derive(Clone, Debug)]
pub struct Sheet {
    title: String,
    run: Run,
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Returns a sheet whose circumstances include the machine, the seed and the rounds.
    pub fn new(title: &str, options: &Options, columns: &'static [&'static str]) -> Sheet {
        let mut run = Run::now();
        run.note("seed", options.seed.to_string());
        run.note("rounds", options.rounds.to_string());
        Sheet { title: title.to_owned(), run, columns, rows: Vec::new() }
    }

    /// Returns a sheet with the same circumstances, and no rows.
    pub fn emptied(&self, title: &str) -> Sheet {
        Sheet { title: title.to_owned(), rows: Vec::new(), ..self.clone() }
    }

    pub fn note(&mut self, name: &'static str, value: impl Into<String>) {
        self.run.note(name, value);
    }

    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Writes `name.jsonl`, prints the table, and returns the path of the SVG.
    pub fn save(&self, options: &Options, name: &str) -> Result<PathBuf> {
        self.write(options, name)?;
        println!("{}", self.table());
        Ok(options.folder().join(format!("{name}.svg")))
    }

    /// Writes `name.jsonl`, and prints nothing.
    pub fn write(&self, options: &Options, name: &str) -> Result<()> {
        let rows: Vec<Map<String, Value>> = self.rows.iter().map(|row| self.fields(row)).collect();
        let mut run = self.run.clone();
        run.note("title", &self.title);
        run.write(&options.folder().join(format!("{name}.jsonl")), &rows)
    }

    /// Returns the cells by their columns: numbers as such, and no empty ones.
    fn fields(&self, row: &[String]) -> Map<String, Value> {
        let cells = self.columns.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        let value = |cell: &String| match cell.parse::<f64>() {
            Ok(number) if number.is_finite() => Value::from(number),
            _ => Value::from(cell.as_str()),
        };
        cells.map(|(name, cell)| ((*name).to_owned(), value(cell))).collect()
    }

    fn table(&self) -> String {
        let names = self.columns.iter().map(|name| name.replace('_', " ")).collect();
        let lines: Vec<&Vec<String>> = [&names].into_iter().chain(&self.rows).collect();
        let width = |i: usize| lines.iter().map(|line| line[i].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        // Text is aligned to the left. A column has numbers if all its cells are numbers or empty.
        let is_text = |i: usize| {
            let cells = self.rows.iter().map(|row| row[i].as_str());
            cells.filter(|cell| !cell.is_empty()).any(|cell| cell.parse::<f64>().is_err())
        };
        let left: Vec<bool> = (0..self.columns.len()).map(is_text).collect();
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

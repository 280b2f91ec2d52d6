//! Rows of text, as CSV after comment lines, and as a table for people.

use crate::{Options, Result, machine};
use std::{fmt::Write as _, fs, path::PathBuf};

/// Origins of rows.
pub const OURS: &str = "hashfold";
pub const PAPER: &str = "paper";
pub const THEORY: &str = "theory";
/// Another program, measured here.
pub const MEASURED: &str = "measured";

/// The numbers of one figure or table.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// Comment lines: names and values.
    notes: Vec<(&'static str, String)>,
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Returns a sheet whose notes contain the machine, the seed and the rounds.
    pub fn new(title: &str, options: &Options, columns: &'static [&'static str]) -> Sheet {
        let mut notes = vec![("title", title.to_owned())];
        notes.extend(machine::describe());
        notes.push(("seed", options.seed.to_string()));
        notes.push(("rounds", options.rounds.to_string()));
        Sheet { notes, columns, rows: Vec::new() }
    }

    /// Returns a sheet with the same notes except for the title, and no rows.
    pub fn emptied(&self, title: &str) -> Sheet {
        let mut notes = self.notes.clone();
        notes[0].1 = title.to_owned();
        Sheet { notes, columns: self.columns, rows: Vec::new() }
    }

    pub fn note(&mut self, name: &'static str, value: impl Into<String>) {
        self.notes.push((name, value.into()));
    }

    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Writes `name.csv`, prints the table, and returns the path of the SVG.
    pub fn save(&self, options: &Options, name: &str) -> Result<PathBuf> {
        self.write(options, name)?;
        println!("{}", self.table());
        Ok(options.folder().join(format!("{name}.svg")))
    }

    /// Writes `name.csv`, and prints nothing.
    pub fn write(&self, options: &Options, name: &str) -> Result<()> {
        fs::create_dir_all(options.folder())?;
        Ok(fs::write(options.folder().join(format!("{name}.csv")), self.csv())?)
    }

    /// Writes the table for people to `name.txt`.
    pub fn save_text(&self, options: &Options, name: &str) -> Result<()> {
        Ok(fs::write(options.folder().join(format!("{name}.txt")), self.table())?)
    }

    fn csv(&self) -> String {
        let mut out = String::new();
        for (name, value) in &self.notes {
            writeln!(out, "# {name}: {value}").expect("a string takes all");
        }
        out.push_str(&self.columns.join(","));
        out.push('\n');
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| quote(cell)).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        }
        out
    }

    fn table(&self) -> String {
        let names = self.columns.iter().map(|name| name.replace('_', " ")).collect();
        let lines: Vec<&Vec<String>> = [&names].into_iter().chain(&self.rows).collect();
        let width = |i: usize| lines.iter().map(|line| line[i].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        // Text is aligned to the left. A column has numbers if its last cell is a number or empty.
        let is_text = |i: usize| {
            let cells = self.rows.iter().map(|row| row[i].as_str());
            cells.filter(|cell| !cell.is_empty()).any(|cell| cell.parse::<f64>().is_err())
        };
        let left: Vec<bool> = (0..self.columns.len()).map(is_text).collect();
        let mut out = format!("{}\n", self.notes[0].1);
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

fn quote(text: &str) -> String {
    if text.contains([',', '"']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

/// `1234567` as `1,234,567`.
pub fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut out = if number < 0.0 { "-".to_owned() } else { String::new() };
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

//! A file of results: rows, each with the circumstances of its measurement.

use crate::Result;
use record::ROUNDS_MIN;
use serde_json::{Map, Value};

pub type Row = Map<String, Value>;

/// A parsed file of results.
#[derive(Debug)]
pub struct Sheet {
    pub rows: Vec<Row>,
}

impl Sheet {
    /// Parses JSON Lines.
    pub fn parse(text: &str) -> Result<Sheet> {
        let parse = |(i, line)| match serde_json::from_str(line) {
            Ok(Value::Object(row)) => Ok(row),
            Ok(_) => Err(format!("line {}: expected an object", i + 1)),
            Err(error) => Err(format!("line {}: {error}", i + 1)),
        };
        let rows: Vec<Row> = text.lines().enumerate().map(parse).collect::<Result<_>>()?;
        if rows.is_empty() { Err("there are no results".to_owned()) } else { Ok(Sheet { rows }) }
    }

    /// Fails unless all rows were measured from a commit that has all sources, often enough, on a
    /// machine whose load is known.
    pub fn check(&self) -> Result<()> {
        self.rows.iter().try_for_each(|row| {
            let name = |name: &str| row["run"][name].as_str().unwrap_or_default();
            let commit = name("commit");
            if commit.len() < 12 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(format!("measured from the commit {commit:?}"));
            }
            let load = name("load");
            let is_load = load.split(' ').next().is_some_and(|mean| mean.parse::<f64>().is_ok());
            if !is_load || name("machine").is_empty() {
                return Err(format!("the machine or its load is unknown: load {load:?}"));
            }
            // A row may be of several nights a round, or of fewer rounds than others.
            let rounds = [row.get("rounds").and_then(Value::as_u64), name("rounds").parse().ok()];
            let rounds = rounds.into_iter().flatten().min().unwrap_or(0);
            if rounds < ROUNDS_MIN as u64 {
                return Err(format!("measured in {rounds} rounds, expected {ROUNDS_MIN} or more"));
            }
            Ok(())
        })
    }

    /// Returns the circumstances of the first row.
    pub fn run(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.rows[0].get("run").and_then(Value::as_object).into_iter().flatten()
    }

    /// Fails unless some row has this column.
    pub fn check_column(&self, name: &str) -> Result<()> {
        if self.rows.iter().any(|row| row.contains_key(name)) {
            return Ok(());
        }
        let names: Vec<&str> = self.rows[0].keys().map(String::as_str).collect();
        Err(format!("no column {name}; the first row has {}", names.join(", ")))
    }

    /// Returns the rows that have these texts or numbers in these columns.
    pub fn rows(&self, conditions: &[(&str, &str)]) -> Vec<&Row> {
        let fits = |row: &&Row| {
            conditions.iter().all(|(name, text)| {
                let value = row.get(*name);
                let number = value.and_then(Value::as_f64);
                value == Some(&Value::from(*text))
                    || number.is_some_and(|number| text.parse() == Ok(number))
            })
        };
        self.rows.iter().filter(fits).collect()
    }
}

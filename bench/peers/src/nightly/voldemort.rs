//! Voldemort's read-only engine, measured by `bench/voldemort/run.sh`, which prints JSON Lines.

use super::{COLUMNS, book};
use crate::{Result, data::Data, row::Row};
use serde_json::Value;
use std::{fs, path::Path};

/// Returns the lines of a file, each an object.
pub fn read(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            let place = |error| format!("{}:{}: {error}", path.display(), i + 1);
            Ok(serde_json::from_str(line).map_err(place)?)
        })
        .collect()
}

/// Returns a row of the lines about these data, if there are any.
pub fn rows(lines: &[Value], data: &Data, change: f64, name: &str) -> Result<Option<Row>> {
    let is_about = |line: &&Value| {
        line["entries"].as_u64() == Some(data.count)
            && line["value_bytes"].as_u64() == Some(data.value_size as u64)
            && line["change_percent"].as_f64() == Some(change)
    };
    let lines: Vec<&Value> = lines.iter().filter(is_about).collect();
    let Some(first) = lines.first() else { return Ok(None) };
    let (expected, got) = (book::check(data), &first["check"]);
    if got.as_str() != Some(&expected) {
        return Err(format!("Voldemort had other data: check {got} and not {expected}").into());
    }
    let text = |name: &str| first[name].as_str().unwrap_or_default().to_owned();
    let numbers = |line: &&Value| COLUMNS.iter().map(|column| line[column.name].as_f64()).collect();
    let nights: Vec<Vec<Option<f64>>> = lines.iter().map(numbers).collect();
    Ok(Some(Row::new(name, &text("peer"), &text("note"), &nights)))
}

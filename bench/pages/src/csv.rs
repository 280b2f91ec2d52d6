//! The former form of results: comment lines with the circumstances, a line of column names, rows.

use crate::{
    Result,
    sheet::{Row, Sheet},
};
use serde_json::{Map, Value};

/// Parses a CSV file.
pub fn parse(text: &str) -> Result<Sheet> {
    let (comments, lines): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with('#'));
    let circumstances = comments.iter().filter_map(|line| line[1..].split_once(':'));
    let run: Map<String, Value> =
        circumstances.map(|(name, value)| (name.trim().to_owned(), value.trim().into())).collect();
    let mut lines = lines.into_iter().map(fields);
    let columns = lines.next().ok_or("there is no line of column names")?;
    let row = |cells: Vec<String>| {
        if cells.len() != columns.len() {
            return Err(format!("expected {} fields, got {cells:?}", columns.len()));
        }
        let cells = columns.iter().cloned().zip(cells).filter(|(_, cell)| !cell.is_empty());
        let mut row: Row = cells.map(|(name, cell)| (name, value(&cell))).collect();
        row.insert("run".to_owned(), Value::Object(run.clone()));
        Ok(row)
    };
    Ok(Sheet { rows: lines.map(row).collect::<Result<_>>()? })
}

fn value(cell: &str) -> Value {
    match cell.parse::<f64>() {
        Ok(number) if number.is_finite() => number.into(),
        _ => cell.into(),
    }
}

/// Splits a line of CSV into fields.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut is_quoted) = (vec![String::new()], false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is at least one field");
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => field.push(character),
        }
    }
    fields
}

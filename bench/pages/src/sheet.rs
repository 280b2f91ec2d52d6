//! A file of results: comment lines with the circumstances, a line of column names, rows.

use crate::Result;

/// A parsed CSV file.
#[derive(Debug)]
pub struct Sheet {
    /// Names and values of the comment lines (`# name: value`).
    pub circumstances: Vec<(String, String)>,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Parses a file of results.
    pub fn parse(text: &str) -> Result<Sheet> {
        let (comments, lines): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('#'));
        let circumstances = comments.iter().filter_map(|line| line[1..].split_once(':'));
        let circumstances = circumstances
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect();
        let mut lines = lines.into_iter().map(fields);
        let columns = lines.next().ok_or("there is no line of column names")?;
        let rows: Vec<Vec<String>> = lines.collect();
        match rows.iter().find(|row| row.len() != columns.len()) {
            Some(row) => Err(format!("expected {} fields, got {row:?}", columns.len())),
            None => Ok(Sheet { circumstances, columns, rows }),
        }
    }

    /// Returns the position of a column.
    pub fn column(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|column| column == name);
        found
            .ok_or_else(|| format!("no column {name}; the columns are {}", self.columns.join(", ")))
    }

    /// Returns the rows that have these texts in these columns.
    pub fn rows(&self, conditions: &[(usize, &str)]) -> Vec<&[String]> {
        let is_wanted = |row: &&Vec<String>| conditions.iter().all(|(i, text)| row[*i] == *text);
        self.rows.iter().filter(is_wanted).map(Vec::as_slice).collect()
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

//! Documents with tables that are generated from files of results.
//!
//! ```text
//! <!-- table: bench/results/seen.jsonl
//! where: data = keys of 8 bytes
//! peer: system
//! bytes_per_key: bytes per key
//! -->
//! (the table, written by this program)
//! <!-- end -->
//! ```
//!
//! `table:` is followed by the file, each `where:` by a condition on rows. Then comes a line for
//! each column of the table: the column of the file and its heading; `seconds * 1000` is shown in
//! milliseconds. A number of several rounds, or one with the columns `_min` and `_max` beside it, is
//! shown as the median with its range.
//!
//! `<!-- figures: FILE`, followed by lines of a name and what it means, is replaced by a table of
//! these measurements of `hashfold bench`, and `<!-- circumstances: FILE -->` by machine, date, commit
//! and options. A table whose file does not exist yet says that it waits for it.
//!
//! `<!-- chart: FILE`, followed by a line of the link and the title, is replaced by the picture if there is one.

use crate::{
    Result,
    sheet::{Row, Sheet},
};
use record::short;
use serde_json::Value;
use std::fmt::Write as _;

const END: &str = "<!-- end -->\n";

/// Returns the text of a file of results; `None` if there is no such file.
type Read<'a> = dyn Fn(&str) -> Result<Option<String>> + 'a;

/// Returns the document with all tables written anew.
pub fn refresh(document: &str, read: &Read<'_>) -> Result<String> {
    let (mut out, mut rest) = (String::new(), document);
    while let Some(start) = next_directive(rest) {
        let length = rest[start..].find("-->\n").ok_or("a comment does not end")? + "-->\n".len();
        let (before, after) = rest.split_at(start + length);
        let directive = before[start..].trim_start_matches("<!-- ").trim_end_matches("-->\n");
        let end = after.find(END).ok_or_else(|| format!("expected {END:?} after {directive:?}"))?;
        out += before;
        out += &write(directive, read).map_err(|error| format!("{directive:?}: {error}"))?;
        out += END;
        rest = &after[end + END.len()..];
    }
    Ok(out + rest)
}

fn next_directive(text: &str) -> Option<usize> {
    let starts = ["<!-- table: ", "<!-- figures: ", "<!-- circumstances: ", "<!-- chart: "];
    starts.iter().filter_map(|start| text.find(start)).min()
}

fn write(directive: &str, read: &Read<'_>) -> Result<String> {
    let mut lines =
        directive.trim().lines().map(|line| line.split_once(": ").unwrap_or((line, "")));
    let (kind, file) = lines.next().ok_or("the directive is empty")?;
    let Some(text) = read(file)? else {
        let is_table = !["circumstances", "chart"].contains(&kind);
        return Ok(if is_table { format!("Not measured yet: `{file}`.\n") } else { String::new() });
    };
    if kind == "chart" {
        let (link, title) = lines.next().ok_or("expected LINK: TITLE")?;
        return Ok(format!("![{title}]({link})\n"));
    }
    let sheet = Sheet::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    sheet.check().map_err(|error| format!("{file}: {error}"))?;
    let lines: Vec<(&str, &str)> = lines.collect();
    match kind {
        "table" => table(&sheet, &lines),
        "figures" => figures(&sheet, &lines),
        _ => Ok(circumstances(&sheet, file)),
    }
}

fn table(sheet: &Sheet, lines: &[(&str, &str)]) -> Result<String> {
    let (mut conditions, mut columns) = (Vec::new(), Vec::new());
    for &(name, text) in lines {
        if name == "where" {
            conditions.push(text.split_once(" = ").ok_or("expected where: COLUMN = TEXT")?);
        } else {
            let column = Column::parse(name)?;
            sheet.check_column(column.name)?;
            columns.push((column, text));
        }
    }
    let rows = sheet.rows(&conditions);
    if rows.is_empty() {
        return Err("no row fits the conditions".to_owned());
    }
    let headings: Vec<&str> = columns.iter().map(|(_, heading)| *heading).collect();
    let rules = columns.iter().enumerate().map(|(i, _)| if i == 0 { "---" } else { "---:" });
    let mut out = line(&headings) + &line(&rules.collect::<Vec<_>>());
    for row in rows {
        let cells: Vec<String> = columns.iter().map(|(column, _)| column.cell(row)).collect();
        out += &line(&cells);
    }
    Ok(out)
}

fn figures(sheet: &Sheet, lines: &[(&str, &str)]) -> Result<String> {
    let mut out = line(&["what", "median"]) + &line(&["---", "---:"]);
    for &(name, meaning) in lines {
        let rows = sheet.rows(&[("name", name)]);
        let row = rows.first().ok_or_else(|| format!("no measurement {name}"))?;
        out += &line(&[meaning.to_owned(), range([&row["value"], &row["min"], &row["max"]], 1.0)]);
    }
    Ok(out)
}

fn line(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A column of a table.
struct Column<'a> {
    /// Name of the column of the file.
    name: &'a str,
    /// Factor of all numbers.
    scale: f64,
}

impl Column<'_> {
    /// Parses `NAME` or `NAME * FACTOR`.
    fn parse(text: &str) -> Result<Column<'_>> {
        let Some((name, scale)) = text.split_once(" * ") else {
            return Ok(Column { name: text, scale: 1.0 });
        };
        let scale = scale.parse().map_err(|error| format!("{scale:?}: {error}"))?;
        Ok(Column { name, scale })
    }

    /// Formats a cell; a dash if there is none.
    fn cell(&self, row: &Row) -> String {
        let Some(value) = row.get(self.name) else { return "–".to_owned() };
        if value.is_object() {
            return range(["median", "min", "max"].map(|name| &value[name]), self.scale);
        }
        let bound = |end: &str| row.get(&format!("{}_{end}", self.name)).unwrap_or(value);
        range([value, bound("min"), bound("max")], self.scale)
    }
}

/// Formats `9.33 M [8.99 M to 9.67 M]`, or one number if all rounds agree.
fn range(numbers: [&Value; 3], scale: f64) -> String {
    let [median, min, max] = numbers.map(|value| shown(value, scale));
    if min == max { median } else { format!("{median} [{min} to {max}]") }
}

fn shown(value: &Value, scale: f64) -> String {
    match (value.as_f64(), value.as_str()) {
        (Some(number), _) => short(number * scale),
        (_, Some(text)) => text.replace('|', "\\|"),
        _ => value.to_string(),
    }
}

fn circumstances(sheet: &Sheet, file: &str) -> String {
    let mut out = format!("Raw results: `{file}`.");
    let mut separator = " ";
    for (name, value) in sheet.run().filter(|(name, _)| *name != "title") {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        write!(out, "{separator}{name}: {text}").expect("a string takes all");
        separator = "; ";
    }
    out + ".\n"
}

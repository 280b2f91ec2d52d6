//! Documents with tables that are generated from files of results.
//!
//! ```text
//! <!-- table: bench/results/seen.csv
//! where: data = keys of 8 bytes
//! peer: system
//! million_keys: keys, millions
//! -->
//! (the table, written by this program)
//! <!-- end -->
//! ```
//!
//! `table:` is followed by the file, each `where:` by a condition on rows. Then comes a line for
//! each column of the table: the column of the file and its heading. A column with the columns
//! `_min` and `_max` beside it is shown as the median with its range. `<!-- circumstances: FILE
//! -->` is replaced by machine, date, commit and options.

use crate::{Result, sheet::Sheet};
use std::fmt::Write as _;

const END: &str = "<!-- end -->\n";

/// Returns the document with all tables written anew; `read` returns the text of a file.
pub fn refresh(document: &str, read: &dyn Fn(&str) -> Result<String>) -> Result<String> {
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
    let starts = ["<!-- table: ", "<!-- circumstances: "];
    starts.iter().filter_map(|start| text.find(start)).min()
}

fn write(directive: &str, read: &dyn Fn(&str) -> Result<String>) -> Result<String> {
    let mut lines =
        directive.trim().lines().map(|line| line.split_once(": ").unwrap_or((line, "")));
    let (kind, file) = lines.next().ok_or("the directive is empty")?;
    let sheet = Sheet::parse(&read(file)?).map_err(|error| format!("{file}: {error}"))?;
    match kind {
        "table" => table(&sheet, &lines.collect::<Vec<_>>()),
        _ => Ok(circumstances(&sheet, file)),
    }
}

fn table(sheet: &Sheet, lines: &[(&str, &str)]) -> Result<String> {
    let (mut conditions, mut columns) = (Vec::new(), Vec::new());
    for &(name, text) in lines {
        if name == "where" {
            let (column, value) = text.split_once(" = ").ok_or("expected where: COLUMN = TEXT")?;
            conditions.push((sheet.column(column)?, value));
        } else {
            columns.push((name, text));
        }
    }
    let rows = sheet.rows(&conditions);
    if rows.is_empty() {
        return Err("no row fits the conditions".to_owned());
    }
    let mut out = String::new();
    let headings: Vec<&str> = columns.iter().map(|(_, heading)| *heading).collect();
    let rules: Vec<&str> =
        (0..columns.len()).map(|i| if i == 0 { "---" } else { "---:" }).collect();
    for cells in [headings, rules] {
        writeln!(out, "| {} |", cells.join(" | ")).expect("a string takes all");
    }
    for row in rows {
        let cells: Result<Vec<String>> =
            columns.iter().map(|(name, _)| cell(sheet, row, name)).collect();
        writeln!(out, "| {} |", cells?.join(" | ")).expect("a string takes all");
    }
    Ok(out)
}

/// Formats `9,328 [8,986 to 9,673]`, or one number if all rounds agree, or a dash.
fn cell(sheet: &Sheet, row: &[String], column: &str) -> Result<String> {
    let median = &row[sheet.column(column)?];
    if median.is_empty() {
        return Ok("–".to_owned());
    }
    let bound = |end: &str| Some(&row[sheet.column(&format!("{column}_{end}")).ok()?]);
    Ok(match (bound("min"), bound("max")) {
        (Some(min), Some(max)) if min != max && !min.is_empty() => {
            format!("{} [{} to {}]", grouped(median), grouped(min), grouped(max))
        }
        _ => grouped(median),
    })
}

/// Writes commas between the thousands of a number; leaves other text as it is.
fn grouped(text: &str) -> String {
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    if whole.is_empty() || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.replace('|', "\\|");
    }
    let mut out = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

fn circumstances(sheet: &Sheet, file: &str) -> String {
    let shown = sheet.circumstances.iter().filter(|(name, _)| name != "title");
    let facts: Vec<String> = shown.map(|(name, value)| format!("{name}: {value}")).collect();
    format!("Raw results: `{file}`. {}.\n", facts.join("; "))
}

//! `hashfold sketch count DIR`: how many distinct keys each group has.

use super::Groups;
use crate::{
    failure::{Exit, Failure, Result},
    output::{EntryWriter, OutputFormat, write_note},
};
use hashfold::{run::Run as _, sketch::Hll};
use hashfold_rows::{Column, Kind, Schema, Value};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    path::{Path, PathBuf},
};

/// The groups that are counted.
pub(in crate::sketch) enum Which<'a> {
    Named(&'a [PathBuf]),
    All,
    /// The N groups with the most distinct keys.
    Top(usize),
}

/// Prints the number of distinct keys of groups.
pub(in crate::sketch) fn count(
    folder: &Path,
    which: &Which<'_>,
    (confidence, json): (f64, bool),
) -> Result<Exit> {
    let groups = Groups::open(folder)?;
    if matches!(which, Which::Named([])) {
        return Err(Failure::usage(format!(
            "{}: is a table of groups; name the groups, or count --all of them, or the --top N",
            folder.display()
        )));
    }
    let format = if json { OutputFormat::Json } else { OutputFormat::Csv };
    let mut counts = Counts::new(&groups.by, format, confidence)?;
    let exit = match which {
        Which::Named(names) => named(&groups, names, &mut counts)?,
        Which::All => {
            scan(&groups, &mut |group, sketch| {
                counts.write(group, &Count::of(sketch, counts.confidence))
            })?;
            Exit::Done
        }
        Which::Top(count) => {
            for (count, group) in top(&groups, *count, confidence)? {
                counts.write(&group, &count)?;
            }
            Exit::Done
        }
    };
    counts.out.finish()?;
    Ok(exit)
}

fn named(groups: &Groups, names: &[PathBuf], counts: &mut Counts) -> Result<Exit> {
    let mut exit = Exit::Done;
    for name in names {
        let group = name.as_os_str().as_encoded_bytes();
        match groups.get_if_any(group)? {
            Some(sketch) => counts.write(group, &Count::of(&sketch, counts.confidence))?,
            None => {
                write_note(format_args!("hashfold: {}", groups.absent(group).message));
                exit = Exit::No;
            }
        }
    }
    Ok(exit)
}

/// Returns the groups with the most distinct keys, in descending order; of equal ones, the first by their
/// bytes.
fn top(groups: &Groups, count: usize, confidence: f64) -> Result<Vec<(Count, Vec<u8>)>> {
    // The smallest of the largest is on top.
    let mut largest = BinaryHeap::new();
    scan(groups, &mut |group, sketch| {
        largest.push((Reverse(Count::of(sketch, confidence)), group.to_vec()));
        if largest.len() > count {
            largest.pop();
        }
        Ok(())
    })?;
    Ok(largest
        .into_sorted_vec()
        .into_iter()
        .map(|(Reverse(count), group)| (count, group))
        .collect())
}

/// Calls `visit` with all groups, in the order of the table.
fn scan(groups: &Groups, visit: &mut dyn FnMut(&[u8], &Hll) -> Result<()>) -> Result<()> {
    let mut scan = groups.table.scan();
    while scan.advance()? {
        let entry = scan.entry();
        let sketch = groups.read(entry.key, entry.value.unwrap_or_default())?;
        visit(entry.key, &sketch)?;
    }
    Ok(())
}

/// A number of distinct keys, and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Count {
    distinct: u64,
    low: u64,
    high: u64,
}

impl Count {
    fn of(sketch: &Hll, confidence: f64) -> Count {
        let estimate = sketch.estimate_with_error();
        let (low, high) = estimate.interval(confidence);
        let round = |number: f64| number.round() as u64;
        Count { distinct: round(estimate.value), low: round(low), high: round(high) }
    }
}

/// Writes counts as rows.
struct Counts {
    schema: Schema,
    /// The probability that intervals have the true value.
    confidence: f64,
    out: EntryWriter,
}

impl Counts {
    fn new(by: &str, format: OutputFormat, confidence: f64) -> Result<Counts> {
        let columns = ["distinct", "low", "high"];
        // Each column has a name of its own.
        let by = if columns.contains(&by) { "group" } else { by };
        let column = |name: &str| Column { name: name.into(), kind: Kind::Uint64 };
        let schema = Schema::new(by, columns.map(column).into());
        Ok(Counts { out: EntryWriter::new(format, schema.clone())?, schema, confidence })
    }

    fn write(&mut self, group: &[u8], count: &Count) -> Result<()> {
        let mut row = Vec::new();
        let values = [count.distinct, count.low, count.high].map(Value::Uint);
        self.schema.encode(values, &mut row).expect("all columns are unsigned numbers");
        self.out.entry(group, &row)
    }
}

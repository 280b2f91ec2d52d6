//! The tables of all windows against the counts of the sender.

use super::{
    super::ensure,
    events::{Block, Counts, Sent},
};
use crate::failure::{Failure, Result};
use hashfold::{
    Table,
    io::{Disk as _, OsDisk},
    run::Run as _,
};
use hashfold_rows::Schema;
use hashfold_summarize::StreamStats;
use serde_json::Value;
use std::path::Path;

/// Checks that each event is in both summaries, and the counts and sums of each group in each window.
pub(super) fn check(
    folder: &Path,
    stats: &[StreamStats],
    block: &Block,
    sent: &Sent,
) -> Result<()> {
    let windows = sent.blocks.len() as u64;
    let is_right = |stats: &StreamStats| {
        let mut summaries = stats.stats.summaries.iter();
        let all = summaries.all(|it| (it.events, it.windows) == (sent.events, windows));
        all && stats.stats.totals.events == sent.events
    };
    ensure(stats.iter().all(is_right), || {
        format!("the summaries of {} events are wrong: {stats:?}", sent.events)
    })?;
    for (name, key, counts) in [("pages", "page", &block.pages), ("users", "user", &block.users)] {
        let folder = folder.join("out").join(name);
        // The names are times, in their order.
        let mut names = OsDisk.list(&folder)?;
        names.sort_unstable();
        ensure(names.len() == sent.blocks.len(), || {
            format!("there are {} tables of {name} for {windows} windows", names.len())
        })?;
        for (window, blocks) in names.iter().zip(&sent.blocks) {
            check_table(&folder.join(window), key, counts, *blocks)?;
        }
    }
    Ok(())
}

/// Checks that a table has each group of a block, with counts and sums of so many blocks.
fn check_table(path: &Path, key: &str, counts: &Counts, blocks: u64) -> Result<()> {
    let table = Table::open(path)?;
    let schema = Schema::of_table(&table)?;
    let (mut scan, mut groups, mut line) = (table.scan(), 0, Vec::new());
    while scan.advance()? {
        let entry = scan.entry();
        line.clear();
        schema.write_json(entry.key, entry.value.unwrap_or_default(), &mut line)?;
        let row: Value = serde_json::from_slice(&line)
            .map_err(|error| Failure::input(path.display(), error.to_string()))?;
        let expected = row[key].as_str().and_then(|group| counts.get(group));
        let expected = expected.map(|[count, sum]| [count * blocks, sum * blocks]);
        let got = [row["n"].as_u64(), row["ms"].as_u64()];
        ensure(expected.is_some_and(|expected| expected.map(Some) == got), || {
            format!("{}: expected {expected:?}, got {row}", path.display())
        })?;
        groups += 1;
    }
    ensure(groups == counts.len(), || {
        format!("{}: expected {} groups, got {groups}", path.display(), counts.len())
    })
}

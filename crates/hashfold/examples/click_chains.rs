//! Collects the clicks of users in RAM, keeps the last ones, and writes all of them to a table on flash.

use hashfold::{
    Result, Table, TableBuilder, TableOptions,
    memory::{AppendTable, MemoryOptions},
    work::{MemoryBudget, Watch},
};

/// Size of a click in bytes: a time and a page.
const CLICK: usize = 8;

fn click(time: u32, page: u32) -> [u8; CLICK] {
    let mut click = [0; CLICK];
    click[..4].copy_from_slice(&time.to_le_bytes());
    click[4..].copy_from_slice(&page.to_le_bytes());
    click
}

fn main() -> Result<()> {
    let folder = "target/click-chains";
    let _ = std::fs::remove_dir_all(folder);

    let budget = MemoryBudget::new(256 << 20); // more would be an error, not the end of the process
    let chains = AppendTable::new(MemoryOptions { budget, ..MemoryOptions::default() })?;
    let clicks = [("eve", click(100, 1)), ("bob", click(101, 1)), ("eve", click(102, 2))];
    chains.append_many(&clicks)?; // the more at once, the faster
    chains.append("eve", click(103, 3))?;

    chains.trim("eve", 2 * CLICK)?; // the last two clicks stay
    let is_old =
        |click: &&[u8; CLICK]| u32::from_le_bytes([click[0], click[1], click[2], click[3]]) < 103;
    chains.trim_with("eve", |clicks| {
        clicks.as_chunks::<CLICK>().0.iter().take_while(is_old).count() * CLICK
    })?;
    assert_eq!(chains.get("eve").as_deref(), Some(&click(103, 3)[..]));

    let snapshot = chains.snapshot()?; // writers go on
    chains.remove("bob")?;
    let builder = TableBuilder::with(folder, TableOptions::new().seed(chains.seed()))?;
    builder.build(&mut snapshot.scan(), &Watch::default())?;
    assert_eq!(Table::open(folder)?.get("bob")?.as_deref(), Some(&click(101, 1)[..]));

    let restored =
        AppendTable::new(MemoryOptions { seed: chains.seed(), ..MemoryOptions::default() })?;
    restored.restore(Table::open(folder)?.scan(), &Watch::default())?;
    println!("restored the chains of {} users", restored.len());
    Ok(())
}

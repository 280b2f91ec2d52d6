//! Builds a table and looks up keys.

use hashfold::{Result, Table, TableBuilder, TableOptions};

fn main() -> Result<()> {
    let mut builder = TableBuilder::with("target/colours", TableOptions::new().replace(true))?;
    builder.push("sky", "blue")?; // entries in any order, as many as the disk holds
    builder.push("grass", "green")?;
    builder.finish()?; // durable and current, or not at all

    let table = Table::open("target/colours")?;
    assert_eq!(table.get("sky")?.as_deref(), Some(&b"blue"[..]));
    assert_eq!(table.get("sea")?, None);
    Ok(())
}

//! Builds a table and looks up keys.

use hashfold::{Result, Table, TableBuilder, TableOptions};

fn main() -> Result<()> {
    let mut builder = TableBuilder::with("target/colours", TableOptions::new().replace(true))?;
    builder.push("sky", "blue")?; // entries in any order, as many as the disk holds
    builder.push("grass", "green")?;
    builder.finish()?; // durable and current, or not at all

    let table = Table::open("target/colours")?;
    assert_eq!(table.get("sky")?.as_deref(), Some(&b"blue"[..]));
    assert_eq!(table.get_ref("sea")?, None); // lends the value, if the data are mapped

    // Many keys at once, and their values in any order: several times as fast.
    table.get_many(&["grass", "sky"], &mut |i, value| {
        assert_eq!(value, Some([&b"green"[..], b"blue"][i]));
        Ok(())
    })
}

//! Builds a table of two entries and looks up keys in it. The same program stands in `README.md`.

use hashfold::{Result, Seed, io::OsDisk, run::SortOptions, table::*, work::*};
use std::{path::Path, sync::Arc};

fn main() -> Result<()> {
    let (disk, folder) = (Arc::new(OsDisk), Path::new("target/colours"));
    let options = TableOptions { replace: true, ..TableOptions::new(Seed(7), 1) }; // seed and id: draw both at random
    let builder = TableBuilder::create(disk.clone(), folder, options, Arc::new(Threads::new(2)))?;
    let mut sorter = builder.sorter(SortOptions::default())?; // takes entries in any order
    sorter.push(b"sky", Some(b"blue"))?;
    sorter.push(b"grass", Some(b"green"))?;
    builder.build(&mut sorter.finish()?, &Watch::default())?; // durable and current, or not at all

    let table = Table::open(&(disk as _), folder, OpenOptions::default())?;
    assert_eq!(table.get(b"sky")?.as_deref(), Some(&b"blue"[..]));
    assert_eq!(table.get(b"sea")?, None);
    Ok(())
}

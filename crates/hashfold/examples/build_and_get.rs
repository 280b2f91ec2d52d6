//! Makes a table of two entries and looks keys up in it. The same program stands in `README.md`.

use hashfold::{Result, Seed, io::OsDisk, run::SortOptions, table::*, work::Threads};
use std::{path::Path, sync::Arc};

fn main() -> Result<()> {
    let (disk, folder) = (Arc::new(OsDisk), Path::new("target/colours"));
    // Numbers drawn at random: then nobody can choose keys that collide, or mix two tables up.
    let (seed, id) = (Seed(0x9e37_79b9_7f4a_7c15), 0xbf58_476d_1ce4_e5b9);
    let options = TableOptions { replace: true, ..TableOptions::new(seed, id) };
    let builder = TableBuilder::create(disk.clone(), folder, options, Arc::new(Threads::new(2)))?;

    let mut sorter = builder.sorter(SortOptions::default())?; // takes entries in any order
    sorter.push(b"sky", Some(b"blue"))?;
    sorter.push(b"grass", Some(b"green"))?;
    let mut run = sorter.finish()?;
    builder.build(&mut run)?; // on disk and current, or not at all

    let table = Table::open(&(disk as _), folder, OpenOptions::default())?;
    assert_eq!(table.get(b"sky")?.as_deref(), Some(&b"blue"[..]));
    assert_eq!(table.get(b"sea")?, None);
    Ok(())
}

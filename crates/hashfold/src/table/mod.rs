//! An immutable table from keys to values: one device read per lookup, 0.1 to 2.6 bits of memory
//! per key.
//!
//! After Lim, Andersen and Kaminsky, *Practical Batch-Updatable External Hashing with Sorting*
//! (2013): see `docs/papers/ect.md`. A table is built from one run and never changes. An update
//! merges the table's own run with another run and builds a new table. File format:
//! `docs/formats/table.md`.
//!
//! ```text
//! key ─hash→ index in memory ─→ block number ─read→ block: sizes key value sizes key value …
//! ```
//!
//! Three kinds of index can be built over the same data file: a dense trie (the rank of every entry),
//! the paper's sparse trie (its exact block) and fences (its block or the one after it): see
//! [`IndexChoice`].
//!
//! ```
//! # std::env::set_current_dir(std::env::temp_dir())?;
//! use hashfold::{Table, TableBuilder, TableOptions};
//!
//! let mut builder = TableBuilder::with("hashfold-colours", TableOptions::new().replace(true))?;
//! builder.push("sky", "blue")?;
//! builder.push("grass", "green")?;
//! builder.finish()?;
//!
//! let table = Table::open("hashfold-colours")?;
//! assert_eq!(table.get("sky")?.as_deref(), Some(&b"blue"[..]));
//! assert_eq!(table.get("sea")?, None);
//! # std::fs::remove_dir_all("hashfold-colours")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod absent;
mod blocks;
mod bracket;
mod build;
mod checked;
mod data;
mod fences;
mod hash_index;
mod image;
mod index;
mod layout;
mod locations;
mod lookup;
mod mapped;
mod options;
mod pipeline;
mod read;
mod scan;
mod tags;
#[cfg(test)]
mod tests;
mod trie;
mod verify;
mod window;

pub use self::{
    absent::ABSENT_BITS_MAX,
    build::{TableBuilder, reindex},
    hash_index::{HashIndex, expected_trie_bits},
    layout::BLOCK_SIZE_MAX,
    lookup::VisitValue,
    options::{
        ATTRIBUTES_SIZE_MAX, BUCKET_SIZE_OF_LARGE_ENTRIES, IndexChoice, IndexOptions, IndexStats,
        TableOptions, TableStats,
    },
    read::Table,
    scan::TableScan,
    trie::{BUCKET_SIZES, CODING_LIMIT_MAX},
    verify::{DAMAGE_MAX, TableFigures},
};
pub(crate) use self::{
    build::is_table_file,
    layout::check_block_size,
    read::{LookupPart, get_many_in},
    window::SCAN_BYTES_MAX,
};

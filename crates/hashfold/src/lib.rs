//! Hashfold is an embedded key-value store for data sets that are larger than RAM and change in
//! batches: a lookup takes one read from flash and a few bits of RAM per key.
//!
//! | type | what it is | when to use it |
//! |---|---|---|
//! | [`Table`] | an immutable dictionary on flash | data that are built once and read often |
//! | [`Store`] | tables with versions | data that change every hour or night, with rollback |
//! | [`Filter`] | a set or multiset of fingerprints on flash | was this key seen before? |
//! | [`Map`] | a mutable, crash-safe map on flash | keys that change one by one and must be durable at once |
//! | [`memory::AppendTable`] | a table in RAM, values that grow, snapshots | many keys at once in RAM, appends, no pauses |
//! | [`sketch::Hll`] | a few kilobytes in RAM | how many distinct keys, and how many in both of two sets? |
//!
//! [`open`] opens any data set for reading. For scans of key ranges, use another library, such as
//! RocksDB or LMDB: everything here is in the order of hashes.
//!
//! # Example
//!
//! `hashfold = { path = "crates/hashfold" }` under `[dependencies]` uses the crate from a checkout.
//!
//! ```
//! # std::env::set_current_dir(std::env::temp_dir())?;
//! # for folder in ["hf-colours", "hf-people", "hf-seen", "hf-carts"] { let _ = std::fs::remove_dir_all(folder); }
//! use hashfold::{Filter, FilterOptions, Map, Store, TableBuilder};
//!
//! let mut builder = TableBuilder::new("hf-colours")?;
//! builder.push("sky", "blue")?;
//! let table = builder.finish()?; // durable and current, or not at all
//! assert_eq!(table.get("sky")?.as_deref(), Some(&b"blue"[..]));
//!
//! let store = Store::open_or_create("hf-people")?;
//! let mut update = store.update()?; // locks the store for one writer
//! update.put("4711", "Eve")?;
//! update.delete("4701")?;
//! update.publish()?; // for all readers at once
//! assert!(store.reader()?.get("4711")?.is_some());
//!
//! let mut seen = Filter::open_or_create("hf-seen", FilterOptions::exact())?;
//! assert!(seen.insert_unique("https://example.org/")?);
//! seen.close()?; // durable
//!
//! let carts = Map::open_or_create("hf-carts")?;
//! carts.put("4711", "3 apples")?; // durable, also if the power fails now
//! assert_eq!(carts.get("4711")?.as_deref(), Some(&b"3 apples"[..]));
//! carts.close()?;
//! # for folder in ["hf-colours", "hf-people", "hf-seen", "hf-carts"] { std::fs::remove_dir_all(folder)?; }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads, memory, cost
//!
//! - Handles are [`Send`]. Readers ([`Table`], [`StoreReader`], [`FilterReader`]) and [`Map`] are
//!   [`Sync`] and cheap to clone. A data set has one writer at a time, also among processes; a map is
//!   open in one process.
//! - Background work runs on one pool of threads that all data sets of the process share, unless
//!   [`Env`] says otherwise.
//! - A table needs 0.1 to 2.6 bits of RAM per key, a [`Filter`] 256 MiB by default, a [`Map`] 64 MiB. Building a table
//!   sorts in 1 GiB of memory by default, an update of a store in 256 MiB.
//! - Lookups through `get_many` and `contains_many` have many device reads in flight.
//!
//! # One order
//!
//! Keys and values are sorted by the 128-bit hash of the key ([`KeyHash`]). The unit of bulk data is
//! the run: entries in ascending hash order ([`run::Run`]). Sorting makes a run, merging combines
//! runs, and nothing else moves data. So any data set can be made from another in one pass:
//! [`fingerprints`] shows how.

#![cfg_attr(test, expect(clippy::duplicate_mod, reason = "a test gives `Pending` other locks"))]

pub mod checksum;
pub mod codec;
pub mod cpu;
mod data_set;
pub mod env;
pub mod error;
pub mod filter;
pub mod fingerprints;
pub mod folder;
pub mod io;
pub mod key;
pub mod manifest;
pub mod map;
pub mod memory;
pub mod options;
pub mod pipeline;
pub mod run;
pub mod sketch;
pub mod store;
pub mod table;
pub mod verify;
pub mod wal;
pub mod work;

pub use self::{
    data_set::{DataSet, open, open_with},
    env::Env,
    error::{Error, ErrorClass, ErrorKind, Place, Result},
    filter::{Filter, FilterOptions, FilterReader},
    key::{KeyHash, Seed},
    map::{Map, MapOptions},
    options::{AccessReason, Checks, ChosenSlots, ReadOptions},
    store::{Store, StoreOptions, StoreReader, Update},
    table::{Table, TableBuilder, TableOptions},
};

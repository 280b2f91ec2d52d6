//! Hashfold is an embedded key-value store for data sets that are larger than RAM and change in
//! batches.
//!
//! Hashfold keeps keys and values on flash, sorted by the 128-bit hash of the key ([`KeyHash`]),
//! and needs a few bits of RAM per key. Its unit of bulk data is the run: entries in ascending hash
//! order ([`run::Run`]). Sorting makes a run, merging combines runs, and nothing else moves data.
//!
//! - [`table`]: an immutable dictionary; a lookup takes about one device read.
//! - [`store`]: versions of a data set, made of tables: update, publish, roll back.
//! - [`filter`]: approximate membership of keys, in RAM and on flash.
//! - [`fingerprints`]: conversions of data sets to filters, and between filters.

#![cfg_attr(test, expect(clippy::duplicate_mod, reason = "a test gives `Pending` other locks"))]

pub mod checksum;
pub mod codec;
pub mod env;
pub mod error;
pub mod filter;
pub mod fingerprints;
pub mod folder;
pub mod io;
pub mod key;
pub mod manifest;
pub mod options;
pub mod run;
pub mod store;
pub mod table;
pub mod verify;
pub mod wal;
pub mod work;

pub use self::{
    env::Env,
    error::{Error, ErrorClass, ErrorKind, Place, Result},
    filter::{Filter, FilterOptions, FilterReader},
    key::{KeyHash, Seed},
    options::ReadOptions,
    store::{Store, StoreOptions, StoreReader, Update},
    table::{Table, TableBuilder, TableOptions},
};

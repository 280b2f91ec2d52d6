//! Hashfold keeps huge sets of keys on flash and needs a few bits of RAM for each.
//!
//! One hash, one order: a key is hashed once to 128 bits ([`KeyHash`]), and everything outside RAM
//! is a run: entries in ascending hash order ([`run::Run`]). Sorting makes a run, merging changes
//! runs, nothing else moves data.

#![cfg_attr(test, expect(clippy::duplicate_mod, reason = "a test gives `Pending` other locks"))]

pub mod checksum;
pub mod codec;
pub mod env;
pub mod error;
pub mod filter;
pub mod folder;
pub mod io;
pub mod key;
pub mod manifest;
pub mod run;
pub mod store;
pub mod table;
pub mod work;

pub use self::{
    error::{Error, ErrorClass, ErrorKind, Place, Result},
    key::{KeyHash, Seed},
};

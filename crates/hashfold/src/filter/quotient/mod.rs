//! The quotient filter in RAM: a set or multiset of fingerprints that can be changed.
//!
//! A fingerprint of `p` bits is split into a *quotient*, its high part, and a *remainder* of `r`
//! bits. Of `m` slots, the quotient says which one is the fingerprint's own, and the slot keeps
//! the remainder. Remainders whose slot is taken are shifted to later ones, in order; those of one
//! quotient are its *chain* (the paper's *run*). So the slots from first to last hold all
//! fingerprints in ascending order, and `m` need not be a power of two.
//!
//! The paper finds a chain by three bits a slot, from the start of its cluster on. Here two bits
//! and an offset a block do: the n-th occupied quotient has the n-th chain, and a lookup counts bits
//! in one block, however full the filter is. Remainders lie in planes, so that 64 of them are
//! compared, or moved, at once. Where everything lies: `layout.rs`. On disk a filter is what it is
//! in memory: `docs/formats/quotient.md`.
//!
//! What it does not do: it finds no key that it was not asked for, and it never forgets by itself.
//! Keys that share a fingerprint are one and the same to it.

mod append;
mod batch;
mod block;
mod chain;
mod change;
mod file;
mod filter;
mod kernel;
mod layout;
mod merge;
mod options;
mod resize;
mod scan;
mod storage;
#[cfg(test)]
mod tests;

pub use self::{
    filter::{QuotientFilter, QuotientView},
    options::{Growth, QuotientOptions},
    resize::BuildOptions,
    scan::Scan,
    storage::{InFile, Memory, Storage},
};

//! The quotient filter in RAM: a set or multiset of fingerprints that can be changed.
//!
//! A fingerprint of `p` bits is split into a *quotient*, its high part, and a *remainder* of `r`
//! bits. The quotient gives the home slot among `m` slots, and the slot stores the remainder. A
//! remainder whose home slot is taken is shifted to a later one, in order; the remainders of one
//! quotient are its *chain* (a *run* in the paper of [Bender et al., 2012]). So the slots from first
//! to last hold all fingerprints in ascending order, and `m` need not be a power of two.
//!
//! The paper finds a chain with three bits per slot, from the start of its cluster on. This filter
//! uses two bits per slot and an offset per block: the n-th occupied quotient has the n-th chain,
//! and a lookup counts bits in one block, however full the filter is. Remainders are stored in
//! planes, so that 64 remainders are compared or moved at once. `layout.rs` describes the layout. A
//! file has the same bytes as the memory: `docs/formats/quotient.md`.
//!
//! Limits: keys cannot be listed, and keys with the same fingerprint cannot be told apart.
//!
//! [Bender et al., 2012]: https://arxiv.org/abs/1208.0290

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
mod verify;

pub use self::{
    filter::{QuotientFilter, QuotientView},
    options::{Growth, QuotientOptions},
    resize::BuildOptions,
    scan::Scan,
    storage::{InFile, Memory, Storage},
    verify::QuotientFigures,
};

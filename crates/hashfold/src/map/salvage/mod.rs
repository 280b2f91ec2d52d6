//! Salvage: what a damaged map still holds, as a run.
//!
//! ```text
//! blocks that the catalog names ─────────────────────┐
//!   without a catalog: all intact blocks of the file,├→ sorted by (hash, key) ─→ newest of each key
//!   in the order of their writes                     │
//! all intact records of the log: after the blocks ───┘
//!   without a catalog: those after its last gap; others between blocks (`order.rs`)
//! ```
//!
//! - One damaged block loses its own entries only. If it was a packet, an older value of a key may be
//!   returned. [`Loss`] says which entries that concerns.
//! - An entry that is returned was in the map at some time: all bytes come from blocks and records
//!   with the right checksum, place and file.
//! - Without a catalog, an entry that was deleted may be returned. Spans say which older blocks they
//!   replace, so few are.
//! - The damaged map is not changed.

mod collect;
mod cover;
mod fill;
mod found;
mod loss;
mod named;
mod open;
mod order;
#[cfg(test)]
mod order_tests;
mod patient;
mod run;
#[cfg(test)]
mod tests;

pub use self::{
    loss::{Loss, Lost},
    open::salvage,
    run::Salvage,
};

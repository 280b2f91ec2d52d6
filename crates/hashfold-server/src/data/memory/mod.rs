//! A data set in memory that is served: an `AppendTable`, which event loops change themselves.
//!
//! ```text
//!  event loops ─ changes of one key each ─→ together: batches of AppendTable::change_many ┐
//!              ─ commands on several keys ─→ alone: MemoryUnit, one after the other       ┴→ replies at once
//!              ─ lookups ─→ AppendTable::visit_many
//! ```
//!
//! A gate keeps changes of one key together and everything else alone, so that each command, and each transaction,
//! runs as if nothing ran beside it. The table is loaded from a store, and saved to it as a version, if there is one.

mod saved;
mod served;
#[cfg(test)]
mod tests;
mod unit;

pub(crate) use self::{
    served::{MemorySettings, ServedMemory, write_failed},
    unit::MemoryUnit,
};

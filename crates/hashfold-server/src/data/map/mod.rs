//! A map that is served: one thread makes its changes, one command or transaction after the other.
//!
//! ```text
//!  event loops ─ MapWork → queue ─→ executor: reads all keys, runs unit by unit, writes ─→ committer ─→ replies
//!                                                                       (waits until that is durable)
//!  lookups of one key ──────────→ Map::get_many, beside it
//! ```
//!
//! Work that waits at one moment is a batch: its keys are read together, and its changes are written together, so
//! that one sync makes them durable. A [`Unit`] is a command or a transaction: all of its changes or none.
//! Filters beside the map become visible between two batches, so that no key is a string, too.

mod batches;
mod core;
mod executor;
mod expiries;
mod served;
mod state;
mod watch;

pub(crate) use self::{
    batches::BetweenBatches,
    core::MapSettings,
    executor::{MapWork, Outcome},
    served::ServedMap,
    state::{Changes, State, TOO_LONG, Unit},
    watch::Watch,
};
// A data set in memory has watches, too.
pub(super) use self::watch::Watches;

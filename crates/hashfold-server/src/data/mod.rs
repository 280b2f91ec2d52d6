//! The data sets that a server answers from.
//!
//! ```text
//!  user ─→ Space ─┬→ DataSet ─→ View: a table, a map, one in memory, or the version of a store that is current now
//!                 └→ FilterKey…: filters, each a key with the name of its folder
//! ```

mod description;
mod dump;
mod filter;
mod home;
mod latency;
mod load;
mod map;
mod memory;
mod set;
mod space;
mod turns;
mod view;

/// Pause after every few keys of a comparison of two versions, so that lookups of clients do not wait for it.
pub(crate) const SAMPLE_PAUSE: std::time::Duration = std::time::Duration::from_millis(4);

pub(crate) use self::{
    description::Description,
    dump::{Dumps, NextPiece},
    filter::{Duplicates, FilterKey},
    home::{FilterChange, FilterHome, MakeError, NewFilter},
    latency::OwnLatencies,
    load::LoadError,
    map::{MapSettings, MapWork, Outcome, ServedMap, State, TOO_LONG, Unit, Watch},
    memory::{MemorySettings, MemoryUnit, ServedMemory, write_failed as memory_write_failed},
    set::{DataSet, gone, warming},
    space::Space,
    turns::{FilterTurns, TurnGroup},
    view::{NoPuts, ScanLimit, View},
};

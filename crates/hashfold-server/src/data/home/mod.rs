//! The folder in which clients make filters, and what happens to filters there.
//!
//! ```text
//!  BF.RESERVE, LOADCHUNK ─ a folder of its own ─→ filter ─┐
//!  DEL, RENAME, EXPIRE, FLUSHALL ─→ `filters.names` ──────┴→ what clients see ─ sweep ─→ files are removed
//! ```
//!
//! One small file, which is replaced atomically, says which folder is which key, when it expires, and which
//! folders are no filters any more. So several filters are removed, renamed and replaced at one moment: a crash
//! leaves all changes of a command, or none. Files are removed later, in the background and at the next start.

mod change;
mod filter_home;
mod names;
mod open;
mod sweep;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    change::FilterChange,
    filter_home::{Admit, FilterHome, MakeError},
};

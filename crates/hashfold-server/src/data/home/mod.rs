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
//!
//! A new filter is made in a folder that the file lists as one to be removed. It becomes visible at a moment at which its
//! key is no string, then the absence of the string becomes durable, and last the filter: so a crash leaves the one or the
//! other, and removes what is half-made.

mod beside;
mod change;
mod filter_home;
mod names;
mod new_filter;
mod open;
mod sweep;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    beside::{ReservedKeys, check_no_filter},
    change::FilterChange,
    filter_home::{Admit, FilterHome, MakeError},
    new_filter::NewFilter,
};

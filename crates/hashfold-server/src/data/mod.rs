//! The data sets that a server answers from.
//!
//! ```text
//!  user ─→ Space ─┬→ DataSet ─→ View: a table, or the version of a store that is current now
//!                 └→ FilterKey…: filters, each a key with the name of its folder
//! ```

mod description;
mod filter;
mod set;
mod space;
mod view;

pub(crate) use self::{
    description::Description,
    filter::{Duplicates, FilterKey},
    set::DataSet,
    space::{FilterHome, MakeError, Space},
    view::View,
};

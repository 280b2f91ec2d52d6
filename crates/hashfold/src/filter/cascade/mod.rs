//! A filter on flash.

mod memtable;
mod ordered;

//! Arrow record batches to rows, and rows to record batches: the cargo feature `arrow`.
//!
//! Numbers, dates, timestamps and lists of numbers keep their types; text and bytes keep their
//! bytes. Decimals, times and durations become text. Other lists, structs and maps become JSON.
//! JSON is text of the extension type `arrow.json`.

mod batch;
mod builder;
mod column;
mod types;

pub use self::{
    batch::{BatchColumns, BatchRows},
    builder::BatchBuilder,
    column::{ArrowColumn, ArrowValues},
    types::{field, key_type, kind},
};

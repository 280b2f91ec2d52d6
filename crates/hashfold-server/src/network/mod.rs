//! Connections: one event loop a thread, which reads requests, answers them and writes replies.
//!
//! ```text
//!  sockets ─ready→ read ─→ requests ─┬ at once ──────────────────────────────→ replies ─→ write
//!                                    ├ lookups of all sockets ─ get_many ─────↗
//!                                    ├ changes in memory of all sockets ─ change_many ─↗
//!                                    ├ commands on maps ─ threads of the maps ─↗
//!                                    └ lookups of the device, jobs ─ threads ─↗ (the socket waits, others go on)
//! ```
//!
//! All requests that are ready at one moment, on all connections of a thread, are looked up together:
//! nothing waits to fill a batch. Why there is no async runtime here: `docs/decisions/0010-event-loop.md`.

mod allow;
mod answers;
mod asked;
mod batch;
mod connection;
mod event_loop;
mod exec;
mod jobs;
mod listener;
mod on_filters;
mod on_map;
mod on_memory;
mod redirect;
mod requests;
mod target;
mod transport;
mod values;

pub(crate) use self::{
    event_loop::EventLoop,
    listener::{check_free, listen},
    values::ValueMemory,
};

//! Serves tables, stores, maps, filters and data in memory to any Redis client.
//!
//! ```text
//!  clients ─ RESP ─→ network: event loops ─┬→ command: what is asked
//!                                          └→ data: get_many on tables and versions; maps; memory; filters
//! ```
//!
//! A [`Server`] answers from the data sets of a [`Config`]. A user sees one table, store, map or data set in memory,
//! and filters, each of which is a key; a connection selects its user with `AUTH`. Without a configuration file there
//! are no passwords, and only programs on the same machine can connect.
//!
//! - A reader of a store follows its current version; `people@41` as the user's name, or `HASHFOLD.USE 41`,
//!   keeps a connection on one version.
//! - A map takes the commands of Redis for strings; [`MapDurability`] says when changes are durable.
//! - A data set in memory ([`DataKind::Memory`]) takes them, too, without a device: appending to values is what it does
//!   best. It may be loaded from a store, and saved to it as a version.
//! - With a [`DeployConfig`], all stores follow the pointer of a group in object storage: versions are
//!   fetched, and become current together with those of all other servers.
//! - Requests that are ready at one moment are looked up together, on all connections of a thread.
//! - Operators see what is served on a page, and publish, roll back and pin versions there or over HTTP.
//!   Each change is noted in an audit log.
//! - What operators should know is in events of [`tracing`]: versions that are served, errors, servers that
//!   do not answer.
//! - Whatever bytes a client sends, it gets an error and harms nobody else.

mod access;
mod acl_log;
mod audit;
mod change;
mod cluster;
mod command;
mod config;
mod data;
mod deploy;
mod error;
mod http;
mod journal;
mod latency_events;
mod logins;
mod metrics;
mod network;
mod opened;
pub mod piece;
mod process;
pub mod protocol;
mod server;
mod session;
mod shared;
mod slow_log;
mod tls;
mod topology;
mod transaction;
mod user;

pub use self::{
    config::{
        AdminConfig, ClusterConfig, Config, ConfigError, DataConfig, DataKind, DeployConfig,
        MapDurability, Role, TlsConfig, TokenConfig, UserConfig,
    },
    error::StartError,
    server::Server,
    user::hash_password,
};
pub use hashfold_deploy::{Node, Shard, Topology};

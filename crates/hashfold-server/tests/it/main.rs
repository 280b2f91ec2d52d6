//! The server as its clients see it: over sockets, in this process.

mod admin;
mod clients;
mod cluster;
mod deploy;
mod dumps;
mod filter_keys;
mod filters;
mod fixture;
mod hostile;
mod http;
mod in_memory;
mod introspection;
mod key_types;
mod kill;
mod maps;
mod memory;
mod reads;
mod redis_map;
mod redis_server;
mod reload;
mod slow_device;
mod tls;
mod topology;
mod transactions;
mod users;
mod versions;

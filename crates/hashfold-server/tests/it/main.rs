//! The server as its clients see it: over sockets, in this process.

mod admin;
mod clients;
mod cluster;
mod deploy;
mod dumps;
mod filters;
mod fixture;
mod hostile;
mod http;
mod kill;
mod reads;
mod reload;
mod slow_device;
mod tls;
mod topology;
mod users;
mod versions;

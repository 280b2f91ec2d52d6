//! The server as its clients see it: over sockets, in this process.

mod clients;
mod cluster;
mod filters;
mod fixture;
mod hostile;
mod http;
mod reads;
mod users;
mod versions;

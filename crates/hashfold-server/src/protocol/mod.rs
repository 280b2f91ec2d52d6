//! The Redis protocol, RESP2 and RESP3: requests in, replies out.
//!
//! [`parse`] finds the arguments of the first request in the bytes that a client has sent; it copies
//! nothing and is bounded by [`Limits`]. [`Reply`] appends replies to the bytes that are sent back.

mod glob;
mod inline;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use self::request::number;
pub use self::{
    glob::matches,
    reply::{Protocol, Reply},
    request::{Limits, Parsed, ProtocolError, parse},
};

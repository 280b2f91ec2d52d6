//! What is measured of each table, and how the driver uses it.

use super::{Place, appends, load::BLOCK, puts};
use crate::{Result, serve::Server};
use std::{path::Path, sync::Arc};

/// A key and the record that is appended to its value.
pub(super) type Record = ([u8; 8], [u8; 16]);

/// A server whose CPU time and memory are counted.
pub(super) type Watched = Arc<dyn Server + Send + Sync>;

/// Makes a table, and returns a handle for each thread.
pub(super) type NewMap = Box<dyn Fn() -> Result<Vec<Box<dyn Map>>>>;
/// Makes a table in memory; its folder is for sockets. Returns a handle for each thread.
pub(super) type NewChains = Box<dyn Fn(&Path) -> Result<Vec<Box<dyn Chains>>>>;

/// A table with a configuration.
pub(super) struct Peer {
    pub name: String,
    pub note: String,
    pub work: Work,
    /// How the keys are divided among threads; one thread does all without it.
    pub shares: Option<Shares>,
    /// Whether its speed in the course of its work is drawn.
    pub is_drawn: bool,
    /// Whether its program is on this machine.
    pub is_installed: Box<dyn Fn() -> bool>,
}

/// The division of keys among threads.
pub(super) struct Shares {
    pub threads: usize,
    /// Returns the thread of a key.
    pub thread_of: Box<dyn Fn(u64) -> usize>,
}

/// The work of a peer.
pub(super) enum Work {
    Puts(NewMap),
    Appends(Appends),
}

/// The work of a peer that is appended to.
pub(super) struct Appends {
    pub new: NewChains,
    /// Number of records in a call.
    pub block: usize,
}

impl Peer {
    /// Returns a peer that is put into.
    pub(super) fn of_puts(name: &str, note: &str, new: NewMap) -> Peer {
        Peer::new(name, note, Work::Puts(new))
    }

    /// Returns a peer that is appended to, in blocks of [`BLOCK`] records.
    pub(super) fn of_appends(name: &str, note: &str, new: NewChains) -> Peer {
        Peer::new(name, note, Work::Appends(Appends { new, block: BLOCK }))
    }

    fn new(name: &str, note: &str, work: Work) -> Peer {
        let [name, note] = [name, note].map(str::to_owned);
        Peer { name, note, work, shares: None, is_drawn: true, is_installed: Box::new(|| true) }
    }

    /// Returns the peer, whose speed in the course of its work is not drawn.
    pub(super) fn without_curve(self) -> Peer {
        Peer { is_drawn: false, ..self }
    }

    /// Returns the peer, which is called with so many records.
    pub(super) fn in_blocks(mut self, block: usize) -> Peer {
        if let Work::Appends(appends) = &mut self.work {
            appends.block = block;
        }
        self
    }

    /// Returns the peer, which is left out if its program is not on this machine.
    pub(super) fn if_installed(self, is_installed: Box<dyn Fn() -> bool>) -> Peer {
        Peer { is_installed, ..self }
    }

    /// Returns the peer with several threads, a handle for each.
    pub(super) fn on_threads(self, threads: usize, thread_of: Box<dyn Fn(u64) -> usize>) -> Peer {
        Peer { shares: Some(Shares { threads, thread_of }), ..self }
    }

    /// Returns a name that no other peer has.
    pub(super) fn id(&self) -> String {
        let work = match self.work {
            Work::Puts(_) => "puts",
            Work::Appends(_) => "appends",
        };
        format!("{work}: {}", self.name)
    }

    /// Measures one round.
    pub(super) fn round(&self, place: &mut Place<'_>) -> Result<()> {
        match &self.work {
            Work::Puts(new) => puts::run(new, self.shares.as_ref(), place),
            Work::Appends(appends) => appends::run(appends, self.shares.as_ref(), place),
        }
    }
}

impl Work {
    /// Returns the number of operations in a call.
    pub(super) fn block(&self) -> usize {
        match self {
            Work::Puts(_) => BLOCK,
            Work::Appends(appends) => appends.block,
        }
    }
}

/// A map from keys to numbers of 48 bits, which follow from the keys: see [`puts::value_of`].
pub(super) trait Map: Send {
    fn put_many(&mut self, keys: &[u64]) -> Result<()>;

    /// Sets `values[i]` to the value of `keys[i]`.
    fn get_many(&mut self, keys: &[u64], values: &mut [Option<u64>]);

    /// Returns the number of keys.
    fn len(&self) -> u64;

    /// Returns the memory that the map itself counts, in bytes.
    fn counted_bytes(&self) -> Option<u64> {
        None
    }
}

/// A table from keys of 8 bytes to values that records are appended to.
pub(super) trait Chains: Send {
    fn append_many(&mut self, records: &[Record]) -> Result<()>;

    /// Replaces `value` by the value of a key; returns whether it is there.
    fn get(&mut self, key: &[u8; 8], value: &mut Vec<u8>) -> Result<bool>;

    /// Returns the number of keys.
    fn len(&mut self) -> Result<u64>;

    /// Returns the memory that the table itself counts, in bytes.
    fn counted_bytes(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the server that has the table, if it is in a process of its own.
    fn server(&self) -> Option<Watched> {
        None
    }
}

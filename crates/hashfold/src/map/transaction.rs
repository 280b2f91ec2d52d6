//! Transactions: optimistic, checked key by key when they commit.

use super::{core::Core, lookup, write};
use crate::{
    error::{ErrorKind, Result},
    key::KeyHash,
    run::Entry,
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

/// Reads and writes that take effect as if at one moment, or not at all.
///
/// Writes stay in the transaction until [`Transaction::commit`]. A commit fails with `Conflict` if
/// a key that the transaction has read was changed since. Transactions that commit are
/// serializable. Before the commit, two reads may see different moments.
///
/// While any transaction is open, the map remembers in RAM which keys have changed, so transactions
/// should be short.
pub struct Transaction {
    core: Arc<Core>,
    /// The end of the log when the transaction began.
    start: u64,
    /// The hashes that were read, each with a sequence number: changes before it were seen.
    reads: HashMap<u128, u64>,
    writes: BTreeMap<(KeyHash, Vec<u8>), Option<Vec<u8>>>,
}

impl Transaction {
    pub(super) fn begin(core: Arc<Core>) -> Transaction {
        let start = core.log().end();
        core.stripes.begin_transaction(start);
        Transaction { core, start, reads: HashMap::new(), writes: BTreeMap::new() }
    }

    /// Looks up a key, also among the writes of this transaction.
    ///
    /// # Errors
    /// The device failed, or a block is damaged.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        let hash = KeyHash::of(key, self.core.identity.seed);
        if let Some(value) = self.writes.get(&(hash, key.to_vec())) {
            return Ok(value.clone());
        }
        let seq = {
            // Changes of this key that are in the log are in RAM, too, while the stripe is held.
            let _held = self.core.stripes.lock([hash].into_iter());
            self.core.log().end()
        };
        self.reads.entry(hash.bits()).or_insert(seq);
        lookup::get(&self.core, key)
    }

    /// Puts a value.
    ///
    /// # Errors
    /// `Limit` if the key or the value is too long.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), Some(value.as_ref()))
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// `Limit` if the key is too long.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), None)
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        super::log::check_sizes(key, value)?;
        let hash = KeyHash::of(key, self.core.identity.seed);
        self.writes.insert((hash, key.to_vec()), value.map(<[u8]>::to_vec));
        Ok(())
    }

    /// Applies all writes, if no key that was read has changed. Returns the sequence number after
    /// the writes. They are durable as the map's [`Durability`](super::Durability) says.
    ///
    /// # Errors
    /// `Conflict` if a key that was read has changed: nothing is written, run the transaction again.
    /// `Limit` if the writes take more than about 512 KiB, without values above 1 KiB. If the log fails, the transaction may be
    /// found after the map was opened again, then all of it.
    pub fn commit(self) -> Result<u64> {
        let changes: Vec<Entry<'_>> = self
            .writes
            .iter()
            .map(|((hash, key), value)| Entry { hash: *hash, key, value: value.as_deref() })
            .collect();
        let core = &self.core;
        let record = write::prepare(core, &changes)?;
        let read = self.reads.keys().map(|bits| KeyHash::from_bits(*bits));
        let held = core.stripes.lock(read.chain(changes.iter().map(|change| change.hash)));
        for (bits, seq) in &self.reads {
            if held.last_change(KeyHash::from_bits(*bits)).is_some_and(|last| last > *seq) {
                return Err(ErrorKind::Conflict.into());
            }
        }
        if changes.is_empty() {
            return Ok(core.log().end());
        }
        let seq = write::write_held(core, held, &record)?;
        write::finish(core, seq)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.core.stripes.end_transaction(self.start);
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction({} reads, {} writes)", self.reads.len(), self.writes.len())
    }
}

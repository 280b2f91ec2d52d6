//! Transactions: optimistic, checked key by key when they commit.

use super::{Durability, Expiring, Write, core::Core, lookup, write};
use crate::{
    error::{ErrorKind, Result},
    key::KeyHash,
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

/// Reads and writes that take effect as if at one moment, or not at all.
///
/// Writes stay in the transaction until [`Transaction::commit`]. A commit fails with `Conflict` if
/// a key that the transaction has read was changed or has expired since. Transactions that commit
/// are serializable. Before the commit, two reads may see different moments.
///
/// While any transaction is open, the map remembers in RAM which keys have changed, so transactions
/// should be short.
pub struct Transaction {
    core: Arc<Core>,
    /// The end of the log when the transaction began.
    start: u64,
    /// The hashes that were read, each with a sequence number: changes before it were seen.
    reads: HashMap<u128, u64>,
    /// The first time at which an entry that was read expires.
    expires_first: u64,
    writes: BTreeMap<(KeyHash, Vec<u8>), Option<Expiring>>,
    durability: Durability,
}

impl Transaction {
    pub(super) fn begin(core: Arc<Core>) -> Transaction {
        let start = core.log().end();
        core.stripes.begin_transaction(start);
        let (reads, writes) = (HashMap::new(), BTreeMap::new());
        let durability = core.options.durability;
        Transaction { core, start, reads, expires_first: u64::MAX, writes, durability }
    }

    /// Sets when the writes of this transaction are durable. The default is that of the map
    /// ([`MapOptions::durability`](super::MapOptions::durability)).
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// Looks up a key, also among the writes of this transaction.
    ///
    /// # Errors
    /// The device failed, or a block is damaged.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_expiring(key)?.map(|found| found.value))
    }

    /// Looks up a key, also among the writes of this transaction. Returns the time at which the
    /// entry expires, too.
    ///
    /// # Errors
    /// The errors of [`Transaction::get`].
    pub fn get_expiring(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Expiring>> {
        let key = key.as_ref();
        let hash = KeyHash::of(key, self.core.identity.seed);
        if let Some(written) = self.writes.get(&(hash, key.to_vec())) {
            let now = self.core.now();
            return Ok(written.clone().filter(|written| !written.has_expired(now)));
        }
        let seq = {
            // Changes of this key that are in the log are in RAM, too, while the stripe is held.
            let _held = self.core.stripes.lock([hash].into_iter());
            self.core.log().end()
        };
        self.reads.entry(hash.bits()).or_insert(seq);
        let found = lookup::get(&self.core, key)?;
        let expires_at = found.as_ref().and_then(|found| found.expires_at);
        self.expires_first = self.expires_first.min(expires_at.unwrap_or(u64::MAX));
        Ok(found)
    }

    /// Puts a value.
    ///
    /// # Errors
    /// `Limit` if the key or the value is too long.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(Write::put(key.as_ref(), value.as_ref()))
    }

    /// Puts a value that is absent from `expires_at` on, in milliseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// `Limit` if the key or the value is too long.
    pub fn put_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at: u64,
    ) -> Result<()> {
        let expires_at = Some(expires_at);
        self.write(Write { expires_at, ..Write::put(key.as_ref(), value.as_ref()) })
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// `Limit` if the key is too long.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(Write::delete(key.as_ref()))
    }

    fn write(&mut self, change: Write<'_>) -> Result<()> {
        let Write { key, value, expires_at } = change;
        super::log::check_sizes(key, value)?;
        let hash = KeyHash::of(key, self.core.identity.seed);
        let written = value.map(|value| Expiring { value: value.to_vec(), expires_at });
        self.writes.insert((hash, key.to_vec()), written);
        Ok(())
    }

    /// Applies all writes, if no key that was read has changed. Returns the sequence number after
    /// the writes. They are durable as [`Transaction::set_durability`] says.
    ///
    /// # Errors
    /// `Conflict` if a key that was read has changed or expired: nothing is written, run the
    /// transaction again. `Limit` if the writes take more than
    /// [`Map::WRITE_BYTES_MAX`](super::Map::WRITE_BYTES_MAX). If the log fails, the transaction may
    /// be found after the map was opened again, then all of it.
    pub fn commit(self) -> Result<u64> {
        let changes = self.writes.iter().map(|((_, key), written)| Write {
            key,
            value: written.as_ref().map(|written| &written.value[..]),
            expires_at: written.as_ref().and_then(|written| written.expires_at),
        });
        let changes: Vec<Write<'_>> = changes.collect();
        let core = &self.core;
        let record = write::prepare(core, &changes)?;
        let moving = record.is_long().then(|| core.moving());
        let read = self.reads.keys().map(|bits| KeyHash::from_bits(*bits));
        let held = core.stripes.lock(read.chain(record.hashes()));
        let has_changed = |(bits, seq): (&u128, &u64)| {
            held.last_change(KeyHash::from_bits(*bits)).is_some_and(|last| last > *seq)
        };
        // The clock is read only if an entry that expires was read.
        let has_expired = self.expires_first < u64::MAX && core.now() >= self.expires_first;
        if has_expired || self.reads.iter().any(has_changed) {
            return Err(ErrorKind::Conflict.into());
        }
        if changes.is_empty() {
            return Ok(core.log().end());
        }
        let seq = write::write_held(core, held, &record)?;
        drop(moving);
        write::finish(core, seq, self.durability)
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

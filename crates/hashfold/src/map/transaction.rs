//! Transactions: optimistic, checked key by key when they commit.

use super::{
    Durability, Expiring, Write,
    checkpoint::give_back_blocks,
    core::Core,
    kept::Kept,
    log, lookup, maintain,
    spill::{self, Spilled, SpilledRecord, TRANSACTION_SIZE_MAX},
    stripes::Held,
    write::{self, Applying, CHANGES_SIZE_MAX, Reserve},
};
use crate::{
    error::{ErrorKind, Result},
    key::KeyHash,
};
use std::{
    collections::HashMap,
    fmt,
    mem::take,
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// Number of changes of a transaction that are recorded one by one for other open transactions, if its writes were
/// spilled. More conflict with all reads of other open transactions: the record would take much memory.
const NOTED_MAX: u64 = if cfg!(test) { 300 } else { 16 << 10 };

/// Reads and writes that take effect as if at one moment, or not at all.
///
/// Writes stay in the transaction until [`Transaction::commit`]. A commit fails with `Conflict` if
/// a key that the transaction has read was changed or has expired since. Transactions that commit
/// are serializable. Before the commit, two reads may see different moments.
///
/// Writes may exceed the memory of the map, up to [`Map::TRANSACTION_BYTES_MAX`](super::Map::TRANSACTION_BYTES_MAX).
/// The writes of all open transactions take at most a tenth of the memory budget and 64 MiB, and those of each a
/// sixteenth of this more. Beyond that, a transaction *spills* writes to the data file, where they take space until
/// it is dropped. A lookup takes one more read for a spilled write, and few in vain: Bloom filters take up to a
/// quarter of this memory, and 2 bytes per write. Once they do, a lookup takes a read for each later spill. RAM also
/// has about 0.1 % of spilled writes, and 100 bytes for each value above 1 KiB and for each key that was read.
///
/// The commit needs as much space again on the device, and that of the memory for changes, and applies spilled writes
/// part by part, in that memory. After a crash before the next checkpoint, opening the map needs this space, too. Other
/// writers, transactions, snapshots and checkpoints wait meanwhile, and lookups see some of the writes. If it applies
/// more than 16,384 of them, other transactions conflict that were open and have read a key.
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
    /// The writes in RAM, which are newer than those on the device.
    kept: Kept,
    spilled: Spilled,
    /// Memory that is counted as that of this transaction, in bytes.
    counted_bytes: usize,
    durability: Durability,
}

impl Transaction {
    pub(super) fn begin(core: Arc<Core>) -> Transaction {
        let start = core.log().end();
        core.stripes.begin_transaction(start);
        let durability = core.options.durability;
        Transaction {
            core,
            start,
            reads: HashMap::new(),
            expires_first: u64::MAX,
            kept: Kept::default(),
            spilled: Spilled::default(),
            counted_bytes: 0,
            durability,
        }
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
        if let Some(written) = self.kept.find(&self.core, (hash, key))? {
            return Ok(written);
        }
        if let Some(written) = self.spilled.find(&self.core, (hash, key))? {
            return Ok(written);
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
    /// `Limit` if the key or the value is too long, or if the transaction is
    /// ([`Map::TRANSACTION_BYTES_MAX`](super::Map::TRANSACTION_BYTES_MAX)). If writes cannot be spilled, because the
    /// disk is full or the device failed: the value is not put, all writes before are still there, and the
    /// call can be repeated.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(Write::put(key.as_ref(), value.as_ref()))
    }

    /// Puts a value that is absent from `expires_at` on, in milliseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// The errors of [`Transaction::put`].
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
    /// The errors of [`Transaction::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(Write::delete(key.as_ref()))
    }

    pub(super) fn write(&mut self, change: Write<'_>) -> Result<()> {
        let Write { key, value, .. } = change;
        log::check_sizes(key, value)?;
        let got = self.spilled.size() + self.kept.size() + change.size() as u64;
        if got > TRANSACTION_SIZE_MAX {
            let (what, limit) = ("size of the changes of a transaction", TRANSACTION_SIZE_MAX);
            return Err(ErrorKind::Limit { what, limit, got }.into());
        }
        if spill::is_due(&self.core, &self.kept) {
            let spilled = self.spilled.spill(&self.core, &mut self.kept);
            self.count_memory();
            spilled?;
            // The lists may take less now.
            maintain::start(&self.core);
        }
        self.kept.insert(KeyHash::of(key, self.core.identity.seed), change);
        self.count_memory();
        Ok(())
    }

    /// Counts the memory of this transaction as it is now.
    fn count_memory(&mut self) {
        self.set_memory(self.kept.memory() + self.spilled.memory());
    }

    fn set_memory(&mut self, bytes: usize) {
        let counter = &self.core.counters.transaction_bytes;
        counter.fetch_add(bytes, SeqCst);
        counter.fetch_sub(self.counted_bytes, SeqCst);
        self.counted_bytes = bytes;
    }

    /// Whether writes were spilled.
    #[cfg(test)]
    pub(super) fn has_spilled(&self) -> bool {
        self.spilled.has_begun
    }

    /// Returns the memory of the places of spilled writes, in bytes.
    #[cfg(test)]
    pub(super) fn places_bytes(&self) -> usize {
        self.spilled.memory()
    }

    /// Returns the number of changes that a commit makes.
    pub(super) fn count(&self) -> u64 {
        self.spilled.count() + self.kept.len() as u64
    }

    /// Applies all writes, if no key that was read has changed. Returns the sequence number after the writes; without any,
    /// that of a moment at which all that was read was true. Writes are durable as [`Transaction::set_durability`] says.
    ///
    /// # Errors
    /// `Conflict` if a key that was read has changed or expired: nothing is written, run the
    /// transaction again. If the log fails, the transaction may be found after the map was opened again, then
    /// all of it. If spilled writes cannot be applied after the log has them, because the device fails or the disk is full, the
    /// map refuses reads and changes, and has the transaction when it is opened again; after a crash, too, if the log could
    /// be committed before this returned. After all other errors, nothing is changed.
    pub fn commit(self) -> Result<u64> {
        if self.spilled.has_begun {
            return self.commit_spilled();
        }
        let changes = self.kept.writes();
        let core = &self.core;
        let record = write::prepare(core, &changes)?;
        let reads_only = changes.is_empty();
        let seq = maintain::with_space_of_log(core, || {
            let _moving = record.is_long().then(|| core.moving());
            let held = core.stripes.lock(self.hashes_read().chain(record.hashes()));
            self.check_reads(&held)?;
            match reads_only {
                // While the stripes are held: a later change of a key that was read has a larger number.
                true => Ok(core.log().end()),
                false => write::write_held(core, held, &record),
            }
        })?;
        if reads_only { Ok(seq) } else { write::finish(core, seq, self.durability) }
    }

    /// Commits a transaction whose writes were spilled.
    fn commit_spilled(mut self) -> Result<u64> {
        let mut spilled = take(&mut self.spilled);
        let committed = self.commit_all(&mut spilled);
        // After an error, the space of the blocks is given back.
        self.spilled = if committed.is_ok() { Spilled::default() } else { spilled };
        committed
    }

    fn commit_all(&mut self, spilled: &mut Spilled) -> Result<u64> {
        let core = self.core.clone();
        // A transaction that conflicts already need not write the rest.
        self.check_reads(&core.stripes.lock(self.hashes_read()))?;
        let record = spilled.record(&core, &mut self.kept)?;
        self.set_memory(record.memory());
        let reserve = maintain::with_space_of_log(&core, || {
            maintain::relieve(&core, core.buffer_bytes_max())?;
            record.reserve(&core)
        })?;
        let moving = core.moving();
        // Not all hashes of the changes are in RAM.
        let held = core.stripes.lock_all();
        self.check_reads(&held)?;
        let written = write_spilled(&core, held, &record, reserve);
        drop(moving);
        if written.is_err() && core.check_whole().is_err() {
            // The log has the record. A crash must not decide whether the map has it when it is opened again, unless the
            // disk has no space for the log either.
            core.tasks.note(core.log().commit(core.log().end()));
        }
        write::finish(&core, written?, self.durability)
    }

    fn hashes_read(&self) -> impl Iterator<Item = KeyHash> {
        self.reads.keys().map(|bits| KeyHash::from_bits(*bits))
    }

    /// Checks that no key that was read has changed or expired. The stripes of these keys are held.
    fn check_reads(&self, held: &Held<'_>) -> Result<()> {
        let has_changed = |(bits, seq): (&u128, &u64)| {
            held.last_change(KeyHash::from_bits(*bits)).is_some_and(|last| last > *seq)
        };
        // The clock is read only if an entry that expires was read.
        let has_expired = self.expires_first < u64::MAX && self.core.now() >= self.expires_first;
        match has_expired || self.reads.iter().any(has_changed) {
            true => Err(ErrorKind::Conflict.into()),
            false => Ok(()),
        }
    }
}

/// Size of lists above the budget, in bytes, to which they grow if they cannot be flushed: as much as a record of changes
/// in memory makes them grow.
const EXCESS_BYTES_MAX: usize = CHANGES_SIZE_MAX;

/// Appends the record of a transaction whose writes were spilled to the log, and applies it. All stripes and `moving`
/// are held.
///
/// # Errors
/// The log failed; or a part cannot be read any more, or the lists cannot be flushed and take very much memory, and the
/// map refuses all reads and changes from then on.
fn write_spilled(
    core: &Core,
    mut held: Held<'_>,
    record: &SpilledRecord<'_>,
    reserve: Reserve,
) -> Result<u64> {
    let logged = (record.count, &record.payload[..]);
    let seqs = write::log_record(core, logged, record.owners().cloned())?;
    core.counters.log_bytes.fetch_add(record.size(), SeqCst);
    let (end, notes) = (seqs.end, record.count <= NOTED_MAX);
    if !notes {
        held.note_all(end);
    }
    let mut applying = Applying { core, held, seqs, notes, relieves_above: Some(0), reserve };
    let applied = record.expand(core, &mut |change, owner| match applying.apply(change, owner) {
        Err(error) if core.buffered_bytes() > core.buffer_bytes_max() + EXCESS_BYTES_MAX => {
            Err(error)
        }
        _ => Ok(()),
    });
    applied.inspect_err(|_| core.set_partial())?;
    Ok(end)
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // No catalog and no record names the blocks of a transaction that was not committed.
        let (kept, spilled) = (take(&mut self.kept), take(&mut self.spilled));
        let has_spilled = spilled.has_begun;
        drop((kept, spilled));
        if has_spilled {
            self.core.tasks.note(give_back_blocks(&self.core));
        }
        self.core.stripes.end_transaction(self.start);
        self.core.counters.transaction_bytes.fetch_sub(self.counted_bytes, SeqCst);
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction({} reads, {} writes)", self.reads.len(), self.count())
    }
}

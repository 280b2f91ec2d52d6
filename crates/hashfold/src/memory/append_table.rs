//! The table from byte keys to values that grow.

use super::{
    AppendSnapshot, AppendStats, MemoryOptions, Slot,
    ahead::Ahead,
    append_shard::AppendShard,
    owners::{Owners, with_owners},
    place::Place,
    shards::Shards,
    slabs::{Reference, Slabs},
    sync::Mutex,
};
use crate::{
    error::Result,
    key::{KeyHash, Seed},
    run::Run,
    work::{Steps, Watch},
};
use std::{
    ops::Range,
    sync::{Arc, PoisonError},
};

/// A table in RAM from keys to values, both any bytes, that can be appended to. Clones are the same table.
///
/// A value lies in one piece, in a block of the smallest size class that holds it, up to 32 KiB with its key; longer
/// values are lists of such blocks. Appending writes behind the last byte, or moves the value to the next class. A shard
/// has up to 64 GiB of values. After many keys are removed or trimmed, [`compact`](AppendTable::compact) gives memory back
/// to the system.
///
/// With millions of keys in each shard, a key takes about 19 bytes beside itself and its value, the unused rest of its block
/// among them: measured with 78 million keys that have 1 to 1024 records of 16 bytes each, by a Zipf distribution. Keys as
/// long as the first one of their shard are stored without their length, other keys with 1 to 3 bytes for it. Blocks have at
/// least 16 bytes. At most 1 byte is unused in blocks up to 64 bytes, 3 bytes in those up to 128, an eighth of those up to
/// 8 KiB, and a third of larger ones.
///
/// ```
/// use hashfold::memory::{AppendTable, MemoryOptions};
/// let clicks = AppendTable::new(MemoryOptions::default())?;
/// clicks.append("eve", "a")?;
/// clicks.append("eve", "bc")?;
/// clicks.append_many(&[("eve", "d"), ("bob", "x")])?;
/// assert_eq!(clicks.get("eve").as_deref(), Some(&b"abcd"[..]));
/// clicks.trim("eve", 2)?; // the last two bytes stay
/// assert_eq!(clicks.get("eve").as_deref(), Some(&b"cd"[..]));
/// assert!(clicks.remove("bob")? && clicks.get("bob").is_none());
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AppendTable {
    shards: Arc<Shards<AppendShard>>,
    seed: Seed,
    /// Held by the one compaction at a time.
    compacting: Arc<Mutex<()>>,
}

impl AppendTable {
    /// Makes an empty table.
    ///
    /// # Errors
    /// `Argument` for bad options; `Memory` if the budget is exhausted; errors of the system.
    pub fn new(options: MemoryOptions) -> Result<AppendTable> {
        // References have 48 bits.
        let options = MemoryOptions { wide_values: false, ..options };
        let shards = Shards::new(&options, |regions| AppendShard::new(&options, regions))?;
        let (shards, compacting) = (Arc::new(shards), Arc::default());
        Ok(AppendTable { shards, seed: options.seed, compacting })
    }

    /// Returns the seed that keys are hashed with.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        KeyHash::of(key, self.seed).high()
    }

    /// Inserts a key, or replaces its value; returns whether the key was there.
    ///
    /// # Errors
    /// `Limit` if the key or the value is too long, or if too many keys have hashes with the same first bits; `Memory` if the
    /// budget is exhausted. Nothing is changed then.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let hash = self.hash(key);
        let mut shard = self.shards.write(self.shards.of(hash));
        let place = shard.place(hash);
        shard.put(&place, key, value)
    }

    /// Inserts keys, or replaces their values. Of equal keys, the last one counts.
    ///
    /// # Errors
    /// Those of [`AppendTable::put`]; some of the keys are inserted then.
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, entries: &[(K, V)]) -> Result<()> {
        self.change_each(entries, |shard, place, key, value| shard.put(place, key, value).map(drop))
    }

    /// Adds bytes to the end of a key's value. A key that is not there is inserted.
    ///
    /// # Errors
    /// `Limit` if the key or the value becomes too long, or if too many keys have hashes with the same first bits; `Memory` if
    /// the budget is exhausted. Nothing is changed then.
    pub fn append(&self, key: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let (key, bytes) = (key.as_ref(), bytes.as_ref());
        let hash = self.hash(key);
        let mut shard = self.shards.write(self.shards.of(hash));
        let place = shard.place(hash);
        shard.append(&place, key, bytes).map(drop)
    }

    /// Adds bytes to the values of keys, in the order of `records` for each key; the more at once, the faster.
    ///
    /// # Errors
    /// Those of [`AppendTable::append`]; some of the records are appended then, and it is not known which.
    pub fn append_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, records: &[(K, V)]) -> Result<()> {
        self.change_each(records, |shard, place, key, bytes| {
            shard.append(place, key, bytes).map(drop)
        })
    }

    /// Runs `feed`, which hands keys and bytes over to `owners` threads; each thread appends those of its own part of the
    /// shards. Faster than [`AppendTable::append_many`] from several threads, which wait for each other at the shards. The
    /// number of owners is at most that of the shards.
    ///
    /// ```
    /// use hashfold::memory::{AppendTable, MemoryOptions};
    /// let visits = AppendTable::new(MemoryOptions::default())?;
    /// visits.with_owners(2, |owners| {
    ///     let mut hand = owners.hand();
    ///     ["eve", "bob", "eve"].into_iter().try_for_each(|user| hand.give((user, "x")))
    /// })?;
    /// assert_eq!(visits.get("eve").as_deref(), Some(&b"xx"[..]));
    /// # Ok::<(), hashfold::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Argument` for a bad number of owners; the error of `feed`; those of [`AppendTable::append_many`].
    pub fn with_owners<K: AsRef<[u8]> + Send, V: AsRef<[u8]> + Send, R>(
        &self,
        owners: usize,
        feed: impl FnOnce(&Owners<'_, (K, V)>) -> Result<R>,
    ) -> Result<R> {
        let counts = (owners, self.shards.len());
        with_owners(counts, &|(key, _)| self.shard(key), |records| self.append_many(records), feed)
    }

    /// Calls `change` with the number and the [`Slot`] of each key, which reads and changes its value as it likes; the
    /// more keys at once, the faster. The calls for one key are in the order of `keys`.
    ///
    /// The key's shard is locked while `change` runs: it must not use this table.
    ///
    /// ```
    /// use hashfold::memory::{AppendTable, MemoryOptions};
    /// let visits = AppendTable::new(MemoryOptions::default())?;
    /// let keys = ["eve", "bob", "eve"];
    /// let mut sizes = [0; 3];
    /// visits.change_many(&keys, |i, slot| {
    ///     sizes[i] = slot.append("x")?;
    ///     Ok(())
    /// })?;
    /// assert_eq!(sizes, [1, 1, 2]);
    /// # Ok::<(), hashfold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `change`, after which it is not called again.
    #[inline]
    pub fn change_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut change: impl FnMut(usize, &mut Slot<'_>) -> Result<()>,
    ) -> Result<()> {
        let hashes = keys.iter().map(|key| self.hash(key.as_ref()));
        self.shards.in_batches(hashes, |shard, batch| {
            let mut shard = self.shards.write(shard);
            let mut ahead = Ahead::new(batch);
            while let Some((position, place)) = shard.next_to_change(&mut ahead) {
                let key = keys[position].as_ref();
                change(position, &mut Slot { shard: &mut shard, place, key })?;
            }
            Ok(())
        })
    }

    #[inline]
    fn change_each<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: &[(K, V)],
        change: impl Fn(&mut AppendShard, &Place, &[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let hashes = entries.iter().map(|(key, _)| self.hash(key.as_ref()));
        self.shards.in_batches(hashes, |shard, batch| {
            let mut shard = self.shards.write(shard);
            let mut ahead = Ahead::new(batch);
            while let Some((position, place)) = shard.next_to_change(&mut ahead) {
                let (key, value) = &entries[position];
                change(&mut shard, place, key.as_ref(), value.as_ref())?;
            }
            Ok(())
        })
    }

    /// Returns the value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let key = key.as_ref();
        let hash = self.hash(key);
        let shard = self.shards.read(self.shards.of(hash));
        shard.find(&shard.place(hash), key).map(|found| value_of(&shard, found.value))
    }

    /// Replaces `value` by the value of a key, if it is there, and returns whether it is; otherwise, `value` stays as it is.
    /// For many lookups without as many allocations.
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> bool {
        let key = key.as_ref();
        let hash = self.hash(key);
        let shard = self.shards.read(self.shards.of(hash));
        let found = shard.find(&shard.place(hash), key);
        if let Some(found) = found {
            value.clear();
            shard.values.read_value(Reference(found.value), value);
        }
        found.is_some()
    }

    /// Sets `values[i]` to the value of `keys[i]`.
    ///
    /// # Panics
    /// If the slices have different lengths.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], values: &mut [Option<Vec<u8>>]) {
        assert_eq!(keys.len(), values.len(), "a value for each key");
        let hashes = keys.iter().map(|key| self.hash(key.as_ref()));
        let done = self.shards.in_batches(hashes, |shard, batch| {
            let shard = self.shards.read(shard);
            let mut ahead = Ahead::new(batch);
            while let Some((position, place)) = shard.next(&mut ahead) {
                let found = shard.find(place, keys[position].as_ref());
                values[position] = found.map(|found| value_of(&shard, found.value));
            }
            Ok(())
        });
        debug_assert!(done.is_ok());
    }

    /// Returns the size of a key's value in bytes; `None` if the key is not there. No value is copied.
    pub fn size(&self, key: impl AsRef<[u8]>) -> Option<usize> {
        let key = key.as_ref();
        let hash = self.hash(key);
        let shard = self.shards.read(self.shards.of(hash));
        shard
            .find(&shard.place(hash), key)
            .map(|found| shard.values.sizes(Reference(found.value)).0)
    }

    /// Calls `visit` with the number of each key and its value, in any order; the more keys at once, the faster. A value
    /// of up to 32 KiB with its key is lent without a copy.
    ///
    /// The key's shard is locked while `visit` runs: it must not use this table, nor one of its snapshots.
    ///
    /// # Errors
    /// Those of `visit`, after which it is not called again.
    pub fn visit_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        self.visit_parts(
            keys,
            |_, size| 0..size,
            |i, found| visit(i, found.map(|(value, _)| value)),
        )
    }

    /// Does what [`AppendTable::visit_many`] does with parts of values: `part` returns the range of bytes of a value, from the
    /// number of its key and its size, and `visit` gets them, with the size of the value. Nothing else is copied of a value of
    /// more than 32 KiB, so an empty part tells whether there is a key. Neither must use this table.
    ///
    /// ```
    /// use hashfold::memory::{AppendTable, MemoryOptions};
    /// let table = AppendTable::new(MemoryOptions::default())?;
    /// table.append("eve", vec![7; 1_000_000])?;
    /// let last_two = |_, size: usize| size.saturating_sub(2)..size;
    /// table.visit_parts(&["eve", "adam"], last_two, |i, found| {
    ///     assert_eq!(found, [Some((&[7, 7][..], 1_000_000)), None][i]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), hashfold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `visit`, after which it is not called again.
    ///
    /// # Panics
    /// If a part is not within its value.
    pub fn visit_parts<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        part: impl Fn(usize, usize) -> Range<usize>,
        mut visit: impl FnMut(usize, Option<(&[u8], usize)>) -> Result<()>,
    ) -> Result<()> {
        let hashes = keys.iter().map(|key| self.hash(key.as_ref()));
        let mut scratch = Vec::new();
        self.shards.in_batches(hashes, |shard, batch| {
            let shard = self.shards.read(shard);
            let mut ahead = Ahead::new(batch);
            while let Some((position, place)) = shard.next(&mut ahead) {
                let found = shard.find(place, keys[position].as_ref());
                let found = found.map(|found| {
                    let part = |size| part(position, size);
                    shard.values.part(Reference(found.value), part, &mut scratch)
                });
                visit(position, found)?;
            }
            Ok(())
        })
    }

    /// Calls `visit` with the first 64 bits of each key's hash and with the key, in ascending order of these bits and from
    /// `from` on, until it returns `false`. Returns the bits for which it did.
    ///
    /// A key that stays is visited once, whatever writers change meanwhile. If `visit` stops among keys with equal bits, a call
    /// from the returned bits on visits all of these again. Part of the table is locked while `visit` runs: it must not use
    /// this table, nor one of its snapshots.
    pub fn visit_keys(&self, from: u64, mut visit: impl FnMut(u64, &[u8]) -> bool) -> Option<u64> {
        let (mut pairs, mut scratch, mut next) = (Vec::new(), Vec::new(), from);
        loop {
            let shard = self.shards.read(self.shards.of(next));
            let last = shard.index.group_at(next, &mut pairs);
            pairs.retain(|pair| pair.hash >= next);
            pairs.sort_unstable();
            for pair in &pairs {
                if !visit(pair.hash, shard.values.key(Reference(pair.value), &mut scratch)) {
                    return Some(pair.hash);
                }
            }
            next = last.checked_add(1)?;
        }
    }

    /// Whether a key is there.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        let key = key.as_ref();
        let hash = self.hash(key);
        let shard = self.shards.read(self.shards.of(hash));
        shard.find(&shard.place(hash), key).is_some()
    }

    /// Removes the first bytes of a value, so that at most `keep` bytes stay. Returns the number of bytes removed, or
    /// `None` if the key is not there.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; nothing is changed then.
    pub fn trim(&self, key: impl AsRef<[u8]>, keep: usize) -> Result<Option<usize>> {
        let key = key.as_ref();
        let hash = self.hash(key);
        let mut shard = self.shards.write(self.shards.of(hash));
        let place = shard.place(hash);
        shard.trim_to(&place, key, keep)
    }

    /// Removes the first bytes of a value, as many as `drop` returns for it: such as the records that are older than a
    /// time. Returns their number, or `None` if the key is not there. A value of which nothing stays is empty.
    ///
    /// The key's shard is locked while `drop` runs: it must not use this table.
    ///
    /// # Errors
    /// `Memory` if the budget has no room for the rest, which is stored before the old value is freed; nothing is changed then.
    pub fn trim_with(
        &self,
        key: impl AsRef<[u8]>,
        drop: impl FnOnce(&[u8]) -> usize,
    ) -> Result<Option<usize>> {
        let key = key.as_ref();
        let hash = self.hash(key);
        let mut shard = self.shards.write(self.shards.of(hash));
        let place = shard.place(hash);
        shard.trim(&place, key, drop)
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// `Memory` if a snapshot needs a copy of a group and the budget is exhausted; nothing is changed then.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        let hash = self.hash(key);
        let mut shard = self.shards.write(self.shards.of(hash));
        let place = shard.place(hash);
        shard.remove(&place, key)
    }

    /// Removes keys; returns how many were there. The more keys at once, the faster.
    ///
    /// # Errors
    /// Those of [`AppendTable::remove`]; some keys are removed then. Removing all again is harmless.
    pub fn remove_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<u64> {
        let mut removed = 0;
        self.change_many(keys, |_, slot| {
            removed += u64::from(slot.remove()?);
            Ok(())
        })?;
        Ok(removed)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> u64 {
        (0..self.shards.len()).map(|shard| self.shards.read(shard).index.count).sum()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the figures of the table.
    pub fn stat(&self) -> AppendStats {
        let mut stats = AppendStats::default();
        for shard in 0..self.shards.len() {
            self.shards.read(shard).add_to(&mut stats);
        }
        stats
    }

    /// Returns the number of a key's shard. Threads that change different shards do not wait for each other.
    pub fn shard(&self, key: impl AsRef<[u8]>) -> usize {
        self.shards.of(self.hash(key.as_ref()))
    }

    /// Begins a snapshot: all entries at this moment, while writers go on.
    ///
    /// # Errors
    /// `Limit` after 2^32 snapshots.
    pub fn snapshot(&self) -> Result<AppendSnapshot> {
        AppendSnapshot::begin(self.shards.clone(), self.seed)
    }

    /// Inserts the entries of a run, and removes the keys of its tombstones. A run with this table's seed is the fastest.
    /// The steps of `watch` are entries.
    ///
    /// # Errors
    /// Those of [`AppendTable::put`] and of the run; some entries are restored then.
    pub fn restore(&self, mut run: impl Run, watch: &Watch) -> Result<()> {
        let is_hashed = run.seed() == self.seed;
        let mut steps = watch.steps();
        while run.advance()? {
            let entry = run.entry();
            let hash = if is_hashed { entry.hash.high() } else { self.hash(entry.key) };
            {
                // The watch may use this table, so the lock ends before it is called.
                let mut shard = self.shards.write(self.shards.of(hash));
                let place = shard.place(hash);
                match entry.value {
                    Some(value) => drop(shard.put(&place, entry.key, value)?),
                    None => drop(shard.remove(&place, entry.key)?),
                }
            }
            steps.step()?;
        }
        steps.finish()
    }

    /// Moves values out of pages that are less than three quarters full to the first ones of these, and then out of the last
    /// pages to free ones before them, if that gives memory back to the system, while readers and writers go on. Pages without
    /// values are used for values of any size then, or their memory is given back, up to 8 MiB at a time. Free pages whose memory
    /// was given back before stay so: values move to others. The steps of `watch` are groups of keys.
    ///
    /// The watch must not compact this table; it may read and change it.
    ///
    /// Beside a snapshot, the blocks that values left are in use until the snapshot ends: the table needs more memory
    /// meanwhile, and no page is freed before.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; the error of `watch`. The values are all there then.
    pub fn compact(&self, watch: &Watch) -> Result<()> {
        let _one = self.compacting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut steps = watch.steps();
        for shard in 0..self.shards.len() {
            while self.shards.write(shard).free_deferred() {}
            let _end = EndLeaving { shards: &self.shards, shard };
            self.leave(shard, |slabs| slabs.begin_leaving(FILL_MIN), &mut steps)?;
            self.leave(shard, Slabs::begin_leaving_last, &mut steps)?;
        }
        steps.finish()
    }

    /// Moves the values of a shard that are on pages chosen by `begin`, group by group.
    fn leave(
        &self,
        shard: usize,
        begin: impl Fn(&mut Slabs) -> usize,
        steps: &mut Steps,
    ) -> Result<()> {
        if begin(&mut self.shards.write(shard).values.slabs) == 0 {
            return Ok(());
        }
        let mut pairs = Vec::new();
        let (mut next, end) = self.shards.read(shard).index.range();
        loop {
            let last = self.shards.write(shard).leave_group(next, &mut pairs)?;
            steps.step()?;
            if last == end {
                break;
            }
            next = last + 1;
        }
        while self.shards.write(shard).values.slabs.give_some_back() {}
        Ok(())
    }
}

/// Lets the pages of a shard be used as before when it is dropped, also by an error or a panic of a watch.
struct EndLeaving<'a> {
    shards: &'a Shards<AppendShard>,
    shard: usize,
}

impl Drop for EndLeaving<'_> {
    fn drop(&mut self) {
        self.shards.write(self.shard).values.slabs.end_leaving();
        while self.shards.write(self.shard).values.slabs.give_some_back() {}
    }
}

/// Part of a page's blocks below which its blocks move to other pages.
const FILL_MIN: f64 = 0.75;

fn value_of(shard: &AppendShard, reference: u64) -> Vec<u8> {
    let mut value = Vec::new();
    shard.values.read_value(Reference(reference), &mut value);
    value
}

//! `Map`: the handle of an open map.

use super::{
    Durability, EntryBounds, Expiring, MapFigures, MapOptions, MapStats, Prepared, Snapshot,
    Transaction, Write, backup,
    checkpoint::Goal,
    core::Core,
    entries, import, log, lookup, maintain,
    pointer::INLINE_BYTES_MAX,
    recovery::{self, SPILL_NAME},
    snapshot,
    spill::TRANSACTION_SIZE_MAX,
    verify,
    write::{self, CHANGES_SIZE_MAX},
};
use crate::{
    error::{Error, ErrorKind, Result},
    key::{KeyHash, Seed},
    run::{Run, SortOptions, Sorter},
    verify::VerifyReport,
    wal::PAYLOAD_SIZE_MAX,
    work::Watch,
};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// Maximum number of changes in a record of [`Map::put_many`].
const CHANGES_MAX: usize = 1024;
/// Size of the entries that [`Map::put_many`] puts at once, at most, or one entry.
const LARGE_BYTES_MAX: usize = 4 << 20;
/// Number of times that [`Map::transact`] runs a transaction, at most.
const ATTEMPTS_MAX: usize = 100;

/// A mutable map from keys to values in a folder. Threads can share it, and clones are the same
/// map. A lookup takes at most one device read, except for a few in a thousand.
///
/// ```
/// # std::env::set_current_dir(std::env::temp_dir())?;
/// # let _ = std::fs::remove_dir_all("hf-accounts");
/// use hashfold::map::Map;
///
/// let map = Map::open_or_create("hf-accounts")?;
/// map.put("anna", "120")?; // durable
/// map.put("ben", "7")?;
/// map.delete("ben")?;
/// assert_eq!(map.get("anna")?.as_deref(), Some(&b"120"[..]));
/// assert_eq!(map.get("ben")?, None);
///
/// // From one account to another, or not at all.
/// map.transact(|changes| {
///     let anna = changes.get("anna")?.unwrap_or_default();
///     changes.put("cleo", anna)?;
///     changes.delete("anna")
/// })?;
/// map.close()?;
/// # std::fs::remove_dir_all("hf-accounts")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Map(Arc<Handle>);

/// The last handle waits for background jobs.
struct Handle(Arc<Core>);

impl Map {
    /// Maximum size of the changes of one [`Map::write`], in bytes: of keys and values, values above 1 KiB
    /// left out, with up to 50 bytes more per change ([`Write::size`]). 1 GiB. While changes of more than
    /// about 512 KiB are applied, other writers, transactions, snapshots and checkpoints wait, and lookups
    /// see some of them.
    pub const WRITE_BYTES_MAX: usize = CHANGES_SIZE_MAX;

    /// Maximum size of the changes of one [`Transaction`], in bytes, as that of [`Map::WRITE_BYTES_MAX`]. Writes
    /// that other writes of their transaction have replaced after they were spilled count, too. 64 GiB.
    pub const TRANSACTION_BYTES_MAX: u64 = TRANSACTION_SIZE_MAX;

    /// Opens the map in a folder, or creates one, with the default options.
    ///
    /// # Errors
    /// The errors of [`Map::open_or_create_with`].
    pub fn open_or_create(folder: impl AsRef<Path>) -> Result<Map> {
        Map::open_or_create_with(folder, MapOptions::new())
    }

    /// Opens the map in a folder, or creates one.
    ///
    /// # Errors
    /// `Busy` if the map is open already, in this process or another one; `WrongKind` if there is
    /// another data set; `WrongSeed` if the options have another seed than the map; `Argument` if
    /// `folder` is a file.
    pub fn open_or_create_with(folder: impl AsRef<Path>, options: MapOptions) -> Result<Map> {
        let folder = folder.as_ref();
        match Map::open_with(folder, options.clone()) {
            Err(error) if error.is_absent() => Map::create(folder, options),
            opened => opened.map_err(|error| error.if_no_folder(folder)),
        }
    }

    /// Creates a map.
    ///
    /// # Errors
    /// `Exists` if there is a map in the folder, else as [`Map::open_or_create_with`].
    pub fn create(folder: impl AsRef<Path>, options: MapOptions) -> Result<Map> {
        let folder = folder.as_ref();
        let core = recovery::create(folder, options).map_err(|error| error.if_no_folder(folder))?;
        Ok(Map::of(core))
    }

    /// Opens a map.
    ///
    /// # Errors
    /// `Absent` if there is none in the folder, else as [`Map::open_or_create_with`].
    pub fn open_with(folder: impl AsRef<Path>, options: MapOptions) -> Result<Map> {
        let seed = options.seed;
        let core = recovery::open(folder.as_ref(), options)?;
        let got = core.identity.seed;
        match seed.filter(|expected| *expected != got) {
            None => Ok(Map::of(core)),
            Some(expected) => {
                Err(Error::new(ErrorKind::WrongSeed { expected, got }).at(&core.place()))
            }
        }
    }

    fn of(core: Core) -> Map {
        Map(Arc::new(Handle(Arc::new(core))))
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.0.0
    }

    /// Returns the seed that keys are hashed with.
    pub fn seed(&self) -> Seed {
        self.core().identity.seed
    }

    /// Returns the value of an attribute that the map was created with ([`MapOptions::attributes`]).
    pub fn attribute(&self, name: &str) -> Option<&[u8]> {
        let found = self.core().attributes.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_slice())
    }

    /// Looks up a key.
    ///
    /// # Errors
    /// The device failed, or a block is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_expiring(key)?.map(|found| found.value))
    }

    /// Looks up a key. Returns the time at which the entry expires, too.
    ///
    /// # Errors
    /// The errors of [`Map::get`].
    pub fn get_expiring(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiring>> {
        let value = lookup::get(self.core(), key.as_ref());
        self.start_merges();
        value
    }

    /// Starts merges and copies that a lookup has made due.
    fn start_merges(&self) {
        if self.core().tasks.has_merges() || self.core().tasks.has_mirrors() {
            maintain::start(self.core());
        }
    }

    /// Looks up many keys, with their device reads in flight together. `values[i]` is the value of
    /// `keys[i]`.
    ///
    /// # Errors
    /// The errors of [`Map::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let values = self.get_many_expiring(keys)?.into_iter();
        Ok(values.map(|found| found.map(|found| found.value)).collect())
    }

    /// Looks up many keys as [`Map::get_many`] does. Returns the times at which the entries expire,
    /// too.
    ///
    /// # Errors
    /// The errors of [`Map::get`].
    pub fn get_many_expiring<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Expiring>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let values = lookup::get_many(self.core(), &keys);
        maintain::start(self.core());
        values
    }

    /// Looks up many keys as [`Map::get_many`] does, without keeping all values: calls `visit` once for
    /// each key, in any order, with the index of the key and what was found. Values above 1 KiB are read
    /// one by one, each after the call for the one before it.
    ///
    /// # Errors
    /// The errors of [`Map::get`]; the first error of `visit`, which ends the lookups.
    pub fn visit_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        visit: &mut dyn FnMut(usize, Option<Expiring>) -> Result<()>,
    ) -> Result<()> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let visited = lookup::visit_many(self.core(), &keys, visit);
        maintain::start(self.core());
        visited
    }

    /// Whether there is a value for a key. A value above 1 KiB is not read.
    ///
    /// # Errors
    /// The errors of [`Map::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let found = lookup::contains(self.core(), key.as_ref());
        self.start_merges();
        found
    }

    /// Puts a value, which replaces an older one. A value above 1 KiB gets blocks of its own, which are
    /// synced before the call returns. Returns the sequence number after the change, for
    /// [`Map::wait_durable`].
    ///
    /// # Errors
    /// `Limit` if the key or the value is too long. If the disk is full, nothing is changed, and the
    /// call can be repeated. If the log fails, the change may be found when the map is opened again.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64> {
        write::write(self.core(), &[Write::put(key.as_ref(), value.as_ref())])
    }

    /// Puts a value that is absent from `expires_at` on, in milliseconds since 1970-01-01 UTC, by the
    /// clock of [`MapOptions::env`]. A time in the past deletes the key. Returns the sequence
    /// number after the change.
    ///
    /// The time of a map never goes back while the map is open: if the clock does, entries that have
    /// expired stay absent. [`Map::put`] puts a value without an expiry.
    ///
    /// # Errors
    /// The errors of [`Map::put`].
    pub fn put_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at: u64,
    ) -> Result<u64> {
        let expires_at = Some(expires_at);
        self.write(&[Write { expires_at, ..Write::put(key.as_ref(), value.as_ref()) }])
    }

    /// Deletes a key, if it is there. Returns the sequence number after the change.
    ///
    /// # Errors
    /// The errors of [`Map::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        write::write(self.core(), &[Write::delete(key.as_ref())])
    }

    /// Applies changes, all of them or none, in one record of the log. If several change one key, the
    /// last one wins. Returns the sequence number after the last change. The changes are durable as
    /// the options say.
    ///
    /// # Errors
    /// `Limit` if the changes take more than [`Map::WRITE_BYTES_MAX`]; the errors of [`Map::put`].
    pub fn write(&self, changes: &[Write<'_>]) -> Result<u64> {
        write::write(self.core(), changes)
    }

    /// Deletes all keys, at one moment. The cost is a few microseconds per group, whatever the number
    /// of entries. Snapshots keep what they see. Returns the sequence number after the change, which
    /// counts as one. A checkpoint in the background frees the space of the entries.
    ///
    /// # Errors
    /// The errors of [`Map::put`]. If the checkpoint fails, the keys are deleted all the same, and
    /// another one is made with the next change ([`Map::background_error`]).
    pub fn clear(&self) -> Result<u64> {
        self.prepare_cleared(&[])?.apply()
    }

    /// Does the slow part of [`Map::write`], which may wait for the device: frees memory and writes
    /// large values. The changes are made by [`Prepared::apply`], so that a caller that keeps readers
    /// out meanwhile does not keep them waiting for the device; but the changes of more than about 512 KiB
    /// may wait for it in [`Prepared::apply`], too.
    ///
    /// # Errors
    /// The errors of [`Map::write`].
    pub fn prepare<'a>(&'a self, changes: &[Write<'a>]) -> Result<Prepared<'a>> {
        let core = self.core();
        Ok(Prepared { core, record: write::prepare(core, changes)? })
    }

    /// Prepares changes as [`Map::prepare`] does that are made after all keys are deleted as by
    /// [`Map::clear`]: the deletion and the changes are one record of the log.
    ///
    /// # Errors
    /// The errors of [`Map::write`].
    pub fn prepare_cleared<'a>(&'a self, changes: &[Write<'a>]) -> Result<Prepared<'a>> {
        let core = self.core();
        Ok(Prepared { core, record: write::prepare_cleared(core, changes)? })
    }

    /// Puts many values, much faster than one at a time. Up to 1024 entries of 256 KiB together are
    /// put all or none (of a value above 1 KiB, 1 KiB counts, but with values as a whole, the limit is 4 MiB);
    /// more are put in parts of this size. Returns the sequence number after the
    /// last one.
    ///
    /// # Errors
    /// The errors of [`Map::put`].
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        let mut part: Vec<(K, V)> = Vec::new();
        let (mut bytes, mut large) = (0, 0);
        for (key, value) in entries {
            log::check_sizes(key.as_ref(), Some(value.as_ref()))?;
            let size = key.as_ref().len() + value.as_ref().len().min(INLINE_BYTES_MAX);
            let all = key.as_ref().len() + value.as_ref().len();
            let is_full = bytes + size > PAYLOAD_SIZE_MAX / 2 || large + all > LARGE_BYTES_MAX;
            if part.len() == CHANGES_MAX || is_full && !part.is_empty() {
                self.put_part(&part)?;
                (part, bytes, large) = (Vec::new(), 0, 0);
            }
            bytes += size;
            large += all;
            part.push((key, value));
        }
        if part.is_empty() {
            return Ok(self.core().log().end());
        }
        self.put_part(&part)
    }

    fn put_part<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, part: &[(K, V)]) -> Result<u64> {
        let changes = part.iter().map(|(key, value)| Write::put(key.as_ref(), value.as_ref()));
        write::write(self.core(), &changes.collect::<Vec<_>>())
    }

    /// Applies all entries of a run, whose tombstones delete keys. They are durable when this returns.
    /// The unit of `watch` is entries.
    ///
    /// If the map has no entries, it loads a run in bulk, several times as fast as puts: each group is
    /// written once, in order, and not to the log. The load takes effect at one moment at its end, and
    /// counts as one change ([`Map::seq`]): after a crash, the map has all entries of the run or none.
    /// Lookups go on meanwhile, and see none of them; writers wait only for the checkpoint at the end. This
    /// needs a run with the seed of the map, as that of [`Map::sorter`], and a map without entries and
    /// changes: a new one, or one that was cleared ([`Map::clear`]).
    ///
    /// In all other cases, and if another thread changes the map during the load, the entries are put
    /// part by part through the log, between the changes of other threads. The seed of the run need not be
    /// that of the map then.
    ///
    /// # Errors
    /// The errors of the run and of [`Map::put`]; `Order` if its entries do not ascend. After an error
    /// of a bulk load, the map has no entry of the run. If the sync of the manifest failed, it may have
    /// all of them when it is opened again. In all other cases, a part of the entries may be applied.
    pub fn import(&self, run: &mut dyn Run, watch: &Watch) -> Result<()> {
        import::import(self.core(), run, watch)
    }

    /// Makes a sorter whose run is for [`Map::import`]. If the entries exceed its memory budget, it spills
    /// into the folder of the map; a file that a crash leaves there is removed when the map is opened.
    ///
    /// # Errors
    /// `Argument` if the memory budget is below [`MEMORY_BYTES_MIN`](crate::run::MEMORY_BYTES_MIN).
    pub fn sorter(&self, options: SortOptions) -> Result<Sorter> {
        let Core { folder, options: map, identity, .. } = &**self.core();
        let (spill, executor) = (folder.path.join(SPILL_NAME), map.env.executor.clone());
        Sorter::new(folder.disk.clone(), spill, identity.seed, options, executor)
    }

    /// Begins a transaction.
    pub fn transaction(&self) -> Transaction {
        Transaction::begin(self.core().clone())
    }

    /// Runs a transaction and commits it; runs it again after a conflict, up to 100 times.
    ///
    /// # Errors
    /// The error of `body`, which cancels the transaction; the errors of [`Transaction::commit`].
    pub fn transact<T>(&self, mut body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let mut attempt = 1;
        loop {
            let mut transaction = self.transaction();
            let result = body(&mut transaction)?;
            match transaction.commit() {
                Ok(_) => return Ok(result),
                Err(error)
                    if matches!(error.kind(), ErrorKind::Conflict) && attempt < ATTEMPTS_MAX =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the state of the map at this moment. Writers wait while it is taken: a few
    /// microseconds per 100 groups.
    pub fn snapshot(&self) -> Snapshot {
        snapshot::take(self.core())
    }

    /// Returns the first `limit` entries whose hashes are `first` or larger, in the order of hashes,
    /// with the times at which they expire. If more entries share the first 50 bits of their hashes
    /// with the last one, they are returned, too: a page that begins after these bits misses none.
    /// An empty page, or one with fewer entries, is the last.
    ///
    /// An entry that is in the map during all calls of a scan is in one page. Costs the reads of
    /// about `limit` entries, and one for each packet of the groups that are read. Unlike a
    /// [`Snapshot`], it does not end the lists of changes, and keeps no blocks.
    ///
    /// # Errors
    /// The errors of [`Map::get`].
    pub fn entries_from(&self, first: KeyHash, limit: usize) -> Result<Vec<(Vec<u8>, Expiring)>> {
        entries::entries_from(self.core(), first, limit)
    }

    /// Returns bounds on the number of entries, without a device read: changes that are not merged
    /// yet may replace or delete entries. They are equal after [`Map::compact`], and for a new map as
    /// long as RAM has all of it. Expired entries count until a merge removes them.
    pub fn entries(&self) -> EntryBounds {
        entries::bounds(self.core())
    }

    /// Counts the entries. Groups that have changes or expired entries are read.
    ///
    /// # Errors
    /// The errors of [`Map::get`].
    pub fn count(&self) -> Result<u64> {
        entries::count(self.core())
    }

    /// Returns the sequence number after the last change: the number of changes since the map was
    /// created.
    pub fn seq(&self) -> u64 {
        self.core().log().end()
    }

    /// Returns the sequence number before which all changes are durable.
    pub fn durable_seq(&self) -> u64 {
        self.core().log().durable_seq()
    }

    /// Waits until all changes before `seq` are durable.
    ///
    /// # Errors
    /// The log failed, now or earlier; `Argument` if there is no such change yet.
    pub fn wait_durable(&self, seq: u64) -> Result<()> {
        self.core().log().commit(seq)
    }

    /// Waits until all changes are durable.
    ///
    /// # Errors
    /// The log failed, now or earlier.
    pub fn sync(&self) -> Result<()> {
        self.wait_durable(self.seq())
    }

    /// Writes all changes in RAM to the data file, and shortens the log. The map opens fast
    /// afterwards. Checkpoints also happen in the background ([`MapOptions::wal_bytes`]).
    ///
    /// # Errors
    /// The disk is full, or the device failed. All changes are still there.
    pub fn checkpoint(&self) -> Result<()> {
        maintain::checkpoint(self.core(), Goal::All)
    }

    /// Merges all groups, joins small ones, makes a checkpoint, and gives the space of free blocks and
    /// of the log back to the file system.
    ///
    /// # Errors
    /// The errors of [`Map::checkpoint`].
    pub fn compact(&self) -> Result<()> {
        maintain::with_space_of_log(self.core(), || maintain::merge_all(self.core()))?;
        self.checkpoint()
    }

    /// Waits for background work and makes a checkpoint. Without this call, the map is sound too,
    /// and the changes that were durable are there, but opening it takes longer.
    ///
    /// # Errors
    /// The errors of [`Map::checkpoint`].
    pub fn close(self) -> Result<()> {
        self.core().tasks.finish();
        self.checkpoint()
    }

    /// Returns the error of the last background job that failed, once. A failed job loses no change
    /// and is repeated when it is due again.
    pub fn background_error(&self) -> Option<Error> {
        self.core().tasks.error.lock().expect("nothing panics under this lock").take()
    }

    /// Writes the entries of this moment to a new map in another folder, with the same seed and
    /// attributes. Changes go on meanwhile. After an error or a crash, the folder is not a map, and a
    /// backup there can be repeated. The unit of `watch` is entries.
    ///
    /// # Errors
    /// `Exists` if there is a map in the folder, `WrongKind` if there is another data set; the errors
    /// of [`Map::get`]; the disk is full.
    pub fn backup(&self, folder: impl AsRef<Path>, watch: &Watch) -> Result<()> {
        backup::backup(self.core(), folder.as_ref(), watch)
    }

    /// Checks all blocks, as they are now. The unit of `watch` is bytes.
    ///
    /// # Errors
    /// The device failed. Damage is in the report.
    pub fn verify(&self, watch: &Watch) -> Result<VerifyReport<MapFigures>> {
        verify::verify_open(self.core(), watch)
    }

    /// Returns the figures of the map.
    pub fn stat(&self) -> MapStats {
        let core = self.core();
        let counters = &core.counters;
        let mut stats = MapStats {
            buffered_bytes: counters.buffered_bytes.load(SeqCst) as u64,
            packet_bytes: counters.packet_bytes.load(SeqCst),
            transaction_bytes: core.transaction_bytes() as u64,
            seq: self.seq(),
            durable_seq: self.durable_seq(),
            blocks_written: counters.blocks_written.load(SeqCst),
            merges: counters.merges.load(SeqCst),
            flushes: counters.flushes.load(SeqCst),
            checkpoints: counters.checkpoints.load(SeqCst),
            ..MapStats::default()
        };
        let mut blocks = HashSet::new();
        let mut large = HashMap::new();
        for group in core.directory.all() {
            let state = group.state();
            let packets = &state.stored.packets;
            stats.groups += 1;
            stats.buffered_entries += state.listed();
            stats.packets += packets.len() as u64;
            stats.packet_entries += packets.iter().map(|packet| packet.sizes.entries).sum::<u64>();
            stats.span_blocks += state.stored.span_blocks();
            blocks.extend(packets.iter().map(|packet| packet.block.first));
            let lists = state.immutable.iter().map(|list| &**list).chain([&state.active]);
            let owners = lists.flat_map(|list| list.owners.iter());
            let owners = owners.chain(state.stored.owners().flatten());
            large.extend(owners.map(|owner| (owner.first, owner.count)));
            stats.entries_max += state.stored.span.as_ref().map_or(0, |span| span.sizes.entries);
            stats.address_bytes += state.stored.span_blocks() * size_of::<u32>() as u64;
        }
        stats.entries_max += stats.packet_entries + stats.buffered_entries;
        stats.packet_blocks = blocks.len() as u64;
        stats.large_values = large.len() as u64;
        stats.large_blocks = large.values().sum();
        stats.mirror_blocks = core.space.mirrors.size();
        let (free, blocks) = core.space.counts();
        stats.free_bytes = free * super::block::BLOCK_SIZE as u64;
        stats.file_bytes = blocks * super::block::BLOCK_SIZE as u64;
        stats
    }

    /// Returns the memory of packets and of the addresses of blocks, in bytes.
    pub fn index_bytes(&self) -> u64 {
        let core = self.core();
        let blocks = core.directory.map(|group| group.state().stored.span_blocks());
        let addresses = blocks.iter().sum::<u64>() * size_of::<u32>() as u64;
        addresses + core.counters.packet_bytes.load(SeqCst)
    }

    /// Returns the size of the data file, in bytes, with its free blocks.
    pub fn file_bytes(&self) -> u64 {
        let (_, blocks) = self.core().space.counts();
        blocks * super::block::BLOCK_SIZE as u64
    }

    /// Returns when changes are durable.
    pub fn durability(&self) -> Durability {
        self.core().options.durability
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map({})", self.core().place())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.tasks.finish();
        // Errors cannot be returned from here. Changes that are not durable may be lost.
        if let Some(log) = self.0.log.get() {
            let _ = log.commit(log.end());
        }
    }
}

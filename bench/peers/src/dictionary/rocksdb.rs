//! RocksDB, through its C interface: sorted table files, written on all threads and ingested.
//!
//! The tree has the best shape for gets: one level, no overlap, index and filter in memory, direct
//! reads. Blocks are not cached, because random gets rarely read a block twice.

use super::{
    Budget, Dictionary, Getter, Reader, Visit,
    sort::{self, BUCKETS, SortedBuckets},
};
use crate::{
    Result,
    data::{Data, KEY_SIZE, Key},
    librocksdb::*,
};
use std::{
    ffi::{c_char, c_int},
    path::{Path, PathBuf},
    ptr, slice, thread,
};

pub(super) fn dictionaries() -> Vec<Box<dyn Dictionary>> {
    vec![Box::new(Rocks::NoFilter), Box::new(Rocks::Ribbon)]
}

#[derive(Clone, Copy, Debug)]
enum Rocks {
    NoFilter,
    /// A Ribbon filter as precise as a Bloom filter with 10 bits per key: about 7 bits per key.
    Ribbon,
}

impl Dictionary for Rocks {
    fn name(&self) -> String {
        match self {
            Rocks::NoFilter => "RocksDB ingest".to_owned(),
            Rocks::Ribbon => "RocksDB + Ribbon".to_owned(),
        }
    }

    fn note(&self) -> String {
        "sorted, one SST file a thread, no compression, 4 KiB blocks, direct reads; Debian's build \
         has no io_uring: a MultiGet reads one block after the other"
            .to_owned()
    }

    fn build(&self, data: &Data, budget: Budget, folder: &Path) -> Result<u64> {
        let buckets = sort::sort(data, budget, folder)?;
        let spilled_bytes = buckets.spilled_bytes();
        let options = Options::new(*self);
        let per_file = BUCKETS.div_ceil(budget.threads);
        let writers: Vec<Result<PathBuf>> = thread::scope(|scope| {
            let (buckets, options) = (&buckets, &options);
            let starts = (0..BUCKETS).step_by(per_file);
            let write = |start: usize| {
                let path = folder.join(format!("{start}.new"));
                move || {
                    let numbers = start..(start + per_file).min(BUCKETS);
                    write_file(options, buckets, numbers, &path).map(|()| path)
                }
            };
            let threads: Vec<_> = starts.map(|start| scope.spawn(write(start))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        let files = writers.into_iter().collect::<Result<Vec<PathBuf>>>()?;
        drop(buckets);
        ingest_into_new(options.options, folder, &files)?;
        Ok(spilled_bytes)
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Database::open(Options::new(*self), folder)?))
    }
}

fn write_file(
    options: &Options,
    buckets: &SortedBuckets,
    mut numbers: std::ops::Range<usize>,
    path: &Path,
) -> Result<()> {
    write_sst(options.options, path, &mut |put| {
        numbers.try_for_each(|bucket| {
            buckets.load(bucket)?.iter().try_for_each(|(key, value)| put(key, Some(value)))
        })
    })
}

/// Options of files and of the database.
struct Options {
    options: Handle,
    table: Handle,
}

// SAFETY: the options are not changed after they are shared.
unsafe impl Sync for Options {}

impl Options {
    fn new(kind: Rocks) -> Options {
        /// Number of index entries per restart point: a larger number makes the index smaller.
        const INDEX_RESTART_INTERVAL: c_int = 16;
        const BLOOM_BITS: f64 = 10.0;
        // SAFETY: the handles are fresh; the table's options own the filter policy.
        unsafe {
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_size(table, 4096);
            rocksdb_block_based_options_set_no_block_cache(table, 1);
            rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 0);
            rocksdb_block_based_options_set_format_version(table, 5);
            rocksdb_block_based_options_set_index_block_restart_interval(
                table,
                INDEX_RESTART_INTERVAL,
            );
            if let Rocks::Ribbon = kind {
                let policy = rocksdb_filterpolicy_create_ribbon(BLOOM_BITS);
                rocksdb_block_based_options_set_filter_policy(table, policy);
            }
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_compression(options, 0);
            rocksdb_options_set_use_direct_reads(options, 1);
            rocksdb_options_set_max_open_files(options, -1);
            rocksdb_options_set_disable_auto_compactions(options, 1);
            rocksdb_options_set_block_based_table_factory(options, table);
            Options { options, table }
        }
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: the handles are not in use any more.
        unsafe {
            rocksdb_options_destroy(self.options);
            rocksdb_block_based_options_destroy(self.table);
        }
    }
}

struct Database {
    database: Handle,
    family: Handle,
    read: Handle,
    _options: Options,
}

// SAFETY: several threads may call the library's gets.
unsafe impl Sync for Database {}

impl Database {
    fn open(options: Options, folder: &Path) -> Result<Database> {
        let folder = c_path(folder)?;
        let name = c"default".as_ptr();
        let mut family = ptr::null_mut();
        let mut database = ptr::null_mut();
        call(|error| {
            // SAFETY: all arrays have one item, and outlive the call.
            database = unsafe {
                rocksdb_open_for_read_only_column_families(
                    options.options,
                    folder.as_ptr(),
                    1,
                    &raw const name,
                    &raw const options.options,
                    &raw mut family,
                    0,
                    error,
                )
            };
        })?;
        // SAFETY: the call has no arguments.
        let read = unsafe { rocksdb_readoptions_create() };
        Ok(Database { database, family, read, _options: options })
    }

    /// Passes the value in `slice`, which may be null, to `visit`, and frees it.
    fn show(&self, i: usize, slice: Handle, visit: &mut Visit<'_>) -> Result<()> {
        if slice.is_null() {
            return visit(i, None);
        }
        let mut len = 0;
        // SAFETY: the slice came from a get, and is freed after the visit.
        unsafe {
            let value = rocksdb_pinnableslice_value(slice, &raw mut len);
            let result = visit(i, Some(slice::from_raw_parts(value.cast::<u8>(), len)));
            rocksdb_pinnableslice_destroy(slice);
            result
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the handles are not in use any more: getters borrow this.
        unsafe {
            rocksdb_readoptions_destroy(self.read);
            rocksdb_column_family_handle_destroy(self.family);
            rocksdb_close(self.database);
        }
    }
}

impl Reader for Database {
    fn index_bytes(&self) -> Result<Option<u64>> {
        let name = c"rocksdb.estimate-table-readers-mem".as_ptr();
        let mut bytes = 0;
        // SAFETY: the database is open, and `bytes` can hold the number.
        let status = unsafe { rocksdb_property_int(self.database, name, &raw mut bytes) };
        if status == 0 { Ok(Some(bytes)) } else { Err("RocksDB hides its memory".into()) }
    }

    fn has_batches(&self) -> bool {
        true
    }

    fn getter(&self) -> Result<Box<dyn Getter + '_>> {
        Ok(Box::new(self))
    }
}

impl Getter for &Database {
    fn get(&mut self, key: &Key, visit: &mut Visit<'_>) -> Result<()> {
        let mut slice = ptr::null_mut();
        call(|error| {
            // SAFETY: the database is open, and the key outlives the call.
            slice = unsafe {
                let key = key.as_ptr().cast();
                rocksdb_get_pinned(self.database, self.read, key, KEY_SIZE, error)
            };
        })?;
        self.show(0, slice, visit)
    }

    fn get_many(&mut self, keys: &[Key], visit: &mut Visit<'_>) -> Result<()> {
        let pointers: Vec<*const c_char> = keys.iter().map(|key| key.as_ptr().cast()).collect();
        let lens = vec![KEY_SIZE; keys.len()];
        let mut values = vec![ptr::null_mut(); keys.len()];
        let mut errors = vec![ptr::null_mut(); keys.len()];
        // SAFETY: the database is open, and all arrays have an item for each key.
        unsafe {
            rocksdb_batched_multi_get_cf(
                self.database,
                self.read,
                self.family,
                keys.len(),
                pointers.as_ptr(),
                lens.as_ptr(),
                values.as_mut_ptr(),
                errors.as_mut_ptr(),
                false,
            );
        }
        let mut result = Ok(());
        for (i, (value, error)) in values.into_iter().zip(errors).enumerate() {
            let shown = take_error(error).and_then(|()| self.show(i, value, visit));
            result = result.and(shown);
        }
        result
    }
}

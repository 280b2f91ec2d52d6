//! RocksDB: a log-structured merge tree, through its C interface.

use super::{
    Options,
    engine::{Changes, Changing, Engine, Key, Looking, Lookups, Peer, SIZE, Value, value_of},
};
use crate::{Result, librocksdb::*};
use std::{
    ffi::{c_char, c_int},
    path::Path,
    ptr, slice, thread,
    time::Duration,
};

pub(super) struct Rocks;

impl Peer for Rocks {
    fn name(&self) -> String {
        "RocksDB".to_owned()
    }

    fn note(&self) -> String {
        "leveled, two jobs; a fifth of the memory for blocks, two memtables of a tenth; direct I/O, Bloom \
         filters of 10 bits in memory, no compression; MultiGet"
            .to_owned()
    }

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Database::create(options.memory_bytes(), folder)?))
    }
}

struct Database {
    database: Handle,
    family: Handle,
    read: Handle,
    write: Handle,
    /// Options of durable writes.
    durable: Handle,
    options: Handle,
    table: Handle,
    cache: Handle,
}

// SAFETY: several threads may call the library's lookups and writes.
unsafe impl Sync for Database {}

impl Database {
    fn create(memory: usize, folder: &Path) -> Result<Database> {
        let (options, table, cache) = settings(memory);
        let path = c_path(folder)?;
        let name = c"default".as_ptr();
        let (mut family, mut database) = (ptr::null_mut(), ptr::null_mut());
        call(|error| {
            let (family, options) = (&raw mut family, &raw const options);
            let path = path.as_ptr();
            // SAFETY: all arrays have one item, and outlive the call.
            database = unsafe {
                let names = &raw const name;
                rocksdb_open_column_families(*options, path, 1, names, options, family, error)
            };
        })?;
        // SAFETY: the calls have no arguments, or only the new handles.
        let (read, write, durable) = unsafe {
            let durable = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(durable, 1);
            (rocksdb_readoptions_create(), rocksdb_writeoptions_create(), durable)
        };
        Ok(Database { database, family, read, write, durable, options, table, cache })
    }

    fn put(&self, write: Handle, key: &Key, value: &Value) -> Result<()> {
        let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: the database is open, and the library copies key and value, which have these sizes.
        call(|error| unsafe {
            rocksdb_put(self.database, write, key, SIZE, value, SIZE, error);
        })
    }

    fn number(&self, property: &std::ffi::CStr) -> u64 {
        let mut number = 0;
        // SAFETY: the database is open, and `number` can hold the number.
        unsafe { rocksdb_property_int(self.database, property.as_ptr(), &raw mut number) };
        number
    }
}

/// Returns the options of the database, of its tables, and a cache.
fn settings(memory: usize) -> (Handle, Handle, Handle) {
    const BLOOM_BITS: f64 = 10.0;
    /// More jobs at once take more memory than the limit leaves.
    const JOBS: c_int = 2;
    /// Read ahead for each file of a compaction, in bytes. The default, 2 MiB, takes half of the limit for 20 files.
    const READAHEAD: usize = 256 << 10;
    // SAFETY: the handles are fresh; the table's options own the filter policy.
    unsafe {
        let cache = rocksdb_cache_create_lru(memory / 5);
        let table = rocksdb_block_based_options_create();
        rocksdb_block_based_options_set_block_size(table, 4096);
        rocksdb_block_based_options_set_block_cache(table, cache);
        // In a small cache, filters would push each other out.
        rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 0);
        rocksdb_block_based_options_set_format_version(table, 5);
        let policy = rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS);
        rocksdb_block_based_options_set_filter_policy(table, policy);
        let all = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(all, 1);
        rocksdb_options_set_compression(all, 0);
        rocksdb_options_set_use_direct_reads(all, 1);
        rocksdb_options_set_use_direct_io_for_flush_and_compaction(all, 1);
        rocksdb_options_set_max_open_files(all, -1);
        rocksdb_options_set_max_background_jobs(all, JOBS);
        rocksdb_options_compaction_readahead_size(all, READAHEAD);
        rocksdb_options_set_write_buffer_size(all, memory / 10);
        rocksdb_options_set_max_write_buffer_number(all, 2);
        rocksdb_options_set_block_based_table_factory(all, table);
        (all, table, cache)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the handles are not in use any more, and each is destroyed once.
        unsafe {
            rocksdb_writeoptions_destroy(self.durable);
            rocksdb_writeoptions_destroy(self.write);
            rocksdb_readoptions_destroy(self.read);
            rocksdb_column_family_handle_destroy(self.family);
            rocksdb_close(self.database);
            rocksdb_options_destroy(self.options);
            rocksdb_block_based_options_destroy(self.table);
            rocksdb_cache_destroy(self.cache);
        }
    }
}

impl Engine for Database {
    fn change(&self, work: &mut Changing<'_>) -> Result<()> {
        work(&mut &*self)
    }

    fn look_up(&self, work: &mut Looking<'_>) -> Result<()> {
        work(&mut &*self)
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: the database is open.
        call(|error| unsafe { rocksdb_flush_wal(self.database, 1, error) })
    }

    fn settle(&mut self) -> Result<()> {
        const PAUSE: Duration = Duration::from_millis(10);
        let busy = [
            c"rocksdb.mem-table-flush-pending",
            c"rocksdb.num-running-flushes",
            c"rocksdb.compaction-pending",
            c"rocksdb.num-running-compactions",
        ];
        while busy.iter().any(|property| self.number(property) > 0) {
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn commit(&self, key: &Key, value: &Value) -> Result<()> {
        self.put(self.durable, key, value)
    }

    fn compact(&mut self) -> Result<()> {
        // SAFETY: the database is open; null means no bound.
        unsafe { rocksdb_compact_range(self.database, ptr::null(), 0, ptr::null(), 0) };
        self.settle()
    }
}

/// Returns the value in a slice of the library, which may be null, and frees it.
fn take(slice: Handle) -> Result<Option<Value>> {
    if slice.is_null() {
        return Ok(None);
    }
    let mut len = 0;
    // SAFETY: the slice came from a lookup, and is freed after its value was copied.
    unsafe {
        let value = rocksdb_pinnableslice_value(slice, &raw mut len);
        let copied = value_of(slice::from_raw_parts(value.cast(), len));
        rocksdb_pinnableslice_destroy(slice);
        copied.map(Some)
    }
}

impl Lookups for &Database {
    fn get(&mut self, key: &Key) -> Result<Option<Value>> {
        let key = key.as_ptr().cast();
        let mut slice = ptr::null_mut();
        call(|error| {
            // SAFETY: the database is open, and the key has this size.
            slice = unsafe { rocksdb_get_pinned(self.database, self.read, key, SIZE, error) };
        })?;
        take(slice)
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        let pointers: Vec<*const c_char> = keys.iter().map(|key| key.as_ptr().cast()).collect();
        let lens = vec![SIZE; keys.len()];
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
        // Every value and error is taken before the first error is returned.
        let taken: Vec<Result<Option<Value>>> = values
            .into_iter()
            .zip(errors)
            .map(|(value, error)| take(value).and_then(|value| take_error(error).map(|()| value)))
            .collect();
        taken.into_iter().collect()
    }
}

impl Changes for &Database {
    fn put(&mut self, key: &Key, value: &Value) -> Result<()> {
        Database::put(self, self.write, key, value)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        let key = key.as_ptr().cast();
        // SAFETY: the database is open, and the key has this size.
        call(|error| unsafe { rocksdb_delete(self.database, self.write, key, SIZE, error) })
    }
}

//! RocksDB as a set: keys of eight bytes, no values, no log.

use super::{Options, Peer, Set, background_threads};
use crate::{Result, librocksdb::*};
use std::{
    ffi::{c_char, c_int},
    path::Path,
    ptr, thread,
    time::Duration,
};

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    vec![Box::new(Rocks::Leveled), Box::new(Rocks::Universal), Box::new(Rocks::Bulk)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rocks {
    /// The usual settings.
    Leveled,
    /// The settings for the fastest insertions: a memtable that is sorted only when it is full, and
    /// the compaction with the lowest write amplification.
    Universal,
    /// The library's settings for loading in bulk: nothing is compacted before the end.
    Bulk,
}

impl Peer for Rocks {
    fn name(&self) -> String {
        match self {
            Rocks::Leveled => "RocksDB leveled".to_owned(),
            Rocks::Universal => "RocksDB vector, universal".to_owned(),
            Rocks::Bulk => "RocksDB bulk load".to_owned(),
        }
    }

    fn note(&self) -> String {
        let how = match self {
            Rocks::Leveled => "skip list, leveled compaction",
            Rocks::Universal => "vector memtable, universal compaction",
            Rocks::Bulk => "vector memtable, PrepareForBulkLoad, compacted at the end",
        };
        format!(
            "{how}; no log, no compression, direct I/O, Bloom filters of 10 bits in memory beyond the \
             limit; half of it for tables that fill, a quarter for blocks; MultiGet"
        )
    }

    fn keys(&self, options: &Options) -> u64 {
        options.keys_rocksdb
    }

    fn error_max(&self) -> f64 {
        0.0
    }

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Set>> {
        Ok(Box::new(Database::open(*self, options, folder)?))
    }
}

struct Database {
    database: Handle,
    family: Handle,
    read: Handle,
    write: Handle,
    batch: Handle,
    options: Handle,
    table: Handle,
    cache: Handle,
    kind: Rocks,
}

// SAFETY: several threads may call the library's lookups.
unsafe impl Sync for Database {}

impl Database {
    fn open(kind: Rocks, options: &Options, folder: &Path) -> Result<Database> {
        let (all, table, cache) = settings(kind, options.memory << 20);
        let path = c_path(folder)?;
        let name = c"default".as_ptr();
        let (mut family, mut database) = (ptr::null_mut(), ptr::null_mut());
        call(|error| {
            let (family, all) = (&raw mut family, &raw const all);
            // SAFETY: all arrays have one item, and outlive the call.
            database = unsafe {
                let path = path.as_ptr();
                rocksdb_open_column_families(*all, path, 1, &raw const name, all, family, error)
            };
        })?;
        // SAFETY: the calls have no arguments, or only the new handles.
        let (read, write, batch) = unsafe {
            let write = rocksdb_writeoptions_create();
            rocksdb_writeoptions_disable_WAL(write, 1);
            (rocksdb_readoptions_create(), write, rocksdb_writebatch_create())
        };
        Ok(Database { database, family, read, write, batch, options: all, table, cache, kind })
    }
}

/// Returns the options of the database, of its tables, and a cache.
fn settings(kind: Rocks, memory: usize) -> (Handle, Handle, Handle) {
    const BLOOM_BITS: f64 = 10.0;
    const UNIVERSAL: c_int = 1;
    let threads = background_threads();
    // SAFETY: the handles are fresh; the table's options own the filter policy.
    unsafe {
        let cache = rocksdb_cache_create_lru(memory / 4);
        let table = rocksdb_block_based_options_create();
        rocksdb_block_based_options_set_block_size(table, 4096);
        rocksdb_block_based_options_set_block_cache(table, cache);
        rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 0);
        rocksdb_block_based_options_set_format_version(table, 5);
        let policy = rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS);
        rocksdb_block_based_options_set_filter_policy(table, policy);
        let all = rocksdb_options_create();
        if kind == Rocks::Bulk {
            rocksdb_options_prepare_for_bulk_load(all);
        }
        rocksdb_options_set_create_if_missing(all, 1);
        rocksdb_options_set_compression(all, 0);
        rocksdb_options_set_use_direct_reads(all, 1);
        rocksdb_options_set_use_direct_io_for_flush_and_compaction(all, 1);
        rocksdb_options_set_max_open_files(all, -1);
        rocksdb_options_set_max_background_jobs(all, threads as c_int);
        rocksdb_options_set_max_subcompactions(all, threads as u32);
        rocksdb_options_set_write_buffer_size(all, memory / 8);
        rocksdb_options_set_max_write_buffer_number(all, 4);
        rocksdb_options_set_block_based_table_factory(all, table);
        if kind != Rocks::Leveled {
            rocksdb_options_set_memtable_vector_rep(all);
            // A vector memtable allows one writer.
            rocksdb_options_set_allow_concurrent_memtable_write(all, 0);
        }
        if kind == Rocks::Universal {
            rocksdb_options_set_compaction_style(all, UNIVERSAL);
        }
        (all, table, cache)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the handles are not in use any more, and each is destroyed once.
        unsafe {
            rocksdb_writebatch_destroy(self.batch);
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

const KEY_SIZE: usize = 8;

impl Set for Database {
    fn insert(&mut self, keys: &[u64]) -> Result<()> {
        // SAFETY: the library copies its arguments, and all handles are open.
        unsafe {
            rocksdb_writebatch_clear(self.batch);
            for key in keys.iter().map(|key| key.to_be_bytes()) {
                let at = key.as_ptr().cast();
                rocksdb_writebatch_put(self.batch, at, KEY_SIZE, at, 0);
            }
            call(|error| rocksdb_write(self.database, self.write, self.batch, error))
        }
    }

    fn flush(&mut self) -> Result<()> {
        // SAFETY: the database is open; the options are fresh, and the call waits.
        unsafe {
            let options = rocksdb_flushoptions_create();
            let flushed = call(|error| rocksdb_flush(self.database, options, error));
            rocksdb_flushoptions_destroy(options);
            flushed
        }
    }

    fn finish_work(&mut self) -> Result<()> {
        const PAUSE: Duration = Duration::from_millis(10);
        if self.kind == Rocks::Bulk {
            // SAFETY: the database is open; null means no bound.
            unsafe { rocksdb_compact_range(self.database, ptr::null(), 0, ptr::null(), 0) };
            return Ok(());
        }
        let is_busy = || {
            let number = |name: *const c_char| {
                let mut number = 0;
                // SAFETY: the database is open, and `number` can hold the number.
                unsafe { rocksdb_property_int(self.database, name, &raw mut number) };
                number
            };
            let names = [c"rocksdb.compaction-pending", c"rocksdb.num-running-compactions"];
            names.iter().map(|name| number(name.as_ptr())).sum::<u64>() > 0
        };
        while is_busy() {
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn look_up(&self, keys: &[u64], found: &mut [bool]) -> Result<()> {
        let bytes: Vec<[u8; KEY_SIZE]> = keys.iter().map(|key| key.to_be_bytes()).collect();
        let pointers: Vec<*const c_char> = bytes.iter().map(|key| key.as_ptr().cast()).collect();
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
        for ((value, error), found) in values.into_iter().zip(errors).zip(found) {
            result = result.and(take_error(error));
            *found = !value.is_null();
            if *found {
                // SAFETY: the value came from the library, and has no other owner.
                unsafe { rocksdb_pinnableslice_destroy(value) };
            }
        }
        result
    }
}

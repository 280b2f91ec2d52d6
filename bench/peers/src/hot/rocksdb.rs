//! RocksDB, with all blocks in its block cache.

use super::{
    Peer, Reader,
    entries::{Entries, Lookups, head_of},
};
use crate::{Result, librocksdb::*};
use std::{
    ffi::{c_char, c_int},
    path::Path,
    ptr, slice,
};

pub(super) struct Cached;

/// Kind of the index inside a data block: a hash table beside the binary search.
const BINARY_AND_HASH: c_int = 1;

/// Entries per slot of that hash table, the library's default.
const HASH_RATIO: f64 = 0.75;

impl Peer for Cached {
    fn name(&self) -> String {
        "RocksDB, block cache".to_owned()
    }

    fn note(&self) -> String {
        "one sorted SST file, no compression, 4 KiB blocks with a hash index, all blocks in the block \
         cache, values pinned there; a batch is one MultiGet"
            .to_owned()
    }

    fn build(&self, entries: &Entries, folder: &Path) -> Result<()> {
        let settings = Settings::new(0);
        let path = folder.join("all.new");
        let (mut key, mut value) = (Vec::new(), Vec::new());
        write_sst(settings.options, &path, &mut |put| {
            entries.by_key().into_iter().try_for_each(|i| {
                entries.fill_key(i.into(), &mut key);
                entries.fill_value(i.into(), &mut value);
                put(&key, Some(&value))
            })
        })?;
        ingest_into_new(settings.options, folder, &[path])
    }

    fn open(&self, folder: &Path, bytes: u64) -> Result<Box<dyn Reader>> {
        // More than all blocks take with what is stored beside them.
        let settings = Settings::new(2 * bytes as usize + (256 << 20));
        let path = c_path(folder)?;
        let name = c"default".as_ptr();
        let (mut family, mut database) = (ptr::null_mut(), ptr::null_mut());
        call(|error| {
            // SAFETY: all arrays have one item, and outlive the call.
            database = unsafe {
                rocksdb_open_for_read_only_column_families(
                    settings.options,
                    path.as_ptr(),
                    1,
                    &raw const name,
                    &raw const settings.options,
                    &raw mut family,
                    0,
                    error,
                )
            };
        })?;
        // SAFETY: the call has no arguments.
        let read = unsafe { rocksdb_readoptions_create() };
        Ok(Box::new(Open { database, family, read, _settings: settings }))
    }
}

/// Options of files and of the database.
struct Settings {
    options: Handle,
    table: Handle,
    cache: Handle,
}

impl Settings {
    fn new(cache_bytes: usize) -> Settings {
        // SAFETY: the handles are fresh.
        unsafe {
            let table = rocksdb_block_based_options_create();
            let cache = rocksdb_cache_create_lru(cache_bytes);
            rocksdb_block_based_options_set_block_size(table, 4096);
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_block_based_options_set_format_version(table, 5);
            rocksdb_block_based_options_set_data_block_index_type(table, BINARY_AND_HASH);
            rocksdb_block_based_options_set_data_block_hash_ratio(table, HASH_RATIO);
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_compression(options, 0);
            rocksdb_options_set_max_open_files(options, -1);
            rocksdb_options_set_disable_auto_compactions(options, 1);
            rocksdb_options_set_block_based_table_factory(options, table);
            Settings { options, table, cache }
        }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: the handles are not in use any more.
        unsafe {
            rocksdb_options_destroy(self.options);
            rocksdb_block_based_options_destroy(self.table);
            rocksdb_cache_destroy(self.cache);
        }
    }
}

struct Open {
    database: Handle,
    family: Handle,
    read: Handle,
    _settings: Settings,
}

// SAFETY: several threads may call the library's gets.
unsafe impl Sync for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the handles are not in use any more.
        unsafe {
            rocksdb_readoptions_destroy(self.read);
            rocksdb_column_family_handle_destroy(self.family);
            rocksdb_close(self.database);
        }
    }
}

/// Returns 1 if the value in a slice, which may be null, has another head; frees it.
///
/// # Safety
/// The slice must come from a get.
unsafe fn is_wrong(slice: Handle, head: &[u8; 8]) -> u64 {
    if slice.is_null() {
        return 1;
    }
    let mut len = 0;
    // SAFETY: the slice came from a get, and is freed after its use.
    unsafe {
        let value = rocksdb_pinnableslice_value(slice, &raw mut len).cast::<u8>();
        let right = head_of(Some(slice::from_raw_parts(value, len))) == Some(head);
        rocksdb_pinnableslice_destroy(slice);
        u64::from(!right)
    }
}

impl Reader for Open {
    fn one_by_one(&self, lookups: &Lookups<'_>) -> Result<u64> {
        let mut wrong = 0;
        for (key, head) in lookups.keys.iter().zip(&lookups.heads) {
            let mut slice = ptr::null_mut();
            call(|error| {
                // SAFETY: the database is open, and the key outlives the call.
                slice = unsafe {
                    let at = key.as_ptr().cast();
                    rocksdb_get_pinned(self.database, self.read, at, key.len(), error)
                };
            })?;
            // SAFETY: the slice is of this get.
            wrong += unsafe { is_wrong(slice, head) };
        }
        Ok(wrong)
    }

    fn in_batches(&self, lookups: &Lookups<'_>, batch: usize) -> Result<u64> {
        let mut wrong = 0;
        let mut pointers: Vec<*const c_char> = Vec::with_capacity(batch);
        let mut lens = Vec::with_capacity(batch);
        let (mut values, mut errors) = (vec![ptr::null_mut(); batch], vec![ptr::null_mut(); batch]);
        for (keys, heads) in lookups.keys.chunks(batch).zip(lookups.heads.chunks(batch)) {
            pointers.clear();
            pointers.extend(keys.iter().map(|key| key.as_ptr().cast::<c_char>()));
            lens.clear();
            lens.extend(keys.iter().map(|key| key.len()));
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
            for ((value, error), head) in values.iter().zip(&errors).zip(heads) {
                take_error(*error)?;
                // SAFETY: the slice is of this get.
                wrong += unsafe { is_wrong(*value, head) };
            }
        }
        Ok(wrong)
    }
}

//! The part of RocksDB's C interface that is used here.

use crate::Result;
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uchar, c_void},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
};

pub fn c_path(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// An opaque pointer, as for all types of the library here.
pub type Handle = *mut c_void;
/// The place for the message of a failed call.
pub type ErrorPlace = *mut *mut c_char;

// From `rocksdb/c.h`.
unsafe extern "C" {
    pub fn rocksdb_options_create() -> Handle;
    pub fn rocksdb_options_prepare_for_bulk_load(options: Handle);
    pub fn rocksdb_options_destroy(options: Handle);
    pub fn rocksdb_options_set_create_if_missing(options: Handle, value: c_uchar);
    pub fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    pub fn rocksdb_options_set_use_direct_reads(options: Handle, value: c_uchar);
    pub fn rocksdb_options_set_max_open_files(options: Handle, count: c_int);
    pub fn rocksdb_options_set_disable_auto_compactions(options: Handle, value: c_int);
    pub fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
    pub fn rocksdb_block_based_options_create() -> Handle;
    pub fn rocksdb_block_based_options_destroy(table: Handle);
    pub fn rocksdb_block_based_options_set_block_size(table: Handle, size: usize);
    pub fn rocksdb_block_based_options_set_no_block_cache(table: Handle, value: c_uchar);
    pub fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(
        table: Handle,
        value: c_uchar,
    );
    pub fn rocksdb_block_based_options_set_format_version(table: Handle, version: c_int);
    pub fn rocksdb_block_based_options_set_index_block_restart_interval(
        table: Handle,
        count: c_int,
    );
    pub fn rocksdb_block_based_options_set_filter_policy(table: Handle, policy: Handle);
    pub fn rocksdb_filterpolicy_create_ribbon(bloom_bits: f64) -> Handle;
    pub fn rocksdb_envoptions_create() -> Handle;
    pub fn rocksdb_envoptions_destroy(environment: Handle);
    pub fn rocksdb_sstfilewriter_create(environment: Handle, options: Handle) -> Handle;
    pub fn rocksdb_sstfilewriter_open(writer: Handle, path: *const c_char, error: ErrorPlace);
    pub fn rocksdb_sstfilewriter_put(
        writer: Handle,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: ErrorPlace,
    );
    pub fn rocksdb_sstfilewriter_finish(writer: Handle, error: ErrorPlace);
    pub fn rocksdb_sstfilewriter_destroy(writer: Handle);
    pub fn rocksdb_ingestexternalfileoptions_create() -> Handle;
    pub fn rocksdb_ingestexternalfileoptions_set_move_files(how: Handle, value: c_uchar);
    pub fn rocksdb_ingestexternalfileoptions_destroy(how: Handle);
    pub fn rocksdb_ingest_external_file(
        database: Handle,
        files: *const *const c_char,
        count: usize,
        how: Handle,
        error: ErrorPlace,
    );
    pub fn rocksdb_open(options: Handle, path: *const c_char, error: ErrorPlace) -> Handle;
    pub fn rocksdb_open_for_read_only_column_families(
        options: Handle,
        path: *const c_char,
        count: c_int,
        names: *const *const c_char,
        family_options: *const Handle,
        families: *mut Handle,
        error_if_wal_file_exists: c_uchar,
        error: ErrorPlace,
    ) -> Handle;
    pub fn rocksdb_column_family_handle_destroy(family: Handle);
    pub fn rocksdb_close(database: Handle);
    pub fn rocksdb_property_int(database: Handle, name: *const c_char, value: *mut u64) -> c_int;
    pub fn rocksdb_readoptions_create() -> Handle;
    pub fn rocksdb_readoptions_destroy(read: Handle);
    pub fn rocksdb_get_pinned(
        database: Handle,
        read: Handle,
        key: *const c_char,
        key_len: usize,
        error: ErrorPlace,
    ) -> Handle;
    pub fn rocksdb_batched_multi_get_cf(
        database: Handle,
        read: Handle,
        family: Handle,
        count: usize,
        keys: *const *const c_char,
        key_lens: *const usize,
        values: *mut Handle,
        errors: *mut *mut c_char,
        sorted: bool,
    );
    pub fn rocksdb_pinnableslice_value(slice: Handle, len: *mut usize) -> *const c_char;
    pub fn rocksdb_pinnableslice_destroy(slice: Handle);
    pub fn rocksdb_free(memory: *mut c_void);
    pub fn rocksdb_sstfilewriter_delete(
        writer: Handle,
        key: *const c_char,
        key_len: usize,
        error: ErrorPlace,
    );
    pub fn rocksdb_checkpoint_object_create(database: Handle, error: ErrorPlace) -> Handle;
    pub fn rocksdb_checkpoint_object_destroy(checkpoint: Handle);
    pub fn rocksdb_checkpoint_create(
        checkpoint: Handle,
        folder: *const c_char,
        log_size_for_flush: u64,
        error: ErrorPlace,
    );
    pub fn rocksdb_compact_range(
        database: Handle,
        start: *const c_char,
        start_len: usize,
        end: *const c_char,
        end_len: usize,
    );
    pub fn rocksdb_options_set_max_background_jobs(options: Handle, count: c_int);
    pub fn rocksdb_options_compaction_readahead_size(options: Handle, bytes: usize);
    pub fn rocksdb_filterpolicy_create_bloom_full(bits: f64) -> Handle;
    pub fn rocksdb_block_based_options_set_data_block_index_type(table: Handle, kind: c_int);
    pub fn rocksdb_block_based_options_set_data_block_hash_ratio(table: Handle, ratio: f64);
    pub fn rocksdb_cache_create_lru(capacity: usize) -> Handle;
    pub fn rocksdb_cache_destroy(cache: Handle);
    pub fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
    pub fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(
        options: Handle,
        value: c_uchar,
    );
    pub fn rocksdb_options_set_write_buffer_size(options: Handle, bytes: usize);
    pub fn rocksdb_options_set_max_write_buffer_number(options: Handle, count: c_int);
    pub fn rocksdb_options_set_max_subcompactions(options: Handle, count: u32);
    pub fn rocksdb_options_set_memtable_vector_rep(options: Handle);
    pub fn rocksdb_options_set_allow_concurrent_memtable_write(options: Handle, value: c_uchar);
    pub fn rocksdb_options_set_compaction_style(options: Handle, style: c_int);
    pub fn rocksdb_put(
        database: Handle,
        write: Handle,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: ErrorPlace,
    );
    pub fn rocksdb_delete(
        database: Handle,
        write: Handle,
        key: *const c_char,
        key_len: usize,
        error: ErrorPlace,
    );
    pub fn rocksdb_flush_wal(database: Handle, syncs: c_uchar, error: ErrorPlace);
    pub fn rocksdb_writeoptions_set_sync(write: Handle, value: c_uchar);
    pub fn rocksdb_writeoptions_create() -> Handle;
    pub fn rocksdb_writeoptions_destroy(write: Handle);
    pub fn rocksdb_writeoptions_disable_WAL(write: Handle, value: c_int);
    pub fn rocksdb_writebatch_create() -> Handle;
    pub fn rocksdb_writebatch_destroy(batch: Handle);
    pub fn rocksdb_writebatch_clear(batch: Handle);
    pub fn rocksdb_writebatch_put(
        batch: Handle,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );
    pub fn rocksdb_write(database: Handle, write: Handle, batch: Handle, error: ErrorPlace);
    pub fn rocksdb_flushoptions_create() -> Handle;
    pub fn rocksdb_flushoptions_destroy(flush: Handle);
    pub fn rocksdb_flush(database: Handle, flush: Handle, error: ErrorPlace);
    pub fn rocksdb_open_column_families(
        options: Handle,
        path: *const c_char,
        count: c_int,
        names: *const *const c_char,
        family_options: *const Handle,
        families: *mut Handle,
        error: ErrorPlace,
    ) -> Handle;
}

/// Makes a call that may return an error message.
pub fn call(work: impl FnOnce(ErrorPlace)) -> Result<()> {
    let mut error = ptr::null_mut();
    work(&raw mut error);
    take_error(error)
}

pub fn take_error(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the library returns a string that ends in NUL, which the caller must free.
    unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        Err(text.into())
    }
}

/// A callback that takes a key and its value, or `None` to delete the key.
pub type Put<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<()> + 'a;

/// Writes a table file of the changes that `feed` passes on, in key order.
pub fn write_sst(
    options: Handle,
    path: &Path,
    feed: &mut dyn FnMut(&mut Put<'_>) -> Result<()>,
) -> Result<()> {
    let path = c_path(path)?;
    // SAFETY: the options outlive the writer, which only this thread uses, and the library copies
    // keys and values.
    unsafe {
        let environment = rocksdb_envoptions_create();
        let writer = rocksdb_sstfilewriter_create(environment, options);
        let opened = call(|error| rocksdb_sstfilewriter_open(writer, path.as_ptr(), error));
        let fed = opened.and_then(|()| {
            feed(&mut |key, value| {
                let key_at = key.as_ptr().cast();
                call(|error| match value {
                    Some(value) => {
                        let (value_at, len) = (value.as_ptr().cast(), value.len());
                        rocksdb_sstfilewriter_put(writer, key_at, key.len(), value_at, len, error);
                    }
                    None => rocksdb_sstfilewriter_delete(writer, key_at, key.len(), error),
                })
            })
        });
        let result = fed.and_then(|()| call(|error| rocksdb_sstfilewriter_finish(writer, error)));
        rocksdb_sstfilewriter_destroy(writer);
        rocksdb_envoptions_destroy(environment);
        result
    }
}

/// Creates a database in a folder, and moves table files into it.
pub fn ingest_into_new(options: Handle, folder: &Path, files: &[PathBuf]) -> Result<()> {
    let paths = files.iter().map(|file| c_path(file)).collect::<Result<Vec<CString>>>()?;
    let pointers: Vec<*const c_char> = paths.iter().map(|path| path.as_ptr()).collect();
    let folder = c_path(folder)?;
    // SAFETY: all strings outlive the calls that take them, and no other thread has the database.
    unsafe {
        let mut database = ptr::null_mut();
        call(|error| database = rocksdb_open(options, folder.as_ptr(), error))?;
        let how = rocksdb_ingestexternalfileoptions_create();
        rocksdb_ingestexternalfileoptions_set_move_files(how, 1);
        let count = pointers.len();
        let result = call(|error| {
            rocksdb_ingest_external_file(database, pointers.as_ptr(), count, how, error);
        });
        rocksdb_ingestexternalfileoptions_destroy(how);
        rocksdb_close(database);
        result?;
    }
    for file in files {
        // The file has been moved or linked.
        if file.exists() {
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

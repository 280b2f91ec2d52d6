//! Sparkey: a log of the entries in the order of insertion, and a hash table in a second file.

use super::{Budget, Dictionary, Getter, Reader, Visit};
use crate::{
    Result,
    data::{Data, KEY_SIZE, Key},
};
use sparkey_sys as sys;
use std::{
    ffi::{CStr, CString},
    fs::{self, File},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr, slice,
};

pub(super) struct Sparkey;

const LOG: &str = "entries.spl";
const INDEX: &str = "entries.spi";

fn check(code: sys::returncode) -> Result<()> {
    if let sys::returncode::SUCCESS = code {
        return Ok(());
    }
    // SAFETY: the library has a string that ends in NUL for every code.
    let text = unsafe { CStr::from_ptr(sys::errstring(code)) };
    Err(text.to_string_lossy().into_owned().into())
}

fn paths(folder: &Path) -> Result<[CString; 2]> {
    let path = |name| CString::new(folder.join(name).as_os_str().as_bytes());
    Ok([path(LOG)?, path(INDEX)?])
}

impl Dictionary for Sparkey {
    fn name(&self) -> String {
        "Sparkey".to_owned()
    }

    fn note(&self) -> String {
        "unsorted, no compression; no index in memory, two reads or more a get, through maps \
         without read-ahead (MADV_RANDOM); nothing is checksummed"
            .to_owned()
    }

    fn build(&self, data: &Data, _: Budget, folder: &Path) -> Result<u64> {
        let [log, index] = paths(folder)?;
        let mut writer = ptr::null_mut();
        // SAFETY: the paths are strings that end in NUL; the writer is open from the first call
        // to the last but one; the library copies keys and values.
        unsafe {
            let compression = sys::compression_type::COMPRESSION_NONE;
            check(sys::logwriter_create(&raw mut writer, log.as_ptr(), compression, 0))?;
            let mut value = Vec::new();
            for i in 0..data.count {
                let key = data.key(i);
                data.fill_value(i, &mut value);
                let (key_len, value_len) = (KEY_SIZE as u64, value.len() as u64);
                check(sys::logwriter_put(
                    writer,
                    key_len,
                    key.as_ptr(),
                    value_len,
                    value.as_ptr(),
                ))?;
            }
            check(sys::logwriter_close(&raw mut writer))?;
            check(sys::hash_write(index.as_ptr(), log.as_ptr(), 0))?;
        }
        for name in [LOG, INDEX] {
            File::open(folder.join(name))?.sync_all()?;
        }
        Ok(0)
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Reader>> {
        let [log, index] = paths(folder)?;
        let mut reader = ptr::null_mut();
        // SAFETY: the paths are strings that end in NUL, and `reader` can hold the handle.
        check(unsafe { sys::hash_open(&raw mut reader, index.as_ptr(), log.as_ptr()) })?;
        let table = Table(reader);
        for name in [LOG, INDEX] {
            advise_random(&folder.join(name).canonicalize()?)?;
        }
        Ok(Box::new(table))
    }
}

/// Disables read-ahead in the maps of a file: the library, which made the maps, does not expose
/// them.
fn advise_random(path: &Path) -> Result<()> {
    let mut found = false;
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        if !rest.ends_with(&*path.to_string_lossy()) {
            continue;
        }
        let (start, end) = range.split_once('-').ok_or("a map has no range")?;
        let (start, end) = (usize::from_str_radix(start, 16)?, usize::from_str_radix(end, 16)?);
        let map = ptr::without_provenance_mut(start);
        // SAFETY: the advice changes no byte of the map.
        if unsafe { libc::madvise(map, end - start, libc::MADV_RANDOM) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        found = true;
    }
    if found { Ok(()) } else { Err(format!("{} is not mapped", path.display()).into()) }
}

struct Table(*mut sys::hashreader);

// SAFETY: gets do not change a reader; they change only the iterator of each getter.
unsafe impl Sync for Table {}

impl Reader for Table {
    fn index_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn getter(&self) -> Result<Box<dyn Getter + '_>> {
        let mut iterator = ptr::null_mut();
        // SAFETY: the reader is open, and `iterator` can hold the handle.
        let log = unsafe {
            let log = sys::hash_getreader(self.0);
            check(sys::logiter_create(&raw mut iterator, log))?;
            log
        };
        Ok(Box::new(TableGetter { table: self, log, iterator }))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the reader is open, and getters, which borrow this, are gone.
        unsafe { sys::hash_close(&raw mut self.0) };
    }
}

struct TableGetter<'a> {
    table: &'a Table,
    log: *mut sys::logreader,
    iterator: *mut sys::logiter,
}

impl Getter for TableGetter<'_> {
    fn get(&mut self, key: &Key, visit: &mut Visit<'_>) -> Result<()> {
        let (mut value, mut len) = (ptr::null_mut(), 0);
        // SAFETY: all handles are open; without compression, a chunk is the whole value, in the
        // map, which stays until the table is dropped.
        let value = unsafe {
            let (iterator, key_len) = (self.iterator, KEY_SIZE as u64);
            check(sys::hash_get(self.table.0, key.as_ptr(), key_len, iterator))?;
            match sys::logiter_state(iterator) {
                sys::iter_state::ITER_ACTIVE => {
                    let len_max = sys::logiter_valuelen(iterator);
                    let (value, len) = (&raw mut value, &raw mut len);
                    check(sys::logiter_valuechunk(iterator, self.log, len_max, value, len))?;
                    Some(slice::from_raw_parts(*value, *len as usize))
                }
                _ => None,
            }
        };
        visit(0, value)
    }
}

impl Drop for TableGetter<'_> {
    fn drop(&mut self) {
        // SAFETY: the iterator is open.
        unsafe { sys::logiter_close(&raw mut self.iterator) };
    }
}

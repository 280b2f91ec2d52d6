//! TinyCDB: entries in the order of insertion, followed by hash tables.

use super::{Budget, Dictionary, Getter, Reader, Visit};
use crate::{
    Result,
    data::{Data, KEY_SIZE, Key},
};
use std::{
    ffi::{c_int, c_uint, c_void},
    fs::File,
    io,
    mem::MaybeUninit,
    os::fd::AsRawFd,
    path::Path,
    ptr, slice,
};

pub(super) struct Cdb;

const FILE: &str = "cdb";
/// Maximum size of a file: offsets have 32 bits.
const SIZE_MAX: u64 = u32::MAX as u64;
/// Overhead per entry: two lengths before it, and two slots of a hash table at the end.
const OVERHEAD: u64 = 8 + 16;

// From `cdb.h` of TinyCDB 0.78.

#[repr(C)]
#[derive(Clone, Copy)]
struct CdbFile {
    fd: c_int,
    file_size: c_uint,
    data_end: c_uint,
    map: *const u8,
    value_position: c_uint,
    value_len: c_uint,
    key_position: c_uint,
    key_len: c_uint,
}

#[repr(C)]
struct CdbMake {
    fd: c_int,
    data_position: c_uint,
    record_count: c_uint,
    buffer: [u8; 4096],
    buffer_position: *mut u8,
    records: [*mut c_void; 256],
}

unsafe extern "C" {
    fn cdb_init(file: *mut CdbFile, fd: c_int) -> c_int;
    fn cdb_free(file: *mut CdbFile);
    fn cdb_find(file: *mut CdbFile, key: *const c_void, key_len: c_uint) -> c_int;
    fn cdb_get(file: *const CdbFile, len: c_uint, position: c_uint) -> *const c_void;
    fn cdb_make_start(make: *mut CdbMake, fd: c_int) -> c_int;
    fn cdb_make_add(
        make: *mut CdbMake,
        key: *const c_void,
        key_len: c_uint,
        value: *const c_void,
        value_len: c_uint,
    ) -> c_int;
    fn cdb_make_finish(make: *mut CdbMake) -> c_int;
}

/// Most calls return a negative number for an error in `errno`.
fn check(status: c_int) -> Result<()> {
    if status < 0 { Err(io::Error::last_os_error().into()) } else { Ok(()) }
}

impl Dictionary for Cdb {
    fn name(&self) -> String {
        "TinyCDB".to_owned()
    }

    fn note(&self) -> String {
        "unsorted; no index in memory, two reads or more a get, through a map without read-ahead \
         (MADV_RANDOM); at most 4 GiB; nothing is checksummed"
            .to_owned()
    }

    fn refuses(&self, data: &Data) -> Option<String> {
        let size = data.payload() + data.count * OVERHEAD;
        (size > SIZE_MAX).then(|| format!("{size} bytes are more than a cdb can have"))
    }

    fn build(&self, data: &Data, _: Budget, folder: &Path) -> Result<u64> {
        let path = folder.join(FILE);
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let mut make = Box::new(MaybeUninit::<CdbMake>::uninit());
        // SAFETY: `make` has the size that the library expects, stays where it is, and is
        // initialized by the first call; the file stays open until the end.
        unsafe {
            check(cdb_make_start(make.as_mut_ptr(), file.as_raw_fd()))?;
            let mut value = Vec::new();
            for i in 0..data.count {
                let key = data.key(i);
                data.fill_value(i, &mut value);
                let (key, key_len) = (key.as_ptr().cast(), KEY_SIZE as c_uint);
                let (value, value_len) = (value.as_ptr().cast(), value.len() as c_uint);
                check(cdb_make_add(make.as_mut_ptr(), key, key_len, value, value_len))?;
            }
            check(cdb_make_finish(make.as_mut_ptr()))?;
        }
        file.sync_all()?;
        Ok(0)
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Reader>> {
        let file = File::open(folder.join(FILE))?;
        let mut cdb = MaybeUninit::<CdbFile>::uninit();
        // SAFETY: `cdb` has the size that the library expects and is initialized by the first
        // call, which maps the file; the advice is for that map.
        let cdb = unsafe {
            check(cdb_init(cdb.as_mut_ptr(), file.as_raw_fd()))?;
            let cdb = cdb.assume_init();
            let map = cdb.map.cast_mut().cast();
            check(libc::madvise(map, cdb.file_size as usize, libc::MADV_RANDOM))?;
            cdb
        };
        Ok(Box::new(Mapped { cdb, _file: file }))
    }
}

struct Mapped {
    cdb: CdbFile,
    _file: File,
}

// SAFETY: the map is only read; what a search changes is in the copy that each getter has.
unsafe impl Sync for Mapped {}

impl Reader for Mapped {
    fn index_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn getter(&self) -> Result<Box<dyn Getter + '_>> {
        Ok(Box::new(MappedGetter { cdb: self.cdb, _mapped: self }))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the map is not in use any more: getters borrow this.
        unsafe { cdb_free(&raw mut self.cdb) };
    }
}

struct MappedGetter<'a> {
    cdb: CdbFile,
    _mapped: &'a Mapped,
}

impl Getter for MappedGetter<'_> {
    fn get(&mut self, key: &Key, visit: &mut Visit<'_>) -> Result<()> {
        // SAFETY: the file is mapped as long as this lives; the library returns null, or a pointer
        // into the map to the requested number of bytes.
        let value = unsafe {
            let found = cdb_find(&raw mut self.cdb, key.as_ptr().cast(), KEY_SIZE as c_uint);
            check(found)?;
            let len = self.cdb.value_len;
            let value = match found {
                0 => ptr::null(),
                _ => cdb_get(&raw const self.cdb, len, self.cdb.value_position),
            };
            (!value.is_null()).then(|| slice::from_raw_parts(value.cast::<u8>(), len as usize))
        };
        visit(0, value)
    }
}

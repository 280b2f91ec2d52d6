//! Berkeley DB: a hash table in its cache, without a file, through the functions of `tables.cc`.

use super::{
    Options,
    peer::{Chains, Peer, Record},
};
use crate::Result;
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::Path,
    ptr, slice,
};

unsafe extern "C" {
    fn berkeley_new(cache_bytes: u64, keys: u32, code: *mut c_int) -> *mut c_void;
    fn berkeley_delete(chains: *mut c_void);
    fn berkeley_append(chains: *mut c_void, key: u64, record: *const u8, size: usize) -> c_int;
    fn berkeley_get(chains: *mut c_void, key: u64, size: *mut usize, code: *mut c_int)
    -> *const u8;
    fn berkeley_size(chains: *mut c_void, count: *mut u64) -> c_int;
    fn berkeley_message(code: c_int) -> *const c_char;
}

/// Size of the cache for each key, in bytes: more than pages take, which would go to a file otherwise.
const CACHE_BYTES_PER_KEY: u64 = 400;
/// Least size of the cache, in bytes.
const CACHE_BYTES_MIN: u64 = 64 << 20;

pub(super) fn of_appends(options: &Options) -> Peer {
    let keys = options.chains();
    let cache_bytes = (u64::from(keys) * CACHE_BYTES_PER_KEY).max(CACHE_BYTES_MIN);
    let new = move |_: &Path| -> Result<Vec<Box<dyn Chains>>> {
        let mut code = 0;
        // SAFETY: the code can be written.
        let chains = unsafe { berkeley_new(cache_bytes, keys, ptr::from_mut(&mut code)) };
        check(code)?;
        Ok(vec![Box::new(Berkeley(chains))])
    };
    let note = "Debian's 5.3, a hash table that knows the number of keys, in a cache that holds all; get and put: \
                its hash tables have no append";
    Peer::of_appends("Berkeley DB", note, Box::new(new))
}

fn check(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the message of each code ends in NUL, and stays.
    let message = unsafe { CStr::from_ptr(berkeley_message(code)) };
    Err(format!("Berkeley DB: {}", message.to_string_lossy()).into())
}

struct Berkeley(*mut c_void);

// SAFETY: a database may be used by any thread, one at a time.
unsafe impl Send for Berkeley {}

impl Drop for Berkeley {
    fn drop(&mut self) {
        // SAFETY: the database is open, and not used after this.
        unsafe { berkeley_delete(self.0) };
    }
}

impl Chains for Berkeley {
    fn append_many(&mut self, records: &[Record]) -> Result<()> {
        for (key, record) in records {
            let key = u64::from_le_bytes(*key);
            // SAFETY: the database is open, and copies the record, which has this length.
            check(unsafe { berkeley_append(self.0, key, record.as_ptr(), record.len()) })?;
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8; 8], value: &mut Vec<u8>) -> Result<bool> {
        let (mut size, mut code, key) = (0, 0, u64::from_le_bytes(*key));
        value.clear();
        // SAFETY: the database is open; size and code can be written. The value has the size that the function says, and
        // stays until the next call.
        let is_there = unsafe {
            let found =
                berkeley_get(self.0, key, ptr::from_mut(&mut size), ptr::from_mut(&mut code));
            if !found.is_null() {
                value.extend_from_slice(slice::from_raw_parts(found, size));
            }
            !found.is_null()
        };
        check(code).map(|()| is_there)
    }

    fn len(&mut self) -> Result<u64> {
        let mut count = 0;
        // SAFETY: the database is open, and the count can be written.
        check(unsafe { berkeley_size(self.0, ptr::from_mut(&mut count)) })?;
        Ok(count)
    }
}

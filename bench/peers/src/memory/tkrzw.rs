//! tkrzw's hash table in memory, through its C interface.

use super::{
    Options,
    peer::{Chains, Peer, Record},
};
use crate::Result;
use std::{
    ffi::{CStr, CString, c_char, c_void},
    path::Path,
    slice,
};

/// An opaque pointer to a database.
type Handle = *mut c_void;

// From `tkrzw_langc.h`.
unsafe extern "C" {
    fn tkrzw_get_last_status_code() -> i32;
    fn tkrzw_get_last_status_message() -> *const c_char;
    fn tkrzw_dbm_open(path: *const c_char, writable: bool, parameters: *const c_char) -> Handle;
    fn tkrzw_dbm_close(database: Handle) -> bool;
    fn tkrzw_dbm_count(database: Handle) -> i64;
    fn tkrzw_dbm_get(
        database: Handle,
        key: *const c_char,
        key_size: i32,
        value_size: *mut i32,
    ) -> *mut c_char;
    fn tkrzw_dbm_append(
        database: Handle,
        key: *const c_char,
        key_size: i32,
        value: *const c_char,
        value_size: i32,
        delimiter: *const c_char,
        delimiter_size: i32,
    ) -> bool;
}

/// The status of a lookup of an absent key.
const NOT_FOUND: i32 = 7;
/// Number of buckets for each key.
const BUCKETS: u64 = 2;

pub(super) fn of_appends(options: &Options) -> Peer {
    let buckets = u64::from(options.chains()) * BUCKETS;
    let new = move |_: &Path| -> Result<Vec<Box<dyn Chains>>> {
        let parameters = CString::new(format!("dbm=TinyDBM,num_buckets={buckets}"))?;
        // SAFETY: both strings end in NUL and outlive the call.
        let database = unsafe { tkrzw_dbm_open(c"".as_ptr(), true, parameters.as_ptr()) };
        if database.is_null() { Err(last_error()) } else { Ok(vec![Box::new(Tkrzw(database))]) }
    };
    let note = "Debian's 1.0, two buckets for each key, all there from the beginning";
    Peer::of_appends("tkrzw TinyDBM", note, Box::new(new))
}

/// Returns the message of this thread's last call.
fn last_error() -> Box<dyn std::error::Error + Send + Sync> {
    // SAFETY: the message ends in NUL, and stays until the next call of this thread.
    let message = unsafe { CStr::from_ptr(tkrzw_get_last_status_message()) };
    format!("tkrzw: {}", message.to_string_lossy()).into()
}

struct Tkrzw(Handle);

// SAFETY: the library's databases may be used by several threads.
unsafe impl Send for Tkrzw {}

impl Drop for Tkrzw {
    fn drop(&mut self) {
        // SAFETY: the database is open, and not used after this.
        unsafe { tkrzw_dbm_close(self.0) };
    }
}

impl Chains for Tkrzw {
    fn append_many(&mut self, records: &[Record]) -> Result<()> {
        for (key, record) in records {
            let (name, size) = (key.as_ptr().cast(), key.len() as i32);
            let (value, value_size) = (record.as_ptr().cast(), record.len() as i32);
            // SAFETY: the database is open, and the library copies key and record, which have these sizes.
            let is_done =
                unsafe { tkrzw_dbm_append(self.0, name, size, value, value_size, c"".as_ptr(), 0) };
            if !is_done {
                return Err(last_error());
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8; 8], value: &mut Vec<u8>) -> Result<bool> {
        let mut size = 0;
        value.clear();
        // SAFETY: the database is open. The value has the size that the library says, and has no other owner.
        unsafe {
            let found = tkrzw_dbm_get(self.0, key.as_ptr().cast(), key.len() as i32, &raw mut size);
            if found.is_null() {
                let is_absent = tkrzw_get_last_status_code() == NOT_FOUND;
                return if is_absent { Ok(false) } else { Err(last_error()) };
            }
            value.extend_from_slice(slice::from_raw_parts(found.cast(), size as usize));
            libc::free(found.cast());
        }
        Ok(true)
    }

    fn len(&mut self) -> Result<u64> {
        // SAFETY: the database is open.
        u64::try_from(unsafe { tkrzw_dbm_count(self.0) }).map_err(|_| last_error())
    }
}

//! tkrzw: a hash table in a memory map, through its C interface.

use super::{
    Options,
    engine::{Changes, Changing, Engine, Key, Looking, Lookups, Peer, SIZE, Value, value_of},
};
use crate::Result;
use std::{
    ffi::{CStr, CString, c_char, c_void},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr, slice,
};

/// An opaque pointer to a database.
type Handle = *mut c_void;

// From `tkrzw_langc.h`.
unsafe extern "C" {
    fn tkrzw_get_last_status_code() -> i32;
    fn tkrzw_get_last_status_message() -> *const c_char;
    fn tkrzw_dbm_open(path: *const c_char, writable: bool, parameters: *const c_char) -> Handle;
    fn tkrzw_dbm_close(database: Handle) -> bool;
    fn tkrzw_dbm_get(
        database: Handle,
        key: *const c_char,
        key_size: i32,
        value_size: *mut i32,
    ) -> *mut c_char;
    fn tkrzw_dbm_set(
        database: Handle,
        key: *const c_char,
        key_size: i32,
        value: *const c_char,
        value_size: i32,
        overwrites: bool,
    ) -> bool;
    fn tkrzw_dbm_remove(database: Handle, key: *const c_char, key_size: i32) -> bool;
    fn tkrzw_dbm_rebuild(database: Handle, parameters: *const c_char) -> bool;
    fn tkrzw_dbm_synchronize(
        database: Handle,
        hard: bool,
        processor: *const c_void,
        argument: *mut c_void,
        parameters: *const c_char,
    ) -> bool;
}

/// The status of a lookup of an absent key.
const NOT_FOUND: i32 = 7;

pub(super) struct Tkrzw;

impl Peer for Tkrzw {
    fn name(&self) -> String {
        "tkrzw hash".to_owned()
    }

    fn note(&self) -> String {
        "a bucket per key, updated in place, in a memory map: the page cache is its cache; no log: a \
         durable commit syncs the file; space is given back by a rebuild; nothing is checksummed"
            .to_owned()
    }

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Engine>> {
        let path = CString::new(folder.join("map.tkh").as_os_str().as_bytes())?;
        let parameters = format!("dbm=HashDBM,truncate=true,num_buckets={}", options.keys);
        let parameters = CString::new(parameters)?;
        // SAFETY: both strings end in NUL and outlive the call.
        let database = unsafe { tkrzw_dbm_open(path.as_ptr(), true, parameters.as_ptr()) };
        if database.is_null() {
            return Err(last_error());
        }
        Ok(Box::new(Open { database }))
    }
}

/// Returns the message of this thread's last call.
fn last_error() -> Box<dyn std::error::Error + Send + Sync> {
    // SAFETY: the message ends in NUL, and stays until the next call of this thread.
    let message = unsafe { CStr::from_ptr(tkrzw_get_last_status_message()) };
    format!("tkrzw: {}", message.to_string_lossy()).into()
}

fn check(is_done: bool) -> Result<()> {
    if is_done { Ok(()) } else { Err(last_error()) }
}

struct Open {
    database: Handle,
}

// SAFETY: the library's databases may be used by several threads.
unsafe impl Sync for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the database is open, and not used after this.
        unsafe { tkrzw_dbm_close(self.database) };
    }
}

impl Open {
    fn put(&self, key: &Key, value: &Value) -> Result<()> {
        let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: the database is open, and the library copies key and value, which have these sizes.
        check(unsafe { tkrzw_dbm_set(self.database, key, SIZE as i32, value, SIZE as i32, true) })
    }
}

impl Engine for Open {
    fn change(&self, work: &mut Changing<'_>) -> Result<()> {
        work(&mut &*self)
    }

    fn look_up(&self, work: &mut Looking<'_>) -> Result<()> {
        work(&mut &*self)
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: the database is open; there is no processor, which may be null.
        check(unsafe {
            let none = c"".as_ptr();
            tkrzw_dbm_synchronize(self.database, true, ptr::null(), ptr::null_mut(), none)
        })
    }

    fn commit(&self, key: &Key, value: &Value) -> Result<()> {
        self.put(key, value)?;
        self.sync()
    }

    fn compact(&mut self) -> Result<()> {
        // SAFETY: the database is open, and the string ends in NUL.
        check(unsafe { tkrzw_dbm_rebuild(self.database, c"".as_ptr()) })?;
        self.sync()
    }
}

impl Lookups for &Open {
    fn get(&mut self, key: &Key) -> Result<Option<Value>> {
        let key = key.as_ptr().cast();
        let mut size = 0;
        // SAFETY: the database is open. The value has the size that the library says, and has no other
        // owner.
        unsafe {
            let value = tkrzw_dbm_get(self.database, key, SIZE as i32, &raw mut size);
            if value.is_null() {
                let is_absent = tkrzw_get_last_status_code() == NOT_FOUND;
                return if is_absent { Ok(None) } else { Err(last_error()) };
            }
            let copied = value_of(slice::from_raw_parts(value.cast(), size as usize));
            libc::free(value.cast());
            copied.map(Some)
        }
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Value>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }
}

impl Changes for &Open {
    fn put(&mut self, key: &Key, value: &Value) -> Result<()> {
        Open::put(self, key, value)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        // SAFETY: the database is open, and the key has this size.
        check(unsafe { tkrzw_dbm_remove(self.database, key.as_ptr().cast(), SIZE as i32) })
    }
}

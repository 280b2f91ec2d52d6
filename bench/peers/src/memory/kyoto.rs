//! Kyoto Cabinet's tables in memory, through its C interface.

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

// From `kclangc.h`.
unsafe extern "C" {
    fn kcdbnew() -> Handle;
    fn kcdbdel(database: Handle);
    fn kcdbopen(database: Handle, path: *const c_char, mode: u32) -> i32;
    fn kcdbappend(
        database: Handle,
        key: *const c_char,
        key_size: usize,
        value: *const c_char,
        value_size: usize,
    ) -> i32;
    fn kcdbget(
        database: Handle,
        key: *const c_char,
        key_size: usize,
        value_size: *mut usize,
    ) -> *mut c_char;
    fn kcdbcount(database: Handle) -> i64;
    fn kcdbecode(database: Handle) -> i32;
    fn kcdbemsg(database: Handle) -> *const c_char;
    fn kcfree(bytes: *mut c_void);
}

/// `KCOWRITER` and `KCOCREATE`.
const MODE: u32 = 1 << 1 | 1 << 2;
/// `KCENOREC`, the code of a lookup of an absent key.
const NOT_FOUND: i32 = 7;
/// Number of buckets for each key.
const BUCKETS: u64 = 2;

pub(super) fn of_appends(options: &Options) -> Vec<Peer> {
    let buckets = u64::from(options.chains()) * BUCKETS;
    let stash = "Debian's 1.2, two buckets for each key, all there from the beginning";
    let cache = "as StashDB, with lists by time of use; records are never removed for space";
    vec![
        peer("Kyoto Cabinet StashDB", stash, format!(":#bnum={buckets}")),
        peer("Kyoto Cabinet CacheDB", cache, format!("*#bnum={buckets}")),
    ]
}

/// Returns a peer; the path names the kind of the database.
fn peer(name: &str, note: &str, path: String) -> Peer {
    let new = move |_: &Path| -> Result<Vec<Box<dyn Chains>>> {
        let path = CString::new(path.as_str())?;
        // SAFETY: the function has no arguments.
        let database = Kyoto(unsafe { kcdbnew() });
        // SAFETY: the database is there, and the string ends in NUL.
        let is_open = unsafe { kcdbopen(database.0, path.as_ptr(), MODE) } != 0;
        if is_open { Ok(vec![Box::new(database)]) } else { Err(database.last_error()) }
    };
    Peer::of_appends(name, note, Box::new(new))
}

struct Kyoto(Handle);

// SAFETY: the library's databases may be used by several threads.
unsafe impl Send for Kyoto {}

impl Drop for Kyoto {
    fn drop(&mut self) {
        // SAFETY: the database is there, and not used after this; it is closed if it is open.
        unsafe { kcdbdel(self.0) };
    }
}

impl Kyoto {
    /// Returns the message of the last call.
    fn last_error(&self) -> Box<dyn std::error::Error + Send + Sync> {
        // SAFETY: the database is there, and the message ends in NUL.
        let message = unsafe { CStr::from_ptr(kcdbemsg(self.0)) };
        format!("Kyoto Cabinet: {}", message.to_string_lossy()).into()
    }
}

impl Chains for Kyoto {
    fn append_many(&mut self, records: &[Record]) -> Result<()> {
        for (key, record) in records {
            let (name, value) = (key.as_ptr().cast(), record.as_ptr().cast());
            // SAFETY: the database is open, and the library copies key and record, which have these sizes.
            let is_done = unsafe { kcdbappend(self.0, name, key.len(), value, record.len()) };
            if is_done == 0 {
                return Err(self.last_error());
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8; 8], value: &mut Vec<u8>) -> Result<bool> {
        let mut size = 0;
        value.clear();
        // SAFETY: the database is open. The value has the size that the library says, and has no other owner.
        unsafe {
            let found = kcdbget(self.0, key.as_ptr().cast(), key.len(), &raw mut size);
            if found.is_null() {
                let is_absent = kcdbecode(self.0) == NOT_FOUND;
                return if is_absent { Ok(false) } else { Err(self.last_error()) };
            }
            value.extend_from_slice(slice::from_raw_parts(found.cast(), size));
            kcfree(found.cast());
        }
        Ok(true)
    }

    fn len(&mut self) -> Result<u64> {
        // SAFETY: the database is open.
        u64::try_from(unsafe { kcdbcount(self.0) }).map_err(|_| self.last_error())
    }
}

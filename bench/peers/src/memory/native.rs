//! Maps of C++ libraries, through the functions of `tables.cc`.

#[cfg(feature = "absl")]
use super::peer::{Chains, Record};
use super::peer::{Map, Peer};
use crate::Result;
use std::ffi::c_void;
#[cfg(feature = "absl")]
use std::{path::Path, ptr, slice};

/// An opaque pointer to a map.
type Handle = *mut c_void;
/// The value of absent keys.
const NONE: u64 = u64::MAX;

/// The functions of a map.
#[derive(Clone, Copy)]
struct Functions {
    new: unsafe extern "C" fn() -> Handle,
    delete: unsafe extern "C" fn(Handle),
    size: unsafe extern "C" fn(*const c_void) -> usize,
    put: unsafe extern "C" fn(Handle, *const u64, usize),
    get: unsafe extern "C" fn(*const c_void, *const u64, usize, *mut u64),
}

/// Declares the functions of a map, and defines one that returns them.
macro_rules! functions {
    ($name:ident, $new:ident, $delete:ident, $size:ident, $put:ident, $get:ident) => {
        fn $name() -> Functions {
            unsafe extern "C" {
                fn $new() -> Handle;
                fn $delete(map: Handle);
                fn $size(map: *const c_void) -> usize;
                fn $put(map: Handle, keys: *const u64, count: usize);
                fn $get(map: *const c_void, keys: *const u64, count: usize, values: *mut u64);
            }
            Functions { new: $new, delete: $delete, size: $size, put: $put, get: $get }
        }
    };
}

#[cfg(feature = "absl")]
functions!(absl, absl_map_new, absl_map_delete, absl_map_size, absl_map_put, absl_map_get);
#[cfg(feature = "boost")]
functions!(boost, boost_map_new, boost_map_delete, boost_map_size, boost_map_put, boost_map_get);
#[cfg(feature = "sparsehash")]
functions!(dense, dense_map_new, dense_map_delete, dense_map_size, dense_map_put, dense_map_get);
#[cfg(feature = "sparsehash")]
functions!(
    sparse,
    sparse_map_new,
    sparse_map_delete,
    sparse_map_size,
    sparse_map_put,
    sparse_map_get
);

pub(super) fn of_puts() -> Vec<Peer> {
    let peer = |name, note, functions: Functions| {
        let new =
            move || -> Result<Vec<Box<dyn Map>>> { Ok(vec![Box::new(Native::new(functions))]) };
        Peer::of_puts(name, note, Box::new(new))
    };
    vec![
        #[cfg(feature = "absl")]
        peer("absl::flat_hash_map", "Debian's Abseil, its hash", absl()),
        #[cfg(feature = "boost")]
        peer("boost::unordered_flat_map", "Debian's Boost 1.81, its hash", boost()),
        #[cfg(feature = "sparsehash")]
        peer("google::dense_hash_map", "keys are their own hashes", dense()),
        #[cfg(feature = "sparsehash")]
        peer("google::sparse_hash_map", "keys are their own hashes", sparse()),
    ]
}

/// A map of a library.
struct Native {
    functions: Functions,
    map: Handle,
    /// The values of a batch.
    values: Vec<u64>,
}

// SAFETY: a map of these libraries may be used by any thread, one at a time.
unsafe impl Send for Native {}

impl Native {
    fn new(functions: Functions) -> Native {
        // SAFETY: the function has no arguments.
        let map = unsafe { (functions.new)() };
        Native { functions, map, values: Vec::new() }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: the map was made by these functions, and is not used after this.
        unsafe { (self.functions.delete)(self.map) };
    }
}

impl Map for Native {
    fn put_many(&mut self, keys: &[u64]) -> Result<()> {
        // SAFETY: the map was made by these functions; there are as many keys as the length says.
        unsafe { (self.functions.put)(self.map, keys.as_ptr(), keys.len()) };
        Ok(())
    }

    fn get_many(&mut self, keys: &[u64], values: &mut [Option<u64>]) {
        self.values.resize(keys.len(), NONE);
        let found = self.values.as_mut_ptr();
        // SAFETY: the map was made by these functions; there are as many keys and values as the length says.
        unsafe { (self.functions.get)(self.map, keys.as_ptr(), keys.len(), found) };
        let found = self.values.iter().map(|value| (*value != NONE).then_some(*value));
        values.iter_mut().zip(found).for_each(|(value, found)| *value = found);
    }

    fn len(&self) -> u64 {
        // SAFETY: the map was made by these functions.
        unsafe { (self.functions.size)(self.map) as u64 }
    }
}

#[cfg(feature = "absl")]
unsafe extern "C" {
    fn absl_chains_new() -> Handle;
    fn absl_chains_delete(chains: Handle);
    fn absl_chains_size(chains: *const c_void) -> usize;
    fn absl_chains_append(chains: Handle, key: u64, record: *const u8, size: usize);
    fn absl_chains_get(chains: *const c_void, key: u64, size: *mut usize) -> *const u8;
}

#[cfg(feature = "absl")]
pub(super) fn of_appends() -> Peer {
    let new = |_: &Path| -> Result<Vec<Box<dyn Chains>>> {
        // SAFETY: the function has no arguments.
        Ok(vec![Box::new(AbslChains(unsafe { absl_chains_new() }))])
    };
    let note = "absl::flat_hash_map with a std::string for each key";
    Peer::of_appends("absl of std::string", note, Box::new(new))
}

/// An absl map to strings.
#[cfg(feature = "absl")]
struct AbslChains(Handle);

// SAFETY: the map may be used by any thread, one at a time.
#[cfg(feature = "absl")]
unsafe impl Send for AbslChains {}

#[cfg(feature = "absl")]
impl Drop for AbslChains {
    fn drop(&mut self) {
        // SAFETY: the map is there, and is not used after this.
        unsafe { absl_chains_delete(self.0) };
    }
}

#[cfg(feature = "absl")]
impl Chains for AbslChains {
    fn append_many(&mut self, records: &[Record]) -> Result<()> {
        for (key, record) in records {
            let key = u64::from_le_bytes(*key);
            // SAFETY: the map is there, and copies the record, which has this length.
            unsafe { absl_chains_append(self.0, key, record.as_ptr(), record.len()) };
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8; 8], value: &mut Vec<u8>) -> Result<bool> {
        let mut size = 0;
        value.clear();
        // SAFETY: the map is there. The value has the size that the function says, and stays until the next change.
        unsafe {
            let found = absl_chains_get(self.0, u64::from_le_bytes(*key), ptr::from_mut(&mut size));
            if found.is_null() {
                return Ok(false);
            }
            value.extend_from_slice(slice::from_raw_parts(found, size));
        }
        Ok(true)
    }

    fn len(&mut self) -> Result<u64> {
        // SAFETY: the map is there.
        unsafe { Ok(absl_chains_size(self.0) as u64) }
    }
}

//! BRZ of the C library cmph (Botelho, Pagh and Ziviani): an external-memory algorithm, the usual
//! baseline of papers.

use super::{Keys, Measured, Peer, build, check_minimal_perfect, time_gets};
use crate::{
    Result,
    data::{KEY_SIZE, Key},
    measure::TemporaryFolder,
};
use std::{
    ffi::{CString, c_char, c_int, c_uint, c_void},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::NonNull,
};

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    vec![Box::new(Brz::Fast), Box::new(Brz::Small)]
}

/// Variants of BRZ, which splits the keys into buckets and builds a function of another kind for
/// each.
#[derive(Clone, Copy, Debug)]
enum Brz {
    /// BMZ8, the library's default.
    Fast,
    /// FCH.
    Small,
}

impl Brz {
    /// Returns the size of the inner functions, which also selects their kind in the library.
    fn graph_size(self) -> f64 {
        match self {
            Brz::Fast => 1.0,
            Brz::Small => 2.6,
        }
    }
}

impl Peer for Brz {
    fn name(&self) -> String {
        match self {
            Brz::Fast => "cmph BRZ (BMZ8)".to_owned(),
            Brz::Small => "cmph BRZ (FCH)".to_owned(),
        }
    }

    fn note(&self) -> String {
        "order not preserved; takes keys, unsorted; spills to disk".to_owned()
    }

    fn round(&self, keys: &Keys, folder: &TemporaryFolder) -> Result<Measured> {
        let file = folder.path.join("brz");
        let (function, build_ns) = build(keys.count(), || {
            build_file(&keys.keys, self.graph_size(), &folder.path, &file)?;
            Function::load(&file)
        })?;
        check_minimal_perfect(&keys.keys, |key| function.get(key) as usize)?;
        Ok(Measured {
            bits_per_key: f64::from(function.packed_size()) * 8.0 / keys.count() as f64,
            build_ns,
            get_ns: time_gets(&keys.queries.keys, |key| function.get(key)),
            ..Measured::default()
        })
    }
}

/// An opaque pointer, as for all types of the library here.
type Handle = *mut c_void;

/// `CMPH_BRZ` in `cmph_types.h`.
const BRZ: c_int = 3;
/// Memory in mebibytes.
const MEMORY: u32 = 1024;

// From `cmph.h`.
unsafe extern "C" {
    fn cmph_io_struct_vector_adapter(
        vector: *const c_void,
        struct_size: c_uint,
        key_offset: c_uint,
        key_len: c_uint,
        nkeys: c_uint,
    ) -> Handle;
    fn cmph_io_struct_vector_adapter_destroy(adapter: Handle);
    fn cmph_config_new(adapter: Handle) -> Handle;
    fn cmph_config_set_algo(config: Handle, algo: c_int);
    fn cmph_config_set_graphsize(config: Handle, size: f64);
    fn cmph_config_set_tmp_dir(config: Handle, folder: *const c_char);
    fn cmph_config_set_mphf_fd(config: Handle, file: *mut libc::FILE);
    fn cmph_config_set_memory_availability(config: Handle, mebibytes: c_uint);
    fn cmph_config_destroy(config: Handle);
    fn cmph_new(config: Handle) -> Handle;
    fn cmph_dump(function: Handle, file: *mut libc::FILE) -> c_int;
    fn cmph_load(file: *mut libc::FILE) -> Handle;
    fn cmph_search(function: Handle, key: *const c_char, key_len: c_uint) -> c_uint;
    fn cmph_packed_size(function: Handle) -> c_uint;
    fn cmph_destroy(function: Handle);
}

/// A C stream, closed when dropped.
struct Stream(NonNull<libc::FILE>);

impl Stream {
    fn open(path: &Path, mode: &str) -> Result<Stream> {
        let (path, mode) = (CString::new(path.as_os_str().as_bytes())?, CString::new(mode)?);
        // SAFETY: both are strings that end in NUL.
        let file = unsafe { libc::fopen(path.as_ptr(), mode.as_ptr()) };
        Ok(Stream(NonNull::new(file).ok_or_else(io::Error::last_os_error)?))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is open and not in use any more.
        unsafe { libc::fclose(self.0.as_ptr()) };
    }
}

/// Builds the function of `keys` into a file. BRZ writes most of the file during the build.
fn build_file(keys: &[Key], graph_size: f64, spill: &Path, path: &Path) -> Result<()> {
    let spill = CString::new(format!("{}/", spill.display()))?;
    let file = Stream::open(path, "wb")?;
    let count = c_uint::try_from(keys.len())?;
    // SAFETY: the adapter reads `count` keys of KEY_SIZE bytes each, side by side in `keys`,
    // which outlives it; the configuration outlives neither the adapter nor the file; the string
    // is copied.
    let built = unsafe {
        let size = KEY_SIZE as c_uint;
        let adapter = cmph_io_struct_vector_adapter(keys.as_ptr().cast(), size, 0, size, count);
        let config = cmph_config_new(adapter);
        cmph_config_set_algo(config, BRZ);
        cmph_config_set_graphsize(config, graph_size);
        cmph_config_set_tmp_dir(config, spill.as_ptr());
        cmph_config_set_mphf_fd(config, file.0.as_ptr());
        cmph_config_set_memory_availability(config, MEMORY);
        let function = cmph_new(config);
        cmph_config_destroy(config);
        cmph_io_struct_vector_adapter_destroy(adapter);
        let dumped = !function.is_null() && cmph_dump(function, file.0.as_ptr()) != 0;
        if !function.is_null() {
            cmph_destroy(function);
        }
        dumped
    };
    if built { Ok(()) } else { Err("cmph gave no function".into()) }
}

/// A loaded function, never null.
struct Function(Handle);

impl Function {
    fn load(path: &Path) -> Result<Function> {
        let file = Stream::open(path, "rb")?;
        // SAFETY: the stream is open, and the library wrote its content.
        let function = unsafe { cmph_load(file.0.as_ptr()) };
        if function.is_null() { Err("cmph cannot load".into()) } else { Ok(Function(function)) }
    }

    #[inline]
    fn get(&self, key: &Key) -> u32 {
        // SAFETY: the function is loaded, and the key has KEY_SIZE bytes.
        unsafe { cmph_search(self.0, key.as_ptr().cast(), KEY_SIZE as c_uint) }
    }

    fn packed_size(&self) -> u32 {
        // SAFETY: the function is loaded.
        unsafe { cmph_packed_size(self.0) }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: the function is loaded and not in use any more.
        unsafe { cmph_destroy(self.0) };
    }
}

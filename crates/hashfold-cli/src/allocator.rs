//! The allocator of a server: memory of large buffers goes back to the system when they are freed.

/// Buffers from this size on are maps of their own, in bytes: the buffers of connections that do not read.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAP_BYTES_MIN: i32 = 64 << 10;

/// Free memory at the end of a heap from which on it is given back, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_BYTES_MIN: i32 = 1 << 20;

/// Makes the allocator give memory back. Without this, glibc raises its thresholds to 32 MiB with the first large
/// buffers that are freed, and keeps half as much again as the buffers of many connections take.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the allocator has no safe interface")]
pub(crate) fn give_memory_back() {
    // SAFETY: the call takes numbers only, and the allocator locks its own state.
    unsafe {
        // A refusal changes nothing: the server needs more memory then.
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAP_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES_MIN);
    }
}

/// Does nothing: only glibc keeps memory in this way.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_memory_back() {}

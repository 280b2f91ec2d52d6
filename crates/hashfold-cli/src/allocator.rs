//! Settings of glibc's allocator, for commands that keep a memory budget. Other allocators need none.

/// Buffers from this size on are maps of their own, in bytes: the buffers of sorts and merges, and of connections that do
/// not read.
const MAP_BYTES_MIN: i32 = 64 << 10;

/// Free memory at the end of a heap from which on it is given back, in bytes.
const TRIM_BYTES_MIN: i32 = 1 << 20;

/// What is set.
#[derive(Clone, Copy, Debug)]
enum Setting {
    HeapsMax,
    MapBytesMin,
    TrimBytesMin,
}

/// Makes all threads allocate from one heap that gives memory back, for a command that keeps a memory budget. Without this,
/// each thread has a heap of its own, and each heap keeps what was freed in it: a map then takes twice its budget. Threads
/// seldom allocate at the same time.
pub(crate) fn keep_to_budget() {
    set(Setting::HeapsMax, 1);
    give_memory_back();
}

/// Makes the allocator give memory back. Without this, it raises its thresholds to 32 MiB with the first large
/// buffers that are freed, and keeps half as much again as the buffers of many connections take.
pub(crate) fn give_memory_back() {
    set(Setting::MapBytesMin, MAP_BYTES_MIN);
    set(Setting::TrimBytesMin, TRIM_BYTES_MIN);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the allocator has no safe interface")]
fn set(setting: Setting, value: i32) {
    let parameter = match setting {
        Setting::HeapsMax => libc::M_ARENA_MAX,
        Setting::MapBytesMin => libc::M_MMAP_THRESHOLD,
        Setting::TrimBytesMin => libc::M_TRIM_THRESHOLD,
    };
    // SAFETY: the call takes numbers only, and the allocator locks its own state. A refusal changes nothing: the command
    // needs more memory then.
    unsafe { libc::mallopt(parameter, value) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn set(_: Setting, _: i32) {}

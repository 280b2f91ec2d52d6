//! Prefetching bytes into the cache of the processor.

/// Size of a cache line, in bytes.
pub(crate) const CACHE_LINE_BYTES: usize = 64;

/// Prefetches the item at `index` into the cache. Does nothing if `index` is past the end, or on a
/// processor without a known prefetch instruction.
#[inline]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = items.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[allow(unsafe_code)]
        // SAFETY: every x86-64 processor has SSE, which the instruction belongs to; the pointer
        // comes from a reference.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, index);
}

/// What the cache is filled by.
pub(crate) const CACHE_LINE_BYTES: usize = 64;

/// Starts to bring the item at `index` into the cache; nothing happens past the end, or on
/// processors that we know no instruction for.
#[inline]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = items.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[allow(unsafe_code)]
        // SAFETY: SSE, which the instruction belongs to, is part of every x86-64 processor; the
        // pointer comes from a reference.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, index);
}

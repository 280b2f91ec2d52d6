//! Keys that must not change before `EXEC`.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

/// The keys of a map, or of a data set in memory, that clients watch.
#[derive(Debug, Default)]
pub(in crate::data) struct Watches {
    by_key: Arc<Mutex<ByKey>>,
    /// Number of keys, so that changes take no lock while nobody watches.
    keys: Arc<AtomicUsize>,
}

type ByKey = HashMap<Vec<u8>, Vec<Weak<AtomicBool>>>;

/// A key that is watched, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    key: Vec<u8>,
    is_changed: Arc<AtomicBool>,
    /// The time at which the value expires that was there at the beginning.
    expires_at: Option<u64>,
    by_key: Arc<Mutex<ByKey>>,
    keys: Arc<AtomicUsize>,
}

impl Watches {
    /// Watches a key whose value expires at this time.
    pub(in crate::data) fn add(&self, key: &[u8], expires_at: Option<u64>) -> Watch {
        let is_changed = Arc::new(AtomicBool::new(false));
        let mut by_key = lock(&self.by_key);
        by_key.entry(key.to_vec()).or_default().push(Arc::downgrade(&is_changed));
        self.keys.store(by_key.len(), SeqCst);
        Watch {
            key: key.to_vec(),
            is_changed,
            expires_at,
            by_key: self.by_key.clone(),
            keys: self.keys.clone(),
        }
    }

    /// Notes a change of a key.
    pub(in crate::data) fn note(&self, key: &[u8]) {
        if self.keys.load(SeqCst) == 0 {
            return;
        }
        for flag in lock(&self.by_key).get(key).into_iter().flatten() {
            if let Some(flag) = flag.upgrade() {
                flag.store(true, Relaxed);
            }
        }
    }

    /// Returns all keys that are watched.
    pub(in crate::data) fn keys(&self) -> Vec<Vec<u8>> {
        lock(&self.by_key).keys().cloned().collect()
    }
}

impl Watch {
    /// Whether the key was changed, or its value has expired.
    pub(crate) fn is_changed(&self, now_ms: u64) -> bool {
        self.is_changed.load(Relaxed) || self.expires_at.is_some_and(|at| now_ms >= at)
    }

    /// Returns the memory of the watch, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + size_of::<Watch>()
    }

    /// Whether a map has the key.
    pub(super) fn is_of(&self, watches: &Watches) -> bool {
        Arc::ptr_eq(&self.by_key, &watches.by_key)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut by_key = lock(&self.by_key);
        if let Some(flags) = by_key.get_mut(&self.key) {
            flags.retain(|flag| !std::ptr::eq(flag.as_ptr(), Arc::as_ptr(&self.is_changed)));
            if flags.is_empty() {
                by_key.remove(&self.key);
            }
        }
        self.keys.store(by_key.len(), SeqCst);
    }
}

fn lock(by_key: &Mutex<ByKey>) -> MutexGuard<'_, ByKey> {
    by_key.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_sees_changes_of_its_key_and_the_end_of_its_value() {
        let watches = Watches::default();
        let (a, again, b) =
            (watches.add(b"a", None), watches.add(b"a", None), watches.add(b"b", Some(7)));
        assert!(!a.is_changed(100) && !b.is_changed(6) && b.is_changed(7));
        drop(again);
        watches.note(b"a");
        assert!(a.is_changed(0) && !b.is_changed(0));
        assert!(!watches.add(b"a", None).is_changed(0), "later watches start anew");
        drop((a, b));
        assert!(watches.keys().is_empty());
        assert_eq!(watches.keys.load(SeqCst), 0);
    }
}

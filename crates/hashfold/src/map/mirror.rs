//! Mirrors: which things that are read often have a copy, and where. Only RAM knows the copies: no file
//! names them.
//!
//! Time is counted in epochs, whose length the caller chooses. A thing is *hot* in an epoch in which it
//! was read much more often than others. When there is no room for another copy, copies of things
//! that have cooled down make way.

use super::sync::{AtomicU64, Mutex};
use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError, Weak, atomic::Ordering::Relaxed},
};

/// The reads of a thing, and its copy.
#[derive(Debug)]
pub(super) struct Mirror<T> {
    copy: Mutex<Option<Arc<T>>>,
    /// The epoch of the last read, and the number of reads in that epoch: 32 bits each.
    heat: AtomicU64,
}

impl<T> Default for Mirror<T> {
    fn default() -> Mirror<T> {
        Mirror { copy: Mutex::new(None), heat: AtomicU64::new(0) }
    }
}

impl<T> Mirror<T> {
    /// Counts a read. Returns the number of reads in this epoch.
    pub(super) fn count(&self, epoch: u32) -> u32 {
        let reads = self.reads(epoch).saturating_add(1);
        // Threads may lose a read of another one, which costs nothing.
        self.heat.store(u64::from(epoch) << 32 | u64::from(reads), Relaxed);
        reads
    }

    /// Returns the number of reads in this epoch.
    pub(super) fn reads(&self, epoch: u32) -> u32 {
        let heat = self.heat.load(Relaxed);
        if (heat >> 32) as u32 == epoch { heat as u32 } else { 0 }
    }

    /// Whether there was no read in this epoch and the one before it.
    fn is_cold(&self, epoch: u32) -> bool {
        epoch.wrapping_sub((self.heat.load(Relaxed) >> 32) as u32) > 1
    }

    /// Returns the copy.
    pub(super) fn copy(&self) -> Option<Arc<T>> {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes the copy. Its readers keep it until they have ended. Returns whether there was one.
    pub(super) fn remove(&self) -> bool {
        self.replace(None).is_some()
    }

    fn replace(&self, copy: Option<Arc<T>>) -> Option<Arc<T>> {
        let mut place = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, copy)
    }
}

/// All mirrors with a copy, each with the size of that; those that were looked at longest ago first.
#[derive(Debug)]
pub(super) struct Mirrors<T>(Mutex<VecDeque<(Weak<Mirror<T>>, u64)>>);

impl<T> Default for Mirrors<T> {
    fn default() -> Mirrors<T> {
        Mirrors(Mutex::default())
    }
}

impl<T> Mirrors<T> {
    /// Gives a copy to a mirror.
    pub(super) fn add(&self, mirror: &Arc<Mirror<T>>, copy: Arc<T>, size: u64) {
        let before = mirror.replace(Some(copy));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if before.is_none() {
            known.push_back((Arc::downgrade(mirror), size));
        }
    }

    /// Returns the size of all copies together.
    pub(super) fn size(&self) -> u64 {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        retain_live(&mut known);
        known.iter().map(|(_, size)| size).sum()
    }

    /// Removes copies of things that have cooled down, until another one of this size and all others
    /// together have at most `size_max`. Returns whether they have.
    pub(super) fn make_room(&self, size: u64, size_max: u64, epoch: u32) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        retain_live(&mut known);
        let mut sum: u64 = known.iter().map(|(_, size)| size).sum();
        for _ in 0..known.len() {
            if sum + size <= size_max {
                break;
            }
            let Some((mirror, copied)) = known.pop_front() else { break };
            match mirror.upgrade() {
                Some(mirror) if !mirror.is_cold(epoch) => {
                    known.push_back((Arc::downgrade(&mirror), copied));
                }
                mirror => {
                    mirror.inspect(|mirror| _ = mirror.remove());
                    sum -= copied;
                }
            }
        }
        sum + size <= size_max
    }

    /// Removes all copies. Returns whether there were some.
    pub(super) fn clear(&self) -> bool {
        let known = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let live = known.iter().filter_map(|(mirror, _)| mirror.upgrade());
        live.filter(|mirror| mirror.remove()).count() > 0
    }
}

/// Forgets mirrors without a copy.
fn retain_live<T>(known: &mut VecDeque<(Weak<Mirror<T>>, u64)>) {
    known.retain(|(mirror, _)| mirror.upgrade().is_some_and(|mirror| mirror.copy().is_some()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrored(mirrors: &Mirrors<u64>, epoch: u32, size: u64) -> Arc<Mirror<u64>> {
        let mirror = Arc::new(Mirror::default());
        mirror.count(epoch);
        mirrors.add(&mirror, Arc::new(size), size);
        mirror
    }

    #[test]
    fn reads_are_counted_in_each_epoch() {
        let mirror = Mirror::<u64>::default();
        assert_eq!([7, 7, 7, 8, 8].map(|epoch| mirror.count(epoch)), [1, 2, 3, 1, 2]);
        assert_eq!((mirror.reads(8), mirror.reads(9)), (2, 0));
        assert_eq!([8, 9, 10].map(|epoch| mirror.is_cold(epoch)), [false, false, true]);
    }

    #[test]
    fn copies_of_what_has_cooled_down_make_way() {
        let mirrors = Mirrors::default();
        let all = [(5, 4), (9, 3), (2, 2)].map(|(epoch, size)| mirrored(&mirrors, epoch, size));
        let copied = || all.each_ref().map(|mirror| mirror.copy().is_some());
        assert!(mirrors.make_room(1, 10, 10));
        assert_eq!((mirrors.size(), copied()), (9, [true; 3]));
        // The oldest goes first; then there is room.
        assert!(mirrors.make_room(3, 10, 10));
        assert_eq!((mirrors.size(), copied()), (5, [false, true, true]));
        // What is hot stays.
        assert!(!mirrors.make_room(8, 10, 10));
        assert_eq!((mirrors.size(), copied()), (3, [false, true, false]));
    }

    #[test]
    fn a_copy_goes_with_its_mirror_or_on_request() {
        let mirrors = Mirrors::default();
        let [a, b] = [1, 2].map(|size| mirrored(&mirrors, 1, size));
        let copy = Arc::downgrade(&a.copy().unwrap());
        drop(a);
        assert!(copy.upgrade().is_none());
        assert_eq!(mirrors.size(), 2);
        let read = b.copy().unwrap();
        assert!(mirrors.clear() && !mirrors.clear() && !b.remove());
        assert_eq!((mirrors.size(), *read), (0, 2));
    }
}

//! What a node has of its stores, which can change while it follows a group: its slots, and the versions in which
//! it has them open.

use hashfold::store::Version;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// The place of a node in the topology of a cluster, as it reports it. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct Placement(Arc<Mutex<Placed>>);

/// The place of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The epoch of the topology that the node acts by; `None` without a topology.
    pub epoch: Option<u64>,
    /// The ranges of slots that the node serves of its stores, first and last slot; all slots if there are none.
    pub slots: Vec<(u32, u32)>,
    /// Number of versions besides the current one that stay in each local store; `None` for that of
    /// [`FollowOptions`](crate::FollowOptions).
    pub keep: Option<usize>,
}

impl Placement {
    /// Takes a place. The node reports it at its next look at the pointer.
    pub fn set(&self, placed: Placed) {
        *self.lock() = placed;
    }

    /// Returns the place that the node has now.
    pub fn get(&self) -> Placed {
        self.lock().clone()
    }

    /// A place is never half written, so it can be used after a panic.
    fn lock(&self) -> MutexGuard<'_, Placed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The versions of a store that a node has open. Clones are the same list.
///
/// A node that gets more slots opens them in all of these versions before it answers for them
/// ([`ChosenSlots`](hashfold::ChosenSlots)).
#[derive(Clone, Default)]
pub struct OpenVersions(Arc<Mutex<Vec<Weak<Version>>>>);

impl OpenVersions {
    /// Adds a version, and opens the slots that were chosen since it was opened.
    ///
    /// # Errors
    /// A table of these slots cannot be opened; the version is in the list all the same.
    pub fn add(&self, version: &Arc<Version>) -> hashfold::Result<()> {
        let mut versions = self.lock();
        if !versions.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(version))) {
            versions.push(Arc::downgrade(version));
        }
        drop(versions);
        // Whoever chooses slots looks at the list after that: so either this call sees the choice, or the list
        // has this version then.
        version.open_chosen()
    }

    /// Opens the chosen slots in all versions.
    ///
    /// # Errors
    /// The first table that cannot be opened; the other versions have their slots open.
    pub fn open_chosen(&self) -> hashfold::Result<()> {
        let versions: Vec<Arc<Version>> = self.lock().iter().filter_map(Weak::upgrade).collect();
        versions.iter().map(|version| version.open_chosen()).fold(Ok(()), Result::and)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Version>>> {
        let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        versions.retain(|version| version.strong_count() > 0);
        versions
    }
}

impl fmt::Debug for OpenVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenVersions({})", self.lock().len())
    }
}

//! What the threads of a map share.

use super::{batches::Batches, watch::Watches};
use crate::{config::MapDurability, data::home::FilterHome};
use arc_swap::ArcSwapOption;
use hashfold::{Error, ErrorClass, ErrorKind, Result, io::Access, map::Map, work::Clock};
use hashfold_rows::Form;
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// How a map is opened.
#[derive(Clone, Debug)]
pub(crate) struct MapSettings {
    pub(crate) durability: MapDurability,
    /// Memory of the map, in bytes.
    pub(crate) memory_bytes: usize,
    /// Whether clients may change it.
    pub(crate) is_writable: bool,
    /// How blocks are read and written.
    pub(crate) access: Access,
    /// Folders of the other devices, if they have moved.
    pub(crate) devices: Vec<PathBuf>,
    /// Space for copies on a second device, in bytes.
    pub(crate) mirror_bytes: u64,
}

impl MapSettings {
    /// Returns the memory for the next keys that expire, in bytes: beside that of the map.
    pub(super) fn expiry_bytes(&self) -> usize {
        self.memory_bytes / 16
    }
}

/// What the threads of a map share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) map: Map,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: MapSettings,
    /// The form of the values.
    pub(super) form: Form,
    /// Held while the changes of a transaction become visible, so that lookups see all of them or none.
    pub(super) gate: RwLock<()>,
    /// Held by each batch, and by filters while they become visible.
    pub(super) batches: Batches,
    pub(super) watches: Watches,
    /// The filters of which the keys of the map are none.
    pub(super) filters: ArcSwapOption<FilterHome>,
    /// Why changes cannot be made durable, as long as they cannot.
    pub(super) sync_error: Mutex<Option<String>>,
    /// Milliseconds since 1970 at the last look at the clock: they never go back.
    pub(super) now_ms: AtomicU64,
}

impl Core {
    /// Returns the milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        let now = self.clock.unix_time().as_millis() as u64;
        self.now_ms.fetch_max(now, Relaxed).max(now)
    }

    /// Makes all changes durable. An error makes changes fail until a call succeeds.
    pub(super) fn sync(&self) -> Result<()> {
        let (end, durable) = (self.map.seq(), self.map.durable_seq());
        let synced = if durable < end { self.map.wait_durable(end) } else { Ok(()) };
        let error = synced.as_ref().err().map(ToString::to_string);
        *self.sync_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        synced
    }

    /// Returns why changes cannot be made durable, if they cannot.
    pub(super) fn sync_error(&self) -> Option<String> {
        self.sync_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the reply to a read that failed.
pub(super) fn read_failed(error: &Error) -> String {
    match error.class() {
        ErrorClass::Damage => format!("DAMAGED {error}"),
        _ => format!("ERR {error}"),
    }
}

/// Returns the reply to a write that failed.
pub(super) fn write_failed(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Memory { .. } => format!("OOM {error}"),
        ErrorKind::Limit { .. } => format!("ERR {error}"),
        _ => format!("MISCONF changes cannot be written: {error}"),
    }
}

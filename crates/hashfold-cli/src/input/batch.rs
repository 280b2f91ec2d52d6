//! Entries on their way from the thread that reads to the one that takes them.

use crate::failure::{Failure, Result};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// A batch is sent when it holds this much, in bytes or in entries.
pub(crate) const BATCH_BYTES: usize = 1 << 18;
const BATCH_ENTRIES: usize = 1 << 13;

/// Batches that wait at most unless told otherwise, so that a slow sorter holds the reader back.
pub(super) const BATCHES_WAITING: usize = 4;

/// Some keys and values, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    ends: Vec<Ends>,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    key: usize,
    /// Where the key ends if it is to be deleted.
    value: usize,
    is_deletion: bool,
}

impl Batch {
    /// The entries, in the order of the input; without a value where a key is to be deleted.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut start = 0;
        self.ends.iter().map(move |ends| {
            let (key, value) = (&self.bytes[start..ends.key], &self.bytes[ends.key..ends.value]);
            start = ends.value;
            (key, (!ends.is_deletion).then_some(value))
        })
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The memory that the entries take, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<Ends>()
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES || self.ends.len() >= BATCH_ENTRIES
    }

    /// Empties the batch, and gives back what a single long entry took.
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.bytes.shrink_to(2 * BATCH_BYTES);
    }
}

/// The end at which the reader puts entries in.
#[derive(Debug)]
pub(crate) struct BatchSender {
    batch: Batch,
    full: SyncSender<Batch>,
    empty: Receiver<Batch>,
}

/// The end at which the sorter takes batches out, and gives the empty ones back.
#[derive(Debug)]
pub(crate) struct BatchReceiver {
    pub(crate) full: Receiver<Batch>,
    pub(crate) empty: Sender<Batch>,
}

/// A queue of so many batches at most.
pub(crate) fn queue(waiting: usize) -> (BatchSender, BatchReceiver) {
    let (full_in, full_out) = sync_channel(waiting);
    let (empty_in, empty_out) = channel();
    let sender = BatchSender { batch: Batch::default(), full: full_in, empty: empty_out };
    (sender, BatchReceiver { full: full_out, empty: empty_in })
}

impl BatchSender {
    /// Appends an entry whose value `write` appends; `check` may refuse it when it is whole.
    #[inline]
    pub(super) fn push<E>(
        &mut self,
        key: &[u8],
        write: impl FnOnce(&mut Vec<u8>),
        check: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Batch { bytes, ends } = &mut self.batch;
        let start = bytes.len();
        bytes.extend_from_slice(key);
        let key_end = bytes.len();
        write(bytes);
        if let Err(error) = check(&bytes[key_end..]) {
            bytes.truncate(start);
            return Err(error);
        }
        ends.push(Ends { key: key_end, value: bytes.len(), is_deletion: false });
        Ok(())
    }

    /// Appends the deletion of a key.
    pub(super) fn delete(&mut self, key: &[u8]) {
        let Batch { bytes, ends } = &mut self.batch;
        bytes.extend_from_slice(key);
        ends.push(Ends { key: bytes.len(), value: bytes.len(), is_deletion: true });
    }

    /// Sends the batch on if it is full.
    #[inline]
    pub(super) fn turn(&mut self) -> Result<()> {
        if self.batch.is_full() { self.flush() } else { Ok(()) }
    }

    /// Sends on what there is, if there is anything.
    pub(super) fn pause(&mut self) -> Result<()> {
        if self.batch.ends.is_empty() { Ok(()) } else { self.flush() }
    }

    /// Sends what there is.
    pub(super) fn flush(&mut self) -> Result<()> {
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.clear();
        let batch = std::mem::replace(&mut self.batch, next);
        // The sorter has left; it says why itself.
        self.full.send(batch).map_err(|_| Failure::stopped())
    }
}

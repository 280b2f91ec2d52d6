//! A queue of entries between the thread that reads and the thread that takes them.

use crate::failure::{Failure, Result};
use hashfold::run::KEY_BYTES_MAX;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Size at which a batch is sent, in bytes; the limit on entries follows.
pub(crate) const BATCH_BYTES: usize = 1 << 18;
const BATCH_ENTRIES: usize = 1 << 13;

/// Default maximum number of waiting batches, for backpressure from a slow sorter to the reader.
pub(super) const BATCHES_WAITING: usize = 4;

/// Keys and values, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    ends: Vec<Ends>,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    key: usize,
    /// End of the key, for a deletion.
    value: usize,
    is_deletion: bool,
}

impl Batch {
    /// Returns a batch of keys with empty values.
    pub(crate) fn of_keys<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Result<Batch> {
        let mut batch = Batch::default();
        for key in keys {
            if key.len() > KEY_BYTES_MAX {
                return Err(Failure::usage(format!(
                    "a key has {} bytes, the longest that a data set has is {KEY_BYTES_MAX}",
                    key.len()
                )));
            }
            batch.bytes.extend_from_slice(key);
            let end = batch.bytes.len();
            batch.ends.push(Ends { key: end, value: end, is_deletion: false });
        }
        Ok(batch)
    }

    /// Returns the entries in the order of the input; a deletion has no value.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut start = 0;
        self.ends.iter().map(move |ends| {
            let (key, value) = (&self.bytes[start..ends.key], &self.bytes[ends.key..ends.value]);
            start = ends.value;
            (key, (!ends.is_deletion).then_some(value))
        })
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Memory of the entries, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<Ends>()
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES || self.ends.len() >= BATCH_ENTRIES
    }

    /// Empties the batch, and frees the memory of an unusually long entry.
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.bytes.shrink_to(2 * BATCH_BYTES);
    }
}

/// The reader's end of the queue.
#[derive(Debug)]
pub(crate) struct BatchSender {
    batch: Batch,
    full: SyncSender<Batch>,
    empty: Receiver<Batch>,
}

/// The sorter's end of the queue, which takes batches and returns empty ones.
#[derive(Debug)]
pub(crate) struct BatchReceiver {
    pub(crate) full: Receiver<Batch>,
    pub(crate) empty: Sender<Batch>,
}

/// Makes a queue with at most `waiting` batches.
pub(crate) fn queue(waiting: usize) -> (BatchSender, BatchReceiver) {
    let (full_in, full_out) = sync_channel(waiting);
    let (empty_in, empty_out) = channel();
    let sender = BatchSender { batch: Batch::default(), full: full_in, empty: empty_out };
    (sender, BatchReceiver { full: full_out, empty: empty_in })
}

impl BatchSender {
    /// Appends an entry whose value `write` appends or refuses; `check` may refuse the complete entry.
    #[inline]
    pub(super) fn push<E>(
        &mut self,
        key: &[u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
        check: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Batch { bytes, ends } = &mut self.batch;
        let start = bytes.len();
        bytes.extend_from_slice(key);
        let key_end = bytes.len();
        if let Err(error) = write(bytes).and_then(|()| check(&bytes[key_end..])) {
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

    /// Sends the batch if it is full.
    #[inline]
    pub(super) fn turn(&mut self) -> Result<()> {
        if self.batch.is_full() { self.flush() } else { Ok(()) }
    }

    /// Sends the batch unless it is empty.
    pub(super) fn pause(&mut self) -> Result<()> {
        if self.batch.ends.is_empty() { Ok(()) } else { self.flush() }
    }

    /// Sends the batch.
    pub(super) fn flush(&mut self) -> Result<()> {
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.clear();
        let batch = std::mem::replace(&mut self.batch, next);
        // The sorter has ended, and reports the reason itself.
        self.full.send(batch).map_err(|_| Failure::stopped())
    }
}

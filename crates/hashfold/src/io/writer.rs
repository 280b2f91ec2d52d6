//! Writing a file from start to end, in the background.

use super::{BlockFile, Buffer, queue::WriteQueue};
use crate::{error::Result, work::Executor};
use std::{fmt, mem, sync::Arc};

/// Size of a unit, in which files are written, in bytes.
pub const UNIT_SIZE: usize = 1 << 20;
/// Maximum number of units in flight.
const UNITS_IN_FLIGHT_MAX: usize = 3;
/// Maximum memory of a writer, in bytes: the units in flight, and the next one.
pub const WRITER_BYTES_MAX: usize = (UNITS_IN_FLIGHT_MAX + 1) * UNIT_SIZE;
const _: () = assert!(UNIT_SIZE.is_multiple_of(super::ALIGNMENT));

/// A writer of a new file from start to end, in large aligned units that are written in the
/// background.
///
/// A later call reports the error of a background write, at the latest [`Writer::finish`]; every
/// call after that fails.
pub struct Writer {
    file: Arc<dyn BlockFile>,
    queue: WriteQueue,
    /// The next bytes of the file.
    unit: Buffer,
    filled: usize,
    unit_start: u64,
    prepare: Prepare,
}

/// A callback that completes a unit in the background before it is written, for example with
/// checksums: takes the unit's offset in the file, and its bytes.
pub type Prepare = Arc<dyn Fn(u64, &mut [u8]) + Send + Sync>;

impl Writer {
    /// Makes a writer at the start of `file`; `executor` runs the writes.
    pub fn new(file: Arc<dyn BlockFile>, executor: Arc<dyn Executor>) -> Writer {
        Writer::starting_at(0, file, executor, Arc::new(|_, _| {}))
    }

    /// Makes a writer that starts at byte `start` of `file`. Units are [`UNIT_SIZE`] long, except
    /// for the last one.
    pub fn starting_at(
        start: u64,
        file: Arc<dyn BlockFile>,
        executor: Arc<dyn Executor>,
        prepare: Prepare,
    ) -> Writer {
        Writer {
            file,
            queue: WriteQueue::new(executor, UNITS_IN_FLIGHT_MAX),
            unit: Buffer::zeroed(UNIT_SIZE),
            filled: 0,
            unit_start: start,
            prepare,
        }
    }

    /// Returns the offset of the next byte from the start of the file.
    pub fn position(&self) -> u64 {
        self.unit_start + self.filled as u64
    }

    /// Appends `bytes`.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.make_room()?;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(UNIT_SIZE - self.filled));
            self.unit[self.filled..][..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            self.make_room()?;
        }
        Ok(())
    }

    /// Waits until everything is written. The caller must sync the file.
    pub fn finish(mut self) -> Result<()> {
        self.make_room()?;
        if self.filled > 0 {
            let last = mem::replace(&mut self.unit, Buffer::zeroed(0));
            self.start(last, self.filled)?;
        }
        self.queue.wait_until(0)
    }

    /// Starts to write the full unit, so that the next one can be filled.
    fn make_room(&mut self) -> Result<()> {
        self.queue.check("write", || self.file.place().clone())?;
        if self.filled < UNIT_SIZE {
            return Ok(());
        }
        self.filled = 0;
        let full = mem::replace(&mut self.unit, Buffer::zeroed(0));
        // Waiting comes before allocating the next unit, so the memory never exceeds
        // WRITER_BYTES_MAX.
        let started = self.start(full, UNIT_SIZE);
        self.unit_start += UNIT_SIZE as u64;
        self.unit = self.queue.take_buffer().unwrap_or_else(|| Buffer::zeroed(UNIT_SIZE));
        started
    }

    /// Writes the first `len` bytes of `unit` in the background.
    fn start(&mut self, unit: Buffer, len: usize) -> Result<()> {
        let (file, offset, prepare) = (self.file.clone(), self.unit_start, self.prepare.clone());
        let started = self.queue.start(unit, move |unit| {
            prepare(offset, &mut unit[..len]);
            file.write_at(offset, &unit[..len])
        });
        started.map(|_| ())
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({} at byte {})", self.file.place(), self.position())
    }
}

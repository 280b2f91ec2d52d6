//! Memory in units of one size, which never moves: it grows by segments, each twice as large as the one before.
//!
//! ```text
//! units   0 ..        | ..       | ..                   | ..
//! bytes   64 KiB      | 64 KiB   | 128 KiB              | 256 KiB, 512 KiB, …
//! ```
//!
//! Only the units in use are resident: growing populates the next step of the last segment, and with an executor a
//! background job populates some steps ahead, because the first access to a large page takes milliseconds.

use super::line::{LINE_BYTES, Line};
use crate::{
    error::{Error, ErrorKind, Result},
    io::Segment,
    run::prefetch::prefetch,
    work::{Executor, MemoryBudget, Reserved},
};
use std::sync::Arc;

/// Size of the first segment in bytes, a multiple of all unit sizes.
const FIRST_BYTES: usize = 1 << FIRST_LOG2;
const FIRST_LOG2: u32 = 16;

/// Maximum number of bytes that are populated ahead.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// The resident bytes divided by this number are populated ahead.
const AHEAD_PART: u64 = 64;

/// Two steps are populated ahead if that is more, but no more than the resident bytes divided by this number: one is
/// populated while the other is used.
const AHEAD_PART_MIN: u64 = 16;

/// Units of `UNIT` bytes, a multiple of a line and a divisor of 64 KiB.
#[derive(Debug)]
pub(super) struct Arena<const UNIT: usize> {
    segments: Vec<Segment>,
    /// Number of units that were ever in use; all free units are below.
    used: u32,
    /// Units that are not in use, the one freed last at the end.
    free: Vec<u32>,
    /// Bytes from the first segment on that are resident, or will be.
    populated: u64,
    /// The reservation of the `populated` bytes in the budget.
    reserved: Reserved,
    /// The executor of jobs that populate memory ahead.
    executor: Option<Arc<dyn Executor>>,
}

impl<const UNIT: usize> Arena<UNIT> {
    const CHECKED: () =
        assert!(UNIT.is_multiple_of(LINE_BYTES) && FIRST_BYTES.is_multiple_of(UNIT));

    /// Makes an arena without memory.
    pub(super) fn new(budget: &MemoryBudget, executor: Option<Arc<dyn Executor>>) -> Arena<UNIT> {
        let () = Self::CHECKED;
        let reserved = budget.reserve(0).expect("0 bytes are in every limit");
        let (segments, free) = (Vec::new(), Vec::new());
        Arena { segments, used: 0, free, populated: 0, reserved, executor }
    }

    /// Returns the memory that the arena has, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.populated + (self.free.capacity() * size_of::<u32>()) as u64
    }

    /// Returns the number of units in use.
    pub(super) fn units(&self) -> u64 {
        u64::from(self.used) - self.free.len() as u64
    }

    /// Returns the bytes of units that are not in use.
    pub(super) fn free_bytes(&self) -> u64 {
        (self.free.len() * UNIT) as u64
    }

    /// Makes sure that this number of calls of [`Arena::allocate`] succeed.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; `Limit` if no more units can be numbered; errors of the system.
    pub(super) fn ensure(&mut self, units: usize) -> Result<()> {
        let Some(more) = units.checked_sub(self.free.len()).filter(|more| *more > 0) else {
            return Ok(());
        };
        let limit = u64::from(u32::MAX - 1);
        let used = u64::from(self.used) + more as u64;
        if used > limit {
            return Err(ErrorKind::Limit { what: "units of memory", limit, got: used }.into());
        }
        let end = used * UNIT as u64;
        while self.populated < end {
            self.populate_step()?;
        }
        self.populate_ahead(end);
        Ok(())
    }

    /// Returns a unit with arbitrary contents.
    ///
    /// # Errors
    /// Those of [`Arena::ensure`].
    pub(super) fn allocate(&mut self) -> Result<u32> {
        if let Some(unit) = self.free.pop() {
            return Ok(unit);
        }
        self.ensure(1)?;
        self.used += 1;
        Ok(self.used - 1)
    }

    /// Takes a unit back.
    pub(super) fn release(&mut self, unit: u32) {
        debug_assert!(unit < self.used);
        self.free.push(unit);
    }

    /// Makes the next step resident.
    fn populate_step(&mut self) -> Result<()> {
        let (index, start) = segment_of(self.populated);
        let len = segment_bytes(index);
        let step = Segment::step(len).min(len - start);
        self.reserve(index, step)?;
        let part = self.segments[index].part(start, step);
        part.populate().inspect_err(|_| self.give_back())?;
        self.populated += step as u64;
        Ok(())
    }

    /// Reserves the next `len` bytes in the budget, and addresses for them in a segment.
    fn reserve(&mut self, index: usize, len: usize) -> Result<()> {
        self.reserved.resize(self.populated + len as u64)?;
        if index == self.segments.len() {
            let segment =
                Segment::reserve(segment_bytes(index)).inspect_err(|_| self.give_back())?;
            self.segments.push(segment);
        }
        Ok(())
    }

    /// Sets the reservation back to what is populated.
    fn give_back(&mut self) {
        let shrunk = self.reserved.resize(self.populated);
        debug_assert!(shrunk.is_ok());
    }

    /// Spawns a job that populates the next steps, if few of those that are populated are not in use: bytes from
    /// `end` on. Without memory for that, steps are populated when they are needed.
    fn populate_ahead(&mut self, end: u64) {
        let Some(executor) = self.executor.clone().filter(|executor| executor.width() > 0) else {
            return;
        };
        let (index, start) = segment_of(self.populated);
        let len = segment_bytes(index);
        let step = Segment::step(len);
        let two = (2 * step as u64).min(self.populated / AHEAD_PART_MIN);
        let ahead =
            (self.populated / AHEAD_PART).clamp(two, AHEAD_BYTES_MAX) as usize / step * step;
        let ahead = ahead.min(len - start);
        let is_due = ahead > 0 && self.populated - end <= ahead as u64 / 2;
        if is_due && self.reserve(index, ahead).is_ok() {
            let part = self.segments[index].part(start, ahead);
            // An error is not reported: these bytes count as populated, and become resident at their first access. If
            // there is no memory then, the system ends the process; without this job, `populate_step` returns an error.
            executor.spawn(Box::new(move || drop(part.populate())));
            self.populated += ahead as u64;
        }
    }

    /// Returns the segment and the offset in it of a line of a unit.
    #[inline]
    fn place(unit: u32, line: usize) -> (usize, usize) {
        debug_assert!(line < UNIT / LINE_BYTES);
        let (index, start) = segment_of(u64::from(unit) * UNIT as u64);
        (index, start + line * LINE_BYTES)
    }

    /// Returns a line of a unit.
    #[inline]
    pub(super) fn line(&self, unit: u32, line: usize) -> &Line {
        let (index, start) = Self::place(unit, line);
        let bytes = &self.segments[index][start..start + LINE_BYTES];
        bytes.try_into().expect("a line has this size")
    }

    /// Returns a line of a unit, to be changed.
    #[inline]
    pub(super) fn line_mut(&mut self, unit: u32, line: usize) -> &mut Line {
        let (index, start) = Self::place(unit, line);
        let bytes = &mut self.segments[index][start..start + LINE_BYTES];
        bytes.try_into().expect("a line has this size")
    }

    /// Returns a unit.
    #[inline]
    pub(super) fn unit(&self, unit: u32) -> &[u8; UNIT] {
        let (index, start) = Self::place(unit, 0);
        let bytes = &self.segments[index][start..start + UNIT];
        bytes.try_into().expect("a unit has this size")
    }

    /// Returns a unit, to be changed.
    #[inline]
    pub(super) fn unit_mut(&mut self, unit: u32) -> &mut [u8; UNIT] {
        let (index, start) = Self::place(unit, 0);
        let bytes = &mut self.segments[index][start..start + UNIT];
        bytes.try_into().expect("a unit has this size")
    }

    /// Prefetches a line of a unit.
    #[inline]
    pub(super) fn prefetch(&self, unit: u32, line: usize) {
        let (index, start) = Self::place(unit, line);
        if let Some(segment) = self.segments.get(index) {
            prefetch(segment, start);
        }
    }
}

/// Returns the segment of a byte, and its offset in the segment.
#[inline]
fn segment_of(byte: u64) -> (usize, usize) {
    let index = u64::BITS - (byte >> FIRST_LOG2).leading_zeros();
    // All segments but the first begin at their own size.
    let start = (1 << (index + FIRST_LOG2 - 1)) & !(FIRST_BYTES as u64 - 1);
    (index as usize, (byte - start) as usize)
}

/// Returns the size of a segment, in bytes.
fn segment_bytes(index: usize) -> usize {
    FIRST_BYTES << index.saturating_sub(1)
}

/// Returns the error of too many units in one place.
pub(super) fn crowded(what: &'static str, limit: u64) -> Error {
    ErrorKind::Limit { what, limit, got: limit + 1 }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Threads;

    #[test]
    fn segments_follow_each_other_without_gaps() {
        let (mut index, mut end) = (0, 0);
        for byte in (0..1 << 21).step_by(64) {
            if byte == end {
                end += segment_bytes(index) as u64;
                index += 1;
            }
            let start = end - segment_bytes(index - 1) as u64;
            assert_eq!(segment_of(byte), (index - 1, (byte - start) as usize));
        }
        assert_eq!(segment_of((1 << 40) + 5), (25, 5));
    }

    /// All units keep what is written to them while the arena grows, with and without a job that populates memory.
    #[test]
    fn units_stay_where_they_are() {
        let threads: Arc<dyn Executor> = Arc::new(Threads::new(1));
        for executor in [None, Some(threads)] {
            let budget = MemoryBudget::unlimited();
            let mut arena = Arena::<1024>::new(&budget, executor);
            let units: Vec<u32> = (0..20_000).map(|_| arena.allocate().unwrap()).collect();
            for unit in &units {
                arena.line_mut(*unit, 15)[..4].copy_from_slice(&unit.to_le_bytes());
            }
            assert!(units.iter().all(|unit| arena.unit(*unit)[960..964] == unit.to_le_bytes()));
            units.iter().for_each(|unit| arena.release(*unit));
            assert_eq!((arena.units(), arena.allocate().unwrap()), (0, 19_999));
            assert!(budget.reserved() >= 20_000 * 1024 && budget.reserved() < 24_000 * 1024);
        }
    }

    #[test]
    fn a_budget_that_is_met_changes_nothing() {
        let budget = MemoryBudget::new(3 << 16);
        let mut arena = Arena::<1024>::new(&budget, None);
        let count = (0..).map_while(|_| arena.allocate().ok()).count();
        assert_eq!((count, arena.bytes()), (192, 3 << 16));
        assert!(matches!(arena.allocate().unwrap_err().kind(), ErrorKind::Memory { .. }));
        arena.release(5);
        assert_eq!(arena.allocate().unwrap(), 5);
        drop(arena);
        assert_eq!(budget.reserved(), 0);
    }
}

//! Memory in units of one size, which never moves: it grows by segments of 32 MiB of addresses.
//!
//! Only the units in use are resident, in [`steps`](super::steps): growing populates the next step, and with an executor
//! a background job populates some steps ahead, because the first access to a large page takes milliseconds. A step of
//! which no unit is in use any more is given back to the system, unless it is one of few that are kept.

use super::{
    line::{LINE_BYTES, Line},
    short::Pieces,
    steps::{LARGE_MIN, Steps, span},
};
use crate::{
    error::{Error, ErrorKind, Result},
    io::{Part, SEGMENT_BYTES, Segment},
    run::prefetch::prefetch,
    work::{Executor, MemoryBudget, Reserved},
};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of lines in a segment.
const SEGMENT_LINES: usize = SEGMENT_BYTES / LINE_BYTES;

/// All segments but the first have large pages only.
const _: () = assert!(LARGE_MIN <= SEGMENT_BYTES);

/// Number of units that can be told apart, at most.
pub(super) const UNITS_MAX: u32 = u32::MAX - 1;

/// Maximum number of bytes that are populated ahead.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// The resident bytes divided by this number are populated ahead.
const AHEAD_PART: u64 = 128;

/// Two steps are populated ahead if that is more, but no more than the resident bytes divided by this number: one is
/// populated while the other is used. One step is populated ahead if as many as two are resident, since a large one takes
/// milliseconds.
const AHEAD_PART_MIN: u64 = 16;

/// Number of steps that are given back at a time, beside as many as have become empty since: up to 8 MiB, in less than a
/// millisecond.
const GIVEN_MAX: usize = 4;

/// Units of `UNIT` bytes, a multiple of a line and a divisor of 64 KiB.
#[derive(Debug)]
pub(super) struct Arena<const UNIT: usize> {
    segments: Vec<Segment>,
    steps: Steps<UNIT>,
    /// Maximum number of units.
    units_max: u32,
    /// The reservation of the resident bytes in the budget.
    reserved: Reserved,
    /// The executor of jobs that populate memory ahead.
    executor: Option<Arc<dyn Executor>>,
    /// Cloned by each of these jobs until it ends.
    spare: Arc<Spare>,
}

/// The segment after the last one, which a job reserves: reserving takes as long as the populating of other memory, which is
/// milliseconds, because the system locks the addresses of a process for both.
#[derive(Debug, Default)]
struct Spare(Mutex<Option<Segment>>);

impl Spare {
    /// Returns the segment, if there is one.
    fn take(&self) -> Option<Segment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reserves a segment if there is none. Without addresses for it, the arena reports that when it needs them.
    fn fill(&self) {
        let is_filled = || self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !is_filled() {
            // Not under the lock, for which the arena would wait.
            let segment = Segment::reserve(0).ok();
            let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let other = std::mem::replace(&mut *spare, segment);
            drop(spare);
            // Of another job.
            drop(other);
        }
    }
}

impl<const UNIT: usize> Arena<UNIT> {
    const CHECKED: () =
        assert!(UNIT.is_multiple_of(LINE_BYTES) && SEGMENT_BYTES.is_multiple_of(UNIT));

    /// Makes an arena without memory, for at most `units_max` units.
    pub(super) fn new(
        budget: &MemoryBudget,
        executor: Option<Arc<dyn Executor>>,
        units_max: u32,
    ) -> Arena<UNIT> {
        let () = Self::CHECKED;
        let reserved = budget.reserve(0).expect("0 bytes are in every limit");
        let (segments, steps, spare) = (Vec::new(), Steps::new(), Arc::default());
        Arena { segments, steps, units_max, reserved, executor, spare }
    }

    /// Returns the memory that the arena has, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.steps.resident() + self.steps.bytes()
    }

    /// Returns the number of units in use.
    pub(super) fn units(&self) -> u64 {
        self.steps.used()
    }

    /// Returns the resident bytes of units that are not in use.
    pub(super) fn free_bytes(&self) -> u64 {
        self.steps.free() * UNIT as u64
    }

    /// Returns the first unit behind the first ones in memory that have room for all units in use, if memory would be given back
    /// once none is in use behind it.
    pub(super) fn end_of_room(&mut self) -> Option<u32> {
        self.steps.end_of_room()
    }

    /// Makes sure that this number of calls of [`Arena::allocate`] succeed, if [`Arena::give_back`] is not called between.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; `Limit` if there would be too many units; errors of the system.
    #[inline]
    pub(super) fn ensure(&mut self, units: usize) -> Result<()> {
        if self.steps.free() < units as u64 {
            self.populate_steps(units as u64)?;
        }
        if self.executor.is_some() {
            self.populate_ahead(units as u64);
        }
        Ok(())
    }

    /// Returns a unit with arbitrary contents.
    ///
    /// # Errors
    /// Those of [`Arena::ensure`].
    pub(super) fn allocate(&mut self) -> Result<u32> {
        self.ensure(1)?;
        let segments = &self.segments;
        Ok(self.steps.take(|unit| {
            let line = line_of(segments, Self::at(unit, 0));
            u32::from_le_bytes(*line.first_chunk().expect("a line is longer"))
        }))
    }

    /// Takes a unit back. Its contents are lost.
    pub(super) fn release(&mut self, unit: u32) {
        debug_assert!(unit < self.units_max);
        let next = self.steps.put(unit);
        self.unit_mut(unit)[..size_of::<u32>()].copy_from_slice(&next.to_le_bytes());
    }

    /// Gives steps of which no unit is in use back to the system, but for those that are kept: as many as have become empty since
    /// the last call, and some of those before. What was made sure of by [`Arena::ensure`] is not so any more.
    #[inline]
    pub(super) fn give_back(&mut self) {
        let emptied = self.steps.take_emptied();
        if emptied > 0 {
            self.give_steps_back(emptied, emptied + GIVEN_MAX);
        }
    }

    /// Whether steps have become empty that [`Arena::give_back`] would look at.
    #[inline]
    pub(super) fn has_emptied(&self) -> bool {
        self.steps.has_emptied()
    }

    /// Does what [`Arena::give_back`] does for some steps, however many have become empty; returns whether there are others.
    pub(super) fn give_some_back(&mut self) -> bool {
        let emptied = self.steps.take_emptied();
        emptied > 0 && self.give_steps_back(1, GIVEN_MAX)
    }

    /// Gives at most `limit` steps back; returns whether there are others, of which a later call gives some back. If that is not
    /// possible now, `emptied` are still counted as such.
    #[cold]
    fn give_steps_back(&mut self, emptied: usize, limit: usize) -> bool {
        if Arc::strong_count(&self.spare) > 1 {
            // A job could make them resident again.
            self.steps.put_emptied(emptied);
            return false;
        }
        let mut given = 0;
        while given < limit
            && let Some(step) = self.steps.surplus()
            && self.give_step_back(step)
        {
            given += 1;
        }
        self.set_reserved();
        let has_others = given == limit && self.steps.surplus().is_some();
        if has_others {
            self.steps.put_emptied(1);
        }
        has_others
    }

    /// Makes the next steps resident, until this number of units is free. After an error, none of them is.
    #[cold]
    fn populate_steps(&mut self, units: u64) -> Result<()> {
        let mut entered = Vec::new();
        while self.steps.free() < units {
            match self.populate_step() {
                Ok(step) => entered.push(step),
                Err(error) => {
                    entered.into_iter().rev().for_each(|step| _ = self.give_step_back(step));
                    self.set_reserved();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Makes the next step resident, and returns it.
    fn populate_step(&mut self) -> Result<usize> {
        let step = self.reserve_step()?;
        self.part(step).populate()?;
        self.steps.enter(step);
        Ok(step)
    }

    /// Gives a step without a unit in use back to the system; returns whether the system takes it. No job populates it.
    fn give_step_back(&mut self, step: usize) -> bool {
        let (index, start, len) = part_of(step);
        let is_given = self.segments[index].give_back(start, len);
        if is_given {
            self.steps.leave(step);
        }
        is_given
    }

    /// Reserves memory for the next step in the budget, and addresses for it in a segment; returns the step.
    fn reserve_step(&mut self) -> Result<usize> {
        let step = self.steps.next();
        let (byte, len) = span(step);
        let (limit, got) = (u64::from(self.units_max), (byte + len as u64) / UNIT as u64);
        if got > limit {
            return Err(ErrorKind::Limit { what: "units of memory", limit, got }.into());
        }
        self.reserved.resize(self.steps.resident() + len as u64)?;
        let (index, ..) = part_of(step);
        if index == self.segments.len() {
            let large_from = if index == 0 { LARGE_MIN } else { 0 };
            let segment = self.spare.take().map_or_else(|| Segment::reserve(large_from), Ok);
            let segment = segment.inspect_err(|_| self.set_reserved())?;
            self.segments.push(segment);
        }
        Ok(step)
    }

    /// Returns the bytes of a step, for populating them.
    fn part(&self, step: usize) -> Part {
        let (index, start, len) = part_of(step);
        self.segments[index].part(start, len)
    }

    /// Sets the reservation to what is resident.
    fn set_reserved(&mut self) {
        let shrunk = self.reserved.resize(self.steps.resident());
        debug_assert!(shrunk.is_ok());
    }

    /// Spawns a job that populates the next steps, if there are few free units beside the next `units`. Without memory for
    /// that, steps are populated when they are needed.
    fn populate_ahead(&mut self, units: u64) {
        let (resident, step) = (self.steps.resident(), self.next_bytes());
        let two = (2 * step).min(resident / AHEAD_PART_MIN);
        let least = if resident >= 2 * step { two.max(step) } else { two };
        let ahead = (resident / AHEAD_PART).clamp(least, AHEAD_BYTES_MAX) / step * step;
        if ahead == 0 || (self.steps.free() - units) * UNIT as u64 > ahead / 2 {
            return;
        }
        let Some(executor) = self.executor.clone().filter(|executor| executor.width() > 0) else {
            return;
        };
        let (mut parts, mut bytes) = (Vec::new(), 0);
        while bytes + self.next_bytes() <= ahead
            && let Ok(step) = self.reserve_step()
        {
            let part = self.part(step);
            bytes += part.len() as u64;
            parts.push(part);
            self.steps.enter(step);
        }
        if !parts.is_empty() {
            let (spare, is_needed) = (self.spare.clone(), self.needs_spare());
            // An error is not reported: these bytes count as populated, and become resident at their first access. If
            // there is no memory then, the system ends the process; without this job, `populate_step` returns an error.
            executor.spawn(Box::new(move || {
                if is_needed {
                    spare.fill();
                }
                parts.iter().for_each(|part| drop(part.populate()));
                drop(spare);
            }));
        }
    }

    /// Whether the step that becomes resident next is in the second half of its segment, or begins a new one.
    fn needs_spare(&mut self) -> bool {
        let (_, start, len) = part_of(self.steps.next());
        start + len > SEGMENT_BYTES / 2 || start == 0
    }

    /// Returns the size of the step that becomes resident next, in bytes.
    fn next_bytes(&mut self) -> u64 {
        span(self.steps.next()).1 as u64
    }

    /// Returns the resident bytes as the system counts them.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn system_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.resident_bytes() as u64).sum()
    }

    /// Returns where a line of a unit is.
    #[inline]
    pub(super) fn at(unit: u32, line: usize) -> At {
        debug_assert!(line < UNIT / LINE_BYTES);
        At(u64::from(unit) * (UNIT / LINE_BYTES) as u64 + line as u64)
    }

    /// Returns the unit of a line.
    #[inline]
    pub(super) fn unit_of(at: At) -> u32 {
        (at.0 / (UNIT / LINE_BYTES) as u64) as u32
    }

    /// Returns the number of a line in its unit.
    #[inline]
    pub(super) fn line_in_unit(at: At) -> usize {
        (at.0 % (UNIT / LINE_BYTES) as u64) as usize
    }

    /// Returns a line.
    #[inline]
    pub(super) fn line(&self, at: At) -> &Line {
        line_of(&self.segments, at)
    }

    /// Returns a line, to be changed.
    #[inline]
    pub(super) fn line_mut(&mut self, at: At) -> &mut Line {
        &mut self.segments[at.segment()].as_chunks_mut().0[at.line()]
    }

    /// Returns a unit.
    #[inline]
    pub(super) fn unit(&self, unit: u32) -> &[u8; UNIT] {
        let (segment, place) = Self::place(unit);
        &self.segments[segment].as_chunks().0[place]
    }

    /// Returns a unit, to be changed.
    #[inline]
    pub(super) fn unit_mut(&mut self, unit: u32) -> &mut [u8; UNIT] {
        let (segment, place) = Self::place(unit);
        &mut self.segments[segment].as_chunks_mut().0[place]
    }

    /// Returns the segment of a unit, and its place among the units there.
    #[inline]
    fn place(unit: u32) -> (usize, usize) {
        let units = SEGMENT_BYTES / UNIT;
        (unit as usize / units, unit as usize % units)
    }

    /// Copies bytes from a unit and an offset in it to others. They may overlap.
    #[inline]
    pub(super) fn copy(&mut self, from: (u32, usize), to: (u32, usize), len: usize) {
        let place = |(unit, offset)| {
            let (segment, place) = Self::place(unit);
            (segment, place * UNIT + offset)
        };
        let ((from_segment, from), (to_segment, to)) = (place(from), place(to));
        if Pieces::SIZES.contains(&len) {
            let pieces = Pieces::read(&self.segments[from_segment][from..from + len]);
            return pieces.write(&mut self.segments[to_segment][to..to + len]);
        }
        if from_segment == to_segment {
            return self.segments[to_segment].copy_within(from..from + len, to);
        }
        let both = self.segments.get_disjoint_mut([from_segment, to_segment]);
        let [source, target] = both.expect("two segments of the arena");
        target[to..to + len].copy_from_slice(&source[from..from + len]);
    }

    /// Prefetches all lines of a unit.
    #[inline]
    pub(super) fn prefetch_unit(&self, unit: u32) {
        let unit = self.unit(unit).as_chunks::<LINE_BYTES>().0;
        (0..unit.len()).for_each(|line| prefetch(unit, line));
    }

    /// Prefetches a line.
    #[inline]
    pub(super) fn prefetch(&self, at: At) {
        if let Some(segment) = self.segments.get(at.segment()) {
            prefetch(segment.as_chunks::<LINE_BYTES>().0, at.line());
        }
    }

    /// Prefetches the lines between two others, at most `most`.
    #[inline]
    pub(super) fn prefetch_between(&self, [first, last]: [At; 2], most: usize) {
        (first.0 + 1..last.0).take(most).for_each(|line| self.prefetch(At(line)));
    }
}

/// Where a line of an arena is: its number among the lines of all segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At(u64);

impl At {
    /// The first line.
    pub(super) const FIRST: At = At(0);

    /// Returns the line behind this one.
    #[inline]
    pub(super) fn next(self) -> At {
        At(self.0 + 1)
    }

    /// Returns the number of lines from this one to a later one.
    #[inline]
    pub(super) fn to(self, later: At) -> usize {
        (later.0 - self.0) as usize
    }

    /// Returns the number of its segment.
    #[inline]
    fn segment(self) -> usize {
        (self.0 / SEGMENT_LINES as u64) as usize
    }

    /// Returns its number in its segment.
    #[inline]
    fn line(self) -> usize {
        (self.0 % SEGMENT_LINES as u64) as usize
    }
}

#[inline]
fn line_of(segments: &[Segment], at: At) -> &Line {
    &segments[at.segment()].as_chunks().0[at.line()]
}

/// Returns the segment of a step, and the first byte of the step in it and its size in bytes.
fn part_of(step: usize) -> (usize, usize, usize) {
    let (byte, len) = span(step);
    ((byte / SEGMENT_BYTES as u64) as usize, (byte % SEGMENT_BYTES as u64) as usize, len)
}

/// Returns the error of too many units in one place.
pub(super) fn crowded(what: &'static str, limit: u64) -> Error {
    ErrorKind::Limit { what, limit, got: limit + 1 }.into()
}

#[cfg(test)]
mod tests {
    use super::{super::mix::mix, *};
    use crate::{key::Seed, work::Threads};

    #[test]
    fn a_step_is_in_one_segment() {
        let mut end = 0;
        for step in 0..1000 {
            let (segment, start, len) = part_of(step);
            assert_eq!(segment * SEGMENT_BYTES + start, end);
            assert!(start + len <= SEGMENT_BYTES);
            end += len;
        }
    }

    /// All units keep what is written to them while the arena grows, with and without a job that populates memory.
    #[test]
    fn units_stay_where_they_are() {
        let threads: Arc<dyn Executor> = Arc::new(Threads::new(1));
        for executor in [None, Some(threads)] {
            let budget = MemoryBudget::unlimited();
            let mut arena = Arena::<1024>::new(&budget, executor, UNITS_MAX);
            let units: Vec<u32> = (0..20_000).map(|_| arena.allocate().unwrap()).collect();
            for unit in &units {
                arena.line_mut(Arena::<1024>::at(*unit, 15))[..4]
                    .copy_from_slice(&unit.to_le_bytes());
            }
            assert!(units.iter().all(|unit| arena.unit(*unit)[960..964] == unit.to_le_bytes()));
            assert!(budget.reserved() >= 20_000 * 1024 && budget.reserved() < 24_000 * 1024);
            units.iter().for_each(|unit| arena.release(*unit));
            // The unit of the first step that was freed last.
            assert_eq!((arena.units(), arena.allocate().unwrap()), (0, 63));
        }
    }

    /// All bytes are copied, and no others, whatever their number, and whether the units are in one segment or not.
    #[test]
    fn bytes_of_any_number_are_copied_between_units() {
        let mut arena = Arena::<1024>::new(&MemoryBudget::unlimited(), None, UNITS_MAX);
        let units: Vec<u32> = (0..33 << 10).map(|_| arena.allocate().unwrap()).collect();
        assert!(arena.segments.len() > 1);
        let (from, near, far) = (units[0], units[1], units[32 << 10]);
        let pattern: [u8; 1024] = std::array::from_fn(|i| mix(i as u64, Seed(2)) as u8 & 0x7F);
        *arena.unit_mut(from) = pattern;
        for to in [near, far] {
            for len in 0..=200 {
                *arena.unit_mut(to) = [0xFF; 1024];
                arena.copy((from, 7), (to, 100), len);
                let (before, rest) = arena.unit(to).split_at(100);
                let (copied, behind) = rest.split_at(len);
                assert!(*copied == pattern[7..7 + len], "{len}");
                assert!(before.iter().chain(behind).all(|byte| *byte == 0xFF), "{len}");
            }
        }
        for len in 0..=200 {
            *arena.unit_mut(from) = pattern;
            arena.copy((from, 7), (from, 20), len);
            assert!(arena.unit(from)[20..20 + len] == pattern[7..7 + len], "{len}");
        }
    }

    /// A job reserves the next segment while the second half of the last one is populated; the arena takes that one.
    #[test]
    fn a_segment_is_reserved_before_it_is_needed() {
        let executor: Arc<dyn Executor> = Arc::new(Threads::new(1));
        let mut arena = Arena::<1024>::new(&MemoryBudget::unlimited(), Some(executor), UNITS_MAX);
        let spare_after = |arena: &mut Arena<1024>, units: u64| {
            while arena.units() < units {
                arena.allocate().unwrap();
            }
            while Arc::strong_count(&arena.spare) > 1 {
                std::thread::yield_now();
            }
            arena.spare.0.lock().unwrap().as_ref().map(|segment| segment.as_ptr())
        };
        assert_eq!(spare_after(&mut arena, 8 << 10), None);
        let spare = spare_after(&mut arena, 24 << 10);
        assert!(spare.is_some() && arena.segments.len() == 1);
        spare_after(&mut arena, 40 << 10);
        assert_eq!(spare, Some(arena.segments[1].as_ptr()));
    }

    /// Once a table has two steps of their size, a step is there before the one before it is full.
    #[test]
    fn memory_is_populated_before_it_is_needed() {
        let executor: Arc<dyn Executor> = Arc::new(Threads::new(1));
        let mut arena = Arena::<1024>::new(&MemoryBudget::unlimited(), Some(executor), UNITS_MAX);
        for unit in 0..40 << 10 {
            arena.allocate().unwrap();
            let is_first = unit < 256 || (4 << 10..8 << 10).contains(&unit);
            assert!(is_first || arena.free_bytes() > 0, "{unit}");
        }
    }

    #[test]
    fn a_budget_that_is_met_changes_nothing() {
        let budget = MemoryBudget::new(3 << 16);
        let mut arena = Arena::<1024>::new(&budget, None, UNITS_MAX);
        let count = (0..).map_while(|_| arena.allocate().ok()).count();
        assert_eq!((count, budget.reserved()), (192, 3 << 16));
        assert!(matches!(arena.allocate().unwrap_err().kind(), ErrorKind::Memory { .. }));
        arena.release(5);
        assert_eq!(arena.allocate().unwrap(), 5);
        drop(arena);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn an_arena_has_no_more_units_than_it_may() {
        let mut arena = Arena::<1024>::new(&MemoryBudget::unlimited(), None, 128);
        (0..128).for_each(|unit| assert_eq!(arena.allocate().unwrap(), unit));
        assert!(matches!(arena.allocate().unwrap_err().kind(), ErrorKind::Limit { .. }));
    }

    /// Units come and go at random in phases of growth and of removal, and memory is given back between; each unit keeps
    /// its bytes, and what is counted is what the system counts.
    #[test]
    fn memory_is_given_back_and_used_again() {
        let threads: Arc<dyn Executor> = Arc::new(Threads::new(1));
        for executor in [None, Some(threads)] {
            let (budget, has_jobs) = (MemoryBudget::unlimited(), executor.is_some());
            let mut arena = Arena::<1024>::new(&budget, executor, UNITS_MAX);
            let (mut all, mut highest, mut i) = (Vec::<(u32, u64)>::new(), 0, 0);
            for phase in 0..6_u64 {
                let count = [20_000, 1000, 18_000, 0, 9000, 300][phase as usize];
                while all.len() != count {
                    i += 1;
                    let random = mix(i, Seed(5));
                    let is_growing = all.len() < count;
                    if random.is_multiple_of(4) || is_growing {
                        let unit = arena.allocate().unwrap();
                        arena.unit_mut(unit).as_chunks_mut::<8>().0.fill(random.to_le_bytes());
                        all.push((unit, random));
                    }
                    if random.is_multiple_of(4) || !is_growing {
                        let (unit, bytes) = all.swap_remove(random as usize % all.len());
                        let unit_bytes = arena.unit(unit).as_chunks::<8>().0;
                        assert!(unit_bytes.iter().all(|found| *found == bytes.to_le_bytes()));
                        arena.release(unit);
                        arena.give_back();
                    }
                }
                let reserved = budget.reserved();
                assert_eq!((arena.units(), arena.bytes() >= reserved), (count as u64, true));
                assert_eq!(reserved, arena.free_bytes() + arena.units() * 1024);
                highest = reserved.max(highest);
                #[cfg(target_os = "linux")]
                if !has_jobs {
                    // A step may end within a large page, all of which is resident.
                    let system = arena.system_bytes();
                    assert!(
                        (reserved..=reserved + (2 << 20)).contains(&system),
                        "{phase}: {system}"
                    );
                    assert!(count > 0 || reserved <= (2 << 20) + (4 << 16), "{reserved}");
                }
            }
            assert!(highest >= 20_000 << 10, "{has_jobs}");
        }
    }

    /// Many steps become empty at once: they are given back some at a time, or by a change that has emptied as many.
    #[test]
    fn steps_are_given_back_some_at_a_time() {
        for changes in [0, 1] {
            let mut arena = Arena::<1024>::new(&MemoryBudget::unlimited(), None, UNITS_MAX);
            let units: Vec<u32> = (0..80 << 10).map(|_| arena.allocate().unwrap()).collect();
            units.iter().for_each(|unit| arena.release(*unit));
            let (mut calls, mut has_others) = (0, true);
            while has_others {
                let before = arena.bytes();
                if calls < changes {
                    arena.give_back();
                } else {
                    has_others = arena.give_some_back();
                    assert!(before - arena.bytes() <= 4 * (2 << 20));
                }
                calls += 1;
            }
            // 38 large steps and 64 small ones.
            assert_eq!((calls > 20, calls <= 2), (changes == 0, changes == 1), "{calls}");
            assert!(arena.bytes() < 1 << 20, "{}", arena.bytes());
        }
    }
}

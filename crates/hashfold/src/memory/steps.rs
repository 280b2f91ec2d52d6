//! The steps of an arena, each of which becomes resident, and is given back, as a whole: how many of their units are in
//! use, and which unit is used next.
//!
//! ```text
//! steps   0 .. 63: 64 KiB each, 64 ..: 2 MiB each
//! in use  ■■■■  ■□■■  □□□□  ····  ■■□·  ····        ■ in use, □ free, · never in use since it became resident
//!                └ next     └ absent    └ populated ahead
//! ```
//!
//! The first step with a free unit is used first, so that the last steps become empty when fewer units are in use. Free
//! units of a step are a list, which is in the units themselves.

use super::bits::Bits;
use crate::io::LARGE_PAGE_BYTES;

/// The end of a list of free units.
pub(super) const NONE: u32 = u32::MAX;

/// The first byte of the steps that are large pages.
pub(super) const LARGE_MIN: usize = 4 << 20;
/// Size in bytes of the steps below [`LARGE_MIN`], and of the others.
const SMALL_BYTES: usize = 1 << 16;
const LARGE_BYTES: usize = LARGE_PAGE_BYTES;
/// Number of steps below [`LARGE_MIN`].
const SMALL_STEPS: usize = LARGE_MIN / SMALL_BYTES;

/// The bytes in use divided by this number are kept in empty steps, for the units that come next: units that come and go
/// would otherwise give memory back and need it again all the time.
const KEPT_PART: u64 = 16;
/// Minimum number of bytes that are kept, beside those that were needed again after they were given back.
const KEPT_BYTES_MIN: u64 = 4 * SMALL_BYTES as u64;
/// Maximum number of bytes that are kept because they were needed again.
const AGAIN_BYTES_MAX: u64 = LARGE_BYTES as u64;

/// A step that is resident, or that was given back and has no units in use.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Number of units in use.
    used: u32,
    /// Number of units, from the first one on, that were in use since the step became resident.
    touched: u32,
    /// The free unit of these that was freed last; in its first bytes is the number of the one before.
    head: u32,
}

/// The steps of an arena of units of `UNIT` bytes.
#[derive(Debug)]
pub(super) struct Steps<const UNIT: usize> {
    all: Vec<Step>,
    /// Resident steps of which a unit was in use, with a free unit.
    open: Bits,
    /// Resident steps that were never in use, such as those that are populated ahead. They are used when no other has a
    /// free unit.
    fresh: Bits,
    /// Resident steps of which no unit is in use any more; they are open, too.
    empty: Bits,
    /// Steps that were given back.
    absent: Bits,
    /// Bytes of the steps that are empty.
    empty_bytes: u64,
    /// Bytes of the steps that were never in use.
    fresh_bytes: u64,
    /// Bytes of the steps that were needed again after they were given back, less those that were given back since: a large
    /// value that is replaced all the time needs as much each time.
    again_bytes: u64,
    /// Number of steps that have become empty since [`Steps::take_emptied`] was called.
    emptied: usize,
    /// Bytes of all steps that are resident.
    resident: u64,
    /// Number of units in use.
    used: u64,
}

impl<const UNIT: usize> Steps<UNIT> {
    /// Makes no steps.
    pub(super) fn new() -> Steps<UNIT> {
        Steps {
            all: Vec::new(),
            open: Bits::default(),
            fresh: Bits::default(),
            empty: Bits::default(),
            absent: Bits::default(),
            empty_bytes: 0,
            fresh_bytes: 0,
            again_bytes: 0,
            emptied: 0,
            resident: 0,
            used: 0,
        }
    }

    /// Returns the memory of the figures themselves, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let bits = [&self.open, &self.fresh, &self.empty, &self.absent];
        let bits: usize = bits.into_iter().map(Bits::bytes).sum();
        (self.all.capacity() * size_of::<Step>() + bits) as u64
    }

    /// Returns the bytes of all steps that are resident.
    pub(super) fn resident(&self) -> u64 {
        self.resident
    }

    /// Returns the number of units in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Returns the number of units that can be taken.
    #[inline]
    pub(super) fn free(&self) -> u64 {
        self.resident / UNIT as u64 - self.used
    }

    /// Returns the step that is to become resident next: the first one that was given back, or a new one.
    pub(super) fn next(&mut self) -> usize {
        self.absent.first().unwrap_or(self.all.len())
    }

    /// Adds the step that [`Steps::next`] has returned, now that it is resident or about to be.
    pub(super) fn enter(&mut self, step: usize) {
        let (entered, len) = (Step { used: 0, touched: 0, head: NONE }, span(step).1 as u64);
        if step == self.all.len() {
            self.all.push(entered);
        } else {
            self.all[step] = entered;
            self.absent.clear(step);
            self.again_bytes = (self.again_bytes + len).min(AGAIN_BYTES_MAX);
        }
        self.fresh.set(step);
        self.fresh_bytes += len;
        self.resident += len;
    }

    /// Takes a free unit. `next` returns the number in the first bytes of a unit.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(super) fn take(&mut self, next: impl FnOnce(u32) -> u32) -> u32 {
        let number = match self.open.first() {
            Some(number) => number,
            None => self.open_fresh(),
        };
        let (start, len) = span(number);
        let step = &mut self.all[number];
        let unit = if step.head == NONE {
            step.touched += 1;
            (start / UNIT as u64) as u32 + step.touched - 1
        } else {
            let unit = step.head;
            step.head = next(unit);
            unit
        };
        if step.used == 0 && self.empty.clear(number) {
            self.empty_bytes -= len as u64;
        }
        step.used += 1;
        if step.used as usize == len / UNIT {
            self.open.clear(number);
        }
        self.used += 1;
        unit
    }

    /// Makes the first step that was never in use an open one.
    #[cold]
    fn open_fresh(&mut self) -> usize {
        let step = self.fresh.first().expect("a unit is free");
        self.fresh.clear(step);
        self.fresh_bytes -= span(step).1 as u64;
        self.open.set(step);
        step
    }

    /// Takes a unit back. Returns the number that is to be in its first bytes.
    #[inline]
    pub(super) fn put(&mut self, unit: u32) -> u32 {
        let number = step_of(u64::from(unit) * UNIT as u64);
        let step = &mut self.all[number];
        debug_assert!(step.used > 0, "a unit is freed twice");
        step.used -= 1;
        self.used -= 1;
        self.open.set(number);
        let next = std::mem::replace(&mut step.head, unit);
        if step.used == 0 {
            self.empty.set(number);
            self.empty_bytes += span(number).1 as u64;
            self.emptied += 1;
        }
        next
    }

    /// Whether steps have become empty since [`Steps::take_emptied`] was called.
    #[inline]
    pub(super) fn has_emptied(&self) -> bool {
        self.emptied > 0
    }

    /// Returns the number of steps that have become empty since the last call.
    #[inline]
    pub(super) fn take_emptied(&mut self) -> usize {
        std::mem::take(&mut self.emptied)
    }

    /// Lets [`Steps::take_emptied`] return these once more.
    pub(super) fn put_emptied(&mut self, emptied: usize) {
        self.emptied += emptied;
    }

    /// Returns the last step that is empty or was never in use, if the others have as many bytes as are to be kept.
    pub(super) fn surplus(&mut self) -> Option<usize> {
        let step = self.empty.last().max(self.fresh.last())?;
        self.is_surplus(step, self.empty_bytes).then_some(step)
    }

    /// Returns the first unit behind those first steps in memory that have room for all units in use, if memory would be given
    /// back once no unit is in use behind it.
    pub(super) fn end_of_room(&mut self) -> Option<u32> {
        let in_memory = |step: &usize| !self.absent.has(*step) && !self.fresh.has(*step);
        let (mut room, mut end, mut behind) = (0, None, 0);
        for (start, len) in (0..self.all.len()).filter(in_memory).map(span) {
            if room < self.used * UNIT as u64 {
                room += len as u64;
            } else {
                end = end.or(Some((start / UNIT as u64) as u32));
                behind += len as u64;
            }
        }
        end.filter(|_| self.is_surplus(self.all.len() - 1, behind))
    }

    /// Whether so much is empty that a step could be given back: what is left is at least the step that would become resident
    /// next.
    fn is_surplus(&mut self, step: usize, empty_bytes: u64) -> bool {
        let next = self.absent.first().map_or(step, |absent| absent.min(step));
        let least = (KEPT_BYTES_MIN + self.again_bytes).max(span(next).1 as u64);
        let kept = (self.used * UNIT as u64 / KEPT_PART).max(least);
        empty_bytes + self.fresh_bytes >= kept + span(step).1 as u64
    }

    /// Removes a step that is empty or was never in use, whose memory was given back.
    pub(super) fn leave(&mut self, step: usize) {
        let len = span(step).1 as u64;
        if self.fresh.clear(step) {
            self.fresh_bytes -= len;
        } else {
            let was_empty = self.empty.clear(step);
            debug_assert!(was_empty);
            self.open.clear(step);
            self.empty_bytes -= len;
        }
        self.absent.set(step);
        self.again_bytes = self.again_bytes.saturating_sub(len);
        self.resident -= len;
    }
}

/// Returns the step of a byte.
#[inline]
fn step_of(byte: u64) -> usize {
    match byte.checked_sub(LARGE_MIN as u64) {
        None => byte as usize / SMALL_BYTES,
        Some(rest) => SMALL_STEPS + (rest / LARGE_BYTES as u64) as usize,
    }
}

/// Returns the first byte of a step, and its size in bytes.
#[inline]
pub(super) fn span(step: usize) -> (u64, usize) {
    match step.checked_sub(SMALL_STEPS) {
        None => ((step * SMALL_BYTES) as u64, SMALL_BYTES),
        Some(rest) => (LARGE_MIN as u64 + rest as u64 * LARGE_BYTES as u64, LARGE_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::mix::mix, *};
    use crate::key::Seed;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn steps_follow_each_other_without_gaps() {
        let mut end = 0;
        for step in 0..SMALL_STEPS + 10 {
            let (start, len) = span(step);
            assert_eq!(start, end);
            end += len as u64;
            assert_eq!((step_of(start), step_of(end - 1)), (step, step));
        }
    }

    const UNIT: usize = 1 << 14;

    impl Steps<UNIT> {
        /// Returns the end of the numbers of units that can be taken.
        fn end(&self) -> u64 {
            span(self.all.len()).0 / UNIT as u64
        }
    }

    /// The obvious twin: sets of units. A unit is free if it is in no set.
    #[derive(Default)]
    struct Naive {
        resident: BTreeSet<usize>,
        used: BTreeSet<u32>,
        /// The number in the first bytes of each free unit.
        links: BTreeMap<u32, u32>,
    }

    impl Naive {
        fn units_of(step: usize) -> std::ops::Range<u32> {
            let (start, len) = span(step);
            let first = (start / UNIT as u64) as u32;
            first..first + (len / UNIT) as u32
        }

        fn has(&self, step: usize) -> bool {
            self.used.range(Naive::units_of(step)).next().is_some()
        }

        fn check(&self, steps: &mut Steps<UNIT>) {
            let resident: usize = self.resident.iter().map(|step| span(*step).1).sum();
            assert_eq!(steps.resident(), resident as u64);
            assert_eq!(steps.used(), self.used.len() as u64);
            assert_eq!(steps.free(), (resident / UNIT - self.used.len()) as u64);
            let next = (0..).find(|step| !self.resident.contains(step));
            assert_eq!(Some(steps.next()), next);
            let empty = self.resident.iter().filter(|step| steps.empty.has(**step));
            let empty: Vec<_> = empty.copied().collect();
            assert!(empty.iter().all(|step| !self.has(*step)));
            let bytes: usize = empty.iter().map(|step| span(*step).1).sum();
            assert_eq!(steps.empty_bytes, bytes as u64);
        }
    }

    /// Units that are taken and put back at random, in phases of growth and of removal, with steps that are given back
    /// between.
    #[test]
    fn steps_agree_with_sets_of_units() {
        let (mut steps, mut naive) = (Steps::<UNIT>::new(), Naive::default());
        let (mut given, mut again) = (0, 0);
        for i in 0..60_000_u64 {
            let random = mix(i, Seed(7));
            if random % 8 < 2 + i / 6000 % 2 * 4 {
                let at = (random >> 32) as u32 % (steps.end().max(1) as u32);
                let used = naive.used.range(at..).next().copied();
                if let Some(unit) = used {
                    naive.used.remove(&unit);
                    naive.links.insert(unit, steps.put(unit));
                }
            } else {
                if steps.free() == 0 {
                    let step = steps.next();
                    again += usize::from(naive.resident.last().is_some_and(|last| step < *last));
                    steps.enter(step);
                    assert!(naive.resident.insert(step));
                }
                let unit = steps.take(|unit| naive.links[&unit]);
                let step = step_of(u64::from(unit) * UNIT as u64);
                assert!(naive.resident.contains(&step) && naive.used.insert(unit));
                naive.links.remove(&unit);
            }
            if steps.take_emptied() > 0 {
                while let Some(step) = steps.surplus() {
                    assert!(naive.resident.remove(&step) && !naive.has(step));
                    naive.links.retain(|unit, _| !Naive::units_of(step).contains(unit));
                    steps.leave(step);
                    given += 1;
                }
            }
            if i % 64 == 0 {
                naive.check(&mut steps);
            }
        }
        assert!(given > 20 && again > 0, "{given} {again}");
    }

    /// Returns steps of which all units are in use, up to a number of bytes.
    fn full(bytes: u64) -> Steps<UNIT> {
        let mut steps = Steps::new();
        while steps.resident() < bytes {
            let next = steps.next();
            steps.enter(next);
        }
        (0..steps.free()).for_each(|unit| assert_eq!(u64::from(steps.take(|unit| unit)), unit));
        steps
    }

    /// All units are put back, from the first one on; then a few large ones, or small ones, are left.
    #[test]
    fn what_is_kept_is_little() {
        for (bytes, kept) in [(4 << 20, 256 << 10), (64 << 20, 256 << 10)] {
            let mut steps = full(bytes);
            for unit in 0..steps.used() {
                steps.put(unit as u32);
            }
            assert!(steps.take_emptied() > 0 && steps.take_emptied() == 0);
            while let Some(step) = steps.surplus() {
                steps.leave(step);
            }
            assert_eq!((steps.used(), steps.resident()), (0, kept));
        }
    }

    /// Puts units from the end back and takes as many again, a hundred times. Returns the bytes that are given back.
    fn sway(bytes: u64, units: u32) -> u64 {
        let (mut steps, mut links, mut given) = (full(bytes), BTreeMap::new(), 0);
        for _ in 0..100 {
            let last = steps.end() as u32;
            for unit in last - units..last {
                links.insert(unit, steps.put(unit));
            }
            assert_eq!(steps.take_emptied() > 0, units as usize > SMALL_BYTES / UNIT);
            while let Some(step) = steps.surplus() {
                steps.leave(step);
                given += span(step).1 as u64;
            }
            for _ in 0..units {
                if steps.free() == 0 {
                    let next = steps.next();
                    steps.enter(next);
                }
                steps.take(|unit| links[&unit]);
            }
        }
        assert_eq!((steps.free(), steps.resident()), (0, bytes));
        given
    }

    /// Units around the edge of a step come and go: no step is given back.
    #[test]
    fn units_that_come_and_go_give_nothing_back() {
        assert_eq!(sway(16 << 20, (LARGE_BYTES / UNIT) as u32 + 5), 0);
        assert_eq!(sway(2 << 20, (4 * SMALL_BYTES / UNIT) as u32), 0);
        assert_eq!(sway(2 << 20, 3), 0);
    }

    /// Units of many steps come and go: that these are needed again is noticed the first time.
    #[test]
    fn steps_that_are_needed_again_are_given_back_once() {
        for (bytes, sway_bytes) in [(3 << 20, 1 << 20), (16 << 20, 4 << 20)] {
            let given = sway(bytes, (sway_bytes / UNIT) as u32);
            assert!(given > 0 && given <= sway_bytes as u64, "{given} of {sway_bytes}");
        }
    }

    /// A table of 32 steps of 2 MiB behind the small ones, of which some are given back and half of the units of others are free.
    #[test]
    fn steps_behind_the_room_that_is_needed_are_left_if_that_gives_memory_back() {
        const ON_STEP: u32 = (LARGE_BYTES / UNIT) as u32;
        let first = (LARGE_MIN / UNIT) as u32;
        let unit = |step: u32| first + step * ON_STEP;
        let freed = |absent: std::ops::Range<u32>, half_free: std::ops::Range<u32>| {
            let mut steps = full((LARGE_MIN + 32 * LARGE_BYTES) as u64);
            (unit(absent.start)..unit(absent.end)).for_each(|unit| _ = steps.put(unit));
            while let Some(step) = steps.surplus() {
                steps.leave(step);
            }
            let units = unit(half_free.start)..unit(half_free.end);
            units.step_by(2).for_each(|unit| _ = steps.put(unit));
            steps.end_of_room()
        };
        // All that is in memory is in use, but for what is kept.
        assert_eq!(freed(0..0, 0..0), None);
        assert_eq!(freed(0..24, 0..0), None);
        assert_eq!(freed(0..28, 0..0), None);
        // Half of twelve steps is free: the last six.
        assert_eq!(freed(0..0, 10..22), Some(unit(26)));
        // Half of four steps: as much as is kept.
        assert_eq!(freed(0..0, 0..4), None);
        // Half of eight steps; the steps that were given back have no room, but for two that are kept.
        assert_eq!(freed(0..16, 20..28), Some(unit(26)));
    }
}

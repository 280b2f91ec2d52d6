//! Building a filter from a run of fingerprints; growing and shrinking a filter.

use super::{
    append::{Appender, Overfull},
    filter::{COPIES_MAX, QuotientFilter, Rules, Usage, memory, overfull},
    kernel::Processor,
    layout::{REMAINDER_BITS_MAX, SlotLayout},
    options::{Growth, LOAD_MAX, Sizing},
    scan::Feed,
    storage::Memory,
};
use crate::{
    error::{Error, ErrorKind, Result},
    filter::Mode,
    fingerprints::{Checked, Exception, FingerprintBatch, Fingerprints},
    io::Buffer,
};
use std::collections::BTreeMap;

/// Options of a filter that is built from a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildOptions {
    /// Maximum number of fingerprints in the run. In a multiset, each copy of a fingerprint counts,
    /// up to four.
    pub capacity: u64,
    /// Set or multiset.
    pub mode: Mode,
    /// The behaviour when more keys are inserted than there are slots for.
    pub growth: Growth,
    /// Maximum fraction of full slots: 0.1 to 0.95.
    pub load_max: f64,
}

impl BuildOptions {
    /// Returns the options of a set of at most `capacity` fingerprints that fills at most 0.9 of
    /// its slots and refuses further keys.
    pub fn new(capacity: u64) -> BuildOptions {
        BuildOptions { capacity, mode: Mode::Set, growth: Growth::Refuse, load_max: LOAD_MAX }
    }
}

/// Counts the copies of ascending fingerprints, and keeps the copies that go into slots.
#[derive(Debug)]
pub(super) struct Collector {
    appender: Appender,
    mode: Mode,
    counts: Usage,
    more: BTreeMap<u64, u64>,
    last: Option<u64>,
    /// Number of copies of the last fingerprint.
    copies: u64,
    kept: Vec<u64>,
}

impl Collector {
    pub(super) fn new(shape: &Sizing, mode: Mode, machine: Processor) -> Result<Collector> {
        let appender = Appender::new(shape.layout, memory(shape.layout)?, machine);
        let counts = Usage { slots_max: shape.slots_max, ..Usage::default() };
        let (more, kept) = (BTreeMap::new(), Vec::new());
        Ok(Collector { appender, mode, counts, more, last: None, copies: 0, kept })
    }

    /// Takes fingerprints in ascending order, with copies one after the other.
    pub(super) fn collect(&mut self, fingerprints: &[u64]) -> Result<()> {
        self.kept.clear();
        match self.mode {
            Mode::Set => self.keep_different(fingerprints),
            Mode::Multiset => self.keep_copies(fingerprints),
        }
        self.counts.slots += self.kept.len() as u64;
        if self.counts.slots > self.counts.slots_max {
            return Err(ErrorKind::Full { slots_max: self.counts.slots_max }.into());
        }
        self.appender.append(&self.kept).map_err(|Overfull| overfull())
    }

    fn keep_different(&mut self, fingerprints: &[u64]) {
        let Some(&first) = fingerprints.first() else { return };
        self.kept.resize(fingerprints.len(), 0);
        let mut count = 0;
        // A number other than the first fingerprint, if there is no last one.
        let mut last = self.last.unwrap_or(!first);
        for &fingerprint in fingerprints {
            self.kept[count] = fingerprint;
            count += usize::from(fingerprint != last);
            last = fingerprint;
        }
        self.kept.truncate(count);
        self.last = Some(last);
        self.counts.items += count as u64;
        self.counts.distinct += count as u64;
    }

    fn keep_copies(&mut self, fingerprints: &[u64]) {
        for &fingerprint in fingerprints {
            self.copies = if self.last == Some(fingerprint) { self.copies + 1 } else { 1 };
            self.last = Some(fingerprint);
            self.counts.items += 1;
            self.counts.distinct += u64::from(self.copies == 1);
            if self.copies <= COPIES_MAX {
                self.kept.push(fingerprint);
            } else {
                *self.more.entry(fingerprint).or_insert(0) += 1;
            }
        }
    }

    /// Takes the next fingerprints of a run, with their counts as numbers of copies.
    fn collect_batch(&mut self, batch: &FingerprintBatch) -> Result<()> {
        if batch.exceptions.is_empty() {
            return self.collect(&batch.fingerprints);
        }
        let copies_max = match self.mode {
            Mode::Set => 1,
            Mode::Multiset => COPIES_MAX,
        };
        let mut copies = Vec::with_capacity(batch.len());
        let mut done = 0;
        for &Exception { position, count } in &batch.exceptions {
            copies.extend_from_slice(&batch.fingerprints[done..position]);
            done = position + 1;
            let (fingerprint, count) = (batch.fingerprints[position], count.max(0).cast_unsigned());
            let in_slots = count.min(copies_max);
            copies.extend((0..in_slots).map(|_| fingerprint));
            if self.mode == Mode::Multiset && count > in_slots {
                self.add_more(fingerprint, count - in_slots)?;
            }
        }
        copies.extend_from_slice(&batch.fingerprints[done..]);
        self.collect(&copies)
    }

    /// Counts further copies of a fingerprint whose slots are full, or will be.
    pub(super) fn add_more(&mut self, fingerprint: u64, more: u64) -> Result<()> {
        // Copies in slots are counted without a check.
        let limit = u64::MAX - self.counts.slots_max;
        let sum = u128::from(self.counts.items) + u128::from(more);
        if sum > u128::from(limit) {
            let expected = format!("at most {limit}; build several filters");
            return Err(Error::argument("sum of the counts of all fingerprints", expected, sum));
        }
        self.counts.items = sum as u64;
        // The sum of all copies fits, so this sum does too.
        *self.more.entry(fingerprint).or_insert(0) += more;
        Ok(())
    }

    pub(super) fn finish(self, shape: &Sizing, rules: Rules) -> Result<QuotientFilter> {
        let blocks = self.appender.finish().map_err(|Overfull| overfull())?;
        Ok(QuotientFilter {
            universe: shape.universe,
            layout: shape.layout,
            machine: Processor::best(),
            rules,
            counts: self.counts,
            storage: Memory { blocks, more: self.more },
        })
    }
}

impl QuotientFilter {
    /// Builds a filter from a run of fingerprints, in one pass. The filter has the seed and the
    /// universe of the run, so its number of slots is the size of the universe divided by a power
    /// of two. Fingerprints with a count below 1 are dropped.
    ///
    /// # Errors
    /// `Full` if the run has more fingerprints than the slots for `capacity` can hold, `Order` if it
    /// does not ascend, `Argument` if the sum of its counts is about 2^64 or more.
    pub fn build(run: &mut dyn Fingerprints, options: &BuildOptions) -> Result<QuotientFilter> {
        let BuildOptions { mode, growth, .. } = *options;
        let mut run = Checked::new(run);
        let shape = Sizing::of(run.universe(), options.capacity, options.load_max)?;
        let mut collector = Collector::new(&shape, mode, Processor::best())?;
        let mut batch = FingerprintBatch::new();
        while run.append_to(&mut batch)? {
            collector.collect_batch(&batch)?;
            batch.clear();
        }
        collector.finish(&shape, Rules { mode, growth, seed: run.seed() })
    }

    /// Doubles the slots: remainders have one bit less, and the fingerprints stay the same. Needs
    /// memory for the old and the new slots.
    ///
    /// # Errors
    /// `Full` if remainders have only one bit, `Argument` if there is not enough memory. After an
    /// error, the filter is unchanged.
    pub fn grow(&mut self) -> Result<()> {
        let layout = self.layout.doubled().ok_or_else(|| self.too_many())?;
        self.resize(layout, self.counts.slots_max * 2)
    }

    /// Halves the slots: remainders have one bit more, and the fingerprints stay the same.
    ///
    /// # Errors
    /// `Argument` if too many slots are full, if the number of slots divided by 64 is odd, or if
    /// remainders would have more than 56 bits. After an error, the filter is unchanged.
    pub fn shrink(&mut self) -> Result<()> {
        let SlotLayout { blocks, remainder_bits } = self.layout;
        if !blocks.is_multiple_of(2) {
            return Err(Error::argument("slots", "a multiple of 128", self.slots()));
        }
        if remainder_bits == REMAINDER_BITS_MAX {
            let expected = format!("less than {REMAINDER_BITS_MAX}");
            return Err(Error::argument("bits of a remainder", expected, remainder_bits));
        }
        let slots_max = self.counts.slots_max / 2;
        if self.counts.slots > slots_max {
            let expected = format!("at most {slots_max}");
            return Err(Error::argument("number of full slots", expected, self.counts.slots));
        }
        self.resize(
            SlotLayout { blocks: blocks / 2, remainder_bits: remainder_bits + 1 },
            slots_max,
        )
    }

    fn resize(&mut self, layout: SlotLayout, slots_max: u64) -> Result<()> {
        self.storage.blocks = self.blocks_in(layout)?;
        self.layout = layout;
        self.counts.slots_max = slots_max;
        Ok(())
    }

    /// Returns the blocks of this filter in another layout.
    fn blocks_in(&self, layout: SlotLayout) -> Result<Buffer> {
        let mut appender = Appender::new(layout, memory(layout)?, self.machine);
        let (mut feed, mut stretch) = (Feed::new(self), Vec::new());
        loop {
            stretch.clear();
            feed.read(&mut stretch)?;
            if stretch.is_empty() {
                return appender.finish().map_err(|Overfull| overfull());
            }
            appender.append(&stretch).map_err(|Overfull| overfull())?;
        }
    }
}

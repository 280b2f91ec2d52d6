//! New filters out of runs of fingerprints: built, grown and shrunk.

use super::{
    append::{Appender, Overfull},
    filter::{COPIES_MAX, Counts, QuotientFilter, Rules, memory, overfull},
    kernel::Machine,
    layout::{Layout, REMAINDER_BITS_MAX},
    options::{Growth, Shape},
    scan::Feed,
    storage::Memory,
};
use crate::{
    error::{Error, ErrorKind, Result},
    filter::{Fingerprints, Mode, Span},
    io::Buffer,
    key::Seed,
};
use std::{collections::BTreeMap, mem};

/// What a filter that is built from a run is to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildOptions {
    /// How many fingerprints the run has at most; in a multiset one of several keys counts up to
    /// four times.
    pub capacity: u64,
    /// A set or a multiset.
    pub mode: Mode,
    /// What happens later when more keys come than it has slots for.
    pub growth: Growth,
    /// The part of its slots that may be full: 0.1 to 0.95.
    pub load_max: f64,
    /// Of the keys' hashes.
    pub seed: Seed,
}

/// Counts copies of ascending fingerprints and keeps as many of each as go into slots.
#[derive(Debug)]
pub(super) struct Collector {
    appender: Appender,
    mode: Mode,
    counts: Counts,
    more: BTreeMap<u64, u64>,
    last: Option<u64>,
    /// Copies of the last one.
    copies: u64,
    kept: Vec<u64>,
}

impl Collector {
    pub(super) fn new(shape: &Shape, mode: Mode, machine: Machine) -> Result<Collector> {
        let appender = Appender::new(shape.layout, memory(shape.layout)?, machine);
        let counts = Counts { slots_max: shape.slots_max, ..Counts::default() };
        let (more, kept) = (BTreeMap::new(), Vec::new());
        Ok(Collector { appender, mode, counts, more, last: None, copies: 0, kept })
    }

    /// Takes ascending fingerprints, copies one after the other, none less than those before.
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
        // Different from the first one, if there was none.
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

    /// Counts more copies of a fingerprint of which the slots hold, or will hold, all they may.
    pub(super) fn add_more(&mut self, fingerprint: u64, more: u64) -> Result<()> {
        let too_many =
            || ErrorKind::Limit { what: "items in the filter", limit: u64::MAX, got: u64::MAX };
        self.counts.items = self.counts.items.checked_add(more).ok_or_else(too_many)?;
        // No larger than the sum of all.
        *self.more.entry(fingerprint).or_insert(0) += more;
        Ok(())
    }

    pub(super) fn finish(self, shape: &Shape, rules: Rules) -> Result<QuotientFilter> {
        let blocks = self.appender.finish().map_err(|Overfull| overfull())?;
        Ok(QuotientFilter {
            universe: shape.universe,
            layout: shape.layout,
            machine: Machine::best(),
            rules,
            counts: self.counts,
            storage: Memory { blocks, more: self.more },
        })
    }
}

impl QuotientFilter {
    /// Makes a filter of a run of fingerprints of any filter, without searching. Its universe is
    /// the run's, so its slots are that divided by a power of two. Tombstones, and counts below
    /// one, are dropped.
    ///
    /// A run with more fingerprints than `capacity` may be refused, and one that does not ascend
    /// is.
    pub fn build(run: &mut dyn Fingerprints, options: &BuildOptions) -> Result<QuotientFilter> {
        let BuildOptions { mode, growth, seed, .. } = *options;
        let shape = Shape::of(run.universe(), options.capacity, options.load_max)?;
        let mut collector = Collector::new(&shape, mode, Machine::best())?;
        let (mut span, mut merged) = (Span::default(), Vec::new());
        let mut last = None;
        while run.next_span(&mut span)? {
            check_span(&span, last, shape.universe.last())?;
            last = span.last();
            if span.counted.is_empty() {
                collector.collect(&span.ones)?;
            } else {
                expand(&span, mode, &mut merged, &mut collector)?;
                collector.collect(&merged)?;
            }
        }
        collector.finish(&shape, Rules { mode, growth, seed })
    }

    /// Doubles the slots: each keeps one bit less, and the fingerprints stay the same. An error,
    /// and nothing changes, if a slot keeps only one bit already, or if there is no memory: it
    /// takes that of the old filter and the new one together.
    pub fn grow(&mut self) -> Result<()> {
        let layout = self.layout.doubled().ok_or_else(|| self.too_many())?;
        self.resize(layout, self.counts.slots_max * 2)
    }

    /// Halves the slots: each keeps one bit more, and the fingerprints stay the same. An error,
    /// and nothing changes, if they are too full for that, if the number of slots divided by 64
    /// is odd, or if the remainders would get longer than 56 bits.
    pub fn shrink(&mut self) -> Result<()> {
        let Layout { blocks, remainder_bits } = self.layout;
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
        self.resize(Layout { blocks: blocks / 2, remainder_bits: remainder_bits + 1 }, slots_max)
    }

    fn resize(&mut self, layout: Layout, slots_max: u64) -> Result<()> {
        self.storage.blocks = self.blocks_in(layout)?;
        self.layout = layout;
        self.counts.slots_max = slots_max;
        Ok(())
    }

    /// The blocks of this filter in another layout.
    fn blocks_in(&self, layout: Layout) -> Result<Buffer> {
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

/// Refuses what a run may not give.
fn check_span(span: &Span, last: Option<u64>, largest: u64) -> Result<()> {
    let ones = span.ones.windows(2).fold(true, |is, pair| is & (pair[0] < pair[1]));
    let counted = span.counted.is_sorted_by(|a, b| a.fingerprint < b.fingerprint);
    let first = span.ones.first().copied();
    let first = first.into_iter().chain(span.counted.first().map(|c| c.fingerprint)).min();
    if !ones || !counted || first.is_some_and(|first| last.is_some_and(|last| last >= first)) {
        return Err(Error::argument("run of fingerprints", "in ascending order", "another one"));
    }
    if span.last().is_some_and(|last| last > largest) {
        let expected = format!("fingerprints up to {largest}");
        return Err(Error::argument("run of fingerprints", expected, "a larger one"));
    }
    Ok(())
}

/// Puts the fingerprints of a span in order, each as often as slots hold it, and the rest of its
/// copies in the collector.
fn expand(span: &Span, mode: Mode, merged: &mut Vec<u64>, collector: &mut Collector) -> Result<()> {
    merged.clear();
    let mut ones = &span.ones[..];
    for counted in &span.counted {
        let before = ones.partition_point(|&one| one < counted.fingerprint);
        merged.extend_from_slice(&ones[..before]);
        ones = &ones[before..];
        if ones.first() == Some(&counted.fingerprint) {
            return Err(Error::argument("run of fingerprints", "each one once", "one twice"));
        }
        let copies_max = match mode {
            Mode::Set => 1,
            Mode::Multiset => COPIES_MAX,
        };
        let count = counted.count.max(0) as u64;
        let copies = count.min(copies_max);
        merged.extend((0..copies).map(|_| counted.fingerprint));
        if mode == Mode::Multiset && count > copies {
            collector.add_more(counted.fingerprint, count - copies)?;
        }
    }
    merged.extend_from_slice(mem::take(&mut ones));
    Ok(())
}

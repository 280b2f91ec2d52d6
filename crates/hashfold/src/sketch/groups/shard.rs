//! The groups whose hashes begin with some bits.

use super::{
    dictionary::{Dictionary, grown, reserve},
    inbox::Inbox,
    options::{GroupOptions, MemoryPlan, merge_bytes, value_bytes},
    segment::{Segment, SegmentReader, SegmentWriter, SpillFile},
    together::Together,
};
use crate::{
    codec::Decoder,
    error::Result,
    key::KeyHash,
    sketch::{Hll, entries},
};
use std::sync::Arc;

/// The settings that all shards share.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) options: GroupOptions,
    pub(super) plan: MemoryPlan,
    pub(super) file: Arc<SpillFile>,
}

/// Rows of some groups, sorted and written to segments when the memory is full.
#[derive(Debug)]
pub(super) struct Shard {
    setup: Arc<Setup>,
    groups: Dictionary,
    /// For each row `number of the group << 32 | entry`.
    log: Vec<u64>,
    segments: Vec<Segment>,
    /// The largest memory so far, in bytes.
    pub(super) peak_bytes: usize,
}

/// Memory of each group while the shard is written, in bytes: its hash, number, and place in the log.
const ORDER_BYTES: usize = size_of::<(u64, u32)>() + size_of::<usize>();

/// Callback that gets a group, and its part of the log.
type VisitRows<'a> = dyn FnMut(&[u8], &[u64]) -> Result<()> + 'a;
/// Callback that gets a group, and its registers.
type VisitEntries<'a> = dyn FnMut(&[u8], &mut Vec<u32>) -> Result<()> + 'a;

impl Shard {
    pub(super) fn new(setup: Arc<Setup>) -> Shard {
        let (groups, log) = (Dictionary::default(), Vec::new());
        Shard { setup, groups, log, segments: Vec::new(), peak_bytes: 0 }
    }

    /// Takes the rows of an inbox.
    pub(super) fn absorb(&mut self, inbox: &Inbox) -> Result<()> {
        self.make_room(inbox)?;
        for (row, group) in inbox.rows() {
            let number = self.groups.number(row.tag, group);
            self.log.push(u64::from(number) << 32 | u64::from(row.entry));
        }
        Ok(())
    }

    /// Makes room for the rows of an inbox, whose groups may all be new.
    fn make_room(&mut self, inbox: &Inbox) -> Result<()> {
        if !self.fits(inbox) {
            let before = self.log.len();
            self.collapse();
            if self.log.len() > before / 2 || !self.fits(inbox) {
                self.spill()?;
            }
        }
        self.groups.reserve(inbox.len(), inbox.group_bytes());
        reserve(&mut self.log, inbox.len());
        self.note_memory(0);
        Ok(())
    }

    fn fits(&self, inbox: &Inbox) -> bool {
        let groups = self.groups.memory_bytes_with(inbox.len(), inbox.group_bytes());
        let order = (self.groups.len() + inbox.len()) * ORDER_BYTES;
        let log = grown(self.log.capacity(), self.log.len() + inbox.len()) * size_of::<u64>();
        let others = self.segment_bytes() + self.setup.plan.block_bytes + self.sketch_bytes();
        groups.is_some_and(|groups| groups + order + log + others <= self.setup.plan.shard_bytes)
    }

    /// Returns the memory of a group that is written, in bytes: its registers, its sketch, and that as bytes.
    fn sketch_bytes(&self) -> usize {
        (size_of::<u32>() + 2) << self.setup.options.precision
    }

    fn segment_bytes(&self) -> usize {
        self.segments.iter().map(Segment::memory_bytes).sum()
    }

    /// Notes the memory of the shard and of `more` bytes beside it.
    fn note_memory(&mut self, more: usize) {
        let log = self.log.capacity() * size_of::<u64>();
        let bytes = self.groups.memory_bytes() + log + self.segment_bytes() + more;
        self.peak_bytes = self.peak_bytes.max(bytes);
    }

    /// Sorts the log, and keeps the largest value of each register.
    fn collapse(&mut self) {
        keep_largest(&mut self.log);
    }

    /// Writes all groups to a new segment, and forgets them. The log is collapsed.
    fn spill(&mut self) -> Result<()> {
        if self.log.is_empty() {
            return Ok(());
        }
        let setup = self.setup.clone();
        let mut writer = SegmentWriter::new(&setup.file, 0);
        let mut packed = Vec::new();
        self.visit(&mut |group, entries| {
            packed.clear();
            entries::put(entries.iter().map(|entry| *entry as u32), &mut packed);
            writer.push(group, &packed)
        })?;
        self.segments.push(writer.finish()?);
        self.groups = Dictionary::default();
        self.log.clear();
        self.merge_levels()
    }

    /// Calls `visit` with each group, in hash order, and its part of the log, which is collapsed.
    fn visit(&mut self, visit: &mut VisitRows<'_>) -> Result<()> {
        let order = self.groups.len() * ORDER_BYTES;
        self.note_memory(order + self.setup.plan.block_bytes + self.sketch_bytes());
        let (groups, log, seed) = (&self.groups, &self.log, self.setup.options.seed);
        let hash = |number: u32| KeyHash::of(groups.group(number as usize), seed);
        let mut order: Vec<(u64, u32)> =
            (0..groups.len() as u32).map(|number| (hash(number).high(), number)).collect();
        order.sort_unstable();
        for equal in order.chunk_by_mut(|a, b| a.0 == b.0).filter(|equal| equal.len() > 1) {
            equal.sort_unstable_by_key(|(_, number)| {
                (hash(*number), groups.group(*number as usize))
            });
        }
        let mut starts = Vec::with_capacity(groups.len() + 1);
        for (i, row) in log.iter().enumerate() {
            // Each group has a row.
            if (row >> 32) as usize == starts.len() {
                starts.push(i);
            }
        }
        starts.push(log.len());
        for (_, number) in order {
            let number = number as usize;
            visit(groups.group(number), &log[starts[number]..starts[number + 1]])?;
        }
        Ok(())
    }

    /// Merges the last segments while many have the same level, so that no merge has too many.
    fn merge_levels(&mut self) -> Result<()> {
        while let Some(level) = self.segments.last().map(|last| last.level) {
            let same = self.segments.iter().rev().take_while(|it| it.level == level).count();
            if same < self.setup.plan.fan_in {
                return Ok(());
            }
            self.merge_last(same)?;
        }
        Ok(())
    }

    /// Replaces the last segments by one.
    fn merge_last(&mut self, count: usize) -> Result<()> {
        // The blocks of the merge take the place of the log.
        self.log = Vec::new();
        let merged = self.segments.split_off(self.segments.len() - count);
        let level = merged.iter().map(|segment| segment.level).max().unwrap_or_default();
        let mut writer = SegmentWriter::new(&self.setup.file, level + 1);
        let mut packed = Vec::new();
        self.merge(merged, &mut |group, entries| {
            packed.clear();
            entries::put(entries.drain(..), &mut packed);
            writer.push(group, &packed)
        })?;
        self.segments.push(writer.finish()?);
        Ok(())
    }

    /// Merges segments: calls `visit` with each group, and its registers.
    fn merge(&mut self, segments: Vec<Segment>, visit: &mut VisitEntries<'_>) -> Result<()> {
        let Setup { options, plan, file } = &*self.setup.clone();
        let blocks = segments.len() * (plan.block_bytes + value_bytes(options.precision));
        let places: usize = segments.iter().map(Segment::memory_bytes).sum();
        let group = merge_bytes(options.precision) + self.sketch_bytes();
        self.note_memory(blocks + plan.block_bytes + places + group);
        let readers = segments.into_iter();
        let readers = readers.map(|segment| SegmentReader::new(file, segment, options.seed));
        let mut merge = Together::new(readers.collect());
        let (mut entries, registers) = (Vec::new(), 1 << options.precision);
        while merge.advance()? {
            entries.clear();
            let mut count = 0;
            for (_, value) in merge.values() {
                if entries.len() > registers {
                    keep_largest(&mut entries);
                }
                take(value, options, &mut entries)?;
                count += 1;
            }
            if count > 1 {
                keep_largest(&mut entries);
            }
            visit(merge.key(), &mut entries)?;
        }
        Ok(())
    }

    /// Writes all groups with their sketches to one segment.
    pub(super) fn finish(mut self) -> Result<(Segment, usize)> {
        let setup = self.setup.clone();
        let (family, precision) = (setup.options.family, setup.options.precision);
        let mut writer = SegmentWriter::new(&setup.file, 0);
        let mut push = |group: &[u8], mut entries: Vec<u32>| {
            // Some hashes give a register no value; a group may have only such ones.
            entries.retain(|entry| *entry as u8 > 0);
            writer.push(group, &Hll::of_registers(family, precision, entries).to_bytes())
        };
        self.collapse();
        if self.segments.is_empty() {
            self.visit(&mut |group, rows| {
                push(group, rows.iter().map(|row| *row as u32).collect())
            })?;
        } else {
            self.spill()?;
            self.log = Vec::new();
            while self.segments.len() > setup.plan.fan_in {
                self.merge_last(setup.plan.fan_in)?;
            }
            let segments = std::mem::take(&mut self.segments);
            self.merge(segments, &mut |group, entries| push(group, std::mem::take(entries)))?;
        }
        Ok((writer.finish()?, self.peak_bytes))
    }
}

/// Sorts registers, and keeps the largest value of each.
fn keep_largest<T: Copy + Ord + Into<u64>>(all: &mut Vec<T>) {
    all.sort_unstable();
    entries::keep_largest(all);
}

/// Appends the registers in the bytes of a segment.
fn take(bytes: &[u8], options: &GroupOptions, all: &mut Vec<u32>) -> Result<()> {
    let value_max = options.family.q(options.precision) as u64 + 1;
    let (mut bytes, mut next) = (Decoder::new(bytes), 0);
    while !bytes.rest().is_empty() {
        let entry = entries::take(&mut bytes, next, options.precision, 0..=value_max)?;
        all.push(entry);
        next = entries::after(entry);
    }
    Ok(())
}

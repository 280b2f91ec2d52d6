//! Rows in any order become a run of groups.

use super::{
    inbox::Inbox,
    options::{GroupOptions, MemoryPlan},
    segment::{Segment, SegmentReader, SpillFile},
    shard::{Setup, Shard},
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Result},
    key::{KeyHash, Seed},
    run::{Entry, Run, Summary, check_sizes},
    sketch::{Hll, entries::VALUE_BITS},
    work::{Executor, Pending},
};
use std::{mem, path::Path, sync::Arc};

/// A group-by: makes a sketch of the keys of each group, from rows in any order, in bounded memory.
///
/// Jobs of the executor do most of the work, so that a second core helps. If the groups exceed the memory
/// budget, they spill to a file.
#[derive(Debug)]
pub struct GroupBuilder {
    setup: Arc<Setup>,
    executor: Arc<dyn Executor>,
    lanes: Vec<Lane>,
    rows: u64,
    is_failed: bool,
}

/// A shard, and the rows that wait for it.
#[derive(Debug)]
struct Lane {
    inbox: Inbox,
    work: Work,
}

/// A shard takes the rows of one inbox while the other is filled.
#[derive(Debug)]
enum Work {
    Idle(Box<Shard>, Inbox),
    Busy(Pending<(Box<Shard>, Inbox, Result<()>)>),
    /// The shard has failed.
    Lost,
}

/// The amounts of a group-by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// Number of rows.
    pub rows: u64,
    /// Upper bound of the memory that was accounted at any time, in bytes: the sum of the largest memories
    /// of all parts. A vector that grows may take as much again for a moment.
    pub memory_bytes: usize,
    /// Number of bytes written to the spill file. All groups are written once, and once more each time
    /// that the memory was full.
    pub spilled_bytes: u64,
}

impl GroupBuilder {
    /// Makes a builder. The file `spill` is made on the disk of `env` when it is needed, and unlinked at
    /// once.
    ///
    /// # Errors
    /// `Argument` if the precision or the memory is out of range.
    pub fn new(env: &Env, spill: impl AsRef<Path>, options: &GroupOptions) -> Result<GroupBuilder> {
        Hll::of_family(options.family, options.precision)?;
        let plan = MemoryPlan::new(options.memory_bytes, options.precision)?;
        GroupBuilder::with_plan(env, spill.as_ref(), options, plan)
    }

    pub(super) fn with_plan(
        env: &Env,
        spill: &Path,
        options: &GroupOptions,
        plan: MemoryPlan,
    ) -> Result<GroupBuilder> {
        let file = SpillFile::new(env.disk.clone(), spill.to_owned(), plan.block_bytes);
        let setup = Arc::new(Setup { options: *options, plan, file: Arc::new(file) });
        let lane = || {
            let shard = Box::new(Shard::new(setup.clone()));
            Lane { inbox: Inbox::default(), work: Work::Idle(shard, Inbox::default()) }
        };
        let lanes = (0..1 << plan.shard_bits).map(|_| lane()).collect();
        let executor = env.executor.clone();
        Ok(GroupBuilder { setup, executor, lanes, rows: 0, is_failed: false })
    }

    /// Adds a row: a key of a group.
    ///
    /// # Errors
    /// `Limit` if the group has more than 65,535 bytes; errors of the spill, after which all calls fail.
    #[inline]
    pub fn add(&mut self, group: &[u8], key: &[u8]) -> Result<()> {
        self.add_hash(group, self.setup.options.family.hash(key))
    }

    /// Adds a row without a key: the group is there, with a sketch of no keys if it has no others.
    ///
    /// # Errors
    /// The errors of [`GroupBuilder::add`].
    pub fn add_group(&mut self, group: &[u8]) -> Result<()> {
        // The value 0 changes no register.
        self.add_entry(group, 0)
    }

    /// Adds a row whose key has the given hash: 64 bits, as [`Family::hash`](super::super::Family::hash)
    /// returns them.
    ///
    /// # Errors
    /// The errors of [`GroupBuilder::add`].
    #[inline]
    pub fn add_hash(&mut self, group: &[u8], hash: u64) -> Result<()> {
        let GroupOptions { family, precision, .. } = self.setup.options;
        let (index, value) = family.place(hash, precision);
        self.add_entry(group, (index as u32) << VALUE_BITS | u32::from(value))
    }

    /// Adds a register of a group, as a number.
    #[inline]
    fn add_entry(&mut self, group: &[u8], entry: u32) -> Result<()> {
        if self.is_failed {
            return Err(failed_before());
        }
        check_sizes(group, None)?;
        let group_hash = KeyHash::of(group, self.setup.options.seed);
        let shard = (u128::from(group_hash.high()) << self.setup.plan.shard_bits >> 64) as usize;
        let lane = &mut self.lanes[shard];
        lane.inbox.push(group_hash.low() as u32, entry, group);
        self.rows += 1;
        if lane.inbox.bytes() < self.setup.plan.inbox_bytes { Ok(()) } else { self.send(shard) }
    }

    /// Adds many rows: groups, and the hashes of their keys.
    ///
    /// # Errors
    /// The errors of [`GroupBuilder::add`].
    pub fn add_hashes<G: AsRef<[u8]>>(
        &mut self,
        rows: impl IntoIterator<Item = (G, u64)>,
    ) -> Result<()> {
        rows.into_iter().try_for_each(|(group, hash)| self.add_hash(group.as_ref(), hash))
    }

    /// Gives the rows of an inbox to their shard, once it has taken those before.
    fn send(&mut self, lane: usize) -> Result<()> {
        let (mut shard, empty) = self.idle(lane)?;
        let inbox_bytes = self.setup.plan.inbox_bytes;
        let mut full = mem::replace(&mut self.lanes[lane].inbox, empty);
        self.lanes[lane].work = Work::Busy(Pending::start(&*self.executor, move || {
            let taken = shard.absorb(&full);
            full.clear(inbox_bytes);
            (shard, full, taken)
        }));
        Ok(())
    }

    /// Waits until a shard has taken all rows that it was given, and takes it.
    fn idle(&mut self, lane: usize) -> Result<(Box<Shard>, Inbox)> {
        if self.is_failed {
            return Err(failed_before());
        }
        match mem::replace(&mut self.lanes[lane].work, Work::Lost) {
            Work::Idle(shard, inbox) => Ok((shard, inbox)),
            Work::Busy(pending) => {
                // A job that panics has failed, too.
                self.is_failed = true;
                let (shard, inbox, taken) = pending.wait();
                self.is_failed = taken.is_err();
                taken.map(|()| (shard, inbox))
            }
            Work::Lost => unreachable!("a shard is lost only by a failure"),
        }
    }

    /// Ends the input and returns the run of all groups: [`Hll::to_bytes`] of each.
    ///
    /// # Errors
    /// Errors of the spill.
    pub fn finish(mut self) -> Result<GroupRun> {
        let mut inbox_bytes = 0;
        for lane in 0..self.lanes.len() {
            self.send(lane)?;
        }
        let mut jobs = Vec::new();
        for lane in 0..self.lanes.len() {
            let (shard, inbox) = self.idle(lane)?;
            inbox_bytes += inbox.memory_bytes() + self.lanes[lane].inbox.memory_bytes();
            jobs.push(Pending::start(&*self.executor, move || shard.finish()));
        }
        let (mut segments, mut summary, mut memory_bytes) =
            (Vec::new(), Summary::EMPTY, inbox_bytes);
        for job in jobs {
            let (segment, peak_bytes) = job.wait()?;
            memory_bytes += peak_bytes;
            summary = summary.union(segment.summary);
            segments.push(segment);
        }
        segments.reverse();
        let spilled_bytes = self.setup.file.written_bytes();
        let stats = GroupStats { rows: self.rows, memory_bytes, spilled_bytes };
        Ok(GroupRun { setup: self.setup, segments, current: None, summary, stats })
    }
}

fn failed_before() -> Error {
    ErrorKind::FailedBefore { action: "group" }.into()
}

/// The run of all groups of a [`GroupBuilder`]: the keys are the groups, the values are sketches
/// ([`Hll::to_bytes`]).
#[derive(Debug)]
pub struct GroupRun {
    setup: Arc<Setup>,
    /// Segments of the shards that come, the last one first.
    segments: Vec<Segment>,
    current: Option<SegmentReader>,
    summary: Summary,
    stats: GroupStats,
}

impl GroupRun {
    /// Returns the amounts of the group-by.
    pub fn stats(&self) -> GroupStats {
        self.stats
    }

    /// Returns the number of groups.
    pub fn group_count(&self) -> u64 {
        self.summary.entries_max
    }
}

impl Run for GroupRun {
    fn seed(&self) -> Seed {
        self.setup.options.seed
    }

    /// Returns exact numbers.
    fn summary(&self) -> Summary {
        self.summary
    }

    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(current) = &mut self.current
                && current.advance()?
            {
                return Ok(true);
            }
            let Some(next) = self.segments.pop() else {
                self.current = None;
                return Ok(false);
            };
            self.current = Some(SegmentReader::new(&self.setup.file, next, self.seed()));
        }
    }

    fn entry(&self) -> Entry<'_> {
        self.current.as_ref().expect("the last advance returned true").entry()
    }
}

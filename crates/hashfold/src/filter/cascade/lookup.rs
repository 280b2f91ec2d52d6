//! Looking up many keys: first in memory, then with all device reads in flight together.
//!
//! Keys are sorted by hash, so keys in the same block share a read, and adjacent blocks are read
//! with one longer read: a batch that touches most of a run reads the run sequentially.
//!
//! A batch is looked up in slices of the hash order. So the notes about keys and runs take at most
//! [`NOTES_BYTES`], for any number of keys and runs.

use super::{
    catalog::{Epoch, View},
    key_range::KeyRange,
    memtable::Memtable,
    ram_runs::RamRun,
    resident::Known,
    run_file::RunFile,
};
use crate::{
    error::Result,
    filter::{Mode, PackedRun, block::BLOCK_SIZE},
    fingerprints::{FingerprintBatch, Universe},
    io::Extent,
};
use std::{cell::RefCell, collections::HashMap, mem, slice, sync::Arc};

/// Maximum number of unwanted blocks between two wanted blocks that are read along, because one
/// longer read is cheaper than two.
const GAP_BLOCKS_MAX: u64 = 2;
/// Maximum number of blocks in one read.
const READ_BLOCKS_MAX: u64 = 64;
/// Minimum number of wanted keys in a block for which decoding the whole block is faster than
/// searching for each key.
const DECODE_MIN: usize = 24;
/// Number of keys by which the memory of a memtable is prefetched.
const AHEAD: usize = 16;

/// Maximum number of notes in one slice of a batch. A note says that a run must be read for a key.
///
/// With more notes, reads of neighbouring blocks are longer, and the device is idle less often.
const NOTES_MAX: usize = if cfg!(test) { 256 } else { 3 << 16 };
/// Maximum number of keys in a slice.
const SLICE_MAX: usize = 1 << 14;
/// Memory of a lookup for one slice, in bytes: the notes, and for each key its finding, its place
/// among the open queries, and its answer.
const NOTES_BYTES: usize = NOTES_MAX * size_of::<Wanted>()
    + SLICE_MAX * (size_of::<Finding>() + size_of::<u32>() + size_of::<i64>());
/// Memory of a lookup for each key of its batch, in bytes.
const KEY_BYTES: usize = size_of::<Query>() + size_of::<i64>();
// The bound that `CascadeSettings::memory_bytes` documents.
const _: () = assert!(NOTES_BYTES <= 3 << 20);
const _: () = assert!(KEY_BYTES <= 24);

/// The places to look up keys in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'a> {
    pub(super) mode: Mode,
    pub(super) universe: Universe,
    /// The immutable memtable, if there is one.
    pub(super) immutable: Option<&'a Memtable>,
    pub(super) active: Option<&'a Memtable>,
    /// The runs in RAM, newest first; older than the memtables.
    pub(super) ram_runs: &'a [RamRun],
    pub(super) view: &'a View,
}

/// A key that is looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    /// The high 64 bits of its hash.
    pub(super) hash: u64,
    /// Index of the key in the batch.
    pub(super) index: u32,
}

/// Keys in ascending order, and their answers.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) queries: Vec<Query>,
    /// The count of each key: in a set positive if the key is present, in a multiset the number of
    /// copies.
    pub(super) counts: Vec<i64>,
}

impl Answers {
    /// Sets `out` to `answer` of each count, in the order of the batch.
    pub(super) fn fill<T>(&self, out: &mut [T], answer: impl Fn(i64) -> T) {
        assert_eq!(self.queries.len(), out.len());
        for (query, &count) in self.queries.iter().zip(&self.counts) {
            out[query.index as usize] = answer(count);
        }
    }
}

/// A run that must be read, and the queries that need it.
struct Reading<'a> {
    run: &'a Arc<RunFile>,
    /// Age of the run; the newest one has age 0.
    age: u32,
    /// The wanted keys, each with the first block that may have it and the number of these blocks.
    wanted: Vec<Wanted>,
}

/// A note: a key, and the blocks of a run that may have it. There may be one for each key and each
/// run: 12 bytes.
#[derive(Clone, Copy)]
struct Wanted {
    query: u32,
    block: u32,
    blocks: u32,
}

impl Wanted {
    fn start(self) -> u64 {
        u64::from(self.block)
    }

    /// Returns the block after the last one.
    fn end(self) -> u64 {
        u64::from(self.block) + u64::from(self.blocks)
    }
}

/// Adjacent blocks of a run, read together.
struct Piece {
    reading: usize,
    /// The first block of the piece, and the number of its blocks.
    first: u64,
    count: u64,
    /// The range of the wanted keys that the piece is read for.
    wanted: std::ops::Range<usize>,
}

/// The answer to a query so far.
#[derive(Clone, Copy)]
struct Finding {
    count: i64,
    /// Age of the run with the answer; the largest number if there is none yet.
    age: u32,
}

const NOTHING: Finding = Finding { count: 0, age: u32::MAX };

/// Looks up all of `hashes`, at most 2^32.
pub(super) fn look_up(sources: Sources<'_>, hashes: impl Iterator<Item = u64>) -> Result<Answers> {
    let mut queries: Vec<Query> =
        hashes.zip(0..).map(|(hash, index)| Query { hash, index }).collect();
    queries.sort_unstable_by_key(|query| (query.hash, query.index));
    let epochs = &sources.view.epochs;
    let mut counts = Vec::with_capacity(queries.len());
    for slice in queries.chunks(slice_len(epochs)) {
        if sources.mode == Mode::Set || epochs.len() == 1 {
            counts.extend(query_epochs(sources, epochs, slice)?);
        } else {
            counts.extend(query_each_epoch(sources, slice)?);
        }
    }
    Ok(Answers { queries, counts })
}

/// Returns the number of keys in a slice, so that there are at most [`NOTES_MAX`] notes. A key may
/// need a note for each run above the last level that is not whole in memory, and one for each last
/// level.
fn slice_len(epochs: &[Epoch<Arc<RunFile>>]) -> usize {
    let uppers = epochs.iter().flat_map(|epoch| &epoch.uppers);
    let is_read = |run: &RunFile| run.resident().is_none_or(|resident| !resident.is_whole());
    let read = uppers.filter(|upper| is_read(&upper.run)).count();
    (NOTES_MAX / (read + epochs.len())).clamp(1, SLICE_MAX)
}

/// Looks up keys of a multiset in the memtables and in each epoch, the oldest epoch first: a
/// removal of an absent key has no effect.
fn query_each_epoch(sources: Sources<'_>, queries: &[Query]) -> Result<Vec<i64>> {
    let epochs = &sources.view.epochs;
    let mut counts = vec![0_i64; queries.len()];
    for (i, epoch) in epochs.iter().enumerate().rev() {
        // Memtables and runs in RAM belong to the newest epoch.
        let older = Sources { immutable: None, active: None, ram_runs: &[], ..sources };
        let sources = if i == 0 { sources } else { older };
        let changes = query_epochs(sources, slice::from_ref(epoch), queries)?;
        for (count, change) in counts.iter_mut().zip(changes) {
            *count = count.saturating_add(change).max(0);
        }
    }
    Ok(counts)
}

/// Looks up keys in the memtables and some epochs, newest first.
fn query_epochs<'a>(
    sources: Sources<'a>,
    epochs: &'a [Epoch<Arc<RunFile>>],
    queries: &'a [Query],
) -> Result<Vec<i64>> {
    let mut lookup = SliceLookup {
        sources,
        queries,
        findings: vec![NOTHING; queries.len()],
        open: Vec::new(),
        readings: Vec::new(),
        age: 1,
    };
    lookup.query_memtables();
    sources.ram_runs.iter().for_each(|ram| lookup.query_ram_run(&ram.run));
    epochs.iter().try_for_each(|epoch| lookup.query_epoch(epoch))?;
    if sources.mode == Mode::Set {
        lookup.drop_needless();
    }
    lookup.read()?;
    Ok(lookup.findings.into_iter().map(|finding| finding.count).collect())
}

/// The lookup of some keys in the memtables and some epochs.
struct SliceLookup<'a> {
    sources: Sources<'a>,
    queries: &'a [Query],
    /// The answer to each query so far.
    findings: Vec<Finding>,
    /// The queries that older runs may answer.
    open: Vec<u32>,
    /// The runs that have to be read, newest first.
    readings: Vec<Reading<'a>>,
    /// Age of the next run.
    age: u32,
}

impl<'a> SliceLookup<'a> {
    #[inline]
    fn fingerprint(&self, query: u32) -> u64 {
        self.sources.universe.scale(self.queries[query as usize].hash)
    }

    /// Records the count of a query in the run of this age.
    #[inline]
    fn note(&mut self, query: u32, age: u32, count: i64) {
        let finding = &mut self.findings[query as usize];
        match self.sources.mode {
            Mode::Multiset => finding.count = finding.count.saturating_add(count),
            Mode::Set if age < finding.age => *finding = Finding { count, age },
            Mode::Set => {}
        }
    }

    /// Looks up keys in the memtables.
    fn query_memtables(&mut self) {
        let Sources { mode, active, immutable, .. } = self.sources;
        let tables = active.into_iter().chain(immutable);
        let tables: Vec<&Memtable> = tables.filter(|table| !table.is_empty()).collect();
        if tables.is_empty() {
            self.open.extend(0..self.queries.len() as u32);
            return;
        }
        self.open.reserve(self.queries.len());
        for (i, (query, finding)) in self.queries.iter().zip(&mut self.findings).enumerate() {
            if let Some(ahead) = self.queries.get(i + AHEAD) {
                tables.iter().for_each(|table| table.fetch(ahead.hash));
            }
            for table in &tables {
                let count = table.count(query.hash);
                finding.count = finding.count.saturating_add(count);
                if mode == Mode::Set && count != 0 {
                    finding.age = 0;
                    break;
                }
            }
            if finding.age != 0 {
                self.open.push(i as u32);
            }
        }
    }

    /// Looks up keys in a run in RAM.
    fn query_ram_run(&mut self, run: &PackedRun) {
        let mut open = mem::take(&mut self.open);
        open.retain(|&i| {
            let count = run.find(self.fingerprint(i));
            if let Some(count) = count {
                self.note(i, self.age, count);
            }
            count.is_none() || self.sources.mode == Mode::Multiset
        });
        (self.open, self.age) = (open, self.age + 1);
    }

    /// Looks up keys in the runs of an epoch, newest first. Runs in memory answer at once; the other
    /// runs are noted for reading.
    fn query_epoch(&mut self, epoch: &'a Epoch<Arc<RunFile>>) -> Result<()> {
        for upper in &epoch.uppers {
            for range in upper.ranges.iter() {
                self.query_run(&upper.run, range)?;
            }
        }
        for (i, shard) in epoch.shards.iter().enumerate() {
            if let Some(run) = &shard.run {
                self.query_run(run, epoch.range_of(i, self.sources.universe))?;
            }
        }
        Ok(())
    }

    fn query_run(&mut self, run: &'a Arc<RunFile>, range: KeyRange) -> Result<()> {
        let start = self.open.partition_point(|&i| self.fingerprint(i) < range.first);
        let later = &self.open[start..];
        let end = start + later.partition_point(|&i| self.fingerprint(i) <= range.last);
        let resident = run.resident();
        // A vector takes no more memory than it needs: a summary answers nearly all queries.
        let wanted = Vec::with_capacity(if resident.is_none() { end - start } else { 0 });
        let mut reading = Reading { run, age: self.age, wanted };
        let mut kept = start;
        for at in start..end {
            let i = self.open[at];
            let fingerprint = self.fingerprint(i);
            let blocks = run.index.candidates(fingerprint);
            let known = match &resident {
                _ if blocks.is_empty() => Known::Absent,
                Some(resident) => resident.find(fingerprint, blocks.clone())?,
                None => Known::Perhaps,
            };
            let mut is_open = true;
            match known {
                Known::Absent => {}
                Known::Count(count) => {
                    self.note(i, self.age, count);
                    is_open = self.sources.mode == Mode::Multiset;
                }
                Known::Perhaps => {
                    let (block, count) = (blocks.start as u32, (blocks.end - blocks.start) as u32);
                    reading.wanted.push(Wanted { query: i, block, blocks: count });
                }
            }
            if is_open {
                self.open[kept] = i;
                kept += 1;
            }
        }
        self.open.drain(kept..end);
        if !reading.wanted.is_empty() {
            self.readings.push(reading);
        }
        self.age += 1;
        Ok(())
    }

    /// Drops reads of newer runs that cannot change the answer of an older run in memory: the key is
    /// present there, and no newer run can have removed it.
    fn drop_needless(&mut self) {
        let mut is_settled: Vec<bool> = self.findings.iter().map(|it| it.count > 0).collect();
        // Goes from the oldest run to the newest. A run with removals makes all newer runs matter
        // again.
        for reading in self.readings.iter_mut().rev() {
            if reading.run.facts.negative == 0 {
                reading.wanted.retain(|wanted| !is_settled[wanted.query as usize]);
            } else {
                reading.wanted.iter().for_each(|wanted| is_settled[wanted.query as usize] = false);
            }
        }
        self.readings.retain(|reading| !reading.wanted.is_empty());
    }

    /// Reads all noted blocks, with as many reads in flight as the device allows.
    fn read(&mut self) -> Result<()> {
        let readings = mem::take(&mut self.readings);
        let files: Vec<_> = readings.iter().map(|reading| &*reading.run.file).collect();
        let Some(first) = files.first() else { return Ok(()) };
        // Only pieces in flight are stored, because there may be one for each note.
        let in_flight = RefCell::new(HashMap::new());
        let pieces = readings.iter().enumerate().flat_map(|(i, reading)| Pieces::new(i, reading));
        let mut extents = pieces.enumerate().map(|(i, piece)| {
            let extent: Extent = readings[piece.reading].run.extent(piece.first, piece.count);
            let file = piece.reading;
            in_flight.borrow_mut().insert(i, piece);
            (file, extent)
        });
        let mut items = FingerprintBatch::new();
        first.read_across(&files, &mut extents, &mut |i, bytes| {
            let piece: Piece = in_flight.borrow_mut().remove(&i).expect("each piece is read once");
            self.search(&piece, &readings[piece.reading], bytes, &mut items)
        })
    }

    /// Searches for queries in blocks that were read.
    fn search(
        &mut self,
        piece: &Piece,
        reading: &Reading<'_>,
        bytes: &[u8],
        items: &mut FingerprintBatch,
    ) -> Result<()> {
        let wanted = &reading.wanted[piece.wanted.clone()];
        for group in wanted.chunk_by(|a, b| (a.block, a.blocks) == (b.block, b.blocks)) {
            let end = group[0].end().min(piece.first + piece.count);
            for number in group[0].start().max(piece.first)..end {
                let start = (number - piece.first) as usize * BLOCK_SIZE;
                let block = reading.run.block(number, &bytes[start..][..BLOCK_SIZE])?;
                if group.len() >= DECODE_MIN {
                    items.clear();
                    block.decode(items)?;
                    self.join(items, group, reading.age);
                    continue;
                }
                for wanted in group {
                    if let Some(count) = block.find(self.fingerprint(wanted.query))? {
                        self.note(wanted.query, reading.age, count);
                    }
                }
            }
        }
        Ok(())
    }

    /// Joins a block of a run of this age with its wanted keys.
    fn join(&mut self, items: &FingerprintBatch, wanted: &[Wanted], age: u32) {
        let FingerprintBatch { fingerprints, exceptions } = items;
        let (mut i, mut exception) = (0, 0);
        for wanted in wanted {
            let fingerprint = self.fingerprint(wanted.query);
            while fingerprints.get(i).is_some_and(|&it| it < fingerprint) {
                i += 1;
            }
            while exceptions.get(exception).is_some_and(|it| it.position < i) {
                exception += 1;
            }
            if fingerprints.get(i) == Some(&fingerprint) {
                let here = exceptions.get(exception).filter(|it| it.position == i);
                self.note(wanted.query, age, here.map_or(1, |it| it.count));
            }
        }
    }
}

/// The wanted blocks of a run, as reads.
struct Pieces<'a> {
    reading: usize,
    wanted: &'a [Wanted],
    /// The first wanted key that is not in a piece yet.
    next: usize,
    /// Number of the key's blocks that are in pieces already.
    done: u64,
}

impl<'a> Pieces<'a> {
    fn new(reading: usize, of: &'a Reading<'_>) -> Pieces<'a> {
        Pieces { reading, wanted: &of.wanted, next: 0, done: 0 }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let start = self.next;
        let wanted = self.wanted.get(start)?;
        let (first, left) = (wanted.start() + self.done, wanted.end() - wanted.start() - self.done);
        let count = left.min(READ_BLOCKS_MAX);
        let mut piece = Piece { reading: self.reading, first, count, wanted: start..start + 1 };
        // Happens only if an attacker chose the hashes.
        if count < left {
            self.done += count;
            return Some(piece);
        }
        let is_whole = mem::take(&mut self.done) == 0;
        let fits = |piece: &Piece, wanted: &Wanted| {
            wanted.start() <= piece.first + piece.count + GAP_BLOCKS_MAX
                && wanted.end() - piece.first <= READ_BLOCKS_MAX
        };
        while let Some(wanted) = self.wanted.get(piece.wanted.end)
            && is_whole
            && fits(&piece, wanted)
        {
            piece.count = piece.count.max(wanted.end() - piece.first);
            piece.wanted.end += 1;
        }
        self.next = piece.wanted.end;
        Some(piece)
    }
}

//! Collecting changes in any order of hashes, older ones first.

use super::{
    loss::{Loss, Lost},
    patient::Failures,
};
use crate::{
    error::{Error, ErrorClass, Result},
    io::{BlockFile, Buffer},
    key::KeyHash,
    map::{
        MapOptions,
        batch::Batch,
        block::{BLOCK_SIZE, Block, BlockId},
        devices::Identity,
        item::{Change, Value},
        large,
        log::{self, Expand, Logged, Part},
        pointer::Pointer,
    },
    run::{Entry, SortOptions, Sorted, Sorter, Summary},
    wal::Record,
    work::Watch,
};
use std::{
    collections::HashSet,
    ops::{Range, RangeInclusive},
    path::Path,
    sync::Arc,
};

/// Number of blocks that are read at once.
pub(super) const BLOCKS_AT_ONCE: usize = if cfg!(test) { 3 } else { 64 };

/// The range of all hashes.
pub(super) const ALL_HASHES: RangeInclusive<KeyHash> =
    KeyHash::from_bits(0)..=KeyHash::from_bits(u128::MAX);

/// Changes on their way into a run, and what could not be read.
pub(super) struct Collector<'a> {
    pub(super) identity: Identity,
    /// The data file, if it is there.
    pub(super) file: Option<Arc<dyn BlockFile>>,
    pub(super) losses: Vec<Loss>,
    failures: Failures,
    /// The places of the parts of records that were read. A damaged log may name a part again and again.
    parts: HashSet<Pointer>,
    /// The memory and the environment for sorting, and the name of the spill file.
    sorted_in: (&'a MapOptions, &'a Path),
    sorter: Sorter,
    /// The summary of the changes with their large values.
    summary: Summary,
    /// One change.
    batch: Batch,
    watch: &'a Watch,
}

fn new_sorter(identity: Identity, (options, spill): (&MapOptions, &Path)) -> Result<Sorter> {
    let env = &options.env;
    let sizes = SortOptions::within(options.memory_bytes);
    let spill = spill.to_owned();
    Sorter::new(env.disk.clone(), spill, identity.seed, sizes, env.executor.clone())
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        identity: Identity,
        sorted_in: (&'a MapOptions, &'a Path),
        failures: Failures,
        watch: &'a Watch,
    ) -> Result<Collector<'a>> {
        Ok(Collector {
            identity,
            file: None,
            losses: Vec::new(),
            failures,
            parts: HashSet::new(),
            sorted_in,
            sorter: new_sorter(identity, sorted_in)?,
            summary: Summary::EMPTY,
            batch: Batch::default(),
            watch,
        })
    }

    /// Adds a change, which is newer than those before it.
    pub(super) fn push(&mut self, change: Change<'_>) -> Result<()> {
        self.batch.clear();
        self.batch.push(change, 0);
        let Entry { key, value, .. } = self.batch.entry(0);
        self.sorter.push(key, value)?;
        self.summary.add(key, None);
        let size = match change.content.value {
            Value::Tombstone => return Ok(()),
            Value::Inline(value) => value.len(),
            Value::Large(pointer) => pointer.size as usize,
        };
        self.summary.values.add(size);
        self.summary.bytes_max += size as u64;
        Ok(())
    }

    /// Deletes all keys that the changes so far have.
    fn clear(&mut self) -> Result<()> {
        self.sorter = new_sorter(self.identity, self.sorted_in)?;
        self.summary = Summary::EMPTY;
        Ok(())
    }

    /// Adds the changes of a record.
    pub(super) fn push_record(&mut self, record: Record<'_>) -> Result<()> {
        let (seed, mut seq) = (self.identity.seed, record.seq);
        let taken = log::decode(record.payload, record.count, seed, |logged| {
            let seqs = seq..seq + logged.count();
            seq = seqs.end;
            match logged {
                Logged::Key(change) => self.push(change),
                Logged::Clear => self.clear(),
                Logged::Loaded => Ok(()),
                Logged::Part(part) => self.push_part(part, seqs),
                Logged::List(list) => {
                    let pushed = self.push_list(list, seqs.start);
                    self.note(pushed, || Lost::Records(seqs))
                }
            }
        });
        self.note(taken, || Lost::Records(record.seq..record.end()))
    }

    /// Adds the changes of a list of parts, the first of which has this sequence number.
    fn push_list(&mut self, list: Part, mut seq: u64) -> Result<()> {
        let bytes = self.read_part(list)?;
        log::decode_list(&bytes, list.count, |part| {
            let seqs = seq..seq + part.count;
            seq = seqs.end;
            self.push_part(part, seqs)
        })
    }

    /// Adds the changes of a part of a record, which have these sequence numbers.
    fn push_part(&mut self, part: Part, seqs: Range<u64>) -> Result<()> {
        let bytes = self.read_part(part);
        let seed = self.identity.seed;
        let pushed = bytes.and_then(|bytes| {
            log::decode_part(&bytes, part.count, seed, |change| self.push(change))
        });
        self.note(pushed, || Lost::Records(seqs))
    }

    /// Reads a part of a record, or a list of parts: each once until [`Collector::forget_parts`].
    fn read_part(&mut self, part: Part) -> Result<Vec<u8>> {
        if !self.parts.insert(part.pointer) {
            let got = format!("the part at block {} again", part.pointer.first);
            return Err(Error::field("place of a part of a record", "a part of its own", got));
        }
        let file = self.file.as_ref().ok_or_else(|| {
            Error::field("part of a record", "a data file that has it", "no data file")
        })?;
        large::read_unowned(&**file, self.identity.id, part.pointer)
    }

    /// Whether all parts of a record can be read. After a checkpoint, their blocks may be used for something else.
    pub(super) fn has_parts(&mut self, record: Record<'_>) -> bool {
        let (seed, mut parts) = (self.identity.seed, Parts(self));
        let has_parts = |logged: Logged<'_>| log::expand(logged, seed, &mut parts);
        log::decode(record.payload, record.count, seed, has_parts).is_ok()
    }

    /// Lets the parts of records be read once more.
    pub(super) fn forget_parts(&mut self) {
        self.parts.clear();
    }

    /// Returns the highest number of a write of the large values and parts that a record names, but for those in
    /// its parts; 0 if it names none.
    pub(super) fn last_write_named(&self, record: Record<'_>) -> u64 {
        let mut last = 0;
        let note = |logged: Logged<'_>| {
            let pointer = match logged {
                Logged::Part(part) | Logged::List(part) => Some(part.pointer),
                Logged::Key(Change { content, .. }) => match content.value {
                    Value::Large(pointer) => Some(pointer),
                    Value::Tombstone | Value::Inline(_) => None,
                },
                Logged::Clear | Logged::Loaded => None,
            };
            last = pointer.map_or(last, |pointer| pointer.write.max(last));
            Ok(())
        };
        // A record that cannot be decoded names nothing.
        let _ = log::decode(record.payload, record.count, self.identity.seed, note);
        last
    }

    /// Adds the entries of a block that are wanted. `lost` says what its damage means.
    pub(super) fn push_block(
        &mut self,
        bytes: &[u8],
        id: BlockId,
        is_wanted: &dyn Fn(KeyHash) -> bool,
        lost: impl FnOnce() -> Lost,
    ) -> Result<()> {
        let mut take = || -> Result<()> {
            let block = Block::decode(bytes, id)?;
            for i in 0..block.count {
                let change = block.entry(i, self.identity.seed)?;
                if is_wanted(change.hash) {
                    self.push(change)?;
                }
            }
            Ok(())
        };
        let taken = take();
        let place = |error: Error| match &self.file {
            Some(file) => error.at(&file.place_at(id.number * BLOCK_SIZE as u64)),
            None => error,
        };
        let taken = taken.map_err(place);
        self.note(taken, lost)
    }

    /// Reads consecutive blocks. Those that cannot be read are zeros.
    pub(super) fn read(&self, first: u64, count: usize) -> Result<Buffer> {
        let mut bytes = Buffer::zeroed(count * BLOCK_SIZE);
        if let Some(file) = &self.file {
            file.read_at(first * BLOCK_SIZE as u64, &mut bytes)?;
        }
        self.watch.add(bytes.len() as u64)?;
        Ok(bytes)
    }

    /// Notes damage. Other errors are returned.
    pub(super) fn note(&mut self, taken: Result<()>, lost: impl FnOnce() -> Lost) -> Result<()> {
        match taken {
            Err(error) if error.class() == ErrorClass::Damage => {
                self.lose(error, lost());
                Ok(())
            }
            taken => taken,
        }
    }

    /// Notes damage, with the error of the device if that is the cause.
    pub(super) fn lose(&mut self, error: Error, lost: Lost) {
        let error = self.failures.take().pop().unwrap_or(error);
        self.losses.push(Loss { error, lost });
    }

    /// Returns the newest change of each key, in order; the summary; and what is lost.
    pub(super) fn finish(self) -> Result<(Sorted, Summary, Vec<Loss>)> {
        Ok((self.sorter.finish()?, self.summary, self.losses))
    }
}

/// The parts of a record, which are read only.
struct Parts<'a, 'c>(&'a mut Collector<'c>);

impl Expand for Parts<'_, '_> {
    fn read(&mut self, part: Part) -> Result<Vec<u8>> {
        self.0.read_part(part)
    }

    fn take(&mut self, _: Change<'_>) -> Result<()> {
        Ok(())
    }
}

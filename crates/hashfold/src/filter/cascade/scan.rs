//! Reading a run sequentially: all of it, or a key range.

use super::{key_range::KeyRange, run_file::RunFile};
use crate::{
    error::Result,
    filter::block::{BLOCK_SIZE, Block},
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    io::Buffer,
    key::Seed,
    work::{Executor, Pending},
};
use std::{ops::Range, sync::Arc};

/// The fingerprints of a key range of a run file, with read-ahead.
pub(super) struct RunScan {
    run: Arc<RunFile>,
    executor: Arc<dyn Executor>,
    range: KeyRange,
    /// The blocks that have not been requested yet.
    blocks: Range<u64>,
    /// Number of blocks per read.
    unit_blocks: u64,
    ahead: Option<Unit<Read>>,
    unit: Option<Unit<Buffer>>,
    spare: Option<Buffer>,
}

/// A buffer that is being filled.
type Read = Pending<(Buffer, Result<()>)>;

/// Blocks that are read together.
struct Unit<T> {
    content: T,
    /// The blocks that have not been decoded yet.
    blocks: Range<u64>,
    first: u64,
}

impl RunScan {
    /// Returns a scan of a key range of `run`. Each read has `unit_size` bytes and runs in the
    /// background.
    pub(super) fn new(
        run: &Arc<RunFile>,
        range: KeyRange,
        unit_size: usize,
        executor: &Arc<dyn Executor>,
    ) -> RunScan {
        let mut scan = RunScan {
            run: run.clone(),
            executor: executor.clone(),
            range,
            blocks: run.blocks_in(range),
            unit_blocks: (unit_size / BLOCK_SIZE).max(1) as u64,
            ahead: None,
            unit: None,
            spare: None,
        };
        if !scan.is_resident() {
            scan.read_ahead();
        }
        scan
    }

    fn is_resident(&self) -> bool {
        self.run.resident().is_some_and(|resident| resident.is_whole())
    }

    /// Starts to read the next unit.
    fn read_ahead(&mut self) {
        let count = self.unit_blocks.min(self.blocks.end - self.blocks.start);
        if count == 0 {
            return;
        }
        let (first, file) = (self.blocks.start, self.run.file.clone());
        self.blocks.start += count;
        let extent = self.run.extent(first, count);
        let size = self.unit_blocks as usize * BLOCK_SIZE;
        let mut buffer = self.spare.take().unwrap_or_else(|| Buffer::zeroed(size));
        let content = Pending::start(&*self.executor, move || {
            let result = file.read_at(extent.offset, &mut buffer[..extent.len]);
            (buffer, result)
        });
        self.ahead = Some(Unit { content, blocks: first..first + count, first });
    }

    /// Appends the content of the next block; returns `false` at the end.
    fn next_block(&mut self, items: &mut FingerprintBatch) -> Result<bool> {
        if let Some(unit) = &mut self.unit
            && let Some(number) = unit.blocks.next()
        {
            let start = (number - unit.first) as usize * BLOCK_SIZE;
            self.run.block(number, &unit.content[start..][..BLOCK_SIZE])?.decode(items)?;
            return Ok(true);
        }
        if self.ahead.is_none() {
            let Some(number) = self.blocks.next() else { return Ok(false) };
            let resident = self.run.resident();
            if let Some(block) = resident.as_ref().and_then(|it| it.block(number as usize)) {
                Block::new(block)?.decode(items)?;
                return Ok(true);
            }
            // The blocks in memory were dropped meanwhile.
            self.blocks.start = number;
            self.read_ahead();
        }
        let Some(Unit { content, blocks, first }) = self.ahead.take() else { return Ok(false) };
        let (buffer, result) = content.wait();
        self.spare = self.unit.take().map(|unit| unit.content);
        result?;
        self.unit = Some(Unit { content: buffer, blocks, first });
        self.read_ahead();
        self.next_block(items)
    }
}

impl Fingerprints for RunScan {
    fn seed(&self) -> Seed {
        self.run.name.seed
    }

    fn universe(&self) -> Universe {
        self.run.name.universe
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        let start = batch.len();
        while batch.len() == start {
            if !self.next_block(batch)? {
                return Ok(false);
            }
            batch.trim(start, (self.range.first, self.range.last));
        }
        Ok(true)
    }
}

/// Parts of runs, one after the other. Each is opened, and takes memory, when its turn comes.
pub(super) struct Chain<I> {
    seed: Seed,
    universe: Universe,
    scans: I,
    current: Option<RunScan>,
}

impl<I: Iterator<Item = RunScan>> Chain<I> {
    pub(super) fn new(seed: Seed, universe: Universe, scans: I) -> Chain<I> {
        Chain { seed, universe, scans, current: None }
    }
}

impl<I: Iterator<Item = RunScan> + Send> Fingerprints for Chain<I> {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn universe(&self) -> Universe {
        self.universe
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        loop {
            if let Some(scan) = &mut self.current
                && scan.append_to(batch)?
            {
                return Ok(true);
            }
            self.current = self.scans.next();
            if self.current.is_none() {
                return Ok(false);
            }
        }
    }
}

//! All entries of a data file, as a run.

use super::{
    blocks::{Blocks, Context, Located, Stretch},
    layout::Position,
};
use crate::{
    error::{Error, Result},
    io::{ALIGNMENT, BlockFile, Buffer},
    key::KeyHash,
    run::{Entry, Run},
};
use std::sync::Arc;

/// How much is read at once by those who read all of it, in bytes.
const CHUNK_SIZE: usize = 1 << 20;

/// A table's entries, in the order of their hashes.
#[derive(Debug)]
pub struct TableScan {
    file: Arc<dyn BlockFile>,
    context: Context,
    /// How much is read at once, in bytes; more where one entry is larger.
    chunk_size: usize,
    /// Blocks in memory, and the number of the first one.
    chunk: Buffer,
    first: u64,
    /// The block whose head is read next.
    next_block: u64,
    /// Entries that are left in the block before that, and the next one of them.
    left: usize,
    next: Position,
    current: Option<Current>,
    /// Parts of the current entry that go over the end of a block.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The entry that the scan stands on.
#[derive(Clone, Copy, Debug)]
struct Current {
    hash: KeyHash,
    start: Position,
    entry: Located,
}

impl TableScan {
    pub(super) fn new(file: Arc<dyn BlockFile>, context: &Context) -> TableScan {
        TableScan {
            file,
            context: context.clone(),
            chunk_size: CHUNK_SIZE,
            chunk: Buffer::zeroed(0),
            first: 0,
            next_block: 0,
            left: 0,
            next: Position { block: 0, offset: 0 },
            current: None,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Shows `visit` the keys of about `count` entries, spread evenly, with a read for each.
    pub(super) fn sample(
        mut self,
        count: u64,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.chunk_size = self.context.layout.block_size;
        let blocks = u128::from(self.context.blocks);
        for i in 0..u128::from(count) {
            let block = (i * blocks / u128::from(count)) as u64;
            if block < self.next_block {
                continue;
            }
            self.resume_at(block);
            if !self.advance()? {
                break;
            }
            visit(self.entry().key)?;
        }
        Ok(())
    }

    /// Where the current entry starts.
    ///
    /// # Panics
    /// If the last `advance` did not return `true`.
    pub(super) fn position(&self) -> Position {
        self.current.expect("the scan stands on an entry").start
    }

    /// Goes on with this block, after one in which something was damaged.
    pub(super) fn resume_at(&mut self, block: u64) {
        self.left = 0;
        self.next_block = block;
    }

    /// The block whose head is read next.
    pub(super) fn next_block(&self) -> u64 {
        self.next_block
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks::new(&self.context, self.first, &self.chunk)
    }

    /// Has the blocks from `start` to `end` in memory.
    fn load(&mut self, start: u64, end: u64) -> Result<()> {
        let block_size = self.context.layout.block_size;
        let loaded = self.first + (self.chunk.len() / block_size) as u64;
        if self.first <= start && end <= loaded {
            return Ok(());
        }
        let end = end.max(start + (self.chunk_size / block_size) as u64).min(self.context.blocks);
        let size = (end - start) as usize * block_size;
        if self.chunk.len() != size {
            self.chunk = Buffer::zeroed(size);
        }
        self.first = start;
        self.file.read_at(ALIGNMENT as u64 + start * block_size as u64, &mut self.chunk)
    }

    /// Steps to the next block in which entries start; `false` at the end.
    fn step_block(&mut self) -> Result<bool> {
        while self.left == 0 {
            let number = self.next_block;
            if number >= self.context.blocks {
                return Ok(false);
            }
            self.next_block += 1;
            self.load(number, number + 1)?;
            let head = self.blocks().head(number)?;
            self.left = head.count;
            self.next = Position { block: number, offset: head.first };
        }
        Ok(true)
    }

    /// Finds the entry at a position and has all of it in memory, checked.
    fn locate(&mut self, at: Position) -> Result<Located> {
        let entry = self.blocks().locate(at)?;
        let end = entry.end_block();
        if end > self.context.blocks {
            let expected = format!("inside the file's {} blocks", self.context.blocks);
            return Err(Error::field("end of the entry", expected, end).at(self.file.place()));
        }
        self.load(at.block, end)?;
        for number in at.block + 1..end {
            self.blocks().head(number)?;
        }
        Ok(entry)
    }

    fn part<'a>(&'a self, stretch: Stretch, gathered: &'a [u8]) -> &'a [u8] {
        self.blocks().contiguous(stretch).unwrap_or(gathered)
    }
}

impl Run for TableScan {
    fn advance(&mut self) -> Result<bool> {
        self.current = None;
        if !self.step_block()? {
            return Ok(false);
        }
        let start = self.next;
        let entry = self.locate(start)?;
        let (mut key, mut value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        for (stretch, out) in [(entry.key, &mut key), (entry.value, &mut value)] {
            if self.blocks().contiguous(stretch).is_none() {
                self.blocks().gather(stretch, out);
            }
        }
        (self.key, self.value) = (key, value);
        let hash = KeyHash::of(self.part(entry.key, &self.key), self.context.seed);
        self.current = Some(Current { hash, start, entry });
        self.next = entry.next;
        self.left -= 1;
        Ok(true)
    }

    fn entry(&self) -> Entry<'_> {
        let Current { hash, entry, .. } = self.current.expect("the scan stands on an entry");
        let key = self.part(entry.key, &self.key);
        Entry { hash, key, value: Some(self.part(entry.value, &self.value)) }
    }
}

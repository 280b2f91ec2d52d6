//! All entries of a data file, as a run.

use super::{
    blocks::{Context, DataBlocks, Located, Stretch},
    data::DataFile,
    layout::{BlockHead, EntryInside, Position},
    window::Window,
};
use crate::{
    error::{Error, Result},
    key::{KeyHash, Seed},
    run::{Entry, Run, Summary},
    work::Executor,
};
use std::sync::Arc;

/// The entries of a table, in the order of their hashes, as a run.
#[derive(Debug)]
pub struct TableScan {
    context: Context,
    summary: Summary,
    window: Window,
    /// The block whose head is read next.
    next_block: u64,
    /// The head of the block before, the number of entries left there, and the position of the next
    /// one.
    head: BlockHead,
    left: usize,
    next: Position,
    current: Option<Current>,
    /// Entries with lower high bits of their hashes are left out.
    from: u64,
    /// The key of the current entry, if it continues in a second block; the next field is the
    /// value.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The current entry of the scan.
#[derive(Clone, Copy, Debug)]
struct Current {
    hash: KeyHash,
    start: Position,
    key: Part,
    value: Part,
}

/// The place of the bytes of a key or a value.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// The bytes are in the window.
    Here { start: usize, len: usize },
    /// The bytes were copied together from several blocks.
    Gathered,
}

impl TableScan {
    pub(super) fn new(data: &DataFile) -> TableScan {
        let DataFile { file, context, .. } = data;
        TableScan {
            window: Window::new(file.clone(), context.layout.block_size, context.blocks),
            context: context.clone(),
            summary: data.summary(),
            next_block: 0,
            head: BlockHead::default(),
            left: 0,
            next: Position { block: 0, offset: 0 },
            current: None,
            from: 0,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Leaves out all entries whose hashes have lower high bits than `from`, and reads block by block. Finds
    /// the first other entry with about 10 reads, because hashes are uniform.
    pub(crate) fn starting_from(mut self, from: u64) -> Result<TableScan> {
        if from > 0 && self.context.blocks > 0 {
            self.window.read_little();
            let block = self.last_block_before(from)?;
            self.resume_at(block);
            self.from = from;
        }
        Ok(self)
    }

    /// Returns the last block before which only lower hashes are: a search that starts where the hash
    /// would be if hashes were evenly spread, and doubles its steps.
    fn last_block_before(&mut self, from: u64) -> Result<u64> {
        let blocks = self.context.blocks;
        let guess = ((u128::from(from) * u128::from(blocks)) >> 64) as u64;
        // Only lower hashes are before `low`, and others before `high`.
        let (mut low, mut high, mut step) = (0, blocks, 1);
        let mut next = guess.max(1);
        while next < high && next > low {
            if self.is_after_lower(next, from)? {
                low = next;
                next = next.saturating_add(step);
            } else {
                high = next;
                next = next.saturating_sub(step);
            }
            step *= 2;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.is_after_lower(middle, from)? {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(low)
    }

    /// Whether all entries before a block have lower hashes.
    fn is_after_lower(&mut self, block: u64, from: u64) -> Result<bool> {
        self.window.load(block, block + 1)?;
        Ok(self.blocks().head(block)?.before < from)
    }

    /// Returns the scan with bounds that the caller knows better.
    pub(crate) fn with_summary(mut self, summary: Summary) -> TableScan {
        self.summary = summary;
        self
    }

    /// Enables read-ahead: `executor` reads the next blocks while the caller works.
    #[must_use]
    pub fn reading_ahead(mut self, executor: Arc<dyn Executor>) -> TableScan {
        self.window.read_ahead(executor);
        self
    }

    /// Calls `visit` with the keys of about `count` entries: the first ones of evenly spread
    /// blocks, one read for each block.
    pub(super) fn sample(
        mut self,
        count: u64,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.window.read_little();
        let blocks = self.context.blocks;
        let stops = count.min(blocks);
        for i in 0..stops {
            let block = (u128::from(i) * u128::from(blocks) / u128::from(stops)) as u64;
            if block < self.next_block {
                continue;
            }
            self.resume_at(block);
            for _ in 0..count / stops + u64::from(i < count % stops) {
                if !self.advance()? {
                    return Ok(());
                }
                visit(self.entry().key)?;
                if self.left == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the position of the current entry.
    ///
    /// # Panics
    /// If the last `advance` did not return `true`.
    pub(super) fn position(&self) -> Position {
        self.current.expect("the scan stands on an entry").start
    }

    /// Continues with this block, after damage in an earlier one.
    pub(super) fn resume_at(&mut self, block: u64) {
        self.left = 0;
        self.next_block = block;
    }

    /// Returns the block whose head is read next.
    pub(super) fn next_block(&self) -> u64 {
        self.next_block
    }

    fn blocks(&self) -> DataBlocks<'_> {
        DataBlocks::new(&self.context, self.window.first(), self.window.bytes())
    }

    /// Steps to the next block in which entries start; returns `false` at the end.
    fn step_block(&mut self) -> Result<bool> {
        while self.left == 0 {
            let number = self.next_block;
            if number >= self.context.blocks {
                return Ok(false);
            }
            self.next_block += 1;
            self.window.load(number, number + 1)?;
            self.head = self.blocks().head(number)?;
            self.left = self.head.count;
            self.next = Position { block: number, offset: self.head.first };
        }
        Ok(true)
    }

    /// Returns how many entries start in the block before the next one.
    #[inline]
    fn nth(&self) -> usize {
        self.head.count - self.left
    }

    /// Locates the next entry, and loads and checks all of its blocks.
    fn locate(&mut self) -> Result<Located> {
        let at = self.next;
        let entry = self.blocks().locate(&self.head, self.nth(), at)?;
        let end = entry.end_block();
        if end > self.context.blocks {
            let expected = format!("inside the file's {} blocks", self.context.blocks);
            return Err(
                Error::field("end of the entry", expected, end).at(self.window.file().place())
            );
        }
        self.window.load(at.block, end)?;
        for number in at.block + 1..end {
            self.blocks().head(number)?;
        }
        Ok(entry)
    }

    /// Steps to the next entry if it lies in one block; returns `false` if it does not.
    #[inline]
    fn step_inside_block(&mut self) -> Result<bool> {
        let Context { layout, seed, .. } = &self.context;
        let Position { block, offset } = self.next;
        // A head that counts too many entries leads out of the loaded blocks.
        let base = block.saturating_sub(self.window.first()) as usize * layout.block_size;
        let bytes =
            self.window.bytes().get(base..).and_then(|bytes| bytes.get(..layout.block_size));
        let Some(bytes) = bytes else { return Ok(false) };
        let entry = layout.entry_inside(bytes, self.head.count, self.nth(), offset);
        let Some(EntryInside { key_start, value_start, end }) = entry else { return Ok(false) };
        let hash = KeyHash::of(&bytes[key_start..value_start], *seed);
        self.current = Some(Current {
            hash,
            start: self.next,
            key: Part::Here { start: base + key_start, len: value_start - key_start },
            value: Part::Here { start: base + value_start, len: end - value_start },
        });
        self.next.offset = end;
        Ok(true)
    }

    /// Steps to the next entry, which may continue in other blocks.
    #[cold]
    fn step_anywhere(&mut self) -> Result<()> {
        let entry = self.locate()?;
        let (mut key, mut value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        let key_part = self.part(entry.key, &mut key);
        let value_part = self.part(entry.value, &mut value);
        (self.key, self.value) = (key, value);
        let hash = KeyHash::of(self.bytes(key_part, &self.key), self.context.seed);
        let start = entry.start;
        self.current = Some(Current { hash, start, key: key_part, value: value_part });
        self.next = entry.next;
        Ok(())
    }

    /// Returns the place of a stretch: in the window, or copied to `gathered`.
    fn part(&self, stretch: Stretch, gathered: &mut Vec<u8>) -> Part {
        let blocks = self.blocks();
        match blocks.contiguous(stretch) {
            Some(bytes) if !bytes.is_empty() => {
                let start = bytes.as_ptr().addr() - self.window.bytes().as_ptr().addr();
                Part::Here { start, len: bytes.len() }
            }
            Some(_) => Part::Here { start: 0, len: 0 },
            None => {
                blocks.gather(stretch, gathered);
                Part::Gathered
            }
        }
    }

    #[inline]
    fn bytes<'a>(&'a self, part: Part, gathered: &'a [u8]) -> &'a [u8] {
        match part {
            Part::Here { start, len } => &self.window.bytes()[start..][..len],
            Part::Gathered => gathered,
        }
    }
}

impl Run for TableScan {
    fn seed(&self) -> Seed {
        self.context.seed
    }

    fn summary(&self) -> Summary {
        self.summary
    }

    fn advance(&mut self) -> Result<bool> {
        loop {
            self.current = None;
            if !self.step_block()? {
                return Ok(false);
            }
            if !self.step_inside_block()? {
                self.step_anywhere()?;
            }
            self.left -= 1;
            if self.current.is_some_and(|current| current.hash.high() >= self.from) {
                return Ok(true);
            }
        }
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        let Current { hash, key, value, .. } = self.current.expect("the scan stands on an entry");
        let value = self.bytes(value, &self.value);
        Entry { hash, key: self.bytes(key, &self.key), value: Some(value) }
    }
}

//! Blocks of memory in pages of 64 KiB, each with blocks of one size class, without headers. Each free block of a page
//! has the number of the one that was freed before it, in its first two bytes.
//!
//! A reference to a block has 48 bits: 20 bits of a page, 12 bits of a block on it, 15 bits of a length, and a bit for
//! the caller. A block of length 0 has the smallest size. A page without blocks goes back to a pool for all classes, whose
//! memory is given back to the system when there is much of it.
//!
//! A snapshot may read the blocks of all pages that were opened before it began. Those are freed when it has ended. Blocks of
//! other pages are freed at once, and may be changed in their places: so the free blocks of old pages are used once at most
//! beside a snapshot, and what is kept for it is no more than the pages that were there when it began.

use super::{
    arena::{Arena, At, crowded},
    classes::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, CLASSES, PAGE_BYTES, blocks, class_of, size},
    line::LINE_BYTES,
    queue::Queue,
    stack::Stack,
};
use crate::{
    error::Result,
    work::{Executor, MemoryBudget},
};
use std::{
    collections::HashSet,
    hint::{black_box, select_unpredictable},
    sync::Arc,
};

/// Maximum number of pages: 64 GiB.
const PAGES_MAX: u32 = 1 << 20;
/// Bits of a reference that number a block on its page.
const BLOCK_BITS: u32 = 12;
const _: () = assert!(PAGE_BYTES / BLOCK_BYTES_MIN <= 1 << BLOCK_BITS);
/// Maximum number of lines of a block that are prefetched beside its first and its last one.
const BETWEEN_MAX: usize = 8;
/// The class of pages in the pool.
const NO_CLASS: u8 = u8::MAX;
/// A page in the pool.
const IN_POOL: Page = Page { class: NO_CLASS, leaving: false, free: 0, touched: 0, head: NONE };
/// Stands for no block.
const NONE: u16 = u16::MAX;

/// A place and a length of a block, in 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference(pub(super) u64);

impl Reference {
    #[inline]
    fn new(page: u32, block: usize, len: usize) -> Reference {
        debug_assert!(page < PAGES_MAX && block < 1 << BLOCK_BITS && len <= BLOCK_BYTES_MAX);
        let place = u64::from(page) << BLOCK_BITS | block as u64;
        Reference(place << 16 | (len as u64) << 1)
    }

    /// Returns the length of the block in bytes.
    #[inline]
    pub(super) fn len(self) -> usize {
        (self.0 >> 1) as usize & BLOCK_BYTES_MAX
    }

    /// Returns the reference with the caller's bit set.
    pub(super) fn marked(self) -> Reference {
        Reference(self.0 | 1)
    }

    /// Whether the caller's bit is set.
    #[inline]
    pub(super) fn is_marked(self) -> bool {
        self.0 & 1 == 1
    }

    #[inline]
    fn with_len(self, len: usize) -> Reference {
        debug_assert!(len <= BLOCK_BYTES_MAX);
        Reference(self.0 & !((BLOCK_BYTES_MAX as u64) << 1) | (len as u64) << 1)
    }

    #[inline]
    fn page(self) -> u32 {
        (self.0 >> (16 + BLOCK_BITS)) as u32
    }

    /// Returns the number of the block on its page.
    #[inline]
    fn block(self) -> usize {
        (self.0 >> 16) as usize & ((1 << BLOCK_BITS) - 1)
    }

    /// Returns the offset of the block on its page, in bytes.
    #[inline]
    fn offset(self) -> usize {
        self.block() * size(class_of(self.len()))
    }
}

/// The state of a page.
#[derive(Clone, Copy, Debug)]
struct Page {
    class: u8,
    /// Whether its blocks are to move to other pages; none is allocated on it meanwhile.
    leaving: bool,
    /// Number of free blocks.
    free: u16,
    /// Number of blocks, from the first one on, that were in use since the page has its class.
    touched: u16,
    /// The free block of these that was freed last.
    head: u16,
}

impl Page {
    /// Takes a free block, that which was freed last if there is one. `bytes` are those of the page.
    #[inline]
    fn take(&mut self, bytes: &[u8; PAGE_BYTES]) -> usize {
        self.free -= 1;
        // Freed blocks come and go: whether there is one is random, and a branch would be mispredicted.
        let is_new = self.head == NONE;
        let block = usize::from(select_unpredictable(is_new, self.touched, self.head));
        self.touched += u16::from(is_new);
        let start = block * self.block_size();
        let next = u16::from_le_bytes([bytes[start], bytes[start + 1]]);
        // A new block leaves all bits, thus `NONE`, another one those of `next`. Hidden from the compiler, which would branch on it.
        self.head = next | black_box(u16::from(is_new).wrapping_neg());
        block
    }

    /// Returns the block that is taken next, if one is free.
    #[inline]
    fn upcoming(&self) -> usize {
        usize::from(select_unpredictable(self.head == NONE, self.touched, self.head))
    }

    /// Takes a block back. Its first two bytes are lost.
    #[inline]
    fn put(&mut self, bytes: &mut [u8; PAGE_BYTES], block: usize) {
        let start = block * self.block_size();
        bytes[start..start + 2].copy_from_slice(&self.head.to_le_bytes());
        self.head = block as u16;
        self.free += 1;
    }

    /// Returns the size of its blocks in bytes.
    fn block_size(&self) -> usize {
        size(usize::from(self.class))
    }
}

/// Blocks of all classes.
#[derive(Debug)]
pub(super) struct Slabs {
    pages: Arena<PAGE_BYTES>,
    states: Vec<Page>,
    /// The number of the last snapshot when each page was opened, while there were snapshots; otherwise 0, which is that of none.
    /// Beside the states, since only changes beside a snapshot need it.
    opened: Vec<u32>,
    /// The number of the last snapshot, while there are snapshots.
    pub(super) kept_for: Option<u32>,
    /// Pages of each class with free blocks, each once, and pages that went to the pool since; the last one is filled
    /// first.
    open: [Stack; CLASSES],
    /// Blocks that a snapshot may read, with the number of the last snapshot that may.
    deferred: Queue<(u32, Reference)>,
    /// Number of blocks that were deferred since [`Slabs::take_newly_deferred`] was called.
    newly_deferred: usize,
    /// Total size of the blocks in use, in bytes.
    block_bytes: u64,
}

impl Slabs {
    /// Makes slabs without pages.
    pub(super) fn new(budget: &MemoryBudget, executor: Option<Arc<dyn Executor>>) -> Slabs {
        Slabs {
            pages: Arena::new(budget, executor, PAGES_MAX),
            states: Vec::new(),
            opened: Vec::new(),
            kept_for: None,
            open: std::array::from_fn(|_| Stack::new()),
            deferred: Queue::default(),
            newly_deferred: 0,
            block_bytes: 0,
        }
    }

    /// Returns the memory of the slabs in bytes: resident, or about to be.
    pub(super) fn bytes(&self) -> u64 {
        let states = self.states.capacity() * size_of::<Page>();
        let opened = self.opened.capacity() * size_of::<u32>();
        let open: usize = self.open.iter().map(Stack::bytes).sum();
        self.pages.bytes() + (states + opened + self.deferred.bytes() + open) as u64
    }

    /// Returns the resident bytes of pages as the system counts them.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn system_bytes(&self) -> u64 {
        self.pages.system_bytes()
    }

    /// Returns the size of all pages that have blocks, in bytes.
    pub(super) fn page_bytes(&self) -> u64 {
        self.pages.units() * PAGE_BYTES as u64
    }

    /// Returns the size of all blocks in use, in bytes.
    pub(super) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Allocates a block with arbitrary contents.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; `Limit` if there are too many pages.
    #[inline]
    pub(super) fn allocate(&mut self, len: usize) -> Result<Reference> {
        let (page, block) = self.take(class_of(len))?;
        Ok(Reference::new(page, block, len))
    }

    /// Takes a free block of a class; returns its page, and its number there.
    #[inline]
    fn take(&mut self, class: usize) -> Result<(u32, usize)> {
        loop {
            let Some(page) = self.open[class].last() else {
                self.add_page(class)?;
                continue;
            };
            let state = &mut self.states[page as usize];
            if usize::from(state.class) != class || state.free == 0 {
                self.open[class].pop_if(true);
                continue;
            }
            let block = state.take(self.pages.unit(page));
            // Whether the page is full now is random: the block was often its only free one.
            self.open[class].pop_if(state.free == 0);
            self.prefetch_upcoming(class);
            self.block_bytes += size(class) as u64;
            return Ok((page, block));
        }
    }

    /// Prefetches the block of a class that is taken next: it was perhaps freed long ago, or is a new one, which is in no cache of this
    /// processor.
    #[inline]
    fn prefetch_upcoming(&self, class: usize) {
        if let Some(page) = self.open[class].last() {
            // The page may have another class by now, whose blocks are smaller: then this may be behind its end.
            let line = self.states[page as usize].upcoming() * size(class) / LINE_BYTES;
            if line < PAGE_BYTES / LINE_BYTES {
                self.pages.prefetch(Arena::<PAGE_BYTES>::at(page, line));
            }
        }
    }

    /// Allocates blocks of these lengths: all of them, or none.
    ///
    /// # Errors
    /// Those of [`Slabs::allocate`].
    pub(super) fn allocate_all(
        &mut self,
        lens: impl Iterator<Item = usize> + Clone,
    ) -> Result<Vec<Reference>> {
        self.ensure(lens.clone())?;
        lens.map(|len| self.allocate(len)).collect()
    }

    /// Makes sure that blocks of these lengths can be allocated: beside free ones, on pages of the pool or new ones.
    fn ensure(&mut self, lens: impl Iterator<Item = usize>) -> Result<()> {
        let mut counts = [0_usize; CLASSES];
        lens.for_each(|len| counts[class_of(len)] += 1);
        let missing = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let missing = missing.map(|(class, count)| {
            count.saturating_sub(self.free_blocks(class, *count)).div_ceil(blocks(class))
        });
        let count = missing.sum();
        if self.pages.units() as usize + count > PAGES_MAX as usize {
            return Err(crowded("pages of 64 KiB in a shard", u64::from(PAGES_MAX)));
        }
        self.pages.ensure(count)
    }

    /// Counts the free blocks of a class, on pages that have it, up to `enough` or a few more. Pages may be listed twice.
    fn free_blocks(&self, class: usize, enough: usize) -> usize {
        let (mut seen, mut free) = (HashSet::new(), 0);
        for page in self.open[class].all().iter().rev() {
            if free >= enough {
                break;
            }
            let state = &self.states[*page as usize];
            if usize::from(state.class) == class && seen.insert(*page) {
                free += usize::from(state.free);
            }
        }
        free
    }

    /// Opens a page of the pool, or a new one, for a class.
    #[cold]
    fn add_page(&mut self, class: usize) -> Result<()> {
        if self.pages.units() >= u64::from(PAGES_MAX) {
            return Err(crowded("pages of 64 KiB in a shard", u64::from(PAGES_MAX)));
        }
        let page = self.pages.allocate()?;
        let free = blocks(class) as u16;
        if self.states.len() <= page as usize {
            self.states.resize(page as usize + 1, IN_POOL);
            self.opened.resize(page as usize + 1, 0);
        }
        // A page that is read first, as blocks are when they are taken, would be small pages on some kernels.
        self.pages.unit_mut(page)[..2].fill(0);
        self.opened[page as usize] = self.kept_for.unwrap_or(0);
        self.states[page as usize] = Page { class: class as u8, free, ..IN_POOL };
        self.open[class].push_if(true, page);
        Ok(())
    }

    /// Frees a block.
    #[inline]
    pub(super) fn free(&mut self, reference: Reference) {
        let (page, class) = (reference.page(), class_of(reference.len()));
        let state = &mut self.states[page as usize];
        debug_assert_eq!(usize::from(state.class), class);
        debug_assert!(usize::from(state.free) < blocks(class), "a block is freed twice");
        state.put(self.pages.unit_mut(page), reference.block());
        self.block_bytes -= size(class) as u64;
        if usize::from(state.free) == blocks(class) {
            *state = IN_POOL;
            self.pages.release(page);
        } else {
            self.open[class].push_if((state.free == 1) & !state.leaving, page);
        }
    }

    /// Whether blocks are freed at once, none waits for the end of a snapshot, and no memory waits to be given back.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.kept_for.is_none() && self.deferred.len() == 0 && !self.pages.has_emptied()
    }

    /// Gives memory of empty pages back to the system.
    #[inline]
    pub(super) fn give_back(&mut self) {
        self.pages.give_back();
    }

    /// Gives some memory of empty pages back to the system, however many there are; returns whether there are others.
    pub(super) fn give_some_back(&mut self) -> bool {
        self.pages.give_some_back()
    }

    /// Returns the number of the last snapshot, if it or one before may read a block: then it must stay as it is until they have
    /// ended.
    #[inline]
    pub(super) fn keeper(&self, reference: Reference) -> Option<u32> {
        self.kept_for.filter(|snapshot| self.opened[reference.page() as usize] != *snapshot)
    }

    /// Frees a block when no snapshot up to the one of this number is left.
    pub(super) fn free_after(&mut self, snapshot: u32, reference: Reference) {
        self.deferred.push((snapshot, reference));
        self.newly_deferred += 1;
    }

    /// Returns the number of blocks that were deferred since the last call.
    #[inline]
    pub(super) fn take_newly_deferred(&mut self) -> usize {
        std::mem::take(&mut self.newly_deferred)
    }

    /// Frees at most `limit` blocks that no snapshot needs any more; `oldest` is the first one that is left.
    #[inline]
    pub(super) fn free_deferred(&mut self, oldest: Option<u32>, limit: usize) {
        for _ in 0..limit {
            let Some((snapshot, reference)) = self.deferred.first().copied() else { return };
            if oldest.is_some_and(|oldest| oldest <= snapshot) {
                return;
            }
            self.deferred.pop();
            self.free(reference);
        }
    }

    /// Number of blocks that wait for the end of a snapshot.
    pub(super) fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// Returns the bytes of a block.
    #[inline]
    pub(super) fn block(&self, reference: Reference) -> &[u8] {
        self.first(reference, reference.len())
    }

    /// Returns the first bytes of a block.
    #[inline]
    pub(super) fn first(&self, reference: Reference, count: usize) -> &[u8] {
        debug_assert!(count <= size(class_of(reference.len())));
        let offset = reference.offset();
        &self.pages.unit(reference.page())[offset..offset + count]
    }

    /// Returns all bytes of a block, those beyond its length included.
    #[inline]
    pub(super) fn whole(&self, reference: Reference) -> &[u8] {
        let (offset, size) = (reference.offset(), size(class_of(reference.len())));
        &self.pages.unit(reference.page())[offset..offset + size]
    }

    /// Returns all bytes of a block, those beyond its length included, to be changed.
    #[inline]
    pub(super) fn whole_mut(&mut self, reference: Reference) -> &mut [u8] {
        let (offset, size) = (reference.offset(), size(class_of(reference.len())));
        &mut self.pages.unit_mut(reference.page())[offset..offset + size]
    }

    /// Returns the bytes of a block, to be changed.
    #[inline]
    pub(super) fn block_mut(&mut self, reference: Reference) -> &mut [u8] {
        let offset = reference.offset();
        &mut self.pages.unit_mut(reference.page())[offset..offset + reference.len()]
    }

    /// Whether a block stays where it is if its length becomes `len`.
    #[inline]
    pub(super) fn stays(&self, reference: Reference, len: usize) -> bool {
        class_of(len) == class_of(reference.len())
    }

    /// Returns a block that stays where it is, with another length; bytes beyond the old length are arbitrary.
    #[inline]
    pub(super) fn resize(&mut self, reference: Reference, len: usize) -> Reference {
        debug_assert!(self.stays(reference, len));
        reference.with_len(len)
    }

    /// Allocates a block of at least the length of another, with its contents first.
    ///
    /// # Errors
    /// Those of [`Slabs::allocate`].
    #[inline]
    pub(super) fn copy(&mut self, from: Reference, len: usize) -> Result<Reference> {
        debug_assert!(len >= from.len());
        let class = class_of(len);
        let (page, block) = self.take(class)?;
        self.pages.copy((from.page(), from.offset()), (page, block * size(class)), from.len());
        Ok(Reference(Reference::new(page, block, len).0 | from.0 & 1))
    }

    /// Copies the contents of a block to the beginning of another one, which has at least its length.
    #[inline]
    pub(super) fn copy_to(&mut self, from: Reference, to: Reference) {
        debug_assert!(to.len() >= from.len());
        let (from_at, to_at) = ((from.page(), from.offset()), (to.page(), to.offset()));
        self.pages.copy(from_at, to_at, from.len());
    }

    /// Returns the first line of a block and its last.
    #[inline]
    pub(super) fn ends(reference: Reference) -> [At; 2] {
        let (page, offset) = (reference.page(), reference.offset());
        let line = |offset: usize| Arena::<PAGE_BYTES>::at(page, offset / LINE_BYTES);
        [line(offset), line(offset + reference.len().saturating_sub(1))]
    }

    /// Prefetches a line.
    #[inline]
    pub(super) fn prefetch(&self, line: At) {
        self.pages.prefetch(line);
    }

    /// Prefetches the lines between the first one of a block and its last; of a long block the first few, after which a processor
    /// goes on by itself.
    #[inline]
    pub(super) fn prefetch_between(&self, ends: [At; 2]) {
        self.pages.prefetch_between(ends, BETWEEN_MAX);
    }

    /// Prefetches the lines between the first one of a block that may move and its last: all of them if they are few, and of a longer block
    /// only the first. It does not branch if there is at most one, as in most blocks.
    #[inline]
    pub(super) fn prefetch_few_between(&self, ends: [At; 2]) {
        // Most blocks have none or one, at random: that line, or the last one again, is prefetched without a branch.
        self.pages.prefetch(ends[0].next().min(ends[1]));
        if (3..=BETWEEN_MAX + 1).contains(&ends[0].to(ends[1])) {
            self.pages.prefetch_between([ends[0].next(), ends[1]], BETWEEN_MAX);
        }
    }

    /// Chooses pages with few blocks, which are to leave them: of those less full than `fill`, all but the first ones, on
    /// which the blocks of the others have room, so that no page is added. Returns their number.
    pub(super) fn begin_leaving(&mut self, fill: f64) -> usize {
        let mut chosen: [Vec<u32>; CLASSES] = std::array::from_fn(|_| Vec::new());
        for (page, state) in
            self.states.iter().enumerate().filter(|(_, state)| state.class != NO_CLASS)
        {
            let class = usize::from(state.class);
            if (self.used(page as u32) as f64) < fill * blocks(class) as f64 {
                chosen[class].push(page as u32);
            }
        }
        let mut leaving = 0;
        for (class, pages) in chosen.into_iter().enumerate() {
            let used: usize = pages.iter().map(|page| self.used(*page)).sum();
            let staying = used.div_ceil(blocks(class));
            leaving += pages.len() - staying;
            for page in &pages[staying..] {
                self.states[*page as usize].leaving = true;
            }
        }
        self.close_leaving();
        leaving
    }

    /// Chooses the last pages after [`Slabs::begin_leaving`], also full ones: those behind the first pages in memory that have room
    /// for all. A single page would keep a step of memory from being given back. No memory becomes resident when blocks move then.
    /// Returns the number of chosen pages; 0 if no memory would be given back.
    pub(super) fn begin_leaving_last(&mut self) -> usize {
        let Some(end) = self.pages.end_of_room() else { return 0 };
        let last = self.states.iter_mut().skip(end as usize);
        let last = last.filter(|state| state.class != NO_CLASS);
        let leaving = last.map(|state| state.leaving = true).count();
        self.close_leaving();
        leaving
    }

    /// Lets no block be allocated on pages that are left.
    fn close_leaving(&mut self) {
        for pages in &mut self.open {
            pages.retain(|page| !self.states[*page as usize].leaving);
        }
    }

    /// Number of blocks in use on a page that has a class.
    fn used(&self, page: u32) -> usize {
        let state = &self.states[page as usize];
        blocks(usize::from(state.class)) - usize::from(state.free)
    }

    /// Whether a block is to leave its page.
    #[inline]
    pub(super) fn is_leaving(&self, reference: Reference) -> bool {
        self.states[reference.page() as usize].leaving
    }

    /// Lets pages that still have blocks be used as before.
    pub(super) fn end_leaving(&mut self) {
        for (page, state) in self.states.iter_mut().enumerate().filter(|(_, state)| state.leaving) {
            state.leaving = false;
            if state.free > 0 {
                self.open[usize::from(state.class)].push_if(true, page as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::mix::mix, *};
    use crate::{key::Seed, work::Threads};

    fn slabs() -> Slabs {
        Slabs::new(&MemoryBudget::unlimited(), None)
    }

    /// Blocks of random lengths keep their bytes until they are freed; then all pages are in the pool.
    #[test]
    fn blocks_do_not_overlap() {
        let (mut slabs, mut all) = (slabs(), Vec::<(Reference, u8)>::new());
        for step in 0..20_000_u64 {
            let random = mix(step, Seed(3));
            if random % 5 < 2 && !all.is_empty() {
                let (reference, byte) = all.swap_remove(random as usize / 8 % all.len());
                assert!(slabs.block(reference).iter().all(|found| *found == byte));
                slabs.free(reference);
                continue;
            }
            let shift = (random >> 32) % 15;
            let len = (random >> 40) as usize % (BLOCK_BYTES_MAX >> shift) + 1;
            let reference = slabs.allocate(len).unwrap();
            assert_eq!(slabs.block(reference).len(), len);
            slabs.block_mut(reference).fill(step as u8);
            all.push((reference, step as u8));
        }
        for (reference, byte) in all {
            assert!(slabs.block(reference).iter().all(|found| *found == byte));
            slabs.free(reference);
        }
        assert_eq!((slabs.block_bytes(), slabs.page_bytes()), (0, 0));
    }

    /// A page that is full and gets a free block again and again is listed once; so is one that was in the pool.
    #[test]
    fn a_page_is_open_once() {
        let (mut slabs, len) = (slabs(), 30_000);
        let class = class_of(len);
        let mut both = [0; 2].map(|_| slabs.allocate(len).unwrap());
        assert_eq!((blocks(class), slabs.open[class].all().len()), (2, 0));
        for cycle in 0..100_000 {
            slabs.free(both[cycle % 2]);
            assert_eq!(slabs.open[class].all().len(), 1);
            both[cycle % 2] = slabs.allocate(len).unwrap();
            assert_eq!(slabs.open[class].all().len(), 0);
        }
        for len in [30_000, 20, 30_000, 20, 30_000] {
            both.iter().for_each(|block| slabs.free(*block));
            both = [0; 2].map(|_| slabs.allocate(len).unwrap());
            assert!(slabs.open.iter().all(|pages| pages.all().len() <= 1));
        }
        assert_eq!(slabs.states.len(), 1);
    }

    #[test]
    fn a_reference_keeps_place_length_and_mark() {
        for (page, block) in [(0, 0), (1, 4095), (PAGES_MAX - 1, 7)] {
            for len in [0, 1, 16, BLOCK_BYTES_MAX] {
                let reference = Reference::new(page, block, len);
                assert!(reference.0 < 1 << 48 && !reference.is_marked());
                let marked = reference.marked().with_len(7);
                assert_eq!((marked.page(), marked.block(), marked.len()), (page, block, 7));
                assert_eq!((marked.is_marked(), reference.len()), (true, len));
            }
        }
    }

    #[test]
    fn deferred_blocks_are_freed_after_their_snapshots() {
        let mut slabs = slabs();
        for snapshot in [1, 1, 2] {
            let reference = slabs.allocate(20).unwrap();
            slabs.free_after(snapshot, reference);
        }
        slabs.free_deferred(Some(1), 10);
        assert_eq!(slabs.deferred(), 3);
        slabs.free_deferred(Some(2), 1);
        assert_eq!(slabs.deferred(), 2);
        slabs.free_deferred(Some(2), 10);
        assert_eq!(slabs.deferred(), 1);
        slabs.free_deferred(None, 10);
        assert_eq!((slabs.deferred(), slabs.page_bytes()), (0, 0));
    }

    /// A snapshot keeps many blocks; after its end, neither they nor their queue take memory.
    #[test]
    fn nothing_is_left_of_many_deferred_blocks() {
        const BLOCKS: usize = 200_000;
        let mut slabs = slabs();
        for _ in 0..BLOCKS {
            let block = slabs.allocate(16).unwrap();
            slabs.free_after(1, block);
        }
        let queue = (BLOCKS * size_of::<(u32, Reference)>()) as u64;
        assert!(slabs.bytes() >= slabs.page_bytes() + queue);
        slabs.free_deferred(None, BLOCKS);
        slabs.give_back();
        assert!(slabs.deferred() == 0 && slabs.bytes() < 1 << 20, "{}", slabs.bytes());
    }

    /// Returns slabs with this number of pages of blocks of 32 bytes, and the blocks of each page.
    fn full(budget: &MemoryBudget, pages: usize) -> (Slabs, Vec<Vec<Reference>>) {
        let mut slabs = Slabs::new(budget, None);
        let page = |_| (0..PAGE_BYTES / 32).map(|_| slabs.allocate(32).unwrap()).collect();
        let all = (0..pages).map(page).collect();
        (slabs, all)
    }

    /// Frees the blocks of pages.
    fn free_pages<'a>(slabs: &mut Slabs, pages: impl Iterator<Item = &'a Vec<Reference>>) {
        pages.flatten().for_each(|block| slabs.free(*block));
        while slabs.give_some_back() {}
    }

    /// Every other page is full: the last ones are left, and their blocks move to free pages in memory.
    #[test]
    fn the_last_pages_are_left_as_far_as_others_are_free() {
        let budget = MemoryBudget::unlimited();
        let (mut slabs, all) = full(&budget, 1000);
        free_pages(&mut slabs, all.iter().step_by(2));
        let before = budget.reserved();
        assert!(before > 60 << 20);
        assert_eq!(slabs.begin_leaving(0.75), 0);
        let leaving = slabs.begin_leaving_last();
        assert!((230..=250).contains(&leaving), "{leaving}");
        for block in all.iter().skip(1).step_by(2).flatten() {
            if slabs.is_leaving(*block) {
                let moved = slabs.copy(*block, 32).unwrap();
                assert!(moved.page() < block.page() && !slabs.is_leaving(moved));
                slabs.free(*block);
                slabs.give_some_back();
                assert!(budget.reserved() <= before);
            }
        }
        slabs.end_leaving();
        while slabs.give_some_back() {}
        assert_eq!((slabs.page_bytes(), slabs.begin_leaving_last()), (500 << 16, 0));
        assert!(budget.reserved() < 38 << 20, "{}", budget.reserved());
    }

    /// The first pages were freed and given back, and the others are full: to move their blocks to the front gains nothing.
    #[test]
    fn full_pages_behind_memory_that_was_given_back_stay() {
        let budget = MemoryBudget::unlimited();
        for freed in [750, 900, 960] {
            let (mut slabs, all) = full(&budget, 1000);
            free_pages(&mut slabs, all[..freed].iter());
            let before = budget.reserved();
            assert!(before < (1000 - freed as u64) * 9 / 8 * PAGE_BYTES as u64 + (5 << 20));
            assert_eq!((slabs.begin_leaving(0.75), slabs.begin_leaving_last()), (0, 0), "{freed}");
            assert_eq!(budget.reserved(), before);
        }
    }

    #[test]
    fn pages_that_are_left_go_to_the_pool_without_more_memory() {
        let mut slabs = slabs();
        let all: Vec<_> = (0..PAGE_BYTES / 32 * 10).map(|_| slabs.allocate(32).unwrap()).collect();
        let (kept, freed): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|block| block.block() % 4 == 0);
        freed.iter().for_each(|block| slabs.free(*block));
        let before = slabs.bytes();
        // Three pages have room for the blocks of the others.
        assert_eq!((slabs.page_bytes(), slabs.begin_leaving(0.75)), (10 << 16, 7));
        let leaving: Vec<_> = kept.into_iter().filter(|block| slabs.is_leaving(*block)).collect();
        assert_eq!(leaving.len(), 7 * PAGE_BYTES / 32 / 4);
        for block in leaving {
            let moved = slabs.copy(block, 32).unwrap();
            assert!(!slabs.is_leaving(moved));
            slabs.free(block);
        }
        assert_eq!(slabs.page_bytes(), 3 << 16);
        assert!(slabs.bytes() <= before + 1024, "{} {before}", slabs.bytes());
        slabs.end_leaving();
        assert_eq!(slabs.begin_leaving(0.75), 0);
    }

    /// At any limit of the budget, several blocks are there or none of them, also if others free memory of the budget
    /// meanwhile, which is populated ahead then.
    #[test]
    fn several_blocks_are_allocated_as_a_whole_at_any_limit() {
        const STEP: u64 = 2 << 20;
        let executor: Arc<dyn Executor> = Arc::new(Threads::new(1));
        for i in 0..40 {
            let budget = MemoryBudget::new((40 << 20) + i * PAGE_BYTES as u64);
            let mut slabs = Slabs::new(&budget, Some(executor.clone()));
            for count in (1..=10).cycle() {
                let others = budget.reserve(STEP).ok();
                let (bytes, pages) = (slabs.block_bytes(), slabs.page_bytes());
                // Two blocks of this size fill a page; the others begin pages of their own.
                let lens = (0..count).flat_map(|i| [BLOCK_BYTES_MAX, 16 << (i % 4)]);
                let Ok(all) = slabs.allocate_all(lens) else {
                    assert_eq!((slabs.block_bytes(), slabs.page_bytes()), (bytes, pages));
                    break;
                };
                assert_eq!(all.len(), 2 * count);
                drop(others);
            }
            assert!(slabs.page_bytes() > 35 << 20, "{}", slabs.page_bytes());
        }
    }
}

//! The filter: one key at a time, and what can be said of it.

use super::{
    block::Blocks,
    change::{BlocksMut, Inserted},
    kernel::{ForLayout, Kernel, LayoutTask, Machine, Task},
    layout::{Layout, SHIFT_MAX},
    options::{Growth, QuotientOptions, Shape},
    storage::{InFile, Memory, Storage},
};
use crate::{
    error::{Error, ErrorKind, Result},
    filter::Mode,
    fingerprints::Universe,
    io::Buffer,
    key::{KeyHash, Seed},
};
use std::collections::BTreeMap;

/// Copies of one fingerprint that a multiset keeps in slots; the rest is counted beside them.
pub(super) const COPIES_MAX: u64 = 4;

/// A set or multiset of keys in little memory, with errors on one side: a key that was inserted
/// is found; one that was not may be found too, as rarely as was asked for.
///
/// Keys come as hashes, which are made with the filter's seed. Calls that take many of them are
/// several times as fast as as many calls: memory is fetched ahead.
///
/// ```
/// use hashfold::{KeyHash, Seed};
/// use hashfold::filter::quotient::{QuotientFilter, QuotientOptions};
///
/// let mut filter = QuotientFilter::new(&QuotientOptions::new(1_000_000, 0.001, Seed(7)))?;
/// assert!(filter.insert_key(b"a key")?);
/// assert!(!filter.insert_key(b"a key")?);
/// assert!(filter.contains_key(b"a key"));
///
/// let hashes: Vec<KeyHash> = (0..1000_u32).map(|i| filter.hash(&i.to_le_bytes())).collect();
/// let mut new = vec![false; hashes.len()];
/// filter.insert_batch(&hashes, &mut new)?;
/// assert!(filter.bits_per_item() > filter.bytes() as f64 * 8.0 / 1002.0);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Debug)]
pub struct QuotientFilter<S = Memory> {
    pub(super) universe: Universe,
    pub(super) layout: Layout,
    pub(super) machine: Machine,
    pub(super) rules: Rules,
    pub(super) counts: Counts,
    pub(super) storage: S,
}

/// A quotient filter in a file, to be read without reading all of it first. It does not change;
/// [`QuotientFilter::to_memory`] copies it.
pub type QuotientView = QuotientFilter<InFile>;

/// What stays the same when a filter is filled or resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) mode: Mode,
    pub(super) growth: Growth,
    pub(super) seed: Seed,
}

/// How full a filter is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Keys, each as often as it was inserted.
    pub(super) items: u64,
    /// Different fingerprints.
    pub(super) distinct: u64,
    /// Full slots.
    pub(super) slots: u64,
    /// Slots that may be full.
    pub(super) slots_max: u64,
}

/// There is no room for a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// As many slots are full as may be.
    Slots,
    /// The fingerprint's cluster would get too long: only hashes that are not random do that.
    Cluster,
}

/// Whether a fingerprint is new, if there was room for it.
pub(super) type Attempt = std::result::Result<bool, Full>;

impl QuotientFilter {
    /// An empty filter. An argument that is out of range, or that no memory suffices for, is an
    /// error.
    pub fn new(options: &QuotientOptions) -> Result<QuotientFilter> {
        let QuotientOptions { mode, growth, seed, .. } = *options;
        QuotientFilter::empty(options.shape()?, Rules { mode, growth, seed })
    }

    pub(super) fn empty(shape: Shape, rules: Rules) -> Result<QuotientFilter> {
        let blocks = memory(shape.layout)?;
        Ok(QuotientFilter {
            universe: shape.universe,
            layout: shape.layout,
            machine: Machine::best(),
            rules,
            counts: Counts { slots_max: shape.slots_max, ..Counts::default() },
            storage: Memory { blocks, more: BTreeMap::new() },
        })
    }

    /// Inserts a key. Returns whether its fingerprint is new: if not, the key, or another one
    /// with the same fingerprint, was there.
    ///
    /// If the filter is full and may not grow, that is an error, and nothing changes; so it is if
    /// it cannot grow any more, or if tens of thousands of hashes are next to each other, as random
    /// ones never are.
    pub fn insert(&mut self, hash: KeyHash) -> Result<bool> {
        let (fingerprint, machine) = (self.universe.fingerprint(hash), self.machine);
        loop {
            let insert = Insert { filter: &mut *self, fingerprint };
            match machine.run(ForLayout(insert)) {
                Ok(new) => return Ok(new),
                Err(full) => self.make_room(full)?,
            }
        }
    }

    /// Takes a key out of a set, or one copy of it out of a multiset. Returns whether its
    /// fingerprint was there.
    ///
    /// A filter cannot tell keys with the same fingerprint apart. Removing a key that was never
    /// inserted, which it takes for another one as often as a lookup does, removes that other one.
    pub fn remove(&mut self, hash: KeyHash) -> bool {
        let fingerprint = self.universe.fingerprint(hash);
        self.machine.run(Remove { filter: self, fingerprint })
    }

    /// The same as [`QuotientFilter::insert`] of the key's hash.
    pub fn insert_key(&mut self, key: &[u8]) -> Result<bool> {
        self.insert(self.hash(key))
    }

    /// The same as [`QuotientFilter::remove`] of the key's hash.
    pub fn remove_key(&mut self, key: &[u8]) -> bool {
        self.remove(self.hash(key))
    }

    /// Sets what happens from now on when the filter is full.
    pub fn set_growth(&mut self, growth: Growth) {
        self.rules.growth = growth;
    }

    #[inline(always)]
    fn blocks_mut(&mut self, layout: Layout) -> BlocksMut<'_> {
        BlocksMut { bytes: &mut self.storage.blocks, layout }
    }

    #[inline(always)]
    pub(super) fn insert_with<K: Kernel>(&mut self, layout: Layout, fingerprint: u64) -> Attempt {
        let (quotient, remainder) = (layout.quotient(fingerprint), layout.remainder(fingerprint));
        let copies_max = match self.rules.mode {
            Mode::Set => 1,
            Mode::Multiset => COPIES_MAX,
        };
        if self.counts.slots >= self.counts.slots_max
            && self.blocks().copies::<K>(quotient, remainder) < copies_max
        {
            return Err(Full::Slots);
        }
        match self.blocks_mut(layout).insert::<K>(quotient, remainder, copies_max) {
            Inserted::Beside(copies) => {
                self.counts.slots += 1;
                self.counts.items += 1;
                self.counts.distinct += u64::from(copies == 0);
                Ok(copies == 0)
            }
            Inserted::Enough => {
                if self.rules.mode == Mode::Multiset {
                    self.count_more(fingerprint);
                }
                Ok(false)
            }
            Inserted::NoRoom => Err(Full::Cluster),
        }
    }

    #[inline(always)]
    pub(super) fn remove_with<K: Kernel>(&mut self, fingerprint: u64) -> bool {
        let (quotient, remainder) =
            (self.layout.quotient(fingerprint), self.layout.remainder(fingerprint));
        if !self.storage.more.is_empty()
            && self.blocks().copies::<K>(quotient, remainder) == COPIES_MAX
            && self.remove_more(fingerprint)
        {
            return true;
        }
        let copies = self.blocks_mut(self.layout).remove::<K>(quotient, remainder);
        if copies > 0 {
            self.counts.slots -= 1;
            self.counts.items -= 1;
            self.counts.distinct -= u64::from(copies == 1);
        }
        copies > 0
    }

    /// Counts a copy that takes no slot.
    #[cold]
    fn count_more(&mut self, fingerprint: u64) {
        *self.storage.more.entry(fingerprint).or_insert(0) += 1;
        self.counts.items += 1;
    }

    /// Takes away a copy that is in no slot, if there is one.
    #[cold]
    fn remove_more(&mut self, fingerprint: u64) -> bool {
        let Some(more) = self.storage.more.get_mut(&fingerprint) else { return false };
        *more -= 1;
        if *more == 0 {
            self.storage.more.remove(&fingerprint);
        }
        self.counts.items -= 1;
        true
    }

    /// Grows if that is what to do when there is no room.
    #[cold]
    pub(super) fn make_room(&mut self, full: Full) -> Result<()> {
        match (full, self.rules.growth) {
            (Full::Slots, Growth::Double) => self.grow(),
            (Full::Slots, Growth::Refuse) => Err(self.too_many()),
            (Full::Cluster, _) => Err(overfull()),
        }
    }

    /// The error of a filter that is full.
    pub(super) fn too_many(&self) -> Error {
        ErrorKind::Full { slots_max: self.counts.slots_max }.into()
    }
}

/// The error of hashes that crowd a few slots.
pub(super) fn overfull() -> Error {
    let what = "number of slots that a cluster of the filter takes";
    let limit = SHIFT_MAX as u64;
    ErrorKind::Limit { what, limit, got: limit + 1 }.into()
}

/// Zeros for the blocks of a filter.
pub(super) fn memory(layout: Layout) -> Result<Buffer> {
    Buffer::for_random_access(layout.bytes()).map_err(|error| {
        let expected = format!("what fits in memory ({error})");
        Error::argument("size of the filter in bytes", expected, layout.bytes())
    })
}

impl<S: Storage> QuotientFilter<S> {
    /// Whether a key was inserted, or seems to be: see [`QuotientFilter::expected_error`].
    pub fn contains(&self, hash: KeyHash) -> bool {
        let fingerprint = self.universe.fingerprint(hash);
        self.machine.run(ForLayout(Contains { filter: self, fingerprint }))
    }

    /// How often the keys with this key's fingerprint are in the multiset; 0 or 1 in a set.
    pub fn count(&self, hash: KeyHash) -> u64 {
        let fingerprint = self.universe.fingerprint(hash);
        self.machine.run(Count { filter: self, fingerprint })
    }

    /// The same as [`QuotientFilter::contains`] of the key's hash.
    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.contains(self.hash(key))
    }

    /// The same as [`QuotientFilter::count`] of the key's hash.
    pub fn count_key(&self, key: &[u8]) -> u64 {
        self.count(self.hash(key))
    }

    /// The hash of a key, as this filter's keys are hashed.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(key, self.rules.seed)
    }

    #[inline(always)]
    pub(super) fn blocks(&self) -> Blocks<'_> {
        Blocks { bytes: self.storage.blocks(), layout: self.layout }
    }

    #[inline(always)]
    pub(super) fn count_with<K: Kernel>(&self, fingerprint: u64) -> u64 {
        let (quotient, remainder) =
            (self.layout.quotient(fingerprint), self.layout.remainder(fingerprint));
        match self.blocks().copies::<K>(quotient, remainder) {
            COPIES_MAX => COPIES_MAX.saturating_add(self.storage.more(fingerprint)),
            copies => copies,
        }
    }

    /// Which fingerprints the filter keeps.
    pub fn universe(&self) -> Universe {
        self.universe
    }

    /// A set or a multiset.
    pub fn mode(&self) -> Mode {
        self.rules.mode
    }

    /// What happens when the filter is full.
    pub fn growth(&self) -> Growth {
        self.rules.growth
    }

    /// The seed of its keys' hashes.
    pub fn seed(&self) -> Seed {
        self.rules.seed
    }

    /// How many keys are in it, each as often as it was inserted into a multiset. Keys of a set
    /// that share a fingerprint count once.
    pub fn len(&self) -> u64 {
        self.counts.items
    }

    /// Whether no key is in it.
    pub fn is_empty(&self) -> bool {
        self.counts.items == 0
    }

    /// How many different fingerprints are in it.
    pub fn distinct(&self) -> u64 {
        self.counts.distinct
    }

    /// How many slots may be full: as many fingerprints are taken by a set, as many copies by a
    /// multiset, of which those of one fingerprint after the fourth take no slot.
    pub fn capacity(&self) -> u64 {
        self.counts.slots_max
    }

    /// How many slots there are.
    pub fn slots(&self) -> u64 {
        self.layout.slots()
    }

    /// The bits of each slot's remainder: 1 to 56.
    pub fn remainder_bits(&self) -> u32 {
        self.layout.remainder_bits
    }

    /// Which part of the slots is full: 0 to 0.95.
    pub fn load(&self) -> f64 {
        self.counts.slots as f64 / self.slots() as f64
    }

    /// The memory of the slots, or their size in the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.layout.bytes() as u64
    }

    /// The memory of the slots for each key that is in the filter, in bits; infinite if none is.
    pub fn bits_per_item(&self) -> f64 {
        self.bytes() as f64 * 8.0 / self.counts.items as f64
    }

    /// How often a key that is not in the filter seems to be, as it is now: the part of all
    /// fingerprints that is taken, 0 to 1.
    pub fn expected_error(&self) -> f64 {
        self.counts.distinct as f64 / self.universe.size() as f64
    }
}

struct Insert<'a> {
    filter: &'a mut QuotientFilter,
    fingerprint: u64,
}

impl LayoutTask for Insert<'_> {
    type Output = Attempt;

    #[inline(always)]
    fn layout(&self) -> Layout {
        self.filter.layout
    }

    #[inline(always)]
    fn run<K: Kernel>(self, layout: Layout) -> Attempt {
        self.filter.fetch(layout, self.fingerprint);
        self.filter.insert_with::<K>(layout, self.fingerprint)
    }
}

struct Remove<'a> {
    filter: &'a mut QuotientFilter,
    fingerprint: u64,
}

impl Task for Remove<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<K: Kernel>(self) -> bool {
        self.filter.fetch(self.filter.layout, self.fingerprint);
        self.filter.remove_with::<K>(self.fingerprint)
    }
}

struct Contains<'a, S> {
    filter: &'a QuotientFilter<S>,
    fingerprint: u64,
}

impl<S: Storage> LayoutTask for Contains<'_, S> {
    type Output = bool;

    #[inline(always)]
    fn layout(&self) -> Layout {
        self.filter.layout
    }

    #[inline(always)]
    fn run<K: Kernel>(self, layout: Layout) -> bool {
        self.filter.fetch(layout, self.fingerprint);
        Blocks { layout, ..self.filter.blocks() }.contains::<K>(self.fingerprint)
    }
}

struct Count<'a, S> {
    filter: &'a QuotientFilter<S>,
    fingerprint: u64,
}

impl<S: Storage> Task for Count<'_, S> {
    type Output = u64;

    #[inline(always)]
    fn run<K: Kernel>(self) -> u64 {
        self.filter.count_with::<K>(self.fingerprint)
    }
}

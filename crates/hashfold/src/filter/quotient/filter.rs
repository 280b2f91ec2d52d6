//! `QuotientFilter`: operations on one key, and properties.

use super::{
    block::SlotBlocks,
    change::{Inserted, SlotBlocksMut},
    kernel::{ForLayout, Kernel, LayoutTask, Processor},
    layout::{SHIFT_MAX, SlotLayout},
    options::{Growth, QuotientOptions, Sizing},
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

/// Maximum number of copies of a fingerprint in slots of a multiset; further copies are counted
/// separately.
pub(super) const COPIES_MAX: u64 = 4;

/// A set or multiset of keys in RAM, with false positives at a chosen rate and no false negatives.
///
/// Keys are passed as hashes with the filter's seed. A call with a batch of keys is several times
/// as fast as one call per key, because memory is prefetched.
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
    pub(super) layout: SlotLayout,
    pub(super) machine: Processor,
    pub(super) rules: Rules,
    pub(super) counts: Usage,
    pub(super) storage: S,
}

/// A quotient filter in a file, for lookups without reading the whole file first. It is immutable;
/// [`QuotientFilter::to_memory`] makes a copy in RAM.
pub type QuotientView = QuotientFilter<InFile>;

/// The properties of a filter that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) mode: Mode,
    pub(super) growth: Growth,
    pub(super) seed: Seed,
}

/// The number of keys and of full slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Number of keys; each counts once per insertion.
    pub(super) items: u64,
    /// Number of different fingerprints.
    pub(super) distinct: u64,
    /// Number of full slots.
    pub(super) slots: u64,
    /// Maximum number of full slots.
    pub(super) slots_max: u64,
}

/// The reason why a fingerprint cannot be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The maximum number of slots is full.
    Slots,
    /// The fingerprint's cluster would become too long. Happens only with hashes that are not
    /// random.
    Cluster,
}

/// Whether a fingerprint is new, or the reason why it was not inserted.
pub(super) type Insertion = std::result::Result<bool, Full>;

impl QuotientFilter {
    /// Creates an empty filter.
    ///
    /// # Errors
    /// `Argument` if an option is out of range, or if there is not enough memory.
    pub fn new(options: &QuotientOptions) -> Result<QuotientFilter> {
        let QuotientOptions { mode, growth, seed, .. } = *options;
        QuotientFilter::empty(options.shape()?, Rules { mode, growth, seed })
    }

    pub(super) fn empty(shape: Sizing, rules: Rules) -> Result<QuotientFilter> {
        let blocks = memory(shape.layout)?;
        Ok(QuotientFilter {
            universe: shape.universe,
            layout: shape.layout,
            machine: Processor::best(),
            rules,
            counts: Usage { slots_max: shape.slots_max, ..Usage::default() },
            storage: Memory { blocks, more: BTreeMap::new() },
        })
    }

    /// Inserts a key. Returns whether its fingerprint is new. If it is not, this key or another key
    /// with the same fingerprint was present.
    ///
    /// # Errors
    /// `Full` if the filter is full and cannot grow; `Limit` if tens of thousands of hashes are
    /// adjacent, which random hashes never are. After an error, the filter is unchanged.
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

    /// Removes a key from a set, or one copy of it from a multiset. Returns whether its fingerprint
    /// was present.
    ///
    /// Keys with the same fingerprint cannot be told apart: removing a key that was never inserted
    /// may remove another key, at the false-positive rate. Remove only keys that were inserted.
    pub fn remove(&mut self, hash: KeyHash) -> bool {
        let mut removed = [false];
        self.remove_batch(&[hash], &mut removed);
        removed[0]
    }

    /// Hashes a key and inserts it: see [`QuotientFilter::insert`].
    pub fn insert_key(&mut self, key: &[u8]) -> Result<bool> {
        self.insert(self.hash(key))
    }

    /// Hashes a key and removes it: see [`QuotientFilter::remove`].
    pub fn remove_key(&mut self, key: &[u8]) -> bool {
        self.remove(self.hash(key))
    }

    /// Changes the behaviour when the filter is full.
    pub fn set_growth(&mut self, growth: Growth) {
        self.rules.growth = growth;
    }

    #[inline(always)]
    fn blocks_mut(&mut self, layout: SlotLayout) -> SlotBlocksMut<'_> {
        SlotBlocksMut { bytes: &mut self.storage.blocks, layout }
    }

    #[inline(always)]
    pub(super) fn insert_with<K: Kernel>(
        &mut self,
        layout: SlotLayout,
        fingerprint: u64,
    ) -> Insertion {
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

    /// Counts a copy that is not in a slot.
    #[cold]
    fn count_more(&mut self, fingerprint: u64) {
        *self.storage.more.entry(fingerprint).or_insert(0) += 1;
        self.counts.items += 1;
    }

    /// Removes a copy that is not in a slot, if there is one.
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

    /// Grows the filter if it is full and may grow.
    #[cold]
    pub(super) fn make_room(&mut self, full: Full) -> Result<()> {
        match (full, self.rules.growth) {
            (Full::Slots, Growth::Double) => self.grow(),
            (Full::Slots, Growth::Refuse) => Err(self.too_many()),
            (Full::Cluster, _) => Err(overfull()),
        }
    }

    /// Returns the error of a full filter.
    pub(super) fn too_many(&self) -> Error {
        ErrorKind::Full { slots_max: self.counts.slots_max }.into()
    }
}

/// Returns the error of hashes that crowd a few slots.
pub(super) fn overfull() -> Error {
    let what = "number of slots that a cluster of the filter takes";
    let limit = SHIFT_MAX as u64;
    ErrorKind::Limit { what, limit, got: limit + 1 }.into()
}

/// Returns zeroed memory for the blocks of a filter.
pub(super) fn memory(layout: SlotLayout) -> Result<Buffer> {
    Buffer::for_random_access(layout.bytes()).map_err(|error| {
        let expected = format!("a size that fits in memory ({error})");
        Error::argument("size of the filter in bytes", expected, layout.bytes())
    })
}

impl<S: Storage> QuotientFilter<S> {
    /// Whether a key is present; a key that is absent is found at the rate of
    /// [`QuotientFilter::false_positive_rate`].
    pub fn contains(&self, hash: KeyHash) -> bool {
        let fingerprint = self.universe.fingerprint(hash);
        self.machine.run(ForLayout(Contains { filter: self, fingerprint }))
    }

    /// Returns the number of keys with this key's fingerprint; 0 or 1 in a set.
    pub fn count(&self, hash: KeyHash) -> u64 {
        let mut counts = [0];
        self.count_batch(&[hash], &mut counts);
        counts[0]
    }

    /// Hashes a key and looks it up: see [`QuotientFilter::contains`].
    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.contains(self.hash(key))
    }

    /// Hashes a key and counts it: see [`QuotientFilter::count`].
    pub fn count_key(&self, key: &[u8]) -> u64 {
        self.count(self.hash(key))
    }

    /// Hashes a key with the filter's seed.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(key, self.rules.seed)
    }

    #[inline(always)]
    pub(super) fn blocks(&self) -> SlotBlocks<'_> {
        SlotBlocks { bytes: self.storage.blocks(), layout: self.layout }
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

    /// Returns the universe of the fingerprints.
    pub fn universe(&self) -> Universe {
        self.universe
    }

    /// Returns whether the filter is a set or a multiset.
    pub fn mode(&self) -> Mode {
        self.rules.mode
    }

    /// Returns the behaviour when the filter is full.
    pub fn growth(&self) -> Growth {
        self.rules.growth
    }

    /// Returns the seed that keys are hashed with.
    pub fn seed(&self) -> Seed {
        self.rules.seed
    }

    /// Returns the number of keys. In a multiset, a key counts once per insertion. In a set, keys
    /// with the same fingerprint count once.
    pub fn len(&self) -> u64 {
        self.counts.items
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.counts.items == 0
    }

    /// Returns the number of different fingerprints.
    pub fn distinct(&self) -> u64 {
        self.counts.distinct
    }

    /// Returns the maximum number of full slots. A fingerprint of a set takes one slot; in a
    /// multiset, each copy takes one slot, up to four per fingerprint.
    pub fn capacity(&self) -> u64 {
        self.counts.slots_max
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u64 {
        self.layout.slots()
    }

    /// Returns the size of a slot's remainder, in bits: 1 to 56.
    pub fn remainder_bits(&self) -> u32 {
        self.layout.remainder_bits
    }

    /// Returns the fraction of full slots: 0 to 0.95.
    pub fn load(&self) -> f64 {
        self.counts.slots as f64 / self.slots() as f64
    }

    /// Returns the size of the slots in memory, or in the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.layout.bytes() as u64
    }

    /// Returns the memory of the slots per key, in bits; infinite if there are no keys.
    pub fn bits_per_item(&self) -> f64 {
        self.bytes() as f64 * 8.0 / self.counts.items as f64
    }

    /// Returns the current false-positive rate, 0 to 1: the fraction of all possible fingerprints
    /// that are in the filter.
    pub fn false_positive_rate(&self) -> f64 {
        self.counts.distinct as f64 / self.universe.size() as f64
    }
}

struct Insert<'a> {
    filter: &'a mut QuotientFilter,
    fingerprint: u64,
}

impl LayoutTask for Insert<'_> {
    type Output = Insertion;

    #[inline(always)]
    fn layout(&self) -> SlotLayout {
        self.filter.layout
    }

    #[inline(always)]
    fn run<K: Kernel>(self, layout: SlotLayout) -> Insertion {
        self.filter.fetch(layout, self.fingerprint);
        self.filter.insert_with::<K>(layout, self.fingerprint)
    }
}

struct Contains<'a, S> {
    filter: &'a QuotientFilter<S>,
    fingerprint: u64,
}

impl<S: Storage> LayoutTask for Contains<'_, S> {
    type Output = bool;

    #[inline(always)]
    fn layout(&self) -> SlotLayout {
        self.filter.layout
    }

    #[inline(always)]
    fn run<K: Kernel>(self, layout: SlotLayout) -> bool {
        self.filter.fetch(layout, self.fingerprint);
        SlotBlocks { layout, ..self.filter.blocks() }.contains::<K>(self.fingerprint)
    }
}

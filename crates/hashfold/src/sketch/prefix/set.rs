//! The hashes of one set, in ascending order.

use crate::{
    error::{Error, Result},
    fingerprints::{FingerprintBatch, Fingerprints},
    key::Seed,
    run::Run,
};
use std::fmt;

/// Maximum number of hashes that are taken from a run at a time.
const BATCH: usize = 64;
/// Keys and values of this many bytes end a batch, so that little is read that is not needed.
const BATCH_BYTES: usize = 1 << 14;
/// Number of bits in a hash.
pub(super) const HASH_BITS: u32 = u128::BITS;

/// A set of keys for a [`PrefixSample`](super::PrefixSample): a data set that is read from its first hash on.
pub struct PrefixSet<'a> {
    seed: Seed,
    bits: u32,
    source: Box<dyn Source + 'a>,
}

/// Ascending hashes, in the first bits of numbers.
trait Source: Send {
    /// Appends the next hashes; appends none at the end.
    fn append_to(&mut self, hashes: &mut Vec<u128>) -> Result<()>;

    /// Returns the hash from which on the set is not known, after the end.
    fn unknown_from(&self) -> Option<u128> {
        None
    }
}

impl<'a> PrefixSet<'a> {
    /// Returns the keys of a run: a table's or a map's `scan()`, a version's `scan_all()`. Keys whose
    /// value is `None` are deleted, and left out: merge a run of changes with the run that it changes.
    pub fn of_run(run: impl Run + 'a) -> PrefixSet<'a> {
        PrefixSet { seed: run.seed(), bits: HASH_BITS, source: Box::new(Entries(run)) }
    }

    /// Returns the keys of an exact filter. Each key of a multiset counts once.
    ///
    /// # Errors
    /// `Argument` if the filter has a false-positive rate: with fewer bits than hashes have, many keys
    /// would match by chance.
    pub fn of_fingerprints(run: impl Fingerprints + 'a) -> Result<PrefixSet<'a>> {
        run.universe().require_exact()?;
        let source = Exact { run, batch: FingerprintBatch::new() };
        Ok(PrefixSet { seed: source.run.seed(), bits: u64::BITS, source: Box::new(source) })
    }

    /// Returns a set of which these hashes are known, ascending, in `bits` first bits; from `end` on, nothing.
    pub(in crate::sketch) fn of_hashes(
        (seed, bits): (Seed, u32),
        hashes: Vec<u128>,
        end: Option<u128>,
    ) -> PrefixSet<'a> {
        PrefixSet { seed, bits, source: Box::new(Known { hashes, end }) }
    }

    /// Returns the seed that keys are hashed with.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns the number of first bits of a hash that the set has: 128, 64 or 40.
    pub fn hash_bits(&self) -> u32 {
        self.bits
    }
}

impl fmt::Debug for PrefixSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrefixSet(seed {}, {} bits of each hash)", self.seed, self.bits)
    }
}

struct Entries<R>(R);

impl<R: Run> Source for Entries<R> {
    fn append_to(&mut self, hashes: &mut Vec<u128>) -> Result<()> {
        let (start, mut bytes) = (hashes.len(), 0);
        while hashes.len() < start + BATCH && bytes < BATCH_BYTES && self.0.advance()? {
            let entry = self.0.entry();
            bytes += entry.key.len();
            if let Some(value) = entry.value {
                bytes += value.len();
                hashes.push(entry.hash.bits());
            } else if hashes.len() == start {
                // An empty batch would be the end.
                bytes = 0;
            }
        }
        Ok(())
    }
}

struct Exact<F> {
    run: F,
    batch: FingerprintBatch,
}

impl<F: Fingerprints> Source for Exact<F> {
    fn append_to(&mut self, hashes: &mut Vec<u128>) -> Result<()> {
        let start = hashes.len();
        while hashes.len() == start {
            self.batch.clear();
            if !self.run.append_to(&mut self.batch)? {
                break;
            }
            let present = self.batch.iter().filter(|(_, count)| *count > 0);
            hashes.extend(present.map(|(hash, _)| u128::from(hash) << u64::BITS));
        }
        Ok(())
    }
}

/// Hashes that were given.
struct Known {
    hashes: Vec<u128>,
    end: Option<u128>,
}

impl Source for Known {
    fn append_to(&mut self, hashes: &mut Vec<u128>) -> Result<()> {
        hashes.append(&mut self.hashes);
        Ok(())
    }

    fn unknown_from(&self) -> Option<u128> {
        self.end
    }
}

/// A set that is being read: its hashes in the bits that all sets have.
pub(super) struct Cursor<'a> {
    set: PrefixSet<'a>,
    /// The bits that are compared.
    mask: u128,
    hashes: Vec<u128>,
    at: usize,
    /// The first hash that was not passed; `None` at the end.
    pub(super) next: Option<u128>,
    /// Whether `next` is where the knowledge of the set ends.
    pub(super) is_bound: bool,
}

impl<'a> Cursor<'a> {
    /// Starts to read a set.
    pub(super) fn new(set: PrefixSet<'a>, bits: u32) -> Result<Cursor<'a>> {
        let mask = u128::MAX << (HASH_BITS - bits);
        let (hashes, at) = (Vec::new(), 0);
        let mut cursor = Cursor { set, mask, hashes, at, next: None, is_bound: false };
        cursor.next = cursor.load()?;
        Ok(cursor)
    }

    /// Whether the end was reached, and all keys are known.
    pub(super) fn is_ended(&self) -> bool {
        self.next.is_none()
    }

    /// Passes the next hash. Returns the number of keys that have it.
    #[inline]
    pub(super) fn pass(&mut self) -> Result<u64> {
        let passed = self.next;
        let mut keys = 0;
        while self.next == passed && !self.is_bound && passed.is_some() {
            keys += 1;
            self.at += 1;
            self.next = match self.hashes.get(self.at) {
                Some(hash) => Some(hash & self.mask),
                None => self.load()?,
            };
            if self.next < passed && self.next.is_some() {
                return Err(self.disorder(passed));
            }
        }
        Ok(keys)
    }

    /// Loads the next hashes, and returns the first one.
    #[cold]
    fn load(&mut self) -> Result<Option<u128>> {
        self.hashes.clear();
        self.at = 0;
        self.set.source.append_to(&mut self.hashes)?;
        if let Some(hash) = self.hashes.first() {
            return Ok(Some(hash & self.mask));
        }
        let end = self.set.source.unknown_from();
        self.is_bound = end.is_some();
        Ok(end.map(|hash| hash & self.mask))
    }

    #[cold]
    fn disorder(&self, before: Option<u128>) -> Error {
        let text = |hash: Option<u128>| format!("{:032x}", hash.unwrap_or_default());
        Error::argument("next hash of a set", format!("above {}", text(before)), text(self.next))
    }
}

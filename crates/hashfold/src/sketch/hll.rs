//! The sketch: registers, each with the largest value of its hashes.

use super::{
    covariance::Shape,
    entries::VALUE_BITS,
    estimate::{self, Histogram, VALUES},
    family::{Family, REGWIDTHS},
    interval::Estimate,
    kernel,
};
use crate::{
    error::{Error, Result},
    fingerprints::{FingerprintBatch, Fingerprints},
    key::{KeyHash, Seed},
    run::Run,
};
use std::{borrow::Cow, cmp::Ordering, fmt};

/// The smallest precision.
pub const PRECISION_MIN: u8 = 4;
/// The largest precision.
pub const PRECISION_MAX: u8 = 18;
/// Number of registers for each entry that a sparse sketch has at most. At that size, it takes half of
/// the memory of a dense one.
const SPARSE_FRACTION: usize = 8;

/// A HyperLogLog sketch: the number of distinct keys, in 2^precision bytes of RAM, with a relative
/// standard error of about 1.04 / √(2^precision).
///
/// The order of the keys and their repetitions make no difference, and the union of two sketches is
/// that of all keys. With few keys, a sketch is a list, and smaller.
///
/// ```
/// use hashfold::sketch::Hll;
/// let mut visitors = Hll::new(14)?;
/// for i in 0..100_000_u32 {
///     visitors.insert(&(i % 50_000).to_le_bytes());
/// }
/// assert!((visitors.estimate() - 50_000.0).abs() < 2_000.0);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Hll {
    family: Family,
    precision: u8,
    registers: Registers,
}

#[derive(Clone, PartialEq, Eq)]
enum Registers {
    /// The registers that are not 0, ascending: index and value.
    Sparse(Vec<u32>),
    Dense(Box<[u8]>),
}

impl Hll {
    /// Makes an empty sketch with the hash function of Hashfold and the seed 0.
    ///
    /// # Errors
    /// `Argument` if the precision is not between [`PRECISION_MIN`] and [`PRECISION_MAX`].
    pub fn new(precision: u8) -> Result<Hll> {
        Hll::of_family(Family::Hashfold(Seed(0)), precision)
    }

    /// Makes an empty sketch of a family.
    ///
    /// # Errors
    /// `Argument` if the precision is not between [`PRECISION_MIN`] and [`PRECISION_MAX`], or the
    /// `regwidth` of a [`Family::Postgres`] not between 1 and 7.
    pub fn of_family(family: Family, precision: u8) -> Result<Hll> {
        if !(PRECISION_MIN..=PRECISION_MAX).contains(&precision) {
            let expected = format!("{PRECISION_MIN} to {PRECISION_MAX}");
            return Err(Error::argument("precision of a sketch", expected, precision));
        }
        if let Family::Postgres { regwidth } = family
            && !REGWIDTHS.contains(&regwidth)
        {
            let expected = format!("{} to {}", REGWIDTHS.start(), REGWIDTHS.end());
            return Err(Error::argument("bits of a register of a sketch", expected, regwidth));
        }
        Ok(Hll { family, precision, registers: Registers::Sparse(Vec::new()) })
    }

    /// Makes a sketch of registers that are not 0, ascending: index and value, as in [`Registers::Sparse`].
    pub(super) fn of_registers(family: Family, precision: u8, entries: Vec<u32>) -> Hll {
        let is_many = entries.len() > (1 << precision) / SPARSE_FRACTION;
        let mut sketch = Hll { family, precision, registers: Registers::Sparse(entries) };
        if is_many {
            sketch.spread();
        }
        sketch
    }

    /// Makes the sketch of a run's keys, without those that are deleted, with the run's seed.
    ///
    /// # Errors
    /// The errors of [`Hll::new`] and of the run.
    pub fn of_run(mut run: impl Run, precision: u8) -> Result<Hll> {
        let mut sketch = Hll::of_family(Family::Hashfold(run.seed()), precision)?;
        while run.advance()? {
            let entry = run.entry();
            if entry.value.is_some() {
                sketch.insert_hash(entry.hash);
            }
        }
        Ok(sketch)
    }

    /// Makes the sketch of an exact filter's keys, with the filter's seed: that of the keys themselves. Each key of a
    /// multiset counts once.
    ///
    /// # Errors
    /// `Argument` if the filter has a false-positive rate, because its fingerprints are parts of hashes; the errors of
    /// [`Hll::new`] and of the run.
    pub fn of_fingerprints(mut run: impl Fingerprints, precision: u8) -> Result<Hll> {
        let mut sketch = Hll::of_family(Family::Hashfold(run.seed()), precision)?;
        run.universe().require_exact()?;
        let (mut batch, mut hashes) = (FingerprintBatch::new(), Vec::new());
        while run.append_to(&mut batch)? {
            hashes.clear();
            hashes.extend(batch.iter().filter(|(_, count)| *count > 0).map(|(hash, _)| hash));
            sketch.insert_hashes(&hashes);
            batch.clear();
        }
        Ok(sketch)
    }

    /// Returns the family: the hash function.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the precision: the binary logarithm of the number of registers.
    pub fn precision(&self) -> u8 {
        self.precision
    }

    /// Returns the number of registers.
    pub fn register_count(&self) -> usize {
        1 << self.precision
    }

    /// Returns the memory of the registers, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.registers {
            Registers::Sparse(entries) => entries.capacity() * size_of::<u32>(),
            Registers::Dense(registers) => registers.len(),
        }
    }

    /// Whether no key was inserted.
    pub fn is_empty(&self) -> bool {
        // A dense sketch has many values.
        matches!(&self.registers, Registers::Sparse(entries) if entries.is_empty())
    }

    /// Whether the sketch has a byte for each register.
    pub(super) fn is_dense(&self) -> bool {
        matches!(self.registers, Registers::Dense(_))
    }

    /// The largest value of a register, less 1.
    pub(super) fn q(&self) -> usize {
        self.family.q(self.precision)
    }

    /// Inserts a key. Returns whether that changed the sketch.
    pub fn insert(&mut self, key: &[u8]) -> bool {
        self.insert_bits(self.family.hash(key))
    }

    /// Inserts a hash of the family [`Family::Hashfold`] with this sketch's seed.
    pub fn insert_hash(&mut self, hash: KeyHash) -> bool {
        self.insert_bits(hash.high())
    }

    /// Inserts the 64 bits of [`Family::hash`]. Returns whether that changed the sketch.
    #[inline]
    pub fn insert_bits(&mut self, hash: u64) -> bool {
        let (index, value) = self.family.place(hash, self.precision);
        self.raise(index, value)
    }

    /// Inserts many hashes, as [`Hll::insert_bits`] does.
    pub fn insert_hashes(&mut self, hashes: &[u64]) {
        let mut hashes = hashes.iter();
        while matches!(self.registers, Registers::Sparse(_)) {
            let Some(hash) = hashes.next() else { return };
            self.insert_bits(*hash);
        }
        let Registers::Dense(registers) = &mut self.registers else { return };
        let (family, precision) = (self.family, self.precision);
        if let Family::Hashfold(_) = family {
            return kernel::raise(registers, precision, hashes.as_slice());
        }
        for hash in hashes {
            let (index, value) = family.place(*hash, precision);
            registers[index] = registers[index].max(value);
        }
    }

    /// Lets a register have at least this value. Returns whether it had less.
    #[inline]
    pub(super) fn raise(&mut self, index: usize, value: u8) -> bool {
        match &mut self.registers {
            Registers::Dense(registers) => {
                let register = &mut registers[index];
                let is_more = value > *register;
                *register = value.max(*register);
                is_more
            }
            Registers::Sparse(_) if value == 0 => false,
            Registers::Sparse(entries) => {
                let entry = (index as u32) << VALUE_BITS | u32::from(value);
                let at = entries.partition_point(|known| known >> VALUE_BITS < entry >> VALUE_BITS);
                match entries.get_mut(at).filter(|known| **known >> VALUE_BITS == index as u32) {
                    Some(known) if *known >= entry => return false,
                    Some(known) => *known = entry,
                    None => entries.insert(at, entry),
                }
                if entries.len() > (1 << self.precision) / SPARSE_FRACTION {
                    self.spread();
                }
                true
            }
        }
    }

    /// Makes the sketch dense.
    fn spread(&mut self) {
        self.registers = Registers::Dense(self.values().into_owned().into_boxed_slice());
    }

    /// Calls `visit` with each register that is not 0, ascending, and its value.
    pub(super) fn for_each(&self, mut visit: impl FnMut(usize, u8)) {
        match &self.registers {
            Registers::Sparse(entries) => {
                entries
                    .iter()
                    .for_each(|entry| visit((entry >> VALUE_BITS) as usize, *entry as u8));
            }
            Registers::Dense(registers) => {
                let set = registers.iter().enumerate().filter(|(_, value)| **value > 0);
                set.for_each(|(index, value)| visit(index, *value));
            }
        }
    }

    /// Returns the registers, a byte each.
    pub(super) fn values(&self) -> Cow<'_, [u8]> {
        match &self.registers {
            Registers::Dense(registers) => Cow::Borrowed(registers),
            Registers::Sparse(_) => {
                let mut registers = vec![0; self.register_count()];
                self.for_each(|index, value| registers[index] = value);
                Cow::Owned(registers)
            }
        }
    }

    fn histogram(&self) -> Histogram {
        match &self.registers {
            Registers::Dense(registers) => estimate::histogram(registers),
            Registers::Sparse(entries) => {
                let mut histogram = [0; VALUES];
                entries.iter().for_each(|entry| histogram[usize::from(*entry as u8)] += 1);
                histogram[0] = (self.register_count() - entries.len()) as u32;
                histogram
            }
        }
    }

    /// Estimates the number of distinct keys: by Ertl's estimator, without its mean error of about 1/m with m registers.
    pub fn estimate(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let estimate = estimate::estimate(&self.histogram(), self.q());
        estimate::without_bias(estimate, self.register_count() as f64)
    }

    /// Estimates the number of distinct keys, with the error of the estimate.
    pub fn estimate_with_error(&self) -> Estimate {
        let value = self.estimate();
        let shape = Shape { count: self.register_count(), q: self.q() };
        Estimate::new(value, shape.variance(value), f64::INFINITY)
    }

    /// Returns the relative standard error of the estimate for many keys: 1.04 / √m with m registers. It
    /// is less while most registers are 0.
    pub fn standard_error(&self) -> f64 {
        1.04 / (self.register_count() as f64).sqrt()
    }

    /// Adds the keys of another sketch.
    ///
    /// # Errors
    /// `Argument` if the other one has another family or precision: [`Hll::downsize`] makes the
    /// precisions equal.
    pub fn union(&mut self, other: &Hll) -> Result<()> {
        self.check_like(other)?;
        match (&mut self.registers, &other.registers) {
            (Registers::Dense(registers), Registers::Dense(others)) => {
                registers.iter_mut().zip(others).for_each(|(a, b)| *a = (*a).max(*b));
            }
            (Registers::Sparse(entries), Registers::Sparse(others)) => {
                let entries = merge(entries, others);
                *self = Hll::of_registers(self.family, self.precision, entries);
            }
            (Registers::Sparse(_), Registers::Dense(_)) => {
                let few = std::mem::replace(self, other.clone());
                few.for_each(|index, value| _ = self.raise(index, value));
            }
            _ => other.for_each(|index, value| _ = self.raise(index, value)),
        }
        Ok(())
    }

    pub(super) fn check_like(&self, other: &Hll) -> Result<()> {
        if self.family != other.family {
            let expected = format!("{}, as in the other sketch", self.family);
            return Err(Error::argument("hash function of a sketch", expected, other.family));
        }
        if self.precision != other.precision {
            let expected =
                format!("{}, as in the other sketch; downsize one of them", self.precision);
            return Err(Error::argument("precision of a sketch", expected, other.precision));
        }
        Ok(())
    }

    /// Returns the sketch of a lower precision that the same keys would have given.
    ///
    /// # Errors
    /// `Argument` if the precision is not between [`PRECISION_MIN`] and that of this sketch.
    pub fn downsize(&self, precision: u8) -> Result<Hll> {
        if !(PRECISION_MIN..=self.precision).contains(&precision) {
            let expected = format!("{PRECISION_MIN} to {}, that of the sketch", self.precision);
            return Err(Error::argument("precision of a sketch", expected, precision));
        }
        let mut shorter = Hll::of_family(self.family, precision)?;
        let bits = self.precision - precision;
        self.for_each(|index, value| {
            let (index, value) = self.family.shorten(index, value, self.precision, bits);
            shorter.raise(index, value);
        });
        Ok(shorter)
    }
}

/// Merges registers that are not 0, ascending; of two with one index, the larger value is kept.
fn merge(a: &[u32], b: &[u32]) -> Vec<u32> {
    let (mut merged, mut i, mut j) = (Vec::with_capacity(a.len() + b.len()), 0, 0);
    while let (Some(&x), Some(&y)) = (a.get(i), b.get(j)) {
        let (in_a, in_b) = (x >> VALUE_BITS, y >> VALUE_BITS);
        merged.push(match in_a.cmp(&in_b) {
            Ordering::Less => x,
            Ordering::Equal => x.max(y),
            Ordering::Greater => y,
        });
        i += usize::from(in_a <= in_b);
        j += usize::from(in_b <= in_a);
    }
    merged.extend_from_slice(&a[i..]);
    merged.extend_from_slice(&b[j..]);
    merged
}

impl fmt::Debug for Hll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Hll({}, precision {}, about {:.0} keys)",
            self.family,
            self.precision,
            self.estimate()
        )
    }
}

//! Sketches as Redis and Valkey keep them in strings, byte for byte, also after changes.
//! `docs/formats/sketch.md` has the same tables.
//!
//! | offset | size | field    |                                                                 |
//! |-------:|-----:|----------|-----------------------------------------------------------------|
//! |      0 |    4 | magic    | `HYLL`                                                          |
//! |      4 |    1 | encoding | 0 dense, 1 sparse                                               |
//! |      5 |    3 | zero     | not checked                                                     |
//! |      8 |    8 | count    | the last estimate, rounded; plus 2⁶³ if it is out of date       |
//! |     16 |    … | registers | 16384 of them                                                  |
//!
//! Dense registers have 6 bits each, the lowest bits of each byte first. Sparse ones are a sequence of
//! operations:
//!
//! | bits                | operation                                              |
//! |---------------------|--------------------------------------------------------|
//! | `00nnnnnn`          | n + 1 registers are 0                                  |
//! | `01nnnnnn nnnnnnnn` | n + 1 registers are 0                                  |
//! | `1vvvvvnn`          | n + 1 registers are v + 1                              |

use super::{
    Hll,
    estimate::{self, Histogram, VALUES},
    family::Family,
    packed,
};
use crate::error::{Error, Result};

/// The precision of all sketches of Redis.
const PRECISION: u8 = 14;
/// Number of registers.
pub const REGISTERS: usize = 1 << PRECISION;
/// The largest value of a register, less 1.
const Q: usize = 64 - PRECISION as usize;
const MAGIC: &[u8] = b"HYLL";
const HEAD_SIZE: usize = 16;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const DENSE_SIZE: usize = HEAD_SIZE + packed::size(REGISTERS);
/// A sparse sketch that would be longer becomes dense, in bytes: `hll-sparse-max-bytes` of Redis, whose
/// default it is.
const SPARSE_SIZE_MAX: usize = 3000;
/// The largest value in a sparse sketch.
const SPARSE_VALUE_MAX: u8 = 32;
/// The longest sequence of equal values in one operation.
const SAME_MAX: usize = 4;
/// The longest sequence of zeros in an operation of one byte.
const ZEROS_MAX: usize = 64;
/// The byte of the count that says that it is out of date, and its bit.
const STALE: (usize, u8) = (15, 1 << 7);
/// Number of operations that are searched for neighbours to be joined, from the one before a change on.
const JOINED_MAX: usize = 5;

/// A sketch in a string of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisHll(Vec<u8>);

impl Default for RedisHll {
    fn default() -> RedisHll {
        let mut bytes = [MAGIC, &[SPARSE, 0, 0, 0], &[0; 8]].concat();
        Operation::Zeros(REGISTERS).encode(&mut bytes);
        RedisHll(bytes)
    }
}

impl RedisHll {
    /// Makes an empty sketch.
    pub fn new() -> RedisHll {
        RedisHll::default()
    }

    /// Takes the bytes of a string. The operations of a sparse sketch are checked when they are used.
    ///
    /// # Errors
    /// `Field` if they are no sketch.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<RedisHll> {
        let encoding = bytes.get(4).copied().filter(|_| bytes.starts_with(MAGIC));
        match encoding {
            Some(DENSE) if bytes.len() == DENSE_SIZE => Ok(RedisHll(bytes)),
            Some(SPARSE) if bytes.len() >= HEAD_SIZE => Ok(RedisHll(bytes)),
            _ => {
                let expected = format!("HYLL and {HEAD_SIZE} bytes or more, {DENSE_SIZE} if dense");
                let got = format!("{} bytes", bytes.len());
                Err(Error::field("sketch of Redis", expected, got))
            }
        }
    }

    /// Returns the bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes of the string.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Whether each register has a place of its own: the sketch has its largest size.
    pub fn is_dense(&self) -> bool {
        self.0[4] == DENSE
    }

    /// Inserts a key. Returns whether that changed a register.
    ///
    /// # Errors
    /// `Field` if the sketch is damaged.
    pub fn insert(&mut self, key: &[u8]) -> Result<bool> {
        let (index, value) = Family::Redis.place(Family::Redis.hash(key), PRECISION);
        let is_changed = self.raise(index, value)?;
        if is_changed {
            self.forget_count();
        }
        Ok(is_changed)
    }

    /// Marks the count as out of date.
    pub fn forget_count(&mut self) {
        self.0[STALE.0] |= STALE.1;
    }

    /// Returns the estimate, if nothing was inserted since it was computed.
    pub fn known_count(&self) -> Option<u64> {
        let count = u64::from_le_bytes(*self.0[8..].first_chunk().expect("the head is there"));
        (self.0[STALE.0] & STALE.1 == 0).then_some(count)
    }

    /// Estimates the number of distinct keys, and keeps the estimate in the string.
    ///
    /// # Errors
    /// `Field` if the sketch is damaged.
    pub fn count(&mut self) -> Result<u64> {
        if let Some(count) = self.known_count() {
            return Ok(count);
        }
        let count = count_of(&self.registers()?);
        self.0[8..HEAD_SIZE].copy_from_slice(&count.to_le_bytes());
        Ok(count)
    }

    /// Returns the values of all registers.
    ///
    /// # Errors
    /// `Field` if the sketch is damaged.
    pub fn registers(&self) -> Result<Vec<u8>> {
        let mut registers = Vec::with_capacity(REGISTERS);
        if self.is_dense() {
            registers.extend((0..REGISTERS).map(|index| self.dense(index)));
            return Ok(registers);
        }
        let mut rest = &self.0[HEAD_SIZE..];
        while let Some((operation, size)) = Operation::decode(rest) {
            let (value, count) = operation.parts();
            if registers.len() + count > REGISTERS {
                return Err(damaged(registers.len() + count));
            }
            registers.resize(registers.len() + count, value);
            rest = &rest[size..];
        }
        if registers.len() != REGISTERS || !rest.is_empty() {
            return Err(damaged(registers.len()));
        }
        Ok(registers)
    }

    /// Adds the registers of other sketches, whose values are given for each register. Becomes dense if one
    /// of these sketches is.
    ///
    /// # Errors
    /// `Field` if this sketch is damaged; `Argument` if there are not [`REGISTERS`] values below 64.
    pub fn raise_all(&mut self, registers: &[u8], is_dense: bool) -> Result<()> {
        let largest = registers.iter().max().copied().unwrap_or_default();
        if registers.len() != REGISTERS || largest >= VALUES as u8 {
            let got = format!("{} up to {largest}", registers.len());
            let expected = format!("{REGISTERS} below {VALUES}");
            return Err(Error::argument("registers of a sketch of Redis", expected, got));
        }
        if is_dense {
            self.spread()?;
        }
        for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
            self.raise(index, *value)?;
        }
        self.forget_count();
        Ok(())
    }

    /// Lets a register have at least this value. Returns whether it had less.
    fn raise(&mut self, index: usize, value: u8) -> Result<bool> {
        if self.is_dense() {
            let is_more = self.dense(index) < value;
            if is_more {
                self.set_dense(index, value);
            }
            return Ok(is_more);
        }
        if value <= SPARSE_VALUE_MAX
            && let Some(is_more) = self.raise_sparse(index, value)?
        {
            return Ok(is_more);
        }
        self.spread()?;
        self.set_dense(index, value);
        Ok(true)
    }

    /// Raises a register of a sparse sketch; `None` if the sketch would be too long.
    fn raise_sparse(&mut self, index: usize, value: u8) -> Result<Option<bool>> {
        let (mut at, mut first, mut before) = (HEAD_SIZE, 0, HEAD_SIZE);
        let (operation, size) = loop {
            let (operation, size) =
                Operation::decode(&self.0[at..]).ok_or_else(|| damaged(first))?;
            if index < first + operation.parts().1 {
                break (operation, size);
            }
            (before, at, first) = (at, at + size, first + operation.parts().1);
        };
        let (old, count) = operation.parts();
        if old >= value {
            return Ok(Some(false));
        }
        let mut new = Vec::with_capacity(5);
        operation.of(index - first).encode(&mut new);
        Operation::Same(value, 1).encode(&mut new);
        operation.of(first + count - 1 - index).encode(&mut new);
        if new.len() > size && self.0.len() + new.len() - size > SPARSE_SIZE_MAX {
            return Ok(None);
        }
        self.0.splice(at..at + size, new);
        self.join_from(before);
        self.forget_count();
        Ok(Some(true))
    }

    /// Joins neighbours with equal values, among a few operations from `at` on.
    fn join_from(&mut self, mut at: usize) {
        for _ in 0..JOINED_MAX {
            let Some((operation, size)) = self.0.get(at..).and_then(Operation::decode) else {
                return;
            };
            let next = Operation::decode(&self.0[at + size..]);
            if let (Operation::Same(a, n), Some((Operation::Same(b, m), _))) = (operation, next)
                && a == b
                && n + m <= SAME_MAX
            {
                let mut joined = Vec::with_capacity(1);
                Operation::Same(a, n + m).encode(&mut joined);
                self.0.splice(at..at + 2, joined);
            } else {
                at += size;
            }
        }
    }

    /// Makes the sketch dense. Returns whether it was not.
    ///
    /// # Errors
    /// `Field` if the sketch is damaged.
    pub fn make_dense(&mut self) -> Result<bool> {
        let was_sparse = !self.is_dense();
        self.spread()?;
        Ok(was_sparse)
    }

    /// Returns the operations of a sparse sketch as text, in the form of `PFDEBUG DECODE`: `z:N` and `Z:N` are zeros in one and two
    /// bytes, `v:V,N` registers with the value V. If the second byte of the last one is missing, it counts as 0. `None` if the
    /// sketch is dense.
    pub fn operations(&self) -> Option<String> {
        if self.is_dense() {
            return None;
        }
        let (mut text, mut rest) = (Vec::new(), &self.0[HEAD_SIZE..]);
        while let Some((operation, size)) = Operation::decode(rest) {
            text.push(match (operation, size) {
                (Operation::Zeros(count), 1) => format!("z:{count}"),
                (Operation::Zeros(count), _) => format!("Z:{count}"),
                (Operation::Same(value, count), _) => format!("v:{value},{count}"),
            });
            rest = &rest[size..];
        }
        // Redis reads the byte behind the string.
        if let Some((zeros, _)) = rest.first().and_then(|first| Operation::decode(&[*first, 0])) {
            text.push(format!("Z:{}", zeros.parts().1));
        }
        Some(text.join(" "))
    }

    /// Makes the sketch dense.
    fn spread(&mut self) -> Result<()> {
        if !self.is_dense() {
            let registers = self.registers()?;
            self.0.truncate(HEAD_SIZE);
            self.0.resize(DENSE_SIZE, 0);
            self.0[4] = DENSE;
            let set = registers.iter().enumerate().filter(|(_, value)| **value > 0);
            set.for_each(|(index, value)| self.set_dense(index, *value));
        }
        Ok(())
    }

    fn dense(&self, index: usize) -> u8 {
        packed::get(&self.0[HEAD_SIZE..], index)
    }

    fn set_dense(&mut self, index: usize, value: u8) {
        packed::set(&mut self.0[HEAD_SIZE..], index, value);
    }

    /// Returns the same registers as a sketch that others can be united with.
    ///
    /// # Errors
    /// `Field` if the sketch is damaged.
    pub fn to_hll(&self) -> Result<Hll> {
        let mut sketch = Hll::of_family(Family::Redis, PRECISION)?;
        for (index, value) in self.registers()?.iter().enumerate().filter(|(_, value)| **value > 0)
        {
            if usize::from(*value) > Q + 1 {
                return Err(Error::field("value of a register", format!("0 to {}", Q + 1), value));
            }
            sketch.raise(index, *value);
        }
        Ok(sketch)
    }

    /// Returns a sketch with the registers of another one, as Redis makes it of them in their order.
    ///
    /// # Errors
    /// `Argument` if the other one is not of [`Family::Redis`] with the precision 14.
    pub fn from_hll(sketch: &Hll) -> Result<RedisHll> {
        if (sketch.family(), sketch.precision()) != (Family::Redis, PRECISION) {
            let got = format!("{}, precision {}", sketch.family(), sketch.precision());
            let expected = format!("{}, precision {PRECISION}", Family::Redis);
            return Err(Error::argument("sketch to be written for Redis", expected, got));
        }
        let mut registers = vec![0; REGISTERS];
        sketch.for_each(|index, value| registers[index] = value);
        let mut string = RedisHll::new();
        string.raise_all(&registers, false)?;
        Ok(string)
    }
}

/// Estimates the number of distinct keys in the registers of a sketch, rounded as by Redis.
pub fn count_of(registers: &[u8]) -> u64 {
    let mut histogram: Histogram = [0; VALUES];
    registers.iter().for_each(|value| histogram[usize::from(value & 63)] += 1);
    (estimate::estimate(&histogram, Q).round() as u64).min(i64::MAX as u64)
}

/// Returns the union of two sketches in `registers`: of each register the larger value.
pub fn unite(registers: &mut [u8], others: &[u8]) {
    registers.iter_mut().zip(others).for_each(|(a, b)| *a = (*a).max(*b));
}

fn damaged(registers: usize) -> Error {
    Error::field("registers of a sketch of Redis", REGISTERS.to_string(), registers)
}

/// An operation of a sparse sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// A number of registers that are 0.
    Zeros(usize),
    /// A value, and the number of registers that have it.
    Same(u8, usize),
}

impl Operation {
    /// Returns the first operation in these bytes, and its size.
    fn decode(bytes: &[u8]) -> Option<(Operation, usize)> {
        let first = *bytes.first()?;
        let low = usize::from(first & 63);
        Some(match first >> 6 {
            0 => (Operation::Zeros(low + 1), 1),
            1 => (Operation::Zeros((low << 8 | usize::from(*bytes.get(1)?)) + 1), 2),
            _ => (Operation::Same((first >> 2 & 31) + 1, usize::from(first & 3) + 1), 1),
        })
    }

    /// Appends the operation, unless it is about no register.
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Operation::Zeros(0) | Operation::Same(_, 0) => {}
            Operation::Zeros(count) if count <= ZEROS_MAX => out.push((count - 1) as u8),
            Operation::Zeros(count) => {
                out.extend([64 | ((count - 1) >> 8) as u8, (count - 1) as u8]);
            }
            Operation::Same(value, count) => out.push(128 | (value - 1) << 2 | (count - 1) as u8),
        }
    }

    /// Returns the value, and the number of registers.
    fn parts(self) -> (u8, usize) {
        match self {
            Operation::Zeros(count) => (0, count),
            Operation::Same(value, count) => (value, count),
        }
    }

    /// Returns the operation for another number of registers.
    fn of(self, count: usize) -> Operation {
        match self {
            Operation::Zeros(_) => Operation::Zeros(count),
            Operation::Same(value, _) => Operation::Same(value, count),
        }
    }
}

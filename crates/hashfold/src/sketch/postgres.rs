//! Values of the type `hll` of postgresql-hll, byte for byte (storage specification 1.0.0, which java-hll
//! and others share). `docs/formats/sketch.md` has the same tables.
//!
//! | offset | size | field      |                                                                |
//! |-------:|-----:|------------|----------------------------------------------------------------|
//! |      0 |    1 | type       | 16 + type: 1 empty, 2 explicit, 3 sparse, 4 full               |
//! |      1 |    1 | registers  | 32 · (regwidth − 1) + log2m                                    |
//! |      2 |    1 | thresholds | 64 if sparse sketches are allowed; plus 0 if explicit ones are not, 63 if their number of hashes follows from the size, log2(number) + 1 otherwise |
//! |      3 |    … | content    | nothing if empty                                               |
//!
//! Numbers have their highest bits first; after the last one, the last byte is filled with zeros.
//!
//! | type     | content                                                                            |
//! |----------|------------------------------------------------------------------------------------|
//! | explicit | the hashes, 8 bytes each, ascending as signed integers                             |
//! | sparse   | of each register that is not 0, ascending: index, log2m bits; value, regwidth bits |
//! | full     | the values of all registers, regwidth bits each                                    |

use super::{
    Hll, PRECISION_MIN,
    family::{Family, REGWIDTHS},
    format::take,
};
use crate::{
    codec::{Decoder, within},
    error::{Error, Result, range_text},
};

/// The largest precision of postgresql-hll.
const LOG2M_MAX: u8 = 17;
const VERSION: u8 = 1;
const EMPTY: u8 = 1;
const EXPLICIT: u8 = 2;
const SPARSE: u8 = 3;
const FULL: u8 = 4;
/// The bit of the thresholds that allows sparse sketches.
const SPARSE_ON: u8 = 1 << 6;
/// The threshold of explicit sketches that follows from the size.
const AUTO: u8 = 63;
/// The largest code of a threshold: 2^13 hashes, since postgresql-hll holds fewer than 2^14.
const THRESHOLD_CODE_MAX: u8 = 14;
const HASH_SIZE: usize = size_of::<i64>();

/// The parameters of a sketch: the arguments of `hll_empty`. Only sketches with equal ones have a union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// The precision, 4 to 17.
    pub log2m: u8,
    /// Number of bits of a register, 1 to 7.
    pub regwidth: u8,
    /// The largest number of hashes that are kept as they are: a power of 2 up to 8192, 0 for none, or −1
    /// for as many as need no more space than all registers.
    pub expthresh: i64,
    /// Whether a sketch is sparse where that is smaller.
    pub sparseon: bool,
}

impl Default for PostgresOptions {
    /// The defaults of postgresql-hll: `hll(11, 5, -1, 1)`.
    fn default() -> PostgresOptions {
        PostgresOptions { log2m: 11, regwidth: 5, expthresh: -1, sparseon: true }
    }
}

impl PostgresOptions {
    fn check(&self) -> Result<()> {
        let in_range = |what, range: std::ops::RangeInclusive<u8>, got: u8| {
            let expected = range_text(&range);
            if range.contains(&got) { Ok(()) } else { Err(Error::argument(what, expected, got)) }
        };
        in_range("log2m", PRECISION_MIN..=LOG2M_MAX, self.log2m)?;
        in_range("regwidth", REGWIDTHS, self.regwidth)?;
        let codes = 0..=THRESHOLD_CODE_MAX;
        if self.expthresh != -1 && !codes.into_iter().any(|code| threshold(code) == self.expthresh)
        {
            let expected = "-1, 0, or a power of 2 up to 8192";
            return Err(Error::argument("expthresh", expected, self.expthresh));
        }
        Ok(())
    }

    fn family(&self) -> Family {
        Family::Postgres { regwidth: self.regwidth }
    }

    /// Returns the size of all registers, in bits.
    fn full_bits(&self) -> usize {
        usize::from(self.regwidth) << self.log2m
    }

    /// Returns the largest number of hashes.
    fn explicit_max(&self) -> usize {
        usize::try_from(self.expthresh).unwrap_or(self.full_bits().div_ceil(8) / HASH_SIZE)
    }

    fn encode(&self, kind: u8, out: &mut Vec<u8>) {
        let code = match self.expthresh {
            -1 => AUTO,
            0 => 0,
            count => count.trailing_zeros() as u8 + 1,
        };
        let sparse = if self.sparseon { SPARSE_ON } else { 0 };
        out.extend([VERSION << 4 | kind, (self.regwidth - 1) << 5 | self.log2m, sparse | code]);
    }

    /// Takes the head of a sketch: its type and its parameters.
    fn decode(fields: &mut Decoder<'_>) -> Result<(u8, PostgresOptions)> {
        let [kind, registers, thresholds] = fields.array::<3>()?;
        if kind >> 4 != VERSION {
            let what = "version of a sketch of postgresql-hll";
            return Err(Error::field(what, VERSION.to_string(), kind >> 4));
        }
        let log2ms = u64::from(PRECISION_MIN)..=u64::from(LOG2M_MAX);
        let log2m = within("log2m of a sketch", log2ms, (registers & 31).into())? as u8;
        let regwidths = u64::from(*REGWIDTHS.start())..=u64::from(*REGWIDTHS.end());
        let regwidth = within("regwidth of a sketch", regwidths, u64::from(registers >> 5) + 1)?;
        let expthresh = match thresholds & (SPARSE_ON - 1) {
            AUTO => -1,
            code if code <= THRESHOLD_CODE_MAX => threshold(code),
            code => {
                let expected = format!("0 to {THRESHOLD_CODE_MAX}, or {AUTO}");
                return Err(Error::field("explicit threshold of a sketch", expected, code));
            }
        };
        let sparseon = thresholds & SPARSE_ON != 0;
        let regwidth = regwidth as u8;
        Ok((kind & 15, PostgresOptions { log2m, regwidth, expthresh, sparseon }))
    }
}

/// Returns the number of hashes that a code stands for.
fn threshold(code: u8) -> i64 {
    if code == 0 { 0 } else { 1 << (code - 1) }
}

/// A sketch of postgresql-hll: its promotions from hashes to registers, and its bytes, are those of the
/// extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresHll {
    options: PostgresOptions,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Empty,
    /// Hashes, ascending.
    Explicit(Vec<i64>),
    Registers(Hll),
}

impl PostgresHll {
    /// Makes an empty sketch.
    ///
    /// # Errors
    /// `Argument` if a parameter is out of its range.
    pub fn new(options: PostgresOptions) -> Result<PostgresHll> {
        options.check()?;
        Ok(PostgresHll { options, content: Content::Empty })
    }

    /// Returns the parameters.
    pub fn options(&self) -> PostgresOptions {
        self.options
    }

    /// Inserts a key, hashed as by `hll_hash_text` and `hll_hash_bytea`; the 8 bytes of a little-endian
    /// integer, as by `hll_hash_bigint`.
    pub fn insert(&mut self, key: &[u8]) {
        self.insert_hash(self.options.family().hash(key) as i64);
    }

    /// Inserts a hash: the `hll_hashval` of `hll_add`.
    pub fn insert_hash(&mut self, hash: i64) {
        let explicit_max = self.options.explicit_max();
        match &mut self.content {
            Content::Empty if explicit_max > 0 => self.content = Content::Explicit(vec![hash]),
            Content::Explicit(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else { return };
                if hashes.len() < explicit_max {
                    hashes.insert(at, hash);
                } else {
                    self.spread().insert_bits(hash as u64);
                }
            }
            _ => _ = self.spread().insert_bits(hash as u64),
        }
    }

    /// Replaces hashes by registers, and returns these.
    fn spread(&mut self) -> &mut Hll {
        if !matches!(self.content, Content::Registers(_)) {
            self.content = Content::Registers(self.to_hll());
        }
        match &mut self.content {
            Content::Registers(registers) => registers,
            _ => unreachable!("the content was just made of registers"),
        }
    }

    /// Adds the keys of another sketch, as `hll_union` does.
    ///
    /// # Errors
    /// `Argument` if a parameter differs.
    pub fn union(&mut self, other: &PostgresHll) -> Result<()> {
        if self.options != other.options {
            let name = |options: PostgresOptions| {
                let PostgresOptions { log2m, regwidth, expthresh, sparseon } = options;
                format!("hll({log2m}, {regwidth}, {expthresh}, {})", u8::from(sparseon))
            };
            let expected = format!("{}, as in the other sketch", name(self.options));
            return Err(Error::argument("type of a sketch", expected, name(other.options)));
        }
        match (&self.content, &other.content) {
            (_, Content::Empty) => {}
            (Content::Empty, _) => self.content = other.content.clone(),
            (_, Content::Explicit(hashes)) => {
                hashes.iter().for_each(|hash| self.insert_hash(*hash));
            }
            (_, Content::Registers(registers)) => self.spread().union(registers)?,
        }
        Ok(())
    }

    /// Returns the sketch of the same keys that others can be united with.
    pub fn to_hll(&self) -> Hll {
        let mut sketch = Hll::of_family(self.options.family(), self.options.log2m)
            .expect("the parameters were checked");
        match &self.content {
            Content::Empty => {}
            Content::Explicit(hashes) => {
                hashes.iter().for_each(|hash| _ = sketch.insert_bits(*hash as u64));
            }
            Content::Registers(registers) => sketch.clone_from(registers),
        }
        sketch
    }

    /// Returns a sketch with the registers of another one, with `expthresh` −1 and `sparseon`. Since the
    /// hashes are not known, it is empty, sparse or full.
    ///
    /// # Errors
    /// `Argument` if the other one is not of [`Family::Postgres`] with a precision of at most 17.
    pub fn from_hll(sketch: &Hll) -> Result<PostgresHll> {
        let precision = sketch.precision();
        let Family::Postgres { regwidth } = sketch.family() else {
            let expected = "MurmurHash3 of postgresql-hll";
            let what = "hash function of a sketch for postgresql-hll";
            return Err(Error::argument(what, expected, sketch.family()));
        };
        let options = PostgresOptions { log2m: precision, regwidth, ..PostgresOptions::default() };
        let mut image = PostgresHll::new(options)?;
        if !sketch.is_empty() {
            image.content = Content::Registers(sketch.clone());
        }
        Ok(image)
    }

    /// Returns the bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (options, mut out) = (self.options, Vec::new());
        match &self.content {
            Content::Empty => options.encode(EMPTY, &mut out),
            Content::Explicit(hashes) => {
                options.encode(EXPLICIT, &mut out);
                hashes.iter().for_each(|hash| out.extend(hash.to_be_bytes()));
            }
            Content::Registers(registers) => {
                let mut count = 0;
                registers.for_each(|_, _| count += 1);
                let width = u32::from(options.log2m + options.regwidth);
                let is_smaller = count * (width as usize) < options.full_bits();
                let is_sparse = options.sparseon && is_smaller;
                options.encode(if is_sparse { SPARSE } else { FULL }, &mut out);
                match is_sparse {
                    true => put_sparse(registers, options, &mut out),
                    false => put_full(registers, options, &mut out),
                }
            }
        }
        out
    }

    /// Reads a sketch from its bytes.
    ///
    /// # Errors
    /// Damage; another version; a sketch of the type `undefined`; a `log2m` that is not between 4 and 17.
    pub fn from_bytes(bytes: &[u8]) -> Result<PostgresHll> {
        let mut fields = Decoder::new(bytes);
        let (kind, options) = PostgresOptions::decode(&mut fields)?;
        let content = match kind {
            EMPTY => Content::Empty,
            EXPLICIT => Content::Explicit(take_explicit(&mut fields)?),
            SPARSE => Content::Registers(take_sparse(&mut fields, options)?),
            FULL => Content::Registers(take_full(&mut fields, options)?),
            other => return Err(Error::field("type of a sketch", "1 to 4", other)),
        };
        fields.end()?;
        Ok(PostgresHll { options, content })
    }
}

fn put_sparse(registers: &Hll, options: PostgresOptions, out: &mut Vec<u8>) {
    let mut bits = BitWriter { out, used: 0 };
    registers.for_each(|index, value| {
        let word = (index as u32) << options.regwidth | u32::from(value);
        bits.put(word, (options.log2m + options.regwidth).into());
    });
}

fn put_full(registers: &Hll, options: PostgresOptions, out: &mut Vec<u8>) {
    let mut values = vec![0; registers.register_count()];
    registers.for_each(|index, value| values[index] = value);
    let mut bits = BitWriter { out, used: 0 };
    values.iter().for_each(|value| bits.put((*value).into(), options.regwidth.into()));
}

fn take_explicit(fields: &mut Decoder<'_>) -> Result<Vec<i64>> {
    let mut hashes: Vec<i64> = Vec::new();
    while !fields.rest().is_empty() {
        let hash = i64::from_be_bytes(fields.array()?);
        if let Some(last) = hashes.last().filter(|last| **last >= hash) {
            let expected = format!("more than the one before it, {last}");
            return Err(Error::field("hash in a sketch", expected, hash));
        }
        hashes.push(hash);
    }
    Ok(hashes)
}

fn take_sparse(fields: &mut Decoder<'_>, options: PostgresOptions) -> Result<Hll> {
    let mut sketch = Hll::of_family(options.family(), options.log2m)?;
    let width = u32::from(options.log2m + options.regwidth);
    let bytes = fields.bytes(fields.rest().len() as u64)?;
    let bits = bytes.len() * 8;
    let unused = bits % width as usize;
    if unused >= 8 {
        let expected = format!("a multiple of {width}, and fewer than 8 more");
        return Err(Error::field("bits of the registers of a sketch", expected, bits));
    }
    let mut reader = BitReader { bytes, at: 0 };
    let mut next = 0;
    for _ in 0..bits / width as usize {
        let word = reader.take(width);
        let (index, value) = (word >> options.regwidth, word & ((1 << options.regwidth) - 1));
        // No register is stored with 0: words of fewer than 8 bits may be those that fill the last byte.
        if value == 0 {
            continue;
        }
        let last = (1 << options.log2m) - 1;
        within("register of a sketch", next..=last, index.into())?;
        take(&mut sketch, index as usize, value as u8)?;
        next = u64::from(index) + 1;
    }
    Ok(sketch)
}

fn take_full(fields: &mut Decoder<'_>, options: PostgresOptions) -> Result<Hll> {
    let mut sketch = Hll::of_family(options.family(), options.log2m)?;
    let bytes = fields.bytes(options.full_bits().div_ceil(8) as u64)?;
    let mut reader = BitReader { bytes, at: 0 };
    for index in 0..sketch.register_count() {
        let value = reader.take(options.regwidth.into()) as u8;
        if value > 0 {
            take(&mut sketch, index, value)?;
        }
    }
    Ok(sketch)
}

/// Appends numbers of some bits, the highest bits first.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Number of bits of the last byte that are used; 0 if there is none, or if all are.
    used: u32,
}

impl BitWriter<'_> {
    fn put(&mut self, value: u32, width: u32) {
        for bit in (0..width).rev().map(|at| (value >> at & 1) as u8) {
            if self.used == 0 {
                self.out.push(0);
            }
            if let Some(last) = self.out.last_mut() {
                *last |= bit << (7 - self.used);
            }
            self.used = (self.used + 1) % 8;
        }
    }
}

/// Takes numbers of some bits. There are zeros after the last byte.
struct BitReader<'a> {
    bytes: &'a [u8],
    /// Number of bits that were taken.
    at: usize,
}

impl BitReader<'_> {
    fn take(&mut self, width: u32) -> u32 {
        let mut value = 0;
        for _ in 0..width {
            let byte = self.bytes.get(self.at / 8).copied().unwrap_or(0);
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        value
    }
}

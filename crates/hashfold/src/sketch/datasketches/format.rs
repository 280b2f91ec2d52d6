//! The bytes of HLL sketches of Apache DataSketches. Integers and floating-point numbers are
//! little-endian. `docs/formats/sketch.md` has the same tables.
//!
//! | offset | size | field     |                                                                  |
//! |-------:|-----:|-----------|------------------------------------------------------------------|
//! |      0 |    1 | preamble  | 2 list, 3 set, 10 registers                                      |
//! |      1 |    1 | version   | 1                                                                |
//! |      2 |    1 | family    | 7                                                                |
//! |      3 |    1 | precision | 4 to 21                                                          |
//! |      4 |    1 | log size  | binary logarithm of the size of the table of coupons (3 of a list) or exceptions |
//! |      5 |    1 | flags     | 4 empty, 8 compact, 16 out of order, 32 full size                |
//! |      6 |    1 | small     | list: number of coupons; registers: smallest value               |
//! |      7 |    1 | mode      | 0 list, 1 set, 2 registers; plus 0 for 4 bits, 4 for 6, 8 for 8  |
//!
//! A list has its coupons next, 4 bytes each; a set their number in 4 bytes, and the coupons. A compact
//! image has these only, others have the whole table. Registers:
//!
//! | offset | size | field           |                                                      |
//! |-------:|-----:|-----------------|------------------------------------------------------|
//! |      8 |    8 | HIP             | the estimate that depends on the order of the keys   |
//! |     16 |   16 | sums            | of 2^−value, of the values below 32 and the others   |
//! |     32 |    4 | smallest count  | number of registers that have the smallest value     |
//! |     36 |    4 | exception count |                                                      |
//! |     40 |    … | registers       | the lowest bits of each byte first; a byte more with 6 bits |
//! |        |    … | exceptions      | with 4 bits: coupons whose address is a register, those whose 4 bits are 15 |

use super::{
    Content, DataSketchesHll, LIST_SIZE, SET_PRECISION_MIN,
    coupon::{PRECISION_MAX_DATASKETCHES, PRECISION_MIN_DATASKETCHES, Target, address, value},
    coupons::{self, CouponSet, is_too_full},
    exceptions::{self, Exceptions},
    registers::{self, EXCEPTION_MIN, Registers},
};
use crate::{
    codec::{Decoder, within},
    error::{Error, Result},
    sketch::packed,
};

const VERSION: u8 = 1;
const FAMILY: u8 = 7;
const LIST: u8 = 0;
const SET: u8 = 1;
const REGISTERS: u8 = 2;
/// The number of 4-byte words before the coupons or registers, for each mode.
const PREAMBLES: [u8; 3] = [2, 3, 10];
const LIST_LOG_SIZE: u8 = 3;
const _: () = assert!(1 << LIST_LOG_SIZE == LIST_SIZE);
const IS_EMPTY: u8 = 4;
const IS_COMPACT: u8 = 8;
const IS_OUT_OF_ORDER: u8 = 16;
const IS_FULL_SIZE: u8 = 32;
const COUPON_SIZE: usize = size_of::<u32>();
/// The largest relative error of a sum in an image: the library rounds some.
const SUM_ERROR_MAX: f64 = 1e-6;

impl DataSketchesHll {
    /// Returns the bytes of `serialize_compact`.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode(IS_COMPACT)
    }

    /// Returns the bytes of `serialize_updatable`: tables with their free places.
    pub fn to_updatable_bytes(&self) -> Vec<u8> {
        self.encode(0)
    }

    fn encode(&self, compact: u8) -> Vec<u8> {
        let (mode, log_size, small) = match &self.content {
            Content::List(coupons) => (LIST, LIST_LOG_SIZE, coupons.len() as u8),
            Content::Set(set) => (SET, set.places().len().trailing_zeros() as u8, 0),
            Content::Registers(registers) => {
                let log_size = registers.exceptions.as_ref().map_or(0, Exceptions::log_size);
                (REGISTERS, log_size, registers.smallest)
            }
        };
        let (is_empty, is_out_of_order) = match &self.content {
            Content::List(coupons) => (coupons.is_empty(), false),
            Content::Set(_) => (false, false),
            Content::Registers(registers) => {
                let size = 1 << self.precision;
                (
                    registers.smallest == 0 && registers.smallest_count == size,
                    registers.is_out_of_order,
                )
            }
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(is_empty, IS_EMPTY)
            | compact
            | flag(is_out_of_order, IS_OUT_OF_ORDER)
            | flag(self.is_full_size, IS_FULL_SIZE);
        let mode_byte = mode | (self.target as u8) << 2;
        let preamble = PREAMBLES[usize::from(mode)];
        let mut out =
            vec![preamble, VERSION, FAMILY, self.precision, log_size, flags, small, mode_byte];
        let is_compact = compact != 0;
        match &self.content {
            Content::List(coupons) => {
                let free = if is_compact { 0 } else { LIST_SIZE - coupons.len() };
                put_coupons(coupons.iter().copied().chain(std::iter::repeat_n(0, free)), &mut out);
            }
            Content::Set(set) => {
                out.extend((set.len() as u32).to_le_bytes());
                put_table(set.places(), is_compact, &mut out);
            }
            Content::Registers(registers) => {
                put_registers(registers, &mut out);
                put_exceptions(registers, self.precision, is_compact, &mut out);
            }
        }
        out
    }

    /// Reads a sketch from its bytes, compact or not.
    ///
    /// # Errors
    /// Damage; another version; sums or counts that are not those of the registers.
    pub fn from_bytes(bytes: &[u8]) -> Result<DataSketchesHll> {
        let mut fields = Decoder::new(bytes);
        let head = Head::decode(&mut fields)?;
        let content = match head.mode {
            LIST => Content::List(take_list(&mut fields, &head)?),
            SET => Content::Set(take_set(&mut fields, &head)?),
            _ => Content::Registers(take_registers(&mut fields, &head)?),
        };
        fields.end()?;
        let is_full_size = head.flags & IS_FULL_SIZE != 0;
        Ok(DataSketchesHll {
            precision: head.precision,
            target: head.target,
            is_full_size,
            content,
        })
    }
}

/// The first 8 bytes.
struct Head {
    precision: u8,
    log_size: u8,
    flags: u8,
    small: u8,
    mode: u8,
    target: Target,
}

impl Head {
    fn decode(fields: &mut Decoder<'_>) -> Result<Head> {
        let [preamble, version, family, precision, log_size, flags, small, mode] =
            fields.array()?;
        let version_of = "version of a sketch of DataSketches";
        within(version_of, VERSION.into()..=VERSION.into(), version.into())?;
        within("family of a sketch of DataSketches", FAMILY.into()..=FAMILY.into(), family.into())?;
        let precisions = PRECISION_MIN_DATASKETCHES.into()..=PRECISION_MAX_DATASKETCHES.into();
        within("precision of a sketch", precisions, precision.into())?;
        let target = match mode >> 2 & 3 {
            0 => Target::Hll4,
            1 => Target::Hll6,
            2 => Target::Hll8,
            other => return Err(Error::field("register type of a sketch", "0 to 2", other)),
        };
        let mode =
            within("mode of a sketch", LIST.into()..=REGISTERS.into(), (mode & 3).into())? as u8;
        let words = u64::from(PREAMBLES[usize::from(mode)]);
        within("words before the content of a sketch", words..=words, preamble.into())?;
        Ok(Head { precision, log_size, flags, small, mode, target })
    }

    fn is_compact(&self) -> bool {
        self.flags & IS_COMPACT != 0
    }
}

fn put_coupons(coupons: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
    coupons.for_each(|coupon| out.extend(coupon.to_le_bytes()));
}

/// Appends a table: all places, or those that are not free.
fn put_table(places: &[u32], is_compact: bool, out: &mut Vec<u8>) {
    put_coupons(places.iter().copied().filter(|coupon| *coupon != 0 || !is_compact), out);
}

fn put_registers(registers: &Registers, out: &mut Vec<u8>) {
    for number in [registers.hip, registers.sums[0], registers.sums[1]] {
        out.extend(number.to_le_bytes());
    }
    out.extend(registers.smallest_count.to_le_bytes());
    let exceptions = registers.exceptions.as_ref().map_or(0, Exceptions::len);
    out.extend((exceptions as u32).to_le_bytes());
    match registers.target {
        Target::Hll4 => {
            let low = |value: u8| (value - registers.smallest).min(EXCEPTION_MIN);
            let (pairs, _) = registers.values.as_chunks::<2>();
            out.extend(pairs.iter().map(|[even, odd]| low(*even) | low(*odd) << 4));
        }
        Target::Hll6 => {
            let start = out.len();
            out.resize(start + size_of_registers(registers.values.len(), Target::Hll6), 0);
            let values = registers.values.iter().enumerate();
            values.for_each(|(index, value)| packed::set(&mut out[start..], index, *value));
        }
        Target::Hll8 => out.extend(&registers.values),
    }
}

fn put_exceptions(registers: &Registers, precision: u8, is_compact: bool, out: &mut Vec<u8>) {
    match &registers.exceptions {
        Some(exceptions) => put_table(exceptions.places(), is_compact, out),
        // The library keeps room for a table.
        None if registers.target == Target::Hll4 && !is_compact => {
            out.resize(out.len() + (COUPON_SIZE << exceptions::log_size_min(precision)), 0);
        }
        None => {}
    }
}

/// Returns the size of registers, in bytes.
fn size_of_registers(count: usize, target: Target) -> usize {
    match target {
        Target::Hll4 => count / 2,
        Target::Hll6 => packed::size(count) + 1,
        Target::Hll8 => count,
    }
}

/// Takes a number of coupons. Those that are 0 are free places of tables.
fn take_coupons(fields: &mut Decoder<'_>, count: u64) -> Result<Vec<u32>> {
    let (words, _) = fields.bytes(count * COUPON_SIZE as u64)?.as_chunks::<COUPON_SIZE>();
    let coupons = words.iter().map(|word| u32::from_le_bytes(*word));
    coupons.map(|coupon| if coupon == 0 { Ok(0) } else { check_value(coupon) }).collect()
}

fn check_value(coupon: u32) -> Result<u32> {
    within("value of a coupon", 1..=63, value(coupon).into())?;
    Ok(coupon)
}

fn take_list(fields: &mut Decoder<'_>, head: &Head) -> Result<Vec<u32>> {
    let count = usize::from(head.small);
    within("coupons in a list", 0..=LIST_SIZE as u64 - 1, head.small.into())?;
    let is_empty = head.flags & IS_EMPTY != 0;
    if is_empty != (count == 0) {
        return Err(Error::field("flag for an empty sketch", (count == 0).to_string(), is_empty));
    }
    let mut coupons =
        take_coupons(fields, if head.is_compact() { count } else { LIST_SIZE } as u64)?;
    let known = coupons.iter().position(|coupon| *coupon == 0).unwrap_or(coupons.len());
    if known != count || coupons[known..].iter().any(|coupon| *coupon != 0) {
        return Err(Error::field("coupons in a list", count.to_string(), known));
    }
    coupons.truncate(count);
    match (1..count).find(|i| coupons[..*i].contains(&coupons[*i])) {
        Some(i) => Err(Error::field("coupon in a list", "one that is not there yet", coupons[i])),
        None => Ok(coupons),
    }
}

fn take_set(fields: &mut Decoder<'_>, head: &Head) -> Result<CouponSet> {
    let precisions = SET_PRECISION_MIN.into()..=PRECISION_MAX_DATASKETCHES.into();
    within("precision of a set of coupons", precisions, head.precision.into())?;
    let count = u64::from(fields.u32()?);
    let log_size_max = coupons::log_size_max(head.precision);
    within("coupons in a set", 0..=(3 << log_size_max) / 4, count)?;
    let set = if head.is_compact() {
        let mut set = CouponSet::new();
        for coupon in take_coupons(fields, count)? {
            if coupon == 0 || !set.insert_near(coupon) || !set.make_room(head.precision) {
                let expected = "one that is not 0 and not there yet";
                return Err(Error::field("coupon in a set", expected, coupon));
            }
        }
        set
    } else {
        let log_sizes = coupons::LOG_SIZE_MIN.into()..=log_size_max.into();
        within("binary logarithm of the size of a set", log_sizes, head.log_size.into())?;
        CouponSet::of_places(take_coupons(fields, 1 << head.log_size)?)
    };
    if let Some(lost) = set.lost() {
        return Err(Error::field("coupon in a set", "one in its place", lost));
    }
    if set.len() as u64 != count || is_too_full(set.len(), set.places().len()) {
        return Err(Error::field("coupons in a set", count.to_string(), set.len()));
    }
    Ok(set)
}

fn take_registers(fields: &mut Decoder<'_>, head: &Head) -> Result<Registers> {
    let mut number = || -> Result<f64> { Ok(f64::from_bits(fields.u64()?)) };
    let (hip, sums) = (number()?, [number()?, number()?]);
    if !(hip.is_finite() && hip >= 0.0) {
        return Err(Error::field("estimate HIP of a sketch", "a finite number", hip));
    }
    let (smallest_count, exception_count) = (fields.u32()?, fields.u32()?);
    let size = size_of_registers(1 << head.precision, head.target);
    let bytes = fields.bytes(size as u64)?;
    let mut registers = Registers::new(head.precision, head.target);
    registers.is_out_of_order = head.flags & IS_OUT_OF_ORDER != 0;
    registers.hip = if registers.is_out_of_order { 0.0 } else { hip };
    (registers.sums, registers.smallest) = (sums, head.small);
    registers.smallest_count = smallest_count;
    for (index, register) in registers.values.iter_mut().enumerate() {
        let value = match head.target {
            Target::Hll4 => (bytes[index / 2] >> (index % 2 * 4) & 15).saturating_add(head.small),
            Target::Hll6 => packed::get(bytes, index),
            Target::Hll8 => bytes[index],
        };
        *register = within("value of a register", 0..=63, value.into())? as u8;
    }
    if head.target == Target::Hll4 {
        take_exceptions(fields, head, exception_count, &mut registers)?;
    } else {
        within("number of exceptions of a sketch", 0..=0, exception_count.into())?;
    }
    check(&mut registers, head)?;
    Ok(registers)
}

/// Takes the exceptions, and gives their registers their values.
fn take_exceptions(
    fields: &mut Decoder<'_>,
    head: &Head,
    count: u32,
    registers: &mut Registers,
) -> Result<()> {
    let log_size_min = exceptions::log_size_min(head.precision);
    let size = registers.values.len() as u64;
    let count = within("number of exceptions of a sketch", 0..=size, count.into())?;
    let (places, log_size) = match (head.is_compact(), count) {
        (true, _) => {
            let mut log_size = count.max(1).next_power_of_two().trailing_zeros() as u8;
            log_size += u8::from(is_too_full(count as usize, 1 << log_size));
            (take_coupons(fields, count)?, log_size.max(log_size_min))
        }
        (false, 0) => (take_coupons(fields, 1 << log_size_min)?, log_size_min),
        (false, _) => {
            // A table twice as large as needed, and no larger.
            let log_sizes = 0..=u64::from(head.precision) + 1;
            within("binary logarithm of the size of exceptions", log_sizes, head.log_size.into())?;
            (take_coupons(fields, 1 << head.log_size)?, head.log_size)
        }
    };
    let mut exceptions = Exceptions::with_log_size(log_size);
    let smallest = registers.smallest;
    for exception in places.into_iter().filter(|exception| *exception != 0) {
        let index = within("register of an exception", 0..=size - 1, address(exception).into())?;
        let values = u64::from(smallest) + u64::from(EXCEPTION_MIN)..=63;
        within("value of an exception", values, value(exception).into())?;
        exceptions.set(index as usize, value(exception));
    }
    let is_marked = |value: &u8| *value - smallest == EXCEPTION_MIN;
    let marked = registers.values.iter().filter(|value| is_marked(value)).count();
    let all = exceptions.iter().all(|known| is_marked(&registers.values[address(known) as usize]));
    if exceptions.len() as u64 != count || marked as u64 != count || !all {
        let expected = format!("{count}, each with a register of {EXCEPTION_MIN}");
        return Err(Error::field("exceptions of a sketch", expected, exceptions.len()));
    }
    for exception in exceptions.iter() {
        registers.values[address(exception) as usize] = value(exception);
    }
    registers.exceptions = (count > 0).then_some(exceptions);
    Ok(())
}

/// Compares sums and counts with the registers. Where an image may be one whose sums the Java library
/// would compute later, they are computed.
fn check(registers: &mut Registers, head: &Head) -> Result<()> {
    let values = &registers.values;
    let least = values.iter().min().copied().unwrap_or(0);
    let expected = registers::count(values, registers.smallest);
    let is_counted = match (registers.target, registers.smallest) {
        (Target::Hll4, smallest) => smallest == least && registers.smallest_count == expected,
        (_, 0) => registers.smallest_count == expected,
        // The union of the library counts once, and not again when keys are inserted.
        (_, smallest) => smallest <= least,
    };
    let sums = registers::sums_of(values);
    let [expected_sum, got_sum] = [sums, registers.sums].map(|sums| sums[0] + sums[1]);
    // Not-a-number is not below it.
    let is_summed = (expected_sum - got_sum).abs() < SUM_ERROR_MAX * expected_sum;
    registers.sums = sums;
    if is_counted && is_summed {
        return Ok(());
    }
    if head.flags & IS_FULL_SIZE != 0 && registers.target != Target::Hll4 {
        registers.smallest = 0;
        registers.smallest_count = registers::count(&registers.values, 0);
        return Ok(());
    }
    if is_summed {
        let expected = format!("{expected} with the smallest value, {least}");
        let got = format!("{} with {}", registers.smallest_count, registers.smallest);
        return Err(Error::field("registers of a sketch", expected, got));
    }
    Err(Error::field("sum of 2^-value of the registers", expected_sum.to_string(), got_sum))
}

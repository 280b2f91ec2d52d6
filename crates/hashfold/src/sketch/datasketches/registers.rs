//! Registers, with what the library keeps beside them for its estimates.

use super::{
    coupon::{Target, address, coupon, value},
    exceptions::{self, Exceptions},
};

/// Values from this one on add to the second sum.
const SECOND_SUM_VALUE_MIN: u8 = 32;
/// A value of a register of 4 bits is an exception from this one on, above the smallest value.
pub(super) const EXCEPTION_MIN: u8 = 15;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Registers {
    /// The values.
    pub(super) values: Vec<u8>,
    pub(super) target: Target,
    /// The estimate HIP (historic inverse probability), 0 if the order of the keys is not known.
    pub(super) hip: f64,
    /// Sums of 2^−value: of the values below 32, and of the others.
    pub(super) sums: [f64; 2],
    /// With 4 bits, the smallest value of a register; 0 otherwise, or that value in some unions.
    pub(super) smallest: u8,
    /// Number of registers that have the smallest value.
    pub(super) smallest_count: u32,
    /// Whether the order of the keys is not known.
    pub(super) is_out_of_order: bool,
    /// With 4 bits, the values that are exceptions, if there was one.
    pub(super) exceptions: Option<Exceptions>,
}

fn weight(value: u8) -> f64 {
    0.5_f64.powi(value.into())
}

/// Returns the sums of 2^−value of registers. They are exact, since all terms are multiples of 2^−31 and
/// 2^−63 and there are at most 2^21.
pub(super) fn sums_of(values: &[u8]) -> [f64; 2] {
    let mut sums = [0.0; 2];
    values.iter().for_each(|value| sums[sum_of(*value)] += weight(*value));
    sums
}

fn sum_of(value: u8) -> usize {
    usize::from(value >= SECOND_SUM_VALUE_MIN)
}

/// Returns the number of registers that have a value.
pub(super) fn count(values: &[u8], value: u8) -> u32 {
    values.iter().filter(|known| **known == value).count() as u32
}

impl Registers {
    pub(super) fn new(precision: u8, target: Target) -> Registers {
        let size = 1_u32 << precision;
        Registers {
            values: vec![0; size as usize],
            target,
            hip: 0.0,
            sums: [size.into(), 0.0],
            smallest: 0,
            smallest_count: size,
            is_out_of_order: false,
            exceptions: None,
        }
    }

    fn precision(&self) -> u8 {
        self.values.len().trailing_zeros() as u8
    }

    /// Returns the registers that are not 0, ascending, as coupons whose address is the register.
    pub(super) fn coupons(&self) -> impl Iterator<Item = u32> {
        let set = self.values.iter().enumerate().filter(|(_, value)| **value > 0);
        set.map(|(index, value)| coupon(index, *value))
    }

    /// Inserts a coupon.
    pub(super) fn insert(&mut self, coupon: u32) {
        let index = address(coupon) as usize & (self.values.len() - 1);
        let (old, new) = (self.values[index], value(coupon));
        if new <= old {
            return;
        }
        if !self.is_out_of_order {
            self.hip += self.values.len() as f64 / (self.sums[0] + self.sums[1]);
        }
        self.sums[sum_of(old)] -= weight(old);
        self.sums[sum_of(new)] += weight(new);
        self.values[index] = new;
        if self.target != Target::Hll4 {
            self.smallest_count -= u32::from(old == 0 && self.smallest_count > 0);
            return;
        }
        if new - self.smallest >= EXCEPTION_MIN {
            self.exceptions().set(index, new);
        }
        if old == self.smallest {
            self.smallest_count -= 1;
            while self.smallest_count == 0 {
                self.raise_smallest();
            }
        }
    }

    fn exceptions(&mut self) -> &mut Exceptions {
        let log_size = exceptions::log_size_min(self.precision());
        self.exceptions.get_or_insert_with(|| Exceptions::with_log_size(log_size))
    }

    /// Raises the smallest value, when no register has it any more.
    fn raise_smallest(&mut self) {
        self.smallest += 1;
        self.smallest_count = count(&self.values, self.smallest);
        let known = self.exceptions.take();
        let known = known.iter().flat_map(Exceptions::iter);
        for exception in known.filter(|known| value(*known) - self.smallest >= EXCEPTION_MIN) {
            let log_size = exceptions::log_size_min(self.precision());
            let exceptions =
                self.exceptions.get_or_insert_with(|| Exceptions::with_log_size(log_size));
            exceptions.set(address(exception) as usize, value(exception));
        }
    }

    /// Returns the registers with a lower precision or the same one, and another target.
    pub(super) fn rebuilt(&self, precision: u8, target: Target) -> Registers {
        let mut registers = Registers::new(precision, target);
        self.coupons().for_each(|coupon| registers.insert(coupon));
        registers.hip = self.hip;
        registers.is_out_of_order = self.is_out_of_order;
        registers
    }

    /// Adds registers of the same precision. Afterwards, the order of the keys is not known.
    pub(super) fn unite(&mut self, others: &Registers) {
        others.coupons().for_each(|coupon| self.insert(coupon));
        self.forget_order();
    }

    /// Marks the order of the keys as not known.
    pub(super) fn forget_order(&mut self) {
        (self.is_out_of_order, self.hip) = (true, 0.0);
    }
}

//! The values of registers that are too large for 4 bits, in a hash table in the order of the library.

use super::{
    coupon::{PRECISION_MIN_DATASKETCHES, address, coupon},
    coupons::is_too_full,
};

/// For each precision from 4 to 21, the binary logarithm of the size of a new table.
const LOG_SIZES: [u8; 18] = [2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12, 13];
const FREE: u32 = 0;

/// Returns the binary logarithm of the size of a new table of this precision.
pub(super) fn log_size_min(precision: u8) -> u8 {
    LOG_SIZES[usize::from(precision - PRECISION_MIN_DATASKETCHES)]
}

/// An open hash table of registers and their values.
#[derive(Clone, Debug)]
pub(super) struct Exceptions {
    places: Vec<u32>,
    count: usize,
}

/// Tables are equal if each finds what the other has; their places depend on the order of the keys.
impl PartialEq for Exceptions {
    fn eq(&self, other: &Exceptions) -> bool {
        let is_there = |known: u32| other.places[other.find(address(known) as usize)] == known;
        self.count == other.count && self.iter().all(is_there)
    }
}

impl Exceptions {
    /// Makes an empty table with 2^`log_size` places.
    pub(super) fn with_log_size(log_size: u8) -> Exceptions {
        Exceptions { places: vec![FREE; 1 << log_size], count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn log_size(&self) -> u8 {
        self.places.len().trailing_zeros() as u8
    }

    /// Returns the places, with 0 for those that are free.
    pub(super) fn places(&self) -> &[u32] {
        &self.places
    }

    /// Returns the exceptions in the order of their places: coupons whose address is the register.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.places.iter().copied().filter(|exception| *exception != FREE)
    }

    /// Sets the value of a register.
    pub(super) fn set(&mut self, register: usize, value: u8) {
        let at = self.find(register);
        if self.places[at] == FREE {
            self.count += 1;
        }
        self.places[at] = coupon(register, value);
        if is_too_full(self.count, self.places.len()) {
            let mut larger = Exceptions::with_log_size(self.log_size() + 1);
            self.iter()
                .for_each(|known| larger.set(address(known) as usize, super::coupon::value(known)));
            *self = larger;
        }
    }

    /// Returns the place of a register, or where it would be. A place is free: a quarter of them is.
    fn find(&self, register: usize) -> usize {
        let mask = self.places.len() - 1;
        let stride = register >> self.log_size() | 1;
        let mut at = register & mask;
        while self.places[at] != FREE && address(self.places[at]) as usize != register {
            at = (at + stride) & mask;
        }
        at
    }
}

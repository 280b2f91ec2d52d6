//! The coupon that a key gives sketches of all precisions; the precisions, and the widths of registers.

use crate::sketch::family::ADDRESS_BITS;

/// The smallest precision.
pub const PRECISION_MIN_DATASKETCHES: u8 = 4;
/// The largest precision.
pub const PRECISION_MAX_DATASKETCHES: u8 = 21;

/// How many bits the registers have, once there are registers: the target type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// 4 bits above the smallest value, and a table of larger values: `HLL_4`.
    Hll4,
    /// 6 bits: `HLL_6`.
    Hll6,
    /// 8 bits: `HLL_8`.
    Hll8,
}

/// Returns the 26 bits of a coupon that choose its register.
pub(super) fn address(coupon: u32) -> u32 {
    coupon & ((1 << ADDRESS_BITS) - 1)
}

/// Returns the value of a coupon.
pub(super) fn value(coupon: u32) -> u8 {
    (coupon >> ADDRESS_BITS) as u8
}

/// Returns the coupon of an address and a value.
pub(super) fn coupon(address: usize, value: u8) -> u32 {
    u32::from(value) << ADDRESS_BITS | address as u32
}

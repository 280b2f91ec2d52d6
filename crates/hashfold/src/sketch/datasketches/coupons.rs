//! Coupons in a hash set, in the order of the library, and how many keys they stand for.

use super::coupon::address;

/// The binary logarithm of the size of a new set.
pub(super) const LOG_SIZE_MIN: u8 = 5;
/// A set has at most 2^(precision − 3) places.
const LOG_SIZE_BELOW_PRECISION: u8 = 3;
/// Number of places that are looked at for a coupon of an image, at most: with three quarters taken, a coupon
/// of a key is that far away with a probability of 10^-32. Hostile images would take minutes otherwise.
const PROBES_MAX: usize = 256;
/// The value of a place that is free.
const FREE: u32 = 0;

/// An open hash table of coupons: 2^n places, of which at most three quarters are taken.
#[derive(Clone, Debug)]
pub(super) struct CouponSet {
    places: Vec<u32>,
    count: usize,
}

/// Sets are equal if their coupons are; their places depend on the order of the keys.
impl PartialEq for CouponSet {
    fn eq(&self, other: &CouponSet) -> bool {
        let sorted = |set: &CouponSet| {
            let mut coupons: Vec<u32> = set.iter().collect();
            coupons.sort_unstable();
            coupons
        };
        sorted(self) == sorted(other)
    }
}

/// Whether a table with this number of entries is too full.
pub(super) fn is_too_full(count: usize, size: usize) -> bool {
    4 * count > 3 * size
}

/// Returns the binary logarithm of the size of the largest set of a precision.
pub(super) fn log_size_max(precision: u8) -> u8 {
    precision - LOG_SIZE_BELOW_PRECISION
}

impl CouponSet {
    pub(super) fn new() -> CouponSet {
        CouponSet { places: vec![FREE; 1 << LOG_SIZE_MIN], count: 0 }
    }

    /// Makes a set of the places of an image: a power of 2.
    pub(super) fn of_places(places: Vec<u32>) -> CouponSet {
        debug_assert!(places.len().is_power_of_two());
        let count = places.iter().filter(|coupon| **coupon != FREE).count();
        CouponSet { places, count }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the places, with 0 for those that are free.
    pub(super) fn places(&self) -> &[u32] {
        &self.places
    }

    /// Returns the coupons in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.places.iter().copied().filter(|coupon| *coupon != FREE)
    }

    /// Inserts a coupon, unless it is there or no place is free. Returns whether that changed the set.
    pub(super) fn insert(&mut self, coupon: u32) -> bool {
        self.insert_at(self.place(coupon, self.places.len()), coupon)
    }

    /// Inserts a coupon of an image, as [`CouponSet::insert`] does, if a place near its first one is free.
    pub(super) fn insert_near(&mut self, coupon: u32) -> bool {
        self.insert_at(self.place(coupon, PROBES_MAX), coupon)
    }

    fn insert_at(&mut self, place: Option<usize>, coupon: u32) -> bool {
        match place {
            Some(at) if self.places[at] == FREE => {
                self.places[at] = coupon;
                self.count += 1;
                true
            }
            _ => false,
        }
    }

    /// Returns a coupon that is not at the place where it is looked for, or is far from its first one.
    pub(super) fn lost(&self) -> Option<u32> {
        let coupons = self.places.iter().copied().enumerate().filter(|(_, coupon)| *coupon != FREE);
        let mut lost = coupons.filter(|(at, coupon)| self.place(*coupon, PROBES_MAX) != Some(*at));
        lost.next().map(|(_, coupon)| coupon)
    }

    /// Returns the place that a coupon has, or would have; `None` if it is not there and none is free, among
    /// the first ones for it.
    fn place(&self, coupon: u32, probes_max: usize) -> Option<usize> {
        let (mask, bits) = (self.places.len() - 1, self.places.len().trailing_zeros());
        let stride = (address(coupon) >> bits) as usize | 1;
        let mut places = (0..self.places.len().min(probes_max))
            .map(|i| stride.wrapping_mul(i).wrapping_add(coupon as usize) & mask);
        places.find(|at| [FREE, coupon].contains(&self.places[*at]))
    }

    /// Doubles a set that is too full. Returns whether there is room: a set of the largest size of this
    /// precision does not grow.
    pub(super) fn make_room(&mut self, precision: u8) -> bool {
        if !is_too_full(self.count, self.places.len()) {
            return true;
        }
        let bits = self.places.len().trailing_zeros();
        if bits >= u32::from(log_size_max(precision)) {
            return false;
        }
        let mut larger = CouponSet { places: vec![FREE; 2 << bits], count: 0 };
        self.iter().for_each(|coupon| _ = larger.insert(coupon));
        *self = larger;
        true
    }
}

/// Points of a curve: the number of coupons, and how many keys they stand for, a few more since two keys
/// may have one coupon. The library's numbers, from `CubicInterpolation` of Apache DataSketches, up to
/// more than the largest set has.
const POINTS: [(f64, f64); 8] = [
    (0.0, 0.0),
    (1.0, 1.0),
    (20.0, 20.000_000_943_740_26),
    (400.0, 400.000_396_371_338_4),
    (8_000.0, 8_000.158_929_460_209),
    (160_000.0, 160_063.606_776_375_96),
    (300_000.0, 300_223.707_159_766_35),
    (600_000.0, 600_895.593_385_617),
];

/// Returns the number of keys that coupons stand for, at most 300,000, as the library computes it: by the
/// cubic polynomial through four neighbouring points.
pub(super) fn keys_of(coupons: usize) -> f64 {
    let x = coupons as f64;
    let above = POINTS.iter().position(|point| point.0 > x).unwrap_or(POINTS.len() - 1);
    let points = &POINTS[above.saturating_sub(2).min(POINTS.len() - 4)..][..4];
    let mut y = 0.0;
    for (i, point) in points.iter().enumerate() {
        let others = || points.iter().enumerate().filter(move |(j, _)| *j != i).map(|(_, p)| p.0);
        // The order of all operations counts: the last bits of the result are in images.
        let above = others().map(|other| x - other).reduce(|a, b| a * b).unwrap_or(1.0);
        let below = others().map(|other| point.0 - other).reduce(|a, b| a * b).unwrap_or(1.0);
        y += point.1 * above / below;
    }
    y.max(x)
}

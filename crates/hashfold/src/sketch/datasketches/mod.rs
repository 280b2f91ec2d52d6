//! HLL sketches of Apache DataSketches (serial version 1 of C++, Java and Python), byte for byte.
//!
//! | coupons known                         | kept as                                                  |
//! |---------------------------------------|----------------------------------------------------------|
//! | up to 7                               | a list                                                   |
//! | up to 3/32 of the number of registers | a hash set, if the precision is 8 or more                |
//! | more                                  | registers of 4 bits with exceptions, of 6, or of 8 bits  |
//!
//! A coupon is what a key gives a sketch of any precision: 26 bits of its hash, and a value of 6 bits
//! above them.

mod coupon;
mod coupons;
mod exceptions;
mod format;
mod registers;

pub use self::coupon::{PRECISION_MAX_DATASKETCHES, PRECISION_MIN_DATASKETCHES, Target};
use self::{
    coupon::{coupon, value},
    coupons::CouponSet,
    registers::Registers,
};
use super::{Hll, PRECISION_MAX, family::Family};
use crate::error::{Error, Result};

/// Number of coupons that are too many for a list.
const LIST_SIZE: usize = 8;
/// The smallest precision with hash sets.
const SET_PRECISION_MIN: u8 = 8;

/// An HLL sketch of Apache DataSketches. It changes from a list to a set to registers as the C++ library
/// does, with the same bytes.
///
/// The estimator HIP of the library is continued: the images of sketches that only had keys inserted have the
/// library's estimate. A set whose compact image was read may have its coupons in other places, as in the
/// library.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSketchesHll {
    precision: u8,
    target: Target,
    /// Whether it was made with registers from the start; it changes nothing else.
    is_full_size: bool,
    content: Content,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    /// Coupons, in the order in which they came.
    List(Vec<u32>),
    Set(CouponSet),
    Registers(Registers),
}

impl DataSketchesHll {
    /// Makes an empty sketch.
    ///
    /// # Errors
    /// `Argument` if the precision, `lg_config_k`, is not between [`PRECISION_MIN_DATASKETCHES`] and
    /// [`PRECISION_MAX_DATASKETCHES`].
    pub fn new(precision: u8, target: Target) -> Result<DataSketchesHll> {
        let (min, max) = (PRECISION_MIN_DATASKETCHES, PRECISION_MAX_DATASKETCHES);
        if !(min..=max).contains(&precision) {
            let expected = format!("{min} to {max}");
            return Err(Error::argument("precision of a sketch", expected, precision));
        }
        let content = Content::List(Vec::new());
        Ok(DataSketchesHll { precision, target, is_full_size: false, content })
    }

    /// Returns the precision: `lg_config_k`.
    pub fn precision(&self) -> u8 {
        self.precision
    }

    /// Returns the target type.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Inserts a key: the UTF-8 bytes of a string, or the 8 bytes of a little-endian integer. The empty key
    /// changes nothing.
    pub fn insert(&mut self, key: &[u8]) {
        self.insert_coupon(Family::DataSketches.hash(key) as u32);
    }

    /// Inserts a coupon, as [`Family::hash`] returns it for [`Family::DataSketches`]. One with the value 0
    /// changes nothing.
    pub fn insert_coupon(&mut self, coupon: u32) {
        if value(coupon) == 0 {
            return;
        }
        match &mut self.content {
            Content::List(coupons) if !coupons.contains(&coupon) => {
                coupons.push(coupon);
                if coupons.len() == LIST_SIZE {
                    self.leave_list();
                }
            }
            Content::List(_) => {}
            Content::Set(set) => {
                if set.insert(coupon) && !set.make_room(self.precision) {
                    self.spread();
                }
            }
            Content::Registers(registers) => registers.insert(coupon),
        }
    }

    fn leave_list(&mut self) {
        if self.precision < SET_PRECISION_MIN {
            return self.spread();
        }
        let mut set = CouponSet::new();
        self.coupons().into_iter().for_each(|coupon| _ = set.insert(coupon));
        self.content = Content::Set(set);
    }

    /// Returns the coupons in their order, if they are known.
    fn coupons(&self) -> Vec<u32> {
        match &self.content {
            Content::List(coupons) => coupons.clone(),
            Content::Set(set) => set.iter().collect(),
            Content::Registers(_) => Vec::new(),
        }
    }

    /// Replaces coupons by registers.
    fn spread(&mut self) {
        let coupons = self.coupons();
        let mut registers = Registers::new(self.precision, self.target);
        coupons.iter().for_each(|coupon| registers.insert(*coupon));
        registers.hip = coupons::keys_of(coupons.len());
        self.content = Content::Registers(registers);
    }

    /// Returns a sketch whose target type is another one.
    pub fn with_target(&self, target: Target) -> DataSketchesHll {
        let content = match &self.content {
            Content::Registers(registers) if target != self.target => {
                Content::Registers(registers.rebuilt(self.precision, target))
            }
            content => content.clone(),
        };
        DataSketchesHll { target, content, ..self.clone() }
    }

    /// Adds the keys of another sketch, as the library's `hll_union` does; the target type stays. The
    /// result has the lower precision, if both have registers, and that of the only one with registers, if
    /// it is lower.
    pub fn union(&mut self, other: &DataSketchesHll) {
        let Content::Registers(others) = &other.content else {
            return other.coupons().into_iter().for_each(|coupon| self.insert_coupon(coupon));
        };
        let precision = self.precision.min(other.precision);
        let others = others.rebuilt(precision, self.target);
        match &self.content {
            Content::Registers(registers) => {
                let mut union = registers.rebuilt(precision, self.target);
                union.unite(&others);
                self.content = Content::Registers(union);
            }
            _ => {
                let mut union = others;
                self.coupons().into_iter().for_each(|coupon| union.insert(coupon));
                self.content = Content::Registers(union);
            }
        }
        self.precision = precision;
    }

    /// Returns the sketch of the same keys that others can be united with. Its precision is that of this
    /// one, but at most [`PRECISION_MAX`].
    pub fn to_hll(&self) -> Hll {
        let precision = self.precision.min(PRECISION_MAX);
        let mut sketch = Hll::of_family(Family::DataSketches, precision)
            .expect("the precision is in the range of both");
        let mut insert = |coupon: u32| _ = sketch.insert_bits(coupon.into());
        match &self.content {
            Content::Registers(registers) => registers.coupons().for_each(insert),
            _ => self.coupons().into_iter().for_each(&mut insert),
        }
        sketch
    }

    /// Returns a sketch with the registers of another one. If it is not empty, it has registers, since
    /// the coupons are not known, and is marked as out of order, since the order of the keys is not
    /// known either: the library then estimates from the registers instead of by HIP.
    ///
    /// # Errors
    /// `Argument` if the other one is not of [`Family::DataSketches`].
    pub fn from_hll(sketch: &Hll, target: Target) -> Result<DataSketchesHll> {
        if sketch.family() != Family::DataSketches {
            let what = "hash function of a sketch for DataSketches";
            let expected = Family::DataSketches.to_string();
            return Err(Error::argument(what, expected, sketch.family()));
        }
        let mut image = DataSketchesHll::new(sketch.precision(), target)?;
        if !sketch.is_empty() {
            let mut registers = Registers::new(sketch.precision(), target);
            sketch.for_each(|index, value| registers.insert(coupon(index, value)));
            registers.forget_order();
            image.content = Content::Registers(registers);
        }
        Ok(image)
    }
}

//! The crate datasketches of Apache: HLL sketches and theta sketches.

use super::{
    PRECISION,
    local::{Item, Sketch},
};
use crate::Result;
use datasketches::{
    hll::{Coupon, HllSketch, HllType, HllUnion},
    theta::{
        CompactThetaSketch, ThetaIntersection, ThetaSketch, ThetaSketchBuilder, ThetaUnionBuilder,
    },
};

/// Returns the union of two HLL sketches.
fn unite(a: &HllSketch, b: &HllSketch, kind: HllType) -> Result<HllSketch> {
    let mut union = HllUnion::new(PRECISION)?;
    union.update(a);
    union.update(b);
    Ok(union.to_sketch(kind))
}

impl Item for Coupon {
    fn of(word: u64) -> Coupon {
        Coupon::from_value(word)
    }
}

/// Gets hashes: coupons, which the crate makes from keys.
pub(super) struct OfCoupons(HllSketch);

impl Sketch for OfCoupons {
    const NAME: &'static str = "datasketches, HLL_8";
    const NOTE: &'static str = "0.6.0, update_with_coupon; estimates by the order of inserts (HIP), \
        which unions lose";
    type Item = Coupon;

    fn empty() -> Result<OfCoupons> {
        Ok(OfCoupons(HllSketch::new(PRECISION, HllType::Hll8)?))
    }

    fn insert(&mut self, coupons: &[Coupon]) {
        coupons.iter().for_each(|coupon| self.0.update_with_coupon(*coupon));
    }

    fn estimate(&mut self) -> f64 {
        self.0.estimate()
    }

    fn unite(&mut self, other: &OfCoupons) -> Result<()> {
        self.0 = unite(&self.0, &other.0, HllType::Hll8)?;
        Ok(())
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.0.serialize().len())
    }
}

/// Gets keys; 8 bits a register, or 4 and a table of those that are larger.
pub(super) struct Hll<const BITS: u32>(HllSketch);

impl<const BITS: u32> Hll<BITS> {
    const KIND: HllType = if BITS == 8 { HllType::Hll8 } else { HllType::Hll4 };
}

impl<const BITS: u32> Sketch for Hll<BITS> {
    const NAME: &'static str = match BITS {
        8 => "datasketches (Rust), HLL_8",
        _ => "datasketches (Rust), HLL_4",
    };
    const NOTE: &'static str = "0.6.0, update, MurmurHash3";
    type Item = u64;

    fn empty() -> Result<Self> {
        Ok(Hll(HllSketch::new(PRECISION, Self::KIND)?))
    }

    fn insert(&mut self, keys: &[u64]) {
        keys.iter().for_each(|key| self.0.update(*key));
    }

    fn estimate(&mut self) -> f64 {
        self.0.estimate()
    }

    fn unite(&mut self, other: &Self) -> Result<()> {
        self.0 = unite(&self.0, &other.0, Self::KIND)?;
        Ok(())
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.0.serialize().len())
    }
}

/// The binary logarithm of the number of hashes of a theta sketch: 8 bytes each, as many bytes as there are
/// registers.
const THETA_BITS: u8 = PRECISION - 3;

/// Gets keys, and keeps the smallest hashes, which have intersections.
pub(super) struct Theta {
    sketch: ThetaSketch,
    /// The sketch of a union, which replaces the other one.
    union: Option<CompactThetaSketch>,
}

impl Sketch for Theta {
    const NAME: &'static str = "datasketches (Rust), theta";
    const NOTE: &'static str = "0.6.0, update, MurmurHash3; 2048 to 4096 hashes of 8 bytes, which have \
        intersections; bytes compressed";
    type Item = u64;

    fn empty() -> Result<Theta> {
        Ok(Theta { sketch: ThetaSketchBuilder::default().lg_k(THETA_BITS).build()?, union: None })
    }

    fn insert(&mut self, keys: &[u64]) {
        keys.iter().for_each(|key| self.sketch.update(*key));
    }

    fn estimate(&mut self) -> f64 {
        self.union.as_ref().map_or_else(|| self.sketch.estimate(), CompactThetaSketch::estimate)
    }

    fn unite(&mut self, other: &Theta) -> Result<()> {
        let mut union = ThetaUnionBuilder::default().lg_k(THETA_BITS).build()?;
        union.update(&self.sketch)?;
        union.update(&other.sketch)?;
        self.union = Some(union.to_sketch(true));
        Ok(())
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.sketch.compact(true).serialize_compressed().len())
    }

    fn intersection(self, other: Theta) -> Result<f64> {
        let mut both = ThetaIntersection::default();
        both.update(&self.sketch)?;
        both.update(&other.sketch)?;
        let both = both.to_sketch(false).ok_or("a theta intersection has no result")?;
        Ok(both.estimate())
    }
}

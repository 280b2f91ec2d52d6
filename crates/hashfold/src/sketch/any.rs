//! A sketch of any kind: its bytes tell the kind, and sketches of one kind are united.

use super::{BottomK, Family, Ghll, Hll, bottom_k, format, ghll};
use crate::{
    error::{Error, Result},
    key::KeyHash,
};

/// A sketch of any kind, for what is stored and for what users name.
///
/// Only sketches of one kind, and of one [`Family`], can be united or compared.
///
/// ```
/// use hashfold::{Seed, sketch::{AnySketch, BottomK, Hll}};
/// let mut hll = Hll::new(12)?;
/// hll.insert(b"anna");
/// assert!(AnySketch::recognises(&hll.to_bytes()) && !AnySketch::recognises(b"HYLL"));
/// let mut all = AnySketch::from_bytes(&hll.to_bytes())?;
/// all.union(&AnySketch::Hll(hll))?;
/// assert_eq!((all.kind(), all.precision()), ("HLL", Some(12)));
/// assert!(all.union(&AnySketch::BottomK(BottomK::new(16, Seed(0))?)).is_err());
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum AnySketch {
    /// Registers of 6 bits, of any family.
    Hll(Hll),
    /// Registers of 7 to 16 bits.
    Ghll(Ghll),
    /// The smallest hashes.
    BottomK(BottomK),
}

impl AnySketch {
    /// Whether bytes begin as those of a sketch in the format of this library do.
    pub fn recognises(bytes: &[u8]) -> bool {
        let magics = [format::MAGIC, ghll::MAGIC, bottom_k::MAGIC];
        bytes.first_chunk::<4>().is_some_and(|first| magics.contains(first))
    }

    /// Reads a sketch from the bytes of [`Hll::to_bytes`], [`Ghll::to_bytes`] or [`BottomK::to_bytes`].
    ///
    /// # Errors
    /// Damage, another version, a hash function that this library does not know, or the first bytes of no sketch.
    pub fn from_bytes(bytes: &[u8]) -> Result<AnySketch> {
        Ok(match bytes.first_chunk::<4>() {
            Some(&ghll::MAGIC) => AnySketch::Ghll(Ghll::from_bytes(bytes)?),
            Some(&bottom_k::MAGIC) => AnySketch::BottomK(BottomK::from_bytes(bytes)?),
            _ => AnySketch::Hll(Hll::from_bytes(bytes)?),
        })
    }

    /// Returns the sketch as bytes, for files and messages.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            AnySketch::Hll(sketch) => sketch.to_bytes(),
            AnySketch::Ghll(sketch) => sketch.to_bytes(),
            AnySketch::BottomK(sketch) => sketch.to_bytes(),
        }
    }

    /// Returns the name of the kind: `HLL`, `GHLL` or `bottom-k`.
    pub fn kind(&self) -> &'static str {
        match self {
            AnySketch::Hll(_) => "HLL",
            AnySketch::Ghll(_) => "GHLL",
            AnySketch::BottomK(_) => "bottom-k",
        }
    }

    /// Returns the family: the hash function.
    pub fn family(&self) -> Family {
        match self {
            AnySketch::Hll(sketch) => sketch.family(),
            AnySketch::Ghll(sketch) => sketch.family(),
            AnySketch::BottomK(sketch) => Family::Hashfold(sketch.seed()),
        }
    }

    /// Returns the precision of a sketch with registers; `None` for one of the smallest hashes.
    pub fn precision(&self) -> Option<u8> {
        match self {
            AnySketch::Hll(sketch) => Some(sketch.precision()),
            AnySketch::Ghll(sketch) => Some(sketch.precision()),
            AnySketch::BottomK(_) => None,
        }
    }

    /// Returns the relative standard error of the estimate for many keys.
    pub fn standard_error(&self) -> f64 {
        match self {
            AnySketch::Hll(sketch) => sketch.standard_error(),
            AnySketch::Ghll(sketch) => sketch.standard_error(),
            AnySketch::BottomK(sketch) => 1.0 / (sketch.capacity() as f64 - 2.0).sqrt(),
        }
    }

    /// Inserts a key.
    pub fn insert(&mut self, key: &[u8]) {
        match self {
            AnySketch::Hll(sketch) => _ = sketch.insert(key),
            AnySketch::Ghll(sketch) => _ = sketch.insert(key),
            AnySketch::BottomK(sketch) => sketch.insert(key),
        }
    }

    /// Inserts hashes of keys with this sketch's seed; for sketches of [`Family::Hashfold`].
    pub fn insert_hashes(&mut self, hashes: &[KeyHash]) {
        let bits = || hashes.iter().map(|hash| hash.high()).collect::<Vec<u64>>();
        match self {
            AnySketch::Hll(sketch) => sketch.insert_hashes(&bits()),
            AnySketch::Ghll(sketch) => sketch.insert_hashes(&bits()),
            AnySketch::BottomK(sketch) => hashes.iter().for_each(|hash| sketch.insert_hash(*hash)),
        }
    }

    /// Returns the sketch at a lower precision; one of the smallest hashes as it is.
    ///
    /// # Errors
    /// Those of [`Hll::downsize`] and [`Ghll::downsize`].
    pub fn downsize(&self, precision: u8) -> Result<AnySketch> {
        Ok(match self {
            AnySketch::Hll(sketch) => AnySketch::Hll(sketch.downsize(precision)?),
            AnySketch::Ghll(sketch) => AnySketch::Ghll(sketch.downsize(precision)?),
            AnySketch::BottomK(_) => self.clone(),
        })
    }

    /// Returns a sketch of the same kind and parameters that has no keys.
    pub fn empty_like(&self) -> AnySketch {
        let empty = match self {
            AnySketch::Hll(sketch) => {
                Hll::of_family(sketch.family(), sketch.precision()).map(AnySketch::Hll)
            }
            AnySketch::Ghll(sketch) => {
                let (precision, bits) = (sketch.precision(), sketch.register_bits());
                Ghll::with_seed(sketch.seed(), precision, bits).map(AnySketch::Ghll)
            }
            AnySketch::BottomK(sketch) => {
                BottomK::new(sketch.capacity(), sketch.seed()).map(AnySketch::BottomK)
            }
        };
        empty.expect("the parameters are those of a sketch")
    }

    /// Adds the keys of another sketch.
    ///
    /// # Errors
    /// `Argument` if the other one is of another kind; the errors of the kind: another family, seed, precision or width of
    /// registers.
    pub fn union(&mut self, other: &AnySketch) -> Result<()> {
        match (self, other) {
            (AnySketch::Hll(sketch), AnySketch::Hll(other)) => sketch.union(other),
            (AnySketch::Ghll(sketch), AnySketch::Ghll(other)) => sketch.union(other),
            (AnySketch::BottomK(sketch), AnySketch::BottomK(other)) => sketch.union(other),
            (sketch, other) => Err(sketch.other_kind(other)),
        }
    }

    /// Makes the error for a sketch of another kind, which this one cannot be united or compared with.
    pub fn other_kind(&self, other: &AnySketch) -> Error {
        let expected = format!("{}, as of the other sketch", self.kind());
        Error::argument("kind of a sketch", expected, other.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorKind, key::Seed};

    /// Returns a sketch of each kind, with these keys.
    fn sketches(keys: &[&str]) -> [AnySketch; 3] {
        let mut all = [
            AnySketch::Hll(Hll::new(10).unwrap()),
            AnySketch::Ghll(Ghll::new(10, 12).unwrap()),
            AnySketch::BottomK(BottomK::new(16, Seed(0)).unwrap()),
        ];
        for sketch in &mut all {
            keys.iter().for_each(|key| sketch.insert(key.as_bytes()));
        }
        all
    }

    #[test]
    fn bytes_tell_the_kind() {
        for sketch in sketches(&["a", "b"]) {
            let bytes = sketch.to_bytes();
            assert!(AnySketch::recognises(&bytes), "{sketch:?}");
            let again = AnySketch::from_bytes(&bytes).unwrap();
            assert_eq!((again.kind(), again.to_bytes()), (sketch.kind(), bytes));
            let shorter = sketch.downsize(8).unwrap();
            assert_eq!(shorter.precision(), sketch.precision().map(|_| 8));
        }
        for other in [&b""[..], b"HFH", b"HYLL and more", b"hfhl"] {
            assert!(!AnySketch::recognises(other) && AnySketch::from_bytes(other).is_err());
        }
    }

    #[test]
    fn sketches_of_one_kind_are_united_and_others_are_refused() {
        let (all, others, expected) =
            (sketches(&["a", "b"]), sketches(&["c"]), sketches(&["c", "b", "a"]));
        for (i, sketch) in all.iter().enumerate() {
            for (j, other) in others.iter().enumerate() {
                let mut union = sketch.empty_like();
                union.union(sketch).unwrap();
                match union.union(other) {
                    Ok(()) => {
                        assert_eq!((i, union.to_bytes()), (j, expected[i].to_bytes()));
                    }
                    Err(error) => {
                        assert!(i != j && matches!(error.kind(), ErrorKind::Argument { .. }));
                        assert!(error.to_string().starts_with("kind of a sketch is "), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn hashes_and_keys_give_the_same_sketch() {
        let hashes = ["a", "b"].map(|key| KeyHash::of(key.as_bytes(), Seed(0)));
        for sketch in sketches(&["a", "b"]) {
            let mut other = sketch.empty_like();
            other.insert_hashes(&hashes);
            assert_eq!(other.to_bytes(), sketch.to_bytes());
        }
    }
}

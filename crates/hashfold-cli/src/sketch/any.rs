//! The kinds of sketches that are estimated, united and compared: HyperLogLog with registers of 6 bits, with larger
//! ones, and the k smallest hashes.

use super::words::Found;
use crate::failure::{Failure, Result};
use hashfold::{
    KeyHash,
    error::Place,
    sketch::{
        self, BottomK, CAPACITY_MIN, Expression, Family, Ghll, Hll, Joint, Precision, PrefixSample,
        ghll,
    },
};
use std::path::{Path, PathBuf};

/// A sketch of any kind.
#[derive(Clone, Debug)]
pub(super) enum AnySketch {
    Hll(Hll),
    Ghll(Ghll),
    BottomK(BottomK),
}

impl AnySketch {
    /// The name of the kind in messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            AnySketch::Hll(sketch) => match sketch.family() {
                Family::Redis => "a sketch of Redis",
                Family::Postgres { .. } => "a sketch of PostgreSQL",
                Family::DataSketches => "a sketch of Apache DataSketches",
                _ => "a sketch with registers of 6 bits",
            },
            AnySketch::Ghll(_) => "a sketch of --register-bits",
            AnySketch::BottomK(_) => "a sketch of --bottom-k",
        }
    }

    pub(super) fn family(&self) -> Family {
        match self {
            AnySketch::Hll(sketch) => sketch.family(),
            AnySketch::Ghll(sketch) => sketch.family(),
            AnySketch::BottomK(sketch) => Family::Hashfold(sketch.seed()),
        }
    }

    /// Returns the precision of a sketch with registers.
    pub(super) fn precision(&self) -> Option<u8> {
        match self {
            AnySketch::Hll(sketch) => Some(sketch.precision()),
            AnySketch::Ghll(sketch) => Some(sketch.precision()),
            AnySketch::BottomK(_) => None,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            AnySketch::Hll(sketch) => sketch.to_bytes(),
            AnySketch::Ghll(sketch) => sketch.to_bytes(),
            AnySketch::BottomK(sketch) => sketch.to_bytes(),
        }
    }

    /// Returns the relative standard error of the estimate for many keys.
    pub(super) fn standard_error(&self) -> f64 {
        match self {
            AnySketch::Hll(sketch) => sketch.standard_error(),
            AnySketch::Ghll(sketch) => sketch.standard_error(),
            AnySketch::BottomK(sketch) => 1.0 / (sketch.capacity() as f64 - 2.0).sqrt(),
        }
    }

    /// Estimates the number of distinct keys, with an interval.
    pub(super) fn estimate(&self, confidence: f64) -> Result<Found> {
        Ok(match self {
            AnySketch::Hll(sketch) => Found::Computed(sketch.estimate_with_error(), confidence),
            AnySketch::Ghll(sketch) => Found::Computed(sketch.estimate_with_error(), confidence),
            AnySketch::BottomK(sketch) => Found::Sampled(sketch.estimate(confidence)?),
        })
    }

    /// Inserts a key.
    pub(super) fn insert(&mut self, key: &[u8]) {
        match self {
            AnySketch::Hll(sketch) => _ = sketch.insert(key),
            AnySketch::Ghll(sketch) => _ = sketch.insert(key),
            AnySketch::BottomK(sketch) => sketch.insert(key),
        }
    }

    /// Inserts hashes of keys with the sketch's seed.
    pub(super) fn insert_hashes(&mut self, hashes: &[KeyHash]) {
        let bits = || hashes.iter().map(|hash| hash.high()).collect::<Vec<u64>>();
        match self {
            AnySketch::Hll(sketch) => sketch.insert_hashes(&bits()),
            AnySketch::Ghll(sketch) => sketch.insert_hashes(&bits()),
            AnySketch::BottomK(sketch) => hashes.iter().for_each(|hash| sketch.insert_hash(*hash)),
        }
    }

    /// Brings registers to a lower precision.
    pub(super) fn downsize(self, precision: u8) -> hashfold::Result<AnySketch> {
        Ok(match self {
            AnySketch::Hll(sketch) => AnySketch::Hll(sketch.downsize(precision)?),
            AnySketch::Ghll(sketch) => AnySketch::Ghll(sketch.downsize(precision)?),
            AnySketch::BottomK(_) => self,
        })
    }

    /// Adds the keys of another sketch, which is at `path`.
    pub(super) fn union(&mut self, other: &AnySketch, path: &Path) -> Result<()> {
        let united = match (&mut *self, other) {
            (AnySketch::Hll(sketch), AnySketch::Hll(other)) => sketch.union(other),
            (AnySketch::Ghll(sketch), AnySketch::Ghll(other)) => sketch.union(other),
            (AnySketch::BottomK(sketch), AnySketch::BottomK(other)) => sketch.union(other),
            (sketch, other) => return Err(sketch.does_not_fit(other, path)),
        };
        Ok(united.map_err(|error| error.at(&Place::file(path)))?)
    }

    fn does_not_fit(&self, other: &AnySketch, path: &Path) -> Failure {
        Failure::usage(format!(
            "{}: is {}, expected {}, as the first; add the keys to a new sketch",
            path.display(),
            other.kind(),
            self.kind()
        ))
    }
}

/// Brings sketches to the lowest precision among them, which loses nothing else.
pub(super) fn alike(sketches: Vec<AnySketch>) -> Result<Vec<AnySketch>> {
    let Some(precision) = sketches.iter().filter_map(AnySketch::precision).min() else {
        return Ok(sketches);
    };
    Ok(sketches
        .into_iter()
        .map(|sketch| sketch.downsize(precision))
        .collect::<hashfold::Result<_>>()?)
}

/// What is known about sets together.
pub(super) enum Together {
    /// Two sets, by their registers; and their intersection by inclusion–exclusion, if that has been computed.
    Joint(Joint, Option<sketch::Estimate>),
    /// Any number of sets, by their smallest hashes.
    Sample(PrefixSample),
}

/// Compares sketches, which are in files.
pub(super) fn compare(
    sketches: &[AnySketch],
    paths: &[PathBuf],
    (expression, confidence): (&Expression, f64),
) -> Result<Together> {
    let (first, others) = sketches.split_first().expect("the command needs two files");
    if let AnySketch::BottomK(_) = first {
        let mut sets = Vec::new();
        for (number, (sketch, path)) in sketches.iter().zip(paths).enumerate() {
            let AnySketch::BottomK(sketch) = sketch else {
                return Err(first.does_not_fit(sketch, path));
            };
            sets.push(match expression.depends_on(number) {
                true => sketch.to_set(),
                // The sample would end where this sketch ends, though its keys do not matter.
                false => BottomK::new(CAPACITY_MIN, sketch.seed())?.to_set(),
            });
        }
        let precision = Precision::whole(confidence)?;
        return Ok(Together::Sample(PrefixSample::read(sets, expression, &precision)?));
    }
    let ([other], [_, path]) = (others, paths) else {
        return Err(Failure::usage(format!(
            "{} sketches are given, expected 2; only sketches of --bottom-k can be more",
            sketches.len()
        )));
    };
    let compared = match (first, other) {
        (AnySketch::Hll(a), AnySketch::Hll(b)) => sketch::joint(a, b).and_then(|joint| {
            let by_exclusion = sketch::inclusion_exclusion(a, b)?.intersection;
            Ok(Together::Joint(joint, Some(by_exclusion)))
        }),
        (AnySketch::Ghll(a), AnySketch::Ghll(b)) => {
            ghll::joint(a, b).map(|joint| Together::Joint(joint, None))
        }
        (first, other) => return Err(first.does_not_fit(other, path)),
    };
    Ok(compared.map_err(|error| error.at(&Place::file(path)))?)
}

//! Estimates, unions and comparisons of sketches of any kind, with the messages of the command.

use super::words::Found;
use crate::failure::{Failure, Result};
use hashfold::{
    error::Place,
    sketch::{
        self, AnySketch, BottomK, CAPACITY_MIN, Expression, Family, Joint, Precision, PrefixSample,
        ghll,
    },
};
use std::path::{Path, PathBuf};

/// Returns the name of a sketch's kind in messages.
pub(super) fn kind(sketch: &AnySketch) -> &'static str {
    match sketch {
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

/// Estimates the number of distinct keys, with an interval.
pub(super) fn estimate(sketch: &AnySketch, confidence: f64) -> Result<Found> {
    Ok(match sketch {
        AnySketch::Hll(sketch) => Found::Computed(sketch.estimate_with_error(), confidence),
        AnySketch::Ghll(sketch) => Found::Computed(sketch.estimate_with_error(), confidence),
        AnySketch::BottomK(sketch) => Found::Sampled(sketch.estimate(confidence)?),
    })
}

/// Adds the keys of another sketch, which is at `path`.
pub(super) fn unite(sketch: &mut AnySketch, other: &AnySketch, path: &Path) -> Result<()> {
    if sketch.kind() != other.kind() {
        return Err(does_not_fit(sketch, other, path));
    }
    Ok(sketch.union(other).map_err(|error| error.at(&Place::file(path)))?)
}

fn does_not_fit(first: &AnySketch, other: &AnySketch, path: &Path) -> Failure {
    Failure::usage(format!(
        "{}: is {}, expected {}, as the first; add the keys to a new sketch",
        path.display(),
        kind(other),
        kind(first)
    ))
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
                return Err(does_not_fit(first, sketch, path));
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
        (first, other) => return Err(does_not_fit(first, other, path)),
    };
    Ok(compared.map_err(|error| error.at(&Place::file(path)))?)
}

//! `hashfold sketch intersect`: how many keys are in both, or in all.

use super::{
    any::{self, Together},
    file, folders, groups, words,
};
use crate::{
    failure::{Exit, Failure, Result},
    output::write_line,
    units,
};
use clap::Args;
use hashfold::sketch::{
    Estimate, Expression, Joint, PRECISION_MAX, Precision, PrefixEstimate, PrefixSample, SETS_MAX,
    Usable,
};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Relative error of an answer from sketches, unless the user asks for another one.
const ERROR_OF_SKETCHES: f64 = 0.5;
/// Relative error of an answer from folders, unless the user asks for another one.
const ERROR_OF_FOLDERS: f64 = 0.1;
/// Maximum width of the column with an expression.
const NAME_WIDTH_MAX: usize = 60;

/// Estimate how many keys two sketches share, or any number of tables, stores, maps and exact filters
///
/// Two sketches are compared by maximum likelihood. Where the standard error of the estimate is above --error, it
/// would be noise: the command says so, and which precision would be enough, and the exit code is 1. Sketches of
/// --bottom-k may be more than two.
///
/// Folders are sampled: the first keys in the order of their hashes, which are a uniform sample, are read until
/// the interval at --confidence is within --error of the estimate. At the end of the data, the answer is
/// exact. All folders must have one seed (`--seed`), and filters must be exact.
#[derive(Args, Debug)]
pub(crate) struct IntersectArgs {
    /// Files of two sketches, or of any number with the smallest hashes, or folders of tables, stores, maps or exact
    /// filters
    #[arg(value_name = "A", required = true, num_args = 2..)]
    sets: Vec<PathBuf>,
    /// Largest relative error of an answer: for sketches the standard error [default: 0.5], and for folders half of
    /// the interval [default: 0.1]; half the error takes four times the reads
    #[arg(long, value_name = "FRACTION", value_parser = parse_part)]
    error: Option<f64>,
    /// Probability that an interval has the true value
    #[arg(long, value_name = "FRACTION", default_value_t = words::CONFIDENCE, value_parser = parse_part)]
    confidence: f64,
    /// Count the keys of an expression over folders or sketches of --bottom-k, such as 'A & B & !C': A is the first folder; & and,
    /// | or, - without, ! not, and parentheses
    #[arg(long, value_name = "EXPR")]
    expression: Option<String>,
    /// Print the estimate from sketches, however large its error is
    #[arg(long)]
    force: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Reads a fraction between 0 and 1, both excluded.
pub(super) fn parse_part(text: &str) -> Result<f64, String> {
    match units::parse_fraction(text) {
        Ok(part) if part > 0.0 && part < 1.0 => Ok(part),
        _ => Err("expected a fraction between 0 and 1, both excluded: 0.95 or 95%".into()),
    }
}

pub(crate) fn run(args: &IntersectArgs) -> Result<Exit> {
    let expression = args.expression.as_deref().map(str::parse).transpose()?;
    args.check_sets(expression.as_ref())?;
    if folders::are_folders(&args.sets)? {
        args.refuse_groups()?;
        let precision = Precision::new(args.error.unwrap_or(ERROR_OF_FOLDERS), args.confidence)?;
        let all = Expression::all(args.sets.len());
        let sample = folders::sample(&args.sets, expression.as_ref().unwrap_or(&all), precision)?;
        return write_sample(args, &sample, expression.as_ref()).map(|()| Exit::Done);
    }
    let sketches = file::read_alike(&args.sets)?;
    let all = Expression::all(sketches.len());
    let sized = expression.as_ref().unwrap_or(&all);
    match any::compare(&sketches, &args.sets, (sized, args.confidence))? {
        Together::Sample(sample) => {
            args.check_sample(&sample, sized)?;
            write_sample(args, &sample, expression.as_ref())?;
        }
        Together::Joint(..) if expression.is_some() => {
            let message = "--expression is for folders and for sketches of --bottom-k: other sketches do not \
                           know which keys they share";
            return Err(Failure::usage(message));
        }
        Together::Joint(joint, by_exclusion) => {
            args.check(&joint)?;
            write_joint(args, &joint, by_exclusion.as_ref())?;
        }
    }
    Ok(Exit::Done)
}

fn write_joint(args: &IntersectArgs, joint: &Joint, by_exclusion: Option<&Estimate>) -> Result<()> {
    if args.json {
        let to_json = |estimate| words::to_json_at(estimate, args.confidence);
        let mut json = json!({
            "intersection": to_json(&joint.intersection),
            "only_a": to_json(&joint.only_a), "only_b": to_json(&joint.only_b),
            "union": to_json(&joint.union), "jaccard": to_json(&joint.jaccard),
        });
        if let Some(estimate) = by_exclusion {
            // For comparison: |A| + |B| − |A ∪ B|.
            json["inclusion_exclusion"] = to_json(estimate);
        }
        return write_line(json);
    }
    for (name, estimate) in [
        ("in both", joint.intersection),
        ("only in A", joint.only_a),
        ("only in B", joint.only_b),
        ("in either", joint.union),
    ] {
        let estimate = words::estimate_at(&estimate, args.confidence);
        write_line(format_args!("{name:<10} {estimate}"))?;
    }
    let jaccard = words::part_at(&joint.jaccard, args.confidence);
    write_line(format_args!("{:<10} {jaccard}", "Jaccard"))
}

impl IntersectArgs {
    fn error_of_sketches(&self) -> f64 {
        self.error.unwrap_or(ERROR_OF_SKETCHES)
    }

    /// Refuses too many sets, and an expression that names one that is not given.
    fn check_sets(&self, expression: Option<&Expression>) -> Result<()> {
        let given = self.sets.len();
        if given > SETS_MAX {
            let message = format!("{given} sets are given, expected 2 to {SETS_MAX}");
            return Err(Failure::usage(message));
        }
        match expression.map(Expression::set_count) {
            Some(needed) if needed > given => {
                let set = Expression::set;
                Err(Failure::usage(format!(
                    "--expression names the set {}, but {given} sets are given, {} to {}: the first one is A",
                    set(needed - 1),
                    set(0),
                    set(given - 1)
                )))
            }
            _ => Ok(()),
        }
    }

    /// Refuses tables of groups: their keys are names of groups.
    fn refuse_groups(&self) -> Result<()> {
        for path in &self.sets {
            if groups::is_table(path)? {
                let path = path.display();
                let message = format!(
                    "{path}: is a table of groups, whose keys are their names; the sketch of one group is {path}:GROUP"
                );
                return Err(Failure::usage(message));
            }
        }
        Ok(())
    }

    /// Refuses an answer that is noise.
    fn check(&self, joint: &Joint) -> Result<()> {
        // Two empty sketches, for example.
        if self.force || joint.intersection.standard_error == 0.0 {
            return Ok(());
        }
        let Usable::No { precision } = joint.usable(self.error_of_sketches()) else {
            return Ok(());
        };
        let help = match precision {
            Some(precision) => format!("sketches of --precision {precision} would be enough"),
            None => format!("no precision up to {PRECISION_MAX} is enough"),
        };
        Err(too_uncertain(&words::estimate_at(&joint.intersection, self.confidence), &help))
    }

    /// Refuses an answer from too few hashes.
    fn check_sample(&self, sample: &PrefixSample, expression: &Expression) -> Result<()> {
        let estimate = sample.estimate(expression);
        if self.force || estimate.relative_error() <= self.error_of_sketches() {
            return Ok(());
        }
        let help =
            "--bottom-k with more hashes has a smaller error: half of it with four times as many";
        Err(too_uncertain(&words::sampled(&estimate), help))
    }
}

fn too_uncertain(estimate: &str, help: &str) -> Failure {
    let message = format!(
        "the estimate is too uncertain for an answer: {estimate}; {help}, --force accepts it"
    );
    Failure { exit: Exit::No, message }
}

/// Prints what a sample says of an expression, or of all sets together.
fn write_sample(
    args: &IntersectArgs,
    sample: &PrefixSample,
    expression: Option<&Expression>,
) -> Result<()> {
    match expression {
        Some(expression) => write_expression(args, sample, expression),
        None => write_sizes(args, sample),
    }
}

fn write_expression(
    args: &IntersectArgs,
    sample: &PrefixSample,
    expression: &Expression,
) -> Result<()> {
    let (name, estimate) = (expression.to_string(), sample.estimate(expression));
    if args.json {
        let mut json = json!({ "expression": name, "size": words::sampled_to_json(&estimate) });
        folders::add_read(sample, &mut json);
        return write_line(json);
    }
    let width = name.chars().count().clamp(10, NAME_WIDTH_MAX);
    write_line(format_args!("{name:<width$} {}", words::sampled(&estimate)))?;
    folders::write_read(sample, width)
}

fn write_sizes(args: &IntersectArgs, sample: &PrefixSample) -> Result<()> {
    let (all, any) = (Expression::all(sample.set_count()), Expression::any(sample.set_count()));
    let jaccard = sample.fraction(&all, &any);
    let estimates = sizes(sample, &all, &any);
    if args.json {
        let sizes = estimates
            .iter()
            .map(|(name, _, size)| (String::from(*name), words::sampled_to_json(size)));
        let mut object: Map<String, Value> = sizes.collect();
        object.insert("jaccard".into(), words::sampled_to_json(&jaccard));
        let mut json = Value::Object(object);
        folders::add_read(sample, &mut json);
        return write_line(json);
    }
    for (_, name, estimate) in &estimates {
        write_line(format_args!("{name:<10} {}", words::sampled(estimate)))?;
    }
    write_line(format_args!("{:<10} {}", "Jaccard", words::sampled_part(&jaccard)))?;
    folders::write_read(sample, 10)
}

/// Returns the sizes that are printed: their names in JSON and in words.
fn sizes(
    sample: &PrefixSample,
    all: &Expression,
    any: &Expression,
) -> Vec<(&'static str, &'static str, PrefixEstimate)> {
    let (a, b) = (Expression::set(0), Expression::set(1));
    if sample.set_count() > 2 {
        return vec![
            ("intersection", "in all", sample.estimate(all)),
            ("union", "in any", sample.estimate(any)),
        ];
    }
    vec![
        ("intersection", "in both", sample.estimate(all)),
        ("only_a", "only in A", sample.estimate(&(a.clone() - b.clone()))),
        ("only_b", "only in B", sample.estimate(&(b - a))),
        ("union", "in either", sample.estimate(any)),
    ]
}

//! `hashfold filter create`: an empty filter.

use super::{open::Budget, stat};
use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    options::parse_seed,
    output::write_line,
    units,
};
use clap::Args;
use hashfold::{
    Seed,
    filter::{
        Mode,
        cascade::{CascadeFilter, CascadeOptions, CascadeStats},
    },
    fingerprints::Universe,
    folder::Contents,
    manifest::Kind,
};
use std::path::{Path, PathBuf};

/// Make an empty filter
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The folder to make the filter in
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    #[command(flatten)]
    kind: KindArgs,
}

/// What a new filter is. These never change.
#[derive(Args, Debug)]
pub(crate) struct KindArgs {
    /// Make it for so many keys (1e9, 10M); with more the rate of errors grows
    #[arg(long, value_name = "N", conflicts_with = "exact", value_parser = units::parse_count)]
    capacity: Option<u64>,
    /// Of keys that are not in, how many seem to be once it is full [default: 0.0004]
    #[arg(long, value_name = "RATE", requires = "capacity", conflicts_with = "exact", value_parser = units::parse_rate)]
    error: Option<f64>,
    /// Make it without errors, in practice, for any number of keys: 64 bits of each hash
    #[arg(long)]
    exact: bool,
    /// Count how often each key is put in and taken out
    #[arg(long)]
    multiset: bool,
    /// The seed of the hash; filters with the same one can be merged [default: random]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<Seed>,
}

/// One look-up in 2500 is wrong.
const ERROR_DEFAULT: f64 = 0.0004;

pub(crate) fn run(args: &CreateArgs) -> Result<Exit> {
    let Some(options) = args.kind.options()? else {
        return Err(Failure::usage(
            "how many keys is the filter for? Say --capacity N, or --exact for any number without \
             errors",
        ));
    };
    if folder::holds(&args.filter)? == Contents::DataSet(Kind::Filter) {
        return Err(Failure::usage(format!(
            "{}: there is a filter here already; `hashfold filter add` puts keys in",
            args.filter.display()
        )));
    }
    let budget = Budget::least();
    create(&args.filter, &options, &budget)?.close()?;
    write_line(format_args!("created {}: {}", args.filter.display(), describe(&options)))?;
    Ok(Exit::Done)
}

/// Makes a filter where there is nothing yet.
pub(super) fn create(
    folder: &Path,
    options: &CascadeOptions,
    budget: &Budget,
) -> Result<CascadeFilter> {
    match folder::holds(folder)? {
        Contents::Nothing => folder::check_empty(folder, "filter", &["MANIFEST.new"])?,
        _ => folder::require_filter(folder)?,
    }
    Ok(CascadeFilter::create(device::disk(), folder, options, budget.settings())?)
}

fn describe(options: &CascadeOptions) -> String {
    let &CascadeOptions { mode, capacity, universe, .. } = options;
    stat::kind(mode, capacity, universe)
}

impl KindArgs {
    /// What the filter shall be, if that was said.
    pub(super) fn options(&self) -> Result<Option<CascadeOptions>> {
        let (seed, id) =
            (self.seed.map_or_else(|| device::random().map(Seed), Ok)?, device::random()?);
        let error = self.error.unwrap_or(ERROR_DEFAULT);
        let options = match self.capacity {
            None if self.exact => CascadeOptions::exact(seed, id),
            None => return Ok(None),
            Some(capacity) => CascadeOptions::new(seed, id, capacity, error)?,
        };
        let mode = if self.multiset { Mode::Multiset } else { Mode::Set };
        Ok(Some(CascadeOptions { mode, ..options }))
    }

    /// Refuses a filter that is not as it was said to be.
    pub(super) fn check(&self, folder: &Path, stats: &CascadeStats) -> Result<()> {
        let is_exact = stats.universe == Universe::EXACT;
        let is_other = |options: CascadeOptions| options.universe != stats.universe;
        let differs = match () {
            () if self.exact && !is_exact => "--exact",
            () if self.capacity.is_some_and(|it| it != stats.capacity) => "--capacity",
            () if self.error.is_some() && self.options()?.is_some_and(is_other) => "--error",
            () if self.multiset && stats.mode != Mode::Multiset => "--multiset",
            () if self.seed.is_some_and(|seed| seed != stats.seed) => "--seed",
            () => return Ok(()),
        };
        Err(Failure::usage(format!(
            "{}: was not made with this {differs}: it is {}; leave {differs} out, or name another \
             folder",
            folder.display(),
            stat::kind(stats.mode, stats.capacity, stats.universe),
        )))
    }
}

//! `hashfold filter create`: makes an empty filter.

use super::{open::Budget, words};
use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    options::parse_seed,
    output::write_line,
    units,
};
use clap::{ArgGroup, Args};
use hashfold::{
    Seed,
    filter::{
        Mode,
        cascade::{CascadeFilter, CascadeOptions, CascadeStats, Window},
    },
    fingerprints::Universe,
    folder::Contents,
    manifest::Kind,
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Make an empty filter
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("size").args(["capacity", "exact"]).required(true))]
pub(crate) struct CreateArgs {
    /// Folder to make the filter in
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    #[command(flatten)]
    kind: KindArgs,
}

/// Options of a new filter, which never change.
#[derive(Args, Debug)]
pub(crate) struct KindArgs {
    /// Number of keys that the filter is sized for (1e9, 10M). With more keys, false positives
    /// increase in proportion, and `add` warns
    #[arg(long, value_name = "N", conflicts_with = "exact", value_parser = units::parse_count)]
    capacity: Option<u64>,
    /// False-positive rate when the filter holds --capacity keys; halving it costs one bit per key
    /// [default: 0.0004]
    #[arg(long, value_name = "RATE", requires = "capacity", conflicts_with = "exact", value_parser = units::parse_rate)]
    fp_rate: Option<f64>,
    /// Store 64-bit fingerprints, for any number of keys: with a billion keys, the chance of even
    /// one false positive among them is about 3 %
    #[arg(long)]
    exact: bool,
    /// Count insertions and removals of each key
    #[arg(long)]
    multiset: bool,
    /// Forget keys by time (7d, 24h): a key is kept for at least this long after it was inserted, and
    /// for at most one epoch longer. Without it, keys are kept for ever
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds)]
    window: Option<u64>,
    /// Number of epochs of the --window, which are forgotten one by one; a query of an absent key
    /// reads a block from each [default: 7]
    #[arg(long, value_name = "N", requires = "window", value_parser = units::parse_number::<u64>)]
    epochs: Option<u64>,
    /// Seed of the hash; filters with the same seed can be merged [default: random]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<Seed>,
}

/// One false positive in 2500 queries of absent keys.
const FP_RATE_DEFAULT: f64 = 0.0004;

/// The epochs of a week are days.
const EPOCHS_DEFAULT: u64 = 7;

pub(crate) fn run(args: &CreateArgs) -> Result<Exit> {
    let options = args.kind.options()?.expect("one of --capacity and --exact is required");
    if folder::holds(&args.filter)? == Contents::DataSet(Kind::Filter) {
        return Err(Failure::usage(format!(
            "{}: there is a filter here already; insert keys with `hashfold filter add`",
            args.filter.display()
        )));
    }
    let budget = Budget::least();
    create(&args.filter, &options, &budget)?.close()?;
    write_line(format_args!("created {}: {}", args.filter.display(), describe(&options)))?;
    Ok(Exit::Done)
}

/// Creates a filter in an empty folder.
pub(super) fn create(
    folder: &Path,
    options: &CascadeOptions,
    budget: &Budget,
) -> Result<CascadeFilter> {
    match folder::holds(folder)? {
        Contents::Nothing => folder::check_empty(folder, "filter", &["MANIFEST.new"])?,
        _ => folder::require_filter(folder)?,
    }
    Ok(CascadeFilter::create(folder, options, budget.settings())?)
}

fn describe(options: &CascadeOptions) -> String {
    let &CascadeOptions { mode, capacity, universe, window, .. } = options;
    words::kind(mode, capacity, universe) + &words::window(window)
}

impl KindArgs {
    /// Returns the options of the filter; `None` if neither --capacity nor --exact is given.
    pub(super) fn options(&self) -> Result<Option<CascadeOptions>> {
        let (seed, id) =
            (self.seed.map_or_else(|| device::random().map(Seed), Ok)?, device::random()?);
        let fp_rate = self.fp_rate.unwrap_or(FP_RATE_DEFAULT);
        let options = match self.capacity {
            None if self.exact => CascadeOptions::exact(seed, id),
            None => return Ok(None),
            Some(capacity) => CascadeOptions::new(seed, id, capacity, fp_rate)?,
        };
        let mode = if self.multiset { Mode::Multiset } else { Mode::Set };
        Ok(Some(CascadeOptions { mode, window: self.window()?, ..options }))
    }

    fn window(&self) -> Result<Option<Window>> {
        let Some(length_s) = self.window else { return Ok(None) };
        let epochs = self.epochs.unwrap_or(EPOCHS_DEFAULT);
        Ok(Some(Window::new(Duration::from_secs(length_s), epochs)?))
    }

    /// Refuses a filter that differs from the given options.
    pub(super) fn check(&self, folder: &Path, stats: &CascadeStats) -> Result<()> {
        let is_exact = stats.universe == Universe::EXACT;
        let is_other = |options: CascadeOptions| options.universe != stats.universe;
        let differs = match () {
            () if self.exact && !is_exact => "--exact",
            () if self.capacity.is_some_and(|it| it != stats.capacity) => "--capacity",
            () if self.fp_rate.is_some() && self.options()?.is_some_and(is_other) => "--fp-rate",
            () if self.multiset && stats.mode != Mode::Multiset => "--multiset",
            () if self.window.is_some() && self.window()? != stats.window => "--window",
            () if self.seed.is_some_and(|seed| seed != stats.seed) => "--seed",
            () => return Ok(()),
        };
        Err(Failure::usage(format!(
            "{}: was not made with this {differs}: it is a {}; leave {differs} out, or name \
             another folder",
            folder.display(),
            words::kind(stats.mode, stats.capacity, stats.universe) + &words::window(stats.window),
        )))
    }
}

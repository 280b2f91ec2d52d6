//! Fingerprints: the first bits of hashes as numbers, in ascending order, each with a count.
//!
//! A *fingerprint* is a key's hash scaled down to a [`Universe`] of numbers. Filters store
//! fingerprints instead of keys, and exchange them in the order of the hashes:
//!
//! ```text
//! filter ─scan→ Fingerprints ─append_to→ FingerprintBatch ─→ another filter
//! ```
//!
//! Filters exchange [`Fingerprints`] as tables exchange [`Run`](crate::run::Run)s: every filter can
//! be read as a run of fingerprints (`scan`), and can be built from one (`build`). [`of_run`]
//! converts the keys of a run to fingerprints, so that tables and stores become filters.
//! Fingerprints do not contain keys, so a filter cannot become a table or a store.
//!
//! # From one data set to another
//!
//! Each conversion reads one data set from front to back, in bounded memory, and keeps its seed.
//!
//! | from | to a table | to a store | to a quotient filter | to a cascade filter |
//! |---|---|---|---|---|
//! | table | – | `push_run(scan())` | `build(of_run(scan()))` | `build(of_run(scan()))` |
//! | store | `build(scan_all())` | – | `build(of_run(scan_all()))` | `build(of_run(scan_all()))` |
//! | quotient filter | no | no | `build(scan())` | `build(scan())` |
//! | cascade filter | no | no | `build(snapshot().scan())` | `build(snapshot().scan())` |
//!
//! ```
//! # use hashfold::{Env, Result, Seed, io::{Disk, MemoryDisk}, run::*, store::*, table::*, work::{Executor, Inline, Watch}};
//! # use hashfold::filter::{Mode, cascade::*, quotient::*};
//! # use hashfold::fingerprints::{self, Universe};
//! # use std::{path::Path, sync::Arc};
//! # fn main() -> Result<()> {
//! # let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
//! # let executor: Arc<dyn Executor> = Arc::new(Inline);
//! # let folder = |name: &'static str| Path::new(name);
//! # let table_in = |name| TableBuilder::with(folder(name), TableOptions::new().seed(Seed(7)).id(1).env(Env { executor: executor.clone(), ..Env::on(disk.clone()) }));
//! # table_in("table")?.build(&mut VecRun::new(vec![(b"sky".to_vec(), Some(b"blue".to_vec()))], Seed(7)), &Watch::default())?;
//! # let table = Table::open_with(folder("table"), &ReadOptions::new().env(Env::on(disk.clone())))?;
//! // From a table to a store.
//! # let shape = Shape { slots: SlotMap::new(4)?, index: IndexOptions::default(), block_size: 4096 };
//! # let options = StoreOptions { seed: Seed(7), id: 1, shape, attributes: Vec::new() };
//! # let mut store = StoreWriter::create(disk.clone(), folder("store"), options, executor.clone())?;
//! let mut batch = store.batch(SortOptions::default())?;
//! batch.push_run(&mut table.scan())?;
//! let version = store.write(batch, UpdateMode::Auto, VersionFacts { id: 11, ..VersionFacts::default() }, &Watch::default())?;
//! # store.publish(version.name.number)?;
//! # let version = Follower::open(disk.clone(), folder("store"), ReadOptions::new())?.version();
//! # assert_eq!(version.get(b"sky")?.as_deref(), Some(&b"blue"[..]));
//!
//! // From a version of a store to a table.
//! # let builder = table_in("copy")?;
//! builder.build(&mut version.scan_all(), &Watch::default())?;
//! # assert!(Table::open_with(folder("copy"), &ReadOptions::new().env(Env::on(disk.clone())))?.contains(b"sky")?);
//!
//! // From a table or a version to a quotient filter.
//! let universe = Universe::for_capacity(1000, 0.001)?;
//! let options = BuildOptions::new(1000);
//! let mut keys = fingerprints::of_run(table.scan(), universe);
//! let filter = QuotientFilter::build(&mut keys, &options)?;
//! # assert!(filter.contains_key(b"sky") && filter.seed() == Seed(7));
//! let mut keys = fingerprints::of_run(version.scan_all(), universe);
//! let filter = QuotientFilter::build(&mut keys, &options)?;
//! # assert!(filter.contains_key(b"sky") && filter.seed() == Seed(7));
//!
//! // From a table or a version to a cascade filter.
//! let mut keys = fingerprints::of_run(table.scan(), universe);
//! let options = CascadeOptions::like(&keys, 1, Mode::Set, 1000);
//! # let settings = CascadeSettings::new(Env::on(disk.clone()));
//! let cascade = CascadeFilter::build(folder("filter"), &options, settings.clone(), &mut keys)?;
//! # assert!(cascade.contains(cascade.hash(b"sky"))?);
//! let mut keys = fingerprints::of_run(version.scan_all(), universe);
//! let mut cascade = CascadeFilter::build(folder("other"), &options, settings.clone(), &mut keys)?;
//! # assert!(cascade.contains(cascade.hash(b"sky"))? && cascade.seed() == Seed(7));
//!
//! // From a cascade filter to a quotient filter, and back.
//! let snapshot = cascade.snapshot()?;
//! let filter = QuotientFilter::build(&mut snapshot.scan()?, &BuildOptions::new(1000))?;
//! # assert!(filter.contains_key(b"sky") && filter.seed() == Seed(7));
//! let back = CascadeFilter::build(folder("back"), &options, settings, &mut filter.scan())?;
//! # assert!(back.contains(back.hash(b"sky"))?);
//!
//! // From a quotient filter to a filter with more slots, and so shorter remainders.
//! let larger = QuotientFilter::build(&mut filter.scan(), &BuildOptions::new(10_000))?;
//! # assert!(larger.contains_key(b"sky") && larger.remainder_bits() < filter.remainder_bits());
//! # Ok(())
//! # }
//! ```

mod batch;
mod checked;
mod of_run;
mod run;
mod universe;

pub use self::{batch::FingerprintBatch, of_run::of_run, run::Fingerprints, universe::Universe};
pub(crate) use self::{
    batch::{BatchSlice, Exception},
    checked::{Ascent, Checked, check_alike},
};

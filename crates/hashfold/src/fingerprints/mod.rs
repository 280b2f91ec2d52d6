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
//! | table | – | `merge(scan())` | `build(of_run(scan()))` | `build(of_run(scan()))` |
//! | store | `build(scan_all())` | – | `build(of_run(scan_all()))` | `build(of_run(scan_all()))` |
//! | [map](../map/struct.Map.html) | `build(snapshot().scan())` | `merge(snapshot().scan())` | `build(of_run(snapshot().scan()))` | `build(of_run(snapshot().scan()))` |
//! | [table in RAM](../memory/struct.AppendTable.html) | `build(snapshot().scan())` | `merge(snapshot().scan())` | `build(of_run(snapshot().scan()))` | `build(of_run(snapshot().scan()))` |
//! | quotient filter | no | no | `build(scan())` | `build(scan())` |
//! | cascade filter | no | no | `build(snapshot().scan())` | `build(snapshot().scan())` |
//!
//! ```
//! # use hashfold::{Env, Map, ReadOptions, Result, Seed, Store, StoreOptions, Table, TableBuilder, TableOptions, work::Watch};
//! # use hashfold::filter::{Mode, cascade::*, quotient::*};
//! # use hashfold::fingerprints::{self, Universe};
//! # use hashfold::map::MapOptions;
//! # use std::path::Path;
//! # fn main() -> Result<()> {
//! # let env = Env::simulated(1);
//! # let folder = |name: &'static str| Path::new(name);
//! # let options = TableOptions::new().env(env.clone()).seed(Seed(7));
//! # let mut builder = TableBuilder::with("table", options.clone())?;
//! # builder.push("sky", "blue")?;
//! # let table = builder.finish()?;
//! // From a table to a store.
//! # let store = Store::open_or_create_with("store", StoreOptions::new().env(env.clone()).seed(Seed(7)).chunks(4))?;
//! let mut update = store.update()?;
//! update.merge(&mut table.scan())?;
//! update.publish()?;
//! # let version = store.reader()?.version();
//! # assert_eq!(version.get("sky")?.as_deref(), Some(&b"blue"[..]));
//!
//! // From a version of a store to a table.
//! # let builder = TableBuilder::with("copy", options.clone())?;
//! builder.build(&mut version.scan_all(), &Watch::default())?;
//! # assert!(Table::open_with("copy", &ReadOptions::new().env(env.clone()))?.contains("sky")?);
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
//! # let settings = CascadeSettings::new(env.clone());
//! let cascade = CascadeFilter::build(folder("filter"), &options, settings.clone(), &mut keys)?;
//! # assert!(cascade.contains(cascade.hash(b"sky"))?);
//! let mut keys = fingerprints::of_run(version.scan_all(), universe);
//! let mut cascade = CascadeFilter::build(folder("other"), &options, settings.clone(), &mut keys)?;
//! # assert!(cascade.contains(cascade.hash(b"sky"))? && cascade.seed() == Seed(7));
//!
//! // From a map to a table.
//! # let map = Map::create("map", MapOptions::new().env(env.clone()).seed(Seed(7)))?;
//! # map.put("sky", "blue")?;
//! let entries = map.snapshot();
//! let table_options = TableOptions::new().seed(map.seed());
//! # let table_options = table_options.env(env.clone());
//! TableBuilder::with("from-map", table_options)?.build(&mut entries.scan(), &Watch::default())?;
//! # assert!(Table::open_with("from-map", &ReadOptions::new().env(env.clone()))?.contains("sky")?);
//!
//! // From a map to a quotient filter.
//! let mut keys = fingerprints::of_run(entries.scan(), universe);
//! let filter = QuotientFilter::build(&mut keys, &BuildOptions::new(1000))?;
//! # assert!(filter.contains_key(b"sky") && filter.seed() == Seed(7));
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

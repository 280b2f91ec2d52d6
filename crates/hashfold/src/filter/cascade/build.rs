//! Building a filter from a run of fingerprints.

use super::{
    catalog::Identity,
    core::Core,
    filter::CascadeFilter,
    options::{CascadeOptions, CascadeSettings},
    recovery,
    write::{SHARD_ITEMS_MAX, numbers, write_shards},
};
use crate::{
    error::Result,
    filter::FingerprintMerge,
    fingerprints::{Fingerprints, check_alike},
};
use std::{path::Path, sync::Arc};

impl CascadeFilter {
    /// Builds a filter in a folder from a run of fingerprints. The run must have the seed and the
    /// universe of `options`: see [`CascadeOptions::like`].
    ///
    /// The fingerprints are written once, straight into the last level, in bounded memory.
    /// Fingerprints with a count below 1 are left out. The filter is durable when this returns;
    /// after a failure or a crash there is no filter in the folder.
    ///
    /// # Errors
    /// `Exists` if there is a filter in the folder, `Busy` if another process writes there,
    /// `WrongSeed` or `Mismatch` if the run has another seed or universe than the options.
    pub fn build(
        folder: &Path,
        options: &CascadeOptions,
        settings: CascadeSettings,
        run: &mut dyn Fingerprints,
    ) -> Result<CascadeFilter> {
        settings.check()?;
        check_alike((options.seed, options.universe), (run.seed(), run.universe()))?;
        let core = recovery::create(folder, Identity::from(options), settings)?;
        core.publisher.folder().begin_first()?;
        write(&core, run)?;
        recovery::end_first(core.publisher.folder())?;
        CascadeFilter::start(Arc::new(core))
    }
}

/// Writes all fingerprints of a run to the last level, and publishes the first manifest.
fn write(core: &Core, run: &mut dyn Fingerprints) -> Result<()> {
    let merge = FingerprintMerge::last(vec![run], core.identity.mode)?;
    let mut merge = merge.within(core.shares.merge.items());
    let shards = write_shards(core, &mut merge, 0, SHARD_ITEMS_MAX)?;
    core.publish(&numbers(&shards), |view| view.epochs[0].shards = shards.clone())
}

//! Delta files between versions: created from one store, applied to another.

use super::{
    delta::{DeltaInfo, DeltaReader, DeltaWriter},
    join::{Join, Keep},
    read::Version,
    version::{Changes, VersionInfo},
    write::{StoreWriter, UpdateMode, VersionFacts},
};
use crate::{
    error::{Error, Place, Result, check_same},
    io::Disk,
    key::Seed,
    run::{Entry, Run, SortOptions, Summary},
    work::{Executor, Steps, Watch},
};
use std::{path::Path, sync::Arc};

/// Writes the changes from one version to another into a file, and syncs the file and its name.
/// `watch` counts entries of both versions.
pub fn diff(
    disk: &dyn Disk,
    old: &Version,
    new: &Version,
    path: &Path,
    executor: &Arc<dyn Executor>,
    watch: &Watch,
) -> Result<(DeltaInfo, Changes)> {
    check_same("store", old.info().store, new.info().store)?;
    check_same("seed", old.info().seed.0, new.info().seed.0)?;
    let chunks = old.info().chunks.len() as u64;
    check_same("number of chunks", chunks, new.info().chunks.len() as u64)?;
    let info = DeltaInfo {
        seed: old.info().seed,
        store: old.info().store,
        chunks,
        parent: old.info().name.id,
        target: new.info().name.id,
        entries: 0,
        deletions: 0,
    };
    let mut writer = DeltaWriter::create(disk, path, info, executor.clone())?;
    let mut changes = Changes::default();
    for chunk in 0..chunks as u32 {
        let [before, after] = [old, new].map(|version| &version.info().chunks[chunk as usize]);
        // The number of keys under deltas is known only after reading them.
        if before == after && before.deltas().is_empty() {
            changes.unchanged += before.base().entries;
            continue;
        }
        let counted = |run| Counted { run, steps: watch.steps() };
        let old = counted(old.scan_ahead(chunk, executor));
        let new = counted(new.scan_ahead(chunk, executor));
        let mut join = Join::new(old, new, Keep::Difference);
        while join.advance()? {
            writer.push(&join.entry())?;
        }
        changes.add(join.changes());
    }
    let info = writer.finish()?;
    if let Some(folder) = path.parent() {
        disk.sync_folder(folder)?;
    }
    Ok((info, changes))
}

/// A run that counts its entries, including those that a join omits.
struct Counted<R> {
    run: R,
    steps: Steps,
}

impl<R: Run> Run for Counted<R> {
    fn seed(&self) -> Seed {
        self.run.seed()
    }

    fn summary(&self) -> Summary {
        self.run.summary()
    }

    fn advance(&mut self) -> Result<bool> {
        self.steps.step()?;
        self.run.advance()
    }

    fn entry(&self) -> Entry<'_> {
        self.run.entry()
    }
}

impl StoreWriter {
    /// Makes a version from the current version and a delta file, which must lead from that
    /// version. The new version has the same id as the version that the delta leads to.
    pub fn apply(
        &mut self,
        path: &Path,
        sort: SortOptions,
        mode: UpdateMode,
        facts: VersionFacts,
        watch: &Watch,
    ) -> Result<VersionInfo> {
        self.settle()?;
        let mut delta = DeltaReader::open(self.disk.as_ref(), path)?;
        let info = *delta.info();
        let at = |error: Error| error.at(&Place::file(path));
        check_same("store", self.pointer.store, info.store).map_err(at)?;
        check_same("seed", self.pointer.seed.0, info.seed.0).map_err(at)?;
        let parent = self.parent()?.map_or(0, |parent| parent.name.id);
        check_same("version that the delta leads from", parent, info.parent).map_err(at)?;
        let mut batch = self.batch(sort)?;
        while delta.next(&mut |key, value| batch.push(key, value)).map_err(at)? {}
        self.write(batch, mode, VersionFacts { id: info.target, ..facts }, watch)
    }
}

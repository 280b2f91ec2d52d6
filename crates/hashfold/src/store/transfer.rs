//! Delta files between versions: created from one store, applied to another.

use super::{
    chunks::common,
    delta::{DeltaInfo, DeltaReader, DeltaWriter},
    join::{Join, Keep, KeyChange},
    plan::UpdateMode,
    read::Version,
    version::{Changes, Layer, VersionInfo},
    write::{StoreWriter, VersionFacts},
};
use crate::{
    env::Env,
    error::{Error, Place, Result, check_same},
    key::Seed,
    run::{Entry, Run, SortOptions, Summary},
    work::{Steps, Watch},
};
use std::{collections::BTreeSet, ops::Range, path::Path};

/// Writes the changes from one version to another, and the attributes of the other version, into a
/// file, and syncs the file and its name. `watch` counts entries of both versions.
pub fn diff(
    env: &Env,
    old: &Version,
    new: &Version,
    path: &Path,
    watch: &Watch,
) -> Result<(DeltaInfo, Changes)> {
    let disk = env.disk.as_ref();
    let info = DeltaInfo {
        seed: old.info().seed,
        store: old.info().store,
        parent: old.info().name.id,
        target: new.info().name.id,
        entries: 0,
        deletions: 0,
        attributes: new.info().attributes.clone(),
    };
    let mut writer = DeltaWriter::create(disk, path, info, env.executor.clone())?;
    let push = &mut |change: KeyChange<'_>| writer.push(change.key, change.new);
    let changes = compare(env, old, new, watch, push)?;
    let info = writer.finish()?;
    if let Some(folder) = path.parent() {
        disk.sync_folder(folder)?;
    }
    Ok((info, changes))
}

/// Calls `visit` with each key that differs between two versions, in the order of hashes, part after
/// part. `watch` counts entries of both versions.
pub fn compare(
    env: &Env,
    old: &Version,
    new: &Version,
    watch: &Watch,
    visit: &mut dyn FnMut(KeyChange<'_>) -> Result<()>,
) -> Result<Changes> {
    check_same("store", old.info().store, new.info().store)?;
    check_same("seed", old.info().seed.0, new.info().seed.0)?;
    let mut changes = Changes::default();
    for slots in stretches(old.info(), new.info()) {
        if let Some(unchanged) = shared_entries(old.info(), new.info(), &slots) {
            changes.unchanged += unchanged;
            continue;
        }
        let [old, new] = [old, new].map(|version| Counted {
            run: version.scan_slots(&slots, 0, Some(&env.executor)),
            steps: watch.steps(),
        });
        let mut join = Join::new(old, new, Keep::Difference);
        while join.advance()? {
            visit(join.change())?;
        }
        changes.add(join.changes());
    }
    Ok(changes)
}

/// Returns the ranges of slots that end where a base of both versions ends.
fn stretches(old: &VersionInfo, new: &VersionInfo) -> Vec<Range<u32>> {
    let ends = |info: &VersionInfo| {
        let slots = |base: &Layer| info.shape.slots.slots(&base.chunks.bounds()).end;
        info.bases.iter().map(slots).collect::<BTreeSet<u32>>()
    };
    let ends: Vec<u32> = ends(old).intersection(&ends(new)).copied().collect();
    let starts = [0].into_iter().chain(ends.clone());
    starts.zip(ends).map(|(start, end)| start..end).collect()
}

/// Returns the number of entries in a range of slots, if both versions have the same tables there
/// and no deltas. The number of keys under deltas is known only after reading them.
fn shared_entries(old: &VersionInfo, new: &VersionInfo, slots: &Range<u32>) -> Option<u64> {
    let [old, new] = [old, new].map(|info| {
        let has = |layer: &&Layer| {
            let mut ranges =
                layer.chunks.ranges().iter().map(|range| info.shape.slots.slots(range));
            ranges.any(|range| !common(&range, slots).is_empty())
        };
        let bases: Vec<(u64, u64)> =
            info.bases.iter().filter(has).map(|base| (base.table, base.entries)).collect();
        (!info.deltas.iter().any(|delta| has(&delta))).then_some(bases)
    });
    let (old, new) = (old?, new?);
    (old == new).then(|| old.iter().map(|(_, entries)| entries).sum())
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
    /// version. The new version has the same id and the same attributes as the version that the delta
    /// leads to.
    pub fn apply(
        &mut self,
        path: &Path,
        sort: SortOptions,
        mode: UpdateMode,
        facts: VersionFacts,
        watch: &Watch,
    ) -> Result<VersionInfo> {
        self.settle()?;
        let mut delta = DeltaReader::open(&self.env, path)?;
        let info = delta.info().clone();
        let at = |error: Error| error.at(&Place::file(path));
        check_same("store", self.pointer.store, info.store).map_err(at)?;
        check_same("seed", self.pointer.seed.0, info.seed.0).map_err(at)?;
        let parent = self.parent()?.map_or(0, |parent| parent.name.id);
        check_same("version that the delta leads from", parent, info.parent).map_err(at)?;
        let mut batch = self.batch(sort)?;
        while delta.next(&mut |key, value| batch.push(key, value)).map_err(at)? {}
        let before = self.attributes.clone();
        info.attributes.into_iter().for_each(|(name, value)| self.set_attribute(&name, value));
        let facts = VersionFacts { id: info.target, ..facts };
        self.write(batch, mode, facts, watch).inspect_err(|_| self.attributes = before)
    }
}

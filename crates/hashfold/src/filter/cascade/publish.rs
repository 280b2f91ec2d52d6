//! Publishing: making another catalog the current one.
//!
//! A manifest is written under another name, synced and renamed. If this fails halfway, the new
//! manifest may still have become current, and only the next publishing decides. Until then, the
//! run files of both manifests stay.

use super::{
    catalog::{Identity, View},
    obsolete::Obsolete,
    run_file,
};
use crate::{error::Result, folder::LockedFolder, manifest::Manifest, work::Executor};
use std::{
    collections::BTreeSet,
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// Publishes the catalogs of a filter, one after the other. Removes the files that the current
/// catalog does not name.
#[derive(Debug)]
pub(super) struct Publisher {
    folder: LockedFolder,
    identity: Identity,
    executor: Arc<dyn Executor>,
    next_number: AtomicU64,
    /// Held while a manifest is written.
    published: Mutex<Published>,
    obsolete: Arc<Obsolete>,
}

#[derive(Debug)]
struct Published {
    /// The last catalog whose manifest is durable.
    current: Arc<View>,
    /// The highest generation that was tried.
    generation: u64,
    last: Attempt,
}

/// The result of the last attempt to publish a manifest.
#[derive(Debug)]
enum Attempt {
    /// The manifest is certainly current, or certainly not.
    Settled,
    /// The manifest may be current. These run files are named only by manifests in this state.
    Doubtful { runs: Vec<u64> },
}

impl Attempt {
    /// Records that an attempt failed, although its manifest may be current.
    fn doubt(&mut self, made: &[u64]) {
        let mut runs = self.settle();
        runs.extend(made);
        *self = Attempt::Doubtful { runs };
    }

    /// Records that a later manifest is current. Returns the run files that only older manifests
    /// name.
    fn settle(&mut self) -> Vec<u64> {
        match mem::replace(self, Attempt::Settled) {
            Attempt::Settled => Vec::new(),
            Attempt::Doubtful { runs } => runs,
        }
    }
}

impl Publisher {
    /// Returns the publisher of a filter whose manifest names these runs, or that has no manifest
    /// yet.
    pub(super) fn new(
        folder: LockedFolder,
        identity: Identity,
        executor: Arc<dyn Executor>,
        current: Arc<View>,
    ) -> Publisher {
        let next_number = AtomicU64::new(current.next_number);
        let obsolete = Obsolete::new(folder.disk.clone());
        let generation = current.generation;
        let published = Mutex::new(Published { current, generation, last: Attempt::Settled });
        Publisher { folder, identity, executor, next_number, published, obsolete }
    }

    pub(super) fn folder(&self) -> &LockedFolder {
        &self.folder
    }

    /// Returns the number of a new run file.
    pub(super) fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1, SeqCst)
    }

    /// Makes the catalog that `change` changes the current one: first on the disk, then with
    /// `install` for lookups. The files that it no longer names are removed soon. `made` are the
    /// new run files. They are removed after an error, or if `change` returns `None`; then this
    /// returns `false`.
    pub(super) fn publish(
        &self,
        made: &[u64],
        change: impl FnOnce(&mut View) -> Option<()>,
        install: impl FnOnce(Arc<View>),
    ) -> Result<bool> {
        let mut published = self.published.lock().expect("nothing panics under this lock");
        let mut new = View::clone(&published.current);
        if change(&mut new).is_none() {
            self.discard(made);
            return Ok(false);
        }
        // No two manifests have the same generation, even if the first was not published.
        published.generation += 1;
        new.generation = published.generation;
        new.next_number = self.next_number.load(SeqCst);
        let LockedFolder { disk, path, .. } = &self.folder;
        let result = new.manifest(&self.identity).publish(&**disk, path);
        result.inspect_err(|_| {
            let current = Manifest::read(&**disk, path);
            if current.is_ok_and(|current| current.generation != new.generation) {
                self.discard(made);
            } else {
                published.last.doubt(made);
            }
        })?;
        let new = Arc::new(new);
        let old = mem::replace(&mut published.current, new.clone());
        // Before another thread can wait for their removal.
        self.drop_runs(&published.last.settle());
        self.drop_missing(&old, &new);
        install(new);
        drop(published);
        self.obsolete.start_removing(&*self.executor);
        Ok(true)
    }

    /// Queues the files of the old catalog that are not in the new one for removal.
    fn drop_missing(&self, old: &View, new: &View) {
        let kept: BTreeSet<u64> = new.runs().map(|run| run.number()).collect();
        for run in old.runs().filter(|run| !kept.contains(&run.number())) {
            run.set_resident(None);
            self.drop_runs(&[run.number()]);
        }
    }

    fn drop_runs(&self, runs: &[u64]) {
        let path = |&number: &u64| self.folder.path.join(run_file::name(number));
        self.obsolete.add(runs.iter().map(path));
    }

    /// Removes the run files of a failed job.
    pub(super) fn discard(&self, runs: &[u64]) {
        self.drop_runs(runs);
        self.obsolete.remove_all();
    }

    /// Waits until all files that the current catalog does not name are removed.
    pub(super) fn finish_removing(&self) {
        self.obsolete.remove_all();
    }
}

impl Drop for Publisher {
    /// Removes files for the last time: afterwards, another filter may use their names.
    fn drop(&mut self) {
        self.obsolete.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        filter::cascade::{
            CascadeOptions,
            catalog::{Catalog, Upper},
            key_range::KeyRange,
            resident::MemoryBudget,
            run_file::{RunFile, RunWriter},
        },
        fingerprints::FingerprintBatch,
        folder::Site,
        io::{Access, Disk, Fault, FaultPlan, FaultyDisk},
        key::Seed,
        manifest::Kind,
        work::Inline,
    };
    use std::path::Path;

    fn open(disk: &FaultyDisk) -> Result<Publisher> {
        let folder = Path::new("filter");
        let folder = LockedFolder::create(Arc::new(disk.clone()), folder, Kind::Filter, Site::Own)?;
        folder.sync_above()?;
        let identity = Identity::from(&CascadeOptions::exact(Seed(1), 7));
        Ok(Publisher::new(folder, identity, Arc::new(Inline), Arc::new(Catalog::new(0))))
    }

    fn write_run(publisher: &Publisher) -> Result<Arc<RunFile>> {
        let number = publisher.new_number();
        let place = (&*publisher.folder.disk, &*publisher.folder.path);
        let name = (publisher.identity.run(number), 0);
        let budget = MemoryBudget::unlimited();
        let mut writer = RunWriter::create(place, name, None, &budget, Arc::new(Inline))
            .inspect_err(|_| publisher.discard(&[number]))?;
        let items = FingerprintBatch::from_sorted(vec![number])?;
        let run =
            writer.push(&items).and_then(|()| writer.finish(place.0, place.1, Access::Cached));
        run.map(Arc::new).inspect_err(|_| publisher.discard(&[number]))
    }

    /// Replaces the run of the catalog by a new one.
    fn replace(publisher: &Publisher) -> Result<()> {
        let run = write_run(publisher)?;
        let ranges = KeyRange::all(publisher.identity.universe).into();
        let upper = Upper { run: run.clone(), tier: 0, ranges };
        let change = |view: &mut View| {
            view.epochs[0].uppers = vec![upper];
            Some(())
        };
        publisher.publish(&[run.number()], change, |_| {}).map(drop)
    }

    /// Returns the generation of the manifest; checks that all of its files exist.
    #[track_caller]
    fn check_whole(disk: &dyn Disk, moment: &str) -> u64 {
        let folder = Path::new("filter");
        let Ok(manifest) = Manifest::read(disk, folder) else { return 0 };
        for file in &manifest.files {
            assert!(disk.exists(&folder.join(&file.name)).unwrap(), "{moment}: {}", file.name);
        }
        manifest.generation
    }

    fn doubtful(publisher: &Publisher) -> usize {
        match &publisher.published.lock().unwrap().last {
            Attempt::Settled => 0,
            Attempt::Doubtful { runs } => runs.len(),
        }
    }

    /// Publishes three times on a disk that fails at one operation. Returns whether a result was in
    /// doubt.
    fn check_failure(operation: u64) -> bool {
        let faults = vec![Fault::Failure { operation }];
        let disk = FaultyDisk::new(FaultPlan { seed: 1, faults });
        let Ok(publisher) = open(&disk) else { return false };
        let (mut was_doubtful, mut highest) = (false, 0);
        for i in 0..3 {
            let result = replace(&publisher);
            let moment = format!("failure at {operation}, replacement {i}: {result:?}");
            was_doubtful |= doubtful(&publisher) > 0;
            assert!(result.is_err() || doubtful(&publisher) == 0, "{moment}");
            let generation = check_whole(&disk.snapshot(), &moment);
            assert!(generation >= highest && (result.is_err() || generation > highest), "{moment}");
            highest = generation.max(publisher.published.lock().unwrap().generation);
            for seed in 0..3 {
                check_whole(&disk.after_power_cut(seed), &moment);
            }
        }
        replace(&publisher).unwrap();
        publisher.finish_removing();
        assert_eq!(disk.list(Path::new("filter")).unwrap().len(), 2, "failure at {operation}");
        was_doubtful
    }

    #[test]
    fn a_failure_at_any_point_keeps_the_files_of_both_manifests_until_one_is_certain() {
        let disk = FaultyDisk::new(FaultPlan { seed: 1, faults: Vec::new() });
        let publisher = open(&disk).unwrap();
        (0..3).for_each(|_| replace(&publisher).unwrap());
        let doubts = (0..disk.operations()).filter(|&operation| check_failure(operation)).count();
        assert!(doubts >= 3, "{doubts}");
    }

    #[test]
    fn files_of_a_rejected_change_are_removed() {
        let disk = FaultyDisk::new(FaultPlan { seed: 1, faults: Vec::new() });
        let publisher = open(&disk).unwrap();
        replace(&publisher).unwrap();
        let run = write_run(&publisher).unwrap();
        let install = |_| panic!("nothing is published");
        assert!(!publisher.publish(&[run.number()], |_| None, install).unwrap());
        assert_eq!(disk.list(Path::new("filter")).unwrap().len(), 2);
    }

    #[test]
    fn runs_of_several_doubtful_manifests_are_removed_when_one_is_certain() {
        let mut last = Attempt::Settled;
        last.doubt(&[1]);
        last.doubt(&[2, 3]);
        assert_eq!(last.settle(), [1, 2, 3]);
        assert!(last.settle().is_empty());
    }
}

//! Changes of the topology while the server runs.
//!
//! ```text
//! file, or object of a remote ─ look ─→ newer epoch ─ open the slots that it gives ─→ answer for them
//!                                                                     └ 2 s later: no longer for those it takes
//! ```
//!
//! A thread of its own makes changes, since looks and opening take time. The copy of the last topology beside the
//! configuration file lets the server start without the remote.

use crate::shared::Shared;
use hashfold::{
    Env,
    io::{Access, read_all, replace_file},
    store::SLOTS,
    work::Signal,
};
use hashfold_deploy::{BACK_OFF_MAX, Remote, Topology, TopologyReader, back_off};
use serde::{Deserialize, Serialize};
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};
use tracing::{info, warn};

/// Time between two looks at a file.
const FILE_INTERVAL: Duration = Duration::from_millis(200);
/// Time between two looks at a remote.
const REMOTE_INTERVAL: Duration = Duration::from_millis(500);
/// Time for which a server answers for slots that it no longer has. After half of it, the servers that get them
/// count on it no more: they may have seen the topology later.
const GRACE: Duration = Duration::from_secs(2);
/// Maximum size of a local copy, in bytes: a topology, in which a text may need escapes, and the URL.
const COPY_SIZE_MAX: u64 = 3 * Topology::SIZE_MAX;

/// The place that a topology comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file, and its content at the last look.
    File(PathBuf, Vec<u8>),
    /// The object of a remote, and the file of the local copy.
    Remote { url: String, reader: TopologyReader, copy: PathBuf },
}

/// The local copy of a topology.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalCopy {
    /// URL of the remote that the topology is of.
    remote: String,
    topology: Topology,
}

impl Source {
    pub(crate) fn file(path: &Path) -> Source {
        Source::File(path.to_owned(), Vec::new())
    }

    /// # Errors
    /// The URL is none of a remote.
    pub(crate) fn remote(env: &Env, url: &str, copy: &Path) -> Result<Source, String> {
        let remote = Remote::open(env, url).map_err(|error| error.to_string())?;
        let reader = TopologyReader::new(&remote);
        Ok(Source::Remote { url: url.to_owned(), reader, copy: copy.to_owned() })
    }

    /// Returns the topology to start with: if the remote does not answer, or has an older one, that of the local
    /// copy.
    ///
    /// # Errors
    /// There is no topology that can be used.
    pub(crate) fn start(&mut self, env: &Env) -> Result<Topology, String> {
        let looked = self.look(env);
        let Source::Remote { url, copy, .. } = self else {
            return looked.map(|topology| topology.expect("the first look has a topology"));
        };
        let copied = read_copy(env, copy, url);
        if let Err(reason) = &copied {
            warn!(reason, "the local copy of the topology is not used");
        }
        let copied = copied.ok().flatten();
        match (looked.map(|topology| topology.expect("the first look has one")), copied) {
            (Ok(topology), Some(copied)) if copied.epoch > topology.epoch => {
                let (epoch, older) = (copied.epoch, topology.epoch);
                warn!(
                    epoch,
                    older, "the remote has an older topology than the local copy, which is used"
                );
                Ok(copied)
            }
            (Ok(topology), _) => Ok(topology),
            (Err(error), Some(copied)) => {
                warn!(error, epoch = copied.epoch, "starting with the local copy of the topology");
                Ok(copied)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Reads the topology; `None` if it is the same as at the last look.
    fn look(&mut self, env: &Env) -> Result<Option<Topology>, String> {
        match self {
            Source::File(path, before) => {
                let file = env.disk.open(path, Access::Cached);
                let bytes = file.and_then(|file| read_all(file.as_ref(), Topology::SIZE_MAX));
                let bytes = bytes.map_err(|error| error.to_string())?;
                if **before == *bytes {
                    return Ok(None);
                }
                let topology = Topology::from_bytes(&bytes);
                let topology =
                    topology.map_err(|error| error.at(path.display().to_string()).to_string())?;
                *before = bytes.to_vec();
                Ok(Some(topology))
            }
            Source::Remote { reader, .. } => reader.look().map_err(|error| error.to_string()),
        }
    }

    fn interval(&self) -> Duration {
        match self {
            Source::File(..) => FILE_INTERVAL,
            Source::Remote { .. } => REMOTE_INTERVAL,
        }
    }

    /// Writes the local copy.
    fn keep(&self, env: &Env, topology: &Topology) -> Result<(), String> {
        let Source::Remote { url, copy, .. } = self else { return Ok(()) };
        let document = LocalCopy { remote: url.clone(), topology: topology.clone() };
        let bytes = serde_json::to_vec(&document).expect("all keys are texts");
        replace_file(env.disk.as_ref(), copy, |file| file.write_at(0, &bytes))
            .map_err(|error| error.to_string())
    }
}

/// Reads a local copy; `None` if there is none.
///
/// # Errors
/// The reason why it cannot be used.
fn read_copy(env: &Env, path: &Path, url: &str) -> Result<Option<Topology>, String> {
    let file = match env.disk.open(path, Access::Cached) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened.map_err(|error| error.to_string())?,
    };
    let bytes = read_all(file.as_ref(), COPY_SIZE_MAX).map_err(|error| error.to_string())?;
    let wrong = |error: &dyn ToString| format!("{}: {}", path.display(), error.to_string());
    let copy: LocalCopy = serde_json::from_slice(&bytes).map_err(|error| wrong(&error))?;
    if copy.remote != url {
        return Err(wrong(&format!("expected the topology of {url}, got that of {}", copy.remote)));
    }
    // The text of a topology is its only form.
    Topology::from_bytes(&copy.topology.to_bytes()).map(Some).map_err(|error| wrong(&error))
}

/// The thread's own state.
#[derive(Debug)]
pub(crate) struct Changes {
    source: Source,
    /// The topology that the server acts by.
    current: Topology,
    /// A newer one, whose slots are not open yet, and the time when it was seen.
    pending: Option<(Topology, Duration)>,
    /// The epoch of the topology in the local copy, if this process has written it.
    kept: Option<u64>,
    looks: Attempts,
    openings: Attempts,
    copies: Attempts,
    /// The time when slots end that the topology before gave.
    grace_end: Option<Duration>,
}

/// Attempts at the same work, with a longer wait after each failure.
#[derive(Debug, Default)]
struct Attempts {
    next: Duration,
    failures: u32,
    error: Option<String>,
}

impl Attempts {
    /// Makes an attempt if it is time for it. Returns the result of one that succeeded.
    fn attempt<T>(
        &mut self,
        now: Duration,
        interval: Duration,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Option<T> {
        if now < self.next {
            return None;
        }
        match work() {
            Ok(done) => {
                *self = Attempts { next: now + interval, ..Attempts::default() };
                Some(done)
            }
            Err(error) => {
                self.next = now + back_off(self.failures, BACK_OFF_MAX).max(interval);
                self.failures += 1;
                self.error = Some(error);
                None
            }
        }
    }
}

impl Changes {
    pub(crate) fn new(source: Source, current: Topology) -> Changes {
        Changes {
            source,
            current,
            pending: None,
            kept: None,
            looks: Attempts::default(),
            openings: Attempts::default(),
            copies: Attempts::default(),
            grace_end: None,
        }
    }

    pub(crate) fn current(&self) -> &Topology {
        &self.current
    }

    /// Whether the topology is that of a remote.
    pub(crate) fn is_in_remote(&self) -> bool {
        matches!(self.source, Source::Remote { .. })
    }

    /// Looks at the topology, and goes on with a change. Each part has its own attempts: one that fails holds
    /// back no other.
    fn step(&mut self, shared: &Shared) {
        let now = shared.now();
        let source = &mut self.source;
        let interval = source.interval();
        let looked = self.looks.attempt(now, interval, || source.look(&shared.env));
        if let Some(topology) = looked.flatten() {
            self.see(topology, now);
        }
        self.open_pending(shared, now);
        if self.grace_end.is_some_and(|end| now >= end) {
            self.grace_end = None;
            shared.cluster.end_grace(&self.current);
        }
        let newest = self.pending.as_ref().map_or(&self.current, |(pending, _)| pending);
        if self.kept != Some(newest.epoch) {
            let (source, epoch) = (&self.source, newest.epoch);
            let kept =
                self.copies.attempt(now, Duration::ZERO, || source.keep(&shared.env, newest));
            self.kept = kept.map(|()| epoch);
        }
        let errors = [&self.looks, &self.openings, &self.copies];
        let errors = errors.into_iter().filter_map(|attempts| attempts.error.as_deref());
        shared.cluster.note_error(errors.collect::<Vec<_>>().join("; "));
    }

    /// Returns the newest topology that was seen.
    fn newest(&self) -> &Topology {
        self.pending.as_ref().map_or(&self.current, |(pending, _)| pending)
    }

    /// Takes up a topology that is newer than the ones that were seen.
    fn see(&mut self, topology: Topology, now: Duration) {
        let seen = self.newest().epoch;
        if topology.epoch > seen {
            self.pending = Some((topology, now));
            self.openings = Attempts::default();
        } else if topology.epoch < seen || topology != *self.newest() {
            let epoch = topology.epoch;
            warn!(epoch, newest = seen, "a topology is ignored: its epoch is not larger");
        }
    }

    /// Opens the slots of the pending topology, and answers for them.
    fn open_pending(&mut self, shared: &Shared, now: Duration) {
        let Some((pending, since)) = &self.pending else { return };
        shared.cluster.note_opening(&self.current, pending, *since + GRACE / 2);
        let open = || shared.cluster.take_up(pending, shared);
        if self.openings.attempt(now, Duration::ZERO, open).is_some() {
            info!(epoch = pending.epoch, "the slots of a topology are open");
            self.current = self.pending.take().expect("there is one").0;
            self.grace_end = Some(shared.now() + GRACE);
        }
    }
}

/// Follows the topology until the server stops.
pub(crate) fn follow(shared: &Shared, mut changes: Changes, stop: &Signal) {
    while !shared.is_stopping.load(Relaxed) {
        let seen = stop.count();
        changes.step(shared);
        shared.env.clock.wait(stop, seen, shared.now() + FILE_INTERVAL / 2);
    }
}

/// Returns the ranges of the slots that a server has, in ascending order.
pub(crate) fn ranges(has: impl Fn(u32) -> bool) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for slot in (0..SLOTS).filter(|slot| has(*slot)) {
        match ranges.last_mut() {
            Some(last) if last.end == slot => last.end += 1,
            _ => ranges.push(slot..slot + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashfold::io::{Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk};
    use hashfold_deploy::{Node, Shard};
    use std::sync::Arc;

    const URL: &str = "remote";

    fn path() -> &'static Path {
        Path::new("etc/a.topology.json")
    }

    fn topology(epoch: u64) -> Topology {
        let node = Node { id: "a".into(), host: "h".into(), port: 1, ..Node::default() };
        let shards = vec![Shard { slots: vec![(0, SLOTS - 1)], nodes: vec![node] }];
        Topology { epoch, shards, ..Topology::default() }
    }

    fn keep(env: &Env, epoch: u64) -> Result<(), String> {
        Source::remote(env, URL, path()).unwrap().keep(env, &topology(epoch))
    }

    /// A disk with a copy of the first topology.
    fn disk() -> MemoryDisk {
        let disk = MemoryDisk::default();
        disk.create_folder(path().parent().unwrap()).unwrap();
        keep(&Env::on(Arc::new(disk.clone())), 1).unwrap();
        disk
    }

    #[test]
    fn a_copy_is_the_old_one_or_the_new_one_after_a_failure_at_every_operation() {
        for operation in 0.. {
            let mut kept = Ok(());
            for fault in [Fault::PowerCut { operation }, Fault::Failure { operation }] {
                let faulty = FaultyDisk::over(&disk(), FaultPlan::from(fault));
                kept = keep(&Env::on(Arc::new(faulty.clone())), 2);
                for seed in 0..4 {
                    let env = Env::on(Arc::new(faulty.after_power_cut(seed)));
                    let copy = read_copy(&env, path(), URL).unwrap().unwrap();
                    assert!(copy == topology(2) || (kept.is_err() && copy == topology(1)));
                    keep(&env, 3).unwrap();
                    assert_eq!(read_copy(&env, path(), URL).unwrap(), Some(topology(3)));
                }
            }
            if kept.is_ok() {
                assert!(operation >= 4, "create, write, sync, rename");
                return;
            }
        }
    }

    #[test]
    fn a_damaged_or_foreign_copy_is_not_used() {
        let env = Env::on(Arc::new(disk()));
        assert_eq!(read_copy(&env, Path::new("etc/absent"), URL).unwrap(), None);
        let error = read_copy(&env, path(), "s3://other").unwrap_err();
        assert!(error.ends_with("expected the topology of s3://other, got that of remote"));
        let file = env.disk.open(path(), Access::Cached).unwrap();
        let good = read_all(file.as_ref(), COPY_SIZE_MAX).unwrap().to_vec();
        let write = |bytes: &[u8]| {
            let file = env.disk.create(path(), Access::Cached).unwrap();
            file.write_at(0, bytes).unwrap();
        };
        for end in 0..good.len() {
            write(&good[..end]);
            assert!(read_copy(&env, path(), URL).is_err(), "cut at {end}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            write(&bad);
            // Another name or epoch is as good as this one; nothing panics.
            if let Ok(copy) = read_copy(&env, path(), URL) {
                copy.unwrap().check().unwrap();
            }
        }
    }

    #[test]
    fn attempts_wait_longer_after_each_failure() {
        let (mut attempts, second) = (Attempts::default(), Duration::from_secs(1));
        let fail = |attempts: &mut Attempts, now| {
            let mut is_made = false;
            let done = attempts.attempt(now, Duration::ZERO, || {
                is_made = true;
                Err::<(), _>("wrong".to_owned())
            });
            assert!(done.is_none());
            is_made
        };
        let mut now = second;
        for wait_ms in [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            assert!(fail(&mut attempts, now));
            assert_eq!(attempts.error.as_deref(), Some("wrong"));
            let wait = Duration::from_millis(wait_ms);
            assert!(!fail(&mut attempts, now + wait - Duration::from_millis(1)));
            now += wait;
        }
        assert_eq!(attempts.attempt(now, second, || Ok(7)), Some(7));
        assert_eq!((attempts.error, attempts.next), (None, now + second));
    }
}

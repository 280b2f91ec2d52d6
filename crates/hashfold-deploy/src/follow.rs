//! The follower: keeps the stores of a server at the versions that the pointer of a group names.

use crate::{
    error::{Error, ErrorKind, Result},
    fetch::{FetchOptions, fetch, lists_version, remove_incoming},
    layout::{self, check_name},
    lookout::Lookout,
    objects::Tag,
    observed::FollowState,
    placement::{OpenVersions, Placement},
    pointer::{GroupPointer, Target, Targets, target_of},
    rate::RateLimit,
    ready::{self, NodeSample, NodeVersion, Readiness, VersionState},
    remote::Remote,
    repair::{mend_pointer, repair},
    swap::{BACK_OFF_MAX, Seen, back_off, read_pointer},
};
use hashfold::{
    Env, ErrorClass, ErrorKind as StoreErrorKind, ReadOptions,
    store::{Pointer, Retention, StoreWriter, Version, sample_changes},
    work::{Clock, Signal, Watch},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Maximum time between two reports; controllers count a node as gone that is silent for longer.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Number of keys of a current version that are looked up in an announced one: measures a change of 10 %
/// to within 1 %, and takes less than a second.
const SAMPLE: u64 = 1000;
/// Pause after every few of these keys, unless the options say otherwise.
const SAMPLE_PAUSE: Duration = Duration::from_millis(4);

/// Options of a [`Follower`].
#[derive(Clone, Debug)]
pub struct FollowOptions {
    /// Name of the group.
    pub group: String,
    /// Name of this node, which no other node has.
    pub node: String,
    /// The zone of this node, if it has one: a zone can get versions before all others.
    pub zone: Option<String>,
    /// The stores of the group that this node serves, by name.
    pub stores: BTreeMap<String, FollowedStore>,
    /// The slots that this node serves of its stores, for controllers that wait for enough nodes in each range;
    /// the caller may change them at any time.
    pub placement: Placement,
    /// Time between two looks at the pointer.
    pub poll: Duration,
    /// Options of transfers.
    pub fetch: FetchOptions,
    /// Number of versions besides the current one that stay in each local store, for rollbacks. Others are
    /// removed an hour after they were made, unless they are pinned or in use. Versions that the group has
    /// marked bad do not count.
    pub keep: usize,
    /// Pause after every few keys of the comparison of an announced version with the current one, so that lookups
    /// of clients do not wait for it.
    pub sample_pause: Duration,
}

/// A store of a node.
#[derive(Clone, Debug)]
pub struct FollowedStore {
    /// Folder of the store, which is made if there is none.
    pub folder: PathBuf,
    /// Options with which its versions are opened.
    pub read: ReadOptions,
    /// The version that the server answers from already, if it has opened one.
    pub current: Option<Arc<Version>>,
    /// A flag that the server sets when a read of the active version has met damage: the follower fetches what
    /// is damaged again, and activates the version again.
    pub is_damaged: Arc<AtomicBool>,
    /// The versions that are open: the follower adds those that it opens, the server may add others.
    pub opened: OpenVersions,
    /// Number of lookups in the active version that the server could not answer. A controller that watches a
    /// zone counts those in a new version.
    pub failed_reads: Arc<AtomicU64>,
}

impl FollowedStore {
    /// Returns a store of which no version is open yet.
    pub fn new(folder: &Path, read: ReadOptions) -> FollowedStore {
        FollowedStore {
            folder: folder.to_owned(),
            read,
            current: None,
            is_damaged: Arc::default(),
            opened: OpenVersions::default(),
            failed_reads: Arc::default(),
        }
    }
}

impl FollowOptions {
    /// Returns options with a look at the pointer each half second.
    pub fn new(group: &str, node: &str, stores: BTreeMap<String, FollowedStore>) -> FollowOptions {
        FollowOptions {
            group: group.to_owned(),
            node: node.to_owned(),
            zone: None,
            stores,
            placement: Placement::default(),
            poll: Duration::from_millis(500),
            fetch: FetchOptions::default(),
            keep: 2,
            sample_pause: SAMPLE_PAUSE,
        }
    }
}

/// Number of looks at an older pointer after which it counts as an error, not as an old copy.
const OLDER_MAX: u32 = 3;
/// Time between two repairs of a version, each of which reads all of it, and maximum time between two attempts to
/// fetch bytes that were wrong in the remote.
const REPAIR_INTERVAL: Duration = Duration::from_secs(600);
/// Number of bytes after which work at the rate of transfers looks at the pointer.
const PACED_STEP: u64 = 1 << 20;
/// Age below which versions stay in the local stores, in seconds.
const KEPT_AGE_S: u64 = 3600;

/// The result of preparing versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prepared {
    /// All versions are open.
    All,
    /// The pointer has changed, or other versions are due.
    Interrupted,
}

impl Prepared {
    fn is_all(&self) -> bool {
        *self == Prepared::All
    }
}

/// Whether a follower may go on with work that is less urgent: nothing has come up, and nobody asks it to stop.
fn is_free(prepared: &Result<Prepared>) -> bool {
    prepared.as_ref().map_or_else(|error| !error.is_stop(), Prepared::is_all)
}

/// A version that becomes current on a node.
#[derive(Clone, Debug)]
pub struct Activation {
    /// Name of the store.
    pub store: String,
    /// The version, which is open already; `None` if the group has no version of the store any more: it was
    /// rolled back to a time before its first one.
    pub version: Option<Arc<Version>>,
}

/// The attempts to repair a version, or to fetch it, that met damage or have succeeded.
#[derive(Clone, Debug, Default)]
struct Attempts {
    /// Number of failures, one after the other.
    failures: u32,
    /// The time of the next attempt.
    next: Duration,
    /// The last failure.
    error: Option<Error>,
}

/// A callback that makes versions current on a node: all of them at once, without waiting for anything.
/// An error keeps the versions before; the follower tries again.
pub type Activate<'a> = dyn FnMut(&[Activation]) -> hashfold::Result<()> + 'a;

/// Keeps the stores of a node at the versions that the pointer of a group names.
///
/// A look at the pointer is one small request. Versions that the pointer names, or announces, are
/// fetched, opened, and reported as ready; at the pointer's time they are activated, those of all
/// stores in one call. A transfer is interrupted if the pointer changes, and goes on later. If the object
/// store is gone, everything that is current stays current, and the follower tries again after 0.1 to
/// 30 seconds.
///
/// The caller drives it, in a thread of its own: [`Follower::run`], or [`Follower::step`].
#[derive(Debug)]
pub struct Follower {
    env: Env,
    remote: Remote,
    options: FollowOptions,
    /// The last pointer that was read, and its tag.
    pointer: GroupPointer,
    tag: Option<Tag>,
    /// Whether the last look at the pointer succeeded.
    is_reached: bool,
    /// Number of looks, one after the other, that saw an older pointer.
    older: u32,
    /// The versions that are open, by store and id.
    open: BTreeMap<(String, u64), Arc<Version>>,
    /// The ids of the versions that were activated, by store.
    active: BTreeMap<String, u64>,
    /// The ids of the versions that were activated last, by store, and the number of failed lookups before. A
    /// version that is activated again after a repair keeps the number.
    failed_before: BTreeMap<String, (u64, u64)>,
    /// Announced versions that were compared with a current one, by store and id: the id of the current
    /// one, and the sample if it could be read.
    samples: BTreeMap<(String, u64), (u64, Option<NodeSample>)>,
    /// The stores that have versions in this process because of the pointer.
    given: BTreeSet<String>,
    /// The stores of which the group has no version any more, and this node neither.
    withdrawn: BTreeSet<String>,
    /// The repairs of versions, and their transfers that met damage in the remote, by store and id.
    attempts: BTreeMap<(String, u64), Attempts>,
    /// The versions that no trusted key has signed, by store and id: the sequence number of the pointer when
    /// they were refused, and the error. They are not asked for again before the pointer changes.
    refused: BTreeMap<(String, u64), (u64, Error)>,
    /// The numbers of active versions that are not current in the local store yet, by store; `None` if no
    /// version is active, and one is current there.
    unpublished: BTreeMap<String, Option<u64>>,
    report: Readiness,
    state: FollowState,
    /// The report that was written last, and when.
    written: Option<(Readiness, Duration)>,
    /// Number of failures since the last success.
    failures: u32,
}

impl Follower {
    /// Makes a follower. The versions from which the server answers already count as active.
    ///
    /// # Errors
    /// `Argument` if a name is not plain.
    pub fn new(env: &Env, remote: &Remote, options: FollowOptions) -> Result<Follower> {
        check_name("group", &options.group)?;
        check_name("node", &options.node)?;
        options.zone.as_deref().map_or(Ok(()), |zone| check_name("zone", zone))?;
        let (mut active, mut open) = (BTreeMap::new(), BTreeMap::new());
        for (store, FollowedStore { current, .. }) in &options.stores {
            check_name("store", store)?;
            if let Some(version) = current {
                let id = version.info().name.id;
                active.insert(store.clone(), id);
                // A damaged version is opened again, and reported as failed.
                if version.damage().is_empty() {
                    open.insert((store.clone(), id), version.clone());
                }
            }
        }
        let stores = options.stores.keys().cloned().collect();
        let state = FollowState::default();
        // A follower that never begins must be noticed, too.
        state.looking(env.clock.now());
        Ok(Follower {
            report: Readiness::new(
                env.random.next_u64(),
                options.zone.clone(),
                stores,
                options.placement.get(),
            ),
            env: env.clone(),
            remote: remote.clone(),
            options,
            pointer: GroupPointer::default(),
            tag: None,
            is_reached: false,
            older: 0,
            state,
            open,
            failed_before: active.iter().map(|(store, id)| (store.clone(), (*id, 0))).collect(),
            active,
            samples: BTreeMap::new(),
            given: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            attempts: BTreeMap::new(),
            refused: BTreeMap::new(),
            unpublished: BTreeMap::new(),
            written: None,
            failures: 0,
        })
    }

    /// Returns the last pointer that was read.
    pub fn pointer(&self) -> &GroupPointer {
        &self.pointer
    }

    /// Returns the rate limit of transfers, which any thread may change at any time.
    pub fn rate(&self) -> &RateLimit {
        &self.options.fetch.rate
    }

    /// Returns the state of the follower, which another thread can look at.
    pub fn state(&self) -> &FollowState {
        &self.state
    }

    /// Returns what this node reports.
    pub fn report(&self) -> &Readiness {
        &self.report
    }

    /// Follows the pointer until `stop` is sent. `failed` gets each error; they are all temporary.
    pub fn run(
        &mut self,
        stop: &Signal,
        activate: &mut Activate<'_>,
        failed: &mut dyn FnMut(&Error),
    ) {
        let seen = stop.count();
        let clock = self.env.clock.clone();
        while stop.count() == seen {
            let wait = match self.step_until(stop, seen, activate) {
                Ok(wait) => wait,
                Err(error) if error.is_stop() => return,
                Err(error) => {
                    failed(&error);
                    let until = clock.now() + self.back_off();
                    self.wait_after_failure(stop, seen, until);
                    continue;
                }
            };
            clock.wait(stop, seen, clock.now() + wait);
        }
    }

    /// Waits until a time, until the pointer changes, or until versions are due: one that cannot be fetched
    /// must not delay another one. A pointer that is out of reach is not asked for meanwhile.
    fn wait_after_failure(&mut self, stop: &Signal, seen: u64, until: Duration) {
        let (clock, seq) = (self.env.clock.clone(), self.pointer.seq);
        let is_pending = self.until_due().is_some_and(|wait| !wait.is_zero());
        while self.pointer.seq == seq && stop.count() == seen && clock.now() < until {
            let due = self.until_due().filter(|_| is_pending).unwrap_or(Duration::MAX);
            if due.is_zero() {
                return;
            }
            clock.wait(stop, seen, until.min(clock.now() + due.min(self.options.poll)));
            if self.is_reached && clock.now() < until {
                // The next step meets the error again.
                let _ = self.look();
            }
        }
    }

    /// Returns the time until versions that are open are due; `None` if there are none that are not active,
    /// or if one of them is not open.
    fn until_due(&self) -> Option<Duration> {
        let changed = self.changed();
        let is_open = |(store, target): &(String, Target)| {
            self.open.contains_key(&(store.clone(), target.id.0))
        };
        let is_any = !changed.is_empty() || !self.gone().is_empty();
        let is_ready = is_any && changed.iter().all(is_open);
        is_ready.then(|| self.due().saturating_sub(self.env.clock.unix_time()))
    }

    /// Looks at the pointer once: fetches what is missing, reports, activates what is due. Returns the
    /// time to wait before the next step.
    ///
    /// Sending `stop` cancels a transfer; the next step goes on with it.
    ///
    /// # Errors
    /// The first error of the object store, of a transfer or of `activate`; the other stores are
    /// brought up to date all the same.
    pub fn step(&mut self, stop: &Signal, activate: &mut Activate<'_>) -> Result<Duration> {
        self.step_until(stop, stop.count(), activate)
    }

    /// Makes a step, which ends early if the count of `stop` is no longer `seen`.
    fn step_until(
        &mut self,
        stop: &Signal,
        seen: u64,
        activate: &mut Activate<'_>,
    ) -> Result<Duration> {
        let step = self.steps(stop, seen, activate);
        self.state.report(&self.report);
        self.state.ended(step.as_ref().err().filter(|error| !error.is_stop()));
        step
    }

    fn steps(&mut self, stop: &Signal, seen: u64, activate: &mut Activate<'_>) -> Result<Duration> {
        let looked = self.look();
        self.forget_unwanted();
        self.note_late();
        // What is there is activated, even if the object store is gone meanwhile, and before anything
        // is fetched that is only announced.
        let current = self.current();
        let mut others = self.wanted();
        others.retain(|other| !current.contains(other));
        let mut prepared = self.prepare(current, stop, seen);
        let wait = self.activate_due(activate);
        self.note_late();
        let published = self.publish_locally(stop, seen);
        // A version that fails keeps no other one from getting ready or from being repaired.
        if is_free(&prepared) {
            let next = self.prepare(others, stop, seen);
            self.compare_announced();
            // A repair takes long, so nothing else waits for it.
            let repaired = match is_free(&next) {
                true => self.repair_suspects(stop, seen),
                false => next.clone(),
            };
            prepared = prepared.and(next).and(repaired);
        }
        let reported = if looked.is_ok() { self.write_report() } else { Ok(()) };
        looked?;
        let prepared = prepared?;
        let wait = wait?;
        let published = published?;
        reported?;
        self.failures = 0;
        let is_done = prepared.is_all() && published.is_all();
        Ok(if is_done { wait } else { Duration::ZERO })
    }

    /// Returns the time to wait after a failure.
    fn back_off(&mut self) -> Duration {
        let wait = back_off(self.failures, BACK_OFF_MAX);
        self.failures += 1;
        wait
    }

    /// Reads the pointer, unless it is unchanged, and notes whether it could be read.
    fn look(&mut self) -> Result<()> {
        self.state.looking(self.env.clock.now());
        let looked = self.read();
        self.is_reached = looked.is_ok();
        self.state.looked(self.is_reached, self.env.clock.now());
        looked
    }

    fn read(&mut self) -> Result<()> {
        let seen = read_pointer(&self.remote, &self.options.group, self.tag.as_ref())?;
        let Some(Seen { pointer, tag }) = seen else { return Ok(()) };
        // An object store that returns an older copy must not take a version back.
        if pointer.seq >= self.pointer.seq {
            (self.pointer, self.tag, self.older) = (pointer, tag, 0);
            return Ok(());
        }
        self.older += 1;
        if self.older < OLDER_MAX {
            return Ok(());
        }
        let expected = format!(
            "change {} or a later one, as it was before (if the remote was made anew, restart)",
            self.pointer.seq
        );
        let place = self.remote.objects().place(&layout::pointer(&self.options.group));
        Err(Error::damaged(0, expected, format!("change {}", pointer.seq)).at(place))
    }

    /// Returns the versions that this node answers from, or should.
    fn current(&self) -> Vec<(String, Target)> {
        self.ours(&self.pointer.of_zone(self.options.zone.as_deref()).0)
    }

    /// Returns the time, since 1970, from which on it does.
    fn due(&self) -> Duration {
        Duration::from_millis(self.pointer.of_zone(self.options.zone.as_deref()).1)
    }

    /// Returns the targets of the stores that this node serves.
    fn ours(&self, targets: &Targets) -> Vec<(String, Target)> {
        let ours = targets.iter().filter(|(store, _)| self.options.stores.contains_key(*store));
        ours.map(|(store, target)| (store.clone(), *target)).collect()
    }

    /// Forgets the versions that the pointer neither names nor announces, and closes them, but for those that a
    /// rollback needs.
    fn forget_unwanted(&mut self) {
        let wanted = self.wanted();
        let spare = self.pointer.rollback_target().map(|set| self.ours(set)).unwrap_or_default();
        let spare: BTreeSet<(String, u64)> =
            spare.into_iter().map(|(store, target)| (store, target.id.0)).collect();
        let needed = self.needed();
        self.open.retain(|version, _| needed.contains(version) || spare.contains(version));
        let is_wanted = |(store, id): &(String, u64)| {
            wanted.iter().any(|(name, target)| name == store && target.id.0 == *id)
        };
        self.samples.retain(|version, _| is_wanted(version));
        self.attempts.retain(|version, _| is_wanted(version));
        let seq = self.pointer.seq;
        self.refused.retain(|_, (refused_at, _)| *refused_at == seq);
        for (store, versions) in &mut self.report.versions {
            versions.retain(|number, _| {
                wanted.iter().any(|(name, target)| name == store && target.version == *number)
            });
        }
    }

    /// Returns the versions that the pointer names or announces.
    fn wanted(&self) -> Vec<(String, Target)> {
        let mut wanted = self.ours(&self.pointer.stores);
        wanted.extend(self.ours(&self.pointer.next));
        wanted
    }

    /// Returns the versions that must be open, by store and id: those that the pointer names or announces, and the
    /// active ones, which the server has open and with which others may share tables.
    fn needed(&self) -> BTreeSet<(String, u64)> {
        let wanted = self.wanted().into_iter().map(|(store, target)| (store, target.id.0));
        wanted.chain(self.active.clone()).collect()
    }

    /// Closes the versions that only a rollback needs. Returns whether there were any.
    fn close_spare(&mut self) -> bool {
        let (before, needed) = (self.open.len(), self.needed());
        self.open.retain(|version, _| needed.contains(version));
        self.open.len() < before
    }

    /// Fetches and opens versions. A version that fails does not keep the others; the first error is
    /// returned.
    fn prepare(
        &mut self,
        wanted: Vec<(String, Target)>,
        stop: &Signal,
        seen: u64,
    ) -> Result<Prepared> {
        let mut failure = None;
        for (store, target) in wanted {
            let key = (store.clone(), target.id.0);
            if let Some(version) = self.open.get(&key) {
                let bytes = version.info().bytes();
                self.note_open(&store, &target, bytes);
                continue;
            }
            let made = self.make_ready(&store, &target, stop, seen).and_then(|version| {
                let version = version.map(Arc::new);
                // The slots of the node may have changed while the version was opened.
                let opened = &self.options.stores[&store].opened;
                version.iter().try_for_each(|version| opened.add(version))?;
                Ok(version)
            });
            self.note_refusal(&key, made.as_ref().err());
            match made {
                Ok(Some(version)) => {
                    let bytes = version.info().bytes();
                    self.open.insert(key, version);
                    self.note_open(&store, &target, bytes);
                }
                Ok(None) => return Ok(Prepared::Interrupted),
                Err(error) if error.is_stop() => return Err(error),
                Err(error) => {
                    let text = Some(error.to_string());
                    let failed = NodeVersion::new(VersionState::Failed, 0, 0);
                    self.note(&store, &target, NodeVersion { error: text, ..failed });
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(Prepared::All), Err)
    }

    /// Fetches a version if it is not there, repairs it if it cannot be opened, and opens it. `None` if
    /// something more urgent came up.
    fn make_ready(
        &mut self,
        store: &str,
        target: &Target,
        stop: &Signal,
        seen: u64,
    ) -> Result<Option<Version>> {
        let folder = self.options.stores[store].folder.clone();
        let (number, id) = (target.version, target.id.0);
        // Whatever of a damaged store cannot be used is fetched again.
        mend_pointer(&self.env, &folder)?;
        if !lists_version(self.env.disk.as_ref(), &folder, number, id)? {
            self.check_refused(store, id)?;
            self.check_attempts(store, id)?;
            let trusted = &self.options.fetch.trusted_keys;
            let info = self.remote.read_trusted(store, number, trusted)?.info;
            if info.name.id != id {
                let (expected, got) = (target.id, format!("{:016x}", info.name.id));
                let error = Error::damaged(0, format!("version id {expected}"), got);
                return Err(error.at(self.remote.objects().place(&layout::version(store, number))));
            }
            self.note(store, target, NodeVersion::new(VersionState::Fetching, 0, info.bytes()));
            self.report.seq = self.pointer.seq;
            self.state.report(&self.report);
            // The report is a courtesy: a node that cannot write it may still be able to read.
            let _ = self.write_report();
            let fetched = self.fetch(store, number, stop, seen);
            if let Err(error) = &fetched {
                self.note_failure(store, id, error);
            }
            if !fetched?.is_all() {
                return Ok(None);
            }
        }
        let version = match self.open_version(store, target) {
            Err(error) if error.class() == ErrorClass::Damage && self.may_repair(store, id) => {
                match self.repair(store, target, stop, seen)? {
                    Prepared::All => self.open_version(store, target)?,
                    Prepared::Interrupted => return Ok(None),
                }
            }
            opened => opened?,
        };
        let is_wanted_now = self.current().contains(&(store.to_owned(), *target));
        let due = is_wanted_now.then(|| self.due());
        let lookout = self.lookout(store, number, stop, seen);
        let active = self.active_version(store);
        Ok(self.warm(&version, active, due, lookout)?.is_all().then_some(version))
    }

    /// Fetches a version. If the device is full, removes versions that are no longer needed, and tries once more.
    fn fetch(&self, store: &str, number: u64, stop: &Signal, seen: u64) -> Result<Prepared> {
        let mut fetched = self.transfer(store, number, stop, seen);
        if fetched.as_ref().is_err_and(Error::is_full) {
            fetched = match self.make_space(stop, seen)? {
                Prepared::All => self.transfer(store, number, stop, seen),
                Prepared::Interrupted => return Ok(Prepared::Interrupted),
            };
        }
        if fetched.as_ref().is_err_and(Error::is_full) {
            // A part of a version that does not fit is of no use. The error that says so counts.
            let folder = &self.options.stores[store].folder;
            let _ = remove_incoming(self.env.disk.as_ref(), folder);
        }
        fetched
    }

    fn transfer(&self, store: &str, number: u64, stop: &Signal, seen: u64) -> Result<Prepared> {
        let (watch, is_interrupted) = self.lookout(store, number, stop, seen).watch();
        let (remote, options) = (&self.remote, &self.options.fetch);
        let folder = &self.options.stores[store].folder;
        match fetch(&self.env, remote, store, number, folder, options, &watch) {
            Err(error) if error.is_stop() && is_interrupted.load(Relaxed) => {
                Ok(Prepared::Interrupted)
            }
            fetched => fetched.map(|_| Prepared::All),
        }
    }

    /// Removes versions that are no longer needed from all local stores: they may share a device.
    fn make_space(&self, stop: &Signal, seen: u64) -> Result<Prepared> {
        for (store, FollowedStore { folder, .. }) in &self.options.stores {
            // A store that another process changes, or that cannot be read, gives no space now.
            let Ok(mut writer) = StoreWriter::open(&self.env, folder) else { continue };
            let retained = self.retain(&mut writer, store, stop, seen);
            if !is_free(&retained) {
                return retained;
            }
        }
        Ok(Prepared::All)
    }

    /// Brings what a version has beside the active one into memory, at the rate of transfers, if it is mapped: no
    /// lookup waits for the device when it becomes current. Ends at the time, since 1970, from which on it must be
    /// current, if there is one.
    fn warm(
        &self,
        version: &Version,
        active: Option<&Version>,
        due: Option<Duration>,
        lookout: Lookout,
    ) -> Result<Prepared> {
        let (watch, is_interrupted) = lookout.watch();
        let (paced, clock) = (self.paced(watch), self.env.clock.clone());
        let is_late = move |clock: &Arc<dyn Clock>| due.is_some_and(|due| clock.unix_time() >= due);
        let own_clock = clock.clone();
        let paced = Watch::new(move |bytes| match is_late(&own_clock) {
            true => Err(StoreErrorKind::Stopped.into()),
            false => paced.add(bytes),
        });
        match version.warm(active, &paced) {
            Err(_) if is_interrupted.load(Relaxed) => Ok(Prepared::Interrupted),
            Err(_) if is_late(&clock) => Ok(Prepared::All),
            warmed => Ok(warmed.map(|()| Prepared::All)?),
        }
    }

    /// Returns a watch that limits work to the rate of transfers. `watch` can interrupt it, and counts nothing.
    fn paced(&self, watch: Watch) -> Watch {
        let (rate, clock) = (self.rate().clone(), self.env.clock.clone());
        Watch::new(move |bytes| {
            // In steps, so that the pointer is looked at also while many bytes are paid for.
            let mut left = bytes;
            loop {
                let step = left.min(PACED_STEP);
                rate.take(clock.as_ref(), step);
                watch.add(0)?;
                left -= step;
                if left == 0 {
                    return Ok(());
                }
            }
        })
    }

    /// Returns the version of a store that is active, if it is open.
    fn active_version(&self, store: &str) -> Option<&Version> {
        let id = self.active.get(store)?;
        self.open.get(&(store.to_owned(), *id)).map(|version| &**version)
    }

    /// Opens a version of a local store, in place of those that only a rollback needs if there is no memory for both.
    fn open_version(&mut self, store: &str, target: &Target) -> Result<Version> {
        match self.try_open(store, target) {
            Err(error) if error.is_of_memory() && self.close_spare() => {
                self.try_open(store, target)
            }
            opened => opened,
        }
    }

    /// Opens a version of a local store. Tables that the active version has open are shared, unless they may
    /// be damaged.
    fn try_open(&self, store: &str, target: &Target) -> Result<Version> {
        let FollowedStore { folder, read, is_damaged, .. } = &self.options.stores[store];
        let is_repaired = self.attempts.contains_key(&(store.to_owned(), target.id.0));
        let active = self.active_version(store);
        let opened = match active.filter(|_| !is_repaired && !is_damaged.load(Relaxed)) {
            Some(active) => Version::open_sharing(folder, target.version, read, active),
            None => Version::open(folder, target.version, read),
        };
        Ok(opened?.whole()?)
    }

    /// Fetches again what is damaged of a version.
    fn repair(
        &mut self,
        store: &str,
        target: &Target,
        stop: &Signal,
        seen: u64,
    ) -> Result<Prepared> {
        self.check_refused(store, target.id.0)?;
        let folder = self.options.stores[store].folder.clone();
        let (watch, is_interrupted) = self.lookout(store, target.version, stop, seen).watch();
        let (remote, options) = (&self.remote, &self.options.fetch);
        let repaired = repair(&self.env, remote, store, target.version, &folder, options, &watch);
        self.note_refusal(&(store.to_owned(), target.id.0), repaired.as_ref().err());
        match repaired {
            Err(error) if error.is_stop() && is_interrupted.load(Relaxed) => {
                return Ok(Prepared::Interrupted);
            }
            Err(error) => {
                self.note_failure(store, target.id.0, &error);
                return Err(error);
            }
            Ok(_) => {}
        }
        let next = self.env.clock.now() + REPAIR_INTERVAL;
        let done = Attempts { next, ..Attempts::default() };
        self.attempts.insert((store.to_owned(), target.id.0), done);
        self.samples.retain(|(of, _), _| of != store);
        // If the server answers from it, it has the damaged files open: it must open the version again.
        if self.active.get(store) == Some(&target.id.0) {
            self.active.remove(store);
        }
        Ok(Prepared::All)
    }

    /// Returns the error of a version that was refused since the pointer changed.
    fn check_refused(&self, store: &str, id: u64) -> Result<()> {
        match self.refused.get(&(store.to_owned(), id)) {
            None => Ok(()),
            Some((_, error)) => Err(error.clone()),
        }
    }

    /// Remembers that a version was refused, if that is the error.
    fn note_refusal(&mut self, version: &(String, u64), error: Option<&Error>) {
        if let Some(error) = error.filter(|error| error.is_untrusted()) {
            self.refused.insert(version.clone(), (self.pointer.seq, error.clone()));
        }
    }

    /// Repairs the active versions in which the server has met damage. The next step opens and activates
    /// them again.
    fn repair_suspects(&mut self, stop: &Signal, seen: u64) -> Result<Prepared> {
        for (store, target) in self.current() {
            let id = target.id.0;
            let is_suspect = self.active.get(&store) == Some(&id)
                && self.options.stores[&store].is_damaged.load(Relaxed);
            if is_suspect && self.may_repair(&store, id) {
                if !self.repair(&store, &target, stop, seen)?.is_all() {
                    return Ok(Prepared::Interrupted);
                }
                self.open.remove(&(store, id));
                // They may share the damaged tables.
                self.close_spare();
            }
        }
        Ok(Prepared::All)
    }

    /// Whether the last repair of a version was long ago: if it did not help, the next one may not either.
    fn may_repair(&self, store: &str, id: u64) -> bool {
        let attempts = self.attempts.get(&(store.to_owned(), id));
        attempts.is_none_or(|attempts| self.env.clock.now() >= attempts.next)
    }

    /// Returns the error of a version that met damage in the remote, as long as it is not tried again.
    fn check_attempts(&self, store: &str, id: u64) -> Result<()> {
        let attempts = self.attempts.get(&(store.to_owned(), id));
        let error = attempts.and_then(|attempts| attempts.error.as_ref());
        match error.filter(|_| !self.may_repair(store, id)) {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Notes that an attempt has met damage: the time to the next one doubles with each, so that a remote that
    /// always returns wrong bytes is not asked for them again and again.
    fn note_failure(&mut self, store: &str, id: u64, error: &Error) {
        if error.class() == ErrorClass::Damage {
            let now = self.env.clock.now();
            let attempts = self.attempts.entry((store.to_owned(), id)).or_default();
            attempts.next = now + back_off(attempts.failures, REPAIR_INTERVAL);
            attempts.failures += 1;
            attempts.error = Some(error.clone());
        }
    }

    /// Returns what is to be done during a transfer.
    fn lookout(&self, store: &str, number: u64, stop: &Signal, seen: u64) -> Lookout {
        Lookout {
            remote: self.remote.clone(),
            clock: self.env.clock.clone(),
            group: self.options.group.clone(),
            node: self.options.node.clone(),
            poll: self.options.poll,
            tag: self.tag.clone(),
            seq: self.pointer.seq,
            due: self.until_due().map(|_| self.due()),
            stop: stop.clone(),
            seen,
            state: self.state.clone(),
            version: (store.to_owned(), number),
            report: self.report.clone(),
        }
    }

    /// Returns the current versions that are not active yet.
    fn changed(&self) -> Vec<(String, Target)> {
        let mut changed = self.current();
        changed.retain(|(store, target)| self.active.get(store) != Some(&target.id.0));
        changed
    }

    /// Returns the stores that have no version in the pointer although they had one, and that this node has
    /// not withdrawn yet. A store that the group has never had goes on with the version that it has.
    fn gone(&self) -> Vec<String> {
        let (current, _) = self.pointer.of_zone(self.options.zone.as_deref());
        // A bad version says nothing: it may be marked although the group never had it.
        let was_there = |store: &String| {
            self.given.contains(store)
                || self.pointer.previous.iter().any(|set| set.contains_key(store))
        };
        let own = self.options.stores.keys();
        let gone = own.filter(|store| !current.contains_key(*store) && was_there(store));
        gone.filter(|store| !self.withdrawn.contains(*store)).cloned().collect()
    }

    /// Shows which versions the node does not answer from yet, so that others see when it is late.
    fn note_late(&self) {
        let changed = self.changed().into_iter();
        let versions = changed.map(|(store, target)| (store, target.version)).collect();
        let now = self.env.clock.now();
        let due = now + self.due().saturating_sub(self.env.clock.unix_time());
        self.state.expected(versions, due, now);
    }

    /// Activates the versions whose time has come, all in one call. Returns the time to wait.
    fn activate_due(&mut self, activate: &mut Activate<'_>) -> Result<Duration> {
        let now = self.env.clock.unix_time();
        let due = self.due();
        let (changed, gone) = (self.changed(), self.gone());
        if changed.is_empty() && gone.is_empty() {
            return Ok(self.options.poll);
        }
        if now < due {
            return Ok(self.options.poll.min(due - now));
        }
        let open = |(store, target): &(String, Target)| {
            let version = self.open.get(&(store.clone(), target.id.0))?;
            Some(Activation { store: store.clone(), version: Some(version.clone()) })
        };
        // The stores of a group change together: one that is not ready holds back the others.
        let Some(mut activations) = changed.iter().map(open).collect::<Option<Vec<_>>>() else {
            return Ok(self.options.poll);
        };
        let no_version = |store: &String| Activation { store: store.clone(), version: None };
        activations.extend(gone.iter().map(no_version));
        activate(&activations)?;
        for store in gone {
            self.active.remove(&store);
            self.failed_before.remove(&store);
            self.unpublished.insert(store.clone(), None);
            self.withdrawn.insert(store);
        }
        self.note_active(&changed);
        Ok(self.options.poll)
    }

    /// Notes that versions are active.
    fn note_active(&mut self, changed: &[(String, Target)]) {
        for (store, target) in changed {
            self.active.insert(store.clone(), target.id.0);
            self.given.insert(store.clone());
            self.withdrawn.remove(store);
            // The damage was that of the version before.
            let FollowedStore { is_damaged, failed_reads, .. } = &self.options.stores[store];
            is_damaged.store(false, Relaxed);
            let before = (target.id.0, failed_reads.load(Relaxed));
            let noted = self.failed_before.entry(store.clone()).or_insert(before);
            if noted.0 != target.id.0 {
                *noted = before;
            }
            self.unpublished.insert(store.clone(), Some(target.version));
            for version in self.report.versions.entry(store.clone()).or_default().values_mut() {
                if version.state == VersionState::Current {
                    version.state = VersionState::Ready;
                }
            }
            let bytes = self.open[&(store.clone(), target.id.0)].info().bytes();
            self.note_open(store, target, bytes);
        }
    }

    /// Makes active versions current in the local stores, so that the server finds them after a
    /// restart, even without the object store; then removes versions that are no longer needed.
    fn publish_locally(&mut self, stop: &Signal, seen: u64) -> Result<Prepared> {
        let mut published = Ok(Prepared::All);
        for (store, number) in self.unpublished.clone() {
            let done = self.publish_store(&store, number, stop, seen);
            if !is_free(&done) {
                return done;
            }
            // A store that fails keeps no other one from being published.
            published = published.and(done);
        }
        published
    }

    fn publish_store(
        &mut self,
        store: &str,
        number: Option<u64>,
        stop: &Signal,
        seen: u64,
    ) -> Result<Prepared> {
        // Another process that writes to the store, an update say, does not hold back what the pointer
        // says next: the following step tries again.
        let folder = &self.options.stores[store].folder;
        let mut writer = match StoreWriter::open(&self.env, folder) {
            Err(error) if error.is_busy() => return Ok(Prepared::All),
            // A store that was never fetched has nothing to withdraw.
            Err(error) if error.is_absent() && number.is_none() => {
                self.unpublished.remove(store);
                return Ok(Prepared::All);
            }
            opened => opened?,
        };
        self.publish_in(&mut writer, store, number)?;
        let retained = self.retain(&mut writer, store, stop, seen);
        // What is interrupted goes on in the next step.
        if is_free(&retained) {
            self.unpublished.remove(store);
        }
        retained
    }

    /// Removes versions of a local store that are no longer needed, at the rate of transfers.
    fn retain(
        &self,
        writer: &mut StoreWriter,
        store: &str,
        stop: &Signal,
        seen: u64,
    ) -> Result<Prepared> {
        self.condemn_in(writer, store)?;
        let rules = Retention {
            keep: self.options.placement.get().keep.unwrap_or(self.options.keep),
            age_s_min: KEPT_AGE_S,
            unpublished_age_s_min: KEPT_AGE_S,
            now_s: self.env.clock.unix_time().as_secs(),
            free_bytes_min: 0,
        };
        // No version has the number 0: the progress of none is reported.
        let (watch, is_interrupted) = self.lookout(store, 0, stop, seen).watch();
        match writer.collect(&rules, &self.paced(watch)) {
            Err(_) if is_interrupted.load(Relaxed) => Ok(Prepared::Interrupted),
            removed => Ok(removed.map(|_| Prepared::All)?),
        }
    }

    /// Makes a version current in a local store, or none.
    fn publish_in(&self, writer: &mut StoreWriter, store: &str, number: Option<u64>) -> Result<()> {
        let current = writer.pointer().current;
        match number {
            _ if current == number => {}
            None => writer.unpublish()?,
            Some(number) => {
                // The group's pointer decides, so an older mark in the local store does not count.
                if writer.pointer().bad.contains(&number) {
                    writer.forgive(number)?;
                }
                let open = self
                    .open
                    .iter()
                    .find(|((of, _), version)| of == store && version.info().name.number == number);
                match open {
                    Some((_, version)) => writer.publish_open(version)?,
                    None => writer.publish(number)?,
                }
            }
        }
        Ok(())
    }

    /// Marks the versions of a local store that are bad in the group: they must not take the place of good ones
    /// among those that are kept.
    fn condemn_in(&self, writer: &mut StoreWriter, store: &str) -> Result<()> {
        let Pointer { versions, bad, current, .. } = writer.pointer();
        let others = versions.iter().map(|name| name.number);
        let others = others.filter(|number| *current != Some(*number) && !bad.contains(number));
        for number in others.collect::<Vec<_>>() {
            // A version that cannot be read is not counted.
            let target = writer.version(number).ok().map(|info| target_of(&info));
            if target.is_some_and(|target| self.pointer.is_bad(store, &target)) {
                writer.condemn(number)?;
            }
        }
        Ok(())
    }

    /// Reports a version that is open: as current if it is active, else as ready.
    fn note_open(&mut self, store: &str, target: &Target, bytes: u64) {
        let is_active = self.active.get(store) == Some(&target.id.0);
        let state = if is_active { VersionState::Current } else { VersionState::Ready };
        let mut version = NodeVersion::new(state, bytes, bytes);
        if is_active {
            let before = self.failed_before.get(store).map_or(0, |(_, before)| *before);
            let failed = self.options.stores[store].failed_reads.load(Relaxed);
            version.failed_reads = failed.saturating_sub(before);
        }
        let compared = self.samples.get(&(store.to_owned(), target.id.0));
        version.sample = compared.and_then(|(_, sample)| *sample);
        self.note(store, target, version);
    }

    /// Compares announced versions that are open with the current ones, each once: by a sample of keys.
    fn compare_announced(&mut self) {
        for (store, target) in self.ours(&self.pointer.next) {
            let current = self.pointer.stores.get(&store).copied();
            let Some(current) = current.filter(|current| current.id != target.id) else { continue };
            let key = (store.clone(), target.id.0);
            if self.samples.get(&key).is_some_and(|(id, _)| *id == current.id.0) {
                continue;
            }
            let (Some(old), Some(new)) =
                (self.open.get(&(store.clone(), current.id.0)), self.open.get(&key))
            else {
                continue;
            };
            let bytes = new.info().bytes();
            // Damage is met again by a lookup, and repaired then.
            let sample = sample_changes(old, new, SAMPLE, self.options.sample_pause);
            let sample = sample.ok().map(|sample| NodeSample {
                from: current.version,
                keys: sample.keys,
                removed: sample.removed,
                changed: sample.changed,
            });
            self.samples.insert(key, (current.id.0, sample));
            self.note_open(&store, &target, bytes);
        }
    }

    fn note(&mut self, store: &str, target: &Target, version: NodeVersion) {
        let versions = self.report.versions.entry(store.to_owned()).or_default();
        versions.insert(target.version, version);
    }

    /// Writes the report, if it has changed or is old.
    fn write_report(&mut self) -> Result<()> {
        let now = self.env.clock.now();
        self.report.seq = self.pointer.seq;
        self.report.place(self.options.placement.get());
        if let Some((written, at)) = &self.written
            && now.saturating_sub(*at) < REPORT_INTERVAL
            && (written.seq, written.topology) == (self.report.seq, self.report.topology)
            && (&written.slots, &written.versions) == (&self.report.slots, &self.report.versions)
        {
            return Ok(());
        }
        let alone = self.check_alone();
        self.report.at_ms = self.env.clock.unix_time().as_millis() as u64;
        match self.report.write(&self.remote, &self.options.group, &self.options.node) {
            // Controllers do not wait for a node that cannot report.
            Err(error) if matches!(error.kind(), ErrorKind::ReadOnly) => {}
            written => written?,
        }
        self.written = Some((self.report.clone(), now));
        alone
    }

    /// Refuses to share a name: controllers would count two nodes as one.
    fn check_alone(&self) -> Result<()> {
        let FollowOptions { group, node, .. } = &self.options;
        // The first report replaces that of the process before.
        let other = match self.written {
            Some(_) => ready::read(&self.remote, group, node)?,
            None => None,
        };
        match other.filter(|other| other.epoch != self.report.epoch) {
            None => Ok(()),
            Some(_) => {
                let got = format!("\"{node}\", under which another process reports, too");
                let error = Error::argument("node", "a name of its own for each server", got);
                Err(error.at(self.remote.objects().place(&layout::ready_node(group, node))))
            }
        }
    }
}

//! The controller: publishes, rolls back, and marks versions as bad. Any process may be one.

use crate::{
    error::{Error, ErrorKind, Result},
    gates::{check_entries, check_samples},
    key::TrustedKeys,
    layout::{self, check_name},
    pointer::{GroupPointer, PINNED_MAX, Signed, StoreVersion, Target, Targets, target_of},
    quorum::{Shortage, shortage},
    ready::{self, Readiness},
    remote::Remote,
    swap::{Seen, Swapped, read_pointer, swap},
    trial::{Bake, Baking},
};
use hashfold::{Env, work::Watch};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Maximum number of attempts of a change that is right whatever other controllers have done.
const ATTEMPTS_MAX: usize = 16;
/// Time between two looks at the readiness of nodes.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Options of publishing.
#[derive(Clone, Debug)]
pub struct PublishOptions {
    /// Number of nodes that must have the versions ready, in each range of slots of each store; `None` is that of
    /// the topology in the remote, and if there is none, all that have reported within the last minute, and at least one for each slot, unless all are silent. If
    /// no node has ever reported, none is waited for.
    pub min_ready: Option<usize>,
    /// Time to wait for these nodes.
    pub wait: Duration,
    /// Time from the change of the pointer to its activation, so that all nodes see it before.
    pub lead: Duration,
    /// Whether versions that are marked bad are published.
    pub allow_bad: bool,
    /// Minimum number of entries of each version.
    pub entries_min: u64,
    /// Maximum fraction of the current version's entries that a new version may lack: 0.5 for half of
    /// them, 1 for all. If nodes have compared a sample of keys, this is also the maximum fraction of these
    /// keys that may be missing.
    pub loss_max: f64,
    /// The keys of which one must have signed each version; without keys, versions need no signature.
    pub trusted_keys: TrustedKeys,
    /// Maximum fraction of the sampled keys that may be missing or have another value: 0.1 for a tenth of
    /// them. With a limit, a version is refused if no node has compared a sample.
    pub change_max: Option<f64>,
    /// The zone that gets the versions before all others, and for how long.
    pub bake: Option<Bake>,
    /// Reason of the change, for people.
    pub reason: String,
}

impl Default for PublishOptions {
    fn default() -> PublishOptions {
        PublishOptions {
            min_ready: None,
            wait: Duration::from_secs(3600),
            lead: Duration::from_secs(2),
            allow_bad: false,
            entries_min: 0,
            loss_max: 0.5,
            trusted_keys: TrustedKeys::default(),
            change_max: None,
            bake: None,
            reason: String::new(),
        }
    }
}

/// The result of waiting for nodes.
enum Waited {
    /// Enough of them are ready; these are the reports of all.
    Ready(BTreeMap<String, Readiness>),
    /// Another controller has changed the pointer: it is this one.
    Changed(Box<GroupPointer>),
}

/// The state of a group: its pointer, and the reports of its nodes.
#[derive(Clone, Debug)]
pub struct Status {
    /// The pointer; its sequence number is 0 if nothing was published yet.
    pub pointer: GroupPointer,
    /// The reports of the nodes, by node.
    pub nodes: BTreeMap<String, Readiness>,
}

/// A handle to change the pointer of a group. Any number of processes may have one: a change is one
/// compare-and-swap, and the process that loses a race is refused.
#[derive(Clone, Debug)]
pub struct Controller {
    pub(crate) env: Env,
    remote: Remote,
    group: String,
    by: String,
    /// The sequence number of the only pointer that may be changed; `None` for any.
    only_after: Option<u64>,
}

impl Controller {
    /// Makes a controller of a group. `by` says who it is, for people.
    ///
    /// # Errors
    /// `Argument` if the name of the group is not a plain name.
    pub fn new(env: &Env, remote: &Remote, group: &str, by: &str) -> Result<Controller> {
        check_name("group", group)?;
        let (group, by) = (group.to_owned(), by.to_owned());
        Ok(Controller { env: env.clone(), remote: remote.clone(), group, by, only_after: None })
    }

    /// Limits the controller to one change, of the pointer with this sequence number: the one that a
    /// person has looked at. Any other pointer is an `Overtaken` error.
    #[must_use]
    pub fn only_after(self, seq: u64) -> Controller {
        Controller { only_after: Some(seq), ..self }
    }

    /// Reads the pointer. Its sequence number is 0 if nothing was published yet.
    pub fn pointer(&self) -> Result<GroupPointer> {
        Ok(self.read()?.pointer)
    }

    /// Reads the pointer and the reports of all nodes; no reports of a remote without listings.
    pub fn status(&self) -> Result<Status> {
        let nodes = ready::read_all(&self.remote, &self.group)?;
        Ok(Status { pointer: self.pointer()?, nodes })
    }

    /// Makes versions of one or several stores current, by one change of the pointer. If there are
    /// nodes, announces the versions, waits until enough nodes have them ready, and flips then.
    /// `watch` is called while it waits, and can cancel the call; nothing is flipped then.
    ///
    /// Nodes compare an announced version with the current one, by a sample of keys; gates are limits of what
    /// they have found. With a [`Bake`], the nodes of a zone flip first, and go back if one of them fails.
    /// If a controller dies meanwhile, the zone keeps the versions until another call of this function, of
    /// [`Controller::cancel`] or of [`Controller::roll_back`].
    ///
    /// If these versions are current already, nothing is changed, but that a zone which has others gets them.
    ///
    /// # Errors
    /// `Absent` if a version was not pushed, `Untrusted` if none of the trusted keys has signed it, `Bad` if it is
    /// marked bad, `Gate` if it has too few entries or too many other values, `NotReady` if the time is over or the
    /// zone has no node, `Trial` if the zone was not healthy, `Overtaken` if another controller changed the pointer
    /// meanwhile, `Unconditional` if the object store does not keep the conditions of writes.
    pub fn publish(
        &self,
        versions: &[(String, u64)],
        options: &PublishOptions,
        watch: &Watch,
    ) -> Result<GroupPointer> {
        let (mut targets, mut infos) = (Targets::new(), Vec::new());
        for (store, number) in versions {
            let info = self.remote.read_trusted(store, *number, &options.trusted_keys)?.info;
            if targets.insert(store.clone(), target_of(&info)).is_some() {
                return Err(Error::argument("versions", "each store once", store));
            }
            infos.push((store, info));
        }
        let mut seen = self.read_to_change()?;
        if !options.allow_bad {
            self.check_good(&seen.pointer, &targets)?;
        }
        if seen.pointer.has(&targets) {
            return match seen.pointer.trial {
                None => Ok(seen.pointer),
                Some(_) => self.withdraw(&seen, &options.reason),
            };
        }
        for (store, info) in &infos {
            let current = self.entries_of_current(&seen.pointer, store)?;
            self.refuse(check_entries(store, info, current, options))?;
        }
        self.remote.check(self.env.random.as_ref())?;
        let mut nodes = ready::read_all(&self.remote, &self.group)?;
        if let Some(bake) = &options.bake {
            self.check_zone(&bake.zone, &targets, &nodes)?;
        }
        let is_awaited = !nodes.is_empty() && options.min_ready != Some(0);
        if options.bake.is_some() || is_awaited {
            if seen.pointer.next != targets {
                let signed = self.signed(&options.reason, Duration::ZERO);
                seen = self.change(&seen, seen.pointer.announced(&targets, signed), |newer| {
                    newer.next == targets
                })?;
            }
            nodes = match self.wait(seen.pointer.seq, &targets, options, watch)? {
                Waited::Ready(nodes) => nodes,
                Waited::Changed(pointer) if pointer.has(&targets) => return Ok(*pointer),
                Waited::Changed(pointer) => {
                    return Err(self.overtaken(&pointer, seen.pointer.seq + 1));
                }
            };
        }
        self.refuse(check_samples(&seen.pointer, &targets, &nodes, options))?;
        if let Some(bake) = &options.bake {
            nodes.retain(|_, node| self.is_in_zone(node, &bake.zone, &targets));
            seen = self.bake(seen, Baking { bake, targets: &targets, options, nodes }, watch)?;
        }
        self.flip(&seen, &targets, options)
    }

    /// Makes versions current for all nodes. If that fails, a zone that has them already goes back.
    fn flip(
        &self,
        seen: &Seen,
        targets: &Targets,
        options: &PublishOptions,
    ) -> Result<GroupPointer> {
        let signed = self.signed(&options.reason, options.lead);
        let flipped = seen.pointer.published(targets, signed);
        let is_same = |newer: &GroupPointer| newer.has(targets) && newer.trial.is_none();
        match (self.change(seen, flipped, is_same), &seen.pointer.trial, &options.bake) {
            (Err(error), Some(trial), Some(_)) => Err(self.take_back(seen, trial, error)),
            (changed, ..) => Ok(changed?.pointer),
        }
    }

    /// Turns the refusal of a gate into an error.
    fn refuse(&self, refusal: Option<ErrorKind>) -> Result<()> {
        refusal.map_or(Ok(()), |kind| Err(Error::new(kind).at(self.place())))
    }

    /// Returns the number of entries of the current version of a store; 0 if there is none, or if it was
    /// removed from the remote.
    fn entries_of_current(&self, pointer: &GroupPointer, store: &str) -> Result<u64> {
        let Some(current) = pointer.stores.get(store) else { return Ok(0) };
        match self.remote.version(store, current.version) {
            Ok(info) => Ok(*info.entries().start()),
            Err(error) if matches!(error.kind(), ErrorKind::Absent { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether a node is in a zone, serves one of the stores, and has reported within the last minute.
    fn is_in_zone(&self, node: &Readiness, zone: &str, targets: &Targets) -> bool {
        node.zone.as_deref() == Some(zone)
            && node.serves_any(targets)
            && node.is_live(self.env.clock.unix_time())
    }

    /// Refuses a zone without nodes: nobody would try the versions.
    fn check_zone(
        &self,
        zone: &str,
        targets: &Targets,
        nodes: &BTreeMap<String, Readiness>,
    ) -> Result<()> {
        check_name("zone", zone)?;
        if nodes.values().any(|node| self.is_in_zone(node, zone, targets)) {
            return Ok(());
        }
        let zones: BTreeSet<&str> =
            nodes.values().filter_map(|node| node.zone.as_deref()).collect();
        let zones: Vec<&str> = zones.into_iter().collect();
        let got = format!(
            "none in zone {zone} that has reported within a minute; zones of servers: {}",
            if zones.is_empty() { "none".to_owned() } else { zones.join(", ") }
        );
        Err(Error::new(ErrorKind::NotReady { expected: 1, got }).at(self.place()))
    }

    /// Makes the latest earlier set of versions current in which none is marked bad and all are still in the
    /// remote, and marks the versions that it replaces. Takes the same time for data of any size.
    ///
    /// Waits for no node: a node that has removed the versions fetches them, and goes on with the bad ones
    /// meanwhile, but holds back no other node.
    ///
    /// While a zone uses other versions than the rest, these are what is taken back and marked; the current
    /// ones stay.
    ///
    /// # Errors
    /// `NoEarlier` if there is no such set, `Overtaken` if another controller changed the pointer
    /// meanwhile.
    pub fn roll_back(&self, reason: &str, lead: Duration) -> Result<GroupPointer> {
        let seen = self.read_to_change()?;
        self.remote.check(self.env.random.as_ref())?;
        let signed = self.signed(reason, lead);
        let back = match seen.pointer.trial {
            Some(_) => seen.pointer.taken_back(signed),
            None => seen.pointer.rolled_back(self.earlier_set(&seen.pointer)?, signed),
        };
        let stores = back.stores.clone();
        let is_same = |newer: &GroupPointer| newer.stores == stores && newer.trial.is_none();
        Ok(self.change(&seen, back, is_same)?.pointer)
    }

    /// Returns the latest earlier set of versions in which none is marked bad and all are still in the remote.
    fn earlier_set<'p>(&self, pointer: &'p GroupPointer) -> Result<&'p Targets> {
        for set in pointer.good_sets() {
            if self.is_in_remote(set)? {
                return Ok(set);
            }
        }
        Err(Error::new(ErrorKind::NoEarlier).at(self.place()))
    }

    /// Whether the remote has all of these versions.
    fn is_in_remote(&self, targets: &Targets) -> Result<bool> {
        for (store, target) in targets {
            let found = self.remote.find_version(store, target.version)?;
            if found.is_none_or(|found| found.info.name.id != target.id.0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Withdraws the versions that a controller waits to publish: nodes stop fetching them, those of a zone
    /// that uses them go back to the versions before, and that controller gets `Overtaken`. If there are
    /// none, nothing is changed.
    ///
    /// # Errors
    /// `Overtaken` if another controller changed the pointer meanwhile.
    pub fn cancel(&self, reason: &str) -> Result<GroupPointer> {
        let seen = self.read_to_change()?;
        if seen.pointer.next.is_empty() {
            return Ok(seen.pointer);
        }
        self.withdraw(&seen, reason)
    }

    /// Announces no versions.
    fn withdraw(&self, seen: &Seen, reason: &str) -> Result<GroupPointer> {
        self.remote.check(self.env.random.as_ref())?;
        let none = Targets::new();
        let withdrawn = seen.pointer.announced(&none, self.signed(reason, Duration::ZERO));
        Ok(self.change(seen, withdrawn, |newer| newer.next.is_empty())?.pointer)
    }

    /// Marks a version as bad, so that it is not published. A version that is current must be rolled
    /// back instead.
    ///
    /// # Errors
    /// `Argument` if the version is current, `Absent` if it was not pushed.
    pub fn mark_bad(&self, store: &str, number: u64, reason: &str) -> Result<GroupPointer> {
        let target = self.remote.target(store, number)?;
        let bad = StoreVersion { store: store.to_owned(), target };
        self.note(|pointer| {
            self.check_not_current(pointer, store, &target)?;
            let is_marked = pointer.bad.contains(&bad);
            let marked = || pointer.marked(bad.clone(), self.signed(reason, Duration::ZERO));
            Ok((!is_marked).then(marked))
        })
    }

    /// Pins a version: [`collect`](crate::collect) keeps it in the remote until it is released.
    ///
    /// # Errors
    /// `Absent` if the version was not pushed, `Argument` if 1024 versions are pinned.
    pub fn pin(&self, store: &str, number: u64, reason: &str) -> Result<GroupPointer> {
        let target = self.remote.target(store, number)?;
        let version = StoreVersion { store: store.to_owned(), target };
        self.note(|pointer| {
            if pointer.pinned.contains(&version) {
                return Ok(None);
            }
            if pointer.pinned.len() >= PINNED_MAX {
                let (expected, got) = (format!("at most {PINNED_MAX}"), "one more");
                return Err(Error::argument("pinned versions", expected, got).at(self.place()));
            }
            let signed = self.signed(reason, Duration::ZERO);
            Ok(Some(pointer.pinning(version.clone(), signed)))
        })
    }

    /// Releases a version that was pinned.
    ///
    /// # Errors
    /// `Absent` if it is not pinned.
    pub fn release(&self, store: &str, number: u64, reason: &str) -> Result<GroupPointer> {
        self.note(|pointer| {
            let is_meant =
                |pinned: &&StoreVersion| pinned.store == store && pinned.target.version == number;
            let Some(version) = pointer.pinned.iter().find(is_meant) else {
                let what = format!("pin of version {number} of store {store}");
                return Err(Error::new(ErrorKind::Absent { what }).at(self.place()));
            };
            Ok(Some(pointer.releasing(version, self.signed(reason, Duration::ZERO))))
        })
    }

    /// Changes what the pointer says about versions, also if other controllers change it meanwhile. `change`
    /// returns the next pointer, or `None` if this one says it already.
    fn note(
        &self,
        change: impl Fn(&GroupPointer) -> Result<Option<GroupPointer>>,
    ) -> Result<GroupPointer> {
        self.remote.check(self.env.random.as_ref())?;
        let mut seen = self.read_to_change()?;
        for _ in 0..ATTEMPTS_MAX {
            let Some(next) = change(&seen.pointer)? else { return Ok(seen.pointer) };
            match self.swap(&seen, next)? {
                Swapped::Done(seen) => return Ok(seen.pointer),
                Swapped::Newer(newer) if self.only_after.is_some() => {
                    return Err(self.overtaken(&newer.pointer, seen.pointer.seq + 1));
                }
                Swapped::Newer(newer) => seen = newer,
            }
        }
        Err(self.overtaken(&seen.pointer, seen.pointer.seq))
    }

    fn read(&self) -> Result<Seen> {
        let seen = read_pointer(&self.remote, &self.group, None)?;
        Ok(seen.expect("without a known tag the pointer is read"))
    }

    /// Reads the pointer, unless it is another one than the controller may change.
    fn read_to_change(&self) -> Result<Seen> {
        let seen = self.read()?;
        match self.only_after.filter(|seq| *seq != seen.pointer.seq) {
            None => Ok(seen),
            Some(seq) => Err(self.overtaken(&seen.pointer, seq.saturating_add(1))),
        }
    }

    pub(crate) fn place(&self) -> String {
        self.remote.objects().place(&layout::pointer(&self.group))
    }

    pub(crate) fn swap(&self, before: &Seen, after: GroupPointer) -> Result<Swapped> {
        swap(&self.remote, self.env.clock.as_ref(), &self.group, before, after)
    }

    /// Replaces the pointer. A newer pointer of another controller is accepted if it `is_same` in
    /// effect.
    pub(crate) fn change(
        &self,
        before: &Seen,
        after: GroupPointer,
        is_same: impl Fn(&GroupPointer) -> bool,
    ) -> Result<Seen> {
        let expected = after.seq;
        match self.swap(before, after)? {
            Swapped::Newer(newer) if is_same(&newer.pointer) => Ok(newer),
            Swapped::Newer(newer) => Err(self.overtaken(&newer.pointer, expected)),
            Swapped::Done(seen) => Ok(seen),
        }
    }

    pub(crate) fn overtaken(&self, newer: &GroupPointer, expected: u64) -> Error {
        let GroupPointer { seq, by, reason, .. } = newer;
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let got = format!("change {seq} by {by}{reason}");
        Error::new(ErrorKind::Overtaken { expected, got }).at(self.place())
    }

    pub(crate) fn signed(&self, reason: &str, lead: Duration) -> Signed {
        let random = || self.env.random.next_u64();
        let activate_at = self.env.clock.unix_time() + lead;
        Signed {
            by: self.by.clone(),
            nonce: format!("{:016x}{:016x}", random(), random()),
            reason: reason.to_owned(),
            activate_at_ms: activate_at.as_millis() as u64,
        }
    }

    fn check_good(&self, pointer: &GroupPointer, targets: &Targets) -> Result<()> {
        match targets.iter().find(|(store, target)| pointer.is_bad(store, target)) {
            None => Ok(()),
            Some((store, target)) => {
                let what = format!("version {} of store {store}", target.version);
                Err(Error::new(ErrorKind::Bad { what }).at(self.place()))
            }
        }
    }

    fn check_not_current(
        &self,
        pointer: &GroupPointer,
        store: &str,
        target: &Target,
    ) -> Result<()> {
        match pointer.stores.get(store).filter(|current| current.id == target.id) {
            None => Ok(()),
            Some(current) => {
                let expected = "a version that is not current; roll back instead";
                let error = Error::argument("version to mark as bad", expected, current.version);
                Err(error.at(self.place()))
            }
        }
    }

    /// Returns the error for too few nodes. `states` are those of the nodes that have the slots.
    fn not_ready(&self, shortage: &Shortage, states: &[String]) -> Error {
        let Shortage { store, slots, expected, ready } = shortage;
        let place = match shortage.is_everywhere() {
            true => String::new(),
            false => format!(" in slots {} to {} of {store}", slots.start(), slots.end()),
        };
        let states = if states.is_empty() { "no server".to_owned() } else { states.join("; ") };
        let got = format!("{ready}{place}: {states}");
        Error::new(ErrorKind::NotReady { expected: *expected, got }).at(self.place())
    }

    /// Returns the error for a zone that gets the versions first and has live nodes that are not ready.
    fn zone_missing(
        &self,
        nodes: &BTreeMap<String, Readiness>,
        targets: &Targets,
        options: &PublishOptions,
        announced: u64,
    ) -> Option<Error> {
        let zone = &options.bake.as_ref()?.zone;
        let now = self.env.clock.unix_time();
        let is_of_zone = |(_, node): &(&String, &Readiness)| {
            node.zone.as_ref() == Some(zone) && node.is_live(now) && node.serves_any(targets)
        };
        let of_zone: Vec<_> = nodes.iter().filter(is_of_zone).collect();
        let ready = of_zone.iter().filter(|(_, node)| node.has_ready(targets, announced)).count();
        let expected = of_zone.len();
        let state =
            |(name, node): &(&String, &Readiness)| format!("{name} ({})", node.describe(targets));
        let states: Vec<String> = of_zone.iter().map(state).collect();
        let got = format!("{ready} in zone {zone}: {}", states.join("; "));
        let error = || Error::new(ErrorKind::NotReady { expected, got }).at(self.place());
        (ready < expected).then(error)
    }

    /// Waits until enough nodes have seen the announcement of the versions and have them ready, among them
    /// all of the zone that gets them first, or until the pointer is no longer the announced one.
    fn wait(
        &self,
        announced: u64,
        targets: &Targets,
        options: &PublishOptions,
        watch: &Watch,
    ) -> Result<Waited> {
        let clock = self.env.clock.as_ref();
        let end = clock.now().saturating_add(options.wait);
        loop {
            watch.add(0)?;
            let pointer = self.pointer()?;
            if pointer.seq != announced {
                return Ok(Waited::Changed(Box::new(pointer)));
            }
            let mut nodes = ready::read_all(&self.remote, &self.group)?;
            let topology = self.remote.topology()?;
            topology.iter().for_each(|topology| ready::compare(&mut nodes, topology));
            let min_ready = options.min_ready.or(topology.and_then(|topology| topology.min_ready));
            let now = clock.unix_time();
            let is_live = |node: &&Readiness| node.is_live(now) && node.serves_any(targets);
            let live: Vec<&Readiness> = nodes.values().filter(is_live).collect();
            let lacking = shortage(&live, targets, min_ready, announced);
            let missing = self.zone_missing(&nodes, targets, options, announced);
            if lacking.is_none() && missing.is_none() {
                return Ok(Waited::Ready(nodes));
            }
            if clock.now() >= end {
                let Some(shortage) = lacking else { return Err(missing.expect("one is lacking")) };
                let concerned = nodes.iter().filter(|(_, node)| {
                    node.serves(&shortage.store) && node.has_slot(*shortage.slots.start())
                });
                let states = concerned.map(|(name, node)| match node.is_live(now) {
                    true => format!("{name} ({})", node.describe(targets)),
                    false => format!("{name} (silent)"),
                });
                return Err(self.not_ready(&shortage, &states.collect::<Vec<_>>()));
            }
            clock.sleep(LOOK_INTERVAL);
        }
    }
}

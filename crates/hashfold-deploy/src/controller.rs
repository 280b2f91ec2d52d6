//! The controller: publishes, rolls back, and marks versions as bad. Any process may be one.

use crate::{
    error::{Error, ErrorKind, Result},
    layout::{self, check_name},
    pointer::{BadVersion, GroupPointer, Signed, Target, Targets, target_of},
    ready::{self, Readiness},
    remote::Remote,
    swap::{Seen, Swapped, read_pointer, swap},
};
use hashfold::{Env, store::VersionInfo, work::Watch};
use std::{collections::BTreeMap, time::Duration};

/// Maximum number of attempts of a change that is right whatever other controllers have done.
const ATTEMPTS_MAX: usize = 16;
/// Time between two looks at the readiness of nodes.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Age of a report above which its node counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Options of publishing.
#[derive(Clone, Debug)]
pub struct PublishOptions {
    /// Number of nodes that must have the versions ready; `None` is all that serve one of the stores and
    /// have reported within the last minute. If no node has ever reported, none is waited for.
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
    /// them, 1 for all.
    pub loss_max: f64,
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
            reason: String::new(),
        }
    }
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
    env: Env,
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

    /// Reads the pointer and the reports of all nodes.
    pub fn status(&self) -> Result<Status> {
        let nodes = ready::read_all(&self.remote, &self.group)?;
        Ok(Status { pointer: self.pointer()?, nodes })
    }

    /// Makes versions of one or several stores current, by one change of the pointer. If there are
    /// nodes, announces the versions, waits until enough nodes have them ready, and flips then.
    /// `watch` is called while it waits, and can cancel the call; nothing is flipped then.
    ///
    /// If these versions are current already, nothing is changed.
    ///
    /// # Errors
    /// `Absent` if a version was not pushed, `Bad` if it is marked bad, `Gate` if it has too few entries,
    /// `NotReady` if the time is over,
    /// `Overtaken` if another controller changed the pointer meanwhile, `Unconditional` if the object
    /// store does not keep the conditions of writes.
    pub fn publish(
        &self,
        versions: &[(String, u64)],
        options: &PublishOptions,
        watch: &Watch,
    ) -> Result<GroupPointer> {
        let (mut targets, mut infos) = (Targets::new(), Vec::new());
        for (store, number) in versions {
            let info = self.remote.version(store, *number)?;
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
            return Ok(seen.pointer);
        }
        for (store, info) in &infos {
            self.check_entries(&seen.pointer, store, info, options)?;
        }
        self.remote.check(self.env.random.as_ref())?;
        let nodes = ready::read_all(&self.remote, &self.group)?;
        if !nodes.is_empty() && options.min_ready != Some(0) {
            if seen.pointer.next != targets {
                let signed = self.signed(&options.reason, Duration::ZERO);
                seen = self.change(&seen, seen.pointer.announced(&targets, signed), |newer| {
                    newer.next == targets
                })?;
            }
            self.wait(seen.pointer.seq, &targets, options, watch)?;
        }
        let signed = self.signed(&options.reason, options.lead);
        let flipped = seen.pointer.published(&targets, signed);
        Ok(self.change(&seen, flipped, |newer| newer.has(&targets))?.pointer)
    }

    /// Refuses a version that has too few entries. A current version that was removed from the remote is
    /// not compared.
    fn check_entries(
        &self,
        pointer: &GroupPointer,
        store: &str,
        info: &VersionInfo,
        options: &PublishOptions,
    ) -> Result<()> {
        let current = match pointer.stores.get(store) {
            None => 0,
            Some(current) => match self.remote.version(store, current.version) {
                Ok(info) => *info.entries().start(),
                Err(error) if matches!(error.kind(), ErrorKind::Absent { .. }) => 0,
                Err(error) => return Err(error),
            },
        };
        let kept = current as f64 * (1.0 - options.loss_max);
        let (min, got) = (options.entries_min.max(kept.ceil() as u64), *info.entries().end());
        match got >= min {
            true => Ok(()),
            false => {
                let what = format!("version {} of store {store}", info.name.number);
                let expected = format!("at least {min}");
                Err(Error::new(ErrorKind::Gate { what, expected, got }).at(self.place()))
            }
        }
    }

    /// Makes the latest earlier set of versions current in which none is marked bad, and marks the
    /// versions that it replaces. Takes the same time for data of any size: nodes still have the files
    /// open.
    ///
    /// # Errors
    /// `NoEarlier` if there is no such set, `Overtaken` if another controller changed the pointer
    /// meanwhile.
    pub fn roll_back(&self, reason: &str, lead: Duration) -> Result<GroupPointer> {
        let seen = self.read_to_change()?;
        self.remote.check(self.env.random.as_ref())?;
        let Some(back) = seen.pointer.rolled_back(self.signed(reason, lead)) else {
            return Err(Error::new(ErrorKind::NoEarlier).at(self.place()));
        };
        let stores = back.stores.clone();
        Ok(self.change(&seen, back, |newer| newer.stores == stores)?.pointer)
    }

    /// Withdraws the versions that a controller waits to publish: nodes stop fetching them, and that
    /// controller gets `Overtaken`. If there are none, nothing is changed.
    ///
    /// # Errors
    /// `Overtaken` if another controller changed the pointer meanwhile.
    pub fn cancel(&self, reason: &str) -> Result<GroupPointer> {
        let seen = self.read_to_change()?;
        if seen.pointer.next.is_empty() {
            return Ok(seen.pointer);
        }
        self.remote.check(self.env.random.as_ref())?;
        let none = Targets::new();
        let cancelled = seen.pointer.announced(&none, self.signed(reason, Duration::ZERO));
        Ok(self.change(&seen, cancelled, |newer| newer.next.is_empty())?.pointer)
    }

    /// Marks a version as bad, so that it is not published. A version that is current must be rolled
    /// back instead.
    ///
    /// # Errors
    /// `Argument` if the version is current, `Absent` if it was not pushed.
    pub fn mark_bad(&self, store: &str, number: u64, reason: &str) -> Result<GroupPointer> {
        let target = self.remote.target(store, number)?;
        self.remote.check(self.env.random.as_ref())?;
        let mut seen = self.read_to_change()?;
        for _ in 0..ATTEMPTS_MAX {
            self.check_not_current(&seen.pointer, store, &target)?;
            let bad = BadVersion { store: store.to_owned(), target };
            if seen.pointer.bad.contains(&bad) {
                return Ok(seen.pointer);
            }
            let marked = seen.pointer.marked(bad, self.signed(reason, Duration::ZERO));
            match self.swap(&seen, marked)? {
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

    fn place(&self) -> String {
        self.remote.objects().place(&layout::pointer(&self.group))
    }

    fn swap(&self, before: &Seen, after: GroupPointer) -> Result<Swapped> {
        swap(&self.remote, self.env.clock.as_ref(), &self.group, before, after)
    }

    /// Replaces the pointer. A newer pointer of another controller is accepted if it `is_same` in
    /// effect.
    fn change(
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

    fn overtaken(&self, newer: &GroupPointer, expected: u64) -> Error {
        let GroupPointer { seq, by, reason, .. } = newer;
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let got = format!("change {seq} by {by}{reason}");
        Error::new(ErrorKind::Overtaken { expected, got }).at(self.place())
    }

    fn signed(&self, reason: &str, lead: Duration) -> Signed {
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

    /// Waits until enough nodes have the versions ready, or until the pointer is no longer the announced
    /// one: then the change that follows finds out what happened.
    fn wait(
        &self,
        announced: u64,
        targets: &Targets,
        options: &PublishOptions,
        watch: &Watch,
    ) -> Result<()> {
        let clock = self.env.clock.as_ref();
        let end = clock.now().saturating_add(options.wait);
        loop {
            watch.add(0)?;
            if self.pointer()?.seq != announced {
                return Ok(());
            }
            let nodes = ready::read_all(&self.remote, &self.group)?;
            let now_ms = clock.unix_time().as_millis() as u64;
            let is_live = |node: &&Readiness| {
                now_ms.saturating_sub(node.at_ms) <= SILENCE_MAX.as_millis() as u64
                    && node.serves_any(targets)
            };
            let live = nodes.values().filter(is_live).count();
            let expected = options.min_ready.unwrap_or(live);
            let ready =
                nodes.values().filter(is_live).filter(|node| node.is_ready(targets)).count();
            if ready >= expected {
                return Ok(());
            }
            if clock.now() >= end {
                let concerned = nodes.iter().filter(|(_, node)| node.serves_any(targets));
                let states = concerned.map(|(name, node)| match is_live(&node) {
                    true => format!("{name} ({})", node.describe(targets)),
                    false => format!("{name} (silent)"),
                });
                let states: Vec<String> = states.collect();
                let got = format!("{ready}: {}", states.join("; "));
                return Err(Error::new(ErrorKind::NotReady { expected, got }).at(self.place()));
            }
            clock.sleep(LOOK_INTERVAL);
        }
    }
}

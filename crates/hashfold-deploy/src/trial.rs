//! Trials: the nodes of one zone use new versions before all others, and are watched meanwhile.
//!
//! ```text
//! announced ─ all ready ─→ trial: the zone flips ─ healthy for a while ─→ published: all flip
//!                            └ a node fails, or a gate ─→ nothing announced: the zone flips back
//! ```
//!
//! Each arrow is one compare-and-swap of the pointer, so that the state is known whenever the controller
//! dies. A trial stays until another change of the pointer ends it.

use crate::{
    controller::{Controller, PublishOptions, Status},
    error::{Error, ErrorKind, Result},
    gates::check_samples,
    pointer::{GroupPointer, Targets, Trial},
    ready::{Readiness, SILENCE_MAX},
    swap::{Seen, Swapped},
};
use hashfold::work::Watch;
use std::{collections::BTreeMap, time::Duration};

/// Maximum number of attempts to end a trial while other controllers change the pointer.
const ATTEMPTS_MAX: usize = 16;
/// Time between two looks at the nodes of a zone.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time after the moment of the flip in which the nodes of a zone must have said that they have flipped.
const FLIP_MAX: Duration = Duration::from_secs(60);

/// A zone that gets versions before all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bake {
    /// Name of the zone.
    pub zone: String,
    /// Time for which all of its nodes must use the versions without a failure. They must say so again after
    /// this time, which takes up to ten seconds more.
    pub time: Duration,
}

/// The versions that a zone tries, and the limits that they are held to.
pub(crate) struct Baking<'a> {
    pub(crate) bake: &'a Bake,
    pub(crate) targets: &'a Targets,
    pub(crate) options: &'a PublishOptions,
    /// The nodes of the zone that must stay healthy, with their last reports.
    pub(crate) nodes: BTreeMap<String, Readiness>,
}

impl Baking<'_> {
    /// Takes over newer reports. A report that is missing this time keeps the one before, which gets old.
    fn update(&mut self, mut newer: BTreeMap<String, Readiness>) {
        for (name, node) in &mut self.nodes {
            if let Some(newer) = newer.remove(name) {
                *node = newer;
            }
        }
    }

    /// Fails if a node is silent or meets the condition.
    fn refuse(&self, now: Duration, is_wrong: impl Fn(&Readiness) -> bool) -> Result<()> {
        let state = |(name, node): (&String, &Readiness)| match node.is_live(now) {
            false => Some(format!("{name} (silent)")),
            true => is_wrong(node).then(|| format!("{name} ({})", node.describe(self.targets))),
        };
        let states: Vec<String> = self.nodes.iter().filter_map(state).collect();
        if states.is_empty() { Ok(()) } else { Err(self.failed(states.join("; "))) }
    }

    fn failed(&self, got: String) -> Error {
        ErrorKind::Trial { zone: self.bake.zone.clone(), got, left: None }.into()
    }

    /// Checks the nodes at a time since 1970, and returns whether all of them use the versions.
    fn check(&self, pointer: &GroupPointer, now: Duration) -> Result<bool> {
        self.refuse(now, |node| node.has_failed(self.targets))?;
        if let Some(refusal) = check_samples(pointer, self.targets, &self.nodes, self.options) {
            return Err(self.failed(describe_gate(refusal)));
        }
        Ok(self.nodes.values().all(|node| node.is_current(self.targets)))
    }

    /// Whether all nodes have reported after a time since 1970, by their clocks.
    fn have_reported_after(&self, time: Duration) -> bool {
        self.nodes.values().all(|node| Duration::from_millis(node.at_ms) >= time)
    }
}

/// Returns the refusal of a gate without its consequence.
fn describe_gate(refusal: ErrorKind) -> String {
    match refusal {
        ErrorKind::Gate { what, expected, got } => {
            format!("{what} does not pass the gate: expected {expected}, got {got}")
        }
        other => other.to_string(),
    }
}

impl Controller {
    /// Lets the nodes of a zone use announced versions, and returns the pointer after all of them did so for
    /// long enough. After a failure of any kind, they go back to the versions before.
    pub(crate) fn bake(&self, seen: Seen, baking: Baking<'_>, watch: &Watch) -> Result<Seen> {
        let (seen, trial) = self.begin_trial(seen, &baking)?;
        match self.watch_zone(&seen, &trial, baking, watch) {
            Ok(()) => Ok(seen),
            Err(error) => Err(self.take_back(&seen, &trial, error)),
        }
    }

    /// Begins a trial, or goes on with the one that another controller has begun with the same versions.
    fn begin_trial(&self, seen: Seen, baking: &Baking<'_>) -> Result<(Seen, Trial)> {
        let Baking { bake: Bake { zone, .. }, targets, options, .. } = baking;
        let begun = seen.pointer.trial.clone().filter(|trial| trial.zone == *zone);
        if let Some(trial) = begun.filter(|_| seen.pointer.next == **targets) {
            return Ok((seen, trial));
        }
        let signed = self.signed(&options.reason, options.lead);
        let activate_at_ms = signed.activate_at_ms;
        let tried = seen.pointer.tried(targets, zone, signed);
        let trial = Trial { zone: zone.clone(), activate_at_ms };
        match self.change(&seen, tried, |newer| newer.trial.as_ref() == Some(&trial)) {
            Ok(begun) => Ok((begun, trial)),
            Err(error) => Err(self.take_back(&seen, &trial, error)),
        }
    }

    /// Watches the nodes of a zone until they were healthy for long enough, or until another controller has
    /// published the versions for all.
    fn watch_zone(
        &self,
        seen: &Seen,
        trial: &Trial,
        mut baking: Baking<'_>,
        watch: &Watch,
    ) -> Result<()> {
        let clock = self.env.clock.as_ref();
        let late = Duration::from_millis(trial.activate_at_ms) + FLIP_MAX;
        let (mut reached, mut healthy_since) = (clock.now(), None);
        loop {
            watch.add(0)?;
            match self.status() {
                // One lost request says nothing about the nodes.
                Err(error) if clock.now() - reached > SILENCE_MAX => return Err(error),
                Err(_) => {}
                Ok(Status { pointer, .. }) if pointer.seq != seen.pointer.seq => {
                    return match pointer.has(baking.targets) {
                        true => Ok(()),
                        false => Err(self.overtaken(&pointer, seen.pointer.seq + 1)),
                    };
                }
                Ok(Status { pointer, nodes }) => {
                    reached = clock.now();
                    baking.update(nodes);
                    let now = clock.unix_time();
                    if baking.check(&pointer, now)? {
                        let since: Duration = *healthy_since.get_or_insert(now);
                        // A node that died meanwhile must not count as healthy until it counts as gone.
                        if baking.have_reported_after(since.saturating_add(baking.bake.time)) {
                            return Ok(());
                        }
                    } else if healthy_since.is_some() || now > late {
                        baking.refuse(now, |node| !node.is_current(baking.targets))?;
                    }
                }
            }
            clock.sleep(LOOK_INTERVAL);
        }
    }

    /// Ends a trial, and returns the error because of which it ends. A trial that another controller has ended
    /// is left alone.
    pub(crate) fn take_back(&self, before: &Seen, trial: &Trial, error: Error) -> Error {
        let Err(left) = self.end_trial(before.clone(), trial, &error) else { return error };
        let got = match error.kind() {
            ErrorKind::Trial { got, .. } => got.clone(),
            _ => error.to_string(),
        };
        let (zone, left) = (trial.zone.clone(), Some(left.to_string()));
        ErrorKind::Trial { zone, got, left }.into()
    }

    fn end_trial(&self, mut seen: Seen, trial: &Trial, why: &Error) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let signed = self.signed(&format!("taken back: {why}"), Duration::ZERO);
            let ended = seen.pointer.announced(&Targets::new(), signed);
            match self.swap(&seen, ended)? {
                Swapped::Newer(newer) if newer.pointer.trial.as_ref() == Some(trial) => {
                    seen = newer;
                }
                Swapped::Newer(_) | Swapped::Done(_) => return Ok(()),
            }
        }
        Err(self.overtaken(&seen.pointer, seen.pointer.seq))
    }
}

//! What the log says: events of `tracing`, which the program that runs the server writes down.
//!
//! Each look compares the state of the server with that of the last look, so that a condition that lasts is
//! one line when it begins and one when it ends.

use crate::{cluster::SeenShard, metrics::Totals, shared::Shared, tls::Certificates};
use std::collections::{BTreeMap, BTreeSet};
use tracing::{info, warn};

/// The state of a server at the last look.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// The versions that are served, and whether reads have met damage, by data set.
    data: BTreeMap<String, (Option<u64>, bool)>,
    /// The error of following the group.
    follower: Option<String>,
    /// The error of the certificates.
    certificates: Option<String>,
    /// The last errors of other work, by what it is about.
    errors: BTreeMap<String, String>,
    epoch: u64,
    /// Addresses of the servers that do not answer.
    silent: BTreeSet<String>,
    totals: Totals,
}

impl Journal {
    /// Notes what has changed since the last look.
    pub(crate) fn look(&mut self, shared: &Shared) {
        self.look_at_data(shared);
        self.look_at_errors(shared);
        self.look_at_cluster(shared);
        self.look_at_clients(shared);
    }

    /// Notes the result of work that is tried again and again: an error when it begins, and its end.
    pub(crate) fn note_error(&mut self, about: &str, error: Option<impl ToString>) {
        let error = error.map(|error| error.to_string());
        if self.errors.get(about) == error.as_ref() {
            return;
        }
        match error {
            Some(error) => {
                warn!(about, error, "an error that lasts");
                self.errors.insert(about.to_owned(), error);
            }
            None => {
                info!(about, "the error is gone");
                self.errors.remove(about);
            }
        }
    }

    fn look_at_data(&mut self, shared: &Shared) {
        let all = shared.data();
        self.data.retain(|name, _| all.iter().any(|data| **data.name() == *name));
        for data in all {
            let (version, is_damaged) = self.data.entry(data.name().to_string()).or_default();
            let view = data.view();
            let now = view.as_ref().and_then(|view| view.version());
            let now = now.map(|version| version.info().name.number);
            if let Some(now) = now.filter(|now| *version != Some(*now)) {
                info!(store = %data.name(), version = now, previous = *version, "serving a version");
            }
            *version = now;
            let has_met_damage = view.is_some_and(|view| view.has_met_damage());
            match (*is_damaged, has_met_damage) {
                (false, true) => warn!(data = %data.name(), "a lookup has met damage"),
                (true, false) => info!(data = %data.name(), "the damage is gone"),
                _ => {}
            }
            *is_damaged = has_met_damage;
        }
    }

    fn look_at_errors(&mut self, shared: &Shared) {
        for filter in shared.filters() {
            self.note_error(&filter.name(), filter.sync_error());
        }
        let follower = shared.deployment.as_ref().and_then(|deployment| deployment.state().error);
        if self.follower != follower {
            match &follower {
                Some(error) => warn!(error, "the group cannot be followed"),
                None => info!("the group is followed again"),
            }
            self.follower = follower;
        }
        let certificates = shared.certificates.as_ref().and_then(Certificates::error);
        if self.certificates != certificates {
            match &certificates {
                Some(error) => warn!(error, "changed certificates cannot be used"),
                None => info!("the certificates can be used"),
            }
            self.certificates = certificates;
        }
    }

    fn look_at_cluster(&mut self, shared: &Shared) {
        let Some(view) = shared.cluster.view() else { return };
        if view.epoch != self.epoch {
            info!(epoch = view.epoch, shards = view.shards.len(), "using a topology");
            self.epoch = view.epoch;
        }
        let all = view.shards.iter().flat_map(SeenShard::all);
        let silent = all.filter(|node| !node.is_self && !node.is_alive());
        let silent: BTreeSet<String> =
            silent.map(|node| format!("{}:{}", node.host, node.port)).collect();
        silent
            .difference(&self.silent)
            .for_each(|server| warn!(server, "a server of the cluster does not answer"));
        self.silent
            .difference(&silent)
            .for_each(|server| info!(server, "a server of the cluster answers again"));
        self.silent = silent;
    }

    fn look_at_clients(&mut self, shared: &Shared) {
        let totals = shared.metrics.totals();
        let refused = totals.refused - self.totals.refused;
        if refused > 0 {
            warn!(refused, limit = shared.config.clients_max, "too many connections");
        }
        let shed = totals.shed - self.totals.shed;
        if shed > 0 {
            let limit = shared.config.client_memory_bytes;
            warn!(closed = shed, limit, "buffers of connections take too much memory");
        }
        self.totals = totals;
    }
}

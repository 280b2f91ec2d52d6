//! What all threads of a server share.

use crate::{
    access::Access,
    acl_log::AclLog,
    change::Changer,
    cluster::Cluster,
    command::{Command, Flag},
    config::Config,
    data::{DataSet, Dumps, FilterHome, FilterKey, FilterTurns, ServedMap, ServedMemory, View},
    deploy::Deployment,
    latency_events::LatencyEvents,
    logins::Logins,
    metrics::Metrics,
    network::ValueMemory,
    opened::Served,
    session::Client,
    slow_log::SlowLog,
    tls::Certificates,
    user::{DEFAULT, User},
};
use arc_swap::ArcSwap;
use hashfold::{
    Env,
    work::{Executor, MemoryBudget, Reserved},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Time after which a server that stops takes no further request, also none that it has read.
const STOP_MAX: Duration = Duration::from_secs(30);

/// A server's state.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) env: Env,
    /// The threads that check passwords: each check takes 19 MiB.
    pub(crate) passwords: Arc<dyn Executor>,
    pub(crate) config: Config,
    /// 40 hexadecimal digits that name this process.
    pub(crate) run_id: String,
    /// The time of the start, by the clock.
    pub(crate) started: Duration,
    /// The memory of indexes, filters and buffers.
    pub(crate) memory: MemoryBudget,
    /// The part of it that buffers of connections may take.
    pub(crate) _buffers: Reserved,
    /// The memory of values that lookups have read, and that replies do not have yet.
    pub(crate) values: Arc<ValueMemory>,
    /// Data sets, and the users that see them.
    pub(crate) served: ArcSwap<Served>,
    /// Filters that clients made.
    pub(crate) filter_home: Option<Arc<FilterHome>>,
    /// Whether filters are changed one command at a time, or a transaction at a time.
    pub(crate) turns: Arc<FilterTurns>,
    /// Dumps of filters that clients have begun.
    pub(crate) dumps: Arc<Dumps>,
    /// The certificates of encrypted connections.
    pub(crate) certificates: Option<Certificates>,
    pub(crate) cluster: Cluster,
    /// The group that the stores follow.
    pub(crate) deployment: Option<Deployment>,
    /// What changes of versions need.
    pub(crate) changer: Arc<Changer>,
    /// Who may see and change what over HTTP.
    pub(crate) access: Access,
    pub(crate) metrics: Metrics,
    pub(crate) clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    pub(crate) slow_log: SlowLog,
    pub(crate) latency_events: LatencyEvents,
    pub(crate) acl_log: Arc<AclLog>,
    pub(crate) logins: Arc<Logins>,
    pub(crate) next_id: AtomicU64,
    /// Whether the server is about to stop; it still answers.
    pub(crate) is_draining: AtomicBool,
    pub(crate) is_stopping: AtomicBool,
    /// The time at which the server began to stop.
    pub(crate) stops_since: OnceLock<Duration>,
}

impl Shared {
    /// Returns the time of the server's clock.
    pub(crate) fn now(&self) -> Duration {
        self.env.clock.now()
    }

    /// Whether the server has been stopping for so long that it takes no further request, also none that it has read.
    pub(crate) fn is_late_to_stop(&self) -> bool {
        self.stops_since.get().is_some_and(|since| self.now().saturating_sub(*since) > STOP_MAX)
    }

    /// Returns a number that was not returned before.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }

    /// Returns the user that connections have which gave no password, if it needs none.
    pub(crate) fn stranger(&self) -> Option<Arc<User>> {
        let served = self.served.load();
        let user = served.users.get(DEFAULT)?;
        user.password.is_none().then(|| user.clone())
    }

    /// Returns all connections.
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Returns what is served now, and to whom.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.served.load_full()
    }

    /// Returns the tables, stores, maps and data sets in memory that are served now, in the order of their names.
    pub(crate) fn data(&self) -> Vec<Arc<DataSet>> {
        self.served.load().opened.data.values().cloned().collect()
    }

    /// Returns the current view of each of these that has one.
    pub(crate) fn views(&self) -> impl Iterator<Item = (Arc<DataSet>, Arc<View>)> {
        self.data().into_iter().filter_map(|data| {
            let view = data.view()?;
            Some((data, view))
        })
    }

    /// Returns the maps that are served now.
    pub(crate) fn maps(&self) -> impl Iterator<Item = Arc<ServedMap>> {
        self.data().into_iter().filter_map(|data| data.map())
    }

    /// Returns the data sets in memory that are served now.
    pub(crate) fn memories(&self) -> impl Iterator<Item = Arc<ServedMemory>> {
        self.data().into_iter().filter_map(|data| data.memory())
    }

    /// Whether a store has no version yet.
    pub(crate) fn is_loading(&self) -> bool {
        self.data().iter().any(|data| data.view().is_none() && !data.is_withdrawn())
    }

    /// Returns all filters.
    pub(crate) fn filters(&self) -> Vec<Arc<FilterKey>> {
        let made = self.filter_home.iter().flat_map(|home| home.filters());
        self.served.load().opened.filters.values().cloned().chain(made).collect()
    }

    /// Whether a command that took this long is noted by [`Shared::note_slow`].
    #[inline]
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        self.slow_log.takes(took) || self.latency_events.takes(took)
    }

    /// Notes a command that took long, in the slow log and as an event of latency. `arguments` returns what
    /// the log shows of it.
    #[inline]
    pub(crate) fn note_slow(
        &self,
        command: &Command,
        client: &Client,
        took: Duration,
        arguments: impl FnOnce() -> Vec<Vec<u8>>,
    ) {
        if self.slow_log.takes(took) {
            self.slow_log.add(client, self.env.clock.unix_time(), took, arguments());
        }
        if self.latency_events.takes(took) {
            let name = if command.is(Flag::Fast) { "fast-command" } else { "command" };
            self.latency_events.add(name, self.env.clock.unix_time(), took);
        }
    }
}

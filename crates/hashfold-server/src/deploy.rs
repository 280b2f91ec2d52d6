//! Following the pointer of a group: versions that `hashfold deploy publish` makes current are fetched,
//! opened and served, those of all stores one right after the other.

use crate::{
    cluster::Cluster,
    config::{DeployConfig, RATE_MIN},
    data::{DataSet, View},
    metrics::{CommandCounts, POWERS},
};
use arc_swap::ArcSwap;
use hashfold::{
    Env,
    io::{Access, Disk, read_all},
    work::Signal,
};
use hashfold_deploy::{
    Activation, Error, FetchOptions, FollowOptions, FollowState, FollowedStore, Follower, Observed,
    PublicKey, RateLimit, Remote, TrustedKeys,
};
use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Time for which the pointer may be out of reach, or a version may be due, before the server counts as not ready.
const BEHIND_MAX: Duration = Duration::from_secs(30);

/// Time without a look at the pointer after which the follower counts as dead: it looks at least twice a minute, and
/// waits for an answer for less than a minute.
const SILENT_MAX: Duration = Duration::from_secs(120);

/// Time between two changes of the limit of transfers.
const THROTTLE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum size of the file of a public key, in bytes.
const KEY_SIZE_MAX: u64 = 1 << 16;

/// Bytes of the device that transfers leave free.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// The group that a server follows, and the state of the follower.
#[derive(Debug)]
pub(crate) struct Deployment {
    config: DeployConfig,
    remote: Remote,
    rate: RateLimit,
    throttle: Mutex<Throttle>,
    /// The state of the follower that runs now.
    state: ArcSwap<FollowState>,
}

impl Deployment {
    /// Opens the remote of a group. `zone` is the one of the topology, if the configuration names none. Makes no
    /// request.
    ///
    /// # Errors
    /// The remote has no such form.
    pub(crate) fn new(
        config: &DeployConfig,
        zone: Option<String>,
        env: &Env,
    ) -> Result<Deployment, Error> {
        Ok(Deployment {
            remote: Remote::open(env, &config.remote)?,
            config: DeployConfig { zone: config.zone.clone().or(zone), ..config.clone() },
            rate: RateLimit::new(config.rate_bytes_per_s),
            throttle: Mutex::default(),
            state: ArcSwap::default(),
        })
    }

    /// Makes a follower for the data sets that follow the group. Makes no request.
    ///
    /// # Errors
    /// A name is not plain, the file of a trusted key cannot be used, or a local store is damaged.
    pub(crate) fn follower(
        &self,
        env: &Env,
        data: &[Arc<DataSet>],
        cluster: &Cluster,
    ) -> Result<Follower, Error> {
        let followed = |data: &Arc<DataSet>| {
            let view = data.view();
            let store = FollowedStore {
                current: view.and_then(|view| view.version().cloned()),
                is_damaged: data.damage().clone(),
                failed_reads: data.failed_reads().clone(),
                opened: data.opened().clone(),
                ..FollowedStore::new(data.folder(), data.options().clone())
            };
            (data.name().to_string(), store)
        };
        let stores = data.iter().filter(|data| data.follows_group()).map(followed).collect();
        let DeployConfig { group, node, .. } = &self.config;
        let mut options = FollowOptions::new(group, node, stores);
        options.placement = cluster.placement().clone();
        options.zone.clone_from(&self.config.zone);
        options.fetch = FetchOptions {
            rate: self.rate.clone(),
            free_bytes_min: FREE_BYTES_MIN,
            trusted_keys: read_keys(env.disk.as_ref(), &self.config.trusted_keys)?,
            ..FetchOptions::default()
        };
        Follower::new(env, &self.remote, options)
    }

    /// Returns the group, and the name of this server in it.
    pub(crate) fn config(&self) -> &DeployConfig {
        &self.config
    }

    /// Returns the state of the follower.
    pub(crate) fn state(&self) -> Observed {
        self.state.load().get()
    }

    /// Returns the limit of transfers, in bytes per second.
    pub(crate) fn limit(&self) -> u64 {
        self.rate.get()
    }

    /// Returns why the server should get no requests: others may have newer versions.
    pub(crate) fn problem(&self, now: Duration) -> Option<String> {
        problem(&self.config.group, &self.state(), now)
    }

    /// Shows the state of a follower, which runs from now on.
    pub(crate) fn show(&self, follower: &Follower) {
        self.state.store(Arc::new(follower.state().clone()));
    }

    /// Shows that no follower runs.
    pub(crate) fn show_none(&self) {
        self.state.store(Arc::default());
    }

    /// Follows the pointer until `stop` is sent. `data` are those that the follower was made for.
    pub(crate) fn follow(mut follower: Follower, data: &[Arc<DataSet>], stop: &Signal) {
        let mut activate = |activations: &[Activation]| activate(data, activations);
        // Errors are in the state.
        follower.run(stop, &mut activate, &mut |_| ());
    }

    /// Changes the limit of transfers, if it is time to.
    pub(crate) fn throttle(&self, commands: &[CommandCounts], now: Duration) {
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= throttle.next {
            throttle.next = now + THROTTLE_INTERVAL;
            let took = throttle.took_since(commands);
            self.rate.set(throttle.limit(took, self.rate.get(), self.config.rate_bytes_per_s));
        }
    }
}

/// Returns why a server that follows a group may have older versions than others: the pointer is out of reach,
/// nobody looks at it, or the server does not have the versions that it names.
fn problem(group: &str, state: &Observed, now: Duration) -> Option<String> {
    let since = |time: Option<Duration>| now.saturating_sub(time.unwrap_or(now));
    let (unreachable, silent) = (since(state.unreachable_since), since(state.looked_at));
    let error = state.error.as_deref().unwrap_or_default();
    if unreachable >= BEHIND_MAX {
        return Some(format!("group {group}: not seen for {} s: {error}", unreachable.as_secs()));
    }
    if silent >= SILENT_MAX {
        return Some(format!("group {group}: not looked at for {} s: restart", silent.as_secs()));
    }
    let (versions, due) = state.late.as_ref()?;
    let late = since(Some(*due));
    let version = |(store, number): (&String, &u64)| format!("{store} {number}");
    let versions: Vec<String> = versions.iter().map(version).collect();
    (late >= BEHIND_MAX).then(|| {
        let (versions, seconds) = (versions.join(", "), late.as_secs());
        format!("group {group}: {versions}: due for {seconds} s, and not served: {error}")
    })
}

/// Reads the files of public keys.
pub(crate) fn read_keys(disk: &dyn Disk, files: &[PathBuf]) -> Result<TrustedKeys, Error> {
    let read = |path: &PathBuf| {
        let bytes = read_all(disk.open(path, Access::Cached)?.as_ref(), KEY_SIZE_MAX)?;
        let key = PublicKey::from_pem(&String::from_utf8_lossy(&bytes));
        key.map_err(|error| error.at(path.display().to_string()))
    };
    files.iter().map(read).collect()
}

/// Serves versions, those of all stores one right after the other.
fn activate(data: &[Arc<DataSet>], activations: &[Activation]) -> hashfold::Result<()> {
    let shown = |Activation { store, version }: &Activation| {
        let data = data.iter().find(|data| &**data.name() == store.as_str());
        let view = version.clone().map(View::of_version).transpose()?;
        Ok((data.expect("the follower has the names of data sets"), view))
    };
    let all = activations.iter().map(shown).collect::<hashfold::Result<Vec<_>>>()?;
    for (data, view) in all {
        match view {
            Some(view) => data.show(view),
            None => data.withdraw(),
        }
    }
    Ok(())
}

/// Number of seconds whose fastest replies say how fast replies are without transfers.
const SECONDS: usize = 60;

/// Minimum number of calls in a second for a statement about them.
const CALLS_MIN: u64 = 100;

/// Times of calls up to which transfers are not slowed down, in microseconds.
const FAST_US: u64 = 1000;

/// The limit of transfers, which give way to requests: while the slowest of 100 calls take longer than in the best
/// second of the last minute, the limit falls by 3 tenths a second; else it rises by a 20th of the
/// maximum (additive increase, multiplicative decrease).
#[derive(Debug, Default)]
struct Throttle {
    next: Duration,
    /// All calls before the last look.
    before: CommandCounts,
    /// The time that 99 of 100 calls took at most in each of the last seconds, in microseconds.
    seconds: VecDeque<u64>,
}

impl Throttle {
    /// Returns the time that 99 of 100 calls took at most since the last look, in microseconds; `None` if
    /// there were few, or if the counters were set to 0.
    fn took_since(&mut self, commands: &[CommandCounts]) -> Option<u64> {
        let mut all = CommandCounts::default();
        for counts in commands {
            all.calls += counts.calls;
            for (sum, count) in all.by_power.iter_mut().zip(&counts.by_power) {
                *sum += count;
            }
        }
        let mut new = CommandCounts {
            calls: all.calls.saturating_sub(self.before.calls),
            by_power: [0; POWERS],
            ..CommandCounts::default()
        };
        let before = all.by_power.iter().zip(&self.before.by_power);
        for (count, (all, before)) in new.by_power.iter_mut().zip(before) {
            *count = all.saturating_sub(*before);
        }
        self.before = all;
        (new.calls >= CALLS_MIN).then(|| new.at_most_us(0.99))
    }

    /// Returns the next limit.
    fn limit(&mut self, took_us: Option<u64>, limit: u64, max: u64) -> u64 {
        let best = self.seconds.iter().min().copied().unwrap_or(u64::MAX);
        if let Some(took) = took_us {
            if self.seconds.len() == SECONDS {
                self.seconds.pop_front();
            }
            self.seconds.push_back(took);
        }
        match took_us {
            Some(took) if took > best.max(FAST_US) => (limit / 10 * 7).max(RATE_MIN),
            _ => (limit + max / 20).min(max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn transfers_give_way_to_requests_and_recover() {
        let (mut throttle, max) = (Throttle::default(), 100 << 20);
        assert_eq!(throttle.limit(Some(512), max, max), max);
        assert_eq!(throttle.limit(Some(1000), max, max), max, "calls are still fast");
        let slowed = throttle.limit(Some(2048), max, max);
        assert_eq!(slowed, max / 10 * 7);
        let mut limit = slowed;
        for _ in 0..50 {
            limit = throttle.limit(Some(4096), limit, max);
        }
        assert_eq!(limit, RATE_MIN);
        for _ in 0..21 {
            limit = throttle.limit(None, limit, max);
        }
        assert_eq!(limit, max);
        // After a minute, it is known that calls are slow without transfers, too.
        for _ in 0..SECONDS {
            limit = throttle.limit(Some(4096), limit, max);
        }
        assert_eq!(throttle.limit(Some(4096), RATE_MIN, max), RATE_MIN + max / 20);
    }

    #[test]
    fn a_follower_that_does_not_look_or_gets_no_answer_or_no_version_is_a_problem() {
        let second = |seconds| Some(Duration::from_secs(seconds));
        let check = |unreachable_since, looked_at, due, expected: Option<&str>| {
            let (error, late) = (Some("refused".to_owned()), BTreeMap::from([("shop".into(), 2)]));
            let late = Option::map(due, |due| (late, due));
            let report = Default::default();
            let state = Observed { report, unreachable_since, looked_at, late, error };
            let found = problem("main", &state, Duration::from_secs(1000));
            assert_eq!(found.as_deref(), expected);
        };
        check(None, None, None, None);
        check(second(971), second(999), None, None);
        check(None, second(881), second(2000), None);
        check(None, second(999), second(971), None);
        check(second(970), second(999), None, Some("group main: not seen for 30 s: refused"));
        check(None, second(880), None, Some("group main: not looked at for 120 s: restart"));
        let late = "group main: shop 2: due for 30 s, and not served: refused";
        check(None, second(999), second(970), Some(late));
    }

    #[test]
    fn only_calls_since_the_last_look_count() {
        let mut counts = CommandCounts { calls: 1000, ..CommandCounts::default() };
        counts.by_power[3] = 1000;
        let mut throttle = Throttle::default();
        assert_eq!(throttle.took_since(&[counts.clone()]), Some(8));
        counts.calls += CALLS_MIN;
        counts.by_power[12] += CALLS_MIN;
        assert_eq!(throttle.took_since(&[counts.clone()]), Some(4096));
        assert_eq!(throttle.took_since(&[counts]), None);
        // CONFIG RESETSTAT sets the counters to 0.
        assert_eq!(throttle.took_since(&[CommandCounts::default()]), None);
    }
}

//! Starting and stopping a server.

use crate::{
    access::Access,
    audit::AuditLog,
    change::Changer,
    cluster::Cluster,
    config::Config,
    data::{DataSet, FilterTurns, warming},
    deploy::Deployment,
    error::{StartError, wrong},
    journal::Journal,
    network::{EventLoop, ValueMemory, check_free, listen},
    opened::{Opened, Served, check_in_memory, check_own_folders, mend},
    shared::Shared,
    tls::Certificates,
    topology,
};
use arc_swap::ArcSwap;
use hashfold::{
    Env, Error,
    folder::Contents,
    manifest::Kind,
    work::{MemoryBudget, Reserved, Signal, Threads, lower_priority},
};
use hashfold_deploy::Follower;
use mio::Waker;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tracing::{info, warn};

/// Threads that read from the device, for each network thread.
const READERS: usize = 8;

/// Number of passwords that are checked at once.
const PASSWORD_THREADS: usize = 4;

/// Time between two looks for other versions and servers that do not answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Time between two looks whether the server stops, of threads that nothing wakes.
pub(crate) const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two looks whether a thread has ended.
const STOP_CHECK: Duration = Duration::from_millis(5);

/// Changes of filters are durable after this time, and those of maps that wait for it.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// A running server.
///
/// Dropping it stops it: requests that were read are answered, filters and maps are made durable, data in memory are saved.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    http_addresses: Vec<SocketAddr>,
    https_addresses: Vec<SocketAddr>,
    wakers: Vec<Arc<Waker>>,
    stop: Signal,
    threads: Vec<ThreadHandle>,
    /// The thread that follows a group; held while the configuration is read again.
    following: Mutex<Option<Following>>,
}

type ThreadHandle = JoinHandle<io::Result<()>>;

/// Work that goes on until the server stops.
type Loop = fn(&Shared, &Signal);

/// The thread that follows a group, and what ends it.
#[derive(Debug)]
struct Following {
    thread: ThreadHandle,
    stop: Signal,
}

/// Refuses a configuration that contradicts itself, or serves nothing: another program may still be writing its file.
fn check_sense(config: &Config, env: &Env) -> Result<(), StartError> {
    config.check().map_err(wrong)?;
    check_own_folders(config, env)?;
    match config.data.is_empty() && config.filters.is_none() {
        true => Err(wrong("expected a data set (`[data.NAME]`) or `filters`, got neither")),
        false => Ok(()),
    }
}

/// Returns a configuration that opens no filter for writing, and no map: only one process has a map open. Nothing is
/// loaded into memory.
fn without_writing(config: &Config, env: &Env) -> Config {
    let mut config = Config { filters: None, ..config.clone() };
    let kind = |path: &Path| Contents::of(env.disk.as_ref(), path).ok()?.kind();
    config.data.retain(|_, data| !data.is_in_memory() && kind(&data.path) != Some(Kind::Map));
    config.data.values_mut().for_each(|data| data.is_writable = false);
    config
}

/// Returns the budget of memory of a server, and the part of it that buffers of connections may take.
fn memory_of(config: &Config) -> Result<(MemoryBudget, Reserved), StartError> {
    let memory = match config.memory_bytes {
        0 => MemoryBudget::unlimited(),
        bytes => MemoryBudget::new(bytes),
    };
    let buffers = memory.reserve(config.client_memory_bytes).map_err(StartError::Data)?;
    Ok((memory, buffers))
}

fn read_certificates(config: &Config) -> Result<Option<Certificates>, StartError> {
    config.tls.as_ref().map(Certificates::read).transpose().map_err(wrong)
}

/// Returns the cluster of a server that listens on these addresses.
fn cluster(
    config: &Config,
    plain: &[SocketAddr],
    encrypted: &[SocketAddr],
    env: &Env,
) -> Result<Cluster, StartError> {
    let own = plain.first().or(encrypted.first());
    let own = *own.ok_or_else(|| wrong("listen: expected an address, got none"))?;
    let tls_port = encrypted.first().map(SocketAddr::port);
    Cluster::new(&config.cluster, own, tls_port, env).map_err(wrong)
}

impl Server {
    /// Opens all data sets, and starts to answer clients.
    ///
    /// # Errors
    /// A data set cannot be opened, an address is taken, or the configuration contradicts itself.
    pub fn start(config: Config, env: &Env) -> Result<Server, StartError> {
        check_sense(&config, env)?;
        let executor = Arc::new(Threads::new(READERS * config.threads));
        let mut listeners = Vec::new();
        for thread in 0..config.threads {
            listeners.push(listeners_of(&config, &listeners, thread)?);
        }
        let mut addresses: Vec<SocketAddr> =
            listeners[0].iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let tls_addresses = addresses.split_off(config.listen.len());
        let certificates = read_certificates(&config)?;
        let env = Env { executor: executor.clone(), ..env.clone() };
        let cluster = cluster(&config, &addresses, &tls_addresses, &env)?;
        let (memory, _buffers) = memory_of(&config)?;
        mend(&config, &env);
        let opened = Opened::open(&config, &env, &cluster, &memory, None)?;
        let users = opened.users(&config)?;
        opened.share_keys(&users);
        let deployment = deployment(&config, &cluster, &env)?;
        let follower = follower(deployment.as_ref(), &env, &opened, &cluster)?;
        let filter_home = opened.home.clone();
        let changer = Arc::new(Changer::open(&config, &env)?);
        let shared = Arc::new(Shared {
            run_id: format!(
                "{:016x}{:016x}{:08x}",
                env.random.next_u64(),
                env.random.next_u64(),
                std::process::id()
            ),
            started: env.clock.now(),
            memory,
            _buffers,
            values: Arc::new(ValueMemory::new(config.client_memory_bytes)),
            served: ArcSwap::from_pointee(Served { opened, users }),
            filter_home,
            turns: Arc::new(FilterTurns::default()),
            dumps: Arc::default(),
            certificates,
            cluster,
            deployment,
            changer,
            access: Access::new(&config.admin),
            metrics: crate::metrics::Metrics::default(),
            passwords: Arc::new(Threads::new(PASSWORD_THREADS)),
            clients: Default::default(),
            slow_log: Default::default(),
            latency_events: Default::default(),
            acl_log: Arc::default(),
            logins: Arc::default(),
            next_id: AtomicU64::new(1),
            is_draining: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            stops_since: OnceLock::new(),
            config,
            env,
        });
        let mut server = Server {
            shared,
            addresses,
            tls_addresses,
            http_addresses: Vec::new(),
            https_addresses: Vec::new(),
            wakers: Vec::new(),
            stop: Signal::default(),
            threads: Vec::new(),
            following: Mutex::default(),
        };
        for (number, listeners) in listeners.into_iter().enumerate() {
            server.start_network(number, listeners, executor.clone())?;
        }
        server.start_looking()?;
        server.start_following_topology()?;
        if let Some(follower) = follower {
            *server.lock_following() = Some(server.start_following(follower)?);
        }
        server.start_http()?;
        info!(
            addresses = ?server.addresses,
            tls = ?server.tls_addresses,
            http = ?server.http_addresses,
            https = ?server.https_addresses,
            version = env!("CARGO_PKG_VERSION"),
            "serving"
        );
        Ok(server)
    }

    /// Opens all data sets for reading, and starts nothing. Another server may have them open.
    ///
    /// # Errors
    /// Those of [`Server::start`], but for addresses that are taken; and damage that was found when the
    /// files were opened, also if a server could start and answer from the rest.
    pub fn check(config: &Config, env: &Env) -> Result<(), StartError> {
        check_sense(config, env)?;
        read_certificates(config)?;
        let cluster = cluster(config, &config.listen, &config.tls_listen, env)?;
        let (memory, _buffers) = memory_of(config)?;
        let opened = Opened::open(&without_writing(config, env), env, &cluster, &memory, None)?;
        opened.users(config)?;
        let _in_memory = check_in_memory(config, (env, &cluster, &memory))?;
        opened.data.values().try_for_each(|data| data.check_open()).map_err(StartError::Data)?;
        let views = opened.data.values().filter_map(|data| data.view());
        for view in views {
            view.damage().map_or(Ok(()), |error| Err(StartError::Data(error.clone())))?;
        }
        follower(deployment(config, &cluster, env)?.as_ref(), env, &opened, &cluster)?;
        let audit = config.admin.audit.as_deref().map(|path| AuditLog::check(env, path));
        audit.transpose().map_err(StartError::Data)?;
        Ok(())
    }

    /// Starts a network thread.
    fn start_network(
        &mut self,
        number: usize,
        listeners: Vec<mio::net::TcpListener>,
        executor: Arc<Threads>,
    ) -> Result<(), StartError> {
        let (event_loop, waker) = EventLoop::new(self.shared.clone(), executor, listeners)
            .map_err(|source| StartError::Io { action: "wait for sockets".into(), source })?;
        self.wakers.push(waker);
        self.spawn(&format!("network-{number}"), move || event_loop.run())
    }

    /// Starts the threads that look for other versions, keep filters, and look for other topologies and for
    /// servers that do not answer: none of these waits for another.
    fn start_looking(&mut self) -> Result<(), StartError> {
        let threads: [(_, Loop); 3] =
            [("versions", look_for_versions), ("filters", keep_filters), ("look", look)];
        for (name, work) in threads {
            let (shared, stop) = (self.shared.clone(), self.stop.clone());
            self.spawn(name, move || {
                work(&shared, &stop);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Starts the thread that follows the topology, if that can change.
    fn start_following_topology(&mut self) -> Result<(), StartError> {
        let (shared, stop) = (self.shared.clone(), self.stop.clone());
        let Some(changes) = shared.cluster.changes() else { return Ok(()) };
        self.spawn("topology", move || {
            topology::follow(&shared, changes, &stop);
            Ok(())
        })
    }

    /// Starts the thread that answers HTTP requests, if there is an address for it.
    fn start_http(&mut self) -> Result<(), StartError> {
        let shared = self.shared.clone();
        let plain = bind(&shared.config.http_listen, &mut self.http_addresses)?;
        let encrypted = bind(&shared.config.https_listen, &mut self.https_addresses)?;
        if plain.is_empty() && encrypted.is_empty() {
            return Ok(());
        }
        self.spawn("http", move || crate::http::run(&shared, plain, encrypted))
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), StartError> {
        self.threads.push(spawn(name, work)?);
        Ok(())
    }

    /// Starts the thread that follows a group.
    fn start_following(&self, follower: Follower) -> Result<Following, StartError> {
        let (data, stop) = (self.shared.data(), Signal::default());
        self.shared.deployment.iter().for_each(|deployment| deployment.show(&follower));
        let own = stop.clone();
        let thread = spawn("deploy", move || {
            // Clients go before transfers.
            lower_priority();
            Deployment::follow(follower, &data, &own);
            Ok(())
        })?;
        Ok(Following { thread, stop })
    }

    fn lock_following(&self) -> MutexGuard<'_, Option<Following>> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the addresses that clients can connect to.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the addresses that clients can connect to with TLS.
    #[must_use]
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// Returns the addresses for HTTP requests.
    #[must_use]
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.http_addresses
    }

    /// Returns the addresses for HTTP requests with TLS.
    #[must_use]
    pub fn https_addresses(&self) -> &[SocketAddr] {
        &self.https_addresses
    }

    /// Looks for other versions of all stores now. Returns the number of stores that changed.
    ///
    /// # Errors
    /// The first version that cannot be opened; its store serves what it served before.
    pub fn refresh(&self) -> Result<usize, Error> {
        let mut changed = 0;
        for data in self.shared.data() {
            changed += usize::from(data.refresh(&warming(&self.shared.env.clock, || false))?);
        }
        Ok(changed)
    }

    /// Takes up the data sets, users and tokens of a changed configuration, all at once. Data sets that are
    /// served already stay as they are; connections of one that was removed, or has another entry now, get an
    /// error. Open connections keep their users. Everything else in the configuration takes effect at the next
    /// start.
    ///
    /// # Errors
    /// The configuration contradicts itself, changes the entry of a data set in memory, or a data set cannot be opened;
    /// nothing is changed.
    pub fn reload(&self, config: &Config) -> Result<(), StartError> {
        let mut following = self.lock_following();
        let _slots = self.shared.cluster.hold();
        let config = Config {
            data: config.data.clone(),
            users: config.users.clone(),
            admin: config.admin.clone(),
            ..self.shared.config.clone()
        };
        check_sense(&config, &self.shared.env)?;
        let (shared, before) = (&self.shared, self.shared.served());
        let (memory, cluster) = (&shared.memory, &shared.cluster);
        mend(&config, &shared.env);
        let opened = Opened::open(&config, &shared.env, cluster, memory, Some(&before.opened))?;
        let users = opened.users(&config)?;
        let (data, filters) = opened.lacks(&before.opened);
        let (new_data, new_filters) = before.opened.lacks(&opened);
        let follows_others = data.iter().chain(&new_data).any(|data| data.follows_group());
        let follower = match follows_others {
            true => follower(shared.deployment.as_ref(), &shared.env, &opened, &shared.cluster)?,
            false => None,
        };
        filters.iter().try_for_each(|filter| filter.flush()).map_err(StartError::Data)?;
        // What cannot be saved stays; changes from now on are saved at the end.
        let mut in_memory = data.iter().filter_map(|data| data.memory());
        in_memory.try_for_each(|memory| memory.save_changes()).map_err(StartError::Data)?;
        if let Some(Following { thread, stop }) = following.take_if(|_| follows_others) {
            self.join(vec![thread], &stop);
            shared.deployment.iter().for_each(Deployment::show_none);
        }
        let (added, removed) = (new_data.len() + new_filters.len(), data.len() + filters.len());
        info!(added, removed, users = users.len(), "read the configuration again");
        opened.share_keys(&users);
        shared.served.store(Arc::new(Served { opened, users }));
        shared.access.replace(&config.admin);
        for data in &data {
            if let Err(error) = data.end() {
                warn!(data = %data.name(), %error, "closed without its last changes");
            }
        }
        for filter in &filters {
            if let Err(error) = filter.end() {
                warn!(filter = %filter.name(), %error, "closed without its last changes");
            }
        }
        if let Some(follower) = follower {
            *following = Some(self.start_following(follower)?);
        }
        Ok(())
    }

    /// Says to others that the server is about to stop: `/readyz` is 503, and clients of a cluster are told to go to
    /// other servers with the same slots. Returns the time for which the server should go on answering before it
    /// stops.
    pub fn begin_stop(&self) -> Duration {
        self.shared.is_draining.store(true, Relaxed);
        self.shared.cluster.leave();
        let drain = self.shared.config.drain;
        if !drain.is_zero() {
            info!(seconds = drain.as_secs(), "about to stop");
        }
        drain
    }

    /// Stops the server: requests that were read are answered, filters and maps are made durable, data in memory are saved.
    ///
    /// # Errors
    /// A filter or a map cannot be made durable, or data in memory cannot be saved.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        self.shared.stops_since.get_or_init(|| self.shared.now());
        if !self.shared.is_stopping.swap(true, Relaxed) {
            info!("stopping");
        }
        self.shared.changer.stop();
        self.shared.filter_home.iter().for_each(|home| home.end_loads());
        for waker in &self.wakers {
            // A thread that cannot be woken looks at the clock all the same.
            let _ = waker.wake();
        }
        let following = self.lock_following().take();
        following.iter().for_each(|following| following.stop.send());
        let threads = self.threads.drain(..).collect();
        self.join(threads, &self.stop);
        let filters = self.shared.filters();
        let flushed = filters.iter().map(|filter| filter.flush()).fold(Ok(()), Result::and);
        let closed = self.shared.maps().map(|map| map.close()).fold(Ok(()), Result::and);
        let saved = self.shared.memories().map(|memory| memory.close()).fold(Ok(()), Result::and);
        // A transfer may take some time to end; filters are durable before.
        if let Some(Following { thread, stop }) = following {
            self.join(vec![thread], &stop);
        }
        flushed.and(closed).and(saved)
    }

    /// Waits until threads have ended, which `stop` tells them to.
    fn join(&self, threads: Vec<ThreadHandle>, stop: &Signal) {
        for thread in threads {
            // A thread may have begun to wait just after a signal.
            while !thread.is_finished() {
                stop.send();
                self.shared.env.clock.sleep(STOP_CHECK);
            }
            // A thread that panicked has said so on standard error.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors cannot be returned from here; `stop` returns them.
        let _ = self.end();
    }
}

/// Listens on addresses, and adds those that the system chose.
fn bind(
    addresses: &[SocketAddr],
    chosen: &mut Vec<SocketAddr>,
) -> Result<Vec<TcpListener>, StartError> {
    let listen = |address: &SocketAddr| {
        let action = format!("listen on {address}");
        let listener =
            TcpListener::bind(address).map_err(|source| StartError::Io { action, source })?;
        chosen.extend(listener.local_addr());
        Ok(listener)
    };
    addresses.iter().map(listen).collect()
}

/// Starts a thread.
fn spawn(
    name: &str,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<ThreadHandle, StartError> {
    let action = || format!("start the thread \"{name}\"");
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|source| StartError::Io { action: action(), source })
}

fn deployment(
    config: &Config,
    cluster: &Cluster,
    env: &Env,
) -> Result<Option<Deployment>, StartError> {
    let new = |deploy| Deployment::new(deploy, cluster.own_zone(), env);
    let deployment = config.deploy.as_ref().map(new);
    deployment.transpose().map_err(StartError::Deploy)
}

/// Returns a follower for the data sets that follow the group, if there is a group and any of them.
fn follower(
    deployment: Option<&Deployment>,
    env: &Env,
    opened: &Opened,
    cluster: &Cluster,
) -> Result<Option<Follower>, StartError> {
    let data: Vec<Arc<DataSet>> = opened.data.values().cloned().collect();
    let deployment = deployment.filter(|_| data.iter().any(|data| data.follows_group()));
    let follower = deployment.map(|deployment| deployment.follower(env, &data, cluster));
    follower.transpose().map_err(StartError::Deploy)
}

/// Returns a listener for each address. With port 0, the threads after the first listen on the port that
/// the system chose for the first.
fn listeners_of(
    config: &Config,
    before: &[Vec<mio::net::TcpListener>],
    thread: usize,
) -> Result<Vec<mio::net::TcpListener>, StartError> {
    let at = |i: usize, address: SocketAddr| match before.first() {
        Some(first) if thread > 0 => first[i].local_addr().unwrap_or(address),
        _ => address,
    };
    let listen_at = |(i, address): (usize, &SocketAddr)| {
        let address = at(i, *address);
        let action = format!("listen on {address}");
        let free = if thread == 0 { check_free(address) } else { Ok(()) };
        free.and_then(|()| listen(address)).map_err(|source| StartError::Io { action, source })
    };
    config.listen.iter().chain(&config.tls_listen).enumerate().map(listen_at).collect()
}

/// Switches stores to their current versions, until the server stops. Bringing one into memory takes long, and
/// clients go before it. A failure changes nothing, and is met again at the next look.
fn look_for_versions(shared: &Shared, stop: &Signal) {
    lower_priority();
    let mut journal = Journal::default();
    let seen = stop.count();
    repeat(shared, stop, |_| {
        for data in shared.data() {
            let stop = stop.clone();
            let warming = warming(&shared.env.clock, move || stop.count() != seen);
            journal.note_error(data.name(), data.refresh(&warming).err());
        }
    });
}

/// Makes changes of filters and maps durable, looks for those of other processes, removes filters that have expired, and
/// compacts data in memory, until the server stops.
fn keep_filters(shared: &Shared, stop: &Signal) {
    let mut next_sync = shared.now() + SYNC_INTERVAL;
    repeat(shared, stop, |now| {
        let syncs = now >= next_sync;
        if syncs {
            next_sync = now + SYNC_INTERVAL;
        }
        for filter in shared.filters() {
            // Writes to the filter return the error.
            let _ = filter.refresh();
            if syncs {
                let _ = filter.sync();
            }
        }
        if syncs {
            shared.maps().for_each(|map| map.sync_each_second());
            shared.memories().for_each(|memory| memory.compact_if_sparse());
        }
        shared.dumps.forget_idle(now);
        if let Some(home) = &shared.filter_home {
            home.forget_idle(now);
            home.sweep();
        }
    });
}

/// Looks for damage and for servers that do not answer, until the server stops. A failure changes nothing, and is
/// met again at the next look.
fn look(shared: &Shared, stop: &Signal) {
    let mut journal = Journal::default();
    repeat(shared, stop, |now| {
        shared.data().iter().for_each(|data| data.look_for_damage());
        journal.note_error("topology", shared.cluster.error());
        shared.certificates.iter().for_each(Certificates::reload);
        shared.cluster.probe();
        shared.metrics.look(now);
        journal.look(shared);
        if let Some(deployment) = &shared.deployment {
            deployment.throttle(&shared.metrics.commands(), now);
        }
    });
    // The log has all that was served, also if the server stops at once.
    journal.look(shared);
}

/// Calls `work` with the time at each interval, until the server stops.
fn repeat(shared: &Shared, stop: &Signal, mut work: impl FnMut(Duration)) {
    while !shared.is_stopping.load(Relaxed) {
        let seen = stop.count();
        let now = shared.now();
        work(now);
        shared.env.clock.wait(stop, seen, now + LOOK_INTERVAL);
    }
}

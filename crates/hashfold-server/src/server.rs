//! Starting and stopping a server.

use crate::{
    access::Access,
    audit::AuditLog,
    change::Changer,
    cluster::Cluster,
    config::Config,
    data::DataSet,
    deploy::Deployment,
    error::{StartError, wrong},
    journal::Journal,
    network::{EventLoop, check_free, listen},
    opened::{Opened, Served},
    shared::Shared,
    tls::Certificates,
    topology,
};
use arc_swap::ArcSwap;
use hashfold::{
    Env, Error,
    work::{Signal, Threads},
};
use hashfold_deploy::Follower;
use mio::Waker;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tracing::{info, warn};

/// Threads that read from the device, for each network thread.
const READERS: usize = 8;

/// Time between two looks for other versions and servers that do not answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Time between two looks whether the server stops, of threads that nothing wakes.
pub(crate) const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two looks whether a thread has ended.
const STOP_CHECK: Duration = Duration::from_millis(5);

/// Changes of filters are durable after this time.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Commands that take at least this long are in the slow log, in microseconds.
const SLOW_US: u64 = 10_000;

/// A running server.
///
/// Dropping it stops it: requests that were read are answered, filters are made durable.
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

/// The thread that follows a group, and what ends it.
#[derive(Debug)]
struct Following {
    thread: ThreadHandle,
    stop: Signal,
}

/// Returns a configuration that opens no filter for writing.
fn read_only(config: &Config) -> Config {
    let mut config = Config { filters: None, ..config.clone() };
    config.data.values_mut().for_each(|data| data.is_writable = false);
    config
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
        config.check().map_err(wrong)?;
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
        let opened = Opened::open(&config, &env, &cluster, None)?;
        let users = opened.users(&config)?;
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
            served: ArcSwap::from_pointee(Served { opened, users }),
            filter_home,
            dumps: Arc::default(),
            certificates,
            cluster,
            deployment,
            changer,
            access: Access::new(&config.admin),
            metrics: crate::metrics::Metrics::default(),
            passwords: Arc::new(Threads::new(1)),
            clients: Default::default(),
            slow_log: Default::default(),
            slow_log_us: AtomicU64::new(SLOW_US),
            next_id: AtomicU64::new(1),
            is_stopping: AtomicBool::new(false),
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
        config.check().map_err(wrong)?;
        read_certificates(config)?;
        let cluster = cluster(config, &config.listen, &config.tls_listen, env)?;
        let opened = Opened::open(&read_only(config), env, &cluster, None)?;
        opened.users(config)?;
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

    /// Starts the thread that looks for other versions and for servers that do not answer.
    fn start_looking(&mut self) -> Result<(), StartError> {
        let (shared, stop) = (self.shared.clone(), self.stop.clone());
        self.spawn("look", move || {
            look(&shared, &stop);
            Ok(())
        })
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
            changed += usize::from(data.refresh()?);
        }
        Ok(changed)
    }

    /// Takes up the data sets, users and tokens of a changed configuration, all at once. Data sets that are
    /// served already stay as they are; connections of one that was removed, or has another entry now, get an
    /// error. Open connections keep their users. Everything else in the configuration takes effect at the next
    /// start.
    ///
    /// # Errors
    /// The configuration contradicts itself, or a data set cannot be opened; nothing is changed.
    pub fn reload(&self, config: &Config) -> Result<(), StartError> {
        let mut following = self.lock_following();
        let _slots = self.shared.cluster.hold();
        let config = Config {
            data: config.data.clone(),
            users: config.users.clone(),
            admin: config.admin.clone(),
            ..self.shared.config.clone()
        };
        config.check().map_err(wrong)?;
        let (shared, before) = (&self.shared, self.shared.served());
        let opened = Opened::open(&config, &shared.env, &shared.cluster, Some(&before.opened))?;
        let users = opened.users(&config)?;
        let (data, filters) = opened.lacks(&before.opened);
        let (new_data, new_filters) = before.opened.lacks(&opened);
        let follows_others = data.iter().chain(&new_data).any(|data| data.follows_group());
        let follower = match follows_others {
            true => follower(shared.deployment.as_ref(), &shared.env, &opened, &shared.cluster)?,
            false => None,
        };
        filters.iter().try_for_each(|filter| filter.flush()).map_err(StartError::Data)?;
        if let Some(Following { thread, stop }) = following.take_if(|_| follows_others) {
            self.join(vec![thread], &stop);
        }
        let (added, removed) = (new_data.len() + new_filters.len(), data.len() + filters.len());
        info!(added, removed, users = users.len(), "read the configuration again");
        shared.served.store(Arc::new(Served { opened, users }));
        shared.access.replace(&config.admin);
        data.iter().for_each(|data| data.end());
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

    /// Stops the server: requests that were read are answered, filters are made durable.
    ///
    /// # Errors
    /// A filter cannot be made durable.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
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
        // A transfer may take some time to end; filters are durable before.
        if let Some(Following { thread, stop }) = following {
            self.join(vec![thread], &stop);
        }
        flushed
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

/// Looks for other versions, changed filters and servers that do not answer, until the
/// server stops. A failure changes nothing, and is met again at the next look.
fn look(shared: &Shared, stop: &Signal) {
    let mut next_sync = shared.now() + SYNC_INTERVAL;
    let mut journal = Journal::default();
    while !shared.is_stopping.load(Relaxed) {
        let seen = stop.count();
        let now = shared.now();
        for data in shared.data() {
            journal.note_error(data.name(), data.refresh().err());
            data.look_for_damage();
        }
        for filter in shared.filters() {
            let _ = filter.refresh();
            if now >= next_sync {
                let _ = filter.sync();
            }
        }
        if now >= next_sync {
            next_sync = now + SYNC_INTERVAL;
        }
        shared.dumps.forget_idle(now);
        shared.filter_home.iter().for_each(|home| home.forget_idle(now));
        journal.note_error("topology", shared.cluster.error());
        shared.certificates.iter().for_each(Certificates::reload);
        shared.cluster.probe();
        shared.metrics.look(now);
        journal.look(shared);
        if let Some(deployment) = &shared.deployment {
            deployment.throttle(&shared.metrics.commands(), now);
        }
        shared.env.clock.wait(stop, seen, now + LOOK_INTERVAL);
    }
}

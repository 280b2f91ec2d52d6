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
    network::{EventLoop, listen},
    opened::Opened,
    shared::Shared,
    tls::Certificates,
};
use arc_swap::ArcSwap;
use hashfold::{
    Env, Error,
    work::{Signal, Threads},
};
use mio::Waker;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tracing::info;

/// Threads that read from the device, for each network thread.
const READERS: usize = 8;

/// Time between two looks for other versions, other topologies and servers that do not answer.
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
    opened: Opened,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    http_addresses: Vec<SocketAddr>,
    wakers: Vec<Arc<Waker>>,
    stop: Signal,
    threads: Vec<JoinHandle<io::Result<()>>>,
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
) -> Result<Cluster, StartError> {
    let own = plain.first().or(encrypted.first());
    let own = *own.ok_or_else(|| wrong("listen: expected an address, got none"))?;
    let tls_port = encrypted.first().map(SocketAddr::port);
    Cluster::new(&config.cluster, own, tls_port).map_err(wrong)
}

impl Server {
    /// Opens all data sets, and starts to answer clients.
    ///
    /// # Errors
    /// A data set cannot be opened, an address is taken, or the configuration contradicts itself.
    pub fn start(config: Config, env: &Env) -> Result<Server, StartError> {
        config.check().map_err(wrong)?;
        check_http(&config)?;
        let executor = Arc::new(Threads::new(READERS * config.threads));
        let mut listeners = Vec::new();
        for thread in 0..config.threads {
            listeners.push(listeners_of(&config, &listeners, thread)?);
        }
        let mut addresses: Vec<SocketAddr> =
            listeners[0].iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let tls_addresses = addresses.split_off(config.listen.len());
        let certificates = read_certificates(&config)?;
        let cluster = cluster(&config, &addresses, &tls_addresses)?;
        let env = Env { executor: executor.clone(), ..env.clone() };
        let opened = Opened::open(&config, &env, &cluster)?;
        let users = opened.users(&config)?;
        let data: Vec<Arc<DataSet>> = opened.data.values().cloned().collect();
        let followed = config.deploy.as_ref().map(|deploy| Deployment::new(deploy, &env, &data));
        let (deployment, follower) = followed.transpose().map_err(StartError::Deploy)?.unzip();
        let changer = Arc::new(Changer::open(&config, &env)?);
        let shared = Arc::new(Shared {
            run_id: format!(
                "{:016x}{:016x}{:08x}",
                env.random.next_u64(),
                env.random.next_u64(),
                std::process::id()
            ),
            started: env.clock.now(),
            users: ArcSwap::from_pointee(users),
            data,
            filters: opened.filters.values().cloned().collect(),
            filter_home: opened.home.clone(),
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
            opened,
            addresses,
            tls_addresses,
            http_addresses: Vec::new(),
            wakers: Vec::new(),
            stop: Signal::default(),
            threads: Vec::new(),
        };
        for (number, listeners) in listeners.into_iter().enumerate() {
            server.start_network(number, listeners, executor.clone())?;
        }
        server.start_looking()?;
        if let Some(follower) = follower {
            let (shared, stop) = (server.shared.clone(), server.stop.clone());
            server.spawn("deploy", move || {
                Deployment::follow(follower, &shared.data, &stop);
                Ok(())
            })?;
        }
        server.start_http()?;
        info!(
            addresses = ?server.addresses,
            tls = ?server.tls_addresses,
            http = ?server.http_addresses,
            version = env!("CARGO_PKG_VERSION"),
            "serving"
        );
        Ok(server)
    }

    /// Opens all data sets for reading, and starts nothing. Another server may have them open.
    ///
    /// # Errors
    /// Those of [`Server::start`], but for addresses that are taken.
    pub fn check(config: &Config, env: &Env) -> Result<(), StartError> {
        config.check().map_err(wrong)?;
        check_http(config)?;
        read_certificates(config)?;
        let cluster = cluster(config, &config.listen, &config.tls_listen)?;
        let opened = Opened::open(&read_only(config), env, &cluster)?;
        opened.users(config)?;
        let data: Vec<Arc<DataSet>> = opened.data.into_values().collect();
        let followed = config.deploy.as_ref().map(|deploy| Deployment::new(deploy, env, &data));
        followed.transpose().map_err(StartError::Deploy)?;
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

    /// Starts the thread that answers HTTP requests, if there is an address for it.
    fn start_http(&mut self) -> Result<(), StartError> {
        let mut listeners = Vec::new();
        for address in &self.shared.config.http_listen {
            let action = format!("listen on {address}");
            let listener =
                TcpListener::bind(address).map_err(|source| StartError::Io { action, source })?;
            self.http_addresses.extend(listener.local_addr());
            listeners.push(listener);
        }
        if listeners.is_empty() {
            return Ok(());
        }
        let shared = self.shared.clone();
        self.spawn("http", move || crate::http::run(&shared, listeners))
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), StartError> {
        let builder = thread::Builder::new().name(name.into());
        let thread = builder.spawn(work).map_err(|source| StartError::Io {
            action: format!("start the thread \"{name}\""),
            source,
        })?;
        self.threads.push(thread);
        Ok(())
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

    /// Looks for other versions of all stores now. Returns the number of stores that changed.
    ///
    /// # Errors
    /// The first version that cannot be opened; its store serves what it served before.
    pub fn refresh(&self) -> Result<usize, Error> {
        let mut changed = 0;
        for data in &self.shared.data {
            changed += usize::from(data.refresh()?);
        }
        Ok(changed)
    }

    /// Makes the users of a changed configuration those that connections can become from now on, and its
    /// tokens those that count over HTTP. Open connections keep their users. Everything else in the
    /// configuration takes effect at the next start.
    ///
    /// # Errors
    /// The configuration contradicts itself, or names other data sets than those that are served;
    /// nothing is changed.
    pub fn reload(&self, config: &Config) -> Result<(), StartError> {
        config.check().map_err(wrong)?;
        // The addresses stay, so their rules do.
        let (listen, tls_listen) =
            (self.shared.config.listen.clone(), self.shared.config.tls_listen.clone());
        let tls = self.shared.config.tls.clone();
        Config { listen, tls_listen, tls, ..config.clone() }.check().map_err(wrong)?;
        let served = &self.shared.config.data;
        if let Some(name) = config.data.keys().find(|name| !served.contains_key(*name)) {
            return Err(wrong(format!(
                "data set \"{name}\": expected one that is served; start the server again to add it"
            )));
        }
        let users = self.opened.users(config)?;
        info!(
            users = users.len(),
            tokens = config.admin.tokens.len(),
            "read users and tokens again"
        );
        self.shared.users.store(Arc::new(users));
        self.shared.access.replace(&config.admin);
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
        for waker in &self.wakers {
            // A thread that cannot be woken looks at the clock all the same.
            let _ = waker.wake();
        }
        // A transfer may take some time to end; filters are durable before.
        let is_transfer = |thread: &JoinHandle<_>| thread.thread().name() == Some("deploy");
        let (transfers, others): (Vec<_>, Vec<_>) = self.threads.drain(..).partition(is_transfer);
        self.join(others);
        let filters = self.shared.filters();
        let flushed = filters.iter().map(|filter| filter.flush()).fold(Ok(()), Result::and);
        self.join(transfers);
        flushed
    }

    /// Waits until threads have ended.
    fn join(&self, threads: Vec<JoinHandle<io::Result<()>>>) {
        for thread in threads {
            // A thread may have begun to wait just after a signal.
            while !thread.is_finished() {
                self.stop.send();
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

/// Refuses to answer HTTP requests of other machines: there are no passwords.
fn check_http(config: &Config) -> Result<(), StartError> {
    match config.http_listen.iter().find(|address| !address.ip().is_loopback()) {
        None => Ok(()),
        Some(address) => Err(wrong(format!(
            "http-listen on {address}: expected an address of loopback, since HTTP asks for no password"
        ))),
    }
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
        listen(address).map_err(|source| StartError::Io { action, source })
    };
    config.listen.iter().chain(&config.tls_listen).enumerate().map(listen_at).collect()
}

/// Looks for other versions, other topologies, changed filters and servers that do not answer, until the
/// server stops. A failure changes nothing, and is met again at the next look.
fn look(shared: &Shared, stop: &Signal) {
    let mut next_sync = shared.now() + SYNC_INTERVAL;
    let mut journal = Journal::default();
    while !shared.is_stopping.load(Relaxed) {
        let seen = stop.count();
        let now = shared.now();
        for data in &shared.data {
            let _ = data.refresh();
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
        let _ = shared.cluster.reload();
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

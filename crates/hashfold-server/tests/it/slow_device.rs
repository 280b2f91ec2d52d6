//! A device that does not answer for a while.

use crate::fixture::{Client, Home, request};
use hashfold::{
    Env, Result,
    io::{Access, BlockFile, Disk, DiskLayer, Extent, FileLayer, OsDisk},
    work::{Clock, Signal, SystemClock},
};
use hashfold_server::{Config, Server};
use std::{
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Number of threads that read for one network thread.
const READERS: usize = 8;

/// A disk whose reads wait while its gate is closed.
#[derive(Clone, Debug, Default)]
struct GatedDisk(Arc<Gate>);

/// A gate at which calls of a disk wait.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Whether calls wait, and the number of those that do.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn set_closed(&self, is_closed: bool) {
        self.state.lock().unwrap().0 = is_closed;
        self.changed.notify_all();
    }

    /// Waits while the gate is closed.
    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |(is_closed, _)| *is_closed).unwrap();
        state.1 -= 1;
    }

    /// Waits until this number of calls wait.
    pub(crate) fn wait_for(&self, count: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |(_, waiting)| *waiting < count).unwrap());
    }
}

impl DiskLayer for GatedDisk {
    fn below(&self) -> &dyn Disk {
        &OsDisk
    }

    fn over_opened(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        Arc::new(GatedFile { file, gate: self.0.clone() })
    }
}

#[derive(Debug)]
struct GatedFile {
    file: Arc<dyn BlockFile>,
    gate: Arc<Gate>,
}

impl FileLayer for GatedFile {
    fn below(&self) -> &dyn BlockFile {
        &*self.file
    }

    fn before_read(&self, _: Extent) -> Result<()> {
        self.gate.pass();
        Ok(())
    }
}

/// The clock of the machine, set forward.
#[derive(Clone, Debug, Default)]
struct ShiftedClock {
    milliseconds: Arc<AtomicU64>,
}

impl ShiftedClock {
    fn shift(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Relaxed))
    }
}

impl Clock for ShiftedClock {
    fn now(&self) -> Duration {
        SystemClock.now() + self.shift()
    }

    fn unix_time(&self) -> Duration {
        SystemClock.unix_time() + self.shift()
    }

    fn wait(&self, signal: &Signal, seen: u64, deadline: Duration) {
        SystemClock.wait(signal, seen, deadline.saturating_sub(self.shift()));
    }
}

/// Serves the table from a disk that waits, by a clock that the test sets forward.
struct Scene {
    disk: GatedDisk,
    clock: ShiftedClock,
    server: Server,
    _home: Home,
}

impl Scene {
    fn new() -> Scene {
        let home = Home::new();
        let mut config = Config::of_folders(&[home.path("table"), home.path("seen")]).unwrap();
        config.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.threads = 1;
        config.data.get_mut("table").unwrap().access = Some(Access::Direct);
        let (disk, clock) = (GatedDisk::default(), ShiftedClock::default());
        let env = Env { clock: Arc::new(clock.clone()), ..Env::on(Arc::new(disk.clone())) };
        let server = Server::start(config, &env).unwrap();
        Scene { disk, clock, server, _home: home }
    }
}

#[test]
fn the_slow_log_has_the_whole_time_of_lookups_jobs_and_transactions() {
    let Scene { disk, clock, server, .. } = &Scene::new();
    let mut watcher = Client::of(server);
    watcher
        .check("CONFIG SET latency-monitor-threshold 1000 slowlog-log-slower-than 1000000", "+OK");
    for (line, shown) in [
        // A lookup that is alone, on the network thread; others, on threads that may wait.
        ("GETRANGE key-1 0 4", r#"["getrange" "key-1" "0" "4"]"#),
        ("MGET key-2 key-3", r#"["mget" "key-2" "key-3"]"#),
        ("RANDOMKEY", r#"["RANDOMKEY"]"#),
        ("EXEC", r#"["GET" "key-1"]"#),
    ] {
        watcher.check("SLOWLOG RESET", "+OK");
        watcher.check("CONFIG RESETSTAT", "+OK");
        let mut client = Client::of(server);
        if line == "EXEC" {
            client.check("MULTI", "+OK");
            client.check("GET key-1", "+QUEUED");
            client.check("PING", "+QUEUED");
        }
        disk.0.set_closed(true);
        client.ask(line);
        disk.0.wait_for(1);
        clock.milliseconds.fetch_add(60_000, Relaxed);
        disk.0.set_closed(false);
        client.reply();
        let log = watcher.call("SLOWLOG GET");
        assert!(log.contains(shown), "{line}: {log}");
        let took = log.split(' ').nth(2).and_then(|it| it.parse::<u64>().ok());
        assert!(took.is_some_and(|us| us >= 60_000_000), "{line}: {log}");
        let name = line.split(' ').next().unwrap().to_ascii_lowercase();
        let histogram = watcher.call(&format!("LATENCY HISTOGRAM {name}"));
        let slowest = format!("{} 1", 1 << 23);
        assert!(histogram.contains(&slowest), "{histogram}");
        let is_fast = line.starts_with("MGET") || line == "EXEC";
        let event = if is_fast { "fast-command" } else { "command" };
        let latest = watcher.call("LATENCY LATEST");
        let start = format!("[[\"{event}\" ");
        assert!(latest.starts_with(&start), "{line}: {latest}");
        let samples = watcher.call(&format!("LATENCY HISTORY {event}"));
        let ms =
            samples.trim_matches(['[', ']']).split(' ').nth(1).unwrap().parse::<u64>().unwrap();
        assert!(ms >= 60_000, "{line}: {samples}");
        watcher.check(&format!("LATENCY RESET other {event}"), "1");
    }
}

#[test]
fn lookups_that_wait_for_long_behind_others_are_refused() {
    let Scene { disk, clock, server, .. } = &Scene::new();
    let mut clients: Vec<Client> = (0..READERS).map(|_| Client::of(server)).collect();
    let mut late = Client::of(server);
    let mut transaction = Client::of(server);
    transaction.check("MULTI", "+OK");
    transaction.check("GET key-1", "+QUEUED");
    disk.0.set_closed(true);
    for (i, client) in clients.iter_mut().enumerate() {
        // The first is no lone lookup, for which the network thread would wait itself.
        client.ask(&format!("MGET key-{i} nope"));
        disk.0.wait_for(i + 1);
    }
    late.send(&[request(&["GET", "key-8"]), request(&["MGET", "key-8", "key-9"])].concat());
    transaction.ask("EXEC");
    // Another command of another client says that the requests before were read.
    Client::of(server).check("PING", "+PONG");
    clock.milliseconds.store(2000, Relaxed);
    disk.0.set_closed(false);
    for (i, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.reply(), format!("[\"value {i} of version 0\" nil]"));
    }
    let refused = "-TRYAGAIN Too many reads are waiting";
    assert_eq!(late.reply(), refused);
    assert_eq!(late.reply(), refused);
    assert_eq!(transaction.reply(), refused);
    transaction.check("EXEC", "-ERR EXEC without MULTI");
    late.check("GET key-8", "\"value 8 of version 0\"");
}

#[test]
fn a_server_that_stops_does_not_go_on_for_long_with_what_it_has_read() {
    let Scene { disk, clock, server, _home } = Scene::new();
    let (mut transaction, mut client) = (Client::of(&server), Client::of(&server));
    for line in ["MULTI", "KEYS key-1", "KEYS key-2"] {
        transaction.call(line);
    }
    disk.0.set_closed(true);
    transaction.ask("EXEC");
    client.send(&[request(&["KEYS", "key-1"]), request(&["KEYS", "key-2"])].concat());
    disk.0.wait_for(2);
    let address = server.addresses()[0];
    std::thread::scope(|scope| {
        scope.spawn(|| server.stop().unwrap());
        while TcpStream::connect(address).is_ok() {
            SystemClock.sleep(Duration::from_millis(5));
        }
        clock.milliseconds.fetch_add(31_000, Relaxed);
        disk.0.set_closed(false);
        assert_eq!(transaction.reply(), "[[\"key-1\"] -ERR the server stops]");
        assert_eq!(client.reply(), "[\"key-1\"]");
        assert!(client.is_closed());
    });
}

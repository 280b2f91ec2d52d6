//! The cluster: which server has which slots, and which servers answer.
//!
//! The topology is a document that all servers share. Data are immutable and all servers of a group have the
//! same, so whether a server is alive is each server's own opinion: a wrong one costs a client one
//! redirection.

use crate::{
    config::ClusterConfig,
    shared::Shared,
    topology::{Changes, Source, ranges},
};
use arc_swap::ArcSwap;
use hashfold::{ChosenSlots, Env, store::SLOTS};
use hashfold_deploy::{Node, Placed, Placement, Shard, Topology};
use std::{
    collections::HashSet,
    io::{
        ErrorKind::{TimedOut, WouldBlock},
        Read as _, Write as _,
    },
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// Time that another server has to accept a connection, and to answer.
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);

/// Number of questions in a row without an answer after which a server is left out of the lists.
const SILENCES_MAX: u8 = 2;

/// Number of servers that are asked at the same time: those that do not answer delay few others.
const PROBES_AT_ONCE: usize = 32;

/// The request to other servers. Whatever they answer, also that a password or encryption is missing, says
/// that they work: a process that was stopped accepts connections, and answers nothing.
const PROBE: &[u8] = b"PING\r\n";

/// A server as this one sees it.
#[derive(Debug)]
pub(crate) struct Seen {
    /// 40 hexadecimal digits.
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls_port: Option<u16>,
    pub(crate) zone: Option<String>,
    pub(crate) is_self: bool,
    /// Number of questions in a row that it did not answer, up to [`SILENCES_MAX`].
    silences: AtomicU8,
}

/// What came of a question to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Answer,
    /// Nothing in time: it may only be busy.
    Silence,
    /// No process listens there.
    Refusal,
}

impl Seen {
    /// Returns the port for a client, by whether its connection is encrypted.
    pub(crate) fn port_for(&self, is_encrypted: bool) -> u16 {
        self.tls_port.filter(|_| is_encrypted).unwrap_or(self.port)
    }

    /// Whether the server answers: it has not refused the last question, nor been silent too often. This server is
    /// not asked; it answers until it is about to stop.
    pub(crate) fn is_alive(&self) -> bool {
        self.silences.load(Relaxed) < SILENCES_MAX
    }

    /// Notes what came of a question. Only one thread asks a server.
    fn note(&self, heard: Heard) {
        let silences = match heard {
            Heard::Answer => 0,
            Heard::Silence => (self.silences.load(Relaxed) + 1).min(SILENCES_MAX),
            Heard::Refusal => SILENCES_MAX,
        };
        self.silences.store(silences, Relaxed);
    }
}

/// A group of servers as this one sees it.
#[derive(Debug)]
pub(crate) struct SeenShard {
    pub(crate) slots: Vec<RangeInclusive<u32>>,
    nodes: Vec<Seen>,
}

impl SeenShard {
    /// Returns the servers in the order in which clients see them: those that answer first. If none
    /// answers, all are listed as in the topology, so that clients see all slots covered.
    pub(crate) fn nodes(&self) -> Vec<&Seen> {
        let mut nodes: Vec<&Seen> = self.nodes.iter().filter(|node| node.is_alive()).collect();
        if nodes.is_empty() {
            nodes = self.nodes.iter().collect();
        }
        nodes
    }

    /// Returns all servers, also those that do not answer.
    pub(crate) fn all(&self) -> &[Seen] {
        &self.nodes
    }

    /// Whether any server answers.
    pub(crate) fn is_alive(&self) -> bool {
        self.nodes.iter().any(Seen::is_alive)
    }
}

/// The cluster as this server sees it.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) epoch: u64,
    pub(crate) shards: Vec<SeenShard>,
    /// For each slot the number of its shard.
    owners: Vec<u16>,
    own: usize,
    /// The slots of the topology before that this server still answers for; empty if there are none.
    lingers: Vec<bool>,
    /// The slots of the next topology that this server does not have open yet; empty if there are none.
    opening: Vec<bool>,
    /// The time, by the clock, from which on the servers that had these slots may send clients here.
    opening_from: Duration,
}

impl View {
    fn new(topology: &Topology, own: &str, before: Option<&View>) -> Result<View, String> {
        let own_shard = topology.nodes().find(|(_, node)| node.id == own).map(|(shard, _)| shard);
        let own_shard =
            own_shard.ok_or_else(|| format!("node \"{own}\" is not in the topology"))?;
        let mut owners = vec![0; SLOTS as usize];
        let seen = before.into_iter().flat_map(|view| &view.shards).flat_map(|shard| &shard.nodes);
        let silent: HashSet<&str> =
            seen.filter(|seen| !seen.is_alive()).map(|seen| &*seen.id).collect();
        let node_of = |node: &Node| {
            let id = id_of(&node.id);
            Seen {
                silences: AtomicU8::new(if silent.contains(&*id) { SILENCES_MAX } else { 0 }),
                id,
                host: node.host.clone(),
                port: node.port,
                tls_port: node.tls_port,
                zone: node.zone.clone(),
                is_self: node.id == own,
            }
        };
        let shards = topology.shards.iter().enumerate().map(|(number, shard)| {
            for (first, last) in &shard.slots {
                owners[*first as usize..=*last as usize].fill(number as u16);
            }
            SeenShard {
                slots: shard.slots.iter().map(|(first, last)| *first..=*last).collect(),
                nodes: shard.nodes.iter().map(&node_of).collect(),
            }
        });
        let shards = shards.collect();
        Ok(View {
            epoch: topology.epoch,
            shards,
            owners,
            own: own_shard,
            lingers: Vec::new(),
            opening: Vec::new(),
            opening_from: Duration::MAX,
        })
    }

    /// Returns the shard of this server.
    pub(crate) fn own_shard(&self) -> &SeenShard {
        &self.shards[self.own]
    }

    /// Returns this server.
    pub(crate) fn own(&self) -> &Seen {
        let own = self.own_shard().nodes.iter().find(|node| node.is_self);
        own.expect("a view has this server")
    }

    /// Returns the shard that has a slot.
    pub(crate) fn owner(&self, slot: u32) -> &SeenShard {
        &self.shards[usize::from(self.owners[slot as usize])]
    }

    /// Whether the topology gives a slot to this server.
    #[inline]
    fn owns(&self, slot: u32) -> bool {
        usize::from(self.owners[slot as usize]) == self.own
    }

    /// Whether this server answers for a slot.
    #[inline]
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.owns(slot) || self.lingers.get(slot as usize) == Some(&true)
    }

    /// Whether this server gets a slot that it does not have open yet, and the servers that had it may send
    /// clients here: sent back, these would go to and fro.
    pub(crate) fn is_opening(&self, slot: u32, now: Duration) -> bool {
        now >= self.opening_from && self.opening.get(slot as usize) == Some(&true)
    }
}

/// Returns for each slot whether it is one.
fn slots_with(is_one: impl Fn(u32) -> bool) -> Vec<bool> {
    let slots: Vec<bool> = (0..SLOTS).map(is_one).collect();
    if slots.contains(&true) { slots } else { Vec::new() }
}

/// Returns the 40 hexadecimal digits that stand for a name.
fn id_of(name: &str) -> String {
    let [high, low] = [1, 2].map(|seed| {
        let hash = hashfold::KeyHash::of(name.as_bytes(), hashfold::Seed(seed));
        format!("{:016x}{:016x}", hash.high(), hash.low())
    });
    format!("{high}{low}")[..40].to_owned()
}

/// The cluster of a server, or none.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The name of this server in the topology.
    own: String,
    view: Option<ArcSwap<View>>,
    /// The slots that stores open.
    slots: ChosenSlots,
    /// The slots that the server answers for, as it reports them to its group.
    placement: Placement,
    /// Whether the topology is that of a remote.
    is_in_remote: bool,
    /// The state with which the thread that follows the topology begins; `None` if the topology never changes.
    changes: Mutex<Option<Changes>>,
    /// Held while slots or data sets change, so that data sets have all slots of the server.
    changing: Mutex<()>,
    /// The errors of the last change.
    error: Mutex<String>,
}

impl Cluster {
    /// Makes the cluster of a configuration. `own` is the address that this server listens on, `tls_port`
    /// its port for encrypted connections.
    ///
    /// # Errors
    /// The topology cannot be read, or does not have this server.
    pub(crate) fn new(
        config: &ClusterConfig,
        own: SocketAddr,
        tls_port: Option<u16>,
        env: &Env,
    ) -> Result<Cluster, String> {
        let (name, source) = match config {
            ClusterConfig::Off => return Ok(Cluster::of(String::new(), None, None)),
            ClusterConfig::Emulated => {
                let (id, host) = (own.to_string(), own.ip().to_string());
                let node = Node { id, host, port: own.port(), tls_port, zone: None };
                let shard = Shard { slots: vec![(0, SLOTS - 1)], nodes: vec![node] };
                let topology = Topology { epoch: 1, shards: vec![shard], ..Topology::default() };
                let view = View::new(&topology, &own.to_string(), None)?;
                return Ok(Cluster::of(own.to_string(), Some(view), None));
            }
            ClusterConfig::Topology(path, name) => (name, Source::file(path)),
            ClusterConfig::Remote { url, node, copy } => (node, Source::remote(env, url, copy)?),
        };
        let mut source = source;
        let topology = source.start(env)?;
        let view = View::new(&topology, name, None)?;
        Ok(Cluster::of(name.clone(), Some(view), Some(Changes::new(source, topology))))
    }

    fn of(own: String, view: Option<View>, changes: Option<Changes>) -> Cluster {
        let slots = ranges(|slot| view.as_ref().is_none_or(|view| view.has(slot)));
        let cluster = Cluster {
            own,
            slots: ChosenSlots::new(slots),
            view: view.map(ArcSwap::from_pointee),
            placement: Placement::default(),
            is_in_remote: changes.as_ref().is_some_and(Changes::is_in_remote),
            changes: Mutex::default(),
            changing: Mutex::default(),
            error: Mutex::default(),
        };
        changes.iter().for_each(|changes| cluster.place(changes.current()));
        *lock(&cluster.changes) = changes;
        cluster
    }

    /// Whether clients may use cluster mode.
    pub(crate) fn is_on(&self) -> bool {
        self.view.is_some()
    }

    /// Returns the cluster as it is now, if there is one.
    #[inline]
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.view.as_ref().map(ArcSwap::load_full)
    }

    /// Returns the zone of this server, as the topology has it.
    pub(crate) fn own_zone(&self) -> Option<String> {
        self.view()?.own().zone.clone()
    }

    /// Returns the slots that stores open.
    pub(crate) fn slots(&self) -> &ChosenSlots {
        &self.slots
    }

    /// Returns the slots that the server answers for, as it reports them to its group.
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns the state with which the thread that follows the topology begins, once; `None` if the topology never changes.
    pub(crate) fn changes(&self) -> Option<Changes> {
        lock(&self.changes).take()
    }

    /// Keeps slots from changing while data sets do.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// Acts by another topology: opens the slots that it gives, and answers for them then. The slots that it takes
    /// are answered for until [`Cluster::end_grace`].
    ///
    /// # Errors
    /// The topology does not have this server, or a store cannot open its slots; the server acts as before.
    pub(crate) fn take_up(&self, topology: &Topology, shared: &Shared) -> Result<(), String> {
        let _changing = self.hold();
        let Some(view) = &self.view else { return Ok(()) };
        let before = view.load_full();
        let mut next = View::new(topology, &self.own, Some(&before))?;
        next.lingers = slots_with(|slot| before.has(slot) && !next.owns(slot));
        self.slots.set(ranges(|slot| next.has(slot)));
        // One store that fails does not keep the others from opening theirs.
        let opened = shared.data().into_iter().map(|data| data.open_chosen());
        if let Err(error) = opened.fold(Ok(()), Result::and) {
            // A table of these slots must not keep the next version from being opened.
            self.slots.set(ranges(|slot| before.has(slot)));
            return Err(error.to_string());
        }
        view.store(Arc::new(next));
        self.place(topology);
        Ok(())
    }

    /// Ends to answer for slots that the topology does not give to this server. Versions that are opened from now
    /// on do not have them.
    pub(crate) fn end_grace(&self, topology: &Topology) {
        let (_changing, Some(view)) = (self.hold(), &self.view) else { return };
        let before = view.load_full();
        if let Ok(next) = View::new(topology, &self.own, Some(&before)) {
            self.slots.set(ranges(|slot| next.has(slot)));
            view.store(Arc::new(next));
        }
    }

    /// Notes that this server, which acts by one topology, does not have the slots open yet that the next one
    /// gives it. From a time on, it sends clients nowhere else for them.
    pub(crate) fn note_opening(&self, current: &Topology, next: &Topology, from: Duration) {
        let Some(view) = &self.view else { return };
        let before = view.load_full();
        let of = |topology| View::new(topology, &self.own, Some(&before));
        if let (Ok(mut now), Ok(next)) = (of(current), of(next)) {
            now.lingers.clone_from(&before.lingers);
            now.opening = slots_with(|slot| next.owns(slot) && !now.has(slot));
            now.opening_from = from;
            if (&now.opening, from) != (&before.opening, before.opening_from) {
                view.store(Arc::new(now));
            }
        }
    }

    /// Reports the slots that the topology gives to this server. The epoch of a file says nothing about the
    /// topology of a remote.
    fn place(&self, topology: &Topology) {
        let own = topology.shard_of(&self.own).map(|shard| shard.slots.clone()).unwrap_or_default();
        let slots = if own == [(0, SLOTS - 1)] { Vec::new() } else { own };
        let epoch = self.is_in_remote.then_some(topology.epoch);
        let keep = topology.keep;
        self.placement.set(Placed { epoch, slots, keep });
    }

    /// Notes the errors of the last look and the last change; an empty text if there were none.
    pub(crate) fn note_error(&self, error: String) {
        *lock(&self.error) = error;
    }

    /// Returns the errors of the last look and the last change, if there were any.
    pub(crate) fn error(&self) -> Option<String> {
        Some(lock(&self.error).clone()).filter(|error| !error.is_empty())
    }

    /// Lists this server as failed, because it is about to stop, if another one has the same slots.
    pub(crate) fn leave(&self) {
        let Some(view) = self.view() else { return };
        let others = view.own_shard().nodes.iter().filter(|node| !node.is_self);
        if others.into_iter().any(Seen::is_alive) {
            view.own().note(Heard::Refusal);
        }
    }

    /// Asks all other servers, and notes which of them answer.
    pub(crate) fn probe(&self) {
        let Some(view) = self.view() else { return };
        let all = view.shards.iter().flat_map(|shard| &shard.nodes);
        ask_all(&all.filter(|node| !node.is_self).collect::<Vec<_>>(), PROBE_TIMEOUT);
    }
}

/// Nothing is half written under these locks, so they can be taken after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks servers, many at the same time, and notes which of them answer.
fn ask_all(nodes: &[&Seen], timeout: Duration) {
    thread::scope(|scope| {
        for first in 0..nodes.len().min(PROBES_AT_ONCE) {
            let ask_some = move || {
                for node in nodes.iter().skip(first).step_by(PROBES_AT_ONCE) {
                    node.note(ask(&node.host, node.port, timeout));
                }
            };
            if thread::Builder::new().spawn_scoped(scope, ask_some).is_err() {
                ask_some();
            }
        }
    });
}

/// Asks a server at all addresses of its name, until one answers.
fn ask(host: &str, port: u16, timeout: Duration) -> Heard {
    let ask = |address: SocketAddr| -> std::io::Result<()> {
        let mut socket = TcpStream::connect_timeout(&address, timeout)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.write_all(PROBE)?;
        // The end of the connection is an answer, too.
        socket.read(&mut [0]).map(drop)
    };
    let mut heard = Heard::Refusal;
    for address in (host, port).to_socket_addrs().into_iter().flatten().take(4) {
        match ask(address) {
            Ok(()) => return Heard::Answer,
            Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => heard = Heard::Silence,
            Err(_) => {}
        }
    }
    heard
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// The ranges of slots of a shard, and the names of its servers.
    type Group<'a> = (&'a [(u32, u32)], &'a [&'a str]);

    fn topology(shards: &[Group<'_>]) -> Topology {
        let node = |name: &&str| Node {
            id: (*name).into(),
            host: "127.0.0.1".into(),
            port: 1,
            tls_port: None,
            zone: None,
        };
        let shard = |(slots, names): &Group<'_>| Shard {
            slots: slots.to_vec(),
            nodes: names.iter().map(node).collect(),
        };
        let shards = shards.iter().map(shard).collect();
        Topology { epoch: 1, shards, ..Topology::default() }
    }

    #[test]
    fn each_slot_has_one_owner() {
        let two = topology(&[(&[(0, 8191)], &["a", "b"]), (&[(8192, 16_383)], &["c"])]);
        let view = View::new(&two, "b", None).unwrap();
        assert!(view.has(0) && view.has(8191) && !view.has(8192));
        assert_eq!(view.owner(16_383).all()[0].id, id_of("c"));
        assert_eq!(view.own().id, id_of("b"));
        assert_eq!(id_of("b").len(), 40);
        assert!(View::new(&two, "x", None).is_err());
    }

    #[test]
    fn a_server_has_the_zone_of_the_topology() {
        let mut two = topology(&[(&[(0, 16_383)], &["a", "b"])]);
        two.shards[0].nodes[1].zone = Some("east".into());
        let cluster =
            |own: &str| Cluster::of(own.into(), Some(View::new(&two, own, None).unwrap()), None);
        assert_eq!(cluster("a").own_zone(), None);
        assert_eq!(cluster("b").own_zone().as_deref(), Some("east"));
        assert_eq!(Cluster::of(String::new(), None, None).own_zone(), None);
    }

    /// Slots that a server gets and loses: it answers for the latter until the end of the grace.
    #[test]
    fn slots_that_are_lost_linger() {
        let view = |first| {
            let two = topology(&[(&[(0, first - 1)], &["a"]), (&[(first, 16_383)], &["b"])]);
            View::new(&two, "a", None).unwrap()
        };
        let (before, mut next) = (view(100), view(50));
        next.lingers = slots_with(|slot| before.has(slot) && !next.owns(slot));
        assert!(next.has(49) && next.has(50) && next.has(99) && !next.has(100));
        assert_eq!(ranges(|slot| next.has(slot)).first(), Some(&(0..100)));
        assert_eq!(next.owner(99).all()[0].id, id_of("b"));
        let more = view(150);
        let mut now = view(100);
        now.opening = slots_with(|slot| more.owns(slot) && !now.has(slot));
        let second = Duration::from_secs(1);
        assert!(!now.is_opening(100, second), "clients are sent to the server that has it still");
        now.opening_from = second;
        let is_opening = |slot| now.is_opening(slot, second);
        assert!(!is_opening(99) && is_opening(100) && !is_opening(150));
        assert!(!now.is_opening(100, second / 2));
        assert!(slots_with(|_| false).is_empty());
    }

    #[test]
    fn a_server_that_accepts_connections_and_answers_nothing_does_not_count_as_alive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(ask("127.0.0.1", port, PROBE_TIMEOUT), Heard::Silence);
        thread::scope(|scope| {
            scope.spawn(|| {
                // The first connection is that of the question before.
                drop(listener.accept().unwrap());
                let (mut socket, _) = listener.accept().unwrap();
                let mut request = [0; PROBE.len()];
                socket.read_exact(&mut request).unwrap();
                assert_eq!(request, PROBE);
                socket.write_all(b"-NOAUTH\r\n").unwrap();
            });
            assert_eq!(ask("127.0.0.1", port, Duration::from_secs(20)), Heard::Answer);
        });
        drop(listener);
        assert_eq!(ask("127.0.0.1", port, PROBE_TIMEOUT), Heard::Refusal);
    }

    /// A server that is busy for a moment stays in the lists.
    #[test]
    fn a_server_is_left_out_once_it_refuses_or_is_silent_twice() {
        let view = View::new(&topology(&[(&[(0, 16_383)], &["a", "b"])]), "a", None).unwrap();
        let other = &view.own_shard().nodes[1];
        let after = |heard| {
            other.note(heard);
            other.is_alive()
        };
        assert!(after(Heard::Silence) && after(Heard::Answer) && after(Heard::Silence));
        assert!(!after(Heard::Silence) && !after(Heard::Silence));
        assert!(after(Heard::Answer) && !after(Heard::Refusal) && !after(Heard::Silence));
        assert!(after(Heard::Answer) && after(Heard::Silence));
    }

    /// Each server answers when all were asked: one after the other, none would.
    #[test]
    fn servers_that_do_not_answer_do_not_delay_the_question_to_others() {
        let listeners: Vec<TcpListener> =
            (0..8).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let mut all = topology(&[(&[(0, 16_383)], &["a", "b", "c", "d", "e", "f", "g", "h"])]);
        for (node, listener) in all.shards[0].nodes.iter_mut().zip(&listeners) {
            node.port = listener.local_addr().unwrap().port();
        }
        let view = View::new(&all, "a", None).unwrap();
        let nodes: Vec<&Seen> = view.own_shard().all().iter().collect();
        nodes.iter().for_each(|node| node.note(Heard::Refusal));
        thread::scope(|scope| {
            scope.spawn(|| {
                let asked: Vec<_> =
                    listeners.iter().map(|listener| listener.accept().unwrap().0).collect();
                for mut socket in asked {
                    socket.read_exact(&mut [0; PROBE.len()]).unwrap();
                    socket.write_all(b"+PONG\r\n").unwrap();
                }
            });
            ask_all(&nodes, Duration::from_secs(20));
        });
        assert!(nodes.iter().all(|node| node.silences.load(Relaxed) == 0));
    }

    #[test]
    fn servers_that_do_not_answer_are_left_out_unless_none_does() {
        let view = View::new(&topology(&[(&[(0, 16_383)], &["a", "b"])]), "a", None).unwrap();
        assert_eq!(view.own_shard().nodes().len(), 2);
        view.own_shard().nodes[1].note(Heard::Refusal);
        assert_eq!(view.own_shard().nodes().len(), 1);
        let other = View::new(
            &topology(&[(&[(0, 0)], &["a"]), (&[(1, 16_383)], &["b"])]),
            "a",
            Some(&view),
        )
        .unwrap();
        assert!(!other.owner(1).is_alive());
        assert_eq!(other.owner(1).nodes().len(), 1);
    }
}

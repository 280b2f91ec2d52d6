//! The cluster: which server has which slots, and which servers answer.
//!
//! The topology is a file that all servers share. Data are immutable and all servers of a group have the
//! same, so whether a server is alive is each server's own opinion: a wrong one costs a client one
//! redirection.

use crate::config::ClusterConfig;
use arc_swap::ArcSwap;
use hashfold::store::SLOTS;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    ops::RangeInclusive,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Maximum size of a topology file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Time that another server has to accept a connection, and to answer.
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);

/// The request to other servers. Whatever they answer, also that a password or encryption is missing, says
/// that they work: a process that was stopped accepts connections, and answers nothing.
const PROBE: &[u8] = b"PING\r\n";

/// The servers of a cluster, as the topology file has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// A number that grows with each change.
    pub epoch: u64,
    /// Groups of servers with the same data.
    pub shards: Vec<Shard>,
}

/// A group of servers that have the same slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// First and last slot of each range.
    pub slots: Vec<(u32, u32)>,
    /// The servers; clients that do not read from replicas use the first that answers.
    pub nodes: Vec<Node>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The name, by which a server finds itself in the topology.
    pub id: String,
    /// The address that clients connect to.
    pub host: String,
    /// The port for Redis clients.
    pub port: u16,
    /// The port for encrypted connections, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_port: Option<u16>,
    /// The zone, which can get versions of a group before all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

impl Topology {
    /// Reads a topology file, in JSON.
    ///
    /// # Errors
    /// What was expected and what was found.
    pub fn read(path: &Path) -> Result<Topology, String> {
        let wrong = |message: String| format!("{}: {message}", path.display());
        let size = fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if size > FILE_BYTES_MAX {
            return Err(wrong(format!("expected at most {FILE_BYTES_MAX} bytes, got {size}")));
        }
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let topology: Topology =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        topology.check().map_err(wrong)?;
        Ok(topology)
    }

    /// Checks that each slot is in one shard, that each shard has a server, and that names are unique.
    fn check(&self) -> Result<(), String> {
        let mut owners = vec![0_u32; SLOTS as usize];
        for (first, last) in self.shards.iter().flat_map(|shard| &shard.slots) {
            if first > last || *last >= SLOTS {
                return Err(format!("slots: expected 0 to {}, got {first} to {last}", SLOTS - 1));
            }
            owners[*first as usize..=*last as usize].iter_mut().for_each(|count| *count += 1);
        }
        if let Some(slot) = owners.iter().position(|count| *count != 1) {
            return Err(format!("slot {slot}: expected in one shard, got in {}", owners[slot]));
        }
        if self.shards.iter().any(|shard| shard.nodes.is_empty()) {
            return Err("nodes: expected at least one in each shard, got none".into());
        }
        let mut names: Vec<&str> = self.nodes().map(|(_, node)| &*node.id).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("node \"{}\": expected once, got twice", pair[0])),
            None => Ok(()),
        }
    }

    /// Returns all servers, each with the number of its shard.
    fn nodes(&self) -> impl Iterator<Item = (usize, &Node)> {
        let shards = self.shards.iter().enumerate();
        shards.flat_map(|(number, shard)| shard.nodes.iter().map(move |node| (number, node)))
    }
}

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
    is_alive: AtomicBool,
}

impl Seen {
    /// Returns the port for a client, by whether its connection is encrypted.
    pub(crate) fn port_for(&self, is_encrypted: bool) -> u16 {
        self.tls_port.filter(|_| is_encrypted).unwrap_or(self.port)
    }

    /// Whether the server answered when it was asked last.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_self || self.is_alive.load(Relaxed)
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
}

impl View {
    fn new(topology: &Topology, own: &str, before: Option<&View>) -> Result<View, String> {
        let own_shard = topology.nodes().find(|(_, node)| node.id == own).map(|(shard, _)| shard);
        let own_shard =
            own_shard.ok_or_else(|| format!("node \"{own}\" is not in the topology"))?;
        let mut owners = vec![0; SLOTS as usize];
        let was_alive = |node: &Node| {
            let all =
                before.into_iter().flat_map(|view| &view.shards).flat_map(|shard| &shard.nodes);
            all.into_iter().find(|seen| seen.id == id_of(&node.id)).is_none_or(Seen::is_alive)
        };
        let shards = topology.shards.iter().enumerate().map(|(number, shard)| {
            for (first, last) in &shard.slots {
                owners[*first as usize..=*last as usize].fill(number as u16);
            }
            let nodes = shard.nodes.iter().map(|node| Seen {
                id: id_of(&node.id),
                host: node.host.clone(),
                port: node.port,
                tls_port: node.tls_port,
                zone: node.zone.clone(),
                is_self: node.id == own,
                is_alive: AtomicBool::new(was_alive(node)),
            });
            SeenShard {
                slots: shard.slots.iter().map(|(first, last)| *first..=*last).collect(),
                nodes: nodes.collect(),
            }
        });
        let shards = shards.collect();
        Ok(View { epoch: topology.epoch, shards, owners, own: own_shard })
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

    /// Whether this server has a slot.
    #[inline]
    pub(crate) fn has(&self, slot: u32) -> bool {
        usize::from(self.owners[slot as usize]) == self.own
    }
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
    config: ClusterConfig,
    view: Option<ArcSwap<View>>,
}

impl Cluster {
    /// Makes the cluster of a configuration. `own` is the address that this server listens on, `tls_port`
    /// its port for encrypted connections.
    ///
    /// # Errors
    /// The topology file cannot be read, or does not have this server.
    pub(crate) fn new(
        config: &ClusterConfig,
        own: SocketAddr,
        tls_port: Option<u16>,
    ) -> Result<Cluster, String> {
        let view = match config {
            ClusterConfig::Off => None,
            ClusterConfig::Emulated => {
                let (id, host) = (own.to_string(), own.ip().to_string());
                let node = Node { id, host, port: own.port(), tls_port, zone: None };
                let shard = Shard { slots: vec![(0, SLOTS - 1)], nodes: vec![node] };
                let topology = Topology { epoch: 1, shards: vec![shard] };
                Some(View::new(&topology, &own.to_string(), None)?)
            }
            ClusterConfig::Topology(path, name) => {
                Some(View::new(&Topology::read(path)?, name, None)?)
            }
        };
        Ok(Cluster { config: config.clone(), view: view.map(ArcSwap::from_pointee) })
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

    /// Returns the slots that this server opens, from the first to the last.
    pub(crate) fn own_slots(&self) -> std::ops::Range<u32> {
        let Some(view) = self.view() else { return 0..SLOTS };
        let slots = &view.own_shard().slots;
        let start = slots.iter().map(|range| *range.start()).min().unwrap_or(0);
        let end = slots.iter().map(|range| *range.end() + 1).max().unwrap_or(SLOTS);
        start..end
    }

    /// Returns the ranges of slots that this server answers for, first and last slot; none if these are all.
    pub(crate) fn own_ranges(&self) -> Vec<(u32, u32)> {
        let Some(view) = self.view() else { return Vec::new() };
        let ranges = view.own_shard().slots.iter().map(|range| (*range.start(), *range.end()));
        let ranges: Vec<(u32, u32)> = ranges.collect();
        if ranges == [(0, SLOTS - 1)] { Vec::new() } else { ranges }
    }

    /// Reads the topology file again. Returns whether it changed.
    ///
    /// # Errors
    /// The file cannot be used; the server goes on with the last one.
    pub(crate) fn reload(&self) -> Result<bool, String> {
        let (ClusterConfig::Topology(path, name), Some(view)) = (&self.config, &self.view) else {
            return Ok(false);
        };
        let topology = Topology::read(path)?;
        let before = view.load_full();
        if topology.epoch <= before.epoch {
            return Ok(false);
        }
        view.store(Arc::new(View::new(&topology, name, Some(&before))?));
        Ok(true)
    }

    /// Asks all other servers, and notes which of them answer.
    pub(crate) fn probe(&self) {
        let Some(view) = self.view() else { return };
        let all = view.shards.iter().flat_map(|shard| &shard.nodes);
        for node in all.filter(|node| !node.is_self) {
            node.is_alive.store(answers(&node.host, node.port), Relaxed);
        }
    }
}

/// Whether a server answers.
fn answers(host: &str, port: u16) -> bool {
    let ask = |address: SocketAddr| -> std::io::Result<()> {
        let mut socket = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
        socket.set_read_timeout(Some(PROBE_TIMEOUT))?;
        socket.write_all(PROBE)?;
        // The end of the connection is an answer, too.
        socket.read(&mut [0]).map(drop)
    };
    let addresses = (host, port).to_socket_addrs().into_iter().flatten();
    addresses.take(4).any(|address| ask(address).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        Topology { epoch: 1, shards: shards.iter().map(shard).collect() }
    }

    #[test]
    fn each_slot_has_one_owner() {
        let two = topology(&[(&[(0, 8191)], &["a", "b"]), (&[(8192, 16_383)], &["c"])]);
        two.check().unwrap();
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
        let text = serde_json::to_string(&two).unwrap();
        assert_eq!(serde_json::from_str::<Topology>(&text).unwrap(), two);
        let cluster = |own| {
            let view = View::new(&two, own, None).unwrap();
            let view = Some(ArcSwap::from_pointee(view));
            Cluster { config: ClusterConfig::Emulated, view }
        };
        assert_eq!(cluster("a").own_zone(), None);
        assert_eq!(cluster("b").own_zone().as_deref(), Some("east"));
        assert_eq!(Cluster { config: ClusterConfig::Off, view: None }.own_zone(), None);
    }

    #[test]
    fn topologies_that_make_no_sense_are_refused() {
        for (shards, expected) in [
            (topology(&[(&[(0, 100)], &["a"])]), "slot 101: expected in one shard, got in 0"),
            (
                topology(&[(&[(0, 16_383), (5, 5)], &["a"])]),
                "slot 5: expected in one shard, got in 2",
            ),
            (topology(&[(&[(0, 16_384)], &["a"])]), "got 0 to 16384"),
            (topology(&[(&[(0, 16_383)], &[])]), "at least one"),
            (topology(&[(&[(0, 16_383)], &["a", "a"])]), "got twice"),
        ] {
            let error = shards.check().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_server_that_accepts_connections_and_answers_nothing_does_not_count_as_alive() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!answers("127.0.0.1", port));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The first connection is that of the question before.
                drop(listener.accept().unwrap());
                let (mut socket, _) = listener.accept().unwrap();
                let mut request = [0; PROBE.len()];
                socket.read_exact(&mut request).unwrap();
                assert_eq!(request, PROBE);
                socket.write_all(b"-NOAUTH\r\n").unwrap();
            });
            assert!(answers("127.0.0.1", port));
        });
        drop(listener);
        assert!(!answers("127.0.0.1", port));
    }

    #[test]
    fn servers_that_do_not_answer_are_left_out_unless_none_does() {
        let view = View::new(&topology(&[(&[(0, 16_383)], &["a", "b"])]), "a", None).unwrap();
        assert_eq!(view.own_shard().nodes().len(), 2);
        view.own_shard().nodes[1].is_alive.store(false, Relaxed);
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

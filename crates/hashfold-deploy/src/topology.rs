//! The topology: which servers have which slots. All servers of a cluster share one, as a file or as an object
//! of a remote.
//!
//! The document is JSON. `docs/formats/deploy.md` has the same table:
//!
//! | field     |                                                                                |
//! |-----------|--------------------------------------------------------------------------------|
//! | epoch     | a number that grows with each change                                           |
//! | shards    | the groups of servers with the same data, for each: slots, nodes               |
//! | slots     | first and last slot of each range of a shard                                   |
//! | nodes     | the servers of a shard: id, host, port; tls_port and zone if they have one     |
//! | min_ready | number of servers that must have a version ready in each range of slots before |
//! |           | it is published, unless the controller says otherwise                          |
//! | keep      | number of versions besides the current one that servers keep                   |
//!
//! Every slot is in exactly one shard. `min_ready` and `keep` may be missing.

use crate::{
    error::{Error, ErrorKind, Result},
    layout::{self, check_name},
    objects::{Found, Tag},
    pointer::MAX_NUMBER,
    remote::Remote,
    swap::{Replaced, replace},
};
use hashfold::{Env, store::SLOTS};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum number of servers in a topology.
const NODES_MAX: usize = 4096;
/// Maximum size of the name of a host, in bytes, as in DNS.
const HOST_SIZE_MAX: usize = 253;
/// Maximum of `min_ready` and of `keep`.
const COUNT_MAX: usize = 4096;

/// The servers of a cluster, and the slots that they have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// A number that grows with each change; 0 in a document that has none yet.
    #[serde(default)]
    pub epoch: u64,
    /// Groups of servers with the same data.
    pub shards: Vec<Shard>,
    /// Number of servers that must have a version ready in each range of slots before it is published, if the
    /// controller names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready: Option<usize>,
    /// Number of versions besides the current one that servers keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<usize>,
}

/// A group of servers that have the same slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// First and last slot of each range.
    pub slots: Vec<(u32, u32)>,
    /// The servers; clients that do not read from replicas use the first that answers.
    pub nodes: Vec<Node>,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Maximum size of the document, in bytes.
    pub const SIZE_MAX: u64 = 1 << 20;

    /// Decodes the document, and checks that it makes sense: every slot in exactly one shard, a server in each
    /// shard, each name once, an epoch.
    ///
    /// # Errors
    /// `Document` with the field, what was expected and what was found; `Limit` if it is too large.
    pub fn from_bytes(bytes: &[u8]) -> Result<Topology> {
        let topology = Topology::from_draft(bytes)?;
        match topology.epoch {
            0 => Err(wrong("epoch", "a number from 1 on", "none")),
            _ => Ok(topology),
        }
    }

    /// Decodes a document that may have no epoch yet: [`Remote::set_topology`] gives it one.
    ///
    /// # Errors
    /// The errors of [`Topology::from_bytes`].
    pub fn from_draft(bytes: &[u8]) -> Result<Topology> {
        let got = bytes.len() as u64;
        if got > Topology::SIZE_MAX {
            let what = "size of the topology in bytes";
            return Err(ErrorKind::Limit { what, limit: Topology::SIZE_MAX, got }.into());
        }
        let mut topology: Topology = serde_json::from_slice(bytes).map_err(|error| {
            let at = format!("line {}, column {}", error.line(), error.column());
            wrong(at, "a topology in JSON", error)
        })?;
        topology.check()?;
        topology.shards.iter_mut().for_each(|shard| shard.slots = joined(&shard.slots));
        Ok(topology)
    }

    /// Encodes the document: a line for each shard, its ranges in ascending order and joined where they touch.
    pub fn to_bytes(&self) -> Vec<u8> {
        let line = |shard: &Shard| {
            let shard = Shard { slots: joined(&shard.slots), nodes: shard.nodes.clone() };
            serde_json::to_string(&shard).expect("all keys are texts")
        };
        let shards: Vec<String> = self.shards.iter().map(line).collect();
        let mut text =
            format!("{{\"epoch\":{},\"shards\":[\n{}\n]", self.epoch, shards.join(",\n"));
        for (name, count) in [("min_ready", self.min_ready), ("keep", self.keep)] {
            text.extend(count.map(|count| format!(",\"{name}\":{count}")));
        }
        text.push_str("}\n");
        text.into_bytes()
    }

    /// Returns all servers, each with the number of its shard.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &Node)> {
        let shards = self.shards.iter().enumerate();
        shards.flat_map(|(number, shard)| shard.nodes.iter().map(move |node| (number, node)))
    }

    /// Returns the shard of a server; `None` if the topology does not have the server.
    pub fn shard_of(&self, node: &str) -> Option<&Shard> {
        let number = self.nodes().find(|(_, other)| other.id == node)?.0;
        self.shards.get(number)
    }

    /// Checks all fields but whether there is an epoch.
    ///
    /// # Errors
    /// `Document` with the field, what was expected and what was found.
    pub fn check(&self) -> Result<()> {
        if self.epoch > MAX_NUMBER {
            return Err(wrong("epoch", format!("at most {MAX_NUMBER}"), self.epoch));
        }
        self.check_slots()?;
        self.check_nodes()?;
        for (name, count) in [("min_ready", self.min_ready), ("keep", self.keep)] {
            if let Some(count) = count.filter(|count| *count > COUNT_MAX) {
                return Err(wrong(name, format!("at most {COUNT_MAX}"), count));
            }
        }
        Ok(())
    }

    /// Checks that each slot is in one shard, and that each shard has one.
    fn check_slots(&self) -> Result<()> {
        let mut owners = vec![None; SLOTS as usize];
        for (i, shard) in self.shards.iter().enumerate() {
            if shard.slots.is_empty() {
                return Err(wrong(format!("shards[{i}].slots"), "at least one range", "none"));
            }
            for (j, (first, last)) in shard.slots.iter().enumerate() {
                let at = || format!("shards[{i}].slots[{j}]");
                if first > last || *last >= SLOTS {
                    let expected = format!("first and last slot, from 0 to {}", SLOTS - 1);
                    return Err(wrong(at(), expected, format!("{first} to {last}")));
                }
                for slot in *first..=*last {
                    if let Some(other) = owners[slot as usize].replace(i) {
                        let got = format!("it also in shards[{other}]");
                        return Err(wrong(at(), format!("slot {slot} in one shard"), got));
                    }
                }
            }
        }
        match owners.iter().position(Option::is_none) {
            None => Ok(()),
            Some(slot) => Err(wrong("shards", format!("slot {slot} in one shard"), "it in none")),
        }
    }

    /// Checks names and addresses of all servers.
    fn check_nodes(&self) -> Result<()> {
        let mut ids: Vec<&str> = Vec::new();
        for (i, shard) in self.shards.iter().enumerate() {
            if shard.nodes.is_empty() {
                return Err(wrong(format!("shards[{i}].nodes"), "at least one server", "none"));
            }
            for (j, node) in shard.nodes.iter().enumerate() {
                node.check().map_err(|(field, expected, got)| {
                    wrong(format!("shards[{i}].nodes[{j}].{field}"), expected, got)
                })?;
                ids.push(&node.id);
            }
        }
        if ids.len() > NODES_MAX {
            return Err(wrong("shards", format!("at most {NODES_MAX} servers"), ids.len()));
        }
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(wrong("shards", format!("node \"{}\" once", pair[0]), "it more than once"))
            }
            None => Ok(()),
        }
    }
}

impl Node {
    /// Checks the fields. The error has the field, what was expected and what was found.
    fn check(&self) -> Result<(), (&'static str, String, String)> {
        let wrong_name = |field, error: &Error| match error.kind() {
            ErrorKind::Argument { expected, got, .. } => (field, expected.clone(), got.clone()),
            kind => (field, "a plain name".to_owned(), kind.to_string()),
        };
        check_name("node", &self.id).map_err(|error| wrong_name("id", &error))?;
        if let Some(zone) = &self.zone {
            check_name("zone", zone).map_err(|error| wrong_name("zone", &error))?;
        }
        // The host goes to clients in lines of text.
        let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
        let size = self.host.len();
        if size == 0 || size > HOST_SIZE_MAX || !self.host.bytes().all(is_of_host) {
            let expected = format!("a name or an address of at most {HOST_SIZE_MAX} characters");
            let got: String = self.host.chars().take(HOST_SIZE_MAX).collect();
            return Err(("host", expected, format!("{got:?}")));
        }
        match (self.port, self.tls_port) {
            (0, _) => Err(("port", "1 to 65535".into(), "0".into())),
            (_, Some(0)) => Err(("tls_port", "1 to 65535".into(), "0".into())),
            _ => Ok(()),
        }
    }
}

/// Returns ranges of slots in ascending order, joined where they touch.
fn joined(ranges: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let touches = before.1.checked_add(1) == Some(next.0);
        if touches {
            before.1 = next.1;
        }
        touches
    });
    ranges
}

/// Returns the error of a field.
fn wrong(at: impl Into<String>, expected: impl Into<String>, got: impl fmt::Display) -> Error {
    let (at, expected, got) = (at.into(), expected.into(), got.to_string());
    ErrorKind::Document { at, expected, got }.into()
}

/// Looks at the topology of a remote again and again: a look at an unchanged one is one small request.
#[derive(Clone, Debug)]
pub struct TopologyReader {
    remote: Remote,
    tag: Option<Tag>,
}

impl TopologyReader {
    /// Makes a reader, whose first look returns the topology. Makes no request.
    pub fn new(remote: &Remote) -> TopologyReader {
        TopologyReader { remote: remote.clone(), tag: None }
    }

    /// Reads the topology; `None` if it is the same as at the last look.
    ///
    /// # Errors
    /// `Absent` if the remote has none; `Document` if it makes no sense; the error of the object store. After
    /// an error, the next look reads it again.
    pub fn look(&mut self) -> Result<Option<Topology>> {
        let (objects, name) = (self.remote.objects(), layout::TOPOLOGY);
        match objects.get(name, Topology::SIZE_MAX, self.tag.as_ref())? {
            Found::Unchanged => Ok(None),
            Found::Absent => {
                objects.check_there()?;
                let what = "topology, which `hashfold deploy topology --set` makes".to_owned();
                Err(Error::new(ErrorKind::Absent { what }).at(objects.place(name)))
            }
            Found::Object(object) => {
                let topology = Topology::from_bytes(&object.bytes);
                let topology = topology.map_err(|error| error.at(objects.place(name)))?;
                self.tag = Some(object.tag);
                Ok(Some(topology))
            }
        }
    }
}

impl Remote {
    /// Returns the topology of the cluster; `None` if there is none.
    ///
    /// # Errors
    /// `Document` if the object makes no sense; the error of the object store.
    pub fn topology(&self) -> Result<Option<Topology>> {
        Ok(self.tagged_topology()?.0)
    }

    /// Returns the topology, and the tag of its object.
    fn tagged_topology(&self) -> Result<(Option<Topology>, Option<Tag>)> {
        let mut reader = TopologyReader::new(self);
        match reader.look() {
            Ok(topology) => Ok((topology, reader.tag)),
            Err(error) if matches!(error.kind(), ErrorKind::Absent { .. }) => Ok((None, None)),
            Err(error) => Err(error),
        }
    }

    /// Replaces the topology by one compare-and-swap, and returns it as it was written. A topology with
    /// epoch 0 gets the next one.
    ///
    /// # Errors
    /// `Document` if it makes no sense; `Epoch` if its epoch is not larger than that of the topology that is
    /// there, or if another process has changed that meanwhile; `Unconditional` if the object store does not
    /// keep the conditions of writes.
    pub fn set_topology(&self, env: &Env, topology: &Topology) -> Result<Topology> {
        let (objects, name) = (self.objects(), layout::TOPOLOGY);
        let place = || objects.place(name);
        topology.check()?;
        let (before, tag) = self.tagged_topology()?;
        let epoch_before = before.map_or(0, |before| before.epoch);
        let epoch = if topology.epoch == 0 { epoch_before + 1 } else { topology.epoch };
        let refused = |before| Error::new(ErrorKind::Epoch { before, got: epoch }).at(place());
        if epoch <= epoch_before {
            return Err(refused(epoch_before));
        }
        let new = Topology { epoch, ..topology.clone() };
        let bytes = new.to_bytes();
        let new = Topology::from_bytes(&bytes)?;
        self.check(env.random.as_ref())?;
        let object = (name, &*bytes);
        let read = || self.tagged_topology();
        let is_ours = |there: &Option<Topology>| there.as_ref() == Some(&new);
        match replace(objects, env.clock.as_ref(), object, tag.as_ref(), read, is_ours)? {
            Replaced::Done(_) => Ok(new),
            Replaced::Other(there) => Err(refused(there.map_or(0, |there| there.epoch))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster of two groups.
    fn two() -> Topology {
        let node = |id: &str, port| Node {
            id: id.into(),
            host: "10.0.0.1".into(),
            port,
            ..Node::default()
        };
        let zoned = Node { zone: Some("east".into()), tls_port: Some(9), ..node("a2", 2) };
        Topology {
            epoch: 7,
            shards: vec![
                Shard { slots: vec![(0, 8191)], nodes: vec![node("a1", 1), zoned] },
                Shard { slots: vec![(8192, 16_383)], nodes: vec![node("b1", 3)] },
            ],
            min_ready: Some(1),
            keep: None,
        }
    }

    #[test]
    fn a_document_that_is_written_is_read_again() {
        for topology in [two(), Topology { min_ready: None, keep: Some(3), ..two() }] {
            let bytes = topology.to_bytes();
            assert_eq!(Topology::from_bytes(&bytes).unwrap(), topology);
            assert_eq!(Topology::from_bytes(&bytes).unwrap().to_bytes(), bytes);
        }
        assert_eq!(two().shard_of("a2"), Some(&two().shards[0]));
        assert_eq!(two().shard_of("c"), None);
        let text = String::from_utf8(two().to_bytes()).unwrap();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.ends_with("],\"min_ready\":1}\n"), "{text}");
    }

    #[test]
    fn ranges_are_sorted_and_joined() {
        assert_eq!(joined(&[(5, 6), (0, 2), (3, 3), (8, 9)]), [(0, 3), (5, 6), (8, 9)]);
        let mut apart = two();
        apart.shards[0].slots = vec![(101, 8191), (0, 100)];
        assert_eq!(apart.to_bytes(), two().to_bytes());
        assert_eq!(Topology::from_bytes(&serde_json::to_vec(&apart).unwrap()).unwrap(), two());
    }

    #[test]
    fn topologies_that_make_no_sense_are_refused() {
        type Change = fn(&mut Topology);
        let long = |topology: &mut Topology| topology.shards[0].nodes[0].host = "h".repeat(254);
        let all: [(Change, &str); 15] = [
            (|it| it.epoch = 0, "epoch: expected a number from 1 on, got none"),
            (|it| it.epoch = u64::MAX, "epoch: expected at most"),
            (|it| it.shards.clear(), "shards: expected slot 0 in one shard, got it in none"),
            (|it| it.shards[0].slots = vec![], "shards[0].slots: expected at least one range"),
            (|it| it.shards[1].slots[0].1 = 16_384, "shards[1].slots[0]: expected first and last"),
            (|it| it.shards[1].slots[0] = (9, 8), "got 9 to 8"),
            (
                |it| it.shards[1].slots[0].0 = 8193,
                "expected slot 8192 in one shard, got it in none",
            ),
            (
                |it| it.shards[1].slots.push((5, 5)),
                "shards[1].slots[1]: expected slot 5 in one shard, got it also in shards[0]",
            ),
            (|it| it.shards[1].nodes.clear(), "shards[1].nodes: expected at least one server"),
            (|it| it.shards[1].nodes[0].id = "a1".into(), "expected node \"a1\" once"),
            (|it| it.shards[1].nodes[0].id = "../b".into(), "shards[1].nodes[0].id: expected at"),
            (|it| it.shards[1].nodes[0].host = "h\r\nx".into(), "shards[1].nodes[0].host: exp"),
            (|it| it.shards[1].nodes[0].port = 0, "nodes[0].port: expected 1 to 65535, got 0"),
            (|it| it.shards[0].nodes[1].zone = Some("a b".into()), "shards[0].nodes[1].zone: exp"),
            (|it| it.min_ready = Some(5000), "min_ready: expected at most 4096, got 5000"),
        ];
        for (change, expected) in all.into_iter().chain([(long as Change, "at most 253")]) {
            let mut topology = two();
            change(&mut topology);
            let bytes = serde_json::to_vec(&topology).unwrap();
            let error = Topology::from_bytes(&bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn bytes_that_are_no_topology_are_refused() {
        let good = String::from_utf8(two().to_bytes()).unwrap();
        let deep = "[".repeat(100_000);
        let other = good.replacen("\"epoch\"", "\"hoster\":1,\"epoch\"", 1);
        for (text, expected) in [
            ("", "line 1, column 0: expected a topology in JSON, got EOF"),
            ("[]", "expected a topology in JSON"),
            ("{\"epoch\":1}", "missing field `shards`"),
            (deep.as_str(), "expected a topology in JSON"),
            (other.as_str(), "unknown field `hoster`"),
        ] {
            let error = Topology::from_bytes(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let large = vec![b' '; Topology::SIZE_MAX as usize + 1];
        let error = Topology::from_bytes(&large).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
        assert_eq!(
            Topology::from_draft(good.replacen("\"epoch\":7,", "", 1).as_bytes()).unwrap(),
            { Topology { epoch: 0, ..two() } }
        );
    }
}

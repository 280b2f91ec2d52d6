//! The readiness documents: what each node has ready.
//!
//! The object is JSON. `docs/formats/deploy.md` has the same table:
//!
//! | field    |                                                                               |
//! |----------|-------------------------------------------------------------------------------|
//! | format   | 1                                                                             |
//! | epoch    | a random number of the process                                                |
//! | at_ms    | time of the report, in milliseconds since 1970                                |
//! | seq      | the sequence number of the pointer that the node has seen                     |
//! | stores   | the stores that the node serves; all of the group if there are none            |
//! | zone     | the zone of the node, if it has one                                           |
//! | slots    | first and last slot of each range that it serves of them; all if there are none |
//! | topology | the epoch of the topology that says so, if there is one                        |
//! | versions | for each store and version: state, bytes, of, error, failed_reads, sample     |

use crate::{
    error::{Error, Result},
    layout::{self, check_name},
    objects::When,
    placement::Placed,
    pointer::{Target, Targets},
    remote::Remote,
    topology::Topology,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

/// The format of the document that this library reads and writes.
const FORMAT: u32 = 1;
/// Maximum size of the document, in bytes.
const SIZE_MAX: u64 = 1 << 20;
/// Age of a report above which its node counts as gone.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The state of a version on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VersionState {
    /// The version is being fetched.
    Fetching,
    /// The version is complete and open; it can be activated at once.
    Ready,
    /// The node answers from the version.
    Current,
    /// The version could not be fetched or opened; the node tries again.
    Failed,
}

impl fmt::Display for VersionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VersionState::Fetching => "fetching",
            VersionState::Ready => "ready",
            VersionState::Current => "current",
            VersionState::Failed => "failed",
        })
    }
}

/// A version on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeVersion {
    /// State of the version.
    pub state: VersionState,
    /// Bytes of the version that the node has.
    pub bytes: u64,
    /// Size of the version, in bytes; 0 if it is not known yet.
    pub of: u64,
    /// The error, if the state is `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Number of lookups that could not be answered since the node answers from the version: of keys in
    /// damaged blocks, or in files that cannot be read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_reads: u64,
    /// The comparison of an announced version with the one that was current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<NodeSample>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A comparison of a version with another one, by keys of the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSample {
    /// Number of the other version, which was current.
    pub from: u64,
    /// Number of its keys that were looked up.
    pub keys: u64,
    /// Number of these keys that the version does not have.
    pub removed: u64,
    /// Number of these keys that have another value in the version.
    pub changed: u64,
}

impl NodeVersion {
    pub(crate) fn new(state: VersionState, bytes: u64, of: u64) -> NodeVersion {
        NodeVersion { state, bytes, of, error: None, failed_reads: 0, sample: None }
    }
}

impl fmt::Display for NodeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)?;
        if let Some(error) = &self.error {
            write!(f, ": {error}")?;
        }
        match self.failed_reads {
            0 => Ok(()),
            count => write!(f, ", {count} failed lookups"),
        }
    }
}

/// The report of a node: what it has ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Format of the document: 1.
    pub format: u32,
    /// Random number of the process.
    pub epoch: u64,
    /// Time of the report by the node's clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// Sequence number of the pointer that the node has seen.
    pub seq: u64,
    /// The stores that the node serves; all stores of the group if there are none.
    #[serde(default)]
    pub stores: BTreeSet<String>,
    /// The ranges of slots that the node serves of its stores, first and last slot; all slots if there are
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<(u32, u32)>,
    /// The epoch of the topology that gives the node these slots, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<u64>,
    /// The zone of the node, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The versions, by store and number.
    pub versions: BTreeMap<String, BTreeMap<u64, NodeVersion>>,
    /// The epoch of the topology that is there, if the report is of an older one: it is void then.
    #[serde(skip)]
    pub(crate) newer_topology: Option<u64>,
}

impl Readiness {
    /// Makes an empty report.
    pub(crate) fn new(
        epoch: u64,
        zone: Option<String>,
        stores: BTreeSet<String>,
        placed: Placed,
    ) -> Readiness {
        let mut report = Readiness { format: FORMAT, epoch, zone, stores, ..Readiness::default() };
        report.place(placed);
        report
    }

    /// Takes over the place of the node.
    pub(crate) fn place(&mut self, placed: Placed) {
        (self.topology, self.slots) = (placed.epoch, placed.slots);
    }

    /// Whether the node serves a store.
    pub(crate) fn serves(&self, store: &str) -> bool {
        self.stores.is_empty() || self.stores.contains(store)
    }

    /// Whether the node serves one of these stores.
    pub(crate) fn serves_any(&self, targets: &Targets) -> bool {
        targets.keys().any(|store| self.serves(store))
    }

    /// Whether the node serves a slot of its stores.
    pub(crate) fn has_slot(&self, slot: u32) -> bool {
        let has = |(first, last): &(u32, u32)| (*first..=*last).contains(&slot);
        self.slots.is_empty() || self.slots.iter().any(has)
    }

    /// Whether the report is recent, at this time since 1970.
    pub(crate) fn is_live(&self, now: Duration) -> bool {
        now.saturating_sub(Duration::from_millis(self.at_ms)) <= SILENCE_MAX
    }

    /// Returns what the node says of a version.
    pub(crate) fn version(&self, store: &str, target: &Target) -> Option<&NodeVersion> {
        self.versions.get(store)?.get(&target.version)
    }

    /// Whether the node has these versions ready, and has seen the pointer with this sequence number.
    pub(crate) fn has_ready(&self, targets: &Targets, seq: u64) -> bool {
        self.newer_topology.is_none() && self.seq >= seq && self.is_ready(targets)
    }

    /// Whether all of these versions have one of the states: those of the stores that the node serves.
    fn is_in(&self, targets: &Targets, states: &[VersionState]) -> bool {
        targets.iter().filter(|(store, _)| self.serves(store)).all(|(store, target)| {
            self.version(store, target).is_some_and(|version| states.contains(&version.state))
        })
    }

    /// Whether the node answers from all of these versions.
    pub(crate) fn is_current(&self, targets: &Targets) -> bool {
        self.is_in(targets, &[VersionState::Current])
    }

    /// Whether one of these versions has failed on the node, or a lookup in it.
    pub(crate) fn has_failed(&self, targets: &Targets) -> bool {
        let versions = targets.iter().filter_map(|(store, target)| self.version(store, target));
        versions
            .into_iter()
            .any(|version| version.state == VersionState::Failed || version.failed_reads > 0)
    }

    /// Whether the node can activate all of these versions at once, or has done so: those of the stores that
    /// it serves.
    pub fn is_ready(&self, targets: &Targets) -> bool {
        self.is_in(targets, &[VersionState::Ready, VersionState::Current])
    }

    /// Describes the state of some versions on the node: `fetching`, `failed: disk full`.
    pub fn describe(&self, targets: &Targets) -> String {
        let state = |(store, target): (&String, &Target)| match self.version(store, target) {
            None => format!("{store} {}: absent", target.version),
            Some(version) => format!("{store} {}: {version}", target.version),
        };
        let served = targets.iter().filter(|(store, _)| self.serves(store));
        let states = served.map(state).collect::<Vec<_>>().join(", ");
        match (self.newer_topology, self.topology) {
            (Some(newer), Some(own)) => format!("{states}, with topology {own}, not {newer}"),
            _ => states,
        }
    }

    /// Writes the report of a node.
    pub(crate) fn write(&self, remote: &Remote, group: &str, node: &str) -> Result<()> {
        let bytes = serde_json::to_vec(self).expect("all keys are texts or numbers");
        remote.objects().put(&layout::ready_node(group, node), &bytes, When::Always).map(|_| ())
    }
}

/// Reads the reports of all nodes of a group, by node; none of a remote without listings. A report that cannot be
/// read is left out: it is of a newer node, or is being replaced.
pub(crate) fn read_all(remote: &Remote, group: &str) -> Result<BTreeMap<String, Readiness>> {
    let objects = remote.objects();
    let mut nodes = BTreeMap::new();
    if !objects.has_listings() {
        return Ok(nodes);
    }
    for listed in objects.list(&layout::ready(group))? {
        let Some((_, node)) = listed.name.rsplit_once('/') else { continue };
        if check_name("node", node).is_err() {
            continue;
        }
        nodes.extend(read(remote, group, node)?.map(|report| (node.to_owned(), report)));
    }
    Ok(nodes)
}

/// Compares reports with the topology that is there: those of servers that it does not have are dropped, and
/// those of an older topology are void. Nodes without a topology are as they are.
pub(crate) fn compare(nodes: &mut BTreeMap<String, Readiness>, topology: &Topology) {
    nodes.retain(|name, node| node.topology.is_none() || topology.shard_of(name).is_some());
    for node in nodes.values_mut() {
        let is_older = node.topology.is_some_and(|own| own < topology.epoch);
        node.newer_topology = is_older.then_some(topology.epoch);
    }
}

/// Reads the report of a node; `None` if there is none that can be read.
pub(crate) fn read(remote: &Remote, group: &str, node: &str) -> Result<Option<Readiness>> {
    let object = remote.read(&layout::ready_node(group, node), SIZE_MAX)?;
    Ok(object.and_then(|object| decode(&object.bytes).ok()))
}

fn decode(bytes: &[u8]) -> Result<Readiness> {
    let report: Readiness = serde_json::from_slice(bytes)
        .map_err(|error| Error::damaged(0, "a readiness report in JSON", error))?;
    match report.format == FORMAT {
        true => Ok(report),
        false => Err(Error::damaged(0, format!("format {FORMAT}"), report.format)),
    }
}

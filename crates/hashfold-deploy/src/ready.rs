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
//! | versions | for each store and version: state, bytes, of, error                           |

use crate::{
    error::{Error, Result},
    layout::{self, check_name},
    objects::When,
    pointer::Targets,
    remote::Remote,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The format of the document that this library reads and writes.
const FORMAT: u32 = 1;
/// Maximum size of the document, in bytes.
const SIZE_MAX: u64 = 1 << 20;

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
    /// The versions, by store and number.
    pub versions: BTreeMap<String, BTreeMap<u64, NodeVersion>>,
}

impl Readiness {
    /// Makes an empty report.
    pub(crate) fn new(epoch: u64, stores: BTreeSet<String>) -> Readiness {
        Readiness { format: FORMAT, epoch, stores, ..Readiness::default() }
    }

    /// Whether the node serves a store.
    fn serves(&self, store: &str) -> bool {
        self.stores.is_empty() || self.stores.contains(store)
    }

    /// Whether the node serves one of these stores.
    pub(crate) fn serves_any(&self, targets: &Targets) -> bool {
        targets.keys().any(|store| self.serves(store))
    }

    /// Whether the node can activate all of these versions at once, or has done so: those of the stores that
    /// it serves.
    pub fn is_ready(&self, targets: &Targets) -> bool {
        targets.iter().filter(|(store, _)| self.serves(store)).all(|(store, target)| {
            let version = self.versions.get(store).and_then(|all| all.get(&target.version));
            let state = version.map(|version| version.state);
            matches!(state, Some(VersionState::Ready | VersionState::Current))
        })
    }

    /// Describes the state of some versions on the node: `fetching`, `failed: disk full`.
    pub fn describe(&self, targets: &Targets) -> String {
        let state = |(store, target): (&String, &crate::pointer::Target)| {
            let version = self.versions.get(store).and_then(|all| all.get(&target.version));
            match version {
                None => format!("{store} {}: absent", target.version),
                Some(NodeVersion { state, error: None, .. }) => {
                    format!("{store} {}: {state}", target.version)
                }
                Some(NodeVersion { state, error: Some(error), .. }) => {
                    format!("{store} {}: {state}: {error}", target.version)
                }
            }
        };
        let served = targets.iter().filter(|(store, _)| self.serves(store));
        served.map(state).collect::<Vec<_>>().join(", ")
    }

    /// Writes the report of a node.
    pub(crate) fn write(&self, remote: &Remote, group: &str, node: &str) -> Result<()> {
        let bytes = serde_json::to_vec(self).expect("all keys are texts or numbers");
        remote.objects().put(&layout::ready_node(group, node), &bytes, When::Always).map(|_| ())
    }
}

/// Reads the reports of all nodes of a group, by node. A report that cannot be read is left out: it is
/// of a newer node, or is being replaced.
pub(crate) fn read_all(remote: &Remote, group: &str) -> Result<BTreeMap<String, Readiness>> {
    let objects = remote.objects();
    let mut nodes = BTreeMap::new();
    for listed in objects.list(&layout::ready(group))? {
        let Some((_, node)) = listed.name.rsplit_once('/') else { continue };
        if check_name("node", node).is_err() {
            continue;
        }
        nodes.extend(read(remote, group, node)?.map(|report| (node.to_owned(), report)));
    }
    Ok(nodes)
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

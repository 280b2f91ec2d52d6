//! What a server serves and does, as the JSON documents and the pages show it.

use crate::{
    change::Group,
    cluster::{Seen, SeenShard},
    command::TABLE,
    data::{DataSet, Description, FilterKey, SAMPLE_PAUSE},
    metrics::{CommandCounts, POWERS},
    process::Memory,
    shared::Shared,
};
use hashfold::store::{Sample, sample_changes};
use hashfold_deploy::{GroupPointer, NodeVersion, Readiness, Status, Targets, Trial, VersionState};
use serde::Serialize;
use std::{collections::BTreeSet, sync::Arc};

/// Number of keys of each of two versions that are looked up in the other one.
const SAMPLE: u64 = 1000;

/// A number, of which bounds are known.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Bounds {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl From<std::ops::RangeInclusive<u64>> for Bounds {
    fn from(range: std::ops::RangeInclusive<u64>) -> Bounds {
        Bounds { min: *range.start(), max: *range.end() }
    }
}

/// The version of a store that is served.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Current {
    pub(super) number: u64,
    pub(super) id: String,
    pub(super) created_at: u64,
}

/// A table, a store, a map or a data set in memory.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TableFacts {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) version: Option<Current>,
    pub(super) entries: Option<Bounds>,
    pub(super) data_bytes: Option<u64>,
    pub(super) index_bytes: Option<u64>,
    pub(super) in_memory: Option<bool>,
    /// The numbers of changes of a map: all, and those that are durable.
    pub(super) seq: Option<u64>,
    pub(super) durable_seq: Option<u64>,
    /// The memory of a data set in memory, and its limit.
    pub(super) memory_bytes: Option<u64>,
    pub(super) memory_limit_bytes: Option<u64>,
    /// Number of its changes that are not saved.
    pub(super) unsaved: Option<u64>,
}

impl TableFacts {
    pub(super) fn of(data: &DataSet) -> TableFacts {
        let view = data.view();
        let view = view.as_ref();
        let info = view.and_then(|view| view.version()).map(|version| version.info());
        let seqs = view.and_then(|view| view.map()).map(|map| map.seqs());
        let memory = view.and_then(|view| view.memory());
        TableFacts {
            name: data.name().to_string(),
            kind: data.kind(),
            version: info.map(|info| Current {
                number: info.name.number,
                id: format!("{:016x}", info.name.id),
                created_at: info.created_s,
            }),
            entries: view.map(|view| view.entries().into()),
            data_bytes: view.map(|view| view.data_bytes()),
            index_bytes: view.map(|view| view.index_bytes()),
            in_memory: view.map(|view| view.is_in_memory()),
            seq: seqs.map(|(seq, _)| seq),
            durable_seq: seqs.map(|(_, durable_seq)| durable_seq),
            memory_bytes: memory.map(|memory| memory.stat().bytes),
            memory_limit_bytes: memory.map(|memory| memory.memory_bytes()),
            unsaved: memory.map(|memory| memory.unsaved()),
        }
    }
}

/// A filter.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FilterFacts {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) items_max: u64,
    pub(super) data_bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) writable: bool,
}

impl FilterFacts {
    fn of(filter: &FilterKey) -> FilterFacts {
        let stats = filter.glance();
        FilterFacts {
            name: filter.name(),
            kind: "filter",
            items_max: stats.keys_max(),
            data_bytes: stats.file_bytes,
            memory_bytes: stats.memory_bytes,
            writable: filter.is_writable(),
        }
    }
}

/// Returns all tables, stores, maps and data sets in memory.
pub(super) fn tables(shared: &Shared) -> Vec<TableFacts> {
    shared.data().iter().map(|data| TableFacts::of(data)).collect()
}

/// Returns all filters.
pub(super) fn filters(shared: &Shared) -> Vec<FilterFacts> {
    shared.filters().iter().map(|filter| FilterFacts::of(filter)).collect()
}

/// Returns the data set of a name.
pub(super) fn find(shared: &Shared, name: &str) -> Option<Arc<DataSet>> {
    shared.served().opened.data.get(name).cloned()
}

/// A version in the folder of a store.
#[derive(Clone, Debug, Serialize)]
pub(super) struct VersionFacts {
    pub(super) number: u64,
    pub(super) id: String,
    pub(super) created_at: u64,
    pub(super) entries: Bounds,
    pub(super) bytes: u64,
    pub(super) current: bool,
    pub(super) bad: bool,
    pub(super) pinned: bool,
}

/// The versions of a store, and the sequence number by which a change says which state it is about.
#[derive(Clone, Debug, Serialize)]
pub(super) struct VersionsFacts {
    pub(super) store: String,
    /// The group whose pointer decides which version is current.
    pub(super) group: Option<String>,
    /// Sequence number of the pointer of the group, or else of the store.
    pub(super) seq: u64,
    pub(super) versions: Vec<VersionFacts>,
    /// Versions of the group in object storage that are not in the folder.
    pub(super) pushed: Vec<u64>,
    /// Times of lookups in the versions that are open, and in the one that was current before.
    pub(super) latencies: Vec<LatencyFacts>,
}

/// The times of lookups in a version, since the server has opened it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LatencyFacts {
    pub(super) version: u64,
    /// Whether this server answers from the version.
    pub(super) served: bool,
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    #[serde(skip)]
    by_power: [u64; POWERS],
}

impl LatencyFacts {
    fn all(data: &DataSet) -> Vec<LatencyFacts> {
        let served = data.view().and_then(|view| view.number());
        let facts = |(number, counts): (Option<u64>, CommandCounts)| {
            let version = number?;
            Some(LatencyFacts {
                version,
                served: served == Some(version),
                calls: counts.calls,
                failed: counts.failed,
                p50_us: counts.at_most_us(0.5),
                p99_us: counts.at_most_us(0.99),
                by_power: counts.by_power,
            })
        };
        data.latencies().into_iter().rev().filter_map(facts).collect()
    }

    /// Returns the bars of the distribution of times, one for each power of two.
    pub(super) fn bars(&self) -> Vec<Bar> {
        bars(&self.by_power)
    }
}

/// Returns the versions of a store, the latest first.
///
/// # Errors
/// The store cannot be read, or the object storage if it follows a group.
pub(super) fn versions(shared: &Shared, data: &DataSet) -> Result<VersionsFacts, String> {
    let all = match Description::all(&shared.env, data.folder()) {
        Ok(all) => all,
        // A store of a group exists when its first version was fetched.
        Err(error) if data.follows_group() && error.is_absent() => Vec::new(),
        Err(error) => return Err(error.to_string()),
    };
    let mut facts = VersionsFacts {
        store: data.name().to_string(),
        group: None,
        seq: all.first().map_or(0, |it| it.sequence),
        versions: all.iter().rev().map(VersionFacts::of).collect(),
        pushed: Vec::new(),
        latencies: LatencyFacts::all(data),
    };
    if let Some(group) = shared.changer.group().filter(|_| data.follows_group()) {
        facts.add_group(shared, group).map_err(|error| error.to_string())?;
    }
    Ok(facts)
}

impl VersionsFacts {
    /// Adds what the pointer of the group says, and the versions that were pushed.
    fn add_group(&mut self, shared: &Shared, group: &Group) -> hashfold_deploy::Result<()> {
        let pointer = group.controller(&shared.env, "")?.pointer()?;
        let current = pointer.stores.get(&self.store).map(|target| target.version);
        let bad = pointer.bad.iter().filter(|bad| bad.store == self.store);
        let bad: Vec<u64> = bad.map(|bad| bad.target.version).collect();
        for version in &mut self.versions {
            version.current = current == Some(version.number);
            version.bad = bad.contains(&version.number);
        }
        self.group = Some(group.name().to_owned());
        self.seq = pointer.seq;
        let remote = group.remote();
        if remote.has_listings() {
            self.pushed = remote.versions(&self.store)?;
        }
        self.pushed.retain(|number| self.versions.iter().all(|it| it.number != *number));
        self.pushed.reverse();
        Ok(())
    }
}

impl VersionFacts {
    fn of(description: &Description) -> VersionFacts {
        let Description { info, is_current, is_bad, is_pinned, .. } = description;
        VersionFacts {
            number: info.name.number,
            id: format!("{:016x}", info.name.id),
            created_at: info.created_s,
            entries: info.entries().into(),
            bytes: info.bytes(),
            current: *is_current,
            bad: *is_bad,
            pinned: *is_pinned,
        }
    }
}

/// A comparison of two versions by some keys of each.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Difference {
    pub(super) from: u64,
    pub(super) to: u64,
    /// Keys of `from` that were looked up in `to`.
    pub(super) keys: u64,
    pub(super) removed: u64,
    pub(super) changed: u64,
    /// Keys of `to` that were looked up in `from`.
    pub(super) keys_back: u64,
    pub(super) added: u64,
}

/// Compares two versions of a store by about 1000 keys of each.
///
/// # Errors
/// A version cannot be opened, or is damaged, or no keys can be compared.
pub(super) fn difference(data: &DataSet, from: u64, to: u64) -> Result<Difference, String> {
    let compared = || {
        let (old, new) = (data.view_of(from)?, data.view_of(to)?);
        let (Some(old), Some(new)) = (old.version(), new.version()) else {
            return Ok((Sample::default(), Sample::default()));
        };
        let sample = |one, other| sample_changes(one, other, SAMPLE, SAMPLE_PAUSE);
        Ok((sample(old, new)?, sample(new, old)?))
    };
    let (forth, back) = compared().map_err(|error: hashfold::Error| error.to_string())?;
    if forth.keys + back.keys == 0 {
        let message = "there are no keys to compare: both versions are empty, or this server of a cluster has \
                       only a part of each of their tables";
        return Err(message.to_owned());
    }
    Ok(Difference {
        from,
        to,
        keys: forth.keys,
        removed: forth.removed,
        changed: forth.changed,
        keys_back: back.keys,
        added: back.removed,
    })
}

/// A store in a group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GroupStore {
    pub(super) name: String,
    pub(super) current: Option<u64>,
    /// The version that servers fetch before it becomes current.
    pub(super) next: Option<u64>,
    pub(super) bad: Vec<u64>,
}

/// A version on a server of the group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OnNode {
    pub(super) store: String,
    pub(super) number: u64,
    #[serde(flatten)]
    pub(super) version: NodeVersion,
}

impl OnNode {
    /// Whether the version is being fetched.
    pub(super) fn is_fetching(&self) -> bool {
        self.version.state == VersionState::Fetching && self.version.of > 0
    }

    /// Returns the class of style of the state.
    pub(super) fn tone(&self) -> &'static str {
        match self.version.state {
            VersionState::Current | VersionState::Ready => "good",
            VersionState::Failed => "bad",
            VersionState::Fetching => "",
        }
    }
}

/// A server of the group, as it has reported itself.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NodeFacts {
    pub(super) name: String,
    pub(super) zone: Option<String>,
    /// Seconds since the report.
    pub(super) age_s: u64,
    pub(super) seq: u64,
    /// First and last slot of each range that the server has; none if it has all.
    pub(super) slots: Vec<(u32, u32)>,
    pub(super) versions: Vec<OnNode>,
}

impl NodeFacts {
    /// Returns the slots as text: `0-8191 12000-12287`.
    pub(super) fn ranges(&self) -> String {
        let range = |(first, last): &(u32, u32)| format!("{first}-{last}");
        self.slots.iter().map(range).collect::<Vec<_>>().join(" ")
    }

    fn of(name: String, node: Readiness, now_ms: u64) -> NodeFacts {
        let versions = node.versions.into_iter().flat_map(|(store, versions)| {
            let of_store =
                move |(number, version)| OnNode { store: store.clone(), number, version };
            versions.into_iter().map(of_store)
        });
        let age_s = now_ms.saturating_sub(node.at_ms) / 1000;
        let (seq, slots, zone) = (node.seq, node.slots, node.zone);
        NodeFacts { name, zone, age_s, seq, slots, versions: versions.collect() }
    }
}

/// A group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GroupFacts {
    pub(super) group: String,
    pub(super) seq: u64,
    pub(super) by: String,
    pub(super) reason: String,
    pub(super) activate_at_ms: u64,
    /// The zone whose servers use the next versions already.
    pub(super) trial: Option<Trial>,
    pub(super) stores: Vec<GroupStore>,
    pub(super) nodes: Vec<NodeFacts>,
}

impl GroupFacts {
    /// Returns the time from which on the versions are current, in seconds since 1970.
    pub(super) fn active_s(&self) -> u64 {
        self.activate_at_ms / 1000
    }
}

/// Returns all stores that a pointer has or will have.
fn stores_of(pointer: &GroupPointer) -> Vec<GroupStore> {
    let version = |targets: &Targets, name: &str| targets.get(name).map(|it| it.version);
    let names: BTreeSet<&String> = pointer.stores.keys().chain(pointer.next.keys()).collect();
    let bad = |name: &str| {
        let of_store = pointer.bad.iter().filter(|bad| bad.store == name);
        of_store.map(|bad| bad.target.version).collect()
    };
    let store = |name: &String| GroupStore {
        name: name.clone(),
        current: version(&pointer.stores, name),
        next: version(&pointer.next, name),
        bad: bad(name),
    };
    names.into_iter().map(store).collect()
}

/// Returns the group that the stores follow, as object storage has it now; `None` if they follow none.
///
/// # Errors
/// The object storage cannot be read.
pub(super) fn group(shared: &Shared) -> Option<Result<GroupFacts, String>> {
    let group = shared.changer.group()?;
    let status = group.controller(&shared.env, "").and_then(|controller| controller.status());
    let Status { pointer, nodes } = match status {
        Ok(status) => status,
        Err(error) => return Some(Err(error.to_string())),
    };
    let now_ms = shared.env.clock.unix_time().as_millis() as u64;
    Some(Ok(GroupFacts {
        group: group.name().to_owned(),
        seq: pointer.seq,
        stores: stores_of(&pointer),
        trial: pointer.trial,
        nodes: nodes.into_iter().map(|(name, node)| NodeFacts::of(name, node, now_ms)).collect(),
        by: pointer.by,
        reason: pointer.reason,
        activate_at_ms: pointer.activate_at_ms,
    }))
}

/// A server of the cluster, as this one sees it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MemberFacts {
    pub(super) id: String,
    pub(super) address: String,
    pub(super) is_self: bool,
    pub(super) is_alive: bool,
}

/// A part of the slots, and the servers that have it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ShardFacts {
    /// First and last slot of each range.
    pub(super) slots: Vec<(u32, u32)>,
    pub(super) members: Vec<MemberFacts>,
}

impl ShardFacts {
    fn of(shard: &SeenShard) -> ShardFacts {
        let member = |node: &Seen| MemberFacts {
            id: node.id.clone(),
            address: format!("{}:{}", node.host, node.port),
            is_self: node.is_self,
            is_alive: node.is_alive(),
        };
        ShardFacts {
            slots: shard.slots.iter().map(|range| (*range.start(), *range.end())).collect(),
            members: shard.all().iter().map(member).collect(),
        }
    }
}

/// The cluster, as this server sees it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ClusterFacts {
    pub(super) epoch: u64,
    pub(super) shards: Vec<ShardFacts>,
    /// The reason why a newer topology is not used, or cannot be read.
    pub(super) error: Option<String>,
}

/// Returns the cluster; `None` if the server is in none.
pub(super) fn cluster(shared: &Shared) -> Option<ClusterFacts> {
    let view = shared.cluster.view()?;
    Some(ClusterFacts {
        epoch: view.epoch,
        shards: view.shards.iter().map(ShardFacts::of).collect(),
        error: shared.cluster.error(),
    })
}

/// The calls of a command.
#[derive(Clone, Debug)]
pub(super) struct CommandFacts {
    pub(super) name: String,
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    /// Calls that took at most 1, 2, 4… microseconds and more than half of that.
    pub(super) by_power: [u64; POWERS],
}

/// A bar of a distribution of times, in the units of its drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    pub(super) x: usize,
    pub(super) y: u64,
    pub(super) height: u64,
}

/// Height of a drawing of a distribution.
const BAR_HEIGHT: u64 = 20;

/// Width of a bar and of the space after it.
const BAR_STEP: usize = 5;

impl CommandFacts {
    /// Returns the bars of the distribution of times, one for each power of two.
    pub(super) fn bars(&self) -> Vec<Bar> {
        bars(&self.by_power)
    }
}

fn bars(by_power: &[u64; POWERS]) -> Vec<Bar> {
    let most = by_power.iter().copied().max().unwrap_or(0).max(1);
    let bar = |(power, count): (usize, &u64)| {
        let height = (count * BAR_HEIGHT).div_ceil(most);
        Bar { x: power * BAR_STEP, y: BAR_HEIGHT - height, height }
    };
    by_power.iter().enumerate().filter(|(_, count)| **count > 0).map(bar).collect()
}

/// Returns the commands that were called, the most frequent first.
pub(super) fn commands(shared: &Shared) -> Vec<CommandFacts> {
    let counts = shared.metrics.commands();
    let called = counts.iter().enumerate().filter(|(_, counts)| counts.calls > 0);
    let mut facts: Vec<CommandFacts> = called
        .map(|(number, counts)| CommandFacts {
            name: TABLE.full_name(number).to_owned(),
            calls: counts.calls,
            failed: counts.failed,
            p50_us: counts.at_most_us(0.5),
            p99_us: counts.at_most_us(0.99),
            by_power: counts.by_power,
        })
        .collect();
    facts.sort_by_key(|facts| std::cmp::Reverse(facts.calls));
    facts
}

/// The process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessFacts {
    pub(super) uptime_s: u64,
    pub(super) connections: usize,
    pub(super) commands_per_s: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) errors: u64,
    pub(super) resident_bytes: u64,
}

impl ProcessFacts {
    /// Returns the number of keys that were looked up.
    pub(super) fn lookups(&self) -> u64 {
        self.hits + self.misses
    }
}

/// Returns what the process does.
pub(super) fn process(shared: &Shared) -> ProcessFacts {
    let totals = shared.metrics.totals();
    ProcessFacts {
        uptime_s: shared.now().saturating_sub(shared.started).as_secs(),
        connections: shared.clients().len(),
        commands_per_s: shared.metrics.commands_per_second(),
        hits: totals.hits,
        misses: totals.misses,
        errors: totals.errors,
        resident_bytes: Memory::now().resident,
    }
}

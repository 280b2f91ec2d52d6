//! Followers: nodes that keep their stores at the versions of the pointer.

use crate::{
    fixture::{Pairs, Scene, builder, current, one_lane, scanned},
    naive::Faults,
};
use hashfold::{
    ErrorKind as StoreErrorKind, ReadOptions, Result as StoreResult, Store,
    io::{Access, Disk, DiskLayer},
    store::{StoreWriter, Version},
    work::{MemoryBudget, Signal, Watch},
};
use hashfold_deploy::{
    Activation, Controller, ErrorKind, FollowOptions, FollowedStore, Follower, GroupPointer,
    NodeSample, Objects as _, Placed, Placement, PublishOptions, Shard, Topology, VersionState,
    fetch, push,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

/// A node: a follower, and the content of the version that it answers from, by store.
pub(crate) struct Node {
    pub(crate) follower: Follower,
    pub(crate) serves: BTreeMap<String, Pairs>,
    /// Number of calls that made versions current.
    flips: usize,
    /// Number of lookups that the node could not answer.
    pub(crate) failed_reads: Arc<AtomicU64>,
    placement: Placement,
}

impl Node {
    fn new(scene: &Scene, name: &str) -> Node {
        Node::of(scene, name, &["people"])
    }

    fn of(scene: &Scene, name: &str, stores: &[&str]) -> Node {
        Node::with(scene, name, None, stores, &[])
    }

    fn with_slots(scene: &Scene, name: &str, stores: &[&str], slots: &[(u32, u32)]) -> Node {
        Node::with(scene, name, None, stores, slots)
    }

    pub(crate) fn in_zone(scene: &Scene, name: &str, zone: Option<&str>, stores: &[&str]) -> Node {
        Node::with(scene, name, zone, stores, &[])
    }

    fn with(
        scene: &Scene,
        name: &str,
        zone: Option<&str>,
        stores: &[&str],
        slots: &[(u32, u32)],
    ) -> Node {
        let failed_reads: Arc<AtomicU64> = Arc::default();
        let read = ReadOptions::new().env(scene.env.clone());
        let followed = |store: &&str| {
            let failed_reads = failed_reads.clone();
            let folder = Path::new(name).join(store);
            let of_node = FollowedStore::new(&folder, read.clone());
            ((*store).to_owned(), FollowedStore { failed_reads, ..of_node })
        };
        let stores = stores.iter().map(followed).collect();
        let mut options = FollowOptions::new("main", name, stores);
        let placement = options.placement.clone();
        placement.set(Placed { slots: slots.to_vec(), ..Placed::default() });
        options.zone = zone.map(str::to_owned);
        options.fetch.lanes = 1;
        let follower = Follower::new(&scene.env, &scene.remote, options).unwrap();
        Node { follower, serves: BTreeMap::new(), flips: 0, failed_reads, placement }
    }

    pub(crate) fn step(&mut self) -> hashfold_deploy::Result<Duration> {
        let (serves, flips) = (&mut self.serves, &mut self.flips);
        let mut activate = |activations: &[Activation]| -> StoreResult<()> {
            *flips += 1;
            for Activation { store, version } in activations {
                match version {
                    Some(version) => drop(serves.insert(store.clone(), scanned(version))),
                    None => drop(serves.remove(store)),
                }
            }
            Ok(())
        };
        self.follower.step(&Signal::default(), &mut activate)
    }

    /// Limits the rate of transfers, in bytes per second.
    fn slow_down(&mut self, bytes_per_s: u64) {
        self.follower.rate().set(bytes_per_s);
    }

    fn state(&self, number: u64) -> Option<VersionState> {
        Some(self.follower.report().versions.get("people")?.get(&number)?.state)
    }
}

/// A node that acts by an older topology has other slots: what it has ready does not count. A node that the
/// topology does not have is not waited for.
#[test]
fn readiness_of_an_old_topology_is_void() {
    let scene = Scene::new(40, 10);
    scene.push(1);
    let topology = |names: &[&str]| {
        let node = |name: &&str| hashfold_deploy::Node {
            id: (*name).into(),
            host: "10.0.0.1".into(),
            port: 6379,
            ..Default::default()
        };
        let shard = Shard { slots: vec![(0, 16_383)], nodes: names.iter().map(node).collect() };
        Topology { shards: vec![shard], ..Topology::default() }
    };
    let set = |names: &[&str]| scene.remote.set_topology(&scene.env, &topology(names)).unwrap();
    let (mut first, mut other) = (Node::new(&scene, "a"), Node::new(&scene, "b"));
    let act_by = |node: &mut Node, epoch| {
        node.placement.set(Placed { epoch: Some(epoch), ..Placed::default() });
        node.step().unwrap();
    };
    let publish = || {
        let options = PublishOptions { wait: Duration::ZERO, ..PublishOptions::default() };
        controller(&scene).publish(&[("people".to_owned(), 1)], &options, &Watch::default())
    };
    set(&["a", "b"]);
    act_by(&mut first, 1);
    act_by(&mut other, 1);
    assert!(publish().is_err(), "nothing is fetched yet");
    first.step().unwrap();
    set(&["a"]);
    let error = publish().unwrap_err();
    let ErrorKind::NotReady { expected: 1, got } = error.kind() else { panic!("{error}") };
    assert_eq!(got, "0: a (people 1: ready, with topology 1, not 2)");
    act_by(&mut first, 2);
    assert_eq!(publish().unwrap().stores["people"].version, 1);
    // `b` has nothing, and nobody asks it.
    assert_eq!(other.state(1), None);
    // Without its own number, the controller takes that of the topology.
    let two = Topology { min_ready: Some(2), ..topology(&["a", "b"]) };
    scene.remote.set_topology(&scene.env, &two).unwrap();
    act_by(&mut first, 3);
    scene.push(2);
    let options = PublishOptions { wait: Duration::ZERO, ..PublishOptions::default() };
    let publish =
        || controller(&scene).publish(&[("people".to_owned(), 2)], &options, &Watch::default());
    publish().unwrap_err();
    first.step().unwrap();
    let error = publish().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotReady { expected: 2, .. }), "{error}");
    act_by(&mut other, 3);
    assert_eq!(publish().unwrap().stores["people"].version, 2);
}

fn controller(scene: &Scene) -> Controller {
    Controller::new(&scene.env, &scene.remote, "main", "test").unwrap()
}

/// Flips without waiting for nodes.
pub(crate) fn flip(scene: &Scene, number: u64) {
    let options =
        PublishOptions { min_ready: Some(0), lead: Duration::ZERO, ..PublishOptions::default() };
    let versions = [("people".to_owned(), number)];
    controller(scene).publish(&versions, &options, &Watch::default()).unwrap();
}

#[test]
fn a_node_follows_publish_and_rollback_and_a_rollback_moves_no_data() {
    let scene = Scene::new(1, 2000);
    scene.push(1);
    scene.push(2);
    let mut node = Node::new(&scene, "a");
    node.step().unwrap();
    assert_eq!(node.flips, 0);
    flip(&scene, 1);
    node.step().unwrap();
    assert!(node.serves["people"] == scene.versions[&1]);
    assert_eq!(node.state(1), Some(VersionState::Current));
    flip(&scene, 2);
    node.step().unwrap();
    assert!(node.serves["people"] == scene.versions[&2]);
    let ranges = scene.naive.ranges.load(SeqCst);
    controller(&scene).roll_back("", Duration::ZERO).unwrap();
    node.step().unwrap();
    assert!(node.serves["people"] == scene.versions[&1]);
    assert_eq!(scene.naive.ranges.load(SeqCst), ranges);
    assert_eq!((node.flips, current(&scene.env, Path::new("a/people"))), (3, Some(1)));
    // A restarted node that has not opened its version gets it once.
    let mut again = Node::new(&scene, "a");
    for _ in 0..2 {
        again.step().unwrap();
    }
    assert_eq!((again.flips, again.state(1)), (1, Some(VersionState::Current)));
    assert_eq!(scene.naive.ranges.load(SeqCst), ranges);
}

/// A disk that counts the files that are opened.
#[derive(Debug)]
struct Opening(Arc<dyn Disk>, Arc<AtomicU64>);

impl DiskLayer for Opening {
    fn below(&self) -> &dyn Disk {
        self.0.as_ref()
    }

    fn before_open(&self, _: &Path) {
        self.1.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_rollback_opens_nothing_however_long_the_bad_version_was_current() {
    let mut scene = Scene::new(8, 2000);
    let opens: Arc<AtomicU64> = Arc::default();
    scene.env.disk = Arc::new(Opening(scene.env.disk.clone(), opens.clone()));
    let mut node = Node::new(&scene, "a");
    for number in [1, 2] {
        scene.push(number);
        flip(&scene, number);
        for _ in 0..3 {
            node.step().unwrap();
        }
    }
    controller(&scene).roll_back("", Duration::ZERO).unwrap();
    let (before, mut opened) = (opens.load(SeqCst), None);
    let mut activate = |activations: &[Activation]| {
        opened = Some((opens.load(SeqCst) - before, activations[0].version.clone().unwrap()));
        Ok(())
    };
    node.follower.step(&Signal::default(), &mut activate).unwrap();
    let (opened, version) = opened.expect("the version before is activated");
    assert_eq!((opened, version.info().name.number), (0, 1));
}

#[test]
fn versions_are_activated_at_the_time_of_the_pointer_and_not_before() {
    let scene = Scene::new(2, 2000);
    scene.push(1);
    let mut node = Node::new(&scene, "a");
    let lead = Duration::from_secs(2);
    let options = PublishOptions { min_ready: Some(0), lead, ..PublishOptions::default() };
    let start = scene.env.clock.now();
    let versions = [("people".to_owned(), 1)];
    let pointer = controller(&scene).publish(&versions, &options, &Watch::default()).unwrap();
    let state = node.follower.state().clone();
    while node.flips == 0 {
        let wait = node.step().unwrap();
        let late = BTreeMap::from([("people".to_owned(), 1)]);
        assert_eq!(state.get().late, (node.flips == 0).then_some((late, start + lead)));
        let now = scene.env.clock.unix_time().as_millis() as u64;
        assert_eq!(node.flips > 0, now >= pointer.activate_at_ms);
        scene.env.clock.sleep(wait);
    }
    let passed = scene.env.clock.now() - start;
    assert!(passed < lead + Duration::from_secs(1), "{passed:?}");
}

#[track_caller]
fn step_all(nodes: &[Arc<Mutex<Node>>]) {
    for node in nodes {
        node.lock().unwrap().step().unwrap();
    }
}

#[test]
fn publishing_waits_until_enough_nodes_are_ready() {
    let scene = Scene::new(3, 2000);
    scene.push(1);
    scene.push(2);
    let nodes = ["a", "b", "c"].map(|name| Arc::new(Mutex::new(Node::new(&scene, name))));
    flip(&scene, 1);
    step_all(&nodes);
    // Only two of the three nodes go on.
    let live = [nodes[0].clone(), nodes[1].clone()];
    let steps = Arc::new(Mutex::new(0));
    let count = steps.clone();
    let watch = Watch::new(move |_| {
        *count.lock().unwrap() += 1;
        live.iter().for_each(|node| drop(node.lock().unwrap().step()));
        Ok(())
    });
    let versions = [("people".to_owned(), 2)];
    let options = |min_ready| PublishOptions {
        min_ready: Some(min_ready),
        wait: Duration::from_secs(5),
        lead: Duration::ZERO,
        ..PublishOptions::default()
    };
    let error = controller(&scene).publish(&versions, &options(3), &watch).unwrap_err();
    let ErrorKind::NotReady { expected: 3, got } = error.kind() else { panic!("{error}") };
    assert!(
        got.starts_with("2: a (people 2: ready); b (people 2: ready); c (people 2: absent)"),
        "{got}"
    );
    assert!(*steps.lock().unwrap() > 5);
    assert!(nodes[0].lock().unwrap().serves["people"] == scene.versions[&1]);
    let pointer = controller(&scene).publish(&versions, &options(2), &watch).unwrap();
    assert_eq!((pointer.stores["people"].version, pointer.next.len()), (2, 0));
    step_all(&nodes);
    assert!(nodes.iter().all(|node| node.lock().unwrap().serves["people"] == scene.versions[&2]));
    // A node that has been silent for long is not waited for.
    scene.env.clock.sleep(Duration::from_secs(120));
    let versions = [("people".to_owned(), 1)];
    let all = PublishOptions { min_ready: None, lead: Duration::ZERO, ..options(0) };
    controller(&scene).publish(&versions, &all, &watch).unwrap();
}

#[test]
fn a_version_that_is_withdrawn_while_nodes_fetch_it_is_not_published() {
    let scene = Scene::new(4, 2000);
    scene.push(1);
    scene.push(2);
    flip(&scene, 1);
    let node = Arc::new(Mutex::new(Node::new(&scene, "a")));
    node.lock().unwrap().step().unwrap();
    let (other, eve) = (node.clone(), controller(&scene));
    let watch = Watch::new(move |_| {
        let _ = eve.mark_bad("people", 2, "seen to be wrong");
        drop(other.lock().unwrap().step());
        Ok(())
    });
    let versions = [("people".to_owned(), 2)];
    let options = PublishOptions { wait: Duration::from_secs(2), ..PublishOptions::default() };
    let error = controller(&scene).publish(&versions, &options, &watch).unwrap_err();
    assert!(error.is_refusal(), "{error}");
    let pointer = controller(&scene).pointer().unwrap();
    assert_eq!((pointer.stores["people"].version, pointer.next.len()), (1, 0));
}

/// A rollback must not wait for a transfer of hours; and a node that is fetching is not silent.
#[test]
fn a_transfer_reports_its_progress_and_is_interrupted_when_the_pointer_changes() {
    let mut scene = Scene::new(9, 2000);
    scene.add_version(builder(), 30, 200_000);
    [1, 2, 3].into_iter().for_each(|number| scene.push(number));
    flip(&scene, 1);
    flip(&scene, 2);
    let mut node = Node::new(&scene, "a");
    node.step().unwrap();
    let bytes = scene.remote.version("people", 3).unwrap().bytes();
    // A piece takes 20 seconds.
    node.slow_down(50_000);
    let (eve, start) = (controller(&scene), scene.naive.ranges.load(SeqCst));
    let versions = [("people".to_owned(), 3)];
    let options = PublishOptions { wait: Duration::ZERO, ..PublishOptions::default() };
    eve.publish(&versions, &options, &Watch::default()).unwrap_err();
    let (seen, clock) = (Arc::new(Mutex::new(Vec::new())), scene.env.clock.clone());
    let (reports, state) = (seen.clone(), node.follower.state().clone());
    let hook = move |number| {
        let status = eve.status().unwrap();
        let version = status.nodes["a"].versions["people"][&3].clone();
        assert_eq!((version.state, version.of), (VersionState::Fetching, bytes));
        let age_ms = clock.unix_time().as_millis() as u64 - status.nodes["a"].at_ms;
        reports.lock().unwrap().push((version.bytes, age_ms));
        assert!(clock.now() - state.get().looked_at.unwrap() < Duration::from_secs(45));
        if number == start + 4 {
            eve.roll_back("", Duration::ZERO).unwrap();
        }
    };
    *scene.naive.hook.lock().unwrap() = Some(Box::new(hook));
    let wait = node.step().unwrap();
    assert_eq!((wait, node.flips), (Duration::ZERO, 1));
    node.step().unwrap();
    assert!(node.serves["people"] == scene.versions[&1]);
    assert_eq!(scene.naive.ranges.load(SeqCst), start + 4);
    let seen = seen.lock().unwrap();
    assert!(seen[3].0 > 1 << 20 && seen.iter().all(|(_, age_ms)| *age_ms < 45_000), "{seen:?}");
}

#[test]
fn the_stores_of_a_group_change_in_one_call_even_if_one_is_late() {
    let scene = Scene::new(5, 2000);
    for number in [1, 2] {
        scene.push(number);
        push(&scene.env, builder(), Some(number), &scene.remote, "prices", &Watch::default())
            .unwrap();
    }
    let mut node = Node::of(&scene, "a", &["people", "prices"]);
    let both = |number| [("people".to_owned(), number), ("prices".to_owned(), number)];
    let options =
        PublishOptions { min_ready: Some(0), lead: Duration::ZERO, ..PublishOptions::default() };
    controller(&scene).publish(&both(1), &options, &Watch::default()).unwrap();
    node.step().unwrap();
    assert_eq!((node.flips, node.serves.len()), (1, 2));
    *scene.naive.rotten.lock().unwrap() = Some(("prices".into(), 0));
    controller(&scene).publish(&both(2), &options, &Watch::default()).unwrap();
    let error = node.step().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error}");
    assert_eq!(node.flips, 1);
    let report = &node.follower.report().versions["prices"][&2];
    assert_eq!(report.state, VersionState::Failed);
    assert!(report.error.as_ref().unwrap().contains("at byte 0"), "{report:?}");
    *scene.naive.rotten.lock().unwrap() = None;
    scene.env.clock.sleep(Duration::from_millis(100));
    node.step().unwrap();
    assert_eq!(node.flips, 2);
    assert!(node.serves.values().all(|serves| *serves == scene.versions[&2]));
}

#[test]
fn without_the_object_store_everything_stays_and_the_node_catches_up_later() {
    let scene = Scene::new(6, 2000);
    scene.push(1);
    scene.push(2);
    flip(&scene, 1);
    let mut node = Node::new(&scene, "a");
    node.step().unwrap();
    flip(&scene, 2);
    scene.naive.is_gone.store(true, SeqCst);
    let stop = Signal::default();
    let (end, mut waits, mut last) = (stop.clone(), Vec::new(), scene.env.clock.now());
    let clock = scene.env.clock.clone();
    let state = node.follower.state().clone();
    let mut failed = |_: &hashfold_deploy::Error| {
        waits.push(clock.now() - last);
        last = clock.now();
        if waits.len() == 15 {
            end.send();
        }
    };
    node.follower.run(&stop, &mut |_| panic!("nothing is activated"), &mut failed);
    assert!(state.get().unreachable_since.is_some() && state.get().error.is_some());
    assert!(scene.env.clock.now() - state.get().looked_at.unwrap() <= Duration::from_secs(30));
    assert_eq!(waits[1..4], [100, 200, 400].map(Duration::from_millis));
    assert_eq!(waits[14], Duration::from_secs(30));
    // A new process has the version that was current.
    let mut again = Node::new(&scene, "a");
    assert!(again.step().is_err());
    assert_eq!((again.flips, current(&scene.env, Path::new("a/people"))), (0, Some(1)));
    scene.naive.is_gone.store(false, SeqCst);
    again.step().unwrap();
    assert!(again.serves["people"] == scene.versions[&2]);
}

#[test]
fn a_failed_activation_keeps_the_version_before_and_is_tried_again() {
    let scene = Scene::new(7, 2000);
    scene.push(1);
    flip(&scene, 1);
    let mut node = Node::new(&scene, "a");
    let mut refuse = |_: &[Activation]| Err(StoreErrorKind::Busy.into());
    assert!(node.follower.step(&Signal::default(), &mut refuse).is_err());
    assert_eq!(current(&scene.env, Path::new("a/people")), None);
    node.step().unwrap();
    assert_eq!((node.flips, current(&scene.env, Path::new("a/people"))), (1, Some(1)));
}

/// Several nodes and an object store with all faults: every node gets there, and none ever answers from
/// a version that was not published.
#[test]
fn nodes_reach_the_pointer_whatever_the_object_store_does() {
    for seed in 0..8 {
        let scene = Scene::new(seed, 200_000);
        scene.push(1);
        scene.push(2);
        flip(&scene, 1);
        let mut nodes = ["a", "b"].map(|name| Node::new(&scene, name));
        *scene.naive.faults.lock().unwrap() =
            Faults { error: 10, lost_reply: 10, wrong: 5, short: 9, slow: 9 };
        for round in 0..400 {
            if round == 50 {
                *scene.naive.faults.lock().unwrap() = Faults::default();
                flip(&scene, 2);
                *scene.naive.faults.lock().unwrap() =
                    Faults { error: 10, lost_reply: 10, wrong: 5, short: 9, slow: 9 };
            }
            for node in &mut nodes {
                let _ = node.step();
                let serves = node.serves.get("people");
                assert!(serves.is_none_or(|serves| scene.versions.values().any(|v| v == serves)));
            }
            if round > 50
                && nodes.iter().all(|node| node.serves.get("people") == Some(&scene.versions[&2]))
            {
                break;
            }
            scene.env.clock.sleep(Duration::from_millis(100));
        }
        assert!(
            nodes.iter().all(|node| node.serves["people"] == scene.versions[&2]),
            "seed {seed}"
        );
    }
}

/// Issue 15: the pointer that a rollback returns to has no version of the store `prices`.
#[test]
fn a_rollback_to_a_time_before_the_first_version_of_a_store_leaves_none_of_it() {
    let scene = Scene::new(61, 2000);
    scene.push(1);
    push(&scene.env, builder(), Some(2), &scene.remote, "prices", &Watch::default()).unwrap();
    let stores = ["people", "prices", "other"];
    let mut node = Node::of(&scene, "a", &stores);
    flip(&scene, 1);
    node.step().unwrap();
    let publish_prices = || {
        let options = PublishOptions {
            min_ready: Some(0),
            lead: Duration::ZERO,
            allow_bad: true,
            ..PublishOptions::default()
        };
        let versions = [("prices".to_owned(), 2)];
        controller(&scene).publish(&versions, &options, &Watch::default()).unwrap();
    };
    publish_prices();
    node.step().unwrap();
    assert_eq!((node.flips, node.serves.len()), (2, 2));
    let back = controller(&scene).roll_back("", Duration::from_secs(2)).unwrap();
    assert!(!back.stores.contains_key("prices"));
    node.step().unwrap();
    assert_eq!(node.serves.len(), 2, "it is not time yet");
    scene.env.clock.sleep(Duration::from_secs(2));
    node.step().unwrap();
    assert_eq!((node.flips, node.serves.keys().next().unwrap().as_str()), (3, "people"));
    assert_eq!((node.serves.len(), current(&scene.env, Path::new("a/prices"))), (1, None));
    node.step().unwrap();
    assert_eq!(node.flips, 3, "once");
    // After a restart, too; and a store that the group has never had is left alone.
    let mut node = Node::of(&scene, "a", &stores);
    node.step().unwrap();
    assert_eq!((node.serves.len(), node.flips), (1, 1));
    publish_prices();
    node.step().unwrap();
    assert!(node.serves["prices"] == scene.versions[&2]);
    assert_eq!(current(&scene.env, Path::new("a/prices")), Some(2));
}

/// Issue 15: the versions 4 and 5 are bad, and the last good ones stay for a rollback.
#[test]
fn bad_versions_take_the_place_of_no_good_one_in_the_local_store() {
    let mut scene = Scene::empty(62);
    let mut node = Node::new(&scene, "a");
    for number in 1..=6 {
        scene.add_version(builder(), 20, 100 + number as usize);
        scene.push(number);
        flip(&scene, number);
        node.step().unwrap();
        if number == 4 || number == 5 {
            controller(&scene).roll_back("", Duration::ZERO).unwrap();
            node.step().unwrap();
        }
        scene.env.clock.sleep(Duration::from_secs(24 * 3600));
    }
    let kept = hashfold::store::versions(&scene.env, Path::new("a/people")).unwrap();
    let kept: Vec<u64> = kept.into_iter().map(|(number, _)| number).collect();
    assert_eq!(kept, [2, 3, 6]);
}

/// Issue 15.
#[test]
fn a_version_that_does_not_fit_in_memory_fails_and_the_one_before_stays() {
    let scene = Scene::new(63, 2000);
    (1..=2).for_each(|number| scene.push(number));
    let all = MemoryBudget::unlimited();
    let node_of = |name: &str, memory: &MemoryBudget| {
        let read = ReadOptions::new().env(scene.env.clone()).memory(memory.clone());
        let people = FollowedStore::new(&Path::new(name).join("people"), read);
        let stores = BTreeMap::from([("people".to_owned(), people)]);
        let options = FollowOptions::new("main", name, stores);
        let follower = Follower::new(&scene.env, &scene.remote, options).unwrap();
        Node {
            follower,
            serves: BTreeMap::new(),
            flips: 0,
            failed_reads: Arc::default(),
            placement: Placement::default(),
        }
    };
    flip(&scene, 1);
    let mut node = node_of("b", &all);
    node.step().unwrap();
    let memory = MemoryBudget::new(all.reserved());
    drop(node);
    assert_eq!(all.reserved(), 0, "the versions of a node that has ended are closed");
    let mut node = node_of("b", &memory);
    node.step().unwrap();
    flip(&scene, 2);
    let error = node.step().unwrap_err().to_string();
    let taken = format!("and {0} of {0} are taken", memory.reserved());
    assert!(error.contains(&taken), "{error}");
    assert_eq!(node.state(2), Some(VersionState::Failed));
    let report = &node.follower.report().versions["people"][&2];
    assert!(report.error.as_ref().unwrap().contains("bytes of memory, and "), "{report:?}");
    assert!(node.serves["people"] == scene.versions[&1]);
    controller(&scene).roll_back("", Duration::ZERO).unwrap();
    node.step().unwrap();
    assert!(node.serves["people"] == scene.versions[&1]);
}

/// The folder of the first store is damaged when its version has just become active.
#[test]
fn a_local_store_that_cannot_be_changed_keeps_no_other_one_from_being_current() {
    let scene = Scene::new(67, 200);
    scene.push(1);
    push(&scene.env, builder(), Some(1), &scene.remote, "prices", &Watch::default()).unwrap();
    let options =
        PublishOptions { min_ready: Some(0), lead: Duration::ZERO, ..PublishOptions::default() };
    let versions = ["people", "prices"].map(|store| (store.to_owned(), 1));
    controller(&scene).publish(&versions, &options, &Watch::default()).unwrap();
    let mut node = Node::of(&scene, "a", &["people", "prices"]);
    let (disk, file) = (scene.env.disk.clone(), Path::new("a/people").join(hashfold::store::NAME));
    let mut damage = |_: &[Activation]| disk.create(&file, Access::Cached)?.write_at(0, b"x");
    node.follower.step(&Signal::default(), &mut damage).unwrap_err();
    assert_eq!(current(&scene.env, Path::new("a/prices")), Some(1));
}

/// Each night fetches a version; a local store keeps those that a rollback may need.
#[test]
fn old_versions_are_removed_from_the_local_store() {
    let mut scene = Scene::empty(21);
    let mut node = Node::new(&scene, "a");
    for number in 1..=6 {
        scene.add_version(builder(), 20, 100 + number as usize);
        scene.push(number);
        flip(&scene, number);
        node.step().unwrap();
        assert!(node.serves["people"] == scene.versions[&number]);
        scene.env.clock.sleep(Duration::from_secs(24 * 3600));
    }
    let kept = hashfold::store::versions(&scene.env, Path::new("a/people")).unwrap();
    let kept: Vec<u64> = kept.into_iter().map(|(number, _)| number).collect();
    assert_eq!(kept, [4, 5, 6]);
    controller(&scene).roll_back("", Duration::ZERO).unwrap();
    node.step().unwrap();
    assert!(node.serves["people"] == scene.versions[&5]);
}

/// A current version that cannot be fetched does not keep a better one from being published.
#[test]
fn a_version_that_fails_is_replaced_by_the_next_one() {
    let scene = Scene::new(22, 2000);
    scene.push(1);
    scene.push(2);
    flip(&scene, 1);
    // The file of the first version is lost.
    let names = scene.naive.names();
    let lost = names.iter().find(|name| name.contains("people/versions/")).unwrap();
    scene.naive.remove(lost).unwrap();
    let mut node = Node::new(&scene, "a");
    assert!(node.step().is_err());
    assert_eq!(node.state(1), Some(VersionState::Failed));
    assert_eq!(node.follower.state().get().late.unwrap().0["people"], 1);
    let options = PublishOptions { wait: Duration::ZERO, loss_max: 1.0, ..Default::default() };
    let publish = || {
        let versions = [("people".to_owned(), 2)];
        controller(&scene).publish(&versions, &options, &Watch::default())
    };
    assert!(publish().is_err(), "the node does not have it yet");
    assert!(node.step().is_err(), "the current version fails still");
    assert_eq!(node.state(2), Some(VersionState::Ready));
    publish().unwrap();
    scene.env.clock.sleep(Duration::from_secs(5));
    node.step().unwrap();
    assert!(node.serves["people"] == scene.versions[&2]);
}

/// A remote that was made anew has an older pointer: it is an error, and takes no version back.
#[test]
fn an_older_pointer_is_an_error_if_it_stays() {
    let scene = Scene::new(23, 200);
    scene.push(1);
    scene.push(2);
    flip(&scene, 1);
    flip(&scene, 2);
    let mut node = Node::new(&scene, "a");
    node.step().unwrap();
    scene.naive.remove("groups/main/CURRENT").unwrap();
    flip(&scene, 1);
    node.step().unwrap();
    node.step().unwrap();
    let error = node.step().unwrap_err().to_string();
    assert!(
        error.contains("expected change 2 or a later one") && error.contains("change 1"),
        "{error}"
    );
    assert!(node.serves["people"] == scene.versions[&2]);
}

/// Publishes a version with a limit of changes, while the nodes go on.
fn publish_within(
    scene: &Scene,
    nodes: &[Arc<Mutex<Node>>],
    number: u64,
    change_max: Option<f64>,
) -> hashfold_deploy::Result<GroupPointer> {
    let (nodes, lead) = (nodes.to_vec(), Duration::ZERO);
    let watch = Watch::new(move |_| {
        nodes.iter().for_each(|node| drop(node.lock().unwrap().step()));
        Ok(())
    });
    let options = PublishOptions { change_max, lead, ..PublishOptions::default() };
    controller(scene).publish(&[("people".to_owned(), number)], &options, &watch)
}

#[track_caller]
fn check_gate(result: hashfold_deploy::Result<GroupPointer>, expected: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Gate { .. }) && error.is_refusal(), "{error}");
    assert!(error.to_string().contains(expected), "{error}");
}

/// Version 2 changes 3 of 30 keys.
#[test]
fn nodes_compare_an_announced_version_with_the_current_one() {
    let scene = Scene::new(28, 200);
    scene.push(1);
    scene.push(2);
    flip(&scene, 1);
    let nodes = ["a", "b"].map(|name| Arc::new(Mutex::new(Node::new(&scene, name))));
    step_all(&nodes);
    let refused = publish_within(&scene, &nodes, 2, Some(0.09));
    check_gate(
        refused,
        "at most 0.09 of the sampled keys of version 1 changed or removed, got 0.1",
    );
    let pointer = controller(&scene).pointer().unwrap();
    assert_eq!((pointer.stores["people"].version, pointer.next["people"].version), (1, 2));
    let sample = nodes[0].lock().unwrap().follower.report().versions["people"][&2].sample;
    let expected = NodeSample { from: 1, keys: 30, removed: 0, changed: 3 };
    assert_eq!(sample, Some(expected));
    // The version is announced already.
    let pointer = publish_within(&scene, &nodes, 2, Some(0.1)).unwrap();
    assert_eq!(pointer.stores["people"].version, 2);
    step_all(&nodes);
    // A node has what it has found before, and compares with another version anew.
    publish_within(&scene, &nodes, 1, Some(0.1)).unwrap();
    let sample = nodes[1].lock().unwrap().follower.report().versions["people"][&1].sample;
    assert_eq!(sample, Some(NodeSample { from: 2, ..expected }));
}

/// As many entries as before, of which most have other keys.
#[test]
fn a_version_that_lacks_most_keys_is_refused_whatever_its_size() {
    let mut scene = Scene::empty(29);
    scene.add_version(builder(), 30, 20);
    let store = Store::open_in(scene.env.clone(), builder()).unwrap();
    let mut update = store.update().unwrap();
    for key in 0..20 {
        update.delete(format!("key {key}")).unwrap();
        update.put(format!("other {key}"), "value").unwrap();
    }
    update.publish().unwrap();
    scene.push(1);
    scene.push(2);
    flip(&scene, 1);
    let nodes = [Arc::new(Mutex::new(Node::new(&scene, "a")))];
    step_all(&nodes);
    check_gate(publish_within(&scene, &nodes, 2, None), "at most 0.5 of the sampled keys");
    let options = PublishOptions { loss_max: 1.0, ..PublishOptions::default() };
    let versions = [("people".to_owned(), 2)];
    controller(&scene).publish(&versions, &options, &Watch::default()).unwrap();
}

/// What cannot be checked is not passed.
#[test]
fn a_limit_of_changes_is_refused_if_no_node_has_compared_versions() {
    let scene = Scene::new(30, 200);
    scene.push(1);
    scene.push(2);
    // There is nothing to compare the first version with.
    publish_within(&scene, &[], 1, Some(0.0)).unwrap();
    let expected = "a server that has compared keys with those of version 1, got none";
    check_gate(publish_within(&scene, &[], 2, Some(1.0)), expected);
    publish_within(&scene, &[], 2, None).unwrap();
}

/// A controller waits only for the nodes that serve a store that changes.
#[test]
fn nodes_of_other_stores_are_not_waited_for() {
    let scene = Scene::new(24, 200);
    scene.push(1);
    let watch = Watch::default();
    push(&scene.env, builder(), Some(1), &scene.remote, "prices", &watch).unwrap();
    let mut other = Node::of(&scene, "b", &["prices"]);
    other.step().unwrap();
    let mut node = Node::new(&scene, "a");
    node.step().unwrap();
    let options = PublishOptions { wait: Duration::ZERO, ..PublishOptions::default() };
    let versions = [("people".to_owned(), 1)];
    let error = controller(&scene).publish(&versions, &options, &watch).unwrap_err().to_string();
    assert!(error.contains("expected 1 ready servers") && !error.contains("b ("), "{error}");
    node.step().unwrap();
    controller(&scene).publish(&versions, &options, &watch).unwrap();
}

/// Nodes that have a part of the slots are counted for that part.
#[test]
fn publishing_waits_for_nodes_in_each_range_of_slots() {
    let scene = Scene::new(28, 200);
    scene.push(1);
    scene.push(2);
    let halves = [("a", (0, 8191)), ("b", (0, 8191)), ("c", (8192, 16_383))];
    let node = |(name, slots): (&str, (u32, u32))| {
        Arc::new(Mutex::new(Node::with_slots(&scene, name, &["people"], &[slots])))
    };
    let nodes = halves.map(node);
    flip(&scene, 1);
    step_all(&nodes);
    let stepping = |live: Vec<Arc<Mutex<Node>>>| {
        Watch::new(move |_| {
            live.iter().for_each(|node| drop(node.lock().unwrap().step()));
            Ok(())
        })
    };
    let versions = [("people".to_owned(), 2)];
    let options = |min_ready| PublishOptions {
        min_ready,
        wait: Duration::from_secs(5),
        lead: Duration::ZERO,
        ..PublishOptions::default()
    };
    for min_ready in [None, Some(1)] {
        let watch = stepping(nodes[..2].to_vec());
        let error = controller(&scene).publish(&versions, &options(min_ready), &watch).unwrap_err();
        let ErrorKind::NotReady { expected: 1, got } = error.kind() else { panic!("{error}") };
        assert_eq!(got, "0 in slots 8192 to 16383 of people: c (people 2: absent)");
    }
    // One node of each half is enough.
    let watch = stepping(nodes[1..].to_vec());
    let pointer = controller(&scene).publish(&versions, &options(Some(1)), &watch).unwrap();
    assert_eq!(pointer.stores["people"].version, 2);
    step_all(&nodes);
    // All nodes of the second half are silent: nobody may flip in their place, unless no node at all is waited
    // for.
    scene.env.clock.sleep(Duration::from_secs(120));
    let versions = [("people".to_owned(), 1)];
    let watch = stepping(nodes[..2].to_vec());
    for node in &nodes[..2] {
        node.lock().unwrap().step().unwrap();
    }
    let error = controller(&scene).publish(&versions, &options(None), &watch).unwrap_err();
    assert!(error.to_string().contains("of people: c (silent)"), "{error}");
    controller(&scene).publish(&versions, &options(Some(0)), &watch).unwrap();
}

/// A server that starts with a version that it has open reports it, so that controllers do not wait.
#[test]
fn a_version_that_was_open_before_is_reported() {
    let scene = Scene::new(25, 200);
    scene.push(1);
    flip(&scene, 1);
    Node::new(&scene, "a").step().unwrap();
    let read = ReadOptions::new().env(scene.env.clone());
    let folder = Path::new("a").join("people");
    let current = Some(Arc::new(Version::open(&folder, 1, &read).unwrap()));
    let store = FollowedStore { current, ..FollowedStore::new(&folder, read) };
    let options = FollowOptions::new("main", "a", BTreeMap::from([("people".to_owned(), store)]));
    let follower = Follower::new(&scene.env, &scene.remote, options).unwrap();
    let (serves, failed_reads, placement) = Default::default();
    let mut node = Node { follower, serves, flips: 0, failed_reads, placement };
    node.step().unwrap();
    assert_eq!((node.flips, node.state(1)), (0, Some(VersionState::Current)));
}

/// The group has no version of the store, only the mark of one that nobody published.
#[test]
fn a_version_that_is_marked_bad_takes_no_store_from_a_node_that_has_its_own() {
    let scene = Scene::new(64, 200);
    (1..=2).for_each(|number| scene.push(number));
    let (folder, lanes) = (Path::new("a/people"), one_lane());
    let watch = Watch::default();
    fetch(&scene.env, &scene.remote, "people", 1, folder, &lanes, &watch).unwrap();
    StoreWriter::open(&scene.env, folder).unwrap().publish(1).unwrap();
    let read = ReadOptions::new().env(scene.env.clone());
    let version = Arc::new(Version::open(folder, 1, &read).unwrap());
    let store = FollowedStore { current: Some(version), ..FollowedStore::new(folder, read) };
    let stores = BTreeMap::from([("people".to_owned(), store)]);
    let options = FollowOptions::new("main", "a", stores);
    let follower = Follower::new(&scene.env, &scene.remote, options).unwrap();
    let (serves, failed_reads, placement) = Default::default();
    let mut node = Node { follower, serves, flips: 0, failed_reads, placement };
    controller(&scene).mark_bad("people", 2, "").unwrap();
    node.step().unwrap();
    assert_eq!((node.flips, current(&scene.env, folder)), (0, Some(1)));
}

/// While an announced version fails, a version that is ready is activated at its time.
#[test]
fn a_failing_version_does_not_delay_one_that_is_due() {
    let mut scene = Scene::new(26, 200);
    scene.add_version(builder(), 3, 200);
    (1..=3).for_each(|number| scene.push(number));
    flip(&scene, 1);
    let mut node = Node::new(&scene, "a");
    node.step().unwrap();
    let publish = |number, min_ready, lead| {
        let options =
            PublishOptions { min_ready, lead, wait: Duration::ZERO, ..PublishOptions::default() };
        let versions = [("people".to_owned(), number)];
        controller(&scene).publish(&versions, &options, &Watch::default())
    };
    let due = publish(2, Some(0), Duration::from_secs(60)).unwrap().activate_at_ms;
    publish(3, None, Duration::ZERO).unwrap_err();
    let lost = |name: &String| name.contains("people/versions/") && name.ends_with('3');
    let names = scene.naive.names();
    scene.naive.remove(names.iter().find(|name| lost(name)).unwrap()).unwrap();
    let (stop, clock) = (Signal::default(), scene.env.clock.clone());
    let mut activated = None;
    let mut activate = |_: &[Activation]| {
        activated = Some(clock.unix_time());
        stop.send();
        Ok(())
    };
    let mut failures = 0;
    node.follower.run(&stop, &mut activate, &mut |_| failures += 1);
    let late = activated.unwrap().saturating_sub(Duration::from_millis(due));
    assert!(failures > 5 && late < Duration::from_secs(1), "{failures} failures, {late:?} late");
}

#[test]
fn two_nodes_of_one_name_are_noticed() {
    let scene = Scene::new(27, 200);
    let (mut one, mut other) = (Node::new(&scene, "a"), Node::new(&scene, "a"));
    one.step().unwrap();
    other.step().unwrap();
    scene.env.clock.sleep(Duration::from_secs(11));
    let error = one.step().unwrap_err().to_string();
    assert!(error.contains("a name of its own") && error.contains("\"a\""), "{error}");
    // A process that was started again replaces the report of the one before.
    drop(one);
    for _ in 0..3 {
        scene.env.clock.sleep(Duration::from_secs(11));
        let _ = other.step();
    }
    other.step().unwrap();
}

/// An update of the local store, say, takes long, and a bad version is taken back meanwhile.
#[test]
fn another_writer_of_the_local_store_holds_back_no_rollback() {
    let scene = Scene::new(61, 2000);
    scene.push(1);
    scene.push(2);
    let mut node = Node::new(&scene, "a");
    for number in [1, 2, 1] {
        flip(&scene, number);
        node.step().unwrap();
    }
    let (folder, clock) = (Path::new("a/people"), scene.env.clock.clone());
    let writer = StoreWriter::open(&scene.env, folder).unwrap();
    let start = clock.now();
    flip(&scene, 2);
    node.step().unwrap();
    controller(&scene).roll_back("", Duration::ZERO).unwrap();
    node.step().unwrap();
    assert!(node.serves["people"] == scene.versions[&1]);
    assert!(clock.now() - start < Duration::from_secs(1), "{:?}", clock.now() - start);
    drop(writer);
    flip_forced(&scene, 2);
    node.step().unwrap();
    assert_eq!(current(&scene.env, folder), Some(2));
}

/// Flips to a version, also if it is marked bad.
fn flip_forced(scene: &Scene, number: u64) {
    let options = PublishOptions {
        min_ready: Some(0),
        lead: Duration::ZERO,
        allow_bad: true,
        ..PublishOptions::default()
    };
    let versions = [("people".to_owned(), number)];
    controller(scene).publish(&versions, &options, &Watch::default()).unwrap();
}

/// A disk of a machine that has memory for mapped files.
#[derive(Debug)]
struct Roomy(Arc<dyn Disk>);

impl DiskLayer for Roomy {
    fn below(&self) -> &dyn Disk {
        self.0.as_ref()
    }

    fn over_free_memory(&self, _: u64) -> u64 {
        1 << 40
    }
}

/// Returns the time that a node takes to get a version ready, which transfers at 1 byte per millisecond, and
/// the bytes of the version.
fn time_to_prepare(has_room: bool, lead: Duration) -> (Duration, u64) {
    let mut scene = Scene::new(20, 2000);
    if has_room {
        scene.env.disk = Arc::new(Roomy(scene.env.disk.clone()));
    }
    scene.push(1);
    let mut node = Node::new(&scene, "a");
    let options = PublishOptions { min_ready: Some(0), lead, ..PublishOptions::default() };
    let versions = [("people".to_owned(), 1)];
    controller(&scene).publish(&versions, &options, &Watch::default()).unwrap();
    node.slow_down(1000);
    let start = scene.env.clock.now();
    node.step().unwrap();
    assert_eq!(node.flips, usize::from(lead.is_zero()));
    let took = scene.env.clock.now() - start;
    (took, node.follower.report().versions["people"][&1].bytes)
}

#[test]
fn a_mapped_version_is_read_at_the_rate_of_transfers_before_it_is_ready_unless_it_is_due() {
    let (later, now) = (Duration::from_secs(100_000), Duration::ZERO);
    let (fetched, bytes) = time_to_prepare(false, later);
    let (warmed, _) = time_to_prepare(true, later);
    // The first bytes wait for those that were transferred before; nothing waits for the last ones.
    assert!(warmed > fetched, "{bytes} bytes: {fetched:?}, {warmed:?}");
    let (due, _) = time_to_prepare(true, now);
    assert_eq!(due, fetched, "{bytes} bytes");
}

/// A disk that is full as long as there is a file.
#[derive(Debug)]
struct FullBecauseOf(Arc<dyn Disk>, PathBuf);

impl DiskLayer for FullBecauseOf {
    fn below(&self) -> &dyn Disk {
        self.0.as_ref()
    }

    fn over_free_bytes(&self, bytes: u64) -> u64 {
        if self.0.exists(&self.1).unwrap() { 0 } else { bytes }
    }
}

/// A node with version 1 current and version 2 announced, and three versions in the remote.
fn announced_while_full_because_of(seed: u64, file: &str) -> (Scene, Node) {
    let mut scene = Scene::new(seed, 2000);
    scene.add_version(builder(), 30, 2000);
    scene.env.disk = Arc::new(FullBecauseOf(scene.env.disk.clone(), file.into()));
    (1..=3).for_each(|number| scene.push(number));
    flip(&scene, 1);
    let mut node = Node::new(&scene, "a");
    node.step().unwrap();
    announce(&scene, 2);
    node.step().unwrap();
    assert_eq!(node.state(2), Some(VersionState::Ready));
    (scene, node)
}

/// Announces a version, and does not wait for nodes.
fn announce(scene: &Scene, number: u64) {
    let options = PublishOptions { wait: Duration::ZERO, ..PublishOptions::default() };
    let versions = [("people".to_owned(), number)];
    controller(scene).publish(&versions, &options, &Watch::default()).unwrap_err();
}

/// A version that was announced and never published makes room for the next one.
#[test]
fn a_full_device_is_cleared_of_versions_that_are_not_needed() {
    let file = Path::new("a/people/versions/0000000002");
    let (scene, mut node) = announced_while_full_because_of(65, file.to_str().unwrap());
    scene.env.clock.sleep(Duration::from_secs(7200));
    node.step().unwrap();
    announce(&scene, 3);
    node.step().unwrap();
    assert_eq!(node.state(3), Some(VersionState::Ready));
    assert!(!scene.env.disk.exists(file).unwrap());
    flip(&scene, 3);
    node.step().unwrap();
    assert!(node.serves["people"] == scene.versions[&3]);
}

#[test]
fn a_part_of_a_version_that_does_not_fit_is_removed() {
    let file = Path::new("a/full");
    let (scene, mut node) = announced_while_full_because_of(66, file.to_str().unwrap());
    let (disk, incoming) = (scene.env.disk.as_ref(), Path::new("a/people/incoming"));
    let is_left = || !disk.list(incoming).unwrap().is_empty();
    disk.create(file, Access::Cached).unwrap();
    announce(&scene, 3);
    let error = node.step().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Space { .. }), "{error}");
    assert_eq!((node.state(3), is_left()), (Some(VersionState::Failed), false));
    disk.remove(file).unwrap();
    node.step().unwrap();
    assert_eq!(node.state(3), Some(VersionState::Ready));
}

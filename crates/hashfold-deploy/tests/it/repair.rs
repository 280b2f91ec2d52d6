//! Damage of a node's store: what is wrong is fetched again, and nothing else.

use crate::fixture::{Scene, builder, faulty, files, memory_of, node, one_lane};
use hashfold::{
    Env, ErrorClass, ReadOptions,
    io::{Access, Disk, Fault},
    store::Version,
    work::{Signal, Watch},
};
use hashfold_deploy::{
    Activation, Controller, FollowOptions, FollowedStore, Follower, Objects as _, PublishOptions,
    Repaired, VersionState, repair,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

/// Size of a value with which a version has several pieces.
const LARGE: usize = 200_000;

/// Size of a piece, in bytes.
const PIECE: u64 = 1 << 20;

/// A node with version 2, whose files are those of the builder.
fn fetched(seed: u64, value_size: usize) -> Scene {
    let scene = Scene::new(seed, value_size);
    scene.push(2);
    scene.fetch(2).unwrap();
    scene
}

fn repaired(scene: &Scene, disk: Arc<dyn Disk>) -> hashfold_deploy::Result<Repaired> {
    let env = Env { disk, ..scene.env.clone() };
    repair(&env, &scene.remote, "people", 2, node(), &one_lane(), &Watch::default())
}

fn repaired_version(scene: &Scene, number: u64) -> hashfold_deploy::Result<Repaired> {
    repair(&scene.env, &scene.remote, "people", number, node(), &one_lane(), &Watch::default())
}

/// The files of version 2 on the node.
fn files_of_version(disk: &dyn Disk) -> Vec<PathBuf> {
    let tables = files(disk, &node().join("tables")).into_keys();
    let mut all: Vec<PathBuf> = tables.map(|name| node().join("tables").join(name)).collect();
    let versions = files(disk, &node().join("versions")).into_keys();
    all.extend(versions.map(|name| node().join("versions").join(name)));
    all
}

fn flip(disk: &dyn Disk, path: &Path, offset: u64) {
    let file = disk.open_to_write(path, Access::Cached).unwrap();
    let mut byte = [0];
    file.read_at(offset, &mut byte).unwrap();
    file.write_at(offset, &[!byte[0]]).unwrap();
}

fn size(disk: &dyn Disk, path: &Path) -> u64 {
    disk.open(path, Access::Cached).unwrap().size().unwrap()
}

#[test]
fn a_version_without_damage_is_left_alone() {
    let scene = fetched(31, LARGE);
    let ranges = scene.naive.ranges.load(SeqCst);
    assert_eq!(repaired(&scene, scene.env.disk.clone()).unwrap(), Repaired::default());
    assert_eq!(scene.naive.ranges.load(SeqCst), ranges);
    assert_eq!(files(scene.env.disk.as_ref(), &node().join("incoming")).len(), 0);
}

/// A way to damage a file.
type Damage<'a> = &'a dyn Fn(&dyn Disk);

/// Each file is damaged in the middle, at its end, cut, and removed.
#[test]
fn every_damaged_file_is_replaced_and_only_wrong_pieces_are_fetched() {
    let scene = fetched(32, LARGE);
    let disk = scene.env.disk.as_ref();
    let good = files(disk, node());
    for path in files_of_version(disk) {
        let size = size(disk, &path);
        let cut = |disk: &dyn Disk| {
            let bytes = good[path.strip_prefix(node()).unwrap()].clone();
            let file = disk.create(&path, Access::Cached).unwrap();
            file.write_at(0, &bytes[..bytes.len() / 2]).unwrap();
        };
        let damages: [(Damage<'_>, u64); 4] = [
            (&|disk| flip(disk, &path, size / 2), PIECE),
            (&|disk| flip(disk, &path, size - 1), PIECE),
            (&cut, size),
            (&|disk| disk.remove(&path).unwrap(), size),
        ];
        for (i, (damage, bytes_max)) in damages.into_iter().enumerate() {
            damage(disk);
            let found = repaired(&scene, scene.env.disk.clone()).unwrap();
            assert_eq!(found.files, 1, "{} {i}", path.display());
            assert!(found.bytes <= bytes_max, "{} {i}: {found:?}", path.display());
            assert!(files(disk, node()) == good, "{} {i}", path.display());
        }
    }
    scene.check(node(), 2);
    for part in ["tables", "versions"] {
        let theirs = files(disk, &builder().join(part));
        let ours = files(disk, &node().join(part));
        assert!(ours.into_iter().all(|(name, bytes)| theirs[&name] == bytes), "{part}");
    }
}

/// The bytes of one store must not replace those of another one.
#[test]
fn another_store_and_another_version_are_left_alone() {
    let scene = fetched(37, 2000);
    let other = Scene::new(38, 100);
    other.push(2);
    let env = Env { disk: scene.env.disk.clone(), ..other.env.clone() };
    let before = files(scene.env.disk.as_ref(), node());
    let repair = |number| {
        let (options, watch) = (one_lane(), Watch::default());
        repair(&env, &other.remote, "people", number, node(), &options, &watch).unwrap_err()
    };
    let error = repair(2);
    assert!(error.to_string().contains("versions"), "{error}");
    // The right store does not have every version.
    scene.push(1);
    let absent = repaired_version(&scene, 1).unwrap_err();
    assert!(absent.to_string().contains("versions"), "{absent}");
    assert!(files(scene.env.disk.as_ref(), node()) == before);
}

/// A power cut at every operation of a repair, and another repair after it.
#[test]
fn a_repair_that_is_interrupted_makes_nothing_worse_and_the_next_one_ends_it() {
    let scene = fetched(33, 2000);
    let good = files(scene.env.disk.as_ref(), node());
    let damaged = memory_of(scene.env.disk.as_ref());
    let all = files_of_version(&damaged);
    flip(&damaged, &all[0], 100);
    flip(&damaged, all.last().unwrap(), 20);
    for operation in 0.. {
        let cut = faulty(&damaged, Fault::PowerCut { operation });
        let done = repaired(&scene, Arc::new(cut.clone()));
        for seed in [2 * operation, 2 * operation + 1] {
            let disk: Arc<dyn Disk> = Arc::new(cut.after_power_cut(seed));
            let again = repaired(&scene, disk.clone()).unwrap();
            assert!(done.is_err() || again.files == 0, "operation {operation}: {again:?}");
            assert!(files(disk.as_ref(), node()) == good, "operation {operation}");
        }
        if done.is_ok() {
            assert!(operation > 8, "{operation}");
            return;
        }
    }
}

#[test]
fn without_the_remote_nothing_is_replaced() {
    let scene = fetched(34, 2000);
    let disk = scene.env.disk.as_ref();
    let path = files_of_version(disk).remove(0);
    flip(disk, &path, 100);
    let before = files(disk, node());
    scene.naive.is_gone.store(true, SeqCst);
    let error = repaired(&scene, scene.env.disk.clone()).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Io, "{error}");
    assert!(files(disk, node()) == before);
}

/// A node that answers from the store `people`, in which its server can meet damage.
struct Node {
    follower: Follower,
    is_damaged: Arc<AtomicBool>,
}

impl Node {
    fn new(scene: &Scene) -> Node {
        let is_damaged = Arc::new(AtomicBool::new(false));
        let read = ReadOptions::new().env(scene.env.clone());
        let is_damaged_there = is_damaged.clone();
        let people =
            FollowedStore { is_damaged: is_damaged_there, ..FollowedStore::new(node(), read) };
        let stores = BTreeMap::from([("people".to_owned(), people)]);
        let options = FollowOptions::new("main", "a", stores);
        let follower = Follower::new(&scene.env, &scene.remote, options).unwrap();
        Node { follower, is_damaged }
    }

    /// Makes a step, and returns the version that it activated.
    fn step(&mut self) -> hashfold_deploy::Result<Option<Arc<Version>>> {
        let mut activated = None;
        let mut activate = |activations: &[Activation]| {
            activated = activations.first().and_then(|it| it.version.clone());
            Ok(())
        };
        self.follower.step(&Signal::default(), &mut activate)?;
        Ok(activated)
    }
}

/// A node with version 2 active.
fn following(seed: u64) -> (Scene, Node) {
    let scene = Scene::new(seed, 2000);
    scene.push(2);
    let options =
        PublishOptions { min_ready: Some(0), lead: Duration::ZERO, ..PublishOptions::default() };
    let controller = Controller::new(&scene.env, &scene.remote, "main", "test").unwrap();
    let versions = [("people".to_owned(), 2)];
    controller.publish(&versions, &options, &Watch::default()).unwrap();
    let mut node = Node::new(&scene);
    assert!(node.step().unwrap().is_some());
    (scene, node)
}

fn is_data(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with("data")
}

fn data_file(disk: &dyn Disk) -> PathBuf {
    files_of_version(disk).into_iter().find(|path| is_data(path)).unwrap()
}

#[test]
fn a_node_repairs_the_version_in_which_its_server_meets_damage() {
    let (scene, mut node) = following(35);
    let disk = scene.env.disk.as_ref();
    let path = data_file(disk);
    flip(disk, &path, size(disk, &path) / 2);
    assert!(node.step().unwrap().is_none(), "nobody has read it");
    node.is_damaged.store(true, SeqCst);
    // Without the remote, the version stays, and the damage is not forgotten.
    scene.naive.is_gone.store(true, SeqCst);
    node.step().unwrap_err();
    assert!(node.is_damaged.load(SeqCst));
    scene.naive.is_gone.store(false, SeqCst);
    assert!(node.step().unwrap().is_none(), "it is repaired after all else");
    let version = node.step().unwrap().expect("the repaired version is activated");
    assert!(crate::fixture::scanned(&version) == scene.versions[&2]);
    assert!(!node.is_damaged.load(SeqCst));
    assert_eq!(node.follower.report().versions["people"][&2].state, VersionState::Current);

    // Damage that is met again at once is not looked for again at once: each time, all bytes are read.
    node.is_damaged.store(true, SeqCst);
    assert!(node.step().unwrap().is_none());
    scene.env.clock.sleep(Duration::from_secs(600));
    assert!(node.step().unwrap().is_none());
    assert!(node.step().unwrap().is_some());
}

/// The file of the announced version is lost in the remote.
#[test]
fn a_version_that_cannot_be_fetched_keeps_no_other_one_from_being_repaired() {
    let (scene, mut node) = following(42);
    scene.push(1);
    let controller = Controller::new(&scene.env, &scene.remote, "main", "test").unwrap();
    let options = PublishOptions { wait: Duration::ZERO, ..PublishOptions::default() };
    let versions = [("people".to_owned(), 1)];
    controller.publish(&versions, &options, &Watch::default()).unwrap_err();
    scene.naive.remove("stores/people/versions/0000000001").unwrap();
    let disk = scene.env.disk.as_ref();
    let path = data_file(disk);
    flip(disk, &path, size(disk, &path) / 2);
    node.is_damaged.store(true, SeqCst);
    node.step().unwrap_err();
    scene.check(crate::fixture::node(), 2);
    let state = |number| node.follower.report().versions["people"][&number].state;
    assert_eq!((state(1), state(2)), (VersionState::Failed, VersionState::Current));
    node.step().unwrap_err();
    assert!(!node.is_damaged.load(SeqCst), "the repaired version is activated");
}

#[test]
fn a_node_repairs_a_version_that_cannot_be_opened() {
    let (scene, node) = following(36);
    drop(node);
    let disk = scene.env.disk.as_ref();
    disk.remove(&data_file(disk)).unwrap();
    let mut node = Node::new(&scene);
    let version = node.step().unwrap().expect("it is repaired and activated");
    assert!(crate::fixture::scanned(&version) == scene.versions[&2]);
}

/// Follows for an hour, and returns the number of ranges that were read from the remote.
fn ranges_of_an_hour(scene: &Scene, node: &mut Node) -> u64 {
    let before = scene.naive.ranges.load(SeqCst);
    for _ in 0..7200 {
        let _ = node.step();
        scene.env.clock.sleep(Duration::from_millis(500));
    }
    scene.naive.ranges.load(SeqCst) - before
}

/// Issue 15: a remote that always returns wrong bytes is not asked for them again and again.
#[test]
fn damage_that_the_remote_cannot_repair_costs_few_reads() {
    let (scene, mut node) = following(39);
    let disk = scene.env.disk.as_ref();
    let path = data_file(disk);
    let middle = size(disk, &path) / 2;
    flip(disk, &path, middle);
    node.is_damaged.store(true, SeqCst);
    *scene.naive.rotten.lock().unwrap() = Some(("/data".into(), middle));
    let ranges = ranges_of_an_hour(&scene, &mut node);
    assert!((3..=60).contains(&ranges), "{ranges}");
    *scene.naive.rotten.lock().unwrap() = None;
    let ranges = ranges_of_an_hour(&scene, &mut node);
    assert!((1..=3).contains(&ranges), "{ranges}");
    scene.check(crate::fixture::node(), 2);
}

/// Issue 15.
#[test]
fn a_version_that_is_damaged_in_the_remote_costs_few_reads() {
    let (mut scene, mut node) = following(40);
    let number = scene.add_version(builder(), 30, 3000);
    scene.push(number);
    *scene.naive.rotten.lock().unwrap() = Some(("/data".into(), 0));
    let options =
        PublishOptions { min_ready: Some(0), lead: Duration::ZERO, ..PublishOptions::default() };
    let controller = Controller::new(&scene.env, &scene.remote, "main", "test").unwrap();
    let versions = [("people".to_owned(), number)];
    controller.publish(&versions, &options, &Watch::default()).unwrap();
    let ranges = ranges_of_an_hour(&scene, &mut node);
    assert!((3..=120).contains(&ranges), "{ranges}");
    let report = &node.follower.report().versions["people"][&number];
    assert_eq!(report.state, VersionState::Failed);
    assert!(report.error.as_ref().unwrap().contains("at byte 0"), "{report:?}");
    *scene.naive.rotten.lock().unwrap() = None;
    ranges_of_an_hour(&scene, &mut node);
    assert_eq!(node.follower.report().versions["people"][&number].state, VersionState::Current);
}

/// Issue 15: each file of the local copy is cut, flipped and removed, and so are all small ones together.
#[test]
fn a_damaged_local_copy_keeps_no_node_from_following() {
    let (scene, node_before) = following(41);
    drop(node_before);
    let good = memory_of(scene.env.disk.as_ref());
    let all: Vec<PathBuf> =
        files(&good, node()).into_keys().map(|name| node().join(name)).collect();
    let small: Vec<PathBuf> =
        all.iter().filter(|path| !path.starts_with(node().join("tables"))).cloned().collect();
    assert!(small.len() > 1 && all.len() > small.len() + 3, "{all:?}");
    let cases = all.iter().map(|path| vec![path.clone()]).chain([small, all.clone()]);
    for (i, case) in cases.enumerate() {
        for kind in 0..3 {
            let disk = memory_of(&good);
            for path in &case {
                let half = size(&disk, path) / 2;
                match kind {
                    0 => flip(&disk, path, half),
                    1 => {
                        let bytes =
                            files(&disk, node())[path.strip_prefix(node()).unwrap()].clone();
                        let file = disk.create(path, Access::Cached).unwrap();
                        file.write_at(0, &bytes[..half as usize]).unwrap();
                    }
                    _ => disk.remove(path).unwrap(),
                }
            }
            let has_flips = kind == 0 && case.iter().any(|path| is_data(path));
            let env = Env { disk: Arc::new(disk), ..scene.env.clone() };
            let read = ReadOptions::new().env(env.clone());
            let people = FollowedStore::new(node(), read);
            let is_damaged = people.is_damaged.clone();
            let stores = BTreeMap::from([("people".into(), people)]);
            let options = FollowOptions::new("main", "a", stores);
            let mut follower = Follower::new(&env, &scene.remote, options).unwrap();
            let mut activated = None;
            for step in 0..6 {
                // Flipped bits in data are met by reads.
                is_damaged.fetch_or(has_flips && step == 2, SeqCst);
                let mut activate = |activations: &[Activation]| {
                    activated = activations[0].version.clone();
                    Ok(())
                };
                let _ = follower.step(&Signal::default(), &mut activate);
                scene.env.clock.sleep(Duration::from_secs(1));
            }
            let place = format!("case {i} {kind}: {case:?}");
            let version = activated.expect(&place);
            assert!(crate::fixture::scanned(&version) == scene.versions[&2], "{place}");
            let state = &follower.report().versions["people"][&2];
            assert_eq!(state.state, VersionState::Current, "{place}: {state:?}");
        }
    }
}

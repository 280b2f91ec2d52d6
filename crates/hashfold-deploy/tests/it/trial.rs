//! Trials: one zone gets new versions before all others, and goes back after any failure.

use crate::{
    fixture::Scene,
    follow::{Node, flip},
    naive::Naive,
};
use hashfold::{
    ErrorClass, ErrorKind as StoreErrorKind,
    work::{Signal, Watch},
};
use hashfold_deploy::{
    Bake, Controller, Error, ErrorKind, Found, GroupPointer, Listed, Objects, Parts,
    PublishOptions, Remote, Result, Tag, When,
};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// The time for which the zone must be healthy.
const BAKE: Duration = Duration::from_secs(2);

/// A planned fault of the requests of one controller, which are counted from 0 on.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A request fails, and does nothing.
    Fails(u64),
    /// A request is done, and its reply is lost.
    LosesReply(u64),
    /// This request and all later ones fail, as if the controller died.
    Dies(u64),
}

/// An object store as one controller sees it.
#[derive(Debug)]
struct Flaky {
    inner: Arc<Naive>,
    /// The fault, and the number of requests since it was planned.
    plan: Mutex<(Option<Fault>, u64)>,
}

impl Flaky {
    fn plan(&self, fault: Option<Fault>) {
        *self.plan.lock().unwrap() = (fault, 0);
    }

    /// Whether the fault has happened.
    fn has_happened(&self) -> bool {
        let (fault, count) = *self.plan.lock().unwrap();
        fault.is_some_and(|fault| match fault {
            Fault::Fails(at) | Fault::LosesReply(at) | Fault::Dies(at) => count > at,
        })
    }

    fn call<T>(&self, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let (fault, number) = {
            let mut plan = self.plan.lock().unwrap();
            plan.1 += 1;
            (plan.0, plan.1 - 1)
        };
        let reply = match fault {
            Some(Fault::Fails(at)) if at == number => None,
            Some(Fault::Dies(at)) if number >= at => None,
            Some(Fault::LosesReply(at)) if at == number => request().ok().and(None),
            _ => Some(request()),
        };
        reply.unwrap_or_else(|| Err(Error::remote("reach", "connection reset")))
    }
}

impl Objects for Flaky {
    fn place(&self, name: &str) -> String {
        self.inner.place(name)
    }

    fn get(&self, name: &str, size_max: u64, known: Option<&Tag>) -> Result<Found> {
        self.call(|| self.inner.get(name, size_max, known))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        self.call(|| self.inner.get_range(name, range))
    }

    fn put(&self, name: &str, bytes: &[u8], when: When<'_>) -> Result<Option<Tag>> {
        self.call(|| self.inner.put(name, bytes, when))
    }

    fn upload(&self, name: &str, size: u64, parts: &mut Parts<'_>) -> Result<()> {
        self.call(|| self.inner.upload(name, size, parts))
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.call(|| self.inner.list(folder))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.call(|| self.inner.remove(name))
    }
}

type SharedNode = Arc<Mutex<Node>>;

/// Nodes of two zones and one without, that answer from version 1, and a controller.
struct Group {
    scene: Scene,
    flaky: Arc<Flaky>,
    controller: Controller,
    /// In the zone east: a and b. In the zone west: c. In none: d.
    nodes: Vec<SharedNode>,
}

impl Group {
    fn new(seed: u64) -> Group {
        let scene = Scene::new(seed, 200);
        scene.push(1);
        scene.push(2);
        let node =
            |name, zone| Arc::new(Mutex::new(Node::in_zone(&scene, name, zone, &["people"])));
        let nodes = vec![
            node("a", Some("east")),
            node("b", Some("east")),
            node("c", Some("west")),
            node("d", None),
        ];
        let flaky = Arc::new(Flaky { inner: scene.naive.clone(), plan: Mutex::default() });
        let remote = Remote::new(flaky.clone());
        let controller = Controller::new(&scene.env, &remote, "main", "eve").unwrap();
        // The first change checks the object store, which is not a part of the tests below.
        controller.publish(&[("people".to_owned(), 1)], &options(None), &Watch::default()).unwrap();
        let group = Group { scene, flaky, controller, nodes };
        group.settle();
        group
    }

    fn node(&self, number: usize) -> MutexGuard<'_, Node> {
        self.nodes[number].lock().unwrap()
    }

    /// A controller whose requests have no faults.
    fn other(&self) -> Controller {
        Controller::new(&self.scene.env, &self.scene.remote, "main", "bob").unwrap()
    }

    fn pointer(&self) -> GroupPointer {
        self.other().pointer().unwrap()
    }

    /// Publishes a version while the nodes go on; `look` is called at each look of the controller.
    fn publish_while(
        &self,
        number: u64,
        zone: Option<&str>,
        mut look: impl FnMut() -> hashfold::Result<()> + Send + 'static,
    ) -> Result<GroupPointer> {
        let nodes = self.nodes.clone();
        let watch = watch(move || {
            nodes.iter().for_each(|node| drop(node.lock().unwrap().step()));
            look()
        });
        self.controller.publish(&[("people".to_owned(), number)], &options(zone), &watch)
    }

    fn publish(&self, number: u64, zone: Option<&str>) -> Result<GroupPointer> {
        self.publish_while(number, zone, || Ok(()))
    }

    /// The versions that the nodes answer from.
    fn serves(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| serves(&self.scene, node)).collect()
    }

    /// Lets all nodes go on for a while.
    fn settle(&self) {
        for _ in 0..4 {
            self.scene.env.clock.sleep(Duration::from_secs(1));
            self.nodes.iter().for_each(|node| drop(node.lock().unwrap().step()));
        }
    }

    /// Checks that no zone has other versions than the rest, and that all nodes get to the pointer's.
    #[track_caller]
    fn check_ended(&self, number: u64, context: &str) {
        let pointer = self.pointer();
        assert_eq!((pointer.stores["people"].version, pointer.trial), (number, None), "{context}");
        self.settle();
        assert_eq!(self.serves(), [number; 4], "{context}");
    }
}

fn options(zone: Option<&str>) -> PublishOptions {
    let bake = zone.map(|zone| Bake { zone: zone.to_owned(), time: BAKE });
    PublishOptions { bake, wait: Duration::from_secs(30), ..PublishOptions::default() }
}

/// A watch with a callback that has a state.
fn watch(look: impl FnMut() -> hashfold::Result<()> + Send + 'static) -> Watch {
    let look = Mutex::new(look);
    Watch::new(move |_| (look.lock().unwrap())())
}

fn serves(scene: &Scene, node: &SharedNode) -> u64 {
    let node = node.lock().unwrap();
    let found = scene.versions.iter().find(|(_, pairs)| node.serves["people"] == **pairs);
    *found.expect("a node answers from a whole version").0
}

/// Whether the zone has flipped.
fn is_tried(node: &SharedNode) -> bool {
    let node = node.lock().unwrap();
    let version = node.follower.report().versions["people"].get(&2).cloned();
    version.is_some_and(|version| version.state == hashfold_deploy::VersionState::Current)
}

#[test]
fn one_zone_has_a_version_first_and_the_others_after_the_time() {
    let group = Group::new(1);
    let start = group.scene.env.clock.now();
    let (seen, clock) = (Arc::new(Mutex::new(Vec::new())), group.scene.env.clock.clone());
    let (nodes, list) = (group.nodes.clone(), seen.clone());
    let versions = group.scene.versions.clone();
    let look = move || {
        let serves = |node: &SharedNode| {
            let node = node.lock().unwrap();
            *versions.iter().find(|(_, pairs)| node.serves["people"] == **pairs).unwrap().0
        };
        let all: Vec<u64> = nodes.iter().map(serves).collect();
        list.lock().unwrap().push((clock.now(), all));
        Ok(())
    };
    let pointer = group.publish_while(2, Some("east"), look).unwrap();
    assert_eq!((pointer.stores["people"].version, pointer.next.len()), (2, 0));
    let seen = seen.lock().unwrap();
    let tried = seen.iter().filter(|(_, all)| *all == [2, 2, 1, 1]);
    let times: Vec<Duration> = tried.map(|(at, _)| *at - start).collect();
    assert!(*times.last().unwrap() - times[0] >= BAKE, "{times:?}");
    assert!(seen.iter().all(|(_, all)| all[2..] == [1, 1]), "{seen:?}");
    group.check_ended(2, "published");
    assert_eq!(group.other().roll_back("", Duration::ZERO).unwrap().stores["people"].version, 1);
    group.check_ended(1, "rolled back");
}

/// Checks that the zone goes back if `look` does something once it has flipped.
#[track_caller]
fn check_taken_back(
    group: &Group,
    look: impl FnMut() -> hashfold::Result<()> + Send + 'static,
) -> String {
    let error = group.publish_while(2, Some("east"), look).unwrap_err();
    let pointer = group.pointer();
    assert_eq!((pointer.stores["people"].version, pointer.next.len()), (1, 0), "{error}");
    let ErrorKind::Trial { zone, got, left: None } = error.kind() else { panic!("{error}") };
    assert_eq!((zone.as_str(), error.is_refusal()), ("east", true));
    assert!(
        pointer.reason.starts_with("taken back: ") && pointer.reason.contains(got),
        "{pointer:?}"
    );
    got.clone()
}

#[test]
fn lookups_that_fail_take_the_zone_back() {
    let group = Group::new(2);
    // Those of the version before do not count.
    group.node(0).failed_reads.fetch_add(7, std::sync::atomic::Ordering::SeqCst);
    let node = group.nodes[0].clone();
    let got = check_taken_back(&group, move || {
        if is_tried(&node) {
            let failed = &node.lock().unwrap().failed_reads;
            failed.fetch_max(10, std::sync::atomic::Ordering::SeqCst);
        }
        Ok(())
    });
    assert_eq!(got, "a (people 2: current, 3 failed lookups)");
    group.check_ended(1, "taken back");
}

#[test]
fn a_node_that_falls_silent_takes_the_zone_back() {
    let mut group = Group::new(3);
    let silent = group.nodes.remove(1);
    let other = silent.clone();
    let got = check_taken_back(&group, move || {
        if !is_tried(&other) {
            drop(other.lock().unwrap().step());
        }
        Ok(())
    });
    assert_eq!(got, "b (silent)");
    group.nodes.insert(1, silent);
    group.check_ended(1, "taken back");
}

#[test]
fn a_node_that_cannot_activate_a_version_takes_the_zone_back() {
    let mut group = Group::new(4);
    let stuck = group.nodes.remove(1);
    let (other, clock) = (stuck.clone(), group.scene.env.clock.clone());
    let start = clock.now();
    let got = check_taken_back(&group, move || {
        let mut refuse = |_: &[_]| Err(StoreErrorKind::Busy.into());
        drop(other.lock().unwrap().follower.step(&Signal::default(), &mut refuse));
        Ok(())
    });
    assert_eq!(got, "b (people 2: ready)");
    assert!(group.scene.env.clock.now() - start < Duration::from_secs(90));
    group.nodes.insert(1, stuck);
    group.check_ended(1, "taken back");
}

#[test]
fn a_zone_needs_a_live_node_and_all_of_its_nodes_must_be_ready() {
    let group = Group::new(5);
    let error = group.publish(2, Some("north")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotReady { .. }), "{error}");
    assert!(error.to_string().contains("zones of servers: east, west"), "{error}");
    assert!(group.publish(2, Some("../x")).is_err());
    assert_eq!(group.pointer().seq, 1, "nothing was announced");
    // One ready node is enough, but not without those of the zone.
    let options = PublishOptions { min_ready: Some(1), ..options(Some("east")) };
    let nodes = group.nodes[1..].to_vec();
    let watch = watch(move || {
        nodes.iter().for_each(|node| drop(node.lock().unwrap().step()));
        Ok(())
    });
    let versions = [("people".to_owned(), 2)];
    let error = group.controller.publish(&versions, &options, &watch).unwrap_err();
    assert!(error.to_string().contains("a (people 2: absent)"), "{error}");
    group.check_ended(1, "not ready");
    group.scene.env.clock.sleep(Duration::from_secs(61));
    group.node(2).step().unwrap();
    let error = group.publish(2, Some("east")).unwrap_err();
    assert!(error.to_string().contains("none in zone east"), "{error}");
}

#[test]
fn a_call_that_is_stopped_takes_the_zone_back() {
    let group = Group::new(6);
    let node = group.nodes[0].clone();
    let look = move || match is_tried(&node) {
        true => Err(StoreErrorKind::Stopped.into()),
        false => Ok(()),
    };
    let error = group.publish_while(2, Some("east"), look).unwrap_err();
    assert!(error.is_stop(), "{error}");
    group.check_ended(1, "stopped");
}

/// Another controller changes the pointer while the zone has the version.
#[test]
fn another_controller_ends_a_trial() {
    type Change = fn(&Controller) -> Result<GroupPointer>;
    let changes: [(Change, u64); 4] = [
        (|bob| bob.cancel("no"), 1),
        (|bob| bob.roll_back("no", Duration::ZERO), 1),
        (|bob| bob.mark_bad("people", 2, "no"), 1),
        (
            |bob| {
                let options = PublishOptions { min_ready: Some(0), ..PublishOptions::default() };
                bob.publish(&[("people".to_owned(), 2)], &options, &Watch::default())
            },
            2,
        ),
    ];
    for (i, (change, number)) in changes.into_iter().enumerate() {
        let group = Group::new(7);
        let (bob, node) = (group.other(), group.nodes[0].clone());
        let mut is_done = false;
        let look = move || {
            if is_tried(&node) && !is_done {
                change(&bob).unwrap();
                is_done = true;
            }
            Ok(())
        };
        let result = group.publish_while(2, Some("east"), look);
        match result {
            Ok(pointer) => assert_eq!((number, pointer.by.as_str()), (2, "bob")),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Overtaken { .. }), "{error}");
                assert_eq!(number, 1, "{error}");
            }
        }
        assert_eq!(group.pointer().by, "bob");
        group.check_ended(number, &format!("change {i}"));
    }
}

/// A change that leaves the trial on: the controller that watches it is overtaken, and ends it.
#[test]
fn a_trial_does_not_outlive_the_controller_that_is_overtaken() {
    let mut group = Group::new(8);
    group.scene.add_version(crate::fixture::builder(), 3, 300);
    group.scene.push(3);
    let (bob, node) = (group.other(), group.nodes[0].clone());
    let look = move || {
        if is_tried(&node) {
            bob.mark_bad("people", 3, "also wrong").unwrap();
        }
        Ok(())
    };
    let error = group.publish_while(2, Some("east"), look).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Overtaken { .. }), "{error}");
    group.check_ended(1, "overtaken");
}

/// One request fails, or its reply is lost: the version is published, or no zone has it.
#[test]
fn a_fault_at_any_request_leaves_no_trial() {
    let faults: [fn(u64) -> Fault; 2] = [Fault::Fails, Fault::LosesReply];
    for fault in faults {
        let mut published = 0;
        for at in 0.. {
            let group = Group::new(9);
            group.flaky.plan(Some(fault(at)));
            let result = group.publish(2, Some("east"));
            if !group.flaky.has_happened() {
                assert!(result.is_ok() && at > 20, "{at}: {result:?}");
                break;
            }
            let context = format!("{:?}: {result:?}", fault(at));
            match result {
                Ok(_) => {
                    published += 1;
                    group.check_ended(2, &context);
                }
                Err(_) => {
                    group.check_ended(1, &context);
                    group.publish(2, Some("east")).unwrap();
                    group.check_ended(2, &context);
                }
            }
        }
        assert!(published > 10, "{published}");
    }
}

/// The ways out of the state that a dead controller has left.
const WAYS: [&str; 5] = ["with the zone", "for all", "the version before", "cancel", "roll back"];

/// A controller that dies at any request, and another one that goes on or withdraws the version.
#[test]
fn another_controller_goes_on_where_one_has_died() {
    let mut left = 0;
    let mut states = BTreeMap::new();
    for at in 0.. {
        let mut is_known = false;
        for (i, way) in WAYS.into_iter().enumerate() {
            // While the controller only looks, all requests leave one state.
            if is_known && i != at as usize % WAYS.len() {
                continue;
            }
            let group = Group::new(10);
            group.flaky.plan(Some(Fault::Dies(at)));
            let result = group.publish(2, Some("east"));
            if !group.flaky.has_happened() {
                assert!(left > 10, "{left}");
                return;
            }
            let died = group.pointer();
            let count: &mut usize = states.entry((died.seq, died.trial.is_some())).or_default();
            *count += 1;
            is_known = *count > 3 * WAYS.len();
            let context = format!("{at}, {way}: {result:?}");
            if died.trial.is_some() {
                let error = result.unwrap_err();
                assert!(
                    matches!(error.kind(), ErrorKind::Trial { left: Some(_), .. }),
                    "{context}"
                );
                assert!(error.class() == ErrorClass::Io && !error.is_refusal(), "{context}");
                left += 1;
            }
            group.flaky.plan(None);
            // The nodes do not depend on controllers.
            group.settle();
            let before = died.stores["people"].version;
            let tried = if died.trial.is_some() { 2 } else { before };
            assert_eq!(group.serves(), [tried, tried, before, before], "{context}");
            let after = resolve(&group, way, &died);
            group.check_ended(after, &context);
        }
    }
}

/// Resolves the state that a dead controller has left, and returns the version that must be current then.
fn resolve(group: &Group, way: &str, died: &GroupPointer) -> u64 {
    let current = died.stores["people"].version;
    match way {
        "with the zone" => drop(group.publish(2, Some("east")).unwrap()),
        "for all" => drop(group.publish(2, None).unwrap()),
        "the version before" => drop(group.publish(1, None).unwrap()),
        "cancel" => assert!(group.other().cancel("").unwrap().next.is_empty()),
        _ => match group.other().roll_back("", Duration::ZERO) {
            Ok(pointer) => assert_eq!(pointer.bad[0].target.version, 2),
            // Nothing but the announcement has happened.
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NoEarlier), "{error}");
                assert_eq!((current, &died.trial), (1, &None));
            }
        },
    }
    match way {
        "with the zone" | "for all" => 2,
        "cancel" => current,
        _ => 1,
    }
}

/// A version for all that is published without waiting takes the trial's place.
#[test]
fn a_version_for_all_ends_a_trial() {
    let group = Group::new(11);
    group.flaky.plan(Some(Fault::Dies(40)));
    group.publish(2, Some("east")).unwrap_err();
    assert!(group.pointer().trial.is_some());
    flip(&group.scene, 2);
    group.check_ended(2, "flipped");
}

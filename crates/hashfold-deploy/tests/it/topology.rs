//! The topology in a remote: one winner, epochs that grow, lost replies, documents of strangers.

use crate::{fixture::Scene, naive::Faults};
use hashfold::Env;
use hashfold_deploy::{ErrorKind, Node, Remote, Result, Shard, Topology, TopologyReader};
use std::{sync::atomic::Ordering::SeqCst, thread, time::Duration};

/// A topology of two servers, the first of which has the slots below this one.
fn topology(epoch: u64, first: u32) -> Topology {
    let shard = |id: &str, slots| {
        let node = Node { id: id.into(), host: "10.0.0.1".into(), port: 6379, ..Node::default() };
        Shard { slots: vec![slots], nodes: vec![node] }
    };
    let shards = vec![shard("a", (0, first - 1)), shard("b", (first, 16_383))];
    Topology { epoch, shards, ..Topology::default() }
}

#[track_caller]
fn check_epoch(result: Result<Topology>, expected: (u64, u64)) {
    let error = result.unwrap_err();
    let ErrorKind::Epoch { before, got } = error.kind() else { panic!("{error}") };
    assert_eq!((*before, *got), expected);
    assert!(error.is_refusal() && error.to_string().contains("TOPOLOGY: expected an epoch"));
}

fn check_changes(env: &Env, remote: &Remote) {
    assert_eq!(remote.topology().unwrap(), None);
    let mut reader = TopologyReader::new(remote);
    assert!(matches!(reader.look().unwrap_err().kind(), ErrorKind::Absent { .. }));
    assert_eq!(remote.set_topology(env, &topology(0, 100)).unwrap(), topology(1, 100));
    assert_eq!(reader.look().unwrap(), Some(topology(1, 100)));
    assert_eq!(reader.look().unwrap(), None);
    check_epoch(remote.set_topology(env, &topology(1, 200)), (1, 1));
    assert_eq!(remote.set_topology(env, &topology(5, 200)).unwrap(), topology(5, 200));
    check_epoch(remote.set_topology(env, &topology(4, 300)), (5, 4));
    assert_eq!(remote.set_topology(env, &topology(0, 300)).unwrap(), topology(6, 300));
    assert_eq!(reader.look().unwrap(), Some(topology(6, 300)));
    assert_eq!(remote.topology().unwrap(), Some(topology(6, 300)));
    let error = remote.set_topology(env, &Topology::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Document { .. }), "{error}");
    assert_eq!(reader.look().unwrap(), None);
}

#[test]
fn the_epoch_grows_with_each_change() {
    let scene = Scene::empty(1);
    check_changes(&scene.env, &scene.remote);
    assert_eq!(scene.naive.names(), ["TOPOLOGY"]);
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    check_changes(&env, &Remote::open(&env, folder.path().to_str().unwrap()).unwrap());
}

/// Several people set a topology at once: one of them wins, the others are told.
fn race(env: &Env, remote: &Remote) {
    for epoch in [0, 1000] {
        let set = |i: u32| remote.set_topology(env, &topology(epoch, 100 + i));
        let all: Vec<Result<Topology>> = thread::scope(|scope| {
            let racers: Vec<_> = (0..8).map(|i| scope.spawn(move || set(i))).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        let there = remote.topology().unwrap().unwrap();
        let mut won = 0;
        for result in all {
            match result {
                // With epoch 0, one may begin when another one has ended.
                Ok(set) => won += u64::from(set == there || epoch == 0),
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Epoch { .. }), "{error}"),
            }
        }
        assert_eq!(won, if epoch == 0 { there.epoch } else { 1 });
    }
}

#[test]
fn of_several_changes_at_once_each_is_kept_or_refused() {
    let scene = Scene::empty(2);
    race(&scene.env, &scene.remote);
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    race(&env, &Remote::open(&env, folder.path().to_str().unwrap()).unwrap());
}

#[test]
fn a_lost_reply_is_no_refusal_and_an_error_changes_nothing() {
    for seed in 0..200 {
        let scene = Scene::empty(seed);
        scene.remote.set_topology(&scene.env, &topology(0, 100)).unwrap();
        *scene.naive.faults.lock().unwrap() =
            Faults { lost_reply: 2, error: 4, ..Faults::default() };
        let set = scene.remote.set_topology(&scene.env, &topology(9, 200));
        *scene.naive.faults.lock().unwrap() = Faults::default();
        let there = scene.remote.topology().unwrap().unwrap();
        match set {
            Ok(set) => assert_eq!((&set, set.epoch), (&there, 9)),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Remote { .. }), "{error}"),
        }
        assert!(there == topology(1, 100) || there == topology(9, 200));
    }
}

/// Libraries repeat a request whose reply is lost by themselves: the second write is refused, the first is done.
#[test]
fn a_write_that_was_repeated_on_the_way_is_no_refusal() {
    let scene = Scene::empty(5);
    scene.remote.set_topology(&scene.env, &topology(0, 100)).unwrap();
    scene.naive.repeats_writes.store(true, SeqCst);
    let set = scene.remote.set_topology(&scene.env, &topology(0, 200)).unwrap();
    assert_eq!((set, scene.remote.topology().unwrap()), (topology(2, 200), Some(topology(2, 200))));
}

#[test]
fn a_remote_without_conditions_is_refused() {
    let scene = Scene::empty(3);
    scene.naive.keeps_conditions.store(false, SeqCst);
    let error = scene.remote.set_topology(&scene.env, &topology(0, 100)).unwrap_err();
    assert!(error.is_unconditional(), "{error}");
    assert!(scene.naive.names().is_empty());
}

#[test]
fn a_document_of_a_stranger_is_an_error_until_it_is_replaced() {
    let scene = Scene::empty(4);
    let good = topology(3, 100).to_bytes();
    let mut reader = TopologyReader::new(&scene.remote);
    for end in 0..good.len() - 1 {
        scene.naive.overwrite("TOPOLOGY", &good[..end]);
        // The error lasts as long as the document.
        for _ in 0..2 {
            let error = reader.look().unwrap_err();
            assert!(error.to_string().starts_with("naive://TOPOLOGY: "), "{error}");
        }
        assert!(scene.remote.topology().is_err());
    }
    scene.naive.overwrite("TOPOLOGY", &vec![b' '; Topology::SIZE_MAX as usize + 1]);
    assert!(matches!(reader.look().unwrap_err().kind(), ErrorKind::Limit { .. }));
    scene.naive.overwrite("TOPOLOGY", &good);
    assert_eq!(reader.look().unwrap(), Some(topology(3, 100)));
    scene.naive.is_gone.store(true, SeqCst);
    assert!(matches!(reader.look().unwrap_err().kind(), ErrorKind::Remote { .. }));
    scene.naive.is_gone.store(false, SeqCst);
    scene.env.clock.sleep(Duration::from_secs(1));
    assert_eq!(reader.look().unwrap(), None);
}

//! Pushing and fetching: the same bytes on both sides, only what is missing, and no interruption or
//! fault does harm.

use crate::{
    fixture::{Scene, builder, check, current, faulty, files, memory_of, node, one_lane},
    naive::Faults,
};
use hashfold::{
    Env, ErrorClass, ErrorKind as StoreErrorKind, ReadOptions,
    io::{Disk, Fault, FaultyDisk},
    store::{StoreWriter, Version, versions},
    work::Watch,
};
use hashfold_deploy::{ErrorKind, FetchOptions, RateLimit, fetch, push};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

/// Size of a value with which a version has several pieces.
const LARGE: usize = 200_000;

#[test]
fn a_fetched_version_has_the_files_of_the_builder_byte_for_byte() {
    let scene = Scene::new(1, LARGE);
    for number in [1, 2] {
        scene.push(number);
        let fetched = scene.fetch(number).unwrap();
        assert_eq!((fetched.tables, fetched.resumed), (1, 0));
        scene.check(node(), number);
    }
    let disk = scene.env.disk.as_ref();
    for part in ["tables", "versions"] {
        let (ours, theirs) = (files(disk, &builder().join(part)), files(disk, &node().join(part)));
        assert!(ours == theirs, "{part}");
        let remote = scene.naive.names();
        let remote = remote.iter().filter_map(|name| name.strip_prefix("stores/people/"));
        let mut names: Vec<PathBuf> =
            remote.filter_map(|name| Some(name.strip_prefix(part)?[1..].into())).collect();
        names.sort();
        assert_eq!(names, ours.keys().cloned().collect::<Vec<_>>());
        for (name, bytes) in &ours {
            let name = format!("stores/people/{part}/{}", name.display());
            assert!(scene.naive.bytes(&name) == *bytes, "{name}");
        }
    }
    assert_eq!(current(&scene.env, node()), None);
    assert_eq!(files(disk, &node().join("incoming")).len(), 0);
}

#[test]
fn only_what_is_missing_is_moved() {
    let scene = Scene::new(2, LARGE);
    let push = |number| {
        let watch = Watch::default();
        push(&scene.env, builder(), Some(number), &scene.remote, "people", &watch).unwrap()
    };
    let first = push(1);
    assert!(first.tables == 1 && first.bytes > 30 * LARGE as u64);
    let again = push(1);
    assert_eq!((again.tables, again.bytes), (0, 0));
    let second = push(2);
    assert!(second.tables == 1 && second.bytes < 10 * LARGE as u64);
    assert!(scene.fetch(1).unwrap().bytes > 30 * LARGE as u64);
    let fetched = scene.fetch(2).unwrap();
    assert!(fetched.tables == 1 && fetched.bytes < 10 * LARGE as u64);
    let ranges = scene.naive.ranges.load(SeqCst);
    let again = scene.fetch(2).unwrap();
    assert_eq!((again.tables, again.bytes, scene.naive.ranges.load(SeqCst)), (0, 0, ranges));
}

#[test]
fn progress_counts_all_bytes_of_the_version_each_time() {
    let scene = Scene::new(3, LARGE);
    for _ in 0..2 {
        let done = Arc::new(AtomicU64::new(0));
        let counted = |done: &Arc<AtomicU64>| {
            let done = done.clone();
            Watch::new(move |more| {
                done.fetch_add(more, SeqCst);
                Ok(())
            })
        };
        let watch = counted(&done);
        let pushed = push(&scene.env, builder(), None, &scene.remote, "people", &watch).unwrap();
        assert_eq!(pushed.info.name.number, 2);
        assert_eq!(done.swap(0, SeqCst), pushed.info.bytes());
        let watch = counted(&done);
        fetch(&scene.env, &scene.remote, "people", 2, node(), &one_lane(), &watch).unwrap();
        assert_eq!(done.load(SeqCst), pushed.info.bytes());
    }
}

/// The process ends after each piece in turn; the next one goes on there.
#[test]
fn a_transfer_that_is_stopped_anywhere_goes_on_with_the_next_piece() {
    let scene = Scene::new(4, LARGE);
    scene.push(1);
    let whole = Scene::new(4, LARGE);
    whole.push(1);
    let bytes = whole.fetch(1).unwrap().bytes;
    let ranges = whole.naive.ranges.load(SeqCst);
    let mut stops = 0;
    loop {
        let left = Arc::new(AtomicU64::new(1));
        let watch = Watch::new(move |_| match left.fetch_sub(1, SeqCst) {
            0 => Err(StoreErrorKind::Stopped.into()),
            _ => Ok(()),
        });
        // Pieces that are there are counted as well, so the first call counts one, and so on.
        let before = scene.naive.ranges.load(SeqCst);
        let resumed = Arc::new(AtomicU64::new(0));
        let seen = resumed.clone();
        let limited = Watch::new(move |more| {
            let _ = seen.fetch_add(more, SeqCst);
            Ok(())
        });
        let watch = if stops > 3 { limited } else { watch };
        match fetch(&scene.env, &scene.remote, "people", 1, node(), &one_lane(), &watch) {
            Ok(fetched) => {
                assert_eq!(fetched.bytes + fetched.resumed, bytes);
                assert!(fetched.resumed > 0);
                break;
            }
            Err(error) => assert!(error.is_stop(), "{error}"),
        }
        assert!(scene.naive.ranges.load(SeqCst) - before <= 2);
        stops += 1;
    }
    assert!(scene.naive.ranges.load(SeqCst) <= ranges + stops);
    scene.check(node(), 1);
}

#[test]
fn bytes_that_stay_wrong_are_an_error_with_object_and_offset_and_nothing_else_is_read_again() {
    let scene = Scene::new(5, LARGE);
    scene.push(1);
    *scene.naive.rotten.lock().unwrap() = Some(("data-".into(), 4096 + (2 << 20)));
    let error = scene.fetch(1).unwrap_err();
    let ErrorKind::Damaged { offset, .. } = error.kind() else { panic!("{error}") };
    assert_eq!((*offset, error.class()), (4096 + (2 << 20), ErrorClass::Damage));
    assert!(error.place().unwrap().contains("/data-"), "{error}");
    // Three good pieces, and three attempts for the bad one.
    assert_eq!(scene.naive.ranges.load(SeqCst), 3 + 3);
    assert!(versions(&scene.env, node()).unwrap().is_empty());
    *scene.naive.rotten.lock().unwrap() = None;
    let fetched = scene.fetch(1).unwrap();
    assert_eq!(fetched.resumed, 4096 + (2 << 20));
    scene.check(node(), 1);
}

#[test]
fn faults_of_the_object_store_are_errors_and_never_wrong_bytes() {
    let all = Faults { error: 20, lost_reply: 20, wrong: 6, short: 10, slow: 5 };
    for seed in 0..20 {
        let scene = Scene::new(seed, LARGE);
        *scene.naive.faults.lock().unwrap() = all;
        let (mut attempts, watch) = (0, Watch::default());
        for number in [1, 2] {
            while push(&scene.env, builder(), Some(number), &scene.remote, "people", &watch)
                .is_err()
            {
                attempts += 1;
                assert!(attempts < 1000, "seed {seed}");
            }
            let options = FetchOptions { lanes: 1 + seed as usize % 4, ..FetchOptions::default() };
            while let Err(error) =
                fetch(&scene.env, &scene.remote, "people", number, node(), &options, &watch)
            {
                assert!([ErrorClass::Io, ErrorClass::Damage].contains(&error.class()), "{error}");
                assert!(!versions(&scene.env, node()).unwrap().iter().any(|(n, _)| *n == number));
                attempts += 1;
                assert!(attempts < 1000, "seed {seed}");
            }
        }
        scene.check(node(), 1);
        scene.check(node(), 2);
    }
}

/// A power cut at every operation of the node's disk.
#[test]
fn a_power_cut_at_any_moment_of_a_fetch_leaves_whole_versions_and_the_fetch_goes_on() {
    let scene = Scene::new(6, 2000);
    scene.push(1);
    scene.push(2);
    scene.fetch(1).unwrap();
    StoreWriter::open(&scene.env, node()).unwrap().publish(1).unwrap();
    let before =
        FaultyDisk::over(&memory_of(scene.env.disk.as_ref()), Default::default()).snapshot();
    let get = |disk: &Arc<dyn Disk>| {
        let env = Env { disk: disk.clone(), ..scene.env.clone() };
        fetch(&env, &scene.remote, "people", 2, node(), &one_lane(), &Watch::default())
    };
    for operation in 0.. {
        let cut = faulty(&before, Fault::PowerCut { operation });
        let fetched = get(&(Arc::new(cut.clone()) as Arc<dyn Disk>));
        for seed in [2 * operation, 2 * operation + 1] {
            let disk: Arc<dyn Disk> = Arc::new(cut.after_power_cut(seed));
            let env = Env { disk: disk.clone(), ..scene.env.clone() };
            let there = versions(&env, node()).unwrap();
            for (number, info) in &there {
                info.as_ref().unwrap();
                check(&env, node(), *number, &scene.versions[number]);
            }
            assert!(fetched.is_err() || there.len() == 2, "operation {operation}: it is lost");
            get(&disk).unwrap();
            check(&env, node(), 2, &scene.versions[&2]);
            assert_eq!(current(&env, node()), Some(1));
            let mut writer = StoreWriter::open(&env, node()).unwrap();
            writer.publish(2).unwrap();
            assert_eq!(disk.list(&node().join("tables")).unwrap().len(), 2);
        }
        if fetched.is_ok() && operation >= cut.operations() {
            assert!(operation > 20);
            return;
        }
    }
}

/// Each operation of the node's disk fails once; then the same call succeeds.
#[test]
fn a_failure_of_the_local_disk_does_no_harm() {
    let scene = Scene::new(7, 2000);
    scene.push(1);
    let before = memory_of(scene.env.disk.as_ref());
    for operation in 0.. {
        let failing = faulty(&before, Fault::Failure { operation });
        let env = Env { disk: Arc::new(failing.clone()), ..scene.env.clone() };
        let get =
            || fetch(&env, &scene.remote, "people", 1, node(), &one_lane(), &Watch::default());
        match get() {
            Ok(_) if operation >= failing.operations() => return,
            Ok(_) => {}
            Err(error) => assert_eq!(error.class(), ErrorClass::Io, "{error}"),
        }
        get().unwrap();
        check(&env, node(), 1, &scene.versions[&1]);
    }
}

#[test]
fn a_version_that_a_reader_has_open_stays_while_others_are_fetched() {
    let scene = Scene::new(8, 2000);
    scene.push(1);
    scene.push(2);
    scene.fetch(1).unwrap();
    let open = Version::open(node(), 1, &ReadOptions::new().env(scene.env.clone())).unwrap();
    scene.fetch(2).unwrap();
    assert!(crate::fixture::scanned(&open) == scene.versions[&1]);
}

#[test]
fn a_rate_limit_holds_for_all_lanes_together() {
    let scene = Scene::new(9, LARGE);
    scene.push(1);
    let rate = RateLimit::new(1 << 20);
    let options = FetchOptions { lanes: 3, rate, ..FetchOptions::default() };
    let start = scene.env.clock.now();
    let watch = Watch::default();
    let fetched = fetch(&scene.env, &scene.remote, "people", 1, node(), &options, &watch).unwrap();
    let passed = scene.env.clock.now() - start;
    let least = Duration::from_secs(fetched.bytes / (1 << 20) - 2);
    assert!(passed >= least, "{passed:?} for {} bytes", fetched.bytes);
}

#[test]
fn two_transfers_into_one_store_do_not_meet() {
    let scene = Scene::new(10, 2000);
    scene.push(1);
    scene.fetch(1).unwrap();
    let _lock = scene.env.disk.lock(&node().join("incoming")).unwrap();
    let error = scene.fetch(1).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Busy, "{error}");
}

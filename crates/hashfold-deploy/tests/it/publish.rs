//! Changes of a group's pointer: one winner, lost replies, bad versions, nodes that must be ready.

use crate::{
    fixture::{Scene, builder},
    naive::Faults,
};
use hashfold::{Env, work::Watch};
use hashfold_deploy::{
    Controller, ErrorKind, GroupPointer, PublishOptions, Remote, Result, When, check_conditions,
    push,
};
use std::{sync::atomic::Ordering::SeqCst, thread, time::Duration};

/// A remote with this number of versions of the store `people`.
fn pushed(seed: u64, count: u64) -> Scene {
    let mut scene = Scene::empty(seed);
    for number in 1..=count {
        scene.add_version(builder(), 3, 10 * number as usize);
        scene.push(number);
    }
    scene
}

fn controller(scene: &Scene, by: &str) -> Controller {
    Controller::new(&scene.env, &scene.remote, "main", by).unwrap()
}

fn publish(controller: &Controller, number: u64) -> Result<GroupPointer> {
    let versions = [("people".to_owned(), number)];
    controller.publish(&versions, &PublishOptions::default(), &Watch::default())
}

#[track_caller]
fn check(scene: &Scene, seq: u64, number: u64, bad: &[u64]) {
    let pointer = controller(scene, "test").pointer().unwrap();
    let marked: Vec<u64> = pointer.bad.iter().map(|bad| bad.target.version).collect();
    assert_eq!((pointer.seq, pointer.stores["people"].version), (seq, number));
    assert_eq!(marked, bad);
}

#[test]
fn publish_roll_back_and_marks_change_one_object() {
    let scene = pushed(1, 4);
    let eve = controller(&scene, "eve");
    assert_eq!(eve.pointer().unwrap().seq, 0);
    let error = eve.roll_back("", Duration::ZERO).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoEarlier) && error.is_refusal(), "{error}");
    publish(&eve, 1).unwrap();
    publish(&eve, 2).unwrap();
    check(&scene, 2, 2, &[]);
    // The same target again changes nothing.
    publish(&eve, 2).unwrap();
    check(&scene, 2, 2, &[]);
    let back = eve.roll_back("wrong prices", Duration::ZERO).unwrap();
    assert_eq!((back.by.as_str(), back.reason.as_str()), ("eve", "wrong prices"));
    check(&scene, 3, 1, &[2]);
    let error = publish(&eve, 2).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Bad { .. }), "{error}");
    eve.mark_bad("people", 3, "").unwrap();
    eve.mark_bad("people", 3, "").unwrap();
    check(&scene, 4, 1, &[2, 3]);
    assert!(eve.mark_bad("people", 1, "").is_err());
    let options = PublishOptions { allow_bad: true, ..PublishOptions::default() };
    eve.publish(&[("people".to_owned(), 2)], &options, &Watch::default()).unwrap();
    check(&scene, 5, 2, &[2, 3]);
    let error = publish(&eve, 9).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Absent { .. }), "{error}");
    // Nothing but the pointer was written, and the checks of the remote are gone.
    let names = scene.naive.names();
    let others: Vec<&String> = names.iter().filter(|name| !name.starts_with("stores/")).collect();
    assert_eq!(others, ["groups/main/CURRENT"]);
}

#[test]
fn several_stores_change_together() {
    let scene = pushed(2, 2);
    for number in [1, 2] {
        let watch = Watch::default();
        push(&scene.env, builder(), Some(number), &scene.remote, "prices", &watch).unwrap();
    }
    let eve = controller(&scene, "eve");
    let both = |a, b| [("people".to_owned(), a), ("prices".to_owned(), b)];
    let options = PublishOptions::default();
    eve.publish(&both(1, 1), &options, &Watch::default()).unwrap();
    eve.publish(&both(2, 2), &options, &Watch::default()).unwrap();
    let back = eve.roll_back("", Duration::ZERO).unwrap();
    assert_eq!((back.stores["people"].version, back.stores["prices"].version), (1, 1));
    assert_eq!(back.bad.len(), 2);
    let twice = [("people".to_owned(), 1), ("people".to_owned(), 1)];
    assert!(eve.publish(&twice, &options, &Watch::default()).is_err());
}

#[test]
fn of_two_controllers_one_wins_and_the_other_is_told_who() {
    for seed in 0..30 {
        let scene = pushed(seed, 3);
        publish(&controller(&scene, "first"), 1).unwrap();
        let results: Vec<Result<GroupPointer>> = thread::scope(|scope| {
            let race = |by: &'static str, number| {
                let eve = controller(&scene, by);
                scope.spawn(move || publish(&eve, number))
            };
            let racers = [race("eve", 2), race("adam", 3)];
            racers.map(|racer| racer.join().unwrap()).into()
        });
        let pointer = controller(&scene, "test").pointer().unwrap();
        let winners = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(pointer.seq, 1 + winners as u64, "seed {seed}");
        for result in results {
            match result {
                // Both may win, one after the other.
                Ok(won) => assert!(won.seq <= pointer.seq),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Overtaken { .. }), "{error}");
                    assert!(error.to_string().contains(&pointer.by), "{error}");
                }
            }
        }
    }
}

/// A lost reply: the write was done, or not, and the caller knows which.
#[test]
fn a_lost_reply_is_neither_a_lost_nor_a_repeated_change() {
    let mut done = 0;
    for seed in 0..60 {
        let scene = pushed(seed, 3);
        let eve = controller(&scene, "eve");
        publish(&eve, 1).unwrap();
        *scene.naive.faults.lock().unwrap() =
            Faults { lost_reply: 2, error: 6, ..Faults::default() };
        let published = publish(&eve, 2);
        let back = published.is_ok().then(|| eve.roll_back("", Duration::ZERO));
        *scene.naive.faults.lock().unwrap() = Faults::default();
        match (published, back) {
            (Ok(_), Some(Ok(_))) => {
                check(&scene, 3, 1, &[2]);
                done += 1;
            }
            (Ok(_), Some(Err(error))) => {
                assert!(matches!(error.kind(), ErrorKind::Remote { .. }), "{error}");
                let pointer = eve.pointer().unwrap();
                assert!([2, 3].contains(&pointer.seq), "seed {seed}");
            }
            (Err(error), _) => {
                assert!(matches!(error.kind(), ErrorKind::Remote { .. }), "{error}");
                let seq = eve.pointer().unwrap().seq;
                assert!([1, 2].contains(&seq), "seed {seed}");
            }
            (Ok(_), None) => unreachable!(),
        }
    }
    assert!(done > 10, "{done}");
}

#[test]
fn an_object_store_that_ignores_conditions_is_refused_before_the_first_change() {
    let scene = pushed(5, 1);
    scene.naive.keeps_conditions.store(false, SeqCst);
    for result in [
        publish(&controller(&scene, "eve"), 1).map(|_| ()),
        check_conditions(scene.naive.as_ref(), scene.env.random.as_ref()),
    ] {
        let error = result.unwrap_err();
        assert!(error.is_unconditional(), "{error}");
        assert!(error.to_string().contains("got 16"), "{error}");
    }
    assert!(!scene.naive.names().iter().any(|name| name.contains("groups")));
    scene.naive.keeps_conditions.store(true, SeqCst);
    publish(&controller(&scene, "eve"), 1).unwrap();
}

#[test]
fn a_remote_that_is_gone_is_an_error_of_the_device() {
    let scene = pushed(6, 1);
    scene.naive.is_gone.store(true, SeqCst);
    let error = publish(&controller(&scene, "eve"), 1).unwrap_err();
    assert_eq!(error.class(), hashfold::ErrorClass::Io, "{error}");
    assert!(Controller::new(&Env::simulated(1), &scene.remote, "../main", "eve").is_err());
}

/// A version that lost most of its keys is not published by mistake.
#[test]
fn versions_with_too_few_entries_do_not_pass_the_gates() {
    let scene = pushed(11, 1);
    let eve = controller(&scene, "eve");
    let versions = [("people".to_owned(), 1)];
    let with = |entries_min, loss_max| PublishOptions {
        entries_min,
        loss_max,
        ..PublishOptions::default()
    };
    let refused = |versions: &[(String, u64)], options: &PublishOptions| {
        let error = eve.publish(versions, options, &Watch::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Gate { .. }) && error.is_refusal(), "{error}");
        error.to_string()
    };
    let error = refused(&versions, &with(4, 0.5));
    assert!(error.contains("version 1 of store people") && error.contains("at least 4"), "{error}");
    assert_eq!(eve.pointer().unwrap().seq, 0);
    publish(&eve, 1).unwrap();
    // A version with one of the three keys, of the same store.
    let mut small = Scene::empty(11);
    small.add_version(builder(), 1, 10);
    let second = small.add_version(builder(), 1, 20);
    push(&small.env, builder(), Some(second), &scene.remote, "people", &Watch::default()).unwrap();
    let versions = [("people".to_owned(), second)];
    refused(&versions, &with(0, 0.5));
    refused(&versions, &with(2, 1.0));
    eve.publish(&versions, &with(0, 1.0), &Watch::default()).unwrap();
    check(&scene, 2, second, &[]);
}

/// A person changes what is on the screen, or nothing.
#[test]
fn a_controller_may_be_limited_to_the_pointer_that_was_seen() {
    let scene = pushed(12, 2);
    let eve = || controller(&scene, "eve");
    publish(&eve().only_after(0), 1).unwrap();
    let late = [
        publish(&eve().only_after(0), 2).map(|_| ()),
        eve().only_after(0).roll_back("late", Duration::ZERO).map(|_| ()),
        eve().only_after(2).mark_bad("people", 2, "late").map(|_| ()),
    ];
    for error in late.map(Result::unwrap_err) {
        assert!(matches!(error.kind(), ErrorKind::Overtaken { .. }), "{error}");
    }
    assert_eq!(eve().pointer().unwrap().seq, 1);
    publish(&eve().only_after(1), 2).unwrap();
}

/// A publication that waits for a node is withdrawn by another person.
#[test]
fn what_is_announced_can_be_cancelled() {
    let scene = pushed(13, 2);
    let (eve, bob) = (controller(&scene, "eve"), controller(&scene, "bob"));
    publish(&eve, 1).unwrap();
    assert_eq!(bob.cancel("there is nothing").unwrap().seq, 1);
    // A node that never becomes ready.
    report(&scene.env, &scene.remote, "fetching");
    // Called while eve waits for the node.
    let watch = Watch::new(move |_| {
        if bob.pointer().unwrap().next.contains_key("people") {
            assert_eq!(bob.cancel("wrong one").unwrap().seq, 3);
        }
        Ok(())
    });
    let versions = [("people".to_owned(), 2)];
    let start = scene.env.clock.now();
    let error = eve.publish(&versions, &PublishOptions::default(), &watch).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Overtaken { .. }), "{error}");
    assert!(error.to_string().contains("wrong one"), "{error}");
    assert!(scene.env.clock.now() - start < Duration::from_secs(1), "it does not wait any longer");
    let pointer = eve.pointer().unwrap();
    assert_eq!((pointer.seq, pointer.stores["people"].version, pointer.next.len()), (3, 1, 0));
}

/// Reports the state of version 2 on a node.
fn report(env: &Env, remote: &Remote, state: &str) {
    let at_ms = env.clock.unix_time().as_millis();
    let report = format!(
        r#"{{"format":1,"epoch":1,"at_ms":{at_ms},"seq":1,
            "versions":{{"people":{{"2":{{"state":"{state}","bytes":0,"of":0}}}}}}}}"#
    );
    remote.objects().put("groups/main/ready/a", report.as_bytes(), When::Always).unwrap();
}

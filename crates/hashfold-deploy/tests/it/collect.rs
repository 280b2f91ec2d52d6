//! Retention in a remote: what is removed, and what stays.

use crate::{
    fixture::{Scene, builder, node},
    naive::{Faults, Naive},
};
use hashfold::work::Watch;
use hashfold_deploy::{
    CollectOptions, Collected, Controller, ErrorKind, Found, Listed, Objects, Parts,
    PublishOptions, Remote, Result, Tag, When, collect, push,
};
use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// A remote with this number of versions, each of which changes a few keys.
fn pushed(seed: u64, versions: u64) -> Scene {
    let mut scene = Scene::empty(seed);
    for number in 1..=versions {
        scene.add_version(builder(), if number == 1 { 30 } else { 3 }, 1000);
        scene.push(number);
    }
    scene
}

fn collected(scene: &Scene, keep: usize) -> Result<Collected> {
    let options = CollectOptions { keep, ..CollectOptions::default() };
    collect(&scene.remote, "people", &options, &Watch::default())
}

fn publish(scene: &Scene, group: &str, number: u64) {
    let controller = Controller::new(&scene.env, &scene.remote, group, "test").unwrap();
    let options = PublishOptions { min_ready: Some(0), ..PublishOptions::default() };
    controller.publish(&[("people".into(), number)], &options, &Watch::default()).unwrap();
}

/// Returns the names of the tables in the remote.
fn tables(scene: &Scene) -> BTreeSet<String> {
    let listed = scene.naive.list("stores/people/tables").unwrap();
    listed.iter().map(|object| object.name.split('/').nth(3).unwrap().to_owned()).collect()
}

/// Returns the names of the tables of some versions.
fn tables_of(scene: &Scene, numbers: &[u64]) -> BTreeSet<String> {
    let versions = numbers.iter().map(|number| scene.remote.version("people", *number).unwrap());
    let tables = |info: hashfold::store::VersionInfo| {
        info.layers().map(|layer| format!("{:016x}", layer.table)).collect::<Vec<_>>()
    };
    versions.flat_map(tables).collect()
}

#[test]
fn the_newest_versions_stay_with_all_of_their_tables() {
    let scene = pushed(41, 6);
    let expected = tables_of(&scene, &[5, 6]);
    let all = tables(&scene);
    let dry = CollectOptions { keep: 2, dry_run: true, ..CollectOptions::default() };
    let would = collect(&scene.remote, "people", &dry, &Watch::default()).unwrap();
    assert_eq!(tables(&scene), all, "nothing is removed");
    let done = collected(&scene, 2).unwrap();
    assert_eq!(done, would);
    assert_eq!((&done.versions[..], &done.kept[..]), (&[1, 2, 3, 4][..], &[5, 6][..]));
    assert_eq!(tables(&scene), expected);
    assert_eq!(done.tables as usize, all.len() - expected.len());
    assert_eq!(scene.remote.versions("people").unwrap(), [5, 6]);
    scene.fetch(6).unwrap();
    scene.check(node(), 6);
    let again = collected(&scene, 2).unwrap();
    assert_eq!((again.versions.len(), again.tables, again.bytes), (0, 0, 0));
}

#[test]
fn versions_that_a_group_needs_stay() {
    let scene = pushed(42, 7);
    publish(&scene, "main", 2);
    publish(&scene, "main", 4);
    publish(&scene, "other", 1);
    let done = collected(&scene, 1).unwrap();
    assert_eq!(done.kept, [1, 2, 4, 7], "current, of another group, and for a rollback");
    let controller = Controller::new(&scene.env, &scene.remote, "main", "test").unwrap();
    let back = controller.roll_back("", Duration::ZERO).unwrap();
    assert_eq!(back.stores["people"].version, 2);
    // Version 4 is bad now.
    assert_eq!(collected(&scene, 1).unwrap().versions, [4]);
    scene.fetch(2).unwrap();
    scene.check(node(), 2);
}

#[test]
fn a_rollback_passes_over_versions_that_are_not_in_the_remote_any_more() {
    let scene = pushed(50, 5);
    (1..=5).for_each(|number| publish(&scene, "main", number));
    let controller = Controller::new(&scene.env, &scene.remote, "main", "test").unwrap();
    controller.pin("people", 2, "").unwrap();
    assert_eq!(collected(&scene, 1).unwrap().kept, [2, 4, 5]);
    for expected in [4, 2] {
        let back = controller.roll_back("", Duration::ZERO).unwrap();
        assert_eq!(back.stores["people"].version, expected);
    }
    let error = controller.roll_back("", Duration::ZERO).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoEarlier), "{error}");
    assert_eq!(controller.pointer().unwrap().stores["people"].version, 2);
}

/// Version 3 is announced to a zone that uses it already.
#[test]
fn a_version_that_a_rollback_needs_after_a_trial_stays() {
    let scene = pushed(49, 3);
    publish(&scene, "main", 1);
    publish(&scene, "main", 2);
    let name = "groups/main/CURRENT";
    let mut pointer: serde_json::Value = serde_json::from_slice(&scene.naive.bytes(name)).unwrap();
    pointer["trial"] = serde_json::json!({ "zone": "east", "activate_at_ms": 1 });
    scene.naive.overwrite(name, pointer.to_string().as_bytes());
    assert_eq!(collected(&scene, 1).unwrap().kept, [1, 2, 3]);
}

/// Issue 15.
#[test]
fn bad_versions_take_the_place_of_no_good_one() {
    let scene = pushed(46, 6);
    publish(&scene, "main", 3);
    let controller = Controller::new(&scene.env, &scene.remote, "main", "test").unwrap();
    controller.mark_bad("people", 4, "").unwrap();
    controller.mark_bad("people", 6, "").unwrap();
    let done = collected(&scene, 2).unwrap();
    assert_eq!((&done.versions[..], &done.kept[..]), (&[1, 2, 4, 6][..], &[3, 5][..]));
    publish(&scene, "main", 5);
    assert_eq!(collected(&scene, 1).unwrap().kept, [3, 5], "3 is for a rollback");
    controller.mark_bad("people", 3, "").unwrap();
    assert_eq!(collected(&scene, 1).unwrap().kept, [5]);
    // One stays, even if all are bad.
    let scene = pushed(48, 2);
    let controller = Controller::new(&scene.env, &scene.remote, "main", "test").unwrap();
    (1..=2).for_each(|number| drop(controller.mark_bad("people", number, "").unwrap()));
    assert_eq!(collected(&scene, 1).unwrap().kept, [1, 2]);
}

/// Issue 15.
#[test]
fn signatures_without_a_version_stay_unless_asked_for() {
    let scene = pushed(47, 2);
    let signature = |number| format!("stores/people/versions/{number:010}.sig");
    for number in [1, 2, 3, 9] {
        scene.naive.put(&signature(number), b"x", When::Always).unwrap();
    }
    let others = ["stores/people/versions/notes.sig", "stores/other/versions/0000000009.sig"];
    others.iter().for_each(|name| drop(scene.naive.put(name, b"x", When::Always).unwrap()));
    let all = scene.naive.names();
    assert_eq!(collected(&scene, 2).unwrap().signatures, 0);
    let dry = CollectOptions { keep: 2, orphans: true, dry_run: true };
    let would = collect(&scene.remote, "people", &dry, &Watch::default()).unwrap();
    assert_eq!((would.signatures, scene.naive.names() == all), (2, true));
    let options = CollectOptions { dry_run: false, ..dry };
    assert_eq!(collect(&scene.remote, "people", &options, &Watch::default()).unwrap(), would);
    let expected = all.into_iter().filter(|name| *name != signature(3) && *name != signature(9));
    assert_eq!(scene.naive.names(), expected.collect::<Vec<_>>());
}

#[test]
fn tables_without_a_version_stay_unless_asked_for() {
    let scene = pushed(43, 2);
    let orphan = "stores/people/tables/00000000000000ff/data";
    scene.naive.put(orphan, b"x", When::Always).unwrap();
    assert_eq!(collected(&scene, 2).unwrap().tables, 0);
    let options = CollectOptions { keep: 2, orphans: true, dry_run: false };
    let done = collect(&scene.remote, "people", &options, &Watch::default()).unwrap();
    assert_eq!((done.tables, done.bytes), (1, 1));
    assert_eq!(tables(&scene), tables_of(&scene, &[1, 2]));
}

#[test]
fn nothing_is_removed_if_no_version_would_stay_or_one_that_stays_cannot_be_read() {
    let scene = pushed(44, 4);
    let all = tables(&scene);
    let error = collected(&scene, 0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
    let newest = "stores/people/versions/0000000004";
    let bytes = scene.naive.get(newest, 1 << 20, None).unwrap().object().unwrap().bytes;
    scene.naive.put(newest, &bytes[..bytes.len() / 2], When::Always).unwrap();
    let error = collected(&scene, 1).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error}");
    assert_eq!(tables(&scene), all);
    assert_eq!(scene.remote.versions("people").unwrap(), [1, 2, 3, 4]);
}

/// Whatever fails, a version that is in the remote is complete, and the next call goes on.
#[test]
fn an_interrupted_collection_leaves_whole_versions() {
    for seed in 0..20 {
        let scene = pushed(100 + seed, 5);
        scene.naive.faults.lock().unwrap().error = 8;
        let mut is_done = false;
        while !is_done {
            is_done = collected(&scene, 2).is_ok();
            let faults = std::mem::take(&mut *scene.naive.faults.lock().unwrap());
            let there = tables(&scene);
            for number in scene.remote.versions("people").unwrap() {
                let missing =
                    tables_of(&scene, &[number]).into_iter().find(|it| !there.contains(it));
                assert_eq!(missing, None, "version {number}, seed {seed}");
            }
            *scene.naive.faults.lock().unwrap() = Faults { ..faults };
        }
        *scene.naive.faults.lock().unwrap() = Faults::default();
        assert_eq!(scene.remote.versions("people").unwrap(), [4, 5]);
        scene.fetch(5).unwrap();
        scene.check(node(), 5);
    }
}

/// Objects of which one appears when the first object in a folder is removed.
#[derive(Debug)]
struct Appearing {
    naive: Arc<Naive>,
    /// The folder: `/tables/`, `/versions/`.
    folder: &'static str,
    object: Mutex<Option<(String, Vec<u8>)>>,
}

impl Appearing {
    fn remote(scene: &Scene, folder: &'static str, name: &str, bytes: Vec<u8>) -> Remote {
        let object = Mutex::new(Some((name.to_owned(), bytes)));
        Remote::new(Arc::new(Appearing { naive: scene.naive.clone(), folder, object }))
    }
}

impl Objects for Appearing {
    fn place(&self, name: &str) -> String {
        self.naive.place(name)
    }

    fn get(&self, name: &str, size_max: u64, known: Option<&Tag>) -> Result<Found> {
        self.naive.get(name, size_max, known)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        self.naive.get_range(name, range)
    }

    fn put(&self, name: &str, bytes: &[u8], when: When<'_>) -> Result<Option<Tag>> {
        self.naive.put(name, bytes, when)
    }

    fn upload(&self, name: &str, size: u64, parts: &mut Parts<'_>) -> Result<()> {
        self.naive.upload(name, size, parts)
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.naive.list(folder)
    }

    fn remove(&self, name: &str) -> Result<()> {
        if name.contains(self.folder)
            && let Some((name, bytes)) = self.object.lock().unwrap().take()
        {
            self.naive.overwrite(&name, &bytes);
        }
        self.naive.remove(name)
    }
}

#[test]
fn a_version_that_is_pushed_meanwhile_and_loses_a_table_is_named() {
    let scene = pushed(45, 4);
    let name = "stores/people/versions/0000000001";
    let remote = Appearing::remote(&scene, "/tables/", name, scene.naive.bytes(name));
    let options = CollectOptions { keep: 1, ..CollectOptions::default() };
    let error = collect(&remote, "people", &options, &Watch::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    scene.push(1);
    scene.fetch(1).unwrap();
    scene.check(node(), 1);
}

/// Version 1 becomes current after the pointers were read, and keeps its tables.
#[test]
fn a_version_that_is_published_meanwhile_is_named_and_keeps_its_tables() {
    let scene = pushed(51, 4);
    let name = "groups/main/CURRENT";
    publish(&scene, "main", 1);
    let pointer = scene.naive.bytes(name);
    scene.naive.remove(name).unwrap();
    let (before, version) = (tables(&scene), "stores/people/versions/0000000001");
    let version_bytes = scene.naive.bytes(version);
    let remote = Appearing::remote(&scene, "/versions/", name, pointer);
    let options = CollectOptions { keep: 1, ..CollectOptions::default() };
    let error = collect(&remote, "people", &options, &Watch::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    assert!(error.to_string().contains("version 1, which a group needs now"), "{error}");
    assert_eq!(tables(&scene), before);
    scene.push(1);
    assert_eq!(scene.naive.bytes(version), version_bytes);
    scene.fetch(1).unwrap();
    scene.check(node(), 1);
}

/// An old version is pushed again, while a collection removes it and the tables that the push has just found.
#[test]
fn a_push_uploads_again_what_is_removed_meanwhile() {
    let scene = pushed(47, 4);
    let (remote, is_first) = (scene.remote.clone(), AtomicBool::new(true));
    let watch = Watch::new(move |_| {
        if is_first.swap(false, Relaxed) {
            let options = CollectOptions { keep: 1, ..CollectOptions::default() };
            let done = collect(&remote, "people", &options, &Watch::default()).unwrap();
            assert_eq!(done.versions, [1, 2, 3]);
        }
        Ok(())
    });
    push(&scene.env, builder(), Some(1), &scene.remote, "people", &watch).unwrap();
    scene.fetch(1).unwrap();
    scene.check(node(), 1);
}

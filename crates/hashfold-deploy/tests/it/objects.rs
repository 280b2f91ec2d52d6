//! The contract of a set of objects, of the naive one and of folders; and what a crash leaves in a
//! folder.

use crate::{
    fixture::{Scene, builder, faulty},
    naive::Naive,
};
use hashfold::{
    Env, ErrorClass, ReadOptions,
    io::{Disk, Fault, MemoryDisk},
    work::{Signal, Watch},
};
use hashfold_deploy::{
    Controller, ErrorKind, FetchOptions, FolderObjects, FollowOptions, FollowedStore, Follower,
    Found, Objects, PublishOptions, Remote, Tag, When, check_conditions, fetch, push,
};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;

#[track_caller]
fn read(objects: &dyn Objects, name: &str) -> Option<(Vec<u8>, Tag)> {
    objects.get(name, 100, None).unwrap().object().map(|object| (object.bytes, object.tag))
}

#[track_caller]
pub(crate) fn check_contract(objects: &dyn Objects, env: &Env) {
    let name = "groups/main/CURRENT";
    assert_eq!(objects.get(name, 100, None).unwrap(), Found::Absent);
    assert!(objects.list("groups").unwrap().is_empty());
    let first = objects.put(name, b"one", When::Absent).unwrap().unwrap();
    assert_eq!(objects.put(name, b"two", When::Absent).unwrap(), None);
    assert_eq!(read(objects, name), Some((b"one".to_vec(), first.clone())));
    assert_eq!(objects.get(name, 100, Some(&first)).unwrap(), Found::Unchanged);
    let second = objects.put(name, b"three", When::Is(&first)).unwrap().unwrap();
    assert_eq!(objects.put(name, b"four", When::Is(&first)).unwrap(), None);
    assert_eq!(read(objects, name), Some((b"three".to_vec(), second.clone())));
    assert!(matches!(objects.get(name, 100, Some(&first)).unwrap(), Found::Object(_)));
    assert!(matches!(objects.get(name, 4, None).unwrap_err().kind(), ErrorKind::Limit { .. }));
    assert_eq!(objects.put("groups/main/other", b"x", When::Is(&second)).unwrap(), None);
    check_transfers(objects);
    check_conditions(objects, env.random.as_ref()).unwrap();
    assert!(listed(objects, "probes").is_empty());
}

/// Returns the objects of a folder with their sizes, in order.
#[track_caller]
fn listed(objects: &dyn Objects, folder: &str) -> Vec<(String, u64)> {
    let listed = objects.list(folder).unwrap().into_iter();
    let mut listed: Vec<(String, u64)> = listed.map(|it| (it.name, it.size)).collect();
    listed.sort();
    listed
}

/// Checks what transfers need. The set has the object `groups/main/CURRENT`, of five bytes.
#[track_caller]
pub(crate) fn check_transfers(objects: &dyn Objects) {
    objects.put("groups/main/ready/a", b"always", When::Always).unwrap().unwrap();
    objects.put("groups/main/ready/a", b"again", When::Always).unwrap().unwrap();
    assert_eq!(objects.get_range("groups/main/ready/a", 1..3).unwrap(), b"ga");
    assert_eq!(objects.get_range("groups/main/ready/a", 3..9).unwrap(), b"in");
    assert!(objects.get_range("groups/main/ready/b", 0..1).is_err());
    let mut parts = vec![b"parts".to_vec(), b"three ".to_vec()];
    objects.upload("stores/s/large", 11, &mut || Ok(parts.pop())).unwrap();
    assert_eq!(read(objects, "stores/s/large").unwrap().0, b"three parts");
    let mut broken = vec![Err(ErrorKind::ReadOnly.into()), Ok(Some(b"half".to_vec()))];
    assert!(objects.upload("stores/s/half", 11, &mut || broken.pop().unwrap()).is_err());
    assert_eq!(read(objects, "stores/s/half"), None);
    assert_eq!(
        listed(objects, "groups"),
        [("groups/main/CURRENT".to_owned(), 5), ("groups/main/ready/a".to_owned(), 5)]
    );
    assert_eq!(listed(objects, "groups/main/ready"), [("groups/main/ready/a".to_owned(), 5)]);
    objects.remove("groups/main/ready/a").unwrap();
    objects.remove("groups/main/ready/a").unwrap();
    assert!(listed(objects, "groups/main/ready").is_empty());
}

#[test]
fn the_naive_store_and_folders_keep_the_contract() {
    let env = Env::simulated(1);
    check_contract(&Naive::new(1, &env.clock), &env);
    check_contract(&FolderObjects::new(env.clone(), "remote/of/mine").unwrap(), &env);
    let folder = TempDir::new().unwrap();
    let real = Env::system();
    check_contract(&FolderObjects::new(real.clone(), folder.path().join("r")).unwrap(), &real);
}

#[test]
fn a_folder_takes_no_names_that_lead_out_of_it_and_no_data_set() {
    let scene = Scene::new(2, 100);
    let objects = FolderObjects::new(scene.env.clone(), "remote").unwrap();
    for name in ["", "..", "a/../b", "/a", "a//b", ".a", "a/.b", "a\\b", "a/"] {
        assert!(objects.put(name, b"x", When::Always).is_err(), "{name:?}");
        assert!(objects.get(name, 1, None).is_err(), "{name:?}");
    }
    for folder in [builder(), &builder().join("tables")] {
        let error = FolderObjects::new(scene.env.clone(), folder).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Usage, "{error}");
    }
    assert!(Remote::open(&scene.env, "ftp://host/path").is_err());
    if !cfg!(feature = "hdfs") {
        let error = Remote::open(&scene.env, "hdfs://host:8020/path").unwrap_err().to_string();
        assert!(error.contains("compiled without the feature `hdfs`"), "{error}");
    }
    assert!(Remote::open(&scene.env, "file://host/path").is_err());
    let folder = Remote::open(&scene.env, "file:///remote/a%20b").unwrap();
    assert_eq!(folder.to_string(), "/remote/a b");
}

/// A power cut at every operation of the disk of a folder: the pointer is the old one or the new one,
/// and the same change can be made again.
#[test]
fn a_power_cut_in_a_folder_leaves_the_old_pointer_or_the_new_one() {
    let mut scene = Scene::empty(3);
    scene.add_version(builder(), 3, 10);
    scene.add_version(builder(), 3, 20);
    let base = MemoryDisk::default();
    let on = |disk: Arc<dyn Disk>| {
        let env = Env { disk, ..scene.env.clone() };
        let objects = FolderObjects::new(env.clone(), "remote").unwrap();
        Controller::new(&env, &Remote::new(Arc::new(objects)), "main", "eve").unwrap()
    };
    let remote = Remote::open(&Env { disk: Arc::new(base.clone()), ..scene.env.clone() }, "remote");
    for number in [1, 2] {
        let (remote, watch) = (remote.as_ref().unwrap(), Watch::default());
        push(&scene.env, builder(), Some(number), remote, "people", &watch).unwrap();
    }
    let publish = |controller: &Controller, number| {
        let versions = [("people".to_owned(), number)];
        controller.publish(&versions, &PublishOptions::default(), &Watch::default())
    };
    publish(&on(Arc::new(base.clone())), 1).unwrap();
    // The check of the remote runs its writers in any order, so the operations are not the same in
    // each round; there are about as many.
    let (mut old, mut new) = (0, 0);
    for operation in (0..400).step_by(3) {
        let cut = faulty(&base, Fault::PowerCut { operation });
        let published = publish(&on(Arc::new(cut.clone())), 2);
        let left = on(Arc::new(cut.after_power_cut(operation)));
        let pointer = left.pointer().unwrap();
        match pointer.stores["people"].version {
            1 => old += 1,
            2 => new += 1,
            other => panic!("version {other}"),
        }
        assert!(published.is_err() || pointer.seq == 2, "operation {operation}: it is lost");
        publish(&left, 2).unwrap();
        assert_eq!(left.pointer().unwrap().stores["people"].version, 2);
    }
    assert!(old > 0 && new > 0, "{old} old, {new} new");
}

#[test]
fn a_version_goes_through_a_folder_of_the_real_file_system() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let env = Env::system();
    let store = hashfold::Store::open_or_create(at("builder")).unwrap();
    let mut update = store.update().unwrap();
    for key in 0..20u32 {
        update.put(key.to_le_bytes(), vec![key as u8; 300_000]).unwrap();
    }
    update.publish().unwrap();
    let url = format!("file://{}", at("remote").display());
    let remote = Remote::open(&env, &url).unwrap();
    let watch = Watch::default();
    let pushed = push(&env, &at("builder"), None, &remote, "people", &watch).unwrap();
    let options = FetchOptions { free_bytes_min: 1 << 62, ..FetchOptions::default() };
    let error = fetch(&env, &remote, "people", 1, &at("node"), &options, &watch).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Space { .. }), "{error}");
    let options = FetchOptions::default();
    let fetched = fetch(&env, &remote, "people", 1, &at("node"), &options, &watch).unwrap();
    assert!(fetched.bytes == pushed.info.bytes() && fetched.bytes > 6_000_000);
    assert_eq!(remote.stores().unwrap(), ["people"]);
    assert_eq!(remote.versions("people").unwrap(), [1]);
    let node = hashfold::Store::open(at("node")).unwrap();
    for key in 0..20u32 {
        let value = node.version(1).unwrap().get(key.to_le_bytes()).unwrap().unwrap();
        assert!(value == vec![key as u8; 300_000]);
    }
    assert!(Path::new(&at("node")).join("incoming").exists());
}

/// A folder that is not mounted is not one in which nothing was published yet.
#[test]
fn a_folder_that_does_not_exist_is_an_error_until_the_first_push() {
    let scene = Scene::new(4, 100);
    let remote = Remote::open(&scene.env, "mounted/versions").unwrap();
    let controller = Controller::new(&scene.env, &remote, "main", "test").unwrap();
    let watch = Watch::default();
    let options = PublishOptions { lead: Duration::ZERO, ..PublishOptions::default() };
    let publish = || controller.publish(&[("people".to_owned(), 1)], &options, &watch);
    let read = ReadOptions::new().env(scene.env.clone());
    let people = FollowedStore::new("node/people".as_ref(), read);
    let stores = BTreeMap::from([("people".to_owned(), people)]);
    let options = FollowOptions::new("main", "a", stores);
    let mut follower = Follower::new(&scene.env, &remote, options).unwrap();
    let mut step = || follower.step(&Signal::default(), &mut |_| Ok(()));
    for error in [
        controller.pointer().unwrap_err(),
        publish().unwrap_err(),
        remote.stores().unwrap_err(),
        step().unwrap_err(),
    ] {
        let text = error.to_string();
        assert_eq!(error.class(), ErrorClass::Io, "{text}");
        assert!(
            text.starts_with("mounted/versions: cannot read: the folder does not exist"),
            "{text}"
        );
    }
    assert!(!scene.env.disk.exists(Path::new("mounted")).unwrap(), "nothing is made");
    push(&scene.env, builder(), Some(1), &remote, "people", &watch).unwrap();
    assert_eq!(controller.pointer().unwrap().seq, 0);
    step().unwrap();
    // The node has reported that it is there.
    let cancel = Watch::new(|_| Err(hashfold::ErrorKind::Stopped.into()));
    let waiting =
        controller.publish(&[("people".to_owned(), 1)], &PublishOptions::default(), &cancel);
    assert!(waiting.unwrap_err().is_stop());
    step().unwrap();
    assert_eq!(publish().unwrap().stores["people"].version, 1);
}

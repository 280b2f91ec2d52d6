//! HDFS, which keeps versions and no pointer. `tests/with_hdfs` starts a cluster; `./test slow` runs it.

use crate::{
    fixture::{Scene, builder, node, one_lane},
    objects::check_transfers,
};
use hashfold::{
    Env,
    work::{SystemRandom, Watch},
};
use hashfold_deploy::{
    Controller, ErrorKind, FetchOptions, Found, PublishOptions, Remote, SigningKey, When,
    check_conditions, fetch, push_signed,
};
use std::env;

/// Opens a new folder of the cluster of the environment.
fn remote(name: &str) -> (Env, Remote) {
    let url = env::var("HASHFOLD_HDFS_URL").expect("tests/with_hdfs sets it");
    let env = Env::system();
    let remote = Remote::open(&env, &format!("{url}/{name}/{:x}", env.random.next_u64())).unwrap();
    (env, remote)
}

#[test]
#[ignore = "needs HDFS: tests/with_hdfs"]
fn hdfs_keeps_the_contract_of_transfers_and_is_refused_for_the_pointer() {
    let (env, remote) = remote("contract");
    let (objects, name) = (remote.objects(), "groups/main/CURRENT");
    assert_eq!(objects.get(name, 100, None).unwrap(), Found::Absent);
    assert!(objects.list("groups").unwrap().is_empty());
    let tag = objects.put(name, b"three", When::Absent).unwrap().unwrap();
    assert_eq!(objects.put(name, b"other", When::Absent).unwrap(), None);
    let found = objects.get(name, 100, None).unwrap().object().unwrap();
    assert_eq!(found.bytes, b"three");
    let error = objects.get(name, 4, None).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    check_transfers(objects);
    let error = objects.put(name, b"four", When::Is(&tag)).unwrap_err();
    assert!(error.is_unconditional(), "{error}");
    let error = check_conditions(objects, env.random.as_ref()).unwrap_err();
    assert!(error.is_unconditional(), "{error}");
    assert!(objects.list("probes").unwrap().is_empty());
}

#[test]
#[ignore = "needs HDFS: tests/with_hdfs"]
fn a_signed_version_goes_through_hdfs_and_is_not_published_there() {
    let (_, remote) = remote("people");
    // The first version is larger than one part of an upload.
    let mut scene = Scene::empty(1);
    scene.add_version(builder(), 30, 900_000);
    scene.add_version(builder(), 3, 1000);
    let (watch, key) = (Watch::default(), SigningKey::generate(&SystemRandom));
    let trusted_keys = [key.public()].into_iter().collect();
    let options = FetchOptions { lanes: 3, trusted_keys, ..one_lane() };
    for number in [1, 2] {
        let push =
            || push_signed(&scene.env, builder(), Some(number), &remote, "people", &key, &watch);
        assert_eq!(push().unwrap().tables, 1);
        assert_eq!(push().unwrap().bytes, 0);
        fetch(&scene.env, &remote, "people", number, node(), &options, &watch).unwrap();
        scene.check(node(), number);
    }
    assert_eq!(remote.stores().unwrap(), ["people"]);
    assert_eq!(remote.versions("people").unwrap(), [1, 2]);
    let controller = Controller::new(&scene.env, &remote, "main", "eve").unwrap();
    let versions = [("people".to_owned(), 1)];
    let error = controller.publish(&versions, &PublishOptions::default(), &watch).unwrap_err();
    assert!(error.is_unconditional(), "{error}");
    assert_eq!(controller.pointer().unwrap().seq, 0);
}

//! S3, through a server that speaks its protocol. `tests/with_s3` starts one; `./test slow` runs it.

use crate::{
    fixture::{Scene, node},
    objects::check_contract,
};
use hashfold::{Env, work::Watch};
use hashfold_deploy::{Controller, FetchOptions, PublishOptions, Remote, fetch, push};
use std::{env, time::Duration};

/// Opens a new prefix in the bucket of the environment.
fn remote(name: &str) -> (Env, Remote) {
    let url = env::var("HASHFOLD_S3_URL").expect("tests/with_s3 sets it");
    let env = Env::system();
    let remote = Remote::open(&env, &format!("{url}/{name}-{:x}", env.random.next_u64())).unwrap();
    (env, remote)
}

#[test]
#[ignore = "needs an S3 server: tests/with_s3"]
fn s3_keeps_the_contract() {
    let (env, remote) = remote("contract");
    check_contract(remote.objects(), &env);
}

#[test]
#[ignore = "needs an S3 server: tests/with_s3"]
fn a_version_goes_through_s3() {
    let (_, remote) = remote("people");
    // Uploaded in several parts.
    let mut scene = Scene::empty(1);
    scene.add_version(crate::fixture::builder(), 30, 900_000);
    scene.add_version(crate::fixture::builder(), 3, 1000);
    let watch = Watch::default();
    for number in [1, 2] {
        let pushed =
            push(&scene.env, crate::fixture::builder(), Some(number), &remote, "people", &watch)
                .unwrap();
        assert_eq!(pushed.tables, 1);
        let options = FetchOptions::default();
        fetch(&scene.env, &remote, "people", number, node(), &options, &watch).unwrap();
        scene.check(node(), number);
    }
    assert_eq!(remote.stores().unwrap(), ["people"]);
    assert_eq!(remote.versions("people").unwrap(), [1, 2]);
    let controller = Controller::new(&scene.env, &remote, "main", "eve").unwrap();
    for number in [1, 2] {
        let versions = [("people".to_owned(), number)];
        controller.publish(&versions, &PublishOptions::default(), &watch).unwrap();
    }
    let back = controller.roll_back("", Duration::ZERO).unwrap();
    assert_eq!((back.seq, back.stores["people"].version), (3, 1));
    assert_eq!(controller.pointer().unwrap(), back);
}

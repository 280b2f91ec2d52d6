//! Signed versions: with trusted keys, nothing of a version is used that none of them has signed.

use crate::{
    fixture::{Scene, builder, check, faulty, files, node, one_lane},
    naive::Faults,
};
use hashfold::{
    Env, ErrorClass, ReadOptions,
    io::{Access, Disk, Fault, MemoryDisk},
    work::{SeededRandom, Signal, Watch},
};
use hashfold_deploy::{
    Activation, Controller, ErrorKind, FetchOptions, FolderObjects, FollowOptions, FollowedStore,
    Follower, Objects as _, PublishOptions, Remote, Result, SigningKey, TrustedKeys,
    VersionSignature, VersionState, fetch, push_signed, repair,
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

/// Returns two keys.
fn keys() -> [SigningKey; 2] {
    let random = SeededRandom::new(47);
    [(); 2].map(|()| SigningKey::generate(&random))
}

fn trusting(keys: &[&SigningKey]) -> FetchOptions {
    FetchOptions { trusted_keys: trusted(keys), ..one_lane() }
}

fn trusted(keys: &[&SigningKey]) -> TrustedKeys {
    keys.iter().map(|key| key.public()).collect()
}

/// Fetches a version into a store of its own.
fn fetch_new(scene: &Scene, number: u64, keys: &[&SigningKey], folder: &str) -> Result<()> {
    let (options, watch) = (trusting(keys), Watch::default());
    fetch(&scene.env, &scene.remote, "people", number, folder.as_ref(), &options, &watch)
        .map(|_| ())
}

const SIGNATURE: &str = "stores/people/versions/0000000002.sig";

/// Checks that version 2 is refused, and that only its file and its signature were read.
#[track_caller]
fn check_refused(scene: &Scene, keys: &[&SigningKey], got: &str) {
    let before = [&scene.naive.ranges, &scene.naive.reads].map(|count| count.load(SeqCst));
    let error = fetch_new(scene, 2, keys, "refused").unwrap_err();
    let ErrorKind::Untrusted { what, expected, got: found } = error.kind() else {
        panic!("{error}")
    };
    assert_eq!(what, "version 2 of store people");
    assert!(
        expected.starts_with("a signature by a trusted key (") && found.contains(got),
        "{error}"
    );
    assert_eq!(error.place(), Some(format!("naive://{SIGNATURE}").as_str()));
    assert_eq!(error.class(), ErrorClass::Input);
    let after = [&scene.naive.ranges, &scene.naive.reads].map(|count| count.load(SeqCst));
    assert_eq!(after, [before[0], before[1] + 2]);
    assert!(!scene.env.disk.exists(Path::new("refused")).unwrap(), "{error}");
}

#[test]
fn a_signed_version_is_fetched_by_those_who_trust_its_key_and_by_all_others() {
    let (scene, [key, other]) = (Scene::new(1, 2000), keys());
    scene.push_signed(1, &key);
    scene.push_signed(2, &key);
    assert_eq!(scene.naive.bytes(SIGNATURE).len(), 108);
    for (folder, keys) in [("a", &[&key][..]), ("b", &[&other, &key]), ("c", &[])] {
        for number in [1, 2] {
            fetch_new(&scene, number, keys, folder).unwrap();
            scene.check(folder.as_ref(), number);
        }
    }
    assert_eq!(scene.remote.versions("people").unwrap(), [1, 2]);
}

#[test]
fn a_version_without_a_valid_signature_is_refused_before_anything_else_is_read() {
    let (scene, [key, other]) = (Scene::new(2, 2000), keys());
    scene.push(2);
    check_refused(&scene, &[&key], "none");
    scene.push_signed(1, &key);
    let of_another_version = scene.naive.bytes("stores/people/versions/0000000001.sig");
    let file = scene.naive.bytes("stores/people/versions/0000000002");
    let sign = |key, store| VersionSignature::new(key, store, 2, &file).to_bytes().to_vec();
    let another = "of another version, another store or other bytes";
    for (object, got) in [
        (of_another_version, another),
        (sign(&key, "prices"), another),
        (sign(&other, "people"), "which is not trusted"),
        (Vec::new(), "no signature"),
        (vec![0; 108], "no signature"),
        (vec![0; 1 << 20], "no signature"),
    ] {
        scene.naive.overwrite(SIGNATURE, &object);
        check_refused(&scene, &[&key], got);
    }
    let good = sign(&key, "people");
    for bit in 0..8 * good.len() {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        scene.naive.overwrite(SIGNATURE, &bad);
        check_refused(&scene, &[&key], "");
    }
    // Without trusted keys, nobody looks.
    fetch_new(&scene, 2, &[], "untrusting").unwrap();
    scene.naive.overwrite(SIGNATURE, &good);
    fetch_new(&scene, 2, &[&key], "trusting").unwrap();
    scene.check("trusting".as_ref(), 2);
}

/// The version file of another store of the same name, with all that it names: only the signature is
/// not its own.
#[test]
fn a_version_that_replaces_a_signed_one_is_refused() {
    let (scene, [key, _]) = (Scene::new(3, 2000), keys());
    scene.push_signed(2, &key);
    let foreign = Scene::new(4, 2000);
    foreign.push(2);
    for name in foreign.naive.names() {
        scene.naive.overwrite(&name, &foreign.naive.bytes(&name));
    }
    check_refused(&scene, &[&key], "other bytes");
    fetch_new(&scene, 2, &[], "untrusting").unwrap();
}

#[test]
fn keys_are_replaced_while_both_are_trusted() {
    let (scene, [old, new]) = (Scene::new(5, 2000), keys());
    scene.push_signed(1, &old);
    scene.push_signed(2, &new);
    for number in [1, 2] {
        fetch_new(&scene, number, &[&old, &new], "a").unwrap();
    }
    fetch_new(&scene, 2, &[&new], "b").unwrap();
    assert!(fetch_new(&scene, 1, &[&new], "b").unwrap_err().is_untrusted());
    // What is in the local store is checked as well.
    assert!(fetch_new(&scene, 1, &[&new], "a").unwrap_err().is_untrusted());
}

#[test]
fn a_signature_is_written_once_and_a_version_can_get_one_later() {
    let (scene, [key, other]) = (Scene::new(6, 2000), keys());
    let push_signed = |key: &SigningKey| {
        let watch = Watch::default();
        push_signed(&scene.env, builder(), Some(2), &scene.remote, "people", key, &watch)
    };
    scene.push(2);
    assert_eq!(push_signed(&key).unwrap().bytes, 108);
    assert_eq!(push_signed(&key).unwrap().bytes, 0);
    scene.push(2);
    fetch_new(&scene, 2, &[&key], "a").unwrap();
    let before = scene.naive.bytes(SIGNATURE);
    let error = push_signed(&other).unwrap_err();
    let ErrorKind::Exists { expected, got } = error.kind() else { panic!("{error}") };
    assert!(expected.contains(&other.public().to_string()), "{error}");
    assert!(got.contains(&key.public().to_string()), "{error}");
    assert_eq!(error.place(), Some(format!("naive://{SIGNATURE}").as_str()));
    assert_eq!(scene.naive.bytes(SIGNATURE), before);
    scene.naive.overwrite(SIGNATURE, b"x");
    let error = push_signed(&key).unwrap_err();
    assert!(error.to_string().contains("is no signature"), "{error}");
    // After it was removed, another key may sign.
    scene.naive.remove(SIGNATURE).unwrap();
    push_signed(&other).unwrap();
    fetch_new(&scene, 2, &[&other], "b").unwrap();
}

/// Checks that a version that is in a remote has a signature by the key.
#[track_caller]
fn check_signed(scene: &Scene, number: u64, key: &SigningKey) {
    let names = scene.naive.names();
    let name = format!("stores/people/versions/{number:010}");
    if names.contains(&name) {
        let signature = scene.naive.bytes(&format!("{name}.sig"));
        let signature = VersionSignature::from_bytes(&signature).unwrap();
        let file = scene.naive.bytes(&name);
        signature.verify(&trusted(&[key]), "people", number, &file).unwrap();
    }
}

/// Requests fail, or their replies are lost: a version that is there is signed at every moment.
#[test]
fn a_push_that_is_interrupted_anywhere_leaves_no_version_without_its_signature() {
    let [key, _] = keys();
    for seed in 0..20 {
        let scene = Scene::new(seed, 2000);
        let faults = Faults { error: 4, lost_reply: 4, ..Faults::default() };
        *scene.naive.faults.lock().unwrap() = faults;
        let (mut attempts, watch) = (0, Watch::default());
        for number in [1, 2] {
            let push = || {
                let remote = &scene.remote;
                push_signed(&scene.env, builder(), Some(number), remote, "people", &key, &watch)
            };
            while let Err(error) = push() {
                assert_eq!(error.class(), ErrorClass::Io, "seed {seed}: {error}");
                check_signed(&scene, number, &key);
                attempts += 1;
                assert!(attempts < 1000, "seed {seed}");
            }
            check_signed(&scene, number, &key);
            // A request that fails while the signature is checked is no refusal.
            while let Err(error) = fetch_new(&scene, number, &[&key], "node") {
                assert_eq!(error.class(), ErrorClass::Io, "seed {seed}: {error}");
                attempts += 1;
                assert!(attempts < 1000, "seed {seed}");
            }
            scene.check(node(), number);
        }
    }
}

/// A power cut at every operation of the disk of a remote that is a folder.
#[test]
fn a_power_cut_leaves_no_version_without_its_signature_and_the_push_goes_on() {
    let (scene, [key, _]) = (Scene::new(7, 2000), keys());
    let remote = |disk: Arc<dyn Disk>| {
        let env = Env { disk, ..scene.env.clone() };
        Remote::new(Arc::new(FolderObjects::new(env, "remote").unwrap()))
    };
    let (watch, options) = (Watch::default(), trusting(&[&key]));
    let push = |remote: &Remote| {
        push_signed(&scene.env, builder(), Some(2), remote, "people", &key, &watch)
    };
    let (mut absent, mut present, mut nodes) = (0, 0, 0);
    for operation in 0.. {
        let cut = faulty(&MemoryDisk::default(), Fault::PowerCut { operation });
        let pushed = push(&remote(Arc::new(cut.clone())));
        for seed in [2 * operation, 2 * operation + 1] {
            let left = remote(Arc::new(cut.after_power_cut(seed)));
            nodes += 1;
            let folder = format!("node-{nodes}");
            let fetch = || {
                let folder = folder.as_ref();
                fetch(&scene.env, &left, "people", 2, folder, &options, &watch)
            };
            match fetch() {
                Ok(_) => present += 1,
                Err(error) => {
                    // The folder of the remote may be absent, too.
                    let is_absent =
                        matches!(error.kind(), ErrorKind::Absent { .. } | ErrorKind::Remote { .. });
                    assert!(is_absent, "{operation}: {error}");
                    assert!(pushed.is_err(), "operation {operation}: it is lost");
                    absent += 1;
                }
            }
            push(&left).unwrap();
            fetch().unwrap();
            scene.check(folder.as_ref(), 2);
        }
        if pushed.is_ok() && operation >= cut.operations() {
            break;
        }
    }
    assert!(absent > 20 && present > 1, "{absent} absent, {present} present");
}

/// The damage of a local version is not repaired from a version that nobody has signed.
#[test]
fn a_repair_refuses_what_a_fetch_refuses() {
    let (scene, [key, other]) = (Scene::new(8, 2000), keys());
    scene.push_signed(2, &key);
    scene.fetch(2).unwrap();
    let disk = scene.env.disk.as_ref();
    let good = files(disk, node());
    let table = node().join("tables");
    let damaged = files(disk, &table).into_keys().find(|name| name.ends_with("TREE")).unwrap();
    disk.open_to_write(&table.join(damaged), Access::Cached).unwrap().write_at(9, b"x").unwrap();
    let before = files(disk, node());
    let repaired = |keys: &[&SigningKey]| {
        let (options, watch) = (trusting(keys), Watch::default());
        repair(&scene.env, &scene.remote, "people", 2, node(), &options, &watch)
    };
    assert!(repaired(&[&other]).unwrap_err().is_untrusted());
    scene.naive.remove(SIGNATURE).unwrap();
    assert!(repaired(&[&key]).unwrap_err().is_untrusted());
    assert!(files(disk, node()) == before);
    scene.push_signed(2, &key);
    assert_eq!(repaired(&[&key]).unwrap().files, 1);
    assert!(files(disk, node()) == good);
}

fn controller(scene: &Scene) -> Controller {
    Controller::new(&scene.env, &scene.remote, "main", "test").unwrap()
}

fn at_once() -> PublishOptions {
    PublishOptions { min_ready: Some(0), lead: Duration::ZERO, ..PublishOptions::default() }
}

fn flip(scene: &Scene, number: u64) {
    let versions = [("people".to_owned(), number)];
    controller(scene).publish(&versions, &at_once(), &Watch::default()).unwrap();
}

fn follower(scene: &Scene, keys: &[&SigningKey]) -> Follower {
    let read = ReadOptions::new().env(scene.env.clone());
    let people = FollowedStore::new(node(), read);
    let stores = BTreeMap::from([("people".to_owned(), people)]);
    let mut options = FollowOptions::new("main", "a", stores);
    options.fetch = trusting(keys);
    Follower::new(&scene.env, &scene.remote, options).unwrap()
}

/// Makes a step, and returns the version that it activates.
fn step(follower: &mut Follower) -> Result<Option<u64>> {
    let mut activated = None;
    let mut activate = |activations: &[Activation]| {
        let first = activations.first().and_then(|it| it.version.as_ref());
        activated = first.map(|version| version.info().name.number);
        Ok(())
    };
    follower.step(&Signal::default(), &mut activate)?;
    Ok(activated)
}

#[test]
fn a_node_reports_a_refused_version_and_asks_again_when_the_pointer_changes() {
    let (scene, [key, _]) = (Scene::new(9, 2000), keys());
    scene.push_signed(1, &key);
    scene.push(2);
    let mut node = follower(&scene, &[&key]);
    flip(&scene, 1);
    assert_eq!(step(&mut node).unwrap(), Some(1));
    flip(&scene, 2);
    let reads = || scene.naive.reads.load(SeqCst);
    let before = reads();
    assert!(step(&mut node).unwrap_err().is_untrusted());
    assert_eq!(reads(), before + 2, "the version file and its signature");
    // A signature that comes later is not looked for.
    scene.push_signed(2, &key);
    let before = reads();
    for _ in 0..20 {
        scene.env.clock.sleep(Duration::from_secs(30));
        assert!(step(&mut node).unwrap_err().is_untrusted());
    }
    assert_eq!(reads(), before);
    let version = &controller(&scene).status().unwrap().nodes["a"].versions["people"][&2];
    assert_eq!(version.state, VersionState::Failed);
    let error = version.error.as_deref().unwrap();
    assert!(
        error.contains("version 2 of store people is refused: expected a signature"),
        "{error}"
    );
    flip(&scene, 1);
    assert_eq!(step(&mut node).unwrap(), None, "it is current still");
    flip(&scene, 2);
    assert_eq!(step(&mut node).unwrap(), Some(2));
    scene.check(crate::fixture::node(), 2);
}

/// A node repairs what it has with what is signed, and goes on without.
#[test]
fn a_node_does_not_repair_a_version_from_one_without_a_signature() {
    let (scene, [key, other]) = (Scene::new(10, 2000), keys());
    scene.push_signed(2, &key);
    flip(&scene, 2);
    assert_eq!(step(&mut follower(&scene, &[&key])).unwrap(), Some(2));
    let disk = scene.env.disk.as_ref();
    let lost = files(disk, &node().join("tables")).into_keys().next().unwrap();
    disk.remove(&node().join("tables").join(lost)).unwrap();
    let mut untrusting = follower(&scene, &[&other]);
    let reads = || scene.naive.reads.load(SeqCst);
    let before = reads();
    for _ in 0..3 {
        assert!(step(&mut untrusting).unwrap_err().is_untrusted());
    }
    assert_eq!(reads(), before + 2);
    assert_eq!(step(&mut follower(&scene, &[&key])).unwrap(), Some(2));
    check(&scene.env, node(), 2, &scene.versions[&2]);
}

#[test]
fn a_controller_that_trusts_keys_publishes_no_other_versions() {
    let (scene, [key, _]) = (Scene::new(11, 2000), keys());
    scene.push(2);
    let options = PublishOptions { trusted_keys: trusted(&[&key]), ..at_once() };
    let publish = || {
        let versions = [("people".to_owned(), 2)];
        controller(&scene).publish(&versions, &options, &Watch::default())
    };
    assert!(publish().unwrap_err().is_untrusted());
    assert_eq!(controller(&scene).pointer().unwrap().seq, 0);
    scene.push_signed(2, &key);
    publish().unwrap();
}

/// What is signed is what the builder has: not what somebody else has put into the remote.
#[test]
fn a_version_of_somebody_else_gets_no_signature() {
    let (scene, [key, _]) = (Scene::new(12, 2000), keys());
    let foreign = Scene::new(13, 2000);
    foreign.push(2);
    let name = "stores/people/versions/0000000002";
    scene.naive.overwrite(name, &foreign.naive.bytes(name));
    let watch = Watch::default();
    let pushed = push_signed(&scene.env, builder(), Some(2), &scene.remote, "people", &key, &watch);
    let error = pushed.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exists { .. }), "{error}");
    assert!(!scene.naive.names().iter().any(|name| name.ends_with(".sig")));
}

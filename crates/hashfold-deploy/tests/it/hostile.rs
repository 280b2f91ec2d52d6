//! Wrong content on either side: damaged files, foreign stores, documents of strangers.

use crate::{
    fixture::{Scene, builder, node},
    naive::Naive,
};
use hashfold::{
    Env, ErrorClass, ErrorKind as StoreErrorKind, Seed, Store, StoreOptions,
    io::{Access, read_all},
    store::versions,
    work::Watch,
};
use hashfold_deploy::{ErrorKind, FetchOptions, Remote, fetch, push};
use std::sync::Arc;

#[test]
fn a_damaged_byte_is_not_pushed() {
    let scene = Scene::new(1, 2000);
    let tables = builder().join("tables");
    let disk = scene.env.disk.as_ref();
    for table in disk.list(&tables).unwrap() {
        for name in disk.list(&tables.join(&table)).unwrap() {
            let path = tables.join(&table).join(name);
            let mut bytes = read_all(disk.open(&path, Access::Cached).unwrap().as_ref(), 1 << 30)
                .unwrap()
                .to_vec();
            let at = bytes.len() / 2;
            bytes[at] ^= 1;
            disk.open_to_write(&path, Access::Cached).unwrap().write_at(0, &bytes).unwrap();
            // What is in a remote already is not read again.
            let naive = Arc::new(Naive::new(1, &scene.env.clock));
            let (remote, watch) = (Remote::new(naive.clone()), Watch::default());
            let error =
                push(&scene.env, builder(), Some(2), &remote, "people", &watch).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Damage, "{error}");
            assert!(error.to_string().starts_with("builder/tables/"), "{error}");
            assert!(!naive.names().iter().any(|name| name.contains("versions")));
            bytes[at] ^= 1;
            disk.open_to_write(&path, Access::Cached).unwrap().write_at(0, &bytes).unwrap();
        }
    }
    scene.push(2);
    scene.fetch(2).unwrap();
    scene.check(node(), 2);
}

#[test]
fn objects_are_written_once() {
    let scene = Scene::new(2, 2000);
    scene.push(1);
    // Another store whose first version has another id, and another content.
    let other = Scene::new(3, 2000);
    let watch = Watch::default();
    let error = push(&other.env, builder(), Some(1), &scene.remote, "people", &watch).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exists { .. }), "{error}");
    assert!(error.place().unwrap().ends_with("versions/0000000001"), "{error}");
    // A table with another block tree.
    let names = scene.naive.names();
    let tree = names.iter().find(|name| name.ends_with("TREE")).unwrap();
    let (good, foreign) = (scene.naive.bytes(tree), other_tree(&scene));
    scene.naive.overwrite(tree, &foreign);
    let error = push(&scene.env, builder(), Some(1), &scene.remote, "people", &watch).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exists { .. }), "{error}");
    scene.naive.overwrite(tree, &good);
    scene.push(1);
}

/// Returns the tree of another table.
fn other_tree(scene: &Scene) -> Vec<u8> {
    scene.push(2);
    let names = scene.naive.names();
    scene.naive.bytes(names.iter().rfind(|name| name.ends_with("TREE")).unwrap())
}

/// Every object is replaced by others in turn: nothing of it gets into the node's store.
#[test]
fn foreign_bytes_in_any_object_are_refused() {
    let scene = Scene::new(4, 2000);
    scene.push(2);
    let foreign = Scene::new(5, 2000);
    foreign.push(2);
    let (names, mut nodes) = (scene.naive.names(), 0);
    for name in names.iter().filter(|name| name.starts_with("stores/")) {
        let good = scene.naive.bytes(name);
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        let kind = |name: &str| name.rsplit('/').next().unwrap().chars().next();
        let others = foreign.naive.names();
        let same_kind = others.iter().find(|other| kind(other) == kind(name)).unwrap();
        let cut = good[..good.len() / 2].to_vec();
        for bad in [Vec::new(), flipped, foreign.naive.bytes(same_kind), cut, vec![0; good.len()]] {
            // Equal files, such as an empty index, are no damage.
            if bad == good {
                continue;
            }
            scene.naive.overwrite(name, &bad);
            // Pieces that are there already are not read again.
            nodes += 1;
            let (folder, options) = (format!("node-{nodes}"), FetchOptions::default());
            let fetched = fetch(
                &scene.env,
                &scene.remote,
                "people",
                2,
                folder.as_ref(),
                &options,
                &Watch::default(),
            );
            let error = fetched.unwrap_err();
            // A whole version file of another store names tables that are not there.
            let is_absent = matches!(error.kind(), ErrorKind::Absent { .. });
            let is_refused = [ErrorClass::Damage, ErrorClass::Input].contains(&error.class());
            assert!(is_refused || is_absent && name.contains("versions"), "{name}: {error}");
            let there = versions(&scene.env, &folder).unwrap_or_default();
            assert!(there.is_empty(), "{name}");
        }
        scene.naive.overwrite(name, &good);
    }
    scene.fetch(2).unwrap();
    scene.check(node(), 2);
}

#[test]
fn a_version_above_the_limit_or_of_another_store_is_refused_before_a_piece_is_read() {
    let scene = Scene::new(6, 2000);
    scene.push(1);
    let (options, watch) =
        (FetchOptions { size_max: 1000, ..FetchOptions::default() }, Watch::default());
    let error =
        fetch(&scene.env, &scene.remote, "people", 1, node(), &options, &watch).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { limit: 1000, .. }), "{error}");
    let other = StoreOptions::new().env(scene.env.clone()).seed(Seed(1));
    let mut update = Store::open_or_create_with("other", other).unwrap().update().unwrap();
    update.put("a", "b").unwrap();
    update.publish().unwrap();
    let get = |env: &Env, folder: &str| {
        let options = FetchOptions::default();
        fetch(env, &scene.remote, "people", 1, folder.as_ref(), &options, &Watch::default())
    };
    let error = get(&scene.env, "other").unwrap_err();
    let kind = error.of_store().unwrap().kind();
    assert!(matches!(kind, StoreErrorKind::Mismatch { what: "store", .. }), "{error}");
    assert_eq!(scene.naive.ranges.load(std::sync::atomic::Ordering::SeqCst), 0);
    let error = scene.fetch(9).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Absent { .. }), "{error}");
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let scene = Scene::new(7, 2000);
    let watch = Watch::default();
    for store in ["../people", "a/b", "", "."] {
        let error = push(&scene.env, builder(), None, &scene.remote, store, &watch).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
        let options = FetchOptions::default();
        let fetched = fetch(&scene.env, &scene.remote, store, 1, node(), &options, &watch);
        assert!(matches!(fetched.unwrap_err().kind(), ErrorKind::Argument { .. }));
    }
    assert!(scene.naive.names().is_empty());
}

#[test]
fn a_name_belongs_to_one_store() {
    let mut scene = Scene::new(8, 2000);
    scene.push(1);
    let other = std::path::Path::new("other");
    scene.add_version(other, 3, 2000);
    scene.add_version(other, 3, 2000);
    let watch = Watch::default();
    let error = push(&scene.env, other, Some(2), &scene.remote, "people", &watch).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exists { .. }), "{error}");
    push(&scene.env, other, Some(2), &scene.remote, "other", &watch).unwrap();
}

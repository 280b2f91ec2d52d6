//! Lost files, files restored from an older copy, and nested folders: every verb on every kind of
//! data set. Issue 10, points 2, 3, 9 and 10.

use crate::{
    support::{Work, list},
    update::copy_folder,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

const LOST: i32 = 4;

/// Returns a store `s` whose version N has N as the value of all its keys, and a copy `c` of it.
fn store(versions: u64) -> Work {
    let work = Work::new();
    for number in 1..=versions {
        let rows: String = (0..50).map(|key| format!("{key},{number}\n")).collect();
        work.write("a.csv", format!("k,v\n{rows}"));
        work.ok("update s a.csv --key k --mode merge --chunks 2");
    }
    copy_folder(&work.path("s"), &work.path("c"));
    work
}

/// All files below a folder, by their paths.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in list(folder) {
        let path = folder.join(name);
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => _ = all.insert(path.clone(), fs::read(&path).unwrap()),
        }
    }
    all
}

#[track_caller]
fn check(work: &Work, line: &str, code: i32, says: &str) {
    let outcome = work.run(line);
    assert_eq!(outcome.code, code, "{line}: {outcome:?}");
    let all = format!("{}{}", outcome.text(), outcome.stderr);
    assert!(all.contains(says), "{line}: {all}");
}

#[test]
fn a_lost_version_file_is_found_and_mended_and_never_swept() {
    for number in [2, 3] {
        let work = store(3);
        let before = files(&work.path("s"));
        let path = format!("s/versions/000000000{number}");
        fs::remove_file(work.path(&path)).unwrap();
        let missing = format!("{path}: the file of version {number} is missing");
        check(&work, "verify s --all", 1, &missing);
        check(&work, "verify s", 1, &missing);
        check(&work, "versions s", 0, "damaged: the file of version");
        check(&work, "gc s --keep 9", if number == 3 { LOST } else { 0 }, "");
        if number == 2 {
            check(&work, "rollback s", LOST, &missing);
            work.ok("pin s 1");
        } else {
            check(&work, "get s 7", LOST, &missing);
            check(&work, "update s a.csv", LOST, &missing);
        }
        check(&work, "verify s --all --repair-from c", 0, "1 piece repaired");
        work.ok("verify s --all");
        let after = files(&work.path("s"));
        assert!(before.keys().eq(after.keys()), "no file is gone");
        work.ok("rollback s");
        check(&work, "get s 7 --format raw", 0, "2");
    }
}

#[test]
fn a_lost_version_can_be_given_up() {
    let work = store(3);
    fs::remove_file(work.path("s/versions/0000000002")).unwrap();
    check(&work, "gc s", 0, "kept version 2: its file is lost");
    check(&work, "gc s --lost", 0, "gave up version 2");
    work.ok("verify s --all");
    // A damaged version file, and a missing table.
    let work = store(3);
    fs::write(work.path("s/versions/0000000002"), "damaged").unwrap();
    check(&work, "gc s", 0, "kept version 2: it is damaged");
    check(&work, "gc s --lost", 0, "gave up version 2");
    work.ok("verify s --all");
    let work = store(3);
    let tables = list(&work.path("s/tables"));
    let of_first = fs::read(work.path("s/versions/0000000001")).unwrap();
    let named = |name: &&String| {
        let id = u64::from_str_radix(name, 16).unwrap().to_le_bytes();
        of_first.windows(8).any(|bytes| bytes == id)
    };
    let lost = tables.iter().find(named).unwrap();
    fs::remove_dir_all(work.path("s/tables").join(lost)).unwrap();
    check(&work, "gc s --keep 0", 0, "removed version 1");
    work.ok("verify s --all");
    check(&work, "get s 7 --format raw", 0, "3");
}

#[test]
fn an_older_pointer_does_not_brick_the_store() {
    for verb in [
        "publish s",
        "publish s 3",
        "pin s 3",
        "update s a.csv",
        "update s a.csv --min-entries 999",
    ] {
        let work = store(2);
        let old = fs::read(work.path("s/CURRENT")).unwrap();
        work.ok("update s a.csv");
        fs::write(work.path("s/CURRENT"), old).unwrap();
        let outcome = work.run(verb);
        assert!(outcome.code <= 1, "{verb}: {outcome:?}");
        assert!(outcome.stderr.contains("CURRENT did not list version 3"), "{verb}: {outcome:?}");
        for next in ["get s 7", "update s a.csv", "rollback s", "verify s --all", "gc s"] {
            work.ok(next);
        }
    }
}

#[test]
fn a_lost_pointer_is_mended_from_a_copy_or_from_the_version_files() {
    for damage in [None, Some(&b"damaged"[..])] {
        let work = store(3);
        let lose = |work: &Work| match damage {
            None => fs::remove_file(work.path("s/CURRENT")).unwrap(),
            Some(bytes) => fs::write(work.path("s/CURRENT"), bytes).unwrap(),
        };
        lose(&work);
        check(&work, "get s 7", LOST, "s/CURRENT");
        check(&work, "update s a.csv", LOST, "s/CURRENT");
        check(&work, "verify s", 1, "s/CURRENT");
        check(&work, "verify s --repair-from c", 0, "rebuilt CURRENT from the copy: version 3");
        check(&work, "get s 7 --format raw", 0, "3");
        lose(&work);
        check(
            &work,
            "verify s --repair --version 2",
            0,
            "version 2 is current\nversion 3 is newer",
        );
        check(&work, "get s 7 --format raw", 0, "2");
        lose(&work);
        // The last version that is known to have been current: version 3 was made from it.
        check(&work, "verify s --repair", 0, "all versions are pinned, because");
        check(&work, "gc s --keep 0", 0, "kept version 3: it is pinned");
        check(&work, "rollback s", 0, "version 1 is current again");
    }
}

#[test]
fn a_copy_that_is_not_there_is_noticed_though_nothing_is_damaged() {
    let work = store(1);
    check(&work, "verify s --repair-from nope", 2, "nope: there is no data set here");
    work.write("b.csv", "k,v\n1,1\n").ok("update other b.csv --key k");
    check(&work, "verify s --repair-from other", 4, "another data set");
}

/// Each file in turn is lost: reading ends with exit code 4, or returns the old content; `verify`
/// ends with 1.
#[test]
fn every_lost_file_is_damage_in_every_kind_of_data_set() {
    let work = store(2);
    work.ok("build a.csv --key k --out t");
    let keys: String = (0..500).map(|key| format!("{key}\n")).collect();
    work.write("keys", keys).ok("filter add f --keys keys --exact");
    let kinds = [
        ("s", "get s 7", "verify s --all"),
        ("t", "get t 7", "verify t"),
        ("f", "filter contains f 7", "filter verify f"),
    ];
    for (folder, read, verify) in kinds {
        for (path, bytes) in files(&work.path(folder)) {
            fs::remove_file(&path).unwrap();
            let name = path.strip_prefix(work.path("")).unwrap().display().to_string();
            let outcome = work.run(read);
            assert!([0, LOST].contains(&outcome.code), "{name} lost, {read}: {outcome:?}");
            if outcome.code == LOST {
                assert!(outcome.stderr.contains("missing"), "{name} lost, {read}: {outcome:?}");
            }
            check(&work, verify, 1, &name);
            fs::write(&path, bytes).unwrap();
            work.ok(verify);
        }
    }
}

/// Only names that a store created are removed, and never the target of a link.
#[test]
fn links_in_a_store_are_not_followed() {
    let work = store(1);
    work.ok("build a.csv --key k --out t");
    let link = work.path("s/tables/0123456789abcdef");
    std::os::unix::fs::symlink(work.path("t"), &link).unwrap();
    work.ok("update s a.csv");
    assert!(!link.exists());
    work.ok("verify t");
    // A table was moved to another device and replaced by a link.
    let table = list(&work.path("s/tables")).remove(0);
    let (here, there) = (work.path("s/tables").join(&table), work.path("moved"));
    fs::rename(&here, &there).unwrap();
    std::os::unix::fs::symlink(&there, &here).unwrap();
    for line in
        ["verify s --all", "update s a.csv --mode replace", "gc s --keep 0", "update s a.csv"]
    {
        work.ok(line);
    }
    assert!(there.is_dir() && !here.exists());
}

/// A pipe in the place of a file does not block.
#[test]
fn a_pipe_or_folder_in_place_of_a_file_is_damage_and_stops_no_check() {
    let work = store(2);
    let version = work.path("s/versions/0000000001");
    fs::remove_file(&version).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&version).status().unwrap();
    assert!(made.success());
    check(
        &work,
        "verify s --all",
        1,
        "0000000001: type of the file is a folder, a pipe or a device",
    );
    check(&work, "versions s", 0, "damaged: type of the file");
    fs::remove_file(&version).unwrap();
    check(&work, "verify s --all --repair-from c", 0, "1 piece repaired");
    fs::create_dir(work.path("s/versions/0000000099")).unwrap();
    check(&work, "verify s --all", 1, "0000000099");
}

#[test]
fn no_output_is_written_into_a_data_set() {
    let work = store(2);
    work.ok("build a.csv --key k --out t");
    let before = files(&work.path(""));
    for out in ["s/CURRENT", "s/versions/x", "t/MANIFEST", "t/x"] {
        check(&work, &format!("diff s 1 --out {out}"), 2, "outside of the");
        check(&work, &format!("build a.csv --key k --out u --bad-rows {out}"), 2, "outside of the");
    }
    assert!(files(&work.path("")) == before, "files changed");
}

#[test]
fn nothing_is_built_inside_of_or_over_a_data_set() {
    let work = store(1);
    work.write("keys", "a\nb\n").ok("filter add f --keys keys --exact");
    work.ok("build a.csv --key k --out t");
    let before = files(&work.path(""));
    for folder in ["s/tables/x", "s/x", "f/x/y", "t/x"] {
        for verb in ["build a.csv --key k --out", "build a.csv --key k --replace --out"] {
            check(&work, &format!("{verb} {folder}"), 2, "outside of the");
        }
        check(&work, &format!("update {folder} a.csv --key k"), 2, "outside of the");
        check(&work, &format!("filter add {folder} --keys keys --exact"), 2, "outside of the");
    }
    // A link does not hide its target.
    std::os::unix::fs::symlink(work.path("s"), work.path("link")).unwrap();
    check(&work, "build a.csv --key k --out link/x", 2, "outside of the");
    fs::remove_file(work.path("link")).unwrap();
    for (folder, first) in [("s", "CURRENT"), ("f", "MANIFEST")] {
        let first = work.path(folder).join(first);
        let bytes = fs::read(&first).unwrap();
        fs::remove_file(&first).unwrap();
        for verb in ["build a.csv --key k --out", "build a.csv --key k --replace --out"] {
            check(&work, &format!("{verb} {folder}"), 2, "is a");
        }
        fs::write(&first, bytes).unwrap();
    }
    assert!(files(&work.path("")) == before, "files changed");
    // A stray folder does not stop the next update.
    fs::create_dir_all(work.path("s/tables/x/y")).unwrap();
    fs::create_dir_all(work.path("s/versions/x.new")).unwrap();
    work.ok("update s a.csv");
    work.ok("gc s --keep 0");
    assert!(work.path("s/tables/x/y").is_dir() && work.path("s/versions/x.new").is_dir());
}

/// A `get` of many keys answered none of them if one was in a lost table.
#[test]
fn keys_beside_a_lost_table_are_answered() {
    let (work, table) = store_with_a_delta();
    work.write("keys", (0..100).map(|i| format!("{i}\n")).collect::<String>());
    fs::remove_file(table.join("MANIFEST")).unwrap();
    let new = table.file_name().unwrap().to_str().unwrap();
    for line in ["get s --keys keys --format csv", "get s - --format csv"] {
        let outcome = work.feed(line, &fs::read(work.path("keys")).unwrap());
        assert_eq!(outcome.code, 4, "{outcome:?}");
        let lines = outcome.text().lines().count() - 1;
        assert!((50..100).contains(&lines) && !outcome.text().contains("\n7,"), "{outcome:?}");
        let start =
            format!("hashfold: {} of 100 keys could not be looked up; the first: ", 100 - lines);
        assert!(outcome.stderr.starts_with(&start) && outcome.stderr.contains(new), "{outcome:?}");
    }
    let one = work.run("get s 7");
    assert!(one.code == 4 && one.stderr.starts_with("hashfold: s/tables/"), "{one:?}");
}

/// Issue 14: only `get` warned of a damaged index.
#[test]
fn all_verbs_that_look_up_keys_warn_of_a_damaged_index() {
    let (work, table) = store_with_a_delta();
    let index = list(&table).into_iter().find(|name| name.starts_with("index-")).unwrap();
    fs::remove_file(table.join(&index)).unwrap();
    work.write("c.csv", "k,v\n8,c\n");
    for line in
        ["get s 7", "delete s no-such-key", "update s c.csv --mode delta --require-key 7 --dry-run"]
    {
        let outcome = work.ok(line);
        let is_warned = outcome.stderr.lines().any(|text| {
            text.starts_with("hashfold: warning: s/tables/")
                && text.contains(&index)
                && text.ends_with("until `hashfold verify --repair-from COPY s`")
        });
        assert!(is_warned, "{line}: {outcome:?}");
    }
}

/// A store with 100 keys `a` in 16 chunks, and a delta with key 7; the delta's folder.
fn store_with_a_delta() -> (Work, PathBuf) {
    let work = Work::new();
    let rows: String = (0..100).map(|i| format!("{i},a\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}")).write("b.csv", "k,v\n7,b\n");
    work.ok("update s a.csv --key k --chunks 16");
    let tables = list(&work.path("s/tables"));
    work.ok("update s b.csv --mode delta");
    let new = list(&work.path("s/tables")).into_iter().find(|name| !tables.contains(name)).unwrap();
    let folder = work.path(&format!("s/tables/{new}"));
    (work, folder)
}

/// A folder in place of a file kept the whole store shut, and could not be replaced.
#[test]
fn a_table_that_cannot_be_opened_harms_no_other() {
    for kind in ["folder", "nothing"] {
        let (work, table) = store_with_a_delta();
        let manifest = table.join("MANIFEST");
        fs::remove_file(&manifest).unwrap();
        if kind == "folder" {
            fs::create_dir(&manifest).unwrap();
        }
        let found = (0..100).filter(|key| work.run(&format!("get s {key}")).code == 0).count();
        assert!((50..100).contains(&found), "{kind}: {found}");
        let stat = work.run("stat s");
        assert_eq!(stat.code, 0, "{kind}: {stat:?}");
        assert!(stat.text().contains("damaged"), "{kind}: {stat:?}");
        assert_eq!(work.run("verify s").code, 1, "{kind}");
        // Other chunks can be updated, and all data can be replaced.
        let other = (0..100).find(|key| *key != 7 && work.run(&format!("get s {key}")).code == 0);
        work.write("c.csv", format!("k,v\n{},c\n", other.unwrap()));
        work.ok("update s c.csv");
        let replaced = work.ok("update s a.csv --mode replace").text().to_owned();
        assert!(replaced.contains(": 100 entries; "), "{kind}: {replaced}");
        assert_eq!(work.entries("s").len(), 100);
        work.ok("verify s");
    }
}

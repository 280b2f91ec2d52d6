//! `hashfold map`: keys that change one by one.

use crate::{
    filter::refused,
    support::{Outcome, Work, list},
};
use hashfold::map::{Map, MapOptions};
use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    thread::sleep,
    time::Duration,
};

#[track_caller]
fn check(outcome: &Outcome, code: i32, stdout: &str) {
    assert_eq!((outcome.code, outcome.text()), (code, stdout), "{outcome:?}");
}

#[test]
fn keys_are_put_found_and_deleted() {
    let work = Work::new();
    check(&work.ok("map create m --seed 7"), 0, "created m: empty map\n");
    check(&work.ok("map put m one 1"), 0, "put in m: key \"one\"\n");
    work.ok("map put m two -2");
    work.ok("map put m one 11");
    check(
        &work.ok("map get m one two"),
        0,
        "{\"key\":\"one\",\"value\":\"11\"}\n{\"key\":\"two\",\"value\":\"-2\"}\n",
    );
    check(&work.ok("get m one --format raw"), 0, "11");
    check(&work.run("get m three"), 1, "{\"key\":\"three\",\"found\":false}\n");
    let deleted = work.feed("map delete m -", b"one\nnine\n");
    assert!(deleted.text().starts_with("deleted from m: 1 key of 2 given; "), "{deleted:?}");
    check(&work.ok("map scan m"), 0, "{\"key\":\"two\",\"value\":\"-2\"}\n");
    check(&work.ok("scan m --format csv"), 0, "key,value\ntwo,-2\n");
    let outcome = work.ok("map verify m");
    assert!(outcome.text().ends_with("no damage\n"), "{outcome:?}");
    assert_eq!(work.ok("verify m").text(), outcome.text());
    assert_eq!(work.ok("map stat m").text(), work.ok("stat m").text());
    work.ok("map compact m");
    let json: serde_json::Value = serde_json::from_str(work.ok("stat m --json").text()).unwrap();
    assert_eq!((&json["entries_max"], &json["entries_are_exact"]), (&1.into(), &true.into()));
}

/// Copies the files of a folder.
fn copy_files(work: &Work, from: &str, to: &str) {
    fs::create_dir(work.path(to)).unwrap();
    for entry in fs::read_dir(work.path(from)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), work.path(to).join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_map_is_on_several_devices_which_may_move() {
    let work = Work::new();
    let made = work.ok("map create m --device b --device disks/c");
    check(&made, 0, "created m: empty map on 3 devices\n");
    // Three stripes and more.
    let large = "x".repeat(120_000);
    for i in 0..30 {
        work.ok(&format!("map put m {i} {large}"));
    }
    check(&work.ok("get m 29 --format raw"), 0, &large);
    let stat = work.ok("stat m");
    let is_device = |line: &&str| line.starts_with("device 2 ") && line.ends_with("/disks/c");
    assert!(stat.text().lines().any(|line| is_device(&line)), "{stat:?}");
    let json: serde_json::Value = serde_json::from_str(work.ok("stat m --json").text()).unwrap();
    let sizes = json["devices"].as_array().unwrap().iter().map(|it| it["data_bytes"].as_u64());
    assert!(sizes.clone().all(|size| size > Some(900_000)), "{json}");
    fs::rename(work.path("disks/c"), work.path("elsewhere")).unwrap();
    let missing = work.run("get m 29");
    assert_eq!(missing.code, 4, "{missing:?}");
    assert!(missing.stderr.contains("the folder of device 2 of the map is missing"), "{missing:?}");
    assert!(missing.stderr.contains("`--device DIR` for each"), "{missing:?}");
    assert_eq!(work.run("map compact m --device b").code, 2);
    work.ok("map compact m --device b --device elsewhere");
    check(&work.ok("get m 29 --format raw"), 0, &large);
    assert!(work.ok("map verify m").text().ends_with("no damage\n"));
    work.ok("map backup m copy");
    check(&work.ok("get copy 3 --format raw"), 0, &large);
    copy_files(&work, "m", "twin");
    check(&work.ok("get twin 3 --format raw"), 0, &large);
    work.ok(&format!("map put m 30 {large}"));
    let older = work.run("map put twin 30 small");
    assert_eq!(older.code, 4, "{older:?}");
    assert!(older.stderr.contains("twin: this folder and its device "), "{older:?}");
    check(&work.ok("get m 30 --format raw"), 0, &large);
    fs::remove_file(work.path("elsewhere/map-data")).unwrap();
    let salvaged = work.run("map salvage m left");
    assert_eq!(salvaged.code, 1, "{salvaged:?}");
    assert!(salvaged.text().contains("elsewhere/map-data: the data file of the map is missing"));
    let left = work.ok("map scan left --format csv").text().lines().count();
    assert!(left > 5 && left < 31, "{left}");
}

#[test]
fn an_entry_that_expires_is_absent_from_then_on() {
    let work = Work::new();
    work.ok("map create m");
    work.ok("map put m gone 1");
    check(&work.ok("map put m gone 2 --expires-in 0s"), 0, "put in m: key \"gone\"\n");
    check(&work.run("map get m gone"), 1, "{\"key\":\"gone\",\"found\":false}\n");
    work.ok("map put m later 1 --expires-in 100000d");
    check(&work.ok("map scan m --format csv"), 0, "key,value\nlater,1\n");
    work.ok("map backup m copy");
    check(&work.ok("map export copy --format csv"), 0, "key,value\nlater,1\n");
    work.ok("map put m gone 3");
    check(&work.ok("map get m gone --format raw"), 0, "3");
    assert_eq!(work.run("map put m x 1 --expires-in soon").code, 2);
}

#[test]
fn a_copy_has_large_values_and_what_was_there_when_it_was_made() {
    let work = Work::new();
    let large = "x".repeat(30_000);
    work.ok("map create m");
    work.ok(&format!("map put m large {large}"));
    work.ok("map put m small 1");
    check(&work.ok("map backup m copy"), 0, "backed up m to copy\n");
    work.ok("map put m small 2");
    check(&work.ok("get copy large --format raw"), 0, &large);
    check(&work.ok("get copy small --format raw"), 0, "1");
    assert!(work.ok("map verify copy").text().ends_with("no damage\n"));
    assert_eq!(work.run("map backup m copy").code, 2);
}

#[test]
fn a_map_is_exported_as_versions_of_a_store() {
    let work = Work::new();
    work.write("a.csv", "id,name\n1,anna\n2,ben\n3,cleo\n");
    work.ok("map import m a.csv --key id --seed 7");
    let first = work.ok("map export m --store s");
    assert!(
        first.text().starts_with("exported to s: version 1, published: 3 entries"),
        "{first:?}"
    );
    check(&work.ok("get s 2"), 0, "{\"id\":\"2\",\"name\":\"ben\"}\n");
    work.write("b.csv", "id,name\n4,dora\n");
    work.ok("map import m b.csv");
    work.ok("map delete m 2");
    let second = work.ok("map export m --store s --json");
    let last = second.text().lines().last().unwrap();
    let json: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!((&json["event"], &json["version"]), (&"exported".into(), &2.into()), "{json}");
    assert_eq!((&json["rows"], &json["published"]), (&3.into(), &true.into()), "{json}");
    assert_eq!(work.run("get s 2").code, 1);
    assert_eq!(work.ok("get s 2 --version 1").code, 0);
    let stat = work.ok("stat s");
    let is_seed = |line: &str| line.starts_with("seed ") && line.ends_with(" 7");
    assert!(stat.text().lines().any(is_seed), "{stat:?}");
    work.ok("map delete m 1 3");
    let gate = work.run("map export m --store s");
    assert_eq!((gate.code, work.ok("get s 1").code), (1, 0), "{gate:?}");
    work.ok("map export m --store s --allow-empty");
    assert_eq!(work.run("get s 1").code, 1);
}

#[test]
fn an_export_to_a_store_is_refused_if_the_columns_or_the_options_do_not_fit() {
    let work = Work::new();
    work.write("a.csv", "id,name\n1,anna\n");
    work.write("b.csv", "id,colour\n1,red\n");
    work.ok("map import m a.csv --key id");
    work.ok("map import other b.csv --key id");
    work.ok("map export m --store s");
    let refusal = work.run("map export other --store s");
    assert!(
        refusal.code == 2 && refusal.stderr.contains("the store has the columns"),
        "{refusal:?}"
    );
    for options in ["--no-publish", "--json", "--store s --format csv", "--store s --limit 1"] {
        assert_eq!(work.run(&format!("map export m {options}")).code, 2, "{options}");
    }
    assert_eq!(work.run("map export m --store other").code, 2);
    assert_eq!(work.run("map export s --store t").code, 2);
    assert!(!work.path("t").exists());
}

#[test]
fn what_a_damaged_map_holds_is_written_to_a_new_one() {
    let work = Work::new();
    work.write("a.csv", "id,name\n1,anna\n2,ben\n");
    work.ok("map import m a.csv --key id");
    work.ok("map delete m 1");
    check(&work.ok("map salvage m whole"), 0, "salvaged m to whole: 1 entry\n");
    check(&work.ok("get whole 2"), 0, "{\"id\":\"2\",\"name\":\"ben\"}\n");
    let exists =
        "whole: there is a map here already; change it with `hashfold map put` or `import`";
    refused(&work, "map salvage m whole", 2, exists);
    refused(
        &work,
        "map salvage n new",
        2,
        "n: there is no map here; make one with `hashfold map create` or `import`",
    );
    let names = fs::read_dir(work.path("m")).unwrap().map(|entry| entry.unwrap().path());
    let is_catalog = |path: &PathBuf| path.to_string_lossy().contains("catalog-");
    let catalog = { names }.find(is_catalog).unwrap();
    fs::write(catalog, [0; 4096]).unwrap();
    let verified = work.run("map verify m");
    assert!(
        verified.code == 1 && verified.stderr.contains("`hashfold map salvage`"),
        "{verified:?}"
    );
    let salvaged = work.run("map salvage m new");
    assert_eq!(salvaged.code, 1, "{salvaged:?}");
    assert!(salvaged.text().contains("deleted entries may have come back"), "{salvaged:?}");
    assert!(salvaged.text().ends_with("salvaged m to new: 1 entry\n"), "{salvaged:?}");
    assert!(salvaged.stderr.contains("m: 1 problem found; new has all that could be read"));
    check(&work.ok("get new 2"), 0, "{\"id\":\"2\",\"name\":\"ben\"}\n");
    assert!(work.ok("map verify new").text().ends_with("no damage\n"));
    let json = work.run("map salvage m other --json");
    let last = json.text().lines().last().unwrap();
    let last: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["event"], &last["entries"]), (&"salvaged".into(), &1.into()));
    let device = &serde_json::from_str::<serde_json::Value>(work.ok("stat other --json").text());
    let device = &device.as_ref().unwrap()["device"];
    let part = |name: &str| device[name].as_u64().unwrap();
    let parts = ["used_bytes", "free_bytes", "log_bytes", "catalog_bytes"].map(part);
    assert_eq!(parts.iter().sum::<u64>(), part("bytes"));
    assert!(part("used_bytes") >= 8192 && part("catalog_bytes") > 0);
}

#[test]
fn rows_keep_their_columns_from_import_to_export() {
    let work = Work::new();
    work.write("a.csv", "id,name,size\n1,anna,3\n2,ben,4\n");
    work.write("b.csv", "id,name,size\n2,bea,5\n3,cleo,6\n");
    work.write("c.csv", "id,colour\n4,red\n");
    let imported = work.ok("map import m a.csv --key id --infer");
    assert!(imported.text().starts_with("imported into m: 2 rows; "), "{imported:?}");
    work.ok("map import m b.csv");
    let row = "{\"id\":\"2\",\"name\":\"bea\",\"size\":5}\n";
    check(&work.ok("map get m 2"), 0, row);
    let refusal = work.run("map import m c.csv");
    assert!(refusal.code == 3 && refusal.stderr.contains("the map"), "{refusal:?}");
    work.write("d.csv", "id,name\n4,dora\n");
    work.ok("map import m d.csv --schema fill");
    let filled = "{\"id\":\"4\",\"name\":\"dora\",\"size\":null}\n";
    check(&work.ok("get m 4"), 0, filled);
    assert_eq!(work.run("map import m c.csv --schema extend").code, 2);
    work.ok("map delete m 4");
    let put = work.run("map put m 4 x");
    assert!(put.code == 2 && put.stderr.contains("use `hashfold map import`"), "{put:?}");
    let exported = work.ok("map export m --format raw");
    let copied = work.feed("map import copy - --format raw", &exported.stdout);
    assert_eq!(copied.code, 0, "{copied:?}");
    let sorted = |folder: &str| {
        let mut lines: Vec<_> =
            work.ok(&format!("map scan {folder}")).text().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted("copy"), sorted("m"));
    assert_eq!(sorted("m").len(), 3);
    // A table is built from a map, and a store updated.
    work.write("m.raw", &exported.stdout);
    work.ok("build m.raw --out t");
    check(&work.ok("get t 2"), 0, row);
}

#[test]
fn misuse_is_explained() {
    let work = Work::new();
    work.ok("map create m");
    let exists = "m: there is a map here already; change it with `hashfold map put` or `import`";
    refused(&work, "map create m", 2, exists);
    let absent = "there is no map here; make one with `hashfold map create` or `import`";
    refused(&work, "map put n k v", 2, &format!("n: {absent}"));
    refused(&work, "map stat n", 2, &format!("n: {absent}"));
    let store = "m: is a map, expected a store; `hashfold map import` puts rows";
    work.write("a.csv", "k,v\n1,2\n");
    refused(&work, "update m a.csv --key k", 2, store);
    refused(&work, "delete m 1", 2, "m: is a map; `hashfold map delete` deletes keys");
    let filter = "m: is a map, expected a filter; use `hashfold map`";
    refused(&work, "filter stat m", 2, filter);
    fs::create_dir(work.path("other")).unwrap();
    work.write("other/file", "");
    let other = "other: is no map, and not empty: it has \"file\"; name another folder";
    refused(&work, "map create other", 2, other);
    let long = format!("map put m {} v", "x".repeat(1025));
    let key = format!("\"{}...\"", "x".repeat(80));
    let message = format!("m: key {key}: key size in bytes is 1025, the largest accepted is 1024");
    refused(&work, &long, 3, &message);
    let versions = work.run("get m k --version 1");
    assert_eq!(versions.code, 2, "{versions:?}");
    assert!(versions.stderr.contains("m: is a map, which has no versions"), "{versions:?}");
    let help = work.ok("map get --help");
    assert!(help.text().contains("Usage: hashfold map get [OPTIONS] <DIR> <KEY>..."), "{help:?}");
    assert!(!help.text().contains("--version"), "{help:?}");
    let damaged = work.path("m/map-data");
    fs::write(damaged, [0; 4096]).unwrap();
    let verified = work.run("map verify m");
    assert!(verified.code == 1 && verified.stderr.contains("1 problem found"), "{verified:?}");
}

/// Each put left a segment of the log, of 1 MiB.
#[test]
fn puts_one_by_one_leave_no_log() {
    let work = Work::new();
    work.ok("map create m");
    for i in 0..20 {
        work.ok(&format!("map put m key{i} {i}"));
    }
    let mut names = list(&work.path("m"));
    names.sort();
    assert!(names.len() == 3 && !names.iter().any(|name| name.starts_with("wal-")), "{names:?}");
    check(&work.ok("map get m key7 --format raw"), 0, "7");
}

#[test]
fn a_key_that_is_given_twice_is_deleted_once() {
    let work = Work::new();
    work.ok("map create m");
    work.ok("map put m ada 1");
    work.ok("map put m ben 2");
    let deleted = work.ok("map delete m ada ada ben ada");
    assert!(deleted.text().starts_with("deleted from m: 2 keys of 4 given; "), "{deleted:?}");
}

#[test]
fn a_row_with_a_key_that_is_too_long_for_a_map_is_a_bad_row() {
    let work = Work::new();
    let long = "x".repeat(1025);
    work.write("a.csv", format!("id,name\n1,anna\n{long},ben\n3,cleo\n"));
    let refusal = work.run("map import m a.csv --key id");
    assert_eq!(refusal.code, 3, "{refusal:?}");
    let message = "the key is 1025 bytes long, the longest accepted is 1024";
    assert!(refusal.stderr.contains("a.csv:3"), "{refusal:?}");
    assert!(refusal.stderr.contains(message), "{refusal:?}");
    let skipped = work.ok("map import m a.csv --key id --bad-rows skip --max-bad-rows 1");
    let start = "imported into m: 2 rows, 1 bad row skipped; ";
    assert!(skipped.text().starts_with(start), "{skipped:?}");
    // Other data sets take longer keys.
    assert_eq!(work.run("build a.csv --key id --out t").code, 0);
}

/// The columns of a map stay for ever: those of a file whose first row was bad did, too.
#[test]
fn an_import_without_a_row_makes_no_map() {
    let work = Work::new();
    work.write("a.csv", "id,nam\n1,2,3,4\n");
    let failed = work.run("map import m a.csv --key id");
    assert!(failed.code == 3 && !work.path("m").exists(), "{failed:?}");
    work.write("a.csv", "id,name\n1,anna\n");
    work.ok("map import m a.csv --key id");
    check(&work.ok("map get m 1"), 0, "{\"id\":\"1\",\"name\":\"anna\"}\n");
    // There is no bad row in input without rows.
    work.write("none.csv", "id,name\n");
    work.ok("map import empty none.csv --key id");
    assert_eq!(work.ok("map scan empty --format csv").text(), "id,name\n");
}

#[test]
fn a_map_that_is_open_elsewhere_is_busy_and_can_be_waited_for() {
    let work = Work::new();
    work.write("a.csv", "id,name\n1,anna\n");
    work.ok("map import m a.csv --key id");
    let map = Map::open_with(work.path("m"), MapOptions::new()).unwrap();
    let busy = "m: another process, perhaps a server, has the map open; one process has a map open at a time, \
                also for reading";
    for verb in [
        "map get m 1",
        "get m 1",
        "map scan m",
        "scan m",
        "map stat m",
        "stat m",
        "map verify m",
        "verify m",
        "map delete m 1",
        "map export m",
        "map backup m copy",
        "map salvage m copy",
    ] {
        refused(&work, verb, 6, &format!("{busy}; --wait TIME waits for it"));
    }
    refused(&work, "get m 1 --wait 1", 6, &format!("{busy} (waited for 1 s)"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| work.ok("map get m 1 --wait 100"));
        sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        drop(map);
        waiting.join().unwrap();
    });
}

#[test]
fn a_damaged_block_of_a_map_leads_to_the_verb_that_saves_the_rest() {
    let work = Work::new();
    work.write("a.csv", "id,name\n1,anna\n");
    work.ok("map import m a.csv --key id");
    let data = work.path("m/map-data");
    let size = fs::metadata(&data).unwrap().len();
    fs::write(&data, vec![1; size as usize]).unwrap();
    for verb in ["map get m 1", "map export m", "map export m --store s", "map backup m copy"] {
        let damaged = work.run(verb);
        assert_eq!(damaged.code, 4, "{verb}: {damaged:?}");
        let hint = "; `hashfold map salvage` writes what is left of the map to a new one\n";
        assert!(damaged.stderr.ends_with(hint), "{verb}: {damaged:?}");
    }
}

#[test]
fn the_help_of_a_verb_says_what_is_true_of_maps() {
    let work = Work::new();
    let help = |verb: &str| {
        let text = work.ok(&format!("map {verb} --help")).text().to_owned();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for verb in ["get", "scan", "export"] {
        let help = help(verb);
        assert!(help.contains("<DIR> Folder of the map"), "{verb}: {help}");
        assert!(!help.contains("Folder of the table"), "{verb}: {help}");
    }
    let import = help("import");
    assert!(import.contains("--schema <strict|fill>") && !import.contains("extend"), "{import}");
    assert!(import.contains("of a new map on several devices"), "{import}");
    assert!(import.contains("Needed unless the store or map has it"), "{import}");
    assert!(!help("put").contains("of a new map on several"));
    wrong_usage(&work, "map import m a.csv --schema extend", "expected strict or fill");
    wrong_usage(&work, "map put m k v --expires-in 5x", "a unit: ms, s, m, h or d");
}

#[track_caller]
fn wrong_usage(work: &Work, line: &str, message: &str) {
    let outcome = work.run(line);
    assert!(outcome.code == 2 && outcome.stderr.contains(message), "{line}: {outcome:?}");
}

#[test]
fn a_check_counts_the_changes_in_the_log() {
    let work = Work::new();
    let map = Map::create(work.path("m"), MapOptions::new()).unwrap();
    map.put("ada", "1").unwrap();
    map.put("ben", "2").unwrap();
    drop(map);
    let text =
        "verified m: 0 entries and 0 changes in 0 blocks, and 2 changes in the log, no damage\n";
    check(&work.ok("map verify m"), 0, text);
    let json = work.ok("map verify m --json");
    let last: serde_json::Value =
        serde_json::from_str(json.text().lines().last().unwrap()).unwrap();
    assert_eq!((&last["logged"], &last["blocks"]), (&2.into(), &0.into()));
}

/// Returns the sequence number of a map: the number of its changes.
#[track_caller]
fn seq(work: &Work, map: &str) -> u64 {
    let stat = work.ok(&format!("map stat {map} --json"));
    let stat: serde_json::Value = serde_json::from_str(stat.text()).unwrap();
    stat["seq"].as_u64().unwrap()
}

/// Imports one row, so that later ones are put as they are read. Returns the sequence number of the map.
#[track_caller]
fn import_one(work: &Work) -> u64 {
    work.write("one.csv", "id,name\none,name\n");
    work.ok("map import m one.csv --key id");
    seq(work, "m")
}

#[test]
fn an_import_that_fails_says_how_many_rows_it_has_put() {
    let work = Work::new();
    let rows: String = (0..200_000).map(|i| format!("{i},name of {i}\n")).collect();
    work.write("a.csv", format!("id,name\n{rows}1,2,3,4\n"));
    let before = import_one(&work);
    let failed = work.run("map import m a.csv --key id");
    let put = seq(&work, "m") - before;
    assert!(put > 0 && failed.code == 3, "{put}: {failed:?}");
    let end = format!("; {put} rows were put before that\n");
    assert!(failed.stderr.replace(',', "").ends_with(&end), "{put}: {failed:?}");
}

#[test]
fn rows_for_a_map_without_entries_are_loaded_at_once_also_those_before_a_bad_row() {
    let work = Work::new();
    let rows: String = (0..200_000).map(|i| format!("{i},name of {i}\n")).collect();
    // The last row of a key counts.
    work.write("a.csv", format!("id,name\n{rows}7,seven\n"));
    let imported = work.ok("map import m a.csv --key id --memory 8MiB");
    assert!(imported.text().starts_with("imported into m: 200,001 rows; "), "{imported:?}");
    assert_eq!((seq(&work, "m"), list(&work.path("m")).len()), (1, 3));
    check(&work.ok("map get m 7"), 0, "{\"id\":\"7\",\"name\":\"seven\"}\n");
    let verified = work.ok("map verify m");
    assert!(verified.text().starts_with("verified m: 200,000 entries and 0 changes in "));
    work.write("b.csv", format!("id,name\n{rows}1,2,3,4\n"));
    let failed = work.run("map import n b.csv --key id");
    let stat = work.ok("map stat n --json");
    let stat: serde_json::Value = serde_json::from_str(stat.text()).unwrap();
    let put = stat["entries_max"].as_u64().unwrap();
    assert!(put > 0 && failed.code == 3 && seq(&work, "n") == 1, "{put}: {failed:?}");
    let end = format!("; {put} rows were put before that\n");
    assert!(failed.stderr.replace(',', "").ends_with(&end), "{put}: {failed:?}");
}

/// Starts a command that reads standard input, and feeds it.
fn start(work: &Work, line: &str, input: &[u8]) -> (Child, ChildStdin) {
    let mut command = work.command(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    (child, stdin)
}

/// Waits until the map `m` has a log: changes were made. Then stops the command as Ctrl-C does, and returns
/// its standard error.
fn stop_when_changed(work: &Work, child: Child) -> String {
    while !list(&work.path("m")).iter().any(|name| name.starts_with("wal-")) {
        sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_import_that_is_stopped_says_how_many_rows_it_has_put() {
    let work = Work::new();
    let rows: String = (0..200_000).map(|i| format!("{i},name of {i}\n")).collect();
    let input = format!("id,name\n{rows}");
    let before = import_one(&work);
    let (child, stdin) = start(&work, "map import m - --format csv --key id", input.as_bytes());
    let stderr = stop_when_changed(&work, child);
    let put = seq(&work, "m") - before;
    let end = format!("hashfold: stopped; {put} rows were put before that\n");
    assert!(put > 0 && stderr.replace(',', "").ends_with(&end), "{put}: {stderr}");
    drop(stdin);
}

#[test]
fn a_deletion_that_is_stopped_says_how_many_keys_it_has_deleted_and_closes_the_map() {
    let work = Work::new();
    work.ok("map create m");
    ["a", "b", "c"].iter().for_each(|key| _ = work.ok(&format!("map put m {key} 1")));
    let (child, stdin) = start(&work, "map delete m -", b"a\nb\nx\n");
    let stderr = stop_when_changed(&work, child);
    let end = "hashfold: stopped; 2 keys were deleted before that\n";
    assert!(stderr.ends_with(end), "{stderr}");
    assert_eq!(work.ok("map scan m").text(), "{\"key\":\"c\",\"value\":\"1\"}\n");
    assert_eq!(list(&work.path("m")).len(), 3);
    drop(stdin);
}

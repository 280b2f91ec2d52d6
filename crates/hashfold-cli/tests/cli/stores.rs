//! Stores from version to version: publishing, rolling back, removing, verifying, and reading
//! meanwhile.

use crate::{
    support::{Work, list},
    update::copy_folder,
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    thread::sleep,
    time::Duration,
};

/// Returns a store `s` whose version N has N as the value of all its keys.
fn store(versions: u64) -> Work {
    let work = Work::new();
    for number in 1..=versions {
        let rows: String = (0..100).map(|key| format!("{key},{number}\n")).collect();
        work.write("a.csv", format!("k,v\n{rows}"));
        work.ok("update s a.csv --key k --mode merge");
    }
    work
}

#[track_caller]
fn check(work: &Work, line: &str, code: i32, stdout: &str, message: &str) {
    let outcome = work.run(line);
    assert_eq!(outcome.code, code, "{line}: {outcome:?}");
    assert_eq!(outcome.text(), stdout, "{line}: {outcome:?}");
    let stderr = if message.is_empty() { String::new() } else { format!("hashfold: {message}\n") };
    assert_eq!(outcome.stderr, stderr, "{line}");
}

/// Checks that the values of the current version are its number.
#[track_caller]
fn check_current(work: &Work, number: u64) {
    check(work, "get s 7 --format raw", 0, &number.to_string(), "");
}

fn json(work: &Work, line: &str) -> Vec<Value> {
    work.ok(line).text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_new_store_has_16_chunks_and_a_small_one_has_one_table() {
    let work = store(1);
    let tables = || fs::read_dir(work.path("s/tables")).unwrap().count();
    assert_eq!((&json(&work, "versions s --json")[0]["chunks"], tables()), (&16.into(), 1));
    work.write("a.csv", "k,v\n7,new\n8,new\n9,new\n").ok("update s a.csv --mode delta");
    assert_eq!(tables(), 2);
    work.ok("merge s");
    assert_eq!(tables(), 3);
}

#[test]
fn a_version_that_was_rolled_back_is_published_only_by_force() {
    let work = store(3);
    check_current(&work, 3);
    let rolled = "rolled s back: version 2 is current again, version 3 is marked bad\n";
    check(&work, "rollback s", 0, rolled, "");
    check_current(&work, 2);
    let bad =
        "s: version 3 is marked bad: it was rolled back, or failed a gate; publish it with --force";
    check(&work, "publish s", 1, "", bad);
    check(&work, "publish s 3", 1, "", bad);
    check_current(&work, 2);
    // The version stays bad if it fails a gate.
    assert_eq!(work.run("publish s --force --min-entries 1000").code, 1);
    check(&work, "publish s 3", 1, "", bad);
    work.ok("publish s --force");
    check_current(&work, 3);
    work.ok("publish s 1");
    check_current(&work, 1);
    work.ok("rollback s");
    check_current(&work, 3);
    work.ok("rollback s");
    check_current(&work, 2);
    let none = "s: there is no version to roll back to: no version with other entries was current \
                before, or those are marked bad; see `hashfold versions`";
    check(&work, "rollback s", 1, "", none);
    let absent = "s: there is no version 9; `hashfold versions` lists all versions";
    for line in ["publish s 9", "pin s 9", "get s 1 --version 9", "diff s 9 --out d"] {
        check(&work, line, 2, "", absent);
    }
    assert_eq!(list(&work.path("")).len(), 2);
}

#[test]
fn a_dry_run_of_publishing_only_compares() {
    let work = store(1);
    work.write("b.csv", "k,v\n7,2\n");
    work.ok("update s b.csv --mode replace --no-publish --allow-empty");
    check_current(&work, 1);
    let text = work.ok("publish s --dry-run --sample 10 --allow-empty").text().to_owned();
    let start = "compared s: version 2, not published: 1 entry: 0 added, 1 changed, 99 removed, \
                 0 unchanged; ";
    assert!(text.starts_with(start) && text.contains("of 10 keys in the sample "), "{text}");
    check_current(&work, 1);
    assert_eq!(work.run("publish s --dry-run --max-change 0.5").code, 1);
    work.ok("publish s --json --allow-empty");
    check_current(&work, 2);
}

#[test]
fn versions_are_listed() {
    let work = store(2);
    work.ok("update s a.csv --mode delta --no-publish");
    work.ok("rollback s");
    work.ok("pin s 2");
    let text = work.ok("versions s").text().to_owned();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split("  ").collect()).collect();
    let words = |i: usize| -> Vec<&str> {
        lines[i].iter().map(|word| word.trim()).filter(|word| !word.is_empty()).collect()
    };
    assert_eq!(
        words(0),
        ["number", "state", "entries", "chunks", "deltas", "size", "created", "parent"]
    );
    assert_eq!(words(1)[..5], ["1", "current", "100", "16", "0"]);
    assert_eq!(words(2)[..5], ["2", "rolled back, pinned", "100", "16", "0"]);
    assert_eq!(words(3)[..5], ["3", "unpublished", "100 to 200", "16", "1"]);
    assert_eq!(words(3)[7], "2");
    let versions = json(&work, "versions s --json");
    assert_eq!(versions.len(), 3);
    assert_eq!(versions[1]["changes"]["changed"], 100);
    assert!(versions[2]["created"].as_str().unwrap().starts_with("20"));
}

#[test]
fn stat_says_which_version() {
    let work = store(2);
    let text = work.ok("stat s").text().to_owned();
    assert!(text.starts_with("version      2, current, made 20"), "{text}");
    assert!(text.ends_with("columns      k, v text\n"), "{text}");
    let first = &json(&work, "stat s --version 1 --json")[0];
    assert_eq!((&first["number"], &first["state"]), (&1.into(), &"published".into()));
    assert_eq!(first["schema"]["key"], "k");
    check(&work, "get s 7 --version 1", 0, "{\"k\":\"7\",\"v\":\"1\"}\n", "");
    assert_eq!(work.ok("scan s --version 1 --limit 3").text().lines().count(), 3);
    assert_eq!(work.ok("scan s --format csv").text().lines().count(), 101);
}

#[test]
fn merging_folds_deltas_and_changes_no_entry() {
    let work = store(1);
    for value in ["2", "3"] {
        work.write("b.csv", format!("k,v\n7,{value}\nx,2\n")).ok("update s b.csv --mode delta");
    }
    let before = work.entries("s");
    let merged = &json(&work, "merge s --json")[0];
    assert_eq!((&merged["version"], &merged["deltas_merged"]), (&4.into(), &2.into()));
    assert_eq!(work.entries("s"), before);
    let nothing = "merged s: version 4 has no deltas; nothing was changed\n";
    check(&work, "merge s", 0, nothing, "");
}

/// Issue 12: a nightly job that ran twice needed two rollbacks, and `gc` removed the good version.
#[test]
fn a_batch_that_is_applied_twice_needs_one_rollback() {
    let work = store(1);
    work.write("b.csv", "k,v\n7,2\nx,2\n");
    for version in [2, 3] {
        let updated = work.ok("update s b.csv --mode delta");
        assert!(updated.text().starts_with(&format!("updated s: version {version}, published: ")));
    }
    work.ok("gc s --keep 1");
    assert!(work.ok("rollback s").text().contains("version 1 is current again"));
    check(&work, "get s 7", 0, "{\"k\":\"7\",\"v\":\"1\"}\n", "");
}

#[test]
fn unneeded_versions_are_removed() {
    let work = store(5);
    work.ok("update s a.csv --mode merge --no-publish");
    work.ok("pin s 1");
    let young = work.ok("gc s --keep 0 --min-age 1h").text().to_owned();
    assert!(young.contains("kept version 2: it is young\n"), "{young}");
    let text = work.ok("gc s --rate 1GB").text().to_owned();
    let expected = "removed version 2\nremoved version 3\nkept version 1: it is pinned\n\
                    kept version 4: it is one of the newest\nkept version 5: it is current\n\
                    kept version 6: it was never published, and is younger than --unpublished-age\n\
                    collected s: removed 2 versions and 2 tables, ";
    assert!(text.starts_with(expected), "{text}");
    let released = "released version 1 of s: `hashfold gc` may remove it\n";
    check(&work, "pin s 1 --release", 0, released, "");
    // No device has this much free space.
    let removed = &json(&work, "gc s --unpublished-age 0s --keep 9 --free 1000TiB --json")[0];
    assert_eq!(removed["removed"].to_string(), "[6,1]");
    assert_eq!(list(&work.path("s/tables")).len(), 2);
    check_current(&work, 5);
    work.ok("rollback s");
    check_current(&work, 4);
}

#[test]
fn damage_is_named_and_mended_from_another_copy() {
    let work = store(2);
    copy_folder(&work.path("s"), &work.path("copy"));
    let verified = work.ok("verify s").text().to_owned();
    assert!(verified.starts_with("verified s: version 2: "), "{verified}");
    let tables = work.path("s/tables");
    let version = &json(&work, "versions s --json")[1];
    assert_eq!(version["number"], 2);
    // The table of the current version is the one that version 1 does not share.
    let damaged = list(&tables).into_iter().find_map(|table| {
        let name = list(&tables.join(&table)).into_iter().find(|name| name.starts_with("data"))?;
        let path = tables.join(&table).join(&name);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[5000] ^= 1;
        fs::write(&path, bad).unwrap();
        let outcome = work.run("verify s");
        if outcome.code == 0 {
            fs::write(&path, good).unwrap();
            return None;
        }
        assert_eq!(outcome.code, 1, "{outcome:?}");
        let start = format!("s/tables/{table}/{name} at byte 4096: BLAKE3 of a piece is ");
        assert!(outcome.text().starts_with(&start), "{outcome:?}");
        Some(path)
    });
    assert!(damaged.is_some());
    assert_eq!(work.run("verify s --all").code, 1);
    assert_eq!(work.run("verify s --version 1").code, 0);
    let found =
        serde_json::from_str::<Value>(work.run("verify s --json").text().lines().next().unwrap());
    assert_eq!(found.unwrap()["event"], "problem");
    let mended = work.ok("verify s --repair-from copy").text().to_owned();
    assert!(mended.contains("1 piece repaired"), "{mended}");
    work.ok("verify s --all");
    assert_eq!(work.ok("scan s").stdout, work.ok("scan copy").stdout);
    fs::write(work.path("s/CURRENT"), "nothing of the kind").unwrap();
    assert_eq!(work.run("verify s").code, 1);
    assert_eq!(work.run("get s 7").code, 4);
}

/// Starts a command that waits for more input.
fn start(work: &Work, line: &str) -> (Child, ChildStdin) {
    let mut command = work.command(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

#[test]
fn get_answers_at_once_and_follows_the_current_version() {
    let work = store(1);
    let (mut child, mut stdin) = start(&work, "get s --keys -");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |key: &str| {
        writeln!(stdin, "{key}").unwrap();
        lines.next().unwrap().unwrap()
    };
    assert_eq!(ask("7"), r#"{"k":"7","v":"1"}"#);
    work.write("b.csv", "k,v\n7,2\n");
    work.ok("update s b.csv");
    sleep(Duration::from_millis(250));
    assert_eq!(ask("7"), r#"{"k":"7","v":"2"}"#);
    assert_eq!(ask("8"), r#"{"k":"8","v":"1"}"#);
    work.ok("rollback s");
    sleep(Duration::from_millis(250));
    assert_eq!(ask("7"), r#"{"k":"7","v":"1"}"#);
    // The columns may change, too.
    work.write("c.csv", "k,v,w\n7,3,new\n");
    work.ok("update s c.csv --schema extend");
    sleep(Duration::from_millis(250));
    assert_eq!(ask("7"), r#"{"k":"7","v":"3","w":"new"}"#);
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn versions_that_are_read_stay() {
    let work = store(1);
    let (mut child, mut stdin) = start(&work, "get s --keys - --version 1");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(stdin, "7").unwrap();
    lines.next().unwrap().unwrap();
    work.ok("update s a.csv --mode merge");
    let kept = json(&work, "gc s --keep 0 --json")[0]["kept"].to_string();
    let expected =
        r#"[{"number":1,"why":"a reader has it open"},{"number":2,"why":"it is current"}]"#;
    assert_eq!(kept, expected);
    drop(stdin);
    assert!(child.wait().unwrap().success());
    let removed = &json(&work, "gc s --keep 0 --json")[0];
    assert_eq!((&removed["removed"].to_string()[..], &removed["tables"]), ("[1]", &1.into()));
}

/// Starts an update that waits for more rows.
fn start_update(work: &Work) -> (Child, ChildStdin) {
    let (child, mut stdin) = start(work, "update s - --format csv --key k");
    // More rows than the command reads at once.
    let rows = "7,some value\n".repeat(200_000);
    stdin.write_all(format!("k,v\n{rows}").as_bytes()).unwrap();
    (child, stdin)
}

/// Standard error of a command that Ctrl-C stopped.
pub(crate) const STOPPED: &str = "hashfold: stopping; Ctrl-C again ends at once\n\
                                  hashfold: stopped; nothing was changed\n";

fn interrupt(child: Child) {
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, STOPPED);
}

#[test]
fn of_two_writers_the_first_goes_on_and_ctrl_c_leaves_the_old_version() {
    let work = store(1);
    let tables = list(&work.path("s/tables"));
    let (child, stdin) = start_update(&work);
    let busy = loop {
        let outcome = work.run("pin s 1");
        if outcome.code != 0 {
            break outcome;
        }
        sleep(Duration::from_millis(5));
    };
    assert_eq!(busy.code, 6, "{busy:?}");
    assert!(busy.stderr.contains("another writer has it open"), "{busy:?}");
    assert_eq!(work.run("update s a.csv").code, 6);
    check_current(&work, 1);
    interrupt(child);
    drop(stdin);
    check_current(&work, 1);
    assert_eq!(list(&work.path("s/versions")), ["0000000001"]);
    assert_eq!(list(&work.path("s/tables")), tables);
}

#[test]
fn a_first_update_that_is_stopped_leaves_nothing() {
    let work = Work::new();
    let (child, stdin) = start_update(&work);
    while !work.path("s/CURRENT").exists() {
        sleep(Duration::from_millis(5));
    }
    interrupt(child);
    drop(stdin);
    assert_eq!(list(&work.path("s")), [""; 0]);
}

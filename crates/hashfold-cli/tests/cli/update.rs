//! `update`: batches, deletions, deltas, gates, dry runs, and refused calls.

use crate::support::{Work, arrow_file, list, parquet_file, raw};
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use serde_json::Value;
use std::{fs, path::Path, sync::Arc};

/// Returns a store `s` of three entries, with one version.
fn store(options: &str) -> Work {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n2,b\n3,c\n");
    work.ok(&format!("update s a.csv --key k {options}"));
    work
}

fn line(key: &str, value: &str) -> String {
    format!(r#"{{"k":"{key}","v":"{value}"}}"#)
}

#[track_caller]
fn check(work: &Work, entries: &[(&str, &str)]) {
    let expected: Vec<_> = entries.iter().map(|(key, value)| line(key, value)).collect();
    assert_eq!(work.entries("s"), expected);
}

#[track_caller]
fn refused(work: &Work, line: &str, code: i32, message: &str) {
    let outcome = work.run(line);
    assert_eq!((outcome.code, outcome.stderr), (code, format!("hashfold: {message}\n")), "{line}");
}

/// Returns the last line of output, parsed as JSON.
#[track_caller]
fn json(work: &Work, line: &str) -> Value {
    serde_json::from_str(work.ok(line).text().lines().last().unwrap()).unwrap()
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in list(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        match from.is_dir() {
            true => copy_folder(&from, &to),
            false => assert!(fs::copy(from, to).is_ok()),
        }
    }
}

#[test]
fn batches_become_versions_in_every_mode() {
    for options in ["", "--chunks 4"] {
        let work = store(options);
        work.write("b.csv", "k,v\n2,B\n4,d\n").write("c.csv", "v,k\ne,5\n").write("d.csv", "k,v\n");
        let first = json(&work, "update s b.csv --mode merge --json");
        assert_eq!(first["version"], 2);
        assert_eq!((&first["entries_min"], &first["entries_max"]), (&4.into(), &4.into()));
        let changes = r#"{"added":1,"changed":1,"removed":0,"unchanged":2}"#;
        assert_eq!(first["changes"].to_string(), changes);
        check(&work, &[("1", "a"), ("2", "B"), ("3", "c"), ("4", "d")]);
        // Columns are found by name, and follow the store.
        let delta = json(&work, "update s c.csv --mode delta --json");
        assert_eq!((&delta["deltas"], &delta["changes"]), (&1.into(), &Value::Null));
        check(&work, &[("1", "a"), ("2", "B"), ("3", "c"), ("4", "d"), ("5", "e")]);
        assert_eq!(json(&work, "update s a.csv c.csv --mode replace --json")["entries_max"], 4);
        check(&work, &[("1", "a"), ("2", "b"), ("3", "c"), ("5", "e")]);
        work.ok("update s d.csv");
        check(&work, &[("1", "a"), ("2", "b"), ("3", "c"), ("5", "e")]);
        work.ok("update s d.csv --mode replace --allow-empty");
        check(&work, &[]);
    }
}

#[test]
fn the_summary_is_one_line() {
    let work = store("");
    let text = work.ok("update s a.csv --mode merge").text().to_owned();
    let start = "updated s: version 2, published: 3 entries: 0 added, 0 changed, 0 removed, \
                 3 unchanged; ";
    assert!(text.starts_with(start) && text.lines().count() == 1, "{text}");
}

#[test]
fn of_puts_and_deletions_of_a_key_the_last_one_counts() {
    for mode in ["merge", "delta"] {
        let work = store("");
        work.write("b.csv", "k,v,op\n2,,D\n4,d,I\n4,,D\n5,,D\n5,e,I\n3,c,x\n");
        work.ok(&format!("update s b.csv --delete-where op=D --mode {mode}"));
        check(&work, &[("1", "a"), ("3", "c"), ("5", "e")]);
        work.write("c.csv", "gone,k,v\ntrue,1,x\nno,3,C\nYES,5,\n");
        work.ok(&format!("update s c.csv --tombstone gone --mode {mode} --allow-empty"));
        check(&work, &[("3", "C")]);
        work.ok("merge s");
        check(&work, &[("3", "C")]);
    }
}

#[test]
fn deletions_are_known_in_every_format() {
    let key: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let value: ArrayRef = Arc::new(StringArray::from(vec![None, Some("B")]));
    let gone: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
    let rows = RecordBatch::try_from_iter([("k", key), ("gone", gone), ("v", value)]).unwrap();
    let work = store("");
    work.write("b.parquet", parquet_file(&rows)).write("b.arrow", arrow_file(&rows));
    for file in ["b.parquet", "b.arrow"] {
        work.ok(&format!("update s {file} --tombstone gone"));
        check(&work, &[("2", "B"), ("3", "c")]);
        work.ok("update s a.csv");
        work.ok(&format!("update s {file} --value v --delete-where k=1"));
        check(&work, &[("2", "B"), ("3", "c")]);
        work.ok("update s a.csv");
    }
    // The value is the whole object without the fields that only mark deletions.
    work.write("a.jsonl", "{\"k\":1,\"v\":[1],\"gone\":false}\n{\"k\":2,\"gone\":true}\n");
    work.ok("update o a.jsonl --key k --tombstone gone");
    assert_eq!(work.entries("o"), [r#"{"k":1,"v":[1]}"#]);
    work.write("b.jsonl", "{\"k\":1,\"op\":\"D\"}\n{\"k\":3,\"op\":null,\"w\":2}\n");
    work.ok("update o b.jsonl --delete-where op=D --allow-empty");
    assert_eq!(work.entries("o"), [r#"{"k":3,"w":2}"#]);
}

/// Issue 12: rows with other words than those for yes were kept without a word.
#[test]
fn a_tombstone_that_is_neither_yes_nor_no_is_a_bad_row() {
    let work = store("");
    let key: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let gone: ArrayRef = Arc::new(StringArray::from(vec!["Y", "deleted"]));
    let rows = RecordBatch::try_from_iter([("k", key), ("v", gone.clone()), ("gone", gone)]);
    work.write("b.parquet", parquet_file(&rows.unwrap()));
    work.write("b.csv", "k,v,gone\n1,a,Y\n2,b,deleted\n");
    work.write(
        "b.jsonl",
        "{\"k\":1,\"v\":1,\"gone\":true}\n{\"k\":2,\"v\":1,\"gone\":\"deleted\"}\n",
    );
    for (file, place) in [("b.parquet", "2:3"), ("b.csv", "3:5"), ("b.jsonl", "2:21")] {
        let message = format!(
            "{file}:{place}: \"deleted\" in the column of --tombstone is neither yes (true, t, yes, y, 1) \
             nor no (false, f, no, n, 0, null, or nothing)"
        );
        let line = format!("update s {file} --tombstone gone");
        refused(&work, &line, 3, &message);
        let skipping = work.ok(&format!("{line} --bad-rows skip --max-bad-rows 1"));
        assert!(skipping.text().contains("1 bad row skipped"), "{skipping:?}");
        check(&work, &[("2", "b"), ("3", "c")]);
        work.ok("update s a.csv");
    }
}

#[test]
fn raw_entries_make_stores_too() {
    let work = Work::new();
    work.write("a.raw", raw(&[(b"k", b"v")])).write("b.raw", raw(&[(b"l", b"w")]));
    work.ok("update s a.raw");
    work.ok("update s b.raw");
    let expected = [r#"{"key":"k","value":"v"}"#, r#"{"key":"l","value":"w"}"#];
    assert_eq!(work.entries("s"), expected);
    refused(
        &work,
        "update s a.raw --tombstone gone",
        2,
        "a.raw: raw input has no columns; none can say which keys are to be deleted",
    );
}

#[test]
fn all_batches_have_the_columns_of_the_first() {
    let work = store("--chunks 2 --seed 7");
    let before = work.entries("s");
    work.write("wide.csv", "k,v,w\n1,x,y\n").write("other.csv", "id,v\n1,a\n");
    work.write("b.raw", raw(&[(b"k", b"v")]));
    refused(
        &work,
        "update s wide.csv --value w",
        3,
        "wide.csv: has no column \"v\"; its columns are w; those of the store are k, v text; \
         --schema fill stores null in place of missing ones",
    );
    refused(
        &work,
        "update s other.csv",
        3,
        "other.csv: has no column \"k\"; its columns are id, v",
    );
    refused(
        &work,
        "update s other.csv --key id",
        3,
        "other.csv: has the key \"id\"; that of the store is \"k\"",
    );
    refused(
        &work,
        "update s b.raw",
        3,
        "b.raw: has keys and values without names; the columns of the store are k, v text",
    );
    refused(
        &work,
        "update s a.csv --chunks 3",
        2,
        "--chunks is 3, but the store has 2; `hashfold merge --chunks 3` rewrites it",
    );
    assert_eq!(work.run("update s a.csv --seed 8").code, 2);
    assert_eq!(work.entries("s"), before);
    assert_eq!(list(&work.path("s/versions")), ["0000000001"]);
    // Columns that are not named are ignored, and options may be repeated.
    work.ok("update s wide.csv --value v --chunks 2 --seed 7");
    check(&work, &[("1", "x"), ("2", "b"), ("3", "c")]);
}

#[test]
fn tables_and_stores_are_not_mixed_up() {
    let work = store("");
    work.ok("build a.csv --key k --out t");
    refused(
        &work,
        "build a.csv --key k --out s --replace",
        2,
        "s: is a store; `hashfold update` changes it",
    );
    refused(&work, "reindex s", 2, "s: is a store; it keeps the index that it was made with");
    let is_table = "t: is a table, which never changes, expected a store; `hashfold build` makes \
                    another table, `hashfold update` a store";
    for line in ["update t a.csv --key k", "merge t", "versions t", "publish t", "gc t"] {
        refused(&work, line, 2, is_table);
    }
    refused(&work, "get t 1 --version 1", 2, is_table);
    fs::create_dir(work.path("full")).unwrap();
    work.write("full/notes", "");
    refused(
        &work,
        "update full a.csv --key k",
        2,
        "full: is no store, and not empty: it has \"notes\"; name another folder",
    );
    for line in ["update s", "update s a.csv --delta d", "update s --delta d --tombstone v"] {
        assert_eq!(work.run(line).code, 2, "{line}");
    }
    for line in ["versions n", "merge n", "rollback n", "gc n", "update n --delta x"] {
        refused(&work, line, 2, "n: there is no data set here");
    }
}

#[test]
fn a_first_update_that_fails_leaves_nothing() {
    let work = Work::new();
    work.write("bad.csv", "k,v\n1,a\n2\n").write("a.csv", "k,v\n1,a\n");
    let failed = work.run("update s bad.csv --key k");
    assert_eq!(failed.code, 3, "{failed:?}");
    assert_eq!(list(&work.path("s")), [""; 0]);
    work.ok("update s a.csv --key k --dry-run");
    assert_eq!(list(&work.path("s")), [""; 0]);
    work.ok("update s a.csv --key k");
    let failed = work.run("update s bad.csv");
    assert_eq!(failed.code, 3, "{failed:?}");
    check(&work, &[("1", "a")]);
    assert_eq!(list(&work.path("s/tables")).len(), 1);
}

#[test]
fn a_version_that_does_not_pass_a_gate_is_kept_and_not_published() {
    let work = store("");
    work.write("b.csv", "k,v\n1,x\n2,y\n");
    let gates = "--min-entries 3 --max-change 10% --require-key 1 --require-key 3 --sample 100";
    let outcome = work.run(&format!("update s b.csv --mode replace {gates}"));
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert_eq!(outcome.stderr, "hashfold: s: version 2 is not published: 4 gates failed\n");
    let lines: Vec<_> = outcome.text().lines().collect();
    assert!(lines[0].contains("version 2, not published: 2 entries"), "{outcome:?}");
    assert_eq!(
        lines[1..],
        [
            "gate failed: entries: expected at least 3, got 2",
            "gate failed: fraction of the keys that changed: expected at most 0.1, got 1.000000",
            "gate failed: part of the sampled keys that changed: expected at most 0.1, got 1.000000",
            "gate failed: required key: expected \"3\", got no such key",
        ]
    );
    check(&work, &[("1", "a"), ("2", "b"), ("3", "c")]);
    // The changes of a delta are not counted: its entries count, and a sample is looked up.
    let outcome = work.run("update s b.csv --mode delta --max-change 10% --json");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let made: Value = serde_json::from_str(outcome.text().lines().last().unwrap()).unwrap();
    assert_eq!(made["sample"].to_string(), r#"{"keys":3,"removed":0,"changed":2}"#);
    // The next version is made from the current version, not from the refused one.
    assert_eq!(work.run("publish s 2").code, 1);
    let outcome = work.run("publish s 2 --min-entries 3 --force");
    assert_eq!((outcome.code, outcome.text().lines().count()), (1, 2), "{outcome:?}");
    work.ok("publish s 2 --min-entries 2 --force");
    check(&work, &[("1", "x"), ("2", "y")]);
    // A version that was current before can be published again, even if it fails gates.
    for number in [1, 2] {
        let outcome = work.run(&format!("publish s {number} --min-entries 9"));
        assert_eq!(outcome.code, 1, "{outcome:?}");
        assert!(outcome.stderr.contains("1 gate failed"), "{outcome:?}");
    }
    work.ok("rollback s");
    check(&work, &[("1", "a"), ("2", "b"), ("3", "c")]);
}

#[test]
fn a_dry_run_leaves_nothing() {
    let work = store("--chunks 2");
    work.write("b.csv", "k,v\n1,x\n");
    let names = || (list(&work.path("s/versions")), list(&work.path("s/tables")).len());
    let before = names();
    for mode in ["merge", "delta", "replace"] {
        let made =
            json(&work, &format!("update s b.csv --mode {mode} --dry-run --json --allow-empty"));
        assert_eq!((&made["dry_run"], &made["published"]), (&true.into(), &false.into()));
    }
    let refused = work.run("update s b.csv --dry-run --min-entries 9");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.ends_with(" would not be published: 1 gate failed\n"), "{refused:?}");
    assert_eq!(names(), before);
    check(&work, &[("1", "a"), ("2", "b"), ("3", "c")]);
}

#[test]
fn notes_and_inputs_are_kept_with_a_version() {
    let work = store("--note job=17 --note job=b=c");
    let version = json(&work, "versions s --json");
    let expected = r#"{"input":["a.csv"],"job":["17","b=c"]}"#;
    assert_eq!(version["provenance"].to_string(), expected);
    for note in ["x", "=x"] {
        assert_eq!(work.run(&format!("update s a.csv --note {note}")).code, 2);
    }
}

#[test]
fn a_delta_makes_the_same_version_of_a_copy() {
    for options in ["", "--chunks 3"] {
        let work = store(options);
        copy_folder(&work.path("s"), &work.path("copy"));
        work.write("b.csv", "k,v,d\n1,,1\n2,B,\n9,z,\n").write("c.csv", "k,v\n7,g\n");
        work.ok("update s b.csv --tombstone d");
        let text = work.ok("diff s 1 --out 1-2.delta").text().to_owned();
        let start = "wrote 1-2.delta: from version 1 to 2: 1 added, 1 changed, 1 removed, ";
        assert!(text.starts_with(start), "{text}");
        work.ok("update s c.csv");
        let compared = json(&work, "diff s 2 3 --out 2-3.delta --json");
        assert_eq!((&compared["entries"], &compared["deletions"]), (&1.into(), &0.into()));
        // Deltas must be applied in order.
        let early = work.run("update copy --delta 2-3.delta");
        assert_eq!(early.code, 3, "{early:?}");
        let what = "starts at a version that copy does not have, while version 1 is current";
        assert!(early.stderr.starts_with(&format!("hashfold: 2-3.delta: {what}")), "{early:?}");
        work.ok("update copy --delta 1-2.delta --mode merge");
        work.ok("update copy --delta 2-3.delta");
        assert_eq!(work.ok("scan copy").stdout, work.ok("scan s").stdout);
        // A job that is repeated changes nothing.
        let again = work.ok("update copy --delta 2-3.delta").text().to_owned();
        assert!(again.starts_with("updated copy: version 3 is current and has these"), "{again}");
        for (line, what, advice) in [
            ("1-2", "leads to version 2 of copy, which exists", "hashfold publish copy 2`"),
            (
                "2-3",
                "leads to version 3 of copy, which exists and is marked bad",
                "copy 3 --force`",
            ),
        ] {
            let refused = work.run(&format!("update copy --delta {line}.delta"));
            assert_eq!(refused.code, 3, "{refused:?}");
            assert!(
                refused.stderr.contains(what) && refused.stderr.contains(advice),
                "{refused:?}"
            );
            work.ok("rollback copy");
        }
        work.ok("update s b.csv --tombstone d");
        work.ok("diff s 2 4 --out 2-4.delta");
        let back = work.run("update copy --delta 2-4.delta");
        let what =
            "starts at version 2 of copy, but version 1 is current; `hashfold publish copy 2`";
        assert!(back.stderr.contains(what), "{back:?}");
        work.ok("update other a.csv --key k");
        refused(
            &work,
            "update other --delta 1-2.delta",
            3,
            "1-2.delta: is a delta of another store than other",
        );
        assert_eq!(list(&work.path("other/tables")).len(), 1);
    }
}

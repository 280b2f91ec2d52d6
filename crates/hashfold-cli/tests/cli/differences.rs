//! `diff` as rows, and `stat` of the indexes that tables really have.

use crate::support::{Work, raw};
use serde_json::Value;
use std::{collections::BTreeMap, fs};

/// A store of three versions: rows, changed rows, a deletion.
fn three_versions(work: &Work) {
    work.write("a.csv", "k,v,w\n1,a,x\n2,b,y\n3,c,z\n");
    work.write("b.csv", "k,v,w\n2,\"B,\",y\n4,d,\n");
    work.ok("update s a.csv --key k --chunks 2");
    work.ok("update s b.csv --mode delta");
    work.ok("delete s 1");
}

#[track_caller]
fn check(work: &Work, line: &str, head: &[&str], expected: &[&str]) {
    let output = work.ok(line);
    let mut lines: Vec<&str> = output.text().lines().collect();
    assert_eq!(lines.drain(..head.len()).collect::<Vec<_>>(), head, "{line}");
    lines.sort_unstable();
    assert_eq!(lines, expected, "{line}");
}

/// Issue 12: `diff` did not show which keys changed, and how.
#[test]
fn differences_are_printed_as_rows() {
    let work = Work::new();
    three_versions(&work);
    let json = [
        r#"{"k":"1","change":"removed","old":{"v":"a","w":"x"},"new":null}"#,
        r#"{"k":"2","change":"changed","old":{"v":"b","w":"y"},"new":{"v":"B,","w":"y"}}"#,
        r#"{"k":"4","change":"added","old":null,"new":{"v":"d","w":""}}"#,
    ];
    check(&work, "diff s 1 --format jsonl", &[], &json);
    check(&work, "diff s 1 3", &[], &json);
    check(&work, "diff s 1 2 --format json", &[], &json[1..]);
    let csv = ["1,removed,a,x,,", "2,changed,b,y,\"B,\",y", "4,added,,,d,"];
    check(&work, "diff s 1 --format csv", &["k,change,old.v,old.w,new.v,new.w"], &csv);
    let back = ["1,added,,,a,x", "2,changed,\"B,\",y,b,y", "4,removed,d,,,"];
    check(&work, "diff s 3 1 --format csv", &["k,change,old.v,old.w,new.v,new.w"], &back);
    check(&work, "diff s 1 1", &[], &[]);
}

/// Issue 12: `diff` did not show which keys changed, and how; of values without columns.
#[test]
fn differences_of_objects_and_bytes_are_printed() {
    let work = Work::new();
    work.write("a.jsonl", "{\"k\":1,\"v\":[1]}\n").write("b.jsonl", "{\"k\":1}\n");
    work.ok("update o a.jsonl --key k");
    work.ok("update o b.jsonl");
    let line = r#"{"k":1,"change":"changed","old":{"v":[1]},"new":{}}"#;
    check(&work, "diff o 1", &[], &[line]);
    let (head, line) = ("k,change,old.value,new.value", "1,changed,\"{\"\"v\"\":[1]}\",{}");
    check(&work, "diff o 1 --format csv", &[head], &[line]);
    work.write("a.raw", raw(&[(b"\xff", b"1")])).write("b.raw", raw(&[(b"\xff", b"\xfe")]));
    work.ok("update r a.raw");
    work.ok("update r b.raw");
    let key = r#"{"key":{"base64":"/w=="},"change":"changed""#;
    let line = format!(r#"{key},"old":{{"value":"1"}},"new":{{"value":{{"base64":"/g=="}}}}}}"#);
    check(&work, "diff r 1", &[], &[&line]);
}

/// Issue 12: the two ways to see differences are told apart, and a folder is no file.
#[test]
fn diff_refuses_wrong_usage_before_any_work() {
    let work = Work::new();
    three_versions(&work);
    for line in ["diff s 1 --format csv --out d", "diff s 1 --format xml", "diff s 1 --json"] {
        assert_eq!(work.run(line).code, 2, "{line}");
    }
    fs::create_dir(work.path("folder")).unwrap();
    // The versions are not opened: there is no version 9.
    let refused = work.run("diff s 9 --out folder");
    let message = "hashfold: folder: is a folder, expected the name of a file for --out\n";
    assert_eq!((refused.code, &refused.stderr[..]), (2, message));
    assert_eq!(fs::read_dir(work.path("folder")).unwrap().count(), 0);
}

#[track_caller]
fn index_line(work: &Work, line: &str) -> String {
    let text = work.ok(line).text().to_owned();
    text.lines().find(|line| line.starts_with("index")).unwrap().to_owned()
}

/// Issue 12: `stat` showed the index that was asked for, "auto", and not those of the tables.
#[test]
fn stat_shows_the_indexes_that_tables_have() {
    let work = Work::new();
    let rows: String = (0..2000).map(|key| format!("{key},a\n")).collect();
    let large = "x".repeat(20_000);
    work.write("a.csv", format!("k,v\n{rows}")).write("b.csv", format!("k,v\n7,{large}\n"));
    work.ok("update s a.csv --key k");
    work.ok("update s b.csv --mode delta");
    let line = index_line(&work, "stat s");
    assert!(line.contains(" dense in 1 table, fences in 1 table; "), "{line}");
    assert!(line.ends_with(" bits per key (--index auto)"), "{line}");
    let stat: Value = serde_json::from_str(work.ok("stat s --json").text()).unwrap();
    let indexes: BTreeMap<String, u64> = serde_json::from_value(stat["indexes"].clone()).unwrap();
    assert_eq!(indexes, BTreeMap::from([("dense".into(), 1), ("fences".into(), 1)]));
}

/// Issue 12: "index 4256.00 bits a key" for a handful of keys.
#[test]
fn the_index_of_a_handful_of_keys_is_shown_in_bytes() {
    let work = Work::new();
    work.write("a.csv", "k,v\n7,b\n");
    let built = work.ok("build a.csv --key k --out t").text().to_owned();
    assert!(!built.contains("bits per key"), "{built}");
    work.ok("update s a.csv --key k");
    for line in ["stat t", "stat s"] {
        let line = index_line(&work, line);
        assert!(!line.contains("bits per key"), "{line}");
    }
}

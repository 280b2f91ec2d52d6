//! The output of `get`, `scan`, `stat`, `verify` and `reindex`.

use crate::support::{Work, list, raw};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::Stdio,
};

fn fruit() -> Work {
    let work = Work::new();
    work.write("fruit.csv", "name,colour,note\napple,red,\"sweet, \"\"round\"\"\"\nlime,green,\n");
    work.write("bytes.raw", raw(&[(b"k", b"v\n"), (b"\xff", b"\xfe")]));
    work.ok("build fruit.csv --key name --out fruit --seed 7");
    work.ok("build fruit.csv --key name --value colour --out colours --seed 0x7");
    work.ok("build bytes.raw --out bytes");
    work
}

#[track_caller]
fn check(work: &Work, line: &str, code: i32, stdout: impl AsRef<[u8]>) {
    let outcome = work.run(line);
    assert_eq!(outcome.code, code, "{line}: {outcome:?}");
    assert_eq!(outcome.stdout, stdout.as_ref(), "{line}: {outcome:?}");
}

#[test]
fn get_writes_json_lines_in_the_order_asked() {
    let work = fruit();
    let apple = r#"{"name":"apple","colour":"red","note":"sweet, \"round\""}"#;
    let lime = r#"{"name":"lime","colour":"green","note":""}"#;
    let absent = r#"{"name":"plum","found":false}"#;
    check(&work, "get fruit apple", 0, format!("{apple}\n"));
    check(&work, "get fruit lime plum apple", 1, format!("{lime}\n{absent}\n{apple}\n"));
    check(&work, "get colours lime", 0, "{\"name\":\"lime\",\"colour\":\"green\"}\n");
    let outcome = work.run("get fruit lime plum");
    assert_eq!(outcome.stderr, "hashfold: 1 of 2 keys is absent: \"plum\"\n");
}

#[test]
fn get_writes_csv_and_raw() {
    let work = fruit();
    let csv = "name,colour,note\nlime,green,\napple,red,\"sweet, \"\"round\"\"\"\n";
    check(&work, "get fruit lime plum apple --format csv", 1, csv);
    check(&work, "get colours lime --format raw", 0, "green");
    check(&work, "get colours plum --format raw", 1, "");
    let schema = r#"{"key":"name","form":"plain","columns":[{"name":"colour","type":"text"}]}"#;
    let mut records = [&u32::MAX.to_le_bytes()[..], &[schema.len() as u8, 0, 0, 0]].concat();
    records.extend(schema.as_bytes());
    records.extend(raw(&[(b"lime", b"green"), (b"apple", b"red")]));
    check(&work, "get colours lime plum apple --format raw", 1, records);
}

#[test]
fn bytes_that_are_not_text_survive_every_format() {
    let work = fruit();
    let json = "{\"key\":\"k\",\"value\":\"v\\n\"}";
    let binary = r#"{"key":{"base64":"/w=="},"value":{"base64":"/g=="}}"#;
    assert_eq!(work.entries("bytes"), [json, binary]);
    let csv = work.ok("scan bytes --format csv").stdout;
    assert!(csv.windows(4).any(|window| window == b"\xff,\xfe\n"), "{}", csv.escape_ascii());
    assert_eq!(work.feed("build - --format csv --key key --out again", &csv).code, 0);
    assert_eq!(work.entries("again"), [json, binary]);
}

#[test]
fn get_reads_keys_from_a_file() {
    let work = Work::new();
    let rows: String = (0..10_000).map(|i| format!("{i},value {i}\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}"));
    work.ok("build a.csv --key k --out t");
    let keys: String = (0..20_000).rev().map(|i| format!("{i}\n")).collect();
    let line = |i| match i {
        0..10_000 => format!("{{\"k\":\"{i}\",\"v\":\"value {i}\"}}\n"),
        _ => format!("{{\"k\":\"{i}\",\"found\":false}}\n"),
    };
    let expected: String = (0..20_000).rev().map(line).collect();
    for access in ["auto", "direct", "cached", "mapped"] {
        let outcome = work.feed(&format!("get t --keys - --access {access}"), keys.as_bytes());
        assert_eq!(outcome.code, 1);
        assert!(outcome.text() == expected, "{access}");
    }
    work.write("keys", "7\r\n8");
    check(&work, "get t --keys keys --format csv", 0, "k,v\n7,value 7\n8,value 8\n");
}

/// Issue 14: only `get` had the option.
#[test]
fn all_verbs_that_read_data_take_the_access() {
    let work = fruit();
    let store = |name: &str| {
        work.ok(&format!("update {name} fruit.csv --key name"));
        work.ok(&format!("delete {name} lime --access mapped --allow-empty"));
    };
    store("s");
    let (scan, diff) = (work.ok("scan fruit").stdout, work.ok("diff s 1 2").stdout);
    assert!(!diff.is_empty());
    for access in ["auto", "direct", "cached", "mapped"] {
        check(&work, &format!("scan fruit --access {access}"), 0, &scan);
        check(&work, &format!("diff s 1 2 --access {access}"), 0, &diff);
        work.ok(&format!("verify fruit --access {access}"));
        work.ok(&format!("delete s plum --access {access}"));
        let outcome = work.run(&format!("verify s --access {access}"));
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stderr.contains("expected a table for --access"), "{outcome:?}");
    }
}

#[test]
fn the_output_of_scan_can_be_built_again() {
    let work = fruit();
    for (format, key) in [("csv", "--key name"), ("jsonl", "--key name"), ("raw", "")] {
        let scan = work.ok(&format!("scan fruit --format {}", format.replace("jsonl", "json")));
        let line = format!("build - --format {format} {key} --seed 7 --out again --replace");
        assert_eq!(work.feed(&line, &scan.stdout).code, 0);
        assert_eq!(work.entries("again"), work.entries("fruit"), "{format}");
    }
    assert_eq!(work.ok("scan fruit --limit 1").text().lines().count(), 1);
    check(&work, "scan fruit --limit 0", 0, "");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let work = Work::new();
    let rows: String = (0..100_000).map(|i| format!("{i},some value\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}"));
    work.ok("build a.csv --key k --out t");
    let mut command = work.command("scan t");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), &stderr[..]), (Some(0), ""));
}

#[test]
fn stat_describes_a_table() {
    let work = fruit();
    let text = work.ok("stat fruit").stdout;
    let text = String::from_utf8(text).unwrap();
    // The seed is printed as it was given.
    for line in ["entries      2", "columns      name, colour text, note text", "seed         7"] {
        assert!(text.lines().any(|other| other == line), "{text}");
    }
    let json: Value = serde_json::from_slice(&work.ok("stat colours --json").stdout).unwrap();
    assert_eq!(json["entries"], 2);
    assert_eq!(json["schema"]["form"], "plain");
    assert_eq!(json["access"][0]["access"], "mapped");
    assert_eq!(json["access"][0]["tables"], 1);
    assert_eq!(json["access"][0]["reason"], "the data fit in free memory");
    assert_eq!(json["schema"]["columns"][0]["type"], "text");
}

#[test]
fn the_parts_of_an_index_add_up() {
    let work = Work::new();
    let rows: String = (0..5000).map(|i| format!("{i},{i}\n")).collect();
    work.write("rows.csv", format!("k,v\n{rows}"));
    work.ok("build rows.csv --key k --out t");
    let text = work.ok("stat t").text().to_owned();
    let line = text.lines().find(|line| line.starts_with("index")).unwrap();
    let numbers = line.split([' ', ',']).filter_map(|word| word.parse::<f64>().ok());
    let (all, parts) = numbers.fold((None, 0.0), |(all, parts), number| match all {
        None => (Some(number), parts),
        all => (all, parts + number),
    });
    assert!((all.unwrap() - parts).abs() < 0.002, "{line}");
}

#[test]
fn verify_names_each_damage() {
    let work = fruit();
    let outcome = work.ok("verify fruit");
    assert!(outcome.text().starts_with("verified fruit: 2 entries in "), "{outcome:?}");
    let json = work.ok("verify fruit --json");
    let last: Value = serde_json::from_str(json.text().lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["problems"]), (&"verified".into(), &0.into()));
    let mut found = false;
    for name in list(&work.path("fruit")) {
        let path = work.path("fruit").join(&name);
        let bytes = fs::read(&path).unwrap();
        let Some(offset) = bytes.windows(5).position(|window| window == b"apple") else { continue };
        let mut damaged = bytes.clone();
        damaged[offset] ^= 4;
        fs::write(&path, &damaged).unwrap();
        let outcome = work.run("verify fruit");
        assert_eq!(outcome.code, 1, "{outcome:?}");
        assert!(outcome.text().starts_with(&format!("fruit/{name} at byte ")), "{outcome:?}");
        assert!(outcome.stderr.starts_with("hashfold: fruit: 1 problem found; "), "{outcome:?}");
        let json = work.run("verify fruit --json");
        let first: Value = serde_json::from_str(json.text().lines().next().unwrap()).unwrap();
        assert_eq!((json.code, &first["event"]), (1, &"problem".into()));
        fs::write(&path, &bytes).unwrap();
        found = true;
    }
    assert!(found, "a file of the table holds its keys");
    work.ok("verify fruit");
}

#[test]
fn reindex_changes_nothing_but_the_index() {
    let work = fruit();
    let before = work.entries("fruit");
    for index in ["dense", "sparse", "fences", "auto"] {
        work.ok(&format!("reindex fruit --index {index}"));
        assert_eq!(work.entries("fruit"), before);
        assert_eq!(work.run("get fruit apple plum lime").code, 1);
        work.ok("verify fruit");
    }
}

#[test]
fn a_dry_run_builds_nothing() {
    let work = fruit();
    work.write("bad.csv", "k,v\n1,a\n2\n");
    let outcome =
        work.ok("build bad.csv --key k --out n --bad-rows skip --max-bad-rows 1 --dry-run");
    assert!(outcome.text().starts_with("read 1 row and 1 bad row: k, v text; "), "{outcome:?}");
    assert_eq!(work.run("build bad.csv --key k --out n --dry-run").code, 3);
    assert!(!work.path("n").exists());
}

#[test]
fn a_build_can_speak_json() {
    let work = fruit();
    let outcome = work.ok("build fruit.csv fruit.csv --key name --out j --json");
    let object: Value = serde_json::from_str(outcome.text()).unwrap();
    assert_eq!(object["event"], "built");
    assert_eq!(object["stats"]["entries"], 2);
    assert_eq!(object["duplicates"], 2);
    assert_eq!(object["bad_rows"], 0);
}

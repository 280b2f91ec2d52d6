//! Data that `scan` wrote and `build` or `update` reads again, with all columns; and columns and
//! files that are not lost silently.

use crate::support::{Work, list, raw};
use serde_json::Value;
use std::fs;

/// Rows of all kinds that are inferred, with nulls and empty text.
const ROWS: &str = r#"{"k":1,"i":-5,"f":0.5,"b":true,"d":"2026-01-31","l":[1.5,null],"s":"x, \"y\""}
{"k":2,"i":null,"f":null,"b":null,"d":null,"l":null,"s":""}
{"k":3,"i":7,"f":1.25,"b":false,"d":"1970-01-01","l":[],"s":null}
"#;

/// Issue 12: raw output of several columns lost them.
#[test]
fn raw_output_keeps_columns_kinds_and_nulls() {
    let work = Work::new();
    work.write("a.jsonl", ROWS);
    work.ok("build a.jsonl --key k --infer --out t");
    let schema = |table: &str| -> Value {
        let stat = work.ok(&format!("stat {table} --json"));
        serde_json::from_str::<Value>(stat.text()).unwrap()["schema"].clone()
    };
    work.write("t.raw", work.ok("scan t --format raw").stdout);
    work.ok("build t.raw --out again");
    assert_eq!((work.entries("again"), schema("again")), (work.entries("t"), schema("t")));
    // A store takes it too, converts it, and drops or adds columns as it does for other formats.
    work.ok("update s a.jsonl --key k --value i --value s --infer");
    assert!(work.run("update s t.raw").stderr.contains("--value names the columns"));
    work.ok("update s t.raw --value s --value i");
    assert_eq!(work.ok("get s 1").text(), "{\"k\":1,\"i\":-5,\"s\":\"x, \\\"y\\\"\"}\n");
    work.ok("update s t.raw --schema extend");
    assert_eq!(work.ok("get s 3").text(), {
        "{\"k\":3,\"i\":7,\"s\":null,\"f\":1.25,\"b\":false,\"d\":\"1970-01-01\",\"l\":[]}\n"
    });
    work.ok("update s t.raw --schema extend --delete-where i=-5");
    assert_eq!(work.run("get s 1").code, 1);
    work.ok("filter create f --exact");
    work.ok("filter add f --keys t.raw --key k");
    work.ok("filter contains f 1 2 3");
}

/// Issue 12: every format of `scan` can be fed back to the data set that it came from.
#[test]
fn a_store_reads_its_own_output_in_every_format() {
    let work = Work::new();
    work.write("rows.jsonl", ROWS)
        .write("plain.csv", "k,v\n1,a\n")
        .write("bytes.raw", raw(&[(b"\xff", b"\0")]));
    work.write("objects.jsonl", "{\"k\":1,\"v\":[1]}\n{\"k\":2}\n");
    for (input, options) in [
        ("rows.jsonl", "--key k --infer"),
        ("plain.csv", "--key k"),
        ("bytes.raw", ""),
        ("objects.jsonl", "--key k"),
    ] {
        let formats: &[&str] = match input {
            // CSV keeps neither null text nor objects.
            "rows.jsonl" | "objects.jsonl" => &["jsonl", "raw"],
            _ => &["jsonl", "raw", "csv"],
        };
        let store = input.replace('.', "-");
        work.ok(&format!("update {store} {input} {options}"));
        let entries = work.entries(&store);
        for format in formats {
            let scan = work.ok(&format!("scan {store} --format {format}")).stdout;
            let line = format!("update {store} - --format {format} --mode replace");
            let outcome = work.feed(&line, &scan);
            assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
            assert!(outcome.text().contains(" 0 changed, 0 removed"), "{line}: {outcome:?}");
            assert_eq!(work.entries(&store), entries, "{line}");
        }
    }
}

#[track_caller]
fn refused(work: &Work, line: &str, code: i32, message: &str) {
    let outcome = work.run(line);
    assert_eq!(outcome.code, code, "{line}: {outcome:?}");
    assert!(outcome.stderr.contains(message), "{line}: {}", outcome.stderr);
}

/// Issue 12: a program had to convert JSON to read rows into a data frame.
#[test]
fn columnar_output_keeps_columns_kinds_and_nulls() {
    let work = Work::new();
    work.write("a.jsonl", ROWS).write("bytes.raw", raw(&[(b"\xff", b"\xfe")]));
    work.ok("build a.jsonl --key k --infer --out t");
    work.ok("update s a.jsonl --key k --infer");
    work.ok("build bytes.raw --out bytes");
    let schema = work.ok("stat t").text().lines().last().unwrap().to_owned();
    for format in ["arrow", "parquet"] {
        let file = format!("t.{format}");
        work.write(&file, work.ok(&format!("scan t --format {format}")).stdout);
        work.ok(&format!("build {file} --key k --out again --replace"));
        assert_eq!(work.entries("again"), work.entries("t"), "{format}");
        assert_eq!(work.ok("stat again").text().lines().last(), Some(&schema[..]), "{format}");
        // Absent keys are left out.
        let got = work.run(&format!("get s 3 absent 1 --format {format}"));
        assert_eq!(got.code, 1, "{got:?}");
        work.write(&file, got.stdout);
        work.ok(&format!("update s {file} --mode replace"));
        assert_eq!(work.entries("s").len(), 2);
        work.ok("rollback s");
        work.ok(&format!("scan t --limit 0 --format {format}"));
        refused(&work, &format!("scan bytes --format {format}"), 2, "a key or a text is not UTF-8");
    }
}

/// Issue 12: the record of the columns is checked like any input.
#[test]
fn raw_input_with_other_columns_is_refused() {
    let work = Work::new();
    work.write("a.csv", "k,v,w\n1,a,x\n").write("o.jsonl", "{\"k\":1,\"v\":2}\n");
    work.ok("build a.csv --key k --out t");
    work.ok("build o.jsonl --key k --out o");
    let scan = work.ok("scan t --format raw").stdout;
    work.write("t.raw", &scan).write("o.raw", work.ok("scan o --format raw").stdout);
    refused(&work, "build t.raw --key v --out u", 3, "t.raw: the key is the column \"k\"");
    refused(&work, "build t.raw --value z --out u", 3, "t.raw: has no column \"z\"");
    refused(&work, "build o.raw --value v --out u", 3, "o.raw: has JSON objects as values");
    refused(&work, "update s t.raw --chunks 0", 2, "number of chunks");
    work.ok("update s t.raw");
    refused(&work, "update s o.raw", 3, "o.raw: has JSON objects as values");
    let header = 8 + u32::from_le_bytes(scan[4..8].try_into().unwrap()) as usize;
    let forged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = scan.clone();
        change(&mut bytes);
        work.write("x.raw", bytes);
    };
    forged(&|bytes| bytes.truncate(header - 1));
    refused(&work, "build x.raw --out u", 3, "x.raw:1: the schema is cut short");
    forged(&|bytes| bytes[6] = 0xff);
    refused(&work, "build x.raw --out u", 3, "x.raw:1: the schema is 16");
    forged(&|bytes| bytes[10] = b'!');
    let unknown = "x.raw:1: the schema cannot be read: it is damaged, or of a later version";
    refused(&work, "build x.raw --out u", 3, unknown);
    // The first byte of the value: its nulls.
    forged(&|bytes| bytes[header + 9] = 0xff);
    let other = "x.raw:2: the value has not the columns of the first record: row is more columns";
    refused(&work, "build x.raw --out u", 3, other);
    forged(&|bytes| bytes.truncate(bytes.len() - 1));
    refused(&work, "build x.raw --out u", 3, "x.raw:2: the record is cut short");
}

/// Issue 12: `build --schema extend` did not say which columns it added.
#[test]
fn build_names_the_columns_that_it_adds() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n").write("b.csv", "k,w,x\n2,b,c\n");
    let built = work.ok("build a.csv b.csv --key k --schema extend --out t").text().to_owned();
    assert!(built.ends_with("columns added, null in older rows: w text, x text\n"), "{built}");
    let built = work.ok("build a.csv --key k --schema extend --out u").text().to_owned();
    assert!(!built.contains("columns added"), "{built}");
    let line = "build a.csv b.csv --key k --schema extend --out v --json";
    let json = work.ok(line).text().lines().last().unwrap().to_owned();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["columns_added"], "w text, x text");
}

/// Issue 12: a table was made among files of other programs.
#[test]
fn a_table_is_not_made_among_other_files() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n");
    fs::create_dir(work.path("mine")).unwrap();
    work.write("mine/notes", "");
    let message = "mine: is no table, and not empty: it has \"notes\"; name another folder";
    for line in ["", "--replace", "--dry-run"] {
        refused(&work, &format!("build a.csv --key k --out mine {line}"), 2, message);
        assert_eq!(list(&work.path("mine")), ["notes"]);
    }
    // A build that was killed leaves this name, and the next one goes on.
    fs::create_dir(work.path("killed")).unwrap();
    work.write("killed/MANIFEST.first", "");
    work.ok("build a.csv --key k --out killed");
    work.write("killed/notes", "");
    work.ok("build a.csv --key k --out killed --replace");
    assert!(work.path("killed/notes").exists());
}

//! Wrong calls and wrong inputs: the exit code, and a helpful message.

use crate::support::{Work, gzip};
use std::fs;

fn work() -> Work {
    let work = Work::new();
    work.write("a.csv", "k,v,w\n1,a,b\n1,c,d\n");
    work.write("b.csv", "k,v\n1,a\n");
    work.write("twice.csv", "k,v,v\n1,a,b\n");
    work.write("empty.csv", "");
    work.write("not.gz", "k,v\n");
    let mut broken = gzip("k,v\n".repeat(10_000).as_bytes());
    let middle = broken.len() / 2;
    broken[middle..middle + 8].fill(0xff);
    work.write("broken.csv.gz", broken);
    fs::create_dir(work.path("folder.csv")).unwrap();
    work.ok("build b.csv --key k --out t");
    work
}

#[track_caller]
fn check(work: &Work, line: &str, code: i32, message: &str) {
    let outcome = work.run(line);
    assert_eq!(outcome.code, code, "{line}: {outcome:?}");
    assert_eq!(outcome.stderr, format!("hashfold: {message}\n"), "{line}");
}

#[test]
fn wrong_calls_say_what_to_do() {
    let work = work();
    let no_format = "the format is not known from the name, \
                     expected --format csv, tsv, jsonl, parquet, arrow or raw";
    check(&work, "build not.gz --key k --out n", 2, &format!("not.gz: {no_format}"));
    let no_name = "the format of standard input is not known, because it has no file name; name it \
                   with --format (`hashfold get`: --keys-format)";
    check(&work, "build - --key k --out n", 2, no_name);
    check(
        &work,
        "build a.csv --out n",
        2,
        "a.csv: which column is the key? Name it with --key COL",
    );
    check(
        &work,
        "build b.csv --format raw --key k --out n",
        2,
        "b.csv: raw input has no columns; leave --key and --value out",
    );
    check(
        &work,
        "build b.csv --key k --value v --value k --out n",
        2,
        "--key and --value name the column \"k\" twice",
    );
    check(&work, "build b.csv --key k --out t", 2, "t: already exists; replace it with --replace");
    check(&work, "get nowhere k", 2, "nowhere: there is no data set here");
    for line in ["", "build", "get t", "get t k --keys f", "build a.csv --out n --memory 1x"] {
        assert_eq!(work.run(line).code, 2, "{line}");
    }
    assert!(!work.path("n").exists());
}

#[test]
fn wrong_inputs_are_named() {
    let work = work();
    check(
        &work,
        "build a.csv --key x --out n",
        3,
        "a.csv: has no column \"x\"; its columns are k, v, w",
    );
    check(
        &work,
        "build twice.csv --key k --value v --out n",
        3,
        "twice.csv: has several columns \"v\"",
    );
    check(
        &work,
        "build empty.csv --key k --out n",
        3,
        "empty.csv: is empty; expected lines of fields",
    );
    check(&work, "build folder.csv --key k --out n", 2, "folder.csv: is a folder, expected a file");
    check(
        &work,
        "build a.csv --unique --key k --out n",
        3,
        "key \"1\" occurs more than once; without --unique the last row wins",
    );
    check(
        &work,
        "build a.csv b.csv --key k --out n",
        3,
        "b.csv: has no column \"w\"; its columns are v; those of the first input are k, v text, \
         w text; --schema fill stores null in place of missing ones",
    );
    let broken = work.run("build broken.csv.gz --key k --out n");
    assert_eq!(broken.code, 3, "{broken:?}");
    assert!(broken.stderr.starts_with("hashfold: broken.csv.gz: cannot be decompressed: "));
    let missing = work.run("build a.csv missing.csv --key k --out n");
    assert_eq!(missing.code, 2);
    assert_eq!(missing.stderr, "hashfold: missing.csv: there is no file of this name\n");
    assert!(!work.path("n").exists());
}

#[test]
fn a_table_that_is_there_survives_a_build_that_fails() {
    let work = work();
    let before = work.entries("t");
    assert_eq!(work.run("build a.csv --key k --unique --out t --replace").code, 3);
    assert_eq!(work.entries("t"), before);
    work.ok("build a.csv --key k --out t --replace");
    assert_eq!(work.entries("t"), [r#"{"k":"1","v":"c","w":"d"}"#]);
}

#[test]
fn bad_rows_never_overwrite_a_file() {
    let work = Work::new();
    work.write("in.csv", b"k,v\n1,a\n").write("other.csv", b"k,v\n1,a\n");
    for (file, what) in [("in.csv", "is an input, "), ("other.csv", "the file exists, ")] {
        let outcome = work.run(&format!("build in.csv --key k --out t --bad-rows {file}"));
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stderr.starts_with(&format!("hashfold: {file}: {what}")), "{outcome:?}");
        assert_eq!(fs::read(work.path(file)).unwrap(), b"k,v\n1,a\n");
    }
}

#[test]
fn lines_that_end_with_carriage_returns_alone_are_refused() {
    let work = Work::new();
    work.write("old.csv", b"k,v\rx,1\ry,2\r");
    let outcome = work.run("build old.csv --key k --out t");
    assert_eq!(outcome.code, 3, "{outcome:?}");
    assert!(
        outcome.stderr.contains("old.csv:1: the lines end with carriage returns"),
        "{outcome:?}"
    );
}

#[test]
fn the_least_memory_is_enough() {
    let work = Work::new();
    work.write("in.csv", b"k,v\n1,a\n");
    work.ok("build in.csv --key k --out t --memory 1MiB");
}

/// Issue 13: a name that was mistyped limited nothing, and nobody noticed.
#[test]
fn unknown_instructions_are_refused() {
    let work = Work::new();
    work.write("in.csv", b"k,v\n1,a\n");
    let run = |name: &str| {
        let mut command = work.command("build in.csv --key k --out t --replace");
        command.env("HASHFOLD_CPU", name).output().unwrap()
    };
    for name in ["portable", "v3", "v4"] {
        assert!(run(name).status.success(), "{name}");
    }
    let refused = run("portabel");
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8(refused.stderr).unwrap();
    for part in ["HASHFOLD_CPU", "portable, v3 or v4", "portabel"] {
        assert!(message.contains(part), "{message}");
    }
}

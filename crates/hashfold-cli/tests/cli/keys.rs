//! Keys as arguments, in files and on standard input, and deleting keys.

use crate::support::{Outcome, Work};

/// Returns a store `s`, a table `t` and a filter `f` of 20 keys, and files of keys.
fn work() -> Work {
    let work = Work::new();
    let rows: String = (0..20).map(|key| format!("{key},a\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}"));
    work.write("keys", "3\n4\n").write("b.csv", "x,id\nq,3\nr,4\n");
    work.write("b.jsonl", "{\"id\":3}\n{\"id\":4}\n");
    work.ok("update s a.csv --key k");
    work.ok("build a.csv --key k --out t");
    work.ok("filter add f --keys a.csv --key k --exact");
    work
}

/// The ways to give the keys 3 and 4: the options, and standard input.
const WAYS: [(&str, &str); 7] = [
    ("3 4", ""),
    ("--keys keys", ""),
    ("--keys b.csv --key id", ""),
    ("--keys b.jsonl --key id", ""),
    ("--keys -", "3\n4\n"),
    ("-", "3\n4\n"),
    ("--keys - FORMAT csv --key id", "id\n3\n4\n"),
];

/// Issue 12: each verb took keys in another way.
#[test]
fn all_verbs_take_keys_in_the_same_ways() {
    for (way, input) in WAYS {
        let run = |work: &Work, line: &str, format: &str| -> Outcome {
            let way = way.replace("FORMAT", format);
            let outcome = work.feed(&format!("{line} {way}"), input.as_bytes());
            assert_eq!(outcome.code, 0, "{line} {way}: {outcome:?}");
            outcome
        };
        let work = work();
        for source in ["s", "t"] {
            let got = run(&work, &format!("get {source}"), "--keys-format");
            assert_eq!(
                got.text(),
                "{\"k\":\"3\",\"v\":\"a\"}\n{\"k\":\"4\",\"v\":\"a\"}\n",
                "{way}"
            );
        }
        assert_eq!(run(&work, "filter contains f", "--format").text(), "3\n4\n");
        run(&work, "filter remove f", "--format");
        assert_eq!(work.run("filter contains f 3 4").text(), "", "{way}");
        let new = run(&work, "filter add f --unique", "--format");
        assert_eq!(new.text(), "3\n4\n", "{way}");
        run(&work, "delete s", "--format");
        assert_eq!(work.run("get s 2 3 4 --format csv").text(), "k,v\n2,a\n", "{way}");
        assert_eq!(work.entries("s").len(), 18);
    }
}

/// Issue 12: deleting keys needed a file with all columns.
#[test]
fn keys_are_deleted_without_values() {
    let work = work();
    let deleted = work.ok("delete s 7 absent").text().to_owned();
    assert!(deleted.starts_with("deleted from s: version 2, published: "), "{deleted}");
    assert!(deleted.contains("; 1 key of 2 found; "), "{deleted}");
    assert_eq!(work.run("get s 7").code, 1);
    // Keys that are absent leave no deletions behind, and do not count.
    let absent = work.ok("delete s absent 7 --dry-run --json").text().to_owned();
    for fact in [r#""event":"deleted""#, r#""keys":2"#, r#""found":0"#, r#""changed":false"#] {
        assert!(absent.contains(fact), "{fact}: {absent}");
    }
    let absent = work.ok("delete s absent 7").text().to_owned();
    let unchanged =
        "deleted from s: version 2 is current and has none of the keys; nothing was changed\n";
    assert_eq!(absent, unchanged);
    work.ok("rollback s");
    assert_eq!(work.run("get s 7").code, 0);
    work.ok("delete s --keys keys --no-publish --note why=test");
    assert_eq!(work.entries("s").len(), 20);
    work.ok("publish s 3");
    assert_eq!(work.entries("s").len(), 18);
    for (line, message) in [
        (
            "delete t 7",
            "t: is a table, which never changes; make it again without the keys, or use a \
                        store (`hashfold update`)",
        ),
        ("delete f 7", "f: is a filter; `hashfold filter remove` removes keys"),
        ("delete n 7", "n: there is no data set here"),
        ("update f a.csv", "f: is a filter, expected a store; `hashfold filter add` inserts keys"),
    ] {
        let refused = work.run(line);
        assert_eq!((refused.code, refused.stderr), (2, format!("hashfold: {message}\n")), "{line}");
    }
}

/// Issue 12: a file name given as a key was taken as a key, and the other way round.
#[test]
fn a_file_given_as_a_key_and_a_key_given_as_a_file_are_noticed() {
    let work = work();
    for line in ["delete s keys", "filter add f keys", "filter remove f 3 keys"] {
        let refused = work.run(line);
        let start =
            "hashfold: keys: is a file, and was given as a key; --keys keys reads keys from it";
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.starts_with(&start[..60]), "{refused:?}");
    }
    let hint = "it is the name of a file: --keys keys reads keys from it\n";
    for line in ["get s keys", "get t keys", "filter contains f keys"] {
        let absent = work.run(line);
        assert_eq!(absent.code, 1, "{absent:?}");
        assert!(absent.stderr.ends_with(hint), "{absent:?}");
    }
    let message = "hashfold: 4711: there is no file of this name, expected a file of keys for --keys; a \
                   key is given without --keys\n";
    for verb in ["get s", "delete s", "filter add f", "filter remove f", "filter contains f"] {
        let refused = work.run(&format!("{verb} --keys 4711"));
        assert_eq!((refused.code, &refused.stderr[..]), (2, message), "{verb}");
    }
    for verb in ["get s", "delete s", "filter contains f"] {
        let refused = work.run(verb);
        assert_eq!(refused.code, 2, "{verb}");
        assert!(refused.stderr.contains("no keys are given: expected "), "{refused:?}");
        assert!(refused.stderr.contains("--keys FILE"), "{refused:?}");
    }
    // A file of rows is not one of keys, unless its column is named.
    for verb in ["get s", "delete s", "filter add f", "filter remove f", "filter contains f"] {
        let refused = work.run(&format!("{verb} --keys a.csv"));
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(
            refused.stderr.contains("a.csv: is a file of rows by its name; name the column"),
            "{refused:?}"
        );
    }
    // A key that is the name of a file is given in a file.
    assert_eq!(work.feed("filter add f -", b"keys\n").code, 0);
    work.ok("filter contains f keys");
}

/// Runs all verbs that read keys from files.
#[track_caller]
fn check_files(work: &Work, files: &str, code: i32, message: &str) {
    for verb in ["get t", "delete s --dry-run", "filter add f", "filter contains f"] {
        let line = format!("{verb} {files}");
        let outcome = work.run(&line);
        assert_eq!(outcome.code, code, "{line}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(message), "{line}: {}", outcome.stderr);
    }
}

/// Issue 12: keys at the limit of their length, in each way to give them.
#[test]
fn the_longest_keys_are_accepted_and_longer_ones_named() {
    let (work, longest) = (work(), "x".repeat(65_535));
    let too_long = "the key is 65536 bytes long, the longest accepted is 65535";
    work.write("a.csv", format!("k,v\n{longest},a\n"));
    work.ok("update s a.csv");
    work.ok("build a.csv --key k --out t --replace");
    for (name, options, start, end, line) in [
        ("a.txt", "", "", "\n", 1),
        ("a.txt", "", "", "", 1),
        ("a.txt", "", "\u{feff}", "\r\n", 1),
        ("a.csv", "--key k", "k\n", "\n", 2),
        ("a.jsonl", "--key k", "{\"k\":\"", "\"}\n", 1),
    ] {
        let files = format!("--keys {name} {options}");
        work.write(name, format!("{start}{longest}{end}"));
        check_files(&work, &files, 0, "");
        work.write(name, format!("{start}x{longest}{end}"));
        check_files(&work, &files, 3, &format!("{name}:{line}: {too_long}"));
    }
    check_files(&work, &longest, 0, "");
    check_files(&work, &format!("x{longest}"), 2, "a key has 65536 bytes");
    check_files(&work, &format!("--keys {longest}"), 2, "there is no file of this name");
    let raw = work.run(&format!("get t x{longest} --format raw"));
    assert_eq!(raw.code, 2, "{}", raw.stderr);
}

/// Issue 12: a file of keys may have as many columns as other inputs, and other columns than the
/// file before.
#[test]
fn files_of_keys_may_have_any_columns() {
    let work = work();
    let file = |columns: usize| {
        let names: String = (1..columns).map(|i| format!(",c{i}")).collect();
        let fields = ",".repeat(columns - 1);
        format!("k{names}\n3{fields}\n")
    };
    work.write("wide.csv", file(16_384)).write("wider.csv", file(16_385));
    work.write("a.jsonl", "{\"k\":3,\"other\":[1]}\n").write("k.csv", "k\n3\n");
    work.write("t.raw", work.ok("scan t --format raw --limit 1").stdout);
    check_files(&work, "--keys wide.csv --key k", 0, "");
    check_files(&work, "--keys wider.csv --key k", 3, "the most accepted is 16,384");
    check_files(&work, "--keys k.csv --keys a.jsonl --keys wide.csv --key k", 0, "");
    check_files(&work, "--keys t.raw --keys k.csv --keys t.raw --key k", 0, "");
    check_files(&work, "--keys k.csv --key v", 3, "k.csv: has no column \"v\"");
}

/// Issue 12: keys that are empty, or have bytes that end a line elsewhere, are keys like any other.
#[test]
fn empty_keys_and_keys_with_line_ends_are_keys() {
    let work = Work::new();
    let keys = r#"{"k":""}
{"k":"a\u0000b"}
{"k":"a\nb"}
{"k":"a\r"}
"#;
    work.write("a.jsonl", keys);
    work.ok("build a.jsonl --key k --out t");
    work.ok("update s a.jsonl --key k");
    for line in ["get t", "get s"] {
        assert_eq!(work.ok(&format!("{line} --keys a.jsonl --key k")).text(), keys);
    }
    // JSON Lines, CSV and raw output keep all of them.
    for format in ["jsonl", "csv", "raw"] {
        let scan = work.ok(&format!("scan t --format {format}")).stdout;
        let line = format!("build - --format {format} --key k --out again --replace");
        assert_eq!(work.feed(&line, &scan).code, 0, "{format}");
        let keys = work.ok("get again --keys a.jsonl --key k").stdout;
        assert_eq!(keys.iter().filter(|byte| **byte == b'\n').count(), 4, "{format}");
    }
    // As lines, an empty line is the empty key, and a carriage return belongs to the line end.
    assert_eq!(work.feed("get t -", b"\n").text(), "{\"k\":\"\"}\n");
    assert_eq!(work.feed("get t -", b"a\0b\r\n").text(), "{\"k\":\"a\\u0000b\"}\n");
    assert_eq!(work.feed("get t -", b"a\r\n").code, 1);
    let argument = work.command("get t").args(["", "a\nb", "a\r"]).output().unwrap();
    assert_eq!(argument.stdout, b"{\"k\":\"\"}\n{\"k\":\"a\\nb\"}\n{\"k\":\"a\\r\"}\n");
    // A filter prints keys as they are; as JSON, each is one line.
    let new = work.ok("filter add f --exact --unique --keys a.jsonl --key k");
    assert_eq!(new.stdout, b"\na\0b\na\nb\na\r\n");
    let found = work.ok("filter contains f --keys a.jsonl --key k --json");
    let expected = keys.replace("\"k\"", "\"key\"").replace('}', ",\"count\":1}");
    assert_eq!(found.text(), expected);
    let deleted = work.ok("delete s --keys a.jsonl --key k --allow-empty");
    assert!(deleted.text().contains("published: 0 "), "{deleted:?}");
    work.ok("filter remove f --keys a.jsonl --key k");
    assert_eq!(work.run("filter contains f --keys a.jsonl --key k").text(), "");
}

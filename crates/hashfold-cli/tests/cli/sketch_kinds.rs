//! Sketches with larger registers, and of the smallest hashes; what is beside the file of a sketch.

use crate::support::Work;
use hashfold::{KeyHash, Seed};
use serde_json::Value;
use std::fs;

fn json(work: &Work, command: &str) -> Value {
    serde_json::from_str(work.ok(command).text()).unwrap()
}

/// Returns a number of the JSON that a command prints.
#[track_caller]
fn number(work: &Work, command: &str, place: &str) -> f64 {
    let json = json(work, command);
    json.pointer(place).and_then(Value::as_f64).unwrap_or_else(|| panic!("{place} of {json}"))
}

fn lines(range: std::ops::Range<u32>) -> Vec<u8> {
    range.map(|i| format!("{i}\n")).collect::<String>().into_bytes()
}

#[track_caller]
fn check_interval(work: &Work, command: &str, place: &str, truth: f64) {
    let [low, high] = ["low", "high"].map(|end| number(work, command, &format!("{place}/{end}")));
    assert!(low <= truth && truth <= high, "{command}: {low} to {high}");
}

#[test]
fn a_sketch_with_larger_registers_counts_and_compares() {
    let work = Work::new();
    work.feed("sketch add a.ghll --register-bits 12 --precision 12", &lines(0..10_000));
    work.feed("sketch add a.ghll", &lines(5000..20_000));
    work.feed("sketch add all.ghll --register-bits 12 --precision 12", &lines(0..20_000));
    assert_eq!(fs::read(work.path("a.ghll")).unwrap(), fs::read(work.path("all.ghll")).unwrap());
    work.feed("sketch add b.ghll --register-bits 12", &lines(19_000..40_000));
    check_interval(&work, "sketch count a.ghll --json --confidence 0.9999", "", 20_000.0);
    let both = "sketch intersect a.ghll b.ghll --json --confidence 0.9999";
    check_interval(&work, both, "/intersection", 1000.0);
    check_interval(&work, both, "/only_b", 20_000.0);
    work.ok("sketch union both.ghll a.ghll b.ghll");
    check_interval(&work, "sketch count both.ghll --json --confidence 0.9999", "", 40_000.0);
    let shown = json(&work, "sketch show both.ghll --json");
    assert_eq!(
        (shown["register_bits"].as_u64(), shown["precision"].as_u64()),
        (Some(12), Some(12))
    );
    assert!(work.ok("sketch show both.ghll").text().contains("4,096 registers of 12 bits"));
    work.ok("sketch convert both.ghll less.ghll --precision 8");
    assert_eq!(number(&work, "sketch show less.ghll --json", "/registers"), 256.0);
}

#[test]
fn the_smallest_hashes_compare_any_number_of_sets() {
    let work = Work::new();
    for (name, keys) in [("a", 0..20_000), ("b", 10_000..40_000), ("c", 12_000..13_000)] {
        work.feed(&format!("sketch add {name}.kmv --bottom-k 1024"), &lines(keys));
    }
    work.feed("sketch add a.kmv", &lines(0..10_000));
    check_interval(&work, "sketch count a.kmv --json --confidence 0.9999", "", 20_000.0);
    assert!(work.ok("sketch count c.kmv").text().starts_with("1,000 (exact)"));
    let both = "sketch intersect a.kmv b.kmv --json --confidence 0.9999";
    check_interval(&work, both, "/intersection", 10_000.0);
    let all = "sketch intersect a.kmv b.kmv c.kmv --json --confidence 0.9999 --force";
    check_interval(&work, all, "/intersection", 1000.0);
    check_interval(&work, &format!("{all} --expression A-B|C"), "/size", 11_000.0);
    let text = work.ok("sketch intersect a.kmv b.kmv");
    assert!(text.text().starts_with("in both    about ") && !text.text().contains("read"));
    let refused = work.run("sketch intersect a.kmv b.kmv c.kmv --error 0.01");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("--bottom-k with more hashes"), "{refused:?}");
    work.ok("sketch union all.kmv a.kmv b.kmv");
    check_interval(&work, "sketch count all.kmv --json --confidence 0.9999", "", 40_000.0);
    let shown = json(&work, "sketch show all.kmv --json");
    assert_eq!((shown["capacity"].as_u64(), shown["hashes"].as_u64()), (Some(1024), Some(1024)));
    assert!(work.ok("sketch show c.kmv").text().contains("1,000 of 1,024"));
}

/// The sketch of all keys ends below most hashes of the two others, which have the hashes of all their keys.
#[test]
fn expressions_of_complete_sketches_are_exact_and_others_use_all_hashes_that_matter() {
    let work = Work::new();
    for (name, keys, capacity) in [
        ("a", 0..600, 1024),
        ("b", 400..900, 1024),
        ("few", 0..20_000, 16),
        ("many", 0..20_000, 4096),
    ] {
        work.feed(&format!("sketch add {name}.kmv --bottom-k {capacity}"), &lines(keys));
    }
    let sized = |expression: &str| {
        let command = "sketch intersect a.kmv b.kmv few.kmv many.kmv --expression";
        work.ok(&format!("{command} {expression}"))
    };
    assert_eq!(sized("A&B").text(), "A & B      200 (exact)\n");
    assert_eq!(sized("A-B").text(), "A & !B     400 (exact)\n");
    assert_eq!(sized("A|B").text(), "A | B      900 (exact)\n");
    let matches = |expression: &str| {
        let command = "sketch intersect a.kmv b.kmv few.kmv many.kmv --json --force --expression";
        number(&work, &format!("{command} {expression}"), "/size/matches")
    };
    assert_eq!(matches("D"), 4095.0);
    assert_eq!(matches("C|D"), 15.0);
}

#[test]
fn kinds_of_sketches_are_not_mixed() {
    let work = Work::new();
    work.feed("sketch add a.hll", &lines(0..100));
    work.feed("sketch add a.ghll --register-bits 8", &lines(0..100));
    work.feed("sketch add a.kmv --bottom-k 16", &lines(0..100));
    work.feed("sketch add a.pg --hash postgres", &lines(0..100));
    for (command, says) in [
        ("sketch union out a.hll a.ghll", "a.ghll: is a sketch of --register-bits"),
        ("sketch union out a.ghll a.kmv", "a.kmv: is a sketch of --bottom-k"),
        ("sketch count a.kmv a.hll", "a.hll: is a sketch with registers of 6 bits"),
        ("sketch intersect a.hll a.ghll", "a.ghll: is a sketch of --register-bits"),
        ("sketch intersect a.kmv a.hll", "a.hll: is a sketch with registers of 6 bits"),
        ("sketch intersect a.ghll a.ghll --expression A&B", "--expression is for folders"),
        ("sketch add a.ghll x --register-bits 9", "has registers of 8 bits, expected 9"),
        (
            "sketch add a.hll x --register-bits 9",
            "is a sketch with registers of 6 bits, expected one of --register-bits",
        ),
        (
            "sketch add a.pg x --register-bits 9",
            "is a sketch of PostgreSQL, expected one of --register-bits",
        ),
        ("sketch union out a.kmv a.pg", "a.pg: is a sketch of PostgreSQL"),
        ("sketch add a.kmv x --bottom-k 17", "has room for 16 hashes, expected 17"),
        (
            "sketch add a.ghll x --bottom-k 17",
            "is a sketch of --register-bits, expected one of --bottom-k",
        ),
        (
            "sketch add a.kmv x --precision 9",
            "is a sketch of --bottom-k, expected one with a precision",
        ),
        ("sketch add a.ghll x --precision 9", "has the precision 14, expected 9"),
        ("sketch add new x --bottom-k 15", "expected a number of hashes, 16 to 16777216"),
        ("sketch add new x --register-bits 6", "6 is not in 7..=16"),
        ("sketch add new x --register-bits 8 --hash redis", "cannot be used with"),
        ("sketch convert a.ghll out --to redis", "this one can become hashfold"),
    ] {
        let refused = work.run(command);
        assert_eq!(refused.code, 2, "{command}: {refused:?}");
        assert!(refused.stderr.contains(says), "{command}: {refused:?}");
    }
    for name in ["a.ghll", "a.kmv"] {
        let mut bad = fs::read(work.path(name)).unwrap();
        bad[18] ^= 1;
        work.write("bad", &bad);
        assert_eq!(work.run("sketch count bad").code, 4, "{name}");
    }
}

#[test]
#[cfg(unix)]
fn a_users_own_files_stay_and_nobody_else_reads_a_new_one() {
    use std::os::unix::fs::PermissionsExt as _;
    let work = Work::new();
    work.write("a.hll.new", "mine").write("b.hll", "mine, too");
    work.ok("sketch add a.hll x");
    work.ok("sketch add a.hll y");
    assert_eq!(fs::read(work.path("a.hll.new")).unwrap(), b"mine");
    // What a killed command has left is removed.
    let hidden = format!(".{:016x}.hashfold-new", KeyHash::of(b"a.hll", Seed(0)).high());
    work.write(&hidden, "left");
    let mode = |name: &str| fs::metadata(work.path(name)).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(work.path("a.hll"), fs::Permissions::from_mode(0o640)).unwrap();
    work.ok("sketch add a.hll z");
    assert_eq!(mode("a.hll"), 0o640);
    assert_eq!(number(&work, "sketch count a.hll --json", "/count").round(), 3.0);
    assert!(!work.path(&hidden).exists());
    assert_eq!(mode("a.hll.new"), mode("b.hll"));
    work.ok("sketch union c.hll a.hll");
    assert_eq!(mode("c.hll"), mode("b.hll"), "a new file has the permissions of new files");
}

#[test]
fn the_name_of_a_sketch_may_be_as_long_as_file_systems_allow() {
    let work = Work::new();
    for length in [242, 255] {
        let name = "n".repeat(length);
        work.ok(&format!("sketch add {name} x"));
        work.ok(&format!("sketch add {name} y"));
        assert_eq!(number(&work, &format!("sketch count {name} --json"), "/count").round(), 2.0);
    }
    let names = fs::read_dir(work.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().contains("hashfold-new")));
}

#[test]
fn a_group_of_null_keys_is_there_with_no_keys() {
    let work = Work::new();
    work.write(
        "rows.jsonl",
        "{\"n\":1,\"page\":\"a\"}\n{\"n\":null,\"page\":\"b\"}\n{\"page\":\"a\"}\n",
    );
    work.ok("sketch add groups --by page --key n rows.jsonl --memory 1MiB");
    let counts = work.ok("sketch count groups a b");
    assert_eq!(counts.text(), "page,distinct,low,high\na,1,1,1\nb,0,0,0\n");
    work.write("more.jsonl", "{\"n\":2,\"page\":\"b\"}\n{\"n\":null,\"page\":\"a\"}\n");
    work.ok("sketch add groups --by page --key n more.jsonl");
    let counts = work.ok("sketch count groups a b");
    assert_eq!(counts.text(), "page,distinct,low,high\na,1,1,1\nb,1,1,1\n");
}

#[test]
fn a_map_may_be_given_twice() {
    let work = Work::new();
    work.write("rows.csv", "id\n1\n2\n3\n");
    work.ok("map import map rows.csv --key id --seed 7");
    let twice = work.ok("sketch intersect map ./map");
    assert!(twice.text().starts_with("in both    3 (exact)\n"), "{twice:?}");
    assert!(work.ok("sketch count map map").text().starts_with("3 (exact)\n"));
}

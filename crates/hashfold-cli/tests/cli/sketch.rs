//! `hashfold sketch`: how many distinct keys, and how many in both.

use crate::support::Work;
use serde_json::Value;
use std::fs;

/// Returns a number of the JSON that a command prints.
#[track_caller]
fn number(work: &Work, command: &str, place: &str) -> f64 {
    let json: Value = serde_json::from_str(work.ok(command).text()).unwrap();
    json.pointer(place).and_then(Value::as_f64).unwrap_or_else(|| panic!("{place} of {json}"))
}

fn lines(range: std::ops::Range<u32>) -> Vec<u8> {
    range.map(|i| format!("{i}\n")).collect::<String>().into_bytes()
}

#[test]
fn distinct_keys_are_counted_once_in_all_sketches_together() {
    let work = Work::new();
    work.feed("sketch add a.hll", &lines(0..20_000));
    work.feed("sketch add a.hll", &lines(10_000..30_000));
    work.feed("sketch add b.hll --precision 12", &lines(25_000..50_000));
    let near = |got: f64, truth: f64| assert!((got / truth - 1.0).abs() < 0.06, "{got} {truth}");
    near(number(&work, "sketch count a.hll --json", "/count"), 30_000.0);
    near(number(&work, "sketch count a.hll b.hll --json", "/count"), 50_000.0);
    work.ok("sketch union all.hll a.hll b.hll");
    near(number(&work, "sketch count all.hll --json", "/count"), 50_000.0);
    assert_eq!(number(&work, "sketch show all.hll --json", "/precision"), 12.0);
    let both = "sketch intersect a.hll b.hll --json";
    let (low, high) =
        (number(&work, both, "/intersection/low"), number(&work, both, "/intersection/high"));
    assert!(low < 5000.0 && 5000.0 < high && high - low < 4000.0, "{low} {high}");
}

#[test]
fn the_order_and_the_way_of_keys_make_no_difference() {
    let work = Work::new();
    work.feed("sketch add lines.hll", b"anna\nben\n");
    work.ok("sketch add words.hll ben anna ben");
    fs::write(work.path("rows.csv"), "id,name\n1,ben\n2,anna\n").unwrap();
    work.ok("sketch add rows.hll --keys rows.csv --key name");
    let bytes = |name: &str| fs::read(work.path(name)).unwrap();
    assert_eq!(bytes("lines.hll"), bytes("words.hll"));
    assert_eq!(bytes("lines.hll"), bytes("rows.hll"));
    assert_eq!(number(&work, "sketch count rows.hll --json", "/count").round(), 2.0);
}

#[test]
fn an_answer_that_is_noise_is_refused_unless_it_is_forced() {
    let work = Work::new();
    work.feed("sketch add a.hll --precision 8", &lines(0..1000));
    work.feed("sketch add b.hll --precision 8", &lines(995..100_000));
    let refused = work.run("sketch intersect a.hll b.hll --error 0.1");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("--force accepts the estimate"), "{refused:?}");
    work.ok("sketch intersect a.hll b.hll --error 0.1 --force");
}

#[test]
fn what_cannot_be_done_is_said_and_changes_nothing() {
    let work = Work::new();
    let absent = work.run("sketch count none.hll");
    assert_eq!(absent.code, 2);
    assert!(absent.stderr.contains("none.hll: there is no sketch here"), "{absent:?}");
    assert_eq!(work.run("sketch add a.hll x --precision 19").code, 2);
    work.ok("sketch add a.hll x --precision 10");
    assert_eq!(work.run("sketch add a.hll x --precision 11").code, 2);
    let good = fs::read(work.path("a.hll")).unwrap();
    let mut bad = good.clone();
    bad[17] ^= 1;
    fs::write(work.path("a.hll"), &bad).unwrap();
    for command in ["sketch count a.hll", "sketch add a.hll y", "sketch union c.hll a.hll"] {
        let outcome = work.run(command);
        assert_eq!(outcome.code, 4, "{outcome:?}");
        assert!(outcome.stderr.contains("a.hll"), "{outcome:?}");
    }
    assert_eq!(fs::read(work.path("a.hll")).unwrap(), bad);
    fs::write(work.path("a.hll"), b"name,id\n").unwrap();
    assert_eq!(work.run("sketch count a.hll").code, 4);
}

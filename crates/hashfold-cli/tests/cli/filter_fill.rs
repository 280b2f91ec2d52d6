//! `hashfold filter`: full filters, and numbers of keys (issue 12, point B5).

use crate::{
    filter::{json, lines},
    support::Work,
};

/// Runs `add`, and returns its warnings.
#[track_caller]
fn warnings(work: &Work, line: &str, keys: std::ops::Range<u64>) -> Vec<String> {
    let outcome = work.feed(line, &lines(keys));
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let warnings = outcome.stderr.lines().filter(|line| line.starts_with("hashfold: warning: "));
    warnings.map(|line| line["hashfold: warning: ".len()..].to_string()).collect()
}

#[test]
fn add_warns_when_the_filter_is_full_and_at_each_doubling_of_its_false_positives() {
    let work = Work::new();
    work.ok("filter create f --capacity 1000 --fp-rate 0.1% --seed 1");
    let add = |keys| warnings(&work, "filter add f --unique", keys);
    assert!(add(0..900).is_empty());
    // With 0.1 % of false positives, one key more may be taken for an old one.
    let over = add(900..1100);
    assert_eq!(over.len(), 1, "{over:?}");
    assert!(over[0].starts_with("f: over its capacity: at most 1,"), "{over:?}");
    assert!(over[0].contains(" of absent keys now, promised were 0.1 %; "), "{over:?}");
    // Another command warns again, once, and again when the rate doubles.
    assert_eq!(add(0..1).len(), 1);
    assert_eq!(add(1100..20_000).len(), 1);
}

#[test]
fn a_filter_without_capacity_never_warns() {
    let work = Work::new();
    assert!(warnings(&work, "filter add f --exact", 0..5000).is_empty());
    let stat = work.ok("filter stat f");
    assert!(stat.text().contains("\nkeys             at most 5,000\n"), "{stat:?}");
    assert!(stat.text().contains("\nfalse positives  practically none: 1 in 3.7e15 absent keys\n"));
    assert_eq!(json(&work.ok("filter stat f --json"))["fill"], serde_json::Value::Null);
    work.ok("filter create g --exact");
    assert!(
        work.ok("filter stat g").text().contains("\nfalse positives  none: the filter is empty\n")
    );
}

#[test]
fn stat_shows_the_rate_of_an_overfull_filter_beside_the_promised_one() {
    let work = Work::new();
    work.ok("filter create f --capacity 100 --fp-rate 1% --seed 1");
    let rows = |keys| {
        work.feed("filter add f", &lines(keys));
        work.ok("filter merge f");
        work.ok("filter stat f").text().to_string()
    };
    let half = rows(0..50);
    assert!(half.contains("\nkeys             50, 50 % of the capacity\n"), "{half}");
    assert!(
        half.contains("\nfalse positives  0.5 % of absent keys now, 1 % when full\n"),
        "{half}"
    );
    let over = rows(50..2000);
    assert!(over.contains(" % of the capacity\n"), "{over}");
    assert!(over.contains(" times the promised 1 %: the filter is over its capacity"), "{over}");
    let stat = json(&work.ok("filter stat f --json"));
    let (fill, rate) = (stat["fill"].as_f64().unwrap(), stat["false_positive_rate"].as_f64());
    // 2000 keys share 10,000 fingerprints.
    assert!((17.0..19.0).contains(&fill) && (rate.unwrap() - fill / 100.0).abs() < 1e-6);
}

#[test]
fn strict_capacity_refuses_the_first_key_too_many() {
    let work = Work::new();
    work.ok("filter create f --capacity 1000 --fp-rate 1e-9");
    let strict = "filter add f --strict-capacity";
    let add = |line: &str, keys: Vec<u8>| work.feed(&format!("{strict}{line}"), &keys);
    assert_eq!(add("", lines(0..600)).code, 0);
    // Known keys take no room, neither in the filter nor twice in the batch.
    assert_eq!(add("", [lines(0..600), lines(600..700), lines(600..700)].concat()).code, 0);
    let full = add(" --unique", [lines(0..1200), lines(0..10)].concat());
    assert_eq!((full.code, &full.stdout), (1, &lines(700..1000)), "{full:?}");
    let message = "hashfold: f: is full: 1,000 of 1,000 keys; make a filter with a larger \
                   --capacity, or leave out --strict-capacity; 1000 keys were added before that\n";
    assert_eq!(full.stderr.replace("1,000 keys were added", "1000 keys were added"), message);
    assert_eq!(add("", lines(0..1000)).code, 0);
    assert_eq!(add("", lines(5000..5001)).code, 1);
    // Removed keys make room.
    assert_eq!(work.feed("filter remove f", &lines(0..10)).code, 0);
    assert_eq!(add("", lines(5000..5010)).code, 0);
    assert_eq!(add("", lines(6000..6001)).code, 1);
    let stat = json(&work.ok("filter stat f --json"));
    assert!(stat["keys_max"].as_u64().unwrap() <= 1000, "{stat}");
}

/// The number of removed keys included keys that were never in, and removals counted as keys.
#[test]
fn removals_are_counted_as_what_they_are() {
    for kind in ["--exact", "--exact --multiset"] {
        let work = Work::new();
        work.ok(&format!("filter create f {kind}"));
        assert_eq!(work.feed("filter add f", b"a\nb\nc\n").code, 0);
        let never = work.feed("filter remove f", b"x\n");
        let text = "removed from f: 0 keys, 1 of the 1 given was not in the filter; ";
        assert!(never.text().starts_with(text), "{never:?}");
        let some = work.feed("filter remove f", b"a\nx\na\ny\n");
        let text = "removed from f: 1 key, 3 of the 4 given were not in the filter; ";
        assert!(some.text().starts_with(text), "{some:?}");
        let all = work.feed("filter remove f --json", b"b\n");
        assert_eq!((&json(&all)["keys"], &json(&all)["removed"]), (&1.into(), &1.into()));
        let counts = "5 fingerprints, 2 of them tombstones";
        let stat = work.ok("filter stat f").text().to_string();
        assert!(stat.contains(&format!("\nstored           {counts}\n")), "{stat}");
        assert!(stat.contains("\nkeys             at most 3\n"), "{stat}");
        let verified = work.ok("filter verify f");
        assert_eq!(verified.text(), format!("verified f: 3 runs with {counts}, no damage\n"));
        // A removal of an absent key does not cancel its next insertion.
        assert_eq!(work.feed("filter add f", b"x\n").code, 0);
        assert_eq!(work.run("filter contains f a b c x").text(), "c\nx\n");
        assert!(work.ok("filter merge f").text().starts_with("merged f: 2 keys; "));
        let verified = work.ok("filter verify f");
        assert_eq!(verified.text(), "verified f: 1 run with 2 fingerprints, no damage\n");
    }
}

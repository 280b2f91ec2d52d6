//! `hashfold sketch`: how many distinct keys, and how many in both.

use crate::support::Work;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

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
    assert!(refused.stderr.contains("--force accepts it"), "{refused:?}");
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
    work.ok("sketch add good.hll x");
    for (name, content) in [("rows.csv", "name,id\n"), ("empty", "")] {
        fs::write(work.path(name), content).unwrap();
        for command in [
            "count NAME",
            "add NAME x",
            "union NAME good.hll --replace",
            "convert good.hll NAME --replace",
        ] {
            let outcome = work.run(&format!("sketch {}", command.replace("NAME", name)));
            assert_eq!(outcome.code, 2, "{outcome:?}");
            assert!(outcome.stderr.contains(&format!("{name}: is no sketch")), "{outcome:?}");
        }
        assert_eq!(fs::read(work.path(name)).unwrap(), content.as_bytes());
    }
}

#[test]
fn only_sketches_are_replaced_and_only_if_asked() {
    let work = Work::new();
    work.ok("sketch add a.hll x");
    work.ok("sketch add b.hll y");
    // They begin as values of PostgreSQL do.
    for content in [&b"\\xyz is a path"[..], b"\x11\x00\x01 is not one"] {
        work.write("other", content);
        let refused = work.run("sketch union other a.hll --replace");
        assert!(refused.code == 2 && refused.stderr.contains("other: is no sketch"), "{refused:?}");
        assert_eq!(fs::read(work.path("other")).unwrap(), content);
    }
    for command in ["sketch union a.hll b.hll", "sketch convert b.hll a.hll"] {
        let refused = work.run(command);
        assert!(refused.code == 2 && refused.stderr.contains("exists already"), "{refused:?}");
    }
    work.ok("sketch union a.hll a.hll b.hll");
    assert_eq!(number(&work, "sketch count a.hll --json", "/count").round(), 2.0);
    work.ok("sketch union a.hll b.hll --replace");
    assert_eq!(number(&work, "sketch count a.hll --json", "/count").round(), 1.0);
    let absent = work.run("sketch union no/a.hll b.hll");
    assert!(absent.code == 2 && absent.stderr.contains("there is no folder"), "{absent:?}");
}

/// Returns rows `country,visitor` of CSV, and the number of visitors of each country.
fn visits(range: std::ops::Range<u32>) -> (String, BTreeMap<String, BTreeSet<u32>>) {
    let (mut csv, mut sets) = ("visitor,country\n".to_owned(), BTreeMap::new());
    for i in range {
        let (country, visitor) = (format!("country-{}", i % 7 * (i % 3)), i / 2);
        csv += &format!("{visitor},{country}\n");
        sets.entry(country).or_insert_with(BTreeSet::new).insert(visitor);
    }
    (csv, sets)
}

/// Returns the groups that a command prints as JSON, and their numbers of distinct keys.
#[track_caller]
fn counts(work: &Work, command: &str) -> Vec<(String, u64)> {
    let outcome = work.ok(command);
    let count = |line: &str| {
        let json: Value = serde_json::from_str(line).unwrap();
        assert!(json["low"].as_u64() <= json["distinct"].as_u64(), "{json}");
        (json["country"].as_str().unwrap().to_owned(), json["distinct"].as_u64().unwrap())
    };
    outcome.text().lines().map(count).collect()
}

#[track_caller]
fn check_groups(work: &Work, folder: &str, sets: &BTreeMap<String, BTreeSet<u32>>) {
    let mut all = counts(work, &format!("sketch count {folder} --all --json"));
    all.sort();
    assert_eq!(all.len(), sets.len());
    for ((country, count), (expected, set)) in all.iter().zip(sets) {
        let (got, truth) = (*count as f64, set.len() as f64);
        assert!(country == expected && (got / truth - 1.0).abs() < 0.05, "{country} {got} {truth}");
    }
}

#[test]
fn each_group_has_a_sketch_of_its_own() {
    let work = Work::new();
    let ((first, mut sets), (second, others)) = (visits(0..3000), visits(2000..9000));
    work.write("first.csv", first).write("second.csv", second);
    let add = "--by country --key visitor";
    let added = work.ok(&format!("sketch add visits {add} first.csv"));
    assert!(added.text().contains("3,000 rows") && added.text().contains("groups"), "{added:?}");
    check_groups(&work, "visits", &sets);
    work.ok(&format!("sketch add visits {add} second.csv --memory 1MiB"));
    others.into_iter().for_each(|(country, set)| sets.entry(country).or_default().extend(set));
    check_groups(&work, "visits", &sets);
    // Both files at once, in any order, and a union of tables give the same entries.
    work.ok(&format!("sketch add both {add} second.csv first.csv --json"));
    work.ok(&format!("sketch add other {add} second.csv"));
    work.ok(&format!("sketch add other2 {add} first.csv"));
    work.ok("sketch union all other other2");
    work.ok("sketch union other other other2");
    let entries = work.entries("visits");
    assert_eq!(entries.len(), sets.len());
    for folder in ["both", "all", "other"] {
        assert_eq!(work.entries(folder), entries, "{folder}");
    }
    work.ok("verify visits");
}

#[test]
fn groups_are_counted_by_name_and_by_size() {
    let work = Work::new();
    let (csv, sets) = visits(0..2000);
    work.write("rows.csv", &csv);
    work.ok("sketch add visits --by country --key visitor rows.csv --precision 12");
    let mut largest: Vec<_> = sets.iter().map(|(name, set)| (set.len(), name.clone())).collect();
    largest.sort();
    let top = counts(&work, "sketch count visits --top 2 --json");
    assert_eq!(top.len(), 2);
    assert_eq!(top[0].0, largest.pop().unwrap().1);
    let named = work.ok("sketch count visits country-0 country-6");
    assert!(named.text().starts_with("country,distinct,low,high\ncountry-0,"), "{named:?}");
    assert_eq!(named.text().lines().count(), 3);
    // A group is a sketch where a file is one.
    work.ok("sketch union six.hll visits:country-6");
    fs::write(
        work.path("one.txt"),
        sets["country-6"].iter().map(|i| format!("{i}\n")).collect::<String>(),
    )
    .unwrap();
    work.ok("sketch add plain.hll --keys one.txt --precision 12");
    assert_eq!(fs::read(work.path("six.hll")).unwrap(), fs::read(work.path("plain.hll")).unwrap());
    let shared = "sketch intersect visits:country-6 plain.hll --json";
    assert!(number(&work, shared, "/jaccard/count") > 0.99);
    assert_eq!(number(&work, "sketch show visits --json", "/groups"), sets.len() as f64);
    assert!(work.ok("sketch show visits").text().contains("by country"));
    assert!(work.ok("get visits country-6").text().contains("\"sketch\""));
}

#[test]
fn groups_come_from_all_formats_alike() {
    let work = Work::new();
    work.write("rows.csv", "n,page\n1,home\n2,home\n2,shop\n");
    let lines = r#"{"page":"home","n":1}
{"page":"home","n":2}
{"page":"shop","n":"2"}
{"page":"shop","n":null}
{"page":"shop"}
"#;
    work.write("rows.jsonl", lines);
    work.ok("sketch add a --by page --key n rows.csv");
    work.ok("sketch add b --by page --key n rows.jsonl --wait 1");
    work.feed("sketch add c --by page --key n --format csv", b"n,page\n2,shop\n1,home\n2,home\n");
    assert_eq!(work.entries("a").len(), 2);
    assert_eq!(work.entries("a"), work.entries("b"));
    assert_eq!(work.entries("a"), work.entries("c"));
}

#[test]
fn what_is_no_table_of_groups_is_refused() {
    let work = Work::new();
    work.write("rows.csv", "n,page\n1,home\n");
    let add = "--by page --key n rows.csv";
    work.ok(&format!("sketch add groups {add}"));
    work.ok("sketch add one.hll x");
    work.ok("build --key n --out table rows.csv");
    let before = crate::support::list(&work.path("groups"));
    for (command, code, words) in [
        (format!("sketch add one.hll {add}"), 2, "is a file, expected a folder"),
        (format!("sketch add table {add}"), 2, "values are not sketches"),
        (format!("sketch add groups {add} --precision 9"), 2, "has the precision 14, expected 9"),
        ("sketch add groups --by n --key page rows.csv".into(), 2, "has groups by \"page\""),
        ("sketch add groups --by page rows.csv".into(), 2, "--key"),
        ("sketch add groups --by page --key m rows.csv".into(), 3, "no column \"m\""),
        ("sketch add groups x".into(), 2, "is a folder, expected the file of a sketch"),
        ("sketch count groups".into(), 2, "--all"),
        ("sketch count groups home none".into(), 1, "there is no group \"none\""),
        ("sketch count groups home --all".into(), 2, "leave it out"),
        ("sketch count one.hll --top 3".into(), 2, "is no table of groups"),
        ("sketch count one.hll groups".into(), 2, "is not a folder, but groups is"),
        ("sketch count table x".into(), 2, "x: there is nothing here"),
        ("sketch union out groups one.hll".into(), 2, "is no folder"),
        ("sketch union table groups".into(), 2, "values are not sketches"),
        ("sketch union groups one.hll".into(), 2, "takes the union of folders"),
        ("sketch intersect groups:none one.hll".into(), 1, "there is no group \"none\""),
    ] {
        let outcome = work.run(&command);
        assert_eq!(outcome.code, code, "{command}: {outcome:?}");
        assert!(outcome.stderr.contains(words), "{command}: {outcome:?}");
    }
    assert_eq!(crate::support::list(&work.path("groups")), before, "nothing has changed");
    work.write("bad.csv", "n,page\n1\n");
    assert_eq!(work.run("sketch add new --by page --key n bad.csv").code, 3);
    assert!(!work.path("new").exists(), "nothing is left");
}

fn csv(range: std::ops::Range<u32>) -> String {
    "id\n".to_owned() + &range.map(|i| format!("{i}\n")).collect::<String>()
}

/// Folders of all kinds with one seed: a table of 0 to 40,000, a store of 30,000 to 90,000, a filter of 20,000
/// to 35,000, and a map of 0 to 10.
fn folders() -> Work {
    let work = Work::new();
    fs::write(work.path("a.csv"), csv(0..40_000)).unwrap();
    fs::write(work.path("b.csv"), csv(30_000..90_000)).unwrap();
    fs::write(work.path("d.csv"), csv(0..10)).unwrap();
    work.ok("build a.csv --key id --seed 7 --out table");
    work.ok("update store b.csv --key id --seed 7");
    work.feed("filter add filter --exact --seed 7", &lines(20_000..35_000));
    work.ok("map import map d.csv --key id --seed 7");
    work
}

#[test]
fn folders_of_all_kinds_are_sampled_until_the_answer_is_precise() {
    let work = folders();
    let both = "sketch intersect table store --error 0.1 --confidence 0.999 --json";
    let at = |place: &str| number(&work, both, place);
    let (low, high) = (at("/intersection/low"), at("/intersection/high"));
    assert!(low < 10_000.0 && 10_000.0 < high && high - low < 2500.0, "{low} {high}");
    assert!(at("/only_a/low") < 30_000.0 && 30_000.0 < at("/only_a/high"));
    assert!(at("/only_b/low") < 50_000.0 && 50_000.0 < at("/only_b/high"));
    assert!(at("/jaccard/low") < 1.0 / 9.0 && 1.0 / 9.0 < at("/jaccard/high"));
    assert!(at("/read/bytes") > 0.0 && at("/read/keys") < 20_000.0 && at("/read/fraction") < 0.2);
    // All kinds, and the end of the smallest one.
    let all = "sketch intersect table store filter map --json";
    assert_eq!(number(&work, all, "/intersection/count"), 0.0);
    let expression = "sketch intersect table store filter map --json --error 0.001 --expression";
    for (text, count) in [("A&D", 10.0), ("A&B&C", 5000.0), ("A-(B|C)", 20_000.0), ("!A&C", 0.0)] {
        assert_eq!(number(&work, &format!("{expression} {text}"), "/size/count"), count, "{text}");
    }
    let union = number(&work, "sketch count table store filter map --json", "/count");
    assert!((union / 90_000.0 - 1.0).abs() < 0.05, "{union}");
    let exact = work.ok("sketch count map");
    assert!(exact.text().starts_with("10 (exact)\nread "), "{exact:?}");
}

#[test]
fn folders_that_do_not_go_together_are_refused() {
    let work = folders();
    work.ok("sketch add a.hll 1 2 3");
    work.ok("build a.csv --key id --seed 8 --out other");
    work.feed("filter create rough --capacity 1e6 --fp-rate 0.01 --seed 7", b"");
    for (command, says) in [
        ("sketch intersect table a.hll", "a.hll: is not a folder, but table is"),
        ("sketch intersect a.hll table", "a.hll: is not a folder, but table is"),
        ("sketch intersect table none", "none: there is nothing here"),
        ("sketch count table a.hll", "a.hll: is not a folder"),
        ("sketch intersect table other", "other: keys are hashed with seed 8, expected 7"),
        ("sketch intersect table rough", "rough: number of fingerprints is"),
        ("sketch intersect a.hll a.hll a.hll", "3 sketches are given, expected 2"),
        ("sketch intersect a.hll a.hll --expression A&B", "--expression is for folders"),
        ("sketch intersect table store --expression A&C", "--expression names the set C"),
        ("sketch intersect table store --error 0", "expected a fraction between 0 and 1"),
        ("sketch intersect table store --confidence 1", "expected a fraction between 0 and 1"),
        ("sketch intersect table", "required"),
    ] {
        let refused = work.run(command);
        assert_eq!(refused.code, 2, "{command}: {refused:?}");
        assert!(refused.stderr.contains(says), "{command}: {refused:?}");
    }
}

/// The images of the golden files, which other programs wrote: their format, number of keys of text, and bytes.
fn images() -> Vec<(&'static str, u32, Vec<u8>)> {
    let bytes = |hex: &str| -> Vec<u8> {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    };
    let postgres = include_str!("../../../hashfold/tests/golden/sketch/postgres.txt").lines();
    let postgres = postgres.filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields[4] == "text").then(|| ("postgres", fields[5].parse().unwrap(), bytes(fields[6])))
    });
    let datasketches =
        include_str!("../../../hashfold/tests/golden/sketch/datasketches.txt").lines();
    let datasketches = datasketches.filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let format = match fields[1] {
            "4" => "datasketches-hll4",
            "6" => "datasketches-hll6",
            _ => "datasketches-hll8",
        };
        let is_it = fields[2..4] == ["compact", "text"];
        is_it.then(|| (format, fields[4].parse().unwrap(), bytes(fields[5])))
    });
    let redis =
        include_str!("../../../hashfold/tests/golden/sketch/redis.txt").lines().map(|line| {
            let (count, hex) = line.split_once(' ').unwrap();
            ("redis", count.parse().unwrap(), bytes(hex))
        });
    let few = |images: Vec<(&'static str, u32, Vec<u8>)>| images.into_iter().step_by(7);
    few(postgres.collect()).chain(few(datasketches.collect())).chain(few(redis.collect())).collect()
}

/// Reads a file. Sorts the coupons of a set of DataSketches: the library, too, has other places for them after
/// it has read one.
fn content(work: &Work, name: &str) -> Vec<u8> {
    let mut bytes = fs::read(work.path(name)).unwrap();
    if bytes.starts_with(&[3, 1, 7]) {
        let mut coupons: Vec<_> = bytes[12..].chunks(4).map(<[u8]>::to_vec).collect();
        coupons.sort_unstable();
        bytes.splice(12.., coupons.concat());
    }
    bytes
}

#[test]
fn sketches_of_other_programs_are_read_continued_and_written() {
    let work = Work::new();
    let images = images();
    assert!(images.len() > 10);
    for (format, count, bytes) in images {
        work.write("image", &bytes);
        let before = content(&work, "image");
        work.ok(&format!("sketch convert image copy --to {format} --replace"));
        assert_eq!(content(&work, "copy"), before, "{format}, {count} keys");
        work.ok("sketch convert image own.hll --replace");
        let estimate = number(&work, "sketch count image --json", "/count");
        assert_eq!(number(&work, "sketch count image own.hll --json", "/count"), estimate);
        // The same keys change nothing, in either format.
        work.feed("sketch add image", &lines(0..count));
        assert_eq!(content(&work, "image"), before, "{format}, {count} keys");
        work.ok(&format!("sketch convert own.hll back --to {format} --replace"));
        assert_eq!(number(&work, "sketch count image back --json", "/count"), estimate);
    }
}

#[test]
fn a_sketch_with_the_hashes_of_another_program_becomes_one_of_it() {
    let work = Work::new();
    for (hash, format) in [
        ("redis", "redis"),
        ("postgres", "postgres"),
        ("postgres", "postgres-text"),
        ("datasketches", "datasketches-hll6"),
    ] {
        let name = format!("{format}.hll");
        work.feed(&format!("sketch add {name} --hash {hash}"), &lines(0..5000));
        work.ok(&format!("sketch convert {name} image --to {format} --json --replace"));
        let of = |file: &str| number(&work, &format!("sketch count {file} --json"), "/count");
        assert_eq!(of("image"), of(&name));
        let shown: Value =
            serde_json::from_str(work.ok("sketch show image --json").text()).unwrap();
        assert_eq!(shown["format"], format);
        work.ok(&format!("sketch convert image {name} --precision 12 --replace"));
        assert_eq!(number(&work, &format!("sketch show {name} --json"), "/precision"), 12.0);
        let other = work.run(&format!("sketch add {name} --hash hashfold x"));
        assert!(
            other.code == 2 && other.stderr.contains("--hash is for new sketches"),
            "{other:?}"
        );
    }
}

#[test]
fn hashes_do_not_change_and_the_message_says_what_is_possible() {
    let work = Work::new();
    work.ok("sketch add own.hll anna");
    let refused = work.run("sketch convert own.hll image --to redis");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("this one can become hashfold\n"), "{refused:?}");
    assert!(!work.path("image").exists());
    work.ok("sketch add redis.hll --hash redis --precision 12 anna");
    let wrong = work.run("sketch convert redis.hll image --to redis");
    assert!(wrong.code != 0 && wrong.stderr.contains("precision 14"), "{wrong:?}");
    for (bytes, from) in [
        (&b"HYLL"[..], ""),
        (b"\\x118b7", ""),
        (b"\\x11 b7f", ""),
        (b"\x02\x01\x07\x0b", ""),
        (b"HFHL", "--from postgres"),
        (b"\x12\x8b\x7f\0\0", ""),
    ] {
        work.write("image", bytes);
        let damaged = work.run(&format!("sketch convert image other {from}"));
        assert_eq!(damaged.code, 4, "{bytes:?}: {damaged:?}");
        assert!(damaged.stderr.contains("image"), "{damaged:?}");
    }
}

/// Several commands add to one sketch at a time: no key is lost.
#[test]
fn adds_at_one_time_lose_nothing() {
    let work = Work::new();
    work.feed("sketch add all.hll", &lines(0..50_000));
    for round in 0..5_u32 {
        std::thread::scope(|scope| {
            for part in 0..4_u32 {
                let (work, first) = (&work, part * 5000 + round * 20_000);
                let keys = lines(first..first + 5000);
                scope.spawn(move || work.feed("sketch add one.hll", &keys));
            }
        });
    }
    work.feed("sketch add same.hll", &lines(0..100_000));
    let [one, same] = ["one.hll", "same.hll"].map(|name| fs::read(work.path(name)).unwrap());
    assert!(one == same, "keys were lost");
}

#[test]
#[cfg(unix)]
fn links_and_permissions_stay_and_other_things_are_not_replaced() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let work = Work::new();
    work.ok("sketch add a.hll x");
    fs::set_permissions(work.path("a.hll"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("a.hll", work.path("link.hll")).unwrap();
    work.ok("sketch add link.hll y");
    assert!(work.path("link.hll").is_symlink());
    assert_eq!(number(&work, "sketch count a.hll --json", "/count").round(), 2.0);
    assert_eq!(fs::metadata(work.path("a.hll")).unwrap().permissions().mode() & 0o777, 0o600);
    fs::create_dir(work.path("folder")).unwrap();
    work.write("rows.csv", "n,page\n1,home\n");
    work.ok("sketch add groups --by page --key n rows.csv");
    for (command, says) in [
        ("sketch convert a.hll /dev/full", "is no regular file"),
        ("sketch union /dev/full a.hll", "is no regular file"),
        ("sketch convert a.hll folder", "is a folder"),
        ("sketch add groups:home x", "is the group home of a table"),
        ("sketch add groups --by page --key n rows.csv --hash redis", "cannot be used with"),
        ("sketch count a.hll --error 0.1", "--error is for folders"),
        ("sketch count groups", "name the groups"),
    ] {
        let refused = work.run(command);
        assert_eq!(refused.code, 2, "{command}: {refused:?}");
        assert!(
            refused.stderr.contains(says) && refused.stdout.is_empty(),
            "{command}: {refused:?}"
        );
    }
    let names = fs::read_dir(work.path("folder")).unwrap().count();
    assert!(names == 0 && !work.path("folder.new").exists() && !work.path("groups:home").exists());
}

#[test]
fn names_and_intervals_at_their_limits() {
    let work = folders();
    // Longer as a name than a column may be wide.
    let long = "A".to_owned() + &"|A".repeat(12_000);
    let command = "sketch intersect table store --error 0.9 --confidence 0.5 --expression";
    let sized = work.ok(&format!("{command} {long}"));
    assert!(sized.text().len() > 1 << 16 && sized.text().contains("about"));
    for confidence in ["1e-9", "0.1", "0.999999"] {
        let count =
            format!("sketch count table store --error 0.3 --confidence {confidence} --json");
        let at = |place: &str| number(&work, &count, place);
        assert!(at("/low") <= at("/count") && at("/count") <= at("/high"), "{confidence}");
    }
    work.write("rows.csv", "n,low\n1,home\n");
    work.ok("sketch add groups --by low --key n rows.csv");
    let text = work.ok("sketch count groups --all");
    assert!(text.text().starts_with("group,distinct,low,high\nhome,1,"), "{text:?}");
    work.feed("sketch add a.hll", b"");
    work.feed("sketch add b.hll", b"");
    assert_eq!(number(&work, "sketch intersect a.hll b.hll --json", "/intersection/count"), 0.0);
}

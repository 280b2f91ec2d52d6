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
        work.ok(&format!("sketch convert image copy --to {format}"));
        assert_eq!(content(&work, "copy"), before, "{format}, {count} keys");
        work.ok("sketch convert image own.hll");
        let estimate = number(&work, "sketch count image --json", "/count");
        assert_eq!(number(&work, "sketch count image own.hll --json", "/count"), estimate);
        // The same keys change nothing, in either format.
        work.feed("sketch add image", &lines(0..count));
        assert_eq!(content(&work, "image"), before, "{format}, {count} keys");
        work.ok(&format!("sketch convert own.hll back --to {format}"));
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
        work.ok(&format!("sketch convert {name} image --to {format} --json"));
        let of = |file: &str| number(&work, &format!("sketch count {file} --json"), "/count");
        assert_eq!(of("image"), of(&name));
        let shown: Value =
            serde_json::from_str(work.ok("sketch show image --json").text()).unwrap();
        assert_eq!(shown["format"], format);
        work.ok(&format!("sketch convert image {name} --precision 12"));
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

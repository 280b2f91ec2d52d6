//! Rows that cannot be used: their places, the reasons, and the policies.

use crate::support::{Work, arrow_file, gzip, list, parquet_file, raw, zstd};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use std::{fs, sync::Arc};

/// Builds from a file with one bad row among good ones, under all policies.
#[track_caller]
fn check(file: &str, bytes: &[u8], good: usize, message: &str) {
    let work = Work::new();
    work.write(file, bytes);
    let key = if file.ends_with(".raw") { "" } else { "--key k" };

    let stop = work.run(&format!("build {file} {key} --out t"));
    assert_eq!((stop.code, &stop.stderr[..]), (3, &format!("hashfold: {message}\n")[..]));
    assert_eq!(list(&work.path("t")), [""; 0], "nothing is left behind");

    let skip = work.ok(&format!("build {file} {key} --out t --bad-rows skip --max-bad-rows 1"));
    assert!(skip.text().contains(", 1 bad row skipped;"), "{skip:?}");
    assert_eq!(work.entries("t").len(), good);

    let line = format!("build {file} {key} --out t --bad-rows bad --max-bad-rows 50% --replace");
    // The files of the run before are replaced.
    for _ in 0..2 {
        let collect = work.ok(&line);
        assert!(collect.text().contains(", 1 bad row collected;"), "{collect:?}");
        let reason = fs::read_to_string(work.path("bad.reasons")).unwrap();
        let reason: serde_json::Value = serde_json::from_str(&reason).unwrap();
        assert!(message.ends_with(reason["reason"].as_str().unwrap()), "{reason}");
        assert!(message.starts_with(&format!("{file}:{}", reason["line"])), "{reason}");
    }
    // Read again, the bad row is as bad as before. A record that is cut short is not kept.
    let bad = fs::read(work.path("bad")).unwrap();
    let (_, format) = file.rsplit_once('.').unwrap();
    if !bad.is_empty() && format != "parquet" {
        let again = work.run(&format!("build bad {key} --format {format} --out u"));
        let (_, reason) = message.rsplit_once(": ").unwrap();
        assert!(again.code == 3 && again.stderr.contains(reason), "{again:?}");
    }
}

#[test]
fn repaired_rows_can_be_read_again() {
    let work = Work::new();
    let rows: String = (0..500).map(|i| format!("{i},\"v\n{i}\"\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}500,a,\"x\ny\"\n501\n"));
    let bad = "k,v\n500,a,\"x\ny\"\n501\n";
    work.ok("update s a.csv --key k --bad-rows bad.csv");
    assert_eq!(fs::read_to_string(work.path("bad.csv")).unwrap(), bad);
    work.write("bad.csv", bad.replace(",a,", ",").replace("501", "501,z"));
    work.ok("update s bad.csv");
    assert_eq!(work.entries("s").len(), 502);
    // An input is not replaced: it has the repaired rows.
    let (again, packed) = (
        work.run("update s bad.csv --bad-rows bad.csv"),
        work.run("update s a.csv --bad-rows x.gz"),
    );
    assert_eq!((again.code, packed.code), (2, 2), "{again:?} {packed:?}");
    assert!(
        again.stderr.starts_with("hashfold: bad.csv: is an input, and would be replaced"),
        "{again:?}"
    );
    assert!(packed.stderr.starts_with("hashfold: x.gz: bad rows are not compressed"), "{packed:?}");
    // A night without bad rows leaves only the header.
    work.write("a.csv", "k,v\n1,a\n");
    work.ok("update s a.csv --bad-rows bad.csv");
    assert_eq!(fs::read_to_string(work.path("bad.csv")).unwrap(), "k,v\n");
    assert_eq!(fs::read_to_string(work.path("bad.csv.reasons")).unwrap(), "");
}

#[test]
fn more_than_one_bad_row_in_a_hundred_is_a_failure() {
    let work = Work::new();
    let rows = |good: usize, bad: usize| {
        let good: String = (0..good).map(|i| format!("{i},a\n")).collect();
        format!("k,v\n{good}{}", "x\n".repeat(bad))
    };
    let run = |options: &str, code| {
        let outcome = work.run(&format!("build a.csv --key k --out t --replace {options}"));
        assert_eq!(outcome.code, code, "{options}: {outcome:?}");
        outcome.stderr
    };
    work.write("a.csv", rows(198, 2));
    run("--bad-rows skip", 0);
    work.write("a.csv", rows(197, 3));
    let message = run("--bad-rows skip", 3);
    assert_eq!(
        message,
        "hashfold: 3 of 200 rows read are bad, more than --max-bad-rows 1%; the first is \
         a.csv:199:2: the line has 1 field, expected 2\n"
    );
    run("--bad-rows skip --max-bad-rows 3", 0);
    run("--bad-rows skip --max-bad-rows 2", 3);
    run("--bad-rows skip --max-bad-rows 1.5%", 0);
    // The bad rows are kept, to find out what is wrong.
    run("--bad-rows bad", 3);
    assert_eq!(fs::read_to_string(work.path("bad")).unwrap(), "k,v\nx\nx\nx\n");
    for limit in ["x", "-1", "101%", "nan%", "%"] {
        run(&format!("--bad-rows skip --max-bad-rows={limit}"), 2);
    }
}

#[test]
fn bad_rows_alone_are_a_failure_under_every_policy() {
    let work = Work::new();
    work.write("a.csv", "k,v\nx\ny\n");
    for policy in ["skip", "bad"] {
        let line = format!("update s a.csv --key k --bad-rows {policy} --max-bad-rows 100%");
        let outcome = work.run(&line);
        assert_eq!(outcome.code, 3, "{outcome:?}");
        assert!(outcome.stderr.contains("all 2 rows read are bad, the first is a.csv:2:2: "));
        assert_eq!(list(&work.path("s")), [""; 0], "nothing is left behind");
    }
}

#[test]
fn bad_rows_of_parquet_are_json_lines() {
    let keys: ArrayRef = Arc::new(StringArray::from(vec![Some("1"), None]));
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let batch = RecordBatch::try_from_iter([("k", keys), ("v", values)]).unwrap();
    let work = Work::new();
    work.write("a.parquet", parquet_file(&batch)).write("b.csv", "k,v\n1,2\n");
    work.ok("build a.parquet --key k --out t --bad-rows bad --max-bad-rows 1");
    assert_eq!(fs::read_to_string(work.path("bad")).unwrap(), "{\"v\":\"b\"}\n");
    let mixed = work.run("build a.parquet b.csv --key k --out u --bad-rows other");
    assert_eq!(mixed.code, 2, "{mixed:?}");
    assert!(mixed.stderr.contains("b.csv: has another header or format"), "{mixed:?}");
}

#[test]
fn a_csv_line_has_as_many_fields_as_the_header() {
    check("a.csv", b"k,v\n1,a\n2\n3,c\n", 2, "a.csv:3:2: the line has 1 field, expected 2");
    check("a.csv", b"k,v\n1,\"a\nb\"\n2,b,c\n", 1, "a.csv:4:5: the line has 3 fields, expected 2");
}

#[test]
fn csv_quotes_are_closed() {
    let hint = "double the quotes inside, or give --no-quotes if they are part of the text";
    let message = format!("a.csv:2:6: the field goes on after its closing quote; {hint}");
    check("a.csv", b"k,v\n1,\"a\"b\n2,b\n", 1, &message);
    check("a.csv", b"k,v\n1,\"a\n2,b\n3,c", 2, "a.csv:2:3: the quote is never closed");
}

#[test]
fn a_json_line_is_an_object_with_a_key() {
    let good = "{\"k\":1}\n{\"k\":2}\n";
    let check = |line: &str, message: &str| {
        check("a.jsonl", format!("{good}{line}\n{{\"k\":3}}").as_bytes(), 3, message);
    };
    check("{\"k\":3,}", "a.jsonl:3:8: not a JSON object: trailing comma");
    check("[]", "a.jsonl:3:1: not a JSON object: expected an object in braces, got a list");
    check("{\"v\":3}", "a.jsonl:3: there is no key \"k\"");
    check("{\"k\": null}", "a.jsonl:3:7: the key \"k\" is null");
    check("{\"k\":[]}", "a.jsonl:3:6: the key \"k\" is a list, expected a string or a number");
}

#[test]
fn a_key_is_shorter_than_64_kib() {
    let long = "x".repeat(65_536);
    let message = "the key is 65536 bytes long, the longest accepted is 65535";
    check("a.csv", format!("k,v\n1,\n{long},\n").as_bytes(), 1, &format!("a.csv:3: {message}"));
    let line = format!("{{\"k\":\"{long}\"}}\n{{\"k\":1}}");
    check("a.jsonl", line.as_bytes(), 1, &format!("a.jsonl:1: {message}"));
    let records = raw(&[(b"1", b""), (long.as_bytes(), b"")]);
    check("a.raw", &records, 1, &format!("a.raw:2: {message}"));
}

#[test]
fn a_value_is_at_most_64_mib() {
    let long = vec![b'x'; (64 << 20) + 1];
    let message = "the value is 67108865 bytes long, the longest accepted is 67108864";
    check("a.csv", &[b"k,v\n1,", &long[..], b"\n2,\n"].concat(), 1, &format!("a.csv:2: {message}"));
    check("a.raw", &raw(&[(b"1", b""), (b"2", &long)]), 1, &format!("a.raw:2: {message}"));
}

#[test]
fn a_raw_record_is_whole() {
    let records = raw(&[(b"1", b"a"), (b"2", b"b")]);
    check("a.raw", &records[..records.len() - 1], 1, "a.raw:2: the record is cut short");
    check("a.raw", &records[..13], 1, "a.raw:2: the record is cut short");
}

#[test]
fn a_null_key_is_no_key() {
    let keys: ArrayRef = Arc::new(StringArray::from(vec![Some("1"), None]));
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let batch = RecordBatch::try_from_iter([("v", values), ("k", keys)]).unwrap();
    check("a.parquet", &parquet_file(&batch), 1, "a.parquet:2:2: the key \"k\" is null");
}

/// Damaged files of foreign formats cause one line of output, or success, but no crash.
#[test]
fn a_flipped_bit_is_no_crash() {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..50).map(|i| i.to_string())));
    let batch = RecordBatch::try_from_iter([("k", keys.clone()), ("v", keys)]).unwrap();
    let work = Work::new();
    for (file, bytes) in [("a.arrow", arrow_file(&batch)), ("a.parquet", parquet_file(&batch))] {
        for i in (0..bytes.len()).step_by(bytes.len() / 60) {
            let mut damaged = bytes.clone();
            damaged[i] ^= 1 << (i % 8);
            work.write(file, damaged);
            let outcome = work.run(&format!("build {file} --key k --out t --dry-run"));
            assert!([0, 3].contains(&outcome.code), "{file}, byte {i}: {outcome:?}");
            assert!(outcome.stderr.lines().count() <= 1, "{file}, byte {i}: {outcome:?}");
        }
    }
}

/// A truncated compressed or binary file ends the build under every policy.
#[test]
fn a_file_that_was_cut_short_is_refused() {
    let csv: String = (0..5000).map(|i| format!("{},{}\n", i * 7919 % 5000, i)).collect();
    let csv = format!("k,v\n{csv}");
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..500).map(|i| i.to_string())));
    let batch = RecordBatch::try_from_iter([("k", keys.clone()), ("v", keys)]).unwrap();
    let (arrow, parquet) = (arrow_file(&batch), parquet_file(&batch));
    let files = [
        ("a.csv.gz", gzip(csv.as_bytes())),
        ("a.csv.zst", zstd(csv.as_bytes())),
        ("a.parquet", parquet.clone()),
        ("a.parquet.gz", gzip(&parquet)),
        ("a.arrow", arrow.clone()),
        ("a.arrow.zst", zstd(&arrow)),
    ];
    let work = Work::new();
    for (file, bytes) in files {
        work.write(file, &bytes).ok(&format!("build {file} --key k --out t --replace"));
        for cut in [bytes.len() - 1, bytes.len() / 2, 20, 5] {
            work.write(file, &bytes[..cut]);
            let outcome = work.run(&format!("build {file} --key k --out cut --bad-rows skip"));
            assert_eq!(outcome.code, 3, "{file} cut at {cut}: {outcome:?}");
            assert!(outcome.stderr.starts_with(&format!("hashfold: {file}")), "{outcome:?}");
            assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
            assert_eq!(list(&work.path("cut")), [""; 0]);
        }
    }
}

//! Compressed inputs that are truncated, or whose names promise another format (issue 10).

use crate::support::{Work, gzip, parquet_file, zstd};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use std::sync::Arc;

const ROWS: &str = "{\"k\":\"1\",\"v\":\"a\"}\n{\"k\":\"2\",\"v\":\"b\"}\n";

/// A store `s` and a filter `f` of the keys 1, 2 and 3.
fn work() -> Work {
    let work = Work::new();
    work.write("a.jsonl", format!("{ROWS}{{\"k\":\"3\",\"v\":\"c\"}}\n"));
    work.write("a.txt", "1\n2\n3\n");
    work.ok("update s a.jsonl --key k --value v");
    work.ok("filter add f --keys a.txt --exact");
    work
}

/// Checks that a command refuses `file` as bad input and names it.
#[track_caller]
fn refused(work: &Work, line: &str, file: &str, message: &str) {
    let outcome = work.run(line);
    assert_eq!(outcome.code, 3, "{line}: {outcome:?}");
    assert!(outcome.stderr.starts_with(&format!("hashfold: {file}: ")), "{line}: {outcome:?}");
    assert!(outcome.stderr.contains(message), "{line}: {outcome:?}");
    assert_eq!(outcome.stdout, b"", "{line}");
}

/// Truncates a compressed file at every length except the `whole` ones. None may be accepted as
/// fewer rows.
#[track_caller]
fn check_cuts(name: &str, bytes: &[u8], whole: &[usize]) {
    let work = work();
    let before = work.entries("s");
    for len in (0..bytes.len()).filter(|len| !whole.contains(len)) {
        work.write(name, &bytes[..len]);
        let update = format!("update s {name} --mode replace");
        refused(&work, &update, name, "cut short");
    }
    assert_eq!(work.entries("s"), before);
    work.write(name, bytes);
    work.ok(&format!("update s {name} --mode replace"));
    assert_eq!(work.entries("s").len(), 2);
}

/// Issue 10: an empty `.jsonl.gz` emptied a store with exit code 0.
#[test]
fn no_cut_of_a_compressed_file_passes_for_fewer_rows() {
    check_cuts("e.jsonl.gz", &gzip(ROWS.as_bytes()), &[]);
    check_cuts("e.jsonl.zst", &zstd(ROWS.as_bytes()), &[]);
    let work = work();
    for name in ["e.jsonl.gzip", "e.jsonl.zstd", "E.JSONL.GZ"] {
        work.write(name, "");
        refused(&work, &format!("update s {name} --mode replace"), name, "cut short");
        work.write(name, gzip(ROWS.as_bytes()));
        work.ok(&format!("build {name} --key k --out t --replace"));
    }
}

/// Issue 10: both formats allow several parts in a row. A file that is truncated exactly between
/// two parts is a valid file with fewer rows, so this cannot be detected. Every other truncation
/// is.
#[test]
fn a_cut_between_the_parts_of_a_file_cannot_be_seen() {
    let (first, second) = ROWS.as_bytes().split_at(ROWS.len() / 2);
    for (name, pack) in [("e.jsonl.gz", gzip as fn(&[u8]) -> Vec<u8>), ("e.jsonl.zst", zstd)] {
        let start = pack(first);
        check_cuts(name, &[&start[..], &pack(second)].concat(), &[start.len()]);
        let work = work();
        work.write(name, &start);
        work.ok(&format!("update s {name} --mode replace --allow-empty"));
        assert_eq!(work.entries("s").len(), 1);
    }
}

/// Issue 10: every verb that reads files goes through the same check.
#[test]
fn every_verb_notices_a_cut_file() {
    let work = work();
    let names: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    let table = parquet_file(&RecordBatch::try_from_iter([("k", names)]).unwrap());
    let whole = [("gz", gzip(ROWS.as_bytes())), ("zst", zstd(ROWS.as_bytes()))];
    for (end, bytes) in &whole {
        for len in 0..=4 {
            let cut = &bytes[..len];
            for name in ["e.jsonl", "e.txt", "e.parquet", "e.arrow", "e.raw", "e.csv"] {
                work.write(&format!("{name}.{end}"), cut);
            }
            for verb in [
                "build e.csv --key k --out t",
                "build e.parquet --key k --out t",
                "build e.arrow --key k --out t",
                "build e.raw --out t",
                "update s e.jsonl",
                "filter add f --keys e.txt",
                "filter add f --keys e.jsonl --key k",
                "filter remove f --keys e.txt",
                "filter contains f --keys e.txt",
                "get s --keys e.txt",
            ] {
                let file = verb.split(' ').find(|word| word.starts_with("e.")).unwrap();
                let packed = format!("{file}.{end}");
                refused(&work, &verb.replace(file, &packed), &packed, "cut short");
            }
        }
    }
    work.write("whole.parquet.gz", gzip(&table)).write("keys.gz", gzip(b"1\n3\n"));
    work.ok("build whole.parquet.gz --key k --out t");
    assert_eq!(work.ok("get s --keys keys.gz").text().lines().count(), 2);
    assert_eq!(work.ok("filter contains f --keys keys.gz").text(), "1\n3\n");
}

/// Issue 10: a name that promises compression is believed, so plain text in such a file is an
/// error.
#[test]
fn text_in_a_file_named_as_compressed_is_refused() {
    let work = work();
    for (name, packing) in [("e.jsonl.gz", "gzip"), ("e.jsonl.zst", "zstd")] {
        work.write(name, ROWS);
        let message = format!(
            "starts with \"{{\", expected {packing} data as the name says; \
             rename the file if it is not compressed"
        );
        refused(&work, &format!("update s {name} --mode replace"), name, &message);
    }
    // A file whose name promises the other compression can be read.
    work.write("swapped.jsonl.gz", zstd(ROWS.as_bytes()));
    work.ok("update s swapped.jsonl.gz --mode replace");
    assert_eq!(work.entries("s").len(), 2);
}

/// Issue 10: standard input has no name, but two bytes of a magic number are not text.
#[test]
fn a_cut_magic_on_standard_input_is_refused() {
    let work = work();
    for bytes in [&gzip(b"1\n")[..2], &zstd(b"1\n")[..2], &zstd(b"1\n")[..3]] {
        let outcome = work.feed("filter add f", bytes);
        assert_eq!(outcome.code, 3, "{outcome:?}");
        assert!(outcome.stderr.contains("cut short"), "{outcome:?}");
    }
    assert_eq!(work.feed("filter add f", b"(").code, 0);
}

/// Issue 10: `pzstd` writes a frame without data before each frame with data.
#[test]
fn a_zstd_file_may_start_with_a_skippable_frame() {
    let work = work();
    let skippable = [&b"\x50\x2a\x4d\x18\x04\x00\x00\x00size"[..], &zstd(ROWS.as_bytes())].concat();
    work.write("e.jsonl.zst", skippable);
    work.ok("update s e.jsonl.zst --mode replace");
    assert_eq!(work.entries("s").len(), 2);
}

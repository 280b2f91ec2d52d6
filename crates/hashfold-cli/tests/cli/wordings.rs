//! What a new user reads: help, usage lines, and errors about bad input of each kind. Issue 12.

use crate::support::Work;

/// Returns the help of a verb as one line.
fn help(work: &Work, verb: &str) -> String {
    let text = work.ok(&format!("{verb} --help")).text().to_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Issue 12: usage lines showed required arguments as optional.
#[test]
fn usage_lines_show_what_is_required() {
    let work = Work::new();
    for (verb, usage) in [
        ("get", "get [OPTIONS] <DIR> <KEY>... hashfold get [OPTIONS] <DIR> --keys <FILE>"),
        ("delete", "delete [OPTIONS] <DIR> <KEY>... hashfold delete [OPTIONS] <DIR> --keys <FILE>"),
        ("filter contains", "filter contains [OPTIONS] <DIR> <KEY>... hashfold filter contains"),
        ("build", "build [OPTIONS] --key <COL> --out <DIR> <INPUT>... hashfold build"),
        ("update", "update [OPTIONS] --key <COL> <DIR> <BATCH>... (first batch) hashfold update"),
        ("diff", "diff [OPTIONS] <DIR> <A> [B]"),
    ] {
        let help = help(&work, verb);
        assert!(help.contains(&format!("Usage: hashfold {usage}")), "{verb}: {help}");
    }
}

/// Issue 12: the help of `--index` did not say how to choose, and that of `--memory` what large
/// values take.
#[test]
fn help_says_what_an_option_costs() {
    let work = Work::new();
    for verb in ["build", "update", "reindex"] {
        let help = help(&work, verb);
        for part in [
            "How to choose: fences for small entries; sparse for small entries if no lookup may take \
             a second read; dense for large entries, or with --absent-bits",
            "2.6 bits of RAM per key, 1 device read per lookup, 21 ns of CPU time per key to build",
            "0.3 to 1.5 bits of RAM per key for small entries, 1 device read, about 10 ns to build",
            "a second device read for about 1 % of lookups, 1 ns to build",
        ] {
            assert!(help.contains(part), "{verb}: {help}");
        }
    }
    let help = help(&work, "build");
    assert!(help.contains("Values above 1 MiB take about five times the size"), "{help}");
}

#[track_caller]
fn check(work: &Work, line: &str, code: i32, message: &str) {
    let outcome = work.run(line);
    assert_eq!(outcome.code, code, "{line}: {outcome:?}");
    assert!(outcome.stderr.contains(message), "{line}: {}", outcome.stderr);
}

/// Issue 12: "invalid digit found in string".
#[test]
fn numbers_on_the_command_line_are_explained() {
    let work = Work::new();
    let largest = "expected a whole number from 0 to 18446744073709551615";
    for line in [
        "get s 1 --version x",
        "scan s --limit 1.5",
        "diff s x",
        "diff s 1 x",
        "pin s x",
        "publish s 18446744073709551616",
        "update s a.csv --min-entries x",
        "update s a.csv --sample 1e3",
        "gc s --keep two",
    ] {
        check(&work, line, 2, largest);
    }
    for line in ["update s a.csv --chunks x", "merge s --chunks x", "reindex t --bucket-size x"] {
        check(&work, line, 2, "expected a whole number from 0 to 4294967295");
    }
    check(&work, "build a.csv --out t --seed zz", 2, "expected a number from 0 to 2^64 - 1");
    check(&work, "update s a.csv --delete-where x", 2, "expected a name, '=' and a value");
    check(&work, "build a.csv --out t --memory x", 2, "expected a size like 512MiB");
    check(&work, "build a.csv --out t --memory 10", 2, "expected at least 1.00 MiB");
}

/// Issue 12: messages of decoders in their own jargon.
#[test]
fn broken_files_are_described_in_plain_words() {
    let work = Work::new();
    let build = |name: &str, bytes: &str, message: &str| {
        work.write(name, bytes);
        let outcome = work.run(&format!("build {name} --key k --out t"));
        let expected = format!("hashfold: {name}{message}");
        assert_eq!(outcome.code, 3, "{outcome:?}");
        assert!(outcome.stderr.starts_with(&expected), "{expected}: {}", outcome.stderr);
    };
    build("a.csv", "k,v\n1,\"a\n2,b\n", ":2:3: the quote is never closed");
    build("a.csv", "k,v\n1,\"a\"b\n", ":2:6: the field goes on after its closing quote");
    build("a.csv", "k,v\n1,a,c\n", ":2:5: the line has 3 fields, expected 2");
    let object = ":1:1: not a JSON object: expected an object in braces, got a list";
    build("a.jsonl", "[1]\n", object);
    build("a.jsonl", "{\"k\":1\n", ":1:6: not a JSON object: the line ends too early");
    build("a.jsonl", "{\"k\":nul}\n", ":1:9: not a JSON object: expected true, false or null");
    build("a.jsonl", "{k:1}\n", ":1:2: not a JSON object: expected the name of a field, in double");
    build("a.parquet", "", ": is empty, expected Parquet\n");
    build("a.parquet", "k,v\n1,a\n2,b\n", ": is no whole Parquet file: Invalid Parquet file.");
    build("a.arrow", "", ": is empty, expected Arrow IPC\n");
    build(
        "a.arrow",
        "k,v\n1,a\n2,b\n",
        ": is no Arrow IPC, which starts with the text ARROW1 or the",
    );
    build("a.arrow", "ARROW1\0\0\u{1}", ": is no whole Arrow IPC: ");
}

/// Issue 12: a value of the wrong kind was refused without saying what the column takes.
#[test]
fn values_of_the_wrong_kind_are_refused_with_what_the_column_takes() {
    let work = Work::new();
    work.write("a.csv", "k,i,f,b,d,t\n1,1,1.5,true,2026-01-31,2026-01-31T12:00:00Z\n");
    work.ok("update s a.csv --key k --infer");
    let row = |fields: &str, message: &str| {
        work.write("b.csv", format!("k,i,f,b,d,t\n{fields}\n"));
        check(&work, "update s b.csv", 3, message);
    };
    row("1,x,,,,", "b.csv:2:3: the column \"i\": expected int64 (a whole number from -2^63");
    row("1,9223372036854775808,,,,", "2^63 - 1), got \"9223372036854775808\"\n");
    row("1,,1e999,,,", "the column \"f\": expected float64 (a number of at most 17 digits)");
    row("1,,,yes,,", "the column \"b\": expected bool (true or false), got \"yes\"\n");
    row(
        "1,,,,31.1.2026,",
        "the column \"d\": expected date (like 2026-01-31), got \"31.1.2026\"\n",
    );
    row("1,,,,,2026", "expected timestamp[us, UTC] (like 2026-01-31T12:00:00Z), got \"2026\"\n");
    row("x,,,,,", "b.csv:2: the key is \"x\", and those of the store are integers");
}

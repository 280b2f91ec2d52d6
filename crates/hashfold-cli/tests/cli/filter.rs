//! `hashfold filter`: inserting, printing and querying keys.

use crate::support::{Outcome, Work, gzip, list, zstd};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::channel,
    thread::{sleep, spawn},
    time::Duration,
};

#[track_caller]
fn check(outcome: &Outcome, code: i32, stdout: impl AsRef<[u8]>) {
    assert_eq!(outcome.code, code, "{outcome:?}");
    assert_eq!(outcome.stdout, stdout.as_ref(), "{outcome:?}");
}

/// Checks that the command ends with this exit code and message.
#[track_caller]
pub(crate) fn refused(work: &Work, line: &str, code: i32, message: &str) {
    let outcome = work.run(line);
    assert_eq!((outcome.code, outcome.text()), (code, ""), "{line}: {outcome:?}");
    assert_eq!(outcome.stderr, format!("hashfold: {message}\n"), "{line}");
}

pub(crate) fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(outcome.text().lines().last().unwrap()).unwrap()
}

/// Returns lines with numbers.
pub(crate) fn lines(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut text = String::new();
    numbers.for_each(|number| writeln!(text, "{number}").unwrap());
    text.into_bytes()
}

/// Starts an `add` that waits for more keys.
pub(crate) fn start(work: &Work, line: &str) -> (Child, ChildStdin) {
    let mut command = work.command(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

pub(crate) fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
}

/// Returns the first occurrence of each line, each with a line feed.
pub(crate) fn first_times(lines: &[&[u8]]) -> Vec<u8> {
    let mut seen = BTreeSet::new();
    let new = lines.iter().filter(|line| seen.insert(**line));
    new.flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
}

#[test]
fn keys_are_put_in_asked_for_and_taken_out() {
    let work = Work::new();
    let created = work.ok("filter create f --capacity 10k --seed 7");
    assert_eq!(
        created.text(),
        "created f: set for 10,000 keys, false-positive rate 0.04 % when full\n"
    );
    let added = work.feed("filter add f", b"one\ntwo\nthree\n");
    assert!(added.text().starts_with("added to f: 3 keys; "), "{added:?}");
    check(&work.ok("filter contains f two one"), 0, "two\none\n");
    let absent = work.run("filter contains f two four");
    check(&absent, 1, "two\n");
    assert_eq!(absent.stderr, "hashfold: 1 of 2 keys is absent: \"four\"\n");
    check(&work.run("filter contains f two four --invert"), 1, "four\n");
    check(&work.run("filter contains f two four --counts"), 1, "1\ttwo\n0\tfour\n");
    let expected = "{\"key\":\"two\",\"count\":1}\n{\"key\":\"four\",\"count\":0}\n";
    check(&work.run("filter contains f two four --json"), 1, expected);
    check(&work.feed("filter contains f --keys -", b"one\r\nthree"), 0, "one\nthree\n");
    assert_eq!(work.feed("filter remove f -", b"two").code, 0);
    check(&work.run("filter contains f one two"), 1, "one\n");
    work.ok("filter verify f");
}

#[test]
fn a_multiset_counts() {
    let work = Work::new();
    work.ok("filter create f --exact --multiset");
    assert_eq!(work.feed("filter add f", b"a\nb\na\na\n").code, 0);
    assert_eq!(work.feed("filter remove f", b"a\n").code, 0);
    check(&work.run("filter contains f a b c --counts"), 1, "2\ta\n1\tb\n0\tc\n");
    assert!(work.ok("filter stat f").text().starts_with("filter           multiset, exact\n"));
}

#[test]
fn unique_prints_new_keys_in_the_order_of_the_input() {
    let long = [b'x'; 65_535];
    let lines: [&[u8]; 14] = [
        b"b",
        b"",
        b"a",
        b"b",
        b"\xff\xfe",
        b"a b\tc",
        b"",
        &long,
        b"\xff\xfe",
        b"\0",
        &long,
        b"a\rb",
        b"a",
        b"last",
    ];
    let work = Work::new();
    let mut input = lines.join(&b'\n');
    check(&work.feed("filter add f --exact --unique", &input), 0, first_times(&lines));
    check(&work.feed("filter add f --unique", &input), 0, "");
    // The same lines with other line ends, compressed, after a byte order mark.
    let crlf = [b"\xef\xbb\xbf", &lines.join(&b"\r\n"[..])[..], b"\r\n"].concat();
    work.write("crlf", &crlf).write("crlf.gz", gzip(&crlf)).write("crlf.zst", zstd(&crlf));
    for file in ["crlf", "crlf.gz", "crlf.zst", "crlf --keys crlf.gz --keys crlf"] {
        check(&work.ok(&format!("filter add f --unique --keys {file}")), 0, "");
        let other = format!("filter add other-{} --exact --unique --keys {file}", file.len());
        check(&work.ok(&other), 0, first_times(&lines));
    }
    input.extend(b"\nnew");
    let outcome = work.feed("filter add f --unique - --json", &input);
    assert_eq!(outcome.text().lines().next(), Some(r#"{"key":"new"}"#));
    assert_eq!((&json(&outcome)["keys"], &json(&outcome)["new"]), (&15.into(), &1.into()));
}

#[test]
fn unique_agrees_with_a_set_on_many_random_lines() {
    let mut state = 1_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let lines: Vec<Vec<u8>> = (0..400_000)
        .map(|_| {
            let (number, width) = (random() % 100_000, random() % 3 * 40);
            format!("{number:>0$}", width as usize).into_bytes()
        })
        .collect();
    let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
    let work = Work::new();
    let outcome = work.feed("filter add f --exact --unique --memory 64MiB", &lines.join(&b'\n'));
    assert!(outcome.stdout == first_times(&lines), "{}", outcome.stderr);
    let new = outcome.text().lines().count() as u64;
    let merged = json(&work.ok("filter merge f --json"));
    assert_eq!(merged["keys_max"], new);
    let stat = json(&work.ok("filter stat f --json"));
    assert_eq!((&stat["keys_max"], &stat["keys_are_exact"]), (&new.into(), &true.into()));
}

#[test]
fn lines_that_are_too_long_are_bad_rows() {
    let work = Work::new();
    for len in [65_536, 70_000, 1_000_000] {
        work.write("long", [b"a\n", &vec![b'x'; len][..], b"\nb\n"].concat());
        let stopped = work.run("filter add f --exact --keys long");
        assert_eq!(stopped.code, 3, "{stopped:?}");
        let reason = format!("long:2: the key is {len} bytes long, the longest accepted is 65535");
        assert!(stopped.stderr.contains(&reason), "{stopped:?}");
        let skipped = work.ok("filter add f --unique --keys long --bad-rows skip --max-bad-rows 1");
        assert!(skipped.stderr.contains(", 1 bad row skipped"), "{skipped:?}");
        check(&work.ok("filter contains f a b"), 0, "a\nb\n");
        work.run("filter remove f --keys long --bad-rows skip");
    }
    work.write("long", [&vec![b'x'; 300_000][..], b"\na\n"].concat());
    work.ok("filter add f --keys long --bad-rows bad --max-bad-rows 50%");
    let reason: Value =
        serde_json::from_slice(&fs::read(work.path("bad.reasons")).unwrap()).unwrap();
    assert_eq!((&reason["file"], &reason["line"]), (&"long".into(), &1.into()));
    assert_eq!(fs::read(work.path("bad")).unwrap(), b"", "a part of a key would be another key");
}

#[test]
fn keys_can_be_columns() {
    let work = Work::new();
    work.write("a.csv", "id,name\n1,apple\n2,\"pear, green\"\n3,apple\n");
    work.write("b.jsonl", "{\"x\":1,\"name\":\"plum\"}\n{\"name\":\"apple\"}\n");
    work.write("c.tsv", "apple\tx\nfig\ty\n");
    let unique = "filter add f --unique --key";
    let outcome = work.ok(&format!("{unique} name --keys a.csv --keys b.jsonl --exact"));
    check(&outcome, 0, "apple\npear, green\nplum\n");
    check(&work.ok(&format!("{unique} 1 --keys c.tsv --no-header")), 0, "fig\n");
    check(&work.feed(&format!("{unique} k --format csv"), b"k\nplum\nkiwi"), 0, "kiwi\n");
    check(&work.ok("filter contains f fig plum"), 0, "fig\nplum\n");
    let columns =
        "a.csv: has no column \"x\"; its columns are id, name; 0 keys were added before that";
    refused(
        &work,
        "filter add f --key x --keys a.csv",
        3,
        columns.split(';').take(2).collect::<Vec<_>>().join(";").as_str(),
    );
}

#[test]
fn slow_input_is_answered_at_once() {
    let work = Work::new();
    for line in ["filter add f --exact --unique", "filter contains f --keys -"] {
        let (mut child, mut stdin) = start(&work, line);
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, answered) = channel();
        let reader = spawn(move || answers.try_for_each(|line| sender.send(line.unwrap())));
        for key in ["a", "bc", "d"] {
            stdin.write_all(format!("{key}\n").as_bytes()).unwrap();
            assert_eq!(answered.recv_timeout(Duration::from_secs(20)).unwrap(), key, "{line}");
        }
        drop(stdin);
        assert!(child.wait().unwrap().success());
        reader.join().unwrap().unwrap();
    }
}

#[test]
fn filters_of_one_kind_are_merged() {
    let work = Work::new();
    for (name, seed, keys) in [("a", 1, "x\ny\n"), ("b", 1, "y\nz\n"), ("c", 2, "w\n")] {
        let line = format!("filter add {name} --exact --seed {seed}");
        assert_eq!(work.feed(&line, keys.as_bytes()).code, 0);
    }
    let merged = work.ok("filter merge a b");
    assert!(
        merged.text().starts_with("merged a: 3 keys, 1 other filter merged in; "),
        "{merged:?}"
    );
    check(&work.ok("filter contains a x y z"), 0, "x\ny\nz\n");
    work.ok("filter create m --exact --multiset --seed 1");
    work.ok("filter create n --capacity 1000 --seed 1");
    let differs = [
        ("c", "another seed; make both with the same --seed"),
        ("m", "another mode; make both with --multiset or without"),
        (
            "n",
            "fingerprints of another size; make both with the same --capacity and --fp-rate, or \
             --exact",
        ),
    ];
    for (other, what) in differs {
        let message = format!("{other}: cannot be merged into a: it has {what}");
        refused(&work, &format!("filter merge a b {other}"), 2, &message);
    }
    refused(&work, "filter merge a ./a", 2, "./a: is the filter itself; name other filters");
    assert_eq!(json(&work.ok("filter merge a --json"))["keys_max"], 3);
}

#[test]
fn epochs_are_forgotten() {
    let work = Work::new();
    work.ok("filter create f --exact");
    for day in ["monday", "tuesday", "wednesday"] {
        assert_eq!(work.feed("filter add f", day.as_bytes()).code, 0);
        work.ok("filter advance f --keep 3");
    }
    check(&work.run("filter contains f monday tuesday wednesday"), 1, "tuesday\nwednesday\n");
    let advanced = work.ok("filter advance f --keep 1");
    assert_eq!(advanced.text(), "advanced f: epoch 4; 3 epochs dropped, 1 kept\n");
    check(&work.run("filter contains f monday tuesday wednesday"), 1, "");
    let stat = work.ok("filter stat f");
    assert!(stat.text().contains("\nepochs           1, number 4\n"), "{stat:?}");
    assert_eq!(work.run("filter advance f --keep 0").code, 2);
}

#[test]
fn create_prints_the_kind_of_the_filter() {
    let work = Work::new();
    for options in [
        "",
        "--capacity 0",
        "--capacity 18446744073709551616",
        "--capacity x",
        "--capacity 10 --fp-rate 0",
        "--capacity 10 --fp-rate 1",
        "--capacity 10 --fp-rate NaN",
        "--capacity 18446744073709551615",
        "--capacity 10 --exact",
        "--exact --fp-rate 0.1",
        "--exact --memory 1GiB",
    ] {
        let outcome = work.run(&format!("filter create f {options}"));
        assert_eq!(outcome.code, 2, "{options}: {outcome:?}");
        assert!(!outcome.stderr.is_empty());
    }
    assert!(!work.path("f").exists());
    refused(
        &work,
        "filter add f",
        2,
        "f: there is no filter here; make one with --exact or --capacity N",
    );
    work.ok("filter create f --capacity 1e6 --fp-rate 1% --seed 0x7");
    let differs = "it is a set for 1,000,000 keys, false-positive rate 1 % when full";
    for (option, given) in [
        ("--exact", "--exact"),
        ("--capacity", "--capacity 5"),
        ("--seed", "--capacity 1e6 --fp-rate 1% --seed 8"),
        ("--seed", "--seed 8"),
        ("--multiset", "--multiset"),
    ] {
        let message = format!(
            "f: was not made with this {option}: {differs}; leave {option} out, or name another folder"
        );
        refused(&work, &format!("filter add f {given}"), 2, &message);
    }
    assert_eq!(work.feed("filter add f --capacity 1M --fp-rate 0.01 --seed 7", b"a").code, 0);
    assert_eq!(work.run("filter add f --memory 63MiB").code, 2);
    refused(
        &work,
        "filter create f --exact",
        2,
        "f: there is a filter here already; insert keys with `hashfold filter add`",
    );
    let stat = json(&work.ok("filter stat f --json"));
    assert_eq!((&stat["capacity"], &stat["keys_max"]), (&1_000_000.into(), &1.into()));
}

#[test]
fn other_folders_are_left_alone() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n");
    work.ok("build a.csv --key k --out table");
    work.ok("update store a.csv --key k");
    work.ok("filter create f --exact");
    fs::create_dir(work.path("mine")).unwrap();
    work.write("mine/run-1", "precious");
    let verbs = ["add", "contains", "remove", "merge", "advance", "stat", "verify"];
    for verb in verbs {
        let key = if verb == "contains" { " k" } else { "" };
        for (folder, what) in [
            ("table", "is a table, expected a filter; use `hashfold stat`, `get` and `verify`"),
            ("store", "is a store, expected a filter; use `hashfold stat`, `get` and `verify`"),
        ] {
            refused(
                &work,
                &format!("filter {verb} {folder}{key}"),
                2,
                &format!("{folder}: {what}"),
            );
        }
        assert_eq!(work.run(&format!("filter {verb} nowhere{key}")).code, 2);
        assert_eq!(work.run(&format!("filter {verb} mine{key}")).code, 2);
    }
    for folder in ["table", "store", "mine"] {
        assert_eq!(work.run(&format!("filter create {folder} --exact")).code, 2);
        assert_eq!(work.run(&format!("filter add {folder} --exact")).code, 2);
    }
    for line in [
        "stat f",
        "get f k",
        "verify f",
        "scan f",
        "reindex f",
        "build a.csv --key k --out f --replace",
        "versions f",
        "publish f",
        "gc f",
    ] {
        let message = "f: is a filter, expected a table or store; use `hashfold filter` \
                       (stat, contains, verify ...)";
        refused(&work, line, 2, message);
    }
    assert_eq!(list(&work.path("mine")), ["run-1"]);
    work.ok("verify table");
    work.ok("verify store");
    work.ok("filter verify f");
}

#[test]
fn damage_is_found_and_named() {
    let work = Work::new();
    let keys: String = (0..5000).map(|i| format!("key {i}\n")).collect();
    assert_eq!(work.feed("filter add f --exact", keys.as_bytes()).code, 0);
    let sound = work.ok("filter verify f");
    assert_eq!(sound.text(), "verified f: 1 run with 5,000 fingerprints, no damage\n");
    assert_eq!(json(&work.ok("filter verify f --json"))["fingerprints"], 5000);
    for name in list(&work.path("f")) {
        let path = work.path("f").join(&name);
        let bytes = fs::read(&path).unwrap();
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 4;
        for damaged in [&damaged[..], &bytes[..bytes.len() / 2]] {
            fs::write(&path, damaged).unwrap();
            let outcome = work.run("filter verify f");
            assert_eq!(outcome.code, 1, "{name}: {outcome:?}");
            assert!(outcome.text().starts_with(&format!("f/{name}")), "{outcome:?}");
            assert!(outcome.stderr.starts_with("hashfold: f: 1 problem found; "), "{outcome:?}");
            assert_eq!(json(&work.run("filter verify f --json"))["problems"], 1);
        }
        if name == "MANIFEST" {
            assert_eq!(work.run("filter stat f").code, 4);
            assert_eq!(work.run("filter add f --exact").code, 4);
        }
        fs::write(&path, &bytes).unwrap();
    }
    work.ok("filter verify f");
}

#[test]
fn a_filter_that_cannot_be_written_says_so() {
    let work = Work::new();
    work.ok("filter create f --exact");
    let mode =
        |mode| fs::set_permissions(work.path("f"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    // Root may write everywhere, so there is nothing to test.
    if fs::write(work.path("f/probe"), "").is_err() {
        let outcome = work.feed("filter add f", b"a\n");
        assert_eq!(outcome.code, 5, "{outcome:?}");
        assert!(outcome.stderr.contains("Permission denied"), "{outcome:?}");
        work.run("filter contains f a");
    }
    mode(0o755);
}

#[test]
fn one_process_writes_while_others_query() {
    let work = Work::new();
    assert_eq!(work.feed("filter add f --exact", b"a\n").code, 0);
    let (child, mut stdin) = start(&work, "filter add f --unique");
    stdin.write_all(b"b\n").unwrap();
    let mut answer = [0; 2];
    let mut child = child;
    child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"b\n");
    let busy = "f: another writer has it open; wait for it to end";
    for line in ["filter merge f", "filter advance f", "filter verify f"] {
        let outcome = work.run(line);
        assert_eq!(outcome.code, 6, "{line}: {outcome:?}");
        assert!(outcome.stderr.contains(busy), "{line}: {outcome:?}");
    }
    assert_eq!(work.feed("filter add f", b"c\n").code, 6);
    check(&work.run("filter contains f a b"), 1, "a\n");
    work.ok("filter stat f");
    drop(stdin);
    assert!(child.wait().unwrap().success());
    check(&work.ok("filter contains f a b"), 0, "a\nb\n");
}

#[test]
fn ctrl_c_keeps_what_was_taken() {
    let work = Work::new();
    let (mut child, mut stdin) = start(&work, "filter add f --exact --unique");
    stdin.write_all(b"a\nb\n").unwrap();
    let mut answer = [0; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected = "hashfold: stopping; Ctrl-C again ends at once\n\
                    hashfold: stopped; 2 keys were added before that\n";
    assert_eq!(stderr, expected);
    check(&work.ok("filter contains f a b"), 0, "a\nb\n");
    drop(stdin);
}

#[test]
fn a_kill_loses_no_line() {
    let work = Work::new();
    let keys: Vec<String> = (0..2_000_000).map(|i| format!("some key, number {i}\n")).collect();
    let input = keys.concat();
    let (mut child, mut stdin) = start(&work, "filter add f --exact --unique --memory 64MiB");
    let mut stdout = child.stdout.take().unwrap();
    let reader = spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let first = input.clone();
    let feeder = spawn(move || drop(stdin.write_all(first.as_bytes())));
    while list(&work.path("f")).len() < 3 && !feeder.is_finished() {
        sleep(Duration::from_millis(1));
    }
    signal(&child, "-KILL");
    child.wait().unwrap();
    feeder.join().unwrap();
    let before = reader.join().unwrap();
    work.ok("filter verify f");
    let again = work.feed("filter add f --unique", input.as_bytes());
    assert_eq!(again.code, 0);
    let printed = [before, again.stdout].concat();
    let printed: BTreeSet<&[u8]> = printed.split_inclusive(|byte| *byte == b'\n').collect();
    assert!(keys.iter().all(|key| printed.contains(key.as_bytes())), "a line was lost");
    work.ok("filter verify f");
}

#[test]
fn a_reader_that_has_seen_enough_is_a_failure_only_where_keys_are_left_out() {
    let work = Work::new();
    let keys: String = (0..500_000).map(|i| format!("{i}\n")).collect();
    work.write("keys", &keys);
    for (line, code) in
        [("filter add f --exact --unique --keys keys", 5), ("filter contains f --keys keys", 0)]
    {
        let mut command = work.command(line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{line}");
        assert_eq!(stderr.contains("standard output"), code == 5, "{stderr}");
        // Lines that were not printed do not count as seen.
        let again = work.ok("filter add f --unique --keys keys");
        assert!(again.text().ends_with("499999\n") || line.contains("contains"));
    }
}

#[test]
fn a_multiset_has_no_unique_keys() {
    let work = Work::new();
    work.ok("filter create f --exact --multiset");
    let refused = work.feed("filter add f --unique", b"a\na\n");
    assert_eq!(refused.code, 2);
    let refused = work.feed("filter add g --exact --multiset --unique", b"a\na\n");
    assert_eq!(refused.code, 2);
}

//! Folders that another process writes to, and exit codes.

use crate::support::Work;
use std::{
    fs,
    io::Write as _,
    process::{Child, Stdio},
    thread::{self, sleep},
    time::Duration,
};

/// Starts a command that holds the lock of a folder until its standard input ends. It waits for the
/// lock, because a probe may hold it.
fn hold(work: &Work, line: &str, input: &[u8], probe: &str) -> Child {
    let mut command = work.command(&format!("{line} --wait 100"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(input).unwrap();
    while work.run(probe).code != 6 {
        assert!(child.try_wait().unwrap().is_none(), "{line} has ended");
        sleep(Duration::from_millis(5));
    }
    child
}

/// Issue 12: a busy folder was an I/O error like a full disk.
#[test]
fn a_busy_folder_has_its_own_exit_code_and_can_be_waited_for() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n");
    work.ok("update s a.csv --key k");
    work.ok("build a.csv --key k --out t");
    work.ok("filter create f --exact");
    let rows = format!("k,v\n{}", "7,some value\n".repeat(200_000));
    for (line, input, verbs) in [
        (
            "update s - --format csv",
            rows.as_bytes(),
            &[
                "pin s 1",
                "update s a.csv",
                "delete s 2",
                "merge s",
                "publish s 1",
                "rollback s",
                "gc s",
            ][..],
        ),
        (
            "build - --format csv --key k --out t --replace",
            rows.as_bytes(),
            &["reindex t", "build a.csv --key k --out t --replace"],
        ),
        ("filter add f", b"a\n", &["filter remove f x", "filter add f y", "filter merge f"]),
    ] {
        let mut child = hold(&work, line, input, verbs[0]);
        for verb in verbs {
            let busy = work.run(verb);
            assert_eq!(busy.code, 6, "{verb}: {busy:?}");
            let end = "another writer has it open; wait for it to end; --wait TIME waits for it\n";
            assert!(busy.stderr.ends_with(end), "{verb}: {busy:?}");
        }
        let waited = work.run(&format!("{} --wait 1", verbs[0]));
        assert_eq!(waited.code, 6, "{waited:?}");
        assert!(waited.stderr.ends_with("(waited for 1 s)\n"), "{waited:?}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| work.ok(&format!("{} --wait 100", verbs[0])));
            sleep(Duration::from_millis(100));
            assert!(!waiting.is_finished());
            drop(child.stdin.take());
            waiting.join().unwrap();
        });
        assert!(child.wait().unwrap().success());
    }
}

/// Issue 12: a missing folder and a missing file had different exit codes.
#[test]
fn exit_codes_are_consistent() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n")
        .write("text", "no delta at all, but long enough for a header\n");
    work.ok("update s a.csv --key k");
    for (line, code) in [
        ("get nowhere 1", 2),
        ("build nowhere.csv --key k --out n", 2),
        ("update s nowhere.csv", 2),
        ("update s --delta nowhere", 2),
        ("get s --keys nowhere", 2),
        ("diff s 1 --out s/versions", 2),
        ("update s --delta text", 3),
        ("update s --delta a.csv", 3),
        ("get s 2", 1),
    ] {
        let outcome = work.run(line);
        assert_eq!(outcome.code, code, "{line}: {outcome:?}");
    }
    let help = work.ok("help exit-codes").text().to_owned();
    assert_eq!(help, work.ok("exit-codes --help").text());
    for code in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "130 "] {
        assert!(help.contains(&format!("\n  {code}")), "{code}: {help}");
    }
}

/// An update that waited for another used the columns that the store had before: values were stored
/// under the wrong columns.
#[test]
fn an_update_follows_the_columns_that_it_finds_under_the_lock() {
    let work = Work::new();
    work.write("old.csv", "k,v\n1,a\n")
        .write("p.csv", "k,v,p\n2,b,P\n")
        .write("q.csv", "k,v,q\n3,c,Q\n")
        .write("plain.csv", "k,v\n4,d\n");
    for first in ["update s old.csv --key k", "update s - --format csv --key k"] {
        let is_new = first.contains(" - ");
        let _ = fs::remove_dir_all(work.path("s"));
        let mut holder = match is_new {
            // The first two updates of a new store, which differ in their columns.
            true => hold(&work, first, b"k,v\n1,a\n", "update s plain.csv --key k"),
            false => {
                work.ok(first);
                hold(&work, "update s - --format csv", b"k,v\n1,a\n", "pin s 1")
            }
        };
        thread::scope(|scope| {
            let wait = |file: &str| {
                work.ok(&format!("update s {file} --wait 100 --key k --schema extend"))
            };
            let waiting =
                ["p.csv", "q.csv", "plain.csv"].map(|file| scope.spawn(move || wait(file)));
            sleep(Duration::from_millis(200));
            // The lock is taken before the input ends, so nothing changes meanwhile.
            let rollback = work.run("rollback s");
            assert_eq!(rollback.code, 6, "{rollback:?}");
            drop(holder.stdin.take());
            for update in waiting {
                let note = update.join().unwrap().stderr;
                assert!(!note.contains("no version is current"), "{note}");
            }
        });
        assert!(holder.wait().unwrap().success());
        work.ok("merge s");
        for (key, has, column) in [
            ("1", r#""v":"a""#, "p"),
            ("2", r#""p":"P""#, "p"),
            ("3", r#""q":"Q""#, "q"),
            ("4", r#""v":"d""#, "q"),
        ] {
            let row = work.ok(&format!("get s {key}")).text().to_owned();
            assert!(row.contains(has), "{row}");
            let is_null = row.contains(&format!(r#""{column}":null"#));
            assert_eq!(is_null, !has.contains(&format!(r#""{column}":"#)), "{row}");
        }
    }
}

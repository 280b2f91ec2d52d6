//! Ctrl-C, and two builds at once.

use crate::support::{Work, list};
use std::{
    io::Write as _,
    process::{Child, ChildStdin, Command, Stdio},
    thread::sleep,
    time::Duration,
};

/// Starts a build that waits for more rows.
fn start(work: &Work) -> (Child, ChildStdin) {
    let mut command = work.command("build - --format csv --key k --out t");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More rows than the command reads at once.
    let rows = "some key,some value\n".repeat(100_000);
    stdin.write_all(format!("k,v\n{rows}").as_bytes()).unwrap();
    while !work.path("t").exists() {
        sleep(Duration::from_millis(5));
    }
    (child, stdin)
}

#[test]
fn a_build_that_is_stopped_leaves_nothing() {
    let work = Work::new();
    let (child, stdin) = start(&work);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(output.stderr, b"hashfold: stopped; nothing was changed\n");
    assert_eq!(list(&work.path("t")), [""; 0]);
    drop(stdin);
}

#[test]
fn of_two_builds_into_one_folder_the_first_goes_on() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n");
    let (child, stdin) = start(&work);
    let second = work.run("build a.csv --key k --out t --replace");
    assert_eq!(second.code, 5, "{second:?}");
    assert!(second.stderr.contains("another process is writing here"), "{second:?}");
    drop(stdin);
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(work.entries("t"), [r#"{"k":"some key","v":"some value"}"#]);
}

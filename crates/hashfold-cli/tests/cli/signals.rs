//! Ctrl-C, and two builds at once.

use crate::{
    stores::STOPPED,
    support::{Work, list},
};
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
    assert_eq!(String::from_utf8(output.stderr).unwrap(), STOPPED);
    assert_eq!(list(&work.path("t")), [""; 0]);
    drop(stdin);
}

#[test]
fn of_two_builds_into_one_folder_the_first_goes_on() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n");
    let (child, stdin) = start(&work);
    let second = work.run("build a.csv --key k --out t --replace");
    assert_eq!(second.code, 6, "{second:?}");
    assert!(second.stderr.contains("another writer has it open"), "{second:?}");
    drop(stdin);
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(work.entries("t"), [r#"{"k":"some key","v":"some value"}"#]);
}

fn send(signal: &str, process: u32) {
    let kill = Command::new("kill").args([signal, &process.to_string()]).status().unwrap();
    assert!(kill.success());
}

/// Issue 12: a build that waited for its first row ended without a message.
#[test]
fn a_command_that_waits_for_its_input_is_stopped() {
    for line in [
        "build - --format csv --key k --out t",
        "update s - --format csv --key k",
        "build rows --format csv --key k --out t",
    ] {
        let work = Work::new();
        let made = Command::new("mkfifo").arg(work.path("rows")).status().unwrap();
        assert!(made.success());
        let mut command = work.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        wait_for_handler(child.id());
        send("-INT", child.id());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{line}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), STOPPED, "{line}");
        drop(stdin);
    }
}

/// Waits until a process handles SIGINT.
fn wait_for_handler(process: u32) {
    let caught = || -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
        u64::from_str_radix(mask, 16).ok()
    };
    while caught().is_none_or(|mask| mask & 2 == 0) {
        sleep(Duration::from_millis(5));
    }
}

/// Issue 12: a closed terminal lost the keys since the last flush.
#[test]
fn a_closed_terminal_ends_a_filter_with_all_its_keys() {
    let work = Work::new();
    let mut command = work.command("filter add f --exact --unique");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a\nb\n").unwrap();
    let mut shown = [0; 4];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut shown).unwrap();
    assert_eq!(&shown, b"a\nb\n");
    send("-HUP", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.ends_with("hashfold: stopped; 2 keys were added before that\n"), "{stderr}");
    assert_eq!(work.ok("filter contains f a b").text(), "a\nb\n");
    drop(stdin);
}

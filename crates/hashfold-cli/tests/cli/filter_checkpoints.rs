//! `hashfold filter`: what survives when a command is killed or pauses (issue 12, point B6).

use crate::{
    filter::{first_times, json, lines, signal, start},
    support::Work,
};
use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::ChildStdout,
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

/// Maximum time to wait for another process.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `is_reached` returns true.
#[track_caller]
pub(crate) fn wait_for(mut is_reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_reached() {
        assert!(start.elapsed() < PATIENCE, "waited in vain");
        sleep(Duration::from_millis(10));
    }
}

/// Reads this number of lines.
fn read_lines(stdout: &mut BufReader<ChildStdout>, count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        stdout.read_until(b'\n', &mut bytes).unwrap();
    }
    bytes
}

#[test]
fn keys_become_visible_to_others_while_the_input_pauses() {
    let work = Work::new();
    work.ok("filter create f --exact");
    let (mut child, mut stdin) = start(&work, "filter add f --checkpoint 100ms");
    stdin.write_all(b"a\nb\n").unwrap();
    wait_for(|| work.run("filter contains f a b").code == 0);
    stdin.write_all(b"c\n").unwrap();
    wait_for(|| work.run("filter contains f c").code == 0);
    drop(stdin);
    assert!(child.wait().unwrap().success());

    let (mut child, mut stdin) = start(&work, "filter remove f --checkpoint 100ms");
    stdin.write_all(b"a\n").unwrap();
    wait_for(|| work.run("filter contains f a").code == 1);
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// Lines before the last checkpoint are not printed again, and the others are.
#[test]
fn after_a_kill_only_the_lines_since_the_last_checkpoint_are_printed_again() {
    let work = Work::new();
    work.ok("filter create f --exact");
    for round in 1..=4 {
        let (before, middle, end) = ((round - 1) * 1500, round * 1500 - 500, round * 1500);
        let (mut child, mut stdin) = start(&work, "filter add f --unique --checkpoint 100ms");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdin.write_all(&lines(before..middle)).unwrap();
        assert_eq!(read_lines(&mut stdout, middle - before), lines(before..middle));
        wait_for(|| json(&work.ok("filter stat f --json"))["keys_max"].as_u64() >= Some(middle));
        stdin.write_all(&lines(middle..end)).unwrap();
        assert_eq!(read_lines(&mut stdout, end - middle), lines(middle..end));
        signal(&child, "-KILL");
        child.wait().unwrap();
        work.ok("filter verify f");
        let again = work.feed("filter add f --unique", &lines(0..end));
        assert_eq!(again.code, 0, "{again:?}");
        let allowed = lines(middle..end);
        assert!(allowed.ends_with(&again.stdout), "round {round}: {again:?}");
    }
}

#[test]
fn a_kill_at_any_moment_loses_no_line() {
    let work = Work::new();
    let keys = 300_000;
    let input = lines((0..keys).chain(0..1000));
    let mut printed: Vec<u8> = Vec::new();
    // Killed after this number of lines was printed.
    for moment in [1, 20_000, 90_000, 150_000, 290_000] {
        let (mut child, mut stdin) = start(&work, "filter add f --exact --unique --checkpoint 0");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let fed = input.clone();
        let feeder = spawn(move || drop(stdin.write_all(&fed)));
        printed.extend(read_lines(&mut stdout, moment - printed_lines(&printed).min(moment)));
        signal(&child, "-KILL");
        stdout.read_to_end(&mut printed).unwrap();
        child.wait().unwrap();
        feeder.join().unwrap();
        work.ok("filter verify f");
        // A line that was cut off in the middle is printed again.
        let whole = printed.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        printed.truncate(whole);
    }
    let rest = work.feed("filter add f --exact --unique", &input);
    assert_eq!(rest.code, 0, "{rest:?}");
    printed.extend(rest.stdout);
    let printed: Vec<&[u8]> =
        printed.split(|byte| *byte == b'\n').filter(|it| !it.is_empty()).collect();
    let (printed, all) = (first_times(&printed), lines(0..keys));
    let as_set = |bytes: &[u8]| -> BTreeSet<Vec<u8>> {
        bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    };
    assert!(as_set(&printed) == as_set(&all), "a line was lost");
}

/// Returns the number of different lines.
fn printed_lines(printed: &[u8]) -> u64 {
    printed.split_inclusive(|byte| *byte == b'\n').collect::<BTreeSet<_>>().len() as u64
}

#[test]
fn ctrl_c_ends_a_command_whose_input_is_idle() {
    let work = Work::new();
    work.ok("filter create f --exact");
    for verb in ["add", "remove"] {
        let (child, mut stdin) = start(&work, &format!("filter {verb} f --checkpoint 100ms"));
        stdin.write_all(b"a\n").unwrap();
        let code = i32::from(verb == "remove");
        wait_for(|| work.run("filter contains f a").code == code);
        signal(&child, "-INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let stopping = "hashfold: stopping; Ctrl-C again ends at once\n";
        assert!(stderr.starts_with(stopping), "{stderr}");
        assert_eq!(work.run("filter contains f a").code, code);
        drop(stdin);
    }
    // Before the first key, there is nothing to make durable.
    let (mut child, stdin) = start(&work, "filter add f");
    // The first signals may come before they are handled, when a process that runs in the background
    // ignores them.
    wait_for(|| {
        signal(&child, "-INT");
        child.try_wait().unwrap().is_some()
    });
    drop(stdin);
}

//! `--memory` of the filter verbs: what a command takes at most, as the system counts it.

use crate::support::Work;
use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    process::Stdio,
    thread,
    time::Duration,
};

/// What every command below is given, in bytes.
const BUDGET: u64 = 64 << 20;
/// Peak resident memory of a command, at most. The bound to hold for any filter is a tenth more than
/// the budget and 30 MiB for the program; the filters here are so small that the budget itself is
/// enough.
const PEAK_MAX: u64 = BUDGET;
/// How often a running command is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Lines with numbers.
fn lines(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut text = String::new();
    numbers.for_each(|number| writeln!(text, "{number}").unwrap());
    text.into_bytes()
}

/// The peak of the resident memory of a process, in bytes; `None` when it has ended.
fn peak(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Runs a command on these lines; it ends with this code and within its memory.
#[track_caller]
fn check(work: &Work, line: &str, input: &[u8], code: i32) {
    let mut command = work.command(&format!("{line} --memory 64MiB"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let process = child.id();
    let highest = thread::scope(|scope| {
        scope.spawn(move || drop(stdin.write_all(input)));
        scope.spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while stdout.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        let mut highest = 0;
        while child.try_wait().unwrap().is_none() {
            highest = highest.max(peak(process).unwrap_or(0));
            thread::sleep(LOOK);
        }
        highest
    });
    assert_eq!(child.wait().unwrap().code(), Some(code), "{line}");
    assert!(highest > 4 << 20, "{line}: {highest} bytes");
    println!("{line}: {} MiB", highest >> 20);
    assert!(highest <= PEAK_MAX, "{line}: {} MiB of {} MiB", highest >> 20, PEAK_MAX >> 20);
}

/// Issue 10: each run kept buffers of lookups, and lookups noted each key for each run. `contains`
/// took 70 MiB here and 280 MiB with 300 million keys, and `add --unique` took more with each batch:
/// 274 MiB after 120 million keys.
#[test]
fn filters_keep_to_their_memory() {
    let work = Work::new();
    work.ok("filter create f --exact --seed 7");
    work.ok("filter create g --exact --seed 7");
    check(&work, "filter add f --unique", &lines(0..500_000), 0);
    check(&work, "filter add f", &lines(500_000..3_000_000), 0);
    check(&work, "filter add g", &lines(2_500_000..3_500_000), 0);
    check(&work, "filter add f --unique", &lines(2_900_000..3_200_000), 0);
    let every_third = lines((0..4_500_000).step_by(3));
    check(&work, "filter contains f --keys -", &every_third, 1);
    check(&work, "filter remove f", &every_third, 0);
    check(&work, "filter merge f g", b"", 0);
    check(&work, "filter contains f --keys - --counts", &every_third, 1);
    let stat: serde_json::Value =
        serde_json::from_str(work.ok("filter stat f --json").text()).unwrap();
    let in_f = (0..3_200_000).filter(|i| i % 3 != 0 || *i >= 2_500_000);
    let expected = in_f.chain(3_200_000..3_500_000).count();
    assert_eq!(stat["items"], expected);
}

//! Processes of their own: some are killed while they work, others have limits or die of signals.

use hashfold::work::{Clock as _, SystemClock};
use std::{
    env,
    io::Read as _,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

/// Environment variables of the process to be killed: its folder; the next one is the seed of its
/// work.
const FOLDER: &str = "HASHFOLD_KILL_FOLDER";
const SEED: &str = "HASHFOLD_KILL_SEED";
/// The environment variable with the number of kills; 20 by default.
const ROUNDS: &str = "HASHFOLD_KILL_ROUNDS";

/// Number of the signal that cannot be handled.
const SIGKILL: i32 = 9;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().expect("it is a number"))
}

/// Returns the seed of the times after which the process is killed.
pub(crate) fn seed() -> u64 {
    number(SEED, 1)
}

/// Returns whether there is another round: until the number of rounds is reached, and on a busy
/// machine until a process was killed after it had done something.
pub(crate) fn goes_on(round: u64, has_worked: bool) -> bool {
    let rounds = number(ROUNDS, 20);
    round < rounds || (!has_worked && round < 20 * rounds)
}

/// Returns the folder and the seed in the process to be killed; `None` in any other process.
pub(crate) fn task() -> Option<(PathBuf, u64)> {
    Some((env::var(FOLDER).ok()?.into(), number(SEED, 0)))
}

/// Runs the test with this name in a new process, and kills it after `time`. Returns the complete
/// lines that the process printed.
pub(crate) fn work_and_kill(test: &str, folder: &Path, seed: u64, time: Duration) -> String {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    SystemClock.sleep(time);
    assert!(child.try_wait().unwrap().is_none(), "it ends by itself");
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(SIGKILL), "it died of something else: {status}");
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    // The last line may be incomplete.
    said.truncate(said.rfind('\n').map_or(0, |end| end + 1));
    said
}

/// Runs the test with this name in a new process with the folder, and returns how that ended.
pub(crate) fn work_alone(test: &str, folder: &Path) -> ExitStatus {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--test-threads", "1"])
        .env(FOLDER, folder)
        .status()
        .unwrap()
}

/// Returns the numbers after a word at the starts of lines.
pub(crate) fn numbers(said: &str, word: &str) -> Vec<u64> {
    let lines = said.lines().filter_map(|line| line.strip_prefix(word));
    lines.filter_map(|number| number.trim().parse().ok()).collect()
}

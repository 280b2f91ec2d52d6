//! The place and time of a measurement.

use std::{
    fs,
    num::NonZero,
    process::{Command, Stdio},
    thread::available_parallelism,
};

/// Returns the names and values at the start of every report.
pub fn describe() -> Vec<(&'static str, String)> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    vec![
        ("date", output("date", &["-u", "+%FT%TZ"])),
        ("commit", output("git", &["describe", "--always", "--dirty", "--abbrev=12"])),
        ("cpu", field("/proc/cpuinfo", "model name")),
        ("cores", cores.to_string()),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("kernel", output("uname", &["-sr"])),
        ("load", fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()),
    ]
}

/// Returns the first line of a command's output, or "unknown".
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

/// Returns a field of a file of `name : value` lines, or "unknown".
fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
    value.unwrap_or("unknown").to_owned()
}

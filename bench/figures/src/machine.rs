//! The place and time of a measurement, and its number of cores.

use crate::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{
    fs,
    process::{Command, Stdio},
    thread::available_parallelism,
};

/// Returns the names and values at the start of every sheet.
pub fn describe() -> Vec<(&'static str, String)> {
    let cores = available_parallelism().map_or(1, usize::from);
    let processor = format!("{} (family {})", cpu_field("model name"), cpu_field("cpu family"));
    vec![
        ("date", output("date", &["-u", "+%FT%TZ"])),
        ("commit", env!("FIGURES_COMMIT").to_owned()),
        ("machine", format!("{processor}, {cores} cores, {}", memory())),
        ("kernel", output("uname", &["-sr"])),
        ("load", fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()),
    ]
}

/// Returns the first lines of a command's output, or "unknown".
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

fn cpu_field(name: &str) -> String {
    field("/proc/cpuinfo", name).unwrap_or_else(|| "unknown".to_owned())
}

fn memory() -> String {
    let kib = field("/proc/meminfo", "MemTotal");
    let kib = kib.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    kib.map_or("unknown memory".to_owned(), |kib| format!("{:.1} GiB", kib / 1048576.0))
}

/// Returns a field of a file of `name : value` lines.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Limits this thread, and the threads that it starts, to a number of cores until it is dropped.
#[derive(Debug)]
pub struct Cores {
    before: CpuSet,
}

impl Cores {
    pub fn limit(count: usize) -> Result<Cores> {
        let before = sched_getaffinity(None)?;
        let mut limited = CpuSet::new();
        let all = (0..CpuSet::MAX_CPU).filter(|&core| before.is_set(core));
        all.take(count).for_each(|core| limited.set(core));
        if (limited.count() as usize) < count {
            let there = before.count();
            return Err(format!("{count} cores are asked for, {there} are there").into());
        }
        sched_setaffinity(None, &limited)?;
        Ok(Cores { before })
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        // These cores were allowed before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Returns the default numbers of cores for builds: one, and two if they exist.
pub fn default_cores() -> Vec<usize> {
    let cores = available_parallelism().map_or(1, usize::from);
    (1..=cores.min(2)).collect()
}

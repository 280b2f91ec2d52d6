//! Taking and printing measurements.

use hashfold::cpu::Instructions;
use hashfold_rows::utc;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::{
    cell::RefCell,
    fmt, fs,
    io::{Write as _, stdout},
    time::{Instant, UNIX_EPOCH},
};

/// Prints measurements, with the circumstances in which they were made.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    rounds: u32,
    run: Value,
    figures: RefCell<Vec<Figure>>,
}

/// A measurement in all rounds so far.
#[derive(Clone, Debug)]
struct Figure {
    name: String,
    unit: String,
    /// Numbers of items and bytes that were measured.
    size: (u64, u64),
    values: Vec<f64>,
}

impl Report {
    /// Starts a report of measurements on this machine, in a number of rounds.
    pub(crate) fn new(json: bool, rounds: u32, seed: u64, threads: usize) -> Report {
        let run = run(seed, threads);
        if !json {
            print_line(format_args!("{}, commit {}", machine(), commit()));
        }
        Report { json, rounds, run, figures: RefCell::default() }
    }

    /// Notes one measurement over a number of items and bytes. Prints it at once if there is one
    /// round.
    pub(crate) fn add(&self, name: &str, value: f64, unit: &str, items: u64, bytes: u64) {
        if self.rounds == 1 {
            return self.add_rounds(name, vec![value], unit, items, bytes);
        }
        let mut figures = self.figures.borrow_mut();
        match figures.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.values.push(value),
            None => {
                let (name, unit) = (name.to_owned(), unit.to_owned());
                figures.push(Figure { name, unit, size: (items, bytes), values: vec![value] });
            }
        }
    }

    /// Prints the measurements of all rounds.
    pub(crate) fn finish(&self) {
        for figure in self.figures.take() {
            let (items, bytes) = figure.size;
            self.add_rounds(&figure.name, figure.values, &figure.unit, items, bytes);
        }
    }

    /// Prints the median, the smallest and the largest of several measurements.
    pub(crate) fn add_rounds(
        &self,
        name: &str,
        mut values: Vec<f64>,
        unit: &str,
        items: u64,
        bytes: u64,
    ) {
        values.sort_by(f64::total_cmp);
        let (min, median, max) = (values[0], median(&values), values[values.len() - 1]);
        if self.json {
            print_line(json!({
                "name": name, "value": rounded(median), "min": rounded(min), "max": rounded(max),
                "rounds": values.len(), "unit": unit, "items": items, "bytes": bytes,
                "run": self.run,
            }));
        } else if values.len() == 1 {
            print_line(format_args!("{name:<44} {:>14} {unit}", shown(median)));
        } else {
            let range = format_args!("[{} to {}]", shown(min), shown(max));
            print_line(format_args!("{name:<44} {:>14} {unit} {range}", shown(median)));
        }
    }
}

/// Returns the median of sorted numbers.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// Returns the median of some numbers.
pub(crate) fn median_of(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    median(&numbers)
}

/// Returns the circumstances of a measurement.
fn run(seed: u64, threads: usize) -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let seconds = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    json!({
        "date": utc(seconds), "commit": commit(), "machine": machine(),
        "kernel": read("/proc/sys/kernel/osrelease"), "load": read("/proc/loadavg"),
        "instructions": Instructions::in_use().name(), "seed": seed, "threads": threads,
    })
}

/// Prints a line; a failure does not end the measurements.
fn print_line(line: impl fmt::Display) {
    let _ = writeln!(stdout(), "{line}");
}

/// Rounds to six significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        large if large >= 1000.0 => format!("{value:.0}"),
        large if large >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.4}"),
    }
}

/// Returns the commit that this program was built from.
fn commit() -> &'static str {
    env!("HASHFOLD_COMMIT")
}

/// Returns the processor, the cores and the memory of this machine.
fn machine() -> String {
    let field = |file: &str, name: &str| {
        let info = fs::read_to_string(file).unwrap_or_default();
        let line = info.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
        value.unwrap_or("unknown").to_owned()
    };
    let [model, family] = ["model name", "cpu family"].map(|name| field("/proc/cpuinfo", name));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = field("/proc/meminfo", "MemTotal");
    let kib = memory.split(' ').next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(f64::NAN);
    format!("{model} (family {family}), {cores} cores, {:.1} GiB", kib / 1_048_576.0)
}

/// Returns the CPU time of this thread in seconds, which other programs disturb less than wall
/// time.
pub(crate) fn thread_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

/// Returns the CPU time of all threads in seconds.
pub(crate) fn process_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Returns the CPU time of `work` on this thread in seconds.
pub(crate) fn cpu_seconds(work: impl FnOnce()) -> f64 {
    let start = thread_seconds();
    work();
    thread_seconds() - start
}

/// Returns the wall-clock time of `work` in seconds, and its result.
pub(crate) fn wall_seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64(), result)
}

/// Returns the smallest of several measurements.
pub(crate) fn best_of(rounds: usize, mut measure: impl FnMut() -> f64) -> f64 {
    (0..rounds).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

/// Returns the number of times that this thread waited for anything but a core.
pub(crate) fn thread_waits() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Resets the peak RSS.
pub(crate) fn reset_peak_rss() {
    // If the kernel refuses, the peak since the start is reported: larger, never smaller.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Returns the RSS in bytes.
pub(crate) fn rss_bytes() -> f64 {
    status_kib("VmRSS:") * 1024.0
}

/// Returns the peak RSS in MiB.
pub(crate) fn peak_rss_mib() -> f64 {
    status_kib("VmHWM:") / 1024.0
}

/// Returns a size that the kernel reports for this process, in KiB.
fn status_kib(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kib.unwrap_or(f64::NAN)
}

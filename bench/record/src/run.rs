//! The circumstances of measurements, which stand in each line of a file of results.

use crate::{Result, conditions};
use serde_json::{Map, Value};
use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread::available_parallelism,
};

/// Least number of rounds of a result that is kept.
pub const ROUNDS_MIN: usize = 3;

/// Place, time and options of measurements: names and values.
#[derive(Clone, Debug)]
pub struct Run(Vec<(&'static str, String)>);

impl Run {
    /// Returns the circumstances of now: date, commit, machine, kernel, load.
    pub fn now() -> Run {
        let cores = available_parallelism().map_or(1, usize::from);
        let processor = format!("{} (family {})", cpu_field("model name"), cpu_field("cpu family"));
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Run(vec![
            ("date", output("date", &["-u", "+%FT%TZ"])),
            ("commit", env!("RECORD_COMMIT").to_owned()),
            ("machine", format!("{processor}, {cores} cores, {}", memory())),
            ("kernel", read("/proc/sys/kernel/osrelease")),
            ("load", read("/proc/loadavg")),
            ("compiled for", env!("RECORD_TARGET_CPU").to_owned()),
            ("malloc", conditions::malloc()),
        ])
    }

    /// Adds a circumstance.
    ///
    /// # Panics
    /// The name is in use: the second value would replace the first in a line of JSON.
    pub fn note(&mut self, name: &'static str, value: impl Into<String>) {
        assert!(self.get(name).is_none(), "the circumstance {name} is noted twice");
        self.0.push((name, value.into()));
    }

    /// Returns the value of a circumstance.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Refuses to measure for the repository's own results if nobody could repeat that: sources that
    /// are in no commit, or too few rounds. Results for other folders may be of any kind.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn check(out: &Path, rounds: usize) -> Result<()> {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
        let is_ours = match (results.canonicalize(), out.canonicalize()) {
            (Ok(results), Ok(out)) => out.starts_with(results),
            _ => out.starts_with("results"),
        };
        let commit = env!("RECORD_COMMIT");
        let wrong = if !is_ours {
            return Ok(());
        } else if commit == "unknown" || commit.ends_with("-dirty") {
            format!("the program is built from sources that are in no commit ({commit})")
        } else if rounds < ROUNDS_MIN {
            format!("expected at least {ROUNDS_MIN} rounds, got {rounds}")
        } else {
            return Ok(());
        };
        Err(format!("{wrong}; use --out FOLDER for results that are not kept").into())
    }

    /// Writes rows as JSON Lines, each with these circumstances.
    ///
    /// # Errors
    /// Errors of writing the file.
    pub fn write(&self, path: &Path, rows: &[Map<String, Value>]) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = BufWriter::new(File::create(path)?);
        for row in rows {
            writeln!(file, "{}", self.line(row))?;
        }
        Ok(file.flush()?)
    }

    /// Returns a row with these circumstances, as a line of JSON.
    pub fn line(&self, row: &Map<String, Value>) -> String {
        let run = self.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into()));
        let mut line = row.clone();
        line.insert("run".to_owned(), Value::Object(run.collect()));
        Value::Object(line).to_string()
    }
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

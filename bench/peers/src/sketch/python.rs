//! Apache DataSketches in C++, by its Python package: the script `python.py` in a process of its own.

use super::{
    local::PASSES,
    peer::{Measured, Peer, error_of},
};
use crate::Result;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    ops::Range,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

pub(super) const NAME: &str = "DataSketches (C++ by Python), HLL_8";
const SCRIPT: &str = include_str!("python.py");

struct Python {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts Python; `None` if it has no package datasketches.
pub(super) fn start(program: &Path, folder: &Path) -> Result<Option<Box<dyn Peer>>> {
    let has = Command::new(program).args(["-c", "import datasketches, numpy"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let script = folder.join("python.py");
    fs::write(&script, SCRIPT)?;
    let mut command = Command::new(program);
    let piped = command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn()?;
    let (requests, answers) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
    Ok(Some(Box::new(Python { child, requests, answers: BufReader::new(answers) })))
}

impl Python {
    fn ask(&mut self, request: &Value) -> Result<Vec<f64>> {
        writeln!(self.requests, "{request}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).map_err(|error| format!("{NAME}: {line:?}: {error}").into())
    }
}

impl Peer for Python {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn note(&self) -> String {
        "package datasketches 5.2.0, which has no update by arrays: a call by Python for each key is \
         most of the time"
            .to_owned()
    }

    fn is_served(&self) -> bool {
        true
    }

    fn time(&mut self, keys: Range<u64>) -> Result<Measured> {
        let answer = self.ask(&json!(["time", keys.start, keys.end, PASSES]))?;
        let [seconds, wall, estimate, bytes] = answer[..] else {
            return Err(format!("{NAME}: {answer:?}").into());
        };
        let count = keys.end - keys.start;
        error_of(estimate, count)?;
        Ok(Measured {
            insert_ns: seconds * 1e9 / count as f64,
            insert_wall_ns: Some(wall * 1e9 / count as f64),
            stored_bytes: Some(bytes),
            ..Measured::default()
        })
    }

    fn growth(&mut self, start: u64, sizes: &[u64]) -> Result<Vec<f64>> {
        self.ask(&json!(["growth", start, sizes]))
    }

    fn intersection(&mut self, sets: [Range<u64>; 2]) -> Result<f64> {
        let [a, b] = sets.map(|keys| [keys.start, keys.end]);
        let answer = self.ask(&json!(["intersection", a, b]))?;
        answer.first().copied().ok_or_else(|| format!("{NAME} has no answer").into())
    }
}

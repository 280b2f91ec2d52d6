//! Draws the answers that `examples/shared_files.sh` got from sketches and samples beside the truth, and prints them.
//!
//! Usage: `shared_files ANSWERS SVG`. Each line of ANSWERS has what is counted, the sets that share it, their true
//! number, and the answers of `hashfold sketch` as JSON; `sketch` is `null` where sketches have no answer:
//!
//! ```text
//! {"of": "paths", "sets": "amd64 and arm64", "truth": 1221, "sketch": {…}, "sample": {…}}
//! ```
//!
//! Fails if more intervals of 95 % miss the truth than chance explains.

use record::{Cell, Interval, Intervals, Result, Row, exact, short};
use serde_json::Value;
use std::{env, fs, path::Path};

const METHODS: [&str; 3] =
    ["sketches, maximum likelihood", "sketches, inclusion–exclusion", "sample of the first hashes"];

/// A line of the answers.
struct Answer {
    of: String,
    sets: String,
    truth: f64,
    /// One place for each of [`METHODS`].
    intervals: Vec<Option<Interval>>,
    bytes_read: f64,
}

impl Answer {
    fn read(line: &str) -> Result<Answer> {
        let json: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        let number = |at: &str| json.pointer(at).and_then(Value::as_f64);
        // An intersection has parts, a count has none.
        let interval = |at: &str, part: &str| {
            let of = |name: &str| number(&format!("{at}{part}/{name}"));
            Some(Interval { value: of("count")?, low: of("low")?, high: of("high")? })
        };
        let any = |at: &str| interval(at, "/intersection").or_else(|| interval(at, ""));
        Ok(Answer {
            of: text("of"),
            sets: text("sets"),
            truth: number("/truth").ok_or_else(|| format!("no truth: {line}"))?,
            intervals: vec![
                any("/sketch"),
                interval("/sketch", "/inclusion_exclusion"),
                Some(any("/sample").ok_or_else(|| format!("no sample: {line}"))?),
            ],
            bytes_read: number("/sample/read/bytes").unwrap_or(0.0),
        })
    }

    fn print(&self) {
        let Answer { of, sets, truth, .. } = self;
        println!("{of}, {sets}: {}", exact(*truth, 0));
        for (method, interval) in METHODS.iter().zip(&self.intervals) {
            let Some(Interval { value, low, high }) = interval else { continue };
            let [value, low, high] = [value, low, high].map(|number| exact(*number, 0));
            println!("    {method:<30} {value:>11} ({low} to {high})");
        }
        println!("    {:<30} {} bytes of filters", "the sample read", short(self.bytes_read));
    }
}

/// Returns a row for each combination of sets, with a cell for each of the kinds.
fn rows(answers: &[Answer], kinds: &[&str]) -> Result<Vec<Row>> {
    let first = answers.iter().filter(|answer| answer.of == kinds[0]);
    first
        .map(|Answer { sets, .. }| {
            let cell = |kind: &&str| {
                let is_it = |answer: &&Answer| answer.of == **kind && answer.sets == *sets;
                let answer = answers.iter().find(is_it);
                let answer = answer.ok_or_else(|| format!("no answer for {kind}, {sets}"))?;
                Ok(Cell { truth: answer.truth, intervals: answer.intervals.clone() })
            };
            let cells = kinds.iter().map(cell).collect::<Result<_>>()?;
            Ok(Row { name: sets.clone(), cells })
        })
        .collect()
}

/// Counts the intervals that have the truth, and refuses answers of which too many have not.
fn check(answers: &[Answer]) -> Result<()> {
    for (i, method) in METHODS.iter().enumerate() {
        let intervals =
            answers.iter().filter_map(|answer| Some((answer.truth, answer.intervals[i]?)));
        let is_good = |(truth, interval): &(f64, Interval)| {
            (interval.low - 0.5..=interval.high + 0.5).contains(truth)
        };
        let (good, bad): (Vec<_>, Vec<_>) = intervals.partition(is_good);
        let all = good.len() + bad.len();
        println!("{method}: {} of {all} intervals of 95 % have the truth", good.len());
        // The answers of one kind share their sketches, so that one of them in error is many.
        if bad.len() * 3 > all {
            return Err(format!("{method}: {} of {all} intervals miss the truth", bad.len()).into());
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let paths: Vec<String> = env::args().skip(1).collect();
    let [answers, chart] = &paths[..] else { return Err("usage: shared_files ANSWERS SVG".into()) };
    let lines = fs::read_to_string(answers).map_err(|error| format!("{answers}: {error}"))?;
    let answers: Vec<Answer> = lines.lines().map(Answer::read).collect::<Result<_>>()?;
    let mut kinds: Vec<&str> = Vec::new();
    for answer in &answers {
        answer.print();
        if !kinds.contains(&answer.of.as_str()) {
            kinds.push(&answer.of);
        }
    }
    if kinds.is_empty() {
        return Err("there are no answers".into());
    }
    let rows = rows(&answers, &kinds)?;
    Intervals {
        title: "Distinct files in Debian's architectures: estimates, intervals of 95 %, and the truth",
        methods: &METHODS,
        panels: &kinds,
        rows: &rows,
    }
    .draw(Path::new(chart))?;
    check(&answers)
}

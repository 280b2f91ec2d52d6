//! Maps of Java libraries, measured by `bench/java_maps/run.sh`, which prints JSON Lines.

use super::{COLUMNS, Options, puts::key, puts_data};
use crate::{Result, row::Row};
use serde_json::Value;
use std::{fs, path::Path};

/// Number of keys whose sum shows that the keys are the same.
const CHECKED: u64 = 1000;

/// Returns the rows of the lines about as many keys, one for each map.
pub(super) fn rows(path: &Path, options: &Options) -> Result<Vec<Row>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<Value> = lines.map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
    let mut peers: Vec<(&str, Vec<&Value>)> = Vec::new();
    for line in lines.iter().filter(|line| line["keys"].as_u64() == Some(options.keys.into())) {
        check(line, options)?;
        let peer = line["peer"].as_str().ok_or("a line has no peer")?;
        match peers.iter_mut().find(|(name, _)| *name == peer) {
            Some((_, lines)) => lines.push(line),
            None => peers.push((peer, vec![line])),
        }
    }
    let row = |(peer, lines): (&str, Vec<&Value>)| {
        let numbers =
            |line: &&Value| COLUMNS.iter().map(|column| line[column.name].as_f64()).collect();
        let rounds: Vec<Vec<Option<f64>>> = lines.iter().map(numbers).collect();
        let note = lines[0]["note"].as_str().unwrap_or_default();
        Row::new(&puts_data(options), peer, note, &rounds)
    };
    Ok(peers.into_iter().map(row).collect())
}

/// Returns the sum of the first keys, as text: some readers of JSON have no numbers of 64 bits.
fn sum_of_keys(seed: u64) -> String {
    (0..CHECKED).fold(0, |sum: u64, i| sum.wrapping_add(key(i, seed))).to_string()
}

/// Refuses a line about other keys.
fn check(line: &Value, options: &Options) -> Result<()> {
    let (expected, got) = (sum_of_keys(options.common.seed), &line["check"]);
    if got.as_str() == Some(&expected) {
        return Ok(());
    }
    Err(format!("the Java program had other keys: check {got} and not {expected}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn rows_of_java_stand_in_the_table_if_the_keys_were_the_same() {
        let crate::Command::Memory(options) =
            crate::Cli::parse_from(["peers", "memory", "--keys", "5000"]).command
        else {
            panic!("the command is memory");
        };
        let path = std::env::temp_dir().join(format!("java-{}.jsonl", std::process::id()));
        let line = |keys: u64, check: &str, rate: f64| {
            format!(
                "{{\"keys\":{keys},\"check\":\"{check}\",\"peer\":\"a map\",\"put_per_s\":{rate}}}\n"
            )
        };
        let right = sum_of_keys(options.common.seed);
        let all = [line(5000, &right, 3.0), line(4, &right, 9.0), line(5000, &right, 5.0)];
        fs::write(&path, all.concat()).unwrap();
        let found = rows(&path, &options).unwrap();
        assert_eq!((found.len(), found[0].rounds), (1, 2));
        assert_eq!(found[0].figures[0].as_ref().unwrap().median(), 4.0);
        fs::write(&path, line(5000, "17", 3.0)).unwrap();
        let error = rows(&path, &options).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(error.contains("other keys"), "{error}");
    }
}

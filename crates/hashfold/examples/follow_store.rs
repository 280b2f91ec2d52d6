//! Looks up keys in a store without pause, follows every new version, and checks each answer
//! against the expected content of the version that answered.
//!
//! `follow_store STORE EXPECTED STOP`: the folder EXPECTED has a file for each version, named by
//! the version's number, with lines of a key, a tab and its value, or of a key alone that must be
//! absent. The program ends when the file STOP exists. `examples/nightly_contents.sh` uses it.

use hashfold::{Store, store::Version};
use std::{collections::BTreeMap, env, error::Error, fs, path::Path};

/// Keys, and the values that they must have.
type Expected = Vec<(String, Option<String>)>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [store, expected, stop] = arguments.as_slice() else {
        return Err("usage: follow_store STORE EXPECTED STOP".into());
    };
    let reader = Store::open(store)?.reader()?;
    let mut answers = BTreeMap::new();
    while !Path::new(stop).exists() {
        // Another version within a second after it was published; lookups never wait for that.
        let version = reader.version();
        let number = version.info().name.number;
        let expected = read(&Path::new(expected).join(number.to_string()))?;
        *answers.entry(number).or_insert(0) += check(&version, &expected)?;
    }
    for (number, answers) in answers {
        println!("version {number}: {answers} answers, all of them right");
    }
    Ok(())
}

fn read(path: &Path) -> Result<Expected, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let line = |line: &str| match line.split_once('\t') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (line.to_owned(), None),
    };
    Ok(text.lines().map(line).collect())
}

/// Looks up all keys; returns their number.
fn check(version: &Version, expected: &Expected) -> Result<usize, Box<dyn Error>> {
    let keys: Vec<&str> = expected.iter().map(|(key, _)| key.as_str()).collect();
    let mut wrong = None;
    version.get_many(&keys, &mut |i, value| {
        if value != expected[i].1.as_deref().map(str::as_bytes) {
            wrong = Some(i);
        }
        Ok(())
    })?;
    match wrong {
        None => Ok(keys.len()),
        Some(i) => {
            Err(format!("version {}: wrong: {:?}", version.info().name.number, expected[i]).into())
        }
    }
}

//! Mistakes in the values of a configuration: numbers out of their range, and names that come twice.

use std::{collections::BTreeSet, fmt::Display};

/// Returns a number if it is in its range; `place` is its key, for errors.
pub(crate) fn within(place: &str, got: usize, max: usize) -> Result<usize, String> {
    match (1..=max).contains(&got) {
        true => Ok(got),
        false => Err(format!("{place}: expected 1 to {max}, got {got}")),
    }
}

/// Returns a number if it is 1 or more; `place` is its key, and `unit` that of the number, for errors.
pub(crate) fn positive<T: Copy + Display + From<bool> + Ord>(
    place: &str,
    got: T,
    unit: &str,
) -> Result<T, String> {
    match got >= T::from(true) {
        true => Ok(got),
        false => Err(format!("{place}: expected 1{unit} or more, got {got}{unit}")),
    }
}

/// Refuses names of which one comes twice; `place` is the key of their list, for errors.
pub(crate) fn distinct<T: Display + Ord>(
    place: &str,
    names: impl IntoIterator<Item = T>,
) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if seen.contains(&name) {
            return Err(format!("{place}: expected each once, got \"{name}\" twice"));
        }
        seen.insert(name);
    }
    Ok(())
}

//! A check that the conditional writes of a remote are real: some object stores take the conditions,
//! and write anyway.

use crate::{
    error::{Error, ErrorKind, Result},
    layout,
    objects::{Objects, Tag, When},
};
use hashfold::work::Random;
use std::thread;

/// Number of writers that try to write one object at once.
const RACERS: usize = 16;

/// Checks that of 16 writers that create one object exactly one succeeds, that of 16 writers that
/// replace it exactly one succeeds, and that a write with the old tag is refused then. Writes one small
/// object, and removes it.
///
/// # Errors
/// `Unconditional` if a condition is not kept; the error of the object store if it was the reason for
/// which no writer succeeded.
pub fn check_conditions(objects: &dyn Objects, random: &dyn Random) -> Result<()> {
    let name = layout::probe(&format!("{:016x}{:016x}", random.next_u64(), random.next_u64()));
    let checked = check(objects, &name);
    // The object has no meaning; a remote that refuses its removal is no problem.
    let _ = objects.remove(&name);
    checked.map_err(|error| error.at(objects.place(&name)))
}

fn check(objects: &dyn Objects, name: &str) -> Result<()> {
    let first = race(objects, name, When::Absent, "create")?;
    race(objects, name, When::Is(&first), "replace")?;
    match objects.put(name, b"stale", When::Is(&first))? {
        None => Ok(()),
        Some(_) => {
            let expected = "a write with an old tag is refused".to_owned();
            Err(ErrorKind::Unconditional { expected, got: "success".to_owned() }.into())
        }
    }
}

/// Lets all racers write, and returns the tag of the only one that may succeed.
fn race(objects: &dyn Objects, name: &str, when: When<'_>, action: &'static str) -> Result<Tag> {
    let racer = |i: usize| objects.put(name, format!("{action} {i}").as_bytes(), when);
    let answers: Vec<Result<Option<Tag>>> = thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS).map(|i| scope.spawn(move || racer(i))).collect();
        racers.into_iter().map(|it| it.join().expect("a racer does not panic")).collect()
    });
    let mut failure = None;
    let mut tags = Vec::new();
    for answer in answers {
        match answer {
            Ok(tag) => tags.extend(tag),
            Err(error) => failure = Some(error),
        }
    }
    match (tags.len(), failure) {
        (1, _) => Ok(tags.remove(0)),
        (0, Some(failure)) => Err(failure),
        (winners, _) => {
            let expected = format!("of {RACERS} writers that {action} one object, 1 succeeds");
            Err(ErrorKind::Unconditional { expected, got: winners.to_string() }.into())
        }
    }
}

impl Error {
    /// Whether the object store does not keep the conditions of writes.
    pub fn is_unconditional(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unconditional { .. })
    }
}

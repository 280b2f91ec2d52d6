//! A live index: several threads change a map, others look up keys all the time and check every answer,
//! and one publishes a snapshot as a version of a store and compares both.
//!
//! `live_index MAP STORE CHANGES PROGRESS`: CHANGES has lines of a key, its old value and its new one,
//! with tabs; an empty value means that the key is absent. The process may be killed at any moment, and
//! started again with the same arguments: it goes on. For that, the folder PROGRESS has a file for each
//! writer, with the number of its changes that are durable. `examples/live_index.sh` uses it.

use hashfold::{
    Store, StoreOptions,
    map::{Durability, Map, MapOptions},
    run::Run,
    store::UpdateMode,
    work::{Clock as _, SystemClock},
};
use std::{
    env,
    error::Error,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
    thread,
};

type Done<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Number of threads that change the map.
const WRITERS: usize = 8;
/// Number of threads that look up keys.
const READERS: usize = 2;
/// Number of changes in a transaction. Every second writer uses transactions.
const TOGETHER: usize = 8;
/// Number of keys that are looked up together.
const BATCH: usize = 16;
/// Number of durable changes of each writer that are checked after a restart: the last ones.
const CHECKED: usize = 5000;

/// A change has not begun, may be visible, or is visible for good.
const OLD: u8 = 0;
const BETWEEN: u8 = 1;
const NEW: u8 = 2;

/// A key, its values before and after the change, and how far the change is.
struct Change<'a> {
    key: &'a str,
    old: Option<&'a str>,
    new: Option<&'a str>,
    state: AtomicU8,
}

impl<'a> Change<'a> {
    fn parse(line: &'a str) -> Done<Change<'a>> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [key, old, new] = fields[..] else {
            return Err(format!("expected a key and two values, got {line:?}").into());
        };
        let [old, new] = [old, new].map(|value| (!value.is_empty()).then_some(value));
        Ok(Change { key, old, new, state: AtomicU8::new(OLD) })
    }

    fn state(&self) -> u8 {
        self.state.load(SeqCst)
    }

    /// Checks an answer; the state is that before and that after the lookup.
    fn check(&self, before: u8, answer: Option<&[u8]>, after: u8) -> Done<()> {
        let is = |value: Option<&str>| answer == value.map(str::as_bytes);
        let may_be_old = before != NEW && is(self.old);
        let may_be_new = after != OLD && is(self.new);
        if may_be_old || may_be_new {
            return Ok(());
        }
        let answer = answer.map(String::from_utf8_lossy);
        let (key, old, new) = (self.key, self.old, self.new);
        let states = format!("states {before} and {after}");
        Err(format!("{key:?} is {answer:?}, was {old:?}, becomes {new:?}; {states}").into())
    }
}

/// The changes of one writer, in its order, and its file.
struct Part<'a> {
    changes: Vec<&'a Change<'a>>,
    /// Number of changes that are made together.
    together: usize,
    /// Number of changes that were durable when the process started.
    done: usize,
    file: File,
}

impl<'a> Part<'a> {
    fn open(number: usize, all: &'a [Change<'a>], progress: &Path) -> Done<Part<'a>> {
        let changes: Vec<&Change<'_>> = all.iter().skip(number).step_by(WRITERS).collect();
        let together = if number.is_multiple_of(2) { 1 } else { TOGETHER };
        let path = progress.join(number.to_string());
        let mut options = File::options();
        #[expect(clippy::disallowed_methods, reason = "the progress of a program is no data set")]
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = [0; 8];
        let len = file.read_at(&mut bytes, 0)?;
        let done = if len == bytes.len() { u64::from_le_bytes(bytes) as usize } else { 0 };
        Ok(Part { changes, together, done: done.min(changes_len(all, number)), file })
    }

    /// Checks that the durable changes are there, and that a transaction that was cut off is there as a
    /// whole or not at all. Returns the number of keys that were checked.
    fn check(&self, map: &Map) -> Done<usize> {
        let (durable, rest) = self.changes.split_at(self.done);
        durable.iter().for_each(|change| change.state.store(NEW, SeqCst));
        let last = &durable[durable.len().saturating_sub(CHECKED)..];
        for (change, value) in last.iter().zip(map.get_many(&keys(last))?) {
            change.check(NEW, value.as_deref(), NEW)?;
        }
        let cut = &rest[..rest.len().min(self.together)];
        let (mut may_be_old, mut may_be_new) = (true, true);
        for (change, value) in cut.iter().zip(map.get_many(&keys(cut))?) {
            change.check(OLD, value.as_deref(), NEW)?;
            may_be_old &= value.as_deref() == change.old.map(str::as_bytes);
            may_be_new &= value.as_deref() == change.new.map(str::as_bytes);
            // The change may be there without being durable; it is made again.
            change.state.store(BETWEEN, SeqCst);
        }
        if may_be_old || may_be_new {
            return Ok(last.len() + cut.len());
        }
        Err(format!("half of a transaction is there: {:?}", keys(cut)).into())
    }

    /// Makes the remaining changes. Returns their number.
    fn write(&self, map: &Map) -> Done<usize> {
        let mut done = self.done;
        for changes in self.changes[self.done..].chunks(self.together) {
            changes.iter().for_each(|change| change.state.store(BETWEEN, SeqCst));
            match changes {
                [change] if self.together == 1 => write_one(map, change)?,
                _ => map.transact(|transaction| {
                    changes.iter().try_for_each(|change| match change.new {
                        Some(value) => transaction.put(change.key, value),
                        None => transaction.delete(change.key),
                    })
                })?,
            }
            changes.iter().for_each(|change| change.state.store(NEW, SeqCst));
            done += changes.len();
            self.file.write_all_at(&(done as u64).to_le_bytes(), 0)?;
        }
        Ok(done - self.done)
    }
}

/// Returns the number of changes of a writer.
fn changes_len(all: &[Change<'_>], number: usize) -> usize {
    all.len().saturating_sub(number).div_ceil(WRITERS)
}

fn keys<'a>(changes: &[&'a Change<'a>]) -> Vec<&'a str> {
    changes.iter().map(|change| change.key).collect()
}

/// Puts or deletes a key, durable when this returns.
fn write_one(map: &Map, change: &Change<'_>) -> hashfold::Result<()> {
    match change.new {
        Some(value) => map.put(change.key, value)?,
        None => map.delete(change.key)?,
    };
    Ok(())
}

/// Looks up random keys until no writer is left. Returns the number of answers.
fn read(map: &Map, all: &[Change<'_>], writers: &AtomicU64, seed: u64) -> Done<u64> {
    let (mut random, mut answers) = (seed, 0);
    while writers.load(SeqCst) > 0 || answers == 0 {
        let some: Vec<&Change<'_>> =
            (0..BATCH).map(|_| &all[next(&mut random, all.len())]).collect();
        let before: Vec<u8> = some.iter().map(|change| change.state()).collect();
        let values = map.get_many(&keys(&some))?;
        for ((change, before), value) in some.iter().zip(before).zip(values) {
            change.check(before, value.as_deref(), change.state())?;
        }
        answers += BATCH as u64;
    }
    Ok(answers)
}

/// Returns a pseudorandom number below `count`.
fn next(state: &mut u64, count: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % count
}

/// Publishes a snapshot as a version of a store, and compares both, entry by entry. Returns the numbers
/// of the version and of its entries.
fn publish(map: &Map, folder: &str) -> Done<(u64, u64)> {
    let snapshot = map.snapshot();
    let store = Store::open_or_create_with(folder, StoreOptions::new().seed(map.seed()))?;
    let mut update = store.update()?.mode(UpdateMode::Replace);
    update.merge(&mut snapshot.scan())?;
    let number = update.publish()?.name.number;
    let version = store.version(number)?;
    let mut run = snapshot.scan();
    let mut entries = 0;
    while run.advance()? {
        let entry = run.entry();
        if version.get(entry.key)?.as_deref() != entry.value {
            let key = String::from_utf8_lossy(entry.key);
            return Err(format!("version {number} and its snapshot differ in {key:?}").into());
        }
        entries += u64::from(entry.value.is_some());
    }
    if version.info().entries() != (entries..=entries) {
        let got = version.info().entries();
        return Err(format!("version {number} has {got:?} entries, its snapshot {entries}").into());
    }
    Ok((number, entries))
}

fn run(map: &Map, store: &str, all: &[Change<'_>], progress: &Path) -> Done<()> {
    let parts = (0..WRITERS).map(|number| Part::open(number, all, progress));
    let parts = parts.collect::<Done<Vec<Part<'_>>>>()?;
    let done: usize = parts.iter().map(|part| part.done).sum();
    let checked: usize = parts.iter().map(|part| part.check(map)).sum::<Done<usize>>()?;
    println!("{done} of {} changes are durable; {checked} keys are right", all.len());
    let (writers, start) = (AtomicU64::new(WRITERS as u64), SystemClock.now());
    thread::scope(|scope| {
        let writers = &writers;
        let changing: Vec<_> = parts
            .iter()
            .map(|part| {
                scope.spawn(move || {
                    let changes = part.write(map);
                    writers.fetch_sub(1, SeqCst);
                    changes
                })
            })
            .collect();
        let reading: Vec<_> = (0..READERS as u64)
            .map(|seed| scope.spawn(move || read(map, all, writers, seed)))
            .collect();
        let publishing = scope.spawn(|| publish(map, store));
        let mut changes = 0;
        for thread in changing {
            changes += thread.join().expect("no writer panics")?;
        }
        let seconds = (SystemClock.now() - start).as_secs_f64();
        let mut answers = 0;
        for thread in reading {
            answers += thread.join().expect("no reader panics")?;
        }
        let (number, entries) = publishing.join().expect("no publisher panics")?;
        println!("{changes} changes by {WRITERS} writers in {seconds:.1} s, all durable");
        println!("{answers} answers to {READERS} readers meanwhile: 0 wrong");
        println!("version {number} has the {entries} entries of a snapshot taken meanwhile");
        Ok(())
    })
}

fn main() -> Done<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [map, store, changes, progress] = arguments.as_slice() else {
        return Err("usage: live_index MAP STORE CHANGES PROGRESS".into());
    };
    let text = fs::read_to_string(changes).map_err(|error| format!("{changes}: {error}"))?;
    let all = text.lines().map(Change::parse).collect::<Done<Vec<Change<'_>>>>()?;
    if all.is_empty() {
        return Err(format!("{changes}: there are no changes").into());
    }
    let map = Map::open_with(map, MapOptions::new().durability(Durability::Immediate))?;
    run(&map, store, &all, Path::new(progress))?;
    Ok(map.close()?)
}

//! The threads of a map: one makes changes, one waits until they are durable.

use super::{
    core::{Core, write_failed},
    state::State,
};
use crate::config::MapDurability;
use hashfold::{ErrorKind, Result};
use std::{
    fmt, io,
    ops::RangeInclusive,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

/// Maximum number of jobs of a batch, and of the keys that its jobs read.
const JOBS_MAX: usize = 256;
const KEYS_MAX: usize = 1024;

/// Commands that read and change a map.
pub(crate) trait MapWork: Send + fmt::Debug {
    /// Calls `visit` with the keys whose values the commands read.
    fn keys(&self, visit: &mut dyn FnMut(&[u8]));

    /// Runs the commands.
    fn run(&mut self, state: &mut State);

    /// Passes the replies on: all changes are durable now, but for those of the units that have failed.
    fn finish(self: Box<Self>, outcome: &Outcome);
}

/// The units whose changes could not be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(super) failures: Vec<(RangeInclusive<u64>, String)>,
}

impl Outcome {
    /// Returns the outcome in which nothing was done.
    pub(crate) fn of_all(error: &str) -> Outcome {
        Outcome { failures: vec![(0..=u64::MAX, error.to_owned())] }
    }

    /// Returns why a unit has failed: the reply.
    pub(crate) fn failure(&self, unit: u64) -> Option<&str> {
        let failure = self.failures.iter().find(|(units, _)| units.contains(&unit));
        failure.map(|(_, error)| error.as_str())
    }
}

/// A batch that was run.
struct Batch {
    work: Vec<Box<dyn MapWork>>,
    outcome: Outcome,
    /// The sequence number after its changes.
    seq: u64,
}

impl Batch {
    fn finish(self) {
        self.work.into_iter().for_each(|work| work.finish(&self.outcome));
    }
}

/// Where work waits for its turn.
pub(super) type Queue = Sender<Box<dyn MapWork>>;

/// Starts the threads, which end when the queue is dropped.
pub(super) fn start(name: &str, core: &Arc<Core>) -> Result<(Queue, Vec<JoinHandle<()>>)> {
    let (queue, waiting) = channel();
    let mut threads = Vec::new();
    let batches = match core.settings.durability {
        MapDurability::Always | MapDurability::Group => {
            let (batches, run) = channel();
            let core = core.clone();
            threads.push(spawn(format!("sync-{name}"), move || commit(&core, &run))?);
            Some(batches)
        }
        MapDurability::EverySecond | MapDurability::No => None,
    };
    let state = State::new(core.clone());
    threads.push(spawn(format!("map-{name}"), move || {
        execute(state, &waiting, batches.as_ref());
    })?);
    Ok((queue, threads))
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let failed = |source: io::Error| {
        ErrorKind::Io { action: "start a thread", source: Arc::new(source) }.into()
    };
    thread::Builder::new().name(name).spawn(work).map_err(failed)
}

/// Runs work, batch after batch.
fn execute(mut state: State, queue: &Receiver<Box<dyn MapWork>>, commits: Option<&Sender<Batch>>) {
    while let Ok(first) = queue.recv() {
        let mut work = Vec::new();
        let mut keys = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next {
            job.keys(&mut |key| keys.push(key.to_vec()));
            work.push(job);
            let has_room = work.len() < JOBS_MAX && keys.len() < KEYS_MAX;
            next = if has_room { queue.try_recv().ok() } else { None };
        }
        state.begin();
        state.load(&keys);
        work.iter_mut().for_each(|job| job.run(&mut state));
        let (outcome, seq) = state.end();
        let batch = Batch { work, outcome, seq };
        match commits.filter(|_| !state.is_durable(seq)) {
            Some(commits) => {
                // The other thread ends after this one.
                let _ = commits.send(batch);
            }
            None => batch.finish(),
        }
    }
}

/// Waits until batches are durable: one sync for all that wait.
fn commit(core: &Core, batches: &Receiver<Batch>) {
    while let Ok(first) = batches.recv() {
        let mut all = vec![first];
        all.extend(batches.try_iter());
        let seq = all.iter().map(|batch| batch.seq).max().unwrap_or(0);
        let error = core.map.wait_durable(seq).err();
        let error = error.map(|error| write_failed(&error));
        for mut batch in all {
            if let Some(error) = &error {
                batch.outcome = Outcome::of_all(error);
            }
            batch.finish();
        }
    }
}

//! The threads of a map: one makes changes, one waits until they are durable.

use super::{
    core::{Core, write_failed},
    state::State,
};
use crate::config::MapDurability;
use hashfold::{ErrorKind, Result, work::Clock};
use std::{
    collections::VecDeque,
    fmt, io,
    ops::RangeInclusive,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Maximum number of jobs of a batch, and of the keys that its jobs read.
const JOBS_MAX: usize = 256;
const KEYS_MAX: usize = 1024;

/// Time between two looks for keys that have expired, if there is nothing else to do.
const SWEEP_CHECK: Duration = Duration::from_millis(100);

/// The longest time that changes wait for others.
const WAIT_MAX: Duration = Duration::from_millis(1);

/// Commands that read and change a map.
pub(crate) trait MapWork: Send + fmt::Debug {
    /// Calls `visit` with the keys whose values the commands read.
    fn keys(&self, visit: &mut dyn FnMut(&[u8]));

    /// Returns the number of clients that wait for the work.
    fn clients(&self) -> usize;

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

/// Deletes keys that have expired.
#[derive(Debug)]
struct Sweep(Vec<Box<[u8]>>);

impl MapWork for Sweep {
    fn keys(&self, visit: &mut dyn FnMut(&[u8])) {
        self.0.iter().for_each(|key| visit(key));
    }

    fn clients(&self) -> usize {
        0
    }

    fn run(&mut self, state: &mut State) {
        for key in &self.0 {
            let mut unit = state.unit();
            unit.delete_expired(key);
            // A key that cannot be deleted now is dropped by a merge.
            let _ = unit.end();
        }
    }

    fn finish(self: Box<Self>, _: &Outcome) {}
}

/// Work on its way to the thread of a map.
struct Inbox<'q> {
    queue: &'q Receiver<Box<dyn MapWork>>,
    /// Work that was taken from the queue, and has not begun.
    taken: VecDeque<Box<dyn MapWork>>,
}

impl Inbox<'_> {
    /// Returns the next work: keys that have expired, or what waits in the queue. `None` at the end.
    fn next(&mut self, state: &mut State) -> Option<Box<dyn MapWork>> {
        loop {
            let expired = state.take_expired();
            if !expired.is_empty() {
                return Some(Box::new(Sweep(expired)));
            }
            if let Some(work) = self.taken.pop_front() {
                return Some(work);
            }
            if !state.knows_expiries() {
                return self.queue.recv().ok();
            }
            match self.queue.recv_timeout(SWEEP_CHECK) {
                Ok(work) => return Some(work),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Returns work that waits now.
    fn waiting(&mut self) -> Option<Box<dyn MapWork>> {
        self.taken.pop_front().or_else(|| self.queue.try_recv().ok())
    }

    /// Returns work that comes within this time.
    fn coming(&self, within: Duration) -> Option<Box<dyn MapWork>> {
        self.queue.recv_timeout(within).ok()
    }

    /// Returns the number of clients whose work waits now.
    fn clients(&mut self) -> usize {
        self.taken.extend(self.queue.try_iter());
        self.taken.iter().map(|work| work.clients()).sum()
    }
}

/// How long changes wait for others. After a sync, the clients that it has answered send their next commands at about the
/// same time. Waiting briefly for them lets one sync cover all; else half of them wait for a second sync.
#[derive(Debug, Default)]
struct Patience {
    /// Number of clients that were answered after the last sync, or waited then.
    clients: usize,
    /// The longest time to wait: half of the time that the last sync took.
    longest: Duration,
}

impl Patience {
    /// Notes a sync: its time, and the clients that were answered or wait now.
    fn note(&mut self, took: Duration, clients: usize) {
        *self = Patience { clients, longest: (took / 2).min(WAIT_MAX) };
    }
}

/// Work that runs together.
#[derive(Default)]
struct Gathered {
    work: Vec<Box<dyn MapWork>>,
    /// The keys that it reads.
    keys: Vec<Vec<u8>>,
    /// Number of clients that wait for it.
    clients: usize,
}

impl Gathered {
    /// Takes work, then what else waits in the inbox, and what comes while it is worth waiting for.
    fn of(
        first: Box<dyn MapWork>,
        inbox: &mut Inbox<'_>,
        patience: &mut Patience,
        clock: &dyn Clock,
    ) -> Gathered {
        let until = clock.now() + patience.longest;
        let mut all = Gathered::default();
        let mut next = Some(first);
        while let Some(job) = next {
            job.keys(&mut |key| all.keys.push(key.to_vec()));
            all.clients += job.clients();
            all.work.push(job);
            let has_room = all.work.len() < JOBS_MAX && all.keys.len() < KEYS_MAX;
            next = if has_room { inbox.waiting() } else { None };
            if next.is_none() && has_room && (1..patience.clients).contains(&all.clients) {
                next = inbox.coming(until.saturating_sub(clock.now()));
                if next.is_none() {
                    // The others have nothing to do now.
                    patience.clients = all.clients;
                }
            }
        }
        all
    }
}

/// Runs work, batch after batch.
fn execute(mut state: State, queue: &Receiver<Box<dyn MapWork>>, commits: Option<&Sender<Batch>>) {
    let clock = state.core().clock.clone();
    let waits = state.core().settings.durability == MapDurability::Group;
    let mut inbox = Inbox { queue, taken: VecDeque::new() };
    let mut patience = Patience::default();
    while let Some(first) = inbox.next(&mut state) {
        let Gathered { mut work, keys, clients } =
            Gathered::of(first, &mut inbox, &mut patience, &*clock);
        state.begin();
        state.load(&keys);
        work.iter_mut().for_each(|job| job.run(&mut state));
        let (outcome, seq) = state.end();
        let batch = Batch { work, outcome, seq };
        match commits.filter(|_| !state.is_durable(seq)) {
            None => batch.finish(),
            // With nothing else to do, waiting here saves a switch between threads.
            Some(_) if inbox.clients() == 0 => {
                let start = clock.now();
                finish_durable(state.core(), vec![batch]);
                if waits {
                    patience.note(clock.now().saturating_sub(start), clients + inbox.clients());
                }
            }
            Some(commits) => {
                // The other thread ends after this one.
                let _ = commits.send(batch);
            }
        }
    }
}

/// Finishes batches when they are durable: one sync for all that wait.
fn commit(core: &Core, batches: &Receiver<Batch>) {
    while let Ok(first) = batches.recv() {
        let mut all = vec![first];
        all.extend(batches.try_iter());
        finish_durable(core, all);
    }
}

fn finish_durable(core: &Core, batches: Vec<Batch>) {
    let seq = batches.iter().map(|batch| batch.seq).max().unwrap_or(0);
    let error = core.map.wait_durable(seq).err();
    let error = error.map(|error| write_failed(&error));
    for mut batch in batches {
        if let Some(error) = &error {
            batch.outcome = Outcome::of_all(error);
        }
        batch.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{MapSettings, ServedMap};
    use hashfold::{
        Env,
        io::Access,
        map::{Map, MapOptions},
        work::{ManualClock, MemoryBudget, SystemClock},
    };

    /// Puts a value that expires, and says when that is done.
    #[derive(Debug)]
    struct Put(u64, Sender<()>);

    impl MapWork for Put {
        fn keys(&self, visit: &mut dyn FnMut(&[u8])) {
            visit(b"a");
        }

        fn clients(&self) -> usize {
            1
        }

        fn run(&mut self, state: &mut State) {
            let mut unit = state.unit();
            unit.put(b"a", b"1".to_vec(), Some(self.0)).unwrap();
            unit.end().unwrap();
        }

        fn finish(self: Box<Self>, _: &Outcome) {
            self.1.send(()).unwrap();
        }
    }

    #[test]
    fn a_key_that_has_expired_is_deleted_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        Map::create(&path, MapOptions::new()).unwrap().close().unwrap();
        let clock = Arc::new(ManualClock::new(1));
        let env = Env { clock: clock.clone(), ..Env::system() };
        let settings = MapSettings {
            durability: MapDurability::No,
            memory_bytes: 8 << 20,
            is_writable: true,
            access: Access::Cached,
            devices: Vec::new(),
            mirror_bytes: 0,
        };
        let memory = MemoryBudget::new(1 << 30);
        let map = ServedMap::open("map", &path, settings, (&env, &memory)).unwrap();
        let now_ms = || clock.unix_time().as_millis() as u64;
        let (done, is_done) = channel();
        let put = |left_ms| {
            map.submit(Box::new(Put(now_ms() + left_ms, done.clone())));
            is_done.recv().unwrap();
        };
        put(1000);
        let seq = map.seqs().0;
        clock.advance(Duration::from_millis(999));
        // The second value is the one whose time counts.
        put(5000);
        clock.advance(Duration::from_millis(4000));
        put(1000);
        assert_eq!(map.seqs().0, seq + 2, "the first two values are replaced, not deleted");
        clock.advance(Duration::from_millis(1200));
        while map.seqs().0 == seq + 2 {
            SystemClock.sleep(Duration::from_millis(1));
        }
        put(1000);
        assert_eq!(map.seqs().0, seq + 4);
    }
}

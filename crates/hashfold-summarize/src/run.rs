//! A run: all streams of a configuration, from their start to their end.

use crate::{
    config::Config,
    error::SummarizeError,
    lane::{Cause, Lane, StreamStats},
    own_files, places,
    publisher::Publisher,
};
use hashfold::{
    Env,
    io::{Lock, create_durable_folder},
    work::MemoryBudget,
};
use std::{
    mem,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Time between two looks at the sources.
const TICK: Duration = Duration::from_millis(20);

/// Least time between two checkpoints, if windows wait for one; and the least multiple of the time that the last one took. After one
/// that took longer than the last of these, windows wait for the interval of the configuration.
const WAITING_INTERVAL: Duration = Duration::from_millis(100);
const WAITING_TIMES: u32 = 10;
const WAITING_TOOK_MAX: Duration = Duration::from_secs(1);

/// Time between two moments when idle senders are looked for, and memory that other streams need.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// A run of all streams. [`Run::wait`] returns when it ends.
#[derive(Debug)]
pub struct Run {
    lanes: Vec<Lane>,
    env: Env,
    /// Whether the user wants the run to stop.
    stop: Arc<AtomicBool>,
    /// Whether sources are to stop.
    halt: Arc<AtomicBool>,
    checkpoint_ms: u64,
    publisher: Publisher,
    /// The figures of the streams that continue from a checkpoint, as the checkpoint has them.
    continued: Vec<StreamStats>,
    /// The lock of the folder of checkpoints.
    _lock: Option<Box<dyn Lock>>,
    /// Whether the run goes on when all files are read, until it is to stop.
    follows: bool,
}

impl Run {
    /// Does the first checks of [`Run::start`]: whether paths are of the right kind, and no two settings have one path. Writes
    /// nothing.
    ///
    /// # Errors
    /// `Config` if there is a file where a folder is to be or the reverse, if a run would read or overwrite its own files, or if
    /// the file for metrics is another file.
    pub fn check(config: &Config, env: &Env) -> Result<(), SummarizeError> {
        places::check(config, env)?;
        own_files::check(config)
    }

    /// Starts all streams. The run stops when `stop` is set.
    ///
    /// # Errors
    /// A folder, a file, an address or a checkpoint cannot be used, or another run has the folder of checkpoints.
    pub fn start(config: &Config, env: &Env, stop: Arc<AtomicBool>) -> Result<Run, SummarizeError> {
        Run::check(config, env)?;
        let lock = match &config.checkpoints {
            None => None,
            Some(folder) => {
                create_durable_folder(env.disk.as_ref(), folder)?;
                Some(env.disk.lock(folder)?)
            }
        };
        let halt = Arc::<AtomicBool>::default();
        let memory = config.memory.map_or_else(MemoryBudget::unlimited, MemoryBudget::new);
        // Before the first event, so that a run that cannot publish has no results.
        let mut publisher = Publisher::start(config, env, &memory)?;
        let prepare = |stream| Lane::prepare((config, &memory), stream, env, &halt);
        let mut lanes = config.streams.iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        // A run that is killed before its next checkpoint has its id and its positions then. Only now, since a run that does not
        // start leaves none.
        lanes.iter().filter(|lane| !lane.has_id).try_for_each(|lane| lane.save(env))?;
        let continued = lanes.iter().filter(|lane| lane.continues).map(Lane::stats).collect();
        let begun = lanes.iter_mut().try_for_each(|lane| lane.begin(&halt));
        begun.inspect_err(|_| halt.store(true, Ordering::Relaxed))?;
        let stats: Vec<StreamStats> = lanes.iter().map(Lane::stats).collect();
        publisher.publish_now(&stats);
        Ok(Run {
            lanes,
            env: env.clone(),
            stop,
            halt,
            checkpoint_ms: config.checkpoint_ms,
            publisher,
            continued,
            _lock: lock,
            follows: false,
        })
    }

    /// Sets whether the run goes on when all files are read, until it is to stop.
    #[cfg(test)]
    pub(crate) fn set_follows(&mut self, follows: bool) {
        self.follows = follows;
    }

    /// Returns the addresses that streams listen on, with the names of the streams.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let of = |lane: &Lane| {
            let name = lane.stream.name.clone();
            lane.addresses.iter().map(move |address| (name.clone(), *address)).collect::<Vec<_>>()
        };
        self.lanes.iter().flat_map(of).collect()
    }

    /// Returns the address that answers with the figures of the run, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.publisher.address()
    }

    /// Returns the figures of the streams that continue from a checkpoint, as the checkpoint has them.
    pub fn continued(&self) -> &[StreamStats] {
        &self.continued
    }

    /// Returns how those events of a stream come that cannot be read again after a crash: `by TCP`, `through a pipe`. `None` if
    /// all can.
    pub fn passing(&self, stream: &str) -> Option<&'static str> {
        self.lanes.iter().find(|lane| lane.stream.name == stream)?.passing()
    }

    /// Waits until all files are read and, if the configuration has addresses, until the run is to stop. Calls `tick` with
    /// figures meanwhile. Then all windows end. With checkpoints, a run that is stopped, and a stream with a source that has
    /// failed, leave their open windows in them instead.
    ///
    /// # Errors
    /// The first error of a pipeline, which ends the run. With checkpoints, all other streams save theirs. Those of sources are in
    /// the figures, unless the configuration says that they end the run, and so are those of checkpoints.
    pub fn wait(
        mut self,
        tick: &mut dyn FnMut(&[StreamStats]),
    ) -> Result<Vec<StreamStats>, SummarizeError> {
        let mut last = Vec::new();
        let watched = self.watch(tick, &mut last);
        self.halt.store(true, Ordering::Relaxed);
        let cause = match &watched {
            Err(_) => Cause::Failed,
            Ok(()) if self.stop.load(Ordering::Relaxed) => Cause::Stopped,
            Ok(()) => Cause::Done,
        };
        // All of them, whatever happens to one.
        let lanes = mem::take(&mut self.lanes);
        let ended: Vec<_> = lanes.into_iter().map(|lane| lane.end(&self.env, cause)).collect();
        let ended = watched.and_then(|()| ended.into_iter().collect::<Result<Vec<_>, _>>());
        // After an error, those before it.
        self.publisher.publish_now(ended.as_ref().unwrap_or(&last));
        ended
    }

    /// Waits until the sources have ended or are to stop; `last` gets the last figures.
    fn watch(
        &mut self,
        tick: &mut dyn FnMut(&[StreamStats]),
        last: &mut Vec<StreamStats>,
    ) -> Result<(), SummarizeError> {
        let interval = Duration::from_millis(self.checkpoint_ms);
        let mut next = self.env.clock.now() + interval;
        let mut next_waiting = self.env.clock.now();
        let mut next_idle = self.env.clock.now() + IDLE_INTERVAL;
        loop {
            *last = self.lanes.iter().map(Lane::stats).collect();
            self.publisher.publish(last);
            tick(last);
            self.lanes.iter().try_for_each(Lane::check)?;
            if self.stop.load(Ordering::Relaxed)
                || (!self.follows && self.lanes.iter().all(Lane::is_done))
            {
                return Ok(());
            }
            let start = self.env.clock.now();
            // After a checkpoint that cannot be written, the next one has its time.
            let waits = |stats: &StreamStats| stats.has_waiting() && !stats.is_unsaved;
            let is_due = start >= next;
            if is_due || start >= next_waiting && last.iter().any(waits) {
                let lanes = self.lanes.iter().zip(&*last);
                let mut lanes = lanes.filter(|(_, stats)| is_due || waits(stats));
                lanes.try_for_each(|(lane, _)| lane.try_to_save(&self.env).map(drop))?;
                let (end, took) = (self.env.clock.now(), self.env.clock.now() - start);
                next = if is_due { end + interval } else { next };
                next_waiting = match took > WAITING_TOOK_MAX {
                    true => next,
                    false => end + WAITING_INTERVAL.max(took * WAITING_TIMES),
                };
            }
            if self.env.clock.now() >= next_idle {
                self.lanes.iter().try_for_each(Lane::pass_time)?;
                next_idle = self.env.clock.now() + IDLE_INTERVAL;
            }
            self.env.clock.sleep(TICK);
        }
    }
}

impl Drop for Run {
    /// Stops the threads.
    fn drop(&mut self) {
        self.halt.store(true, Ordering::Relaxed);
    }
}

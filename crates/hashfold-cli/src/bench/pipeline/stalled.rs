//! A consumer that stalls: the sender is held up, and memory stays bounded.

use super::{
    super::{
        PipelineBench,
        measure::{Report, peak_rss_mib, reset_peak_rss, rss_bytes},
        pairs::remove_all,
    },
    LISTEN, check, config,
    events::{Block, Kind, Sent},
};
use crate::{
    failure::{Failure, Result},
    summarize::failure,
};
use hashfold::{
    Env,
    io::{BlockFile, Disk, DiskLayer, OsDisk},
};
use hashfold_summarize::Run;
use std::{
    io::{self, Write},
    net::TcpStream,
    path::Path,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Time without a byte after which the sender counts as held up.
const HELD_UP: Duration = Duration::from_secs(1);

/// A disk on which no file can be created until it is opened.
#[derive(Debug, Default)]
struct ShutDisk {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl ShutDisk {
    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}

/// The layer of the disk that waits.
#[derive(Debug)]
struct Stalling(Arc<ShutDisk>);

impl DiskLayer for Stalling {
    fn below(&self) -> &dyn Disk {
        &OsDisk
    }

    fn over_created(&self, _: &Path, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        let is_open = self.0.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = self.0.opened.wait_while(is_open, |is_open| !*is_open);
        drop(is_open);
        file
    }
}

/// A connection that counts the bytes that it has taken.
struct Counting {
    connection: TcpStream,
    taken: Arc<AtomicU64>,
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.connection.write(bytes)?;
        self.taken.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.connection.flush()
    }
}

/// The progress of a sender, as the thread that waits for it sees it.
struct Watched {
    taken: Arc<AtomicU64>,
    before: u64,
    since: Instant,
}

impl Watched {
    /// Returns whether the sender was held up for this long.
    fn is_held_up(&mut self, time: Duration) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken != self.before {
            (self.before, self.since) = (taken, Instant::now());
        }
        taken > 0 && self.since.elapsed() >= time
    }
}

/// Measures the memory while windows cannot be written; then they are, and all events are counted.
pub(super) fn measure(
    bench: &PipelineBench,
    report: &Report,
    kind: &Kind,
    mut block: Block,
    folder: &Path,
) -> Result<()> {
    let config = config(bench, kind, folder, (bench.workers[0], LISTEN))?;
    let disk = Arc::<ShutDisk>::default();
    let env = Env { disk: Arc::new(Stalling(disk.clone())), ..Env::system() };
    reset_peak_rss();
    let before_mib = rss_bytes() / (1 << 20) as f64;
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config, &env, stop.clone()).map_err(|error| failure(&error))?;
    let (_, address) = run.addresses()[0];
    let (taken, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let all = Arc::new(AtomicU64::new(u64::MAX));
    let sender = {
        let (taken, ends, all) = (taken.clone(), ends.clone(), all.clone());
        thread::spawn(move || -> io::Result<(Sent, Block)> {
            let sent = TcpStream::connect(address).and_then(|connection| {
                let mut to = Counting { connection, taken };
                // A block is a window, so that the second block ends the first window.
                block.send(&mut to, 1, &mut |_| !ends.load(Ordering::Relaxed))
            });
            all.store(sent.as_ref().map_or(0, |sent| sent.events), Ordering::Relaxed);
            Ok((sent?, block))
        })
    };
    let mut watched = Watched { taken, before: 0, since: Instant::now() };
    let (mut in_flight, time) = (None, HELD_UP.min(bench.time));
    let stats = run.wait(&mut |stats| {
        let (totals, all) = (stats[0].stats.totals, all.load(Ordering::Relaxed));
        if in_flight.is_none() && (watched.is_held_up(time) || all != u64::MAX) {
            let growth_mib = (peak_rss_mib() - before_mib).max(0.0);
            in_flight = Some((watched.before.saturating_sub(totals.bytes), growth_mib));
            ends.store(true, Ordering::Relaxed);
            disk.open();
        }
        stop.store(totals.frames >= all, Ordering::Relaxed);
    });
    // After an error the disk may be shut still.
    ends.store(true, Ordering::Relaxed);
    disk.open();
    let stats = stats.map_err(|error| failure(&error))?;
    let sent = sender.join().expect("the sender does not panic");
    let (sent, block) = sent.map_err(|error| Failure::io("a connection", "write", &error))?;
    check::check(folder, &stats, &block, &sent)?;
    remove_all(&folder.join("out"))?;
    let (bytes, growth_mib) = in_flight.unwrap_or_default();
    let name = |figure: &str| format!("pipeline.{}.stalled.{figure}", kind.name);
    report.add(&name("growth_mib"), growth_mib, "MiB", sent.events, sent.bytes);
    let in_flight_mib = bytes as f64 / (1 << 20) as f64;
    report.add(&name("in_flight_mib"), in_flight_mib, "MiB", sent.events, sent.bytes);
    Ok(())
}

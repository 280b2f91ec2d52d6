//! Publishes the figures of a run while it lasts: in a file, and on a port.

use crate::{
    config::Config, error::SummarizeError, lane::StreamStats, metrics::Figures, scrape, tcp,
};
use hashfold::{Env, io::replace_file, work::MemoryBudget};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two writes of the file.
const FILE_INTERVAL: Duration = Duration::from_secs(5);

/// A publisher of figures.
#[derive(Debug)]
pub(crate) struct Publisher {
    env: Env,
    file: Option<PathBuf>,
    /// The time of the next write of the file.
    next: Duration,
    memory: MemoryBudget,
    /// The last figures, for the port.
    figures: Arc<Mutex<Figures>>,
    port: Option<Port>,
}

/// The thread that answers on a port.
#[derive(Debug)]
struct Port {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Starts to publish. The file is written for the first time, so that one that cannot be written is noticed.
    ///
    /// # Errors
    /// The file cannot be written, or the address not be used.
    pub(crate) fn start(
        config: &Config,
        env: &Env,
        memory: &MemoryBudget,
    ) -> Result<Publisher, SummarizeError> {
        let figures = Figures {
            streams: Vec::new(),
            memory_reserved: memory.reserved(),
            memory_max: config.memory,
            file_failures: 0,
        };
        if let Some(path) = &config.metrics_file {
            if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
                env.disk.create_folder(folder)?;
            }
            write(env, path, &figures)?;
        }
        let figures = Arc::new(Mutex::new(figures));
        let port = match config.metrics_listen {
            None => None,
            Some(address) => Some(Port::start(address, figures.clone())?),
        };
        Ok(Publisher {
            env: env.clone(),
            file: config.metrics_file.clone(),
            next: env.clock.now() + FILE_INTERVAL,
            memory: memory.clone(),
            figures,
            port,
        })
    }

    /// Returns the address of the port.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.port.as_ref().map(|port| port.address)
    }

    /// Publishes figures: on the port at once, in the file every few seconds. A file that cannot be written is counted.
    pub(crate) fn publish(&mut self, streams: &[StreamStats]) {
        if self.file.is_none() && self.port.is_none() {
            return;
        }
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.streams = streams.to_vec();
        figures.memory_reserved = self.memory.reserved();
        let Some(path) = &self.file else { return };
        if self.env.clock.now() < self.next {
            return;
        }
        self.next = self.env.clock.now() + FILE_INTERVAL;
        let written = figures.clone();
        // A write may take long, and the port needs the figures.
        drop(figures);
        if write(&self.env, path, &written).is_err() {
            self.figures.lock().unwrap_or_else(PoisonError::into_inner).file_failures += 1;
        }
    }

    /// Publishes figures, in the file, too.
    pub(crate) fn publish_now(&mut self, streams: &[StreamStats]) {
        self.next = Duration::ZERO;
        self.publish(streams);
    }
}

/// Replaces the file as a whole, so that a reader never sees half of it.
fn write(env: &Env, path: &Path, figures: &Figures) -> hashfold::Result<()> {
    let text = figures.text();
    replace_file(env.disk.as_ref(), path, |file| file.write_at(0, text.as_bytes()))
}

impl Port {
    fn start(address: SocketAddr, figures: Arc<Mutex<Figures>>) -> Result<Port, SummarizeError> {
        let listener = tcp::listen(address)?;
        let address = listener.local_addr().unwrap_or(address);
        let stop = Arc::<AtomicBool>::default();
        let own = stop.clone();
        let text = move || {
            let figures = figures.lock().unwrap_or_else(PoisonError::into_inner).clone();
            figures.text()
        };
        let thread = thread::Builder::new()
            .name("hashfold-metrics".into())
            .spawn(move || scrape::serve(&listener, &own, &text));
        let failed = |source| SummarizeError::Io {
            place: format!("metrics-listen {address}"),
            action: "start a thread",
            source,
        };
        Ok(Port { address, stop, thread: Some(thread.map_err(failed)?) })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has ended only the answers.
            let _ = thread.join();
        }
    }
}

//! Overload: three times the connections, each with more requests in flight than the server accepts.

use super::{
    Scene,
    get::{CONNECTIONS, in_memory},
    pool::Pool,
};
use crate::failure::{Failure, Result};
use hashfold::work::{Clock as _, SystemClock};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// Pipeline at which the server answers most requests.
const PEAK_PIPELINE: u64 = 64;
/// Pipeline of an overload: above the limit of 1,024 unanswered requests.
const OVERLOAD_PIPELINE: u64 = 2048;
/// Time between two looks at the memory of the server.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    let (server, pairs) = in_memory(scene, "threads = 1")?;
    let gets = 4 * scene.bench.requests;
    let peak = Pool::connect(server.address, CONNECTIONS, &pairs)?.run(PEAK_PIPELINE, gets)?;
    let before = server.memory()?;
    let mut pool = Pool::connect(server.address, 3 * CONNECTIONS, &pairs)?;
    let is_over = AtomicBool::new(false);
    let (load, memory) = thread::scope(|scope| {
        let watched = scope.spawn(|| {
            let mut most: f64 = 0.0;
            while !is_over.load(Relaxed) {
                most = most.max(server.memory()?);
                SystemClock.sleep(LOOK_INTERVAL);
            }
            Ok::<_, Failure>(most)
        });
        let load = pool.run(OVERLOAD_PIPELINE, gets);
        is_over.store(true, Relaxed);
        (load, watched.join().expect("the watcher does not panic"))
    });
    let (load, memory) = (load?, memory?);
    scene.say("overload.peak_per_s", peak.per_second(), "requests/s", peak.gets);
    scene.say("overload.per_s", load.per_second(), "requests/s", load.gets);
    scene.say("overload.peak_fraction", load.per_second() / peak.per_second(), "", load.gets);
    let mib = (memory - before).max(0.0) / f64::from(1 << 20);
    scene.say("overload.memory_mib", mib, "MiB more than before", load.gets);
    Ok(())
}

//! Publishing: two servers that follow a group switch between two versions while both are read.

use super::{
    Scene,
    group::{Group, LEAD},
    reader::{Reading, Readings, read},
};
use crate::{
    bench::{ensure, measure::median_of},
    failure::Result,
};
use hashfold::{
    store::UpdateMode,
    work::{Clock as _, SystemClock},
};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Time from the activation to the end of a window.
const AFTER: Duration = Duration::from_millis(500);
/// Number of versions.
const VERSIONS: u64 = 2;

/// A time in which replies are compared with others.
struct Window {
    start: Instant,
    end: Instant,
}

impl Window {
    fn has(&self, reading: &Reading) -> bool {
        (self.start..self.end).contains(&reading.at)
    }
}

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    let group = Group::create(scene, scene.pairs(scene.bench.keys / 10))?;
    for version in 1..=VERSIONS {
        group.push(0..group.pairs.count, version, UpdateMode::Replace)?;
    }
    let nodes = [group.server("a")?, group.server("b")?];
    group.publish(1, nodes.len())?;
    nodes.iter().try_for_each(|node| group.wait_for(node, 1))?;
    let is_over = AtomicBool::new(false);
    let (windows, readings) = thread::scope(|scope| {
        let readers = nodes.each_ref().map(|node| {
            let (address, pairs, is_over) = (node.address, &group.pairs, &is_over);
            scope.spawn(move || read(address, pairs, is_over))
        });
        let windows = publish(scene, &group, nodes.len());
        is_over.store(true, Relaxed);
        (windows, readers.map(|reader| reader.join().expect("a reader does not panic")))
    });
    let [publishing, control] = windows?;
    let readings = readings.into_iter().collect::<Result<Vec<_>>>()?;
    say(scene, &publishing, &control, &readings)?;
    drop(nodes);
    super::remove_all(&group.place(""))
}

/// Publishes the versions in turn; returns the windows with a publication, and those without.
fn publish(scene: &Scene<'_>, group: &Group, nodes: usize) -> Result<[Vec<Window>; 2]> {
    let (mut publishing, mut control) = (Vec::new(), Vec::new());
    for i in 0..scene.bench.publishes {
        let start = Instant::now();
        group.publish(1 + (i + 1) % VERSIONS, nodes)?;
        SystemClock.sleep(LEAD + AFTER);
        let end = Instant::now();
        SystemClock.sleep(end - start);
        publishing.push(Window { start, end });
        control.push(Window { start: end, end: Instant::now() });
    }
    Ok([publishing, control])
}

/// Returns the longest time for a reply in each window, in milliseconds.
fn longest(windows: &[Window], readings: &[Readings]) -> Vec<f64> {
    let all = || readings.iter().flat_map(|readings| &readings.replies);
    let longest = |window: &Window| all().filter(|it| window.has(it)).map(|it| it.took).max();
    windows.iter().map(|window| longest(window).unwrap_or_default().as_secs_f64() * 1e3).collect()
}

/// Returns the time of the first reply from another version than at the start of a window.
fn switched(window: &Window, readings: &Readings) -> Result<Instant> {
    let mut inside = readings.replies.iter().filter(|reading| window.has(reading));
    let first = inside.next().map(|reading| reading.generation);
    let other = inside.find(|reading| Some(reading.generation) != first);
    ensure(other.is_some(), || "a server has not switched".into())?;
    Ok(other.expect("it is there").at)
}

fn say(
    scene: &Scene<'_>,
    publishing: &[Window],
    control: &[Window],
    readings: &[Readings],
) -> Result<()> {
    let count = publishing.len() as u64;
    let mut skews = Vec::new();
    for window in publishing {
        let times = readings.iter().map(|readings| switched(window, readings));
        let times = times.collect::<Result<Vec<_>>>()?;
        let (first, last) = (times.iter().min(), times.iter().max());
        let skew = last.zip(first).map(|(last, first)| *last - *first).unwrap_or_default();
        skews.push(skew.as_secs_f64() * 1e3);
    }
    let [stall, quiet] = [publishing, control].map(|windows| longest(windows, readings));
    let max = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    scene.say("publish.stall_ms_max", max(&stall), "ms", count);
    scene.say("publish.control_ms_max", max(&quiet), "ms", count);
    scene.say("publish.skew_ms_max", max(&skews), "ms", count);
    let (stall, quiet) = (median_of(stall), median_of(quiet));
    scene.say("publish.stall_ms", stall, "ms", count);
    scene.say("publish.control_ms", quiet, "ms", count);
    scene.say("publish.above_control_ms", stall - quiet, "ms", count);
    scene.say("publish.skew_ms", median_of(skews), "ms", count);
    let errors: u64 = readings.iter().map(|readings| readings.errors).sum();
    scene.say("publish.errors", errors as f64, "error replies", count);
    Ok(())
}

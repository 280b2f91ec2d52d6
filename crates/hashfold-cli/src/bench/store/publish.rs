//! Measures publishing and rolling back, and the stalls of a reader meanwhile.
//!
//! ```text
//! writer       publishes 2, rolls back to 1, publishes 2, …     idle, for the same time
//! refresher    opens the current version, every 100 µs          the same
//! reader       looks up keys, records times between answers     the same
//! ```
//!
//! Both alternate, so that other programs disturb both alike.

use super::{
    super::{
        StoreBench, ensure,
        measure::{Report, thread_waits},
        pairs::{KEY_SIZE, Pairs, Row, remove_all},
        random::pick,
        times::Times,
    },
    night::{History, Night},
    scene::Scene,
};
use crate::failure::{Failure, Result};
use hashfold::{
    Env, ReadOptions,
    io::Access,
    store::{StoreReader, StoreWriter, UpdateMode},
    work::{Clock as _, SystemClock},
};
use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread::{self, Builder},
    time::{Duration, Instant},
};

/// Number of alternations of publishing and idling.
const TURNS: u64 = 10;

/// Time between two checks of the refresher, and of the writer that waits for it.
const PAUSE: Duration = Duration::from_micros(100);

/// Maximum time until a reader sees a new version.
const VISIBLE_MAX: Duration = Duration::from_secs(1);

/// Minimum gap between two answers for which the reader queries the system for the cause.
const GAP_LONG: Duration = Duration::from_micros(50);

/// Number of keys that the reader looks up; small, so that they stay in RAM.
const KEYS_MAX: u64 = 10_000;

/// A published data set: its name in the figures, its pairs, and the access mode of readers.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    pairs: u64,
    data: Access,
}

pub(super) fn run(bench: &StoreBench, report: &Report, folder: &Path) -> Result<()> {
    let large = (bench.data as u64 / 64).min(1_000_000);
    let cases = [
        Case { name: ".small", pairs: large.min(10_000), data: Access::Mapped },
        Case { name: ".large", pairs: large, data: Access::Mapped },
        Case { name: ".cached", pairs: large, data: Access::Cached },
    ];
    for case in cases {
        let pairs = Pairs::new("publish", 64, case.pairs * 64, bench.seed);
        one_case(&Scene::new(bench, report, folder, pairs), case)?;
    }
    Ok(())
}

/// The two versions that are published alternately, and their expected values.
struct Lookups {
    keys: Vec<[u8; KEY_SIZE]>,
    /// Expected values by version number, minus 1.
    expected: [Vec<Option<Row>>; 2],
}

impl Lookups {
    fn new(pairs: &Pairs, night: Night) -> Lookups {
        let (old, new) = (History::of(night.base), History::of(night.base).and(night));
        let count = KEYS_MAX.min(new.numbers());
        let numbers: Vec<u64> = (0..count).map(|i| pick(i, pairs.seed, new.numbers())).collect();
        let rows = |history: &History| numbers.iter().map(|&i| history.row(i)).collect();
        let keys = numbers.iter().map(|&i| pairs.key(i)).collect();
        Lookups { keys, expected: [rows(&old), rows(&new)] }
    }

    /// Reads the looked-up data into the page cache, so that no lookup waits for the device.
    fn warm_up(&self, scene: &Scene<'_>, store: &Path, number: u64) -> Result<()> {
        let version = scene.open_version(store, number, Access::Cached)?;
        Ok(self.keys.iter().try_for_each(|key| version.get_with(key, &mut |_| {}))?)
    }
}

/// The phase, for the reader's records.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Publishing,
    Control,
    Ended,
}

/// The records of the reader.
struct Noted {
    /// Times between answers, with and without publishing.
    gaps: [Times; 2],
    /// Times for which the reader waited for anything but a core.
    waits: [Times; 2],
    /// Times of the first group of lookups after each change of the version.
    switches: Times,
}

fn one_case(scene: &Scene<'_>, case: Case) -> Result<()> {
    let base = scene.pairs.count;
    let store = scene.store("store");
    let night = Night { base, size: (base / 100).max(1), generation: 1 };
    let (input, batch) = (
        scene.write_rows("input", (0..base).map(Row::first))?,
        scene.write_rows("batch", night.rows())?,
    );
    scene.build(&store, &[&input])?;
    // A merged version shares no file with the old one, so all files are opened again.
    let made = scene.update(&store, &[&batch], UpdateMode::Merge)?;
    scene.check(&store, &made.info, &History::of(base).and(night))?;
    scene.remove(&input)?;
    scene.remove(&batch)?;
    let lookups = Lookups::new(&scene.pairs, night);
    (1..=2).try_for_each(|number| lookups.warm_up(scene, &store, number))?;
    let mut writer = scene.open(&store)?;
    writer.roll_back()?;
    writer.forgive(2)?;
    let options = ReadOptions::new().data(case.data).index(case.data);
    let follower = StoreReader::open_with(&store, &options.env(Env::on(scene.disk.clone())))?;
    let phase = AtomicUsize::new(Phase::Control as usize);
    let (written, noted, refreshed) = thread::scope(|scope| {
        let no_thread = |error| Failure::thread("reads while versions are published", &error);
        let reader = Builder::new().spawn_scoped(scope, || read(&follower, &lookups, &phase));
        let refresher = Builder::new().spawn_scoped(scope, || refresh(&follower, &phase));
        let are_there = reader.is_ok() && refresher.is_ok();
        let written = are_there.then(|| write(scene, &mut writer, &follower, &phase));
        phase.store(Phase::Ended as usize, Relaxed);
        let noted = reader.map_err(no_thread)?.join().expect("the reader does not panic");
        let refresher = refresher.map_err(no_thread)?;
        let refreshed = refresher.join().expect("the refresher does not panic");
        Ok::<_, Failure>((written.expect("both threads were there"), noted, refreshed))
    })?;
    let (written, noted) = (written?, noted?);
    refreshed?;
    drop((follower, writer));
    remove_all(&store)?;
    report(scene, case, &written, &noted);
    Ok(())
}

/// The records of the writer.
struct Written {
    publishes: Times,
    publish_seconds: f64,
    /// Time from the start of publishing until the follower has the version.
    visible: Times,
}

fn write(
    scene: &Scene<'_>,
    writer: &mut StoreWriter,
    follower: &StoreReader,
    phase: &AtomicUsize,
) -> Result<Written> {
    let mut written =
        Written { publishes: Times::new(), publish_seconds: 0.0, visible: Times::new() };
    for turn in 0..TURNS {
        let share =
            scene.bench.publishes * (turn + 1) / TURNS - scene.bench.publishes * turn / TURNS;
        phase.store(Phase::Publishing as usize, Relaxed);
        let start = Instant::now();
        for i in 0..share {
            let begin = Instant::now();
            let number =
                if i % 2 == 0 { writer.publish(2).map(|()| 2) } else { writer.roll_back() };
            let (number, time) = (number?, begin.elapsed());
            written.publishes.add(time);
            written.publish_seconds += time.as_secs_f64();
            wait_for(follower, number, begin)?;
            written.visible.add(begin.elapsed());
            if i % 2 == 1 {
                writer.forgive(2)?;
            }
        }
        if share % 2 == 1 {
            writer.roll_back()?;
            writer.forgive(2)?;
        }
        let took = start.elapsed();
        phase.store(Phase::Control as usize, Relaxed);
        SystemClock.sleep(took);
    }
    Ok(written)
}

fn wait_for(follower: &StoreReader, number: u64, since: Instant) -> Result<()> {
    while follower.version().info().name.number != number {
        ensure(since.elapsed() < VISIBLE_MAX, || format!("version {number} is not seen"))?;
        SystemClock.sleep(PAUSE);
    }
    Ok(())
}

/// Refreshes continuously.
fn refresh(follower: &StoreReader, phase: &AtomicUsize) -> Result<()> {
    while phase.load(Relaxed) != Phase::Ended as usize {
        follower.refresh()?;
        SystemClock.sleep(PAUSE);
    }
    Ok(())
}

fn read(follower: &StoreReader, lookups: &Lookups, phase: &AtomicUsize) -> Result<Noted> {
    let both = || [Times::new(), Times::new()];
    let mut noted = Noted { gaps: both(), waits: both(), switches: Times::new() };
    let mut waits = thread_waits();
    let mut i = 0;
    let mut number = 1;
    let mut last = Instant::now();
    loop {
        let now = phase.load(Relaxed);
        let Some(gaps) = noted.gaps.get_mut(now) else { return Ok(noted) };
        let version = follower.version();
        let held = version.info().name.number;
        let mut row = None;
        version.get_with(&lookups.keys[i], &mut |value| row = value.and_then(Row::of))?;
        let expected = lookups.expected[held as usize - 1][i];
        ensure(row == expected, || format!("version {held} has {row:?}, not {expected:?}"))?;
        let end = Instant::now();
        let gap = end - last;
        gaps.add(gap);
        if held != number {
            noted.switches.add(gap);
        }
        (last, number) = (end, held);
        if gap > GAP_LONG {
            let before = std::mem::replace(&mut waits, thread_waits());
            if waits > before {
                noted.waits[now].add(gap);
            }
            last = Instant::now();
        }
        i = (i + 1) % lookups.keys.len();
    }
}

fn report(scene: &Scene<'_>, case: Case, written: &Written, noted: &Noted) {
    let publishes = written.publishes.total();
    let say = |what: &str, value, unit| {
        scene.say(&format!("store.publish{}.{what}", case.name), value, unit, scene.pairs.count);
        if case.name == ".large" {
            scene.say(&format!("store.publish.{what}"), value, unit, scene.pairs.count);
        }
    };
    say("ms", written.publish_seconds * 1e3 / publishes as f64, "ms");
    say("ms_max", written.publishes.max_ms(), "ms");
    say("visible_ms_p50", written.visible.quantile_us(0.5) / 1e3, "ms");
    say("visible_ms_max", written.visible.max_ms(), "ms");
    say("switches", noted.switches.total() as f64, "seen by the reader");
    say("switch_us_p50", noted.switches.quantile_us(0.5), "us");
    say("switch_stall_ms", noted.switches.max_ms(), "ms");
    let [publishing, control] = &noted.gaps;
    for ((name, gaps), waits) in
        [("reader", publishing), ("control", control)].iter().zip(&noted.waits)
    {
        say(&format!("{name}_waited_ms"), waits.max_ms(), "ms");
        say(&format!("{name}_lookups"), gaps.total() as f64, "lookups");
        say(&format!("{name}_stall_ms"), gaps.max_ms(), "ms");
        for (suffix, part) in [("p999", 0.999), ("p9999", 0.9999), ("p99999", 0.99999)] {
            say(&format!("{name}_{suffix}_us"), gaps.quantile_us(part), "us");
        }
    }
    say("attributable_stall_ms", publishing.max_ms() - control.max_ms(), "ms");
    let p9999 = |times: &Times| times.quantile_us(0.9999);
    say("attributable_p9999_us", p9999(publishing) - p9999(control), "us");
}

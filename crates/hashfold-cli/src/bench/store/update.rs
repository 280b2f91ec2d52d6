//! Measures merging a batch of a tenth of the pairs.

use super::{
    super::{
        StoreBench, ensure,
        measure::{Report, median_of, peak_rss_mib, reset_peak_rss},
        pairs::{KEY_SIZE, PAIR_SIZES, Pairs, RowFile, remove_all},
    },
    night::{History, Night},
    scene::{Made, ROUNDS, Scene},
};
use crate::failure::Result;
use hashfold::store::UpdateMode;
use std::path::Path;

pub(super) fn run(bench: &StoreBench, report: &Report, folder: &Path) -> Result<()> {
    let mut ratios = Vec::new();
    let mut total = 0;
    for (name, size) in PAIR_SIZES {
        let pairs = Pairs::new(name, size, bench.data as u64, bench.seed);
        let scene = Scene::new(bench, report, folder, pairs);
        ratios.push(one_size(&scene)?);
        total += pairs.count;
    }
    let worst = ratios.into_iter().fold(0.0, f64::max);
    report.add("store.update.bytes_moved_ratio", worst, "of what must move", total, 0);
    Ok(())
}

/// One round: the cost of the merge, and the ideal time of the device.
struct Round {
    made: Made,
    /// Time that the device needs to move the old pairs, the batch and the new pairs.
    device_seconds: f64,
    device_rate: f64,
    peak_mib: f64,
}

/// Measures one size of pairs. Returns the bytes moved divided by the minimum.
fn one_size(scene: &Scene<'_>) -> Result<f64> {
    let base = scene.pairs.count;
    let store = scene.store("store");
    let input = scene.write_rows("input", (0..base).map(super::super::pairs::Row::first))?;
    scene.build(&store, &[&input])?;
    scene.remove(&input)?;
    let night = Night { base, size: base / 10, generation: 1 };
    let batch = scene.write_rows("batch", night.rows())?;
    let history = History::of(base).and(night);
    let mut rounds = Vec::new();
    for i in 0..ROUNDS {
        let round = one_round(scene, &store, &batch, night)?;
        scene.check(&store, &round.made.info, &history)?;
        if i == 0 {
            scene.check_all(&store, &round.made.info, &history)?;
        }
        scene.take_back(&store)?;
        rounds.push(round);
    }
    scene.remove(&batch)?;
    remove_all(&store)?;
    Ok(report(scene, night, &rounds))
}

fn must_read(scene: &Scene<'_>, night: Night) -> u64 {
    scene.pairs.bytes() + night.bytes(KEY_SIZE, scene.pairs.value_size)
}

fn must_write(scene: &Scene<'_>, night: Night) -> u64 {
    History::of(night.base).and(night).count() * scene.pairs.size() as u64
}

fn one_round(scene: &Scene<'_>, store: &Path, batch: &RowFile, night: Night) -> Result<Round> {
    let before = scene.rates()?;
    reset_peak_rss();
    let made = scene.update(store, &[batch], UpdateMode::Merge)?;
    let peak_mib = peak_rss_mib();
    let rates = before.and(scene.rates()?);
    let changes = made.info.changes;
    ensure(changes == Some(night.changes()), || {
        format!("the version says {changes:?} of itself, not {:?}", night.changes())
    })?;
    let device_seconds =
        must_read(scene, night) as f64 / rates.read + must_write(scene, night) as f64 / rates.write;
    Ok(Round { made, device_seconds, device_rate: rates.mixed(), peak_mib })
}

fn report(scene: &Scene<'_>, night: Night, rounds: &[Round]) -> f64 {
    let must_move = (must_read(scene, night) + must_write(scene, night)) as f64;
    let name = scene.pairs.name;
    let say = |what: &str, unit, of: &dyn Fn(&Round) -> f64| {
        let value = median_of(rounds.iter().map(of).collect());
        scene.say(&format!("store.update.{name}.{what}"), value, unit, night.base);
        value
    };
    say("seconds", "s", &|round| round.made.seconds);
    say("mb_per_s", "MB/s", &|round| must_move / round.made.seconds / 1e6);
    say("device_mb_per_s", "MB/s", &|round| round.device_rate / 1e6);
    say("disk_fraction", "of the device's rate", &|round| {
        round.device_seconds / round.made.seconds
    });
    let best = rounds.iter().map(|round| round.device_seconds / round.made.seconds);
    let best = best.fold(0.0, f64::max);
    let best_name = format!("store.update.{name}.disk_fraction_best");
    scene.say(&best_name, best, "of the device's rate", night.base);
    say("cpu_ns_per_pair", "ns", &|round| round.made.cpu_seconds / night.base as f64 * 1e9);
    say("peak_rss_mib", "MiB", &|round| round.peak_mib);
    say("bytes_moved_ratio", "of what must move", &|round| {
        let moved = round.made.moved;
        (moved.read_bytes + moved.written_bytes) as f64 / must_move
    })
}

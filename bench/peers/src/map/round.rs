//! One round of one engine: all phases, in the same order for all.
//!
//! ```text
//! load → lookups → updates → mixes → commits of 1, 8, 64 threads → deletions and compaction
//!   └ space           └ space                                              └ space
//! ```
//!
//! A clock stops when all changes are durable and no work in the background is left. An engine that
//! does not load all in time does the rest without its memory limit and without a clock, so that the next
//! phases find as many entries in all engines. Updates stop at their time; space after them is that of as many
//! as there were.

use super::{
    Options, Place, commits,
    engine::{Changes, Engine, Key, Lookups, SIZE},
    entries::{Entries, Zipf, committed},
    times::{Clock, Times},
};
use crate::{
    Result,
    data::mix,
    limit::Limit,
    measure::{
        Cost, disk_bytes_below, measure, peak_memory, reset_peak_memory, settle, written_bytes,
    },
};
use std::path::Path;

/// Number of changes in a transaction of a load or of updates.
const CHANGES: u64 = 1000;
/// Number of changes in a transaction without a clock: copy-on-write trees write each page once in it.
const MANY_CHANGES: u64 = 1_000_000;
/// Number of lookups and changes in a transaction that mixes both.
const MIXED: u64 = 100;
/// Number of keys in a batch of lookups.
const BATCH: u64 = 64;
/// One key out of this number stays after the deletions.
const KEPT: u64 = 10;
/// Number of keys of each kind that are looked up without a clock.
const SAMPLE: u64 = 1000;
const BLOCK_SIZE: f64 = 4096.0;
const ENTRY_SIZE: u64 = 2 * SIZE as u64;

/// Runs all phases of an engine with an empty map.
pub(super) fn run(engine: Box<dyn Engine>, place: &mut Place<'_>) -> Result<()> {
    let (options, folder, limit) = (place.options, place.folder, place.limit);
    let entries = Entries::new(options.keys, options.common.seed);
    let mut scene =
        Scene { options, folder, limit, say: &mut *place.say, engine, entries, committed: 0 };
    scene.load()?;
    scene.lookups()?;
    scene.updates()?;
    [50, 90].into_iter().try_for_each(|percent| scene.mix(percent))?;
    (scene.say)("peak_rss_mib", peak_memory()? as f64 / f64::from(1 << 20));
    scene.engine.start_commits()?;
    commits::THREADS.into_iter().try_for_each(|threads| scene.commits(threads))?;
    scene.delete()
}

/// An open map, and what it should answer.
struct Scene<'a> {
    options: &'a Options,
    folder: &'a Path,
    limit: Option<&'a Limit>,
    say: &'a mut dyn FnMut(&str, f64),
    engine: Box<dyn Engine>,
    entries: Entries,
    /// Number of entries that threads have committed.
    committed: u64,
}

/// The operations of a phase.
struct Done {
    count: u64,
    cost: Cost,
    written_bytes: u64,
    times: Times,
}

impl Scene<'_> {
    fn load(&mut self) -> Result<()> {
        reset_peak_memory()?;
        let all = self.options.keys;
        // Numbers are in order, and their keys in random order.
        let done = self.change((0, all), CHANGES, self.options.load_seconds, &|_, i| i)?;
        (self.say)("load_percent", done.count as f64 / all as f64 * 100.0);
        let payload = (done.count * ENTRY_SIZE) as f64;
        (self.say)("load_write_amplification", done.written_bytes as f64 / payload);
        self.say_changes("load", &done);
        if done.count < all {
            self.load_rest((done.count, all))?;
        }
        self.say_space("loaded")
    }

    fn updates(&mut self) -> Result<()> {
        let all = self.options.operations;
        let uniform = |entries: &Entries, i: u64| entries.pick(i, 1);
        let done = self.change((0, all), CHANGES, self.options.seconds, &uniform)?;
        (self.say)("update_percent", done.count as f64 / all as f64 * 100.0);
        self.say_changes("update", &done);
        self.say_space("updated")?;
        let zipf = Zipf::new(self.entries.count());
        let skewed = |_: &Entries, i: u64| zipf.pick(mix(!i));
        let done = self.change((0, all), CHANGES, self.options.seconds, &skewed)?;
        self.say_changes("update_zipf", &done);
        Ok(())
    }

    /// Puts values until the time is over, in transactions of this many.
    fn change(
        &mut self,
        (first, end): (u64, u64),
        changes: u64,
        seconds: f64,
        number: &dyn Fn(&Entries, u64) -> u64,
    ) -> Result<Done> {
        let written = written_bytes()?;
        let mut clock = Clock::start(seconds);
        let (count, cost) = measure(|| {
            let mut next = first;
            while next < end && !clock.is_over() {
                let until = (next + changes).min(end);
                let entries = &mut self.entries;
                self.engine.change(&mut |session| {
                    (next..until).try_for_each(|i| {
                        let number = number(entries, i);
                        session.put(&entries.key(number), &entries.change(number))?;
                        clock.lap();
                        Ok(())
                    })
                })?;
                next = until;
            }
            self.engine.sync()?;
            self.engine.settle()?;
            Ok(next - first)
        })?;
        let written_bytes = written_bytes()? - written;
        Ok(Done { count, cost, written_bytes, times: clock.times })
    }

    /// Loads the entries that there was no time for.
    fn load_rest(&mut self, range: (u64, u64)) -> Result<()> {
        let seconds = f64::from(u32::MAX);
        self.without_limit(|scene| scene.change(range, MANY_CHANGES, seconds, &|_, i| i).map(drop))
    }

    /// Does work without the memory limit.
    fn without_limit(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.limit.map_or(Ok(()), Limit::lift)?;
        work(self)?;
        settle(self.folder)?;
        reset_peak_memory()?;
        self.limit.map_or(Ok(()), Limit::apply)
    }

    /// Looks up present and absent keys one at a time, and present keys in batches.
    fn lookups(&mut self) -> Result<()> {
        let entries = &self.entries;
        let gets = self.look_up("get", &mut |i, session| {
            let number = entries.pick(i, 2);
            entries.check(number, session.get(&entries.key(number))?)
        })?;
        let absent = self.look_up("absent_get", &mut |i, session| match session
            .get(&entries.absent_key(i))?
        {
            None => Ok(()),
            Some(value) => Err(format!("an absent key has the value {value:?}").into()),
        })?;
        let mut batches = self.look_up("multi_get", &mut |batch, session| {
            let numbers = || (batch * BATCH..(batch + 1) * BATCH).map(|i| entries.pick(i, 3));
            let keys: Vec<Key> = numbers().map(|number| entries.key(number)).collect();
            let values = session.get_many(&keys)?;
            numbers().zip(values).try_for_each(|(number, value)| entries.check(number, value))
        })?;
        batches.count *= BATCH;
        self.say_lookups("get", &gets);
        (self.say)("get_p50_us", gets.times.quantile_us(0.5));
        (self.say)("get_p99_us", gets.times.quantile_us(0.99));
        self.say_lookups("absent_get", &absent);
        self.say_lookups("multi_get", &batches);
        Ok(())
    }

    /// Runs lookups until the time is over; `work` looks up the i-th key.
    fn look_up(
        &self,
        phase: &str,
        work: &mut dyn FnMut(u64, &mut dyn Lookups) -> Result<()>,
    ) -> Result<Done> {
        let mut clock = Clock::start(self.options.seconds);
        let mut count = 0;
        let done = measure(|| {
            self.engine.look_up(&mut |session| {
                while count < self.options.operations && !clock.is_over() {
                    work(count, session)?;
                    clock.lap();
                    count += 1;
                }
                Ok(())
            })
        });
        let ((), cost) = done.map_err(|error| format!("{phase}: {error}"))?;
        Ok(Done { count, cost, written_bytes: 0, times: clock.times })
    }

    /// Mixes lookups and updates at random until the time is over.
    fn mix(&mut self, percent: u64) -> Result<()> {
        let all = self.options.operations;
        let mut clock = Clock::start(self.options.seconds);
        let (count, cost) = measure(|| {
            let mut next = 0;
            while next < all && !clock.is_over() {
                let until = (next + MIXED).min(all);
                let entries = &mut self.entries;
                self.engine.change(&mut |session| {
                    (next..until).try_for_each(|i| {
                        mix_one(entries, session, i, percent)?;
                        clock.lap();
                        Ok(())
                    })
                })?;
                next = until;
            }
            self.engine.sync()?;
            self.engine.settle()?;
            Ok(next)
        })?;
        let done = Done { count, cost, written_bytes: 0, times: clock.times };
        self.say_lookups(&format!("mixed_{percent}"), &done);
        Ok(())
    }

    /// Puts new keys in several threads until the time is over, one key a commit.
    fn commits(&mut self, threads: u64) -> Result<()> {
        let (entries, engine) = (&self.entries, &*self.engine);
        let done = commits::run(self.options, threads, &|thread, i| {
            let (key, value) = committed(entries, threads, thread, i);
            engine.commit(&key, &value)
        })?;
        self.check_commits(threads, &done.counts)?;
        self.committed += done.count();
        done.say(threads, self.say);
        Ok(())
    }

    /// Looks up some entries that each thread has committed.
    fn check_commits(&self, threads: u64, counts: &[u64]) -> Result<()> {
        self.engine.look_up(&mut |session| {
            for (thread, count) in (0..).zip(counts) {
                let step = (count * threads).div_ceil(SAMPLE).max(1);
                for i in (0..*count).step_by(step as usize) {
                    let (key, value) = committed(&self.entries, threads, thread, i);
                    let got = session.get(&key)?;
                    if got != Some(value) {
                        return Err(format!("expected the committed {value:?}, got {got:?}").into());
                    }
                }
            }
            Ok(())
        })
    }

    /// Deletes nine keys out of ten, without the memory limit, and gives their space back.
    fn delete(&mut self) -> Result<()> {
        self.without_limit(|scene| {
            let all = scene.entries.count();
            for first in (0..all).step_by(MANY_CHANGES as usize) {
                let entries = &mut scene.entries;
                scene.engine.change(&mut |session| {
                    let numbers = first..(first + MANY_CHANGES).min(all);
                    numbers.filter(|number| number % KEPT != 0).try_for_each(|number| {
                        entries.delete(number);
                        session.delete(&entries.key(number))
                    })
                })?;
            }
            scene.engine.sync()?;
            scene.engine.compact()
        })?;
        self.say_space("deleted")?;
        let entries = &self.entries;
        self.engine.look_up(&mut |session| {
            (0..SAMPLE).try_for_each(|i| {
                let number = entries.pick(i, 4);
                entries.check(number, session.get(&entries.key(number))?)
            })
        })
    }

    fn say_changes(&mut self, phase: &str, done: &Done) {
        self.say_lookups(phase, done);
        let mut say = |name: &str, value| (self.say)(&format!("{phase}_{name}"), value);
        say("writes", done.written_bytes as f64 / BLOCK_SIZE / done.count as f64);
        say("p50_us", done.times.quantile_us(0.5));
        say("p99_us", done.times.quantile_us(0.99));
        say("p999_us", done.times.quantile_us(0.999));
        say("max_ms", done.times.max_ms());
    }

    fn say_lookups(&mut self, phase: &str, done: &Done) {
        let count = done.count as f64;
        let mut say = |name: &str, value| (self.say)(&format!("{phase}_{name}"), value);
        say("per_s", count / done.cost.wall.as_secs_f64());
        say("cpu_us", done.cost.cpu.as_secs_f64() / count * 1e6);
        say("reads", done.cost.read_bytes as f64 / BLOCK_SIZE / count);
    }

    /// Prints the space that the map takes on the device, by the size of its entries.
    fn say_space(&mut self, when: &str) -> Result<()> {
        let payload = ((self.entries.present() + self.committed) * ENTRY_SIZE) as f64;
        let bytes = disk_bytes_below(self.folder)? as f64;
        (self.say)(&format!("disk_per_payload_{when}"), bytes / payload);
        Ok(())
    }
}

/// Looks up or changes a key for `i`.
fn mix_one(entries: &mut Entries, session: &mut dyn Changes, i: u64, percent: u64) -> Result<()> {
    let number = entries.pick(i, 5 + percent);
    let key = entries.key(number);
    if mix(i ^ percent << 48) % 100 < percent {
        return entries.check(number, session.get(&key)?);
    }
    session.put(&key, &entries.change(number))
}

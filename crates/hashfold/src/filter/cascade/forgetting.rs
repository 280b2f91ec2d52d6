//! Filters with a window of time, in front of clocks that run, stand still and go back.

use super::{
    CascadeFilter, CascadeOptions, CascadeSettings, MEMORY_MIN, Snapshot, verify, window::Window,
};
use crate::{
    env::Env,
    error::{ErrorKind, Result},
    io::{Access, Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    key::{KeyHash, Seed},
    work::{Inline, ManualClock, Watch},
};
use std::{path::Path, sync::Arc, time::Duration};

const DAY: Duration = Duration::from_secs(86_400);
const FOLDER: &str = "filter";

fn settings(disk: &Arc<dyn Disk>, clock: &ManualClock) -> CascadeSettings {
    let (disk, clock) = (disk.clone(), Arc::new(clock.clone()));
    let env = Env { disk, clock, executor: Arc::new(Inline), ..Env::simulated(1) };
    CascadeSettings { memory_bytes: MEMORY_MIN, ..CascadeSettings::new(env) }
}

fn memory() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::default())
}

/// A filter that keeps a week, in epochs of a day.
fn create(disk: &Arc<dyn Disk>, clock: &ManualClock) -> Result<CascadeFilter> {
    let window = Some(Window::new(7 * DAY, 7)?);
    let options = CascadeOptions { window, ..CascadeOptions::exact(Seed(1), 7) };
    CascadeFilter::create(Path::new(FOLDER), &options, settings(disk, clock))
}

fn open(disk: &Arc<dyn Disk>, clock: &ManualClock) -> Result<CascadeFilter> {
    CascadeFilter::open(Path::new(FOLDER), settings(disk, clock))
}

/// The key that is inserted on a day.
fn key(day: u64) -> KeyHash {
    KeyHash::of(&day.to_le_bytes(), Seed(1))
}

/// Returns the days below `end` whose keys a reader of the filter finds.
fn found(disk: &Arc<dyn Disk>, clock: &ManualClock, end: u64) -> Vec<u64> {
    let env = settings(disk, clock).env;
    let snapshot = Snapshot::open(&env, Path::new(FOLDER), Access::Cached).unwrap();
    (0..end).filter(|&day| snapshot.contains(key(day)).unwrap()).collect()
}

/// The job that runs every night.
fn run_job(disk: &Arc<dyn Disk>, clock: &ManualClock, day: u64) {
    let mut filter = open(disk, clock).unwrap();
    filter.insert_batch(&[key(day)]).unwrap();
    filter.close().unwrap();
}

#[test]
fn a_key_is_kept_for_the_window_however_often_the_job_runs() {
    let (disk, clock) = (memory(), ManualClock::new(1));
    clock.advance(100 * DAY + DAY / 2);
    create(&disk, &clock).unwrap().close().unwrap();
    for day in 0..20 {
        // Running the job twice a night forgets nothing.
        for _ in 0..1 + day % 3 {
            run_job(&disk, &clock, day);
        }
        let filter = open(&disk, &clock).unwrap();
        assert_eq!(filter.epoch(), 100 + day);
        let expected: Vec<u64> = (day.saturating_sub(7)..=day).collect();
        assert_eq!(found(&disk, &clock, day + 1), expected);
        drop(filter);
        clock.advance(DAY);
    }
}

#[test]
fn a_job_that_is_three_windows_late_finds_nothing_and_readers_before_it_neither() {
    let (disk, clock) = (memory(), ManualClock::new(1));
    clock.advance(100 * DAY);
    drop(create(&disk, &clock).unwrap());
    (0..5).for_each(|day| {
        run_job(&disk, &clock, day);
        clock.advance(DAY);
    });
    // A reader forgets by the clock, also before a writer has come.
    clock.advance(5 * DAY);
    assert_eq!(found(&disk, &clock, 5), [3, 4]);
    clock.advance(21 * DAY);
    assert_eq!(found(&disk, &clock, 5), [0; 0]);
    let mut filter = open(&disk, &clock).unwrap();
    assert!(filter.insert_unique(key(0)).unwrap());
    assert_eq!((filter.epoch(), filter.stats().epochs.len()), (131, 1));
    assert_eq!(filter.advance_window().unwrap(), 0);
    filter.close().unwrap();
    assert_eq!(found(&disk, &clock, 5), [0]);
}

#[test]
fn a_clock_that_is_set_back_forgets_nothing() {
    let (disk, clock) = (memory(), ManualClock::new(1));
    clock.advance(100 * DAY);
    create(&disk, &clock).unwrap().close().unwrap();
    run_job(&disk, &clock, 0);
    let earlier = ManualClock::new(1);
    earlier.advance(50 * DAY);
    run_job(&disk, &earlier, 1);
    assert_eq!(open(&disk, &earlier).unwrap().epoch(), 100);
    assert_eq!(found(&disk, &earlier, 2), [0, 1]);
    // Keys of the earlier clock are kept as long as those of the newest epoch.
    clock.advance(7 * DAY);
    run_job(&disk, &clock, 2);
    assert_eq!(found(&disk, &clock, 3), [0, 1, 2]);
    clock.advance(DAY);
    assert_eq!(found(&disk, &clock, 3), [2]);
}

#[test]
fn a_window_by_time_is_not_advanced_by_hand() {
    let (disk, clock) = (memory(), ManualClock::new(1));
    let mut filter = create(&disk, &clock).unwrap();
    let refused = filter.advance_epoch().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Argument { .. }), "{refused}");
    assert_eq!(filter.stats().window, Some(Window::new(7 * DAY, 7).unwrap()));
    assert!(Window::new(DAY, 0).is_err() && Window::new(Duration::ZERO, 1).is_err());
    assert!(Window::new(DAY, 1001).is_err());
    assert_eq!(Window::new(Duration::from_secs(10), 3).unwrap().length().as_secs(), 12);
}

/// Forgets an epoch on a disk that fails at one operation, then loses power.
fn check_failure(operation: u64) -> bool {
    let faulty = FaultyDisk::new(FaultPlan { seed: 1, faults: vec![Fault::Failure { operation }] });
    let (disk, clock): (Arc<dyn Disk>, _) = (Arc::new(faulty.clone()), ManualClock::new(1));
    clock.advance(100 * DAY);
    let done = (|| {
        let mut filter = create(&disk, &clock)?;
        filter.insert(key(0))?;
        filter.flush()?;
        clock.advance(8 * DAY);
        filter.insert_batch(&[key(1)])?;
        filter.close()
    })();
    let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(operation));
    let clock = ManualClock::new(1);
    clock.advance(108 * DAY);
    let env = settings(&disk, &clock).env;
    if done.is_ok() {
        assert_eq!(found(&disk, &clock, 2), [1], "failure at {operation}");
    }
    if disk.exists(&Path::new(FOLDER).join("MANIFEST")).unwrap() {
        let mut filter = open(&disk, &clock).unwrap();
        filter.advance_window().unwrap();
        assert!(!filter.contains(key(0)).unwrap(), "failure at {operation}: {done:?}");
        filter.close().unwrap();
        let report = verify(&env, Path::new(FOLDER), &Watch::default()).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
    }
    done.is_ok()
}

#[test]
fn a_failure_or_power_cut_while_the_window_moves_forgets_all_of_an_epoch_or_nothing() {
    let failed = (0..150).filter(|&operation| !check_failure(operation)).count();
    assert!(failed > 10, "{failed}");
}

//! Runs of fingerprints from foreign code: if they are wrong, readers return errors or right
//! answers.

use crate::fixture::on;
use hashfold::{
    Env, Result, Seed,
    filter::{
        FingerprintMerge, Mode, PackedRun,
        cascade::{self, CascadeFilter, CascadeOptions, CascadeSettings},
        quotient::{BuildOptions, Growth, QuotientFilter},
    },
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    io::{Disk, MemoryDisk},
};
use std::{cell::Cell, path::Path, sync::Arc};

const SEED: Seed = Seed(5);
const SIZE: u128 = 1000;

/// The effect of the call with this number, counted from 0, on a batch.
type Step = fn(u64, &mut FingerprintBatch) -> Result<bool>;

/// A run that calls a function.
struct Foreign {
    step: Step,
    calls: u64,
    /// Number of times that the universe was read.
    reads: Cell<u64>,
    is_constant: bool,
}

impl Foreign {
    fn new(step: Step) -> Foreign {
        Foreign { step, calls: 0, reads: Cell::new(0), is_constant: true }
    }
}

impl Fingerprints for Foreign {
    fn seed(&self) -> Seed {
        SEED
    }

    fn universe(&self) -> Universe {
        let reads = self.reads.replace(self.reads.get() + 1);
        let more = if self.is_constant { 0 } else { reads % 3 };
        Universe::with_size(SIZE + u128::from(more)).unwrap()
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        self.calls += 1;
        (self.step)(self.calls - 1, batch)
    }
}

/// Appends fingerprints, as far as the batch accepts them.
fn push(batch: &mut FingerprintBatch, fingerprints: &[u64]) {
    for &fingerprint in fingerprints {
        let _ = batch.push(fingerprint, 1);
    }
}

const WRONG: [(&str, Step); 7] = [
    ("a batch below the one before", |call, batch| {
        let mut next = FingerprintBatch::from_sorted(vec![10 - call])?;
        std::mem::swap(batch, &mut next);
        Ok(call < 5)
    }),
    ("a fingerprint twice", |call, batch| {
        batch.clear();
        push(batch, &[7]);
        Ok(call < 5)
    }),
    ("a fingerprint outside of the universe", |call, batch| {
        push(batch, &[3, SIZE as u64]);
        Ok(call == 0)
    }),
    ("the end, with fingerprints", |_, batch| {
        push(batch, &[3]);
        Ok(false)
    }),
    ("no end, without fingerprints", |_, _| Ok(true)),
    ("a batch that was cleared", |call, batch| {
        if call == 0 {
            push(batch, &[1, 2, 3]);
        } else {
            batch.clear();
        }
        Ok(call < 3)
    }),
    ("a batch that was cleared and filled", |call, batch| {
        if call > 0 {
            batch.clear();
        }
        push(batch, &[20 + call, 30 + call, 40 + call]);
        Ok(call < 3)
    }),
];

/// Runs that some readers may accept in part.
const ODD: [Step; 3] = [
    // The batch loses its first fingerprint.
    |call, batch| {
        let kept: Vec<u64> = batch.fingerprints().iter().copied().skip(1).collect();
        *batch = FingerprintBatch::from_sorted(kept)?;
        push(batch, &[100 * (call + 1), 100 * (call + 1) + 5]);
        Ok(call < 3)
    },
    // The batch is another one, of the same length.
    |call, batch| {
        let last = batch.last();
        let others =
            batch.fingerprints().iter().map(|it| Some(it / 2).filter(|_| last != Some(*it)));
        let others = others.zip(batch.fingerprints()).map(|(other, own)| other.unwrap_or(*own));
        *batch = FingerprintBatch::from_sorted(others.collect())?;
        push(batch, &[10 * call + 300]);
        Ok(call < 3)
    },
    // The run continues after its end.
    |call, batch| {
        if call != 2 {
            push(batch, &[10 * call + 1]);
        }
        Ok(call != 2)
    },
];

fn drain(mut run: impl Fingerprints) -> Result<u64> {
    let (mut batch, mut len) = (FingerprintBatch::new(), 0);
    while run.append_to(&mut batch)? {
        assert!(batch.fingerprints().is_sorted_by(|a, b| a < b));
        len += batch.len() as u64;
        batch.clear();
    }
    Ok(len)
}

/// Passes a run to a reader. Returns the number of fingerprints that the reader accepted.
type Reader = fn(Foreign) -> Result<u64>;

const READERS: [(&str, Reader); 7] = [
    ("PackedRun::build", |mut run| Ok(PackedRun::build(&mut run)?.len())),
    ("PackedRun::rebuild", |mut run| {
        let universe = Universe::with_size(SIZE)?;
        let mut packed = PackedRun::build(&mut FingerprintBatch::new().into_run(SEED, universe))?;
        let result = packed.rebuild(&mut run);
        assert!(result.is_ok() || packed.is_empty());
        result.map(|()| packed.len())
    }),
    ("FingerprintMerge::new", |run| drain(FingerprintMerge::new(vec![run], Mode::Multiset)?)),
    ("FingerprintMerge::last", |run| {
        let other = FingerprintBatch::from_sorted(vec![1, 500])?;
        let other = other.into_run(SEED, Universe::with_size(SIZE)?);
        let runs: Vec<Box<dyn Fingerprints>> = vec![Box::new(run), Box::new(other)];
        drain(FingerprintMerge::last(runs, Mode::Set)?)
    }),
    ("QuotientFilter::build", |mut run| {
        let options =
            BuildOptions { capacity: 100, mode: Mode::Set, growth: Growth::Refuse, load_max: 0.9 };
        Ok(QuotientFilter::build(&mut run, &options)?.len())
    }),
    ("CascadeFilter::build", |mut run| {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let options = CascadeOptions::like(&run, 1, Mode::Set, 100);
        let settings = CascadeSettings {
            memory_bytes: cascade::MEMORY_MIN,
            ..CascadeSettings::new(Env::simulated(1))
        };
        let folder = Path::new("filter");
        let filter = CascadeFilter::build(folder, &options, on(disk, settings), &mut run)?;
        Ok(filter.stats().fingerprints)
    }),
    ("CascadeFilter::insert_run", |mut run| {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let universe = Universe::with_size(SIZE)?;
        let options = CascadeOptions { universe, ..CascadeOptions::exact(SEED, 1) };
        let settings = CascadeSettings {
            memory_bytes: cascade::MEMORY_MIN,
            ..CascadeSettings::new(Env::simulated(1))
        };
        let mut filter = CascadeFilter::create(Path::new("filter"), &options, on(disk, settings))?;
        filter.insert_run(&mut run, 10)?;
        let stats = filter.stats();
        filter.close()?;
        Ok(stats.fingerprints)
    }),
];

#[test]
fn wrong_runs_are_errors_and_cause_no_panic() {
    for (reader, read) in READERS {
        for (what, step) in WRONG {
            assert!(read(Foreign::new(step)).is_err(), "{reader}: {what}");
        }
    }
}

#[test]
fn odd_runs_and_universes_that_change_cause_no_panic() {
    for (_, read) in READERS {
        for step in ODD {
            let _ = read(Foreign::new(step));
        }
        let step: Step = |call, batch| {
            push(batch, &[400 * call, 400 * call + 200]);
            Ok(call < 3)
        };
        let _ = read(Foreign { is_constant: false, ..Foreign::new(step) });
    }
}

#[test]
fn right_runs_are_read_to_the_end() {
    for (reader, read) in READERS {
        let step: Step = |call, batch| {
            if call < 10 {
                push(batch, &[100 * call + 1, 100 * call + 9]);
            }
            Ok(call < 10)
        };
        let len = read(Foreign::new(step)).unwrap();
        assert_eq!(len, if reader == "FingerprintMerge::last" { 21 } else { 20 }, "{reader}");
    }
}

#[test]
fn a_batch_takes_nothing_that_does_not_ascend_and_no_count_of_0() {
    assert!(FingerprintBatch::from_sorted(vec![1, 1]).is_err());
    assert!(FingerprintBatch::from_sorted(vec![2, 1]).is_err());
    let mut batch = FingerprintBatch::from_sorted(vec![1, 4]).unwrap();
    assert!(batch.push(4, 1).is_err());
    assert!(batch.push(3, 1).is_err());
    assert!(batch.push(5, 0).is_err());
    batch.push(5, i64::MIN).unwrap();
    batch.push(u64::MAX, 2).unwrap();
    assert!(batch.push(0, 1).is_err());
    let all = [(1, 1), (4, 1), (5, i64::MIN), (u64::MAX, 2)];
    assert_eq!(batch.iter().collect::<Vec<_>>(), all);
}

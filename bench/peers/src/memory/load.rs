//! Work that is divided into blocks, on one thread or several: its time, and that of each part.

use super::{
    Options,
    peer::{Shares, Watched},
};
use crate::{Result, measure::cpu_time};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Number of keys or records in a call, for most peers.
pub(super) const BLOCK: usize = 1000;

/// The work of one thread on a block of numbers.
pub(super) type Step<'a> = Box<dyn FnMut(&[u32]) -> Result<()> + Send + 'a>;

/// Work that was done.
#[derive(Debug)]
pub(super) struct Done {
    /// For each thread, how many numbers it has done: less than all if the time was over.
    pub counts: Vec<usize>,
    pub seconds: f64,
    pub cpu: Duration,
    /// Time of each part, in seconds; the rest after the last whole part is left out.
    pub parts: Vec<f64>,
}

impl Done {
    /// Returns the number of operations.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum::<usize>() as u64
    }

    /// Returns the time of the slowest part, and that by the median.
    pub(super) fn slowest(&self) -> Option<(f64, f64)> {
        let mut parts = self.parts.clone();
        parts.sort_by(f64::total_cmp);
        let (slowest, median) = (parts.last()?, parts[parts.len() / 2]);
        Some((*slowest, slowest / median))
    }
}

/// Divides numbers among threads, by the keys that they stand for.
pub(super) fn divide(
    numbers: Vec<u32>,
    shares: Option<&Shares>,
    key: impl Fn(u32) -> u64,
) -> Vec<Vec<u32>> {
    let Some(Shares { threads, thread_of }) = shares else { return vec![numbers] };
    let mut lists = vec![Vec::new(); *threads];
    numbers.into_iter().for_each(|number| lists[thread_of(key(number))].push(number));
    lists
}

/// The progress of all threads.
struct Progress {
    start: Instant,
    deadline: Duration,
    /// Number of operations of a part.
    part: u64,
    done: AtomicU64,
    /// The end of each part, in nanoseconds from the start; 0 if it was not reached.
    ends_ns: Vec<AtomicU64>,
}

impl Progress {
    fn start(options: &Options, part: u64, all: u64) -> Progress {
        Progress {
            start: Instant::now(),
            deadline: Duration::from_secs_f64(options.seconds),
            part,
            done: AtomicU64::new(0),
            ends_ns: (0..all / part).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Counts a block, which is not larger than a part. Returns whether there is time for another.
    fn add(&self, count: usize) -> bool {
        let before = self.done.fetch_add(count as u64, Ordering::Relaxed);
        let elapsed = self.start.elapsed();
        let (first, end) = (before / self.part, (before + count as u64) / self.part);
        if first < end {
            self.ends_ns[first as usize].store(elapsed.as_nanos() as u64, Ordering::Relaxed);
        }
        elapsed < self.deadline
    }

    /// Returns the time of each part that was reached.
    fn parts(&self) -> Vec<f64> {
        let ends = self.ends_ns.iter().map(|end| end.load(Ordering::Relaxed));
        let mut before = 0;
        let part = |end: u64| {
            // Threads that end two parts at nearly the same time may note them in the other order.
            let time = end.saturating_sub(before);
            before = before.max(end);
            time as f64 / 1e9
        };
        ends.take_while(|end| *end > 0).map(part).collect()
    }
}

/// Does each list of numbers, block by block, in a thread of its own; the first one in this thread.
pub(super) fn load(
    steps: Vec<Step<'_>>,
    lists: &[Vec<u32>],
    block: usize,
    options: &Options,
    server: Option<&Watched>,
) -> Result<Done> {
    assert_eq!(steps.len(), lists.len(), "a list for each thread");
    let all = lists.iter().map(Vec::len).sum::<usize>() as u64;
    let cpu = || match server {
        None => Ok(cpu_time()),
        Some(server) => server.cpu_seconds().map(Duration::from_secs_f64),
    };
    let cpu_before = cpu()?;
    let progress = Progress::start(options, options.part.max(block as u64), all);
    let work = |mut step: Step<'_>, list: &[u32]| -> Result<usize> {
        let mut count = 0;
        for numbers in list.chunks(block) {
            step(numbers)?;
            count += numbers.len();
            if !progress.add(numbers.len()) {
                break;
            }
        }
        Ok(count)
    };
    let work = &work;
    let counts = thread::scope(|scope| -> Result<Vec<usize>> {
        let mut steps = steps.into_iter().zip(lists);
        let first = steps.next();
        let others: Vec<_> =
            steps.map(|(step, list)| scope.spawn(move || work(step, list))).collect();
        let first = first.map(|(step, list)| work(step, list));
        let others = others.into_iter().map(|thread| thread.join().expect("no thread panics"));
        first.into_iter().chain(others).collect()
    })?;
    let seconds = progress.start.elapsed().as_secs_f64();
    Ok(Done { counts, seconds, cpu: cpu()?.saturating_sub(cpu_before), parts: progress.parts() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn options(seconds: &str) -> Options {
        let arguments = ["peers", "memory", "--part", "1000", "--seconds", seconds];
        match crate::Cli::parse_from(arguments).command {
            crate::Command::Memory(options) => options,
            _ => panic!("the command is memory"),
        }
    }

    #[test]
    fn all_numbers_are_done_in_order_in_each_thread() {
        let lists = [(0..4500).collect::<Vec<u32>>(), (10_000..12_100).collect()];
        let mut seen = [Vec::new(), Vec::new()];
        let step = |seen: &mut Vec<u32>, numbers: &[u32]| seen.extend_from_slice(numbers);
        let steps = seen.iter_mut().map(|seen| -> Step<'_> {
            Box::new(move |numbers| {
                step(seen, numbers);
                Ok(())
            })
        });
        let done = load(steps.collect(), &lists, 500, &options("60"), None).unwrap();
        assert_eq!(seen, lists);
        assert_eq!((done.counts, done.parts.len()), (vec![4500, 2100], 6));
    }

    #[test]
    fn work_ends_after_the_block_in_which_the_time_is_over() {
        let lists = [(0..4500).collect::<Vec<u32>>()];
        let done = load(vec![Box::new(|_| Ok(()))], &lists, 500, &options("0"), None).unwrap();
        assert_eq!((done.count(), done.parts.len()), (500, 0));
        let failed = load(vec![Box::new(|_| Err("no".into()))], &lists, 500, &options("9"), None);
        assert_eq!(failed.unwrap_err().to_string(), "no");
    }

    #[test]
    fn numbers_keep_their_order_when_they_are_divided() {
        let shares = Shares { threads: 2, thread_of: Box::new(|key| (key % 20 / 10) as usize) };
        let key = |number| u64::from(number) * 10;
        assert_eq!(divide(vec![3, 2, 5, 4], Some(&shares), key), [vec![2, 4], vec![3, 5]]);
        assert_eq!(divide(vec![3, 2], None, key), [vec![3, 2]]);
    }

    #[test]
    fn the_slowest_part_is_compared_with_the_median() {
        let parts = vec![0.5, 2.0, 0.25];
        let done = Done { counts: vec![3], seconds: 3.0, cpu: Duration::ZERO, parts };
        assert_eq!(done.slowest(), Some((2.0, 4.0)));
    }
}

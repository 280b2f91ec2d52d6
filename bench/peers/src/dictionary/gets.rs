//! Cold gets of random present keys.

use super::{Dictionary, Getter, Options, Reader};
use crate::{
    Result,
    data::{Data, KEY_SIZE, Key, mix},
    measure::{device_reads, drop_cache, measure},
};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Number of gets before the clock starts, of keys spread evenly over all possible keys. They bring
/// the inner pages of a tree into memory, and few of its leaves.
pub const WARM_UP: u64 = 10_000;

/// The results of one way of getting.
#[derive(Clone, Copy, Debug)]
pub struct Gets {
    pub per_second: f64,
    pub per_cpu_second: f64,
    /// Bytes read from the device per get.
    pub read_bytes: f64,
    /// Requests to the device per get, if the system tells.
    pub device_reads: Option<f64>,
}

/// The results of all ways of getting from one dictionary.
#[derive(Clone, Copy, Debug)]
pub struct AllGets {
    pub index_bytes: Option<u64>,
    pub single: Gets,
    pub threads: Gets,
    pub batched: Option<Gets>,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    threads: usize,
    batch: usize,
}

pub fn measure_gets(
    peer: &dyn Dictionary,
    data: &Data,
    options: &Options,
    folder: &Path,
) -> Result<AllGets> {
    let get = |threads, batch| {
        let round = Round { peer, data, options, folder, way: Way { threads, batch } };
        round.run()
    };
    let reader = peer.open(folder)?;
    let (index_bytes, has_batches) = (reader.index_bytes()?, reader.has_batches());
    drop(reader);
    Ok(AllGets {
        index_bytes,
        single: get(1, 1)?,
        threads: get(options.get_threads, 1)?,
        batched: has_batches.then(|| get(1, options.batch)).transpose()?,
    })
}

struct Round<'a> {
    peer: &'a dyn Dictionary,
    data: &'a Data,
    options: &'a Options,
    folder: &'a Path,
    way: Way,
}

impl Round<'_> {
    fn run(&self) -> Result<Gets> {
        drop_cache(self.folder)?;
        let reader = self.peer.open(self.folder)?;
        self.warm_up(reader.as_ref())?;
        let before = device_reads(self.folder);
        let (count, cost) = measure(|| self.get_all(reader.as_ref()))?;
        let requests = device_reads(self.folder).zip(before).map(|(after, before)| after - before);
        Ok(Gets {
            per_second: count as f64 / cost.wall.as_secs_f64(),
            per_cpu_second: count as f64 / cost.cpu.as_secs_f64(),
            read_bytes: cost.read_bytes as f64 / count as f64,
            device_reads: requests.map(|requests| requests as f64 / count as f64),
        })
    }

    fn warm_up(&self, reader: &dyn Reader) -> Result<()> {
        let threads = self.options.get_threads as u64;
        in_threads(threads, |thread| {
            let mut getter = reader.getter()?;
            for i in (thread..WARM_UP).step_by(threads as usize) {
                let mut key = [0; KEY_SIZE];
                key[..8].copy_from_slice(&(u64::MAX / WARM_UP * i).to_be_bytes());
                getter.get(&key, &mut |_, _| Ok(()))?;
            }
            Ok(0)
        })?;
        Ok(())
    }

    /// Returns the number of gets in the available time.
    fn get_all(&self, reader: &dyn Reader) -> Result<u64> {
        let deadline = Instant::now() + Duration::from_secs_f64(self.options.seconds);
        in_threads(self.way.threads as u64, |thread| {
            let mut getter = reader.getter()?;
            let numbers = (thread..self.options.gets).step_by(self.way.threads);
            // Each way and each thread uses other keys.
            let salt = mix(self.data.seed ^ (self.way.threads * 2 + self.way.batch) as u64);
            let mut chosen = numbers.map(|i| mix(i ^ salt) % self.data.count);
            let mut count = 0;
            while Instant::now() < deadline {
                let batch: Vec<u64> = chosen.by_ref().take(self.way.batch).collect();
                if batch.is_empty() {
                    break;
                }
                self.get_batch(getter.as_mut(), &batch)?;
                count += batch.len() as u64;
            }
            Ok(count)
        })
    }

    /// Gets the keys with these numbers and checks the values.
    fn get_batch(&self, getter: &mut dyn Getter, numbers: &[u64]) -> Result<()> {
        let keys: Vec<Key> = numbers.iter().map(|&i| self.data.key(i)).collect();
        let mut seen = 0;
        let mut expected = Vec::new();
        let mut check = |i: usize, value: Option<&[u8]>| {
            seen += 1;
            self.data.fill_value(numbers[i], &mut expected);
            if self.peer.has_values() && value != Some(&expected) {
                let name = self.peer.name();
                return Err(format!("{name} has a wrong value for key {}", numbers[i]).into());
            }
            Ok(())
        };
        match &keys[..] {
            [key] => getter.get(key, &mut check)?,
            keys => getter.get_many(keys, &mut check)?,
        }
        if seen != keys.len() {
            return Err(format!("{} of {} keys were answered", seen, keys.len()).into());
        }
        Ok(())
    }
}

/// Runs `work` in each of `count` threads, and adds up the results.
fn in_threads(count: u64, work: impl Fn(u64) -> Result<u64> + Sync) -> Result<u64> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|i| scope.spawn(move || work(i))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    })
}

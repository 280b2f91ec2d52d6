//! Sketches in this process.

use super::peer::{Measured, Peer, error_of, words};
use crate::{Result, measure::cpu_time};
use std::{hint::black_box, marker::PhantomData, ops::Range};

/// Number of passes of which the shortest counts.
pub(super) const PASSES: usize = 3;
/// Number of estimates and unions that are timed together.
const TIMES: u32 = 100;
/// Number of keys of the sketch that is united with another, at most.
const OTHER_KEYS: u64 = 1_000_000;
/// Number of keys that are made, and then inserted: they stay in the cache, as hashes do that a program has just
/// computed, and the clock is read seldom enough.
const BLOCK: u64 = 16_384;

/// What a sketch gets: the word of a key, or a hash that was made from it before.
pub(super) trait Item: Copy {
    fn of(word: u64) -> Self;
}

impl Item for u64 {
    fn of(word: u64) -> u64 {
        word
    }
}

/// A sketch in this process.
pub(super) trait Sketch: Sized {
    const NAME: &'static str;
    const NOTE: &'static str;

    type Item: Item;

    fn empty() -> Result<Self>;

    /// Inserts in the fastest way.
    fn insert(&mut self, items: &[Self::Item]);

    fn estimate(&mut self) -> f64;

    /// Adds the keys of another sketch.
    fn unite(&mut self, other: &Self) -> Result<()>;

    /// Returns the size of the sketch in its own form of bytes; `None` if it has none.
    fn stored_bytes(&self) -> Option<usize>;

    /// Estimates what two sets have in common: by inclusion and exclusion if the peer has nothing better.
    fn intersection(mut self, mut other: Self) -> Result<f64> {
        let both = self.estimate() + other.estimate();
        self.unite(&other)?;
        Ok(both - self.estimate())
    }
}

/// Measures sketches of a kind.
pub(super) struct Local<S>(PhantomData<S>);

impl<S: Sketch> Local<S> {
    pub(super) fn new() -> Local<S> {
        Local(PhantomData)
    }

    /// Inserts keys, block by block. Returns the CPU time of the inserts alone, in seconds.
    fn fill(sketch: &mut S, keys: Range<u64>) -> f64 {
        let (mut items, mut seconds) = (Vec::with_capacity(BLOCK as usize), 0.0);
        for block in blocks(keys) {
            items.clear();
            items.extend(words(block).map(S::Item::of));
            seconds += time(|| sketch.insert(black_box(&items)));
        }
        seconds
    }

    fn of(keys: Range<u64>) -> Result<S> {
        let mut sketch = S::empty()?;
        Self::fill(&mut sketch, keys);
        Ok(sketch)
    }
}

impl<S: Sketch> Peer for Local<S> {
    fn name(&self) -> String {
        S::NAME.to_owned()
    }

    fn note(&self) -> String {
        S::NOTE.to_owned()
    }

    fn is_served(&self) -> bool {
        false
    }

    fn time(&mut self, keys: Range<u64>) -> Result<Measured> {
        let count = keys.end - keys.start;
        let mut other = Self::of(keys.end..keys.end + count.min(OTHER_KEYS))?;
        black_box(other.estimate());
        let mut seconds = f64::INFINITY;
        for _ in 0..PASSES {
            let mut sketch = S::empty()?;
            seconds = seconds.min(Self::fill(&mut sketch, keys.clone()));
            error_of(sketch.estimate(), count)?;
        }
        let mut items = Vec::with_capacity(BLOCK as usize);
        let before = heap_bytes();
        let mut sketch = S::empty()?;
        for block in blocks(keys) {
            items.clear();
            items.extend(words(block).map(S::Item::of));
            sketch.insert(&items);
        }
        let memory_bytes = heap_bytes().saturating_sub(before) + size_of::<S>();
        let estimate =
            time(|| (0..TIMES).for_each(|_| _ = black_box(black_box(&mut sketch).estimate())));
        let stored_bytes = sketch.stored_bytes();
        let mut united = Ok(());
        let union =
            time(|| united = (0..TIMES).try_for_each(|_| black_box(&mut sketch).unite(&other)));
        united?;
        let us = |seconds: f64| Some(seconds * 1e6 / f64::from(TIMES));
        Ok(Measured {
            insert_ns: seconds * 1e9 / count as f64,
            estimate_us: us(estimate),
            union_us: us(union),
            memory_bytes: Some(memory_bytes as f64),
            stored_bytes: stored_bytes.map(|bytes| bytes as f64),
            ..Measured::default()
        })
    }

    fn growth(&mut self, start: u64, sizes: &[u64]) -> Result<Vec<f64>> {
        let (mut sketch, mut known) = (S::empty()?, 0);
        let mut estimates = Vec::with_capacity(sizes.len());
        for &size in sizes {
            Self::fill(&mut sketch, start + known..start + size);
            known = size;
            estimates.push(sketch.estimate());
        }
        Ok(estimates)
    }

    fn intersection(&mut self, sets: [Range<u64>; 2]) -> Result<f64> {
        let [a, b] = sets;
        Self::of(a)?.intersection(Self::of(b)?)
    }
}

/// Returns keys in blocks.
fn blocks(keys: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    keys.clone().step_by(BLOCK as usize).map(move |start| start..keys.end.min(start + BLOCK))
}

/// Returns the CPU time of some work, in seconds.
fn time(work: impl FnOnce()) -> f64 {
    let start = cpu_time();
    work();
    (cpu_time() - start).as_secs_f64()
}

/// Returns the memory that is allocated, in bytes.
fn heap_bytes() -> usize {
    // SAFETY: the call has no arguments and changes nothing.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

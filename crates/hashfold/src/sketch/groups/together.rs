//! A merge of runs that passes all values of a key together.

use crate::{
    error::{ErrorKind, Result},
    key::KeyHash,
    run::Run,
};
use std::{cmp::Reverse, collections::BinaryHeap};

/// Runs of one seed, merged. [`Together::advance`] steps to the next key, and [`Together::values`] are those
/// that the runs have for it.
#[derive(Debug)]
pub(super) struct Together<R> {
    pub(super) runs: Vec<R>,
    /// The hashes of the runs that stand after the current key.
    heads: BinaryHeap<Reverse<(KeyHash, usize)>>,
    /// The runs that stand at the current key, in order.
    current: Vec<usize>,
    hash: KeyHash,
    key: Vec<u8>,
    is_started: bool,
}

impl<R: Run> Together<R> {
    pub(super) fn new(runs: Vec<R>) -> Together<R> {
        Together {
            heads: BinaryHeap::with_capacity(runs.len()),
            current: Vec::with_capacity(runs.len()),
            runs,
            hash: KeyHash::from_bits(0),
            key: Vec::new(),
            is_started: false,
        }
    }

    pub(super) fn hash(&self) -> KeyHash {
        self.hash
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the values of the key, with the index of the run that has each. Tombstones have none.
    pub(super) fn values(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let value = |&i: &usize| Some((i, self.runs[i].entry().value?));
        self.current.iter().filter_map(value)
    }

    /// Steps to the next key; returns `false` at the end.
    pub(super) fn advance(&mut self) -> Result<bool> {
        if self.is_started {
            while let Some(i) = self.current.pop() {
                self.step(i)?;
            }
        } else {
            self.is_started = true;
            (0..self.runs.len()).try_for_each(|i| self.step(i))?;
        }
        let Some(Reverse((hash, first))) = self.heads.pop() else { return Ok(false) };
        self.hash = hash;
        self.current.push(first);
        while let Some(&Reverse((next, i))) = self.heads.peek()
            && next == hash
        {
            self.heads.pop();
            self.current.push(i);
        }
        self.choose_key();
        Ok(true)
    }

    /// Keeps the runs at the smallest key of those with the current hash.
    fn choose_key(&mut self) {
        let runs = &self.runs;
        let key = |i: &usize| runs[*i].entry().key;
        let smallest = self.current.iter().map(key).min().unwrap_or_default();
        self.key.clear();
        self.key.extend_from_slice(smallest);
        if self.current.len() > 1 {
            let (heads, hash) = (&mut self.heads, self.hash);
            self.current.retain(|&i| {
                let is_here = runs[i].entry().key == &self.key[..];
                if !is_here {
                    heads.push(Reverse((hash, i)));
                }
                is_here
            });
            self.current.sort_unstable();
        }
    }

    /// Steps a run past the current key.
    fn step(&mut self, i: usize) -> Result<()> {
        if !self.runs[i].advance()? {
            return Ok(());
        }
        let entry = self.runs[i].entry();
        // A run that has just started has no key before its first.
        let is_first = self.key.is_empty() && self.hash == KeyHash::from_bits(0);
        if !is_first && (entry.hash, entry.key) <= (self.hash, &self.key[..]) {
            return Err(ErrorKind::Order { previous: self.hash, got: entry.hash }.into());
        }
        self.heads.push(Reverse((entry.hash, i)));
        Ok(())
    }
}

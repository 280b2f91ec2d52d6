//! Expected sizes of tries, computed from the codes of their nodes.
//!
//! The left size of a node with C keys is binomial(C, 1/2), and 0 and C share one code (section
//! 2.4 of the paper). With c(C) the expected bits of one node, a trie of C keys takes
//!
//! ```text
//! E(C) = c(C) + sum over left sizes l of P(l | C) (E(l) + E(C - l)),   E(0) = E(1) = 0
//! ```
//!
//! where E(C) is on both sides, for nodes with all keys on one side.

use crate::Result;
use hashfold::table::expected_trie_bits;
use std::{cmp::Reverse, collections::BinaryHeap};

/// The code of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The shortest possible code that distinguishes 0 and C.
    EntropyDistinct,
    /// The shortest possible code that merges 0 and C.
    Entropy,
    /// The paper's code: Huffman up to this many keys, Elias-gamma above.
    Paper { coding_limit: usize },
    /// Our code: Huffman up to this many keys, Golomb-Rice above.
    Ours { coding_limit: u32 },
}

/// The paper's limit on Huffman coding in its Figures 3 and 6.
pub const PAPER: Code = Code::Paper { coding_limit: 64 };

/// The expected bits of one node, for each number of keys up to `keys_max`.
#[derive(Clone, Debug)]
pub struct Nodes {
    bits: Vec<f64>,
}

impl Nodes {
    pub fn new(code: Code, keys_max: usize) -> Result<Nodes> {
        let mut bits = vec![0.0; 2.min(keys_max + 1)];
        match code {
            Code::Ours { coding_limit } => {
                // The library returns the size of whole tries; a node's size is the difference to
                // its subtries.
                let whole: Vec<f64> = (0..=keys_max)
                    .map(|keys| expected_trie_bits(keys as u32, coding_limit))
                    .collect::<hashfold::Result<_>>()?;
                bits.extend((2..=keys_max).map(|keys| {
                    let weights = left_sizes(keys);
                    whole[keys] * (1.0 - weights[0]) - of_children(&weights, &whole)
                }));
            }
            _ => bits.extend((2..=keys_max).map(|keys| node_bits(code, keys))),
        }
        Ok(Nodes { bits })
    }

    /// Returns the expected bits of a whole trie, for each number of keys.
    pub fn dense(&self) -> Vec<f64> {
        self.tries(|_| 1.0)
    }

    /// Returns the expected bits of a sparse trie, which omits subtries inside one block.
    ///
    /// The keys of a subtrie are neighbours, and its first key is equally likely at each position
    /// of its block of k keys. So m keys are in two blocks or more with probability min(1, (m - 1)
    /// / k), independent of the nodes above. Expectations add up, so this is exact.
    pub fn sparse(&self, block: usize) -> Vec<f64> {
        self.tries(|keys| spread(keys, block))
    }

    /// Returns the expected bits of a sparse trie if a subtrie's spread over blocks were
    /// independent of its parent's. The result is too small: a subtrie is coded only if its parent
    /// is, which is counted twice.
    pub fn sparse_as_if_independent(&self, block: usize) -> Vec<f64> {
        let mut tries = vec![0.0; self.bits.len()];
        for keys in 2..self.bits.len() {
            let weights = left_sizes(keys);
            let below = self.bits[keys] + of_children(&weights, &tries);
            tries[keys] = spread(keys, block) * below / (1.0 - weights[0]);
        }
        tries
    }

    fn tries(&self, share: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut tries = vec![0.0; self.bits.len()];
        for keys in 2..self.bits.len() {
            let weights = left_sizes(keys);
            let bits = self.bits[keys] * share(keys) + of_children(&weights, &tries);
            tries[keys] = bits / (1.0 - weights[0]);
        }
        tries
    }
}

/// Returns the mean of `tries[n]` per key, where n is the size of a bucket of about `bucket_size`
/// keys: Poisson-distributed, because hashes are uniform.
pub fn mean_bits_per_key(tries: &[f64], bucket_size: f64) -> f64 {
    let mut chance = (-bucket_size).exp();
    let mut bits = 0.0;
    for (keys, trie) in tries.iter().enumerate() {
        bits += chance * trie;
        chance *= bucket_size / (keys + 1) as f64;
    }
    bits / bucket_size
}

/// Returns the probability that neighbours are in more than one block.
fn spread(keys: usize, block: usize) -> f64 {
    (keys.saturating_sub(1) as f64 / block as f64).min(1.0)
}

/// Returns the probability of each left size below `keys`; that of `keys` is added to 0.
fn left_sizes(keys: usize) -> Vec<f64> {
    // 2^-1023 is a (subnormal) double, and grows back from there.
    let mut weight = 0.5_f64.powi(keys as i32);
    let mut weights = Vec::with_capacity(keys);
    for left in 0..keys {
        weights.push(if left == 0 { 2.0 * weight } else { weight });
        weight *= (keys - left) as f64 / (left + 1) as f64;
    }
    weights
}

fn of_children(weights: &[f64], tries: &[f64]) -> f64 {
    let keys = weights.len();
    (1..keys).map(|left| weights[left] * (tries[left] + tries[keys - left])).sum()
}

fn node_bits(code: Code, keys: usize) -> f64 {
    let weights = left_sizes(keys);
    let entropy = || -> f64 { weights.iter().map(|weight| -weight * weight.log2()).sum() };
    match code {
        Code::Entropy => entropy(),
        // One more bit says on which side all keys are.
        Code::EntropyDistinct => entropy() + weights[0],
        Code::Paper { coding_limit } if keys <= coding_limit => huffman_bits(&weights),
        _ => weights.iter().enumerate().map(|(left, w)| w * gamma_bits(keys, left)).sum(),
    }
}

/// Returns the expected length of Huffman's code: the sum of all merged weights.
fn huffman_bits(weights: &[f64]) -> f64 {
    // The bit patterns of non-negative doubles are in the order of their values.
    let mut heap: BinaryHeap<Reverse<u64>> = weights.iter().map(|w| Reverse(w.to_bits())).collect();
    let mut bits = 0.0;
    while let (Some(Reverse(a)), Some(Reverse(b))) = (heap.pop(), heap.pop()) {
        let both = f64::from_bits(a) + f64::from_bits(b);
        bits += both;
        if heap.is_empty() {
            break;
        }
        heap.push(Reverse(both.to_bits()));
    }
    bits
}

/// Returns the Elias-gamma length of one more than the folded distance from the middle.
fn gamma_bits(keys: usize, left: usize) -> f64 {
    let middle = keys / 2;
    let folded = if left >= middle { 2 * (left - middle) } else { 2 * (middle - left) - 1 };
    f64::from(2 * (folded + 1).ilog2() + 1)
}

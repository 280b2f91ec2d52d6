//! Entropy-coded tries: from a hash to its rank among sorted hashes, with about 2.6 bits per key.
//!
//! After Lim, Andersen and Kaminsky, *Practical Batch-Updatable External Hashing with Sorting*
//! (2013), sections 2.3, 2.4 and 2.6. Hashes are divided into buckets of about `bucket_size` keys.
//! A bucket's binary trie is written as the sizes of left subtries, entropy-coded.
//!
//! ```text
//! hash ── x superblocks ──> superblock ── x 28 ──> bucket ──> fraction: the key's bits in its trie
//!                           │ one cache line: counts and code sizes of 28 buckets
//!                           └> first rank, first bit ──> code: root, left subtrie >...< right subtrie
//! ```
//!
//! A dense trie gives the rank of each key. A sparse trie leaves out subtries inside one block, and
//! gives the ranks of some neighbours, all in that block. Both are right only for keys that are in
//! the trie; for other keys they return an arbitrary rank, or none.

mod bits;
mod build;
mod code;
mod decode;
mod directory;
mod encode;
mod kernel;
mod marks;
mod options;
mod read;
mod tables;
#[cfg(test)]
mod tests;

pub(super) use self::{
    build::TrieBuilder,
    marks::Marks,
    options::TrieOptions,
    read::Trie,
    tables::{CODING_LIMIT_DEFAULT, expected_bits},
};
pub use self::{code::CODING_LIMIT_MAX, options::BUCKET_SIZES};

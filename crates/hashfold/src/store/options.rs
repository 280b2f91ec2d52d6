//! Options of a new store.

use super::{
    slot::SlotMap,
    version::{Attributes, Shape},
};
use crate::{
    env::Env,
    error::Result,
    io::ALIGNMENT,
    key::Seed,
    table::{IndexOptions, check_block_size},
};

/// The default number of chunks of a new store: enough to build and merge with all cores, while the
/// chunks of a small store share one table.
const CHUNKS_DEFAULT: u32 = 16;

/// Options of a new store, which its first version fixes.
///
/// ```
/// use hashfold::{StoreOptions, table::IndexChoice};
///
/// let options = StoreOptions::new().chunks(1024).index(IndexChoice::Dense);
/// ```
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub(super) env: Env,
    seed: Option<Seed>,
    id: Option<u64>,
    chunks: u32,
    index: IndexOptions,
    block_size: usize,
    attributes: Attributes,
}

/// The description of a new store.
#[derive(Clone, Debug)]
pub(super) struct NewStore {
    pub(super) seed: Seed,
    pub(super) id: u64,
    pub(super) shape: Shape,
    pub(super) attributes: Attributes,
}

impl Default for StoreOptions {
    /// Returns [`StoreOptions::new`].
    fn default() -> StoreOptions {
        StoreOptions::new()
    }
}

impl StoreOptions {
    /// Returns the default options: [`Env::system`], a random seed and id, 16 chunks, an index of
    /// the kind [`IndexChoice::Auto`](crate::table::IndexChoice::Auto), and blocks of 4096 bytes.
    pub fn new() -> StoreOptions {
        StoreOptions {
            env: Env::system(),
            seed: None,
            id: None,
            chunks: CHUNKS_DEFAULT,
            index: IndexOptions::default(),
            block_size: ALIGNMENT,
            attributes: Vec::new(),
        }
    }

    /// Sets the disk, the executor, the clock and the random numbers.
    #[must_use]
    pub fn env(self, env: Env) -> StoreOptions {
        StoreOptions { env, ..self }
    }

    /// Sets the seed that all keys of the store are hashed with, for reproducible builds. The
    /// default is a random number.
    #[must_use]
    pub fn seed(self, seed: Seed) -> StoreOptions {
        StoreOptions { seed: Some(seed), ..self }
    }

    /// Sets the store's id, a number that no other store has. The default is a random number.
    #[must_use]
    pub fn id(self, id: u64) -> StoreOptions {
        StoreOptions { id: Some(id), ..self }
    }

    /// Sets the number of chunks, 1 to 16384. The default is 16. Chunks are built in parallel, and
    /// several machines can share a store by chunks. Neighbouring small chunks share a table.
    #[must_use]
    pub fn chunks(self, chunks: u32) -> StoreOptions {
        StoreOptions { chunks, ..self }
    }

    /// Sets the options of the index of each table, or only its kind.
    #[must_use]
    pub fn index(self, index: impl Into<IndexOptions>) -> StoreOptions {
        StoreOptions { index: index.into(), ..self }
    }

    /// Sets the size of a block, the unit of reading and of checksums, in bytes: a power of two,
    /// 4096 to 65536. The default is 4096.
    #[must_use]
    pub fn block_size(self, block_size: usize) -> StoreOptions {
        StoreOptions { block_size, ..self }
    }

    /// Sets the attributes of every version, such as the schema: names and values.
    #[must_use]
    pub fn attributes(self, attributes: Attributes) -> StoreOptions {
        StoreOptions { attributes, ..self }
    }

    /// Draws what is not given, and refuses options outside their ranges.
    pub(super) fn check(&self) -> Result<NewStore> {
        self.index.check()?;
        check_block_size(self.block_size)?;
        let slots = SlotMap::new(self.chunks)?;
        let random = || self.env.random.next_u64();
        Ok(NewStore {
            seed: self.seed.unwrap_or_else(|| Seed(random())),
            id: self.id.unwrap_or_else(random),
            shape: Shape { slots, index: self.index, block_size: self.block_size },
            attributes: self.attributes.clone(),
        })
    }
}

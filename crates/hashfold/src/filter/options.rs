//! Options of a [`Filter`](super::Filter).

use super::{
    Mode,
    cascade::{CascadeOptions, CascadeSettings, Window},
};
use crate::{env::Env, error::Result, fingerprints::Universe, io::Access, key::Seed};
use std::time::Duration;

/// Options of a filter on flash: what it promises, and the memory of its writer.
///
/// ```
/// use hashfold::FilterOptions;
///
/// let urls = FilterOptions::exact();
/// let pages = FilterOptions::with_capacity(1_000_000_000, 0.001).memory_bytes(1 << 30);
/// let counts = FilterOptions::exact().multiset().wal(true);
/// ```
#[derive(Clone, Debug)]
pub struct FilterOptions {
    accuracy: Accuracy,
    mode: Mode,
    window: Option<(Duration, u64)>,
    expansion: Option<u32>,
    seed: Option<Seed>,
    id: Option<u64>,
    settings: CascadeSettings,
}

#[derive(Clone, Copy, Debug)]
enum Accuracy {
    Exact,
    Capacity(u64, f64),
}

impl FilterOptions {
    /// Returns the options of a set with 64-bit fingerprints: with a billion keys, the chance of
    /// even one false positive is about 3 %.
    pub fn exact() -> FilterOptions {
        FilterOptions::new(Accuracy::Exact)
    }

    /// Returns the options of a set that has the false-positive rate `false_positive_rate` once it
    /// holds `capacity` keys. More keys raise the rate.
    pub fn with_capacity(capacity: u64, false_positive_rate: f64) -> FilterOptions {
        FilterOptions::new(Accuracy::Capacity(capacity, false_positive_rate))
    }

    fn new(accuracy: Accuracy) -> FilterOptions {
        let settings = CascadeSettings::default();
        FilterOptions {
            accuracy,
            mode: Mode::Set,
            window: None,
            expansion: None,
            seed: None,
            id: None,
            settings,
        }
    }

    /// Makes a multiset, which counts the insertions of each key.
    #[must_use]
    pub fn multiset(self) -> FilterOptions {
        FilterOptions { mode: Mode::Multiset, ..self }
    }

    /// Makes the filter forget keys by time: a key is kept for at least this long after its
    /// insertion, and for at most one epoch longer. The window is divided into this number of
    /// epochs, see [`Window`]. The default is to keep keys for ever.
    #[must_use]
    pub fn window(self, length: Duration, epochs: u64) -> FilterOptions {
        FilterOptions { window: Some((length, epochs)), ..self }
    }

    /// Notes how the filter may grow beyond its capacity: the factor between one expansion and the next, 0
    /// for not at all. The filter keeps the number for callers that hold to it
    /// ([`CascadeStats::expansion`](super::cascade::CascadeStats)), and does not read it.
    #[must_use]
    pub fn expansion(self, expansion: u32) -> FilterOptions {
        FilterOptions { expansion: Some(expansion), ..self }
    }

    /// Sets the memory budget in bytes, at least 16 MiB. The default is 256 MiB. More memory means
    /// fewer merges, see [`CascadeSettings::memory_bytes`].
    #[must_use]
    pub fn memory_bytes(self, memory_bytes: usize) -> FilterOptions {
        self.with_settings(|settings| settings.memory_bytes = memory_bytes)
    }

    /// Sets whether changes are written to a write-ahead log, so that
    /// [`Filter::sync`](super::Filter::sync) takes one fsync instead of a flush. The default is
    /// `false`.
    #[must_use]
    pub fn wal(self, wal: bool) -> FilterOptions {
        self.with_settings(|settings| settings.wal = wal)
    }

    /// Sets how files are read. The default is [`Access::Direct`].
    #[must_use]
    pub fn access(self, access: Access) -> FilterOptions {
        self.with_settings(|settings| settings.access = access)
    }

    /// Sets the disk, the executor, the clock and the random numbers. The default is
    /// [`Env::system`].
    #[must_use]
    pub fn env(self, env: Env) -> FilterOptions {
        self.with_settings(|settings| settings.env = env)
    }

    /// Sets the seed that keys are hashed with. A user who knows the seed can choose keys that
    /// collide. The default is a random number.
    #[must_use]
    pub fn seed(self, seed: Seed) -> FilterOptions {
        FilterOptions { seed: Some(seed), ..self }
    }

    /// Sets the filter's id, a number that no other filter has: all files of the filter carry it.
    /// The default is a random number.
    #[must_use]
    pub fn id(self, id: u64) -> FilterOptions {
        FilterOptions { id: Some(id), ..self }
    }

    fn with_settings(mut self, change: impl FnOnce(&mut CascadeSettings)) -> FilterOptions {
        change(&mut self.settings);
        self
    }

    /// Returns the options of a new cascade filter.
    pub(super) fn cascade(&self) -> Result<CascadeOptions> {
        let random = || self.settings.env.random.next_u64();
        let seed = self.seed.unwrap_or_else(|| Seed(random()));
        let id = self.id.unwrap_or_else(random);
        let exact = CascadeOptions::exact(seed, id);
        let options = match self.accuracy {
            Accuracy::Exact => exact,
            Accuracy::Capacity(capacity, rate) => CascadeOptions::new(seed, id, capacity, rate)?,
        };
        let window = self.window.map(|(length, epochs)| Window::new(length, epochs)).transpose()?;
        let expansion = self.expansion;
        Ok(CascadeOptions { mode: self.mode, window, expansion, ..options })
    }

    /// Returns the mode and the universe that an existing filter must have.
    pub(super) fn kind(&self) -> Result<(Mode, Universe)> {
        self.cascade().map(|options| (options.mode, options.universe))
    }

    pub(super) fn into_settings(self) -> CascadeSettings {
        self.settings
    }
}

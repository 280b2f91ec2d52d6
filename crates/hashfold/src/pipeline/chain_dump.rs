//! A dump of chains: those of one moment as a run.

use super::{chains::Chains, stats::ChainsStats, touch};
use crate::{
    error::Result,
    key::Seed,
    memory::AppendRun,
    run::{Entry, Run, SizeRange, Summary},
};

/// All chains at one moment, as a run in the order of hashes: users as text, and their chains, which
/// [`chain_touches`](super::chain_touches) decodes. Touches that no conversion can use any more are left out, and so are users
/// that have no others.
///
/// The pipeline goes on while it is read. Chains that change meanwhile are kept twice, in the memory of the chains.
#[derive(Debug)]
pub struct ChainDump {
    run: AppendRun,
    name: String,
    channels: usize,
    stats: ChainsStats,
    at_ms: i64,
    oldest_ms: i64,
    /// The chain of the current user.
    chain: Vec<u8>,
}

impl ChainDump {
    pub(super) fn new(
        run: AppendRun,
        chains: &Chains,
        stats: ChainsStats,
        (at_ms, oldest_ms): (i64, i64),
    ) -> ChainDump {
        let (name, channels) = (chains.name.clone(), chains.channel.len());
        ChainDump { run, name, channels, stats, at_ms, oldest_ms, chain: Vec::new() }
    }

    /// Returns the name of the chains.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of fields of a channel.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns the time of the dump in milliseconds since 1970: the multiple of [`Chains::dump_ms`] that the clock of
    /// the stream has passed, or the clock if the dump was asked for.
    pub fn at_ms(&self) -> i64 {
        self.at_ms
    }

    /// Returns the counts of the chains at this moment, without those of summaries.
    pub fn stats(&self) -> &ChainsStats {
        &self.stats
    }
}

impl Run for ChainDump {
    fn seed(&self) -> Seed {
        self.run.seed()
    }

    fn summary(&self) -> Summary {
        let all = self.run.summary();
        // Touches are left out.
        Summary { values: SizeRange { min: 0, ..all.values }, ..all }
    }

    fn advance(&mut self) -> Result<bool> {
        while self.run.advance()? {
            self.chain.clear();
            let chain = self.run.entry().value.unwrap_or_default();
            touch::put_young(&mut self.chain, chain, self.oldest_ms);
            if !self.chain.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn entry(&self) -> Entry<'_> {
        Entry { value: Some(&self.chain), ..self.run.entry() }
    }
}

/// A receiver of dumps, in the thread of the worker.
pub trait DumpSink: Send {
    /// Takes a dump. Events wait meanwhile; the run may be read in another thread later.
    ///
    /// # Errors
    /// An error ends the pipeline.
    fn dump(&mut self, dump: ChainDump) -> Result<()>;
}

//! Which runs a filter consists of, and the manifest that says so.
//!
//! The attribute `cascade` of the manifest. The same table stands in `docs/formats/cascade.md`;
//! sizes are in bytes, and `…` is a variable-length integer:
//!
//! | field       | size |                                                                    |
//! |-------------|-----:|--------------------------------------------------------------------|
//! | mode        |    1 | 1 set, 2 multiset                                                  |
//! | last        |    8 | the largest fingerprint                                            |
//! | capacity    |    8 | number of keys that the filter was created for                     |
//! | seq         |    8 | sequence number of the last change that the runs hold              |
//! | next_number |    … | number of the next file                                            |
//! | first_log   |    … | the number of the first log that holds what the runs do not        |
//! | logged      |    … | the number of the last log that is known to hold durable changes, or 0 |
//! | epochs      |    … | count, then for each, the newest first: number (…), uppers, shards |
//! | uppers      |    … | count, then for each, the newest first: run (…), tier (1), from (8) |
//! | shards      |    … | count, then for each, ascending: start (8), run (…), 0 for none    |

use super::{
    options::CascadeOptions,
    run_file::{RunFile, RunName},
};
use crate::{
    codec::{Decoder, put_varint},
    error::{Error, Result},
    filter::Mode,
    fingerprints::Universe,
    key::Seed,
    manifest::{FileEntry, Kind, Manifest},
};
use std::sync::Arc;

/// The role of runs in the manifest.
pub(super) const RUN_ROLE: &str = "run";
const ATTRIBUTE: &str = "cascade";

/// No counter gets here by counting.
const COUNTER_MAX: u64 = 1 << 62;

/// What a filter is, and what never changes of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) seed: Seed,
    pub(super) id: u64,
    pub(super) mode: Mode,
    pub(super) capacity: u64,
    pub(super) universe: Universe,
}

impl Identity {
    /// The run of the filter with this number.
    pub(super) fn run(&self, number: u64) -> RunName {
        let Identity { seed, id, universe, .. } = *self;
        RunName { seed, id, universe, number }
    }
}

impl From<&CascadeOptions> for Identity {
    fn from(options: &CascadeOptions) -> Identity {
        let CascadeOptions { seed, id, mode, capacity, universe } = *options;
        Identity { seed, id, mode, capacity, universe }
    }
}

/// A run above the last level.
#[derive(Clone, Debug)]
pub(super) struct Upper<R> {
    pub(super) run: R,
    /// How often its fingerprints were merged above the last level.
    pub(super) tier: u8,
    /// Those below this one were merged into the last level.
    pub(super) from: u64,
}

/// The part of the last level from a fingerprint on, up to the next shard.
#[derive(Clone, Debug)]
pub(super) struct Shard<R> {
    pub(super) start: u64,
    pub(super) run: Option<R>,
}

/// The runs of what was told in one epoch.
#[derive(Clone, Debug)]
pub(super) struct Epoch<R> {
    pub(super) number: u64,
    /// The newest first.
    pub(super) uppers: Vec<Upper<R>>,
    /// The last level: at least one, the first from 0 on.
    pub(super) shards: Vec<Shard<R>>,
}

impl<R> Epoch<R> {
    pub(super) fn new(number: u64) -> Epoch<R> {
        let shards = vec![Shard { start: 0, run: None }];
        Epoch { number, uppers: Vec::new(), shards }
    }

    /// All runs, the newest first.
    pub(super) fn runs(&self) -> impl Iterator<Item = &R> {
        let uppers = self.uppers.iter().map(|upper| &upper.run);
        uppers.chain(self.shards.iter().filter_map(|shard| shard.run.as_ref()))
    }

    /// The last fingerprint of a shard.
    pub(super) fn end_of(&self, shard: usize, universe: Universe) -> u64 {
        self.shards.get(shard + 1).map_or(universe.last(), |next| next.start - 1)
    }
}

/// All runs, and how much of what was told they hold.
#[derive(Clone, Debug)]
pub(super) struct Catalog<R> {
    /// The newest first, at least one.
    pub(super) epochs: Vec<Epoch<R>>,
    pub(super) seq: u64,
    pub(super) next_number: u64,
    pub(super) first_log: u64,
    /// The number of the last log that is known to hold durable changes: it is there, unless it is
    /// below `first_log`.
    pub(super) logged: u64,
    /// How often a manifest was published.
    pub(super) generation: u64,
}

/// The state in memory.
pub(super) type View = Catalog<Arc<RunFile>>;

impl<R> Catalog<R> {
    pub(super) fn new() -> Catalog<R> {
        let epochs = vec![Epoch::new(0)];
        Catalog { epochs, seq: 0, next_number: 1, first_log: 1, logged: 0, generation: 0 }
    }

    /// All runs, the newest epoch first.
    pub(super) fn runs(&self) -> impl Iterator<Item = &R> {
        self.epochs.iter().flat_map(Epoch::runs)
    }

    /// The same with another form of each run.
    pub(super) fn try_map<S>(&self, mut map: impl FnMut(&R) -> Result<S>) -> Result<Catalog<S>> {
        let mut epochs = Vec::new();
        for epoch in &self.epochs {
            let mut new = Epoch { number: epoch.number, uppers: Vec::new(), shards: Vec::new() };
            for upper in &epoch.uppers {
                let Upper { ref run, tier, from } = *upper;
                new.uppers.push(Upper { run: map(run)?, tier, from });
            }
            for shard in &epoch.shards {
                let run = shard.run.as_ref().map(&mut map).transpose()?;
                new.shards.push(Shard { start: shard.start, run });
            }
            epochs.push(new);
        }
        let Catalog { seq, next_number, first_log, logged, generation, .. } = *self;
        Ok(Catalog { epochs, seq, next_number, first_log, logged, generation })
    }
}

impl View {
    /// The manifest that says so.
    pub(super) fn manifest(&self, identity: &Identity) -> Manifest {
        let files = self.runs().map(|run| FileEntry {
            role: RUN_ROLE.into(),
            name: super::run_file::name(run.number()),
            size: run.file_size(),
        });
        Manifest {
            kind: Kind::Filter,
            seed: identity.seed,
            id: identity.id,
            generation: self.generation,
            files: files.collect(),
            attributes: vec![(ATTRIBUTE.into(), encode(self, identity))],
        }
    }
}

fn encode(state: &View, identity: &Identity) -> Vec<u8> {
    let mut out = vec![if identity.mode == Mode::Set { 1 } else { 2 }];
    for field in [identity.universe.last(), identity.capacity, state.seq] {
        out.extend(field.to_le_bytes());
    }
    put_varint(&mut out, state.next_number);
    put_varint(&mut out, state.first_log);
    put_varint(&mut out, state.logged);
    put_varint(&mut out, state.epochs.len() as u64);
    for epoch in &state.epochs {
        put_varint(&mut out, epoch.number);
        put_varint(&mut out, epoch.uppers.len() as u64);
        for upper in &epoch.uppers {
            put_varint(&mut out, upper.run.number());
            out.push(upper.tier);
            out.extend(upper.from.to_le_bytes());
        }
        put_varint(&mut out, epoch.shards.len() as u64);
        for shard in &epoch.shards {
            out.extend(shard.start.to_le_bytes());
            put_varint(&mut out, shard.run.as_ref().map_or(0, |run| run.number()));
        }
    }
    out
}

/// What a manifest says, with the numbers of the runs.
pub(super) fn decode(manifest: &Manifest) -> Result<(Identity, Catalog<u64>)> {
    let attribute = manifest.attributes.iter().find(|(name, _)| name == ATTRIBUTE);
    let Some((_, bytes)) = attribute else {
        let got = "the manifest of something else";
        return Err(Error::field("attribute \"cascade\"", "that of a cascade filter", got));
    };
    let mut fields = Decoder::new(bytes);
    let mode = match fields.u8()? {
        1 => Mode::Set,
        2 => Mode::Multiset,
        mode => return Err(Error::field("mode", "1 or 2", mode)),
    };
    let last = fields.u64()?;
    let universe = Universe::with_size(u128::from(last) + 1)
        .map_err(|_| Error::field("largest fingerprint", "at least 1", last))?;
    let (capacity, seq) = (fields.u64()?, fields.u64()?);
    let (next_number, first_log) = (fields.varint()?, fields.varint()?);
    let logged = fields.varint()?;
    let counters = [
        ("sequence number", seq),
        ("number of the next file", next_number),
        ("number of the first log", first_log),
        ("number of the last log", logged),
        ("generation", manifest.generation),
    ];
    counters.into_iter().try_for_each(|(what, got)| check_counter(what, got))?;
    let mut epochs: Vec<Epoch<u64>> = Vec::new();
    for _ in 0..fields.varint()? {
        let epoch = decode_epoch(&mut fields, universe)?;
        if epochs.last().is_some_and(|newer| newer.number <= epoch.number) {
            return Err(Error::field("epoch", "a smaller one than before", epoch.number));
        }
        epochs.push(epoch);
    }
    fields.end()?;
    if epochs.is_empty() {
        return Err(Error::field("epochs", "at least 1", 0));
    }
    // A new file would take the place of a run.
    let highest = epochs.iter().flat_map(Epoch::runs).copied().max();
    if let Some(run) = highest.filter(|&run| run >= next_number) {
        return Err(Error::field("run", format!("below {next_number}, the next file"), run));
    }
    let Manifest { seed, id, generation, .. } = *manifest;
    let identity = Identity { seed, id, mode, capacity, universe };
    Ok((identity, Catalog { epochs, seq, next_number, first_log, logged, generation }))
}

/// What is counted up has room to go on.
fn check_counter(what: &'static str, got: u64) -> Result<()> {
    if got <= COUNTER_MAX {
        return Ok(());
    }
    Err(Error::field(what, format!("at most {COUNTER_MAX}"), got))
}

fn decode_epoch(fields: &mut Decoder<'_>, universe: Universe) -> Result<Epoch<u64>> {
    let number = fields.varint()?;
    check_counter("epoch", number)?;
    let mut uppers: Vec<Upper<u64>> = Vec::new();
    for _ in 0..fields.varint()? {
        let upper = Upper { run: fields.varint()?, tier: fields.u8()?, from: fields.u64()? };
        uppers.push(upper);
    }
    let mut shards: Vec<Shard<u64>> = Vec::new();
    for _ in 0..fields.varint()? {
        let start = fields.u64()?;
        let follows = shards.last().map_or(start == 0, |before| before.start < start);
        if !follows || start > universe.last() {
            return Err(Error::field("start of a shard", "0, then a larger one each time", start));
        }
        let run = fields.varint()?;
        shards.push(Shard { start, run: (run != 0).then_some(run) });
    }
    if shards.is_empty() {
        return Err(Error::field("shards", "at least 1", 0));
    }
    // Otherwise a part of a run would count twice, or not at all.
    let is_start = |from: u64| shards.binary_search_by_key(&from, |shard| shard.start).is_ok();
    if let Some(upper) = uppers.iter().find(|upper| !is_start(upper.from)) {
        return Err(Error::field("start of a run's rest", "the start of a shard", upper.from));
    }
    Ok(Epoch { number, uppers, shards })
}

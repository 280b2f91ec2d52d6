//! The catalog: the runs that a filter consists of, and its encoding in the manifest.
//!
//! The attribute `cascade` of the manifest holds these fields (the same table stands in
//! `docs/formats/cascade.md`; sizes are in bytes, and `…` is a variable-length integer):
//!
//! | field       | size |                                                                    |
//! |-------------|-----:|--------------------------------------------------------------------|
//! | mode        |    1 | 1 set, 2 multiset                                                  |
//! | last        |    8 | the largest possible fingerprint                                   |
//! | capacity    |    8 | number of keys that the filter was created for                     |
//! | seq         |    8 | sequence number of the last change in the runs                     |
//! | logged      |    8 | sequence number of the last change known to be durable in the log, or 0 |
//! | next_number |    … | number of the next run                                             |
//! | window      |    … | seconds of an epoch, number of epochs that are kept beside the current one (…); 0 and 0 if keys are not forgotten by time |
//! | epochs      |    … | count, then for each, the newest first: number (…), uppers, shards |
//! | uppers      |    … | count, then for each, the newest first: run (…), tier (1), ranges  |
//! | ranges      |    … | count, then for each, ascending: first (8), last (8)               |
//! | shards      |    … | count, then for each, ascending: start (8), run (…), 0 for none    |

use super::{
    key_range::{KeyRange, KeyRanges},
    options::CascadeOptions,
    run_file::{RunFile, RunName},
    window::Window,
};
use crate::{
    codec::{Decoder, put_varint},
    error::{Error, Result},
    filter::Mode,
    fingerprints::Universe,
    key::Seed,
    manifest::{FileEntry, Kind, Manifest, Tokens},
};
use std::{sync::Arc, time::Duration};

/// The role of runs in the manifest.
pub(super) const RUN_ROLE: &str = "run";
const ATTRIBUTE: &str = "cascade";
/// The attribute that has the growth that the caller allows; absent if the caller says nothing about it.
const EXPANSION: &str = "expansion";

/// Maximum of each counter, which is out of reach of counting.
const COUNTER_MAX: u64 = 1 << 62;

/// The properties of a filter that never change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) seed: Seed,
    pub(super) id: u64,
    pub(super) mode: Mode,
    pub(super) capacity: u64,
    pub(super) universe: Universe,
    pub(super) window: Option<Window>,
    pub(super) expansion: Option<u32>,
}

impl Identity {
    /// Returns the name of the run with this number.
    pub(super) fn run(&self, number: u64) -> RunName {
        let Identity { seed, id, universe, .. } = *self;
        RunName { seed, id, universe, number }
    }
}

impl From<&CascadeOptions> for Identity {
    fn from(options: &CascadeOptions) -> Identity {
        let CascadeOptions { seed, id, mode, capacity, universe, window, expansion } = *options;
        Identity { seed, id, mode, capacity, universe, window, expansion }
    }
}

/// A run above the last level.
#[derive(Clone, Debug)]
pub(super) struct Upper<R> {
    pub(super) run: R,
    /// Number of times that the fingerprints were merged above the last level.
    pub(super) tier: u8,
    /// The key ranges that count, at least one: the rest of the run was merged into older runs.
    pub(super) ranges: KeyRanges,
}

impl Upper<Arc<RunFile>> {
    /// Returns the approximate number of fingerprints of a key range that count in the run.
    pub(super) fn items_in(&self, range: KeyRange) -> u64 {
        self.ranges.within(range).map(|range| self.run.items_in(range)).sum()
    }
}

/// A part of the last level: the fingerprints from `start` up to the next shard.
#[derive(Clone, Debug)]
pub(super) struct Shard<R> {
    pub(super) start: u64,
    pub(super) run: Option<R>,
}

/// The runs that hold the changes of one epoch.
#[derive(Clone, Debug)]
pub(super) struct Epoch<R> {
    pub(super) number: u64,
    /// The runs above the last level, newest first.
    pub(super) uppers: Vec<Upper<R>>,
    /// The last level: at least one shard; the first one starts at 0.
    pub(super) shards: Vec<Shard<R>>,
}

impl<R> Epoch<R> {
    pub(super) fn new(number: u64) -> Epoch<R> {
        let shards = vec![Shard { start: 0, run: None }];
        Epoch { number, uppers: Vec::new(), shards }
    }

    /// Returns all runs, newest first.
    pub(super) fn runs(&self) -> impl Iterator<Item = &R> {
        let uppers = self.uppers.iter().map(|upper| &upper.run);
        uppers.chain(self.shards.iter().filter_map(|shard| shard.run.as_ref()))
    }

    /// Returns the key range of a shard.
    pub(super) fn range_of(&self, shard: usize, universe: Universe) -> KeyRange {
        let last = self.shards.get(shard + 1).map_or(universe.last(), |next| next.start - 1);
        KeyRange { first: self.shards[shard].start, last }
    }

    /// Returns the runs of the last level that have fingerprints of a key range.
    pub(super) fn runs_in(&self, range: KeyRange, universe: Universe) -> impl Iterator<Item = &R> {
        let shards = self.shards.iter().enumerate();
        let here = shards.filter(move |(i, _)| self.range_of(*i, universe).overlaps(range));
        here.filter_map(|(_, shard)| shard.run.as_ref())
    }

    /// Replaces a key range of some runs above the last level by another run or by shards. `None`
    /// if the runs are gone.
    pub(super) fn replace_uppers(
        &mut self,
        is_replaced: impl Fn(&R) -> bool,
        range: KeyRange,
        new: Option<Upper<R>>,
    ) -> Option<()> {
        let newest = self.uppers.iter().position(|upper| is_replaced(&upper.run))?;
        let replaced = self.uppers.iter_mut().filter(|upper| is_replaced(&upper.run));
        replaced.for_each(|upper| upper.ranges.remove(range));
        self.uppers.splice(newest..newest, new);
        self.uppers.retain(|upper| !upper.ranges.is_empty());
        Some(())
    }

    /// Replaces the shards of a key range. `None` if the range begins or ends within a shard that
    /// has a run.
    pub(super) fn replace_shards(
        &mut self,
        range: KeyRange,
        universe: Universe,
        new: impl IntoIterator<Item = Shard<R>>,
    ) -> Option<()> {
        self.cut_shard(range.first)?;
        if range.last < universe.last() {
            self.cut_shard(range.last + 1)?;
        }
        let first = self.shards.partition_point(|shard| shard.start < range.first);
        let end = self.shards.partition_point(|shard| shard.start <= range.last);
        self.shards.splice(first..end, new);
        Some(())
    }

    /// Makes a shard start at `start`.
    fn cut_shard(&mut self, start: u64) -> Option<()> {
        let next = self.shards.partition_point(|shard| shard.start <= start);
        let before = &self.shards[next - 1];
        if before.start != start {
            if before.run.is_some() {
                return None;
            }
            self.shards.insert(next, Shard { start, run: None });
        }
        Some(())
    }
}

/// The runs of a filter, and the sequence number of the last change in them.
#[derive(Clone, Debug)]
pub(super) struct Catalog<R> {
    /// The epochs, newest first; at least one.
    pub(super) epochs: Vec<Epoch<R>>,
    pub(super) seq: u64,
    pub(super) next_number: u64,
    /// Sequence number of the last change that is known to be durable in the log. 0 if no change
    /// was ever acknowledged that is only in a log.
    pub(super) logged: u64,
    /// Number of times that a manifest was published.
    pub(super) generation: u64,
}

/// The catalog in memory, with open run files.
pub(super) type View = Catalog<Arc<RunFile>>;

impl<R> Catalog<R> {
    /// Returns the catalog of a new filter, whose first epoch has this number.
    pub(super) fn new(epoch: u64) -> Catalog<R> {
        let epochs = vec![Epoch::new(epoch)];
        Catalog { epochs, seq: 0, next_number: 1, logged: 0, generation: 0 }
    }

    /// Begins the epoch of this moment, and drops the epochs that the window does not reach back
    /// to. Returns the number of dropped epochs. Does nothing if the newest epoch is that of this
    /// moment, or a later one because the clock was set back.
    pub(super) fn advance(&mut self, window: Window, unix_time: Duration) -> u64 {
        let epoch = window.epoch_at(unix_time);
        if epoch <= self.epochs[0].number {
            return 0;
        }
        self.epochs.insert(0, Epoch::new(epoch));
        let before = self.epochs.len();
        self.epochs.retain(|it| it.number >= epoch.saturating_sub(window.epochs()));
        (before - self.epochs.len()) as u64
    }

    /// Returns all runs, the newest epoch first.
    pub(super) fn runs(&self) -> impl Iterator<Item = &R> {
        self.epochs.iter().flat_map(Epoch::runs)
    }

    /// Returns the same catalog, with each run converted by `map`.
    pub(super) fn try_map<S>(&self, mut map: impl FnMut(&R) -> Result<S>) -> Result<Catalog<S>> {
        let mut epochs = Vec::new();
        for epoch in &self.epochs {
            let mut new = Epoch { number: epoch.number, uppers: Vec::new(), shards: Vec::new() };
            for upper in &epoch.uppers {
                let Upper { run, tier, ranges } = upper;
                let (tier, ranges) = (*tier, ranges.clone());
                new.uppers.push(Upper { run: map(run)?, tier, ranges });
            }
            for shard in &epoch.shards {
                let run = shard.run.as_ref().map(&mut map).transpose()?;
                new.shards.push(Shard { start: shard.start, run });
            }
            epochs.push(new);
        }
        let Catalog { seq, next_number, logged, generation, .. } = *self;
        Ok(Catalog { epochs, seq, next_number, logged, generation })
    }
}

impl View {
    /// Encodes the catalog in a manifest.
    pub(super) fn manifest(&self, identity: &Identity) -> Manifest {
        let files = self.runs().map(|run| FileEntry {
            role: RUN_ROLE.into(),
            name: super::run_file::name(run.number()),
            size: run.file_size,
        });
        Manifest {
            kind: Kind::Filter,
            seed: identity.seed,
            id: identity.id,
            generation: self.generation,
            files: files.collect(),
            attributes: attributes(self, identity),
            devices: Vec::new(),
            tokens: Tokens::default(),
        }
    }
}

fn attributes(state: &View, identity: &Identity) -> Vec<(String, Vec<u8>)> {
    let cascade = (ATTRIBUTE.to_owned(), encode(state, identity));
    let expansion = identity.expansion.map(|it| (EXPANSION.to_owned(), it.to_le_bytes().to_vec()));
    [cascade].into_iter().chain(expansion).collect()
}

fn decode_expansion(manifest: &Manifest) -> Result<Option<u32>> {
    let attribute = manifest.attributes.iter().find(|(name, _)| name == EXPANSION);
    let Some((_, bytes)) = attribute else { return Ok(None) };
    let mut fields = Decoder::new(bytes);
    let expansion = fields.u32()?;
    fields.end()?;
    Ok(Some(expansion))
}

fn encode(state: &View, identity: &Identity) -> Vec<u8> {
    let mut out = vec![if identity.mode == Mode::Set { 1 } else { 2 }];
    for field in [identity.universe.last(), identity.capacity, state.seq, state.logged] {
        out.extend(field.to_le_bytes());
    }
    put_varint(&mut out, state.next_number);
    Window::fields(identity.window).into_iter().for_each(|field| put_varint(&mut out, field));
    put_varint(&mut out, state.epochs.len() as u64);
    for epoch in &state.epochs {
        put_varint(&mut out, epoch.number);
        put_varint(&mut out, epoch.uppers.len() as u64);
        for upper in &epoch.uppers {
            put_varint(&mut out, upper.run.number());
            out.push(upper.tier);
            put_varint(&mut out, upper.ranges.iter().len() as u64);
            for KeyRange { first, last } in upper.ranges.iter() {
                out.extend(first.to_le_bytes());
                out.extend(last.to_le_bytes());
            }
        }
        put_varint(&mut out, epoch.shards.len() as u64);
        for shard in &epoch.shards {
            out.extend(shard.start.to_le_bytes());
            put_varint(&mut out, shard.run.as_ref().map_or(0, |run| run.number()));
        }
    }
    out
}

/// Decodes a manifest. Its runs are numbers.
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
    let (capacity, seq, logged) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let next_number = fields.varint()?;
    let window = Window::from_fields([fields.varint()?, fields.varint()?])?;
    let counters = [
        ("sequence number", seq),
        ("number of the next file", next_number),
        ("last change known to be in the log", logged),
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
    // With a number that is too low, a new file would overwrite a run.
    let highest = epochs.iter().flat_map(Epoch::runs).copied().max();
    if let Some(run) = highest.filter(|&run| run >= next_number) {
        return Err(Error::field("run", format!("below {next_number}, the next file"), run));
    }
    let Manifest { seed, id, generation, .. } = *manifest;
    let expansion = decode_expansion(manifest)?;
    let identity = Identity { seed, id, mode, capacity, universe, window, expansion };
    Ok((identity, Catalog { epochs, seq, next_number, logged, generation }))
}

/// Refuses a counter that is about to overflow.
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
        let (run, tier) = (fields.varint()?, fields.u8()?);
        uppers.push(Upper { run, tier, ranges: decode_ranges(fields, universe)? });
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
    Ok(Epoch { number, uppers, shards })
}

fn decode_ranges(fields: &mut Decoder<'_>, universe: Universe) -> Result<KeyRanges> {
    let mut ranges = KeyRanges::default();
    for _ in 0..fields.varint()? {
        let range = KeyRange { first: fields.u64()?, last: fields.u64()? };
        if !ranges.push(range) || range.last > universe.last() {
            let got = format!("{:#x} to {:#x}", range.first, range.last);
            return Err(Error::field("key range of a run", "one behind the one before", got));
        }
    }
    if ranges.is_empty() {
        return Err(Error::field("key ranges of a run", "at least 1", 0));
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: KeyRange = KeyRange { first: 0, last: 99 };

    fn upper(run: u64, tier: u8, range: KeyRange) -> Upper<u64> {
        Upper { run, tier, ranges: range.into() }
    }

    fn universe() -> Universe {
        Universe::with_size(100).unwrap()
    }

    fn shard(start: u64, run: u64) -> Shard<u64> {
        Shard { start, run: (run > 0).then_some(run) }
    }

    /// Returns the runs above the last level with their key ranges, newest first.
    fn uppers(epoch: &Epoch<u64>) -> Vec<(u64, Vec<(u64, u64)>)> {
        let ranges = |it: &Upper<u64>| it.ranges.iter().map(|it| (it.first, it.last)).collect();
        epoch.uppers.iter().map(|upper| (upper.run, ranges(upper))).collect()
    }

    #[test]
    fn a_merge_of_a_key_range_leaves_the_rest_of_its_runs_and_their_order() {
        let mut epoch = Epoch::new(0);
        epoch.uppers = [5, 4, 3, 2].map(|run| upper(run, 0, ALL)).to_vec();
        let (left, right) = (KeyRange { last: 49, ..ALL }, KeyRange { first: 50, ..ALL });
        let is_old = |run: &u64| [3, 4].contains(run);
        epoch.replace_uppers(is_old, right, Some(upper(6, 1, right))).unwrap();
        let (all, low, high) = (vec![(0, 99)], vec![(0, 49)], vec![(50, 99)]);
        let expected =
            [(5, &all), (6, &high), (4, &low), (3, &low), (2, &all)].map(|it| (it.0, it.1.clone()));
        assert_eq!(uppers(&epoch), expected);
        epoch.replace_uppers(is_old, left, None).unwrap();
        let expected = [(5, &all), (6, &high), (2, &all)].map(|it| (it.0, it.1.clone()));
        assert_eq!(uppers(&epoch), expected);
        assert!(epoch.replace_uppers(is_old, left, None).is_none());
    }

    #[test]
    fn shards_are_replaced_whole_and_cut_only_where_they_are_empty() {
        let mut epoch: Epoch<u64> = Epoch::new(0);
        let mut replace = |first, last, new: &[Shard<u64>]| {
            let range = KeyRange { first, last };
            let replaced = epoch.replace_shards(range, universe(), new.iter().cloned());
            let shards: Vec<_> =
                epoch.shards.iter().map(|it| (it.start, it.run.unwrap_or(0))).collect();
            replaced.map(|()| shards)
        };
        let shards = replace(50, 99, &[shard(50, 1), shard(75, 2)]).unwrap();
        assert_eq!(shards, [(0, 0), (50, 1), (75, 2)]);
        let shards = replace(20, 29, &[shard(20, 3)]).unwrap();
        assert_eq!(shards, [(0, 0), (20, 3), (30, 0), (50, 1), (75, 2)]);
        assert!(replace(60, 74, &[shard(60, 4)]).is_none());
        assert!(replace(50, 80, &[shard(50, 4)]).is_none());
        let shards = replace(0, 74, &[shard(0, 5)]).unwrap();
        assert_eq!(shards, [(0, 5), (75, 2)]);
    }
}

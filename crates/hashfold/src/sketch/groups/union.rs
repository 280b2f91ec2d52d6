//! The union of tables of groups.

use super::{options::GroupOptions, together::Together};
use crate::{
    error::{Error, ErrorKind, Result, check_seed},
    key::{KeyHash, Seed},
    run::{Entry, Run, SizeRange, Summary},
    sketch::{Family, Hll},
};

/// A run that merges runs of groups: the sketches of a group in several runs are united. One sequential
/// pass, in the memory of one sketch for each run.
///
/// If the union of the tables of parts of some rows is made in this way, it is that of all rows.
pub struct GroupUnion {
    merge: Together<Box<dyn Run>>,
    family: Family,
    precision: u8,
    value: Vec<u8>,
    summary: Summary,
    seed: Seed,
}

/// Size of the smallest sketch in bytes.
const SKETCH_BYTES_MIN: u64 = 21;
/// Maximum growth of sparse sketches by a union or a lower precision, if that makes them dense: an entry of a sparse sketch takes 1
/// byte or more, and 1/8 of the registers have one; a dense sketch has 6/8 bytes for each register.
const GROWTH_MAX: u64 = 6;

impl GroupUnion {
    /// Makes a run of the union. All sketches have the hash function of `options`; those of a larger precision
    /// are brought to its precision, which loses nothing else.
    ///
    /// # Errors
    /// `Argument` if there is no run or the precision is out of range, `WrongSeed` if two runs have
    /// different seeds: the groups have different orders then.
    pub fn new(runs: Vec<Box<dyn Run>>, options: &GroupOptions) -> Result<GroupUnion> {
        let GroupOptions { family, precision, .. } = *options;
        let empty = Hll::of_family(family, precision)?;
        let Some(first) = runs.first() else {
            return Err(Error::argument("number of runs", "1 or more", 0));
        };
        let seed = first.seed();
        runs.iter().try_for_each(|run| check_seed(seed, run.seed()))?;
        let all = runs.iter().map(Run::summary).fold(Summary::EMPTY, Summary::union);
        let dense = (empty.to_bytes().len() + 3 * empty.register_count() / 4) as u64;
        let values = SizeRange { min: SKETCH_BYTES_MIN, max: dense.max(all.values.max) };
        let bytes_max = all.bytes_max.saturating_mul(GROWTH_MAX);
        let summary = Summary { values, bytes_max, ..all };
        let (merge, value) = (Together::new(runs), Vec::new());
        Ok(GroupUnion { merge, family, precision, value, summary, seed })
    }

    /// Unites the sketches of the current group.
    fn unite(&mut self) -> Result<()> {
        let mut union: Option<Hll> = None;
        for (_, value) in self.merge.values() {
            let named = |reason: Error| {
                let (key, reason) = (self.merge.key().into(), Box::new(reason));
                Error::new(ErrorKind::Value { key, reason })
            };
            let sketch = self.read(value).map_err(named)?;
            match &mut union {
                None => union = Some(sketch),
                Some(union) => union.union(&sketch).map_err(named)?,
            }
        }
        self.value = union.map(|union| union.to_bytes()).unwrap_or_default();
        Ok(())
    }

    /// Reads a sketch, and brings it to the precision of the union.
    fn read(&self, value: &[u8]) -> Result<Hll> {
        let sketch = Hll::from_bytes(value)?;
        if sketch.family() != self.family {
            let expected = format!("{}, as in the other sketches", self.family);
            return Err(Error::argument("hash function of a sketch", expected, sketch.family()));
        }
        match sketch.precision() {
            precision if precision < self.precision => {
                let expected = format!("{} or more, that of the union", self.precision);
                Err(Error::argument("precision of a sketch", expected, precision))
            }
            precision if precision == self.precision => Ok(sketch),
            _ => sketch.downsize(self.precision),
        }
    }
}

impl Run for GroupUnion {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn summary(&self) -> Summary {
        self.summary
    }

    fn advance(&mut self) -> Result<bool> {
        loop {
            if !self.merge.advance()? {
                return Ok(false);
            }
            if self.merge.values().next().is_some() {
                self.unite()?;
                return Ok(true);
            }
        }
    }

    fn entry(&self) -> Entry<'_> {
        Entry { hash: self.hash(), key: self.merge.key(), value: Some(&self.value) }
    }
}

impl GroupUnion {
    fn hash(&self) -> KeyHash {
        self.merge.hash()
    }
}

impl std::fmt::Debug for GroupUnion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupUnion").field("runs", &self.merge.runs.len()).finish_non_exhaustive()
    }
}

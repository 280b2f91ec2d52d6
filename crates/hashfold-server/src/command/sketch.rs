//! Sketches in values: `PFADD`, `PFCOUNT`, `PFMERGE`. In a map, they make the strings of Redis, byte for byte.
//! `HASHFOLD.SKETCH.*` say how good the estimates are, and how many keys two sketches share. Commands that only read
//! take the values of all data sets, also those that `hashfold sketch add` writes, of any kind.

use super::{
    SYNTAX_ERROR, WRONG_TYPE,
    entry::{Arguments, Change, Command, Group, Run, StringCall},
    lookup::{Lookup, Value, Values},
};
use crate::protocol::Reply;
use hashfold::sketch::{
    self, AnySketch, BottomK, Estimate, Expression, Precision, PrefixEstimate, PrefixSample, ghll,
    redis::{self, RedisHll},
};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "pfadd",
        -2,
        Group::Sketches,
        "Adds keys to a sketch.",
        Run::Change(add as Change),
    )
    .writes()
    .fast()
    .keys(1, 1, 1),
    Command::new(
        "pfcount",
        -2,
        Group::Sketches,
        "Estimates distinct keys of sketches.",
        Run::ChangeOrLookup(count, |_| Ok(Lookup::Sketches(Asked::Count))),
    )
    .reads()
    .keys(1, -1, 1),
    Command::new("pfmerge", -2, Group::Sketches, "Unites sketches.", Run::Change(merge))
        .writes()
        .keys(1, -1, 1),
    Command::new(
        "hashfold.sketch.count",
        -2,
        Group::Hashfold,
        "Estimates distinct keys of sketches, with an interval.",
        Run::Lookup(|_| Ok(Lookup::Sketches(Asked::CountWithError))),
    )
    .reads()
    .keys(1, -1, 1),
    Command::new(
        "hashfold.sketch.intersect",
        -3,
        Group::Hashfold,
        "Estimates how many keys two sketches share, with an interval.",
        Run::Lookup(|arguments| {
            let confidence = confidence(arguments)?;
            Ok(Lookup::Sketches(Asked::Intersection { confidence }))
        }),
    )
    .reads()
    .keys(1, 2, 1),
];

/// The probability that intervals have the true value, unless a command says another.
const CONFIDENCE: f64 = 0.95;

const NO_SKETCH: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
pub(super) const DAMAGED: &str = "INVALIDOBJ Corrupted HLL object detected";

/// The least capacity of sketches of the smallest hashes that are too large to be read, in hashes: reading one takes 40
/// bytes of memory for each hash, also if the value has a bit for each.
const LARGE_MIN: usize = (1 << 20) + 1;

/// Returns the sketch of a key, and when it expires.
pub(super) fn sketch(
    call: &mut StringCall<'_, '_>,
    key: &[u8],
) -> Result<Option<(RedisHll, Option<u64>)>, String> {
    let Some(found) = call.strings.get(key)?.cloned() else { return Ok(None) };
    let sketch = RedisHll::from_bytes(found.value).map_err(|_| NO_SKETCH)?;
    Ok(Some((sketch, found.expires_at)))
}

fn add(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let key = call.arguments.at(1);
    let old = sketch(call, key)?;
    let mut is_changed = old.is_none();
    let (mut sketch, expires_at) = old.unwrap_or_default();
    for element in call.arguments.from(2) {
        is_changed |= sketch.insert(element).map_err(|_| DAMAGED)?;
    }
    if is_changed {
        sketch.forget_count();
        call.strings.put(key, sketch.into_bytes(), expires_at)?;
    }
    call.integer(i64::from(is_changed))
}

/// What a lookup asks about the sketches of its keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Asked {
    /// The number of distinct keys in all of them.
    Count,
    /// The number of distinct keys in all of them, with an interval.
    CountWithError,
    /// How many keys two of them share.
    Intersection { confidence: f64 },
}

impl Asked {
    /// Writes the reply.
    pub(super) fn reply(self, values: &dyn Values, reply: &mut Reply<'_>) {
        if let Err(error) = self.answer(values, reply) {
            reply.error(&error);
        }
    }

    fn answer(self, values: &dyn Values, reply: &mut Reply<'_>) -> Result<(), String> {
        let mut all = Vec::with_capacity(values.count());
        for i in 0..values.count() {
            match values.value(i) {
                Value::Absent => all.push(None),
                Value::Present(value) => all.push(Some(value)),
                Value::Filter(_) => return Err(WRONG_TYPE.into()),
                Value::Failed(error) => return Err(error.into()),
            }
        }
        match self {
            Asked::Count => reply.integer(count_of(&all)? as i64),
            Asked::CountWithError => Found::of(&union_of(all.into_iter().flatten())?)?.put(reply),
            Asked::Intersection { confidence } => {
                let [a, b] = alike(read_two(&all)?);
                Found::in_both(&a, &b, confidence)?.put(reply);
            }
        }
        Ok(())
    }
}

/// Counts the distinct keys of the sketches in values: as Redis does, if all of them are of Redis.
fn count_of(values: &[Option<&[u8]>]) -> Result<u64, String> {
    let is_of_redis = |value: &Option<&[u8]>| value.is_none_or(|value| value.starts_with(b"HYLL"));
    if !values.iter().all(is_of_redis) {
        return rounded(&union_of(values.iter().copied().flatten())?);
    }
    let mut registers = vec![0; redis::REGISTERS];
    for value in values.iter().flatten() {
        let sketch = RedisHll::from_bytes(value.to_vec()).map_err(|_| NO_SKETCH)?;
        if let (Some(count), 1) = (sketch.known_count(), values.len()) {
            return Ok(count);
        }
        redis::unite(&mut registers, &sketch.registers().map_err(|_| DAMAGED)?);
    }
    Ok(redis::count_of(&registers))
}

/// Returns the estimate of a sketch for `PFCOUNT`.
fn rounded(sketch: &AnySketch) -> Result<u64, String> {
    let count = match sketch {
        AnySketch::Hll(sketch) => sketch.estimate(),
        AnySketch::Ghll(sketch) => sketch.estimate(),
        AnySketch::BottomK(sketch) => {
            sketch.estimate(CONFIDENCE).map_err(|error| refused(&error))?.value
        }
    };
    Ok(count.round() as u64)
}

/// Reads the sketches of two keys, which may be absent.
fn read_two(values: &[Option<&[u8]>]) -> Result<[Option<AnySketch>; 2], String> {
    let [a, b] = values else { return Err(SYNTAX_ERROR.into()) };
    Ok([a.map(read).transpose()?, b.map(read).transpose()?])
}

/// Brings two sketches to the lower precision of them. A key that is absent has an empty one, like the other.
fn alike(sketches: [Option<AnySketch>; 2]) -> [AnySketch; 2] {
    let [mut a, mut b] = match sketches {
        [Some(a), Some(b)] => [a, b],
        [Some(a), None] => {
            let b = a.empty_like();
            [a, b]
        }
        [None, Some(b)] => [b.empty_like(), b],
        [None, None] => [no_keys(), no_keys()],
    };
    shorten_longer(&mut a, &mut b);
    [a, b]
}

/// Returns an empty sketch of Redis.
fn no_keys() -> AnySketch {
    AnySketch::Hll(RedisHll::default().to_hll().expect("a new sketch is undamaged"))
}

/// Brings the sketch of the higher precision to that of the other one.
fn shorten_longer(a: &mut AnySketch, b: &mut AnySketch) {
    let (Some(of_a), Some(of_b)) = (a.precision(), b.precision()) else { return };
    let lowest = of_a.min(of_b);
    for sketch in [a, b] {
        if sketch.precision() > Some(lowest) {
            *sketch = sketch.downsize(lowest).expect("the precision is the lower one");
        }
    }
}

/// Reads a sketch of Redis, or one that `hashfold sketch add` has written.
fn read(value: &[u8]) -> Result<AnySketch, String> {
    match value {
        [b'H', b'Y', b'L', b'L', ..] => {
            let sketch = RedisHll::from_bytes(value.to_vec()).map_err(|_| NO_SKETCH)?;
            sketch.to_hll().map(AnySketch::Hll).map_err(|_| DAMAGED.into())
        }
        _ if !AnySketch::recognises(value) => Err(NO_SKETCH.into()),
        _ => match BottomK::capacity_in(value) {
            Some(capacity @ LARGE_MIN..=sketch::CAPACITY_MAX) => Err(format!(
                "ERR the sketch has room for {capacity} hashes, up to {} are read here",
                LARGE_MIN - 1
            )),
            _ => AnySketch::from_bytes(value).map_err(|_| DAMAGED.into()),
        },
    }
}

/// Returns the reply to sketches that cannot be united or compared.
fn refused(error: &hashfold::Error) -> String {
    format!("ERR {error}")
}

/// Unites the sketches in values, at the lowest precision among them.
fn union_of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<AnySketch, String> {
    let mut union = Union::default();
    for value in values {
        union.add(value)?;
    }
    Ok(union.finish())
}

/// The union of sketches that are read one after the other. Besides the union, only one of them is in memory: a sketch
/// takes up to 512 KiB, or 8 bytes for each of its hashes, and a request can name one key many thousand times.
#[derive(Default)]
struct Union(Option<AnySketch>);

impl Union {
    /// Adds the keys of the sketch in a value.
    fn add(&mut self, value: &[u8]) -> Result<(), String> {
        let mut sketch = read(value)?;
        let Some(union) = &mut self.0 else {
            self.0 = Some(sketch);
            return Ok(());
        };
        shorten_longer(union, &mut sketch);
        union.union(&sketch).map_err(|error| refused(&error))
    }

    /// Returns the union: an empty sketch, if all keys were absent.
    fn finish(self) -> AnySketch {
        self.0.unwrap_or_else(no_keys)
    }
}

/// Counts sketches of a map that clients change.
fn count(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let counted = match call.arguments.len() {
        2 => count_one(call),
        _ => united(call, 1).map(|(registers, _)| redis::count_of(&registers)),
    };
    let count = match counted {
        // Some are of Hashfold, or none.
        Err(error) if error == NO_SKETCH => {
            let mut union = Union::default();
            for key in call.arguments.from(1) {
                if let Some(found) = call.strings.get(key)? {
                    union.add(&found.value)?;
                }
            }
            rounded(&union.finish())?
        }
        counted => counted?,
    };
    call.integer(count as i64)
}

/// Counts one sketch, and keeps the count in its string.
fn count_one(call: &mut StringCall<'_, '_>) -> Result<u64, String> {
    let key = call.arguments.at(1);
    let Some((mut sketch, expires_at)) = sketch(call, key)? else { return Ok(0) };
    if let Some(count) = sketch.known_count() {
        return Ok(count);
    }
    let count = sketch.count().map_err(|_| DAMAGED)?;
    if !call.strings.refuses_changes() {
        call.strings.put(key, sketch.into_bytes(), expires_at)?;
    }
    Ok(count)
}

/// Returns the registers of the sketches from an argument on, united, and whether one of them is dense.
fn united(call: &mut StringCall<'_, '_>, first: usize) -> Result<(Vec<u8>, bool), String> {
    let mut registers = vec![0; redis::REGISTERS];
    let mut is_dense = false;
    for key in call.arguments.from(first) {
        if let Some((sketch, _)) = sketch(call, key)? {
            is_dense |= sketch.is_dense();
            redis::unite(&mut registers, &sketch.registers().map_err(|_| DAMAGED)?);
        }
    }
    Ok((registers, is_dense))
}

fn merge(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let key = call.arguments.at(1);
    // The target is one of them.
    let (registers, is_dense) = united(call, 1)?;
    let (mut target, expires_at) = sketch(call, key)?.unwrap_or_default();
    target.raise_all(&registers, is_dense).map_err(|_| DAMAGED)?;
    call.strings.put(key, target.into_bytes(), expires_at)?;
    call.ok()
}

/// Returns the confidence that the arguments of `HASHFOLD.SKETCH.INTERSECT` say.
fn confidence(arguments: &Arguments<'_>) -> Result<f64, String> {
    match arguments.len() {
        3 => Ok(CONFIDENCE),
        5 if arguments.is(3, "confidence") => {
            let given = arguments.text(4).parse().ok();
            let valid = given.filter(|confidence: &f64| *confidence > 0.0 && *confidence < 1.0);
            valid.ok_or_else(|| "ERR CONFIDENCE must be between 0 and 1, such as 0.95".into())
        }
        _ => Err(SYNTAX_ERROR.into()),
    }
}

/// A number of keys with its interval, and how it was found.
struct Found {
    count: f64,
    low: f64,
    high: f64,
    /// The probability that the interval has the true number.
    confidence: f64,
    method: &'static str,
}

impl Found {
    /// Estimates the number of distinct keys.
    fn of(sketch: &AnySketch) -> Result<Found, String> {
        let computed = |estimate, method| Found::computed(&estimate, CONFIDENCE, method);
        Ok(match sketch {
            AnySketch::Hll(sketch) => computed(sketch.estimate_with_error(), "hyperloglog"),
            AnySketch::Ghll(sketch) => {
                computed(sketch.estimate_with_error(), "generalized-hyperloglog")
            }
            AnySketch::BottomK(sketch) => {
                Found::sampled(&sketch.estimate(CONFIDENCE).map_err(|error| refused(&error))?)
            }
        })
    }

    /// Estimates how many keys are in both of two sets.
    fn in_both(a: &AnySketch, b: &AnySketch, confidence: f64) -> Result<Found, String> {
        let joint = match (a, b) {
            (AnySketch::Hll(a), AnySketch::Hll(b)) => sketch::joint(a, b),
            (AnySketch::Ghll(a), AnySketch::Ghll(b)) => ghll::joint(a, b),
            (AnySketch::BottomK(a), AnySketch::BottomK(b)) => {
                let (sets, both) = (vec![a.to_set(), b.to_set()], Expression::all(2));
                let sample = Precision::whole(confidence)
                    .and_then(|precision| PrefixSample::read(sets, &both, &precision));
                return Ok(Found::sampled(
                    &sample.map_err(|error| refused(&error))?.estimate(&both),
                ));
            }
            (a, b) => Err(a.other_kind(b)),
        };
        let joint = joint.map_err(|error| refused(&error))?;
        Ok(Found::computed(&joint.intersection, confidence, "maximum-likelihood"))
    }

    fn computed(estimate: &Estimate, confidence: f64, method: &'static str) -> Found {
        let (low, high) = estimate.interval(confidence);
        Found { count: estimate.value, low, high, confidence, method }
    }

    fn sampled(estimate: &PrefixEstimate) -> Found {
        let &PrefixEstimate { value, low, high, confidence, .. } = estimate;
        Found { count: value, low, high, confidence, method: "bottom-k" }
    }

    /// Writes the reply: a map.
    fn put(&self, reply: &mut Reply<'_>) {
        reply.map(5);
        for (name, number) in [("count", self.count), ("low", self.low), ("high", self.high)] {
            reply.bulk(name.as_bytes());
            reply.integer(number.round() as i64);
        }
        reply.bulk(b"confidence");
        reply.double(self.confidence);
        reply.bulk(b"method");
        reply.bulk(self.method.as_bytes());
    }
}

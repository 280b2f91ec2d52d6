//! Sketches in values: `PFADD`, `PFCOUNT`, `PFMERGE`. In a map, they make the strings of Redis, byte for byte.
//! `HASHFOLD.SKETCH.*` say how good the estimates are, and how many keys two sketches share. Commands that only read
//! take the values of all data sets, also those that `hashfold sketch add` writes.

use super::{
    SYNTAX_ERROR, WRONG_TYPE,
    entry::{Arguments, Change, Command, Group, Run, StringCall},
    lookup::{Lookup, Value, Values},
};
use crate::protocol::Reply;
use hashfold::sketch::{
    self, Estimate, Hll,
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
const DAMAGED: &str = "INVALIDOBJ Corrupted HLL object detected";

/// Returns the sketch of a key, and when it expires.
fn sketch(
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
            Asked::CountWithError => {
                let union = union_of(all.into_iter().flatten())?;
                put_estimate(reply, &union.estimate_with_error(), CONFIDENCE, "hyperloglog");
            }
            Asked::Intersection { confidence } => {
                let [a, b] = alike(read_two(&all)?);
                let joint = sketch::joint(&a, &b).map_err(|error| format!("ERR {error}"))?;
                put_estimate(reply, &joint.intersection, confidence, "maximum-likelihood");
            }
        }
        Ok(())
    }
}

/// Counts the distinct keys of the sketches in values: as Redis does, if all of them are of Redis.
fn count_of(values: &[Option<&[u8]>]) -> Result<u64, String> {
    let is_of_redis = |value: &Option<&[u8]>| value.is_none_or(|value| value.starts_with(b"HYLL"));
    if !values.iter().all(is_of_redis) {
        return Ok(union_of(values.iter().copied().flatten())?.estimate().round() as u64);
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

/// Reads the sketches of two keys, which may be absent.
fn read_two(values: &[Option<&[u8]>]) -> Result<[Option<Hll>; 2], String> {
    let [a, b] = values else { return Err(SYNTAX_ERROR.into()) };
    Ok([a.map(read).transpose()?, b.map(read).transpose()?])
}

/// Brings two sketches to the lower precision of them. A key that is absent has an empty one, like the other.
fn alike(sketches: [Option<Hll>; 2]) -> [Hll; 2] {
    let [mut a, mut b] = match sketches {
        [Some(a), Some(b)] => [a, b],
        [Some(a), None] => {
            let b = empty_like(&a);
            [a, b]
        }
        [None, Some(b)] => [empty_like(&b), b],
        [None, None] => [no_keys(), no_keys()],
    };
    shorten_longer(&mut a, &mut b);
    [a, b]
}

/// Returns an empty sketch of the hash function and precision of another one.
fn empty_like(sketch: &Hll) -> Hll {
    let empty = Hll::of_family(sketch.family(), sketch.precision());
    empty.expect("the parameters are those of a sketch")
}

/// Returns an empty sketch of Redis.
fn no_keys() -> Hll {
    RedisHll::default().to_hll().expect("a new sketch is undamaged")
}

/// Brings the sketch of the higher precision to that of the other one.
fn shorten_longer(a: &mut Hll, b: &mut Hll) {
    let precision = a.precision().min(b.precision());
    for sketch in [a, b] {
        if sketch.precision() > precision {
            *sketch = sketch.downsize(precision).expect("the precision is the lower one");
        }
    }
}

/// Reads a sketch of Redis, or one that `hashfold sketch add` has written.
fn read(value: &[u8]) -> Result<Hll, String> {
    match value {
        [b'H', b'Y', b'L', b'L', ..] => RedisHll::from_bytes(value.to_vec())
            .map_err(|_| NO_SKETCH)?
            .to_hll()
            .map_err(|_| DAMAGED.into()),
        [b'H', b'F', b'H', b'L', ..] => Hll::from_bytes(value).map_err(|_| DAMAGED.into()),
        _ => Err(NO_SKETCH.into()),
    }
}

/// Unites the sketches in values, at the lowest precision among them.
fn union_of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Hll, String> {
    let mut union = Union::default();
    for value in values {
        union.add(value)?;
    }
    Ok(union.finish())
}

/// The union of sketches that are read one after the other. Besides the union, only one of them is in memory: a sketch
/// takes up to 256 KiB, and a request can name one key many thousand times.
#[derive(Default)]
struct Union(Option<Hll>);

impl Union {
    /// Adds the keys of the sketch in a value.
    fn add(&mut self, value: &[u8]) -> Result<(), String> {
        let mut sketch = read(value)?;
        let Some(union) = &mut self.0 else {
            self.0 = Some(sketch);
            return Ok(());
        };
        shorten_longer(union, &mut sketch);
        union.union(&sketch).map_err(|error| format!("ERR {error}"))
    }

    /// Returns the union: an empty sketch, if all keys were absent.
    fn finish(self) -> Hll {
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
            union.finish().estimate().round() as u64
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

/// Writes an estimate: a map of its value, its interval, and how it was made.
fn put_estimate(reply: &mut Reply<'_>, estimate: &Estimate, confidence: f64, method: &str) {
    let (low, high) = estimate.interval(confidence);
    reply.map(5);
    for (name, number) in [("count", estimate.value), ("low", low), ("high", high)] {
        reply.bulk(name.as_bytes());
        reply.integer(number.round() as i64);
    }
    reply.bulk(b"confidence");
    reply.double(confidence);
    reply.bulk(b"method");
    reply.bulk(method.as_bytes());
}

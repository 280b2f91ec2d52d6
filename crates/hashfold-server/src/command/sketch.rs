//! Sketches in strings of a map: `PFADD`, `PFCOUNT`, `PFMERGE`. The strings are those of Redis, byte for byte.
//! `HASHFOLD.SKETCH.*` say how good the estimates are, and how many keys two sketches share.

use super::{
    SYNTAX_ERROR,
    entry::{Arguments, Change, Command, Group, MapCall, Run},
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
        Run::Change(count),
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
        Run::Change(count_with_error),
    )
    .reads()
    .keys(1, -1, 1),
    Command::new(
        "hashfold.sketch.intersect",
        -3,
        Group::Hashfold,
        "Estimates how many keys two sketches share, with an interval.",
        Run::Change(intersect),
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
    call: &mut MapCall<'_, '_, '_>,
    key: &[u8],
) -> Result<Option<(RedisHll, Option<u64>)>, String> {
    let Some(found) = call.unit.get(key)?.cloned() else { return Ok(None) };
    let sketch = RedisHll::from_bytes(found.value).map_err(|_| NO_SKETCH)?;
    Ok(Some((sketch, found.expires_at)))
}

fn add(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    let key = call.arguments.at(1);
    let old = sketch(call, key)?;
    let mut is_changed = old.is_none();
    let (mut sketch, expires_at) = old.unwrap_or_default();
    for element in call.arguments.from(2) {
        is_changed |= sketch.insert(element).map_err(|_| DAMAGED)?;
    }
    if is_changed {
        sketch.forget_count();
        call.unit.put(key, sketch.into_bytes(), expires_at)?;
    }
    call.integer(i64::from(is_changed))
}

fn count(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    let count = match call.arguments.len() {
        2 => count_one(call)?,
        _ => redis::count_of(&united(call, 1)?.0),
    };
    call.integer(count as i64)
}

/// Counts one sketch, and keeps the count in its string.
fn count_one(call: &mut MapCall<'_, '_, '_>) -> Result<u64, String> {
    let key = call.arguments.at(1);
    let Some((mut sketch, expires_at)) = sketch(call, key)? else { return Ok(0) };
    if let Some(count) = sketch.known_count() {
        return Ok(count);
    }
    let count = sketch.count().map_err(|_| DAMAGED)?;
    if !call.unit.refuses_changes() {
        call.unit.put(key, sketch.into_bytes(), expires_at)?;
    }
    Ok(count)
}

/// Returns the registers of the sketches from an argument on, united, and whether one of them is dense.
fn united(call: &mut MapCall<'_, '_, '_>, first: usize) -> Result<(Vec<u8>, bool), String> {
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

fn merge(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    let key = call.arguments.at(1);
    // The target is one of them.
    let (registers, is_dense) = united(call, 1)?;
    let (mut target, expires_at) = sketch(call, key)?.unwrap_or_default();
    target.raise_all(&registers, is_dense).map_err(|_| DAMAGED)?;
    call.unit.put(key, target.into_bytes(), expires_at)?;
    call.ok()
}

fn count_with_error(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    let mut union = hll(call, call.arguments.at(1))?;
    for key in call.arguments.from(2) {
        union.union(&hll(call, key)?).expect("all sketches of Redis are alike");
    }
    put_estimate(call.reply, &union.estimate_with_error(), CONFIDENCE, "hyperloglog");
    Ok(())
}

fn intersect(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    let confidence = confidence(&call.arguments)?;
    let (a, b) = (hll(call, call.arguments.at(1))?, hll(call, call.arguments.at(2))?);
    let joint = sketch::joint(&a, &b).expect("all sketches of Redis are alike");
    put_estimate(call.reply, &joint.intersection, confidence, "maximum-likelihood");
    Ok(())
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

/// Returns the sketch of a key; an empty one if there is no such key.
fn hll(call: &mut MapCall<'_, '_, '_>, key: &[u8]) -> Result<Hll, String> {
    let (sketch, _) = sketch(call, key)?.unwrap_or_default();
    sketch.to_hll().map_err(|_| DAMAGED.into())
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

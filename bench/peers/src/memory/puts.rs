//! Puts of random keys, lookups of present and of absent ones.

use super::{
    Options, Place,
    alone::PART,
    load::{BLOCK, Done, Step, divide, load},
    peer::{Map, NewMap, Shares},
};
use crate::{
    Result,
    data::mix,
    measure::{cpu_time, memory, peak_memory, reset_peak_memory},
};
use std::hint::black_box;

/// Returns the key with a number: other numbers have other keys.
pub(super) fn key(number: u64, seed: u64) -> u64 {
    mix(number.wrapping_add(mix(seed)))
}

/// Returns the value of a key, a number of 48 bits: the values of all tables take no memory beside the tables.
/// `tables.cc` has the same function.
pub(super) fn value_of(key: u64) -> u64 {
    key >> 16
}

pub(super) fn run(new: &NewMap, shares: Option<&Shares>, place: &mut Place<'_>) -> Result<()> {
    let options = place.options;
    // The lists of numbers are the driver's memory.
    let key_of = |number: u32| key(u64::from(number), options.common.seed);
    let lists = divide((0..options.keys).collect(), shares, key_of);
    reset_peak_memory()?;
    let before = memory()?;
    let mut maps = new()?;
    let done = put(&mut maps, &lists, options)?;
    let (after, peak) = (memory()?, peak_memory()?);
    let count = done.count();
    if maps[0].len() != count {
        return Err(format!("the map has {} of {count} keys", maps[0].len()).into());
    }
    let gets = match lists.len() {
        1 => Some(get(maps[0].as_mut(), count, options)?),
        _ => {
            check(maps[0].as_mut(), &lists, &done, options)?;
            None
        }
    };
    (place.say)("put_per_s", count as f64 / done.seconds);
    let grown = [after, peak].map(|bytes| bytes.saturating_sub(before) as f64);
    say_load(place, &done, count, grown);
    if let Some(bytes) = maps[0].counted_bytes() {
        (place.say)("counted_bytes_per_key", bytes as f64 / count as f64);
    }
    if let Some([present, absent]) = gets {
        (place.say)("get_ns", present);
        (place.say)("absent_get_ns", absent);
    }
    Ok(())
}

/// Says the figures that puts and appends share. The last numbers are the bytes by which a process has grown at the end, and at
/// most.
pub(super) fn say_load(place: &mut Place<'_>, done: &Done, keys: u64, [end, most]: [f64; 2]) {
    let count = done.count() as f64;
    (place.say)("million_done", count / 1e6);
    (place.say)("cpu_ns", done.cpu.as_nanos() as f64 / count);
    (place.say)("bytes_per_key", end / keys as f64);
    (place.say)("peak_bytes_per_key", most / keys as f64);
    if let Some((slowest, by_median)) = done.slowest() {
        (place.say)("slowest_part_s", slowest);
        (place.say)("slowest_by_median", by_median);
    }
    done.parts.iter().for_each(|seconds| (place.say)(PART, *seconds));
}

fn put(maps: &mut [Box<dyn Map>], lists: &[Vec<u32>], options: &Options) -> Result<Done> {
    let steps = maps.iter_mut().map(|map| step(map.as_mut(), options.common.seed));
    load(steps.collect(), lists, BLOCK, options, None)
}

fn step(map: &mut dyn Map, seed: u64) -> Step<'_> {
    let mut keys = Vec::with_capacity(BLOCK);
    Box::new(move |numbers| {
        keys.clear();
        keys.extend(numbers.iter().map(|number| key(u64::from(*number), seed)));
        map.put_many(&keys)
    })
}

/// Looks up present and absent keys in random order. Returns the CPU time of a lookup of each kind, in nanoseconds.
fn get(map: &mut dyn Map, count: u64, options: &Options) -> Result<[f64; 2]> {
    let seed = options.common.seed;
    let mut times = [0.0; 2];
    for (time, (first, is_there)) in times.iter_mut().zip([(0, true), (count, false)]) {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for start in (0..options.gets).step_by(BLOCK) {
            let places = start..options.gets.min(start + BLOCK as u64);
            keys.clear();
            keys.extend(places.map(|i| key(first + mix(i ^ mix(!seed)) % count, seed)));
            values.clear();
            values.resize(keys.len(), None);
            let before = cpu_time();
            map.get_many(black_box(&keys), &mut values);
            *time += (cpu_time() - before).as_nanos() as f64;
            check_values(&keys, &values, is_there)?;
        }
        *time /= options.gets as f64;
    }
    Ok(times)
}

fn check_values(keys: &[u64], values: &[Option<u64>], is_there: bool) -> Result<()> {
    for (key, value) in keys.iter().zip(values) {
        let expected = is_there.then(|| value_of(*key));
        if *value != expected {
            return Err(format!("key {key}: expected {expected:?}, got {value:?}").into());
        }
    }
    Ok(())
}

/// Looks up one key of each block of each thread, and as many absent ones.
fn check(map: &mut dyn Map, lists: &[Vec<u32>], done: &Done, options: &Options) -> Result<()> {
    let seed = options.common.seed;
    for (list, count) in lists.iter().zip(&done.counts) {
        let present: Vec<u64> =
            list[..*count].iter().step_by(BLOCK).map(|i| key(u64::from(*i), seed)).collect();
        let beyond = u64::from(options.keys);
        let absent: Vec<u64> = (0..present.len() as u64).map(|i| key(beyond + i, seed)).collect();
        for (keys, is_there) in [(present, true), (absent, false)] {
            let mut values = vec![None; keys.len()];
            map.get_many(&keys, &mut values);
            check_values(&keys, &values, is_there)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_48_bits_and_wrong_ones_are_noticed() {
        let keys = [key(1, 7), key(2, 7)];
        assert!(keys.iter().all(|key| value_of(*key) < 1 << 48) && keys[0] != keys[1]);
        let right = keys.map(|key| Some(value_of(key)));
        check_values(&keys, &right, true).unwrap();
        check_values(&keys, &[None, None], false).unwrap();
        assert!(check_values(&keys, &[right[0], None], true).is_err());
        assert!(check_values(&keys, &right, false).is_err());
    }
}

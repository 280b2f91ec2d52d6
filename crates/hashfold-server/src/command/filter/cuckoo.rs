//! `CF.*`: multisets.

use super::{
    NOT_FOUND, Target, Work,
    bloom::first_capacity,
    capacity::{ROOM, growth},
    check_writable,
    dump::{load_chunk, scan_dump},
    exist, exists, failed, items, job,
};
use crate::{
    command::entry::{Arguments, Begin, Call, Command, Group, Run},
    data::Duplicates,
    protocol::{Protocol, Reply},
};
use hashfold::filter::{FilterOptions, cascade::CascadeStats};

pub(in crate::command) const COMMANDS: &[Command] = &[
    writes("cf.reserve", -3, "Makes a filter.", reserve),
    writes("cf.add", 3, "Adds an item to a filter.", |call| add_one(call, Adds::Always)).fast(),
    writes("cf.addnx", 3, "Adds an item unless it may have been added.", |call| {
        add_one(call, Adds::New)
    })
    .fast(),
    writes("cf.insert", -4, "Makes a filter if there is none, and adds items.", |call| {
        insert(call, Adds::Always)
    }),
    writes("cf.insertnx", -4, "As CF.INSERT, for items that were not added.", |call| {
        insert(call, Adds::New)
    }),
    writes("cf.del", 3, "Removes an item once.", del).fast(),
    writes("cf.compact", 2, "Merges the runs of a filter.", compact),
    reads("cf.exists", 3, "Says whether an item may have been added.", |call| {
        exists(call, Duplicates::Counted)
    })
    .fast(),
    reads("cf.mexists", -3, "Says which items may have been added.", |call| {
        exist(call, Duplicates::Counted)
    }),
    reads("cf.count", 3, "Returns how often an item may have been added.", count).fast(),
    reads("cf.info", 2, "Describes a filter.", info).fast(),
    reads("cf.scandump", 3, "Returns a piece of a filter, for another server.", |call| {
        scan_dump(call, Duplicates::Counted)
    }),
    writes("cf.loadchunk", 4, "Takes a piece of a filter of another server.", |call| {
        load_chunk(call, Duplicates::Counted)
    }),
];

const fn writes(name: &'static str, arity: i32, summary: &'static str, run: Begin) -> Command {
    Command::new(name, arity, Group::Cuckoo, summary, Run::Job(run)).writes().keys(1, 1, 1)
}

const fn reads(name: &'static str, arity: i32, summary: &'static str, run: Begin) -> Command {
    Command::new(name, arity, Group::Cuckoo, summary, Run::Job(run)).reads().keys(1, 1, 1)
}

/// Which items are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Adds {
    Always,
    /// Those that may not have been added before.
    New,
}

/// What a new filter is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reserve {
    capacity: u64,
    bucket_size: u64,
    expansion: u32,
}

/// The filter that `CF.ADD` makes.
const DEFAULT: Reserve = Reserve { capacity: 1024, bucket_size: 2, expansion: 1 };

/// Number of iterations that RedisBloom allows by default; this filter moves no items.
const ITERATIONS: u64 = 20;

/// Maximum number of expansions.
const EXPANSIONS_MAX: u64 = 32;

/// The false-positive rate of a filter of RedisBloom with fingerprints of 8 bits and buckets of 2.
const RATE: f64 = 0.01;

impl Reserve {
    /// Returns the options of the filter. It keeps its rate up to many times its capacity.
    fn options(self) -> FilterOptions {
        let fingerprints = self.capacity.saturating_mul(if self.expansion == 0 { 1 } else { ROOM });
        FilterOptions::with_capacity(fingerprints, RATE).multiset().expansion(self.expansion)
    }
}

fn target(call: &Call<'_, '_>) -> Result<Target, String> {
    Target::of(call, Duplicates::Counted)
}

/// Parses the number after an option.
fn option(arguments: &Arguments<'_>, at: usize, name: &str, max: i64) -> Result<u64, String> {
    let number = arguments.get(at).and_then(crate::protocol::number);
    let number = number.ok_or_else(|| format!("Couldn't parse {name}"))?;
    let min = i64::from(name != "EXPANSION");
    match (min..=max).contains(&number) {
        true => Ok(number as u64),
        false => Err(format!("{name}: value must be in the range [{min}, {max}]")),
    }
}

fn reserve(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let arguments = call.arguments;
    let capacity = crate::protocol::number(arguments.at(2)).ok_or("Bad capacity")?;
    let mut reserve = DEFAULT;
    for i in (3..arguments.len()).step_by(2) {
        if arguments.is(i, "bucketsize") {
            reserve.bucket_size = option(&arguments, i + 1, "BUCKETSIZE", 255)?;
        } else if arguments.is(i, "maxiterations") {
            option(&arguments, i + 1, "MAXITERATIONS", 65_535)?;
        } else if arguments.is(i, "expansion") {
            reserve.expansion = option(&arguments, i + 1, "EXPANSION", 32_768)? as u32;
        } else {
            return Err(crate::command::SYNTAX_ERROR.into());
        }
    }
    if !(2 * reserve.bucket_size as i64..=1_073_741_824).contains(&capacity) {
        return Err("Capacity must be in the range [2 * BUCKETSIZE, 1073741824]".into());
    }
    reserve.capacity = capacity as u64;
    let target = target(call)?;
    Ok(job(
        move || match target.find()? {
            Some(_) => Err("ERR item exists".into()),
            None => target.make(reserve.options()).map(drop),
        },
        |(), reply| reply.simple("OK"),
    ))
}

/// The result for an item: whether it was added, or that there was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Added,
    Present,
    Full,
}

/// Returns the number of items for which a filter may make room.
fn room(stats: &CascadeStats) -> u64 {
    let expansion = stats.expansion.unwrap_or(DEFAULT.expansion);
    let first = first_capacity(stats);
    let mut all = first;
    let mut next = first;
    for _ in 1..EXPANSIONS_MAX {
        next = next.saturating_mul(expansion.into());
        all = all.saturating_add(next);
    }
    // A filter that was made without a limit has none here, either.
    if stats.expansion.is_none() { u64::MAX } else { all }
}

/// Adds items to a filter, which is made if there is none.
fn add_items(
    target: &Target,
    items: &[Vec<u8>],
    adds: Adds,
    make: impl FnOnce() -> Result<FilterOptions, String>,
) -> Result<Vec<Outcome>, String> {
    target
        .find_or_make(make)?
        .change(|filter| {
            let stats = filter.stats();
            let mut left = room(&stats).saturating_sub(stats.keys_max());
            let mut outcomes = Vec::with_capacity(items.len());
            for item in items {
                let is_present = adds == Adds::New && filter.contains(item)?;
                let outcome = match (is_present, left) {
                    (true, _) => Outcome::Present,
                    (false, 0) => Outcome::Full,
                    (false, _) => Outcome::Added,
                };
                if outcome == Outcome::Added {
                    filter.insert(item)?;
                    left -= 1;
                }
                outcomes.push(outcome);
            }
            Ok(outcomes)
        })
        .map_err(|error| failed(&error))
}

fn add_one(call: &mut Call<'_, '_>, adds: Adds) -> Result<Work, String> {
    let (target, items) = (target(call)?, items(call, 2));
    Ok(job(
        move || add_items(&target, &items, adds, || Ok(DEFAULT.options())),
        |outcomes, reply| match outcomes[0] {
            Outcome::Added => reply.boolean(true),
            Outcome::Present => reply.boolean(false),
            Outcome::Full => reply.error("Filter is full"),
        },
    ))
}

fn insert(call: &mut Call<'_, '_>, adds: Adds) -> Result<Work, String> {
    let arguments = call.arguments;
    let (mut reserve, mut creates, mut first, mut i) = (DEFAULT, true, 0, 2);
    while i < arguments.len() && first == 0 {
        if arguments.is(i, "items") {
            first = i + 1;
        } else if arguments.is(i, "nocreate") {
            creates = false;
            i += 1;
        } else if arguments.is(i, "capacity") {
            let capacity = arguments.get(i + 1).and_then(crate::protocol::number);
            reserve.capacity = capacity.filter(|it| *it > 0).ok_or("Bad capacity")? as u64;
            i += 2;
        } else {
            return Err("Unknown argument received".into());
        }
    }
    if first == 0 || first == arguments.len() {
        return Err(crate::command::wrong_arity(if adds == Adds::New {
            "cf.insertnx"
        } else {
            "cf.insert"
        }));
    }
    let (target, items) = (target(call)?, items(call, first));
    let make = move || if creates { Ok(reserve.options()) } else { Err(NOT_FOUND.to_owned()) };
    Ok(job(
        move || add_items(&target, &items, adds, make),
        move |outcomes, reply| write_outcomes(&outcomes, adds, reply),
    ))
}

fn write_outcomes(outcomes: &[Outcome], adds: Adds, reply: &mut Reply<'_>) {
    reply.array(outcomes.len());
    for outcome in outcomes {
        match (outcome, adds, reply.protocol()) {
            (Outcome::Full, Adds::Always, Protocol::Resp3) => reply.boolean(false),
            (Outcome::Full, ..) => reply.integer(-1),
            (outcome, Adds::Always, _) => reply.boolean(*outcome == Outcome::Added),
            (outcome, Adds::New, _) => reply.integer(i64::from(*outcome == Outcome::Added)),
        }
    }
}

fn count(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let (target, items) = (target(call)?, items(call, 2));
    Ok(job(
        move || match target
            .space
            .filter(&target.key)
            .filter(|it| it.duplicates() == target.duplicates)
        {
            None => Ok(0),
            Some(filter) => filter.count(&items[0]).map_err(|error| failed(&error)),
        },
        |count, reply| reply.integer(count as i64),
    ))
}

fn del(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let (target, items) = (target(call)?, items(call, 2));
    Ok(job(
        move || {
            let filter = target.find()?.ok_or("Not found")?;
            check_writable(&filter, &target.key)?;
            let item = &items[0];
            let removed = filter.change(|filter| {
                let is_present = filter.contains(item)?;
                if is_present {
                    filter.remove(item)?;
                }
                Ok(is_present)
            });
            removed.map_err(|error| failed(&error))
        },
        |removed, reply| reply.boolean(removed),
    ))
}

fn compact(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let target = target(call)?;
    Ok(job(
        move || {
            let filter = target.find()?.ok_or("Cuckoo filter was not found")?;
            check_writable(&filter, &target.key)?;
            filter.change(hashfold::Filter::merge).map_err(|error| failed(&error))
        },
        |(), reply| reply.simple("OK"),
    ))
}

fn info(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let target = target(call)?;
    Ok(job(
        move || Ok(target.existing()?.stats()),
        |stats, reply| {
            let expansion = stats.expansion.unwrap_or(DEFAULT.expansion);
            let growth = growth(first_capacity(&stats), expansion, stats.keys_max());
            let fields = [
                ("Size", stats.file_bytes + stats.memory_bytes),
                ("Number of buckets", growth.capacity.div_ceil(DEFAULT.bucket_size)),
                ("Number of filters", growth.filters),
                ("Number of items inserted", stats.keys_max()),
                ("Number of items deleted", stats.tombstones),
                ("Bucket size", DEFAULT.bucket_size),
                ("Expansion rate", expansion.into()),
                ("Max iterations", ITERATIONS),
            ];
            reply.map(fields.len());
            for (name, number) in fields {
                reply.bulk(name.as_bytes());
                reply.integer(number as i64);
            }
        },
    ))
}

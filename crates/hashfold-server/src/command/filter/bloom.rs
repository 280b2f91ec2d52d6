//! `BF.*`: sets.

use super::{
    NOT_FOUND, Target, Work,
    capacity::{ROOM, growth},
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
    writes("bf.reserve", -4, "Makes a filter.", reserve),
    writes("bf.add", 3, "Adds an item to a filter.", add).fast(),
    writes("bf.madd", -3, "Adds items to a filter.", add_many),
    writes("bf.insert", -4, "Makes a filter if there is none, and adds items.", insert),
    reads("bf.exists", 3, "Says whether an item may have been added.", |call| {
        exists(call, Duplicates::Ignored)
    })
    .fast(),
    reads("bf.mexists", -3, "Says which items may have been added.", |call| {
        exist(call, Duplicates::Ignored)
    }),
    reads("bf.card", 2, "Returns the number of items of a filter.", card).fast(),
    reads("bf.info", -2, "Describes a filter.", info).fast(),
    reads("bf.scandump", 3, "Returns a piece of a filter, for another server.", |call| {
        scan_dump(call, Duplicates::Ignored)
    }),
    writes("bf.loadchunk", 4, "Takes a piece of a filter of another server.", |call| {
        load_chunk(call, Duplicates::Ignored)
    }),
];

const fn writes(name: &'static str, arity: i32, summary: &'static str, run: Begin) -> Command {
    Command::new(name, arity, Group::Bloom, summary, Run::Job(run)).writes().keys(1, 1, 1)
}

const fn reads(name: &'static str, arity: i32, summary: &'static str, run: Begin) -> Command {
    Command::new(name, arity, Group::Bloom, summary, Run::Job(run)).reads().keys(1, 1, 1)
}

/// What a new filter promises.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reserve {
    rate: f64,
    capacity: u64,
    /// The factor between one expansion and the next, 0 for none.
    expansion: u32,
}

/// The filter that `BF.ADD` makes.
const DEFAULT: Reserve = Reserve { rate: 0.01, capacity: 100, expansion: 2 };

/// Maximum false-positive rate; a higher one becomes this.
const RATE_MAX: f64 = 0.25;

impl Reserve {
    fn set_rate(&mut self, text: &[u8], bad: &str) -> Result<(), String> {
        let rate = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        match rate {
            Some(rate) if rate > 0.0 && rate < 1.0 => {
                self.rate = rate.min(RATE_MAX);
                Ok(())
            }
            Some(_) => Err("ERR error rate must be in the range (0.000000, 1.000000)".into()),
            None => Err(bad.into()),
        }
    }

    fn set_capacity(&mut self, text: &[u8], bad: &str) -> Result<(), String> {
        match crate::protocol::number(text) {
            Some(capacity @ 1..=1_073_741_824) => {
                self.capacity = capacity as u64;
                Ok(())
            }
            Some(_) => Err("ERR capacity must be in the range [1, 1073741824]".into()),
            None => Err(bad.into()),
        }
    }

    fn set_expansion(&mut self, text: &[u8], bad: &str) -> Result<(), String> {
        match crate::protocol::number(text) {
            Some(expansion @ 0..=32_768) => {
                self.expansion = expansion as u32;
                Ok(())
            }
            Some(_) => Err("ERR expansion must be in the range [0, 32768]".into()),
            None => Err(bad.into()),
        }
    }

    /// Returns the options of the filter. One that grows keeps its rate up to many times its capacity.
    fn options(self) -> FilterOptions {
        let room = if self.expansion == 0 { 1 } else { ROOM };
        let fingerprints = self.capacity.saturating_mul(room);
        FilterOptions::with_capacity(fingerprints, self.rate).expansion(self.expansion)
    }
}

/// Returns the number of items for which a filter was made, before it grows.
pub(super) fn first_capacity(stats: &CascadeStats) -> u64 {
    match stats.expansion {
        None | Some(0) => stats.capacity,
        Some(_) => (stats.capacity / ROOM).max(1),
    }
}

fn target(call: &Call<'_, '_>) -> Result<Target, String> {
    Target::of(call, Duplicates::Ignored)
}

fn reserve(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let arguments = call.arguments;
    let mut reserve = DEFAULT;
    reserve.set_rate(arguments.at(2), "ERR bad error rate")?;
    reserve.set_capacity(arguments.at(3), "ERR bad capacity")?;
    let (mut i, mut expands, mut is_fixed) = (4, false, false);
    while i < arguments.len() {
        if arguments.is(i, "nonscaling") {
            is_fixed = true;
            i += 1;
        } else if arguments.is(i, "expansion") {
            let text = arguments.get(i + 1).ok_or("ERR no expansion")?;
            reserve.set_expansion(text, "ERR bad expansion")?;
            expands = reserve.expansion > 0;
            i += 2;
        } else {
            return Err("ERR syntax error".into());
        }
    }
    if is_fixed && expands {
        return Err("Nonscaling filters cannot expand".into());
    }
    if is_fixed {
        reserve.expansion = 0;
    }
    let target = target(call)?;
    Ok(job(
        move || match target.find()? {
            Some(_) => Err("ERR item exists".into()),
            None => target.make(reserve.options()).map(drop),
        },
        |(), reply| reply.simple("OK"),
    ))
}

/// What adding items led to: for each whether it is new, and an error if the filter became full.
struct Added {
    is_new: Vec<bool>,
    is_full: bool,
}

/// Adds items to a filter, which is made if there is none. A filter that does not grow takes as many new
/// ones as its capacity.
fn add_items(
    target: &Target,
    items: &[Vec<u8>],
    make: impl FnOnce() -> Result<FilterOptions, String>,
) -> Result<Added, String> {
    target
        .find_or_make(make)?
        .change(|filter| {
            let stats = filter.stats();
            if stats.expansion != Some(0) {
                return Ok(Added { is_new: filter.insert_unique_many(items)?, is_full: false });
            }
            let mut room = stats.capacity.saturating_sub(stats.keys_max());
            let mut is_new = Vec::new();
            for item in items {
                if room == 0 && !filter.contains(item)? {
                    return Ok(Added { is_new, is_full: true });
                }
                let added = filter.insert_unique(item)?;
                room -= u64::from(added);
                is_new.push(added);
            }
            Ok(Added { is_new, is_full: false })
        })
        .map_err(|error| failed(&error))
}

/// The reply to a new item for a filter that is full.
const FULL: &str = "ERR non scaling filter is full";

fn add(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let (target, items) = (target(call)?, items(call, 2));
    Ok(job(
        move || add_items(&target, &items, || Ok(DEFAULT.options())),
        |added, reply| match added.is_new.first() {
            Some(is_new) => reply.boolean(*is_new),
            None => reply.error(FULL),
        },
    ))
}

fn add_many(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let (target, items) = (target(call)?, items(call, 2));
    Ok(job(
        move || add_items(&target, &items, || Ok(DEFAULT.options())),
        |added, reply| write_added(&added, reply),
    ))
}

/// Writes for each item whether it is new; an error takes the place of those for which there was no room.
fn write_added(added: &Added, reply: &mut Reply<'_>) {
    reply.array(added.is_new.len() + usize::from(added.is_full));
    added.is_new.iter().for_each(|is_new| reply.boolean(*is_new));
    if added.is_full {
        reply.error(FULL);
    }
}

/// The options of `BF.INSERT`, and the place of the first item.
struct Insert {
    reserve: Reserve,
    creates: bool,
    first: usize,
}

impl Insert {
    fn parse(arguments: &Arguments<'_>) -> Result<Insert, String> {
        let mut insert = Insert { reserve: DEFAULT, creates: true, first: 0 };
        let (mut i, mut is_fixed, mut expands) = (2, false, false);
        while i < arguments.len() {
            let value = |bad: &str| arguments.get(i + 1).ok_or_else(|| bad.to_owned());
            if arguments.is(i, "items") {
                insert.first = i + 1;
                break;
            } else if arguments.is(i, "nocreate") || arguments.is(i, "nonscaling") {
                insert.creates &= !arguments.is(i, "nocreate");
                is_fixed |= arguments.is(i, "nonscaling");
                i += 1;
                continue;
            } else if arguments.is(i, "capacity") {
                insert.reserve.set_capacity(value("Bad capacity")?, "Bad capacity")?;
            } else if arguments.is(i, "error") {
                insert.reserve.set_rate(value("Bad error rate")?, "Bad error rate")?;
            } else if arguments.is(i, "expansion") {
                insert.reserve.set_expansion(value("Bad expansion")?, "Bad expansion")?;
                expands = insert.reserve.expansion > 0;
            } else {
                return Err("Unknown argument received".into());
            }
            i += 2;
        }
        if insert.first == 0 || insert.first == arguments.len() {
            return Err(crate::command::wrong_arity("bf.insert"));
        }
        if is_fixed && expands {
            return Err("Nonscaling filters cannot expand".into());
        }
        if is_fixed {
            insert.reserve.expansion = 0;
        }
        Ok(insert)
    }
}

fn insert(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let insert = Insert::parse(&call.arguments)?;
    let (target, items) = (target(call)?, items(call, insert.first));
    let make = move || {
        if insert.creates { Ok(insert.reserve.options()) } else { Err(NOT_FOUND.to_owned()) }
    };
    Ok(job(move || add_items(&target, &items, make), |added, reply| write_added(&added, reply)))
}

fn card(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let target = target(call)?;
    Ok(job(
        move || Ok(target.find()?.map_or(0, |filter| filter.stats().keys_max())),
        |count, reply| reply.integer(count as i64),
    ))
}

/// The fields of `BF.INFO`, and how a client asks for one of them.
const FIELDS: [(&str, &str); 5] = [
    ("Capacity", "capacity"),
    ("Size", "size"),
    ("Number of filters", "filters"),
    ("Number of items inserted", "items"),
    ("Expansion rate", "expansion"),
];

/// Returns the values of the fields; `None` for the expansion of a filter that does not grow.
fn values(stats: &CascadeStats) -> [Option<u64>; 5] {
    let expansion = stats.expansion.unwrap_or(DEFAULT.expansion);
    let growth = growth(first_capacity(stats), expansion, stats.keys_max());
    let expansion = (expansion > 0).then_some(expansion.into());
    let size = stats.file_bytes + stats.memory_bytes;
    [Some(growth.capacity), Some(size), Some(growth.filters), Some(stats.keys_max()), expansion]
}

fn info(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let wanted = match call.arguments.len() {
        2 => None,
        3 => {
            let is_it = |(_, name): &(&str, &str)| call.arguments.is(2, name);
            Some(FIELDS.iter().position(is_it).ok_or("Invalid information value")?)
        }
        _ => return Err(crate::command::wrong_arity("bf.info")),
    };
    let target = target(call)?;
    Ok(job(
        move || Ok(values(&target.existing()?.stats())),
        move |values, reply| match (wanted, reply.protocol()) {
            (Some(i), Protocol::Resp2) => {
                reply.array(1);
                number(values[i], reply);
            }
            (Some(i), Protocol::Resp3) => {
                reply.map(1);
                reply.bulk(FIELDS[i].0.as_bytes());
                number(values[i], reply);
            }
            (None, _) => {
                reply.map(FIELDS.len());
                for ((name, _), value) in FIELDS.iter().zip(values) {
                    reply.bulk(name.as_bytes());
                    number(value, reply);
                }
            }
        },
    ))
}

fn number(value: Option<u64>, reply: &mut Reply<'_>) {
    match value {
        Some(number) => reply.integer(number as i64),
        None => reply.null(),
    }
}

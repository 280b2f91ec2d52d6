//! `HASHFOLD.FILTER.*`: what RedisBloom has no commands for: forgetting old keys, and figures.

use super::{NOT_FOUND, Work, check_served, check_writable, failed, job};
use crate::{
    command::{
        SYNTAX_ERROR,
        entry::{Begin, Call, Command, Group, Run},
    },
    data::FilterKey,
};
use hashfold::filter::cascade::CascadeStats;
use std::sync::Arc;

pub(in crate::command) const COMMANDS: &[Command] = &[
    command("hashfold.filter.advance", -2, "Starts an epoch of a filter.", advance).writes(),
    command("hashfold.filter.stats", 2, "Returns the figures of a filter.", stats).reads(),
];

const fn command(name: &'static str, arity: i32, summary: &'static str, run: Begin) -> Command {
    Command::new(name, arity, Group::Hashfold, summary, Run::Job(run)).keys(1, 1, 1)
}

/// Returns the filter that the first argument names.
fn filter(call: &Call<'_, '_>) -> Result<Arc<FilterKey>, String> {
    let space = call.session.space().ok_or("NOAUTH Authentication required.")?;
    check_served(space, call.arguments.at(1))?;
    space.filter(call.arguments.at(1)).ok_or_else(|| NOT_FOUND.into())
}

/// Starts an epoch. With `KEEP n`, the last n epochs stay, the new one included; the keys that were only
/// in the others are forgotten. Returns the number of epochs that stay.
fn advance(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let keep = match call.arguments.len() {
        2 => None,
        4 if call.arguments.is(2, "keep") => match call.arguments.integer(3)? {
            keep @ 1.. => Some(keep as u64),
            _ => return Err("ERR KEEP must be at least 1".into()),
        },
        _ => return Err(SYNTAX_ERROR.into()),
    };
    let filter = filter(call)?;
    check_writable(&filter, filter.key())?;
    if filter.glance().window.is_some() {
        return Err("ERR the filter forgets by the clock".into());
    }
    let advance = move || {
        let advanced = filter.change(|filter| {
            let cascade = filter.cascade();
            let epoch = cascade.advance_epoch()?;
            if let Some(keep) = keep {
                cascade.expire_before((epoch + 1).saturating_sub(keep))?;
            }
            Ok(cascade.stats().epochs.len())
        });
        advanced.map_err(|error| failed(&error))
    };
    Ok(job(advance, |epochs, reply| {
        reply.map(1);
        reply.bulk(b"epochs");
        reply.integer(epochs as i64);
    }))
}

/// Returns the figures of a filter: a map from names to numbers.
fn stats(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let filter = filter(call)?;
    Ok(job(
        move || Ok(figures(&filter.stats())),
        |figures, reply| {
            reply.map(figures.len());
            for (name, value) in figures {
                reply.bulk(name.as_bytes());
                reply.integer(value as i64);
            }
        },
    ))
}

fn figures(stats: &CascadeStats) -> [(&'static str, u64); 9] {
    [
        ("capacity", stats.capacity),
        ("fingerprints", stats.fingerprints),
        ("tombstones", stats.tombstones),
        ("pending", stats.pending),
        ("runs", stats.upper_runs + stats.shards),
        ("bytes", stats.file_bytes),
        ("memory_bytes", stats.memory_bytes),
        ("epochs", stats.epochs.len() as u64),
        ("bits_per_fingerprint", u64::from(stats.universe.bits())),
    ]
}

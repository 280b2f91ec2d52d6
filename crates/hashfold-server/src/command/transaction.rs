//! `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`: commands that are run together, on one version of the
//! data, and only if watched keys stay as they are.

use super::entry::{Call, Command, Flag, Group, Now, Run};
use crate::transaction::{Transaction, Watched};
use std::sync::Arc;

pub(super) const COMMANDS: &[Command] = &[
    now("multi", 1, "Queues the commands up to EXEC.", multi).with(Flag::NoMulti).fast(),
    Command::new("exec", 1, Group::Transactions, "Runs the queued commands.", Run::Exec)
        .with(Flag::NotQueued)
        .always(),
    now("discard", 1, "Forgets the queued commands.", discard).with(Flag::NotQueued).fast(),
    Command::new(
        "watch",
        -2,
        Group::Transactions,
        "Makes EXEC run nothing if one of the keys changes before it.",
        Run::Watch,
    )
    .always()
    .with(Flag::NoMulti)
    .fast()
    .keys(1, -1, 1),
    now("unwatch", 1, "Forgets which keys are watched.", unwatch).fast(),
];

const fn now(name: &'static str, arity: i32, summary: &'static str, run: Now) -> Command {
    Command::new(name, arity, Group::Transactions, summary, Run::Now(run)).always()
}

fn multi(call: &mut Call<'_, '_>) {
    call.session.transaction = Some(Transaction::default());
    call.session.show_transaction();
    call.ok();
}

fn discard(call: &mut Call<'_, '_>) {
    if call.session.transaction.is_none() {
        return call.reply.error("ERR DISCARD without MULTI");
    }
    call.session.end_transaction();
    call.ok();
}

/// Watches keys of tables, of stores and in memory, and filters.
pub(crate) fn watch(call: &mut Call<'_, '_>) {
    let session = &*call.session;
    let space_of = |key| session.other_space(key).map_or(session.space(), |(space, _)| Some(space));
    let is_in_map = |key| space_of(key)?.data()?.map();
    if call.arguments.from(1).any(|key| is_in_map(key).is_some()) {
        return call.reply.error("ERR keys of one command must be in one data set");
    }
    let in_memory = |name| {
        let (space, key) = match session.other_space(name) {
            Some((space, key)) => (Some(space), key),
            None => (session.space(), name),
        };
        Some(Arc::new(space?.data()?.memory()?.watch(key)))
    };
    let names: Vec<_> = call.arguments.from(1).map(|name| (name, in_memory(name))).collect();
    let mut watched = std::mem::take(&mut call.session.watched);
    let added = watched.add(call.session, names.into_iter());
    call.session.watched = watched;
    call.session.show_transaction();
    match added {
        Ok(()) => call.ok(),
        Err(error) => call.reply.error(&error),
    }
}

fn unwatch(call: &mut Call<'_, '_>) {
    call.session.watched = Watched::default();
    call.session.show_transaction();
    call.ok();
}

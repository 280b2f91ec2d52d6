//! Requests about keys, on their way into a batch.

use super::{
    batch::{Batch, GroupId, Request},
    on_map::{KeyNames, MapRequest},
    on_memory::{MemoryRequest, SeenFilters},
    target::{Target, refusal as write_refusal},
};
use crate::{
    command::{Arguments, Found, Lookup},
    session::Session,
    shared::Shared,
};
use std::sync::Arc;

/// A request about keys.
pub(super) struct Asked {
    pub(super) place: usize,
    pub(super) found: Found,
    pub(super) what: What,
    /// The group of earlier requests of the connection that were not answered.
    pub(super) group: Option<GroupId>,
}

/// What is asked about keys.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum What {
    Lookup(Lookup),
    Change,
    /// A change of strings that clients change, and this lookup elsewhere.
    ChangeOrLookup(Lookup),
    Watch,
}

/// What has become of a request.
pub(super) enum Added {
    To(GroupId),
    /// Its turn comes later, because earlier requests of the connection are in another group.
    Later,
    /// No batch: the request is answered in another way.
    Elsewhere,
}

/// Adds a request to the batch: one on a map to the commands for the thread of the map, unless it is a lookup that
/// needs no order among changes; a change in memory to those that the event loop makes itself.
pub(super) fn add(
    shared: &Shared,
    session: &mut Session,
    asked: &Asked,
    arguments: &Arguments<'_>,
    batch: &mut Batch,
) -> Result<Added, String> {
    let keys = asked.found.command.keys;
    let target = match Target::of(session, arguments, keys) {
        Err(_) if asked.what == What::Watch => return Ok(Added::Elsewhere),
        target => target?,
    };
    let is_of_map = |lookup: Lookup| {
        let is_after_changes = matches!(asked.group, Some(GroupId::Map(_)));
        target.map_of(lookup).is_some()
            && (is_after_changes || !lookup.is_of_one_value(keys.count(arguments.len())))
    };
    let what = match asked.what {
        What::ChangeOrLookup(_) if target.may_change() => What::Change,
        What::ChangeOrLookup(lookup) => What::Lookup(lookup),
        what => what,
    };
    if what == What::Change && target.changeable_memory().is_some() {
        return Ok(add_in_memory(shared, session, asked, &target, arguments, batch));
    }
    match (what, target.map()) {
        (What::Lookup(lookup), _) if !is_of_map(lookup) => {
            Ok(add_lookup(shared, session, asked, (lookup, target), arguments, batch))
        }
        (What::Change, _) if !target.may_change() => {
            let command = asked.found.command;
            match target.space_of_filters(command, arguments) {
                Some(_) => Ok(Added::Elsewhere),
                None => Err(write_refusal(session, command, target.refusal())),
            }
        }
        (What::Watch, None) => Ok(Added::Elsewhere),
        (_, Some(_)) => Ok(add_on_map(shared, session, asked, &target, arguments, batch)),
        (What::Lookup(_) | What::Change | What::ChangeOrLookup(_), None) => {
            unreachable!("what is in other data sets is handled above")
        }
    }
}

/// Adds a lookup to those that are answered together.
fn add_lookup(
    shared: &Shared,
    session: &mut Session,
    asked: &Asked,
    (lookup, target): (Lookup, Target),
    arguments: &Arguments<'_>,
    batch: &mut Batch,
) -> Added {
    let keys = asked.found.command.keys;
    let number = batch.group(target.view.clone());
    let id = GroupId::View(number);
    if asked.group.is_some_and(|group| group != id) {
        return Added::Later;
    }
    session.client.note(shared.now(), asked.found.number);
    let group = &mut batch.groups[number];
    let keys = target.push_keys(session, arguments, keys, group);
    group.requests.push(Request {
        place: asked.place,
        id: session.client.id,
        command: asked.found.number,
        lookup,
        keys,
        is_silent: session.replies.silences(),
        is_asking: std::mem::take(&mut session.is_asking),
    });
    Added::To(id)
}

/// Adds a command to those for the thread of a map.
fn add_on_map(
    shared: &Shared,
    session: &mut Session,
    asked: &Asked,
    target: &Target,
    arguments: &Arguments<'_>,
    batch: &mut Batch,
) -> Added {
    let Some(map) = target.map() else { return Added::Elsewhere };
    let number = match asked.group {
        None => batch.map(map),
        Some(GroupId::Map(number)) if Arc::ptr_eq(&batch.maps[number].map, map) => number,
        Some(_) => return Added::Later,
    };
    session.client.note(shared.now(), asked.found.number);
    let space = target.space_with_filters().cloned();
    let request = MapRequest {
        place: asked.place,
        id: session.client.id,
        protocol: session.protocol,
        is_silent: session.replies.silences(),
        keys: KeyNames { are_named: target.is_named, space },
    };
    batch.maps[number].push(asked.found, arguments, request);
    Added::To(GroupId::Map(number))
}

/// Adds a change to those of a data set in memory, unless it concerns filters, too.
fn add_in_memory(
    shared: &Shared,
    session: &mut Session,
    asked: &Asked,
    target: &Target,
    arguments: &Arguments<'_>,
    batch: &mut Batch,
) -> Added {
    let Some(memory) = target.memory() else { return Added::Elsewhere };
    // Before the look, so that no filter is missed.
    let seen = target.space_with_filters().and_then(SeenFilters::now);
    if target.space_with_named_filters(asked.found.command, arguments).is_some() {
        return Added::Elsewhere;
    }
    let number = match asked.group {
        None => batch.memory(memory),
        Some(GroupId::Memory(number)) if Arc::ptr_eq(&batch.memories[number].memory, memory) => {
            number
        }
        Some(_) => return Added::Later,
    };
    session.client.note(shared.now(), asked.found.number);
    let request = MemoryRequest {
        place: asked.place,
        id: session.client.id,
        protocol: session.protocol,
        is_silent: session.replies.silences(),
        is_named: target.is_named,
        seen: seen.map(|seen| batch.memories[number].note_seen(seen)),
    };
    batch.memories[number].push(asked.found, arguments, request);
    Added::To(GroupId::Memory(number))
}

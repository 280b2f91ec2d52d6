//! Commands on filters that event loops do not run: in spaces whose strings clients do not change, which are those of
//! filters alone, with a table or a store, or with a map that is served for reading; and in memory.

use super::{
    on_map::KeyNames,
    on_memory,
    target::{Target, refusal},
};
use crate::{
    command::{Call, FilterEdit, FixedStrings, Found, KeyCall, Run, TABLE, Work, new_keys},
    protocol::Reply,
    transaction::Calls,
};

/// Begins a command that changes filters, and no strings unless they are in memory. The groups of its keys are the
/// caller's until the work has ended.
///
/// # Errors
/// The reply: the command is about strings, or the space has no filters.
pub(super) fn begin(call: &Call<'_, '_>, found: Found, target: &Target) -> Result<Work, String> {
    let session = &*call.session;
    if let Some(memory) = target.changeable_memory() {
        let space = target.space_with_filters().cloned();
        let names = KeyNames { are_named: target.is_named, space };
        let protocol = call.reply.protocol();
        return Ok(on_memory::begin(memory, (found, &call.arguments), names, protocol));
    }
    let refusal = refusal(session, found.command, target.refusal());
    let space = target.space_of_filters(found.command, &call.arguments);
    let (Some(space), Run::Keys(run)) = (space.cloned(), found.command.run) else {
        return Err(refusal);
    };
    let (view, has_home) = (session.view(), space.home().is_some());
    let mut strings = FixedStrings { view, refusal, has_home };
    let mut calls = Calls::default();
    calls.push(found.number, &call.arguments);
    let protocol = call.reply.protocol();
    Ok(Box::new(move || {
        let mut output = Vec::new();
        let _reserved = space.reserve(new_keys(found.command, &calls.command(0).1));
        let mut filters = FilterEdit::new(Some(space));
        let done = run(&mut KeyCall {
            name: TABLE.full_name(found.number),
            arguments: calls.command(0).1,
            strings: &mut strings,
            filters: &mut filters,
            reply: &mut Reply::new(&mut output, protocol),
        });
        let done = done.and_then(|()| filters.apply());
        Box::new(move |_, reply| match done {
            Ok(()) => reply.append(&output),
            Err(error) => reply.error(&error),
        })
    }))
}

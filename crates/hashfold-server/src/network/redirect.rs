//! Redirections in a cluster: to the server that has a key, or has it undamaged.

use super::batch::{Answer, Request};
use crate::{
    cluster::Seen,
    command::{Arguments, Found, Value, Values as _},
    session::Client,
    shared::Shared,
};
use hashfold::store::slot_of;

/// Refuses keys that other servers have.
///
/// # Errors
/// The error reply: `MOVED` with a server that has the keys, `CROSSSLOT`, `CLUSTERDOWN`, or `TRYAGAIN` while this
/// server gets the slot, and does not have it open yet.
pub(super) fn moved(
    shared: &Shared,
    client: &Client,
    found: Found,
    arguments: &Arguments<'_>,
) -> Result<(), String> {
    let Some(view) = shared.cluster.view() else { return Ok(()) };
    let slots = || found.command.keys.places(arguments.len()).map(|at| slot_of(arguments.at(at)));
    let Some(first) = slots().next() else { return Ok(()) };
    if slots().all(|slot| view.has(slot)) {
        return Ok(());
    }
    if slots().any(|slot| slot != first) {
        return Err("CROSSSLOT Keys in request don't hash to the same slot".into());
    }
    if view.is_opening(first, shared.now()) {
        return Err(format!("TRYAGAIN Slot {first} is being opened"));
    }
    let owner = view.owner(first);
    if !owner.is_alive() {
        return Err("CLUSTERDOWN Hash slot not served".into());
    }
    Err(format!("MOVED {first} {}", address(owner.nodes()[0], client)))
}

/// Returns the error reply that sends a client to another server of the group for keys that are damaged
/// here: `ASK`, which concerns this request only. `None` if no other server answers, or if the client comes
/// from one whose keys are damaged, too.
pub(super) fn ask(
    shared: &Shared,
    client: &Client,
    request: &Request,
    answer: &Answer<'_>,
) -> Option<String> {
    let view = shared.cluster.view().filter(|_| !request.is_asking)?;
    let is_damaged = |i: &usize| match answer.value(*i) {
        Value::Failed(error) => error.starts_with("DAMAGED "),
        _ => false,
    };
    let damaged = (0..answer.count()).find(is_damaged)?;
    let others = view.own_shard().all();
    let other = others.iter().find(|node| !node.is_self && node.is_alive())?;
    Some(format!("ASK {} {}", slot_of(answer.key(damaged)), address(other, client)))
}

/// Returns the address of a server, with the port for encrypted connections if this one is encrypted.
fn address(node: &Seen, client: &Client) -> String {
    format!("{}:{}", node.host, node.port_for(client.is_encrypted))
}

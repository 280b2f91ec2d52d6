//! `HASHFOLD.*`: the versions of stores, and which one a connection reads.

use super::{
    SYNTAX_ERROR,
    entry::{Arguments, Begin, Call, Command, Flag, Group, JobReply, Run, Work},
};
use crate::{
    change::{Action, Change, Changed},
    data::{DataSet, Description, View},
    protocol::Reply,
};
use hashfold::{ErrorKind, store::Pointer};
use std::{fmt, sync::Arc};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "hashfold.use",
        2,
        Group::Hashfold,
        "Makes the connection read a version.",
        Run::Job(use_version),
    )
    .with(Flag::NoMulti)
    .fast(),
    job("hashfold.version", -1, "Describes the version that the connection reads.", version)
        .reads(),
    job("hashfold.versions", -1, "Describes all versions of a store.", all).reads(),
    job("hashfold.pin", 3, "Keeps a version, whatever the rules of retention say.", pin)
        .with(Flag::Admin),
    job("hashfold.unpin", 3, "Keeps a version only as long as the rules say.", unpin)
        .with(Flag::Admin),
    job("hashfold.publish", -3, "Makes a version of a store current.", publish).with(Flag::Admin),
    job("hashfold.rollback", -2, "Makes the version before current again.", roll_back)
        .with(Flag::Admin),
];

const fn job(name: &'static str, arity: i32, summary: &'static str, run: Begin) -> Command {
    Command::new(name, arity, Group::Hashfold, summary, Run::Job(run))
}

/// Opens a version of a store.
pub(super) fn open(data: &DataSet, number: u64) -> Result<Arc<View>, String> {
    data.view_of(number).map_err(|error| match error.kind() {
        _ if error.is_absent() => format!("NOVERSION {} has no version {number}", data.name()),
        ErrorKind::Memory { .. } => format!("OOM version {number} of {}: {error}", data.name()),
        _ => format!("ERR {error}"),
    })
}

fn use_version(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let data = call.session.space().and_then(|space| space.data()).cloned();
    let data = data.ok_or("ERR this user has no store")?;
    if data.is_gone() {
        return Err(data.refusal());
    }
    let number = match call.arguments.is(1, "current") {
        true => None,
        false => Some(call.arguments.integer(1)? as u64),
    };
    Ok(Box::new(move || {
        let opened = number.map(|number| open(&data, number)).transpose();
        Box::new(move |session, reply| match opened {
            Ok(fixed) => {
                session.fixed = fixed;
                reply.simple("OK");
            }
            Err(error) => reply.error(&error),
        })
    }))
}

/// Returns the store that an argument names, or that of the user.
fn store(call: &Call<'_, '_>, argument: usize) -> Result<Arc<DataSet>, String> {
    let own = call.session.space().and_then(|space| space.data()).cloned();
    let found = match call.arguments.get(argument) {
        None => own,
        Some(name) => {
            let is_it = |data: &&Arc<DataSet>| data.name().as_bytes() == name;
            let user = call.session.user();
            let others =
                user.iter().flat_map(|user| user.spaces.values()).filter_map(|space| space.data());
            own.iter().chain(others).find(is_it).cloned()
        }
    };
    match found {
        Some(data) if data.is_gone() => Err(data.refusal()),
        Some(data) if data.is_store() => Ok(data),
        Some(data) => Err(format!("ERR {} is a table, which has no versions", data.name())),
        None => Err("ERR no such store".into()),
    }
}

/// Writes what is known about a version. `used` is the version that the connection uses.
fn write(description: &Description, used: Option<u64>, reply: &mut Reply<'_>) {
    let Description { info, is_current, is_bad, is_pinned, sequence } = description;
    let number = info.name.number;
    let numbers = [
        ("version", number as i64),
        ("entries", *info.entries().end() as i64),
        ("created_at", info.created_s as i64),
        ("seq", *sequence as i64),
    ];
    let flags = [
        ("current", *is_current),
        ("used", used == Some(number)),
        ("bad", *is_bad),
        ("pinned", *is_pinned),
    ];
    reply.map(numbers.len() + flags.len() + 1);
    reply.bulk(b"id");
    reply.bulk(format!("{:016x}", info.name.id).as_bytes());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(number);
    }
    for (name, is_so) in flags {
        reply.bulk(name.as_bytes());
        reply.boolean(is_so);
    }
}

/// Returns the reply to an error.
fn failed(error: &dyn fmt::Display) -> JobReply {
    let message = format!("ERR {error}");
    Box::new(move |_, reply| reply.error(&message))
}

fn version(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let data = store(call, 1)?;
    let used = used_version(call);
    let is_own =
        call.session.space().and_then(|it| it.data()).is_some_and(|it| Arc::ptr_eq(it, &data));
    // In a transaction, the version of its lookups.
    let view = match is_own {
        true => call.session.view()?,
        false => data.view(),
    };
    let info = view.and_then(|view| view.version().map(|version| version.info().clone()));
    let info = info.ok_or("ERR no version is open")?;
    let env = call.shared.env.clone();
    Ok(Box::new(move || match Pointer::read(env.disk.as_ref(), data.folder()) {
        Err(error) => failed(&error),
        Ok(pointer) => {
            let description = Description::of(info, &pointer);
            Box::new(move |_, reply| write(&description, used, reply))
        }
    }))
}

/// Returns the number of the version that the connection uses, if it does not follow the current one.
fn used_version(call: &Call<'_, '_>) -> Option<u64> {
    let view = call.session.fixed.as_ref()?;
    view.version().map(|version| version.info().name.number)
}

fn all(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let (data, used, env) = (store(call, 1)?, used_version(call), call.shared.env.clone());
    Ok(Box::new(move || match Description::all(&env, data.folder()) {
        Err(error) => failed(&error),
        Ok(all) => Box::new(move |_, reply| {
            reply.array(all.len());
            all.iter().for_each(|description| write(description, used, reply));
        }),
    }))
}

/// Begins a change of a store. The reply has the version, the version before, and the sequence number.
fn change(call: &Call<'_, '_>, action: Action, reason: String) -> Result<Work, String> {
    let who = call.session.user().map(|user| user.name.clone()).unwrap_or_default();
    let change = Change { data: store(call, 1)?, action, reason, who, via: "redis", seq: None };
    let changer = call.shared.changer.clone();
    Ok(Box::new(move || {
        let Changed { version, previous, seq } = match changer.apply(&change) {
            Ok(changed) => changed,
            Err(error) => return failed(&error),
        };
        Box::new(move |_, reply| {
            reply.map(3);
            reply.bulk(b"version");
            reply.integer(version as i64);
            reply.bulk(b"previous");
            match previous {
                None => reply.null(),
                Some(number) => reply.integer(number as i64),
            }
            reply.bulk(b"seq");
            reply.integer(seq as i64);
        })
    }))
}

fn pin(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let version = call.arguments.integer(2)? as u64;
    change(call, Action::Pin { version }, String::new())
}

fn unpin(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let version = call.arguments.integer(2)? as u64;
    change(call, Action::Unpin { version }, String::new())
}

/// Options that change what version becomes current.
#[derive(Default)]
struct PublishOptions {
    is_forced: bool,
    to: Option<u64>,
    reason: String,
}

impl PublishOptions {
    /// Parses `[FORCE] [TO n] [REASON text]`.
    fn parse(arguments: &Arguments<'_>, first: usize) -> Result<PublishOptions, String> {
        let mut options = PublishOptions::default();
        let mut i = first;
        while i < arguments.len() {
            let has_value = i + 1 < arguments.len();
            if arguments.is(i, "force") {
                options.is_forced = true;
                i += 1;
            } else if arguments.is(i, "to") && has_value {
                options.to = Some(arguments.integer(i + 1)? as u64);
                i += 2;
            } else if arguments.is(i, "reason") && has_value {
                options.reason = arguments.text(i + 1);
                i += 2;
            } else {
                return Err(SYNTAX_ERROR.into());
            }
        }
        Ok(options)
    }
}

/// Refuses to change which version of a store is current, if a group decides.
fn refuse_group(call: &Call<'_, '_>) -> Result<(), String> {
    let (data, deployment) = (store(call, 1)?, call.shared.deployment.as_ref());
    match deployment.filter(|_| data.follows_group()) {
        None => Ok(()),
        Some(deployment) => Err(format!(
            "ERR {} follows the group {}; use `hashfold deploy publish` or `rollback`",
            data.name(),
            deployment.config().group
        )),
    }
}

fn publish(call: &mut Call<'_, '_>) -> Result<Work, String> {
    refuse_group(call)?;
    let version = call.arguments.integer(2)? as u64;
    let options = PublishOptions::parse(&call.arguments, 3)?;
    if options.to.is_some() {
        return Err(SYNTAX_ERROR.into());
    }
    let action = Action::Publish { version, is_forced: options.is_forced, change_max: None };
    change(call, action, options.reason)
}

fn roll_back(call: &mut Call<'_, '_>) -> Result<Work, String> {
    refuse_group(call)?;
    let options = PublishOptions::parse(&call.arguments, 2)?;
    if options.is_forced {
        return Err(SYNTAX_ERROR.into());
    }
    change(call, Action::RollBack { to: options.to }, options.reason)
}

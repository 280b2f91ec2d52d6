//! `WAIT` and `WAITAOF`: whether changes are durable, and on other servers. `SAVE`: data in memory as a version.

use super::{
    NOT_AN_INTEGER,
    entry::{Arguments, Call, Command, Flag, Group, Now, Run, Work},
};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("wait", 3, Group::Generic, "Returns 0: there are no replicas.", Run::Now(WAIT)),
    Command::new(
        "waitaof",
        4,
        Group::Generic,
        "Waits until all changes are durable.",
        Run::Job(wait_durable),
    ),
    Command::new("save", 1, Group::Server, "Saves data in memory as a version.", Run::Job(save))
        .with(Flag::Admin)
        .with(Flag::NoMulti),
];

const WAIT: Now = |call| match check(&call.arguments, 1) {
    Ok(()) => call.reply.integer(0),
    Err(error) => call.reply.error(&error),
};

/// Checks a number of servers, and the time in milliseconds after it.
fn check(arguments: &Arguments<'_>, first: usize) -> Result<(), String> {
    arguments.integer(first)?;
    match crate::protocol::number(arguments.at(first + 1)) {
        None => Err("ERR timeout is not an integer or out of range".into()),
        Some(..0) => Err("ERR timeout is negative".into()),
        Some(_) => Ok(()),
    }
}

fn wait_durable(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let local = crate::protocol::number(call.arguments.at(1)).ok_or(NOT_AN_INTEGER)?;
    if !(0..=1).contains(&local) {
        return Err("ERR value is out of range, must be between 0 and 1".into());
    }
    check(&call.arguments, 2)?;
    let map = call.session.view()?.and_then(|view| view.map().cloned());
    if local == 1 && map.is_none() {
        return Err(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.".into()
        );
    }
    let has_map = map.is_some();
    Ok(Box::new(move || {
        let synced = map.map_or(Ok(()), |map| map.sync());
        Box::new(move |_, reply| match synced {
            Ok(()) => {
                reply.array(2);
                reply.integer(i64::from(has_map));
                reply.integer(0);
            }
            Err(error) => reply.error(&format!("MISCONF changes cannot be made durable: {error}")),
        })
    }))
}

fn save(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let memory = call.session.view()?.and_then(|view| view.memory().cloned());
    let memory = memory
        .ok_or("ERR SAVE is for data sets in memory: maps and filters are durable as they are")?;
    Ok(Box::new(move || {
        let saved = memory.save();
        Box::new(move |_, reply| match saved {
            Ok(_) => reply.simple("OK"),
            Err(error) => reply.error(&error),
        })
    }))
}

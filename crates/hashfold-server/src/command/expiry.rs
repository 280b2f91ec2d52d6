//! Commands that say when keys expire: `EXPIRE` and its relatives, `PERSIST`.

use super::entry::{Arguments, ChangeKeys, Command, Group, KeyCall, Run};

pub(super) const COMMANDS: &[Command] = &[
    one("expire", -3, "Makes a key expire after seconds.", |call| expire(call, 1000, true)),
    one("pexpire", -3, "Makes a key expire after milliseconds.", |call| expire(call, 1, true)),
    one("expireat", -3, "Makes a key expire at a time in seconds since 1970.", |call| {
        expire(call, 1000, false)
    }),
    one("pexpireat", -3, "Makes a key expire at a time in milliseconds since 1970.", |call| {
        expire(call, 1, false)
    }),
    one("persist", 2, "Makes a key not expire.", persist),
];

const fn one(name: &'static str, arity: i32, summary: &'static str, run: ChangeKeys) -> Command {
    Command::new(name, arity, Group::Generic, summary, Run::Keys(run)).writes().fast().keys(1, 1, 1)
}

/// Which keys get another time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Conditions {
    /// Those that do not expire.
    is_nx: bool,
    /// Those that expire.
    is_xx: bool,
    /// Those that expire earlier.
    is_gt: bool,
    /// Those that expire later, or not at all.
    is_lt: bool,
}

impl Conditions {
    fn parse(arguments: &Arguments<'_>) -> Result<Conditions, String> {
        let mut conditions = Conditions::default();
        for i in 3..arguments.len() {
            let Conditions { is_nx, is_xx, is_gt, is_lt } = &mut conditions;
            let flags = [("nx", is_nx), ("xx", is_xx), ("gt", is_gt), ("lt", is_lt)];
            match flags.into_iter().find(|(word, _)| arguments.is(i, word)) {
                Some((_, flag)) => *flag = true,
                None => return Err(format!("ERR Unsupported option {}", arguments.text(i))),
            }
        }
        let Conditions { is_nx, is_xx, is_gt, is_lt } = conditions;
        if is_nx && (is_xx || is_gt || is_lt) {
            let error = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(error.into());
        }
        match is_gt && is_lt {
            true => Err("ERR GT and LT options at the same time are not compatible".into()),
            false => Ok(conditions),
        }
    }

    /// Whether a key that expires at `before` may expire at another time.
    fn allow(self, before: Option<u64>, at: i64) -> bool {
        let is_later = before.is_some_and(|before| at > before as i64);
        let is_earlier = before.is_none_or(|before| at < before as i64);
        !(self.is_nx && before.is_some()
            || self.is_xx && before.is_none()
            || self.is_gt && !is_later
            || self.is_lt && !is_earlier)
    }
}

fn expire(call: &mut KeyCall<'_, '_>, unit: i64, is_relative: bool) -> Result<(), String> {
    let key = call.arguments.at(1);
    let conditions = Conditions::parse(&call.arguments)?;
    let number = call.arguments.integer(2)?;
    let filter = call.filters.get(key);
    let now = match filter {
        Some(_) => call.filters.now_ms() as i64,
        None => call.strings.now_ms() as i64,
    };
    let start = if is_relative { now } else { 0 };
    let at = number.checked_mul(unit).filter(|ms| *ms <= i64::MAX - start).map(|ms| ms + start);
    let at = at.ok_or_else(|| format!("ERR invalid expire time in '{}' command", call.name))?;
    let is_changed = match filter {
        Some(filter) if !conditions.allow(filter.expires_at(), at) => false,
        Some(_) if at <= now => call.filters.remove(key)?,
        Some(_) => call.filters.expire(key, Some(at as u64)).map(|()| true)?,
        None => expire_string(call, key, conditions, (at, now))?,
    };
    call.integer(i64::from(is_changed))
}

/// Sets when a string expires. Returns whether there is one, and the conditions allow it.
fn expire_string(
    call: &mut KeyCall<'_, '_>,
    key: &[u8],
    conditions: Conditions,
    (at, now): (i64, i64),
) -> Result<bool, String> {
    let old = call.strings.expiry(key)?;
    if !old.is_some_and(|expires_at| conditions.allow(expires_at, at)) {
        return Ok(false);
    }
    match at <= now {
        true => call.strings.delete(key)?,
        false => expire_at(call, key, Some(at as u64))?,
    }
    Ok(true)
}

fn persist(call: &mut KeyCall<'_, '_>) -> Result<(), String> {
    let key = call.arguments.at(1);
    if let Some(filter) = call.filters.get(key) {
        if filter.expires_at().is_some() {
            call.filters.expire(key, None)?;
        }
        return call.integer(i64::from(filter.expires_at().is_some()));
    }
    let expires = call.strings.expiry(key)?.flatten().is_some();
    if expires {
        expire_at(call, key, None)?;
    }
    call.integer(i64::from(expires))
}

/// Puts the value of a key again, with another time at which it expires.
fn expire_at(call: &mut KeyCall<'_, '_>, key: &[u8], at: Option<u64>) -> Result<(), String> {
    let Some(old) = call.strings.get(key)?.cloned() else { return Ok(()) };
    call.strings.put(key, old.value, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_those_of_redis() {
        let none = Conditions::default();
        let nx = Conditions { is_nx: true, ..none };
        let xx = Conditions { is_xx: true, ..none };
        let gt = Conditions { is_gt: true, ..none };
        let lt = Conditions { is_lt: true, ..none };
        for (conditions, without, same, later, earlier) in [
            (none, true, true, true, true),
            (nx, true, false, false, false),
            (xx, false, true, true, true),
            (gt, false, false, true, false),
            (lt, true, false, false, true),
            (Conditions { is_xx: true, ..lt }, false, false, false, true),
        ] {
            let all = [(None, 10), (Some(10), 10), (Some(10), 11), (Some(10), -9)];
            let allowed = all.map(|(before, at)| conditions.allow(before, at));
            assert_eq!(allowed, [without, same, later, earlier], "{conditions:?}");
        }
    }
}

//! The data in which a lookup finds its keys.

use super::batch::Group;
use crate::{
    command::{Arguments, Command, Keys, Lookup, Run, inside, type_of},
    data::{ServedMap, ServedMemory, Space, View},
    session::Session,
};
use std::{ops::Range, sync::Arc};

/// A key that is a filter, as lookups see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundFilter {
    /// The name of its type.
    pub(super) kind: &'static str,
    /// The time at which it expires, and the time now, in milliseconds since 1970.
    pub(super) expiry: (Option<u64>, u64),
}

impl FoundFilter {
    /// Looks for a filter of a space.
    pub(super) fn of(space: &Space, key: &[u8]) -> Option<FoundFilter> {
        let filter = space.filter(key)?;
        let expires_at = filter.expires_at();
        let home = space.home().filter(|_| expires_at.is_some());
        let now_ms = home.map_or(0, |home| home.now_ms());
        Some(FoundFilter { kind: type_of(&filter), expiry: (expires_at, now_ms) })
    }
}

/// The space of a lookup's keys.
pub(super) struct Target {
    /// The data set now; `None` if the space has none.
    pub(super) view: Option<Arc<View>>,
    space: Option<Arc<Space>>,
    /// Whether the keys name their space, as in `people:{4711}`.
    pub(super) is_named: bool,
}

impl Target {
    /// Returns the space of all keys of a call.
    ///
    /// # Errors
    /// The reply: the keys are in several spaces, the space has no data now, or the client has to choose one.
    pub(super) fn of(
        session: &Session,
        arguments: &Arguments<'_>,
        keys: Keys,
    ) -> Result<Target, String> {
        match other_space(session, arguments, keys)? {
            Some(other) => {
                let view = session.view_of(other)?;
                Ok(Target { view, space: Some(other.clone()), is_named: true })
            }
            None => {
                let (view, space) = (session.view()?, session.space().cloned());
                let mut keys = keys.places(arguments.len()).map(|at| arguments.at(at));
                let is_filter =
                    |key| space.as_ref().is_some_and(|space| space.filter(key).is_some());
                match session.choice() {
                    Some(choice) if !keys.any(is_filter) => Err(choice.to_owned()),
                    _ => Ok(Target { view, space, is_named: false }),
                }
            }
        }
    }

    /// Returns the map of the keys, if they are in one.
    #[inline]
    pub(super) fn map(&self) -> Option<&Arc<ServedMap>> {
        self.view.as_ref().and_then(|view| view.map())
    }

    /// Returns the map of the keys, if its thread has to run this lookup: clients change the map, or ask when a key
    /// expires.
    #[inline]
    pub(super) fn map_of(&self, lookup: Lookup) -> Option<&Arc<ServedMap>> {
        self.map().filter(|map| map.refusal().is_none() || matches!(lookup, Lookup::Expiry(_)))
    }

    /// Returns the data set in memory of the keys, if they are in one.
    #[inline]
    pub(super) fn memory(&self) -> Option<&Arc<ServedMemory>> {
        self.view.as_ref().and_then(|view| view.memory())
    }

    /// Returns the data set in memory of the keys, if they are in one that clients change.
    #[inline]
    pub(super) fn changeable_memory(&self) -> Option<&Arc<ServedMemory>> {
        self.memory().filter(|memory| memory.refusal().is_none())
    }

    /// Returns why clients may not change the strings of a map or of a data set in memory, if they may not.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        let of_map = self.map().and_then(|map| map.refusal());
        of_map.or_else(|| self.memory().and_then(|memory| memory.refusal()))
    }

    /// Whether clients may change the strings of these keys.
    pub(super) fn may_change(&self) -> bool {
        (self.map().is_some() || self.memory().is_some()) && self.refusal().is_none()
    }

    /// Returns what a command does to these keys: a lookup, if it keeps results only where clients change strings, and
    /// these are elsewhere.
    pub(super) fn run(&self, run: Run) -> Run {
        match run {
            Run::ChangeOrLookup(_, parse) if !self.may_change() => Run::Lookup(parse),
            run => run,
        }
    }

    /// Whether the keys may be filters, at least for some users.
    pub(super) fn may_be_filters(&self) -> bool {
        self.space_with_filters().is_some()
            || self.map().is_some_and(|map| map.has_filters())
            || self.memory().is_some_and(|memory| memory.has_filters())
    }

    /// Returns the space, if its keys may be filters.
    pub(super) fn space_with_filters(&self) -> Option<&Arc<Space>> {
        self.space.as_ref().filter(|space| space.has_filters())
    }

    /// Returns the space, if a command on its keys may change filters: it has a home for them, or one of the keys
    /// is a filter.
    pub(super) fn space_of_filters(
        &self,
        command: &Command,
        arguments: &Arguments<'_>,
    ) -> Option<&Arc<Space>> {
        let space = self.space_with_filters()?;
        let mut keys = command.keys.places(arguments.len()).map(|at| arguments.at(at));
        let is_of_filters = matches!(command.run, Run::Keys(_))
            && (space.home().is_some() || keys.any(|key| space.filter(key).is_some()));
        is_of_filters.then_some(space)
    }

    /// Returns the space, if one of the keys of a command is a filter, or the command is about all keys and the space has
    /// filters.
    pub(super) fn space_with_named_filters(
        &self,
        command: &Command,
        arguments: &Arguments<'_>,
    ) -> Option<&Arc<Space>> {
        let space = self.space_with_filters()?;
        let key_at = |at| if self.is_named { inside(arguments.at(at)) } else { arguments.at(at) };
        let mut keys = command.keys.places(arguments.len()).map(key_at);
        let is_of_all = command.keys.count(arguments.len()) == 0;
        (is_of_all || keys.any(|key| space.filter(key).is_some())).then_some(space)
    }

    /// Adds the keys of a call to a group, and returns their range there.
    pub(super) fn push_keys(
        &self,
        session: &Session,
        arguments: &Arguments<'_>,
        keys: Keys,
        group: &mut Group,
    ) -> Range<usize> {
        let first = group.keys();
        for key in keys.places(arguments.len()).map(|at| arguments.at(at)) {
            let inside = session.other_space(key).filter(|_| self.is_named);
            let key = inside.map_or(key, |(_, inside)| inside);
            group.push_key(key);
            let filter = self.space.as_ref().and_then(|space| FoundFilter::of(space, key));
            filter.into_iter().for_each(|filter| group.last_key_is_filter(filter));
        }
        first..group.keys()
    }
}

/// Returns the space that the keys of a command name, as in `people:{4711}`.
fn other_space<'s>(
    session: &'s Session,
    arguments: &Arguments<'_>,
    keys: Keys,
) -> Result<Option<&'s Arc<Space>>, String> {
    let space_of = |at: usize| session.other_space(arguments.at(at)).map(|(space, _)| space);
    let mut spaces = keys.places(arguments.len()).map(space_of);
    let first = spaces.next().flatten();
    let is_same = |other: Option<&Arc<Space>>| match (first, other) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    match spaces.all(is_same) {
        true => Ok(first),
        false => Err("ERR keys of one command must be in one data set".into()),
    }
}

/// Returns the reply to a command that changes single keys of a table or store, or of a map or data set in memory that
/// may not be changed: never `READONLY`, on which clients look for another server and try again.
#[cold]
pub(super) fn refusal(session: &Session, command: &Command, reason: Option<&str>) -> String {
    let user = session.user().map_or("", |user| &user.name);
    let reason = reason.unwrap_or("tables and stores change in batches; see `hashfold update`");
    format!("NOPERM User {user} has no permissions to run the '{}' command: {reason}", command.name)
}

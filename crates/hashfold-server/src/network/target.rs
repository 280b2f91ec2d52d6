//! The data in which a lookup finds its keys.

use super::batch::Group;
use crate::{
    command::{Arguments, Command, Keys, Lookup, inside, type_of},
    data::{ServedMap, Space, View},
    session::Session,
};
use std::{ops::Range, sync::Arc};

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
                let target = Target { view, space, is_named: false };
                match session.choice() {
                    Some(choice) if target.filters(arguments, keys).is_empty() => {
                        Err(choice.to_owned())
                    }
                    _ => Ok(target),
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

    /// Returns the filters among the keys of a call: their places among the keys, and their types.
    pub(super) fn filters(
        &self,
        arguments: &Arguments<'_>,
        keys: Keys,
    ) -> Vec<(usize, &'static str)> {
        let Some(space) = self.space.as_ref() else { return Vec::new() };
        let all = keys.places(arguments.len()).map(|at| arguments.at(at)).enumerate();
        let filter = |(i, key)| {
            let key = if self.is_named { inside(key) } else { key };
            space.filter(key).map(|filter| (i, type_of(&filter)))
        };
        all.filter_map(filter).collect()
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
            if let Some(filter) = self.space.as_ref().and_then(|space| space.filter(key)) {
                group.last_key_is_filter(type_of(&filter));
            }
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

/// Returns the reply to a command that changes single keys of a table or store, or of a map that may not be
/// changed: never `READONLY`, on which clients look for another server and try again.
#[cold]
pub(super) fn refusal(session: &Session, command: &Command, reason: Option<&str>) -> String {
    let user = session.user().map_or("", |user| &user.name);
    let reason = reason.unwrap_or("tables and stores change in batches; see `hashfold update`");
    format!("NOPERM User {user} has no permissions to run the '{}' command: {reason}", command.name)
}

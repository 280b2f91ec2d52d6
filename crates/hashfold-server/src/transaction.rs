//! Transactions: commands that are queued until `EXEC`, and keys that must not change before it.

use crate::{
    command::{Arguments, Found, TABLE},
    data::{DataSet, FilterKey, NewFilter, ServedMemory, Space, View, Watch},
    session::Session,
};
use hashfold::Error;
use std::{
    cell::RefCell,
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// Maximum number of commands of a transaction.
const COMMANDS_MAX: usize = 10_000;

/// Maximum memory of the commands of a transaction, in bytes.
const BYTES_MAX: usize = 16 << 20;

/// Maximum number of keys that a connection watches.
const WATCHED_MAX: usize = 1_000;

/// Calls that are kept until their turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// The arguments of all commands, one after the other, and their places.
    input: Vec<u8>,
    places: Vec<Range<usize>>,
    commands: Vec<Kept>,
}

#[derive(Clone, Debug)]
struct Kept {
    /// The number of the command.
    number: usize,
    /// The range of its arguments in `places`.
    arguments: Range<usize>,
}

impl Calls {
    /// Adds a call of the command with this number.
    pub(crate) fn push(&mut self, number: usize, arguments: &Arguments<'_>) {
        let first = self.places.len();
        for argument in arguments.from(0) {
            let start = self.input.len();
            self.input.extend_from_slice(argument);
            self.places.push(start..self.input.len());
        }
        self.commands.push(Kept { number, arguments: first..self.places.len() });
    }

    /// Returns the number of calls.
    pub(crate) fn count(&self) -> usize {
        self.commands.len()
    }

    /// Returns the memory of the calls, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.input.len() + self.places.len() * size_of::<Range<usize>>()
    }

    /// Returns a command, and its arguments.
    pub(crate) fn command(&self, i: usize) -> (Found, Arguments<'_>) {
        let Kept { number, arguments } = &self.commands[i];
        let found = Found { command: TABLE.command(*number), number: *number };
        (found, Arguments::new(&self.input, &self.places[arguments.clone()]))
    }

    /// Returns all commands, and their arguments.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Found, Arguments<'_>)> {
        (0..self.count()).map(|i| self.command(i))
    }
}

/// The commands since `MULTI`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transaction {
    calls: Calls,
    /// Whether a command was refused, so that `EXEC` runs none.
    is_refused: bool,
}

impl Transaction {
    /// Adds a command, unless one before was refused.
    ///
    /// # Errors
    /// The reply: there are too many commands, or too large ones.
    pub(crate) fn push(&mut self, number: usize, arguments: &Arguments<'_>) -> Result<(), String> {
        if self.is_refused {
            return Ok(());
        }
        if self.count() == COMMANDS_MAX {
            return Err(format!("ERR a transaction has at most {COMMANDS_MAX} commands"));
        }
        let size: usize = arguments.from(0).map(|it| it.len() + size_of::<Range<usize>>()).sum();
        if self.bytes() + size > BYTES_MAX {
            let max = BYTES_MAX >> 20;
            return Err(format!("ERR the commands of a transaction have at most {max} MiB"));
        }
        self.calls.push(number, arguments);
        Ok(())
    }

    /// Notes that a command was refused. The others are forgotten: they will not run.
    pub(crate) fn refuse(&mut self) {
        *self = Transaction { is_refused: true, ..Transaction::default() };
    }

    /// Whether a command was refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns the number of commands.
    pub(crate) fn count(&self) -> usize {
        self.calls.count()
    }

    /// Returns the memory of the commands, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.calls.bytes()
    }

    /// Returns a command, and its arguments.
    pub(crate) fn command(&self, i: usize) -> (Found, Arguments<'_>) {
        self.calls.command(i)
    }

    /// Returns all commands, and their arguments.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (Found, Arguments<'_>)> {
        self.calls.all()
    }
}

/// Keys that are watched, and what was seen of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// By the names that the client gave.
    keys: HashMap<Vec<u8>, WatchedKey>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct WatchedKey {
    /// The space that the name says, unless it is the user's own.
    space: Option<Arc<Space>>,
    /// The range of the key in its name.
    key: Range<usize>,
    seen: Seen,
    /// The watch of the value, if the key is one of a map.
    of_map: Option<Arc<Watch>>,
}

/// What a key was when it was looked at. Holds no files open.
#[derive(Clone, Debug)]
struct Seen {
    view: Option<Weak<View>>,
    filter: Option<(Weak<FilterKey>, u64)>,
}

impl Seen {
    fn of(session: &Session, space: Option<&Arc<Space>>, key: &[u8]) -> Seen {
        let view = match space {
            None => session.view(),
            Some(space) => session.view_of(space),
        };
        let filter = space.or(session.space()).and_then(|space| space.filter(key));
        Seen {
            // A store without a version is one more state, which ends with its first version.
            view: view.ok().flatten().map(|view| Arc::downgrade(&view)),
            filter: filter.map(|filter| (Arc::downgrade(&filter), filter.changes())),
        }
    }

    fn is(&self, other: &Seen) -> bool {
        let is_same_view = match (&self.view, &other.view) {
            (None, None) => true,
            (Some(a), Some(b)) => a.ptr_eq(b),
            _ => false,
        };
        let is_same_filter = match (&self.filter, &other.filter) {
            (None, None) => true,
            (Some((a, a_changes)), Some((b, b_changes))) => a.ptr_eq(b) && a_changes == b_changes,
            _ => false,
        };
        is_same_view && is_same_filter
    }
}

impl Watched {
    /// Returns the number of keys.
    pub(crate) fn count(&self) -> usize {
        self.keys.len()
    }

    /// Returns the memory of the keys, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Watches keys: all or, with an error, none. One that is watched already keeps what was seen of it. Keys
    /// of maps come with the watches of their values.
    ///
    /// # Errors
    /// The reply: there are too many keys.
    pub(crate) fn add<'k>(
        &mut self,
        session: &Session,
        names: impl Iterator<Item = (&'k [u8], Option<Arc<Watch>>)>,
    ) -> Result<(), String> {
        let new: HashMap<&[u8], Option<Arc<Watch>>> =
            names.filter(|(name, _)| !self.keys.contains_key(*name)).collect();
        if self.count() + new.len() > WATCHED_MAX {
            return Err(format!("ERR a connection watches at most {WATCHED_MAX} keys"));
        }
        new.into_iter().for_each(|(name, of_map)| self.add_one(session, name, of_map));
        Ok(())
    }

    fn add_one(&mut self, session: &Session, name: &[u8], of_map: Option<Arc<Watch>>) {
        let (space, key) = match session.other_space(name) {
            // The key is between the braces at the end of its name.
            Some((space, key)) => (Some(space), name.len() - 1 - key.len()..name.len() - 1),
            None => (None, 0..name.len()),
        };
        let seen = Seen::of(session, space, &name[key.clone()]);
        self.bytes += name.len() + size_of::<WatchedKey>();
        self.bytes += of_map.as_ref().map_or(0, |watch| watch.bytes());
        self.keys.insert(name.to_vec(), WatchedKey { space: space.cloned(), key, seen, of_map });
    }

    /// Returns what watches keys of maps.
    pub(crate) fn of_maps(&self) -> impl Iterator<Item = &Arc<Watch>> {
        self.keys.values().filter_map(|watched| watched.of_map.as_ref())
    }

    /// Whether any key may have changed since it was watched: its data set has another version, its filter
    /// was changed, made or removed, or its value in a map was changed or has expired.
    pub(crate) fn has_changed(&self, session: &Session, now_ms: u64) -> bool {
        self.of_maps().any(|watch| watch.is_changed(now_ms))
            || self.keys.iter().any(|(name, watched)| {
                let now = Seen::of(session, watched.space.as_ref(), &name[watched.key.clone()]);
                !watched.seen.is(&now)
            })
    }
}

/// The views that a transaction has read: it reads each data set in one version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pins {
    views: RefCell<Vec<(Arc<DataSet>, Arc<View>)>>,
    /// The data sets in memory beside which nothing runs.
    alone: Vec<Arc<ServedMemory>>,
    unkept: Unkept,
}

/// Filters of which a transaction has made keys whose strings it deletes: they are kept when the deletions are written, or
/// removed when that fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unkept(Arc<Mutex<Vec<UnkeptFilter>>>);

/// A filter, and the data that must be durable before it.
#[derive(Debug)]
pub(crate) struct UnkeptFilter {
    pub(crate) filter: NewFilter,
    pub(crate) views: Vec<Arc<View>>,
}

impl UnkeptFilter {
    /// Makes the filter durable, after the data.
    ///
    /// # Errors
    /// Errors of writing; the filter is removed.
    pub(crate) fn keep(self) -> Result<Arc<FilterKey>, Error> {
        self.views.iter().try_for_each(|view| view.sync())?;
        self.filter.keep()
    }
}

impl Unkept {
    /// Adds a filter.
    pub(crate) fn push(&self, filter: UnkeptFilter) {
        self.lock().push(filter);
    }

    /// Keeps all filters.
    ///
    /// # Errors
    /// The reply: one cannot be written. It is removed, with those after it.
    pub(crate) fn keep(&self) -> Result<(), String> {
        let mut all = std::mem::take(&mut *self.lock()).into_iter();
        let kept = all.try_for_each(|filter| filter.keep().map(drop));
        kept.map_err(|error| format!("MISCONF changes of filters cannot be written: {error}"))
    }

    /// Removes all filters.
    pub(crate) fn remove(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UnkeptFilter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pins {
    /// Begins a transaction beside which nothing runs on some data sets in memory.
    pub(crate) fn new(alone: Vec<Arc<ServedMemory>>) -> Pins {
        Pins { views: RefCell::default(), alone, unkept: Unkept::default() }
    }

    /// Returns where filters wait for the changes of the transaction.
    pub(crate) fn unkept(&self) -> &Unkept {
        &self.unkept
    }

    /// Whether nothing runs beside the transaction on the data set in memory of a view.
    pub(crate) fn is_alone(&self, view: &View) -> bool {
        view.memory().is_some_and(|it| self.alone.iter().any(|other| Arc::ptr_eq(it, other)))
    }

    /// Returns the view of a data set that the transaction has read, or whose changes it shows.
    pub(crate) fn shown(&self, data: &Arc<DataSet>) -> Option<Arc<View>> {
        let pinned = self.views.borrow();
        pinned.iter().find(|(known, _)| Arc::ptr_eq(known, data)).map(|(_, view)| view.clone())
    }

    /// Shows a map with the changes of the transaction so far.
    pub(crate) fn show(&self, data: &Arc<DataSet>, view: View) {
        let mut pinned = self.views.borrow_mut();
        pinned.retain(|(known, _)| !Arc::ptr_eq(known, data));
        pinned.push((data.clone(), Arc::new(view)));
    }

    /// Returns the view of a space's data: the current one, the first time.
    ///
    /// # Errors
    /// The errors of [`Space::view`].
    pub(crate) fn view_of(&self, space: &Space) -> Result<Option<Arc<View>>, String> {
        let Some(data) = space.data() else { return Ok(None) };
        let mut pinned = self.views.borrow_mut();
        if let Some((_, view)) = pinned.iter().find(|(known, _)| Arc::ptr_eq(known, data)) {
            return Ok(Some(view.clone()));
        }
        let view = space.view()?;
        pinned.extend(view.clone().map(|view| (data.clone(), view)));
        Ok(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues a command of one word.
    fn push(transaction: &mut Transaction, word: &[u8]) -> Result<(), String> {
        let place = 0..word.len();
        transaction.push(0, &Arguments::new(word, std::slice::from_ref(&place)))
    }

    #[test]
    fn commands_are_kept_as_they_came() {
        let mut transaction = Transaction::default();
        let get = TABLE.number("get").unwrap();
        transaction.push(get, &Arguments::new(b"xGETkey", &[1..4, 4..7])).unwrap();
        transaction.push(get, &Arguments::new(b"GET", &[0..3, 3..3])).unwrap();
        let all: Vec<_> = transaction
            .commands()
            .map(|(found, arguments)| (found.command.name, arguments.at(0), arguments.at(1)))
            .collect();
        assert_eq!(all, [("get", &b"GET"[..], &b"key"[..]), ("get", b"GET", b"")]);
        assert_eq!(transaction.bytes(), 9 + 4 * 16);
    }

    #[test]
    fn transactions_are_bounded() {
        let mut many = Transaction::default();
        (0..COMMANDS_MAX).for_each(|_| push(&mut many, b"x").unwrap());
        assert_eq!(
            push(&mut many, b"x"),
            Err("ERR a transaction has at most 10000 commands".into())
        );
        let mut large = Transaction::default();
        let half = vec![b'x'; BYTES_MAX / 2 - size_of::<Range<usize>>()];
        push(&mut large, &half).unwrap();
        push(&mut large, &half).unwrap();
        let error = "ERR the commands of a transaction have at most 16 MiB";
        assert_eq!(push(&mut large, b""), Err(error.into()));
        large.refuse();
        assert!(large.is_refused() && large.bytes() == 0 && large.count() == 0);
        assert_eq!(push(&mut large, &half), Ok(()));
        assert_eq!(large.bytes(), 0);
    }
}

//! The log of calls that access rules have refused, and of logins that have failed: `ACL LOG`.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Maximum number of entries.
const ENTRIES_MAX: usize = 128;

/// Denials that differ in nothing else are one entry, if they follow each other within this time.
const SAME_WITHIN: Duration = Duration::from_secs(60);

/// Maximum size of a name in an entry, in bytes: clients choose them.
const NAME_BYTES_MAX: usize = 1024;

/// What was denied, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    /// Whether the command was to be queued for `EXEC`.
    pub(crate) is_in_multi: bool,
    /// The command or the key.
    pub(crate) object: String,
    pub(crate) user: String,
}

/// Why something was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The login failed.
    Auth,
    /// The user may not call the command.
    Command,
    /// The user may not use the key.
    Key,
}

impl Reason {
    /// Returns the word in `ACL LOG`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Auth => "auth",
            Reason::Command => "command",
            Reason::Key => "key",
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) denial: Denial,
    /// The connection of the last denial, as in `CLIENT LIST`.
    pub(crate) client: String,
    /// The times of the first and the last denial, since 1970.
    pub(crate) created: Duration,
    pub(crate) updated: Duration,
}

/// The log, the newest entry first.
#[derive(Debug, Default)]
pub(crate) struct AclLog(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    all: VecDeque<Entry>,
    next_id: u64,
}

impl AclLog {
    /// Adds a denial.
    pub(crate) fn add(&self, denial: Denial, client: String, now: Duration) {
        let (object, user) = (cut(denial.object), cut(denial.user));
        let denial = Denial { object, user, ..denial };
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |it: &Entry| it.denial == denial && now.saturating_sub(it.updated) <= SAME_WITHIN;
        let known = entries.all.iter().position(is_it).and_then(|i| entries.all.remove(i));
        let entry = match known {
            Some(entry) => Entry { count: entry.count + 1, client, updated: now, ..entry },
            None => {
                let id = entries.next_id;
                entries.next_id += 1;
                Entry { id, count: 1, denial, client, created: now, updated: now }
            }
        };
        entries.all.truncate(ENTRIES_MAX - 1);
        entries.all.push_front(entry);
    }

    /// Returns the newest entries, at most `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.all.iter().take(count).cloned().collect()
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all.clear();
    }
}

/// Cuts a name that is too long, at the end of a character.
fn cut(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_denials_are_one_entry_and_the_oldest_are_forgotten() {
        let log = AclLog::default();
        let deny = |object: &str, second| {
            let (object, user) = (object.to_owned(), "eve".to_owned());
            let denial = Denial { reason: Reason::Key, is_in_multi: false, object, user };
            log.add(denial, String::new(), Duration::from_secs(second));
        };
        let shown = || -> Vec<_> {
            log.newest(9).into_iter().map(|it| (it.id, it.denial.object, it.count)).collect()
        };
        deny("a", 0);
        deny("b", 1);
        deny("a", 60);
        assert_eq!(shown(), [(0, "a".into(), 2), (1, "b".into(), 1)]);
        deny("a", 121);
        assert_eq!(shown()[0], (2, "a".into(), 1));
        (0..200).for_each(|i| deny(&i.to_string(), 200));
        assert_eq!(log.newest(usize::MAX).len(), ENTRIES_MAX);
        deny(&"ä".repeat(1000), 300);
        assert_eq!(log.newest(1)[0].denial.object.len(), NAME_BYTES_MAX);
        log.clear();
        assert!(log.newest(9).is_empty());
    }
}

//! A command of the table, and one call of it.

use super::{
    edit::{FilterEdit, Strings},
    lookup::Lookup,
};
use crate::{protocol::Reply, session::Session, shared::Shared};
use std::ops::Range;

/// A property of a command, as `COMMAND INFO` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    Readonly = 1,
    Write = 2,
    Fast = 4,
    Admin = 8,
    Loading = 16,
    Stale = 32,
    NoAuth = 64,
    Dangerous = 128,
    /// Refused between `MULTI` and `EXEC`.
    NoMulti = 256,
    /// Run at once between `MULTI` and `EXEC`, where other commands are queued.
    NotQueued = 512,
}

impl Flag {
    pub(crate) const ALL: [(Flag, &str); 8] = [
        (Flag::Write, "write"),
        (Flag::Readonly, "readonly"),
        (Flag::Admin, "admin"),
        (Flag::Loading, "loading"),
        (Flag::Stale, "stale"),
        (Flag::Fast, "fast"),
        (Flag::NoAuth, "no_auth"),
        (Flag::NoMulti, "no_multi"),
    ];
}

/// The kind of data that a command is about, as `COMMAND DOCS` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Strings,
    Generic,
    Connection,
    Server,
    Cluster,
    Sketches,
    Bloom,
    Cuckoo,
    Hashfold,
    Transactions,
}

impl Group {
    /// Returns the name in `COMMAND DOCS`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Group::Strings => "string",
            Group::Generic => "generic",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Cluster => "cluster",
            Group::Sketches => "hyperloglog",
            Group::Bloom => "bf",
            Group::Cuckoo => "cf",
            Group::Hashfold => "module",
            Group::Transactions => "transactions",
        }
    }

    /// Returns the category of access rules.
    pub(crate) fn category(self) -> &'static str {
        match self {
            Group::Strings => "string",
            Group::Generic => "keyspace",
            Group::Connection => "connection",
            Group::Server | Group::Cluster => "server",
            Group::Sketches => "hyperloglog",
            Group::Bloom => "bloom",
            Group::Cuckoo => "cuckoo",
            Group::Hashfold => "hashfold",
            Group::Transactions => "transaction",
        }
    }
}

/// The places of the keys among the arguments: from `first` to `last` in steps; negative places count
/// from the end. No keys if `step` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) first: i32,
    pub(crate) last: i32,
    pub(crate) step: i32,
}

impl Keys {
    /// Returns the places of the keys of a call with so many arguments.
    pub(crate) fn places(self, arguments: usize) -> impl Iterator<Item = usize> {
        let at = |place: i32| if place < 0 { arguments as i32 + place } else { place };
        let end = at(self.last) + 1;
        let range = if self.step > 0 { at(self.first)..end.min(arguments as i32) } else { 0..0 };
        range.step_by(self.step.max(1) as usize).map(|place| place as usize)
    }

    /// Returns the number of keys of a call with so many arguments.
    pub(crate) fn count(self, arguments: usize) -> usize {
        self.places(arguments).count()
    }
}

/// The end of a job: changes the connection if need be, and writes the reply.
pub(crate) type JobReply = Box<dyn FnOnce(&mut Session, &mut Reply<'_>) + Send>;

/// Work for another thread, which returns the reply.
pub(crate) type Work = Box<dyn FnOnce() -> JobReply + Send>;

/// Answers a call at once.
pub(crate) type Now = fn(&mut Call<'_, '_>);

/// Begins the work of a call; an error is the reply.
pub(crate) type Begin = fn(&mut Call<'_, '_>) -> Result<Work, String>;

/// Begins a login; an error is the reply.
pub(crate) type BeginLogin = fn(&mut Call<'_, '_>) -> Result<Login, String>;

/// Reads the arguments of a lookup; an error is the reply.
pub(crate) type Parse = fn(&Arguments<'_>) -> Result<Lookup, String>;

/// Reads and changes strings; an error is the reply, and nothing is changed then.
pub(crate) type Change = fn(&mut StringCall<'_, '_>) -> Result<(), String>;

/// Reads and changes keys of any type; an error is the reply, and nothing is changed then.
pub(crate) type ChangeKeys = fn(&mut KeyCall<'_, '_>) -> Result<(), String>;

/// What a login waits for.
pub(crate) enum Login {
    /// Nothing: the reply is written.
    Done,
    /// A password is checked, which takes 20 ms: on threads that do nothing else, so that wrong passwords
    /// hinder only those who give passwords that are not known to be right.
    Check(Work),
    /// The password is known to be right; a version is opened.
    Open(Work),
}

/// What a command does.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// Writes its reply at once.
    Now(Now),
    /// Reads arguments, and is answered when its keys were looked up. An error is the reply.
    Lookup(Parse),
    /// Reads and changes keys of a map, on the map's thread, or of a data set in memory. Other data sets refuse it.
    Change(Change),
    /// Reads keys, and keeps what it has computed in a map or in memory that clients change. Elsewhere it is a lookup.
    ChangeOrLookup(Change, Parse),
    /// Reads and changes keys of any type: strings of a map or in memory, as above, and filters everywhere.
    Keys(ChangeKeys),
    /// Watches keys: those of a map on the map's thread.
    Watch,
    /// Does its work on another thread.
    Job(Begin),
    /// Logs in.
    Login(BeginLogin),
    /// Runs the commands that were queued since `MULTI`.
    Exec,
    /// Has subcommands.
    Group(&'static [Command]),
    /// Has subcommands, and writes its reply at once without one.
    GroupOr(Now, &'static [Command]),
}

/// A command, or the subcommand of one.
pub(crate) struct Command {
    /// The name in lower case.
    pub(crate) name: &'static str,
    /// The number of arguments with the command itself; the least number if it is negative.
    pub(crate) arity: i32,
    pub(crate) group: Group,
    pub(crate) summary: &'static str,
    pub(crate) keys: Keys,
    pub(crate) run: Run,
    /// The arguments, as `HELP` shows them.
    pub(crate) syntax: &'static str,
    flags: u16,
}

impl Command {
    /// Returns a command without keys and flags.
    pub(crate) const fn new(
        name: &'static str,
        arity: i32,
        group: Group,
        summary: &'static str,
        run: Run,
    ) -> Command {
        let keys = Keys { first: 0, last: 0, step: 0 };
        Command { name, arity, group, summary, keys, run, syntax: "", flags: 0 }
    }

    /// Sets the places of the keys.
    pub(crate) const fn keys(mut self, first: i32, last: i32, step: i32) -> Command {
        self.keys = Keys { first, last, step };
        self
    }

    /// Sets the arguments that `HELP` shows.
    pub(crate) const fn syntax(mut self, syntax: &'static str) -> Command {
        self.syntax = syntax;
        self
    }

    /// Adds a flag.
    pub(crate) const fn with(mut self, flag: Flag) -> Command {
        self.flags |= flag as u16;
        self
    }

    /// Marks a command that reads keys.
    pub(crate) const fn reads(self) -> Command {
        self.with(Flag::Readonly)
    }

    /// Marks a command that changes keys.
    pub(crate) const fn writes(self) -> Command {
        self.with(Flag::Write)
    }

    /// Marks a command whose time does not depend on the amount of data.
    pub(crate) const fn fast(self) -> Command {
        self.with(Flag::Fast)
    }

    /// Marks a command that is answered while data are opened.
    pub(crate) const fn always(self) -> Command {
        self.with(Flag::Loading).with(Flag::Stale)
    }

    /// Whether the command has a flag.
    pub(crate) fn is(&self, flag: Flag) -> bool {
        self.flags & flag as u16 != 0
    }

    /// Whether the command takes this number of arguments, itself included.
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }

    /// Returns the subcommands.
    pub(crate) fn subcommands(&self) -> &'static [Command] {
        match self.run {
            Run::Group(all) | Run::GroupOr(_, all) => all,
            _ => &[],
        }
    }

    /// Returns the categories of access rules that the command is in.
    pub(crate) fn categories(&self) -> impl Iterator<Item = &'static str> {
        let by_flag = [
            (self.is(Flag::Readonly), "read"),
            (self.is(Flag::Write), "write"),
            (self.is(Flag::Admin), "admin"),
            (self.is(Flag::Admin) || self.is(Flag::Dangerous), "dangerous"),
            (self.is(Flag::Fast), "fast"),
            (!self.is(Flag::Fast), "slow"),
        ];
        let named = by_flag.into_iter().filter_map(|(has, name)| has.then_some(name));
        named.chain([self.group.category()])
    }
}

/// The arguments of a call: places in the input of a connection. The first is the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a> {
    input: &'a [u8],
    places: &'a [Range<usize>],
}

/// Returns the places of the words of a line, for [`Arguments::new`].
#[cfg(test)]
pub(crate) fn word_places(line: &str) -> Vec<Range<usize>> {
    let place = |word: &str| {
        let start = word.as_ptr().addr() - line.as_ptr().addr();
        start..start + word.len()
    };
    line.split(' ').map(place).collect()
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(input: &'a [u8], places: &'a [Range<usize>]) -> Arguments<'a> {
        Arguments { input, places }
    }

    /// Returns the number of arguments, the command included.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns an argument.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub(crate) fn at(&self, i: usize) -> &'a [u8] {
        &self.input[self.places[i].clone()]
    }

    /// Returns an argument, if there are so many.
    pub(crate) fn get(&self, i: usize) -> Option<&'a [u8]> {
        self.places.get(i).map(|place| &self.input[place.clone()])
    }

    /// Returns the arguments from one on.
    pub(crate) fn from(&self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let input = self.input;
        self.places[first.min(self.places.len())..].iter().map(move |place| &input[place.clone()])
    }

    /// Returns the arguments from one on, as those of another command.
    pub(crate) fn rest(&self, first: usize) -> Arguments<'a> {
        Arguments { input: self.input, places: &self.places[first..] }
    }

    /// Returns the places of all arguments, those of keys without the name of their space: of `people:{4711}`,
    /// that of `4711`.
    pub(crate) fn places_inside(&self, keys: Keys) -> Vec<Range<usize>> {
        let mut places = self.places.to_vec();
        for at in keys.places(places.len()) {
            let key = inside(self.at(at));
            let end = places[at].end - 1;
            places[at] = end - key.len()..end;
        }
        places
    }

    /// Returns the arguments with other places in the same input.
    pub(crate) fn with_places<'b>(&self, places: &'b [Range<usize>]) -> Arguments<'b>
    where
        'a: 'b,
    {
        Arguments { input: self.input, places }
    }

    /// Returns an argument as text; bytes that are not UTF-8 become signs of replacement.
    pub(crate) fn text(&self, i: usize) -> String {
        String::from_utf8_lossy(self.at(i)).into_owned()
    }

    /// Whether an argument is a word, in any case.
    pub(crate) fn is(&self, i: usize, word: &str) -> bool {
        self.at(i).eq_ignore_ascii_case(word.as_bytes())
    }

    /// Returns an argument as a number.
    pub(crate) fn integer(&self, i: usize) -> Result<i64, String> {
        crate::protocol::number(self.at(i)).ok_or_else(|| super::NOT_AN_INTEGER.to_owned())
    }
}

/// Returns the key in one that names its space: `4711` in `people:{4711}`.
pub(crate) fn inside(key: &[u8]) -> &[u8] {
    let colon = memchr::memchr(b':', key).expect("the key names its space");
    &key[colon + 2..key.len() - 1]
}

/// One call of a command.
pub(crate) struct Call<'a, 'b> {
    pub(crate) shared: &'a Shared,
    pub(crate) session: &'a mut Session,
    pub(crate) arguments: Arguments<'a>,
    pub(crate) reply: &'a mut Reply<'b>,
}

/// One call of a command that changes strings: of a map, or of a data set in memory.
pub(crate) struct StringCall<'a, 'b> {
    /// The command's name, as errors give it.
    pub(crate) name: &'a str,
    pub(crate) arguments: Arguments<'a>,
    pub(crate) strings: &'a mut dyn Strings,
    pub(crate) reply: &'a mut Reply<'b>,
}

impl StringCall<'_, '_> {
    /// Replies `OK`.
    pub(crate) fn ok(&mut self) -> Result<(), String> {
        self.reply.simple("OK");
        Ok(())
    }

    /// Replies with an integer.
    pub(crate) fn integer(&mut self, number: i64) -> Result<(), String> {
        self.reply.integer(number);
        Ok(())
    }

    /// Replies with the value of a key, or null.
    pub(crate) fn value(&mut self, key: &[u8]) -> Result<(), String> {
        match self.strings.get(key)? {
            Some(value) => self.reply.bulk(&value.value),
            None => self.reply.null(),
        }
        Ok(())
    }
}

/// One call of a command that changes keys of any type.
pub(crate) struct KeyCall<'a, 'b> {
    /// The command's name, as errors give it.
    pub(crate) name: &'a str,
    pub(crate) arguments: Arguments<'a>,
    pub(crate) strings: &'a mut dyn Strings,
    pub(crate) filters: &'a mut FilterEdit,
    pub(crate) reply: &'a mut Reply<'b>,
}

impl KeyCall<'_, '_> {
    /// Replies `OK`.
    pub(crate) fn ok(&mut self) -> Result<(), String> {
        self.reply.simple("OK");
        Ok(())
    }

    /// Replies with an integer.
    pub(crate) fn integer(&mut self, number: i64) -> Result<(), String> {
        self.reply.integer(number);
        Ok(())
    }

    /// Whether there is a key, of whatever type.
    ///
    /// # Errors
    /// The reply: its value cannot be read.
    pub(crate) fn exists(&mut self, key: &[u8]) -> Result<bool, String> {
        Ok(self.filters.get(key).is_some() || self.strings.has(key)?)
    }
}

impl Call<'_, '_> {
    /// Replies `OK`.
    pub(crate) fn ok(&mut self) {
        self.reply.simple("OK");
    }
}

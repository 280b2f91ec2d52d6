//! All commands, found by name.

use super::{
    acl, client, cluster, config, connection, durable,
    entry::{Arguments, Command},
    expiry, filter, info, key, keyspace, lookup, number, rdb, sketch, sketch_debug, string,
    transaction, versions, wrong_arity,
};
use std::{collections::HashMap, sync::LazyLock};

/// All commands.
pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

/// Maximum size of a command's name, in bytes. Longer names are unknown.
const NAME_BYTES_MAX: usize = 64;

/// Maximum number of bytes of the arguments that the reply to an unknown command repeats.
const SHOWN_BYTES_MAX: usize = 128;

/// The commands by name. A command's number is its place in the list of all, subcommands included.
pub(crate) struct Table {
    all: Vec<&'static Command>,
    by_name: HashMap<&'static [u8], usize>,
    /// For each command the number of its first subcommand.
    first_subcommand: Vec<usize>,
    /// The name with that of the container: `client|list`.
    full_names: Vec<String>,
}

/// A command that was found, and its number.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) command: &'static Command,
    pub(crate) number: usize,
}

impl Table {
    fn new() -> Table {
        let families: [&'static [Command]; 21] = [
            lookup::COMMANDS,
            keyspace::COMMANDS,
            connection::COMMANDS,
            client::COMMANDS,
            cluster::COMMANDS,
            config::COMMANDS,
            info::COMMANDS,
            acl::COMMANDS,
            versions::COMMANDS,
            string::COMMANDS,
            number::COMMANDS,
            expiry::COMMANDS,
            key::COMMANDS,
            rdb::COMMANDS,
            sketch::COMMANDS,
            sketch_debug::COMMANDS,
            durable::COMMANDS,
            transaction::COMMANDS,
            filter::BLOOM,
            filter::CUCKOO,
            filter::EPOCHS,
        ];
        let mut table = Table {
            all: families.into_iter().flatten().collect(),
            by_name: HashMap::new(),
            first_subcommand: Vec::new(),
            full_names: Vec::new(),
        };
        table.all.sort_by_key(|command| command.name);
        let top = table.all.clone();
        for (number, command) in top.iter().enumerate() {
            table.by_name.insert(command.name.as_bytes(), number);
            table.full_names.push(command.name.to_owned());
        }
        for command in &top {
            table.first_subcommand.push(table.all.len());
            for subcommand in command.subcommands() {
                table.all.push(subcommand);
                table.full_names.push(format!("{}|{}", command.name, subcommand.name));
            }
        }
        table
    }

    /// Returns all commands without subcommands, in the order of their names.
    pub(crate) fn top(&self) -> &[&'static Command] {
        &self.all[..self.first_subcommand.len()]
    }

    /// Returns the number of commands with their subcommands.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the name of a command, behind that of its container: `client|list`.
    pub(crate) fn full_name(&self, number: usize) -> &str {
        &self.full_names[number]
    }

    /// Returns the command with this number.
    pub(crate) fn command(&self, number: usize) -> &'static Command {
        self.all[number]
    }

    /// Returns the number of the command with this name: `get`, `client|list`.
    pub(crate) fn number(&self, full_name: &str) -> Option<usize> {
        let full_name = full_name.to_ascii_lowercase();
        self.full_names.iter().position(|name| *name == full_name)
    }

    /// Returns the numbers of a command and of its subcommands.
    pub(crate) fn numbers_with_subcommands(&self, number: usize) -> impl Iterator<Item = usize> {
        let subcommands = match self.first_subcommand.get(number) {
            Some(first) => *first..*first + self.all[number].subcommands().len(),
            None => 0..0,
        };
        [number].into_iter().chain(subcommands)
    }

    /// Returns the command with this full name in any case: `get`, `client|list`.
    pub(crate) fn by_full_name(&self, name: &[u8]) -> Option<Found> {
        let Some(bar) = memchr::memchr(b'|', name) else { return self.by_name(name) };
        let number = self.number(std::str::from_utf8(name).ok()?)?;
        (bar <= NAME_BYTES_MAX).then(|| Found { command: self.all[number], number })
    }

    /// Returns the command with this name, without its subcommands.
    pub(crate) fn by_name(&self, name: &[u8]) -> Option<Found> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let number = *self.by_name.get(&*lower)?;
        Some(Found { command: self.all[number], number })
    }

    /// Returns the command that is called.
    ///
    /// # Errors
    /// The reply: the command is unknown, or takes another number of arguments.
    pub(crate) fn find(&self, arguments: &Arguments<'_>) -> Result<Found, String> {
        let Some(found) = self.by_name(arguments.at(0)) else {
            return Err(unknown(arguments));
        };
        let found = self.subcommand(found, arguments)?;
        match found.command.takes(arguments.len()) {
            true => Ok(found),
            false => Err(wrong_arity(self.full_name(found.number))),
        }
    }

    fn subcommand(&self, found: Found, arguments: &Arguments<'_>) -> Result<Found, String> {
        let subcommands = found.command.subcommands();
        if subcommands.is_empty() {
            return Ok(found);
        }
        // Without a subcommand, the container itself is called, which may have too few arguments.
        let Some(name) = arguments.get(1) else { return Ok(found) };
        let is_it = |command: &Command| name.eq_ignore_ascii_case(command.name.as_bytes());
        match subcommands.iter().position(is_it) {
            Some(i) => {
                let number = self.first_subcommand[found.number] + i;
                Ok(Found { command: &subcommands[i], number })
            }
            None => Err(format!(
                "ERR unknown subcommand '{:.128}'. Try {} HELP.",
                String::from_utf8_lossy(name),
                found.command.name.to_ascii_uppercase()
            )),
        }
    }
}

/// Returns the reply to a command that is not in the table.
fn unknown(arguments: &Arguments<'_>) -> String {
    let name = String::from_utf8_lossy(arguments.at(0)).into_owned();
    let mut shown = String::new();
    for argument in arguments.from(1) {
        if shown.len() >= SHOWN_BYTES_MAX {
            break;
        }
        let room = SHOWN_BYTES_MAX - shown.len();
        let argument = String::from_utf8_lossy(argument);
        shown.extend(["'"]);
        shown.extend(argument.chars().take(room));
        shown.push_str("' ");
    }
    format!("ERR unknown command '{name:.128}', with args beginning with: {shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the arguments of a call, and finds its command.
    fn find(words: &[&str]) -> Result<String, String> {
        let input = words.concat();
        let mut start = 0;
        let places: Vec<_> = words
            .iter()
            .map(|word| {
                let place = start..start + word.len();
                start = place.end;
                place
            })
            .collect();
        let found = TABLE.find(&Arguments::new(input.as_bytes(), &places))?;
        assert!(std::ptr::eq(TABLE.command(found.number), found.command));
        Ok(TABLE.full_name(found.number).to_owned())
    }

    #[test]
    fn commands_are_found_in_any_case() {
        assert_eq!(find(&["GeT", "k"]), Ok("get".into()));
        assert_eq!(find(&["CLIENT", "setname", "me"]), Ok("client|setname".into()));
        assert_eq!(
            TABLE.number("client|setname").map(|i| TABLE.full_name(i)),
            Some("client|setname")
        );
    }

    #[test]
    fn wrong_calls_get_the_replies_of_redis() {
        let no_arguments = "ERR wrong number of arguments for 'get' command";
        assert_eq!(find(&["get"]), Err(no_arguments.into()));
        let unknown = "ERR unknown command 'nope', with args beginning with: 'a' 'b' ";
        assert_eq!(find(&["nope", "a", "b"]), Err(unknown.into()));
        let subcommand = "ERR unknown subcommand 'nope'. Try CLIENT HELP.";
        assert_eq!(find(&["client", "nope"]), Err(subcommand.into()));
        let arity = "ERR wrong number of arguments for 'client|setname' command";
        assert_eq!(find(&["client", "setname"]), Err(arity.into()));
        assert!(find(&["x".repeat(100).as_str()]).unwrap_err().starts_with("ERR unknown command"));
    }

    #[test]
    fn names_are_lower_case_and_unique() {
        let mut names: Vec<&str> = (0..TABLE.count()).map(|i| TABLE.full_name(i)).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| *name == name.to_ascii_lowercase()));
    }
}

//! `HELP`, a subcommand of each command that has subcommands.

use super::{
    entry::{Call, Command, Group, Run},
    table::TABLE,
};

/// The subcommand that lists the others.
pub(super) const HELP: Command =
    Command::new("help", 2, Group::Server, "Print this help.", Run::Now(help)).always();

fn help(call: &mut Call<'_, '_>) {
    let Some(found) = TABLE.by_name(call.arguments.at(0)) else { return };
    let (container, name) = (found.command, found.command.name.to_ascii_uppercase());
    let mut lines =
        vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    if container.takes(1) {
        lines.extend(["(no subcommand)".to_owned(), format!("    {}", container.summary)]);
    }
    for subcommand in container.subcommands() {
        let (name, words) = (subcommand.name.to_ascii_uppercase(), subcommand.syntax);
        lines.push(format!("{name} {words}").trim_end().to_owned());
        lines.push(format!("    {}", subcommand.summary));
    }
    call.reply.array(lines.len());
    lines.iter().for_each(|line| call.reply.simple(line));
}

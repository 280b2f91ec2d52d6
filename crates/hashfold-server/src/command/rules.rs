//! Which commands a user may call, by rules such as `+@all -flushall`.

use super::table::{TABLE, Table};

/// A set of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandSet {
    is_in: Vec<bool>,
    /// The rules that made the set, for `ACL LIST`.
    rules: String,
}

impl CommandSet {
    /// Returns the set that rules make, one after the other, from no commands: `+NAME` and `-NAME` of
    /// commands, `NAME|SUBCOMMAND`, `@CATEGORY` and `@all`; `allcommands` and `nocommands`.
    ///
    /// # Errors
    /// What is wrong with the first rule that is not understood.
    pub(crate) fn of<'r>(rules: impl IntoIterator<Item = &'r str>) -> Result<CommandSet, String> {
        let mut set = CommandSet { is_in: vec![false; TABLE.count()], rules: String::new() };
        for rule in rules {
            let (adds, name) = match (rule.strip_prefix('+'), rule.strip_prefix('-'), rule) {
                (_, _, "allcommands") => (true, "@all"),
                (_, _, "nocommands") => (false, "@all"),
                (Some(name), ..) => (true, name),
                (_, Some(name), _) => (false, name),
                _ => {
                    return Err(format!(
                        "rule '{rule}': expected + or - and a command or @category"
                    ));
                }
            };
            for number in numbers(&TABLE, name)
                .ok_or_else(|| format!("rule '{rule}': no such command or category"))?
            {
                set.is_in[number] = adds;
            }
            set.rules.push_str(if set.rules.is_empty() { "" } else { " " });
            set.rules.push_str(rule);
        }
        Ok(set)
    }

    /// Whether a command is in the set.
    #[inline]
    pub(crate) fn contains(&self, number: usize) -> bool {
        self.is_in[number]
    }

    /// Returns the rules that made the set.
    pub(crate) fn rules(&self) -> &str {
        if self.rules.is_empty() { "-@all" } else { &self.rules }
    }
}

/// Returns the numbers of the commands that a rule is about.
fn numbers(table: &Table, name: &str) -> Option<Vec<usize>> {
    let Some(category) = name.strip_prefix('@') else {
        let number = table.number(name)?;
        return Some(table.numbers_with_subcommands(number).collect());
    };
    let is_in = |number: &usize| {
        category.eq_ignore_ascii_case("all")
            || table.command(*number).categories().any(|it| it.eq_ignore_ascii_case(category))
    };
    let found: Vec<usize> = (0..table.count()).filter(is_in).collect();
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(rules: &[&str], command: &str) -> bool {
        CommandSet::of(rules.iter().copied()).unwrap().contains(TABLE.number(command).unwrap())
    }

    #[test]
    fn rules_apply_one_after_the_other() {
        assert!(!allows(&[], "get"));
        assert!(allows(&["+@all"], "get"));
        assert!(allows(&["+@all", "-@read", "+get"], "get"));
        assert!(!allows(&["+@all", "-@read", "+get"], "mget"));
        assert!(allows(&["+client"], "client|list"));
        assert!(!allows(&["+client", "-client|list"], "client|list"));
        assert!(allows(&["allcommands"], "ping"));
        assert!(!allows(&["+@all", "-@admin"], "config|set"));
    }

    #[test]
    fn rules_that_are_not_understood_are_named() {
        for wrong in ["get", "+nope", "-@nope", "+client|nope", ""] {
            let error = CommandSet::of(["+@all", wrong]).unwrap_err();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }
}

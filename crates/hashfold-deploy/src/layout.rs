//! The names of all objects of a remote, and the rules for the names in them.
//!
//! `docs/formats/deploy.md` has the same table:
//!
//! | object                                 | content                                              |
//! |----------------------------------------|------------------------------------------------------|
//! | `stores/S/tables/ID/NAME`              | the files of a table, byte for byte as in a store    |
//! | `stores/S/tables/ID/TREE`              | their hashes; written after them                     |
//! | `stores/S/versions/NUMBER.sig`         | its signature, if it has one; written before it      |
//! | `stores/S/versions/NUMBER`             | the version file; written after all of its tables    |
//! | `groups/G/CURRENT`                     | the pointer: which versions are current              |
//! | `groups/G/ready/NODE`                  | what one server has ready                            |

use crate::error::{Error, Result};

/// The name of a group whose name is not given.
pub const GROUP_DEFAULT: &str = "main";

/// The name of a table's block tree.
pub(crate) const TREE: &str = "TREE";

/// Maximum length of a name, in bytes.
const NAME_SIZE_MAX: usize = 64;

/// Refuses a name of a store, a group or a node that could lead to another place: only letters,
/// digits, `-`, `_` and `.` are accepted, and the first character is a letter or a digit.
///
/// # Errors
/// `Argument`; `what` says which name it is.
pub fn check_name(what: &'static str, name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins && name.len() <= NAME_SIZE_MAX && name.bytes().all(is_plain) {
        true => Ok(()),
        false => {
            let expected = format!(
                "at most {NAME_SIZE_MAX} letters, digits, '-', '_' and '.', the first one a letter \
                 or a digit"
            );
            Err(Error::argument(what, expected, format!("{:?}", preview(name))))
        }
    }
}

/// Returns the first characters of a name from a stranger.
fn preview(name: &str) -> String {
    name.chars().take(NAME_SIZE_MAX).collect()
}

/// Returns the name below which all objects of all stores are.
pub(crate) const STORES: &str = "stores";

pub(crate) fn versions(store: &str) -> String {
    format!("{STORES}/{store}/versions")
}

pub(crate) fn version(store: &str, number: u64) -> String {
    format!("{STORES}/{store}/versions/{number:010}")
}

/// Returns the name of the signature of a version.
pub(crate) fn signature(store: &str, number: u64) -> String {
    format!("{}.sig", version(store, number))
}

/// Returns the number in the name of a version's object, as [`version`] made it.
pub(crate) fn version_number(name: &str) -> Option<u64> {
    let (_, last) = name.rsplit_once('/')?;
    let number = last.parse().ok()?;
    (format!("{number:010}") == last).then_some(number)
}

/// Returns the number in the name of a signature, as [`signature`] made it.
pub(crate) fn signature_number(name: &str) -> Option<u64> {
    version_number(name.strip_suffix(".sig")?)
}

pub(crate) fn tables(store: &str) -> String {
    format!("{STORES}/{store}/tables")
}

pub(crate) fn table_file(store: &str, table: u64, file: &str) -> String {
    format!("{STORES}/{store}/tables/{table:016x}/{file}")
}

/// Returns the table in the name of one of its objects, as [`table_file`] made it.
pub(crate) fn table_of(name: &str) -> Option<u64> {
    let mut parts = name.rsplit('/');
    let (_, table, kind) = (parts.next()?, parts.next()?, parts.next()?);
    let number = u64::from_str_radix(table, 16).ok()?;
    (kind == "tables" && format!("{number:016x}") == table).then_some(number)
}

/// Returns the name below which the objects of all groups are.
pub(crate) const GROUPS: &str = "groups";

/// Name of the object with the topology of the cluster.
pub(crate) const TOPOLOGY: &str = "TOPOLOGY";

pub(crate) fn pointer(group: &str) -> String {
    format!("{GROUPS}/{group}/CURRENT")
}

/// Returns the group in the name of its pointer, as [`pointer`] made it.
pub(crate) fn group_of_pointer(name: &str) -> Option<&str> {
    let group = name.strip_prefix(GROUPS)?.strip_prefix('/')?.strip_suffix("/CURRENT")?;
    check_name("group", group).is_ok().then_some(group)
}

pub(crate) fn ready(group: &str) -> String {
    format!("groups/{group}/ready")
}

pub(crate) fn ready_node(group: &str, node: &str) -> String {
    format!("groups/{group}/ready/{node}")
}

/// Returns the name of an object that a check of the remote writes and removes.
pub(crate) fn probe(nonce: &str) -> String {
    format!("probes/{nonce}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let long = "x".repeat(NAME_SIZE_MAX + 1);
        for name in ["", ".", "..", "../x", "a/b", "/a", "a\\b", "a b", "a\0", "-a", "ä", &long] {
            assert!(check_name("store", name).is_err(), "{name:?}");
        }
        for name in ["people", "a", "A-1_b.c", "2024-11-24", &long[1..]] {
            check_name("store", name).unwrap();
        }
    }

    #[test]
    fn tables_and_groups_are_found_by_the_names_of_their_objects() {
        assert_eq!(table_of(&table_file("people", 0xab, "TREE")), Some(0xab));
        for name in ["stores/people/tables/ab/TREE", "stores/people/versions/0000000041", "TREE"] {
            assert_eq!(table_of(name), None, "{name}");
        }
        assert_eq!(group_of_pointer(&pointer("main")), Some("main"));
        for name in ["groups/main/ready/a", "groups/../CURRENT", "groups/CURRENT", "main/CURRENT"] {
            assert_eq!(group_of_pointer(name), None, "{name}");
        }
    }

    #[test]
    fn a_version_is_found_by_the_name_of_its_object() {
        assert_eq!(version_number(&version("people", 41)), Some(41));
        let signature = signature("people", 41);
        assert_eq!(signature_number(&signature), Some(41));
        assert_eq!(signature_number(&version("people", 41)), None);
        let others = ["stores/people/versions/41", "stores/people/versions/0000000041.new", "41"];
        for name in others.into_iter().chain([signature.as_str()]) {
            assert_eq!(version_number(name), None, "{name}");
        }
    }
}

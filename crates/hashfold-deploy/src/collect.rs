//! Retention in a remote: removes old versions, and the tables that only they have.
//!
//! ```text
//! pointers of all groups, list of versions → version files of old versions → pointers and list again
//!     → tables that they had and no other version has: the block tree first, then the files
//! ```
//!
//! A version file goes before its tables, so that a version which is in the remote is complete. A block
//! tree goes before the files that it describes, so that a push which finds it finds them, too.

use crate::{
    error::{Error, ErrorKind, Result},
    layout::{self, TREE},
    remote::Remote,
    swap::read_pointer,
};
use hashfold::{store::VersionInfo, work::Watch};
use std::collections::{BTreeMap, BTreeSet};

/// What [`collect`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectOptions {
    /// Number of the newest versions that stay, at least 1, besides those that a group needs. Versions that a
    /// group has marked bad are not among them.
    pub keep: usize,
    /// Whether tables and signatures are removed that no version has, as an interrupted push or an interrupted
    /// collection leaves them. A push that runs at the same time would lose them.
    pub orphans: bool,
    /// Whether nothing is removed, only counted.
    pub dry_run: bool,
}

impl Default for CollectOptions {
    fn default() -> CollectOptions {
        CollectOptions { keep: 3, orphans: false, dry_run: false }
    }
}

/// The result of removing versions from a remote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Numbers of the versions that were removed, in order.
    pub versions: Vec<u64>,
    /// Numbers of the versions that stay, in order.
    pub kept: Vec<u64>,
    /// Number of signatures that no version had and that were removed.
    pub signatures: u64,
    /// Number of tables that were removed.
    pub tables: u64,
    /// Bytes of the removed tables.
    pub bytes: u64,
}

/// The objects of a table: names and sizes.
type Objects = Vec<(String, u64)>;

/// Removes old versions of a store from a remote, and the tables that no other version has. The newest
/// versions stay that no group has marked bad, and those that the pointer of any group names as current, as next,
/// as pinned, or as the set that a rollback would make current. Servers that have a removed version go on serving
/// it.
///
/// After an interruption, the same call removes the other old versions; tables and signatures of versions that
/// are gone already need [`CollectOptions::orphans`].
///
/// # Errors
/// `Argument` if no version would stay; damage of a pointer or of a version file that stays: nothing is
/// removed then that may be needed; `Conflict` if a version was pushed meanwhile that needs a removed table, or
/// was published meanwhile and is removed: it must be pushed again.
pub fn collect(
    remote: &Remote,
    store: &str,
    options: &CollectOptions,
    watch: &Watch,
) -> Result<Collected> {
    layout::check_name("store", store)?;
    if options.keep == 0 {
        return Err(Error::argument("versions to keep", "at least 1", 0));
    }
    let all = remote.versions(store)?;
    let Groups { needed, bad } = groups(remote, store)?;
    // A bad version must not take the place of a good one.
    let good = all.iter().rev().filter(|number| !bad.contains(number));
    let first_kept = good.take(options.keep).last().copied();
    let is_old = |number: &&u64| {
        let is_kept = |first| **number >= first && !bad.contains(number);
        // If all are bad, all stay: one must.
        !needed.contains(number) && !first_kept.is_none_or(is_kept)
    };
    let old: Vec<u64> = all.iter().filter(is_old).copied().collect();
    let lone = if options.orphans { lone_signatures(remote, store, &all)? } else { Vec::new() };
    let kept: Vec<u64> = all.into_iter().filter(|number| !old.contains(number)).collect();
    // Old version files are read before anything is removed: they name the tables.
    let mut candidates = BTreeSet::new();
    for number in &old {
        candidates.extend(tables_of(&remote.version(store, *number)?));
    }
    let used = used(remote, store, &kept)?;
    let objects = objects_of_tables(remote, store)?;
    let is_removed =
        |table: &u64| !used.contains(table) && (options.orphans || candidates.contains(table));
    let removed: BTreeMap<u64, Objects> =
        objects.into_iter().filter(|(table, _)| is_removed(table)).collect();
    let sizes = removed.values().flatten().map(|(_, size)| size);
    let collected = Collected {
        versions: old,
        kept,
        signatures: lone.len() as u64,
        tables: removed.len() as u64,
        bytes: sizes.sum(),
    };
    if !options.dry_run {
        remove(remote, store, &collected.versions, &removed, watch)?;
        remove_signatures(remote, store, &lone, watch)?;
    }
    Ok(collected)
}

/// What the pointers of all groups say about the versions of a store.
#[derive(Default)]
struct Groups {
    /// The numbers of those that a group needs.
    needed: BTreeSet<u64>,
    /// The numbers of those that a group has marked bad.
    bad: BTreeSet<u64>,
}

fn groups(remote: &Remote, store: &str) -> Result<Groups> {
    let Groups { mut needed, mut bad } = Groups::default();
    let listed = remote.objects().list(layout::GROUPS)?;
    for group in listed.iter().filter_map(|object| layout::group_of_pointer(&object.name)) {
        let Some(seen) = read_pointer(remote, group, None)? else { continue };
        // During a trial, too: after it, a rollback needs the versions before the current ones.
        let sets = [&seen.pointer.stores, &seen.pointer.next];
        let sets = sets.into_iter().chain(seen.pointer.rollback_target());
        needed.extend(sets.filter_map(|set| set.get(store)).map(|target| target.version));
        let pinned = seen.pointer.pinned.iter().filter(|pinned| pinned.store == store);
        needed.extend(pinned.map(|pinned| pinned.target.version));
        let marked = seen.pointer.bad.iter().filter(|bad| bad.store == store);
        bad.extend(marked.map(|bad| bad.target.version));
    }
    Ok(Groups { needed, bad })
}

/// Returns the numbers of the signatures that no version has.
fn lone_signatures(remote: &Remote, store: &str, versions: &[u64]) -> Result<Vec<u64>> {
    let listed = remote.objects().list(&layout::versions(store))?;
    let numbers = listed.iter().filter_map(|object| layout::signature_number(&object.name));
    let mut lone: Vec<u64> = numbers.filter(|number| !versions.contains(number)).collect();
    lone.sort_unstable();
    Ok(lone)
}

/// Removes signatures that no version has.
fn remove_signatures(remote: &Remote, store: &str, lone: &[u64], watch: &Watch) -> Result<()> {
    // A version may have been pushed since they were listed.
    let before = remote.versions(store)?;
    let lone: Vec<u64> = lone.iter().copied().filter(|number| !before.contains(number)).collect();
    for number in &lone {
        watch.add(0)?;
        remote.objects().remove(&layout::signature(store, *number))?;
    }
    let after = if lone.is_empty() { before } else { remote.versions(store)? };
    match lone.iter().find(|number| after.contains(number)) {
        None => Ok(()),
        Some(number) => {
            let what = format!("the signature of version {number}, which was pushed meanwhile");
            Err(Error::new(ErrorKind::Conflict { what })
                .at(remote.objects().place(&layout::versions(store))))
        }
    }
}

fn tables_of(info: &VersionInfo) -> impl Iterator<Item = u64> {
    info.layers().map(|layer| layer.table)
}

/// Returns the tables of some versions.
fn used(remote: &Remote, store: &str, numbers: &[u64]) -> Result<BTreeSet<u64>> {
    let mut used = BTreeSet::new();
    for number in numbers {
        used.extend(tables_of(&remote.version(store, *number)?));
    }
    Ok(used)
}

/// Returns the objects of all tables of a store, by table.
fn objects_of_tables(remote: &Remote, store: &str) -> Result<BTreeMap<u64, Objects>> {
    let mut tables: BTreeMap<u64, Objects> = BTreeMap::new();
    for object in remote.objects().list(&layout::tables(store))? {
        if let Some(table) = layout::table_of(&object.name) {
            tables.entry(table).or_default().push((object.name, object.size));
        }
    }
    Ok(tables)
}

/// Fails if a group needs one of the versions that were removed: its pointer has changed since it was read.
fn check_unneeded(remote: &Remote, store: &str, versions: &[u64]) -> Result<()> {
    let needed = groups(remote, store)?.needed;
    match versions.iter().find(|number| needed.contains(number)) {
        None => Ok(()),
        Some(number) => {
            let what = format!("version {number}, which a group needs now, was removed");
            let place = remote.objects().place(&layout::version(store, *number));
            Err(Error::new(ErrorKind::Conflict { what }).at(place))
        }
    }
}

/// Removes versions, then tables.
fn remove(
    remote: &Remote,
    store: &str,
    versions: &[u64],
    tables: &BTreeMap<u64, Objects>,
    watch: &Watch,
) -> Result<()> {
    let objects = remote.objects();
    for number in versions {
        watch.add(0)?;
        objects.remove(&layout::version(store, *number))?;
        objects.remove(&layout::signature(store, *number))?;
    }
    check_unneeded(remote, store, versions)?;
    // A version that was pushed meanwhile may have a table in common with an old one.
    let used_now = || used(remote, store, &remote.versions(store)?);
    let used_before = used_now()?;
    for (_, files) in tables.iter().filter(|(table, _)| !used_before.contains(*table)) {
        let is_tree = |name: &str| name.ends_with(TREE);
        let (trees, others): (Vec<_>, Vec<_>) = files.iter().partition(|(name, _)| is_tree(name));
        for (name, size) in trees.into_iter().chain(others) {
            objects.remove(name)?;
            watch.add(*size)?;
        }
    }
    let used_after = used_now()?;
    match used_after.difference(&used_before).find(|table| tables.contains_key(*table)) {
        None => Ok(()),
        Some(table) => {
            let what = format!("table {table:016x}, which a version has that was pushed meanwhile");
            Err(Error::new(ErrorKind::Conflict { what })
                .at(objects.place(&layout::versions(store))))
        }
    }
}

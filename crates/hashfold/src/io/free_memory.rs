//! The memory that is free for the page cache.

use std::{fs, path::Path};

/// The kernel's file of memory figures.
const MACHINE: &str = "/proc/meminfo";
/// The kernel's list of the control groups of this process.
const OWN_GROUPS: &str = "/proc/self/cgroup";
/// The usual places of control groups of version 2, and of those of version 1 that limit memory.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];

/// Returns the memory that files can take without displacing anything, in bytes: what the machine has
/// left, or the process's control groups if that is less. Pages of files count as free: the system
/// gives them up. Returns 0 if it is unknown.
pub(super) fn free_memory() -> u64 {
    let machine = fs::read_to_string(MACHINE).ok().and_then(|text| available(&text));
    let groups = fs::read_to_string(OWN_GROUPS);
    let groups = groups.map_or(u64::MAX, |text| free_in_groups(&text, GROUPS.map(Path::new)));
    machine.unwrap_or(0).min(groups)
}

/// Returns the field `MemAvailable`.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns what is left in the control groups of a process and in all groups around them. `homes` are
/// the folders of the groups of version 2 and of version 1.
fn free_in_groups(own_groups: &str, homes: [&Path; 2]) -> u64 {
    own_groups.lines().map(|line| free_in_own_group(line, homes)).min().unwrap_or(u64::MAX)
}

/// Returns what is left in the control group of a line `number:controllers:/path`, and in all groups
/// around it; [`u64::MAX`] if it does not limit memory.
fn free_in_own_group(line: &str, [second, first]: [&Path; 2]) -> u64 {
    let Some((number, (controllers, path))) =
        line.split_once(':').and_then(|(number, rest)| Some((number, rest.split_once(":/")?)))
    else {
        return u64::MAX;
    };
    let (home, files) = match (number, controllers) {
        ("0", "") => (second, SECOND),
        _ if controllers.split(',').any(|name| name == "memory") => (first, FIRST),
        _ => return u64::MAX,
    };
    let all = Path::new(path).ancestors();
    all.map(|group| free_in_group(&home.join(group), files)).min().unwrap_or(u64::MAX)
}

/// The names of a control group's files: its limit, and the memory that it takes, in bytes.
type GroupFiles = [&'static str; 2];

/// The files of control groups of version 2.
const SECOND: GroupFiles = ["memory.max", "memory.current"];
/// The files of control groups of version 1.
const FIRST: GroupFiles = ["memory.limit_in_bytes", "memory.usage_in_bytes"];

/// Returns what is left in one control group, or [`u64::MAX`] if it has no limit.
fn free_in_group(group: &Path, [limit, used]: GroupFiles) -> u64 {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name).and_then(|text| text.trim().parse().ok());
    let (Some(limit), Some(used)) = (number(limit), number(used)) else {
        return u64::MAX;
    };
    let files = read("memory.stat").map_or(0, |text| pages_of_files(&text));
    u64::saturating_sub(limit, u64::saturating_sub(used, files))
}

/// Returns the memory of a group that holds pages of files, those of the groups inside it included.
fn pages_of_files(stat: &str) -> u64 {
    let sum = |names: [&str; 2]| {
        let fields = stat.lines().filter_map(|line| line.split_once(' '));
        let files = fields.filter(|(name, _)| names.contains(name));
        files.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum::<u64>()
    };
    // Only version 1 has totals; its other fields leave out the groups inside.
    sum(["active_file", "inactive_file"]).max(sum(["total_active_file", "total_inactive_file"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn the_machine_has_free_memory() {
        assert!(free_memory() > 0);
    }

    #[test]
    fn text_of_the_kernel_is_understood() {
        let text = "MemTotal:  24 kB\nMemAvailable:    12345 kB\nBuffers: 1 kB\n";
        assert_eq!(available(text), Some(12_345 * 1024));
        assert_eq!(available("MemTotal: 24 kB\n"), None);
        assert_eq!(pages_of_files("anon 5\nactive_file 20\ninactive_file 300\n"), 320);
        assert_eq!(pages_of_files("active_file 1\ntotal_active_file 9\n"), 9);
    }

    /// Writes files as the kernel makes them, each with its path.
    #[expect(clippy::disallowed_methods, reason = "files as the kernel makes them")]
    fn put(home: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_group_has_what_its_limit_leaves() {
        let folder = TempDir::new().unwrap();
        let free = || free_in_group(folder.path(), SECOND);
        assert_eq!(free(), u64::MAX);
        put(folder.path(), &[("memory.current", "700\n"), ("memory.max", "max\n")]);
        assert_eq!(free(), u64::MAX);
        put(folder.path(), &[("memory.max", "1000\n")]);
        assert_eq!(free(), 300);
        put(folder.path(), &[("memory.stat", "anon 500\nactive_file 100\ninactive_file 60\n")]);
        assert_eq!(free(), 460);
    }

    /// Issue 14: groups of version 1 were ignored.
    #[test]
    fn groups_of_both_versions_limit_memory() {
        let folder = TempDir::new().unwrap();
        let homes = ["second", "first"].map(|name| folder.path().join(name));
        let free = |text: &str| free_in_groups(text, [&homes[0], &homes[1]]);
        put(&homes[0], &[("a/memory.max", "50\n"), ("a/memory.current", "20\n")]);
        let inner = [("b/c/memory.limit_in_bytes", "90\n"), ("b/c/memory.usage_in_bytes", "10\n")];
        put(&homes[1], &inner);
        assert_eq!(free("0::/a\n"), 30);
        assert_eq!(free("4:cpu,memory:/b/c\n3:cpu:/a\n"), 80);
        assert_eq!(free("4:memory:/b/c\n0::/a\n"), 30);
        assert_eq!(free("3:cpu:/b/c\n1:name=systemd:/b/c\nnonsense\n"), u64::MAX);
        let outer = [("b/memory.limit_in_bytes", "60\n"), ("b/memory.usage_in_bytes", "50\n")];
        put(&homes[1], &outer);
        assert_eq!(free("4:memory:/b/c\n"), 10, "the group around is smaller");
    }
}

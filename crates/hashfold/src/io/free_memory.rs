//! The memory that is free for the page cache.

use std::{fs, path::Path};

/// Where the kernel tells about the memory of the machine.
const MACHINE: &str = "/proc/meminfo";
/// Where the kernel tells the control groups of this process.
const OWN_GROUPS: &str = "/proc/self/cgroup";
/// The usual place of control groups, of version 2.
const GROUPS: &str = "/sys/fs/cgroup";

/// Returns the memory that files can take without displacing anything, in bytes: what the machine has
/// left, or the process's control groups if that is less. Pages of files count as free: the system
/// gives them up. Returns 0 if the system does not tell.
pub(super) fn free_memory() -> u64 {
    let machine = fs::read_to_string(MACHINE).ok().and_then(|text| available(&text));
    let groups = fs::read_to_string(OWN_GROUPS).ok().map_or(u64::MAX, |text| free_in_groups(&text));
    machine.unwrap_or(0).min(groups)
}

/// Returns the field `MemAvailable`.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns what is left in a control group and in all groups around it.
fn free_in_groups(own_groups: &str) -> u64 {
    let own = own_groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let Some(own) = own else { return u64::MAX };
    let all = Path::new(own).ancestors();
    all.map(|group| free_in_group(&Path::new(GROUPS).join(group))).min().unwrap_or(u64::MAX)
}

/// Returns what is left in one control group, or [`u64::MAX`] if it has no limit.
fn free_in_group(group: &Path) -> u64 {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name).and_then(|text| text.trim().parse().ok());
    let (Some(limit), Some(used)) = (number("memory.max"), number("memory.current")) else {
        return u64::MAX;
    };
    let files = read("memory.stat").map_or(0, |text| pages_of_files(&text));
    u64::saturating_sub(limit, u64::saturating_sub(used, files))
}

/// Returns the memory of a group that holds pages of files.
fn pages_of_files(stat: &str) -> u64 {
    let fields = stat.lines().filter_map(|line| line.split_once(' '));
    let files = fields.filter(|(name, _)| ["active_file", "inactive_file"].contains(name));
    files.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum()
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
        assert_eq!(free_in_groups("4:memory:/a\n"), u64::MAX);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "files as the kernel makes them")]
    fn a_group_has_what_its_limit_leaves() {
        let folder = TempDir::new().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(free_in_group(folder.path()), u64::MAX);
        put("memory.current", "700\n");
        put("memory.max", "max\n");
        assert_eq!(free_in_group(folder.path()), u64::MAX);
        put("memory.max", "1000\n");
        assert_eq!(free_in_group(folder.path()), 300);
        put("memory.stat", "anon 500\nactive_file 100\ninactive_file 60\n");
        assert_eq!(free_in_group(folder.path()), 460);
    }
}

//! Memory limits: a control group that bounds the memory of one process, heap and page cache together.

use crate::Result;
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Folders of the memory controller, of version 1 and of version 2 of control groups.
const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// A control group without processes, which is removed on drop.
#[derive(Debug)]
pub struct Group {
    pub folder: PathBuf,
}

impl Group {
    /// Makes a group below the root of the memory controller.
    ///
    /// # Errors
    /// There is no memory controller, or only root may make groups.
    pub fn create() -> Result<Group> {
        let name = format!("hashfold-peers-{}", std::process::id());
        let parent = if Path::new(V1).exists() { V1 } else { V2 };
        if parent == V2 {
            write(&Path::new(V2).join("cgroup.subtree_control"), "+memory")?;
        }
        let folder = Path::new(parent).join(name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // The group is removed if it has no limit.
        let group = Group { folder };
        Limit { folder: group.folder.clone(), bytes: u64::MAX }.file()?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        /// Number of attempts: processes that were killed take a moment to be gone.
        const ATTEMPTS: usize = 100;
        const PAUSE: Duration = Duration::from_millis(10);
        for _ in 0..ATTEMPTS {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(PAUSE);
        }
        eprintln!("{}: the control group cannot be removed", self.folder.display());
    }
}

/// The limit of the group that this process is in.
#[derive(Debug)]
pub struct Limit {
    folder: PathBuf,
    bytes: u64,
}

impl Limit {
    /// Moves this process to a group, and sets the limit of the group.
    pub fn join(group: &Path, bytes: u64) -> Result<Limit> {
        let limit = Limit { folder: group.to_owned(), bytes };
        write(&group.join("cgroup.procs"), "0")?;
        // Where these files exist, the limit bounds swapped memory, too.
        let _ = write(&group.join("memory.swappiness"), "0");
        let _ = write(&group.join("memory.swap.max"), "0");
        limit.apply()?;
        Ok(limit)
    }

    /// Returns the file with the limit, and the word for none.
    fn file(&self) -> Result<(PathBuf, &'static str)> {
        let files = [("memory.limit_in_bytes", "-1"), ("memory.max", "max")];
        let mut paths = files.map(|(name, none)| (self.folder.join(name), none)).into_iter();
        let found = paths.find(|(path, _)| path.exists());
        found.ok_or_else(|| format!("{}: the group has no limit", self.folder.display()).into())
    }

    /// Sets the limit. The system takes pages from the page cache first. A process with a larger heap
    /// ends as if the system had killed it.
    pub fn apply(&self) -> Result<()> {
        /// Number of attempts: pages that are being written back cannot be taken at once.
        const ATTEMPTS: usize = 50;
        const PAUSE: Duration = Duration::from_millis(100);
        let (file, _) = self.file()?;
        for _ in 0..ATTEMPTS {
            if write(&file, &self.bytes.to_string()).is_ok() {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        // SAFETY: the calls have no pointers.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        Err("the memory is above the limit".into())
    }

    /// Removes the limit until [`Limit::apply`].
    pub fn lift(&self) -> Result<()> {
        let (file, none) = self.file()?;
        write(&file, none)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    Ok(fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::process::ExitStatusExt as _, process::Command};

    /// Runs a shell that joins a group with a limit of 20 MB, and takes `megabytes` of memory.
    fn take(group: &Group, megabytes: u64) -> std::process::ExitStatus {
        let limit = Limit { folder: group.folder.clone(), bytes: 20_000_000 };
        let (file, _) = limit.file().unwrap();
        let script = "echo 0 > \"$1/cgroup.procs\" && echo \"$3\" > \"$2\" && \
                      head -c \"$4\" /dev/zero | tail -c \"$4\" | wc -c";
        let shell = ["-o", "pipefail", "-c", script, "bash"];
        let mut command = Command::new("bash");
        command.args(shell).arg(&group.folder).arg(file);
        let sizes = [limit.bytes, megabytes * 1_000_000].map(|bytes| bytes.to_string());
        command.args(sizes).output().unwrap().status
    }

    #[test]
    fn a_process_that_takes_more_than_its_limit_is_killed() {
        let Ok(group) = Group::create() else {
            return eprintln!("skipped: no control group can be made here");
        };
        assert!(take(&group, 1).success());
        let status = take(&group, 100);
        assert!(status.signal() == Some(libc::SIGKILL) || status.code() == Some(137), "{status}");
        let folder = group.folder.clone();
        drop(group);
        assert!(!folder.exists());
    }
}

//! `held COMMAND [ARGUMENT]...` runs a command, and lets no free memory go back to the host of a virtual machine meanwhile.
//!
//! A hypervisor may take memory back that no process has had for a second or two (free page reporting, balloons). The first
//! access to it is slow then: 0.35 GB/s where this was written, 9 GB/s for memory that the machine has. The threads of a table that
//! grows by 250 MB/s would spend most of a processor on waiting for the host.
//!
//! This program writes to nearly all memory that is free, and gives it up bit by bit: about 0.6 GB are always free. What the command
//! gives back is taken again. It fails if the command does.

use record::Result;
use std::{
    env, fs,
    process::{Child, Command, ExitCode, ExitStatus},
    thread,
    time::Duration,
};

/// Free memory below which some is given up, in bytes.
const FREE_BYTES: u64 = 512 << 20;
/// Free memory above which some is taken: what is free for long goes back to the host.
const FREE_BYTES_MAX: u64 = 768 << 20;
/// Size of what is given up or taken at a time, in bytes.
const PIECE_BYTES: usize = 64 << 20;
/// Time between two looks at the free memory: far less than a process needs to take [`FREE_BYTES`].
const PERIOD: Duration = Duration::from_millis(20);

/// Memory that was written to.
#[derive(Default)]
struct Held {
    pieces: Vec<Vec<u8>>,
}

impl Held {
    /// Takes or gives up one piece, if too much or too little memory is free; returns whether it did.
    fn adjust(&mut self, free_bytes: u64) -> bool {
        if free_bytes < FREE_BYTES {
            return self.pieces.pop().is_some();
        }
        let takes = free_bytes > FREE_BYTES_MAX;
        if takes {
            // All bytes are written, so that the host must provide them.
            self.pieces.push(vec![1; PIECE_BYTES]);
        }
        takes
    }
}

/// Returns the memory that no process and no cache has, in bytes: that in blocks of 2 MiB or more, of which large pages are made.
fn free_bytes() -> Result<u64> {
    let zones = fs::read_to_string("/proc/buddyinfo")?;
    let bytes = zones.lines().map(free_bytes_of).sum::<Option<u64>>();
    Ok(bytes.ok_or("/proc/buddyinfo: expected \"Node <number>, zone <name> <number>...\"")?)
}

/// Returns the free memory of a zone in bytes: how many blocks of each power of two of pages there are is behind its name.
fn free_bytes_of(zone: &str) -> Option<u64> {
    const PAGE_BYTES: u64 = 4 << 10;
    const LARGE_ORDER: usize = 9;
    let counts = zone.split_once("zone")?.1.split_whitespace().skip(1).enumerate();
    let bytes =
        counts.map(|(order, count)| Some((PAGE_BYTES * count.parse::<u64>().ok()?) << order));
    bytes.skip(LARGE_ORDER).sum()
}

/// Waits for the end of a process; memory is given up as it takes it. After an error, the process is ended.
fn attend(child: &mut Child, held: &mut Held) -> Result<ExitStatus> {
    let status = wait(child, held);
    if status.is_err() {
        child.kill()?;
        child.wait()?;
    }
    status
}

fn wait(child: &mut Child, held: &mut Held) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if !held.adjust(free_bytes()?) {
            thread::sleep(PERIOD);
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = env::args_os().skip(1);
    let program = arguments.next().ok_or("usage: held COMMAND [ARGUMENT]...")?;
    let mut held = Held::default();
    while held.adjust(free_bytes()?) {}
    eprintln!("held: {} MiB", (held.pieces.len() * PIECE_BYTES) >> 20);
    // The command chooses the settings of its allocator itself.
    let mut command = Command::new(&program);
    command.args(arguments).env_remove("GLIBC_TUNABLES");
    let mut child =
        command.spawn().map_err(|error| format!("{}: {error}", program.to_string_lossy()))?;
    // Without memory, the system is to end this program, which says so, rather than the command.
    fs::write("/proc/self/oom_score_adj", "1000")?;
    let status = attend(&mut child, &mut held)?;
    if status.success() { Ok(()) } else { Err(format!("the command ended with {status}").into()) }
}

fn main() -> ExitCode {
    record::with_huge_pages("held", run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_up_when_little_is_free_and_taken_when_much_is() {
        let mut held = Held::default();
        assert!(!held.adjust(FREE_BYTES - 1), "nothing is left to give up");
        assert!(held.adjust(FREE_BYTES_MAX + 1) && held.pieces.len() == 1);
        assert!(!held.adjust(FREE_BYTES) && !held.adjust(FREE_BYTES_MAX));
        assert!(held.adjust(FREE_BYTES - 1) && held.pieces.is_empty());
    }

    #[test]
    fn blocks_of_large_pages_are_counted() {
        let zone = "Node 0, zone   Normal  34107  20163  11293   3278   1968   1352    482    113     31      2   3";
        assert_eq!(free_bytes_of(zone), Some(2 * (2 << 20) + 3 * (4 << 20)));
        assert_eq!(free_bytes_of("Node 0, zone DMA 0 0 0 0 0 0 0 0 0 0 many"), None);
        assert_eq!(free_bytes_of("Node 0"), None);
        assert!(free_bytes().is_ok());
    }

    #[test]
    fn the_status_of_the_command_is_known() {
        for (command, is_success) in [("true", true), ("false", false)] {
            let mut child = Command::new(command).spawn().unwrap();
            let status = attend(&mut child, &mut Held::default()).unwrap();
            assert_eq!(status.success(), is_success);
        }
    }
}

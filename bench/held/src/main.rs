//! `held COMMAND [ARGUMENT]...` runs a command, and keeps free memory from going back to the host of a virtual machine meanwhile.
//!
//! A hypervisor may take memory back that no process has had for a second or two (free page reporting, balloons). The first
//! access to it is slow then: 12 µs for 4 KiB where this was written, 0.35 GB/s, instead of 9 GB/s. A table that grows by 250
//! MB/s would be measured with a processor that mostly waits for the host, and a machine without a host has no such wait.
//!
//! This program writes to nearly all memory that is free, and gives it up bit by bit, so that a little more is free than the
//! command takes in a moment. What the command gives back is taken again. It fails if the command does.

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
/// Time between two looks at the free memory, in which a process takes much less than [`FREE_BYTES`].
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
            // All bytes are written, which lets the host give them.
            self.pieces.push(vec![1; PIECE_BYTES]);
        }
        takes
    }
}

/// Returns the memory that no process and no cache has, in bytes.
fn free_bytes() -> Result<u64> {
    let facts = fs::read_to_string("/proc/meminfo")?;
    let free = facts.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let kib = free.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or("/proc/meminfo: expected a line \"MemFree: <number> kB\"")? << 10)
}

/// Waits for the end of a process; memory is given up as it takes it.
fn attend(child: &mut Child, held: &mut Held) -> Result<ExitStatus> {
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
    fn the_status_of_the_command_is_known() {
        for (command, is_success) in [("true", true), ("false", false)] {
            let mut child = Command::new(command).spawn().unwrap();
            let status = attend(&mut child, &mut Held::default()).unwrap();
            assert_eq!(status.success(), is_success);
        }
    }
}

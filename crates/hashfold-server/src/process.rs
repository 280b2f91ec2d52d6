//! Memory and CPU time of this process, as Linux tells them.

use std::fs;

/// Memory of the process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl Memory {
    /// Returns the memory that the process has now, 0 where the system does not say.
    pub(crate) fn now() -> Memory {
        let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        };
        let bytes = |name| field(name).map_or(0, |kib| kib << 10);
        Memory { resident: bytes("VmRSS:"), peak: bytes("VmHWM:") }
    }
}

/// Returns the memory of the machine, in bytes; a large number where the system does not say.
pub(crate) fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

/// CPU time of the process since its start, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
}

/// Ticks of the system's clock in a second, for all programs on Linux.
const TICKS_PER_S: f64 = 100.0;

impl CpuTime {
    /// Returns the CPU time until now, 0 where the system does not say.
    pub(crate) fn now() -> CpuTime {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The fields after the command's name, which may contain anything but ends with a parenthesis.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
        let seconds = |i: usize| {
            fields.get(i).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0) / TICKS_PER_S
        };
        CpuTime { user_s: seconds(11), system_s: seconds(12) }
    }
}

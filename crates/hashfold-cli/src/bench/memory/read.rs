//! Measures reads of memory itself, which no lookup of a large table does without: one after the other, and many at once.

use super::MemoryBench;
use crate::{
    bench::{
        ensure,
        measure::{Report, thread_seconds},
        random::pick,
    },
    failure::{Failure, Result},
};
use memmap2::MmapMut;

/// Number of reads of each kind.
const READS: u64 = 10_000_000;
/// Size of a cache line in bytes.
const LINE_BYTES: u64 = 64;
/// Maximum number of bytes that are read from.
const BYTES_MAX: u64 = 2 << 30;

/// Reads lines at random places of as many bytes as a table has, in large pages where the system has them.
pub(super) fn run(bench: &MemoryBench, report: &Report, bytes: u64) -> Result<()> {
    let lines = bytes.clamp(LINE_BYTES, BYTES_MAX) / LINE_BYTES;
    let memory = MmapMut::map_anon((lines * LINE_BYTES) as usize);
    let mut memory = memory.map_err(|error| Failure::io("memory", "reserve", &error))?;
    #[cfg(target_os = "linux")]
    // A system without large pages refuses.
    let _ = memory.advise(memmap2::Advice::HugePage);
    memory.fill(1);
    let read = |i: u64| u64::from(memory[(pick(i, bench.seed, lines) * LINE_BYTES) as usize]);
    // The place of a read depends on what the one before has read.
    let one_by_one = || (0..READS).fold(0, |last, i| last + read(i + last));
    let many_at_once = || (0..READS).map(read).sum();
    let kinds: [(&str, &dyn Fn() -> u64); 2] = [("single", &one_by_one), ("many", &many_at_once)];
    for (name, reads) in kinds {
        let begun = thread_seconds();
        let sum = reads();
        let seconds = thread_seconds() - begun;
        ensure(sum == READS, || format!("{READS} reads of a byte 1 have the sum {sum}"))?;
        let name = format!("memory.read.{name}_ns");
        report.add(&name, seconds * 1e9 / READS as f64, "ns", READS, lines * LINE_BYTES);
    }
    Ok(())
}

//! `--memory` bounds the memory of the whole process, measured from outside.

use crate::support::Work;
use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    process::Stdio,
    thread,
    time::Duration,
};

const MIB: u64 = 1 << 20;

/// Runs the command, which must succeed; returns the peak of its resident memory, in bytes.
#[track_caller]
fn peak_bytes(work: &Work, line: &str) -> u64 {
    let mut child = work.command(line).stdout(Stdio::null()).spawn().unwrap();
    let status_path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let code = loop {
        // A process that has ended says nothing of its memory.
        let status = fs::read_to_string(&status_path).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kib) = kib.and_then(|text| text.trim().strip_suffix(" kB")) {
            peak = kib.parse::<u64>().unwrap() << 10;
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        thread::sleep(Duration::from_millis(2));
    };
    assert_eq!(code, Some(0), "{line}");
    assert!(peak > MIB, "{line}: the peak was not measured");
    peak
}

#[track_caller]
fn check(work: &Work, line: &str, memory_mib: u64) {
    let peak = peak_bytes(work, &format!("{line} --memory {memory_mib}MiB"));
    let limit = memory_mib * MIB * 11 / 10 + 30 * MIB;
    println!("{line}: {} of {} MiB", peak / MIB, limit / MIB);
    assert!(peak <= limit, "{line}: {} MiB, more than {}", peak / MIB, limit / MIB);
}

/// Writes raw records of `value_size` bytes on average whose keys are the numbers below `count`,
/// in an order that looks random.
fn write_records(work: &Work, name: &str, count: u32, value_size: usize) {
    let mut out = BufWriter::new(File::create(work.path(name)).unwrap());
    let value: Vec<u8> = (0..2 * value_size).map(|i| (i * i / 7) as u8).collect();
    assert!(count.is_power_of_two());
    for i in 0..count {
        let key = (i.wrapping_mul(0x9e37_79b9) % count).to_string();
        let value = &value[..1 + i as usize * 31 % (2 * value_size)];
        out.write_all(&(key.len() as u32).to_le_bytes()).unwrap();
        out.write_all(&(value.len() as u32).to_le_bytes()).unwrap();
        out.write_all(key.as_bytes()).unwrap();
        out.write_all(value).unwrap();
    }
    out.flush().unwrap();
}

/// Issue 10: chunks that were built side by side took a half more than the budget.
#[test]
fn builds_and_updates_stay_within_their_memory() {
    let work = Work::new();
    write_records(&work, "a.raw", 1 << 17, 1000);
    check(&work, "build a.raw --out t", 24);
    check(&work, "update one a.raw", 24);
    check(&work, "update four a.raw --chunks 4", 16);
    check(&work, "update four a.raw --mode merge", 16);
    check(&work, "update many a.raw --chunks 20", 24);
    check(&work, "update many a.raw --mode delta", 24);
    check(&work, "update many a.raw --mode merge --threads 16", 24);
}

#[test]
fn small_entries_take_no_more_than_large_ones() {
    let work = Work::new();
    write_records(&work, "a.raw", 1 << 20, 20);
    check(&work, "build a.raw --out t", 8);
    check(&work, "update four a.raw --chunks 4", 8);
    check(&work, "update four a.raw --mode merge", 8);
}

//! `--memory` bounds the memory of the whole process, measured from outside.

use crate::support::Work;
use std::{
    fs::File,
    io::{BufWriter, Write as _},
};

const MIB: u64 = 1 << 20;

/// Memory beside the budget and the pages of the program: shared libraries, stacks, and what the allocator keeps.
const BESIDE: u64 = 13 * MIB;

#[track_caller]
fn check(work: &Work, line: &str, memory_mib: u64) {
    let (outcome, memory) = work.measured(&format!("{line} --memory {memory_mib}MiB"), b"");
    assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
    let (bytes, limit) = (memory.data_bytes, memory_mib * MIB * 11 / 10 + BESIDE);
    println!(
        "{line}: {} of {} KiB, {} KiB in all",
        bytes >> 10,
        limit >> 10,
        memory.peak_bytes >> 10
    );
    assert!(bytes <= limit, "{line}: {} KiB, more than {}", bytes >> 10, limit >> 10);
}

/// Writes raw records of `value_size` bytes on average whose keys are the numbers below `count`, in
/// pseudorandom order.
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

/// Issue 10: chunks that were built in parallel took 50 % more than the budget.
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

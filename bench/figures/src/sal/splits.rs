//! The memory that finds virtual splits: Figures 4, 5 and 14 of the paper.

use super::{
    groups::address,
    theory::{BUCKET_RECORDS, LOAD, PAGE_SIZE},
};
use crate::dice::Dice;
use std::ops::Range;

/// Unsplit buckets of a segment, which has at most one memory page.
const SEGMENT: usize = 1024;
/// Base-2 logarithm of the number of parts of a shared memory page.
const PARTS_LOG: u32 = 3;
/// Size of the address of a page, in bytes.
const ADDRESS_BYTES: usize = 4;

/// Returns the number of entries of a memory page that this number of segments shares: formula 5.
pub fn page_entries(segments: usize, all_segments: usize, parts_log: u32) -> usize {
    let ends = 2 * all_segments.ilog2();
    let counters = 10 << parts_log;
    let label = (SEGMENT * segments).ilog2() + 32 - parts_log;
    ((PAGE_SIZE as u32 * 8 - ends - counters) / label) as usize
}

/// Segments that share one memory page.
#[derive(Clone, Debug)]
struct Cluster {
    segments: Range<usize>,
    entries: usize,
}

/// The memory pages of one split cycle.
#[derive(Clone, Debug)]
struct Pages {
    clusters: Vec<Cluster>,
    /// Buckets with a virtual split.
    marks: Vec<bool>,
}

impl Pages {
    fn new(buckets: usize) -> Pages {
        let all = Cluster { segments: 0..buckets / SEGMENT, entries: 0 };
        Pages { clusters: vec![all], marks: vec![false; buckets] }
    }

    fn cluster(&self, bucket: usize) -> usize {
        self.clusters.partition_point(|cluster| cluster.segments.end * SEGMENT <= bucket)
    }

    fn insert(&mut self, bucket: usize) {
        self.marks[bucket] = true;
        let all = self.marks.len() / SEGMENT;
        loop {
            let i = self.cluster(bucket);
            let Cluster { segments, entries } = self.clusters[i].clone();
            let is_alone = segments.len() == 1;
            if is_alone || entries < page_entries(segments.len(), all, PARTS_LOG) {
                self.clusters[i].entries += 1;
                return;
            }
            let middle = segments.start + segments.len() / 2;
            let halves = [segments.start..middle, middle..segments.end].map(|segments| {
                let marks = &self.marks[segments.start * SEGMENT..segments.end * SEGMENT];
                Cluster { segments, entries: marks.iter().filter(|&&mark| mark).count() }
            });
            self.clusters.splice(i..=i, halves);
            let i = self.cluster(bucket);
            // The mark of the new bucket is set, and its entry is not there yet.
            self.clusters[i].entries -= 1;
        }
    }

    fn remove(&mut self, bucket: usize) {
        if std::mem::take(&mut self.marks[bucket]) {
            let i = self.cluster(bucket);
            self.clusters[i].entries -= 1;
        }
    }

    fn bytes(&self) -> usize {
        self.clusters.iter().filter(|cluster| cluster.entries > 0).count() * PAGE_SIZE as usize
    }
}

/// The memory at one moment of a split cycle.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub split_factor: f64,
    pub page_bytes: usize,
    /// The addresses of the virtual splits alone.
    pub address_bytes: usize,
}

/// Inserts random records until each of `buckets` buckets, a power of two, is split. Returns the memory
/// at `steps` moments after the first.
pub fn split_cycle(buckets: usize, steps: usize, dice: &Dice) -> Vec<Memory> {
    let mut records = vec![0_u32; buckets];
    let mut pages = Pages::new(buckets);
    let mut out = Vec::new();
    let per_bucket = LOAD * f64::from(BUCKET_RECORDS);
    let mut inserted = 0_u64;
    for step in 0..=steps {
        let split_factor = step as f64 / steps as f64;
        let target = (per_bucket * buckets as f64 * (1.0 + split_factor)) as u64;
        while inserted < target {
            inserted += 1;
            if inserted as f64 > per_bucket * records.len() as f64 {
                let old = records.len() - buckets;
                pages.remove(old);
                let moved = dice.half(records[old]);
                records[old] -= moved;
                records.push(moved);
            }
            let bucket = address(dice.bits(), records.len() as u64) as usize;
            records[bucket] += 1;
            let is_unsplit = bucket < buckets && bucket + buckets >= records.len();
            if is_unsplit && records[bucket] == BUCKET_RECORDS + 1 {
                pages.insert(bucket);
            }
        }
        let entries: usize = pages.clusters.iter().map(|cluster| cluster.entries).sum();
        let (page_bytes, address_bytes) = (pages.bytes(), entries * ADDRESS_BYTES);
        out.push(Memory { split_factor, page_bytes, address_bytes });
    }
    out
}

//! A fixed number of inputs for each target, the same in each run.
//!
//! `HASHFOLD_FUZZ_ROUNDS` multiplies their number, `HASHFOLD_FUZZ_SEED` changes them.
#![expect(unsafe_code, reason = "an allocator is")]

use hashfold_fuzz::{
    checkpoint, delta, event_csv, event_json, files, filter_block, filter_log, filter_manifest,
    filter_model, filter_run, footer, framing, group_pointer, header, manifest, map, map_device,
    model, piece, pointer, request, restored, rows, salvage, scrape, signature, sketch, table,
    topology, tree, varint, version, wal,
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    env,
    panic::catch_unwind,
    thread::panicking,
};

/// Maximum size of one allocation, in bytes. The files are smaller than 64 KiB, so a decoder that
/// asks for more has believed a number in them.
const ALLOCATION_MAX: usize = 8 << 20;

/// An allocator that refuses large allocations, which ends the process. The report of a failure has as much memory as it
/// needs for the names of functions.
struct Bounded;

thread_local! {
    /// Whether an allocation was refused for the current input: those that follow are for the report.
    static HAS_REFUSED: Cell<bool> = const { Cell::new(false) };
}

impl Bounded {
    fn refuses(layout: Layout) -> bool {
        layout.size() > ALLOCATION_MAX && !panicking() && !HAS_REFUSED.replace(true)
    }
}

// SAFETY: requests that are not refused go unchanged to the system's allocator.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Bounded::refuses(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; all memory comes from the system.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Bounded::refuses(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Bytes that are random, small, or all equal.
    fn bytes(&mut self, len_max: usize) -> Vec<u8> {
        let len = match self.below(4) {
            0 => len_max,
            _ => self.below(len_max + 1),
        };
        let mask = [0xff, 0xff, 0x0f, 0x81][self.below(4)];
        (0..len).map(|_| self.next() as u8 & mask).collect()
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().expect("it is a number"))
}

fn run(target: fn(&[u8]), inputs: u64, input: impl Fn(&mut Random) -> Vec<u8>) {
    let inputs = inputs * number("HASHFOLD_FUZZ_ROUNDS", 1);
    let seed = number("HASHFOLD_FUZZ_SEED", 1);
    for i in 0..inputs {
        let bytes = input(&mut Random(seed << 40 | i));
        HAS_REFUSED.set(false);
        if catch_unwind(|| target(&bytes)).is_err() {
            panic!("input {i} of seed {seed}: {bytes:?}");
        }
    }
}

#[test]
fn varints() {
    run(varint, 100_000, |random| random.bytes(40));
}

#[test]
fn headers() {
    run(header, 100_000, |random| {
        let mut bytes = random.bytes(80);
        if random.below(4) > 0 {
            let head = b"HASHFOLD\x01\0\x01\0";
            let len = head.len().min(bytes.len());
            bytes[..len].copy_from_slice(&head[..len]);
        }
        bytes
    });
}

#[test]
fn footers() {
    run(footer, 5_000, |random| {
        let len_max = [30, 200, 9000][random.below(3)];
        random.bytes(len_max)
    });
}

#[test]
fn manifests() {
    run(manifest, 10_000, |random| {
        let mut bytes = random.bytes(100);
        for byte in &mut bytes {
            // Sizes that fit, and letters for names.
            if random.below(3) > 0 {
                *byte = [1, 2, 3, 4, b'd', b'a', b't', b'/'][random.below(8)];
            }
        }
        bytes
    });
}

#[test]
fn raw_files() {
    run(files, 250, |random| random.bytes(30_000));
}

#[test]
fn rows_of_arbitrary_kinds() {
    run(rows, 100_000, |random| {
        let mut bytes = random.bytes(60);
        // Few columns, and more often than not values that are not null.
        for byte in bytes.iter_mut().take(12) {
            *byte &= [0x0f, 0xff, 0x01][random.below(3)];
        }
        bytes
    });
}

#[test]
fn forged_tables() {
    run(table, 3_000, |random| {
        let edits = 1 + random.below(6) * random.below(6);
        let table = random.next() as u8;
        (0..1 + 8 * edits).map(|i| if i == 0 { table } else { random.next() as u8 }).collect()
    });
}

#[test]
fn requests_of_clients() {
    run(request, 50_000, |random| {
        let alphabet = b"*$\r\n\r\n0123459-\"'\\xGET ";
        let mut bytes = random.bytes(200);
        for byte in &mut bytes {
            if random.below(8) > 0 {
                *byte = alphabet[random.below(alphabet.len())];
            }
        }
        if random.below(2) == 0 {
            bytes.splice(0..0, b"*2\r\n$3\r\nGET\r\n$4\r\n4711\r\n".iter().copied());
        }
        bytes
    });
}

#[test]
fn pointers_of_groups_and_topologies() {
    run(group_pointer, 20_000, |random| random.bytes(30));
    run(topology, 20_000, |random| random.bytes(12));
}

/// Heads whose fields are small numbers, and fingerprints.
#[test]
fn pieces_of_filters() {
    run(piece, 50_000, |random| {
        let mut bytes = vec![0; 88];
        bytes[6] = random.below(2) as u8;
        bytes[7] = random.below(2) as u8;
        for place in (8..80).step_by(8) {
            bytes[place] = random.next() as u8;
            bytes[place + random.below(8)] = random.below(2) as u8;
        }
        let items = random.below(8);
        bytes[80] = items as u8;
        bytes.extend((0..items * (1 + random.below(2))).map(|_| random.next() as u8 & 0x7f));
        let edits = random.below(3);
        for _ in 0..edits {
            let place = random.below(bytes.len());
            bytes[place] = random.next() as u8;
        }
        bytes
    });
}

/// Heads of sketches with right and nearly right fields, and random registers.
/// Images of DataSketches with heads that may be right, of all modes; and others.
#[test]
fn images_of_sketches() {
    run(sketch, 20_000, |random| {
        let len_max = [8, 40, 120, 600][random.below(4)];
        let mut bytes = random.bytes(len_max);
        if random.below(2) == 0 && bytes.len() >= 8 {
            let mode = random.below(3);
            let [precision, flags] =
                [4 + random.below(8), 4 * random.below(16)].map(|byte| byte as u8);
            let [small, kind] =
                [random.below(8), mode | (4 * random.below(3))].map(|byte| byte as u8);
            bytes[..8].copy_from_slice(&[[2, 3, 10][mode], 1, 7, precision, 5, flags, small, kind]);
        }
        bytes
    });
}

#[test]
fn sketches() {
    run(sketch, 20_000, |random| {
        let mut bytes = b"HFHL\x01".to_vec();
        bytes.push(1 + random.below(4) as u8);
        bytes.push(4 + random.below(6) as u8);
        bytes.push(1 + random.below(2) as u8);
        // Family 3 has the width of registers where others have a seed.
        bytes.push(if bytes[5] == 3 { 1 + random.below(7) as u8 } else { 0 });
        bytes.extend([0; 7]);
        let dense = 3 << bytes[6] >> 2;
        let len = if bytes[7] == 2 { dense } else { random.below(40) };
        let mask = [0x7f, 0xff, 0x0f][random.below(3)];
        bytes.extend((0..len).map(|_| random.next() as u8 & mask));
        if random.below(4) == 0 {
            let place = random.below(bytes.len());
            bytes[place] = random.next() as u8;
        }
        bytes
    });
    run(sketch, 20_000, |random| {
        let mut bytes = b"HFGH\x01\x01".to_vec();
        bytes.push(4 + random.below(3) as u8);
        bytes.push(1 + random.below(2) as u8);
        bytes.extend([0; 8]);
        let width = 7 + random.below(10);
        bytes.push(width as u8);
        let dense = width << bytes[6] >> 3;
        let len = if bytes[7] == 2 { dense } else { random.below(40) };
        let mask = [0x7f, 0xff, 0x0f, 0][random.below(4)];
        bytes.extend((0..len).map(|_| random.next() as u8 & mask));
        if random.below(4) == 0 {
            let place = random.below(bytes.len());
            bytes[place] = random.next() as u8;
        }
        bytes
    });
    run(sketch, 20_000, |random| {
        let mut bytes = b"HFBK\x01\x01".to_vec();
        bytes.push(1 + random.below(2) as u8);
        bytes.push(random.below(42) as u8);
        bytes.extend([0; 8]);
        let count = [random.below(40), 16][random.below(2)] as u32;
        bytes.extend(16_u32.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        let len = random.below(120);
        let mask = [0x7f, 0xff, 0x11, 0][random.below(4)];
        bytes.extend((0..len).map(|_| random.next() as u8 & mask));
        bytes
    });
    run(sketch, 20_000, |random| {
        let len = 1 + random.below(12);
        (0..len).map(|_| b"AB3!()&|- "[random.below(10)]).collect()
    });
    run(sketch, 20_000, |random| random.bytes(60));
}

#[test]
fn signatures_and_keys() {
    run(signature, 5_000, |random| random.bytes(12));
}

#[test]
fn models() {
    run(model, 75, |random| random.bytes(800));
}

/// Input for the files of a store: the kind of change, then edits, or sometimes a whole file.
fn edits(random: &mut Random) -> Vec<u8> {
    let edits = 1 + random.below(5) * random.below(5);
    let how = random.next() as u8;
    let mut bytes: Vec<u8> = (0..1 + 8 * edits).map(|_| random.next() as u8).collect();
    bytes[0] = how;
    bytes
}

#[test]
fn forged_versions() {
    run(version, 1_500, edits);
}

#[test]
fn forged_pointers() {
    run(pointer, 1_000, edits);
}

#[test]
fn forged_trees() {
    run(tree, 800, edits);
}

#[test]
fn forged_deltas() {
    run(delta, 2_000, edits);
}

#[test]
fn forged_filter_runs() {
    run(filter_run, 1_500, edits);
}

#[test]
fn forged_filter_blocks() {
    run(filter_block, 800, |random| {
        let mut bytes = random.bytes(4093);
        bytes.resize(bytes.len().max(17), 0);
        if random.below(8) > 0 {
            // A plausible head: items, few exceptions, a bucket, low bits, zeros.
            let exceptions = [0, 0, 3, 200][random.below(4)];
            bytes[1..5].copy_from_slice(&[
                random.next() as u8,
                random.below(32) as u8,
                exceptions,
                0,
            ]);
            let bucket = random.next() >> random.below(64);
            bytes[5..13].copy_from_slice(&bucket.to_le_bytes());
            bytes[13..17].copy_from_slice(&[random.below(65) as u8, 0, 0, 0]);
        }
        bytes
    });
}

#[test]
fn forged_filter_logs() {
    run(filter_log, 1_500, edits);
}

#[test]
fn forged_logs() {
    run(wal, 1_000, edits);
}

#[test]
fn forged_filter_manifests() {
    run(filter_manifest, 2_000, edits);
}

#[test]
fn filter_models() {
    run(filter_model, 60, |random| random.bytes(600));
}

#[test]
fn forged_maps() {
    run(map, 600, |random| {
        let edits = 1 + random.below(4) * random.below(4);
        // Bytes after the last edit choose the golden map.
        (0..8 * edits + random.below(6)).map(|_| random.next() as u8).collect()
    });
}

#[test]
fn forged_devices_of_maps() {
    let device =
        include_bytes!("../../crates/hashfold/tests/golden/map-v2/devices/device/map-device");
    let token = &device[device.len() - 32..device.len() - 24];
    run(map_device, 100, |random| {
        // The fields of device 1 of two, or of 0, with stripes of 64 KiB; most with a change.
        let mut bytes = vec![random.next() as u8, random.below(2) as u8, 0, 2, 0, 0, 0, 1, 0];
        bytes.extend(token);
        if random.below(5) > 0 {
            let at = 1 + random.below(16);
            bytes[at] = [0, 1, 2, 16, 255][random.below(5)];
        }
        bytes.truncate(17 - random.below(10) / 9);
        bytes
    });
}

#[test]
fn salvages_of_forged_maps() {
    run(salvage, 200, |random| {
        let edits = random.below(4) * random.below(4);
        // Bytes after the last edit choose the golden map.
        let len = 1 + 8 * edits + random.below(6);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        // Mostly, all files are there.
        bytes[0] &= random.next() as u8 & random.next() as u8;
        bytes
    });
}

#[test]
fn streams_of_events() {
    run(framing, 50_000, |random| {
        let alphabet = b"0123456789  \n\n\r<a";
        let mut bytes = random.bytes(90);
        for byte in bytes.iter_mut().skip(1) {
            *byte = alphabet[random.below(alphabet.len())];
        }
        bytes
    });
    run(event_csv, 50_000, |random| {
        let alphabet = b"0123456789,,,,\"\".-e\xffa";
        let len = random.below(40);
        (0..len).map(|_| alphabet[random.below(alphabet.len())]).collect()
    });
    run(event_json, 50_000, |random| {
        let words: [&[u8]; 18] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\"a\":",
            b"\"b\":",
            b"\"b\":{\"b\":",
            b"\"c\":",
            b"1",
            b"-1.5e3",
            b"\"x\\u00e9\"",
            b"null",
            b"true",
            b"\"t\":\"1970-01-01T00:00:01Z\"",
            b"\xff",
            b" ",
        ];
        let count = random.below(14);
        let mut bytes: Vec<u8> =
            (0..count).flat_map(|_| words[random.below(18)].to_vec()).collect();
        if random.below(2) == 0 {
            bytes.splice(0..0, b"{\"t\":\"1970-01-01T00:00:01Z\",".iter().copied());
            bytes.push(b'}');
        }
        bytes
    });
    run(checkpoint, 20_000, |random| {
        let mut bytes = b"HFPC".to_vec();
        bytes.push(1 + random.below(4) as u8);
        bytes.extend(random.bytes(60));
        let checksum = hashfold::checksum::crc32c(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    });
    run(restored, 3000, |random| {
        let edits = 3 * random.below(4);
        (0..edits).map(|_| random.next() as u8).collect()
    });
    run(scrape, 50_000, |random| {
        let words: [&[u8]; 8] =
            [b"GET", b"HEAD", b" ", b"/metrics", b"HTTP/1.1", b"\r\n", b"\r", b"\xff"];
        let count = random.below(12);
        (0..count).flat_map(|_| words[random.below(8)].to_vec()).collect()
    });
}

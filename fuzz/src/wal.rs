//! The segments of a write-ahead log, changed in all but their checksums.

use crate::forge::{EDIT_SIZE, change_bytes, seal_header};
use hashfold::{
    Seed,
    env::Env,
    io::{ALIGNMENT, Access, Disk, MemoryDisk, Seal, read_all},
    wal::{Segments, Wal, WalFolder},
};
use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

const ID: u64 = 0x106;
/// Bytes of a segment that anything is written to, and a few more.
pub(crate) const USED: usize = 10 * ALIGNMENT;
pub(crate) const HEAD_SIZE: usize = 24;

fn home(disk: Arc<MemoryDisk>) -> WalFolder {
    WalFolder { env: Env { disk, ..Env::system() }, folder: "".into(), seed: Seed(1), id: ID }
}

fn open(disk: &Arc<MemoryDisk>) -> hashfold::Result<Wal> {
    Wal::open(home(disk.clone()), Segments::of_size(1 << 20), 0..0, &mut |_| Ok(()))
}

/// What is used of the segments of a log, with records of many sizes.
fn segments() -> &'static [Vec<u8>] {
    static SEGMENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        let disk = Arc::new(MemoryDisk::default());
        let wal = open(&disk).expect("RAM does not fail");
        for i in 0..24_usize {
            let end = wal.append(1 + i as u64 % 3, &vec![i as u8; i * i * 10 % 1000]);
            if i % 3 == 0 {
                wal.commit(end.expect("RAM does not fail")).expect("RAM does not fail");
            }
            if i % 12 == 11 {
                wal.rotate().expect("RAM does not fail");
            }
        }
        let bytes = |name: String| {
            let file = disk.open(Path::new(&name), Access::Cached).expect("it is there");
            read_all(&*file, u64::MAX).expect("RAM does not fail")[..USED].to_vec()
        };
        disk.list(Path::new("")).expect("RAM does not fail").into_iter().map(bytes).collect()
    });
    &SEGMENTS
}

/// A log with a segment that is changed, with the right checksums as far as they can be followed.
pub fn wal(bytes: &[u8]) {
    let Some((choice, edits)) = bytes.split_first() else { return };
    let mut all = segments().to_vec();
    let number = usize::from(*choice) % all.len();
    let content = &mut all[number];
    for edit in edits.chunks_exact(EDIT_SIZE) {
        let batch = (1 + usize::from(edit[1]) % (content.len() / ALIGNMENT - 1)) * ALIGNMENT;
        match edit[0] % 8 {
            0 => change_bytes(&mut content[8..32], edit),
            1..4 => change_bytes(&mut content[batch + 4..batch + HEAD_SIZE], edit),
            4 | 5 => change_bytes(&mut content[batch + HEAD_SIZE..batch + HEAD_SIZE + 8], edit),
            6 => change_bytes(&mut content[ALIGNMENT..], edit),
            _ => content.truncate(content.len().saturating_sub(512).max(2 * ALIGNMENT)),
        }
    }
    seal_header(content);
    seal_batches(content, ID, number as u64);
    let disk = Arc::new(MemoryDisk::default());
    for (number, content) in all.iter().enumerate() {
        let file = disk.create(Path::new(&format!("wal-{number:010}")), Access::Cached);
        file.and_then(|file| file.write_at(0, content)).expect("RAM does not fail");
    }
    if let Ok(wal) = open(&disk) {
        let seq = wal.append(1, b"more").expect("RAM does not fail");
        wal.commit(seq).expect("RAM does not fail");
    }
}

/// Puts the right checksums into the batches of a segment, as far as they can be followed.
pub(crate) fn seal_batches(segment: &mut [u8], file_id: u64, epoch: u64) {
    let mut offset = ALIGNMENT;
    while offset + ALIGNMENT <= segment.len() {
        let size: [u8; 4] = segment[offset + 4..offset + 8].try_into().expect("four bytes");
        let len = HEAD_SIZE + u32::from_le_bytes(size) as usize;
        let Some(batch) = segment[offset..].get_mut(..len) else {
            offset += ALIGNMENT;
            continue;
        };
        Seal { number: (offset / ALIGNMENT) as u64, file_id, epoch }.put(batch);
        offset += len.next_multiple_of(ALIGNMENT);
    }
}

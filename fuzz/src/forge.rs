//! Files that are wrong except for their checksums.

use hashfold::{
    Env, ReadOptions,
    checksum::crc32c,
    io::{
        ALIGNMENT, Access, Disk, MemoryDisk, OsDisk, Seal,
        frame::{FileKind, Footer, Header},
        read_all,
    },
    key::Seed,
    manifest::{self, Manifest},
    run::Run,
    table::Table,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

/// Size of a header with its checksum, in bytes.
pub(crate) const HEADER_SIZE: usize = 64;
const HEADER_SUM: std::ops::Range<usize> = 60..64;

/// The range of a header's kind, version, seed and id.
const HEADER_FIELDS: std::ops::Range<usize> = 8..32;

/// The place of the number of blocks in the footer of a data file of version 1, and the size of the
/// footer and this place since version 2.
const BLOCKS_V1: std::ops::Range<usize> = 32..40;
const DATA_FIELDS_SIZE: usize = 72;
const BLOCKS: std::ops::Range<usize> = 40..48;

/// Number of input bytes of one change.
pub(crate) const EDIT_SIZE: usize = 8;

/// Maximum size of a body that grows, in bytes.
const BODY_SIZE_MAX: usize = 1 << 16;

/// Edge values.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    3,
    8,
    15,
    16,
    17,
    63,
    64,
    255,
    256,
    4080,
    4096,
    65_535,
    65_536,
    1 << 26,
    1 << 31,
    1 << 32,
    1 << 48,
    1 << 56,
    u64::MAX / 16,
    u64::MAX - 1,
    u64::MAX,
];

/// A table of `tests/golden/`: the manifest, the data, the index.
pub(crate) struct Golden {
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) keys: Vec<Vec<u8>>,
}

/// All tables of `tests/golden/`.
pub(crate) fn goldens() -> &'static [Golden] {
    static GOLDENS: LazyLock<Vec<Golden>> = LazyLock::new(|| {
        let home =
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/hashfold/tests/golden"));
        let read = |version: &str| {
            let home = home.join(version);
            let names = OsDisk.list(&home).expect("golden tables are there");
            names.into_iter().map(move |name| Golden::read(&home.join(name)))
        };
        ["v1", "v2"].into_iter().flat_map(read).collect()
    });
    &GOLDENS
}

impl Golden {
    fn read(folder: &Path) -> Golden {
        let names = OsDisk.list(folder).expect("the folder is there");
        let read = |name: String| {
            let file = OsDisk.open(&folder.join(&name), Access::Cached).expect("the file is there");
            let bytes = read_all(file.as_ref(), 1 << 20).expect("the file is small");
            (name, bytes.to_vec())
        };
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let table = Table::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone())))
            .expect("it is a table");
        let mut scan = table.scan();
        let mut keys = Vec::new();
        while scan.advance().expect("the table is sound") {
            keys.push(scan.entry().key.to_vec());
        }
        Golden { files: names.into_iter().map(read).collect(), keys }
    }
}

/// Writes the right checksum to a header.
pub(crate) fn seal_header(bytes: &mut [u8]) {
    let sum = crc32c(&bytes[..HEADER_SUM.start]);
    bytes[HEADER_SUM].copy_from_slice(&sum.to_le_bytes());
}

/// The bytes after a header block, padded at their front to whole blocks.
pub(crate) fn padded(bytes: &[u8]) -> Vec<u8> {
    let size = ALIGNMENT + bytes.len().next_multiple_of(ALIGNMENT).max(ALIGNMENT);
    let mut all = vec![0; size - bytes.len()];
    all.extend(bytes);
    // The size of the file, 16 bytes before its end, and the checksum after it.
    all[size - 16..size - 8].copy_from_slice(&(size as u64).to_le_bytes());
    let fields_size = u32::from_le_bytes(*all[size - 24..].first_chunk().expect("24 bytes"));
    let fields_start = (size - 24).saturating_sub(fields_size as usize);
    let sum = crc32c(&all[fields_start..size - 8]);
    all[size - 8..size - 4].copy_from_slice(&sum.to_le_bytes());
    all[size - 4..].copy_from_slice(b"DONE");
    all
}

/// A manifest file of this format version with these fields.
pub(crate) fn framed(version: u16, fields: &[u8]) -> Vec<u8> {
    let header = Header { version, ..Header::new(FileKind::Manifest, Seed(7), 1) };
    let mut file = header.encode().to_vec();
    file.extend(Footer { fields: fields.to_vec(), body_sum: 0 }.encode(file.len() as u64));
    file
}

/// The parts of a file.
struct Parts {
    name: String,
    header: Vec<u8>,
    body: Vec<u8>,
    fields: Vec<u8>,
}

impl Parts {
    fn split(name: &str, bytes: &[u8]) -> Parts {
        let (rest, tail) = bytes.split_at(bytes.len() - 24);
        let fields_size = u32::from_le_bytes(*tail.first_chunk().expect("24 bytes")) as usize;
        let footer_size = (fields_size + tail.len()).next_multiple_of(ALIGNMENT);
        Parts {
            name: name.to_owned(),
            header: bytes[..ALIGNMENT].to_vec(),
            body: bytes[ALIGNMENT..bytes.len() - footer_size].to_vec(),
            fields: rest[rest.len() - fields_size..].to_vec(),
        }
    }

    fn join(mut self) -> (String, Vec<u8>) {
        seal_header(&mut self.header);
        if self.name.starts_with("data") {
            self.seal_blocks();
        }
        let body_sum = if self.name.starts_with("index") { crc32c(&self.body) } else { 0 };
        let mut file = [self.header, self.body].concat();
        file.extend(Footer { fields: self.fields, body_sum }.encode(file.len() as u64));
        (self.name, file)
    }

    /// Writes the right checksums to the blocks of a data file.
    fn seal_blocks(&mut self) {
        let size = self.fields.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let size = if (64..=1 << 16).contains(&size) { size as usize } else { ALIGNMENT };
        let id = self.header[24..32].try_into().map_or(0, u64::from_le_bytes);
        for (number, block) in self.body.chunks_exact_mut(size).enumerate() {
            Seal::of(number as u64, id).put(block);
        }
    }
}

/// A table that is being changed.
pub(crate) struct Forgery {
    /// The manifest, the data, the index.
    files: [Parts; 3],
}

impl Forgery {
    pub(crate) fn of(golden: &Golden) -> Forgery {
        let part = |i: usize| Parts::split(&golden.files[i].0, &golden.files[i].1);
        Forgery { files: [part(0), part(1), part(2)] }
    }

    /// Makes the change that [`EDIT_SIZE`] bytes encode: the place, the kind and the number.
    pub(crate) fn edit(&mut self, edit: &[u8]) {
        let [file, region, kind, offset @ .., number] = edit else { return };
        let offset = offset.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        // The manifest has a fuzz target of its own.
        let parts = &mut self.files[[0, 1, 1, 1, 2, 2, 2, 2][usize::from(*file) % 8]];
        if *kind % 16 == 15 {
            parts.resize_body(offset);
            return;
        }
        let bytes = match *region % 8 {
            0 => &mut parts.header[HEADER_FIELDS],
            1..=4 => &mut parts.fields[..],
            _ => &mut parts.body[..],
        };
        change(bytes, *kind, offset, *number);
    }

    /// The files, with all sizes and checksums right.
    pub(crate) fn files(self) -> Vec<(String, Vec<u8>)> {
        let [mut manifest, data, index] = self.files;
        let files = [data.join(), index.join()];
        manifest.fields = with_sizes(manifest.fields, &files);
        let mut all = vec![manifest.join()];
        all.extend(files);
        all
    }
}

impl Parts {
    /// Removes blocks from the end of the body, or appends some.
    fn resize_body(&mut self, offset: usize) {
        let blocks = offset % (self.body.len() / ALIGNMENT + 3);
        let size = (blocks * ALIGNMENT).min(BODY_SIZE_MAX);
        self.body.resize(size, 0);
        let place = if self.fields.len() >= DATA_FIELDS_SIZE { BLOCKS } else { BLOCKS_V1 };
        if self.name.starts_with("data") && self.fields.len() >= place.end {
            // Without the right number of blocks, decoding would end here.
            let block_size = u64::from_le_bytes(*self.fields.first_chunk().expect("40 bytes"));
            let blocks = (size as u64).checked_div(block_size).unwrap_or(0);
            self.fields[place].copy_from_slice(&blocks.to_le_bytes());
        }
    }
}

/// A file with its parts changed, and with right checksums.
pub(crate) fn reframed(
    bytes: &[u8],
    kind: FileKind,
    change: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>, &mut Vec<u8>),
) -> Vec<u8> {
    let mut parts = Parts::split("", bytes);
    change(&mut parts.header, &mut parts.body, &mut parts.fields);
    seal_header(&mut parts.header);
    if kind == FileKind::Delta {
        seal_sections(&mut parts.body);
    }
    let body_sum = if kind == FileKind::Tree { crc32c(&parts.body) } else { 0 };
    let mut file = [parts.header, parts.body].concat();
    file.extend(Footer { fields: parts.fields, body_sum }.encode(file.len() as u64));
    file
}

/// Writes right checksums to the sections of a delta file, as far as the sections can be followed.
fn seal_sections(body: &mut [u8]) {
    let mut rest = body;
    while let Some((head, after)) = rest.split_first_chunk_mut::<8>() {
        let size = u32::from_le_bytes(*head.first_chunk().expect("8 bytes")) as usize;
        let Some((entries, after)) = after.split_at_mut_checked(size) else { return };
        head[4..].copy_from_slice(&crc32c(entries).to_le_bytes());
        if size == 0 {
            return;
        }
        rest = after;
    }
}

/// All files below a folder, by their paths in it.
pub(crate) fn read_below(disk: &dyn Disk, home: &Path, folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for name in disk.list(&home.join(folder)).expect("the folder is there") {
        let path = folder.join(name);
        match disk.open(&home.join(&path), Access::Cached) {
            Ok(file) => {
                let bytes = read_all(file.as_ref(), 2 << 20).expect("the file is small");
                files.push((path, bytes.to_vec()));
            }
            Err(_) => files.extend(read_below(disk, home, &path)),
        }
    }
    files
}

/// Makes the change that [`EDIT_SIZE`] bytes without the first two encode.
pub(crate) fn change_bytes(bytes: &mut [u8], edit: &[u8]) {
    let [_, _, kind, offset @ .., number] = edit else { return };
    let offset = offset.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    change(bytes, *kind, offset, *number);
}

/// Changes one to eight bytes.
fn change(bytes: &mut [u8], kind: u8, offset: usize, number: u8) {
    if bytes.is_empty() {
        return;
    }
    let at = offset % bytes.len();
    let edge = EDGES[usize::from(number) % EDGES.len()];
    match kind % 16 {
        0..=2 => bytes[at] = number,
        3..=5 => bytes[at] ^= 1 << (number % 8),
        6 => bytes[at] = bytes[at].wrapping_add(number),
        7..=9 => put(bytes, at / 8 * 8, &edge.to_le_bytes()),
        10 => put(bytes, at / 2 * 2, &edge.to_le_bytes()[..2]),
        11 => put(bytes, at / 4 * 4, &edge.to_le_bytes()[..4]),
        12 => {
            // A little more or less than the old value.
            let at = at / 8 * 8;
            let old = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
            let old = u64::from_le_bytes(*old.unwrap_or(&[0; 8]));
            put(bytes, at, &old.wrapping_add_signed(i64::from(number as i8)).to_le_bytes());
        }
        13 => {
            let end = bytes.len().min(at + usize::from(number));
            bytes[at..end].fill(offset as u8);
        }
        _ => {
            let len = usize::from(number).min(bytes.len() - at);
            bytes.copy_within(at..at + len, offset / 7 % (bytes.len() - len + 1));
        }
    }
}

fn put(bytes: &mut [u8], at: usize, number: &[u8]) {
    let end = bytes.len().min(at + number.len());
    bytes[at..end].copy_from_slice(&number[..end - at]);
}

/// The fields of a manifest, if they can be read, with the sizes of these files.
fn with_sizes(fields: Vec<u8>, files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let disk = MemoryDisk::default();
    let write = |bytes: &[u8]| {
        let file = disk.create(Path::new(manifest::NAME), Access::Cached)?;
        file.write_at(0, bytes)
    };
    write(&framed(1, &fields)).expect("RAM does not fail");
    let Ok(mut manifest) = Manifest::read(&disk, Path::new("")) else { return fields };
    for entry in &mut manifest.files {
        if let Some((_, bytes)) = files.iter().find(|(name, _)| *name == entry.name) {
            entry.size = bytes.len() as u64;
        }
    }
    manifest.publish(&disk, Path::new("")).expect("RAM does not fail");
    let file = disk.open(Path::new(manifest::NAME), Access::Cached).expect("it was published");
    let bytes = read_all(file.as_ref(), 1 << 24).expect("RAM does not fail");
    Parts::split(manifest::NAME, &bytes).fields
}

//! The block tree of a table: the hashes of all pieces of its files, in the file `TREE` beside them.
//!
//! With the tree, each piece of a table can be checked, fetched and repaired separately. The
//! version file has the hash of the tree, its root, so a version names exact bytes.
//!
//! The file is a frame. Its header has the table's seed and id, and its footer no fields. The body
//! (`docs/formats/store.md` has the same table; counts and sizes are variable-length integers) is
//! padded with zeros; the root is the BLAKE3 hash of the body without the padding:
//!
//! | field         | size |                                                                  |
//! |---------------|-----:|------------------------------------------------------------------|
//! | body_size     |    8 | of the following, in bytes                                       |
//! | files         |    … | count, then for each: name, count of pieces, then the pieces     |
//!
//! | piece         | size |                                                                  |
//! |---------------|-----:|------------------------------------------------------------------|
//! | size          |    … | in bytes; each piece starts where the one before it ends         |
//! | hash          |   32 | BLAKE3                                                           |

use super::version::Root;
use crate::{
    checksum::crc32c,
    codec::{Decoder, put_bytes, put_varint, within},
    error::{Error, Result, check_sum},
    io::{
        ALIGNMENT, Access, BlockFile, Buffer, Disk, DiskLayer, FileLayer,
        frame::{FileKind, Footer, Header},
        read_all,
    },
    key::Seed,
};
use std::{
    collections::BTreeMap,
    ops::Range,
    path::Path,
    sync::{Arc, Mutex},
};

/// The name of a table's block tree in its folder.
pub(super) const NAME: &str = "TREE";

/// Maximum size of a piece, in bytes. A piece is as long as the write that made it, up to this
/// size.
const PIECE_SIZE_MAX: u64 = 1 << 26;
/// Maximum size of a tree that is read, in bytes: the tree of a table of 30 TB.
const TREE_SIZE_MAX: u64 = 1 << 30;

/// The hash of a piece.
pub(super) type PieceHash = [u8; 32];

/// A part of a file, and the hash of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePiece {
    /// The bytes of the piece, by their offsets in the file.
    pub bytes: Range<u64>,
    /// BLAKE3 hash of these bytes.
    pub hash: [u8; 32],
}

impl FilePiece {
    /// Returns the size of the piece, in bytes.
    pub fn size(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Whether these are the bytes of the piece.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.size() && hash(bytes) == self.hash
    }
}

/// The pieces of a file, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTree {
    /// Name of the file in the table's folder.
    pub name: String,
    /// The pieces, in the order of their offsets; together they are the whole file.
    pub pieces: Vec<FilePiece>,
}

impl FileTree {
    /// Returns the size of the file, in bytes.
    pub fn size(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.bytes.end)
    }
}

/// The block tree of a table: the pieces of all of its files.
///
/// The file `TREE` in the table's folder has the tree, and the version file has its hash, so every
/// piece can be checked on its own, wherever it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The files of the table, without `TREE` itself.
    pub files: Vec<FileTree>,
}

pub(super) fn hash(bytes: &[u8]) -> PieceHash {
    blake3::hash(bytes).into()
}

impl Tree {
    pub(super) fn root(&self) -> Root {
        hash(&self.encode())
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.files.len() as u64);
        for file in &self.files {
            put_bytes(&mut out, file.name.as_bytes());
            put_varint(&mut out, file.pieces.len() as u64);
            for FilePiece { bytes, hash } in &file.pieces {
                put_varint(&mut out, bytes.end - bytes.start);
                out.extend(hash);
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Tree> {
        let mut fields = Decoder::new(bytes);
        let mut files = Vec::new();
        for _ in 0..fields.varint()? {
            let name = fields.file_name()?;
            let (mut pieces, mut start) = (Vec::new(), 0);
            for _ in 0..fields.varint()? {
                let size = within("size of a piece", 1..=PIECE_SIZE_MAX, fields.varint()?)?;
                pieces.push(FilePiece { bytes: start..start + size, hash: fields.array()? });
                start += size;
            }
            files.push(FileTree { name, pieces });
        }
        fields.end()?;
        Ok(Tree { files })
    }

    /// Writes the tree into the table's folder, and syncs it.
    pub(super) fn write(&self, disk: &dyn Disk, folder: &Path, seed: Seed, id: u64) -> Result<()> {
        let body = self.encode();
        let mut bytes = Header::new(FileKind::Tree, seed, id).encode().to_vec();
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        let body_sum = crc32c(&bytes[ALIGNMENT..]);
        let footer = Footer { fields: Vec::new(), body_sum }.encode(bytes.len() as u64);
        bytes.extend(footer);
        let file = disk.create(&folder.join(NAME), Access::Cached)?;
        file.write_at(0, &bytes)?;
        file.sync()?;
        disk.sync_folder(folder)
    }

    /// Reads the tree of the table `id`, which must have this root.
    pub(super) fn read(disk: &dyn Disk, folder: &Path, id: u64, root: &Root) -> Result<Tree> {
        let file = disk.open(&folder.join(NAME), Access::Cached)?;
        Tree::of_file(file.as_ref(), id, root)
    }

    /// Reads the tree of a table from a file `TREE`.
    pub(super) fn of_file(file: &dyn BlockFile, id: u64, root: &Root) -> Result<Tree> {
        let header = Header::read(file, FileKind::Tree)?;
        let (footer, footer_start) = Footer::read(file)?;
        let at = |error: Error| error.at(&file.place().offset(ALIGNMENT as u64));
        let bytes = read_all(file, TREE_SIZE_MAX)?;
        let bytes = &bytes[ALIGNMENT..footer_start as usize];
        check_sum(footer.body_sum, crc32c(bytes)).map_err(at)?;
        let mut fields = Decoder::new(bytes);
        let size = fields.u64().map_err(at)?;
        let body = fields.bytes(size).map_err(at)?;
        if header.id != id || hash(body) != *root {
            let expected = format!("{} of table {id:016x}", hex(root));
            let got = format!("{} of table {:016x}", hex(&hash(body)), header.id);
            return Err(at(Error::field("root of the block tree", expected, got)));
        }
        Tree::decode(body).map_err(at)
    }
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A disk that hashes the bytes that are written through it, in the thread that writes them.
#[derive(Debug)]
pub(super) struct HashingDisk {
    disk: Arc<dyn Disk>,
    files: Mutex<BTreeMap<String, Arc<Hashes>>>,
}

/// The pieces written to a file, by offset.
#[derive(Debug, Default)]
struct Hashes(Mutex<BTreeMap<u64, FilePiece>>);

#[derive(Debug)]
struct HashingFile {
    file: Arc<dyn BlockFile>,
    hashes: Arc<Hashes>,
}

const NO_PANIC: &str = "nothing panics under this lock";

impl HashingDisk {
    pub(super) fn new(disk: Arc<dyn Disk>) -> HashingDisk {
        HashingDisk { disk, files: Mutex::default() }
    }

    /// Returns the tree of these files, each byte of which was written once, through this disk.
    pub(super) fn tree(&self, names: impl Iterator<Item = String>) -> Tree {
        let files = self.files.lock().expect(NO_PANIC);
        let file = |name: String| {
            let written = files[&name].0.lock().expect(NO_PANIC);
            let pieces: Vec<FilePiece> = written.values().cloned().collect();
            assert!(pieces.first().is_none_or(|first| first.bytes.start == 0));
            assert!(pieces.is_sorted_by(|a, b| a.bytes.end == b.bytes.start));
            FileTree { name, pieces }
        };
        Tree { files: names.map(file).collect() }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl DiskLayer for HashingDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn over_created(&self, path: &Path, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        let hashes = Arc::new(Hashes::default());
        self.files.lock().expect(NO_PANIC).insert(name_of(path), hashes.clone());
        Arc::new(HashingFile { file, hashes })
    }

    fn before_rename(&self, from: &Path, to: &Path) {
        let mut files = self.files.lock().expect(NO_PANIC);
        if let Some(hashes) = files.remove(&name_of(from)) {
            files.insert(name_of(to), hashes);
        }
    }
}

impl FileLayer for HashingFile {
    fn below(&self) -> &dyn BlockFile {
        &*self.file
    }

    fn before_write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let piece = FilePiece { bytes: offset..offset + bytes.len() as u64, hash: hash(bytes) };
        self.hashes.0.lock().expect(NO_PANIC).insert(offset, piece);
        Ok(())
    }
}

/// A callback that takes a piece, and its bytes if they have the piece's hash.
pub(super) type VisitPiece<'a> = dyn FnMut(&FilePiece, Option<&[u8]>) -> Result<()> + 'a;

/// Reads a file piece by piece, and calls `visit` with each piece. The missing pieces of a file
/// that is too short count as damaged.
pub(super) fn check_pieces(
    file: &dyn BlockFile,
    tree: &FileTree,
    visit: &mut VisitPiece<'_>,
) -> Result<()> {
    let size = file.size()?;
    let mut buffer = Buffer::zeroed(0);
    for piece in &tree.pieces {
        let len = piece.size() as usize;
        if piece.bytes.end > size {
            visit(piece, None)?;
            continue;
        }
        if buffer.len() < len {
            buffer = Buffer::zeroed(len);
        }
        file.read_at(piece.bytes.start, &mut buffer[..len])?;
        visit(piece, (hash(&buffer[..len]) == piece.hash).then_some(&buffer[..len]))?;
    }
    Ok(())
}

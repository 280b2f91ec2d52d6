//! The manifest: the small file that says which files of a data set are current.
//!
//! Publishing one is the only point at which a data set changes: new files are written and synced
//! first, then the manifest is written under another name, synced, renamed, and its folder synced.
//! Whoever opens the data set sees the old files or the new ones.
//!
//! The fields of a manifest file's footer (the same table stands in `docs/formats/manifest.md`;
//! `size` is a variable-length integer, and so is each count):
//!
//! | field      | size |                                                                     |
//! |------------|-----:|---------------------------------------------------------------------|
//! | kind       |    1 | 1 a table, 2 a filter                                               |
//! | generation |    8 | how often this data set was published                               |
//! | files      |    … | count, then for each: role (size, bytes), name (size, bytes), size (8) |
//! | attributes |    … | count, then for each: name (size, bytes), value (size, bytes)       |

use crate::{
    codec::{Decoder, put_bytes, put_varint},
    error::{Error, ErrorKind, Place, Result},
    io::{
        Access, Disk,
        frame::{FileKind, Footer, Header},
        replace_file,
    },
    key::Seed,
};
use std::path::Path;

/// The name of the manifest in its folder.
pub const NAME: &str = "MANIFEST";

/// The name of a manifest that is not published yet.
pub const NEW_NAME: &str = "MANIFEST.new";

/// The name of an empty file that stands beside the files of a table whose first manifest is still
/// to come.
pub const FIRST_NAME: &str = "MANIFEST.first";

/// The kind of a data set, which has a folder of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An immutable dictionary.
    Table,
    /// Versions made of tables. Its folder has `CURRENT` in place of a manifest.
    Store,
    /// Fingerprints of keys on flash.
    Filter,
}

impl Kind {
    /// The kind as one word, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Store => "store",
            Kind::Filter => "filter",
        }
    }
}

/// Which files are current, and what the user attached to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The kind of the data set.
    pub kind: Kind,
    /// The seed of all hashes in the data set.
    pub seed: Seed,
    /// The id of the data that the files hold.
    pub id: u64,
    /// How often this data set was published.
    pub generation: u64,
    /// The current files.
    pub files: Vec<FileEntry>,
    /// Names and values that the library keeps and does not read.
    pub attributes: Vec<(String, Vec<u8>)>,
}

/// One current file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// What it is for: "data", "index".
    pub role: String,
    /// Its name in the manifest's folder.
    pub name: String,
    /// In bytes.
    pub size: u64,
}

impl Manifest {
    /// Reads the manifest of a folder. `Absent` if there is none.
    pub fn read(disk: &dyn Disk, folder: &Path) -> Result<Manifest> {
        let path = folder.join(NAME);
        if !disk.exists(&path)? {
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(folder)));
        }
        let file = disk.open(&path, Access::Cached)?;
        let header = Header::read(file.as_ref(), FileKind::Manifest)?;
        let (footer, _) = Footer::read(file.as_ref())?;
        decode(&header, &footer.fields).map_err(|error| error.at(file.place()))
    }

    /// The file with this role.
    pub fn file(&self, role: &'static str) -> Result<&FileEntry> {
        let found = self.files.iter().find(|file| file.role == role);
        found
            .ok_or_else(|| Error::field("files of the manifest", format!("one for {role}"), "none"))
    }

    /// Makes this the folder's manifest, atomically. All its files must be synced already.
    pub fn publish(&self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        let header = Header::new(FileKind::Manifest, self.seed, self.id).encode();
        let footer = Footer { fields: encode(self), body_sum: 0 }.encode(header.len() as u64);
        // The names of the files it speaks of must be there before it is.
        disk.sync_folder(folder)?;
        replace_file(disk, &folder.join(NAME), |file| {
            file.write_at(0, &header)?;
            file.write_at(header.len() as u64, &footer)
        })
    }
}

fn encode(manifest: &Manifest) -> Vec<u8> {
    let mut out = vec![match manifest.kind {
        Kind::Table => 1,
        Kind::Filter => 2,
        Kind::Store => unreachable!("a store has no manifest"),
    }];
    out.extend(manifest.generation.to_le_bytes());
    put_varint(&mut out, manifest.files.len() as u64);
    for file in &manifest.files {
        put_bytes(&mut out, file.role.as_bytes());
        put_bytes(&mut out, file.name.as_bytes());
        out.extend(file.size.to_le_bytes());
    }
    put_varint(&mut out, manifest.attributes.len() as u64);
    for (name, value) in &manifest.attributes {
        put_bytes(&mut out, name.as_bytes());
        put_bytes(&mut out, value);
    }
    out
}

fn decode(header: &Header, fields: &[u8]) -> Result<Manifest> {
    let mut fields = Decoder::new(fields);
    let kind = match fields.u8()? {
        1 => Kind::Table,
        2 => Kind::Filter,
        kind => return Err(Error::field("kind of data set", "1 or 2", kind)),
    };
    let generation = fields.u64()?;
    let mut files = Vec::new();
    for _ in 0..fields.varint()? {
        let (role, name) = (fields.text()?, fields.text()?);
        // A name with a path in it would lead out of the folder.
        if name.is_empty() || name.contains('/') || name == ".." {
            return Err(Error::field("file name", "a name without a folder", name));
        }
        files.push(FileEntry { role, name, size: fields.u64()? });
    }
    let mut attributes = Vec::new();
    for _ in 0..fields.varint()? {
        attributes.push((fields.text()?, fields.sized_bytes()?.to_vec()));
    }
    fields.end()?;
    Ok(Manifest { kind, seed: header.seed, id: header.id, generation, files, attributes })
}

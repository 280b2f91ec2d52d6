//! The manifest: the small file that names the current files of a data set.
//!
//! A data set changes only when a manifest is published: the new files are written and synced, the
//! manifest is written under another name, synced and renamed, and its folder is synced. A reader
//! finds either all old files or all new files.
//!
//! The fields of a manifest's footer (`docs/formats/manifest.md` has the same table; each count,
//! and the size before a string, is a variable-length integer):
//!
//! | field      | size |                                                                     |
//! |------------|-----:|---------------------------------------------------------------------|
//! | kind       |    1 | of the data set: 1 table, 2 filter, 3 map                           |
//! | generation |    8 | grows with every manifest that is published                         |
//! | files      |    … | count, then for each: role (size, bytes), name (size, bytes), size (8) |
//! | attributes |    … | count, then for each: name (size, bytes), value (size, bytes)       |
//! | devices    |    … | version 2 only: count, at least 1, then for each: folder (size, bytes) |
//! | tokens     |   16 | version 2 only: of this manifest, and of the one before it          |

use crate::{
    codec::{Decoder, put_attributes, put_bytes, put_varint, within},
    error::{Error, ErrorKind, Place, Result},
    io::{
        Access, Disk,
        frame::{FileKind, Footer, Header, read_fields},
        replace_file,
    },
    key::Seed,
};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The name of the manifest in the folder of a data set.
pub const NAME: &str = "MANIFEST";

/// The name under which a manifest is written before it is published.
pub const NEW_NAME: &str = "MANIFEST.new";

/// The name of an empty file beside the files of a data set whose first manifest is not published
/// yet.
pub const FIRST_NAME: &str = "MANIFEST.first";

/// Maximum number of folders on other devices.
pub(crate) const DEVICES_MAX: u64 = 255;

/// The kind of a data set. Every data set has a folder of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An immutable dictionary.
    Table,
    /// A data set of versions, each made of tables. The folder has a file `CURRENT` instead of a
    /// manifest.
    Store,
    /// A cascade filter: fingerprints of keys on flash.
    Filter,
    /// A mutable dictionary.
    Map,
}

impl Kind {
    /// Returns the kind as one word, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Store => "store",
            Kind::Filter => "filter",
            Kind::Map => "map",
        }
    }
}

/// The content of a manifest: the current files of a data set, and the user's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The kind of the data set.
    pub kind: Kind,
    /// The seed that all keys of the data set are hashed with.
    pub seed: Seed,
    /// The id of the data; every file of the data set has the same id in its header.
    pub id: u64,
    /// A number that grows with every manifest that is published.
    pub generation: u64,
    /// The current files.
    pub files: Vec<FileEntry>,
    /// The user's names and values, which the library stores and does not read.
    pub attributes: Vec<(String, Vec<u8>)>,
    /// The folders on other devices that have parts of the files. Most data sets have none.
    pub devices: Vec<PathBuf>,
    /// The tokens that these folders may have. Zeros if there are none.
    pub tokens: Tokens,
}

/// Random numbers, one for each manifest of a data set on several devices. After a manifest is published, the folders on
/// the other devices get its token: a copy of the first folder that is older than the devices is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The token of the manifest.
    pub current: u64,
    /// The token of the manifest before it, which the folders have if a crash came before they got the current one.
    pub before: u64,
}

/// A current file of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// The purpose of the file: "data", "index".
    pub role: String,
    /// The name of the file in the manifest's folder.
    pub name: String,
    /// The size of the file, in bytes.
    pub size: u64,
}

impl Manifest {
    /// Reads the manifest of a folder.
    ///
    /// # Errors
    /// `Absent` if the folder has no manifest.
    pub fn read(disk: &dyn Disk, folder: &Path) -> Result<Manifest> {
        let path = folder.join(NAME);
        if !disk.exists(&path)? {
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(folder)));
        }
        let file = disk.open(&path, Access::Cached)?;
        read_fields(file.as_ref(), FileKind::Manifest, decode)
    }

    /// Returns the current file with this role.
    pub fn file(&self, role: &'static str) -> Result<&FileEntry> {
        let found = self.files.iter().find(|file| file.role == role);
        found
            .ok_or_else(|| Error::field("files of the manifest", format!("one for {role}"), "none"))
    }

    /// Publishes this manifest in a folder, atomically. All files that it names must have been
    /// synced.
    pub fn publish(&self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        // Older versions of this library read what they know.
        let version = if self.devices.is_empty() { 1 } else { 2 };
        let header = Header { version, ..Header::new(FileKind::Manifest, self.seed, self.id) };
        let header = header.encode();
        let footer = Footer { fields: encode(self), body_sum: 0 }.encode(header.len() as u64);
        // The files that the manifest names, and their names, must be durable before the manifest
        // is.
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
        Kind::Map => 3,
        Kind::Store => unreachable!("a store has no manifest"),
    }];
    out.extend(manifest.generation.to_le_bytes());
    put_varint(&mut out, manifest.files.len() as u64);
    for file in &manifest.files {
        put_bytes(&mut out, file.role.as_bytes());
        put_bytes(&mut out, file.name.as_bytes());
        out.extend(file.size.to_le_bytes());
    }
    put_attributes(&mut out, &manifest.attributes);
    if !manifest.devices.is_empty() {
        put_varint(&mut out, manifest.devices.len() as u64);
        for folder in &manifest.devices {
            put_bytes(&mut out, folder.as_os_str().as_bytes());
        }
        let Tokens { current, before } = manifest.tokens;
        out.extend([current, before].map(u64::to_le_bytes).concat());
    }
    out
}

fn decode(header: &Header, fields: &[u8]) -> Result<Manifest> {
    let mut fields = Decoder::new(fields);
    let kind = match fields.u8()? {
        1 => Kind::Table,
        2 => Kind::Filter,
        3 => Kind::Map,
        kind => return Err(Error::field("kind of data set", "1 to 3", kind)),
    };
    let generation = fields.u64()?;
    let mut files = Vec::new();
    for _ in 0..fields.varint()? {
        let (role, name) = (fields.text()?, fields.file_name()?);
        files.push(FileEntry { role, name, size: fields.u64()? });
    }
    let attributes = fields.attributes()?;
    let (devices, tokens) = match (header.version, kind) {
        (1, _) => (Vec::new(), Tokens::default()),
        (_, Kind::Map) => decode_devices(&mut fields)?,
        (_, kind) => return Err(Error::field("kind of data set", "map", kind.name())),
    };
    fields.end()?;
    let (seed, id) = (header.seed, header.id);
    Ok(Manifest { kind, seed, id, generation, files, attributes, devices, tokens })
}

fn decode_devices(fields: &mut Decoder<'_>) -> Result<(Vec<PathBuf>, Tokens)> {
    let count = within("number of other devices", 1..=DEVICES_MAX, fields.varint()?)?;
    let mut folder = || Ok(OsStr::from_bytes(fields.sized_bytes()?).into());
    let folders = (0..count).map(|_| folder()).collect::<Result<_>>()?;
    Ok((folders, Tokens { current: fields.u64()?, before: fields.u64()? }))
}

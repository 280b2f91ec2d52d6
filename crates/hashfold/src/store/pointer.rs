//! The pointer: the file `CURRENT`, which names the current version, and how it is replaced.
//!
//! The file is a frame without a body. Its header has the store's seed and id. The fields of its
//! footer (`docs/formats/store.md` has the same table; counts are variable-length integers):
//!
//! | field         | size |                                                                  |
//! |---------------|-----:|------------------------------------------------------------------|
//! | sequence      |    8 | the number of times that this file was replaced                  |
//! | current       |    8 | the number of the current version, or 0                          |
//! | newest        |    8 | the highest number that a version had                            |
//! | versions      |    … | count, then the existing versions, ascending: number (8), id (8) |
//! | published     |    … | count, then the versions that were current before, latest last, 8 each |
//! | bad           |    … | count, then the versions that must not be published, 8 each      |
//! | pinned        |    … | count, then the versions that must be kept, 8 each               |
//! | removing      |    … | count, then the versions that are being removed, 8 each          |

use crate::{
    codec::{Decoder, put_varint},
    error::{Error, ErrorKind, Place, Result},
    folder,
    io::{
        Access, Disk,
        frame::{FileKind, Header, encode_fields, read_fields},
        replace_file,
    },
    key::Seed,
    manifest::Kind,
};
use std::path::Path;

/// The name of the pointer in the store's folder.
pub const NAME: &str = folder::CURRENT;

/// The highest number of a version.
pub(super) const NUMBER_MAX: u64 = u64::MAX >> 1;

/// The name of a version: its number and its id.
///
/// Numbers count up within one store folder. The id is the same in every copy of the version, and
/// no other version has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionName {
    /// Number of the version, from 1 on.
    pub number: u64,
    /// Id of the version's content.
    pub id: u64,
}

/// The pointer of a store: its current version, and the state of the other versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Seed that all keys of the store are hashed with.
    pub seed: Seed,
    /// Id of the store.
    pub store: u64,
    /// Number of times that the pointer was replaced.
    pub sequence: u64,
    /// Number of the current version.
    pub current: Option<u64>,
    /// Highest number that a version has had; only the number of a discarded version is used twice.
    pub newest: u64,
    /// The existing versions, in the order of their numbers. A listed version whose file is missing
    /// is lost, and no table that it may need is removed.
    pub versions: Vec<VersionName>,
    /// The existing versions that were current before, the latest last, each once.
    pub published: Vec<u64>,
    /// Versions that were rolled back, or marked by hand, so that they are not published by
    /// accident.
    pub bad: Vec<u64>,
    /// Versions that are kept regardless of the retention rules.
    pub pinned: Vec<u64>,
    /// Versions that are being removed; the next writer finishes a removal that a crash
    /// interrupted.
    pub removing: Vec<u64>,
}

impl Pointer {
    /// Makes the pointer of a store without versions.
    pub(super) fn new(seed: Seed, store: u64) -> Pointer {
        Pointer {
            seed,
            store,
            sequence: 0,
            current: None,
            newest: 0,
            versions: Vec::new(),
            published: Vec::new(),
            bad: Vec::new(),
            pinned: Vec::new(),
            removing: Vec::new(),
        }
    }

    /// Reads the pointer of a store's folder.
    ///
    /// # Errors
    /// `Absent` if there is no store, `Missing` if only the pointer is gone.
    pub fn read(disk: &dyn Disk, folder: &Path) -> Result<Pointer> {
        let path = folder.join(NAME);
        if !disk.exists(&path)? {
            folder::check_kind(disk, folder, Kind::Store)?;
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(folder)));
        }
        let file = folder::open_file(disk, &path, Access::Cached, "CURRENT of the store")?;
        read_fields(file.as_ref(), FileKind::Pointer, decode)
    }

    /// Writes this pointer to the store's folder, atomically, with the next sequence number.
    pub(super) fn replace(&mut self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        self.sequence += 1;
        let header = Header::new(FileKind::Pointer, self.seed, self.store);
        let fields = encode(self);
        // A pointer that could not be read again must not be written.
        let path = folder.join(NAME);
        let bytes = decode(&header, &fields).and_then(|_| encode_fields(&header, fields));
        let bytes = bytes.map_err(|error| error.at(&Place::file(&path)))?;
        replace_file(disk, &path, |file| file.write_at(0, &bytes))
    }

    /// Returns the name of the listed version with this number.
    pub fn version(&self, number: u64) -> Option<VersionName> {
        let at = self.versions.binary_search_by_key(&number, |version| version.number);
        at.ok().map(|at| self.versions[at])
    }

    /// Lists a version.
    pub(super) fn add(&mut self, name: VersionName) {
        if let Err(at) = self.versions.binary_search_by_key(&name.number, |version| version.number)
        {
            self.versions.insert(at, name);
        }
        self.newest = self.newest.max(name.number);
    }

    /// Removes a version from the list; the caller removes its file next.
    pub(super) fn strike(&mut self, number: u64) {
        self.versions.retain(|version| version.number != number);
        for list in [&mut self.published, &mut self.bad, &mut self.pinned, &mut self.removing] {
            list.retain(|listed| *listed != number);
        }
        self.removing.push(number);
    }

    /// Makes a version current.
    pub(super) fn publish(&mut self, number: u64) {
        let before = self.current.filter(|current| *current != number);
        // Each version is listed once, so the list is no longer than the list of versions.
        self.published.retain(|published| *published != number && Some(*published) != before);
        self.published.extend(before);
        self.current = Some(number);
    }

    /// Makes no version current.
    pub(super) fn unpublish(&mut self) {
        let before = self.current.take();
        self.published.extend(before);
    }

    /// Returns the versions that were current before and are not marked bad, the latest first.
    pub(super) fn earlier(&self) -> impl Iterator<Item = u64> {
        let earlier = self.published.iter().rev().copied();
        earlier.filter(|number| Some(*number) != self.current && !self.bad.contains(number))
    }
}

fn encode(pointer: &Pointer) -> Vec<u8> {
    let mut out = Vec::new();
    let numbers = [pointer.sequence, pointer.current.unwrap_or(0), pointer.newest];
    out.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    put_varint(&mut out, pointer.versions.len() as u64);
    for VersionName { number, id } in &pointer.versions {
        out.extend([number, id].into_iter().flat_map(|field| field.to_le_bytes()));
    }
    for list in [&pointer.published, &pointer.bad, &pointer.pinned, &pointer.removing] {
        put_varint(&mut out, list.len() as u64);
        out.extend(list.iter().flat_map(|number| number.to_le_bytes()));
    }
    out
}

fn decode(header: &Header, fields: &[u8]) -> Result<Pointer> {
    let mut fields = Decoder::new(fields);
    let mut pointer = Pointer::new(header.seed, header.id);
    (pointer.sequence, pointer.current) = (fields.u64()?, Some(fields.u64()?).filter(|n| *n > 0));
    pointer.newest = fields.u64()?;
    for (what, got) in [("sequence", pointer.sequence), ("newest version", pointer.newest)] {
        if got > NUMBER_MAX {
            return Err(Error::field(what, format!("at most {NUMBER_MAX}"), got));
        }
    }
    let mut last = 0;
    for _ in 0..fields.varint()? {
        let name = VersionName { number: fields.u64()?, id: fields.u64()? };
        if !(last + 1..=pointer.newest).contains(&name.number) {
            let expected = format!("{} to {}, the newest", last + 1, pointer.newest);
            return Err(Error::field("number of a version", expected, name.number));
        }
        pointer.versions.push(name);
        last = name.number;
    }
    decode_lists(&mut fields, &mut pointer)?;
    fields.end()?;
    Ok(pointer)
}

/// Reads the states of listed versions, and the numbers of the versions that are being removed.
fn decode_lists(fields: &mut Decoder<'_>, pointer: &mut Pointer) -> Result<()> {
    let mut lists: [Vec<u64>; 4] = Default::default();
    for list in &mut lists {
        for _ in 0..fields.varint()? {
            list.push(fields.u64()?);
        }
    }
    [pointer.published, pointer.bad, pointer.pinned, pointer.removing] = lists;
    let lists = [&pointer.published, &pointer.bad, &pointer.pinned];
    let mut known = lists.into_iter().flatten().chain(&pointer.current);
    if let Some(number) = known.find(|number| pointer.version(**number).is_none()) {
        return Err(Error::field("version number", "a listed version", number));
    }
    let newest = pointer.newest;
    match pointer.removing.iter().find(|number| !(1..=newest).contains(*number)) {
        None => Ok(()),
        Some(number) => {
            let expected = format!("1 to {newest}, the newest");
            Err(Error::field("version that is being removed", expected, number))
        }
    }
}

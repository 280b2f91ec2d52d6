//! Which version is current: the file `CURRENT`, and how it is replaced.
//!
//! The file is a frame without a body. Its header has the store's seed and id. The fields of its
//! footer (the same table stands in `docs/formats/store.md`; counts are variable-length integers):
//!
//! | field         | size |                                                                  |
//! |---------------|-----:|------------------------------------------------------------------|
//! | sequence      |    8 | how often this file was replaced                                 |
//! | current       |    8 | the number of the current version, or 0                          |
//! | newest        |    8 | the highest number that a version had                            |
//! | published     |    … | count, then the versions that were current before, the latest last, 8 each |
//! | bad           |    … | count, then the versions that must not be published, 8 each      |
//! | pinned        |    … | count, then the versions that must be kept, 8 each               |

use super::version::NUMBER_MAX;
use crate::{
    codec::{Decoder, put_varint},
    error::{Error, ErrorKind, Place, Result},
    io::{
        Access, Disk,
        frame::{FIELDS_SIZE_MAX, FileKind, Footer, Header},
    },
    key::Seed,
};
use std::path::Path;

/// The name of the pointer in the store's folder.
pub const NAME: &str = "CURRENT";
pub(super) const NEW_NAME: &str = "CURRENT.new";

/// Which version is current, and what is known of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Of all hashes in the store.
    pub seed: Seed,
    /// The store's id.
    pub store: u64,
    /// How often the pointer was replaced.
    pub sequence: u64,
    /// The number of the current version.
    pub current: Option<u64>,
    /// The highest number that a version had: none is given twice.
    pub newest: u64,
    /// The versions that were current before and are there, the latest last, each once.
    pub published: Vec<u64>,
    /// Versions that were rolled back, or marked by hand: they are not published by accident.
    pub bad: Vec<u64>,
    /// Versions that are kept whatever the rules say.
    pub pinned: Vec<u64>,
}

impl Pointer {
    /// Of a store without versions.
    pub(super) fn new(seed: Seed, store: u64) -> Pointer {
        Pointer {
            seed,
            store,
            sequence: 0,
            current: None,
            newest: 0,
            published: Vec::new(),
            bad: Vec::new(),
            pinned: Vec::new(),
        }
    }

    /// Reads the pointer of a store's folder. `Absent` if there is none.
    pub fn read(disk: &dyn Disk, folder: &Path) -> Result<Pointer> {
        let path = folder.join(NAME);
        if !disk.exists(&path)? {
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(folder)));
        }
        let file = disk.open(&path, Access::Cached)?;
        let header = Header::read(file.as_ref(), FileKind::Pointer)?;
        let (footer, start) = Footer::read(file.as_ref())?;
        decode(&header, &footer.fields).map_err(|error| error.at(&file.place().offset(start)))
    }

    /// Makes this the store's pointer, atomically, as the one after the last.
    pub(super) fn replace(&mut self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        self.sequence += 1;
        let header = Header::new(FileKind::Pointer, self.seed, self.store).encode();
        let footer = Footer { fields: encode(self), body_sum: 0 };
        let new = folder.join(NEW_NAME);
        if footer.fields.len() > FIELDS_SIZE_MAX {
            let (limit, got) = (FIELDS_SIZE_MAX as u64, footer.fields.len() as u64);
            let kind = ErrorKind::Limit { what: "size of the pointer", limit, got };
            return Err(Error::new(kind).at(&Place::file(&new)));
        }
        let footer = footer.encode(header.len() as u64);
        let file = disk.create(&new, Access::Cached)?;
        file.write_at(0, &[header.as_slice(), &footer].concat())?;
        file.sync()?;
        drop(file);
        disk.rename(&new, &folder.join(NAME))?;
        disk.sync_folder(folder)
    }

    /// Makes a version current.
    pub(super) fn publish(&mut self, number: u64) {
        let before = self.current.filter(|current| *current != number);
        // Each once, however often it was current: the list is no longer than there are versions.
        self.published.retain(|published| *published != number && Some(*published) != before);
        self.published.extend(before);
        self.current = Some(number);
    }

    /// Forgets versions that are gone; `there` are the others, in order.
    pub(super) fn forget_all_but(&mut self, there: &[u64]) {
        for list in [&mut self.published, &mut self.bad, &mut self.pinned] {
            list.retain(|number| there.binary_search(number).is_ok());
        }
    }

    /// The version to go back to: the last one that was current, is not marked bad, and is there.
    pub fn previous(&self, is_there: impl Fn(u64) -> bool) -> Option<u64> {
        let mut earlier = self.published.iter().rev().copied();
        earlier.find(|number| {
            Some(*number) != self.current && !self.bad.contains(number) && is_there(*number)
        })
    }
}

fn encode(pointer: &Pointer) -> Vec<u8> {
    let mut out = Vec::new();
    let numbers = [pointer.sequence, pointer.current.unwrap_or(0), pointer.newest];
    out.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    for list in [&pointer.published, &pointer.bad, &pointer.pinned] {
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
    let newest = pointer.newest;
    let check = |number: u64| match (1..=newest).contains(&number) {
        true => Ok(number),
        false => {
            let expected = format!("1 to {newest}, the newest");
            Err(Error::field("version number", expected, number))
        }
    };
    pointer.current.map(check).transpose()?;
    for list in [&mut pointer.published, &mut pointer.bad, &mut pointer.pinned] {
        for _ in 0..fields.varint()? {
            list.push(check(fields.u64()?)?);
        }
    }
    fields.end()?;
    Ok(pointer)
}

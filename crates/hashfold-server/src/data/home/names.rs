//! The file `filters.names`: which folder of a home is which filter, where the name of the folder does not say it.
//!
//! A folder without an entry is the filter that its name says, and does not expire. The same tables stand in
//! `docs/formats/filter-names.md`; integers are little-endian, and `…` is a variable-length integer.
//!
//! | offset | size | field    |                                       |
//! |-------:|-----:|----------|---------------------------------------|
//! |      0 |    4 | magic    | `HFFN`                                |
//! |      4 |    2 | version  | 1                                     |
//! |      6 |    4 | count    | number of entries                     |
//! |     10 |      | entries  | ascending by the names of the folders |
//! |        |    4 | checksum | CRC-32C of all bytes before           |
//!
//! An entry:
//!
//! | field      | size |                                                                              |
//! |------------|-----:|------------------------------------------------------------------------------|
//! | folder     |    … | its name: size (…), bytes                                                    |
//! | state      |    1 | 0 no filter, its files are to be removed; 1 a filter                         |
//! | key        |    … | of a filter only: size (…), bytes                                            |
//! | expires_at |    8 | of a filter only: in milliseconds since 1970; 0 if the filter does not expire |

use hashfold::{
    Error, ErrorKind, Place, Result,
    checksum::crc32c,
    codec::{Decoder, put_bytes},
    io::{Access, Disk, read_all, replace_file},
};
use std::{collections::BTreeMap, fmt::Write as _, path::Path};

/// The name of the file, which no filter's folder has.
const NAME: &str = "filters.names";

const MAGIC: [u8; 4] = *b"HFFN";
const VERSION: u16 = 1;

/// Maximum size of the file, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// What the file says about a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// The folder is no filter, and its files are to be removed.
    Removed,
    /// The folder is the filter of this key.
    Filter {
        key: Vec<u8>,
        /// The time at which the filter expires, in milliseconds since 1970.
        expires_at: Option<u64>,
    },
}

/// The content of the file, by the names of the folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FilterNames(BTreeMap<String, Listed>);

impl FilterNames {
    /// Reads the file of a home; without one there are no entries.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read.
    pub(super) fn read(disk: &dyn Disk, home: &Path) -> Result<FilterNames> {
        let path = home.join(NAME);
        if !disk.exists(&path)? {
            return Ok(FilterNames::default());
        }
        let bytes = read_all(disk.open(&path, Access::Cached)?.as_ref(), BYTES_MAX)?;
        decode(&bytes).map_err(|error| error.at(&Place::file(&path)))
    }

    /// Replaces the file of a home, atomically and durably.
    ///
    /// # Errors
    /// Errors of writing. The file may have been replaced all the same.
    pub(super) fn publish(&self, disk: &dyn Disk, home: &Path) -> Result<()> {
        let bytes = self.encode();
        replace_file(disk, &home.join(NAME), |file| file.write_at(0, &bytes))
    }

    /// Returns what is known about a folder.
    pub(super) fn get(&self, folder: &str) -> Option<&Listed> {
        self.0.get(folder)
    }

    /// Whether the folder has an entry.
    pub(super) fn has(&self, folder: &str) -> bool {
        self.0.contains_key(folder)
    }

    /// Says which filter a folder is, and when it expires.
    pub(super) fn set(&mut self, folder: &str, key: &[u8], expires_at: Option<u64>) {
        if expires_at.is_none() && name_of(key) == folder {
            self.forget(folder);
        } else {
            self.0.insert(folder.into(), Listed::Filter { key: key.to_vec(), expires_at });
        }
    }

    /// Says that a folder is no filter, and that its files are to be removed.
    pub(super) fn remove(&mut self, folder: &str) {
        self.0.insert(folder.into(), Listed::Removed);
    }

    /// Removes an entry.
    pub(super) fn forget(&mut self, folder: &str) {
        self.0.remove(folder);
    }

    /// Removes the entries of all folders but those that `is_there` accepts. Returns whether there were any.
    pub(super) fn keep(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|folder, _| is_there(folder));
        self.0.len() < before
    }

    /// Returns the folders whose files are to be removed.
    pub(super) fn removed(&self) -> impl Iterator<Item = &String> {
        let removed = self.0.iter().filter(|(_, listed)| **listed == Listed::Removed);
        removed.map(|(folder, _)| folder)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.0.len() as u32).to_le_bytes());
        for (folder, listed) in &self.0 {
            put_bytes(&mut out, folder.as_bytes());
            match listed {
                Listed::Removed => out.push(0),
                Listed::Filter { key, expires_at } => {
                    out.push(1);
                    put_bytes(&mut out, key);
                    out.extend(expires_at.unwrap_or(0).to_le_bytes());
                }
            }
        }
        let sum = crc32c(&out);
        out.extend(sum.to_le_bytes());
        out
    }
}

fn decode(bytes: &[u8]) -> Result<FilterNames> {
    let Some((body, sum)) = bytes.split_last_chunk() else {
        let (expected, got) = (size_of::<u32>() as u64, bytes.len() as u64);
        return Err(ErrorKind::Truncated { expected, got }.into());
    };
    let (expected, got) = (u32::from_le_bytes(*sum), crc32c(body));
    if expected != got {
        return Err(ErrorKind::Checksum { expected, got }.into());
    }
    let mut fields = Decoder::new(body);
    let magic: [u8; 4] = fields.array()?;
    if magic != MAGIC {
        return Err(Error::field("magic", "HFFN", format!("{magic:02x?}")));
    }
    let version = fields.u16()?;
    if version != VERSION {
        return Err(ErrorKind::Version { expected: VERSION..=VERSION, got: version }.into());
    }
    let mut names = FilterNames::default();
    for _ in 0..fields.u32()? {
        let folder = fields.file_name()?;
        let listed = match fields.u8()? {
            0 => Listed::Removed,
            1 => {
                let key = fields.sized_bytes()?.to_vec();
                let expires_at = Some(fields.u64()?).filter(|at| *at > 0);
                Listed::Filter { key, expires_at }
            }
            other => return Err(Error::field("state of a folder", "0 or 1", other)),
        };
        names.0.insert(folder, listed);
    }
    fields.end()?;
    Ok(names)
}

/// Returns the name of the folder of a filter: the key, in which all bytes but letters, digits, `_` and `-`
/// are `%` and two hexadecimal digits. No such name has a dot.
pub(super) fn name_of(key: &[u8]) -> String {
    let mut name = String::new();
    for byte in key {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(*byte)),
            _ => write!(name, "%{byte:02x}").expect("a string takes all text"),
        }
    }
    // The empty key has a folder, too.
    if name.is_empty() { "%".into() } else { name }
}

/// Returns the key of a folder's name; `None` if no key has it.
pub(super) fn key_of(name: &str) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [high, low, ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                key.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &after[2..];
            }
            _ => key.push(*first),
        }
    }
    let key = if name == "%" { Vec::new() } else { key };
    (name_of(&key) == name).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders_and_keys_are_one_to_one() {
        for key in [&b"seen"[..], b"", b"../x", b"a b", b"%", b"\xff\0", b".hidden", b"Z_9-"] {
            let name = name_of(key);
            assert!(!name.contains(['/', '.', '\0']), "{name}");
            assert_eq!(key_of(&name).as_deref(), Some(key));
        }
        for name in ["%zz", "a.b", "%2", "%41", "%2F", NAME, "seen.1"] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }

    #[test]
    fn entries_are_read_as_they_were_written_and_every_flipped_bit_is_noticed() {
        let mut names = FilterNames::default();
        names.set("a", b"b", None);
        names.set("seen", b"seen", Some(1_700_000_000_000));
        names.set("x.1", b"x", None);
        names.set("own", b"own", None);
        names.remove("gone");
        let good = names.encode();
        assert_eq!(decode(&good).unwrap(), names);
        assert!(!names.has("own") && names.removed().eq(["gone"]));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
        for size in 0..good.len() {
            assert!(decode(&good[..size]).is_err(), "{size} bytes");
        }
    }

    #[test]
    fn the_worked_example_of_the_format_is_what_is_written() {
        let mut names = FilterNames::default();
        names.set("a", b"bc", Some(1_700_000_000_000));
        names.remove("f");
        let head = b"HFFN\x01\0\x02\0\0\0\x01a\x01\x02bc\0\x68\xe5\xcf\x8b\x01\0\0\x01f\0";
        let bytes = names.encode();
        assert_eq!(&bytes[..bytes.len() - 4], head);
    }
}

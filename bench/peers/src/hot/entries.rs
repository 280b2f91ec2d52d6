//! Entries of three kinds, each a function of its number, and lookups of them.

use crate::data::{Data, mix};
use record::count;
use std::fmt::Write as _;

/// What the keys and values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keys of 16 bytes, and values of so many.
    Fixed { value: usize },
    /// Paths of files, with the packages that they belong to.
    Paths,
}

/// A data set, written `10000000x84` or `5000000xpaths`.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub count: u64,
    pub kind: Kind,
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let (count, kind) = text.split_once('x').ok_or("expected such as 10000000x84")?;
        let count = count.parse().map_err(|error| format!("{count}: {error}"))?;
        let kind = match kind {
            "paths" => Kind::Paths,
            value => {
                let value = value.parse().map_err(|error| format!("{value}: {error}"))?;
                Kind::Fixed { value }
            }
        };
        Ok(Size { count, kind })
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::Fixed { value } => write!(f, "{}x{value}", self.count),
            Kind::Paths => write!(f, "{}xpaths", self.count),
        }
    }
}

/// The first bytes of a value, by which answers are checked while the clock runs.
pub type Head = [u8; 8];

/// Returns the first bytes of a value.
#[inline]
pub fn head_of(value: Option<&[u8]>) -> Option<&Head> {
    value.and_then(<[u8]>::first_chunk)
}

const TOP: [&str; 8] = [
    "usr/share/doc",
    "usr/lib/x86_64-linux-gnu",
    "usr/include",
    "usr/share/locale",
    "usr/bin",
    "usr/share/man/man3",
    "usr/lib/python3/dist-packages",
    "usr/share/icons/hicolor",
];
const NAMES: [&str; 12] = [
    "server", "client", "common", "core", "plugin", "tools", "data", "i18n", "doc", "dev", "test",
    "extra",
];
const ENDS: [&str; 8] = ["h", "so", "py", "gz", "mo", "png", "html", "txt"];

/// Number of files in a package, about.
const FILES_PER_PACKAGE: u64 = 64;

/// The entries of a data set.
#[derive(Debug)]
pub struct Entries {
    pub size: Size,
    data: Data,
}

impl Entries {
    pub fn new(seed: u64, size: Size) -> Entries {
        let value = match size.kind {
            Kind::Fixed { value } => value,
            Kind::Paths => 0,
        };
        Entries { size, data: Data::new(seed, size.count, value) }
    }

    /// Returns the name of the data set for people.
    pub fn name(&self) -> String {
        let count = count(self.size.count);
        match self.size.kind {
            Kind::Fixed { value } => format!("{count} entries of 16 + {value} bytes"),
            Kind::Paths => format!("{count} paths with their packages, about 80 bytes"),
        }
    }

    /// Writes the key with this number.
    pub fn fill_key(&self, i: u64, key: &mut Vec<u8>) {
        key.clear();
        match self.size.kind {
            Kind::Fixed { .. } => key.extend(self.data.key(i)),
            Kind::Paths => {
                let x = mix(i ^ self.data.seed);
                let pick = |of: &[&'static str], at: u32| of[(x >> at) as usize % of.len()];
                let (top, name, end) = (pick(&TOP, 0), pick(&NAMES, 8), pick(&ENDS, 16));
                let package = self.package(i);
                let path = format!("{top}/{package}/{name}/{:x}-{i}.{end}", x >> 52);
                key.extend(path.into_bytes());
            }
        }
    }

    /// Writes the value of the key with this number: at least 8 bytes.
    pub fn fill_value(&self, i: u64, value: &mut Vec<u8>) {
        match self.size.kind {
            Kind::Fixed { .. } => self.data.fill_value(i, value),
            Kind::Paths => {
                let package = self.package(i);
                value.clear();
                value.extend(package.bytes());
                value.extend(b", section ");
                value.extend(NAMES[mix(i / FILES_PER_PACKAGE) as usize % NAMES.len()].bytes());
            }
        }
    }

    fn package(&self, i: u64) -> String {
        let x = mix((i / FILES_PER_PACKAGE) ^ self.data.seed);
        let mut package = String::new();
        for at in 0..1 + x % 3 {
            let name = NAMES[(x >> (8 + 8 * at)) as usize % NAMES.len()];
            write!(package, "{name}-").expect("a string takes all");
        }
        format!("{:x}-{package}{}", x >> 40, i / FILES_PER_PACKAGE)
    }

    /// Returns the sum of the sizes of all keys and values, in bytes.
    pub fn payload(&self) -> u64 {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        match self.size.kind {
            Kind::Fixed { .. } => self.data.payload(),
            Kind::Paths => (0..self.size.count)
                .map(|i| {
                    self.fill_key(i, &mut key);
                    self.fill_value(i, &mut value);
                    (key.len() + value.len()) as u64
                })
                .sum(),
        }
    }

    /// Returns the numbers of all entries, in the order of their keys.
    pub fn by_key(&self) -> Vec<u32> {
        let keys = Keys::new(self, 0..self.size.count);
        let mut order: Vec<u32> = (0..self.size.count as u32).collect();
        order.sort_unstable_by_key(|&i| keys.get(i as usize));
        order
    }
}

/// Keys, one after the other in memory.
#[derive(Debug)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    pub fn new(entries: &Entries, numbers: impl IntoIterator<Item = u64>) -> Keys {
        let mut keys = Keys { bytes: Vec::new(), ends: vec![0] };
        let mut key = Vec::new();
        for i in numbers {
            entries.fill_key(i, &mut key);
            keys.bytes.extend(&key);
            keys.ends.push(keys.bytes.len());
        }
        keys
    }

    pub fn get(&self, i: usize) -> &[u8] {
        &self.bytes[self.ends[i]..self.ends[i + 1]]
    }
}

/// Keys to look up, and what their values begin with.
#[derive(Debug)]
pub struct Lookups<'a> {
    pub keys: Vec<&'a [u8]>,
    pub heads: Vec<Head>,
}

impl<'a> Lookups<'a> {
    /// Returns the lookups of the keys with these numbers.
    pub fn new(entries: &Entries, keys: &'a Keys, numbers: &[u64]) -> Lookups<'a> {
        let mut value = Vec::new();
        let heads = numbers.iter().map(|&i| {
            entries.fill_value(i, &mut value);
            *value.first_chunk().expect("values have eight bytes or more")
        });
        Lookups { keys: (0..numbers.len()).map(|i| keys.get(i)).collect(), heads: heads.collect() }
    }
}

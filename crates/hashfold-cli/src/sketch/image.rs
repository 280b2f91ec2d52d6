//! Sketches in the formats of other programs: recognised, read, continued, converted, written.

use crate::failure::{Failure, Result};
use clap::ValueEnum;
use hashfold::sketch::{
    AnySketch, DataSketchesHll, Family, PostgresHll, RedisHll, datasketches::Target,
};

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Source {
    /// The file of `hashfold sketch add`
    Hashfold,
    /// The string of PFADD
    Redis,
    /// A value of the type hll of PostgreSQL: bytes, or hexadecimal digits after \x
    Postgres,
    /// An HLL sketch of Apache DataSketches
    Datasketches,
}

/// The formats that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// The file of `hashfold sketch add`
    Hashfold,
    /// The string of PFADD
    Redis,
    /// The bytes of a value of the type hll of PostgreSQL
    Postgres,
    /// A value of the type hll as psql prints and takes it: hexadecimal digits after \x
    PostgresText,
    /// An HLL sketch of Apache DataSketches with registers of 4 bits
    DatasketchesHll4,
    /// An HLL sketch of Apache DataSketches with registers of 6 bits
    DatasketchesHll6,
    /// An HLL sketch of Apache DataSketches with registers of 8 bits
    DatasketchesHll8,
}

impl Format {
    /// Returns the name on the command line.
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no format is hidden");
        value.get_name().to_owned()
    }

    /// Whether sketches of this family can have this format.
    fn fits(self, family: Family) -> bool {
        match self {
            Format::Hashfold => true,
            Format::Redis => family == Family::Redis,
            Format::Postgres | Format::PostgresText => matches!(family, Family::Postgres { .. }),
            Format::DatasketchesHll4 | Format::DatasketchesHll6 | Format::DatasketchesHll8 => {
                family == Family::DataSketches
            }
        }
    }
}

/// A sketch in one of the formats.
pub(super) enum Image {
    Hashfold(AnySketch),
    Redis(RedisHll),
    Postgres { sketch: PostgresHll, is_text: bool },
    DataSketches(DataSketchesHll),
}

impl Source {
    /// Returns the format that the first bytes tell; `None` if they are those of no sketch.
    pub(super) fn of(bytes: &[u8]) -> Option<Source> {
        match bytes {
            _ if AnySketch::recognises(bytes) => Some(Source::Hashfold),
            [b'H', b'Y', b'L', b'L', ..] => Some(Source::Redis),
            [0x11..=0x14, ..] | [b'\\', b'x', ..] => Some(Source::Postgres),
            [2 | 3 | 10, 1, 7, ..] => Some(Source::Datasketches),
            _ => None,
        }
    }
}

impl Image {
    /// Reads a sketch in a format.
    pub(super) fn read(bytes: Vec<u8>, source: Source) -> hashfold::Result<Image> {
        Ok(match source {
            Source::Hashfold => Image::Hashfold(AnySketch::from_bytes(&bytes)?),
            Source::Redis => Image::Redis(read_redis(bytes)?),
            Source::Postgres => match bytes.strip_prefix(br"\x") {
                Some(digits) => {
                    let sketch = PostgresHll::from_bytes(&from_hex(digits.trim_ascii_end())?)?;
                    Image::Postgres { sketch, is_text: true }
                }
                None => {
                    Image::Postgres { sketch: PostgresHll::from_bytes(&bytes)?, is_text: false }
                }
            },
            Source::Datasketches => Image::DataSketches(DataSketchesHll::from_bytes(&bytes)?),
        })
    }

    /// Returns the bytes of the file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Image::Hashfold(sketch) => sketch.to_bytes(),
            Image::Redis(sketch) => sketch.as_bytes().to_vec(),
            Image::Postgres { sketch, is_text: false } => sketch.to_bytes(),
            Image::Postgres { sketch, is_text: true } => to_hex(&sketch.to_bytes()),
            Image::DataSketches(sketch) => sketch.to_bytes(),
        }
    }

    /// Returns the sketch that can be united with others.
    pub(super) fn to_sketch(&self) -> hashfold::Result<AnySketch> {
        Ok(match self {
            Image::Hashfold(sketch) => sketch.clone(),
            Image::Redis(sketch) => AnySketch::Hll(sketch.to_hll()?),
            Image::Postgres { sketch, .. } => AnySketch::Hll(sketch.to_hll()),
            Image::DataSketches(sketch) => AnySketch::Hll(sketch.to_hll()),
        })
    }

    /// Returns the precision, which is up to 21 in DataSketches; `None` without registers.
    pub(super) fn precision(&self) -> hashfold::Result<Option<u8>> {
        Ok(match self {
            Image::DataSketches(sketch) => Some(sketch.precision()),
            _ => self.to_sketch()?.precision(),
        })
    }

    /// Inserts a key.
    pub(super) fn insert(&mut self, key: &[u8]) -> hashfold::Result<()> {
        match self {
            Image::Hashfold(sketch) => sketch.insert(key),
            Image::Redis(sketch) => _ = sketch.insert(key)?,
            Image::Postgres { sketch, .. } => sketch.insert(key),
            Image::DataSketches(sketch) => sketch.insert(key),
        }
        Ok(())
    }

    /// Returns the name of the format.
    pub(super) fn format(&self) -> Format {
        match self {
            Image::Hashfold(_) => Format::Hashfold,
            Image::Redis(_) => Format::Redis,
            Image::Postgres { is_text: false, .. } => Format::Postgres,
            Image::Postgres { is_text: true, .. } => Format::PostgresText,
            Image::DataSketches(sketch) => match sketch.target() {
                Target::Hll4 => Format::DatasketchesHll4,
                Target::Hll6 => Format::DatasketchesHll6,
                Target::Hll8 => Format::DatasketchesHll8,
            },
        }
    }

    /// Returns the sketch in another format. Hashes and coupons that it has stay in it where the format
    /// has them too.
    pub(super) fn convert(self, to: Format) -> Result<Image> {
        let sketch = self.to_sketch()?;
        if !to.fits(sketch.family()) {
            return Err(does_not_fit(sketch.family(), to));
        }
        let sketch = match sketch {
            AnySketch::Hll(sketch) => sketch,
            // It has the hashes of Hashfold, and so the format.
            other => return Ok(Image::Hashfold(other)),
        };
        let target = match to {
            Format::Hashfold => return Ok(Image::Hashfold(AnySketch::Hll(sketch))),
            Format::Redis => {
                return Ok(match self {
                    Image::Redis(_) => self,
                    _ => Image::Redis(RedisHll::from_hll(&sketch)?),
                });
            }
            Format::Postgres | Format::PostgresText => {
                let is_text = to == Format::PostgresText;
                let sketch = match self {
                    Image::Postgres { sketch, .. } => sketch,
                    _ => PostgresHll::from_hll(&sketch)?,
                };
                return Ok(Image::Postgres { sketch, is_text });
            }
            Format::DatasketchesHll4 => Target::Hll4,
            Format::DatasketchesHll6 => Target::Hll6,
            Format::DatasketchesHll8 => Target::Hll8,
        };
        Ok(Image::DataSketches(match self {
            Image::DataSketches(sketch) => sketch.with_target(target),
            _ => DataSketchesHll::from_hll(&sketch, target)?,
        }))
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// Makes the failure for a format of other hashes.
fn does_not_fit(family: Family, to: Format) -> Failure {
    let possible = Format::value_variants().iter().filter(|format| format.fits(family));
    let possible: Vec<String> = possible.map(|format| format.name()).collect();
    Failure::usage(format!(
        "the keys of this sketch were hashed with {family}, and {to} has other hashes, which cannot be \
         computed from these: add the keys to a new sketch with --hash; this one can become {}",
        possible.join(", ")
    ))
}

/// Reads a string of Redis. `redis-cli GET key > FILE` adds the end of a line to it.
fn read_redis(mut bytes: Vec<u8>) -> hashfold::Result<RedisHll> {
    let read = |bytes| {
        let sketch = RedisHll::from_bytes(bytes)?;
        // Damage is found here rather than later.
        sketch.to_hll().map(|_| sketch)
    };
    let done = read(bytes.clone());
    if done.is_ok() || bytes.pop() != Some(b'\n') {
        return done;
    }
    read(bytes)
}

fn from_hex(digits: &[u8]) -> hashfold::Result<Vec<u8>> {
    let error = |got: String| {
        let what = "value of the type hll";
        hashfold::Error::field(what, "pairs of hexadecimal digits after \\x", got)
    };
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(error(format!("{} digits", digits.len())));
    }
    let digit = |letter: u8| char::from(letter).to_digit(16).map(|digit| digit as u8);
    let byte = |[high, low]: [u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    let pair = |pair: &[u8; 2]| byte(*pair).ok_or_else(|| error(pair.escape_ascii().to_string()));
    pairs.iter().map(pair).collect()
}

fn to_hex(bytes: &[u8]) -> Vec<u8> {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\\x{digits}\n").into_bytes()
}

//! `hashfold sketch add`: inserts keys into a sketch.

use super::{
    any,
    file::{self, Target},
    groups::{Call, GroupArgs},
    image::Image,
    words,
};
use crate::{
    failure::{Exit, Failure, Result},
    keys::KeyArgs,
    output::write_line,
    progress::Show,
    rows::FileArgs,
    stop::Stop,
    units,
};
use clap::{Args, ValueEnum};
use hashfold::{
    Seed,
    sketch::{
        AnySketch, BottomK, CAPACITY_MAX, CAPACITY_MIN, Family, Ghll, Hll, PRECISION_MAX,
        PRECISION_MIN, ghll::REGISTER_BITS,
    },
};
use serde_json::json;
use std::{path::PathBuf, time::Instant};

/// Memory for keys that wait to be inserted, in bytes.
const KEYS_BYTES: usize = 64 << 20;
pub(super) const PRECISION: u8 = 14;
/// Number of bits of a register of new sketches for PostgreSQL: the default of its type hll.
const REGWIDTH: u8 = 5;

/// The hash functions of new sketches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HashName {
    /// XXH3-128 with the seed 0
    Hashfold,
    /// MurmurHash64A, as PFADD
    Redis,
    /// MurmurHash3, as hll_hash_text of postgresql-hll
    Postgres,
    /// MurmurHash3, as Apache DataSketches
    Datasketches,
}

impl HashName {
    fn of(family: Family) -> Option<HashName> {
        match family {
            Family::Hashfold(_) => Some(HashName::Hashfold),
            Family::Redis => Some(HashName::Redis),
            Family::Postgres { .. } => Some(HashName::Postgres),
            Family::DataSketches => Some(HashName::Datasketches),
            _ => None,
        }
    }

    fn family(self) -> Family {
        match self {
            HashName::Hashfold => Family::Hashfold(Seed(0)),
            HashName::Redis => Family::Redis,
            HashName::Postgres => Family::Postgres { regwidth: REGWIDTH },
            HashName::Datasketches => Family::DataSketches,
        }
    }
}

/// Insert keys into a sketch, which is made if there is none
///
/// Keys are given as arguments, with --keys FILE, or on standard input. Without --key, each line of a
/// file is a key, without its line end. Files may be compressed with gzip or zstd.
///
/// With --by, rows are grouped: `sketch add DIR --by COL --key COL FILE...` makes a table with a sketch for
/// each group, which `sketch count DIR GROUP` and `hashfold get` read.
///
/// A sketch in the format of Redis, PostgreSQL or Apache DataSketches keeps it, and has the bytes that its
/// program would write.
///
/// Several commands may add to one sketch at a time. The sketch, or the table, is replaced when all keys were read: a command that is stopped or killed
/// changes nothing.
#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    /// File of the sketch; with --by, folder of the groups
    #[arg(value_name = "FILE")]
    sketch: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    groups: GroupArgs,
    /// Precision of a new sketch, 4 to 18: it takes up to 3/4 · 2^P bytes, and the standard error of
    /// its estimate is 1.04 / √2^P; with --register-bits B, B/8 · 2^P bytes and 1 / √2^P [default: 14]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u8).range(
        i64::from(PRECISION_MIN)..=i64::from(PRECISION_MAX)
    ))]
    precision: Option<u8>,
    /// Hash function of a new sketch: sketches for other programs need theirs, see `hashfold sketch
    /// convert` [default: hashfold]
    #[arg(long, conflicts_with = "by", value_name = "NAME")]
    hash: Option<HashName>,
    /// Bits of a register of a new sketch: 7 to 16 make a generalized HyperLogLog (GHLL), which is larger and has better
    /// intersections. With 12, an intersection of a twentieth of two sets has about half of the error that it has with as
    /// many registers of 6 bits [default: 6]
    #[arg(long, conflicts_with_all = ["by", "hash"], value_name = "BITS", value_parser = clap::value_parser!(u8).range(
        i64::from(*REGISTER_BITS.start())..=i64::from(*REGISTER_BITS.end())
    ))]
    register_bits: Option<u8>,
    /// Make a sketch of the K smallest hashes instead of registers, 16 to 16,777,216: 2 to 4 bytes each, and an estimate
    /// whose standard error is 1/√K. `sketch intersect` takes any number of them, and expressions
    #[arg(
        long,
        conflicts_with_all = ["by", "hash", "precision", "register_bits"],
        value_name = "K",
        value_parser = parse_capacity
    )]
    bottom_k: Option<usize>,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

/// Reads the number of smallest hashes.
fn parse_capacity(text: &str) -> Result<usize, String> {
    match units::parse_number::<usize>(text) {
        Ok(capacity) if (CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity) => Ok(capacity),
        _ => Err(format!("expected a number of hashes, {CAPACITY_MIN} to {CAPACITY_MAX}")),
    }
}

pub(crate) fn run(args: &AddArgs) -> Result<Exit> {
    if args.groups.is_given() {
        return args.groups.run(&Call {
            folder: &args.sketch,
            inputs: args.keys.names()?,
            files: &args.files,
            precision: args.precision,
            json: args.json,
        });
    }
    file::refuse_folder(&args.sketch, "name the columns with --by COL --key COL to add rows")?;
    Target::check(&args.sketch)?;
    args.keys.refuse_files()?;
    let before = file::read_bytes_if_any(&args.sketch)?;
    let mut image = args.open(before.clone())?;
    let stop = Stop::on_signals()?;
    let inputs = args.keys.open(args.files.key_options()?, &stop)?;
    let start = Instant::now();
    let show = if args.json { Show::Json } else { Show::Text };
    let mut keys = inputs.start(args.files.bad_row_policy(), KEYS_BYTES, show)?;
    let (mut added, mut hashes) = (0, Vec::new());
    while let Some(batch) = keys.next(&stop, &mut || Ok(()))? {
        added += batch.len() as u64;
        if let Image::Hashfold(sketch) = &mut image
            && let Family::Hashfold(seed) = sketch.family()
        {
            batch.hash(seed, &mut hashes);
            sketch.insert_hashes(&hashes);
        } else {
            batch.keys().try_for_each(|key| image.insert(key))?;
        }
    }
    let bad_rows = keys.finish()?;
    let target = Target::lock(&args.sketch, &stop)?;
    let now = target.read_if_any()?;
    if now != before {
        args.unite(&mut image, now)?;
    }
    target.write(&image.to_bytes())?;
    drop(target);
    args.report(&image.to_sketch()?, (added, bad_rows), start.elapsed().as_secs_f64())?;
    Ok(Exit::Done)
}

impl AddArgs {
    /// Adds the keys of the sketch that others have put in the place of this one meanwhile.
    fn unite(&self, image: &mut Image, now: Option<Vec<u8>>) -> Result<()> {
        let what = match now {
            // The sketch has keys of the file that is gone.
            None => "removed",
            Some(bytes) => {
                let other = file::decode(&self.sketch, bytes, None)?;
                if let (Image::Hashfold(sketch), Image::Hashfold(other)) = (image, &other) {
                    return any::unite(sketch, other, &self.sketch);
                }
                // The bytes of other programs depend on the order of the keys.
                "changed"
            }
        };
        let path = self.sketch.display();
        let message =
            format!("{path}: was {what} by another command meanwhile; add the keys again");
        Err(Failure { exit: Exit::Busy, message })
    }

    /// Reads the sketch from the bytes of its file, or makes it.
    fn open(&self, bytes: Option<Vec<u8>>) -> Result<Image> {
        let Some(bytes) = bytes else { return Ok(Image::Hashfold(self.create()?)) };
        let image = file::decode(&self.sketch, bytes, None)?;
        let sketch = image.to_sketch()?;
        let hash = HashName::of(sketch.family());
        let refuse = |got: String, option: &str| {
            let path = self.sketch.display();
            Err(Failure::usage(format!("{path}: {got}; {option} is for new sketches")))
        };
        let other_kind = |expected: &str| format!("is {}, expected {expected}", any::kind(&sketch));
        let (bits, capacity) = match &sketch {
            AnySketch::Hll(_) => (None, None),
            AnySketch::Ghll(sketch) => (Some(sketch.register_bits()), None),
            AnySketch::BottomK(sketch) => (None, Some(sketch.capacity())),
        };
        match self {
            AddArgs { precision: Some(expected), .. } if sketch.precision() != Some(*expected) => {
                let got = match sketch.precision() {
                    Some(got) => format!("has the precision {got}, expected {expected}"),
                    None => other_kind("one with a precision"),
                };
                refuse(got, "--precision")
            }
            AddArgs { register_bits: Some(expected), .. } if bits != Some(*expected) => {
                let got = match bits {
                    Some(got) => format!("has registers of {got} bits, expected {expected}"),
                    None => other_kind("one of --register-bits"),
                };
                refuse(got, "--register-bits")
            }
            AddArgs { bottom_k: Some(expected), .. } if capacity != Some(*expected) => {
                let got = match capacity {
                    Some(got) => format!("has room for {got} hashes, expected {expected}"),
                    None => other_kind("one of --bottom-k"),
                };
                refuse(got, "--bottom-k")
            }
            AddArgs { hash: Some(expected), .. } if hash != Some(*expected) => {
                refuse(format!("has hashes of {}", sketch.family()), "--hash")
            }
            _ => Ok(image),
        }
    }

    /// Makes an empty sketch.
    fn create(&self) -> hashfold::Result<AnySketch> {
        let precision = self.precision.unwrap_or(PRECISION);
        Ok(match (self.bottom_k, self.register_bits) {
            (Some(capacity), _) => AnySketch::BottomK(BottomK::new(capacity, Seed(0))?),
            (None, Some(bits)) => AnySketch::Ghll(Ghll::new(precision, bits)?),
            (None, None) => {
                let family = self.hash.unwrap_or(HashName::Hashfold).family();
                AnySketch::Hll(Hll::of_family(family, precision)?)
            }
        })
    }

    fn report(
        &self,
        sketch: &AnySketch,
        (added, bad_rows): (u64, u64),
        seconds: f64,
    ) -> Result<()> {
        let (path, estimate) = (self.sketch.display(), any::estimate(sketch, words::CONFIDENCE)?);
        if self.json {
            return write_line(json!({
                "event": "added", "sketch": path.to_string(), "keys": added, "bad_rows": bad_rows,
                "seconds": seconds, "distinct": estimate.to_json(),
            }));
        }
        write_line(format_args!(
            "added to {path}: {}{}; {seconds:.1} s, {} keys/s\ndistinct keys: {}",
            units::counted(added, "key", "keys"),
            self.files.bad_rows_note(bad_rows),
            units::count(units::per_second(added, seconds)),
            estimate.words(),
        ))
    }
}

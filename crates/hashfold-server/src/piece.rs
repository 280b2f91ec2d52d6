//! Pieces of a filter: what `BF.SCANDUMP` and `CF.SCANDUMP` return, and `LOADCHUNK` takes.
//!
//! A dump is the fingerprints of a filter at one moment, in ascending order, cut into pieces of at most
//! 1 MiB. Each piece says which filter it is of and which place it has there, so that only the pieces of
//! one dump, all of them and in order, make a filter. `docs/formats/dump.md` has the same tables.
//!
//! | offset | size | field     |                                                                  |
//! |-------:|-----:|-----------|------------------------------------------------------------------|
//! |      0 |    4 | magic     | `HFDP`                                                           |
//! |      4 |    2 | version   | 1                                                                |
//! |      6 |    1 | mode      | 0 set, 1 multiset                                                |
//! |      7 |    1 | is_last   | 1 in the last piece of a dump, else 0                            |
//! |      8 |    8 | dump      | a random number of the dump                                      |
//! |     16 |    8 | number    | of the piece: 1 to 2^28 - 1                                      |
//! |     24 |    8 | before    | number of fingerprints in the pieces before                      |
//! |     32 |    8 | seed      | that keys are hashed with                                        |
//! |     40 |    8 | largest   | the largest possible fingerprint                                 |
//! |     48 |    8 | capacity  | number of keys that the filter was made for, at least 1          |
//! |     56 |    8 | expansion | of `BF.RESERVE`, plus 1; 0 if there is none                      |
//! |     64 |    8 | window    | time for which keys are kept, in seconds; 0 for ever             |
//! |     72 |    8 | epochs    | number of epochs in that time; 0 without a window                |
//! |     80 |    4 | items     | number of fingerprints in this piece                             |
//! |     84 |    4 | checksum  | CRC-32C of bytes 0 to 83, then of all bytes from 88 on           |
//! |     88 |    … | items     | the fingerprints                                                 |
//!
//! A fingerprint, in variable-length integers:
//!
//! | field |                                                                                       |
//! |-------|---------------------------------------------------------------------------------------|
//! | gap   | the first fingerprint itself; of each later one, its distance from the one before, minus 1 |
//! | count | in a multiset only: the number of keys with this fingerprint, minus 1                 |

use hashfold::{
    Error, ErrorKind, Result, Seed,
    checksum::{crc32c, crc32c_append},
    codec::{Decoder, VARINT_BYTES_MAX, put_varint},
    filter::{
        Mode,
        cascade::{CascadeStats, Window},
    },
    fingerprints::{FingerprintBatch, Universe},
};
use std::time::Duration;

/// Maximum size of a piece, in bytes: the largest argument that a server takes.
pub const PIECE_BYTES_MAX: usize = 1 << 20;

const MAGIC: [u8; 4] = *b"HFDP";
const VERSION: u16 = 1;
const CHECKSUM_OFFSET: usize = 84;
const HEAD_SIZE: usize = 88;
const _: () = assert!(CHECKSUM_OFFSET + size_of::<u32>() == HEAD_SIZE);

/// Maximum size of a fingerprint with its count, in bytes.
const ITEM_BYTES_MAX: usize = 2 * VARINT_BYTES_MAX;

/// Bits of an iterator that are the number of a piece. An iterator has at most 52 bits, so that clients whose
/// numbers are floating-point numbers keep all of them.
const NUMBER_BITS: u32 = 28;

/// Maximum number of a piece.
const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;

/// Bits of an iterator that are taken from the number of the dump.
const DUMP_BITS: u32 = 24;
const _: () = assert!(NUMBER_BITS + DUMP_BITS <= f64::MANTISSA_DIGITS);

/// The filter that is dumped, and the dump: equal in all pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// A random number of the dump.
    pub dump: u64,
    /// Set or multiset.
    pub mode: Mode,
    /// Seed that keys are hashed with.
    pub seed: Seed,
    /// Universe of the fingerprints.
    pub universe: Universe,
    /// Number of keys that the filter was made for.
    pub capacity: u64,
    /// The expansion that a client asked for.
    pub expansion: Option<u32>,
    /// How long keys are kept.
    pub window: Option<Window>,
}

impl Dumped {
    /// Returns the description of a filter with these statistics.
    pub fn of(stats: &CascadeStats, dump: u64) -> Dumped {
        Dumped {
            dump,
            mode: stats.mode,
            seed: stats.seed,
            universe: stats.universe,
            capacity: stats.capacity,
            expansion: stats.expansion,
            window: stats.window,
        }
    }

    /// Returns the number by which clients name a piece of the dump.
    pub fn iterator(&self, number: u64) -> i64 {
        let dump = self.dump & ((1 << DUMP_BITS) - 1);
        ((dump << NUMBER_BITS) | (number & NUMBER_MAX)).cast_signed()
    }

    /// Returns the number of the piece that an iterator names; `None` if it is one of another dump.
    pub fn number(&self, iterator: i64) -> Option<u64> {
        let number = iterator.cast_unsigned() & NUMBER_MAX;
        (number > 0 && self.iterator(number) == iterator).then_some(number)
    }
}

/// A piece of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The filter and the dump.
    pub of: Dumped,
    /// Number of the piece, from 1 on.
    pub number: u64,
    /// Number of fingerprints in the pieces before.
    pub before: u64,
    /// Whether this is the last piece.
    pub is_last: bool,
    /// The fingerprints with their counts, which are 1 in a set.
    pub items: FingerprintBatch,
}

/// A writer of one piece.
#[derive(Debug)]
pub struct PieceWriter {
    out: Vec<u8>,
    mode: Mode,
    last: Option<u64>,
    items: u32,
}

impl PieceWriter {
    /// Makes a writer of a piece without fingerprints.
    pub fn new(mode: Mode) -> PieceWriter {
        PieceWriter { out: vec![0; HEAD_SIZE], mode, last: None, items: 0 }
    }

    /// Whether the piece takes no further fingerprint.
    pub fn is_full(&self) -> bool {
        self.out.len() + ITEM_BYTES_MAX > PIECE_BYTES_MAX
    }

    /// Returns the number of fingerprints.
    pub fn items(&self) -> u64 {
        self.items.into()
    }

    /// Adds a fingerprint, which is above the one before, with its count, which is above 0.
    pub fn push(&mut self, fingerprint: u64, count: i64) {
        debug_assert!(!self.is_full() && count > 0);
        debug_assert!(self.last.is_none_or(|last| last < fingerprint));
        let gap = self.last.map_or(fingerprint, |last| fingerprint - last - 1);
        put_varint(&mut self.out, gap);
        if self.mode == Mode::Multiset {
            put_varint(&mut self.out, (count - 1).cast_unsigned());
        }
        self.last = Some(fingerprint);
        self.items += 1;
    }

    /// Returns the bytes of the piece with this number, of a dump that has `before` fingerprints in the
    /// pieces before.
    ///
    /// # Errors
    /// There are too many pieces.
    pub fn finish(mut self, of: &Dumped, number: u64, before: u64, last: Last) -> Result<Vec<u8>> {
        if number > NUMBER_MAX {
            let kind =
                ErrorKind::Limit { what: "pieces of the dump", limit: NUMBER_MAX, got: number };
            return Err(kind.into());
        }
        let mut head = Vec::with_capacity(HEAD_SIZE);
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        head.push(u8::from(of.mode == Mode::Multiset));
        head.push(u8::from(last == Last::Yes));
        let window =
            of.window.map_or([0, 0], |window| [window.length().as_secs(), window.epochs()]);
        let expansion = of.expansion.map_or(0, |expansion| u64::from(expansion) + 1);
        let numbers = [of.dump, number, before, of.seed.0, of.universe.last(), of.capacity];
        for field in numbers.into_iter().chain([expansion]).chain(window) {
            head.extend(field.to_le_bytes());
        }
        head.extend(self.items.to_le_bytes());
        let sum = crc32c_append(crc32c(&head), &self.out[HEAD_SIZE..]);
        head.extend(sum.to_le_bytes());
        self.out[..HEAD_SIZE].copy_from_slice(&head);
        Ok(self.out)
    }
}

/// Whether a piece is the last one of its dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// No piece follows.
    Yes,
    /// Further pieces follow.
    No,
}

impl Piece {
    /// Decodes a piece. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Piece> {
        if bytes.len() > PIECE_BYTES_MAX {
            let (limit, got) = (PIECE_BYTES_MAX as u64, bytes.len() as u64);
            return Err(ErrorKind::Limit { what: "size of a piece", limit, got }.into());
        }
        let mut head = Decoder::new(bytes);
        let magic = head.array()?;
        if magic != MAGIC {
            return Err(Error::field("magic", "HFDP", format!("{magic:02x?}")));
        }
        let version = head.u16()?;
        if version != VERSION {
            return Err(Error::field("version of the piece", VERSION.to_string(), version));
        }
        let mode = if is_set(&mut head)? { Mode::Multiset } else { Mode::Set };
        let is_last = is_set(&mut head)?;
        let (dump, number, before) = (head.u64()?, head.u64()?, head.u64()?);
        let (seed, largest, capacity) = (Seed(head.u64()?), head.u64()?, head.u64()?);
        let (expansion, window) = (head.u64()?, [head.u64()?, head.u64()?]);
        let (items, sum) = (head.u32()?, head.u32()?);
        let got = crc32c_append(crc32c(&bytes[..CHECKSUM_OFFSET]), head.rest());
        if got != sum {
            return Err(ErrorKind::Checksum { expected: sum, got }.into());
        }
        if !(1..=NUMBER_MAX).contains(&number) {
            return Err(Error::field("number of the piece", format!("1 to {NUMBER_MAX}"), number));
        }
        if capacity == 0 {
            return Err(Error::field("capacity", "at least 1", capacity));
        }
        let of = Dumped {
            dump,
            mode,
            seed,
            universe: Universe::with_size(u128::from(largest) + 1)?,
            capacity,
            expansion: expansion_of(expansion)?,
            window: window_of(window)?,
        };
        let items = items_of(&mut head, items, &of)?;
        Ok(Piece { of, number, before, is_last, items })
    }
}

/// Takes a byte that is 0 or 1.
fn is_set(head: &mut Decoder<'_>) -> Result<bool> {
    match head.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::field("flag", "0 or 1", other)),
    }
}

fn expansion_of(field: u64) -> Result<Option<u32>> {
    let Some(expansion) = field.checked_sub(1) else { return Ok(None) };
    match u32::try_from(expansion) {
        Ok(expansion) => Ok(Some(expansion)),
        Err(_) => Err(Error::field("expansion", "at most 32 bits", expansion)),
    }
}

fn window_of([length, epochs]: [u64; 2]) -> Result<Option<Window>> {
    match (length, epochs) {
        (0, 0) => Ok(None),
        _ => Window::new(Duration::from_secs(length), epochs).map(Some),
    }
}

/// Takes all fingerprints of a piece.
fn items_of(rest: &mut Decoder<'_>, count: u32, of: &Dumped) -> Result<FingerprintBatch> {
    let mut items = FingerprintBatch::new();
    for _ in 0..count {
        let gap = rest.varint()?;
        let fingerprint = match items.last() {
            None => Some(gap),
            Some(last) => last.checked_add(gap).and_then(|sum| sum.checked_add(1)),
        };
        let fingerprint = fingerprint.filter(|it| *it <= of.universe.last());
        let fingerprint = fingerprint.ok_or_else(|| {
            Error::field(
                "fingerprint",
                format!("at most {:#x}", of.universe.last()),
                "a larger one",
            )
        })?;
        let more = if of.mode == Mode::Multiset { rest.varint()? } else { 0 };
        let more = i64::try_from(more).ok().and_then(|more| more.checked_add(1));
        let count = more.ok_or_else(|| Error::field("count", "at most 63 bits", "a larger one"))?;
        items.push(fingerprint, count)?;
    }
    rest.end()?;
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashfold::work::{Random as _, SeededRandom};

    fn dumped(mode: Mode) -> Dumped {
        Dumped {
            dump: 0x0123_4567_89ab_cdef,
            mode,
            seed: Seed(7),
            universe: Universe::with_size(1 << 40).unwrap(),
            capacity: 1000,
            expansion: Some(2),
            window: Some(Window::new(Duration::from_secs(3600), 6).unwrap()),
        }
    }

    fn encode(of: &Dumped, items: &[(u64, i64)]) -> Vec<u8> {
        let mut writer = PieceWriter::new(of.mode);
        items.iter().for_each(|(fingerprint, count)| writer.push(*fingerprint, *count));
        writer.finish(of, 2, 5, Last::Yes).unwrap()
    }

    #[track_caller]
    fn check(of: &Dumped, items: &[(u64, i64)]) {
        let piece = Piece::decode(&encode(of, items)).unwrap();
        assert_eq!(piece.items.iter().collect::<Vec<_>>(), items);
        assert_eq!((piece.of, piece.number, piece.before, piece.is_last), (*of, 2, 5, true));
    }

    #[test]
    fn pieces_come_back_as_they_were() {
        check(&dumped(Mode::Set), &[]);
        check(&dumped(Mode::Set), &[(0, 1), (1, 1), (77, 1), ((1 << 40) - 1, 1)]);
        check(&dumped(Mode::Multiset), &[(5, 1), (6, 300), (900, i64::MAX)]);
        let plain = Dumped { expansion: None, window: None, ..dumped(Mode::Set) };
        check(&plain, &[(3, 1)]);
        check(&Dumped { expansion: Some(0), universe: Universe::EXACT, ..plain }, &[(u64::MAX, 1)]);
    }

    #[test]
    fn the_worked_example_is_what_a_dump_writes() {
        let of = Dumped {
            dump: 1,
            mode: Mode::Set,
            seed: Seed(7),
            universe: Universe::with_size(1 << 32).unwrap(),
            capacity: 100,
            expansion: Some(2),
            window: None,
        };
        let mut writer = PieceWriter::new(of.mode);
        [5, 6, 900].into_iter().for_each(|fingerprint| writer.push(fingerprint, 1));
        let piece = writer.finish(&of, 1, 0, Last::Yes).unwrap();
        let page = include_str!("../../../docs/formats/dump.md");
        for (i, row) in piece.chunks(16).enumerate().filter(|(_, row)| row.iter().any(|it| *it > 0))
        {
            let hex = |half: &[u8]| {
                half.iter().map(|it| format!("{it:02x}")).collect::<Vec<_>>().join(" ")
            };
            let (left, right) = row.split_at(row.len().min(8));
            let line = format!("{:06x}  {}  {}", 16 * i, hex(left), hex(right));
            assert!(page.contains(&line), "{line}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = encode(&dumped(Mode::Multiset), &[(5, 1), (6, 300), (900, 2)]);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Piece::decode(&bad).is_err(), "bit {bit}");
        }
        for end in 0..good.len() {
            assert!(Piece::decode(&good[..end]).is_err(), "{end}");
        }
        assert!(Piece::decode(&[&good[..], &[0]].concat()).is_err());
        assert!(Piece::decode(&vec![0; PIECE_BYTES_MAX + 1]).is_err());
    }

    /// Forged pieces with right checksums.
    #[test]
    fn bytes_of_strangers_are_checked_and_never_panic() {
        let good = encode(&dumped(Mode::Multiset), &[(5, 1), (6, 300), (900, 2)]);
        let random = SeededRandom::new(1);
        for _ in 0..50_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + random.next_u64() % 4 {
                let at = random.next_u64() as usize % bytes.len();
                match random.next_u64() % 4 {
                    0 => bytes[at] = random.next_u64() as u8,
                    1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.next_u64() as usize % 5],
                    2 => bytes.truncate(at.max(HEAD_SIZE)),
                    _ => bytes.push(random.next_u64() as u8),
                }
            }
            seal(&mut bytes);
            if let Ok(piece) = Piece::decode(&bytes) {
                let items: Vec<_> = piece.items.iter().collect();
                assert!(
                    items.iter().all(|(it, count)| *it <= piece.of.universe.last() && *count > 0)
                );
                assert!(items.is_sorted_by(|a, b| a.0 < b.0));
            }
        }
    }

    fn seal(bytes: &mut [u8]) {
        let sum = crc32c_append(crc32c(&bytes[..CHECKSUM_OFFSET]), &bytes[HEAD_SIZE..]);
        bytes[CHECKSUM_OFFSET..HEAD_SIZE].copy_from_slice(&sum.to_le_bytes());
    }

    #[test]
    fn impossible_fields_are_refused() {
        let good = encode(&dumped(Mode::Set), &[(5, 1)]);
        let number = |value: u64| value.to_le_bytes().to_vec();
        for (offset, bytes) in [
            (6, vec![2]),
            (16, number(0)),
            (16, number(1 << NUMBER_BITS)),
            (40, number(0)),
            (40, number(4)),
            (48, number(0)),
            (56, number(1 << 33)),
            (64, number(0)),
            (72, number(1 << 20)),
            (80, vec![0xff; 4]),
        ] {
            let mut bad = good.clone();
            bad[offset..offset + bytes.len()].copy_from_slice(&bytes);
            seal(&mut bad);
            assert!(Piece::decode(&bad).is_err(), "byte {offset}: {bytes:?}");
        }
    }

    #[test]
    fn iterators_name_a_piece_of_one_dump_and_survive_floating_point() {
        let of = dumped(Mode::Set);
        for number in [1, 2, NUMBER_MAX] {
            let iterator = of.iterator(number);
            assert_eq!(of.number(iterator), Some(number));
            assert_eq!(iterator as f64 as i64, iterator);
            assert_eq!(Dumped { dump: 1, ..of }.number(iterator), None);
        }
        for wrong in [0, -1, i64::MIN, i64::MAX, of.iterator(0)] {
            assert_eq!(of.number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_full_piece_is_no_larger_than_an_argument() {
        let of = Dumped { universe: Universe::EXACT, ..dumped(Mode::Multiset) };
        let mut writer = PieceWriter::new(of.mode);
        let mut fingerprint = 0;
        while !writer.is_full() {
            writer.push(fingerprint, i64::MAX);
            fingerprint += 1 << 40;
        }
        let items = writer.items();
        let piece = writer.finish(&of, 1, 0, Last::No).unwrap();
        assert!(piece.len() <= PIECE_BYTES_MAX && piece.len() > PIECE_BYTES_MAX - ITEM_BYTES_MAX);
        assert_eq!(Piece::decode(&piece).unwrap().items.len() as u64, items);
        let empty = PieceWriter::new(of.mode);
        assert!(empty.finish(&of, NUMBER_MAX + 1, 0, Last::No).is_err());
    }
}

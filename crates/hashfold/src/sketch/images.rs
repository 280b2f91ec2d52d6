//! Images that PostgreSQL, Redis and Apache DataSketches wrote (`bench/sketch_images`): they are read, written
//! again with the same bytes, and those of the same keys inserted here.

use super::{datasketches::Target, postgres::PostgresOptions, *};

const POSTGRES: &str = include_str!("../../tests/golden/sketch/postgres.txt");
const DATASKETCHES: &str = include_str!("../../tests/golden/sketch/datasketches.txt");
const REDIS: &str = include_str!("../../tests/golden/sketch/redis.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Returns the keys from 0 on as a golden file names them.
fn keys(kind: &str, count: u64) -> Vec<Vec<u8>> {
    let key = |i: u64| match kind {
        "bigint" => i.to_le_bytes().to_vec(),
        _ => i.to_string().into_bytes(),
    };
    (0..count).map(key).collect()
}

fn sketch_of(family: Family, precision: u8, keys: &[Vec<u8>]) -> Hll {
    let mut sketch = Hll::of_family(family, precision).unwrap();
    keys.iter().for_each(|key| _ = sketch.insert(key));
    sketch
}

/// An image of postgresql-hll: its parameters, keys, and bytes.
fn postgres() -> impl Iterator<Item = (PostgresOptions, Vec<Vec<u8>>, Vec<u8>)> {
    POSTGRES.lines().map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [log2m, regwidth, expthresh, sparseon, kind, count, hex] = fields[..] else {
            panic!("{line}")
        };
        let options = PostgresOptions {
            log2m: log2m.parse().unwrap(),
            regwidth: regwidth.parse().unwrap(),
            expthresh: expthresh.parse().unwrap(),
            sparseon: sparseon == "1",
        };
        (options, keys(kind, count.parse().unwrap()), bytes(hex))
    })
}

#[test]
fn images_of_postgres_are_those_of_the_same_keys_inserted_here() {
    let mut kinds = [0; 5];
    for (options, keys, image) in postgres() {
        let read = PostgresHll::from_bytes(&image).unwrap();
        assert_eq!((read.to_bytes(), read.options()), (image.clone(), options));
        let mut inserted = PostgresHll::new(options).unwrap();
        keys.iter().for_each(|key| inserted.insert(key));
        assert_eq!(inserted, read, "{options:?}, {} keys", keys.len());
        let family = Family::Postgres { regwidth: options.regwidth };
        assert_eq!(read.to_hll(), sketch_of(family, options.log2m, &keys));
        kinds[usize::from(image[0] & 15)] += 1;
    }
    assert!(kinds[1..].iter().all(|count| *count > 5), "{kinds:?}");
}

#[test]
fn unions_for_postgres_are_those_of_all_keys() {
    for (options, keys, _) in postgres().filter(|(_, keys, _)| keys.len() < 2000) {
        for (end, start) in [(keys.len(), 0), (keys.len() / 2, keys.len() / 3), (0, 0), (1, 1)] {
            let of = |keys: &[Vec<u8>]| {
                let mut sketch = PostgresHll::new(options).unwrap();
                keys.iter().for_each(|key| sketch.insert(key));
                sketch
            };
            let mut union = of(&keys[..end.min(keys.len())]);
            union.union(&of(&keys[start.min(keys.len())..])).unwrap();
            assert_eq!(
                union,
                of(&keys),
                "{options:?}: up to {end} of {}, and from {start}",
                keys.len()
            );
        }
    }
    let mut sketch = PostgresHll::new(PostgresOptions::default()).unwrap();
    let other = PostgresOptions { expthresh: 0, ..PostgresOptions::default() };
    assert!(sketch.union(&PostgresHll::new(other).unwrap()).is_err());
}

#[test]
fn sketches_for_postgres_are_made_of_registers() {
    for (options, keys, _) in postgres() {
        let sketch =
            sketch_of(Family::Postgres { regwidth: options.regwidth }, options.log2m, &keys);
        let image = PostgresHll::from_hll(&sketch).unwrap();
        assert_eq!((image.options().expthresh, image.to_hll()), (-1, sketch));
        assert_eq!(PostgresHll::from_bytes(&image.to_bytes()).unwrap(), image);
    }
    let wide = Family::Postgres { regwidth: 5 };
    for sketch in [Hll::new(11).unwrap(), Hll::of_family(wide, 18).unwrap()] {
        assert!(PostgresHll::from_hll(&sketch).is_err());
    }
    for bad in [
        PostgresOptions { log2m: 3, ..PostgresOptions::default() },
        PostgresOptions { log2m: 18, ..PostgresOptions::default() },
        PostgresOptions { regwidth: 0, ..PostgresOptions::default() },
        PostgresOptions { regwidth: 8, ..PostgresOptions::default() },
        PostgresOptions { expthresh: 3, ..PostgresOptions::default() },
        PostgresOptions { expthresh: 16_384, ..PostgresOptions::default() },
        PostgresOptions { expthresh: -2, ..PostgresOptions::default() },
    ] {
        assert!(PostgresHll::new(bad).is_err(), "{bad:?}");
    }
    assert!(Hll::of_family(Family::Postgres { regwidth: 8 }, 11).is_err());
}

/// An image of DataSketches: its precision, target, form, keys, and bytes.
struct Image<'a> {
    precision: u8,
    target: Target,
    is_compact: bool,
    kind: &'a str,
    count: u64,
    bytes: Vec<u8>,
}

const TARGETS: [Target; 3] = [Target::Hll4, Target::Hll6, Target::Hll8];

fn datasketches() -> impl Iterator<Item = Image<'static>> {
    DATASKETCHES.lines().map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [precision, bits, form, kind, count, hex] = fields[..] else { panic!("{line}") };
        Image {
            precision: precision.parse().unwrap(),
            target: TARGETS[bits.parse::<usize>().unwrap() / 2 - 2],
            is_compact: form == "compact",
            kind,
            count: count.parse().unwrap(),
            bytes: bytes(hex),
        }
    })
}

impl Image<'_> {
    fn of(&self, sketch: &DataSketchesHll) -> Vec<u8> {
        if self.is_compact { sketch.to_bytes() } else { sketch.to_updatable_bytes() }
    }

    /// Sorts the coupons of a compact set. The library, too, has other places for them after it has read
    /// one.
    fn in_order(&self, bytes: Vec<u8>) -> Vec<u8> {
        if (bytes[7] & 3, self.is_compact) != (1, true) {
            return bytes;
        }
        let mut coupons: Vec<&[u8]> = bytes[12..].chunks(4).collect();
        coupons.sort_unstable();
        [&bytes[..12], &coupons.concat()].concat()
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        keys(self.kind, if self.kind == "union" { self.count / 2 + self.count } else { self.count })
    }
}

fn inserted(precision: u8, target: Target, keys: &[Vec<u8>]) -> DataSketchesHll {
    let mut sketch = DataSketchesHll::new(precision, target).unwrap();
    keys.iter().for_each(|key| sketch.insert(key));
    sketch
}

#[test]
fn images_of_datasketches_are_those_of_the_same_keys_inserted_here() {
    let mut modes = [[0; 3]; 3];
    for image in datasketches() {
        let read = DataSketchesHll::from_bytes(&image.bytes).unwrap();
        let keys = image.keys();
        let place = (image.precision, image.target, image.kind, image.count, image.is_compact);
        assert_eq!(
            image.in_order(image.of(&read)),
            image.in_order(image.bytes.clone()),
            "{place:?}"
        );
        assert_eq!((read.precision(), read.target()), (image.precision, image.target));
        let registers = sketch_of(Family::DataSketches, image.precision, &keys);
        assert_eq!(read.to_hll(), registers, "{place:?}");
        modes[usize::from(image.bytes[7] & 3)][image.target as usize] += 1;
        if image.kind != "union" {
            let sketch = inserted(image.precision, image.target, &keys);
            assert!(image.of(&sketch) == image.bytes, "{place:?}");
        }
    }
    assert!(modes.iter().flatten().all(|count| *count > 3), "{modes:?}");
}

/// The image of a union of the library has the registers, and the order is not known.
#[test]
fn unions_for_datasketches_are_those_of_the_library() {
    for image in datasketches().filter(|image| image.kind == "union") {
        let (keys, count) = (image.keys(), image.count as usize);
        let mut union = inserted(image.precision, image.target, &keys[..count]);
        union.union(&inserted(image.precision, image.target, &keys[count / 2..]));
        let place = (image.precision, image.target, count);
        let read = DataSketchesHll::from_bytes(&image.bytes).unwrap();
        assert_eq!(union.to_hll(), read.to_hll(), "{place:?}");
        let (ours, theirs) = (union.to_bytes(), &image.bytes);
        assert_eq!((ours[5], ours.len()), (theirs[5], theirs.len()), "{place:?}");
        // The smallest value of a union is that of 8 bits, whose image may say it or not.
        if image.target != Target::Hll8 {
            assert_eq!(&ours, theirs, "{place:?}");
        }
    }
}

#[test]
fn unions_of_different_precisions_have_the_lower_one_of_registers() {
    let all = keys("text", 6000);
    for (a, b, a_count, b_count, expected) in [
        (12, 10, 5000, 5000, 10),
        (10, 12, 5000, 5000, 10),
        (12, 10, 100, 5000, 10),
        (10, 12, 20, 5000, 10),
        (12, 10, 5000, 20, 12),
        (12, 8, 100, 20, 12),
    ] {
        let mut union = inserted(a, Target::Hll4, &all[..a_count]);
        union.union(&inserted(b, Target::Hll6, &all[6000 - b_count..]));
        let mut both = sketch_of(Family::DataSketches, expected, &all[..a_count]);
        both.union(&sketch_of(Family::DataSketches, expected, &all[6000 - b_count..])).unwrap();
        assert_eq!((union.precision(), union.to_hll()), (expected, both), "{a} {b}");
        assert_eq!(DataSketchesHll::from_bytes(&union.to_bytes()).unwrap(), union);
    }
}

#[test]
fn sketches_for_datasketches_change_their_target_and_keep_their_registers() {
    for image in datasketches().filter(|image| image.is_compact) {
        let read = DataSketchesHll::from_bytes(&image.bytes).unwrap();
        for target in TARGETS {
            let other = read.with_target(target);
            assert_eq!((other.target(), other.to_hll()), (target, read.to_hll()));
            let of_registers = DataSketchesHll::from_hll(&read.to_hll(), target).unwrap();
            assert_eq!(of_registers.to_hll(), read.to_hll());
            for sketch in [other, of_registers] {
                for bytes in [sketch.to_bytes(), sketch.to_updatable_bytes()] {
                    assert_eq!(DataSketchesHll::from_bytes(&bytes).unwrap(), sketch);
                }
            }
            if image.kind != "union" {
                let sketch = inserted(image.precision, target, &image.keys());
                assert_eq!(read.with_target(target), sketch);
            }
        }
    }
    assert!(DataSketchesHll::from_hll(&Hll::new(11).unwrap(), Target::Hll8).is_err());
    assert!(DataSketchesHll::new(3, Target::Hll8).is_err());
    assert!(DataSketchesHll::new(22, Target::Hll8).is_err());
}

#[test]
fn the_empty_key_changes_no_sketch_of_datasketches() {
    let mut sketch = DataSketchesHll::new(11, Target::Hll4).unwrap();
    sketch.insert(b"");
    assert!(sketch.to_hll().is_empty());
    assert!(!Hll::of_family(Family::DataSketches, 11).unwrap().insert(b""));
}

/// A sketch of the largest precision, which [`Hll`] does not have, and one of all large values.
#[test]
fn sketches_of_the_largest_precision_come_back() {
    for target in TARGETS {
        let mut sketch = DataSketchesHll::new(21, target).unwrap();
        for i in 0..200_000_u32 {
            sketch.insert_coupon((i % 40 + 1) << 26 | i.wrapping_mul(0x9e37_79b1) >> 6);
        }
        for bytes in [sketch.to_bytes(), sketch.to_updatable_bytes()] {
            assert!(DataSketchesHll::from_bytes(&bytes).unwrap() == sketch);
        }
        assert_eq!(sketch.to_hll().precision(), PRECISION_MAX);
        let mut low = DataSketchesHll::new(4, target).unwrap();
        (0..64_u32).for_each(|i| low.insert_coupon((50 + i % 14) << 26 | i));
        assert_eq!(DataSketchesHll::from_bytes(&low.to_bytes()).unwrap(), low);
    }
}

#[test]
fn strings_of_redis_are_those_of_the_same_keys_inserted_here() {
    for line in REDIS.lines() {
        let (count, hex) = line.split_once(' ').unwrap();
        let (keys, image) = (keys("text", count.parse().unwrap()), bytes(hex));
        let mut string = RedisHll::new();
        // As the first PFADD of a key does.
        string.forget_count();
        for key in &keys {
            string.insert(key).unwrap();
        }
        assert_eq!(string.as_bytes(), image, "{count}");
        let read = RedisHll::from_bytes(image).unwrap();
        assert_eq!(read.to_hll().unwrap(), sketch_of(Family::Redis, 14, &keys));
    }
}

/// Returns images cut at each place, with each bit changed, and with another byte after them.
fn damaged(image: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let cut = (0..image.len()).map(|len| image[..len].to_vec());
    let flipped = (0..image.len() * 8).map(|bit| {
        let mut image = image.to_vec();
        image[bit / 8] ^= 1 << (bit % 8);
        image
    });
    cut.chain(flipped).chain([[image, &[0]].concat()])
}

/// A damaged image that is read can be used and written, and comes back.
#[test]
fn damaged_images_are_errors_or_other_sketches() {
    for (_, _, image) in postgres().filter(|(_, _, image)| image.len() < 300) {
        for image in damaged(&image) {
            let Ok(mut sketch) = PostgresHll::from_bytes(&image) else { continue };
            sketch.insert(b"key");
            assert_eq!(PostgresHll::from_bytes(&sketch.to_bytes()).unwrap(), sketch);
        }
    }
    for image in datasketches().filter(|image| image.bytes.len() < 300) {
        for image in damaged(&image.bytes) {
            let Ok(mut sketch) = DataSketchesHll::from_bytes(&image) else { continue };
            sketch.insert(b"key");
            assert_eq!(DataSketchesHll::from_bytes(&sketch.to_bytes()).unwrap(), sketch);
        }
    }
}

#[test]
fn cut_images_are_errors() {
    for (_, _, image) in postgres() {
        // Of hashes and sparse registers, fewer are another sketch.
        let is_fixed = matches!(image[0] & 15, 1 | 4);
        let lens = if is_fixed { 0..image.len() } else { 0..3 };
        lens.for_each(|len| assert!(PostgresHll::from_bytes(&image[..len]).is_err()));
    }
    for image in datasketches().filter(|image| image.bytes.len() < 2000) {
        for len in 0..image.bytes.len() {
            assert!(DataSketchesHll::from_bytes(&image.bytes[..len]).is_err(), "{len}");
        }
    }
}

#[test]
fn images_that_contradict_themselves_are_errors() {
    let postgres = [
        ("218b7f", "the version"),
        ("108b7f", "undefined"),
        ("158b7f", "no type"),
        ("11837f", "log2m 3"),
        ("11927f", "log2m 18"),
        ("11eb7f", "regwidth 8"),
        ("118b4f", "a threshold of 2^14"),
        ("128b7f00000000000001", "half a hash"),
        ("138b7f00210001", "registers that do not ascend"),
        ("138b7f0001000100", "a wrong length"),
    ];
    for (hex, what) in postgres {
        assert!(PostgresHll::from_bytes(&bytes(hex)).is_err(), "{what}");
    }
    assert!(PostgresHll::from_bytes(&bytes(&format!("128b7f{0}{0}", "0000000000000001"))).is_err());
    assert!(PostgresHll::from_bytes(&bytes("118b7f")).is_ok());
    let image = |precision, mode: u8, target, is_compact| {
        let is_it = |image: &Image<'_>| {
            (image.precision, image.target, image.is_compact) == (precision, target, is_compact)
                && (image.bytes[7] & 3, image.count > 6) == (mode, true)
        };
        datasketches().find(is_it).unwrap().bytes
    };
    let list = image(8, 0, Target::Hll4, true);
    let set = image(8, 1, Target::Hll4, true);
    let table = image(8, 1, Target::Hll4, false);
    let four = image(4, 2, Target::Hll4, true);
    let eight = image(4, 2, Target::Hll8, true);
    for (image, at, value, what) in [
        (&list, 1, 2, "version"),
        (&list, 2, 6, "family"),
        (&list, 3, 3, "precision"),
        (&list, 3, 22, "precision"),
        (&list, 0, 3, "preamble"),
        (&list, 6, 8, "count of a list"),
        (&list, 7, 12, "target"),
        (&list, 7, 3, "mode"),
        (&list, 5, 12, "empty"),
        (&set, 3, 7, "precision of a set"),
        (&set, 8, 25, "count of a set"),
        (&set, 11, 255, "count of a set"),
        (&table, 4, 4, "size of a table"),
        (&table, 4, 30, "size of a table"),
        (&table, 8, 3, "count of a table"),
        (&four, 6, 60, "smallest value"),
        (&four, 39, 255, "count of exceptions"),
        (&four, 32, 99, "count of the smallest value"),
        (&eight, 40, 99, "value"),
        (&eight, 15, 255, "HIP"),
        (&eight, 22, 1, "sum"),
        (&eight, 36, 1, "count of exceptions"),
    ] {
        let mut bad = image.clone();
        bad[at] = value;
        assert!(DataSketchesHll::from_bytes(&bad).is_err(), "{what}");
    }
    let twice = [&list[..8], &list[8..12], &list[8..12], &list[16..]].concat();
    assert!(DataSketchesHll::from_bytes(&twice).is_err());
    let twice = [&set[..12], &set[12..16], &set[12..16], &set[20..]].concat();
    assert!(DataSketchesHll::from_bytes(&twice).is_err());
}

//! Section 3: a quotient filter compared with a Bloom filter in memory.

use super::{FOLDER, paper_filter::PaperFilter};
use crate::{
    CascadeSlots, Options, Result,
    hashes::pick,
    measure::{ensure, thread_seconds},
    paper,
    sheet::{MEASURED, OURS, PAPER, Row, Sheet},
};
use fastbloom::BloomFilter;
use hashfold::{
    KeyHash, Seed,
    filter::quotient::{QuotientFilter, QuotientOptions},
};
use record::{Panel, Samples, draw as draw_bars};
use std::path::Path;

/// Remainder bits of the paper's largest level.
const REMAINDER_BITS: u32 = 11;
/// Load of the paper's filter.
const LOAD: f64 = 0.75;
const BATCH: usize = 4096;

/// The measured filters, and their origin.
const FILTERS: [(&str, &str); 4] = [
    ("here: the paper's layout, load 3/4", MEASURED),
    ("ours: quotient filter", OURS),
    ("ours: quotient filter, batched", OURS),
    ("here: Bloom filter (fastbloom)", MEASURED),
];

/// The keys to insert and to look up.
struct Keys {
    log_slots: u32,
    all: Vec<KeyHash>,
    present: Vec<KeyHash>,
    absent: Vec<KeyHash>,
}

impl Keys {
    fn new(log_slots: u32, options: &Options) -> Keys {
        const LOOKUPS: u64 = 1 << 22;
        let count = ((1_u64 << log_slots) as f64 * LOAD) as u64;
        let asked = LOOKUPS.min(count);
        let hash = |i| super::hash(i, options.seed);
        Keys {
            log_slots,
            all: (0..count).map(hash).collect(),
            present: (0..asked).map(|i| hash(pick(i, options.seed, count))).collect(),
            absent: (count..count + asked).map(hash).collect(),
        }
    }

    /// Returns the false-positive rate of the paper's filter, which determines the size of all
    /// others.
    fn error_rate(&self) -> f64 {
        self.all.len() as f64 / 2_f64.powi((self.log_slots + REMAINDER_BITS) as i32)
    }
}

/// One filter in one round, in millions of operations per second.
#[derive(Clone, Copy)]
struct Measured {
    inserts: f64,
    absent: f64,
    present: f64,
    bits_per_item: f64,
    error_rate: f64,
}

pub fn quotient(options: &Options, sizes: &CascadeSlots) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let log_slots = options.size(sizes.log_slots, 26, 14);
    ensure((10..=32).contains(&log_slots), || "2^10 to 2^32 slots are expected".to_owned())?;
    let keys = Keys::new(log_slots, options);
    let mut rounds: [Vec<Measured>; 4] = Default::default();
    for _ in 0..options.rounds {
        rounds[0].push(papers(&keys)?);
        let [single, batched] = ours(&keys)?;
        rounds[1].push(single);
        rounds[2].push(batched);
        rounds[3].push(bloom(&keys)?);
    }
    let mut sheet = new_sheet(options, &keys);
    for stated in &paper::IN_RAM {
        sheet.add(paper_row(stated));
    }
    let bloom_bits = rounds[3][0].bits_per_item;
    for ((name, source), rounds) in FILTERS.iter().zip(&rounds) {
        sheet.add(row(name, source, rounds, bloom_bits));
    }
    sheet.save(options, "cascade-quotient", draw)
}

const TITLE: &str = "A quotient filter compared with a Bloom filter, in memory (section 3)";

fn row(name: &str, source: &str, rounds: &[Measured], bloom_bits: f64) -> Row {
    let of =
        |of: &dyn Fn(&Measured) -> f64| Samples::from(rounds.iter().map(of).collect::<Vec<f64>>());
    let Measured { bits_per_item, error_rate, .. } = rounds[0];
    Row::new("filter", name, source)
        .spread("million_inserts_per_s", &of(&|it| it.inserts), 2)
        .spread("million_absent_lookups_per_s", &of(&|it| it.absent), 2)
        .spread("million_present_lookups_per_s", &of(&|it| it.present), 2)
        .rounded("bits_per_item", bits_per_item, 3)
        .rounded("size_by_bloom", bits_per_item / bloom_bits, 3)
        .rounded("error_percent", error_rate * 100.0, 4)
}

fn paper_row(stated: &paper::InRam) -> Row {
    Row::new("filter", stated.filter, PAPER)
        .number("million_inserts_per_s", stated.million_inserts_per_s)
        .number("million_absent_lookups_per_s", stated.million_lookups_per_s)
        .number("size_by_bloom", stated.size_by_bloom)
}

pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let name = |row: &Row| {
        let filter = row.string("filter");
        if row.is_of(PAPER) { format!("paper: {filter}") } else { filter.to_owned() }
    };
    let panels = [
        ("million_inserts_per_s", "Insertions, million/s; more is better"),
        ("million_absent_lookups_per_s", "Lookups of absent keys, million/s; more is better"),
        ("million_present_lookups_per_s", "Lookups of present keys, million/s; more is better"),
        ("size_by_bloom", "Size, divided by that of a Bloom filter; less is better"),
    ]
    .map(|(column, title)| Panel {
        title: title.to_owned(),
        bars: rows.iter().filter_map(|row| row.bar(&name(row), column)).collect(),
        limit: None,
    });
    draw_bars(path, TITLE, &panels)
}

fn new_sheet(options: &Options, keys: &Keys) -> Sheet {
    let mut sheet = Sheet::new(TITLE, options);
    sheet.note("data", format!("{} numbered keys of 8 bytes, hashed before", keys.all.len()));
    sheet.note("error rate", format!("at most {:.4} %; ours takes any number of slots, and the remainders that give the least size", keys.error_rate() * 100.0));
    sheet.note("threads", "1");
    sheet.note(
        "time",
        "CPU time, from the empty memory on; median of the rounds; lookups in random order; the \
         paper's layout has 16 bits a slot in memory, so that no time goes into packing, and 14 in \
         its size",
    );
    sheet.note("paper", "does not say whether the keys looked up are in; stated size ratio: 1.2");
    sheet.note("paper machine", paper::CASCADE_MACHINE);
    sheet
}

/// Looks up keys and checks the number found. Returns the rate.
fn look_up(keys: &Keys, expected: f64, ask: impl Fn(&[KeyHash]) -> u64) -> Result<(f64, f64, f64)> {
    let mut found = 0;
    let mut time = |hashes: &[KeyHash]| {
        let seconds = thread_seconds(|| found = ask(hashes));
        (hashes.len() as f64 / seconds / 1e6, found)
    };
    let (absent, errors) = time(&keys.absent);
    let (present, found) = time(&keys.present);
    ensure(found == keys.present.len() as u64, || "a key was lost".to_owned())?;
    let error_rate = errors as f64 / keys.absent.len() as f64;
    let spread = 6.0 * (expected / keys.absent.len() as f64).sqrt();
    ensure((error_rate - expected).abs() < 0.2 * expected + spread, || {
        format!("the error rate is {error_rate}, not {expected}")
    })?;
    Ok((absent, present, error_rate))
}

fn one_by_one(contains: impl Fn(KeyHash) -> bool) -> impl Fn(&[KeyHash]) -> u64 {
    move |hashes| hashes.iter().map(|&hash| u64::from(contains(hash))).sum()
}

fn measured(
    keys: &Keys,
    (seconds, bits): (f64, f64),
    expected_error: f64,
    ask: impl Fn(&[KeyHash]) -> u64,
) -> Result<Measured> {
    let (absent, present, error_rate) = look_up(keys, expected_error, ask)?;
    let count = keys.all.len() as f64;
    let inserts = count / seconds / 1e6;
    Ok(Measured { inserts, absent, present, bits_per_item: bits / count, error_rate })
}

fn papers(keys: &Keys) -> Result<Measured> {
    let mut filter = None;
    let seconds = thread_seconds(|| {
        let mut new = PaperFilter::new(keys.log_slots, REMAINDER_BITS);
        for hash in &keys.all {
            new.insert(new.fingerprint(hash.high()));
        }
        filter = Some(new);
    });
    let filter = filter.expect("it was just made");
    let contains = |hash: KeyHash| filter.contains(filter.fingerprint(hash.high()));
    let size = filter.packed_bits() as f64;
    measured(keys, (seconds, size), keys.error_rate(), one_by_one(contains))
}

/// Measures our filter with single keys and in batches.
fn ours(keys: &Keys) -> Result<[Measured; 2]> {
    let options = QuotientOptions::new(keys.all.len() as u64, keys.error_rate(), Seed(0));
    let mut filled = Ok(());
    let mut filter = None;
    let single = thread_seconds(|| {
        filled = QuotientFilter::new(&options).and_then(|mut new| {
            keys.all.iter().try_for_each(|&hash| new.insert(hash).map(drop))?;
            filter = Some(new);
            Ok(())
        });
    });
    filled?;
    let filter = filter.expect("it was just made");
    let (bits, error_rate) = (filter.bytes() as f64 * 8.0, filter.false_positive_rate());
    let one = measured(keys, (single, bits), error_rate, one_by_one(|hash| filter.contains(hash)))?;
    drop(filter);
    let (mut filled, mut filter) = (Ok(()), None);
    let batched = thread_seconds(|| {
        filled = QuotientFilter::new(&options).and_then(|mut new| {
            let mut is_new = [false; BATCH];
            for batch in keys.all.chunks(BATCH) {
                new.insert_batch(batch, &mut is_new[..batch.len()])?;
            }
            filter = Some(new);
            Ok(())
        });
    });
    filled?;
    let filter = filter.expect("it was just made");
    let many = measured(keys, (batched, bits), error_rate, |hashes| {
        let mut found = [false; BATCH];
        let batches = hashes.chunks(BATCH).map(|batch| {
            filter.contains_batch(batch, &mut found[..batch.len()]);
            found[..batch.len()].iter().filter(|found| **found).count() as u64
        });
        batches.sum()
    })?;
    Ok([one, many])
}

fn bloom(keys: &Keys) -> Result<Measured> {
    let mut filter = None;
    let seconds = thread_seconds(|| {
        let options = BloomFilter::with_false_pos(keys.error_rate()).seed(&1);
        let mut new = options.expected_items(keys.all.len());
        for hash in &keys.all {
            new.insert_hash(hash.high());
        }
        filter = Some(new);
    });
    let filter = filter.expect("it was just made");
    let contains = |hash: KeyHash| filter.contains_hash(hash.high());
    let size = filter.num_bits() as f64;
    measured(keys, (seconds, size), keys.error_rate(), one_by_one(contains))
}

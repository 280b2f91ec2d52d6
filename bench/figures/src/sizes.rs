//! Figures 3 and 6: expected and measured bits of tries.

use crate::{
    Keys, Options, Result,
    chart::{self, Axis, Chart, Look, Series},
    hashes::Hashes,
    measure::ensure,
    paper,
    sheet::{OURS, PAPER, Row, Sheet, THEORY},
    theory::{Code, Nodes, PAPER as PAPER_CODE, mean_bits_per_key},
};
use hashfold::table::{HashIndex, IndexOptions, expected_trie_bits};
use plotters::style::RGBColor;
use std::path::Path;

/// Number of buckets in a superblock of the library, by which it rounds the number of buckets.
const BUCKETS: u64 = 28;

/// The library's default limit on Huffman coding.
const CODING_LIMIT: u32 = 32;

/// Maximum relative difference of measured and expected sizes.
const TOLERANCE: f64 = 0.01;

/// Maximum number of keys in a trie whose bucket has 256 or 512 keys on average.
const BUCKET_KEYS_MAX: usize = 700;

/// The looks of series, by their names.
const LOOKS: [(&str, Look, RGBColor); 15] = [
    ("entropy, 0 and n told apart", Look::Dashed, chart::GREY),
    ("entropy, 0 and n merged", Look::Line, chart::GREY),
    ("paper's code: Huffman to 64, gamma", Look::Line, chart::ORANGE),
    ("paper states: approaches this", Look::Squares, chart::ORANGE),
    ("ours: Huffman to 16, Rice", Look::Line, chart::SKY),
    ("ours: Huffman to 32, Rice", Look::Line, chart::BLUE),
    ("ours: Huffman to 64, Rice", Look::Line, chart::PURPLE),
    ("ours measured, Huffman to 32", Look::Dots, chart::BLUE),
    ("paper's code, as if independent", Look::Dashed, chart::ORANGE),
    ("paper's code, exact", Look::Line, chart::ORANGE),
    ("paper states: below this", Look::Squares, chart::ORANGE),
    ("our code, exact", Look::Line, chart::BLUE),
    ("ours measured, tries alone", Look::Dots, chart::BLUE),
    ("ours measured, whole index", Look::DottedLine, chart::PURPLE),
    ("our fences measured, whole index", Look::DottedLine, chart::TEAL),
];

/// A figure: its sheet, and the column of x.
struct Figure {
    sheet: Sheet,
    x: &'static str,
}

impl Figure {
    fn add(&mut self, name: &str, source: &str, points: Vec<(f64, f64)>) {
        for (x, y) in points {
            let row = Row::new("series", name, source).number(self.x, x);
            self.sheet.add(row.rounded("bits_per_key", y, 4));
        }
    }
}

/// Returns the series of a figure.
fn series(rows: &[Row], x: &str) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let name = row.string("series");
        if series.last().is_none_or(|last| last.name != name) {
            let look = LOOKS.iter().find(|look| look.0 == name);
            let &(_, look, colour) = look.unwrap_or(&("", Look::Line, chart::INK));
            series.push(Series { name: name.to_owned(), look, colour, points: Vec::new() });
        }
        if let Some(last) = series.last_mut() {
            last.points.extend(row.point(x, "bits_per_key"));
        }
    }
    series
}

/// Writes the expected bits of one trie by its number of keys, and the mean bits in buckets of
/// about that size.
pub fn figure_3(options: &Options, sizes: &Keys) -> Result<()> {
    const KEYS_MAX: usize = 1000;
    let count = options.size(sizes.keys, 4_000_000, 100_000);
    let mut sheet = Sheet::new("Figure 3: bits of a trie, by its number of keys", options);
    sheet.note("data", format!("measured: {count} uniform hashes, the mean over all buckets"));
    sheet.note("threads", "1");
    sheet.note("sizes", "without the number of keys of each trie, and without the directory");
    sheet.note("paper", "states: hmax = 64, and the size approaches 2.5 bits a key");
    let mut figure = Figure { sheet, x: "keys" };
    let octave_parts = (4..40).map(|i| 2_f64.powf(f64::from(i) / 4.0).round() as usize);
    let mut keys: Vec<usize> = octave_parts.filter(|&n| n < KEYS_MAX).chain([KEYS_MAX]).collect();
    keys.dedup();
    for (name, code) in [
        ("entropy, 0 and n told apart", Code::EntropyDistinct),
        ("entropy, 0 and n merged", Code::Entropy),
        ("paper's code: Huffman to 64, gamma", PAPER_CODE),
    ] {
        let tries = Nodes::new(code, KEYS_MAX)?.dense();
        let points = keys.iter().map(|&n| (n as f64, tries[n] / n as f64)).collect();
        figure.add(name, THEORY, points);
    }
    let stated = vec![(KEYS_MAX as f64, paper::TRIE_BITS_APPROACH)];
    figure.add("paper states: approaches this", PAPER, stated);
    for limit in [16, 32, 64] {
        let bits = |&n: &usize| Ok((n as f64, expected_trie_bits(n as u32, limit)? / n as f64));
        let points = keys.iter().map(bits).collect::<hashfold::Result<_>>()?;
        let name = format!("ours: Huffman to {limit}, Rice");
        figure.add(&name, OURS, points);
    }
    let measured = measured_dense(&Hashes::new(count, options.seed))?;
    figure.add("ours measured, Huffman to 32", OURS, measured);
    figure.sheet.save(options, "fig3", draw_3)
}

pub fn draw_3(rows: &[Row], path: &Path) -> Result<()> {
    let title = "Figure 3: size of one trie, number of keys not counted".to_owned();
    let x = Axis::powers_of_two("keys in the trie", 2.0, 1000.0);
    let y = Axis::linear("bits per key; less is better", 1.0, 2.8, 0.2);
    Chart { title, x, y, series: series(rows, "keys") }.draw(path)
}

/// Returns the coded bits per key in buckets of given mean sizes, checked against the expectation.
fn measured_dense(hashes: &Hashes) -> Result<Vec<(f64, f64)>> {
    let tries = (0..=BUCKET_KEYS_MAX as u32)
        .map(|keys| expected_trie_bits(keys, CODING_LIMIT))
        .collect::<hashfold::Result<Vec<f64>>>()?;
    let mut points = Vec::new();
    for bucket_size in [16, 32, 64, 128, 256, 512] {
        let options = index_options(bucket_size, CODING_LIMIT);
        let input = hashes.sorted.iter().copied();
        let index = HashIndex::dense(input, hashes.count(), &options)?;
        let measured = hashes.bits(index.stats().coded_bytes);
        let expected = mean_bits_per_key(&tries, mean_bucket(hashes.count(), bucket_size));
        check(measured, expected, &format!("buckets of {bucket_size}"))?;
        hashes.check_blocks(&index, 1)?;
        points.push((f64::from(bucket_size), measured));
    }
    Ok(points)
}

pub fn index_options(bucket_size: u32, coding_limit: u32) -> IndexOptions {
    IndexOptions { bucket_size, coding_limit, ..IndexOptions::default() }
}

/// Returns the mean number of keys in a bucket: the library's directory has only whole superblocks.
fn mean_bucket(count: u64, bucket_size: u32) -> f64 {
    let superblocks = count.div_ceil(BUCKETS * u64::from(bucket_size));
    count as f64 / (superblocks * BUCKETS) as f64
}

fn check(measured: f64, expected: f64, what: &str) -> Result<()> {
    ensure((measured / expected - 1.0).abs() < TOLERANCE, || {
        format!("{what}: {measured:.4} bits a key were measured, {expected:.4} are expected")
    })
}

/// Writes the bits of sparse tries and fences, by the number of items per block.
pub fn figure_6(options: &Options, sizes: &Keys) -> Result<()> {
    const BUCKET_SIZE: u32 = 256;
    let count = options.size(sizes.keys, 4_000_000, 200_000);
    let title = "Figure 6: bits of a sparse trie of 256 keys, by items in a block";
    let mut sheet = Sheet::new(title, options);
    sheet.note("data", format!("measured: {count} uniform hashes, buckets of {BUCKET_SIZE}"));
    sheet.note("threads", "1");
    sheet.note("paper", "states: fewer than 1 bit a key with 8 or more items in a block");
    sheet.note(
        "theory",
        "exact: m neighbours are in several blocks of k with probability min(1, (m - 1) / k); as \
         if independent: that probability is applied to a subtrie and again to those above it, \
         which comes near to what the paper states",
    );
    let mut figure = Figure { sheet, x: "items_per_block" };
    let trie = BUCKET_SIZE as usize;
    let at = |tries: &dyn Fn(usize) -> Vec<f64>| -> Vec<(f64, f64)> {
        (0..=24)
            .map(|i| 2_f64.powf(f64::from(i) / 4.0).round() as usize)
            .map(|k| (k as f64, tries(k)[trie] / trie as f64))
            .fold(Vec::new(), |mut points, point| {
                if points.last() != Some(&point) {
                    points.push(point);
                }
                points
            })
    };
    let nodes = Nodes::new(PAPER_CODE, trie)?;
    let paper = "paper's code, as if independent";
    let points = at(&|k| nodes.sparse_as_if_independent(k));
    figure.add(paper, THEORY, points);
    let points = at(&|k| nodes.sparse(k));
    figure.add("paper's code, exact", THEORY, points);
    let point = (paper::SPARSE_BLOCK as f64, paper::SPARSE_BITS_BELOW);
    figure.add("paper states: below this", PAPER, vec![point]);
    let ours = Nodes::new(Code::Ours { coding_limit: CODING_LIMIT }, BUCKET_KEYS_MAX)?;
    let points = at(&|k| ours.sparse(k));
    figure.add("our code, exact", OURS, points);
    measured_sparse(&mut figure, &Hashes::new(count, options.seed), BUCKET_SIZE, &ours)?;
    figure.sheet.save(options, "fig6", draw_6)
}

pub fn draw_6(rows: &[Row], path: &Path) -> Result<()> {
    let title = "Figure 6: sparse tries of 256 keys, and fences".to_owned();
    let x = Axis::powers_of_two("items in a block", 1.0, 64.0);
    let y = Axis::linear("bits per key; less is better", 0.0, 2.75, 0.25);
    Chart { title, x, y, series: series(rows, "items_per_block") }.draw(path)
}

fn measured_sparse(
    figure: &mut Figure,
    hashes: &Hashes,
    bucket_size: u32,
    nodes: &Nodes,
) -> Result<()> {
    let (mut coded, mut whole, mut fences) = (Vec::new(), Vec::new(), Vec::new());
    let mut shares = Vec::new();
    let mean = mean_bucket(hashes.count(), bucket_size);
    for block in [1, 2, 4, 8, 16, 32, 64] {
        let input = || hashes.sorted.iter().copied();
        let options = index_options(bucket_size, CODING_LIMIT);
        let index = HashIndex::sparse(input(), hashes.count(), block, &options)?;
        hashes.check_blocks(&index, block)?;
        let measured = hashes.bits(index.stats().coded_bytes);
        let expected = mean_bits_per_key(&nodes.sparse(block as usize), mean);
        check(measured, expected, &format!("blocks of {block}"))?;
        coded.push((block as f64, measured));
        whole.push((block as f64, hashes.bits(index.bytes())));
        if block >= 4 {
            let index = HashIndex::fences(input(), hashes.count(), block)?;
            let second = hashes.second_reads(&index, block)?;
            fences.push((block as f64, hashes.bits(index.bytes())));
            shares.push(format!("{:.2} % with {block} items in a block", second * 100.0));
        }
    }
    let second = format!("lookups that read a second block: {}", shares.join(", "));
    figure.sheet.note("fences", second);
    figure.add("ours measured, tries alone", OURS, coded);
    figure.add("ours measured, whole index", OURS, whole);
    figure.add("our fences measured, whole index", OURS, fences);
    Ok(())
}

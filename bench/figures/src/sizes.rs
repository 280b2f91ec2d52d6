//! Figures 3 and 6: expected and measured bits of tries.

use crate::{
    Keys, Options, Result,
    chart::{self, Axis, Chart, Look, Point, Series},
    hashes::Hashes,
    measure::ensure,
    paper,
    sheet::{OURS, PAPER, Sheet, THEORY},
    theory::{Code, Nodes, PAPER as PAPER_CODE, mean_bits_per_key},
};
use hashfold::table::{HashIndex, IndexOptions, expected_trie_bits};
use plotters::style::RGBColor;

/// Number of buckets in a superblock of the library, by which it rounds the number of buckets.
const BUCKETS: u64 = 28;

/// The library's default limit on Huffman coding.
const CODING_LIMIT: u32 = 32;

/// Maximum relative difference of measured and expected sizes.
const TOLERANCE: f64 = 0.01;

/// Maximum number of keys in a trie whose bucket has 256 or 512 keys on average.
const BUCKET_KEYS_MAX: usize = 700;

/// A figure: its sheet and its chart.
struct Figure {
    /// Rows of series, source, x and y.
    sheet: Sheet,
    series: Vec<Series>,
}

impl Figure {
    fn add(&mut self, name: &str, source: &str, style: (Look, RGBColor), points: Vec<(f64, f64)>) {
        for &(x, y) in &points {
            let (x, y) = (x.to_string(), format!("{y:.4}"));
            self.sheet.row(vec![name.to_owned(), source.to_owned(), x, y]);
        }
        let (look, colour) = style;
        let points = points.into_iter().map(|(x, y)| Point::new(x, y)).collect();
        self.series.push(Series { name: name.to_owned(), look, colour, points });
    }
}

/// Writes the expected bits of one trie by its number of keys, and the mean bits in buckets of
/// about that size.
pub fn figure_3(options: &Options, sizes: &Keys) -> Result<()> {
    const KEYS_MAX: usize = 1000;
    let count = options.size(sizes.keys, 4_000_000, 100_000);
    let columns = &["series", "source", "keys", "bits_per_key"];
    let mut sheet = Sheet::new("Figure 3: bits of a trie, by its number of keys", options, columns);
    sheet.note("data", format!("measured: {count} uniform hashes, the mean over all buckets"));
    sheet.note("threads", "1");
    sheet.note("sizes", "without the number of keys of each trie, and without the directory");
    sheet.note("paper", "states: hmax = 64, and the size approaches 2.5 bits a key");
    let mut figure = Figure { sheet, series: Vec::new() };
    let octave_parts = (4..40).map(|i| 2_f64.powf(f64::from(i) / 4.0).round() as usize);
    let mut keys: Vec<usize> = octave_parts.filter(|&n| n < KEYS_MAX).chain([KEYS_MAX]).collect();
    keys.dedup();
    for (name, code, style) in [
        ("entropy, 0 and n told apart", Code::EntropyDistinct, (Look::Dashed, chart::GREY)),
        ("entropy, 0 and n merged", Code::Entropy, (Look::Line, chart::GREY)),
        ("paper's code: Huffman to 64, gamma", PAPER_CODE, (Look::Line, chart::ORANGE)),
    ] {
        let tries = Nodes::new(code, KEYS_MAX)?.dense();
        let points = keys.iter().map(|&n| (n as f64, tries[n] / n as f64)).collect();
        figure.add(name, THEORY, style, points);
    }
    let stated = vec![(KEYS_MAX as f64, paper::TRIE_BITS_APPROACH)];
    figure.add("paper states: approaches this", PAPER, (Look::Squares, chart::ORANGE), stated);
    for (limit, colour) in [(16, chart::SKY), (32, chart::BLUE), (64, chart::PURPLE)] {
        let bits = |&n: &usize| Ok((n as f64, expected_trie_bits(n as u32, limit)? / n as f64));
        let points = keys.iter().map(bits).collect::<hashfold::Result<_>>()?;
        let name = format!("ours: Huffman to {limit}, Rice");
        figure.add(&name, OURS, (Look::Line, colour), points);
    }
    let measured = measured_dense(&Hashes::new(count, options.seed))?;
    figure.add("ours measured, Huffman to 32", OURS, (Look::Dots, chart::BLUE), measured);
    let path = figure.sheet.save(options, "fig3")?;
    let title = "Figure 3: size of one trie, number of keys not counted".to_owned();
    let x = Axis::powers_of_two("keys in the trie", 2.0, 1000.0);
    let y = Axis::linear("bits a key", 1.0, 2.8, 0.2);
    Chart { title, x, y, series: figure.series }.draw(&path)
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
    let columns = &["series", "source", "items_per_block", "bits_per_key"];
    let title = "Figure 6: bits of a sparse trie of 256 keys, by items in a block";
    let mut sheet = Sheet::new(title, options, columns);
    sheet.note("data", format!("measured: {count} uniform hashes, buckets of {BUCKET_SIZE}"));
    sheet.note("threads", "1");
    sheet.note("paper", "states: fewer than 1 bit a key with 8 or more items in a block");
    sheet.note(
        "theory",
        "exact: m neighbours are in several blocks of k with probability min(1, (m - 1) / k); as \
         if independent: that probability is applied to a subtrie and again to those above it, \
         which comes near to what the paper states",
    );
    let mut figure = Figure { sheet, series: Vec::new() };
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
    figure.add(paper, THEORY, (Look::Dashed, chart::ORANGE), points);
    let points = at(&|k| nodes.sparse(k));
    figure.add("paper's code, exact", THEORY, (Look::Line, chart::ORANGE), points);
    let point = (paper::SPARSE_BLOCK as f64, paper::SPARSE_BITS_BELOW);
    figure.add("paper states: below this", PAPER, (Look::Squares, chart::ORANGE), vec![point]);
    let ours = Nodes::new(Code::Ours { coding_limit: CODING_LIMIT }, BUCKET_KEYS_MAX)?;
    let points = at(&|k| ours.sparse(k));
    figure.add("our code, exact", OURS, (Look::Line, chart::BLUE), points);
    measured_sparse(&mut figure, &Hashes::new(count, options.seed), BUCKET_SIZE, &ours)?;
    let path = figure.sheet.save(options, "fig6")?;
    let title = "Figure 6: sparse tries of 256 keys, and fences".to_owned();
    let x = Axis::powers_of_two("items in a block", 1.0, 64.0);
    let y = Axis::linear("bits a key", 0.0, 2.75, 0.25);
    Chart { title, x, y, series: figure.series }.draw(&path)
}

fn measured_sparse(
    figure: &mut Figure,
    hashes: &Hashes,
    bucket_size: u32,
    nodes: &Nodes,
) -> Result<()> {
    let (mut coded, mut whole, mut fences) = (Vec::new(), Vec::new(), Vec::new());
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
            let share = format!("{:.2} % of lookups read a second block", second * 100.0);
            figure.sheet.note("fences", format!("{block} items in a block: {share}"));
        }
    }
    figure.add("ours measured, tries alone", OURS, (Look::Dots, chart::BLUE), coded);
    figure.add("ours measured, whole index", OURS, (Look::DottedLine, chart::PURPLE), whole);
    figure.add("our fences measured, whole index", OURS, (Look::DottedLine, chart::TEAL), fences);
    Ok(())
}

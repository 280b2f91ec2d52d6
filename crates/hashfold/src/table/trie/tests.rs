use super::*;
use crate::table::image::Bytes;
use std::time::Instant;

/// Hashes that look random and ascend.
fn hashes(count: u64, seed: u64) -> Vec<KeyHash> {
    let mut hashes: Vec<u128> =
        (0..count).map(|i| KeyHash::of(&i.to_le_bytes(), crate::key::Seed(seed)).bits()).collect();
    hashes.sort_unstable();
    hashes.into_iter().map(KeyHash::from_bits).collect()
}

fn build(
    hashes: &[KeyHash],
    options: TrieOptions,
    block_of: Option<&dyn Fn(u64) -> u64>,
) -> (Trie, crate::io::Buffer) {
    let mut builder = TrieBuilder::new(options, hashes.len() as u64, block_of.is_some());
    for (i, hash) in hashes.iter().enumerate() {
        builder.push(*hash, block_of.map_or(0, |block_of| block_of(i as u64)));
    }
    let mut image = Image::default();
    builder.finish(&mut image);
    let (fields, parts) = image.into_parts();
    let all: Vec<u8> = parts.concat();
    let mut buffer = crate::io::Buffer::zeroed(all.len());
    buffer.copy_from_slice(&all);
    let (mut decoder, mut sections) = Sections::split(&fields, buffer.bytes()).unwrap();
    let trie = Trie::open(&mut decoder, &mut sections).unwrap();
    decoder.end().unwrap();
    (trie, buffer)
}

#[test]
#[ignore]
#[allow(clippy::all, clippy::disallowed_methods)]
fn speed() {
    for (n, g, limit) in
        [(16_000_000, 64, 32), (16_000_000, 256, 32), (16_000_000, 32, 32), (16_000_000, 128, 32)]
    {
        let hashes = hashes(n, 1);
        let t = Instant::now();
        let (trie, bytes) =
            build(&hashes, TrieOptions { bucket_size: g, coding_limit: limit }, None);
        let build_ns = t.elapsed().as_nanos() as f64 / n as f64;
        let stats = trie.stats(IndexChoice::Dense);
        let (d, t) = (stats.directory_bytes, stats.coded_bytes);
        let queries: Vec<(KeyHash, u64)> = (0..2_000_000u64)
            .map(|i| {
                let r = (KeyHash::of(&i.to_le_bytes(), crate::key::Seed(99)).high() as u128
                    * n as u128
                    >> 64) as u64;
                (hashes[r as usize], r)
            })
            .collect();
        let qs: Vec<KeyHash> = queries.iter().map(|q| q.0).collect();
        let mut best = f64::MAX;
        let mut bestb = f64::MAX;
        for _ in 0..3 {
            let s = Instant::now();
            let mut wrong = 0;
            for (h, r) in &queries {
                if trie.ranks(&bytes, *h).start != *r {
                    wrong += 1
                }
            }
            best = best.min(s.elapsed().as_nanos() as f64 / queries.len() as f64);
            assert_eq!(wrong, 0);
            let mut out = Vec::with_capacity(qs.len());
            let s = Instant::now();
            trie.ranks_many(&bytes, &qs, &mut out);
            bestb = bestb.min(s.elapsed().as_nanos() as f64 / queries.len() as f64);
            assert!(out.iter().zip(&queries).all(|(a, b)| a.start == b.1));
        }
        eprintln!(
            "n {n} g {g}: dir {:.3} trie {:.3} total {:.3}; build {build_ns:.1} get {best:.1} batch {bestb:.1} explicit {}",
            d as f64 * 8. / n as f64,
            t as f64 * 8. / n as f64,
            (d + t) as f64 * 8. / n as f64,
            stats.explicit_superblocks
        );
    }
}

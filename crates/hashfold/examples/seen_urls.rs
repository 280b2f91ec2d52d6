//! Separates new pages from pages that were seen before, today and tomorrow.

use hashfold::{Result, Seed, filter::cascade::*};
use std::path::Path;

fn main() -> Result<()> {
    let folder = Path::new("target/seen-urls");
    let _ = std::fs::remove_dir_all(folder);
    let settings = CascadeSettings::default();
    // Random numbers: an attacker cannot choose colliding keys, and ids are unique.
    let (seed, id) = (Seed(0x9e37_79b9_7f4a_7c15), 0xbf58_476d_1ce4_e5b9);

    let options = CascadeOptions::exact(seed, id);
    let mut seen = CascadeFilter::create(folder, &options, settings.clone())?;
    let urls = ["https://example.org/", "https://example.org/a", "https://example.org/"];
    let hashes = urls.map(|url| seen.hash(url.as_bytes()));
    let mut is_new = [false; 3];
    seen.insert_unique_batch(&hashes, &mut is_new)?; // the larger the batch, the faster
    assert_eq!(is_new, [true, true, false]);
    seen.close()?; // all of it is durable

    let mut seen = CascadeFilter::open(folder, settings)?;
    assert!(seen.contains(hashes[1])?);
    let other = seen.hash(b"https://example.org/b");
    assert!(seen.insert_unique(other)?);
    assert!(!seen.insert_unique(other)?);
    seen.close()
}

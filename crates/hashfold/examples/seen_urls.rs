//! Separates new pages from pages that were seen before, today and tomorrow.

use hashfold::{Filter, FilterOptions, Result};

fn main() -> Result<()> {
    let folder = "target/seen-urls";
    let _ = std::fs::remove_dir_all(folder);

    let mut seen = Filter::open_or_create(folder, FilterOptions::exact())?;
    let urls = ["https://example.org/", "https://example.org/a", "https://example.org/"];
    let is_new = seen.insert_unique_many(&urls)?; // the larger the batch, the faster
    for (url, is_new) in urls.iter().zip(&is_new) {
        println!("{url}: {}", if *is_new { "new" } else { "seen before" });
    }
    assert_eq!(is_new, [true, true, false]);
    seen.close()?; // all of it is durable

    let mut seen = Filter::open_or_create(folder, FilterOptions::exact())?;
    assert!(seen.contains("https://example.org/a")?);
    assert!(seen.insert_unique("https://example.org/b")?);
    assert!(!seen.insert_unique("https://example.org/b")?);
    seen.close()
}

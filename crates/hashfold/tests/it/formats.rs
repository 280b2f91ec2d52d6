//! `docs/formats` agrees with the code: the byte tables are equal, word for word, and the worked
//! example equals the files of a build.

use crate::documents::{CRATES, files, text};
use hashfold::{
    Env, Seed,
    io::{Access, Disk, MemoryDisk, read_all},
    run::VecRun,
    table::{TableBuilder, TableOptions},
    work::Watch,
};
use std::{collections::BTreeSet, fmt::Write as _, path::Path, sync::Arc};

/// Returns the tables in the module documentation of a file.
fn tables(source: &str) -> Vec<String> {
    let mut tables: Vec<String> = Vec::new();
    let mut inside = false;
    for line in source.lines().map_while(|line| line.strip_prefix("//!")) {
        let row = line.trim_start();
        match (row.starts_with('|'), inside) {
            (true, false) => tables.push(row.to_owned()),
            (true, true) => {
                let table = tables.last_mut().expect("a row before this one made it");
                table.push('\n');
                table.push_str(row);
            }
            (false, _) => {}
        }
        inside = row.starts_with('|');
    }
    tables
}

/// Returns the format pages that the module documentation of a file names.
fn pages(source: &str) -> BTreeSet<String> {
    let front = source.lines().take_while(|line| line.starts_with("//!"));
    let words = front.flat_map(str::split_whitespace).filter_map(|word| {
        let (page, _) = word.split_once("docs/formats/")?.1.split_once(".md")?;
        Some(page.to_owned())
    });
    words.collect()
}

#[test]
fn the_byte_tables_of_the_sources_stand_in_the_pages_that_they_name() {
    let mut checked = BTreeSet::new();
    for name in CRATES {
        let sources = files(&format!("crates/{name}/src")).into_iter();
        for path in sources.filter(|path| path.ends_with(".rs")) {
            let source = text(&path);
            for page in pages(&source) {
                let document = text(&format!("docs/formats/{page}.md"));
                for table in tables(&source) {
                    assert!(
                        document.contains(&table),
                        "docs/formats/{page}.md lacks this table of {path}:\n{table}"
                    );
                    checked.insert(page.clone());
                }
            }
        }
    }
    for path in files("docs/formats") {
        let page = path.strip_prefix("docs/formats/").and_then(|path| path.strip_suffix(".md"));
        assert!(
            page.is_some_and(|page| checked.contains(page)),
            "no source file has a table of {path}"
        );
    }
}

/// The files that encode a store contain its byte tables.
#[test]
fn the_byte_tables_of_stores_stand_in_their_page() {
    let document = text("docs/formats/store.md");
    for (name, count) in [("version", 2), ("pointer", 1), ("tree", 2), ("delta", 3)] {
        let source = text(&format!("crates/hashfold/src/store/{name}.rs"));
        assert_eq!(pages(&source), BTreeSet::from(["store".to_owned()]), "{name}");
        assert_eq!(tables(&source).len(), count, "{name}");
        for table in tables(&source) {
            assert!(document.contains(&table), "store/{name}.rs has another table:\n{table}");
        }
    }
}

/// Returns rows of 16 bytes each, without rows of zeros.
fn hexdump(bytes: &[u8], start: usize) -> String {
    let mut out = String::new();
    for (i, row) in bytes.chunks(16).enumerate() {
        if row.iter().all(|&byte| byte == 0) {
            continue;
        }
        let hex = |half: &[u8]| {
            half.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
        };
        let letter = |&byte: &u8| if (b' '..=b'~').contains(&byte) { byte as char } else { '.' };
        let letters: String = row.iter().map(letter).collect();
        let (offset, left, right) = (start + 16 * i, hex(&row[..8]), hex(&row[8..]));
        writeln!(out, "{offset:06x}  {left}  {right}  {letters}").unwrap();
    }
    out
}

/// Builds the table of the worked example. Returns its manifest, data file and index file.
fn example() -> [Vec<u8>; 3] {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let folder = Path::new("colours");
    let options = TableOptions::new().seed(Seed(1)).id(1);
    let builder = TableBuilder::with(folder, options.env(Env::on(disk.clone()))).unwrap();
    let entries = [("sky", "blue"), ("grass", "green")];
    let owned = |text: &str| text.as_bytes().to_vec();
    let mut run =
        VecRun::new(entries.map(|(key, value)| (owned(key), Some(owned(value)))).to_vec(), Seed(1));
    builder.build(&mut run, &Watch::default()).unwrap();
    ["MANIFEST", "data-0000000000000001-1", "index-0000000000000001-1"].map(|name| {
        let file = disk.open(&folder.join(name), Access::Cached).unwrap();
        read_all(file.as_ref(), 1 << 20).unwrap().to_vec()
    })
}

#[test]
fn the_worked_example_is_what_a_build_writes() {
    const BLOCK: usize = 4096;
    let [manifest, data, index] = example();
    let examples = [
        ("frame", &data, 0),
        ("manifest", &manifest, BLOCK),
        ("table", &data, BLOCK),
        ("table", &data, 2 * BLOCK),
        ("table", &index, BLOCK),
        ("table", &index, 2 * BLOCK),
    ];
    let mut missing = String::new();
    for (page, file, start) in examples {
        let document = text(&format!("docs/formats/{page}.md"));
        let dump = hexdump(&file[start..start + BLOCK], start);
        if !document.contains(&format!("```text\n{dump}```\n")) {
            writeln!(missing, "docs/formats/{page}.md lacks this example:\n{dump}").unwrap();
        }
    }
    assert!(missing.is_empty(), "{missing}");
    assert!([manifest.len(), data.len(), index.len()] == [2 * BLOCK, 3 * BLOCK, 3 * BLOCK]);
}

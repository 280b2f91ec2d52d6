//! The benchmark, with sizes so small that only its answers count.

use crate::support::Work;
use serde_json::Value;

#[test]
fn the_table_benchmark_prints_each_figure() {
    let work = Work::new();
    let sizes = "--keys 20000 --data 2MiB --memory 1MiB --dir bench";
    let outcome = work.ok(&format!("bench table {sizes} --json"));
    let lines = outcome.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let figures: Vec<(String, f64)> = lines
        .map(|line| (line["name"].as_str().unwrap().to_owned(), line["value"].as_f64().unwrap()))
        .collect();
    for name in [
        "table.trie.g64.bits_per_key",
        "table.trie.g64.get_ns",
        "table.trie.g64.batch_ns",
        "table.trie.g256.bits_per_key",
        "table.trie.build_ns_per_key",
        "table.fence.k16.bits_per_key",
        "table.fence.k64.second_read_fraction",
        "table.sparse.k8.bits_per_key",
        "table.sparse.k16.bits_per_key",
        "table.locations.1kib.bits_per_key",
        "table.input.csv.mb_per_core_s",
        "table.input.parquet.mb_per_core_s",
        "table.build.64b.items_per_s",
        "table.build.64b.disk_fraction",
        "table.build.1kib.peak_rss_mib",
        "table.cold.reads_per_get",
        "table.cold.gets_per_s",
        "table.cold.1kib.iops_fraction",
    ] {
        let (_, value) = figures.iter().find(|(known, _)| known == name).expect(name);
        assert!(value.is_finite() && *value >= 0.0, "{name} is {value}");
    }
    assert!(!work.path("bench").exists(), "nothing is left");
}

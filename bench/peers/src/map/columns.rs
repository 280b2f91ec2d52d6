//! The figures of a round.

use crate::row::Column;

pub(super) const COLUMNS: &[Column] = &[
    Column::drawn("load_per_s", 0, "Load in random order, entries/s; more is better"),
    Column::new("load_percent", 1),
    Column::new("load_cpu_us", 2),
    Column::new("load_reads", 4),
    Column::new("load_writes", 4),
    Column::drawn(
        "load_write_amplification",
        1,
        "Load: bytes written by bytes of entries; less is better",
    ),
    Column::new("load_p50_us", 2),
    Column::new("load_p99_us", 1),
    Column::new("load_p999_us", 1),
    Column::drawn("load_max_ms", 1, "Load: longest put, ms; less is better"),
    Column::drawn("disk_per_payload_loaded", 2, "Disk by entries after the load; less is better"),
    Column::drawn("get_per_s", 0, "Lookups one at a time, per second; more is better"),
    Column::new("get_cpu_us", 1),
    Column::drawn("get_reads", 3, "Blocks of 4 KiB read per lookup; less is better"),
    Column::new("get_p50_us", 1),
    Column::new("get_p99_us", 1),
    Column::new("absent_get_per_s", 0),
    Column::new("absent_get_cpu_us", 1),
    Column::new("absent_get_reads", 3),
    Column::drawn("multi_get_per_s", 0, "Lookups in batches of 64, per second; more is better"),
    Column::new("multi_get_cpu_us", 1),
    Column::new("multi_get_reads", 3),
    Column::drawn("update_per_s", 0, "Uniform updates, per second; more is better"),
    Column::new("update_percent", 1),
    Column::new("update_cpu_us", 2),
    Column::new("update_reads", 4),
    Column::new("update_writes", 4),
    Column::new("update_p50_us", 2),
    Column::new("update_p99_us", 1),
    Column::new("update_p999_us", 1),
    Column::drawn("update_max_ms", 1, "Uniform updates: longest put, ms; less is better"),
    Column::drawn("disk_per_payload_updated", 2, "Disk by entries after updates; less is better"),
    Column::drawn("update_zipf_per_s", 0, "Updates by Zipf's law, per second; more is better"),
    Column::new("update_zipf_cpu_us", 2),
    Column::new("update_zipf_reads", 4),
    Column::new("update_zipf_writes", 4),
    Column::new("update_zipf_p50_us", 2),
    Column::new("update_zipf_p99_us", 1),
    Column::new("update_zipf_p999_us", 1),
    Column::new("update_zipf_max_ms", 1),
    Column::drawn("mixed_50_per_s", 0, "Half lookups, half updates, per second; more is better"),
    Column::new("mixed_50_cpu_us", 1),
    Column::new("mixed_50_reads", 3),
    Column::drawn("mixed_90_per_s", 0, "90 % lookups, 10 % updates, per second; more is better"),
    Column::new("mixed_90_cpu_us", 1),
    Column::new("mixed_90_reads", 3),
    Column::new("peak_rss_mib", 0),
    Column::drawn("commit_1_per_s", 0, "Durable commits of one thread, per second; more is better"),
    Column::new("commit_1_p50_us", 0),
    Column::new("commit_1_p99_us", 0),
    Column::new("commit_1_bytes", 0),
    Column::drawn("commit_8_per_s", 0, "Durable commits of 8 threads, per second; more is better"),
    Column::new("commit_8_p50_us", 0),
    Column::new("commit_8_p99_us", 0),
    Column::new("commit_8_bytes", 0),
    Column::drawn(
        "commit_64_per_s",
        0,
        "Durable commits of 64 threads, per second; more is better",
    ),
    Column::new("commit_64_p50_us", 0),
    Column::new("commit_64_p99_us", 0),
    Column::new("commit_64_bytes", 0),
    Column::drawn(
        "disk_per_payload_deleted",
        2,
        "Disk by entries after 90 % were deleted; less is better",
    ),
];

/// Returns the place of a column.
///
/// # Panics
/// There is no such column.
pub(super) fn position(name: &str) -> usize {
    let found = COLUMNS.iter().position(|column| column.name == name);
    found.unwrap_or_else(|| panic!("there is no column {name}"))
}

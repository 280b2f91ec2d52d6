//! The benchmarks with tiny sizes, which only check the answers.

use crate::support::Work;
use serde_json::Value;

/// Returns the lines that a benchmark prints.
fn lines(work: &Work, command: &str) -> Vec<Value> {
    let outcome = work.ok(command);
    outcome.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the names and values that a benchmark prints.
fn figures(work: &Work, command: &str) -> Vec<(String, f64)> {
    lines(work, command)
        .into_iter()
        .map(|line| (line["name"].as_str().unwrap().to_owned(), line["value"].as_f64().unwrap()))
        .collect()
}

#[track_caller]
fn check<'a>(figures: &[(String, f64)], names: impl Iterator<Item = &'a str>) {
    for name in names {
        let (_, value) = figures.iter().find(|(known, _)| known == name).expect(name);
        assert!(value.is_finite() && *value >= 0.0, "{name} is {value}");
    }
}

#[test]
fn each_line_has_its_rounds_and_its_circumstances() {
    let work = Work::new();
    let command = "bench table --only sparse --keys 20000 --rounds 3 --seed 5 --threads 2 --json";
    let lines = lines(&work, command);
    assert_eq!(lines.len(), 4, "two figures of two indexes, once");
    for line in lines {
        let number = |name: &str| line[name].as_f64().unwrap();
        assert_eq!(number("rounds"), 3.0);
        assert!(number("min") <= number("value") && number("value") <= number("max"), "{line}");
        let run = &line["run"];
        assert_eq!((&run["seed"], &run["threads"]), (&Value::from(5), &Value::from(2)));
        for name in ["commit", "machine", "kernel", "load", "instructions"] {
            assert!(run[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {run}");
        }
    }
}

#[test]
fn the_core_benchmark_prints_each_figure() {
    let work = Work::new();
    let figures = figures(&work, "bench core --commits 5 --rounds 3 --dir bench --json");
    let names = ["commits_s", "ratio_to_bare", "bytes_per_commit", "commits_per_sync"];
    let names = [1, 8, 64].map(|threads| names.map(|name| format!("core.wal.{threads}.{name}")));
    check(&figures, names.iter().flatten().map(String::as_str));
    assert!(!work.path("bench").exists(), "nothing is left");
}

#[test]
fn the_table_benchmark_prints_each_figure() {
    let work = Work::new();
    let sizes = "--keys 20000 --data 2MiB --memory 1MiB --dir bench";
    let figures = figures(&work, &format!("bench table {sizes} --json"));
    let names = [
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
        "table.build.1kib.memory_mib",
        "table.cold.reads_per_get",
        "table.cold.blocks_per_get",
        "table.cold.gets_per_s",
        "table.cold.1kib.iops_fraction",
    ];
    check(&figures, names.into_iter());
    assert!(!work.path("bench").exists(), "nothing is left");
}

#[test]
fn the_store_benchmark_prints_each_figure() {
    let work = Work::new();
    let sizes = "--data 1MiB --items 3000 --memory 1MiB --publishes 20 --chunks 2 --dir bench";
    let figures = figures(&work, &format!("bench store {sizes} --json"));
    let mut names: Vec<String> = [
        "store.update.64b.disk_fraction",
        "store.update.64b.seconds",
        "store.update.1kib.disk_fraction",
        "store.update.1kib.seconds",
        "store.update.bytes_moved_ratio",
        "store.delta.1pct.time_fraction",
        "store.delta.reads_per_get",
        "store.delta.blocks_per_get",
        "store.delta.gets_per_s",
        "store.delta.1kib.1pct.time_fraction",
        "store.delta.1kib.no_deltas.reads_per_get",
        "store.chunks.1.open_seconds",
        "store.chunks.1024.open_seconds",
        "store.chunks.1024.index_bits",
        "store.chunks.1024.delta_bytes",
        "store.publish.ms",
        "store.publish.ms_max",
        "store.publish.small.ms",
        "store.publish.large.ms",
        "store.publish.reader_stall_ms",
        "store.publish.reader_waited_ms",
        "store.publish.reader_p999_us",
        "store.publish.control_stall_ms",
        "store.publish.control_p999_us",
        "store.publish.cached.switch_stall_ms",
    ]
    .map(str::to_owned)
    .into();
    for size in ["0p1", "1", "10", "100"] {
        for what in ["seconds", "over_rebuild", "written_per_changed_byte"] {
            let name = format!("store.update.batch_{size}pct.{what}");
            names.extend(["auto", "merge"].map(|mode| format!("{name}.{mode}")));
        }
    }
    check(&figures, names.iter().map(String::as_str));
    // These values can be negative.
    for name in ["store.update.gain_over_rebuild_5_batches", "store.publish.attributable_stall_ms"]
    {
        assert!(figures.iter().any(|(known, value)| known == name && *value < 1e6), "{name}");
    }
    assert!(!work.path("bench").exists(), "nothing is left");
}

#[test]
fn the_filter_benchmark_prints_each_figure() {
    let work = Work::new();
    let sizes = "--keys 200000 --memory 16MiB --run-keys 100000 --slots 65536 --dir bench";
    let figures = figures(&work, &format!("bench filter {sizes} --json"));
    let names = [
        "filter.cascade.insert_per_core_s",
        "filter.cascade.insert_wall_s",
        "filter.cascade.stall_ms",
        "filter.cascade.bits_per_item",
        "filter.cascade.peak_rss_mib",
        "filter.cascade.unique_s",
        "filter.cascade.lookup.per_s",
        "filter.cascade.lookup.reads",
        "filter.cascade.lookup.blocks",
        "filter.cascade.lookup.iops_fraction",
        "filter.cascade.single.insert_per_core_s",
        "filter.cascade.log.insert_fraction",
        "filter.cascade.removal.fraction",
        "filter.cascade.exact.bits_per_item",
        "filter.run.merge2_items_s",
        "filter.run.merge4_items_s",
        "filter.run.merge8_items_s",
        "filter.run.merge8_removal_items_s",
        "filter.run.merge8_removal.fraction",
        "filter.quotient.insert_s",
        "filter.quotient.positive_s",
        "filter.quotient.negative_s",
        "filter.quotient.batch_insert_s",
        "filter.quotient.batch_positive_s",
        "filter.quotient.batch_negative_s",
        "filter.quotient.bits_per_item",
        "filter.quotient.merge_items_s",
    ];
    check(&figures, names.into_iter());
    assert!(!work.path("bench").exists(), "nothing is left");
}

#[test]
fn the_map_benchmark_prints_each_figure() {
    let work = Work::new();
    let sizes = "--keys 20000 --updates 30000 --lookups 500 --commits 5 --memory 8MiB --dir bench --device other";
    let figures = figures(&work, &format!("bench map {sizes} --json"));
    let names = [
        "map.load.per_s",
        "map.load.cpu_us",
        "map.load.p50_us",
        "map.load.p99_us",
        "map.load.p999_us",
        "map.load.max_ms",
        "map.load.reads_per_put",
        "map.load.writes_per_put",
        "map.load.write_amplification",
        "map.load.space_ratio",
        "map.load.address_bytes_per_entry",
        "map.import.per_s",
        "map.import.put_ratio",
        "map.import.write_amplification",
        "map.update.per_s",
        "map.update.max_ms",
        "map.update.write_amplification",
        "map.update.space_ratio",
        "map.get.per_s",
        "map.get.p99_us",
        "map.get.reads",
        "map.get.plain_fraction",
        "map.get.absent.per_s",
        "map.get.absent.reads",
        "map.get_many.per_s",
        "map.get_many.cpu_us",
        "map.get_many.reads",
        "map.get_many.plain_fraction",
        "map.mixed.50.per_s",
        "map.mixed.50.reads_per_operation",
        "map.mixed.90.per_s",
        "map.open.ms",
        "map.commit.1.per_s",
        "map.commit.8.p50_us",
        "map.commit.64.per_s",
        "map.commit.64.p99_us",
        "map.commit.64.bytes_per_commit",
        "map.commit.64.commits_per_write",
        "map.beside.nothing.get_p99_us",
        "map.beside.commits.get_p99_us",
        "map.beside.updates.get_max_ms",
        "map.recovery.changes_s",
        "map.delete.per_s",
        "map.compact.seconds",
        "map.compact.space_ratio",
        "map.memory.budget_ratio",
        "map.devices.one.get_many.per_s",
        "map.devices.two.get_many.per_s",
        "map.devices.two.least_share",
        "map.devices.ratio",
    ];
    check(&figures, names.into_iter());
    assert!(!work.path("bench").exists() && !work.path("other/hashfold-bench-map").exists());
}

/// A benchmark that was killed leaves its folder, and one that began said to use `--replace`, which it lacks,
/// and removed the folder.
#[test]
fn a_benchmark_leaves_a_folder_alone_that_is_there() {
    let work = Work::new();
    std::fs::create_dir_all(work.path("bench/map/map")).unwrap();
    let refused = work.run("bench map --keys 1000 --dir bench");
    let message = "bench/map: is there already, as if a benchmark was killed; remove it, or name another \
                   folder with --dir";
    assert!(refused.code == 2 && refused.stderr.contains(message), "{refused:?}");
    assert!(work.path("bench/map/map").exists());
}

#[test]
fn the_memory_benchmark_prints_each_figure() {
    let work = Work::new();
    let figures = figures(&work, "bench memory --keys 30000 --chains 10000 --json");
    let names = [
        "memory.group.put_s",
        "memory.group.put.p99_us",
        "memory.group.put.p9999_us",
        "memory.group.put.max_ms",
        "memory.group.put.max_cpu_ms",
        "memory.group.put.waits",
        "memory.group.put.interval_ratio",
        "memory.group.bytes_per_key",
        "memory.group.rss_ratio",
        "memory.group.moves",
        "memory.group.get.hit_ns",
        "memory.group.get.single.miss_ns",
        "memory.group.dump_s",
        "memory.group.grow.p50_us",
        "memory.group.grow.p99_us",
        "memory.group.grow.max_ms",
        "memory.group.remove_s",
        "memory.append.records_s",
        "memory.append.interval_ratio",
        "memory.append.overhead_per_key",
        "memory.append.rss_ratio",
        "memory.append.fill",
        "memory.append.scan_s",
        "memory.append.removed_fill",
        "memory.append.compacted_fill",
        "memory.append.compact_s",
    ];
    check(&figures, names.into_iter());
}

#[test]
fn the_day_of_appends_prints_each_figure() {
    let work = Work::new();
    let figures = figures(&work, "bench memory --chains 2000 --only day --json");
    let names = ["records_s", "interval_ratio", "bytes_per_key", "rss_ratio", "fill"];
    let names: Vec<_> = names.iter().map(|name| format!("memory.day.{name}")).collect();
    check(&figures, names.iter().map(String::as_str));
}

#[test]
fn the_pipeline_benchmark_prints_each_figure() {
    let work = Work::new();
    let figures = figures(&work, "bench pipeline --events 3000 --time 50ms --json");
    let names = [
        "pipeline.v1.file.events_per_s",
        "pipeline.v1.file.cpu",
        "pipeline.v1.sender.events_per_s",
        "pipeline.v1.events_per_s",
        "pipeline.v1.cpu",
        "pipeline.v1.workers2.events_per_s",
        "pipeline.v1.stalled.growth_mib",
        "pipeline.v1.stalled.in_flight_mib",
        "pipeline.v2.file.cpu",
        "pipeline.v2.sender.events_per_s",
        "pipeline.v2.events_per_s",
        "pipeline.v2.workers2.cpu",
        "pipeline.v2.stalled.in_flight_mib",
    ];
    check(&figures, names.into_iter());
}

#[test]
fn the_sketch_benchmark_prints_each_figure() {
    let work = Work::new();
    let sizes =
        "--rows 200000 --groups 3000 --memory 1MiB --precision 10 --prefix-keys 200000 --dir bench";
    let figures = figures(&work, &format!("bench sketch {sizes} --json"));
    let names = [
        "sketch.read_hashes",
        "sketch.insert_hashes.p14",
        "sketch.insert.p16",
        "sketch.joint_us",
        "sketch.estimate_us",
        "sketch.union_us",
        "sketch.joint.covered",
        "sketch.inclusion_exclusion.error",
        "sketch.prefix.read_mb",
        "sketch.prefix.keys_read",
        "sketch.prefix.error",
        "sketch.prefix.ms",
        "sketch.groups.source_ns",
        "sketch.groups.rows_s",
        "sketch.groups.cpu_ns",
        "sketch.groups.insert_s",
        "sketch.groups.write_s",
        "sketch.groups.memory_mib",
        "sketch.groups.peak_rss_mib",
        "sketch.groups.spilled_bytes_per_row",
        "sketch.groups.bytes_per_group",
        "sketch.groups.sketch_bytes",
        "sketch.groups.mean_error",
        "sketch.groups.max_error",
        "sketch.groups.union.groups_s",
        "sketch.groups.union.cpu_ns",
    ];
    check(&figures, names.into_iter());
    assert!(!work.path("bench").exists(), "nothing is left");
}

#[test]
fn the_serve_benchmark_prints_each_figure() {
    let work = Work::new();
    let sizes = "--keys 20000 --flash-keys 20000 --start-keys 10000 --requests 4000 --data 6MiB";
    let counts = "--publishes 1 --idle 20 --chains 20000";
    let figures = figures(&work, &format!("bench serve {sizes} {counts} --dir bench --json"));
    let names = [
        "serve.get.ram.p1.per_core_s",
        "serve.get.ram.p16.p99_us",
        "serve.threads2.speedup",
        "serve.threads2.cpu_ratio",
        "serve.get.flash.p1.per_s",
        "serve.get.flash.iops_fraction",
        "serve.get.flash.alone.p50_us",
        "serve.set.everysec.per_s",
        "serve.set.group.per_s",
        "serve.set.group.p99_us",
        "serve.map.flash.p8.per_s",
        "serve.map.flash.iops_fraction",
        "serve.map.flash.rss_mib",
        "serve.append.records_s",
        "serve.append.interval_ratio",
        "serve.append.rss_mib",
        "serve.overload.peak_fraction",
        "serve.overload.memory_mib",
        "serve.filter.madd.items_s",
        "serve.filter.madd.in_process_fraction",
        "serve.memory.idle_connection_bytes",
        "serve.memory.budget_ratio",
        "serve.start.ready_ms",
        "serve.publish.stall_ms",
        "serve.publish.control_ms",
        "serve.publish.skew_ms_max",
        "serve.publish.errors",
        "serve.fetch.bytes_s",
        "serve.fetch.link_fraction",
        "serve.fetch.delta_ratio",
        "serve.fetch.p99_ratio",
        "serve.fetch.resume_bytes",
    ];
    check(&figures, names.into_iter());
    // This value can be negative.
    assert!(figures.iter().any(|(name, _)| name == "serve.publish.above_control_ms"));
    assert!(!work.path("bench").exists(), "nothing is left");
}

//! Runs all peers on a few thousand keys, so that the benchmark keeps working. Wrong answers are
//! errors of the commands themselves.

use crate::{
    Cli, nightly,
    report::{DEVICE, Report},
};
use clap::Parser;
use record::Samples;
use std::path::Path;

#[track_caller]
fn run(command: &[&str], folder: &Path) -> Report {
    let folder = folder.to_str().expect("the folder's name is UTF-8");
    let common = ["--rounds", "2", "--dir", folder, "--out", folder];
    let arguments = ["peers"].iter().chain(command).chain(&common);
    let report = Cli::parse_from(arguments).command.run();
    report.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_index_answers_right() {
    let folder = tempfile::tempdir().unwrap();
    let report = run(&["index", "--keys", "20000", "--gets", "2000"], folder.path());
    let native = if cfg!(feature = "cmph") { 2 } else { 0 };
    assert_eq!(report.rows.len(), 9 + native);
    report.save(folder.path(), "index").unwrap();
    let text = std::fs::read_to_string(folder.path().join("index.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), report.rows.len());
    for line in lines {
        assert!(line["get_ns"]["min"].as_f64() <= line["get_ns"]["max"].as_f64(), "{line}");
        assert_eq!(line["rounds"], 2);
        assert!(line["run"]["commit"].is_string() && line["run"]["load"].is_string(), "{line}");
    }
    let chart = std::fs::read_to_string(folder.path().join("index.svg")).unwrap();
    assert!(chart.contains("Memory, bits per key") && chart.contains("ptr_hash"), "{chart}");
}

#[test]
fn a_chart_is_drawn_alike_from_measurements_and_from_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let command = ["index", "--keys", "1000", "--gets", "10", "--only", "Hashfold"];
    run(&command, folder.path()).save(folder.path(), "index").unwrap();
    let chart = || std::fs::read_to_string(folder.path().join("index.svg")).unwrap();
    let measured = chart();
    std::fs::remove_file(folder.path().join("index.svg")).unwrap();
    let draw = |command: &str| {
        let arguments = ["peers", command, "--draw", "--out", out, "--dir", out];
        Cli::parse_from(arguments).command.draw()
    };
    draw("index").unwrap();
    // Files have fewer decimals, so bars may differ by a pixel.
    let texts = |chart: &str| chart.matches("<text").count();
    assert_eq!(texts(&chart()), texts(&measured));
    for command in [
        "dictionary",
        "hot",
        "nightly",
        "damage",
        "filter",
        "sketch",
        "seen",
        "map",
        "serve",
        "failover",
        "memory",
    ] {
        let error = draw(command).unwrap_err().to_string();
        assert!(error.contains("measure it first"), "{error}");
    }
}

#[test]
fn every_dictionary_answers_right_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ["dictionary", "--sizes", "30000x84,3000x1008", "--gets", "1000"];
    let report = run(&[&sizes[..], &["--memory", "1"]].concat(), folder.path());
    let native = [
        (cfg!(feature = "rocksdb"), 2),
        (cfg!(feature = "lmdb"), 1),
        (cfg!(feature = "cdb"), 1),
        (cfg!(feature = "sparkey"), 1),
    ];
    let native: usize = native.iter().filter(|(on, _)| *on).map(|(_, count)| count).sum();
    assert_eq!(report.rows.len(), 2 * (3 + native));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn every_way_of_looking_up_hot_data_answers_right() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ["hot", "--sizes", "20000x84,3000x1008,5000xpaths", "--lookups", "3000"];
    let report = run(&sizes, folder.path());
    let native = [cfg!(feature = "rocksdb"), cfg!(feature = "lmdb")];
    let native = native.iter().filter(|on| **on).count();
    assert_eq!(report.rows.len(), 3 * (2 + native));
    for row in &report.rows {
        assert!(row.figures.iter().all(Option::is_some), "{row:?}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_peer_can_be_chosen_by_a_part_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["index", "--keys", "1000", "--gets", "10", "--only", "fences"];
    let report = run(&command, folder.path());
    assert!(report.rows.iter().all(|row| row.peer.contains("fences")));
    assert_eq!(report.rows.len(), 2);
}

const NIGHTLY: &[&str] =
    &["nightly", "--sizes", "20000x100", "--nights", "2", "--quiet-ms", "5", "--memory", "16"];

#[test]
fn every_store_shows_each_night_and_goes_back_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let report = run(NIGHTLY, folder.path());
    let native = [(cfg!(feature = "rocksdb"), 2), (cfg!(feature = "lmdb"), 1)];
    let native: usize = native.iter().filter(|(on, _)| *on).map(|(_, count)| count).sum();
    assert_eq!(report.rows.len(), 2 * (2 + native));
    for row in &report.rows {
        assert!(row.figures.iter().all(Option::is_some), "{row:?}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    report.save(folder.path(), "nightly").unwrap();
    assert!(folder.path().join("nightly-large.svg").exists());
}

#[test]
fn rows_of_voldemort_stand_in_the_table_if_the_data_were_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("voldemort.jsonl");
    let check = nightly::check(&crate::data::Data::new(1, 20_000, 100));
    let line = r#"{"entries": 20000, "value_bytes": 100, "change_percent": 1, "check": "CHECK",
        "peer": "Voldemort read-only", "note": "", "seconds_until_live": 1.5}"#;
    std::fs::write(&path, line.replace("CHECK", &check).replace('\n', "")).unwrap();
    let with = ["--only", "none", "--voldemort", path.to_str().unwrap()];
    let report = run(&[NIGHTLY, &with].concat(), folder.path());
    assert_eq!(report.rows.len(), 1);
    assert_eq!(report.rows[0].peer, "Voldemort read-only");
}

#[test]
fn damage_is_never_taken_for_data() {
    let folder = tempfile::tempdir().unwrap();
    let report = run(&["damage", "--entries", "5000"], folder.path());
    assert_eq!(report.rows.len(), 4);
}

#[test]
fn every_filter_answers_right() {
    let folder = tempfile::tempdir().unwrap();
    let report = run(&["filter", "--log-slots", "14", "--lookups", "10000"], folder.path());
    assert_eq!(report.rows.len(), 7);
    report.save(folder.path(), "filter").unwrap();
    assert!(folder.path().join("filter-small.svg").exists());
}

#[test]
fn every_sketch_answers_right_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ["sketch", "--keys", "50000", "--keys-served", "5000", "--sets", "2"];
    let python = ["--keys-max", "40000", "--python", "../../target/sketch-images/bin/python"];
    let report = run(&[&sizes[..], &python].concat(), folder.path());
    // Servers and Python may not be installed.
    assert!((15..=18).contains(&report.rows.len()), "{}", report.rows.len());
    for row in &report.rows {
        let figure = |name: &str| row.figures[report.column(name)].as_ref().map(Samples::median);
        assert!(figure("error_percent_40k_keys") < Some(6.5), "{row:?}");
        assert!(figure("intersection_error_percent").is_some(), "{row:?}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    report.save(folder.path(), "sketch").unwrap();
    let chart = std::fs::read_to_string(folder.path().join("sketch-hashes.svg")).unwrap();
    assert!(chart.contains("ultraloglog") && chart.contains("Insert, CPU time"), "{chart}");
}

#[test]
fn every_seen_set_answers_right_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ["seen", "--keys", "300000", "--keys-rocksdb", "20000", "--keys-bloom", "2000"];
    let more = ["--lookups", "5000", "--seconds", "5", "--memory", "16", "--bloom-mib", "32"];
    let report = run(&[&sizes[..], &more].concat(), folder.path());
    let native = if cfg!(feature = "rocksdb") { 3 } else { 0 };
    assert_eq!(report.rows.len(), 4 + native);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    report.save(folder.path(), "seen").unwrap();
    assert!(folder.path().join("seen.svg").exists());
}

#[test]
fn every_map_answers_right_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ["map", "--keys", "20000", "--operations", "2000", "--seconds", "0.2"];
    let report = run(&sizes, folder.path());
    let native = [cfg!(feature = "rocksdb"), cfg!(feature = "lmdb"), cfg!(feature = "tkrzw")];
    let native = native.iter().filter(|on| **on).count();
    assert_eq!(report.rows.len(), 4 + native);
    for row in report.rows.iter().filter(|row| row.peer != DEVICE) {
        assert!(row.figures.iter().all(Option::is_some), "{row:?}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    report.save(folder.path(), "map").unwrap();
    let chart = std::fs::read_to_string(folder.path().join("map.svg")).unwrap();
    assert!(chart.contains("Durable commits of 64 threads"), "{chart}");
}

#[test]
fn every_table_in_memory_answers_right_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ["memory", "--keys", "20000", "--gets", "5000", "--scale", "10000"];
    let report = run(&[&sizes[..], &["--part", "2000"]].concat(), folder.path());
    let native = [
        (cfg!(feature = "absl"), 2),
        (cfg!(feature = "boost"), 1),
        (cfg!(feature = "sparsehash"), 2),
        (cfg!(feature = "tkrzw"), 1),
        (cfg!(feature = "kyotocabinet"), 2),
        (cfg!(feature = "berkeley"), 1),
    ];
    let native: usize = native.iter().filter(|(on, _)| *on).map(|(_, count)| count).sum();
    // redis-server may not be installed.
    assert!((11 + native..=12 + native).contains(&report.rows.len()), "{}", report.rows.len());
    for row in &report.rows {
        let figure = |name: &str| row.figures[report.column(name)].as_ref().map(Samples::median);
        let rate = if row.data.starts_with("puts") { "put_per_s" } else { "append_per_s" };
        let has = |name: &str| assert!(figure(name).is_some(), "{name}: {row:?}");
        [rate, "slowest_part_s", "bytes_per_key", "peak_bytes_per_key"]
            .iter()
            .for_each(|name| has(name));
        assert!(figure("slowest_by_median") >= Some(1.0), "{row:?}");
        let is_single = row.data.starts_with("puts") && !row.peer.contains("two threads");
        assert_eq!(figure("get_ns").is_some(), is_single, "{row:?}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    report.save(folder.path(), "memory").unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let curves = read("memory-curves.svg");
    assert!(curves.contains("hashbrown of Vec:") && curves.contains("the slowest is marked"));
    assert!(read("memory-puts.svg").contains("Puts of random keys"));
    assert!(read("memory-appends.svg").contains("Appended records"));
    // Charts come from files as from measurements.
    let mut loaded = crate::memory::report(&memory_options());
    loaded.load(folder.path(), "memory").unwrap();
    loaded.draw(folder.path(), "memory").unwrap();
    assert_eq!(read("memory-curves.svg"), curves);
}

#[test]
fn a_table_that_has_no_time_stops_and_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ["memory", "--keys", "20000", "--gets", "1000", "--scale", "10000"];
    let stop = ["--seconds", "0", "--only", "Hashfold", "--only", "hashbrown"];
    let report = run(&[&sizes[..], &stop].concat(), folder.path());
    for row in &report.rows {
        let done = row.figures[report.column("million_done")].as_ref().map(Samples::median);
        let threads = if row.peer.contains("two threads") { 2.0 } else { 1.0 };
        assert_eq!(done, Some(0.001 * threads), "{row:?}");
    }
}

fn memory_options() -> crate::memory::Options {
    match Cli::parse_from(["peers", "memory"]).command {
        crate::Command::Memory(options) => options,
        _ => unreachable!("the command is memory"),
    }
}

#[test]
fn results_of_two_rounds_are_not_kept_among_those_of_the_repository() {
    let error = record::Run::check(Path::new("../results"), 2).unwrap_err().to_string();
    assert!(error.contains("use --out FOLDER"), "{error}");
    record::Run::check(Path::new("/tmp"), 2).unwrap();
}

#[test]
fn servers_answer_right() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ["serve", "--keys", "2000", "--requests", "3000", "--connections", "5"];
    let report = run(&sizes, folder.path());
    assert_eq!(report.rows[0].peer, "hashfold serve");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_cluster_answers_right_after_the_loss_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = [
        "failover",
        "--keys",
        "2000",
        "--only",
        "hashfold",
        "--before-ms",
        "300",
        "--seconds",
        "3",
    ];
    let report = run(&sizes, folder.path());
    assert_eq!(report.rows.len(), 1);
    let wrong = report.rows[0].figures[4].as_ref().unwrap();
    assert_eq!(wrong.median(), 0.0);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
#[ignore = "servers_answer_right runs it in a new process"]
fn serves_alone() {
    if let Some(folder) = std::env::var_os(crate::serve::ALONE) {
        crate::serve::run_alone(Path::new(&folder)).unwrap();
    }
}

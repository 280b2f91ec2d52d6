//! Every command with tiny sizes, its sheet, and the formulas compared with independently known
//! values.

use crate::{
    Cli, Result,
    items::{Items, Kind},
    run, sheet, theory,
    theory::{Code, Nodes},
    urls,
};
use clap::{CommandFactory, Parser};
use serde_json::Value;
use std::{collections::HashSet, fs, path::Path};

/// The rows of a file of results.
struct Table(Vec<Value>);

impl Table {
    fn read(path: &Path) -> Table {
        let text = fs::read_to_string(path).unwrap();
        let rows: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for row in &rows {
            for note in ["machine", "commit", "load", "data", "seed", "rounds", "threads"] {
                assert!(row["run"][note].is_string(), "{}: no {note}", path.display());
            }
        }
        Table(rows)
    }

    /// Returns the rows with this source.
    fn of(&self, source: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |row| row["source"] == source)
    }

    /// Returns a column of the rows with this source.
    fn numbers(&self, source: &str, name: &str) -> Vec<f64> {
        self.of(source).map(|row| row[name].as_f64().unwrap()).collect()
    }
}

/// Runs a command with tiny sizes, and reads its output.
fn figures(folder: &Path, command: &str) -> Result<()> {
    let folder = folder.to_str().unwrap();
    let fixed = ["figures", "--quick", "--rounds", "1", "--out", folder, "--dir", folder];
    run(&Cli::try_parse_from(fixed.into_iter().chain(command.split(' ')))?)
}

#[track_caller]
fn check(command: &str, names: &[&str], ours: usize) {
    let folder = tempfile::tempdir().unwrap();
    figures(folder.path(), command).unwrap();
    for name in names {
        let table = Table::read(&folder.path().join(format!("{name}.jsonl")));
        assert!(table.of(sheet::OURS).count() >= ours, "{name}");
        assert!(table.of(sheet::PAPER).count() >= 1, "{name}");
        let svg = fs::read_to_string(folder.path().join(format!("{name}.svg"))).unwrap();
        assert!(svg.contains("paper") && svg.contains("ours"), "{name}");
        assert!(!svg.contains("NaN"), "{name}");
        // Charts come from the rows alone.
        let path = folder.path().join(format!("{name}.svg"));
        fs::remove_file(&path).unwrap();
        figures(folder.path(), &format!("{command} --draw")).unwrap();
        assert!(fs::read_to_string(&path).unwrap() == svg, "{name}");
    }
    // Temporary files have been removed.
    for entry in fs::read_dir(folder.path()).unwrap() {
        assert!(entry.unwrap().path().is_file());
    }
}

#[test]
fn the_commands_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn figure_3_is_drawn_and_measured_sizes_are_the_expected_ones() {
    check("fig3", &["fig3"], 6);
}

#[test]
fn figure_6_is_drawn_and_measured_sizes_are_the_expected_ones() {
    check("fig6", &["fig6"], 7);
}

#[test]
fn figure_7_and_table_3_are_drawn() {
    check("fig7 --cores 1", &["fig7"], 2);
    check("table3 --cores 1", &["table3"], 1);
}

#[test]
fn figure_8_is_drawn() {
    check("fig8 --cores 1", &["fig8"], 2);
}

#[test]
fn figure_9_is_drawn() {
    check("fig9", &["fig9"], 5);
}

#[test]
fn updates_are_drawn_and_small_deltas_write_little() {
    let folder = tempfile::tempdir().unwrap();
    figures(folder.path(), "updates").unwrap();
    let table = Table::read(&folder.path().join("updates.jsonl"));
    let written = table.numbers(sheet::OURS, "written_per_changed_byte");
    assert_eq!(written.len(), 8);
    // A delta and a merge of 1 %.
    assert!(written[1] < 10.0 && written[5] > 50.0, "{written:?}");
    assert!(fs::read_to_string(folder.path().join("updates.svg")).unwrap().contains("delta"));
}

#[test]
fn the_tables_of_the_post_on_voldemort_are_drawn() {
    check("voldemort-lookups", &["voldemort-lookups"], 2);
    check("voldemort-builds", &["voldemort-builds"], 2);
}

#[test]
fn figures_10_and_11_are_drawn() {
    check("fig10", &["fig10"], 9);
    check("fig11", &["fig11"], 9);
}

#[test]
fn figure_12_and_table_5_are_drawn() {
    check("fig12 --cores 1", &["fig12", "table5"], 1);
}

#[test]
fn tables_1_and_4_are_drawn() {
    check("table1", &["table1"], 4);
    check("table4", &["table4"], 2);
}

#[test]
fn the_figures_of_the_paper_on_cascade_filters_are_drawn() {
    check("cascade-fig3", &["cascade-fig3"], 4);
    check("cascade-quotient", &["cascade-quotient"], 2);
    check("cascade-lookups", &["cascade-lookups"], 5);
    check("cascade-tombstones", &["cascade-tombstones"], 3);
}

#[test]
fn the_figures_of_the_paper_on_sal_hashing_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    figures(folder.path(), "sal").unwrap();
    let claims = Table::read(&folder.path().join("sal-claims.jsonl"));
    let ours = claims.0.iter().filter(|row| row["filters_in_ram_nvme"].is_number());
    assert_eq!(ours.count(), 9);
    let charts = || {
        let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|end| end == "svg"))
    };
    assert_eq!(charts().count(), 13);
    // Charts come from the rows alone.
    for path in charts().collect::<Vec<_>>() {
        let svg = fs::read_to_string(&path).unwrap();
        assert!(!svg.contains("NaN"), "{}", path.display());
        fs::remove_file(&path).unwrap();
        figures(folder.path(), "sal --draw").unwrap();
        assert!(fs::read_to_string(&path).unwrap() == svg, "{}", path.display());
    }
}

#[test]
fn copies_on_several_devices_are_simulated_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    figures(folder.path(), "sal-replication --scale 4096").unwrap();
    let table = Table::read(&folder.path().join("sal-replication.jsonl"));
    // Four traces of two kinds of operations, three strategies, four numbers of devices.
    assert_eq!(table.of(sheet::OURS).count(), 4 * 2 * 3 * 4);
    for row in table.of(sheet::OURS) {
        let number = |name: &str| row[name].as_f64().unwrap();
        if number("devices") == 1.0 {
            assert_eq!(number("busiest"), 1.0, "{row}");
            assert_eq!(number("stored_percent"), 0.0, "{row}");
        }
        assert!((1.0..=number("devices")).contains(&number("busiest")), "{row}");
        if row["copies"] == "no copies" {
            assert_eq!(number("extra_pages_per_1000"), 0.0, "{row}");
        }
    }
    let svg = folder.path().join("sal-replication.svg");
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("replication") && !drawn.contains("NaN"));
    fs::remove_file(&svg).unwrap();
    figures(folder.path(), "sal-replication --draw").unwrap();
    assert!(fs::read_to_string(&svg).unwrap() == drawn);
}

#[test]
fn intersections_of_the_posts_are_drawn() {
    check("hll-intersections", &["hll-intersections"], 100);
    let folder = tempfile::tempdir().unwrap();
    figures(folder.path(), "hll-intersections").unwrap();
    let cells = Table::read(&folder.path().join("hll-cut-offs.jsonl"));
    assert_eq!(cells.of(sheet::OURS).count(), 4);
    assert!(folder.path().join("hll-cut-offs.svg").exists());
    // Two more pictures are drawn from the file of the first one.
    for name in ["hll-envelopes.svg", "hll-ratios.svg"] {
        let drawn = fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(drawn.contains("paper") && drawn.contains("ours"), "{name}");
        fs::remove_file(folder.path().join(name)).unwrap();
        figures(folder.path(), "hll-intersections --draw").unwrap();
        assert!(fs::read_to_string(folder.path().join(name)).unwrap() == drawn, "{name}");
    }
    let histograms = Table::read(&folder.path().join("hll-histograms.jsonl"));
    for column in ["exclusion", "joint", "sample"] {
        let all: f64 = histograms.numbers(sheet::OURS, column).iter().sum();
        assert!((all - 400.0).abs() < 0.5, "{column}: {all} % of four cells");
    }
}

#[test]
fn errors_of_counts_are_drawn_and_are_those_of_theory() {
    check("hll-sizes", &["hll-bias"], 6);
    let folder = tempfile::tempdir().unwrap();
    figures(folder.path(), "hll-sizes --runs 200 --keys 65536").unwrap();
    let sizes = Table::read(&folder.path().join("hll-sizes.jsonl"));
    let has_posts = |row: &Value| row["posts_bias_percent"].is_number();
    assert!(sizes.0.iter().all(has_posts), "each row has both estimators");
    // The theory is of many registers and many keys.
    let is_large = |row: &&Value| {
        let precision = row["precision"].as_f64().unwrap();
        precision >= 8.0 && row["keys"].as_f64().unwrap() >= 8.0 * 2_f64.powf(precision)
    };
    let large: Vec<f64> = sizes
        .0
        .iter()
        .filter(is_large)
        .map(|row| row["error_by_theory"].as_f64().unwrap())
        .collect();
    assert!(large.len() > 20, "{large:?}");
    // The standard error of a standard deviation of 200 is 5 %.
    assert!(large.iter().all(|error| (0.8..1.2).contains(error)), "{large:?}");
}

#[test]
fn the_experiments_of_the_post_on_queues_are_drawn() {
    check("queues", &["queues", "queues-third", "queues-events"], 1);
    let folder = tempfile::tempdir().unwrap();
    figures(folder.path(), "queues --items 5000 --events 3000").unwrap();
    let read = |name: &str| Table::read(&folder.path().join(format!("{name}.jsonl")));
    assert_eq!(read("queues").of(sheet::MEASURED).count(), 4 * 16);
    assert_eq!(read("queues").of(sheet::OURS).count(), 16);
    let events = read("queues-events");
    assert_eq!(events.of(sheet::OURS).count(), 16);
    let fullest = events.numbers(sheet::OURS, "fullest_queue_percent");
    let emptiest = events.numbers(sheet::OURS, "emptiest_queue_percent");
    assert_eq!((fullest.len(), emptiest.len()), (16, 16));
    assert!(fullest.iter().zip(&emptiest).all(|(fullest, emptiest)| {
        (0.0..=100.0).contains(emptiest) && (*emptiest..=100.0).contains(fullest)
    }));
}

#[test]
fn larger_buckets_take_fewer_bits() {
    let folder = tempfile::tempdir().unwrap();
    figures(folder.path(), "fig10").unwrap();
    let bits =
        Table::read(&folder.path().join("fig10.jsonl")).numbers(sheet::OURS, "trie_bits_per_key");
    let expected = [(64, 2.302), (128, 2.339), (256, 2.359)];
    for (size, (g, expected)) in [bits[4], bits[6], bits[7]].into_iter().zip(expected) {
        assert!((size / expected - 1.0).abs() < 0.01, "g = {g}: {size}, not {expected}");
    }
}

#[test]
fn bad_sizes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |command| figures(folder.path(), command).unwrap_err().to_string();
    assert!(refused("fig7 --cores 100000").contains("100000 cores are asked for"));
    assert!(refused("urls --count 1 --values 9999999").contains("values of less than"));
    assert!(refused("fig10 --keys x").contains("invalid value"));
}

/// Bits per key, as computed by other people or separate programs.
#[test]
fn expected_sizes_are_the_known_ones() {
    let check = |code, sizes: [f64; 3]| {
        let tries = Nodes::new(code, 256).unwrap().dense();
        for (keys, bits) in [64, 128, 256].into_iter().zip(sizes) {
            let got = tries[keys] / keys as f64;
            assert!((got - bits).abs() < 0.001, "{code:?}, {keys} keys: {got}, not {bits}");
        }
    };
    check(Code::EntropyDistinct, [2.697, 2.732, 2.752]);
    check(Code::Entropy, [2.254, 2.289, 2.309]);
    check(Code::Paper { coding_limit: 16 }, [2.357, 2.404, 2.430]);
    check(Code::Paper { coding_limit: 64 }, [2.299, 2.353, 2.379]);
    check(Code::Ours { coding_limit: 32 }, [2.302, 2.339, 2.359]);
}

#[test]
fn expected_sizes_of_sparse_tries_are_the_known_ones() {
    let nodes = Nodes::new(theory::PAPER, 256).unwrap();
    let exact = [(1, 2.379), (2, 2.019), (4, 1.583), (8, 1.153), (16, 0.793), (64, 0.333)];
    for (block, bits) in exact {
        let got = nodes.sparse(block)[256] / 256.0;
        assert!((got - bits).abs() < 0.001, "blocks of {block}: {got}, not {bits}");
    }
    for (block, bits) in [(2, 2.019), (4, 1.506), (8, 1.004), (16, 0.626)] {
        let got = nodes.sparse_as_if_independent(block)[256] / 256.0;
        assert!((got - bits).abs() < 0.001, "blocks of {block}: {got}, not {bits}");
    }
}

#[test]
fn urls_are_distinct_and_of_111_bytes_on_average() {
    const COUNT: u64 = 50_000;
    let mut distinct = HashSet::new();
    let mut key = Vec::new();
    let mut bytes = 0;
    for i in 0..COUNT {
        urls::url(i, 7, &mut key);
        assert!(key.starts_with(b"http://www.") && key.is_ascii());
        bytes += key.len();
        assert!(distinct.insert(key.clone()), "{i}");
    }
    let mean: f64 = bytes as f64 / COUNT as f64;
    assert!((mean - urls::MEAN_SIZE as f64).abs() < 1.0, "{mean}");
    urls::url(urls::COUNT_MAX - 1, 7, &mut key);
    assert!(distinct.insert(key));
}

#[test]
fn items_come_back_from_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    for kind in [Kind::Urls { value_size: 1000 }, Kind::Small, Kind::Numbers] {
        // More than two read units.
        let items = Items::new(kind, if kind == Kind::Small { 130_000 } else { 9000 }, 3);
        let executor = std::sync::Arc::new(hashfold::work::Inline);
        items.write(&path, executor.clone()).unwrap();
        let mut i = 0;
        let mut expected = Vec::new();
        let push = &mut |key: &[u8], value: &[u8]| {
            items.key(i, &mut expected);
            assert_eq!(key, expected);
            assert!(value.starts_with(&items.number(i)));
            i += 1;
            Ok(())
        };
        items.read(&path, executor.as_ref(), push).unwrap();
        assert_eq!(i, items.count);
    }
}

//! Chains of a run: credits, dumps, restarts, and mistakes in their configuration.

use crate::{Config, Run, StreamStats, SummarizeError};
use hashfold::{Env, Store, Table, run::Run as _, store::VersionInfo};
use hashfold_rows::Schema;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tempfile::TempDir;

const CONFIG: &str = r#"
out = "out"
[stream.shop]
format = "csv"
columns = ["ts", "user", "kind", "channel", "cents"]
files = ["a.csv"]
workers = 2
time = { from = "ts", format = "ms" }
[stream.shop.fields]
user = { type = "int" }
kind = { type = "text" }
channel = { type = "text" }
cents = { type = "int" }
[chains.visits]
stream = "shop"
user = "user"
channel = ["channel", "cents"]
touch = [{ field = "kind", in = ["click"] }]
conversion = [{ field = "kind", in = ["buy"] }]
value = "cents"
age = "2s"
touches-max = 3
lateness = "100ms"
models = ["first-touch", "last-touch", "linear", "time-decay"]
half-life = "1s"
memory = "8MiB"
dump = "1s"
[summary.channels]
chains = "visits"
group-by = ["model", "channel"]
window = "1s"
lateness = "100ms"
columns = [{ name = "credit", sum = "credit" }, { name = "value", sum = "credit_value" }]
[summary.users]
chains = "visits"
where = [{ field = "model", in = ["linear"] }]
group-by = ["channel"]
output = "store"
columns = [{ name = "buyers", distinct = "user" }, { name = "touches", max = "touches" }]
"#;

fn config(text: &str, folder: &Path) -> Config {
    Config::parse(text, "test.toml", folder).unwrap()
}

fn run(config: &Config) -> Result<Vec<StreamStats>, SummarizeError> {
    Run::start(config, &Env::system(), Arc::default())?.wait(&mut |_| {})
}

/// Returns all entries of a run as JSON, sorted.
fn rows(schema: &Schema, run: &mut dyn hashfold::run::Run) -> Vec<String> {
    let mut lines = Vec::new();
    while run.advance().unwrap() {
        let entry = run.entry();
        let mut line = Vec::new();
        schema.write_json(entry.key, entry.value.unwrap(), &mut line).unwrap();
        lines.push(String::from_utf8(line).unwrap());
    }
    lines.sort();
    lines
}

fn table(path: &Path) -> Vec<String> {
    let table = Table::open(path).unwrap();
    rows(&Schema::of_table(&table).unwrap(), &mut table.scan())
}

/// Returns the rows of all versions of the dumps, by the description of the dump, without the id of the run.
fn dumps(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let store = Store::open(folder.join("out/visits")).unwrap();
    let facts = |info: &VersionInfo| {
        let dump = info.attributes.iter().find(|(name, _)| name == "dump").unwrap();
        let mut facts: serde_json::Value = serde_json::from_slice(&dump.1).unwrap();
        facts.as_object_mut().unwrap().remove("run").unwrap();
        facts.to_string()
    };
    let mut all = BTreeMap::new();
    for (number, info) in store.versions().unwrap() {
        let version = store.version(number).unwrap();
        let schema = Schema::of_version(version.info()).unwrap();
        let rows = rows(&schema, &mut version.scan_all());
        assert_eq!(all.insert(facts(&info.unwrap()), rows), None, "each dump is published once");
    }
    all
}

#[test]
fn credits_become_tables_and_chains_become_versions() {
    let work = TempDir::new().unwrap();
    let file = "100,7,click,ads,1\n200,7,click,mail,2\n300,7,view,,\n900,7,buy,,100\n\
                1050,8,buy,,10\n1100,7,click,\"s\"\"x\",\n1200,,click,ads,1\n3200,7,buy,,7\n";
    fs::write(work.path().join("a.csv"), file).unwrap();
    let stats = run(&config(CONFIG, work.path())).unwrap().remove(0);
    assert_eq!(stats.chains, [("visits".into(), vec!["channels".into(), "users".into()])]);
    let chains = &stats.stats.chains[0];
    assert_eq!((chains.touches, chains.conversions, chains.direct), (3, 3, 2));
    assert_eq!((chains.no_user, chains.dumps, stats.stats.totals.unrouted), (1, 3, 1));
    assert_eq!(
        table(&work.path().join("out/channels/1970-01-01T00-00-00Z")),
        [
            r#"{"model,channel":"[\"first-touch\",\"ads\"]","model":"first-touch","channel":"ads","credit":1000000,"value":100}"#,
            r#"{"model,channel":"[\"last-touch\",\"mail\"]","model":"last-touch","channel":"mail","credit":1000000,"value":100}"#,
            r#"{"model,channel":"[\"linear\",\"ads\"]","model":"linear","channel":"ads","credit":500000,"value":50}"#,
            r#"{"model,channel":"[\"linear\",\"mail\"]","model":"linear","channel":"mail","credit":500000,"value":50}"#,
            r#"{"model,channel":"[\"time-decay\",\"ads\"]","model":"time-decay","channel":"ads","credit":482678,"value":48}"#,
            r#"{"model,channel":"[\"time-decay\",\"mail\"]","model":"time-decay","channel":"mail","credit":517322,"value":52}"#,
        ]
    );
    let store = Store::open(work.path().join("out/users")).unwrap();
    let version = store.version(1).unwrap();
    let users = rows(&Schema::of_version(version.info()).unwrap(), &mut version.scan_all());
    assert_eq!(
        users,
        [
            r#"{"channel":"","buyers":2,"touches":0}"#,
            r#"{"channel":"ads","buyers":1,"touches":2}"#,
            r#"{"channel":"mail","buyers":1,"touches":2}"#,
        ]
    );
    let dumps: Vec<(String, Vec<String>)> = dumps(work.path()).into_iter().collect();
    let first = r#"{"user":7,"touches":[{"time":"1970-01-01T00:00:00.100Z","channel":"ads","cents":1},{"time":"1970-01-01T00:00:00.200Z","channel":"mail","cents":2}]}"#;
    assert!(dumps[0].0.contains(r#""at_ms":1000"#), "{dumps:?}");
    let store = Store::open(work.path().join("out/visits")).unwrap();
    let notes = [("chains", "visits"), ("at", "1970-01-01T00:00:01Z")];
    let notes = notes.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    assert_eq!(store.version(1).unwrap().info().provenance, notes);
    assert_eq!(dumps[0].1, [first]);
    // At 3000, all touches but the last are too old.
    let third = r#"{"user":7,"touches":[{"time":"1970-01-01T00:00:01.100Z","channel":"s\"x","cents":null}]}"#;
    assert_eq!(dumps[1].1, [third]);
    assert_eq!(dumps[2].1, [third]);
}

fn numbered(count: u64) -> String {
    let mut text = String::new();
    for i in 0..count {
        let kind = ["click", "view", "buy"][(i * i % 7 % 3) as usize];
        let late = i * 31 % 17 * 20;
        let (time, user) = (i * 10 + 400 - late, i * i % 23);
        writeln!(text, "{time},{user},{kind},c{},{}", i % 5, i % 90).unwrap();
    }
    text
}

/// A run is stopped again and again while it reads a file that grows. All together equal one run.
#[test]
fn chains_continue_over_restarts_exactly() {
    let (work, whole) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let text = numbered(2000);
    fs::write(whole.path().join("a.csv"), &text).unwrap();
    let expected = run(&config(CONFIG, whole.path())).unwrap();
    let with = CONFIG.replace(
        "out = \"out\"\n",
        "out = \"out\"\ncheckpoints = \"cp\"\ncheckpoint-interval = \"1ms\"\n",
    );
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for end in [0, 500, 1200, 1999] {
        fs::write(work.path().join("a.csv"), lines[..end].concat()).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let config = config(&with, work.path());
        let mut run = Run::start(&config, &Env::system(), stop.clone()).unwrap();
        run.set_follows(true);
        let wait = run.wait(&mut |stats| {
            let is_read = stats[0].stats.totals.frames == end as u64;
            stop.store(is_read || end == 500, Ordering::Relaxed);
        });
        wait.unwrap();
    }
    fs::write(work.path().join("a.csv"), &text).unwrap();
    // More memory is no other definition.
    let got = run(&config(&with.replace("8MiB", "9MiB"), work.path())).unwrap();
    let counts = |stats: &[StreamStats]| {
        let chains = &stats[0].stats.chains[0];
        let all = [chains.touches, chains.conversions, chains.direct, chains.late, chains.dumps];
        assert!(all.iter().all(|count| *count > 0), "{chains:?}");
        (all, chains.summaries.clone())
    };
    assert_eq!(counts(&got), counts(&expected));
    assert_eq!(dumps(work.path()), dumps(whole.path()));
    for window in fs::read_dir(whole.path().join("out/channels")).unwrap() {
        let name = Path::new("out/channels").join(window.unwrap().file_name());
        assert_eq!(table(&work.path().join(&name)), table(&whole.path().join(&name)));
    }
}

#[test]
fn memory_that_is_too_small_ends_the_run_with_an_error() {
    let work = TempDir::new().unwrap();
    let mut text = String::new();
    for i in 0..60_000 {
        writeln!(text, "{},{i},click,ads,1", i / 1000).unwrap();
    }
    fs::write(work.path().join("a.csv"), text).unwrap();
    let small = CONFIG.replace("8MiB", "1MiB");
    let error = run(&config(&small, work.path())).unwrap_err().to_string();
    assert!(
        error.contains("memory of chains is 1048576 bytes in the chains \"visits\""),
        "{error}"
    );
    // The memory of the whole run is smaller than that of the chains.
    let limited = format!("memory = \"1MiB\"\n{CONFIG}");
    let error = run(&config(&limited, work.path())).unwrap_err().to_string();
    assert!(error.contains("memory of groups and chains is 1048576 bytes"), "{error}");
}

#[test]
fn mistakes_in_chains_are_named() {
    let check = |from: &str, to: &str, word: &str| {
        let text = CONFIG.replacen(from, to, 1);
        assert!(text != CONFIG, "{from}");
        let error = Config::parse(&text, "c.toml", Path::new("")).unwrap_err().to_string();
        assert!(error.starts_with("c.toml: ") && error.contains(word), "{to}: {error}");
    };
    check("\"linear\", \"time-decay\"]", "\"best\"]", "line 24");
    check("half-life = \"1s\"\n", "", "needs `half-life`");
    check(", \"time-decay\"]", "]", "`half-life` is for");
    check("\"linear\", ", "\"linear\", \"linear\", ", "\"linear\" twice");
    check("value = \"cents\"", "value = \"kind\"", "a field of integers");
    check("user = \"user\"", "user = \"usr\"", "there is no field \"usr\"");
    check("[\"channel\", \"cents\"]", "[]", "number of channel fields");
    check("memory = \"8MiB\"", "memory = \"8KiB\"", "memory of chains");
    check("stream = \"shop\"\nuser", "stream = \"sop\"\nuser", "there is no stream \"sop\"");
    check("chains = \"visits\"", "chains = \"vists\"", "there are no chains \"vists\"");
    check("chains = \"visits\"", "stream = \"shop\"\nchains = \"visits\"", "one of `stream` and");
    check("[summary.users]", "[summary.visits]", "another name than a summary");
    check("sum = \"credit\"", "sum = \"model\"", "numbers");
    check("time = { from = \"ts\", format = \"ms\" }\n", "", "chains need `time`");
    check("in = [\"buy\"]", "present = false", "conversion, field \"kind\": expected one of");
    let credit = "kind = { type = \"text\" }\ncredit = { from = \"cents\", type = \"int\" }";
    check("kind = { type = \"text\" }", credit, "credits have a field of this name");
    let idle = CONFIG.split("[summary.channels]").next().unwrap().replace("dump = \"1s\"\n", "");
    let error = Config::parse(&idle, "c.toml", Path::new("")).unwrap_err().to_string();
    assert!(error.contains("chains \"visits\": expected a summary of them, or `dump`"), "{error}");
}

//! Inputs with too many columns or too long names, and limits of the operating system.

use crate::support::{Outcome, Work, arrow_file, gzip, parquet_file};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use hashfold::{
    Env,
    run::SortOptions,
    store::{StoreWriter, TableSizes, UpdateMode, VersionFacts},
    work::Watch,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::{
    env::consts,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

/// Maximum size of a message on standard error, in bytes, for any input.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Runs a command. Returns its exit code, its message and its peak memory in MiB.
#[track_caller]
fn peak(work: &Work, line: &str) -> (i32, String, u64) {
    let (Outcome { code, stderr, .. }, memory) = work.measured(line, b"");
    assert!(stderr.len() <= MESSAGE_BYTES_MAX, "{line}: {} bytes", stderr.len());
    (code, stderr, memory.peak_bytes >> 20)
}

/// Checks that `bytes` are refused with `message`, in at most `peak_mib_max` MiB of memory.
#[track_caller]
fn refused(name: &str, bytes: &[u8], peak_mib_max: u64, message: &str) {
    let work = Work::new();
    work.write(name, bytes);
    let (code, got, peak_mib) = peak(&work, &format!("build {name} --key k --out t --memory 1MiB"));
    assert_eq!((code, got), (3, format!("hashfold: {name}{message}\n")));
    assert!(peak_mib <= peak_mib_max, "{name}: {peak_mib} MiB");
}

/// Issue 10: 20 MB of commas took 801 MiB and caused a message of 40 MB.
#[test]
fn a_csv_header_has_bounds() {
    let long = ":1: the header is longer than 1,048,576 bytes; expected a line of column names, \
                or --no-header if the first line is a row";
    refused("a.csv", &vec![b','; 20_000_000], 48, long);
    refused("a.csv", &[b"k,", &vec![b'x'; 20_000_000][..], b"\n"].concat(), 48, long);
    let many = ":1: the line has 16,385 fields, the most accepted is 16,384";
    refused("a.csv", &[b"k", &vec![b','; 16_384][..], b"\n"].concat(), 48, many);
    let quoted = ["\"k\"", &",\"\"".repeat(16_384), "\n"].concat();
    refused("a.csv", quoted.as_bytes(), 48, many);
    let work = Work::new();
    work.write("a.csv", vec![b','; 20_000_000]);
    let (code, message, peak_mib) = peak(&work, "build a.csv --no-header --key 1 --out t");
    assert_eq!(code, 3, "{message}");
    assert!(message.contains("has 20,000,001 fields, the most accepted is 16,384"), "{message}");
    assert!(peak_mib <= 80, "{peak_mib} MiB");
}

/// Issue 10: a row of commas took 16 bytes per field.
#[test]
fn a_row_takes_memory_in_proportion_to_its_bytes() {
    let many = ":2:3: the line has 20,000,001 fields, expected 2";
    refused("a.csv", &[b"k,v\n", &vec![b','; 20_000_000][..], b"\n"].concat(), 80, many);
    let quoted = ["k,v\n", &"\"\",".repeat(7_000_000), "\n"].concat();
    let many = ":2:1: the line has 7,000,001 fields, expected 2";
    refused("a.csv", quoted.as_bytes(), 80, many);
    let fields = ["{\"k\":1", &",\"\":0".repeat(4_000_000), "}"].concat();
    let many = ":1: the object has 4,000,001 fields, the most accepted is 16,384";
    refused("a.jsonl", fields.as_bytes(), 80, many);
}

/// Issue 10: messages quote names and values, which may be long.
#[test]
fn messages_cut_names_and_values() {
    let long = "x".repeat(20_000_000);
    let work = Work::new();
    for (name, bytes) in [
        ("a.jsonl", format!("\"{long}\"")),
        ("a.jsonl", format!("{{\"{long}\":1}}")),
        ("a.jsonl", format!("{{\"k\":{{\"{long}\":1}}}}")),
        ("a.jsonl", format!("{{\"k\":{long}}}")),
        ("a.csv", format!("a,{}\n", "y,".repeat(16_000))),
        ("a.csv", format!("a,{}\n", &long[..1_000_000])),
        ("a.parquet", long.clone()),
        ("a.arrow", long.clone()),
        ("a.raw", long.clone()),
    ] {
        work.write(name, bytes);
        let key = if name == "a.raw" { "" } else { "--key k" };
        let (code, message, peak_mib) = peak(&work, &format!("build {name} {key} --out t"));
        assert_eq!(code, 3, "{message}");
        assert!(peak_mib <= 160, "{name}: {message}: {peak_mib} MiB");
    }
    work.write("a.csv", "k,v\n1,a\n").ok("build a.csv --key k --out t");
    let key = "x".repeat(60_000);
    let absent = work.run(&format!("get t {key}"));
    let shown = format!("hashfold: key \"{}...\" is absent\n", &key[..80]);
    assert_eq!((absent.code, absent.stderr), (1, shown));
    let column = work.run(&format!("build a.csv --key {key} --out u"));
    assert!(column.stderr.len() < MESSAGE_BYTES_MAX, "{}", column.stderr.len());
}

/// Issue 10: two long lists of columns that differ late.
#[test]
fn columns_that_differ_late_are_named() {
    let work = Work::new();
    let names: Vec<_> = (0..1000).map(|i| format!("column{i}")).collect();
    let names = names.join(",");
    work.write("a.csv", format!("{names}\n")).write("b.csv", format!("{names},more\n"));
    let (code, message, _) = peak(&work, "build a.csv b.csv --key column0 --out t");
    assert_eq!(code, 3, "{message}");
    assert!(message.contains("b.csv: has the column \"more\"; "), "{message}");
    assert!(message.contains("column19 text, ... and 980 more"), "{message}");
}

/// Issue 10: nested values are not parsed recursively, and a deeply nested value is accepted.
#[test]
fn deep_nesting_is_no_crash() {
    let work = Work::new();
    let deep = ["[".repeat(5_000_000), "]".repeat(5_000_000)].concat();
    work.write("a.jsonl", format!("{{\"k\":1,\"v\":{deep}}}"));
    let (code, message, peak_mib) = peak(&work, "build a.jsonl --key k --out t --memory 1MiB");
    assert_eq!((code, &message[..]), (0, ""));
    assert!(peak_mib <= 160, "{peak_mib} MiB");
    assert_eq!(work.ok("get t 1").stdout.len(), deep.len() + "{\"k\":1,\"v\":}\n".len());
    work.write("a.jsonl", format!("{{\"k\":{deep}}}"));
    assert_eq!(peak(&work, "build a.jsonl --key k --out t --replace").0, 3);
}

/// Issue 10: Parquet and Arrow files have at most as many columns as CSV files.
#[test]
fn columnar_files_have_a_bound_of_columns() {
    let column: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    let columns = (0..=16_384).map(|i| (format!("c{i}"), column.clone()));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for (name, bytes) in [("a.arrow", arrow_file(&batch)), ("a.parquet", parquet_file(&batch))] {
        let work = Work::new();
        work.write(name, &bytes);
        let (code, message, _) = peak(&work, &format!("build {name} --key c0 --out t"));
        let expected = "has 16,385 columns, the most accepted is 16,384";
        assert_eq!((code, message), (3, format!("hashfold: {name}: {expected}\n")));
    }
}

/// Issue 10: a long row took much memory in the file of bad rows.
#[test]
fn the_file_of_bad_rows_has_all_of_a_long_row() {
    let work = Work::new();
    let row = format!("1,2,{}", "\u{e9}".repeat(10_000_000));
    work.write("a.csv", format!("k,v\n1,2\n{row}\n1,2,3\n"));
    let (code, message, peak_mib) =
        peak(&work, "build a.csv --key k --out t --bad-rows bad --max-bad-rows 2");
    assert_eq!((code, &message[..]), (0, ""));
    assert!(peak_mib <= 120, "{peak_mib} MiB");
    let bad = fs::read_to_string(work.path("bad")).unwrap();
    assert!(bad == format!("k,v\n{row}\n1,2,3\n"));
}

/// Runs a command that must not make a file longer than `kib` KiB.
#[track_caller]
fn with_short_files(work: &Work, kib: u32, line: &str) -> Outcome {
    with_limit(work, &format!("-f {kib}"), line)
}

/// Runs a command after `ulimit` with these arguments.
fn with_limit(work: &Work, limit: &str, line: &str) -> Outcome {
    let shell = format!("ulimit {limit}; exec \"$0\" {line}");
    let mut command = Command::new("bash");
    command.args(["-c", &shell, env!("CARGO_BIN_EXE_hashfold")]).current_dir(work.path(""));
    let output = command.stdin(Stdio::null()).output().unwrap();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Returns all files below a folder, with their bytes. Lock files, which stay, are empty.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => files.push((path.display().to_string(), fs::read(&path).unwrap())),
        }
    }
    files.retain(|(_, bytes)| !bytes.is_empty());
    files.sort();
    files
}

/// Issue 10: the signal of a file that is too long killed the command without a message.
#[test]
fn a_limit_of_file_sizes_is_an_io_error() {
    let work = Work::new();
    let rows: String = (0..100_000).map(|i| format!("key{i},value{i}\n")).collect();
    work.write("a.csv", "k,v\n1,a\n").write("big.csv", format!("k,v\n{rows}"));
    work.write("big.csv.gz", gzip(format!("k,v\n{rows}").as_bytes()));
    work.ok("build a.csv --key k --out t");
    work.ok("update s a.csv --key k");
    work.ok("filter add f --keys a.csv --key k --exact");
    for (folder, line) in [
        ("new", "build big.csv --key k --out new --memory 1MiB"),
        ("new", "build big.csv --key k --out new"),
        ("t", "build big.csv.gz --key k --out t --replace"),
        ("s", "update s big.csv"),
        ("s", "update s big.csv --mode merge --memory 1MiB"),
        ("new", "update new big.csv --key k --chunks 4"),
    ] {
        let before = files(&work.path(folder));
        let outcome = with_short_files(&work, 100, line);
        assert_eq!(outcome.code, 5, "{line}: {outcome:?}");
        let message = outcome.stderr;
        assert!(message.starts_with(&format!("hashfold: {folder}/")), "{line}: {message}");
        let end = "; raise the limit of file sizes, which `ulimit -f` shows\n";
        assert!(message.ends_with(end) && message.lines().count() == 1, "{line}: {message}");
        assert_eq!(files(&work.path(folder)), before, "{line}");
    }
    for (line, folder) in [
        ("build big.csv --key k --out new", "new"),
        ("build big.csv.gz --key k --out t --replace", "t"),
        ("update s big.csv", "s"),
    ] {
        work.ok(line);
        work.ok(&format!("verify {folder}"));
    }
}

/// Issue 12: an update published a version with more files than a reader may have open.
#[test]
fn many_chunks_need_few_open_files() {
    let work = Work::new();
    let rows: String = (0..20_000).map(|i| format!("key{i},value{i}\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}")).write("b.csv", "k,v\nkey7,new\nkey9,new\n");
    for line in [
        "update s a.csv --key k --chunks 1000",
        "update s b.csv --mode delta",
        "merge s --chunks 700",
        "verify s --all",
        "get s key7",
    ] {
        let outcome = with_limit(&work, "-n 64", line);
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
    }
    // The soft limit is raised; a mapped file needs no descriptor.
    let outcome = with_limit(&work, "-Sn 8", "get s key9");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let outcome = with_limit(&work, "-n 5", "get s key9 --access direct");
    assert_eq!(outcome.code, 5, "{outcome:?}");
    assert!(outcome.stderr.contains("`ulimit -n`"), "{outcome:?}");
}

/// Gives every chunk of a store a table of its own, as if the chunks were large.
fn divide(store: &Path) {
    let env = Env::system();
    let mut writer = StoreWriter::open(&env, store).unwrap();
    writer.set_table_sizes(TableSizes { base_bytes_min: 0, delta_bytes_min: 0 });
    let old = hashfold::Store::open(store).unwrap().reader().unwrap();
    let mut batch = writer.batch(SortOptions::within(1 << 20)).unwrap();
    batch.push(b"key0", old.get("key0").unwrap().as_deref()).unwrap();
    let facts = VersionFacts { id: 7, ..VersionFacts::default() };
    let info = writer.write(batch, UpdateMode::Merge, facts, &Watch::default()).unwrap();
    assert_eq!(info.bases.len(), 256);
    writer.publish(info.name.number).unwrap();
}

/// Issue 12: each table of a version needed descriptors as long as it was open.
#[test]
fn hundreds_of_large_chunks_need_few_open_files() {
    let work = Work::new();
    let rows =
        |value: &str| -> String { (0..3000).map(|i| format!("key{i},{value}{i}\n")).collect() };
    let keys: String = (0..3000).map(|i| format!("key{i}\n")).collect();
    work.write("a.csv", format!("k,v\n{}", rows("a"))).write("keys", keys);
    work.write("b.csv", format!("k,v\n{}", rows("b"))).write("c.csv", "k,v\nkey7,new\n");
    work.ok("update s a.csv --key k --chunks 256");
    divide(&work.path("s"));
    let limited = |line: &str| {
        let outcome = with_limit(&work, "-n 256", line);
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
        String::from_utf8(outcome.stdout).unwrap()
    };
    let check = |value: &str| {
        let lines = limited("get s --keys keys");
        let value = format!(r#""v":"{value}"#);
        assert_eq!(lines.lines().filter(|line| line.contains(&value)).count(), 3000, "{lines}");
        assert_eq!(limited("scan s").lines().count(), 3000);
        limited("verify s --all");
    };
    check("a");
    limited("update s c.csv --mode delta");
    assert!(limited("get s key7").contains("new"));
    limited("merge s");
    limited("update s b.csv --mode merge");
    check("b");
}

/// Issue 12: each chunk of a large batch had spill files of its own.
#[test]
fn a_large_batch_for_many_chunks_needs_few_open_files() {
    let work = Work::new();
    let value = "v".repeat(2000);
    let rows: String = (0..40_000).map(|i| format!("key{i},{value}{i}\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}"));
    let line = "update s a.csv --key k --chunks 40 --memory 1MiB";
    let outcome = with_limit(&work, "-n 64", line);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(work.ok("get s key39999").text().contains("v39999"));
    work.ok("verify s");
}

/// Issue 10: a filter keeps its keys, and accepts new keys the next time.
#[test]
fn a_filter_survives_a_limit_of_file_sizes() {
    let work = Work::new();
    let lines: String = (0..300_000).map(|i| format!("key{i}\n")).collect();
    work.write("a.txt", "a\n").write("big.txt", &lines);
    work.ok("filter add f --keys a.txt --exact");
    for unique in ["", "--unique"] {
        let line = format!("filter add f --keys big.txt {unique} > /dev/null");
        let outcome = with_short_files(&work, 100, &line);
        assert_eq!(outcome.code, 5, "{outcome:?}");
        assert!(outcome.stderr.contains("hashfold: f/"), "{outcome:?}");
        assert!(outcome.stderr.contains("`ulimit -f`"), "{outcome:?}");
        work.ok("filter verify f");
        work.ok("filter contains f a");
    }
    work.ok("filter add f --keys big.txt");
    assert_eq!(work.ok("filter contains f --keys big.txt").stdout.len(), lines.len());
}

/// Issue 10: standard error may be such a file; a lost message does not cause a panic.
#[test]
fn a_message_that_cannot_be_written_is_no_panic() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n");
    let outcome = with_short_files(&work, 0, "build a.csv --key k --out t 2> message");
    assert_eq!(outcome.code, 5, "{outcome:?}");
    assert_eq!(fs::read(work.path("message")).unwrap(), b"");
}

/// Issue 10: standard output may be such a file, too.
#[test]
fn output_may_be_too_long_for_the_limit_of_file_sizes() {
    let work = Work::new();
    let rows: String = (0..10_000).map(|i| format!("key{i},value{i}\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}"));
    work.ok("build a.csv --key k --out t");
    let outcome = with_short_files(&work, 10, "scan t > out");
    assert_eq!(outcome.code, 5, "{outcome:?}");
    assert!(outcome.stderr.contains("standard output: cannot write: "), "{outcome:?}");
    assert!(outcome.stderr.contains("`ulimit -f`"), "{outcome:?}");
}

/// Issue 10: `--threads 100000` caused a panic.
#[test]
fn every_verb_bounds_its_threads() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n");
    for verb in [
        "build a.csv --key k --out t",
        "update s a.csv --key k",
        "merge s",
        "filter add f --keys a.txt",
        "filter remove f --keys a.txt",
        "bench table",
        "bench store",
        "bench filter",
        "bench map",
        "bench memory",
    ] {
        for threads in ["0", "1025", "100000", "-1", "x"] {
            let outcome = work.run(&format!("{verb} --threads={threads}"));
            assert_eq!(outcome.code, 2, "{verb}: {outcome:?}");
            let message = outcome.stderr;
            assert!(message.contains("expected a number of threads from 1 to 1024"), "{message}");
        }
    }
}

/// Runs a command that cannot start a thread, because no stack fits in its memory.
#[track_caller]
fn without_threads(work: &Work, line: &str) -> Outcome {
    let mut command = work.command(line);
    command.env("RUST_MIN_STACK", (1u64 << 47).to_string()).stdin(Stdio::null());
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Issue 10: a thread that could not start caused a panic.
#[test]
fn verbs_work_without_threads_or_say_that_they_cannot() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n2,b\n").write("b.csv", "k,v\n2,B\n").write("a.txt", "1\n2\n");
    work.ok("build a.csv --key k --out t");
    work.ok("update s a.csv --key k");
    work.ok("update s b.csv --mode delta");
    work.ok("filter add f --keys a.txt --exact");
    for line in [
        "reindex t --index dense",
        "merge s",
        "get t 1",
        "scan s",
        "verify s",
        "stat s",
        "versions s",
        "diff s 1 2 --out delta",
        "update s --delta delta --mode merge --dry-run",
        "rollback s",
        "gc s",
        "filter create g --exact",
        "filter merge f",
        "filter verify f",
        "filter stat f",
        "filter contains f 1",
    ] {
        let outcome = without_threads(&work, line);
        let is_refused = line.contains("--delta") && outcome.code == 3;
        assert!(outcome.code == 0 || is_refused, "{line}: {outcome:?}");
    }
    for line in [
        "build a.csv --key k --out new",
        "build a.csv --key k --out new --dry-run",
        "update s a.csv",
        "update new a.csv --key k",
        "filter add f --keys a.txt",
        "filter add new --keys a.txt --exact",
        "filter remove f --keys a.txt",
        "filter contains f --keys a.txt",
        "get t --keys a.txt",
        "delete s --keys a.txt",
    ] {
        let outcome = without_threads(&work, line);
        assert_eq!(outcome.code, 5, "{line}: {outcome:?}");
        let start = "hashfold: the thread that reads the input: cannot start: ";
        assert!(outcome.stderr.starts_with(start), "{line}: {outcome:?}");
        assert!(outcome.stderr.contains("`ulimit -u`"), "{line}: {outcome:?}");
        assert!(!work.path("new").exists(), "{line}");
    }
    work.ok("verify s");
    work.ok("filter verify f");
}

/// Containers refuse io_uring: batches of lookups go through threads, and a note says so once.
#[test]
fn keys_are_looked_up_without_io_uring() {
    let work = Work::new();
    let keys: String = (0..5000).map(|i| format!("key {i}\n")).collect();
    let rows: String = (0..5000).map(|i| format!("key {i},value {i}\n")).collect();
    work.write("a.csv", "k,v\n".to_owned() + &rows).write("keys", &keys);
    work.ok("build a.csv --key k --out t");
    let note = "hashfold: the system refuses io_uring (Operation not permitted (os error 1)), as many \
                containers do: batches of reads go through threads, which takes more CPU time\n";
    let get = "get t --keys keys --format csv --access direct";
    assert_eq!(work.ok(get).stderr, "");
    let outcome = without_io_uring(|| work.ok(get));
    assert_eq!((outcome.text(), &*outcome.stderr), (&*("k,v\n".to_owned() + &rows), note));
    let outcome = without_io_uring(|| work.ok("filter add f --exact --unique --keys keys"));
    assert_eq!(outcome.text(), keys);
    assert!(outcome.stderr.starts_with(note), "{}", outcome.stderr);
}

/// Runs a function, and the processes that it starts, on a system that refuses io_uring.
fn without_io_uring<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    /// Number of the system call that sets up a ring, on every architecture.
    const IO_URING_SETUP: i64 = 425;
    let (refuse, arch) = (SeccompAction::Errno(1), consts::ARCH.try_into().unwrap());
    let rules = [(IO_URING_SETUP, Vec::new())].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    thread::scope(|scope| {
        let run = move || {
            seccompiler::apply_filter(&filter).unwrap();
            run()
        };
        scope.spawn(run).join().unwrap()
    })
}

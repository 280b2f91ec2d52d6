//! A temporary folder, the command, and rows for its input.

use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use parquet::arrow::ArrowWriter;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// A folder that is removed on drop.
pub(crate) struct Work(TempDir);

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

impl Work {
    pub(crate) fn new() -> Work {
        Work(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Work {
        fs::write(self.path(name), bytes).unwrap();
        self
    }

    /// Returns the command, to be run in this folder.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hashfold"));
        command.args(line.split_whitespace()).current_dir(self.0.path());
        command
    }

    /// Runs the command with bytes on standard input.
    #[track_caller]
    pub(crate) fn feed(&self, line: &str, input: &[u8]) -> Outcome {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // The command may end before it has read all of its input.
        let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs the command with bytes on standard input. Also returns its memory, which is polled while
    /// the command runs, so the last milliseconds may be missing.
    #[track_caller]
    pub(crate) fn measured(&self, line: &str, input: &[u8]) -> (Outcome, Memory) {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdin, process) = (child.stdin.take().unwrap(), child.id());
        thread::scope(|scope| {
            scope.spawn(move || drop(stdin.write_all(input)));
            let waiter = scope.spawn(move || child.wait_with_output().unwrap());
            let (mut memory, mut polls) = (Memory::default(), 0);
            while !waiter.is_finished() {
                polls += 1;
                memory.poll(process);
                thread::sleep(Duration::from_micros(300));
            }
            let output = waiter.join().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            let code = output.status.code().unwrap_or(-1);
            // A process that ends within two polls may be missed.
            assert!(memory.peak_bytes > 1 << 20 || polls < 3, "{line}: the peak was not measured");
            (Outcome { code, stdout: output.stdout, stderr }, memory)
        })
    }

    /// Runs the command without input.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> Outcome {
        self.feed(line, b"")
    }

    /// Runs the command, which must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> Outcome {
        let outcome = self.run(line);
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
        outcome
    }

    /// Returns the table's entries as JSON Lines, in the order of their text.
    #[track_caller]
    pub(crate) fn entries(&self, table: &str) -> Vec<String> {
        let scan = self.ok(&format!("scan {table}"));
        let mut lines: Vec<_> = scan.text().lines().map(String::from).collect();
        lines.sort();
        lines
    }
}

/// Memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Peak RSS, in bytes.
    pub(crate) peak_bytes: u64,
    /// Peak RSS without the pages of the program, in bytes. How many of these are in memory depends on how the program was
    /// compiled and on the page cache, which can drop them at any time.
    pub(crate) data_bytes: u64,
}

impl Memory {
    /// Takes the peak so far, unless the process has ended. The program is measured first, so that it never counts for more
    /// than it had in the peak.
    fn poll(&mut self, process: u32) {
        let (Some(program), Some(peak)) = (program_bytes(process), peak_bytes(process)) else {
            return;
        };
        self.peak_bytes = self.peak_bytes.max(peak);
        self.data_bytes = self.data_bytes.max(peak.saturating_sub(program));
    }
}

/// Returns the peak RSS of a process so far, in bytes; `None` after it has ended.
fn peak_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    parse_kib(status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?)
}

/// Returns the part of a process's RSS that is mapped from its program, in bytes.
fn program_bytes(process: u32) -> Option<u64> {
    let program = fs::read_link(format!("/proc/{process}/exe")).ok()?;
    let maps = fs::read_to_string(format!("/proc/{process}/smaps")).ok()?;
    let (mut of_program, mut total) = (false, 0);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            total += if of_program { parse_kib(size)? } else { 0 };
        } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
            of_program = line.ends_with(program.to_str()?);
        }
    }
    Some(total)
}

/// Parses a size such as ` 1234 kB`, into bytes.
fn parse_kib(text: &str) -> Option<u64> {
    Some(text.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Encodes raw records.
pub(crate) fn raw(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in entries {
        out.extend((key.len() as u32).to_le_bytes());
        out.extend((value.len() as u32).to_le_bytes());
        out.extend(*key);
        out.extend(*value);
    }
    out
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// Returns a Parquet file.
pub(crate) fn parquet_file(batch: &RecordBatch) -> Vec<u8> {
    let mut out = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    out.write(batch).unwrap();
    out.into_inner().unwrap()
}

/// Returns an Arrow file of two batches.
pub(crate) fn arrow_file(batch: &RecordBatch) -> Vec<u8> {
    let mut out = FileWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    let half = batch.num_rows() / 2;
    out.write(&batch.slice(0, half)).unwrap();
    out.write(&batch.slice(half, batch.num_rows() - half)).unwrap();
    out.finish().unwrap();
    out.into_inner().unwrap()
}

/// Returns the names in a folder, which may not exist.
pub(crate) fn list(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

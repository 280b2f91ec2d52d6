//! The files that a run writes, checked before the first event: none of them is a source, has the path of a folder, or is
//! written for two settings, and the file for metrics has nothing else in it.

use crate::{config::Config, error::SummarizeError, places::folders};
use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// How a file with metrics begins.
const METRICS: &[u8] = b"# HELP hashfold_";

/// A file, and the setting that it comes from.
type Named = (String, PathBuf);

/// Refuses a configuration by which a run would read or overwrite what it writes, or overwrite a file of something else.
///
/// # Errors
/// `Config`: the setting, the path, and what is wrong with it.
pub(crate) fn check(config: &Config) -> Result<(), SummarizeError> {
    let refused = |message| SummarizeError::Config { place: config.place.clone(), message };
    let real = |(setting, path): Named| (setting, real_path(&path));
    let mut taken: Vec<Named> = sources(config).chain(folders(config)).map(real).collect();
    for (setting, path) in written(config) {
        let real = real_path(&path);
        // Of a folder, also a path above it.
        if let Some((other, _)) = taken.iter().find(|(_, path)| path.starts_with(&real)) {
            let path = path.display();
            return Err(refused(format!(
                "{setting}: {path}: {other} has this path, too: choose another path"
            )));
        }
        taken.push((setting, real));
    }
    match &config.metrics_file {
        Some(path) if is_of_others(path).unwrap_or(false) => Err(refused(format!(
            "metrics-file: {}: expected metrics of an earlier run, got another file: move it away, or choose another path",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Returns the files that events are read from.
fn sources(config: &Config) -> impl Iterator<Item = Named> {
    config.streams.iter().flat_map(|stream| {
        let files = stream.files.iter().flatten();
        files.map(|file| (format!("files of stream \"{}\"", stream.name), file.clone()))
    })
}

/// Returns the files that the run writes, except results.
fn written(config: &Config) -> impl Iterator<Item = Named> {
    let of_streams = config.streams.iter().flat_map(|stream| {
        let kept = config.checkpoints.iter().map(|folder| stream.checkpoint(folder));
        let rejected = config.rejected.iter().map(|folder| stream.rejected(folder));
        let kept = kept.map(|path| ("checkpoints".to_owned(), path));
        kept.chain(rejected.map(|path| ("rejected".to_owned(), path)))
    });
    of_streams
        .chain(config.metrics_file.iter().map(|path| ("metrics-file".to_owned(), path.clone())))
}

/// Returns a path without links, as far as there is something.
fn real_path(path: &Path) -> PathBuf {
    let in_folder = || {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        Some(fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?.join(path.file_name()?))
    };
    fs::canonicalize(path).ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

/// Whether there is a file that has something else than metrics.
fn is_of_others(path: &Path) -> io::Result<bool> {
    let mut bytes = Vec::new();
    // To open a named pipe would wait for its writer.
    if fs::metadata(path)?.is_file() {
        File::open(path)?.take(METRICS.len() as u64).read_to_end(&mut bytes)?;
    }
    Ok(!bytes.is_empty() && bytes != METRICS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Run,
        tests::{CSV, config, run_all},
    };
    use hashfold::Env;
    use std::sync::Arc;
    use tempfile::TempDir;

    const EVENT: &str = "1000,ann,x,7,1\n";

    /// Checks that a run of events in `source`, with a line in its configuration, is refused at its start, and that no file
    /// has changed. `FOLDER` in the message is that of the configuration.
    #[track_caller]
    fn check_refused(line: &str, source: &str, expected: &str) {
        let work = TempDir::new().unwrap();
        fs::create_dir(work.path().join("kept")).unwrap();
        let files = [source, "kept/mine", "test.toml"].map(|name| work.path().join(name));
        files.iter().for_each(|file| fs::write(file, EVENT).unwrap());
        let text = CSV.replace("a.csv", source);
        let text = text.replace("out = \"out\"\n", &format!("out = \"out\"\n{line}\n"));
        let refused = Run::start(&config(&text, work.path()), &Env::system(), Arc::default());
        let folder = work.path().display().to_string();
        let expected = format!("test.toml: {}", expected.replace("FOLDER", &folder));
        assert_eq!(refused.unwrap_err().to_string(), expected);
        for file in files {
            assert_eq!(fs::read_to_string(&file).unwrap(), EVENT, "{}", file.display());
        }
    }

    #[test]
    fn a_file_that_a_run_writes_is_no_source_and_of_one_setting() {
        let other = |setting: &str, path: &str, other: &str| {
            format!("{setting}: FOLDER/{path}: {other} has this path, too: choose another path")
        };
        let files = "files of stream \"v1\"";
        check_refused("rejected = \".\"", "v1.jsonl", &other("rejected", "./v1.jsonl", files));
        let source = "kept/v1.checkpoint";
        check_refused("checkpoints = \"kept\"", source, &other("checkpoints", source, files));
        let line = "metrics-file = \"kept/../a.csv\"";
        check_refused(line, "a.csv", &other("metrics-file", "kept/../a.csv", files));
        let line = "rejected = \"kept\"\nmetrics-file = \"kept/v1.jsonl\"";
        check_refused(line, "a.csv", &other("metrics-file", "kept/v1.jsonl", "rejected"));
        for (path, setting) in [("out", "out"), ("out/users", "out, summary \"users\"")] {
            let line = format!("metrics-file = \"{path}\"");
            check_refused(&line, "a.csv", &other("metrics-file", path, setting));
        }
        let line = "rejected = \"bad\"\nmetrics-file = \"bad\"";
        check_refused(line, "a.csv", &other("metrics-file", "bad", "rejected"));
    }

    #[test]
    fn only_metrics_of_an_earlier_run_are_replaced() {
        for file in ["kept/mine", "test.toml"] {
            let expected = "expected metrics of an earlier run, got another file: move it away, or choose another path";
            let expected = format!("metrics-file: FOLDER/{file}: {expected}");
            check_refused(&format!("metrics-file = \"{file}\""), "a.csv", &expected);
        }
        let work = TempDir::new().unwrap();
        fs::write(work.path().join("a.csv"), EVENT).unwrap();
        fs::write(work.path().join("run.prom"), "").unwrap();
        for out in ["one", "two"] {
            let settings = format!("out = \"{out}\"\nmetrics-file = \"run.prom\"\n");
            let text = CSV.replace("out = \"out\"\n", &settings);
            run_all(&config(&text, work.path())).unwrap();
        }
    }
}

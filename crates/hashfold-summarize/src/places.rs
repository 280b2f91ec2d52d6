//! The places that a configuration names, checked before the first event: a file where a folder is to be, or a folder where
//! a file is to be. What else the system refuses is found where a place is used.

use crate::{
    config::{Config, OutputKind, Stream},
    error::SummarizeError,
    output::window_name,
};
use hashfold::{
    Env, Error, ErrorKind,
    io::Disk,
    pipeline::{Chains, Summary},
};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// A place that a run needs.
struct Wanted {
    /// The setting that the place comes from.
    setting: String,
    path: PathBuf,
    kind: Kind,
}

/// The kind of a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    File,
}

impl Kind {
    fn other(self) -> Kind {
        match self {
            Kind::Folder => Kind::File,
            Kind::File => Kind::Folder,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Folder => "a folder",
            Kind::File => "a file",
        })
    }
}

/// Refuses a configuration if something of the wrong kind is at one of its places, or a file is above it.
///
/// # Errors
/// `Config`: the setting, the path, and what is in the way.
pub(crate) fn check(config: &Config, env: &Env) -> Result<(), SummarizeError> {
    let disk = env.disk.as_ref();
    let mut all = of_run(config).chain(config.streams.iter().flat_map(|it| of_stream(config, it)));
    all.try_for_each(|Wanted { setting, path, kind }| {
        let Some((found, got)) = obstacle(disk, &path, kind) else { return Ok(()) };
        let at = if found == path { String::new() } else { format!(" at {}", found.display()) };
        let (expected, path) = (got.other(), path.display());
        let what_to_do = "move it away, or choose another path";
        let message =
            format!("{setting}: {path}: expected {expected}{at}, got {got}: {what_to_do}");
        Err(SummarizeError::Config { place: config.place.clone(), message })
    })
}

/// Returns the folders that a run needs, with their settings.
pub(crate) fn folders(config: &Config) -> impl Iterator<Item = (String, PathBuf)> {
    let of_streams = config.streams.iter().flat_map(|stream| of_stream(config, stream));
    let all = of_run(config).chain(of_streams);
    all.filter(|it| it.kind == Kind::Folder).map(|it| (it.setting, it.path))
}

fn of_run(config: &Config) -> impl Iterator<Item = Wanted> {
    let folders = [
        ("out", Some(&config.out)),
        ("checkpoints", config.checkpoints.as_ref()),
        ("rejected", config.rejected.as_ref()),
    ];
    let folder = |(setting, path): (&str, Option<&PathBuf>)| {
        Some(Wanted { setting: setting.into(), path: path?.clone(), kind: Kind::Folder })
    };
    let file = config.metrics_file.iter().map(|path| Wanted {
        setting: "metrics-file".into(),
        path: path.clone(),
        kind: Kind::File,
    });
    folders.into_iter().filter_map(folder).chain(file)
}

fn of_stream(config: &Config, stream: &Stream) -> Vec<Wanted> {
    let file = |setting: &str, path| Wanted { setting: setting.into(), path, kind: Kind::File };
    let kept = config.checkpoints.iter().map(|folder| stream.checkpoint(folder));
    let rejected = config.rejected.iter().map(|folder| stream.rejected(folder));
    let files = kept.map(|path| file("checkpoints", path));
    let files = files.chain(rejected.map(|path| file("rejected", path)));
    let summaries =
        stream.all_summaries().map(|(summary, output)| of_summary(config, summary, *output));
    let dumps = stream.dumped_chains().map(|chains| of_dumps(config, chains));
    files.chain(summaries).chain(dumps).collect()
}

/// Returns the folder of a summary, or that of its table if it has only one.
fn of_summary(config: &Config, summary: &Summary, output: OutputKind) -> Wanted {
    let folder = config.out.join(&summary.name);
    let is_one = summary.window_ms.is_none() && output == OutputKind::Table;
    let path = if is_one { folder.join(window_name(None)) } else { folder };
    Wanted { setting: format!("out, summary \"{}\"", summary.name), path, kind: Kind::Folder }
}

fn of_dumps(config: &Config, chains: &Chains) -> Wanted {
    let path = config.out.join(&chains.name);
    Wanted { setting: format!("out, chains \"{}\"", chains.name), path, kind: Kind::Folder }
}

/// Returns what keeps a place from being of its kind, with its own kind: something at its path, or a file above it.
fn obstacle<'a>(disk: &dyn Disk, path: &'a Path, kind: Kind) -> Option<(&'a Path, Kind)> {
    if kind == Kind::File && disk.list(path).is_ok() {
        return Some((path, Kind::Folder));
    }
    let folder = if kind == Kind::File { path.parent()? } else { path };
    let lowest = folder.ancestors().find(|path| exists(disk, path))?;
    is_file(disk, lowest).then_some((lowest, Kind::File))
}

/// Whether there is something at a path that is no folder.
pub(crate) fn is_file(disk: &dyn Disk, path: &Path) -> bool {
    exists(disk, path) && disk.list(path).is_err_and(|error| is_no_folder(&error))
}

fn exists(disk: &dyn Disk, path: &Path) -> bool {
    // Below a file, there is nothing.
    disk.exists(path).unwrap_or(false)
}

/// Whether the system refused a call since a path is that of a file, or below one.
pub(crate) fn is_no_folder(error: &Error) -> bool {
    let ErrorKind::Io { source, .. } = error.kind() else { return false };
    source.kind() == io::ErrorKind::NotADirectory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Run,
        tests::{CSV, config, run_all, tables},
    };
    use std::{fs, sync::Arc};
    use tempfile::TempDir;

    /// A summary without windows, and chains whose dumps are a store.
    const MORE: &str = r#"
[chains.visits]
stream = "v1"
user = "user"
channel = ["user"]
conversion = [{ field = "amount", at-least = 0 }]
models = ["linear"]
dump = "1d"
[summary.one]
stream = "v1"
columns = [{ name = "events", count = true }]
"#;

    /// Checks that a run with a line in its configuration is refused at its start: the message names the setting, the path
    /// and what is in the way, and nothing is left.
    #[track_caller]
    fn check_refused(line: &str, setting: &str, [path, found]: [&str; 2], kind: Kind) {
        let work = TempDir::new().unwrap();
        fs::write(work.path().join("a.csv"), "1000,ann,x,7,1\n").unwrap();
        let obstacle = work.path().join(found);
        match kind {
            Kind::Folder => fs::create_dir_all(&obstacle).unwrap(),
            Kind::File => {
                fs::create_dir_all(obstacle.parent().unwrap()).unwrap();
                fs::write(&obstacle, "mine").unwrap();
            }
        }
        let shown = |name: &str| work.path().join(name).display().to_string();
        let names = || {
            let entries = fs::read_dir(work.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        let text = CSV.replace("out = \"out\"\n", &format!("{line}\n"));
        let config = config(&(text + MORE), work.path());
        let refused = Run::start(&config, &Env::system(), Arc::default()).unwrap_err();
        let at = if path == found { String::new() } else { format!(" at {}", shown(found)) };
        let message = format!(
            "test.toml: {setting}: {}: expected {}{at}, got {kind}: move it away, or choose another path",
            shown(path),
            kind.other()
        );
        assert_eq!(refused.to_string(), message);
        assert!(matches!(refused, SummarizeError::Config { .. }));
        assert_eq!(names(), before);
    }

    #[test]
    fn a_file_where_a_folder_is_to_be_is_found_before_the_first_event() {
        let check = |line: &str, setting: &str, path: &str, found: &str| {
            check_refused(line, setting, [path, found], Kind::File);
        };
        check("out = \"a.csv\"", "out", "a.csv", "a.csv");
        check("out = \"b/c/d\"", "out", "b/c/d", "b");
        let out = "out = \"out\"";
        for name in ["all", "users"] {
            let setting = format!("out, summary \"{name}\"");
            let path = format!("out/{name}");
            check(out, &setting, &path, &path);
        }
        check(out, "out, summary \"one\"", "out/one/all", "out/one");
        check(out, "out, summary \"one\"", "out/one/all", "out/one/all");
        check(out, "out, chains \"visits\"", "out/visits", "out/visits");
        let with = |line: &str| format!("{out}\n{line}");
        check(&with("checkpoints = \"b/c\""), "checkpoints", "b/c", "b/c");
        check(&with("rejected = \"b/c\""), "rejected", "b/c", "b");
        check(&with("metrics-file = \"b/c.prom\""), "metrics-file", "b/c.prom", "b");
    }

    #[test]
    fn a_folder_where_a_file_is_to_be_is_found_before_the_first_event() {
        let check = |line: &str, setting: &str, path: &str| {
            check_refused(&format!("out = \"out\"\n{line}"), setting, [path; 2], Kind::Folder);
        };
        check("checkpoints = \"cp\"", "checkpoints", "cp/v1.checkpoint");
        check("rejected = \"bad\"", "rejected", "bad/v1.jsonl");
        check("metrics-file = \"run.prom\"", "metrics-file", "run.prom");
    }

    /// A window whose name something else has, a file or a store, is published under the next name, and what is there stays.
    #[test]
    fn what_has_the_name_of_a_window_is_avoided() {
        let work = TempDir::new().unwrap();
        fs::write(work.path().join("a.csv"), "1000,ann,x,7,1\n3000,ann,x,7,1\n").unwrap();
        let users = work.path().join("out/users");
        fs::create_dir_all(&users).unwrap();
        let (file, store) =
            (users.join("1970-01-01T00-00-01Z"), users.join("1970-01-01T00-00-03Z"));
        fs::write(&file, "mine").unwrap();
        let mut update = hashfold::Store::open_or_create(&store).unwrap().update().unwrap();
        update.put("a", "b").unwrap();
        update.publish().unwrap();
        run_all(&config(CSV, work.path())).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        fs::remove_file(&file).unwrap();
        fs::remove_dir_all(&store).unwrap();
        let names: Vec<String> = tables(&users).into_keys().collect();
        assert_eq!(names, ["1970-01-01T00-00-01Z-2", "1970-01-01T00-00-03Z-2"]);
    }

    /// A summary whose output was changed from a store to tables has no room in its store: that is said at the start.
    #[test]
    fn tables_in_the_folder_of_a_store_are_refused_before_the_first_event() {
        let work = TempDir::new().unwrap();
        fs::write(work.path().join("a.csv"), "1000,ann,x,7,1\n").unwrap();
        run_all(&config(CSV, work.path())).unwrap();
        let text = CSV.replace("output = \"store\"", "output = \"table\"");
        let refused = Run::start(&config(&text, work.path()), &Env::system(), Arc::default());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("outside of the store"), "{refused}");
    }
}

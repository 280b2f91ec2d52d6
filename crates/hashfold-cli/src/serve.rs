//! `hashfold serve`: answers Redis clients from data sets.

use crate::{
    allocator::give_memory_back,
    failure::{Exit, Failure, Result},
    folder,
    output::{write_line, write_note},
    stop::Stop,
};
use clap::{Args, ValueEnum};
use hashfold::{
    Env,
    work::{Clock as _, SystemClock},
};
use hashfold_server::{Config, Server, StartError};
use sd_notify::NotifyState;
use serde_json::json;
use std::{
    fs,
    io::{self, BufRead, IsTerminal as _},
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// Time between two looks whether the user has asked to stop.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Size of the longest password that is hashed, in bytes: the server refuses longer arguments of `AUTH`.
const PASSWORD_BYTES_MAX: u64 = 16 << 10;

/// Time between two reports to the watchdog of systemd.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Serve tables, stores, maps and filters to any Redis client
///
/// Each folder is served under its name. With one data set, `redis-cli get KEY` reads it; with several,
/// a client says which one with AUTH: `AUTH people ""`. Without a configuration file there are no
/// passwords, and only programs on this machine can connect. Clients change the keys of a map, one by one,
/// and those of a table in RAM, which the configuration file names (`kind = "memory"`).
/// Readers of a store follow its current version; AUTH people@41 uses version 41. With a section "deploy" in the configuration file, stores
/// follow `hashfold deploy publish`.
///
/// Runs until Ctrl-C or SIGTERM; then requests that were read are answered, and maps and filters are made durable. With
/// a configuration file that names a cluster or an HTTP address, the server answers for 5 seconds more meanwhile
/// (`drain-seconds`). A second signal ends it at once.
/// SIGHUP makes it read the data sets, users and tokens in the configuration file again.
#[derive(Args, Debug)]
#[command(override_usage = "hashfold serve [OPTIONS] <DIR>...\n       \
                            hashfold serve [OPTIONS] --config <FILE>\n       \
                            hashfold serve --hash-password < <FILE>")]
pub(crate) struct ServeArgs {
    /// Folders of tables, stores, maps and filters
    #[arg(value_name = "DIR", required_unless_present_any = ["config", "hash_password"])]
    folders: Vec<PathBuf>,
    /// Configuration file, in TOML: addresses, data sets, users
    #[arg(long, value_name = "FILE", conflicts_with = "folders")]
    config: Option<PathBuf>,
    /// Address to listen on, of this machine only; port 0 chooses a free port; may be repeated [default:
    /// 127.0.0.1:6379]
    #[arg(long, value_name = "IP:PORT", conflicts_with = "config", value_parser = parse_address)]
    listen: Vec<SocketAddr>,
    /// Address for the admin page, /healthz, /readyz, /metrics and /v1 over HTTP, of this machine only; may be
    /// repeated [default: none]
    #[arg(long, value_name = "IP:PORT", conflicts_with = "config", value_parser = parse_address)]
    http_listen: Vec<SocketAddr>,
    /// Network threads [default: all cores but one]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    threads: Option<usize>,
    /// Folder in which clients make filters with BF.RESERVE and CF.RESERVE
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    filters: Option<PathBuf>,
    /// Open filters for reading only, and refuse changes of maps
    #[arg(long, conflicts_with = "config")]
    read_only: bool,
    /// Format of the log on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log: LogFormat,
    /// Check the configuration and the data sets, print one line, and exit; the exit code is 4 if the current
    /// version of a store is missing, or damaged so that it shows when its files are opened
    #[arg(long)]
    check: bool,
    /// Read a password, one line of standard input, print its hash for the configuration file, and exit
    #[arg(long, exclusive = true)]
    hash_password: bool,
    /// Print the addresses, or the result of --check, as a JSON object
    #[arg(long)]
    json: bool,
}

/// Reads an address.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, such as 127.0.0.1:6380".into())
}

/// Formats of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object per line
    Json,
    /// Nothing
    Off,
}

impl LogFormat {
    /// Begins to write events to standard error.
    fn start(self) {
        let log = tracing_subscriber::fmt().with_writer(io::stderr).with_target(false);
        // Only the first of two calls has an effect.
        let _ = match self {
            LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).try_init(),
            LogFormat::Json => log.json().flatten_event(true).try_init(),
            LogFormat::Off => Ok(()),
        };
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<Exit> {
    if args.hash_password {
        return print_hash(io::stdin().lock());
    }
    let (stop, hangup) = match args.config {
        Some(_) => Stop::of_server()?,
        None => (Stop::on_signals()?, Arc::default()),
    };
    let config = configuration(args)?;
    if args.check {
        Server::check(&config, &Env::system()).map_err(failure)?;
        return say_checked(&config, args.json).map(|()| Exit::Done);
    }
    give_memory_back();
    args.log.start();
    let server = Server::start(config, &Env::system()).map_err(failure)?;
    say_addresses(&server, args.json)?;
    // Without systemd, or if it does not listen, nobody is told.
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    let mut watchdog = Watchdog::default();
    while !stop.is_asked() {
        if hangup.swap(false, Relaxed) {
            reload(args, &server);
        }
        watchdog.wait();
    }
    let end = SystemClock.now() + server.begin_stop();
    while SystemClock.now() < end {
        watchdog.wait();
    }
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
    server.stop()?;
    Ok(Exit::Done)
}

/// Prints the hash of the password that is in the first line of `input`.
fn print_hash(input: impl BufRead) -> Result<Exit> {
    let mut line = Vec::new();
    let mut input = input.take(PASSWORD_BYTES_MAX + 1);
    input
        .read_until(b'\n', &mut line)
        .map_err(|error| Failure::io("standard input", "read", &error))?;
    let password = line.strip_suffix(b"\n").unwrap_or(&line);
    if password.is_empty() || password.len() as u64 > PASSWORD_BYTES_MAX {
        let got = password.len();
        return Err(Failure::usage(format!(
            "--hash-password: expected a line of 1 to {PASSWORD_BYTES_MAX} bytes on standard input, got {got}"
        )));
    }
    let hash = hashfold_server::hash_password(password, Env::system().random.as_ref());
    write_line(hash.map_err(Failure::usage)?)?;
    Ok(Exit::Done)
}

/// The watchdog of systemd, which ends a process that does not report for long.
#[derive(Default)]
struct Watchdog {
    /// Time of the next report, by the clock.
    next: Duration,
}

impl Watchdog {
    /// Waits for a moment, and reports if it is time to.
    fn wait(&mut self) {
        SystemClock.sleep(STOP_CHECK);
        let now = SystemClock.now();
        if now >= self.next {
            self.next = now + REPORT_INTERVAL;
            // Without systemd, or without `WatchdogSec`, nobody is told.
            let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
        }
    }
}

fn say_checked(config: &Config, as_json: bool) -> Result<()> {
    let (data, users) = (config.data.len(), config.users.len());
    if as_json {
        return write_line(json!({ "event": "checked", "data": data, "users": users }));
    }
    let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    write_line(format_args!(
        "checked: {} and {}, no problem",
        many(data, "data set"),
        many(users, "user")
    ))
}

fn say_addresses(server: &Server, as_json: bool) -> Result<()> {
    let texts = |addresses: &[SocketAddr]| -> Vec<String> {
        addresses.iter().map(SocketAddr::to_string).collect()
    };
    let plain = texts(server.addresses());
    let (encrypted, http) = (texts(server.tls_addresses()), texts(server.http_addresses()));
    let https = texts(server.https_addresses());
    if as_json {
        return write_line(json!({
            "event": "serving",
            "addresses": plain,
            "tls_addresses": encrypted,
            "http_addresses": http,
            "https_addresses": https,
        }));
    }
    let encrypted = encrypted.into_iter().map(|address| format!("{address} (TLS)"));
    let http = http.into_iter().map(|address| format!("{address} (HTTP)"));
    let https = https.into_iter().map(|address| format!("{address} (HTTPS)"));
    let all: Vec<String> = plain.into_iter().chain(encrypted).chain(http).chain(https).collect();
    write_line(format_args!("serving on {}; Ctrl-C stops", all.join(", ")))
}

/// Reads the configuration file again. A mistake in the file changes nothing.
fn reload(args: &ServeArgs, server: &Server) {
    let reloaded = configuration(args).and_then(|config| server.reload(&config).map_err(failure));
    match reloaded {
        // The server has said so in the log.
        Ok(()) => {}
        Err(failure) => write_note(format_args!(
            "hashfold: the configuration stays as it was: {}",
            failure.message
        )),
    }
}

fn configuration(args: &ServeArgs) -> Result<Config> {
    let Some(path) = &args.config else {
        // Refuses files, which the server would take for damaged folders.
        args.folders.iter().try_for_each(|folder| folder::holds(folder).map(drop))?;
        let mut config =
            Config::of_folders(&args.folders).map_err(|error| Failure::usage(error.to_string()))?;
        if !args.listen.is_empty() {
            config.listen.clone_from(&args.listen);
        }
        config.http_listen.clone_from(&args.http_listen);
        config.threads = args.threads.unwrap_or(config.threads);
        config.filters.clone_from(&args.filters);
        for data in config.data.values_mut() {
            data.is_writable = !args.read_only;
        }
        return Ok(config);
    };
    let text =
        fs::read_to_string(path).map_err(|error| Failure::io(path.display(), "read", &error))?;
    let folder = path.parent().unwrap_or(path);
    Config::parse(&text, &path.display().to_string(), folder)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Returns the failure for a server that does not start.
fn failure(error: StartError) -> Failure {
    match error {
        StartError::Data(error) => error.into(),
        StartError::Deploy(error) => {
            Failure { exit: error.class().into(), message: error.to_string() }
        }
        StartError::Io { action, source } => Failure::io("server", &action, &source),
        other => Failure::usage(other.to_string()),
    }
}

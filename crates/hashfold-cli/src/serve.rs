//! `hashfold serve`: answers Redis clients from data sets.

use crate::{
    failure::{Exit, Failure, Result},
    output::write_line,
    stop::Stop,
};
use clap::Args;
use hashfold::{
    Env,
    work::{Clock as _, SystemClock},
};
use hashfold_server::{Config, Server, StartError};
use serde_json::json;
use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

/// Time between two looks whether the user has asked to stop.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Serve tables, stores and filters to any Redis client
///
/// Each folder is served under its name. With one data set, `redis-cli get KEY` reads it; with several,
/// a client says which one with AUTH: `AUTH people ""`. Without a configuration file there are no
/// passwords, and only programs on this machine can connect. Readers of a store follow its current
/// version; AUTH people@41 uses version 41.
///
/// Runs until Ctrl-C or SIGTERM; then requests that were read are answered, and filters are made durable.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Folders of tables, stores and filters
    #[arg(value_name = "DIR", required_unless_present = "config")]
    folders: Vec<PathBuf>,
    /// Configuration file, in TOML: addresses, data sets, users
    #[arg(long, value_name = "FILE", conflicts_with = "folders")]
    config: Option<PathBuf>,
    /// Address to listen on; port 0 chooses a free port [default: 127.0.0.1:6379]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    listen: Vec<SocketAddr>,
    /// Address for /healthz, /readyz, /metrics and /v1/data over HTTP
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    http_listen: Vec<SocketAddr>,
    /// Network threads [default: all cores but one]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    threads: Option<usize>,
    /// Folder in which clients make filters with BF.RESERVE and CF.RESERVE
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    filters: Option<PathBuf>,
    /// Open filters for reading only
    #[arg(long, conflicts_with = "config")]
    read_only: bool,
    /// Check the configuration and the data sets, and exit
    #[arg(long)]
    check: bool,
    /// Print the addresses as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ServeArgs) -> Result<Exit> {
    let stop = Stop::on_signals()?;
    let config = configuration(args)?;
    let server = Server::start(config, &Env::system()).map_err(failure)?;
    let addresses: Vec<String> = server.addresses().iter().map(SocketAddr::to_string).collect();
    if args.json {
        write_line(json!({ "event": "serving", "addresses": addresses }))?;
    } else {
        write_line(format_args!("serving on {}; Ctrl-C stops", addresses.join(", ")))?;
    }
    while !args.check && !stop.is_asked() {
        SystemClock.sleep(STOP_CHECK);
    }
    server.stop()?;
    Ok(Exit::Done)
}

fn configuration(args: &ServeArgs) -> Result<Config> {
    let Some(path) = &args.config else {
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
        StartError::Io { action, source } => Failure::io("server", &action, &source),
        other => Failure::usage(other.to_string()),
    }
}

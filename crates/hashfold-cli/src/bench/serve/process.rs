//! A server in a process of its own.

use crate::failure::{Failure, Result};
use hashfold::work::{Clock as _, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    env, fs,
    io::{self, BufRead as _, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

/// A running `hashfold serve`; killed when it is dropped.
pub(super) struct Process {
    child: Child,
    /// Kept open, because the server writes to it when it stops.
    _stdout: BufReader<ChildStdout>,
    pub(super) address: SocketAddr,
}

impl Process {
    /// Starts a server with a configuration, which is written to a file in `folder`, and waits until it
    /// listens. The configuration does not say on which addresses.
    pub(super) fn start(folder: &Path, name: &str, config: &str) -> Result<Process> {
        let path = folder.join(format!("{name}.toml"));
        let text = format!("listen = [\"127.0.0.1:0\"]\n{config}");
        fs::write(&path, text).map_err(|error| Failure::io(path.display(), "write", &error))?;
        let program = env::current_exe().map_err(|error| failed("find this program", &error))?;
        let mut child = Command::new(program)
            .args(["serve", "--json", "--log", "off", "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed("start", &error))?;
        let mut stdout = BufReader::new(child.stdout.take().expect("the output is piped"));
        let mut line = String::new();
        let read = stdout.read_line(&mut line);
        let started = read.map_err(|error| failed("start", &error)).and_then(|_| address(&line));
        match started {
            Ok(address) => Ok(Process { child, _stdout: stdout, address }),
            Err(failure) => {
                // What it wrote to standard error says why it did not start.
                let _ = (child.kill(), child.wait());
                Err(failure)
            }
        }
    }

    /// Returns the CPU time of all threads, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let wrong = |error| failed("look at its threads", &error);
        let mut nanoseconds = 0;
        for task in fs::read_dir(tasks).map_err(wrong)? {
            let path = task.map_err(wrong)?.path().join("schedstat");
            let text = fs::read_to_string(path).map_err(wrong)?;
            let first = text.split_whitespace().next().and_then(|text| text.parse::<u64>().ok());
            nanoseconds += first.unwrap_or(0);
        }
        Ok(nanoseconds as f64 / 1e9)
    }

    /// Returns the memory that the process has allocated, without mapped files, in bytes.
    pub(super) fn memory(&self) -> Result<f64> {
        memory_of(self.child.id())
    }

    /// Asks the server to stop, and waits until it has: filters are durable then.
    pub(super) fn stop(mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).map_err(|error| failed("stop", &error.into()))?;
        let status = self.child.wait().map_err(|error| failed("wait for", &error))?;
        super::super::ensure(status.success(), || format!("the server ended with {status}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Returns the memory that a process has allocated, without mapped files, in bytes.
pub(super) fn memory_of(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(path).map_err(|error| failed("look at it", &error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.unwrap_or(f64::NAN) * 1024.0)
}

/// Returns the address that a server says it listens on.
fn address(line: &str) -> Result<SocketAddr> {
    let said: Option<Value> = serde_json::from_str(line).ok();
    let address = said.as_ref().and_then(|said| said["addresses"][0].as_str()?.parse().ok());
    address.ok_or_else(|| Failure::usage("the server did not start: standard error says why"))
}

fn failed(action: &str, error: &io::Error) -> Failure {
    Failure::io("server", action, error)
}

/// A `redis-server` for comparison; killed when it is dropped.
pub(super) struct Peer {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Peer {
    /// Starts a server that appends its changes to a file in a folder, and syncs that as `fsync` says. `None` if none
    /// is installed.
    pub(super) fn start(folder: &Path, fsync: &str) -> Result<Option<Peer>> {
        let folder = folder.join(format!("redis-{fsync}"));
        Peer::spawn(&folder, &["--appendonly", "yes", "--appendfsync", fsync])
    }

    /// Starts a server that keeps its data in memory alone. `None` if none is installed.
    pub(super) fn start_in_memory(folder: &Path) -> Result<Option<Peer>> {
        Peer::spawn(&folder.join("redis-memory"), &["--appendonly", "no"])
    }

    /// Returns the number of the process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn spawn(folder: &Path, options: &[&str]) -> Result<Option<Peer>> {
        let wrong = |error: io::Error| failed("start redis-server beside", &error);
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = address.map_err(wrong)?;
        fs::create_dir_all(folder).map_err(wrong)?;
        let spawned = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""])
            .args(options)
            .arg("--dir")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let child = match spawned {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            spawned => spawned.map_err(wrong)?,
        };
        let peer = Peer { child, address };
        for _ in 0..STARTS_MAX {
            if TcpStream::connect(address).is_ok() {
                return Ok(Some(peer));
            }
            SystemClock.sleep(START_CHECK);
        }
        let late = io::Error::from(io::ErrorKind::TimedOut);
        Err(wrong(late))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Time between two looks whether a peer listens, and their number at most.
const START_CHECK: Duration = Duration::from_millis(10);
const STARTS_MAX: u32 = 500;

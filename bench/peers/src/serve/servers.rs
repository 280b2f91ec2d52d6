//! Servers in processes of their own, whose CPU time and memory are counted.

use super::load::fill;
use crate::{Result, data::Data, measure::status_field};
use hashfold::{Env, TableBuilder, TableOptions};
use hashfold_server::Config;
use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// Names the folder that the program of the tests serves.
pub const ALONE: &str = "PEERS_SERVE_ALONE";

/// A running server.
pub trait Server {
    fn name(&self) -> &str;

    fn note(&self) -> &str;

    fn address(&self) -> SocketAddr;

    /// Returns the CPU time of the server, user and system.
    fn cpu_seconds(&self) -> Result<f64>;

    /// Returns the memory of the server, mapped files included.
    fn memory_mib(&self) -> Result<f64>;

    /// Returns the largest memory that the server has had.
    fn peak_memory_mib(&self) -> Result<f64>;
}

/// A server in a process, which ends with this.
struct Process {
    name: String,
    note: String,
    address: SocketAddr,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server for Process {
    fn name(&self) -> &str {
        &self.name
    }

    fn note(&self) -> &str {
        &self.note
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn cpu_seconds(&self) -> Result<f64> {
        let mut nanoseconds = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = fs::read_to_string(task?.path().join("schedstat"))?;
            let first = stat.split_whitespace().next().ok_or("schedstat is empty")?;
            nanoseconds += first.parse::<u64>()?;
        }
        Ok(nanoseconds as f64 / 1e9)
    }

    fn memory_mib(&self) -> Result<f64> {
        self.status_mib("VmRSS:")
    }

    fn peak_memory_mib(&self) -> Result<f64> {
        self.status_mib("VmHWM:")
    }
}

impl Process {
    /// Returns a field of the status in mebibytes.
    fn status_mib(&self, name: &str) -> Result<f64> {
        Ok(status_field(&format!("/proc/{}/status", self.child.id()), name)? as f64 / 1024.0)
    }
}

/// Builds a table, and serves it with one network thread.
pub fn hashfold(data: &Data, folder: &Path) -> Result<impl Server + use<>> {
    let mut builder = TableBuilder::with(folder, TableOptions::new())?;
    let mut value = Vec::new();
    for number in 0..data.count {
        data.fill_value(number, &mut value);
        builder.push(data.key(number), &value)?;
    }
    builder.finish()?;
    let mut child = serve_alone(folder)?;
    let stdout = child.stdout.as_mut().ok_or("the server has no output")?;
    let lines = BufReader::new(stdout).lines().map_while(std::result::Result::ok);
    // The program of the tests prints other lines before.
    let address = lines.filter_map(|line| line.trim().parse().ok()).next();
    let address = address.ok_or("the server has printed no address")?;
    let note = "mapped table, one network thread".to_owned();
    Ok(Process { name: "hashfold serve".into(), note, address, child })
}

/// Starts this program as a server of a folder, or with a configuration file. It prints its address.
pub fn serve_alone(path: &Path) -> Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    match cfg!(test) {
        // The program of the tests serves in one of them.
        true => command.args(["--ignored", "--exact", "--nocapture", "tests::serves_alone"]),
        false => command.args(["serve", "--alone"]).arg(path),
    };
    command.env(ALONE, path);
    Ok(command.stdout(Stdio::piped()).spawn()?)
}

/// Serves a folder, or what a configuration file says, until the process is killed; prints the address.
pub fn serve(path: &Path) -> Result<()> {
    let config = if path.extension().is_some_and(|end| end == "toml") {
        let folder = path.parent().unwrap_or(path);
        Config::parse(&fs::read_to_string(path)?, &path.display().to_string(), folder)?
    } else {
        let mut config = Config::of_folders(&[path.to_owned()])?;
        config.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.threads = 1;
        config
    };
    let server = hashfold_server::Server::start(config, &Env::system())?;
    println!("{}", server.addresses()[0]);
    loop {
        thread::park();
    }
}

/// Starts a Redis server without files, and fills it; `None` if there is no such program.
pub fn redis(program: &str, data: &Data) -> Result<Option<impl Server + use<>>> {
    let Some(server) = start_redis(program)? else { return Ok(None) };
    fill(server.address(), data)?;
    Ok(Some(server))
}

/// Starts an empty Redis server without files; `None` if there is no such program.
pub fn start_redis(program: &str) -> Result<Option<impl Server + use<>>> {
    start_redis_with(program, &[])
}

/// Starts an empty Redis server without files, with more arguments; `None` if there is no such program.
pub fn start_redis_with(
    program: &str,
    arguments: &[&OsStr],
) -> Result<Option<impl Server + use<>>> {
    if program.is_empty() {
        return Ok(None);
    }
    let version = match Command::new(program).arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => return Ok(None),
    };
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new(program);
    command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    command.args(arguments);
    let child = command.stdout(Stdio::null()).spawn()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let name = Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy());
    let process = Process { name: name.into_owned(), note: version, address, child };
    wait_until_open(port)?;
    Ok(Some(process))
}

/// Waits until a server accepts connections.
pub fn wait_until_open(port: u16) -> Result<()> {
    for _ in 0..500 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(format!("nothing accepts connections on port {port}").into())
}

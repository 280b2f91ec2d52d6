//! redis-server: `APPEND` in pipelines, over a Unix socket.

use super::peer::{Chains, Peer, Record, Watched};
use crate::{Result, serve::start_redis_with};
use std::{
    env,
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

/// Number of records in a pipeline, as in the posts.
const PIPELINE: usize = 10_000;
/// Names another server that is measured.
const VALKEY: &str = "VALKEY_SERVER";

/// Returns the servers: `redis-server`, and the one that the environment names.
pub(super) fn of_appends() -> Vec<Peer> {
    let others = env::var(VALKEY).ok().filter(|program| !program.is_empty());
    ["redis-server".to_owned()].into_iter().chain(others).map(peer).collect()
}

fn peer(program: String) -> Peer {
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let note = "APPEND in pipelines of 10,000 over a Unix socket; memory and CPU time of the server, whose allocator \
                has no huge pages";
    let started = program.clone();
    let new = move |folder: &Path| -> Result<Vec<Box<dyn Chains>>> {
        Ok(vec![Box::new(Redis::start(&started, &folder.join("redis.socket"))?)])
    };
    let is_installed = move || {
        let version = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let peer = Peer::of_appends(&name, note, Box::new(new)).in_blocks(PIPELINE);
    peer.if_installed(Box::new(is_installed))
}

struct Redis {
    server: Watched,
    replies: BufReader<UnixStream>,
    /// The commands of a pipeline.
    request: Vec<u8>,
}

impl Redis {
    fn start(program: &str, socket: &Path) -> Result<Redis> {
        let arguments = [OsStr::new("--unixsocket"), socket.as_os_str()];
        let server = start_redis_with(program, &arguments)?;
        let server = server.ok_or_else(|| format!("there is no {program}"))?;
        Ok(Redis {
            server: Arc::new(server),
            replies: BufReader::new(connect(socket)?),
            request: Vec::new(),
        })
    }

    fn send(&mut self) -> Result<()> {
        self.replies.get_mut().write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    /// Returns the first line of a reply, without its end.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        let line = line.trim_end().to_owned();
        if line.is_empty() || line.starts_with('-') {
            return Err(format!("a command was refused: {line:?}").into());
        }
        Ok(line)
    }

    /// Returns the number of a reply that begins with this character.
    fn number(&mut self, kind: char) -> Result<i64> {
        let line = self.line()?;
        let number = line.strip_prefix(kind).and_then(|number| number.parse().ok());
        number.ok_or_else(|| format!("expected a number after {kind:?}, got {line:?}").into())
    }

    /// Returns the text of a reply of this length, and reads its end.
    fn bulk(&mut self, length: usize, value: &mut Vec<u8>) -> Result<()> {
        value.resize(length + 2, 0);
        self.replies.read_exact(value)?;
        value.truncate(length);
        Ok(())
    }
}

/// Connects to a server that is starting.
fn connect(socket: &Path) -> Result<UnixStream> {
    const ATTEMPTS: usize = 500;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..ATTEMPTS {
        if let Ok(stream) = UnixStream::connect(socket) {
            return Ok(stream);
        }
        thread::sleep(PAUSE);
    }
    Err(format!("{}: nothing accepts connections", socket.display()).into())
}

/// Adds an argument of a command.
fn argument(request: &mut Vec<u8>, bytes: &[u8]) {
    request.extend(format!("${}\r\n", bytes.len()).into_bytes());
    request.extend(bytes);
    request.extend(b"\r\n");
}

impl Chains for Redis {
    fn append_many(&mut self, records: &[Record]) -> Result<()> {
        for (key, record) in records {
            // Lengths are those of the types, so that nothing is formatted.
            self.request.extend(b"*3\r\n$6\r\nAPPEND\r\n$8\r\n");
            self.request.extend(key);
            self.request.extend(b"\r\n$16\r\n");
            self.request.extend(record);
            self.request.extend(b"\r\n");
        }
        self.send()?;
        for (key, record) in records {
            let length = self.number(':')?;
            if length < record.len() as i64 || length % record.len() as i64 != 0 {
                return Err(format!("the value of {key:?} has {length} bytes").into());
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8; 8], value: &mut Vec<u8>) -> Result<bool> {
        self.request.extend(b"*2\r\n$3\r\nGET\r\n");
        argument(&mut self.request, key);
        self.send()?;
        value.clear();
        match usize::try_from(self.number('$')?) {
            Ok(length) => self.bulk(length, value).map(|()| true),
            Err(_) => Ok(false),
        }
    }

    fn len(&mut self) -> Result<u64> {
        self.request.extend(b"*1\r\n$6\r\nDBSIZE\r\n");
        self.send()?;
        Ok(self.number(':')? as u64)
    }

    fn counted_bytes(&mut self) -> Result<Option<u64>> {
        self.request.extend(b"*2\r\n$4\r\nINFO\r\n");
        argument(&mut self.request, b"memory");
        self.send()?;
        let (length, mut text) = (self.number('$')?, Vec::new());
        self.bulk(usize::try_from(length)?, &mut text)?;
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(line.and_then(|bytes| bytes.trim().parse().ok()))
    }

    fn server(&self) -> Option<Watched> {
        Some(self.server.clone())
    }
}

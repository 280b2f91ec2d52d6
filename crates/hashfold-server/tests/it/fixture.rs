//! Servers of small data sets, and a client that shows replies as text.

use hashfold::{
    Env, Filter, FilterOptions, Store, StoreOptions, TableBuilder,
    map::{Map, MapOptions},
    table::TableOptions,
    work::{Clock, Signal, SystemClock},
};
use hashfold_server::{Config, Server, StartError};
use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};
use tempfile::TempDir;

/// Number of entries of the table and of each version of the store.
pub(crate) const ENTRIES: u32 = 2000;

/// Data sets in a folder of their own.
pub(crate) struct Home(TempDir);

impl Home {
    /// Makes a table `table`, a store `people` with a version, a set `seen` and a multiset `counts`.
    pub(crate) fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        let mut table = TableBuilder::with(home.path("table"), TableOptions::new()).unwrap();
        for i in 0..ENTRIES {
            table.push(key(i), value(i, 0)).unwrap();
        }
        table.finish().unwrap();
        Store::open_or_create_with(home.path("people"), StoreOptions::new()).unwrap();
        home.publish(1);
        let options = || FilterOptions::exact().memory_bytes(16 << 20);
        let mut seen = Filter::create(home.path("seen"), options()).unwrap();
        seen.insert("a").unwrap();
        seen.close().unwrap();
        Filter::create(home.path("counts"), options().multiset()).unwrap().close().unwrap();
        home
    }

    /// Makes an empty map.
    pub(crate) fn make_map(&self, name: &str) {
        Map::create(self.path(name), MapOptions::new()).unwrap().close().unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Copies all files as they are now: what a crash of the process would leave.
    pub(crate) fn copy(&self) -> Home {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(self.0.path(), copy.path());
        Home(copy)
    }

    /// Publishes a version of the store, whose values say which one.
    pub(crate) fn publish(&self, version: u32) {
        let mut update = Store::open(self.path("people")).unwrap().update().unwrap();
        for i in 0..ENTRIES {
            update.put(key(i), value(i, version)).unwrap();
        }
        update.publish().unwrap();
    }

    /// Damages the data files of a store: a byte in the middle of each.
    #[expect(clippy::disallowed_methods, reason = "damage comes from behind")]
    pub(crate) fn damage(&self, store: &str) {
        for table in std::fs::read_dir(self.path(store).join("tables")).unwrap() {
            for file in std::fs::read_dir(table.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                if path.file_name().unwrap().to_string_lossy().starts_with("data") {
                    let file = File::options().read(true).write(true).open(&path).unwrap();
                    let middle = file.metadata().unwrap().len() / 2;
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, middle).unwrap();
                    file.write_all_at(&[!byte[0]], middle).unwrap();
                }
            }
        }
    }

    /// Serves folders of this home on a free port.
    pub(crate) fn serve(&self, names: &[&str]) -> Server {
        self.serve_with(names, |_| ())
    }

    pub(crate) fn serve_with(&self, names: &[&str], change: impl FnOnce(&mut Config)) -> Server {
        let folders: Vec<PathBuf> = names.iter().map(|name| self.path(name)).collect();
        let mut config = Config::of_folders(&folders).unwrap();
        config.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        change(&mut config);
        Server::start(config, &Env::system()).unwrap()
    }

    /// Serves what a configuration file in this home says.
    pub(crate) fn serve_file(&self, text: &str) -> Server {
        self.start_file(text).unwrap()
    }

    pub(crate) fn start_file(&self, text: &str) -> Result<Server, StartError> {
        self.start_file_in(text, &Env::system())
    }

    pub(crate) fn start_file_in(&self, text: &str, env: &Env) -> Result<Server, StartError> {
        let text = format!("listen = ['127.0.0.1:0']\n{text}");
        let config = Config::parse(&text, "test.toml", self.0.path()).unwrap();
        Server::start(config, env)
    }
}

/// A clock whose calendar can be set forward.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    pub(crate) ahead_ms: AtomicU64,
}

impl Clock for Calendar {
    fn now(&self) -> Duration {
        SystemClock.now()
    }

    fn unix_time(&self) -> Duration {
        SystemClock.unix_time() + Duration::from_millis(self.ahead_ms.load(SeqCst))
    }

    fn wait(&self, signal: &Signal, seen: u64, deadline: Duration) {
        SystemClock.wait(signal, seen, deadline);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let path = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &path),
            false => _ = std::fs::copy(entry.path(), &path).unwrap(),
        }
    }
}

pub(crate) fn key(i: u32) -> String {
    format!("key-{i}")
}

pub(crate) fn value(i: u32, version: u32) -> String {
    format!("value {i} of version {version}")
}

/// An iterator of a dump, and the piece that came with it.
pub(crate) type Piece = (i64, Vec<u8>);

/// What a client sends bytes through.
pub(crate) trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// A connection that shows replies as text, as `redis-cli` does without colours:
/// `"bulk"`, `+simple`, `-error`, `7`, `nil`, `[a b]`, `{a b}`, `~{a b}`, `true`.
pub(crate) struct Client {
    socket: Box<dyn Stream>,
    input: Vec<u8>,
    at: usize,
}

impl Client {
    pub(crate) fn of(server: &Server) -> Client {
        Client::connect(server.addresses()[0])
    }

    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::over(Client::socket(address))
    }

    /// Connects a socket whose reads do not wait for ever.
    pub(crate) fn socket(address: SocketAddr) -> TcpStream {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    /// Makes a client over a stream, such as an encrypted one.
    pub(crate) fn over(stream: impl Stream + 'static) -> Client {
        Client { socket: Box::new(stream), input: Vec::new(), at: 0 }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends bytes as they are, perhaps to a connection that is closed already.
    pub(crate) fn try_to_send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Sends a command whose words are separated by blanks.
    pub(crate) fn ask(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        self.send(&request(&words));
    }

    /// Calls a command, and returns the reply as text.
    pub(crate) fn call(&mut self, line: &str) -> String {
        self.ask(line);
        self.reply()
    }

    /// Checks the reply to a command.
    #[track_caller]
    pub(crate) fn check(&mut self, line: &str, expected: &str) {
        assert_eq!(self.call(line), expected, "{line}");
    }

    /// Calls a command until its reply is right: a server looks at files and other servers by its own
    /// clock.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, line: &str, is_right: &dyn Fn(&str) -> bool) {
        for _ in 0..1000 {
            if is_right(&self.call(line)) {
                return;
            }
            SystemClock.sleep(Duration::from_millis(20));
        }
        panic!("{line}: {}", self.call(line));
    }

    /// Returns the next reply as text.
    pub(crate) fn reply(&mut self) -> String {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        match kind {
            "+" | "-" => line,
            ":" | "," => rest.into(),
            "_" => "nil".into(),
            "#" => if rest == "t" { "true" } else { "false" }.into(),
            "$" | "=" => match rest {
                "-1" => "nil".into(),
                size => format!("{:?}", self.bytes(size.parse().unwrap())),
            },
            "*" if rest == "-1" => "nil".into(),
            "*" => format!("[{}]", self.replies(rest, 1)),
            "%" => format!("{{{}}}", self.replies(rest, 2)),
            "~" => format!("~{{{}}}", self.replies(rest, 1)),
            other => panic!("a reply starts with {other:?}"),
        }
    }

    /// Returns the bytes of the next line, with its end.
    pub(crate) fn raw_line(&mut self) -> Vec<u8> {
        [self.line().as_bytes(), b"\r\n"].concat()
    }

    fn replies(&mut self, count: &str, each: usize) -> String {
        let count: usize = count.parse().unwrap();
        let all: Vec<String> = (0..count * each).map(|_| self.reply()).collect();
        all.join(" ")
    }

    /// Calls `SCANDUMP`. Returns the iterator and the piece, or the error.
    pub(crate) fn dump(
        &mut self,
        command: &str,
        key: &str,
        iterator: i64,
    ) -> Result<Piece, String> {
        self.ask(&format!("{command} {key} {iterator}"));
        let line = self.line();
        if line != "*2" {
            return Err(line);
        }
        let iterator = self.line()[1..].parse().unwrap();
        let piece = match self.line()[1..].parse() {
            Ok(size) => self.raw(size),
            Err(_) => Vec::new(),
        };
        Ok((iterator, piece))
    }

    /// Calls `LOADCHUNK`, and returns the reply.
    pub(crate) fn load(&mut self, command: &str, key: &str, (iterator, piece): &Piece) -> String {
        let iterator = iterator.to_string();
        let words = [command.as_bytes(), key.as_bytes(), iterator.as_bytes(), piece];
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend(word);
            request.extend(b"\r\n");
        }
        self.send(&request);
        self.reply()
    }

    /// Whether the server has closed the connection and sent nothing more.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        self.at == self.input.len() && matches!(self.socket.read(&mut byte), Ok(0) | Err(_))
    }

    fn line(&mut self) -> String {
        loop {
            let rest = &self.input[self.at..];
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8(rest[..end].to_vec()).unwrap();
                self.at += end + 2;
                return line;
            }
            self.read();
        }
    }

    fn bytes(&mut self, size: usize) -> String {
        String::from_utf8_lossy(&self.raw(size)).into_owned()
    }

    fn raw(&mut self, size: usize) -> Vec<u8> {
        while self.input.len() < self.at + size + 2 {
            self.read();
        }
        let bytes = self.input[self.at..self.at + size].to_vec();
        self.at += size + 2;
        bytes
    }

    fn read(&mut self) {
        self.input.drain(..self.at);
        self.at = 0;
        let mut bytes = [0; 16 << 10];
        let count = self.socket.read(&mut bytes).expect("a reply comes in time");
        assert!(count > 0, "the connection is open");
        self.input.extend(&bytes[..count]);
    }
}

/// Returns a request as clients send it.
pub(crate) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    bytes.into_bytes()
}

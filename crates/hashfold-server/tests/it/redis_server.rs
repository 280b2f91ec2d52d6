//! Random sequences of commands, also to `redis-server` 7.0: the replies are the same, byte by byte.

use crate::fixture::{ENTRIES, Home, key, request, value};
use hashfold::work::{Clock as _, Random as _, SeededRandom, SystemClock};
use std::{
    env,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A server of Redis.
pub(crate) struct Redis {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Redis {
    /// Starts a server without keys; `None` if there is none of the right version on this machine.
    pub(crate) fn start_empty() -> Option<Redis> {
        let version = Command::new("redis-server").arg("--version").output().ok()?;
        if !String::from_utf8_lossy(&version.stdout).contains(" v=7.0.") {
            return None;
        }
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--databases", "1"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Redis { child, address };
        while TcpStream::connect(address).is_err() {
            SystemClock.sleep(Duration::from_millis(10));
        }
        Some(redis)
    }

    /// Starts a server that has the entries of the table.
    fn start() -> Option<Redis> {
        let redis = Redis::start_empty()?;
        let mut all = Vec::new();
        for i in 0..ENTRIES {
            all.extend(request(&["SET", &key(i), &value(i, 0)]));
        }
        let replies = converse(redis.address, 2, &all);
        assert_eq!(replies, "+OK\r\n".repeat(ENTRIES as usize + 1).as_bytes());
        Some(redis)
    }
}

/// Sends requests and a `QUIT`, and returns all replies after the one to `HELLO`, which differs.
pub(crate) fn converse(address: SocketAddr, protocol: u32, requests: &[u8]) -> Vec<u8> {
    const MARK: &[u8] = b"$4\r\nmark\r\n";
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let hello = request(&["HELLO", &protocol.to_string()]);
    let all = [&hello, &request(&["ECHO", "mark"]), requests, &request(&["QUIT"])].concat();
    let mut reader = socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || socket.write_all(&all).unwrap());
        let mut replies = Vec::new();
        reader.read_to_end(&mut replies).unwrap();
        let mark = replies.windows(MARK.len()).position(|window| window == MARK).unwrap();
        replies.split_off(mark + MARK.len())
    })
}

/// Makes sequences of commands whose replies do not depend on what is stored beside the table.
struct Sequence<'r> {
    random: &'r SeededRandom,
    requests: Vec<Vec<String>>,
    is_multi: bool,
}

impl Sequence<'_> {
    fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn key(&self) -> String {
        match self.below(4) {
            0 => format!("absent-{}", self.below(10)),
            _ => key(self.below(u64::from(ENTRIES)) as u32),
        }
    }

    fn keys(&self) -> Vec<String> {
        (0..=self.below(4)).map(|_| self.key()).collect()
    }

    fn push(&mut self, words: &[&str]) {
        self.requests.push(words.iter().map(|word| (*word).to_owned()).collect());
    }

    fn push_keys(&mut self, command: &str) {
        let keys = self.keys();
        let words: Vec<&str> =
            [command].into_iter().chain(keys.iter().map(String::as_str)).collect();
        self.push(&words);
    }

    fn number(&self) -> String {
        match self.below(8) {
            0 => "x".into(),
            1 => "9223372036854775808".into(),
            n => (self.below(40) as i64 - 20 * (n as i64 % 2)).to_string(),
        }
    }

    fn lookup(&mut self) {
        let one = ["GET", "get", "STRLEN", "TYPE", "TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"];
        match self.below(8) {
            0 => self.push_keys("MGET"),
            1 => self.push_keys("EXISTS"),
            2 => self.push_keys("TOUCH"),
            3 => {
                let command = ["GETRANGE", "SUBSTR"][self.below(2) as usize];
                self.push(&[command, &self.key(), &self.number(), &self.number()]);
            }
            4 => self.push(&["OBJECT", "ENCODING", &self.key()]),
            _ => self.push(&[one[self.below(one.len() as u64) as usize], &self.key()]),
        }
    }

    fn other(&mut self) {
        match self.below(12) {
            0 => self.push(&["PING"]),
            1 => self.push(&["PING", "text"]),
            2 => self.push(&["ECHO", "text"]),
            3 => self.push(&["SELECT", ["0", "99", "x"][self.below(3) as usize]]),
            4 => self.push(&["CLIENT", "SETNAME", ["a", "b", "a b"][self.below(3) as usize]]),
            5 => self.push(&["CLIENT", "GETNAME"]),
            6 => self.push(&["DBSIZE"]),
            7 => self.push(&["PING", "a", "b"]),
            8 => self.push(&["KEYS", "absent-*"]),
            9 => self.push(&["CLIENT", "NO-EVICT", ["on", "x"][self.below(2) as usize]]),
            10 => self.push(&["LOLWUT-NOT", &self.key(), "x"]),
            _ => self.push_keys("GET"),
        }
    }

    /// Adds a question about the server, or a mistake in one.
    fn question(&mut self) {
        const QUESTIONS: &[&str] = &[
            "COMMAND INFO nope",
            "COMMAND COUNT x",
            "COMMAND NOPE",
            "COMMAND LIST x",
            "COMMAND LIST FILTERBY pattern ge?",
            "COMMAND LIST FILTERBY aclcat read2",
            "COMMAND LIST FILTERBY module x",
            "COMMAND LIST FILTERBY nope x",
            "COMMAND GETKEYS",
            "COMMAND GETKEYS mget a b",
            "COMMAND GETKEYS set a b",
            "COMMAND GETKEYS nope a",
            "COMMAND GETKEYS get a b",
            "COMMAND GETKEYS ping a",
            "COMMAND DOCS nope",
            "CLIENT KILL",
            "CLIENT KILL ID 0",
            "CLIENT KILL ID x",
            "CLIENT KILL ID 99999999",
            "CLIENT KILL ADDR",
            "CLIENT KILL NOPE x",
            "CLIENT KILL USER nobody",
            "CLIENT KILL TYPE nope",
            "CLIENT KILL TYPE replica",
            "CLIENT KILL SKIPME maybe",
            "CLIENT KILL 1.2.3.4:5",
            "CLIENT KILL SKIPME yes TYPE pubsub",
            "CLIENT KILL ID 1 FOO",
            "CLIENT LIST TYPE nope",
            "CLIENT LIST ID 99999999",
            "CLIENT LIST ID x",
            "CLIENT LIST FOO",
            "CLIENT HELP x",
            "SLOWLOG GET -2",
            "SLOWLOG GET x",
            "SLOWLOG GET 1 2",
            "SLOWLOG RESET",
            "LATENCY LATEST",
            "LATENCY HISTORY command",
            "LATENCY RESET command",
            "LATENCY NOPE",
            "ACL LOG",
            "ACL LOG RESET",
            "ACL LOG x",
            "ACL LOG -1",
            "ACL LOG 1 2",
            "ACL CAT nope",
            "ACL GETUSER nobody",
            "ACL WHOAMI",
            "ACL DRYRUN nobody get a",
            "ACL DRYRUN default get a",
            "ACL DRYRUN default nope",
            "CONFIG SET maxclients",
            "CONFIG SET latency-monitor-threshold x",
            "CONFIG SET latency-monitor-threshold -1",
            "CONFIG SET slowlog-log-slower-than 10000 latency-monitor-threshold 0",
            "CONFIG GET latency-monitor-threshold",
            "CONFIG GET nope*",
            "OBJECT NOPE",
            "CLUSTER INFO",
            "CLUSTER NOPE",
        ];
        let question = QUESTIONS[self.below(QUESTIONS.len() as u64) as usize];
        self.push(&question.split(' ').collect::<Vec<_>>());
    }

    /// Adds a command of a transaction. Inside one, `MULTI` and `WATCH` have the replies of newer versions.
    fn of_transaction(&mut self) {
        match (self.is_multi, self.below(8)) {
            (false, 0..=4) => {
                self.push(&["MULTI"]);
                self.is_multi = true;
            }
            (false, 5) => self.push_keys("WATCH"),
            (true, 0..=4) => {
                self.push(&["EXEC"]);
                self.is_multi = false;
            }
            (_, 6) => {
                self.push(&["UNWATCH"]);
            }
            _ => {
                let ends: [&[&str]; 5] =
                    [&["DISCARD"], &["EXEC"], &["EXEC", "x"], &["DISCARD", "x"], &["UNWATCH", "x"]];
                let end = ends[self.below(5) as usize];
                self.push(end);
                self.is_multi &= end == ["DISCARD", "x"] || end == ["UNWATCH", "x"];
            }
        }
    }

    fn replies(&mut self) {
        if self.is_multi {
            return;
        }
        self.push(&["CLIENT", "REPLY", ["ON", "OFF", "SKIP", "x"][self.below(4) as usize]]);
    }

    fn step(&mut self) {
        match self.below(100) {
            0..50 => self.lookup(),
            50..60 => self.question(),
            60..75 => self.other(),
            75..98 => self.of_transaction(),
            _ => self.replies(),
        }
    }
}

#[test]
fn random_sequences_have_the_replies_of_redis() {
    let Some(redis) = Redis::start() else {
        return println!("skipped: sequences for redis-server 7.0, which is not installed");
    };
    let home = Home::new();
    let server = home.serve(&["table"]);
    let seed = env::var("HASHFOLD_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let random = SeededRandom::new(seed);
    for round in 0..40 {
        let mut sequence = Sequence { random: &random, requests: Vec::new(), is_multi: false };
        (0..200).for_each(|_| sequence.step());
        let bytes: Vec<u8> = sequence
            .requests
            .iter()
            .flat_map(|words| request(&words.iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        let protocol = 2 + round % 2;
        let expected = converse(redis.address, protocol, &bytes);
        let got = converse(server.addresses()[0], protocol, &bytes);
        let place = format!("seed {seed}, round {round}, RESP{protocol}");
        check_same(&got, &expected, &place, &sequence.requests);
    }
}

/// Checks that both servers have given the same replies to these requests.
#[track_caller]
pub(crate) fn check_same(got: &[u8], expected: &[u8], place: &str, requests: &[Vec<String>]) {
    if got == expected {
        return;
    }
    let same = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(100);
    let shown = |all: &[u8]| all[from..all.len().min(same + 100)].escape_ascii().to_string();
    let sent: Vec<String> = requests.iter().map(|words| words.join(" ")).collect();
    panic!(
        "{place}, byte {same}\n got {}\nredis {}\n{}",
        shown(got),
        shown(expected),
        sent.join("\n")
    );
}

/// A write of another client makes `EXEC` null here and there, in both protocols.
#[test]
fn exec_after_a_change_has_the_reply_of_redis() {
    let Some(redis) = Redis::start() else {
        return println!("skipped: WATCH on redis-server 7.0, which is not installed");
    };
    let home = Home::new();
    let server = home.serve(&["people"]);
    for protocol in [2, 3] {
        let watched = |address: SocketAddr, change: &dyn Fn()| {
            let mut socket = TcpStream::connect(address).unwrap();
            let mut replies = vec![0; 1 << 10];
            let mut call = |words: &[&str]| {
                socket.write_all(&request(words)).unwrap();
                let count = socket.read(&mut replies).unwrap();
                replies[..count].to_vec()
            };
            call(&["HELLO", &protocol.to_string()]);
            let mut all = vec![call(&["WATCH", "key-1"])];
            change();
            for words in [&["MULTI"][..], &["EXISTS", "key-1"], &["EXEC"], &["EXEC"]] {
                all.push(call(words));
            }
            all
        };
        let expected = watched(redis.address, &|| {
            converse(redis.address, 2, &request(&["SET", "key-1", "other"]));
        });
        let got = watched(server.addresses()[0], &|| {
            home.publish(2);
            server.refresh().unwrap();
        });
        assert_eq!(got, expected, "RESP{protocol}");
    }
}

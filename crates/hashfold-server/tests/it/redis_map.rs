//! Random sequences of commands that change keys, to a map or a data set in memory, and to `redis-server` 7.0: the
//! replies are the same, byte by byte.
//!
//! No key expires during a run: times are far away, or passed. Replies that depend on the time of a command to the
//! millisecond are not asked for.

use crate::{
    fixture::{Home, request},
    redis_server::{Redis, check_same, converse},
};
use hashfold::work::{Random as _, SeededRandom};
use hashfold_server::Server;
use std::env;

/// The year 2100, in seconds since 1970.
const FAR: u64 = 4_102_444_800;

/// Makes sequences of commands.
struct Sequence<'r> {
    random: &'r SeededRandom,
    requests: Vec<Vec<String>>,
    is_multi: bool,
    keys: Keys,
}

/// Whether keys may expire at a time that comes.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Expire,
    /// Those in memory do not.
    Stay,
}

impl Sequence<'_> {
    fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn one(&self, words: &[&str]) -> String {
        words[self.below(words.len() as u64) as usize].to_owned()
    }

    fn push<W: AsRef<str>>(&mut self, words: impl IntoIterator<Item = W>) {
        self.requests.push(words.into_iter().map(|word| word.as_ref().to_owned()).collect());
    }

    /// Adds a command of words that are separated by blanks.
    fn line(&mut self, line: &str) {
        self.push(line.split(' '));
    }

    fn key(&self) -> String {
        format!("k{}", self.below(8))
    }

    fn keys(&self) -> String {
        let keys: Vec<String> = (0..=self.below(4)).map(|_| self.key()).collect();
        keys.join(" ")
    }

    /// Returns a key whose expiry is asked for in seconds only: it may be relative.
    fn timed(&self) -> String {
        format!("t{}", self.below(3))
    }

    fn number(&self) -> String {
        match self.below(12) {
            0 => "x".into(),
            1 => "9223372036854775807".into(),
            2 => "-9223372036854775808".into(),
            3 => "9223372036854775808".into(),
            4 => "007".into(),
            5 => String::new(),
            n => (self.below(200) as i64 - 100 * (n as i64 % 2)).to_string(),
        }
    }

    fn decimal(&self) -> String {
        match self.below(10) {
            0 => "x".into(),
            1 => "inf".into(),
            2 => "2e0".into(),
            3 => "".into(),
            4 => "-2.".into(),
            _ => format!("{}.{}", self.below(5) as i64 - 2, self.below(100)),
        }
    }

    fn value(&self) -> String {
        match self.below(6) {
            0 => self.number(),
            1 => format!("{}", self.below(100)),
            2 => "text ".repeat(self.below(12) as usize),
            3 => "a".repeat(self.below(50) as usize),
            _ => format!("v{}", self.below(5)),
        }
    }

    /// Returns an option that sets a time of expiry, or something wrong.
    fn expiry(&self) -> Vec<String> {
        let time = |word: &str, number: u64| vec![word.to_owned(), number.to_string()];
        match self.below(12) {
            0 => vec!["EX".into()],
            1 => vec!["EX".into(), self.one(&["0", "-1", "x", "9223372036854775807"])],
            2 if self.keys == Keys::Stay => vec!["PXAT".into(), self.one(&["1", "0", "-7"])],
            2 => vec!["PXAT".into(), self.one(&["1", "0", "-7", "9223372036854775807"])],
            3..8 if self.keys == Keys::Stay => Vec::new(),
            3 | 4 => time("exat", FAR + self.below(5)),
            5..8 => time("PXAT", FAR * 1000 + self.below(5)),
            8 => time("EXAT", 1 + self.below(5)),
            9 => vec!["KEEPTTL".into()],
            10 => vec!["PERSIST".into()],
            _ => Vec::new(),
        }
    }

    fn set(&mut self) {
        let mut words = vec![self.one(&["SET", "set"]), self.key(), self.value()];
        for _ in 0..self.below(3) {
            words.push(self.one(&["NX", "xx", "GET", "get", "KEEPTTL", "nope"]));
        }
        let expiry = self.expiry();
        match self.below(3) {
            0 => drop(words.splice(3..3, expiry)),
            1 => words.extend(expiry),
            _ => {}
        }
        self.push(words);
    }

    fn set_otherwise(&mut self) {
        let (key, value) = (self.key(), self.value());
        match self.below(12) {
            0 => self.push(["SETNX", &key, &value]),
            1 => self.push(["GETSET", &key, &value]),
            2 => self.push(["GETDEL", &key]),
            3 => {
                let words = [vec!["GETEX".into(), key], self.expiry()].concat();
                self.push(words);
            }
            4 => {
                let (other, more) = (self.key(), self.value());
                let command = self.one(&["MSET", "MSETNX", "mset"]);
                self.push([command, key, value, other, more]);
            }
            5 => {
                let command = self.one(&["MSET", "MSETNX"]);
                self.push([command, key, value, "odd".into()]);
            }
            6 => self.push(["APPEND", &key, &value]),
            7 | 8 => {
                let offset = self.one(&["0", "1", "5", "70", "-1", "x", "9223372036854775807"]);
                self.push(["SETRANGE", &key, &offset, &value]);
            }
            9 => {
                let time = self.one(&["0", "-5", "x", "9223372036854775807"]);
                let command = self.one(&["SETEX", "PSETEX", "psetex"]);
                self.push([command, key, time, value]);
            }
            10 => self.line(&format!("SET {key}")),
            _ => self.line(&format!("GETDEL {key} x")),
        }
    }

    fn count(&mut self) {
        let key = self.key();
        match self.below(5) {
            0 => self.push(["INCR", &key]),
            1 => self.push(["DECR", &key]),
            2 => self.push(["INCRBY", &key, &self.number()]),
            3 => self.push(["DECRBY", &key, &self.number()]),
            // Numbers above 50 have other last digits there, because they are not added as decimals.
            _ => {
                let (key, number) = (format!("f{}", self.below(2)), self.decimal());
                match self.below(3) {
                    0 => self.push(["SET", &key, &number]),
                    _ => self.push(["INCRBYFLOAT", &key, &number]),
                }
            }
        }
    }

    fn move_or_delete(&mut self) {
        let (key, other) = (self.key(), self.key());
        match self.below(12) {
            0..3 => {
                let (command, keys) = (self.one(&["DEL", "UNLINK"]), self.keys());
                self.line(&format!("{command} {keys}"));
            }
            3..5 => self.push(["RENAME", &key, &other]),
            5..7 => self.push(["RENAMENX", &key, &other]),
            7 => self.push(["COPY", &key, &other]),
            8 => self.push(["COPY", &key, &other, "replace"]),
            9 => {
                let number = self.one(&["0", "1", "x", "99999999999"]);
                self.push(["COPY", &key, &other, "DB", &number]);
            }
            10 => self.push(["COPY", &key, &other, "x"]),
            _ => {
                let command = self.one(&[
                    "FLUSHDB",
                    "FLUSHALL",
                    "FLUSHALL ASYNC",
                    "FLUSHDB sync",
                    "FLUSHALL x",
                ]);
                self.line(&command);
            }
        }
    }

    fn expire(&mut self) {
        let condition = || match self.below(3) {
            0 => self.one(&[" NX", " xx", " GT", " LT", " XX GT", " XX LT"]),
            1 => self.one(&[" NX XX", " GT LT", " NX GT", " nope", "", ""]),
            _ => String::new(),
        };
        let (key, condition) = (self.key(), condition());
        // The first kinds are about a time that comes.
        let kind = match self.keys {
            Keys::Expire => self.below(8),
            Keys::Stay => 4 + self.below(4),
        };
        match kind {
            0..3 => {
                let at = FAR * 1000 + self.below(6) - 3;
                self.line(&format!("PEXPIREAT {key} {at}{condition}"));
            }
            3 => self.line(&format!("EXPIREAT {key} {}{condition}", FAR + self.below(3))),
            4 => {
                let at = self.one(&["1", "0", "-1", "x", "9223372036854775807"]);
                let command = self.one(&["EXPIREAT", "PEXPIREAT"]);
                // The latest time of all would be another one in a moment.
                let at = if command == "PEXPIREAT" && at.len() > 9 { "1".to_owned() } else { at };
                self.line(&format!("{command} {key} {at}{condition}"));
            }
            5 => {
                let time =
                    self.one(&["0", "-1", "x", "9223372036854775807", "-9223372036854775808"]);
                let command = self.one(&["EXPIRE", "PEXPIRE", "pexpire"]);
                let is_latest = command != "EXPIRE" && time.starts_with('-') && time.len() > 9;
                let time = if is_latest { "-1".to_owned() } else { time };
                self.line(&format!("{command} {key} {time}{condition}"));
            }
            _ => self.push(["PERSIST", &key]),
        }
    }

    /// Adds a command about a key that expires some time from now on, and one that asks when.
    fn expire_later(&mut self) {
        let (key, time) = (self.timed(), 100_000 + self.below(3));
        match self.below(7) {
            0 => self.line(&format!("SET {key} 1 EX {time}")),
            1 => self.line(&format!("SETEX {key} {time} 1")),
            2 => self.line(&format!("PSETEX {key} {time}000 1")),
            3 => self.line(&format!("EXPIRE {key} {time}")),
            4 => self.line(&format!("GETEX {key} PX {time}000")),
            5 => self.line(&format!("PEXPIRE {key} {time}000")),
            _ => self.line(&format!("SET {key} 2 KEEPTTL")),
        }
        self.push(["TTL", &key]);
    }

    /// Adds changes of one key that are made together, and lookups between them.
    fn append(&mut self) {
        for _ in 0..self.below(12) {
            let (key, value) = (self.key(), self.value());
            match self.below(8) {
                0 => self.push(["DEL", &key]),
                1 => self.push(["SET", &key, &value]),
                2 => self.push(["STRLEN", &key]),
                _ => self.push(["APPEND", &key, &value]),
            }
        }
        // There, DBSIZE counts keys that have expired.
        self.line("EXISTS k0 k1 k2 k3 k4 k5 k6 k7");
    }

    fn look(&mut self) {
        let key = self.key();
        match self.below(14) {
            0..3 => self.push(["GET", &key]),
            3 => self.line(&format!("MGET {}", self.keys())),
            4 => self.line(&format!("EXISTS {}", self.keys())),
            5 => self.push(["STRLEN", &key]),
            6 => self.push(["GETRANGE", &key, &self.number(), &self.number()]),
            7 => self.push(["PEXPIRETIME", &key]),
            8 => self.push(["EXPIRETIME", &key]),
            9 => self.push(["TYPE", &key]),
            // As above, not DBSIZE.
            10 | 11 => self.line(&format!("KEYS {key}")),
            12 => {
                let (other, options) = (
                    self.key(),
                    self.one(&[
                        "",
                        "",
                        " LEN",
                        " IDX",
                        " IDX WITHMATCHLEN",
                        " idx MINMATCHLEN 2",
                        " LEN IDX",
                        " x",
                        " IDX MINMATCHLEN x",
                    ]),
                );
                self.line(&format!("LCS {key} {other}{options}"));
            }
            _ => self.line(&format!("TOUCH {}", self.keys())),
        }
    }

    /// Adds a command about a sketch: small ones, large ones, and strings that are none.
    fn sketch(&mut self) {
        let key = || format!("h{}", self.below(4));
        let (one, other) = (key(), key());
        match self.below(12) {
            0..5 => {
                // Redis keeps the elements before the one at which it finds the damage; there is none before the first.
                let max = match self.has_damaged(&one) {
                    true => 2,
                    false => [3000, 400, 400, 6, 6, 6, 6, 6][self.below(8) as usize],
                };
                let count = self.below(max);
                let elements = (0..count).map(|_| self.below(1_000_000).to_string());
                let words: Vec<String> =
                    ["PFADD".into(), one].into_iter().chain(elements).collect();
                self.push(words);
            }
            5 | 6 => self.push(["PFCOUNT", &one]),
            7 => self.push(["PFCOUNT", &one, &other, "none"]),
            8 => self.push(["PFMERGE", &one, &other, &key()]),
            9 if self.below(4) == 0 => self.push(["SET", &one, "no sketch"]),
            9 => self.push(["DEL", &one]),
            10 if self.below(4) == 0 => self.push(["SETRANGE", &one, "20", "damage"]),
            10 => {
                let part = self.one(&["GETREG", "decode", "DECODE", "encoding", "TODENSE", "nope"]);
                self.push(["PFDEBUG", &part, &one]);
            }
            _ => self.push(["GET", &one]),
        }
    }

    fn has_damaged(&self, sketch: &str) -> bool {
        self.requests.iter().any(|words| words[..] == ["SETRANGE", sketch, "20", "damage"])
    }

    fn of_transaction(&mut self) {
        match (self.is_multi, self.below(10)) {
            (false, 0..6) => {
                self.line("MULTI");
                self.is_multi = true;
            }
            (false, 6..9) => self.line(&format!("WATCH {}", self.keys())),
            (true, 0..5) => {
                self.line("EXEC");
                self.is_multi = false;
            }
            (true, 5) => {
                self.line("DISCARD");
                self.is_multi = false;
            }
            (_, 9) => self.line("UNWATCH"),
            _ => self.line("PING"),
        }
    }

    fn step(&mut self) {
        match self.below(100) {
            0..15 => self.set(),
            15..30 => self.set_otherwise(),
            30..40 => self.count(),
            40..52 => self.move_or_delete(),
            52..62 => self.expire(),
            62..67 if self.keys == Keys::Expire => self.expire_later(),
            62..67 => self.append(),
            67..82 => self.look(),
            82..88 => self.sketch(),
            _ => self.of_transaction(),
        }
    }
}

/// Sends random sequences to Redis and to a server, and compares the replies.
fn check_changes(server: &Server, redis: &Redis, keys: Keys) {
    let seed = env::var("HASHFOLD_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let rounds = env::var("HASHFOLD_TEST_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(60);
    let random = SeededRandom::new(seed);
    for round in 0..rounds {
        let (requests, is_multi) = (Vec::new(), false);
        let mut sequence = Sequence { random: &random, requests, is_multi, keys };
        sequence.line("FLUSHALL");
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

#[test]
fn changes_of_a_map_have_the_replies_of_redis() {
    let Some(redis) = Redis::start_empty() else {
        return println!("skipped: changes on redis-server 7.0, which is not installed");
    };
    let home = Home::new();
    home.make_map("sess");
    let server = home.serve_file(
        "[data.sess]\npath = 'sess'\ndurability = 'everysec'\n[user.default]\nspace = 'sess'\n",
    );
    check_changes(&server, &redis, Keys::Expire);
}

#[test]
fn changes_in_memory_have_the_replies_of_redis() {
    let Some(redis) = Redis::start_empty() else {
        return println!("skipped: changes in memory on redis-server 7.0, which is not installed");
    };
    let home = Home::new();
    let server = home.serve_file(
        "threads = 2\n[data.sess]\nkind = 'memory'\nmemory = '64MiB'\n[user.default]\nspace = 'sess'\n",
    );
    check_changes(&server, &redis, Keys::Stay);
}

/// Mistakes in commands on strings, of which Redis says what they are.
const MISTAKES: &[&str] = &[
    "SET",
    "SET k",
    "SET k v EX",
    "SET k v PXAT",
    "SET k v EX x",
    "SET k v EX 1.5",
    "SET k v EX +1",
    "SET k v EX 01",
    "SET k v PX ",
    "SET k v EX 0",
    "SET k v PX -1",
    "SET k v EXAT 0",
    "SET k v PXAT -9223372036854775808",
    "SET k v EX 9223372036854775807",
    "SET k v EX 9223372036854775",
    "SET k v EX -9223372036854775808",
    "SET k v EXAT 9223372036854775807",
    "SET k v PX 9223372036854775807",
    "SET k v PX 9223372036854775808",
    "SET k v EX 1 PX 1",
    "SET k v EX 1 EX",
    "SET k v EX 1 KEEPTTL",
    "SET k v KEEPTTL EX 1",
    "SET k v EX x PX 1",
    "SET k v EX x NX XX",
    "SET k v NX XX",
    "SET k v XX NX",
    "SET k v PERSIST",
    "SET k v nope",
    "SET k v ",
    "SET k v GET nope",
    "SET k v NX GET EX x",
    "SETNX k",
    "SETNX k v x",
    "SETEX k 1",
    "SETEX k x v",
    "SETEX k 0 v",
    "SETEX k -1 v",
    "SETEX k 9223372036854775807 v",
    "SETEX k 9223372036854775808 v",
    "PSETEX k 0 v",
    "PSETEX k x v",
    "PSETEX k 9223372036854775807 v",
    "PSETEX k 1 v x",
    "GETSET k",
    "GETDEL",
    "GETEX",
    "GETEX k EX",
    "GETEX k EX x",
    "GETEX k EX 0",
    "GETEX k PXAT -1",
    "GETEX k PX 9223372036854775807",
    "GETEX k PERSIST EX 1",
    "GETEX k EX 1 PERSIST",
    "GETEX k NX",
    "GETEX k KEEPTTL",
    "GETEX none EX 0",
    "GETEX none EX x",
    "GETEX none nope",
    "APPEND k",
    "APPEND k a b",
    "SETRANGE k 1",
    "SETRANGE k x v",
    "SETRANGE k -1 v",
    "SETRANGE k 9223372036854775807 v",
    "SETRANGE k 536870911 vv",
    "SETRANGE none -1 ",
    "SETRANGE none 9223372036854775807 ",
    "GETRANGE k",
    "GETRANGE k 0",
    "GETRANGE k 0 1 2",
    "GETRANGE k x 1",
    "GETRANGE k 1 x",
    "GETRANGE k 1.5 2",
    "GETRANGE k +1 2",
    "GETRANGE k  2",
    "GETRANGE k 0 9223372036854775808",
    "GETRANGE none x 1",
    "SUBSTR k",
    "SUBSTR k x 1",
    "SUBSTR k 1 1 1",
    "STRLEN",
    "STRLEN a b",
    "GET",
    "GET a b",
    "MGET",
    "MSET",
    "MSET k",
    "MSET k v x",
    "MSETNX k v x",
    "INCR k",
    "INCR n x",
    "INCRBY n x",
    "INCRBY n 9223372036854775807",
    "INCRBY n 9223372036854775808",
    "DECRBY n -9223372036854775808",
    "DECRBY n x",
    "INCRBYFLOAT n x",
    "INCRBYFLOAT k 1",
    "INCRBYFLOAT n inf",
    "EXPIRE k",
    "EXPIRE k x",
    "EXPIRE k 1 nope",
    "EXPIRE k 1 NX XX",
    "EXPIRE k 9223372036854775807",
    "PEXPIREAT k x",
    "EXPIREAT none x",
    "PERSIST",
    "RENAME k",
    "RENAME none k",
    "RENAMENX none k",
    "COPY k",
    "COPY k k",
    "DEL",
    "EXISTS",
    "TYPE",
    "LCS k",
    "LCS k n LEN IDX",
    "PFADD",
    "PFADD k x",
    "PFCOUNT k",
    "PFMERGE k",
    "PFDEBUG GETREG",
    "PFDEBUG GETREG k",
    "PFDEBUG nope k",
    "PFDEBUG DECODE none",
    "PFDEBUG GETREG k x",
    "PFSELFTEST x",
    "RESTORE k 0",
    "OBJECT ENCODING",
    "OBJECT ENCODING a b",
    "MEMORY USAGE",
    "MEMORY USAGE none SAMPLES",
    "MEMORY USAGE none SAMPLES x",
    "MEMORY USAGE none SAMPLES -1",
    "MEMORY USAGE none nope 1",
];

#[test]
fn mistakes_have_the_replies_of_redis() {
    let Some(redis) = Redis::start_empty() else {
        return println!("skipped: mistakes on redis-server 7.0, which is not installed");
    };
    for kind in ["path = 'sess'", "kind = 'memory'\nmemory = '64MiB'"] {
        let home = Home::new();
        home.make_map("sess");
        let server =
            home.serve_file(&format!("[data.sess]\n{kind}\n[user.default]\nspace = 'sess'\n"));
        let mut others = Vec::new();
        for line in MISTAKES {
            let [got, expected] = [server.addresses()[0], redis.address].map(|address| {
                let lines = ["SET k text", "SET n 7", "DEL none", line, "GET k", "GET n"];
                let words = |line: &str| request(&line.split(' ').collect::<Vec<_>>());
                let bytes: Vec<u8> = lines.into_iter().flat_map(words).collect();
                converse(address, 2, &bytes).escape_ascii().to_string()
            });
            if got != expected {
                others.push(format!("{line}\n got {got}\nredis {expected}"));
            }
        }
        assert!(others.is_empty(), "{kind}: {}", others.join("\n"));
    }
}

/// What one server dumps, the other restores.
#[test]
fn values_are_dumped_and_restored_as_by_redis() {
    let Some(redis) = Redis::start_empty() else {
        return println!("skipped: dumps of redis-server 7.0, which is not installed");
    };
    let home = Home::new();
    home.make_map("sess");
    let server = home.serve(&["sess"]);
    let call = |address, words: &[&[u8]]| {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(*word);
            bytes.extend(b"\r\n");
        }
        let mut reply = converse(address, 2, &bytes);
        reply.truncate(reply.len() - b"+OK\r\n".len());
        reply
    };
    let bulk = |reply: Vec<u8>| {
        let start = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        reply[start..reply.len() - 2].to_vec()
    };
    let addresses = [redis.address, server.addresses()[0]];
    let long = "a long text ".repeat(2000);
    for value in
        ["", "7", "-1", "200", "-70000", "3000000000", "text", "007", &"b".repeat(300), &long]
    {
        let dumps = addresses.map(|address| {
            call(address, &[b"SET", b"k", value.as_bytes()]);
            bulk(call(address, &[b"DUMP", b"k"]))
        });
        // Redis compresses longer ones.
        assert!(value.len() > 20 || dumps[0] == dumps[1], "{value}");
        for (address, dump) in addresses.iter().zip([&dumps[1], &dumps[0]]) {
            for (words, expected) in [
                (
                    &[&b"RESTORE"[..], b"k", b"0", dump][..],
                    "-BUSYKEY Target key name already exists.\r\n",
                ),
                (
                    &[b"RESTORE", b"k", b"x", dump, b"REPLACE"],
                    "-ERR value is not an integer or out of range\r\n",
                ),
                (
                    &[b"RESTORE", b"k", b"-1", dump, b"REPLACE"],
                    "-ERR Invalid TTL value, must be >= 0\r\n",
                ),
                (
                    &[b"RESTORE", b"k", b"0", b"x", b"REPLACE"],
                    "-ERR DUMP payload version or checksum are wrong\r\n",
                ),
                (
                    &[b"RESTORE", b"k", b"0", dump, b"FREQ", b"256"],
                    "-ERR Invalid FREQ value, must be >= 0 and <= 255\r\n",
                ),
                (&[b"RESTORE", b"k", b"1", dump, b"ABSTTL", b"replace"], "+OK\r\n"),
                (&[b"GET", b"k"], "$-1\r\n"),
                (&[b"RESTORE", b"k", b"0", dump], "+OK\r\n"),
                (&[b"GET", b"k"], &format!("${}\r\n{value}\r\n", value.len())),
                (&[b"TTL", b"k"], ":-1\r\n"),
            ] {
                let got = call(*address, words);
                assert_eq!(
                    got.escape_ascii().to_string(),
                    expected.as_bytes().escape_ascii().to_string()
                );
            }
        }
    }
}

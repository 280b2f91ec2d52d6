//! Maps: commands that change keys, transactions, expiry, durability.

use crate::fixture::{Calendar, Client, Home, request};
use hashfold::{
    Env, ErrorKind, Place, Result, Seed,
    io::{BlockFile, Disk, DiskLayer, FileLayer, OsDisk},
    map::{Map, MapOptions},
    sketch::{BottomK, Ghll, Hll, RedisHll},
    table::{TableBuilder, TableOptions},
    work::{Clock as _, SystemClock},
};
use hashfold_rows::{Column, Kind, Schema};
use hashfold_server::Server;
use std::{
    collections::BTreeSet,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

/// Serves an empty map with a line of its entry in the configuration file.
fn serve(home: &Home, line: &str) -> Server {
    home.make_map("sess");
    home.serve_file(&file(line))
}

fn file(line: &str) -> String {
    format!("[data.sess]\npath = 'sess'\n{line}\n[user.default]\nspace = 'sess'\n")
}

#[test]
fn keys_are_set_read_and_deleted() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    client.check("GET a", "nil");
    client.check("SET a 1", "+OK");
    client.check("GET a", "\"1\"");
    client.check("INCRBY a 41", "42");
    client.check("APPEND a !", "3");
    client.check("GETRANGE a 1 -1", "\"2!\"");
    client.check("INCR a", "-ERR value is not an integer or out of range");
    client.check("MSET b 2 c 3", "+OK");
    client.check("MGET a b nope c", "[\"42!\" \"2\" nil \"3\"]");
    client.check("DBSIZE", "3");
    client.check("DEL a b nope", "2");
    client.check("EXISTS a b c c", "2");
    client.check("RENAME c d", "+OK");
    client.check("KEYS *", "[\"d\"]");
    client.check("RANDOMKEY", "\"d\"");
    client.check("FLUSHALL", "+OK");
    client.check("DBSIZE", "0");
    client.check("RANDOMKEY", "nil");
}

#[test]
fn an_argument_may_be_a_large_value() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    client.check("CONFIG GET proto-max-bulk-len", "[\"proto-max-bulk-len\" \"67108864\"]");
    let value = "v".repeat(20 << 20);
    client.check(&format!("SET large {value}"), "+OK");
    client.check("SET small 1", "+OK");
    client.check("STRLEN large", "20971520");
    client.check("GETRANGE large 20971515 -1", "\"vvvvv\"");
    client.check(&format!("SET large {value} GET"), &format!("\"{value}\""));
    let mut other = Client::of(&server);
    other.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$67108865\r\n");
    assert_eq!(other.reply(), "-ERR Protocol error: invalid bulk length");
    client.check("GET small", "\"1\"");
}

#[test]
fn commands_of_newer_versions_compare_values() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    client.check("SET lock mine", "+OK");
    client.check("DELIFEQ lock other", "0");
    client.check("SET lock new IFEQ other", "nil");
    client.check("SET lock new IFEQ other GET", "\"mine\"");
    client.check("SET lock new IFEQ mine PX 100000", "+OK");
    client.check("TTL lock", "100");
    client.check("DELIFEQ lock new", "1");
    client.check("DELIFEQ lock new", "0");
    client.check("SET lock new IFEQ new", "nil");
    client.check("SET lock new IFEQ new NX", "-ERR syntax error");
    client.check("WAIT 1 10", "0");
    client.check("WAITAOF 1 0 1000", "[1 0]");
}

#[test]
fn values_expire() {
    let home = Home::new();
    home.make_map("sess");
    let clock = Arc::new(Calendar::default());
    let env = Env { clock: clock.clone(), ..Env::system() };
    let server = home.start_file_in(&file(""), &env).unwrap();
    let mut client = Client::of(&server);
    let mut other = Client::of(&server);
    client.check("SET a 1 EX 100", "+OK");
    client.check("SET b 2 EXAT 4102444800", "+OK");
    client.check("SET c 3", "+OK");
    client.check("EXPIRE c 200", "1");
    client.check("SET d 4 EXAT 1", "+OK");
    client.check("GET d", "nil");
    client.check("WATCH a", "+OK");
    other.check("WATCH d", "+OK");
    clock.ahead_ms.store(99_000, SeqCst);
    client.check("TTL a", "1");
    clock.ahead_ms.store(100_000, SeqCst);
    client.check("GET a", "nil");
    client.check("TTL a", "-2");
    client.check("MGET a b c", "[nil \"2\" \"3\"]");
    client.check("TTL c", "100");
    client.check("DBSIZE", "2");
    client.check("MULTI", "+OK");
    client.check("PING", "+QUEUED");
    client.check("EXEC", "nil");
    // A key that was absent when it was watched has not changed.
    other.check("MULTI", "+OK");
    other.check("PING", "+QUEUED");
    other.check("EXEC", "[+PONG]");
    client.check("SET a new NX", "+OK");
    client.check("TTL a", "-1");
    client.check("APPEND c 3", "2");
    client.check("TTL c", "100");
    client.check("PERSIST c", "1");
    clock.ahead_ms.store(1_000_000, SeqCst);
    client.check("GET c", "\"33\"");
    client.check("GETEX c EX 10", "\"33\"");
    clock.ahead_ms.store(1_011_000, SeqCst);
    client.check("INCR c", "1");
    client.check("EXPIRETIME b", "4102444800");
}

#[test]
fn a_transaction_is_run_alone_and_only_if_what_it_watches_is_unchanged() {
    let home = Home::new();
    let server = serve(&home, "");
    let (mut client, mut other) = (Client::of(&server), Client::of(&server));
    client.check("SET a 1", "+OK");
    for (change, reply) in [
        ("SET a 1", "+OK"),
        ("DEL a", "1"),
        ("EXPIRE a 100", "0"),
        ("RENAME b a", "+OK"),
        ("FLUSHDB", "+OK"),
        ("SET a 1 EXAT 1", "+OK"),
        ("DEL a", "0"),
    ] {
        other.check("SET b 2", "+OK");
        client.check("WATCH a", "+OK");
        other.check(change, reply);
        client.check("MULTI", "+OK");
        client.check("SET seen 1", "+QUEUED");
        let is_unchanged = reply == "0";
        client.check("EXEC", if is_unchanged { "[+OK]" } else { "nil" });
        client.check("DEL seen", if is_unchanged { "1" } else { "0" });
    }
    client.check("WATCH a", "+OK");
    client.check("SET a own", "+OK");
    client.check("MULTI", "+OK");
    client.check("EXEC", "nil");
    client.check("MULTI", "+OK");
    for command in [
        "SET n 5", "INCR n", "INCR a", "GET n", "KEYS *", "DBSIZE", "FLUSHALL", "SET z 1", "KEYS *",
    ] {
        client.check(command, "+QUEUED");
    }
    let not_a_number = "-ERR value is not an integer or out of range";
    let reply = client.call("EXEC");
    let starts = [format!("[+OK 6 {not_a_number} \"6\" ["), "] 3 +OK +OK [\"z\"]]".into()];
    assert!(reply.starts_with(&starts[0]) && reply.ends_with(&starts[1]), "{reply}");
    client.check("MGET n z", "[nil \"1\"]");
}

/// Two keys always have the same value: readers never see one of them without the other.
#[test]
fn readers_see_whole_transactions() {
    let home = Home::new();
    let server = serve(&home, "durability = 'no'");
    let mut writer = Client::of(&server);
    writer.check("MSET a 0 b 0", "+OK");
    std::thread::scope(|scope| {
        for is_pipeline in [false, true] {
            let address = server.addresses()[0];
            scope.spawn(move || {
                let mut reader = Client::connect(address);
                for _ in 0..300 {
                    if is_pipeline {
                        reader.send(&[request(&["GET", "a"]), request(&["GET", "b"])].concat());
                        let number = |text: String| text.trim_matches('"').parse::<u64>().unwrap();
                        let (a, b) = (number(reader.reply()), number(reader.reply()));
                        assert!(b >= a, "{a} {b}");
                    } else {
                        let both = reader.call("MGET a b");
                        let inner = both.trim_matches(['[', ']']);
                        let (a, b) = inner.split_once(' ').unwrap();
                        assert_eq!(a, b);
                    }
                }
            });
        }
        for i in 1..300 {
            match i % 2 {
                0 => writer.check(&format!("MSET a {i} b {i}"), "+OK"),
                _ => {
                    writer.check("MULTI", "+OK");
                    writer.check("INCR a", "+QUEUED");
                    writer.check("INCR b", "+QUEUED");
                    writer.check("EXEC", &format!("[{i} {i}]"));
                }
            }
        }
    });
}

#[test]
fn a_pipeline_keeps_its_order() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    let lines = [
        "GET a", "SET a 1", "GET a", "PING", "INCR a", "DBSIZE", "MULTI", "GET a", "INCR a",
        "EXEC", "GET a", "WATCH a", "MULTI", "SET a x", "EXEC", "GET a", "DEL a", "GET a",
    ];
    for line in lines {
        client.ask(line);
    }
    let replies: Vec<String> = lines.iter().map(|_| client.reply()).collect();
    let expected = [
        "nil",
        "+OK",
        "\"1\"",
        "+PONG",
        "2",
        "1",
        "+OK",
        "+QUEUED",
        "+QUEUED",
        "[\"2\" 3]",
        "\"3\"",
        "+OK",
        "+OK",
        "+QUEUED",
        "[+OK]",
        "\"x\"",
        "1",
        "nil",
    ];
    assert_eq!(replies, expected);
}

#[test]
fn a_scan_returns_every_key_once_while_others_change() {
    let home = Home::new();
    let server = serve(&home, "durability = 'everysec'");
    let (mut client, mut other) = (Client::of(&server), Client::of(&server));
    for i in 0..1000 {
        client.ask(&format!("SET stays-{i} {i}"));
    }
    (0..1000).for_each(|_| assert_eq!(client.reply(), "+OK"));
    let (mut cursor, mut seen, mut calls) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let reply = client.call(&format!("SCAN {cursor} COUNT 50 MATCH stays-*"));
        let (next, keys) = reply.trim_start_matches('[').split_once(" [").unwrap();
        for key in keys.trim_end_matches(']').split(' ').filter(|key| !key.is_empty()) {
            assert!(seen.insert(key.to_owned()), "{key} comes twice");
        }
        cursor = next.trim_matches('"').to_owned();
        other.check(&format!("SET other-{calls} x"), "+OK");
        calls += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!((seen.len(), calls > 10), (1000, true));
    client.check("DBSIZE", &(1000 + calls).to_string());
}

#[test]
fn changes_are_there_after_a_restart() {
    let home = Home::new();
    for (line, name) in [
        ("", "always"),
        ("durability = 'always'", "always"),
        ("durability = 'everysec'", "everysec"),
        ("durability = 'no'", "no"),
    ] {
        let folder = home.path("sess");
        if !folder.exists() {
            home.make_map("sess");
        }
        let server = home.serve_file(&file(line));
        let mut client = Client::of(&server);
        client.check("FLUSHALL", "+OK");
        client.check(
            "CONFIG GET append*",
            &format!("[\"appendfsync\" {name:?} \"appendonly\" \"yes\"]"),
        );
        client.check("MSET a 1 b 2", "+OK");
        client.check("PEXPIREAT a 4102444800001", "1");
        client.check("DEL b", "1");
        let large = "x".repeat(100_000);
        client.check(&format!("SET large {large}"), "+OK");
        server.stop().unwrap();
        let server = home.serve_file(&file(line));
        let mut client = Client::of(&server);
        client.check("MGET a b", "[\"1\" nil]");
        client.check("PEXPIRETIME a", "4102444800001");
        client.check("GET large", &format!("{large:?}"));
        client.check("DBSIZE", "2");
        server.stop().unwrap();
    }
}

#[test]
fn a_map_that_cannot_be_changed_says_why() {
    let home = Home::new();
    home.make_map("sess");
    let map = Map::open_with(home.path("sess"), MapOptions::new()).unwrap();
    map.put("a", "1").unwrap();
    map.put_expiring("b", "2", 4_102_444_800_123).unwrap();
    let error = home.start_file(&file("")).unwrap_err().to_string();
    assert!(error.contains("sess") && error.contains("open"), "{error}");
    map.close().unwrap();
    let server = home.serve_file(&file("write = false"));
    let mut client = Client::of(&server);
    let refused = |command: &str| {
        format!(
            "-NOPERM User default has no permissions to run the '{command}' command: the map is served for \
             reading only"
        )
    };
    client.check("SET a 2", &refused("set"));
    client.check("MGET a c", "[\"1\" nil]");
    client.check("TTL a", "-1");
    client.check("PEXPIRETIME b", "4102444800123");
    client.check("MULTI", "+OK");
    client.check("GET a", "+QUEUED");
    client.check("DEL a", "+QUEUED");
    client.check("PEXPIRETIME b", "+QUEUED");
    client.check("EXEC", &format!("[\"1\" {} 4102444800123]", refused("del")));
    client.check("MULTI", "+OK");
    client.check("GET b", "+QUEUED");
    client.check("PEXPIRETIME b", "+QUEUED");
    client.check("EXEC", "[\"2\" 4102444800123]");
    server.stop().unwrap();
    let error = home.start_file(&format!("cluster = 'emulated'\n{}", file(""))).unwrap_err();
    assert!(error.to_string().contains("maps are not served in a cluster"), "{error}");
    let server = home.serve(&["table"]);
    let mut client = Client::of(&server);
    let reply = client.call("SET a 1");
    assert!(reply.starts_with("-NOPERM ") && reply.ends_with("see `hashfold update`"), "{reply}");
}

#[test]
fn a_user_changes_several_maps_by_their_names() {
    let home = Home::new();
    home.make_map("sess");
    home.make_map("cart");
    let server = home.serve_file(
        "[data.sess]\npath = 'sess'\n[data.cart]\npath = 'cart'\n[data.people]\npath = 'people'\n\
         [user.default]\nspaces = ['sess', 'cart', 'people']\n",
    );
    let mut client = Client::of(&server);
    client.check("SET sess:{a} 1", "+OK");
    client.check("INCR cart:{a}", "1");
    client.check("INCR cart:{a}", "2");
    client.check("GET sess:{a}", "\"1\"");
    client.check("MGET cart:{a} cart:{b}", "[\"2\" nil]");
    let apart = "-ERR keys of one command must be in one data set";
    client.check("MSET sess:{a} 1 cart:{a} 2", apart);
    client.check("WATCH sess:{a} cart:{a}", apart);
    client.check("RENAME sess:{a} sess:{b}", "+OK");
    client.check("WATCH sess:{b}", "+OK");
    client.check("MULTI", "+OK");
    client.check("INCR sess:{b}", "+QUEUED");
    client.check("GET people:{key-1}", "+QUEUED");
    client.check("EXEC", "[2 \"value 1 of version 1\"]");
    client.check("MULTI", "+OK");
    client.check("INCR sess:{b}", "+QUEUED");
    client.check("INCR cart:{b}", "+QUEUED");
    client.check("EXEC", "-ERR the keys of a transaction must be in one map");
    client.check("GET sess:{b}", "\"2\"");
}

#[test]
fn a_connection_watches_all_keys_of_a_command_or_none() {
    let home = Home::new();
    let server = serve(&home, "");
    let (mut client, mut other) = (Client::of(&server), Client::of(&server));
    let keys = |from: usize, to: usize| {
        (from..to).map(|i| format!("k{i}")).collect::<Vec<String>>().join(" ")
    };
    client.check(&format!("WATCH {}", keys(0, 900)), "+OK");
    client.check(&format!("WATCH {}", keys(0, 900)), "+OK");
    client.check(
        &format!("WATCH {}", keys(800, 1001)),
        "-ERR a connection watches at most 1000 keys",
    );
    other.check("SET k950 x", "+OK");
    client.check("MULTI", "+OK");
    client.check("GET k950", "+QUEUED");
    client.check("EXEC", "[\"x\"]");
    client.check(&format!("WATCH {}", keys(0, 1000)), "+OK");
    other.check("SET k950 y", "+OK");
    client.check("MULTI", "+OK");
    client.check("EXEC", "nil");
}

#[test]
fn limits_are_named_and_change_nothing() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    let long = "k".repeat(1025);
    client.check(&format!("SET {long} 1"), "-ERR a key of a map has at most 1024 bytes");
    client.check(&format!("MSET a 1 {long} 1"), "-ERR a key of a map has at most 1024 bytes");
    client.check(&format!("GET {long}"), "nil");
    client.check(&format!("DEL {long}"), "0");
    client.check(
        "SETRANGE a 67108864 x",
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
    );
    let many: Vec<String> = (0..2000).map(|i| format!("{i} {}", "v".repeat(500))).collect();
    // More than the log takes in one piece.
    client.check(&format!("MSET {}", many.join(" ")), "+OK");
    client.check("DBSIZE", "2000");
    client.check("MULTI", "+OK");
    client.check("FLUSHDB", "+QUEUED");
    for part in many.chunks(500) {
        client.check(&format!("MSET {}", part.join(" ")), "+QUEUED");
    }
    let reply = client.call("EXEC");
    assert!(!reply.starts_with('-'), "{reply}");
    client.check("DBSIZE", "2000");
    client.check("GET 1999", &format!("\"{}\"", "v".repeat(500)));
    client.check("FLUSHDB", "+OK");
    client.check("MULTI", "+OK");
    client.check("SETRANGE a 40000000 x", "+QUEUED");
    client.check("SETRANGE b 40000000 x", "+QUEUED");
    let reply = client.call("EXEC");
    assert!(
        reply.starts_with("-ERR the changes of one command or transaction have at most 65 MiB"),
        "{reply}"
    );
    client.check("DBSIZE", "0");
    for part in many.chunks(500) {
        client.ask(&format!("MSET {}", part.join(" ")));
    }
    (0..4).for_each(|_| assert_eq!(client.reply(), "+OK"));
    client.check("DBSIZE", "2000");
}

#[test]
fn filters_are_keys_of_another_type() {
    let home = Home::new();
    home.make_map("sess");
    let server = home.serve_file(
        "filters.path = 'made'\n[data.sess]\npath = 'sess'\n[user.default]\nspace = 'sess'\nmakes-filters = true\n",
    );
    let mut client = Client::of(&server);
    client.check("BF.ADD f x", "1");
    client.check("APPEND f 1", WRONG_TYPE);
    client.check("GET f", WRONG_TYPE);
    client.check("MGET f", "[nil]");
    client.check("TYPE f", "+MBbloom--");
    client.check("SET s 1", "+OK");
    client.check("BF.ADD s x", WRONG_TYPE);
    client.check("KEYS *", "[\"f\" \"s\"]");
    client.check("DBSIZE", "2");
    client.check("WATCH f", "+OK");
    client.check("BF.ADD f y", "1");
    client.check("MULTI", "+OK");
    client.check("SET s 2", "+QUEUED");
    client.check("EXEC", "nil");
    client.check("DUMP f", "-ERR filters are dumped with BF.SCANDUMP or CF.SCANDUMP");
}

#[test]
fn a_map_is_described_where_other_data_sets_are() {
    let home = Home::new();
    let server = serve(&home, "durability = 'everysec'");
    let mut client = Client::of(&server);
    client.check("MSET a 1 b 2", "+OK");
    let info = client.call("INFO");
    for line in [
        "aof_enabled:1",
        "data_sess:kind=map,version=0,entries=2",
        "map_sess:durability=everysec,seq=2",
    ] {
        assert!(info.contains(line), "{line}: {info}");
    }
}

/// What happens before a file is written.
pub(crate) trait Trouble: fmt::Debug + Send + Sync + 'static {
    fn before_write(&self, file: &Place) -> Result<()>;

    fn before_allocation(&self) -> Result<()> {
        Ok(())
    }
}

/// A disk with trouble.
#[derive(Debug, Default)]
pub(crate) struct TroubleDisk<T>(pub(crate) Arc<T>);

impl<T> Clone for TroubleDisk<T> {
    fn clone(&self) -> TroubleDisk<T> {
        TroubleDisk(self.0.clone())
    }
}

/// A disk that has no space while a flag is set.
type FullDisk = TroubleDisk<AtomicBool>;

impl Trouble for AtomicBool {
    fn before_write(&self, _: &Place) -> Result<()> {
        self.before_allocation()
    }

    fn before_allocation(&self) -> Result<()> {
        if !self.load(SeqCst) {
            return Ok(());
        }
        let source = Arc::new(io::Error::from(io::ErrorKind::StorageFull));
        Err(ErrorKind::Io { action: "write", source }.into())
    }
}

/// A disk that has no space while a flag is set, but that which the segments of logs have taken.
#[derive(Debug, Default)]
struct FullButSegments(AtomicBool);

impl Trouble for FullButSegments {
    fn before_write(&self, file: &Place) -> Result<()> {
        if file.to_string().contains("wal-") { Ok(()) } else { self.0.before_allocation() }
    }

    fn before_allocation(&self) -> Result<()> {
        self.0.before_allocation()
    }
}

/// A disk on which writes of a map's data file wait while a flag is set, or 10 seconds.
pub(crate) type SlowDisk = TroubleDisk<Slow>;

#[derive(Debug, Default)]
pub(crate) struct Slow {
    pub(crate) is_slow: AtomicBool,
    /// Number of writes that wait.
    pub(crate) waiting: AtomicU64,
}

impl Trouble for Slow {
    fn before_write(&self, file: &Place) -> Result<()> {
        if !file.to_string().contains("map-data") {
            return Ok(());
        }
        self.waiting.fetch_add(1, SeqCst);
        for _ in 0..1000 {
            if self.is_slow.load(SeqCst) {
                SystemClock.sleep(Duration::from_millis(10));
            }
        }
        self.waiting.fetch_sub(1, SeqCst);
        Ok(())
    }
}

impl<T: Trouble> DiskLayer for TroubleDisk<T> {
    fn below(&self) -> &dyn Disk {
        &OsDisk
    }

    fn over_opened(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        Arc::new(TroubleFile { file, trouble: self.0.clone() })
    }
}

#[derive(Debug)]
struct TroubleFile<T> {
    file: Arc<dyn BlockFile>,
    trouble: Arc<T>,
}

impl<T: Trouble> FileLayer for TroubleFile<T> {
    fn below(&self) -> &dyn BlockFile {
        &*self.file
    }

    fn before_write(&self, _: u64, _: &[u8]) -> Result<()> {
        self.trouble.before_write(self.file.place())
    }

    fn before_allocate(&self, _: u64) -> Result<()> {
        self.trouble.before_allocation()
    }
}

#[test]
fn lookups_do_not_wait_for_large_values_of_a_transaction() {
    let home = Home::new();
    home.make_map("sess");
    let disk = SlowDisk::default();
    let env = Env { disk: Arc::new(disk.clone()), ..Env::system() };
    let config = format!("threads = 2\n{}", file(""));
    let server = home.start_file_in(&config, &env).unwrap();
    let mut writer = Client::of(&server);
    writer.check("MSET a 1 b 1", "+OK");
    disk.0.is_slow.store(true, SeqCst);
    writer.check("MULTI", "+OK");
    let large = "v".repeat(2000);
    writer.check(&format!("MSET a {large} b {large}"), "+QUEUED");
    writer.ask("EXEC");
    while disk.0.waiting.load(SeqCst) == 0 {
        SystemClock.sleep(Duration::from_millis(1));
    }
    // Some of them have the network thread of the writer.
    for _ in 0..8 {
        let mut reader = Client::of(&server);
        reader.check("GET a", "\"1\"");
        reader.send(&[request(&["GET", "a"]), request(&["GET", "b"])].concat());
        assert_eq!((reader.reply(), reader.reply()), ("\"1\"".into(), "\"1\"".into()));
    }
    assert_eq!(disk.0.waiting.load(SeqCst), 1);
    disk.0.is_slow.store(false, SeqCst);
    assert_eq!(writer.reply(), "[+OK]");
    let reply = Client::of(&server).call("MGET a b");
    assert_eq!(reply, format!("[\"{large}\" \"{large}\"]"));
}

#[test]
fn changes_that_cannot_be_written_are_refused_and_reads_go_on() {
    let home = Home::new();
    home.make_map("sess");
    let disk = FullDisk::default();
    let env = Env { disk: Arc::new(disk.clone()), ..Env::system() };
    let server = home.start_file_in(&file(""), &env).unwrap();
    let mut client = Client::of(&server);
    client.check("MSET a 1 b 2", "+OK");
    disk.0.store(true, SeqCst);
    for _ in 0..2 {
        let reply = client.call("SET a 3");
        assert!(reply.starts_with("-MISCONF changes cannot be written: "), "{reply}");
        client.check("MULTI", "+OK");
        client.check("INCR a", "+QUEUED");
        let reply = client.call("EXEC");
        assert!(reply.starts_with("-MISCONF changes cannot be written: "), "{reply}");
        client.check("GET b", "\"2\"");
    }
    disk.0.store(false, SeqCst);
    // The log may have failed for good.
    let _ = server.stop();
    let server = home.serve_file(&file(""));
    let mut client = Client::of(&server);
    client.check("GET b", "\"2\"");
    client.check("SET a 4", "+OK");
    client.check("GET a", "\"4\"");
}

#[test]
fn changes_go_on_when_there_is_space_for_a_log_again() {
    let home = Home::new();
    home.make_map("sess");
    let disk = FullDisk::default();
    let env = Env { disk: Arc::new(disk.clone()), ..Env::system() };
    // The first segment of the log is made with the first change: without space, nothing is changed.
    disk.0.store(true, SeqCst);
    let server = home.start_file_in(&file("durability = 'no'"), &env).unwrap();
    let mut client = Client::of(&server);
    for command in ["SET a 1", "SET a 2"] {
        let reply = client.call(command);
        assert!(reply.starts_with("-MISCONF changes cannot be written: "), "{reply}");
    }
    client.check("WAITAOF 1 0 0", "[1 0]");
    client.check("EXISTS a", "0");
    disk.0.store(false, SeqCst);
    client.wait_for("SET a 3", &|reply| reply == "+OK");
    client.check("WAITAOF 1 0 0", "[1 0]");
    client.check("GET a", "\"3\"");
}

#[test]
fn a_transaction_with_flushall_is_made_as_a_whole_or_not_at_all() {
    let home = Home::new();
    home.make_map("sess");
    let disk = TroubleDisk::<FullButSegments>::default();
    let env = Env { disk: Arc::new(disk.clone()), ..Env::system() };
    let server = home.start_file_in(&file("durability = 'no'"), &env).unwrap();
    let mut client = Client::of(&server);
    client.check("MSET a 1 b 2", "+OK");
    disk.0.0.store(true, SeqCst);
    client.check("MULTI", "+OK");
    client.check("FLUSHALL", "+QUEUED");
    // A large value is written at once, to blocks of its own.
    client.check(&format!("SET a {}", "v".repeat(2000)), "+QUEUED");
    let reply = client.call("EXEC");
    assert!(reply.starts_with("-MISCONF changes cannot be written: "), "{reply}");
    client.check("MGET a b", "[\"1\" \"2\"]");
    // The deletion needs no space, and a checkpoint after it that fails does not undo it.
    client.check("FLUSHALL", "+OK");
    client.check("DBSIZE", "0");
    disk.0.0.store(false, SeqCst);
    client.check("MULTI", "+OK");
    client.check("FLUSHALL", "+QUEUED");
    client.check("SET c 3", "+QUEUED");
    client.check("EXEC", "[+OK +OK]");
    client.check("KEYS *", "[\"c\"]");
}

#[test]
fn sketches_say_how_many_keys_are_in_both_and_how_sure_that_is() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    client.check("PFSELFTEST", "+OK");
    for (key, first) in [("a", 0), ("b", 2000)] {
        for start in (first..first + 3000).step_by(500) {
            let elements: Vec<String> = (start..start + 500).map(|i: u32| i.to_string()).collect();
            client.check(&format!("PFADD {key} {}", elements.join(" ")), "1");
        }
    }
    client.check("SET text x", "+OK");
    let figures = |reply: String, method: &str| -> [f64; 3] {
        let words: Vec<&str> = reply.trim_matches(['[', ']']).split(' ').collect();
        assert_eq!([words[0], words[2], words[4]], ["\"count\"", "\"low\"", "\"high\""], "{reply}");
        assert_eq!(words[9], format!("\"{method}\""), "{reply}");
        [1, 3, 5].map(|i| words[i].parse().unwrap())
    };
    let [count, low, high] = figures(client.call("HASHFOLD.SKETCH.COUNT a b"), "hyperloglog");
    assert!((count - 5000.0).abs() < 200.0 && low < count && count < high, "{count}");
    let method = "maximum-likelihood";
    let [count, low, high] = figures(client.call("HASHFOLD.SKETCH.INTERSECT a b"), method);
    assert!((count - 1000.0).abs() < 200.0 && low < count && count < high, "{count}");
    let surer = client.call("HASHFOLD.SKETCH.INTERSECT a b confidence 0.999");
    let [_, lower, higher] = figures(surer, method);
    assert!(lower < low && high < higher, "{lower} {higher}");
    let [count, ..] = figures(client.call("HASHFOLD.SKETCH.INTERSECT a none"), method);
    assert_eq!(count, 0.0);
    for (command, error) in [
        ("HASHFOLD.SKETCH.INTERSECT a b CONFIDENCE 1", "-ERR CONFIDENCE must be between 0 and 1"),
        ("HASHFOLD.SKETCH.INTERSECT a b c", "-ERR syntax error"),
        ("HASHFOLD.SKETCH.COUNT text", "-WRONGTYPE Key is not a valid HyperLogLog"),
        ("PFADD text x", "-WRONGTYPE Key is not a valid HyperLogLog"),
    ] {
        let reply = client.call(command);
        assert!(reply.starts_with(error), "{command}: {reply}");
    }
}

/// Returns a sketch of the keys from a number on, in the form of Hashfold.
fn sketch_of(precision: u8, first: u32, count: u32) -> Hll {
    let mut sketch = Hll::new(precision).unwrap();
    (first..first + count).for_each(|i| _ = sketch.insert(i.to_string().as_bytes()));
    sketch
}

/// Tables of groups, as `hashfold sketch add --by` makes them, and maps that are served for reading only.
#[test]
fn sketches_are_read_in_all_data_sets() {
    let home = Home::new();
    let column = Column { name: "sketch".into(), kind: Kind::Binary };
    let schema = Schema::new("country", vec![column]).to_json();
    let options = TableOptions::new().attributes(vec![(Schema::ATTRIBUTE.to_owned(), schema)]);
    let mut table = TableBuilder::with(home.path("visits"), options).unwrap();
    let mut redis = RedisHll::new();
    (0..3000_u32).for_each(|i| _ = redis.insert(i.to_string().as_bytes()).unwrap());
    for (name, bytes) in [
        ("fr", sketch_of(14, 0, 3000).to_bytes()),
        ("it", sketch_of(12, 2000, 3000).to_bytes()),
        ("few", sketch_of(14, 0, 3).to_bytes()),
        ("redis", redis.as_bytes().to_vec()),
        ("text", b"x".to_vec()),
        ("damaged", b"HFHL, and no more".to_vec()),
    ] {
        table.push(name, bytes).unwrap();
    }
    table.finish().unwrap();
    home.make_map("sess");
    let map = Map::open_with(home.path("sess"), MapOptions::new()).unwrap();
    map.put("redis", redis.as_bytes()).unwrap();
    map.put("few", sketch_of(14, 0, 3).to_bytes()).unwrap();
    map.close().unwrap();
    let entry = |write: bool| {
        format!(
            "[data.visits]\npath = 'visits'\n[data.sess]\npath = 'sess'\nwrite = {write}\n[user.default]\n\
             spaces = ['visits', 'sess']\n"
        )
    };
    let known = redis.count().unwrap().to_string();
    for write in [false, true] {
        let server = home.serve_file(&entry(write));
        let mut client = Client::of(&server);
        for name in ["visits", "sess"] {
            client.check(&format!("PFCOUNT {name}:{{few}}"), "3");
            client.check(&format!("PFCOUNT {name}:{{redis}}"), &known);
            client.check(&format!("PFCOUNT {name}:{{redis}} {name}:{{none}}"), &known);
            client.check(&format!("PFCOUNT {name}:{{none}}"), "0");
            let mixed = client.call(&format!("PFCOUNT {name}:{{few}} {name}:{{redis}}"));
            assert!(
                mixed.starts_with("-ERR hash function of a sketch is MurmurHash64A"),
                "{mixed}"
            );
        }
        let mut number = |command: &str| -> f64 {
            let reply = client.call(command);
            let first = reply.split(' ').nth(1).unwrap_or(&reply);
            first.parse().unwrap_or_else(|_| panic!("{command}: {reply}"))
        };
        let both = number("HASHFOLD.SKETCH.INTERSECT visits:{fr} visits:{it}");
        assert!((both - 1000.0).abs() < 300.0, "{both}");
        assert_eq!(number("HASHFOLD.SKETCH.INTERSECT visits:{it} visits:{none}"), 0.0);
        let either = number("HASHFOLD.SKETCH.COUNT visits:{fr} visits:{it} visits:{none}");
        assert!((either - 5000.0).abs() < 300.0, "{either}");
        assert_eq!(number("HASHFOLD.SKETCH.COUNT sess:{few}"), 3.0);
        let no_sketch = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
        client.check("PFCOUNT visits:{text}", no_sketch);
        client.check("PFCOUNT visits:{damaged}", "-INVALIDOBJ Corrupted HLL object detected");
        client.check("HASHFOLD.SKETCH.COUNT visits:{fr} visits:{text}", no_sketch);
        let refused = client.call("PFADD visits:{fr} x");
        assert!(refused.starts_with("-NOPERM "), "{refused}");
        client.check("MULTI", "+OK");
        client.check("PFCOUNT sess:{redis}", "+QUEUED");
        client.check("PFCOUNT visits:{few}", "+QUEUED");
        client.check("PFCOUNT sess:{few}", "+QUEUED");
        client.check("EXEC", &format!("[{known} 3 3]"));
        match client.call("PFADD sess:{redis} x") {
            reply if write => assert_eq!(reply, "1"),
            reply => assert!(reply.starts_with("-NOPERM "), "{reply}"),
        }
        server.stop().unwrap();
    }
}

/// Returns a sketch with registers of some bits, and one of the smallest hashes, both as bytes.
fn larger_sketches(precision: u8, bits: u8, keys: std::ops::Range<u32>) -> [Vec<u8>; 2] {
    let mut ghll = Ghll::new(precision, bits).unwrap();
    let mut smallest = BottomK::new(4096, Seed(0)).unwrap();
    for key in keys.map(|i| i.to_string()) {
        ghll.insert(key.as_bytes());
        smallest.insert(key.as_bytes());
    }
    [ghll.to_bytes(), smallest.to_bytes()]
}

#[test]
fn sketches_of_larger_registers_and_of_the_smallest_hashes_are_counted_and_compared() {
    let home = Home::new();
    home.make_map("sess");
    let map = Map::open_with(home.path("sess"), MapOptions::new()).unwrap();
    let ([g1, k1], [g2, k2]) =
        (larger_sketches(14, 12, 0..3000), larger_sketches(12, 12, 2000..5000));
    let [narrow, _] = larger_sketches(14, 8, 0..3000);
    let huge = BottomK::new(1 << 21, Seed(0)).unwrap().to_bytes();
    let damaged = b"HFBK, and no more than this".to_vec();
    let hll = sketch_of(14, 0, 3000).to_bytes();
    for (name, bytes) in [
        ("g1", g1),
        ("g2", g2),
        ("k1", k1),
        ("k2", k2),
        ("narrow", narrow),
        ("huge", huge),
        ("damaged", damaged),
        ("hll", hll),
    ] {
        map.put(name, bytes).unwrap();
    }
    map.close().unwrap();
    for write in [false, true] {
        let server = home.serve_file(&file(&format!("write = {write}")));
        let mut client = Client::of(&server);
        let mut check = |command: &str, truth: f64, method: &str| {
            let reply = client.call(&format!("HASHFOLD.SKETCH.{command}"));
            let words: Vec<&str> = reply.trim_matches(['[', ']']).split(' ').collect();
            let [count, low, high] = [1, 3, 5].map(|i| words[i].parse::<f64>().unwrap());
            assert!((count - truth).abs() <= 200.0 && low <= count && count <= high, "{reply}");
            assert_eq!(words[9], format!("\"{method}\""), "{reply}");
            [count, low, high]
        };
        check("COUNT g1", 3000.0, "generalized-hyperloglog");
        check("COUNT g1 g2 none", 5000.0, "generalized-hyperloglog");
        check("INTERSECT g1 g2", 1000.0, "maximum-likelihood");
        check("INTERSECT none g2", 0.0, "maximum-likelihood");
        check("COUNT k1 k2", 5000.0, "bottom-k");
        // All hashes are there.
        assert_eq!(check("COUNT k1 none", 3000.0, "bottom-k"), [3000.0; 3]);
        assert_eq!(check("INTERSECT k1 k2 CONFIDENCE 0.5", 1000.0, "bottom-k"), [1000.0; 3]);
        assert_eq!(check("INTERSECT k1 none", 0.0, "bottom-k"), [0.0; 3]);
        client.check("PFCOUNT k1", "3000");
        let counted: f64 = client.call("PFCOUNT g1 g2").parse().unwrap();
        assert!((counted - 5000.0).abs() <= 200.0, "{counted}");
        for (command, error) in [
            ("HASHFOLD.SKETCH.COUNT g1 k1", "-ERR kind of a sketch is bottom-k, expected GHLL"),
            ("HASHFOLD.SKETCH.INTERSECT hll k1", "-ERR kind of a sketch is bottom-k, expected HLL"),
            ("HASHFOLD.SKETCH.INTERSECT k1 hll", "-ERR kind of a sketch is HLL, expected bottom-k"),
            ("PFCOUNT hll g1", "-ERR kind of a sketch is GHLL, expected HLL"),
            (
                "HASHFOLD.SKETCH.INTERSECT g1 narrow",
                "-ERR bits of a register of a sketch is 8, expected 12",
            ),
            (
                "HASHFOLD.SKETCH.COUNT huge",
                "-ERR the sketch has room for 2097152 hashes, up to 1048576",
            ),
            ("HASHFOLD.SKETCH.COUNT damaged", "-INVALIDOBJ Corrupted HLL object detected"),
        ] {
            let reply = client.call(command);
            assert!(reply.starts_with(error), "{command}: {reply}");
        }
        server.stop().unwrap();
    }
}

/// The memory of one sketch is enough for them: each key is united with those before it.
#[test]
fn sketches_of_many_keys_are_united_at_the_lowest_precision_in_any_order() {
    let home = Home::new();
    home.make_map("sess");
    let map = Map::open_with(home.path("sess"), MapOptions::new()).unwrap();
    let sketches = [
        ("fine", sketch_of(18, 0, 3000)),
        ("coarse", sketch_of(12, 2000, 3000)),
        ("full", sketch_of(14, 0, 40_000)),
    ];
    for (name, sketch) in &sketches {
        map.put(name, sketch.to_bytes()).unwrap();
    }
    map.close().unwrap();
    let union = |names: &str| {
        let named = sketches.iter().filter(|(name, _)| names.contains(name));
        let all: Vec<&Hll> = named.map(|(_, sketch)| sketch).collect();
        let lowest = all.iter().map(|sketch| sketch.precision()).min().unwrap();
        let mut union = Hll::new(lowest).unwrap();
        all.iter().for_each(|sketch| union.union(&sketch.downsize(lowest).unwrap()).unwrap());
        union.estimate().round().to_string()
    };
    for write in [false, true] {
        let server = home.serve_file(&file(&format!("write = {write}")));
        let mut client = Client::of(&server);
        for names in
            ["fine", "fine coarse", "coarse none fine", "none full fine", "fine full coarse"]
        {
            let expected = union(names);
            client.check(&format!("PFCOUNT {names}"), &expected);
            let counted = client.call(&format!("HASHFOLD.SKETCH.COUNT {names}"));
            assert!(counted.starts_with(&format!("[\"count\" {expected} ")), "{names}: {counted}");
        }
        let many = vec!["fine"; 2000].join(" ");
        client.check(&format!("PFCOUNT {many} coarse {many}"), &union("fine coarse"));
        for (one, other) in [("fine", "coarse"), ("coarse", "fine")] {
            let both = client.call(&format!("HASHFOLD.SKETCH.INTERSECT {one} {other}"));
            let count: f64 = both.split(' ').nth(1).unwrap().parse().unwrap();
            assert!((count - 1000.0).abs() < 300.0, "{both}");
        }
        server.stop().unwrap();
    }
}

#[test]
fn error_replies_of_lookups_are_counted() {
    let home = Home::new();
    home.make_map("sess");
    let map = Map::open_with(home.path("sess"), MapOptions::new()).unwrap();
    map.put("text", "x").unwrap();
    map.close().unwrap();
    let server = home.serve_file(&file("write = false"));
    let mut client = Client::of(&server);
    client.check("GET text", "\"x\"");
    for _ in 0..3 {
        let no_sketch = client.call("PFCOUNT text");
        assert!(no_sketch.starts_with("-WRONGTYPE "), "{no_sketch}");
    }
    // Also if the client wants no reply.
    client.send(b"CLIENT REPLY SKIP\r\nPFCOUNT text\r\n");
    client.check("PFCOUNT none", "0");
    let errors = client.call("INFO errorstats");
    assert!(errors.contains("errorstat_WRONGTYPE:count=4"), "{errors}");
    let stats = client.call("INFO commandstats");
    let (_, of_count) = stats.split_once("cmdstat_pfcount:calls=5,").unwrap();
    let (of_count, _) = of_count.split_once("\\r").unwrap();
    assert!(of_count.ends_with("failed_calls=4"), "{stats}");
    let (_, of_get) = stats.split_once("cmdstat_get:calls=1,").unwrap();
    assert!(of_get.split_once("\\r").unwrap().0.ends_with("failed_calls=0"), "{stats}");
}

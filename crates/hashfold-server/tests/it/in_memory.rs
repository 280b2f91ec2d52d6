//! Data sets in memory: changes of one key and of several, transactions, the limit of memory, loading and saving.

use crate::{
    fixture::{Client, ENTRIES, Home, key, request, value},
    http::get,
};
use hashfold::{Env, Store, TableBuilder, table::TableOptions};
use hashfold_rows::{Column, Kind, Schema, Value};
use hashfold_server::{Config, DataConfig, Server, StartError};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    ops::Range,
    os::unix::fs::symlink,
    path::Path,
    time::Duration,
};

const OUT_OF_MEMORY: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

/// The entry of a data set in memory, with some more lines, and two network threads.
fn file(memory: &str, lines: &str) -> String {
    format!(
        "threads = 2\n[data.clicks]\nkind = 'memory'\nmemory = '{memory}'\n{lines}\n\
         [user.default]\nspace = 'clicks'\n"
    )
}

fn serve(home: &Home, lines: &str) -> Server {
    home.serve_file(&file("64MiB", lines))
}

/// Sends requests together, and checks their replies.
#[track_caller]
fn check_pipeline(client: &mut Client, calls: &[(&str, &str)]) {
    let words = |line: &str| request(&line.split(' ').collect::<Vec<_>>());
    client.send(&calls.iter().flat_map(|(line, _)| words(line)).collect::<Vec<u8>>());
    for (line, expected) in calls {
        assert_eq!(client.reply(), *expected, "{line}");
    }
}

#[test]
fn keys_are_set_appended_to_read_and_deleted() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    client.check("GET a", "nil");
    client.check("SET a 1", "+OK");
    client.check("GET a", "\"1\"");
    client.check("APPEND a 23", "3");
    client.check("APPEND b x", "1");
    client.check("STRLEN a", "3");
    client.check("STRLEN none", "0");
    client.check("GETRANGE a 1 -1", "\"23\"");
    client.check("GETRANGE a -2 1", "\"2\"");
    client.check("GETRANGE a x 1", "-ERR value is not an integer or out of range");
    client.check("MGET a none b", "[\"123\" nil \"x\"]");
    client.check("EXISTS a b b none", "3");
    client.check("DBSIZE", "2");
    client.check("TYPE a", "+string");
    client.check("TTL a", "-1");
    client.check("DEL a none", "1");
    client.check("UNLINK b", "1");
    client.check("DEL b", "0");
    client.check("DBSIZE", "0");
    client.check("APPEND a", "-ERR wrong number of arguments for 'append' command");
    client.check("SET a", "-ERR wrong number of arguments for 'set' command");
}

#[test]
fn set_has_its_options_but_those_of_expiry() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    client.check("SET a 1 XX", "nil");
    client.check("SET a 1 NX", "+OK");
    client.check("SET a 2 NX", "nil");
    client.check("SET a 2 XX GET", "\"1\"");
    client.check("SET a 3 IFEQ 1", "nil");
    client.check("SET a 3 IFEQ 2 KEEPTTL", "+OK");
    client.check("SET a 4 NX XX", "-ERR syntax error");
    let refused = "-ERR keys of a data set in memory do not expire";
    for line in ["SET a 4 EX 100", "SET a 4 PXAT 9999999999999", "SETEX a 100 4", "EXPIRE a 100"] {
        client.check(line, refused);
    }
    client.check("GETEX a PX 100000", refused);
    client.check("GET a", "\"3\"");
    client.check("GETEX a", "\"3\"");
    client.check("PERSIST a", "0");
    client.check("EXPIRE a -1", "1");
    client.check("EXISTS a", "0");
}

#[test]
fn the_other_commands_for_strings_work_too() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    client.check("MSET a 1 b 2", "+OK");
    client.check("MSETNX b 3 c 3", "0");
    client.check("INCRBY a 41", "42");
    client.check("INCRBYFLOAT a 0.5", "\"42.5\"");
    client.check("INCR a", "-ERR value is not an integer or out of range");
    client.check("SETRANGE b 3 x", "4");
    client.check("GET b", "\"2\\0\\0x\"");
    client.check("GETSET b 5", "\"2\\0\\0x\"");
    client.check("GETDEL b", "\"5\"");
    client.check("RENAME a c", "+OK");
    client.check("RENAME a c", "-ERR no such key");
    client.check("COPY c d", "1");
    client.check("KEYS *", &client_keys(&mut Client::of(&server)));
    client.check("PFADD h x y", "1");
    client.check("PFCOUNT h", "2");
    client.check("FLUSHALL", "+OK");
    client.check("DBSIZE", "0");
    client.check("RANDOMKEY", "nil");
    client.check("SET only 1", "+OK");
    client.check("RANDOMKEY", "\"only\"");
}

/// Also after another lookup of the same transaction.
#[test]
fn a_sketch_keeps_its_count_when_it_is_counted() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    for (key, is_in_transaction) in [("a", false), ("b", true)] {
        client.check(&format!("PFADD {key} x y"), "1");
        client.check(&format!("GETRANGE {key} 8 8"), r#""\0""#);
        if is_in_transaction {
            client.check("MULTI", "+OK");
            client.check("GET none", "+QUEUED");
            client.check(&format!("PFCOUNT {key}"), "+QUEUED");
            client.check("EXEC", "[nil 2]");
        } else {
            client.check(&format!("PFCOUNT {key}"), "2");
        }
        client.check(&format!("GETRANGE {key} 8 8"), r#""\u{2}""#);
    }
}

/// Returns the reply to `KEYS` that a `SCAN` of all keys has.
fn client_keys(client: &mut Client) -> String {
    let reply = client.call("SCAN 0 COUNT 1000");
    reply.strip_prefix("[\"0\" ").and_then(|rest| rest.strip_suffix(']')).unwrap().to_owned()
}

#[test]
fn a_pipeline_is_answered_in_its_order() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    check_pipeline(
        &mut client,
        &[
            ("APPEND a 1", "1"),
            ("APPEND b 1", "1"),
            ("GET a", "\"1\""),
            ("APPEND a 23", "3"),
            ("SET b 7", "+OK"),
            ("INCR b", "8"),
            ("APPEND b 9", "2"),
            ("MGET a b", "[\"123\" \"89\"]"),
            ("DEL a", "1"),
            ("APPEND a x", "1"),
            ("SET", "-ERR wrong number of arguments for 'set' command"),
            ("DEL a b", "2"),
            ("DBSIZE", "0"),
            ("PING", "+PONG"),
        ],
    );
    // More than a batch, so that many are made together.
    let all: Vec<u8> =
        (0..5000).flat_map(|i| request(&["APPEND", &format!("k{}", i % 7), "0123"])).collect();
    client.send(&all);
    (0..5000).for_each(|i| assert_eq!(client.reply(), (4 * (i / 7 + 1)).to_string(), "{i}"));
    client.check("DBSIZE", "7");
    assert!(client.call("INFO commandstats").contains("cmdstat_append:calls=5005,"));
}

/// Clients on two threads append to one key, and change others, at the same time.
#[test]
fn no_append_is_lost_whoever_appends() {
    const EACH: usize = 4000;
    let home = Home::new();
    let server = serve(&home, "");
    let address = server.addresses()[0];
    let append = |letter: &'static str| {
        let mut client = Client::connect(address);
        let mut sizes = Vec::new();
        for part in 0..EACH / 100 {
            let calls = (0..100).flat_map(|i| match i % 10 {
                9 => request(&["DEL", &format!("{letter}{part}")]),
                8 => request(&["INCR", "count"]),
                _ => request(&["APPEND", "all", letter]),
            });
            client.send(&calls.collect::<Vec<u8>>());
            for i in 0..100 {
                let reply: usize = client.reply().parse().unwrap();
                if i % 10 < 8 {
                    sizes.push(reply);
                }
            }
        }
        sizes
    };
    let letters = ["a", "b", "c", "d"];
    let mut sizes: Vec<usize> = std::thread::scope(|scope| {
        let threads = letters.map(|letter| scope.spawn(move || append(letter)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    sizes.sort_unstable();
    let appends = letters.len() * EACH * 8 / 10;
    assert!(sizes.into_iter().eq(1..=appends));
    let mut client = Client::of(&server);
    client.check("STRLEN all", &appends.to_string());
    client.check("GET count", &format!("\"{}\"", letters.len() * EACH / 10));
    let all = client.call("GET all");
    letters.iter().for_each(|letter| assert_eq!(all.matches(letter).count(), EACH * 8 / 10));
}

/// Two clients move an amount between two keys; a third one never sees a part of a move.
#[test]
fn transactions_and_commands_on_several_keys_run_alone() {
    const MOVES: usize = 500;
    let home = Home::new();
    let server = serve(&home, "");
    let address = server.addresses()[0];
    Client::of(&server).check("MSET a 1000 b 1000", "+OK");
    std::thread::scope(|scope| {
        for (from, to) in [("a", "b"), ("b", "a")] {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..MOVES {
                    check_pipeline(&mut client, &[("MULTI", "+OK")]);
                    client.check(&format!("DECR {from}"), "+QUEUED");
                    client.check(&format!("INCR {to}"), "+QUEUED");
                    assert!(client.call("EXEC").starts_with('['));
                }
            });
        }
        scope.spawn(move || {
            let mut client = Client::connect(address);
            for _ in 0..MOVES {
                let reply = client.call("MGET a b");
                let sum: i64 = reply
                    .split(['[', ']', '"', ' '])
                    .filter_map(|word| word.parse::<i64>().ok())
                    .sum();
                assert_eq!(sum, 2000, "{reply}");
            }
        });
    });
    Client::of(&server).check("MGET a b", "[\"1000\" \"1000\"]");
}

#[test]
fn watched_keys_make_a_transaction_null() {
    let home = Home::new();
    let server = serve(&home, "");
    let (mut client, mut other) = (Client::of(&server), Client::of(&server));
    for (change, is_run) in [
        ("SET a 1", false),
        ("APPEND a 1", false),
        ("APPEND b 1", true),
        ("DEL none", true),
        ("DEL a", false),
        ("SET b 2", true),
        ("GET a", true),
        ("MSET a 3 c 3", false),
        ("FLUSHALL", false),
        ("FLUSHALL", true),
        ("SET a 1 XX", true),
    ] {
        client.check("WATCH a", "+OK");
        other.call(change);
        client.check("MULTI", "+OK");
        client.check("APPEND log x", "+QUEUED");
        client.check("STRLEN log", "+QUEUED");
        let reply = client.call("EXEC");
        assert_eq!(reply != "nil", is_run, "{change}: {reply}");
    }
    client.check("MULTI", "+OK");
    client.check("SET a 1", "+QUEUED");
    client.check("GET a", "+QUEUED");
    client.check("INCR x y", "-ERR wrong number of arguments for 'incr' command");
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    client.check("EXEC", aborted);
    client.check("EXISTS a", "0");
    client.check("MULTI", "+OK");
    client.check("SET a x", "+QUEUED");
    client.check("INCR a", "+QUEUED");
    client.check("DBSIZE", "+QUEUED");
    client.check("SAVE", "-ERR Command not allowed inside a transaction");
    client.check("DISCARD", "+OK");
    client.check("MULTI", "+OK");
    client.check("SET a x", "+QUEUED");
    client.check("INCR a", "+QUEUED");
    client.check("GET a", "+QUEUED");
    let error = "-ERR value is not an integer or out of range";
    client.check("EXEC", &format!("[+OK {error} \"x\"]"));
}

/// Sets keys to values of 10,000 bytes until there is no place for another one. Returns those that were set.
fn fill(client: &mut Client) -> Vec<u32> {
    let value = "v".repeat(10_000);
    let (mut set, mut refused) = (Vec::new(), 0);
    // A page of one size has place for a few values when others are refused.
    for i in 0.. {
        if refused == 30 {
            break;
        }
        match client.call(&format!("SET k{i} {value}")).as_str() {
            "+OK" => set.push(i),
            error => {
                assert_eq!(error, OUT_OF_MEMORY);
                refused += 1;
            }
        }
    }
    set
}

#[test]
fn a_limit_that_is_reached_refuses_changes_until_keys_are_deleted() {
    let home = Home::new();
    let server = home.serve_file(&file("8MiB", ""));
    let mut client = Client::of(&server);
    client.check("CONFIG GET maxmemory", "[\"maxmemory\" \"8388608\"]");
    let set = fill(&mut client);
    assert!((400..900).contains(&set.len()), "{}", set.len());
    let value = "v".repeat(10_000);
    client.check(&format!("SET other {value}"), OUT_OF_MEMORY);
    client.check(&format!("APPEND other {value}"), OUT_OF_MEMORY);
    client.check(&format!("MSET other {value} another {value}"), OUT_OF_MEMORY);
    client.check("EXISTS other another", "0");
    client.check(&format!("STRLEN k{}", set[0]), "10000");
    client.check("DBSIZE", &set.len().to_string());
    let (removed, stay) = set.split_at(100);
    removed.iter().for_each(|i| client.check(&format!("DEL k{i}"), "1"));
    client.check(&format!("SET other {value}"), "+OK");
    client.check("MEMORY PURGE", "+OK");
    stay.iter().for_each(|i| client.check(&format!("STRLEN k{i}"), "10000"));
    client.check("FLUSHALL", "+OK");
    let again = fill(&mut client);
    assert!(again.len() + 50 > set.len(), "{} of {}", again.len(), set.len());
}

#[test]
fn limits_of_keys_and_values_are_those_of_maps() {
    let home = Home::new();
    let server = home.serve_file(&file("512MiB", ""));
    let mut client = Client::of(&server);
    let half = "v".repeat(40 << 20);
    client.check(&format!("APPEND large {half}"), "41943040");
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    client.check(&format!("APPEND large {half}"), too_long);
    client.check("SETRANGE large 67108863 xx", too_long);
    client.check("STRLEN large", "41943040");
    client.check("GETRANGE large 41943037 -1", "\"vvv\"");
    let key = "k".repeat(65_535);
    client.check(&format!("SET {key} 1"), "+OK");
    client.check(&format!("GET {key}"), "\"1\"");
    client.check(&format!("SET {key}k 1"), "-ERR a key has at most 65535 bytes");
}

#[test]
fn a_value_with_more_bytes_than_the_memory_of_clients_is_not_returned() {
    let home = Home::new();
    let server = home.serve_file(&format!("client-memory = '3MiB'\n{}", file("64MiB", "")));
    let mut client = Client::of(&server);
    let part = "v".repeat(1 << 20);
    (1..=4).for_each(|i| client.check(&format!("APPEND large {part}"), &(i << 20).to_string()));
    let refused = "-ERR the value has 4194304 bytes, and the memory of clients 3145728; raise `client-memory`";
    client.check("SET large x GET", refused);
    client.check("GETDEL large", refused);
    client.check("RENAME large other", refused);
}

/// What does not need the bytes of a value needs no memory for them.
#[test]
fn a_value_with_more_bytes_than_the_memory_of_clients_is_counted_replaced_and_deleted() {
    let home = Home::new();
    let server = home.serve_file(&format!("client-memory = '3MiB'\n{}", file("64MiB", "")));
    let mut client = Client::of(&server);
    let part = "v".repeat(1 << 20);
    let put = |client: &mut Client| {
        (1..=4).for_each(|i| client.check(&format!("APPEND large {part}"), &(i << 20).to_string()));
    };
    put(&mut client);
    client.check("STRLEN large", "4194304");
    client.check("EXISTS large large", "2");
    client.check("GETRANGE large 4194302 -1", "\"vv\"");
    client.check("SETNX large x", "0");
    client.check("SET large x NX", "nil");
    client.check("MSETNX other x large x", "0");
    client.check("PERSIST large", "0");
    client.check("EXPIRE large 100 XX", "0");
    client.check("DEL large other", "1");
    put(&mut client);
    client.check("MSET large x other y", "+OK");
    client.check("GET large", "\"x\"");
    client.check("DEL large", "1");
    put(&mut client);
    client.check("SET large x XX", "+OK");
    client.check("DEL large", "1");
    put(&mut client);
    client.check("EXPIRE large 0", "1");
    client.check("EXISTS large", "0");
}

#[test]
fn scans_return_each_key_once() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    let all: Vec<u8> =
        (0..3000).flat_map(|i| request(&["SET", &format!("key-{i}"), "1"])).collect();
    client.send(&all);
    (0..3000).for_each(|_| assert_eq!(client.reply(), "+OK"));
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let reply = client.call(&format!("SCAN {cursor} COUNT 70"));
        let mut words = reply.split(['[', ']', '"', ' ']).filter(|word| !word.is_empty());
        cursor = words.next().unwrap().to_owned();
        keys.extend(words.map(str::to_owned));
        client.check(&format!("APPEND other-{} x", keys.len()), "1");
        if cursor == "0" {
            break;
        }
    }
    keys.retain(|key| key.starts_with("key-"));
    keys.sort_unstable();
    assert_eq!(keys.len(), 3000);
    keys.dedup();
    assert_eq!(keys.len(), 3000);
}

/// Saves on request and at the stop; a server that starts has what was saved last.
/// Keys of 40 KB: whatever is asked for, a reply has some megabytes at most, or an error.
#[test]
fn keys_are_returned_within_limits_of_their_bytes() {
    let home = Home::new();
    let server = home.serve_file(&file("256MiB", ""));
    let mut client = Client::of(&server);
    let name = |i: usize| format!("{i}-{}", "k".repeat(40_000));
    (0..300).for_each(|i| client.check(&format!("SET {} 1", name(i)), "+OK"));
    let (mut cursor, mut seen) = ("0".to_owned(), 0);
    loop {
        let reply = client.call(&format!("SCAN {cursor} COUNT 1000000"));
        assert!(reply.len() < 6 << 20, "{}", reply.len());
        let mut words = reply.split(['[', ']', '"', ' ']).filter(|word| !word.is_empty());
        cursor = words.next().unwrap().to_owned();
        seen += words.count();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen, 300);
    assert_eq!(client.call("KEYS *").matches("-k").count(), 300);
    (300..1700).for_each(|i| client.check(&format!("SET {} 1", name(i)), "+OK"));
    client.check("KEYS *", "-ERR KEYS returns at most 67108864 bytes of keys; use SCAN");
    assert_eq!(client.call("KEYS 1-*").matches("-k").count(), 1);
}

#[test]
fn data_are_saved_to_a_store_and_loaded_from_it() {
    let home = Home::new();
    let lines = "path = 'saved'\nload = 'table'";
    let start = || home.start_file(&file("64MiB", lines)).unwrap();
    let server = start();
    let mut client = Client::of(&server);
    client.check("DBSIZE", &ENTRIES.to_string());
    client.check(&format!("GET {}", key(7)), &format!("{:?}", value(7, 0)));
    client.check("APPEND new ab", "2");
    assert!(client.call("INFO persistence").contains("rdb_changes_since_last_save:1\\r"));
    let started_s: u64 = client.call("LASTSAVE").parse().unwrap();
    let clock = Env::system().clock;
    let now_s = || clock.unix_time().as_secs();
    while now_s() == started_s {
        clock.sleep(Duration::from_millis(10));
    }
    client.check("SAVE", "+OK");
    assert!(client.call("INFO persistence").contains("rdb_changes_since_last_save:0\\r"));
    let saved_s: u64 = client.call("LASTSAVE").parse().unwrap();
    assert!((started_s + 1..=now_s()).contains(&saved_s));
    assert!(client.call("INFO persistence").contains(&format!("rdb_last_save_time:{saved_s}\\r")));
    let saved = || Store::open(home.path("saved")).unwrap().reader().unwrap();
    assert_eq!(saved().get("new").unwrap().as_deref(), Some(&b"ab"[..]));
    client.check("APPEND new cd", "4");
    client.check(&format!("DEL {}", key(7)), "1");
    server.stop().unwrap();
    assert_eq!(saved().get("new").unwrap().as_deref(), Some(&b"abcd"[..]));
    let version = saved().version().info().name.number;

    let server = start();
    let mut client = Client::of(&server);
    client.check("GET new", "\"abcd\"");
    client.check(&format!("EXISTS {} {}", key(7), key(8)), "1");
    client.check("DBSIZE", &ENTRIES.to_string());
    server.stop().unwrap();
    assert_eq!(saved().version().info().name.number, version, "nothing has changed");

    let server = start();
    Client::of(&server).check("FLUSHALL", "+OK");
    server.stop().unwrap();
    let server = start();
    Client::of(&server).check("DBSIZE", "0");
    server.stop().unwrap();
    assert_eq!(Store::open(home.path("saved")).unwrap().versions().unwrap().len(), 2);
}

/// While a client gives all keys one value after the other, by one command or by two in a transaction.
#[test]
fn a_version_never_has_a_part_of_a_command_or_of_a_transaction() {
    const KEYS: usize = 1000;
    const SAVES: usize = 20;
    let home = Home::new();
    let server = serve(&home, "path = 'saved'");
    let (address, mut other) = (server.addresses()[0], Client::of(&server));
    let set = |keys: Range<usize>, value: usize| {
        keys.fold("MSET".to_owned(), |line, key| format!("{line} k{key} {value}"))
    };
    other.check(&set(0..KEYS, 0), "+OK");
    let save = || {
        let mut client = Client::connect(address);
        for _ in 0..SAVES {
            client.check("SAVE", "+OK");
            let reader = Store::open(home.path("saved")).unwrap().reader().unwrap();
            let (mut entries, mut values) = (reader.version().scan_all(), BTreeSet::new());
            let mut count = 0;
            while entries.advance().unwrap() {
                count += 1;
                values.extend(entries.entry().value.map(<[u8]>::to_vec));
            }
            assert_eq!((count, values.len()), (KEYS, 1));
        }
    };
    std::thread::scope(|scope| {
        let saver = scope.spawn(save);
        for value in (1..).take_while(|_| !saver.is_finished()) {
            if value % 2 == 0 {
                other.check(&set(0..KEYS, value), "+OK");
            } else {
                other.check("MULTI", "+OK");
                other.check(&set(0..KEYS / 2, value), "+QUEUED");
                other.check(&set(KEYS / 2..KEYS, value), "+QUEUED");
                other.check("EXEC", "[+OK +OK]");
            }
        }
    });
}

#[test]
fn a_data_set_that_is_not_saved_says_so() {
    let home = Home::new();
    let server = serve(&home, "");
    let mut client = Client::of(&server);
    client.check("SAVE", "-ERR clicks has no `path` to be saved to");
    let server = home.serve(&["table"]);
    let other = "-ERR SAVE is for data sets in memory: maps and filters are durable as they are";
    Client::of(&server).check("SAVE", other);
}

#[test]
fn data_that_clients_may_not_change_are_read() {
    let home = Home::new();
    let server = serve(&home, "load = 'people'\nwrite = false");
    let mut client = Client::of(&server);
    client.check(&format!("GET {}", key(1)), &format!("{:?}", value(1, 1)));
    for command in ["SET a 1", "APPEND a 1", "DEL a b", "FLUSHALL", "INCR a"] {
        let reply = client.call(command);
        assert!(reply.starts_with("-NOPERM User default"), "{reply}");
        assert!(reply.ends_with("the data set is served for reading only"), "{reply}");
    }
    client.check("PFCOUNT none", "0");
    client.check("WATCH a", "+OK");
    client.check("MULTI", "+OK");
    client.check("SET a 1", "+QUEUED");
    client.check("EXISTS a", "+QUEUED");
    let reply = client.call("EXEC");
    assert!(reply.starts_with("[-NOPERM ") && reply.ends_with(" 0]"), "{reply}");
}

#[test]
fn rows_of_several_columns_are_served_and_not_changed() {
    let home = Home::new();
    let column = |name: &str, kind| Column { name: name.into(), kind };
    let schema = Schema::new("id", vec![column("name", Kind::Text), column("age", Kind::Int64)]);
    let attribute = (Schema::ATTRIBUTE.to_owned(), schema.to_json());
    let options = TableOptions::new().attributes(vec![attribute]);
    let mut table = TableBuilder::with(home.path("rows"), options).unwrap();
    let mut row = Vec::new();
    schema.encode([Value::Bytes(b"Eve"), Value::Int(41)], &mut row).unwrap();
    table.push("4711", row).unwrap();
    table.finish().unwrap();
    let server = serve(&home, "load = 'rows'");
    let mut client = Client::of(&server);
    let shown = "\"{\\\"name\\\":\\\"Eve\\\",\\\"age\\\":41}\"";
    client.check("GET 4711", shown);
    // Sizes and parts are those of what clients get.
    check_pipeline(
        &mut client,
        &[
            ("STRLEN 4711", "23"),
            ("GETRANGE 4711 2 5", "\"name\""),
            ("EXISTS 4711", "1"),
            ("GETRANGE 4711 -3 -2", "\"41\""),
            ("GET 4711", shown),
            ("MEMORY USAGE 4711", "27"),
            ("GETRANGE 4711 23 -1", "\"\""),
            ("OBJECT ENCODING 4711", "\"embstr\""),
        ],
    );
    let reply = client.call("SET 4711 x");
    assert!(reply.ends_with("values of several columns are not changed one by one"), "{reply}");
}

#[test]
fn filters_are_keys_beside_those_in_memory() {
    let home = Home::new();
    let text = "filters.path = 'filters'\n[data.clicks]\nkind = 'memory'\nmemory = '64MiB'\n\
                [user.default]\nspace = 'clicks'\nmakes-filters = true\n";
    let server = home.serve_file(text);
    let mut client = Client::of(&server);
    client.check("SET a 1", "+OK");
    client.check("BF.ADD seen x", "1");
    client.check("DBSIZE", "2");
    client.check("EXISTS a seen", "2");
    for command in ["APPEND seen x", "GET seen", "INCR seen", "SETNX seen 1", "SET seen 1 NX"] {
        client.check(command, WRONG_TYPE);
    }
    client.check("SET seen 1", "+OK");
    client.check("GET seen", "\"1\"");
    client.check("BF.ADD other x", "1");
    client.check("MULTI", "+OK");
    client.check("APPEND a 2", "+QUEUED");
    client.check("DEL other seen", "+QUEUED");
    client.check("EXEC", "[2 2]");
    client.check("BF.ADD other x", "1");
    client.check("DEL a other none", "2");
    client.check("BF.ADD other x", "1");
    client.check("SET a 1", "+OK");
    client.check("RENAME other a", "+OK");
    client.check("BF.EXISTS a x", "1");
    client.check("DBSIZE", "1");
    client.check("FLUSHALL", "+OK");
    client.check("DBSIZE", "0");
}

#[test]
fn a_user_changes_data_sets_by_their_names() {
    let home = Home::new();
    home.make_map("sess");
    let server = home.serve_file(
        "[data.clicks]\nkind = 'memory'\nmemory = '64MiB'\n[data.sess]\npath = 'sess'\n\
         [user.default]\nspaces = ['clicks', 'sess']\n\
         [user.clicks]\ncommands = ['+@all', '-append', '-@dangerous']\nkeys = ['s:*']\n",
    );
    let mut client = Client::of(&server);
    client.check("APPEND clicks:{a} xy", "2");
    client.check("SET clicks:{a} z GET", "\"xy\"");
    client.check("SET sess:{a} map", "+OK");
    client.check("GET clicks:{a}", "\"z\"");
    client.check("DEL clicks:{a} clicks:{b}", "1");
    let both = "-ERR keys of one command must be in one data set";
    client.check("DEL clicks:{a} sess:{a}", both);
    client.check("WATCH clicks:{a}", "+OK");
    Client::of(&server).check("APPEND clicks:{a} x", "1");
    client.check("MULTI", "+OK");
    client.check("GET clicks:{a}", "+QUEUED");
    client.check("EXEC", "nil");
    client.check("MULTI", "+OK");
    client.check("APPEND clicks:{a} x", "+QUEUED");
    client.check("SET sess:{a} x", "+QUEUED");
    client.check("EXEC", "-ERR a transaction changes a map or data in memory, not both");
    client.check("MULTI", "+OK");
    client.check("APPEND clicks:{a} x", "+QUEUED");
    client.check("GET clicks:{a}", "+QUEUED");
    client.check("EXEC", "[2 \"xx\"]");
    client.check("AUTH clicks x", "+OK");
    let refused = "-NOPERM User clicks has no permissions to run the 'append' command";
    client.check("APPEND s:1 x", refused);
    client.check("SET s:1 x", "+OK");
    assert!(client.call("SET other x").starts_with("-NOPERM "));
    assert!(client.call("FLUSHALL").starts_with("-NOPERM "));
    assert!(client.call("SAVE").starts_with("-NOPERM "));
}

#[test]
fn figures_say_what_memory_is_used_for() {
    let home = Home::new();
    let text = format!("http-listen = ['127.0.0.1:0']\n{}", file("64MiB", ""));
    let server = home.serve_file(&text);
    let mut client = Client::of(&server);
    client.check("SET key value", "+OK");
    let info = client.call("INFO data");
    assert!(
        info.contains("data_clicks:kind=memory,version=0,entries=1,exact=1,bytes=8,"),
        "{info}"
    );
    let memory = "memory_clicks:keys=1,data_bytes=8,used_bytes=";
    assert!(
        info.contains(memory) && info.contains(",memory=67108864,unsaved=1,writable=1"),
        "{info}"
    );
    assert!(client.call("INFO keyspace").contains("db0:keys=1"));
    let (_, metrics) = get(&server, "/metrics");
    for line in [
        "hashfold_entries{data=\"clicks\"} 1",
        "hashfold_table_memory_limit_bytes{data=\"clicks\"} 67108864",
        "hashfold_unsaved_changes{data=\"clicks\"} 1",
        "hashfold_data_bytes{data=\"clicks\"} 8",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let (_, data) = get(&server, "/v1/data");
    assert!(data.contains("\"kind\":\"memory\""), "{data}");
    assert!(data.contains("\"memory_limit_bytes\":67108864"), "{data}");
}

/// Returns the configuration that a file in this home says.
fn config(home: &Home, text: &str) -> Config {
    let text = format!("listen = ['127.0.0.1:0']\n{text}");
    Config::parse(&text, "test.toml", &home.path("")).unwrap()
}

#[test]
fn a_data_set_in_memory_stays_when_the_configuration_is_read_again() {
    let home = Home::new();
    let table = "[data.table]\npath = 'table'\n[user.table]\n";
    let lines = "path = 'saved'";
    let server = Server::start(config(&home, &file("64MiB", lines)), &Env::system()).unwrap();
    let mut client = Client::of(&server);
    client.check("APPEND a 1", "1");
    server.reload(&config(&home, &format!("{}{table}", file("64MiB", lines)))).unwrap();
    client.check("APPEND a 1", "2");
    let error = server.reload(&config(&home, &file("128MiB", lines))).unwrap_err();
    assert!(
        error.to_string().contains("the entry of a data set in memory changes only"),
        "{error}"
    );
    client.check("APPEND a 1", "3");
    // Under another name, it would begin without these changes.
    let renamed = file("64MiB", "path = './saved'").replace("clicks", "visits");
    let error = server.reload(&config(&home, &renamed)).unwrap_err();
    assert!(error.to_string().contains("until the reload ends; remove it first"), "{error}");
    client.check("SAVE", "+OK");
    client.check("APPEND a 1", "4");
    // It cannot be saved while another program writes to its store, and stays.
    let store = Store::open(home.path("saved")).unwrap();
    let writer = store.writer().unwrap();
    assert!(server.reload(&config(&home, table)).is_err());
    client.check("APPEND a 1", "5");
    drop(writer);
    server.reload(&config(&home, table)).unwrap();
    assert!(client.call("APPEND a 1").starts_with("-ERR data set clicks is no longer served"));
    server.reload(&config(&home, &format!("{}{table}", file("128MiB", lines)))).unwrap();
    Client::of(&server).check("GET a", "\"11111\"");
}

#[test]
fn what_cannot_be_served_in_memory_is_refused_at_the_start() {
    let home = Home::new();
    home.make_map("sess");
    let refused = |text: &str| match home.start_file(text) {
        Err(error) => error,
        Ok(_) => panic!("{text}"),
    };
    for (lines, expected) in [
        ("load = 'sess'", "expected a table or a store"),
        ("load = 'nothing'", "nothing"),
        ("path = 'table'", "expected a store, or an empty folder"),
    ] {
        let error = refused(&file("64MiB", lines));
        assert!(matches!(error, StartError::Data(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(Server::check(&config(&home, &file("64MiB", lines)), &Env::system()).is_err());
    }
    let checked =
        |text: &str| Server::check(&config(&home, text), &Env::system()).unwrap_err().to_string();
    let other = "[data.visits]\nkind = 'memory'\nmemory = '40MiB'\n";
    for (first, text, expected) in [
        ("memory = '100MiB'", file("100MiB", ""), "bytes of memory"),
        ("memory = '100MiB'", format!("{}{other}", file("50MiB", "")), "bytes of memory"),
        ("cluster = 'emulated'", file("64MiB", ""), "not served in a cluster"),
    ] {
        let text = format!("{first}\n{text}");
        assert!(refused(&text).to_string().contains(expected), "{text}");
        assert!(checked(&text).contains(expected), "{text}");
    }
    let good = config(&home, &file("64MiB", "path = 'saved'\nload = 'people'"));
    Server::check(&good, &Env::system()).unwrap();
}

#[test]
fn two_data_sets_in_memory_are_not_saved_to_one_folder() {
    let home = Home::new();
    symlink(home.path("people").parent().unwrap(), home.path("link")).unwrap();
    for path in ["saved", "./saved", "nothing/../saved", "link/saved"] {
        let one = file("64MiB", "path = 'saved'");
        let other = format!("[data.visits]\nkind = 'memory'\nmemory = '64MiB'\npath = '{path}'\n");
        let text = format!("{one}{other}");
        let checked = Server::check(&config(&home, &text), &Env::system()).map(drop);
        for refused in [home.start_file(&text).map(drop), checked] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("data set in memory \"clicks\" is saved to"), "{error}");
            assert!(!error.contains("reload"), "{error}");
        }
    }
}

#[test]
fn the_configuration_of_the_guide_is_served_as_printed() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/serve-memory.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, rest) = guide.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let home = Home::new();
    Server::check(&config(&home, text), &Env::system()).unwrap();
    let server = home.serve_file(text);
    Client::of(&server).check("APPEND eve 0123456789abcdef", "16");
}

/// A server without a file serves a data set in memory that a program configures.
#[test]
fn a_program_configures_a_data_set_in_memory() {
    let config = Config {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        data: BTreeMap::from([("clicks".into(), DataConfig::in_memory(16 << 20))]),
        ..Config::default()
    };
    let server = Server::start(config, &Env::system()).unwrap();
    Client::of(&server).check("APPEND a 1", "1");
}

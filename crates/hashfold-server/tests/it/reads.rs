//! Lookups, scans and descriptions of tables and stores.

use crate::fixture::{Client, ENTRIES, Home, key, request, value};
use hashfold::{TableBuilder, io::Access, table::TableOptions};
use std::collections::BTreeSet;

#[test]
fn keys_of_a_table_are_read_without_a_password() {
    let home = Home::new();
    let server = home.serve(&["table", "seen"]);
    let mut client = Client::of(&server);
    client.check("GET key-7", "\"value 7 of version 0\"");
    client.check("GET nope", "nil");
    client.check("GET seen", "-WRONGTYPE Operation against a key holding the wrong kind of value");
    client.check(
        "MGET key-1 nope seen key-2",
        "[\"value 1 of version 0\" nil nil \"value 2 of version 0\"]",
    );
    client.check("EXISTS key-1 key-1 nope seen", "3");
    client.check("TOUCH key-1 nope", "1");
    client.check("STRLEN key-7", "20");
    client.check("STRLEN nope", "0");
    client.check("GETRANGE key-7 0 4", "\"value\"");
    client.check("SUBSTR key-7 -1 -1", "\"0\"");
    client.check("GETRANGE nope 0 -1", "\"\"");
    client.check("GETRANGE key-7 a 1", "-ERR value is not an integer or out of range");
    client.check("TYPE key-7", "+string");
    client.check("TYPE seen", "+MBbloom--");
    client.check("TYPE nope", "+none");
    client.check("TTL key-7", "-1");
    client.check("PTTL nope", "-2");
    client.check("EXPIRETIME key-7", "-1");
    client.check("OBJECT ENCODING key-7", "\"embstr\"");
    client.check("OBJECT REFCOUNT key-7", "1");
    client.check("OBJECT ENCODING nope", "nil");
    client.check("DBSIZE", "2001");
    client.check(
        "SET a b",
        "-NOPERM User default has no permissions to run the 'set' command: tables and \
                             stores change in batches; see `hashfold update`",
    );
    client.check("LPUSH a b", "-ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' ");
    client.check("GET", "-ERR wrong number of arguments for 'get' command");
}

/// A reply takes memory for what it has, not for the value that it is about.
#[test]
fn values_larger_than_the_memory_of_clients_are_measured_and_read_in_parts() {
    let (size, limit) = (4 << 20, 3 << 20);
    let home = Home::new();
    home.make_map("sess");
    let mut table = TableBuilder::with(home.path("large"), TableOptions::new()).unwrap();
    let value = format!("{}end", "v".repeat(size - 3));
    table.push("large", &value).unwrap();
    table.finish().unwrap();
    for access in ["mapped", "direct"] {
        let server = home.serve_file(&format!(
            "client-memory = {limit}\nthreads = 1\n[data.large]\npath = 'large'\naccess = '{access}'\n\
             [data.sess]\npath = 'sess'\n[data.clicks]\nkind = 'memory'\nmemory = '64MiB'\nload = 'large'\n\
             [user.default]\nspaces = ['large', 'sess', 'clicks']\n"
        ));
        let mut client = Client::of(&server);
        client.check("DEL sess:{large}", if access == "mapped" { "0" } else { "1" });
        for part in value.as_bytes().chunks(1 << 20) {
            client.call(&format!("APPEND sess:{{large}} {}", str::from_utf8(part).unwrap()));
        }
        for space in ["large", "sess", "clicks"] {
            let key = format!("{space}:{{large}}");
            let calls = [
                (format!("STRLEN {key}"), size.to_string()),
                (format!("GETRANGE {key} -4 -1"), "\"vend\"".into()),
                (format!("EXISTS {key}"), "1".into()),
                (format!("SUBSTR {key} 1 2"), "\"vv\"".into()),
                (format!("MEMORY USAGE {key}"), (size + 5).to_string()),
                (format!("OBJECT ENCODING {key}"), "\"raw\"".into()),
                (format!("TYPE {key}"), "+string".into()),
            ];
            calls.iter().for_each(|(line, reply)| client.check(line, reply));
            let refused = client.call(&format!("GET {key}"));
            let expected = format!("-ERR the values of one request have at most {limit} bytes");
            assert!(refused.starts_with(&expected), "{space}: {refused}");
            // After a change, all are answered where changes are made.
            if space != "large" {
                client.ask(&format!("SET {space}:{{small}} 1"));
            }
            calls.iter().for_each(|(line, _)| client.ask(line));
            if space != "large" {
                assert_eq!(client.reply(), "+OK");
            }
            calls.iter().for_each(|(line, reply)| assert_eq!(client.reply(), *reply, "{line}"));
            client.check("MULTI", "+OK");
            calls.iter().for_each(|(line, _)| client.check(line, "+QUEUED"));
            let replies: Vec<&str> = calls.iter().map(|(_, reply)| &**reply).collect();
            client.check("EXEC", &format!("[{}]", replies.join(" ")));
        }
    }
}

/// Answers do not depend on the way in which the data are read.
#[test]
fn data_are_read_from_memory_and_from_the_device() {
    let home = Home::new();
    for access in [Access::Mapped, Access::Cached, Access::Direct] {
        let server = home.serve_with(&["table"], |config| {
            config.data.get_mut("table").unwrap().access = Some(access);
        });
        let mut client = Client::of(&server);
        for i in (0..ENTRIES).step_by(97) {
            client.check(&format!("GET {}", key(i)), &format!("{:?}", value(i, 0)));
        }
        // Commands in a pipeline are answered in order, whatever they wait for.
        for i in 0..300 {
            client.ask(&format!("GET {}", key(i)));
            client.ask("PING");
            client.ask(&format!("MGET {} nope", key(i)));
            client.ask("RANDOMKEY");
        }
        for i in 0..300 {
            let expected = format!("{:?}", value(i, 0));
            assert_eq!(client.reply(), expected);
            assert_eq!(client.reply(), "+PONG");
            assert_eq!(client.reply(), format!("[{expected} nil]"));
            assert!(client.reply().starts_with("\"key-"));
        }
    }
}

#[test]
fn many_connections_at_once_get_their_own_answers() {
    let home = Home::new();
    for access in [Access::Mapped, Access::Direct] {
        let server = home.serve_with(&["table"], |config| {
            config.threads = 2;
            config.data.get_mut("table").unwrap().access = Some(access);
        });
        let mut clients: Vec<Client> = (0..100).map(|_| Client::of(&server)).collect();
        for round in 0..20 {
            for (i, client) in clients.iter_mut().enumerate() {
                client.ask(&format!("GET {}", key(i as u32 * 20 + round)));
                client.ask(&format!("ECHO {i}"));
            }
            for (i, client) in clients.iter_mut().enumerate() {
                assert_eq!(client.reply(), format!("{:?}", value(i as u32 * 20 + round, 0)));
                assert_eq!(client.reply(), format!("\"{i}\""));
            }
        }
    }
}

#[test]
fn a_scan_returns_each_key_once() {
    let home = Home::new();
    for (names, user) in [(&["table", "seen"][..], ""), (&["people"], "people")] {
        let server = home.serve(names);
        for count in [1, 10, 333, 5000] {
            let mut client = Client::of(&server);
            if !user.is_empty() {
                client.check(&format!("AUTH {user} x"), "+OK");
            }
            let mut keys = Vec::new();
            let mut cursor = "0".to_owned();
            loop {
                let reply = client.call(&format!("SCAN {cursor} COUNT {count}"));
                let (next, found) = reply[1..reply.len() - 1].split_once(' ').unwrap();
                cursor = next.trim_matches('"').to_owned();
                let found = found.trim_matches(['[', ']']).split_whitespace();
                keys.extend(found.map(|key| key.trim_matches('"').to_owned()));
                if cursor == "0" {
                    break;
                }
            }
            let all: BTreeSet<String> = keys.iter().cloned().collect();
            assert_eq!(keys.len(), all.len(), "no key twice");
            let filters = usize::from(names.contains(&"seen"));
            assert_eq!(all.len(), ENTRIES as usize + filters);
        }
        if user.is_empty() {
            let mut client = Client::of(&server);
            client.check("SCAN 0 COUNT 0", "-ERR syntax error");
            client.check("SCAN x", "-ERR invalid cursor");
            client.check("SCAN 0 TYPE nope", "-ERR unknown type name 'nope'");
            client.check("SCAN 0 TYPE MBbloom--", "[\"0\" [\"seen\"]]");
            client.check("SCAN 0 COUNT 5000 MATCH key-77", "[\"0\" [\"key-77\"]]");
            client.check("KEYS key-777", "[\"key-777\"]");
        }
    }
}

#[test]
fn resp3_has_types_of_its_own() {
    let home = Home::new();
    let server = home.serve(&["table", "seen"]);
    let mut client = Client::of(&server);
    let hello = client.call("HELLO 3 SETNAME me");
    assert!(
        hello.starts_with("{\"server\" \"hashfold\" \"version\" \"7.2.4\" \"proto\" 3 \"id\""),
        "{hello}"
    );
    client.check("GET nope", "nil");
    client.check("CLIENT GETNAME", "\"me\"");
    // The port in the configuration: 0 means that the system chose one.
    client.check("CONFIG GET port*", "{\"port\" \"0\"}");
    client.check("BF.EXISTS seen a", "true");
    client.check("HELLO 4", "-NOPROTO unsupported protocol version");
    client.check("HELLO x", "-ERR Protocol version is not an integer or out of range");
    client.check("HELLO 2 NOPE", "-ERR Syntax error in HELLO option 'NOPE'");
    client.check("RESET", "+RESET");
    client.check("BF.EXISTS seen b", "0");
}

#[test]
fn descriptions_are_those_that_tools_read() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut client = Client::of(&server);
    client.call("GET key-1");
    let info = client.call("INFO");
    for expected in [
        "redis_version:7.2.4",
        "loading:0",
        "role:master",
        "keyspace_hits:1",
        "cluster_enabled:0",
        "db0:keys=2000,expires=0",
        "data_table:kind=table,version=0,entries=2000,exact=1",
    ] {
        assert!(info.contains(expected), "{expected} in {info}");
    }
    assert!(client.call("INFO commandstats").contains("cmdstat_get:calls=1,"));
    assert!(!client.call("INFO server").contains("# Clients"));
    assert!(client.call("COMMAND INFO get").starts_with("[[\"get\" 2 [+readonly +fast] 1 1 1 "));
    client.check("COMMAND INFO nope", "[nil]");
    client.check("COMMAND GETKEYS mget a b", "[\"a\" \"b\"]");
    let count: usize = client.call("COMMAND COUNT").parse().unwrap();
    assert!(count > 60, "{count} commands");
    assert!(client.call("COMMAND DOCS get").contains("Returns the value of a key."));
    client.check("SLOWLOG LEN", "0");
    client.check("CONFIG SET slowlog-log-slower-than 0", "+OK");
    client.check("ECHO hello", "\"hello\"");
    assert!(client.call("SLOWLOG GET 1").contains("[\"ECHO\" \"hello\"]"));
    assert!(client.call("LATENCY HISTOGRAM echo").contains("\"calls\" 1"));
    client.check("MEMORY USAGE key-1", "25");
    client.check("SELECT 0", "+OK");
    client.check("SELECT 1", "-ERR DB index is out of range");
}

#[test]
fn replies_can_be_turned_off() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut client = Client::of(&server);
    client.ask("CLIENT REPLY OFF");
    client.ask("GET key-1");
    client.ask("PING");
    client.check("CLIENT REPLY ON", "+OK");
    client.ask("CLIENT REPLY SKIP");
    client.ask("GET key-1");
    client.check("GET key-2", "\"value 2 of version 0\"");
    for skipped in ["PING", "NOPE", "RANDOMKEY", "GET"] {
        client.ask("CLIENT REPLY SKIP");
        client.ask(skipped);
        client.check("ECHO a", "\"a\"");
    }
}

#[test]
fn connections_are_listed_named_and_closed() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let (mut one, mut two) = (Client::of(&server), Client::of(&server));
    two.check("CLIENT SETNAME second", "+OK");
    two.check(
        "CLIENT SETNAME a\u{7f}b",
        "-ERR Client names cannot contain spaces, newlines or special characters.",
    );
    two.check("CLIENT SETINFO LIB-NAME mine", "+OK");
    two.check("CLIENT SETINFO nope x", "-ERR Unrecognized option 'nope'");
    let id = two.call("CLIENT ID");
    let list = one.call("CLIENT LIST");
    assert!(list.contains("name=second") && list.contains("lib-name=mine"), "{list}");
    one.check(&format!("CLIENT KILL ID {id}"), "1");
    assert!(two.is_closed());
    one.check("CLIENT KILL 1.2.3.4:5", "-ERR No such client");
    one.check("CLIENT TRACKING on", "-ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.");
    one.check("QUIT", "+OK");
    assert!(one.is_closed());
}

/// One byte at a time, and all at once.
#[test]
fn requests_may_come_in_pieces() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut client = Client::of(&server);
    for byte in request(&["GET", "key-3"]) {
        client.send(&[byte]);
    }
    assert_eq!(client.reply(), "\"value 3 of version 0\"");
    client.send(b"get key-4\r\n\r\nping\nEXISTS \"key-1\" 'key-2'\r\n");
    assert_eq!(client.reply(), "\"value 4 of version 0\"");
    assert_eq!(client.reply(), "+PONG");
    assert_eq!(client.reply(), "2");
    let many = request(&["GET", "key-5"]).repeat(5000);
    client.send(&many);
    for _ in 0..5000 {
        assert_eq!(client.reply(), "\"value 5 of version 0\"");
    }
}

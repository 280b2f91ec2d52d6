//! A configuration that is read again while the server runs.

use crate::fixture::{Client, Home};
use hashfold::{Env, Filter};
use hashfold_server::{Config, Server};

/// Returns the configuration that a file in this home says.
fn config(home: &Home, text: &str) -> Config {
    let text = format!("listen = ['127.0.0.1:0']\n{text}");
    Config::parse(&text, "test.toml", &home.path("")).unwrap()
}

const PEOPLE: &str = "[data.people]\npath = 'people'\n[user.people]\n";
const TABLE: &str = "[data.table]\npath = 'table'\n[user.table]\n";
const SEEN: &str = "[data.seen]\npath = 'seen'\n[user.seen]\nfilters = ['seen']\n";

fn signed_in(server: &Server, user: &str) -> Client {
    let mut client = Client::of(server);
    client.check(&format!("AUTH {user} x"), "+OK");
    client
}

#[test]
fn data_sets_come_and_go() {
    let home = Home::new();
    let server = Server::start(config(&home, &format!("{PEOPLE}{SEEN}")), &Env::system()).unwrap();
    let (mut people, mut pinned) = (signed_in(&server, "people"), signed_in(&server, "people@1"));
    let mut seen = signed_in(&server, "seen");
    seen.check("BF.ADD seen b", "1");
    people.check("GET key-1", "\"value 1 of version 1\"");

    server.reload(&config(&home, &format!("{PEOPLE}{SEEN}{TABLE}"))).unwrap();
    let mut table = signed_in(&server, "table");
    table.check("GET key-1", "\"value 1 of version 0\"");
    people.check("GET key-1", "\"value 1 of version 1\"");
    seen.check("BF.ADD seen c", "1");

    server.reload(&config(&home, TABLE)).unwrap();
    table.check("GET key-1", "\"value 1 of version 0\"");
    let gone = "-ERR data set people is no longer served, or in another way: the configuration has changed; \
                connect again";
    for client in [&mut people, &mut pinned] {
        for command in [
            "GET key-1",
            "MGET key-1 key-2",
            "EXISTS key-1",
            "SCAN 0",
            "DBSIZE",
            "RANDOMKEY",
            "HASHFOLD.VERSION",
            "HASHFOLD.VERSIONS",
            "HASHFOLD.USE 1",
            "HASHFOLD.PIN people 1",
        ] {
            client.check(command, gone);
        }
        client.check("PING", "+PONG");
    }
    let gone = "-ERR filter seen is no longer served, or in another way: the configuration has changed; \
                connect again";
    for command in
        ["BF.EXISTS seen a", "BF.ADD seen x", "BF.INFO seen", "HASHFOLD.FILTER.STATS seen"]
    {
        seen.check(command, gone);
    }
    assert!(people.call("AUTH people x").starts_with("-WRONGPASS"));
    people.check("AUTH table x", "+OK");
    people.check("GET key-1", "\"value 1 of version 0\"");
    // The filter is free, and has all changes.
    let mut filter = Filter::open(home.path("seen")).unwrap();
    assert_eq!(filter.contains_many(&["a", "b", "c", "x"]).unwrap(), [true, true, true, false]);
    filter.insert("d").unwrap();
    filter.close().unwrap();

    server.reload(&config(&home, &format!("{PEOPLE}{SEEN}{TABLE}"))).unwrap();
    pinned.check(
        "GET key-1",
        "-ERR data set people is no longer served, or in another way: the configuration has \
                               changed; connect again",
    );
    pinned.check("AUTH people x", "+OK");
    pinned.check("GET key-1", "\"value 1 of version 1\"");
    seen.check("AUTH seen x", "+OK");
    seen.check("BF.MEXISTS seen c d", "[1 1]");
    seen.check("BF.ADD seen e", "1");
    server.stop().unwrap();
}

#[test]
fn an_entry_that_changes_is_another_data_set() {
    let home = Home::new();
    let text = |path: &str| format!("[data.people]\npath = '{path}'\n[user.people]\n");
    let server = Server::start(config(&home, &text("people")), &Env::system()).unwrap();
    let mut client = signed_in(&server, "people");
    server.reload(&config(&home, &text("people"))).unwrap();
    client.check("GET key-1", "\"value 1 of version 1\"");
    server.reload(&config(&home, &text("table"))).unwrap();
    assert!(client.call("GET key-1").starts_with("-ERR data set people is no longer served"));
    client.check("AUTH people x", "+OK");
    client.check("GET key-1", "\"value 1 of version 0\"");
    // Published versions are seen as before.
    server.reload(&config(&home, &text("people"))).unwrap();
    home.publish(2);
    client.check("AUTH people x", "+OK");
    client.wait_for("GET key-1", &|reply| reply == "\"value 1 of version 2\"");
}

#[test]
fn a_file_with_a_mistake_changes_nothing() {
    let home = Home::new();
    let server = Server::start(config(&home, &format!("{PEOPLE}{SEEN}")), &Env::system()).unwrap();
    let (mut people, mut seen) = (signed_in(&server, "people"), signed_in(&server, "seen"));
    for (text, expected) in [
        (String::new(), "expected a data set"),
        (format!("{TABLE}[data.nothing]\npath = 'nothing'\n"), "nothing"),
        (format!("{TABLE}[user.eve]\ncommands = ['+nope']\nspace = 'table'\n"), "user \"eve\""),
        (format!("{TABLE}[data.other]\npath = 'seen'\n"), "its folder is served as \"seen\""),
    ] {
        let error = server.reload(&config(&home, &text)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        people.check("GET key-1", "\"value 1 of version 1\"");
        seen.check("BF.EXISTS seen a", "1");
        assert!(Client::of(&server).call("AUTH table x").starts_with("-WRONGPASS"));
    }
    seen.check("BF.ADD seen b", "1");
}

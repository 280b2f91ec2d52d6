//! Versions of a store: following, fixed, published and rolled back.

use crate::fixture::{Client, Home};

#[test]
fn readers_follow_publishes_and_a_connection_may_stay_on_a_version() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let (mut follower, mut fixed) = (Client::of(&server), Client::of(&server));
    fixed.check("AUTH people@1 x", "+OK");
    home.publish(2);
    assert_eq!(server.refresh().unwrap(), 1);
    follower.check("GET key-1", "\"value 1 of version 2\"");
    fixed.check("GET key-1", "\"value 1 of version 1\"");
    fixed.check("HASHFOLD.USE current", "+OK");
    fixed.check("GET key-1", "\"value 1 of version 2\"");
    fixed.check("HASHFOLD.USE 1", "+OK");
    fixed.check("GET key-1", "\"value 1 of version 1\"");
    fixed.check("HASHFOLD.USE 9", "-NOVERSION people has no version 9");
    fixed.check("AUTH people@9 x", "-NOVERSION people has no version 9");
    let version = fixed.call("HASHFOLD.VERSION");
    assert!(version.contains("\"version\" 1") && version.contains("\"used\" 1 "), "{version}");
}

#[test]
fn versions_are_published_and_rolled_back_by_command() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let mut client = Client::of(&server);
    home.publish(2);
    let reply = client.call("HASHFOLD.ROLLBACK people");
    assert!(reply.starts_with("[\"version\" 1 \"previous\" 2 \"seq\" "), "{reply}");
    client.check("GET key-1", "\"value 1 of version 1\"");
    assert!(client.call("HASHFOLD.PUBLISH people 2").starts_with("-ERR "), "it is bad");
    assert!(client.call("HASHFOLD.PUBLISH people 2 FORCE REASON tested").contains("\"version\" 2"));
    client.check("GET key-1", "\"value 1 of version 2\"");
    assert!(client.call("HASHFOLD.PIN people 1").contains("\"version\" 1"));
    let all = client.call("HASHFOLD.VERSIONS people");
    assert!(all.contains("\"pinned\" 1"), "{all}");
    client.check("HASHFOLD.VERSIONS nope", "-ERR no such store");
    client.check("HASHFOLD.PUBLISH people x", "-ERR value is not an integer or out of range");
}

/// All keys of one command come from one version, whatever is published meanwhile.
#[test]
fn a_command_reads_one_version() {
    let home = Home::new();
    let server = home.serve_with(&["people"], |config| config.threads = 2);
    let mut client = Client::of(&server);
    let keys: Vec<String> = (0..200).map(crate::fixture::key).collect();
    let line = format!("MGET {}", keys.join(" "));
    for version in 2..8 {
        for _ in 0..20 {
            client.ask(&line);
        }
        home.publish(version);
        server.refresh().unwrap();
        for _ in 0..20 {
            let reply = client.reply();
            let of: Vec<&str> = reply.split("version ").skip(1).map(|rest| &rest[..1]).collect();
            assert_eq!(of.len(), 200);
            assert!(of.iter().all(|version| *version == of[0]), "{reply}");
        }
    }
}

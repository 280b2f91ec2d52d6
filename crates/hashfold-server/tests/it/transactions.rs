//! `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`.

use crate::fixture::{Client, Home, request, value};
use hashfold::store::slot_of;
use hashfold_server::{ClusterConfig, Node, Shard, Topology};

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";
const FORBIDDEN: &str = "-ERR Command not allowed inside a transaction";

#[test]
fn a_transaction_answers_its_commands_together() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let mut client = Client::of(&server);
    client.check("MULTI", "+OK");
    for command in ["GET key-1", "MGET key-2 nope", "PING", "GETRANGE key-1 0 x", "EXISTS key-3"] {
        client.check(command, "+QUEUED");
    }
    let not_a_number = "-ERR value is not an integer or out of range";
    client.check(
        "EXEC",
        &format!("[{:?} [{:?} nil] +PONG {not_a_number} 1]", value(1, 1), value(2, 1)),
    );
    client.check("EXEC", "-ERR EXEC without MULTI");
    client.check("DISCARD", "-ERR DISCARD without MULTI");
    client.check("MULTI", "+OK");
    client.check("EXEC", "[]");
    client.check("MULTI", "+OK");
    client.check("GET key-1", "+QUEUED");
    client.check("DISCARD", "+OK");
    client.check("GET key-1", &format!("{:?}", value(1, 1)));
}

#[test]
fn a_pipeline_of_lookups_and_transactions_keeps_its_order() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let mut client = Client::of(&server);
    let lines = ["GET key-1", "MULTI", "GET key-2", "DBSIZE", "GET key-3", "EXEC", "GET key-4"];
    for line in lines {
        client.ask(line);
    }
    let replies: Vec<String> = lines.iter().map(|_| client.reply()).collect();
    let text = |i| format!("{:?}", value(i, 1));
    let exec = format!("[{} 2000 {}]", text(2), text(3));
    assert_eq!(replies, [&text(1), "+OK", "+QUEUED", "+QUEUED", "+QUEUED", &exec, &text(4)]);
}

#[test]
fn a_refused_command_discards_the_transaction() {
    let home = Home::new();
    let server = home.serve_file(
        "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\ncommands = ['+@all', '-mget']\n\
         keys = ['key-*']\n",
    );
    let mut client = Client::of(&server);
    for (line, error) in [
        ("NOPE a", "-ERR unknown command 'NOPE', with args beginning with: 'a' "),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("CLIENT NOPE", "-ERR unknown subcommand 'NOPE'. Try CLIENT HELP."),
        ("MGET key-1", "-NOPERM User default has no permissions to run the 'mget' command"),
        ("GET other", "-NOPERM No permissions to access a key"),
        ("MULTI", FORBIDDEN),
        ("WATCH key-1", FORBIDDEN),
        ("HELLO 3", FORBIDDEN),
        ("AUTH x", FORBIDDEN),
        ("HASHFOLD.USE 1", FORBIDDEN),
        ("CLIENT REPLY OFF", FORBIDDEN),
    ] {
        client.check("MULTI", "+OK");
        client.check("GET key-1", "+QUEUED");
        client.check(line, error);
        client.check("GET key-1", "+QUEUED");
        client.check("EXEC", ABORTED);
        client.check("EXEC", "-ERR EXEC without MULTI");
    }
    let arity =
        "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    client.check("MULTI", "+OK");
    client.check("EXEC now", arity);
    client.check("GET key-1", &format!("{:?}", value(1, 1)));
}

#[test]
fn a_transaction_reads_one_version() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let mut client = Client::of(&server);
    client.check("MULTI", "+OK");
    client.check("GET key-1", "+QUEUED");
    home.publish(2);
    server.refresh().unwrap();
    client.check("HASHFOLD.VERSION", "+QUEUED");
    client.check("MGET key-2", "+QUEUED");
    let reply = client.call("EXEC");
    assert!(reply.starts_with(&format!("[{:?} [", value(1, 2))), "{reply}");
    assert!(reply.contains("\"version\" 2 "), "{reply}");
    assert!(reply.ends_with(&format!("[{:?}]]", value(2, 2))), "{reply}");
    client.check("HASHFOLD.USE 1", "+OK");
    client.check("MULTI", "+OK");
    client.check("GET key-1", "+QUEUED");
    client.check("EXEC", &format!("[{:?}]", value(1, 1)));
}

/// Changes `people` while another thread reads it with transactions: all values of one are of one version.
#[test]
fn no_transaction_sees_two_versions_while_they_change() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let mut client = Client::of(&server);
    let transaction: Vec<u8> =
        ["MULTI", "GET key-1", "DBSIZE", "GET key-2", "EXISTS key-3", "GET key-3", "EXEC"]
            .iter()
            .flat_map(|line| request(&line.split(' ').collect::<Vec<_>>()))
            .collect();
    for version in 1..20 {
        for _ in 0..10 {
            client.send(&transaction);
        }
        home.publish(version + 1);
        server.refresh().unwrap();
        for _ in 0..10 {
            (0..6).for_each(|_| drop(client.reply()));
            let reply = client.reply();
            let of = |version| {
                let text = |i| format!("{:?}", value(i, version));
                format!("[{} 2000 {} 1 {}]", text(1), text(2), text(3))
            };
            assert!(reply == of(version) || reply == of(version + 1), "{reply}");
        }
    }
}

#[test]
fn exec_is_null_if_the_version_has_changed_since_watch() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    for (hello, null) in [("HELLO 2", &b"*-1\r\n"[..]), ("HELLO 3", b"_\r\n")] {
        let mut client = Client::of(&server);
        client.call(hello);
        client.check("WATCH key-1 nope", "+OK");
        client.check("MULTI", "+OK");
        client.check("GET key-1", "+QUEUED");
        let same = client.call("EXEC");
        assert!(same.starts_with("[\"value 1"), "{same}");
        for end in ["", "UNWATCH", "DISCARD"] {
            client.check("WATCH key-1", "+OK");
            home.publish(2);
            server.refresh().unwrap();
            if end == "UNWATCH" {
                client.check("UNWATCH", "+OK");
            }
            client.check("MULTI", "+OK");
            if end == "DISCARD" {
                client.check("DISCARD", "+OK");
                client.check("MULTI", "+OK");
            }
            client.check("EXISTS key-1", "+QUEUED");
            client.ask("EXEC");
            match end {
                "" => assert_eq!(client.raw_line(), null),
                _ => assert_eq!(client.reply(), "[1]"),
            }
        }
    }
}

#[test]
fn exec_is_null_if_a_watched_filter_was_changed_made_or_opened_again() {
    let home = Home::new();
    let server = home.serve_with(&["table", "seen", "counts"], |config| {
        config.filters = Some(home.path("made"));
    });
    let (mut one, mut two) = (Client::of(&server), Client::of(&server));
    let mut check = |watched: &str, changes: &[&str], expected: &str| {
        one.check(&format!("WATCH {watched}"), "+OK");
        changes.iter().for_each(|change| drop(two.call(change)));
        one.check("MULTI", "+OK");
        one.check("PING", "+QUEUED");
        one.check("EXEC", expected);
    };
    check("seen", &[], "[+PONG]");
    check("seen", &["BF.EXISTS seen a", "BF.INFO seen", "BF.CARD seen"], "[+PONG]");
    check("seen", &["BF.ADD seen new"], "nil");
    check("seen", &["BF.ADD seen new"], "nil");
    check("counts key-1", &["CF.ADD counts x"], "nil");
    check("counts", &["BF.ADD seen other"], "[+PONG]");
    check("fresh", &["BF.RESERVE fresh 0.01 100"], "nil");
    check("fresh", &["BF.RESERVE fresh 0.01 100"], "[+PONG]");
    one.check("WATCH fresh", "+OK");
    one.check("BF.ADD fresh own", "1");
    one.check("MULTI", "+OK");
    one.check("BF.ADD fresh lost", "+QUEUED");
    one.check("EXEC", "nil");
    one.check("BF.EXISTS fresh lost", "0");
}

#[test]
fn commands_of_a_transaction_see_the_effects_of_those_before() {
    let home = Home::new();
    let server = home.serve_with(&["table"], |config| config.filters = Some(home.path("made")));
    let mut client = Client::of(&server);
    let lines = [
        ("EXISTS new", "0"),
        ("DBSIZE", "2000"),
        ("BF.RESERVE new 0.01 100", "+OK"),
        ("BF.RESERVE new 0.01 100", "-ERR item exists"),
        ("DBSIZE", "2001"),
        ("TYPE new", "+MBbloom--"),
        ("EXISTS new key-1", "2"),
        ("BF.ADD new a", "1"),
        ("BF.ADD new a", "0"),
        ("BF.EXISTS new a", "1"),
        ("GET new", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("CF.ADD new a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("KEYS ne*", "[\"new\"]"),
    ];
    client.check("MULTI", "+OK");
    lines.iter().for_each(|(line, _)| client.check(line, "+QUEUED"));
    let replies: Vec<&str> = lines.iter().map(|(_, reply)| *reply).collect();
    client.check("EXEC", &format!("[{}]", replies.join(" ")));
}

/// Each transaction counts a key and then adds it: nobody else may add it in between.
#[test]
fn no_other_client_changes_a_filter_during_a_transaction() {
    const ROUNDS: usize = 200;
    let home = Home::new();
    let server = home.serve(&["counts"]);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::of(&server)).collect();
    let lines = ["MULTI", "CF.COUNT counts x", "CF.ADD counts x", "CF.COUNT counts x", "EXEC"];
    let transaction: Vec<u8> =
        lines.iter().flat_map(|line| request(&line.split(' ').collect::<Vec<_>>())).collect();
    for client in &mut clients {
        for _ in 0..ROUNDS {
            client.send(&transaction);
            client.ask("CF.ADD counts x");
        }
    }
    for client in &mut clients {
        for _ in 0..ROUNDS {
            (0..4).for_each(|_| drop(client.reply()));
            let reply = client.reply();
            let numbers: Vec<u64> = reply
                .trim_matches(['[', ']'])
                .split(' ')
                .map(|number| number.parse().unwrap())
                .collect();
            assert_eq!((numbers[1], numbers[2]), (1, numbers[0] + 1), "{reply}");
            assert_eq!(client.reply(), "1");
        }
    }
    clients[0].check("CF.COUNT counts x", &(4 * 2 * ROUNDS).to_string());
}

#[test]
fn reset_and_quit_end_a_transaction() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let mut client = Client::of(&server);
    client.check("WATCH key-1", "+OK");
    client.check("MULTI", "+OK");
    client.check("GET key-1", "+QUEUED");
    let list = Client::of(&server).call("CLIENT LIST");
    assert!(list.contains("flags=x") && list.contains(" multi=1 watch=1 "), "{list}");
    assert!(
        !list.contains("multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=get")
    );
    client.check("RESET", "+RESET");
    client.check("EXEC", "-ERR EXEC without MULTI");
    let info = client.call("CLIENT INFO");
    assert!(info.contains("flags=N") && info.contains(" multi=-1 watch=0 "), "{info}");
    client.check("MULTI", "+OK");
    client.check("QUIT", "+OK");
    assert!(client.is_closed());
}

#[test]
fn clients_that_want_no_replies_get_none_to_transactions() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let mut client = Client::of(&server);
    for line in ["CLIENT REPLY OFF", "MULTI", "GET key-1", "EXEC", "MULTI", "NOPE", "EXEC"] {
        client.ask(line);
    }
    client.check("CLIENT REPLY ON", "+OK");
    client.check("MULTI", "+OK");
    client.check("GET key-2", "+QUEUED");
    client.check("EXEC", &format!("[{:?}]", value(2, 1)));
    client.check("MULTI", "+OK");
    client.check("DISCARD", "+OK");
    for line in ["CLIENT REPLY SKIP", "MULTI", "GET key-1"] {
        client.ask(line);
    }
    assert_eq!(client.reply(), "+QUEUED");
    client.check("EXEC", &format!("[{:?}]", value(1, 1)));
}

#[test]
fn transactions_are_bounded() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let mut client = Client::of(&server);
    client.check("MULTI", "+OK");
    let exists = request(&["EXISTS", "key-1"]);
    for _ in 0..10_000 {
        client.send(&exists);
    }
    (0..10_000).for_each(|_| assert_eq!(client.reply(), "+QUEUED"));
    client.check("EXEC", &format!("[{}]", ["1"; 10_000].join(" ")));
    client.check("MULTI", "+OK");
    for _ in 0..10_001 {
        client.send(&exists);
    }
    (0..10_000).for_each(|_| assert_eq!(client.reply(), "+QUEUED"));
    assert_eq!(client.reply(), "-ERR a transaction has at most 10000 commands");
    client.check("EXEC", ABORTED);
    let large = "x".repeat(1 << 20);
    client.check("MULTI", "+OK");
    for _ in 0..15 {
        client.check(&format!("ECHO {large}"), "+QUEUED");
    }
    let too_large = "-ERR the commands of a transaction have at most 16 MiB";
    client.check(&format!("ECHO {large}"), too_large);
    client.check("EXEC", ABORTED);
    let names: Vec<String> = (0..1000).map(|i| format!("k{i}")).collect();
    client.check(&format!("WATCH {}", names.join(" ")), "+OK");
    client.check("WATCH k1 k2", "+OK");
    client.check("WATCH another", "-ERR a connection watches at most 1000 keys");
}

#[test]
fn a_transaction_reads_several_data_sets_by_name() {
    let home = Home::new();
    let server = home.serve_file(
        "[data.people]\npath = 'people'\n[data.table]\npath = 'table'\n\
         [user.default]\nspace = 'table'\nspaces = ['people', 'table']\n",
    );
    let mut client = Client::of(&server);
    client.check("WATCH people:{key-1} key-1", "+OK");
    client.check("MULTI", "+OK");
    for line in ["GET people:{key-1}", "GET key-1", "GET table:{key-2}"] {
        client.check(line, "+QUEUED");
    }
    let expected = format!("[{:?} {:?} {:?}]", value(1, 1), value(1, 0), value(2, 0));
    client.check("EXEC", &expected);
    client.check("WATCH people:{key-1}", "+OK");
    home.publish(2);
    server.refresh().unwrap();
    client.check("MULTI", "+OK");
    client.check("GET key-1", "+QUEUED");
    client.check("EXEC", "nil");
}

#[test]
fn keys_of_other_servers_are_refused_when_they_are_queued() {
    let home = Home::new();
    let node = |id: &str, port| Node {
        id: id.into(),
        host: "127.0.0.1".into(),
        port,
        tls_port: None,
        zone: None,
    };
    let topology = Topology {
        epoch: 1,
        shards: vec![
            Shard { slots: vec![(0, 8191)], nodes: vec![node("a", 1)] },
            Shard { slots: vec![(8192, 16_383)], nodes: vec![node("b", 2)] },
        ],
        min_ready: None,
        keep: None,
    };
    #[expect(clippy::disallowed_methods, reason = "a file as an operator writes it")]
    std::fs::write(home.path("topology.json"), serde_json::to_vec(&topology).unwrap()).unwrap();
    let server = home.serve_with(&["people"], |config| {
        config.cluster = ClusterConfig::Topology(home.path("topology.json"), "a".into());
    });
    let mut client = Client::of(&server);
    let find = |is_here: bool| {
        let mut keys = (0..2000).map(crate::fixture::key);
        keys.find(|key| (slot_of(key.as_bytes()) < 8192) == is_here).unwrap()
    };
    let (here, there) = (find(true), find(false));
    client.check("MULTI", "+OK");
    client.check(&format!("EXISTS {here}"), "+QUEUED");
    client.check("EXEC", "[1]");
    for line in [format!("GET {there}"), format!("MGET {here} {there}")] {
        client.check("MULTI", "+OK");
        let refused = client.call(&line);
        let is_right =
            ["-MOVED ", "-CROSSSLOT ", "-CLUSTERDOWN "].iter().any(|it| refused.starts_with(it));
        assert!(is_right, "{refused}");
        client.check("EXEC", ABORTED);
    }
}

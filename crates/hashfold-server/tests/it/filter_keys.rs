//! Filters as keys: deleted, renamed and made to expire like others.

use crate::fixture::{Calendar, Client, Home};
use hashfold::{
    Env,
    work::{Clock as _, SystemClock},
};
use hashfold_server::Server;
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

/// The spaces in which clients make filters: with a map, in memory, with a table, with a store, and with nothing else.
const SPACES: [&str; 5] = ["sess", "clicks", "table", "people", "nothing"];

/// Whether clients change strings in a space.
fn has_strings(space: &str) -> bool {
    matches!(space, "sess" | "clicks")
}

/// Returns a configuration in which the user sees a space and makes filters, beside a filter of the configuration.
fn file(space: &str) -> String {
    // A space that is a filter has no other keys.
    let space = if space == "nothing" { "seen" } else { space };
    format!(
        "filters.path = 'made'\n[data.sess]\npath = 'sess'\n[data.table]\npath = 'table'\n\
         [data.people]\npath = 'people'\n[data.seen]\npath = 'seen'\n\
         [data.clicks]\nkind = 'memory'\nmemory = '16MiB'\n\
         [user.default]\nfilters = ['seen']\nmakes-filters = true\nspace = '{space}'\n"
    )
}

fn home() -> Home {
    let home = Home::new();
    home.make_map("sess");
    home
}

/// Calls `check` with a client of each space.
fn in_all_spaces(check: &dyn Fn(&str, &mut Client, &Server)) {
    for space in SPACES {
        let home = home();
        let server = home.serve_file(&file(space));
        check(space, &mut Client::of(&server), &server);
    }
}

fn check_all(client: &mut Client, lines: &[(&str, &str)]) {
    lines.iter().for_each(|(line, reply)| client.check(line, reply));
}

/// Sends all lines at once, and checks the replies.
#[track_caller]
fn check_pipeline(client: &mut Client, lines: &[(&str, &str)]) {
    lines.iter().for_each(|(line, _)| client.ask(line));
    let replies: Vec<String> = lines.iter().map(|_| client.reply()).collect();
    for ((line, expected), reply) in lines.iter().zip(replies) {
        assert_eq!(reply, *expected, "{line}");
    }
}

#[test]
fn filters_are_deleted_in_every_space() {
    in_all_spaces(&|space, client, _| {
        client.check("DEL f", "0");
        check_all(
            client,
            &[
                ("BF.ADD f a", "1"),
                ("CF.ADD g a", "1"),
                ("BF.ADD h a", "1"),
                ("DEL f nope f g", "2"),
                ("EXISTS f g h", "1"),
                ("TYPE f", "+none"),
                ("BF.EXISTS f a", "0"),
                ("CF.INFO g", "-ERR not found"),
                ("SCAN 0 TYPE MBbloomCF", "[\"0\" []]"),
                ("BF.ADD f a", "1"),
                ("CF.ADD f a", WRONG_TYPE),
                ("UNLINK f h", "2"),
                ("TOUCH f h", "0"),
                ("CF.ADD f a", "1"),
                ("TYPE f", "+MBbloomCF"),
                ("UNLINK f", "1"),
            ],
        );
        let expected = if has_strings(space) { "1" } else { "[\"0\" []]" };
        let line = if has_strings(space) { "DBSIZE" } else { "SCAN 0 TYPE MBbloomCF" };
        // The filter of the configuration stays.
        client.check(line, expected);
        let reply = client.call("DEL seen");
        assert!(
            reply.starts_with("-NOPERM filter 'seen' is one that the configuration"),
            "{reply}"
        );
        client.check("EXISTS seen", "1");
    });
}

#[test]
fn keys_of_tables_and_stores_stay_and_those_of_maps_go_with_filters() {
    in_all_spaces(&|space, client, _| {
        client.check("BF.ADD f a", "1");
        if has_strings(space) {
            check_all(
                client,
                &[
                    ("SET key-1 x", "+OK"),
                    ("DEL f key-1 nope", "2"),
                    ("BF.ADD f a", "1"),
                    ("SET key-1 x", "+OK"),
                ],
            );
            let reply = client.call("DEL key-1 f seen");
            assert!(reply.starts_with("-NOPERM filter 'seen'"), "{reply}");
            return client.check("EXISTS key-1 f", "2");
        }
        if space == "nothing" {
            client.check("SET f x", "-NOPERM User default has no permissions to run the 'set' command: tables and stores change in batches; see `hashfold update`");
            return client.check("EXPIRE key-1 100", "0");
        }
        for line in [
            "DEL key-1",
            "DEL f key-1",
            "RENAME f key-1",
            "RENAME key-1 f",
            "EXPIRE key-1 100",
            "PERSIST key-1",
            "COPY key-1 f",
        ] {
            let reply = client.call(line);
            let is_refusal = reply.starts_with("-NOPERM User default has no permissions to run");
            assert!(is_refusal && reply.ends_with("see `hashfold update`"), "{line}: {reply}");
        }
        client.check("EXISTS f key-1", "2");
        client.check("FLUSHALL", "+OK");
        client.check("EXISTS f key-1", "1");
    });
}

#[test]
fn filters_are_renamed_in_every_space() {
    in_all_spaces(&|_, client, _| {
        check_all(
            client,
            &[
                ("BF.RESERVE f 0.01 1000", "+OK"),
                ("BF.ADD f a", "1"),
                ("RENAME nope g", "-ERR no such key"),
                ("RENAME f f", "+OK"),
                ("RENAMENX f f", "0"),
                ("RENAME f g", "+OK"),
                ("EXISTS f g", "1"),
                ("BF.EXISTS g a", "1"),
                ("BF.INFO g capacity", "[1000]"),
                ("CF.ADD f b", "1"),
                ("RENAMENX g f", "0"),
                ("RENAMENX g h", "1"),
                ("EXPIRE f 1000", "1"),
                ("RENAME f h", "+OK"),
                ("TYPE h", "+MBbloomCF"),
                ("CF.COUNT h b", "1"),
                ("TTL h", "1000"),
                ("EXISTS f g h", "1"),
                ("COPY h other", "-ERR not supported for this module key"),
                ("COPY h seen", "0"),
                ("COPY h h", "-ERR source and destination objects are the same"),
                ("COPY nope other", "0"),
                ("BF.ADD f c", "1"),
                ("BF.EXISTS f a", "0"),
                ("DEL f h", "2"),
            ],
        );
        client.check("BF.ADD f a", "1");
        for line in ["RENAME seen f", "RENAME f seen"] {
            let reply = client.call(line);
            assert!(reply.starts_with("-NOPERM filter 'seen'"), "{line}: {reply}");
        }
        client.check("EXISTS seen f", "2");
    });
}

#[test]
fn filters_and_strings_of_a_map_take_each_others_names() {
    let home = home();
    let server = home.serve_file(&file("sess"));
    let client = &mut Client::of(&server);
    check_all(
        client,
        &[
            ("BF.ADD f a", "1"),
            ("MSET s 1 t 2", "+OK"),
            ("RENAMENX f s", "0"),
            ("RENAME f s", "+OK"),
            ("GET s", WRONG_TYPE),
            ("BF.EXISTS s a", "1"),
            ("DBSIZE", "3"),
            ("EXPIRE t 100", "1"),
            ("RENAMENX t s", "0"),
            ("RENAME t s", "+OK"),
            ("GET s", "\"2\""),
            ("TTL s", "100"),
            ("DBSIZE", "2"),
            ("BF.ADD f a", "1"),
            ("COPY s f", "0"),
            ("COPY s f REPLACE", "1"),
            ("GET f", "\"2\""),
            ("DEL f", "1"),
            ("EXISTS f", "0"),
            ("BF.ADD f a", "1"),
            ("SET f x", "+OK"),
            ("GET f", "\"x\""),
            ("BF.ADD f a", WRONG_TYPE),
            ("DEL f", "1"),
            ("BF.MADD f a b", "[1 1]"),
            ("BF.ADD g a", "1"),
            ("MSET f 1 g 2", "+OK"),
            ("MGET f g", "[\"1\" \"2\"]"),
            ("DEL f g", "2"),
            ("BF.ADD f a", "1"),
            ("SETEX f 100 x", "+OK"),
            ("TTL f", "100"),
            ("DEL f", "1"),
            ("BF.ADD f a", "1"),
            ("SET f x EX 0", "-ERR invalid expire time in 'set' command"),
            ("APPEND f x", WRONG_TYPE),
            ("INCR f", WRONG_TYPE),
            ("GETSET f x", WRONG_TYPE),
            ("SET f x NX", WRONG_TYPE),
            ("TYPE f", "+MBbloom--"),
        ],
    );
    let reply = client.call("SET seen x");
    assert!(reply.starts_with("-NOPERM filter 'seen'"), "{reply}");
    client.check("EXISTS seen", "1");
    client.check("TYPE seen", "+MBbloom--");
}

#[test]
fn filters_expire_in_every_space() {
    in_all_spaces(&|_, client, _| {
        check_all(
            client,
            &[
                ("EXPIRE f 10", "0"),
                ("TTL f", "-2"),
                ("BF.ADD f a", "1"),
                ("TTL f", "-1"),
                ("PERSIST f", "0"),
                ("EXPIRE f 100 XX", "0"),
                ("EXPIRE f 100 GT", "0"),
                ("EXPIRE f 1000 NX", "1"),
                ("EXPIRE f 1000 NX", "0"),
                ("EXPIRE f 100 GT", "0"),
                ("EXPIRE f 2000 GT", "1"),
                ("EXPIRE f 3000 LT", "0"),
                ("EXPIRE f 1000 LT", "1"),
                ("TTL f", "1000"),
                ("PERSIST f", "1"),
                ("PTTL f", "-1"),
                ("EXPIREAT f 4102444800", "1"),
                ("EXPIRETIME f", "4102444800"),
                ("PEXPIREAT f 4102444800123", "1"),
                ("PEXPIRETIME f", "4102444800123"),
                ("EXPIRE f x", "-ERR value is not an integer or out of range"),
                ("EXPIRE f 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
                (
                    "EXPIRE f 1 NX XX",
                    "-ERR NX and XX, GT or LT options at the same time are not compatible",
                ),
                ("BF.EXISTS f a", "1"),
                ("PEXPIRE f -1", "1"),
                ("EXISTS f", "0"),
                ("BF.ADD f a", "1"),
                ("EXPIREAT f 1", "1"),
                ("EXISTS f", "0"),
                ("TTL seen", "-1"),
            ],
        );
        let reply = client.call("EXPIRE seen 100");
        assert!(reply.starts_with("-NOPERM filter 'seen'"), "{reply}");
    });
}

#[test]
fn a_filter_is_absent_once_its_time_has_passed() {
    for space in SPACES {
        let home = home();
        let clock = Arc::new(Calendar::default());
        let env = Env { clock: clock.clone(), ..Env::system() };
        let server = home.start_file_in(&file(space), &env).unwrap();
        let client = &mut Client::of(&server);
        let keys = client.call("DBSIZE");
        check_all(
            client,
            &[
                ("BF.ADD f a", "1"),
                ("CF.ADD g a", "1"),
                ("EXPIRE f 1000", "1"),
                ("EXPIRE g 5000", "1"),
                ("WATCH f", "+OK"),
            ],
        );
        clock.ahead_ms.store(2_000_000, SeqCst);
        check_all(
            client,
            &[
                ("MULTI", "+OK"),
                ("PING", "+QUEUED"),
                ("EXEC", "nil"),
                ("EXISTS f g", "1"),
                ("TYPE f", "+none"),
                ("TTL f", "-2"),
                ("BF.EXISTS f a", "0"),
                ("BF.CARD f", "0"),
                ("BF.INFO f", "-ERR not found"),
                ("SCAN 0 TYPE MBbloomCF", "[\"0\" [\"g\"]]"),
                ("KEYS f", "[]"),
                ("DEL f", "0"),
                ("BF.ADD f b", "1"),
                ("TTL f", "-1"),
                ("EXPIRE f 2000", "1"),
            ],
        );
        server.stop().unwrap();
        clock.ahead_ms.store(3_000_000, SeqCst);
        let server = home.start_file_in(&file(space), &env).unwrap();
        let client = &mut Client::of(&server);
        client.check("BF.MEXISTS f a b", "[0 1]");
        let left: u64 = client.call("PTTL f").parse().unwrap();
        assert!((900_000..=1_000_000).contains(&left), "{left}");
        server.stop().unwrap();
        clock.ahead_ms.store(6_000_000, SeqCst);
        let server = home.start_file_in(&file(space), &env).unwrap();
        let client = &mut Client::of(&server);
        client.check("EXISTS f g", "0");
        client.check("DBSIZE", &keys);
        assert_eq!(folders(&home), Vec::<String>::new());
    }
}

/// Returns the names of the folders below that of the filters.
fn folders(home: &Home) -> Vec<String> {
    use hashfold::io::{Disk as _, OsDisk};
    let mut names = OsDisk.list(&home.path("made")).unwrap();
    names.retain(|name| !name.starts_with("filters.names"));
    names
}

#[test]
fn what_was_deleted_renamed_and_made_to_expire_is_so_after_a_restart() {
    let home = home();
    let server = home.serve_file(&file("table"));
    let client = &mut Client::of(&server);
    for key in ["live", "old", "gone", "next"] {
        client.check(&format!("BF.ADD {key} in-{key}"), "1");
    }
    client.check("RENAME live old", "+OK");
    client.check("RENAME next live", "+OK");
    client.check("BF.ADD next again", "1");
    client.check("DEL gone", "1");
    client.check("EXPIREAT old 4102444800", "1");
    // Files are removed soon, and while the server goes on.
    for _ in 0..500 {
        if folders(&home).len() == 3 {
            break;
        }
        SystemClock.sleep(Duration::from_millis(20));
    }
    assert_eq!(folders(&home), ["live", "next", "next.1"]);
    server.stop().unwrap();
    let server = home.serve_file(&file("table"));
    let client = &mut Client::of(&server);
    client.check("KEYS *l*", "[\"live\" \"old\"]");
    client.check("BF.EXISTS old in-live", "1");
    client.check("BF.EXISTS live in-next", "1");
    client.check("BF.EXISTS next again", "1");
    client.check("BF.EXISTS next in-next", "0");
    client.check("EXPIRETIME old", "4102444800");
    client.check("EXPIRETIME live", "-1");
}

#[test]
fn pipelines_keep_their_order() {
    in_all_spaces(&|space, client, _| {
        let set = ("SET f x", "+OK");
        let lines = [
            ("BF.ADD f a", "1"),
            ("DEL f", "1"),
            ("EXISTS f", "0"),
            ("BF.ADD f b", "1"),
            ("EXISTS f", "1"),
            ("BF.EXISTS f a", "0"),
            ("RENAME f g", "+OK"),
            ("EXISTS f g", "1"),
            ("TYPE g", "+MBbloom--"),
            ("EXPIRE g 100", "1"),
            ("TTL g", "100"),
            ("SCAN 0 TYPE MBbloomCF", "[\"0\" []]"),
            ("DEL g", "1"),
            ("TTL g", "-2"),
            ("CF.ADD g a", "1"),
            ("TYPE g", "+MBbloomCF"),
            ("DEL g f", "1"),
            set,
            ("GET f", "\"x\""),
            ("BF.ADD f a", WRONG_TYPE),
            ("DEL f", "1"),
            ("BF.ADD f a", "1"),
            ("GET f", WRONG_TYPE),
            set,
            ("GET f", "\"x\""),
        ];
        let count = if has_strings(space) { lines.len() } else { 17 };
        check_pipeline(client, &lines[..count]);
    });
}

#[test]
fn transactions_change_filters() {
    in_all_spaces(&|space, client, _| {
        let lines = [
            ("BF.ADD f a", "1"),
            ("EXISTS f", "1"),
            ("RENAME f g", "+OK"),
            ("EXISTS f g", "1"),
            ("EXPIRE g 100", "1"),
            ("TTL g", "100"),
            ("BF.ADD g b", "1"),
            ("COPY g x", "-ERR not supported for this module key"),
            ("DEL g g", "1"),
            ("DEL g", "0"),
            ("EXISTS f g", "0"),
            ("CF.ADD g a", "1"),
            ("SET g 1", "+OK"),
            ("GET g", "\"1\""),
            ("FLUSHALL", "+OK"),
            ("EXISTS g", "0"),
            ("BF.ADD g z", "1"),
        ];
        let count = if has_strings(space) { lines.len() } else { 12 };
        client.check("MULTI", "+OK");
        lines[..count].iter().for_each(|(line, _)| client.check(line, "+QUEUED"));
        let replies: Vec<&str> = lines[..count].iter().map(|(_, reply)| *reply).collect();
        client.check("EXEC", &format!("[{}]", replies.join(" ")));
        client.check("EXISTS g", "1");
    });
}

/// A command that fails in a transaction changes nothing, of strings or of filters.
#[test]
fn a_command_that_fails_in_a_transaction_changes_nothing() {
    for space in ["sess", "clicks"] {
        let home = home();
        let server = home.serve_file(&file(space));
        check_failures(&mut Client::of(&server));
    }
}

/// Checks commands of a transaction that fail.
fn check_failures(client: &mut Client) {
    client.check("SET s 1", "+OK");
    client.check("BF.ADD f a", "1");
    client.check("MULTI", "+OK");
    client.check("DEL s f seen", "+QUEUED");
    client.check("MSET s 2 f 3 seen 4", "+QUEUED");
    client.check("RENAME s seen", "+QUEUED");
    client.check("MGET s t", "+QUEUED");
    client.check("EXISTS s f seen", "+QUEUED");
    let reply = client.call("EXEC");
    assert_eq!(reply.matches("-NOPERM filter 'seen'").count(), 3, "{reply}");
    assert!(reply.ends_with(" [\"1\" nil] 3]"), "{reply}");
    client.check("GET s", "\"1\"");
    client.check("BF.EXISTS f a", "1");
}

#[test]
fn exec_is_null_if_a_watched_filter_was_deleted_renamed_or_made_to_expire() {
    in_all_spaces(&|space, client, server| {
        let other = &mut Client::of(server);
        for (changes, is_changed) in [
            (&["DEL f"][..], true),
            (&["DEL f", "BF.ADD f a"], true),
            (&["UNLINK nope"], false),
            (&["RENAME f g"], true),
            (&["BF.ADD g a", "RENAME g f"], true),
            (&["BF.ADD g a", "RENAME g h"], false),
            (&["EXPIRE f 100"], true),
            (&["EXPIRE f 100 XX", "PERSIST f"], false),
            (&["TTL f", "EXISTS f", "TYPE f"], false),
            (&["FLUSHALL"], true),
        ] {
            client.check("FLUSHALL", "+OK");
            client.check("BF.ADD f a", "1");
            client.check("WATCH f", "+OK");
            changes.iter().for_each(|change| drop(other.call(change)));
            client.check("MULTI", "+OK");
            client.check("PING", "+QUEUED");
            let expected = if is_changed { "nil" } else { "[+PONG]" };
            assert_eq!(client.call("EXEC"), expected, "{space} {changes:?}");
        }
        // A name that a filter gets is a change, too.
        client.check("FLUSHALL", "+OK");
        client.check("BF.ADD g a", "1");
        client.check("WATCH f", "+OK");
        other.check("RENAME g f", "+OK");
        client.check("MULTI", "+OK");
        client.check("EXEC", "nil");
    });
}

#[test]
fn flushes_remove_the_filters_that_clients_made() {
    for flush in ["FLUSHALL", "FLUSHDB ASYNC"] {
        in_all_spaces(&|space, client, server| {
            client.check("FLUSHALL now", "-ERR syntax error");
            let keys = client.call("DBSIZE");
            if has_strings(space) {
                client.check("SET s 1", "+OK");
            }
            client.check("BF.ADD f a", "1");
            client.check("CF.ADD g a", "1");
            client.check(flush, "+OK");
            client.check("DBSIZE", &keys);
            client.check("EXISTS f g s seen", "1");
            Client::of(server).check("BF.ADD f a", "1");
        });
    }
}

#[test]
fn who_makes_no_filters_deletes_none() {
    let home = home();
    let server = home.serve(&["table", "seen"]);
    let mut client = Client::of(&server);
    let refused = |command| {
        format!(
            "-NOPERM User default has no permissions to run the '{command}' command: tables and stores change in \
             batches; see `hashfold update`"
        )
    };
    client.check("DEL nope", &refused("del"));
    client.check("DEL key-1", &refused("del"));
    client.check("FLUSHALL", &refused("flushall"));
    let reply = client.call("DEL seen");
    assert!(
        reply.starts_with("-NOPERM filter 'seen' is one that the configuration names"),
        "{reply}"
    );
    let reply = client.call("UNLINK nope seen");
    assert!(
        reply.starts_with("-NOPERM filter 'seen' is one that the configuration names"),
        "{reply}"
    );
    client.check("EXISTS seen", "1");
}

/// Other clients use a filter while it is deleted, renamed and made again: each reply makes sense.
#[test]
fn other_clients_meet_filters_that_are_there_or_not() {
    for space in ["sess", "clicks", "table"] {
        let home = home();
        let server = home.serve_file(&file(space));
        let address = server.addresses()[0];
        std::thread::scope(|scope| {
            for number in 0..3 {
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    for i in 0..40 {
                        let reply = client.call(&format!("BF.ADD f {number}-{i}"));
                        assert_eq!(reply, "1", "a new name is new whatever filter it is added to");
                        let reply = client.call(&format!("BF.EXISTS f {number}-{i}"));
                        assert!(["0", "1"].contains(&reply.as_str()), "{reply}");
                    }
                });
            }
            let mut client = Client::connect(address);
            for i in 0..30 {
                let line = ["DEL f", "RENAME f g", "EXPIRE f 100", "PEXPIRE f 0"][i % 4];
                let reply = client.call(line);
                assert!(["0", "1", "+OK", "-ERR no such key"].contains(&reply.as_str()), "{reply}");
            }
        });
    }
}
